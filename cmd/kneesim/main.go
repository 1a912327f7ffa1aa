// Kneesim predicts a sweep without an endpoint: the load generator of kneeload and the engine model of kneemock in virtual
// time. It writes the same files as kneeload, bit for bit the same for the same flags.
//
//	kneesim simulate --preset l40s
//	kneesim simulate --preset h100 --model gemma-3-12b --label h100-gemma3
//	kneesim simulate --model llama-3.1-8b --gpu l40s --rates 0.1,0.2,0.5,1 --slo 500ms
//	kneesim simulate --preset l40s --detail 0.02,0.2 --json l40s.report.json
//	kneesim simulate --preset demo --rates 2 --no-extend --dump-steps steps.jsonl
//	kneesim simulate --model llama-3.1-8b --gpu h100 --prompt-tokens lognormal:512:0.8 --output-tokens 128 --rates 8,16 --label requests
//
// Without a GPU file of kneesim anchor its numbers are those of a model that no measurement has calibrated: good for screening, to be
// confirmed on hardware.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
)

type commands struct {
	Simulate   simulate         `cmd:"" help:"Sweep call rates against an engine model in virtual time."`
	Hits       traceHits        `cmd:"" help:"Print what prefix caches of several sizes find of a trace."`
	Anchor     calibrate        `cmd:"" help:"Calibrate the engine model to a real engine: measure it at low load, fit a GPU file."`
	Completion cli.Completion   `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`
	Version    kong.VersionFlag `help:"Print the version."`
}

func main() { cli.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneesim", "Predict the load that an LLM endpoint carries, without the endpoint.\n\nExample: kneesim simulate --preset l40s", args, stdout, stderr, recipe.Vars(), defaults())
}

// defaults is what help texts show of the workload's flags.
func defaults() kong.Vars {
	return cli.Defaults(func(w cli.Workload) (measurement.Config, error) { return (&simulate{Workload: w}).config() })
}

type simulate struct {
	cli.ConfigFile `embed:""`
	cli.Workload   `embed:""`
	cli.Output     `embed:""`
	recipe.Recipe  `embed:""`
	recipe.Fleet   `embed:""`
	reporting      `embed:""`
	TTFTTimeout    cli.Seconds `name:"ttft-timeout" help:"Longest wait for a first token, as kneeload's." default:"60s" group:"recipe"`
	TotalTimeout   cli.Seconds `help:"Longest answer, as kneeload's." default:"5m" group:"recipe"`
	Replay         string      `help:"Send the turns of this turn log at the instants at which they were sent, instead of a sweep. Beside it stand flags of the simulated engine, --preset for its model and GPU, and files from which the log's prompts came." type:"existingfile" placeholder:"LOG" group:"workload"`
}

// Help is what simulate --help says beyond its flags.
func (*simulate) Help() string {
	return fmt.Sprintf("Virtual time costs nothing, so a step's window waits for the turns of %d calls, as long as that takes, unless --min-turns or "+
		"--max-step-duration say otherwise.\n\nExamples:\n  kneesim simulate --preset l40s\n  kneesim simulate --preset h100 --model gemma-3-12b\n"+
		"  kneesim simulate --model llama-3.1-8b --gpu l40s --rates 0.1,0.2,0.5,1 --slo 500ms\n  kneesim simulate --replay results/demo.turns.jsonl\n"+
		"  kneesim simulate --preset l40s --detail 0.02,0.2 --json l40s.report.json\n  kneesim simulate --preset demo --rates 2 --no-extend --dump-steps steps.jsonl", simCalls)
}

// label names a run by what is simulated; the preset too where it is not named after that.
func (s *simulate) label(cfg engine.Config) string {
	parts := []string{"sim", s.Preset, cfg.GPU.Name, cfg.Model.Name}
	if s.Preset == "" {
		parts = slices.Delete(parts, 1, 2)
	} else if g, ok := gpu.ByName(s.Preset); ok && g.Name == cfg.GPU.Name {
		parts = slices.Delete(parts, 2, 3)
	}
	if cfg.Recipe.Kind == engine.VLLM {
		parts = append(parts, "vllm")
	}
	return strings.Join(parts, "-")
}

// simCalls is how many calls a simulated step waits for: virtual time costs nothing.
const simCalls = 200

// simRequests is how many single requests it waits for.
const simRequests = 600

