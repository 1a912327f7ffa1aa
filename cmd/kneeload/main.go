// Kneeload finds the load at which an LLM endpoint stops being good enough. It drives an OpenAI-compatible endpoint with
// calls that arrive as a Poisson process, times every turn, and names the knee of the curve.
//
//	kneeload demo
//	kneeload validate --base-url http://127.0.0.1:30000 --preset demo
//	kneeload sweep --base-url http://127.0.0.1:30000 --preset demo --label mock --dry-run
//	kneeload sweep --base-url http://127.0.0.1:30000 --preset l40s --label L40S
//	kneeload sweep --base-url http://127.0.0.1:30000 --rates 0.2,0.5,0.8,1 --slo 500ms --label mine
//	kneeload run --base-url http://127.0.0.1:30000 --preset demo --rate 2 --duration 5s --web.listen-address 127.0.0.1:0
//
// An API key is taken from KNEELOAD_API_KEY or OPENAI_API_KEY, or from the file that --api-key-file names.
package main

import (
	"context"
	"io"

	"github.com/alecthomas/kong"

	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type commands struct {
	Demo       demo             `cmd:"" help:"Find the knee of a small engine model inside this process, over real HTTP; needs nothing else."`
	Validate   validate         `cmd:"" help:"Speak one call and prove that its later turns hit the prefix cache."`
	Sweep      sweep            `cmd:"" help:"Sweep call rates and find the knee."`
	Run        steady           `cmd:"" help:"Send a steady load until stopped, and show what it feels like: the exporter as a service."`
	Completion cli.Completion   `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`
	Version    kong.VersionFlag `help:"Print the version."`
}

func main() { cli.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneeload", "Find the load that an LLM endpoint carries.\n\nExamples:\n  kneeload demo\n"+
		"  kneeload validate --base-url http://127.0.0.1:30000\n  kneeload sweep --base-url http://127.0.0.1:30000 --preset l40s --label L40S",
		args, stdout, stderr, defaults())
}

// defaults is what help texts show.
func defaults() kong.Vars {
	return cli.Defaults(func(w cli.Workload) (measurement.Config, error) { return w.Config() })
}
