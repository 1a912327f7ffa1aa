// Kneemock is a mock SGLang or vLLM server: a simulated engine, in real time, behind the OpenAI wire. It needs no GPU. Its
// queue, prefix cache and step times are those of the model and the GPU that it is told to be, so that a load generator sees a
// knee where such a server would have one; its words are noise.
//
// Usage:
//
//	kneemock serve [flags]
//
// Examples:
//
//	kneemock serve
//	kneemock serve --model gemma-4-12b --gpu l40s --listen 127.0.0.1:30000
//	kneemock serve --kind vllm --served-model-name my-model --no-cache-report
//	kneemock serve --kv-tokens 40000 --chunked-prefill 2048 --context-length 32768
//
// It prints one line when it is ready, and serves until SIGINT or SIGTERM; then it takes no more requests, gives those in
// progress five seconds, and ends. A second signal ends it at once.
//
// It answers POST /v1/chat/completions (streamed or not; temperature, stop and ignore_eos are read and change nothing: an answer
// always has as many tokens as the request allows, 16 if it does not say), POST /tokenize, GET /v1/models, /health, /version,
// /server_info, and POST or GET /flush_cache. One word is one token, beside the constant tokens of the chat template.
//
// The exit status is 0 when it was told to stop, 1 when it cannot serve, 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal has its usual effect
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kneemock: %v\n", err)
	}
	os.Exit(status(err))
}

// usageError is an error in what the user wrote.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// status is the exit status that tells of err.
func status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usageError{}):
		return 2
	default:
		return 1
	}
}

// run is the whole command. It returns when ctx has ended and the server has stopped.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var cli struct {
		Serve serve `cmd:"" help:"Serve a simulated engine as an OpenAI-compatible server, in real time."`
	}
	helped := false
	parser, err := kong.New(&cli,
		kong.Name("kneemock"),
		kong.Description("A mock SGLang or vLLM server: a simulated engine, in real time, behind the OpenAI wire."),
		kong.Vars{"models": list(engine.ModelNames()), "gpus": list(engine.GPUNames())},
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), // kong has printed the help and would leave
	)
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	return cli.Serve.run(ctx, stdout, stderr)
}

// drain is how long answers in progress may go on after a signal.
const drain = 5 * time.Second

func (s *serve) run(ctx context.Context, stdout, stderr io.Writer) error {
	eng, cfg, err := s.engine()
	if err != nil {
		return usageError{err}
	}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("%w (choose another address with --listen)", err)
	}
	mock := mockserver.New(cfg, eng)
	hs := &http.Server{
		Handler:           mock.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(stderr, "kneemock: ", 0),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()

	url := "http://" + l.Addr().String()
	fmt.Fprintf(stdout, "kneemock: %s serves %s on %s as %s, KV pool %d tokens; try: kneeload validate --base-url %s\n",
		url, cfg.ModelName, cfg.GPU, cfg.Kind, mock.Stats().KVPoolTokens, url)
	select {
	case err := <-served:
		mock.Close()
		return err
	case <-ctx.Done():
	}
	shutDown(hs, mock)
	<-served
	return nil
}

// shutDown lets answers in progress end, then cuts them short.
func shutDown(hs *http.Server, mock *mockserver.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	err := hs.Shutdown(ctx)
	mock.Close()
	if err == nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Second) // for the errors that Close makes them say
	defer cancel()
	if hs.Shutdown(ctx) != nil {
		hs.Close()
	}
}

// version is the version of this build.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