func (s *simulate) Run(ctx context.Context, line *kong.Context, std cli.Streams) (ended error) {
	if s.Replay != "" {
		return s.replay(ctx, given(line), std)
	}
	c, err := s.config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	if err := s.modelled(s.Preset); err != nil {
		return err
	}
	cfg, err := s.Recipe.Config(s.Preset)
	if err != nil {
		return cli.Usage("%w", err)
	}
	if err := bounded(c, cfg); err != nil {
		return cli.Usage("%w", err)
	}
	if s.Label == "" {
		s.Label = s.label(cfg)
	}
	eng, err := s.Fleet.New(cfg, s.Seed)
	if err != nil {
		return cli.Usage("%w", err)
	}
	const nonce = 0x6b6e6565 // fixed, so that the same flags give the same files
	gen, err := s.Workload.Generator(c, nonce^s.Seed)
	if err != nil {
		return cli.Usage("%w", err)
	}
	cal := measurement.Calibration{Overhead: float64(simulation.Overhead(&gen.Script)), TokensPerWord: 1}
	gen.Script = generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens}, cal)
	if err := s.reporting.check(s.Output); err != nil {
		return err
	}
	files, log, err := s.Output.Open()
	if err != nil {
		return err
	}
	defer log.Close()
	limits := generator.Limits{TTFT: time.Duration(s.TTFTTimeout), Total: time.Duration(s.TotalTimeout)}
	clk, endpoint := simulation.NewRun(eng, gen.Script.Lexicon, limits)
	progress := cli.NewProgress(std.Err)
	progress.Brief = true
	looks := &sampler{clk: clk, eng: eng, split: cfg.Filled().Recipe.KVScheme == kv.SGLang, longest: time.Duration((c.MaxStepSeconds + c.DrainSeconds) * float64(time.Second))}
	known := recipe.EngineInfo(cfg, s.Fleet)
	known.Calibration = &cal
	if len(s.ReplicaGPUs) == 0 {
		room(ctx, known.Details, cfg, c)
	}
	sweep := cli.Sweep{Flags: &s.Workload, Generator: gen, Endpoint: endpoint, Clock: clk, Files: files, Log: log, RawITL: s.RawITL,
		Progress: progress, Watch: looks, Sample: looks.take,
		Header: measurement.Header{Label: s.Label, Tool: "kneesim " + cli.Version, Config: c, Engine: known, Seed: s.Seed, Nonce: fmt.Sprintf("%016x", gen.Script.Nonce)}}
	if s.DumpSteps != "" {
		steps, err := newDump(s.DumpSteps, looks, sweep.Header)
		if err != nil {
			return err
		}
		endpoint.Watch(steps)
		sweep.Watch = steps
		defer func() { ended = errors.Join(ended, steps.close()) }()
	}
	var r measurement.Results
	clk.Run(ctx, func() { r, err = sweep.Run(ctx) })
	of := fleetOf(eng, clk.Now())
	if s.JSON == "-" {
		return errors.Join(err, writeJSON(std.Out, r, of))
	}
	s.text(std.Out, r)
	of.text(std.Out)
	fmt.Fprintf(std.Out, "\n%s Files: %s\n", standing(cfg, s.Fleet.String(), r), files.Written())
	if s.JSON != "" {
		err = errors.Join(err, measurement.ReplaceFile(s.JSON, func(w io.Writer) error { return writeJSON(w, r, of) }))
	}
	return err
}

// modelled refuses a preset of which no engine is modelled, unless the flags name one.
func (s *simulate) modelled(preset string) error {
	if preset == "tiny" && s.Model == "" && s.ModelConfig == "" && s.GPU == "" && s.GPUFile == "" {
		return cli.Usage("the preset tiny is for a real engine on a CPU, which is no engine that is modelled here: name --model and --gpu, or give the files of yours (kneesim anchor makes one)")
	}
	return nil
}

// mostTurns is how many turns of a step fit comfortably into memory.
const mostTurns = 2_000_000

// bounded refuses a run that would end nowhere: a step of more turns than can be held, and prompts that no call gets answered.
func bounded(c measurement.Config, cfg engine.Config) error {
	for _, rate := range c.Rates {
		if calls := cli.EstimateStep(c, rate).Calls; calls > measurement.CallsPerStep/2 {
			return fmt.Errorf("the step at %g is about %.0f calls long, and at most %d have numbers of their own: lower --min-turns or --step-duration", rate, calls, measurement.CallsPerStep/2)
		}
		if turns := cli.EstimateStep(c, rate).Calls * float64(c.Turns); turns > mostTurns {
			return fmt.Errorf("the step at %g is about %.0f turns long, and at most %d can be held: lower --rates, --turns, --gap, --output-tokens, --min-turns or the step's times", rate, turns, mostTurns)
		}
	}
	first := c.SystemPromptTokens + c.UserTokens
	if c.PromptLengths == fmt.Sprint(c.PromptTokens-c.PrefixTokens) { // all are so long
		first = c.PromptTokens
	}
	if limit := cfg.Filled().Recipe.ContextLimit; c.Transcripts == "" && first > limit {
		return fmt.Errorf("every call would fail: its first prompt has %d tokens, and the context limit is %d: lower --system-prompt-tokens or --prompt-tokens, or raise --context-length", first, limit)
	}
	return nil
}

// config is the workload's, with steps as long as 200 calls take, and drained to the end.
func (s *simulate) config() (measurement.Config, error) {
	if s.Preset == "" && s.Rates == nil && s.Concurrency == nil && (s.GPU == "l40s" || s.GPU == "h100") {
		s.Preset = s.GPU // whose rates are for it
	}
	c, err := s.Workload.Config()
	switch {
	case s.MinTurns != nil || c.TraceOnce:
	case c.Lone():
		c.MinTurns = max(c.MinTurns, simRequests)
	default:
		c.MinTurns = max(c.MinTurns, simCalls*(c.Turns-1))
	}
	if s.MaxStepDuration == nil {
		c.MaxStepSeconds = max(1e6, c.StepSeconds)
	}
	if s.Drain == nil {
		c.DrainSeconds = max(1e5, c.DrainSeconds)
	}
	return c, err
}
