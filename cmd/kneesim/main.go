// Kneesim predicts a sweep without an endpoint: the load generator of kneeload and the engine model of kneemock in virtual
// time. It writes the same files as kneeload, bit for bit the same for the same flags.
//
//	kneesim simulate --preset l40s
//	kneesim simulate --preset h100 --model gemma-3-12b --label h100-gemma3
//	kneesim simulate --model llama-3.1-8b --gpu l40s --rates 0.1,0.2,0.5,1 --slo 500ms
//
// Its numbers are those of a model that no measurement has calibrated: good for screening, to be confirmed on hardware.
package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
)

type commands struct {
	Simulate   simulate         `cmd:"" help:"Sweep call rates against an engine model in virtual time."`
	Completion cli.Completion   `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`
	Version    kong.VersionFlag `help:"Print the version."`
}

func main() { cli.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneesim", "Predict the load that an LLM endpoint carries, without the endpoint.\n\nExample: kneesim simulate --preset l40s", args, stdout, stderr, recipe.Vars())
}

type simulate struct {
	cli.ConfigFile `embed:""`
	cli.Workload   `embed:""`
	cli.Output     `embed:""`
	recipe.Recipe  `embed:""`
	TTFTTimeout    cli.Seconds `name:"ttft-timeout" help:"Longest wait for a first token, as kneeload's." default:"60s" group:"recipe"`
	TotalTimeout   cli.Seconds `help:"Longest answer, as kneeload's." default:"5m" group:"recipe"`
	Replay         string      `help:"Send the turns of this turn log at the instants at which they were sent, instead of a sweep." type:"existingfile" placeholder:"LOG" group:"workload"`
}

// Help is what simulate --help says beyond its flags.
func (*simulate) Help() string {
	return fmt.Sprintf("Virtual time costs nothing, so a step's window waits for the turns of %d calls, as long as that takes, unless --min-turns or "+
		"--max-step-duration say otherwise.\n\nExamples:\n  kneesim simulate --preset l40s\n  kneesim simulate --preset h100 --model gemma-3-12b\n"+
		"  kneesim simulate --model llama-3.1-8b --gpu l40s --rates 0.1,0.2,0.5,1 --slo 500ms\n  kneesim simulate --replay results/demo.turns.jsonl", simCalls)
}

// label names a run by what is simulated; the preset too where it is not named after that.
func (s *simulate) label(cfg engine.Config) string {
	parts := []string{"sim", s.Preset, cfg.GPU.Name, cfg.Model.Name}
	if s.Preset == cfg.GPU.Name || s.Preset == "" {
		parts = slices.Delete(parts, 1, 2)
	}
	return strings.Join(parts, "-")
}

// simCalls is how many calls a simulated step waits for: virtual time costs nothing.
const simCalls = 200

func (s *simulate) Run(ctx context.Context, std cli.Streams) error {
	if s.Replay != "" {
		return s.replay(ctx, std)
	}
	c, err := s.config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	if s.Preset == "tiny" && s.Model == "" && s.GPU == "" {
		return cli.Usage("the preset tiny is for a real engine on a CPU, which is no engine that is modelled here: name --model and --gpu")
	}
	cfg, err := s.Recipe.Engine(s.Preset)
	if err != nil {
		return cli.Usage("%w", err)
	}
	if s.Label == "" {
		s.Label = s.label(cfg)
	}
	eng, err := engine.New(cfg)
	if err != nil {
		return err
	}
	const nonce = 0x6b6e6565 // fixed, so that the same flags give the same files
	gen, err := s.Workload.Generator(c, nonce^s.Seed)
	if err != nil {
		return cli.Usage("%w", err)
	}
	cal := measurement.Calibration{Overhead: float64(simulation.Overhead()), TokensPerWord: 1}
	gen.Script = generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens}, cal)
	files, log, err := s.Output.Open()
	if err != nil {
		return err
	}
	defer log.Close()
	limits := generator.Limits{TTFT: time.Duration(s.TTFTTimeout), Total: time.Duration(s.TotalTimeout)}
	clk, endpoint := simulation.NewRun(eng, gen.Script.Lexicon, limits)
	progress := cli.NewProgress(std.Err)
	progress.Brief = true
	looks := &sampler{clk: clk, eng: eng, longest: time.Duration((c.MaxStepSeconds + c.DrainSeconds) * float64(time.Second))}
	known := recipe.EngineInfo(cfg)
	known.Calibration = &cal
	sweep := cli.Sweep{Flags: &s.Workload, Generator: gen, Endpoint: endpoint, Clock: clk, Files: files, Log: log, RawITL: s.RawITL,
		Progress: progress, Watch: looks, Sample: looks.take,
		Header: measurement.Header{Label: s.Label, Tool: "kneesim " + cli.Version, Config: c, Engine: known, Seed: s.Seed, Nonce: fmt.Sprintf("%016x", gen.Script.Nonce)}}
	var r measurement.Results
	clk.Run(ctx, func() { r, err = sweep.Run(ctx) })
	analysis.Summary(std.Out, r)
	fmt.Fprintf(std.Out, "\nUncalibrated: a model of %s on %s, not a measurement. Files: %s\n", cfg.Model.Name, cfg.GPU.Name, files.Written())
	return err
}

// config is the workload's, with steps as long as 200 calls take, and drained to the end.
func (s *simulate) config() (measurement.Config, error) {
	if s.Preset == "" && s.Rates == nil && s.Concurrency == nil && (s.GPU == "l40s" || s.GPU == "h100") {
		s.Preset = s.GPU // whose rates are for it
	}
	c, err := s.Workload.Config()
	if s.MinTurns == nil {
		c.MinTurns = max(c.MinTurns, simCalls*(c.Turns-1))
	}
	if s.MaxStepDuration == nil {
		c.MaxStepSeconds = 1e6
	}
	if s.Drain == nil {
		c.DrainSeconds = 1e5
	}
	return c, err
}
