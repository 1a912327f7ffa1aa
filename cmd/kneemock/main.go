// Kneemock is a mock SGLang or vLLM server: a simulated engine, in real time, behind the OpenAI wire. It needs no GPU. Its
// queue, prefix cache and step times are those of the model and the GPU that it is told to be, so that a load generator sees a
// knee where such a server would have one; its words are noise. Without flags it is gemma-4-12b on an L40S.
//
// Usage:
//
//	kneemock serve [flags]
//
// Examples:
//
//	kneemock serve
//	kneemock serve --model gemma-4-12b --gpu l40s --listen 127.0.0.1:30000
//	kneemock serve --engine vllm --served-model-name my-model --no-cache-report
//	kneemock serve --kv-tokens 40000 --chunked-prefill 2048 --context-length 32768
//	kneemock serve --decode-log-interval 1 --tokenizer-metrics-allowed-custom-labels run_id,step,phase
//	kneemock serve --bucket-time-to-first-token .05,.1,.2,.25,.3,.35,.4,.5,.75,1,2,4,8
//
// It prints one line when it is ready, and serves until SIGINT or SIGTERM; then it takes no more requests, gives those in
// progress five seconds, and ends.
//
// It answers POST /v1/chat/completions (streamed or not; temperature, stop and ignore_eos are read and change nothing: an answer
// always has as many tokens as the request allows, 16 if it does not say), POST /tokenize, GET /v1/models, /health, /version,
// /server_info, and POST or GET /flush_cache. One word is one token, beside the constant tokens of the chat template.
//
// GET /metrics has the metrics of SGLang 0.5.23 or vLLM 0.32, with their names, labels, bucket bounds and meanings as far as the
// engine model knows them: SGLang's gauges are as old as the last prefill or the last decode report, its counters of prompt and
// cached tokens move when a request ends; vLLM's gauges move with every step, and it counts no evictions.
//
// The exit status is 0 when it was told to stop, 1 when it cannot serve, 2 for wrong usage.
package main

import (
	"context"
	"io"

	"github.com/alecthomas/kong"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
)

type commands struct {
	Serve      serve            `cmd:"" help:"Serve a simulated engine as an OpenAI-compatible server, in real time."`
	Completion cli.Completion   `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`
	Version    kong.VersionFlag `help:"Print the version."`
}

func main() { cli.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneemock", "A mock SGLang or vLLM server: a simulated engine, in real time, behind the OpenAI wire.\n\n"+
		"Example: kneemock serve --model gemma-4-12b --gpu l40s", args, stdout, stderr, recipe.Vars())
}
