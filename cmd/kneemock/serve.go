package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/simulation/mockserver"
)

// serve is the command kneemock serve.
type serve struct {
	recipe.Recipe   `embed:""`
	recipe.Fleet    `embed:""`
	Listen          string `help:"The address to serve on; port 0 takes a free one." default:"127.0.0.1:30000" group:"endpoint"`
	ServedModelName string `help:"The model name that requests must give. By default the model's." placeholder:"NAME" group:"endpoint"`
	NoCacheReport   bool   `help:"Leave cached tokens out of usage, as servers started without a cache report do." group:"endpoint"`

	DecodeLogInterval       int       `help:"SGLang's gauges are refreshed every so many decode steps, and with every prefill; 0: 40." placeholder:"STEPS" group:"endpoint"`
	BucketTimeToFirstToken  []float64 `help:"Bucket bounds of SGLang's histogram of TTFT, seconds, with commas between; by default SGLang's." placeholder:"SECONDS" group:"endpoint"`
	BucketInterTokenLatency []float64 `help:"The same of gaps between tokens." placeholder:"SECONDS" group:"endpoint"`
	BucketE2ERequestLatency []float64 `name:"bucket-e2e-request-latency" help:"The same of whole requests." placeholder:"SECONDS" group:"endpoint"`

	TokenizerMetricsAllowedCustomLabels []string `help:"Labels that SGLang's figures of requests take from the header x-custom-labels, a JSON object." placeholder:"NAMES" group:"endpoint"`
}

// drain is how long answers in progress may go on after a signal.
const drain = 5 * time.Second

// Run serves until ctx ends and the server has stopped.
func (s *serve) Run(ctx context.Context, std cli.Streams) error {
	cfg, err := s.Recipe.Config("")
	if err != nil {
		return cli.Usage("%w", err)
	}
	kind := mockserver.Kind(s.Engine)
	name := s.ServedModelName
	if name == "" {
		name = cfg.Model.Name
	}
	cfg = cfg.Filled()
	mc := mockserver.Config{
		Kind: kind, ModelName: name, ContextLimit: cfg.Recipe.ContextLimit, NoCacheReport: s.NoCacheReport, Version: cli.Version,
		ModelPath: cfg.Model.Name, GPU: cfg.GPU.Name, ChunkedPrefill: cfg.Recipe.ChunkedPrefill, MemFraction: cfg.Recipe.MemFraction,
		WeightBytes: cfg.Model.WeightBytes(), DecodeLogInterval: s.DecodeLogInterval,
		TTFTBuckets: s.BucketTimeToFirstToken, ITLBuckets: s.BucketInterTokenLatency, E2EBuckets: s.BucketE2ERequestLatency,
		CustomLabels: s.TokenizerMetricsAllowedCustomLabels,
	}
	if err := mc.Validate(); err != nil {
		return cli.Usage("%w", err)
	}
	eng, err := s.Fleet.New(cfg, 1)
	if err != nil {
		return cli.Usage("%w", err)
	}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("%w (choose another address with --listen)", err)
	}
	mock := mockserver.New(mc, eng)
	hs := &http.Server{
		Handler:           mock.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(std.Err, "kneemock: ", 0),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()

	url := "http://" + l.Addr().String()
	preset := ""
	if cfg.GPU.Name == "demo" {
		preset = " --preset demo"
	}
	fmt.Fprintf(std.Out, "kneemock: %s serves %s on %s as %s, KV pool %d tokens; try: kneeload validate --base-url %s%s\n",
		url, name, cfg.GPU.Name, kind, mock.Stats().KVPoolTokens, url, preset)
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
