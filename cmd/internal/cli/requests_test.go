package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"kneefinder/measurement"
)

const tinyTrace = `{"timestamp": 0, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
{"timestamp": 400, "input_length": 1700, "output_length": 8, "hash_ids": [5, 6, 7, 91]}
{"timestamp": 600, "input_length": 700, "output_length": 4, "hash_ids": [5]}
{"timestamp": 2000, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
`

// parseWorkload reads the flags of a workload as a command does. A file's name stands for its path in a folder of the test's.
func parseWorkload(t *testing.T, args ...string) (*Workload, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"trace.jsonl": tinyTrace, "timeless.csv": "isl,osl\n500,20\n700,40\n", "lengths.csv": "isl,osl\n100,10\n200,20\n300,30\n", "one.csv": "arrival,isl,osl\n0,5,5\n",
		"bad.csv": "arrival,isl,ols\n0,5,5\n", "instants": "0\n1\n2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		for i := range args {
			args[i] = strings.Replace(args[i], name, filepath.Join(dir, name), 1)
		}
	}
	var w Workload
	p, err := kong.New(&w, kong.Vars{"presets": PresetNames}, Defaults(func(w Workload) (measurement.Config, error) { return w.Config() }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Parse(args)
	return &w, err
}

// What the flags of single requests make of a Config, and the plan that a person reads of it.
func TestRequestFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(c measurement.Config) bool
		plan []string
	}{
		{"--prompt-tokens 512 --output-tokens 64 --rates 1,2", func(c measurement.Config) bool {
			return c.Lone() && c.PromptTokens == 512 && c.OutputTokens == 64 && c.OutputLengths == "" && c.SystemPromptTokens == 0 && c.GapMaxSeconds == 0 && c.Arrivals == "" && c.WarmupSeconds == 1.28
		}, []string{"λ requests/s", "Single requests, each measured: prompts of 512 tokens, answers of 64 tokens. It"}},
		{"--prompt-tokens lognormal:500:0.8 --output-tokens uniform:10:30 --prefix-tokens 1000 --prefixes 8 --prefix-zipf 1.1 --rates 4", func(c measurement.Config) bool {
			return c.PromptTokens == 1500 && c.OutputTokens == 20 && c.OutputLengths == "uniform:10:30" && c.PromptLengths == "lognormal:500:0.8" && c.Prefixes == 8 && c.PrefixZipf == 1.1 && c.WarmupSeconds == .6+6
		}, []string{"one of 8 shared prefixes (Zipf 1.1) of 1000, then lognormal:500:0.8 of their own, answers of 20 tokens on average (uniform:10:30)"}},
		{"--prompt-tokens empirical:lengths.csv:isl --output-tokens empirical:lengths.csv:OSL --concurrency 2", func(c measurement.Config) bool {
			return c.PromptTokens == 200 && c.OutputTokens == 20 && c.PromptLengths == "empirical:lengths.csv:isl" && c.Arrivals == "closed"
		}, []string{"requests at once", "prompts of 200 tokens on average (empirical:lengths.csv:isl)"}},
		{"--trace trace.jsonl", func(c measurement.Config) bool {
			return c.Trace == "trace.jsonl" && c.Arrivals == "trace" && c.TraceOnce && c.Rates[0] == 1.5 && c.StepSeconds == 2.667 && c.WarmupSeconds == 0 && c.MinTurns == 0 && c.TraceRequests == 4 && c.TraceBlock == 512 && c.PromptTokens == 1400 && c.OutputTokens == 11
		}, []string{"the 4 requests of trace.jsonl, prompts of 1400 tokens on average", "a hash id for each 512 tokens. It", "at the trace's own instants, 1.5 requests/s", "5600"}},
		{"--trace trace.jsonl --trace-speed 2 --preset l40s", func(c measurement.Config) bool { return c.TraceOnce && c.Rates[0] == 3 && c.StepSeconds == 1.334 }, nil},
		{"--trace trace.jsonl --step-duration 60s", func(c measurement.Config) bool {
			return !c.TraceOnce && c.Rates[0] == 1.5 && c.StepSeconds == 60 && c.MinTurns == 60
		}, []string{"again and again"}},
		{"--trace trace.jsonl --rates 1,2 --trace-block 256", func(c measurement.Config) bool {
			return c.Arrivals == "trace" && !c.TraceOnce && len(c.Rates) == 2 && c.TraceBlock == 256
		}, []string{"stretched to each rate"}},
		{"--trace trace.jsonl --rates 1,2 --arrivals poisson", func(c measurement.Config) bool { return c.Arrivals == "" && c.Trace != "" }, nil},
		{"--trace trace.jsonl --rates 1,2 --arrivals burst:8:1s:5s", func(c measurement.Config) bool { return c.Arrivals == "burst:8:1s:5s" }, []string{"They arrive as burst:8:1s:5s."}},
		{"--trace trace.jsonl --find-knee", func(c measurement.Config) bool { return c.FindKnee && c.Rates[0] == 1.5 && !c.TraceOnce }, nil},
		{"--trace timeless.csv --rates 1,2", func(c measurement.Config) bool { return c.Arrivals == "" && c.TraceBlock == 0 && c.PromptTokens == 600 }, nil},
		{"--trace one.csv --concurrency 3", func(c measurement.Config) bool { return c.Arrivals == "closed" }, nil},
		{"--prompt-tokens 5 --arrivals instants", func(c measurement.Config) bool { return len(c.Rates) == 1 && c.Rates[0] == 1.5 }, nil},
		{"--output-tokens lognormal:100:1 --rates 1", func(c measurement.Config) bool {
			return !c.Lone() && c.Turns == 4 && c.OutputTokens == 100 && c.OutputLengths == "lognormal:100:1"
		}, []string{"100 (lognormal:100:1) tokens out"}},
	} {
		w, err := parseWorkload(t, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		cfg, err := w.Config()
		if err != nil || !c.want(cfg) {
			t.Errorf("%s: %v, %+v", c.args, err, cfg)
			continue
		}
		g, err := w.Generator(cfg, 1)
		if err == nil {
			err = g.Validate()
		}
		if err != nil || (g.Script.Requests != nil) != cfg.Lone() || w.Extends(cfg) == (cfg.TraceOnce || cfg.Arrivals == "closed" || strings.Contains(c.args, "instants") || strings.HasSuffix(c.args, "60s") || strings.HasSuffix(c.args, "jsonl --find-knee")) {
			t.Errorf("%s: %v, %+v, extends %v", c.args, err, g, w.Extends(cfg))
		}
		if cfg.FindKnee {
			continue
		}
		var plan bytes.Buffer
		if err := WritePlan(&plan, cfg, w.Extends(cfg), 0); err != nil {
			t.Error(err)
		}
		for _, want := range c.plan {
			if !strings.Contains(plan.String(), want) {
				t.Errorf("%s: the plan lacks %q:\n%s", c.args, want, plan.String())
			}
		}
		if cfg.Lone() && (strings.Contains(plan.String(), "system prompt") || strings.Contains(plan.String(), "NaN") || strings.Contains(plan.String(), "Inf")) {
			t.Errorf("%s: the plan speaks of what is not:\n%s", c.args, plan.String())
		}
	}
	w, _ := parseWorkload(t, "--trace", "trace.jsonl")
	if _, err := w.Config(); err != nil || len(w.notes()) != 1 || !strings.Contains(w.notes()[0], "1 of 4 requests") {
		t.Errorf("%v, notes %q", err, w.notes())
	}
}

func TestRequestFlagsRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--prompt-tokens 0 --rates 1", `"0" is no length in tokens`},
		{"--prompt-tokens normal:5:5 --rates 1", `"normal:5:5" is no length`},
		{"--prompt-tokens empirical:nowhere --rates 1", "nowhere"},
		{"--prompt-tokens empirical:lengths.csv --rates 1", "name the one with the lengths"},
		{"--prompt-tokens 5", "no rates: single requests need --rates"},
		{"--prompt-tokens 5 --preset l40s", "no rates: single requests need --rates"},
		{"--prompt-tokens 5 --rates 1 --turns 3", "--turns is of calls of several turns"},
		{"--trace trace.jsonl --gap 5", "--gap is of calls of several turns"},
		{"--trace trace.jsonl --prompt-tokens 5", "exclude one another: a trace has its own lengths"},
		{"--trace trace.jsonl --output-tokens 5", "--output-tokens and --trace exclude one another"},
		{"--trace trace.jsonl --prefix-tokens 5", "--prefix-tokens and --trace exclude one another"},
		{"--trace trace.jsonl --trace-speed 2 --rates 1", "--trace-speed and --rates exclude one another"},
		{"--trace trace.jsonl --trace-speed=-1", "more than 0"},
		{"--trace trace.jsonl --trace-block 0", "--trace-block 0"},
		{"--trace bad.csv", `bad.csv:1: the column "ols" is not known. Is osl meant?`},
		{"--trace one.csv", "have no two instants, which makes no rate: give --rates or --concurrency"},
		{"--trace timeless.csv", "have no two instants"},
		{"--trace timeless.csv --arrivals poisson", "no rates"},
		{"--trace nowhere", "nowhere"},
		{"--trace-speed 2 --rates 1", "--trace-speed is of --trace"},
		{"--prefixes 3 --rates 1", "--prefixes is of single requests: give --prompt-tokens too"},
		{"--prompt-tokens 5 --prefixes 3 --rates 1", "--prefixes: give --prefix-tokens too"},
		{"--prompt-tokens 5 --prefix-tokens 5 --prefixes 0 --rates 1", "0 prefixes: must be from 1"},
		{"--prompt-tokens 5 --prefix-tokens 5 --prefix-zipf=-1 --rates 1", "must be from 0 (uniformly)"},
		{"--prompt-tokens 5 --prefix-tokens=-5 --rates 1", "prefix of -5 tokens"},
		{"--rates 1 --arrivals burst:8", "no arrivals"},
	} {
		w, err := parseWorkload(t, strings.Fields(c.args)...)
		if err == nil {
			var cfg measurement.Config
			if cfg, err = w.Config(); err == nil {
				_, err = w.Generator(cfg, 1)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %q", c.args, err, c.want)
		}
	}
}
