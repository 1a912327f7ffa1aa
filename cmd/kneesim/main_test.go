package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/helptest"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	err := run(ctx, args, &out, &errs)
	if err != nil {
		fmt.Fprintln(&errs, "error:", err)
	}
	return cli.Code(err), out.String(), errs.String()
}

// The presets: both knees found, the H100's above the L40S's and both where two independent queue sketches put them, what
// binds said, and soon.
func TestPresets(t *testing.T) {
	dir := t.TempDir()
	knees := map[string]measurement.Knees{}
	for _, c := range []struct {
		preset   string
		low, top float64 // of the interpolated SLO knee, calls/s
	}{{"l40s", .01, .03}, {"h100", .08, .15}} {
		begun := time.Now()
		code, out, errs := call(t.Context(), "simulate", "--preset", c.preset, "--label", c.preset, "--out", dir)
		took := time.Since(begun)
		if code != 0 {
			t.Fatalf("%s: exit %d\n%s", c.preset, code, errs)
		}
		r, err := measurement.ReadResults(filepath.Join(dir, c.preset+".json"))
		if err != nil {
			t.Fatal(err)
		}
		k := r.Knees
		knees[c.preset] = k
		if k.SLO.Status != measurement.Found || k.Curvature.Status != measurement.Found {
			t.Fatalf("%s: SLO knee %s, curvature knee %s, want both found", c.preset, k.SLO.Status, k.Curvature.Status)
		}
		if *k.SLO.Estimate < c.low || *k.SLO.Estimate > c.top {
			t.Errorf("%s: SLO knee at %v, want %v to %v", c.preset, *k.SLO.Estimate, c.low, c.top)
		}
		if name := r.Mechanism.Name; name != "queueing_behind_cold_prefill" && name != "kv_eviction" || !strings.Contains(out, "What binds") || !strings.Contains(out, "Uncalibrated") {
			t.Errorf("%s: mechanism %q\n%s", c.preset, r.Mechanism.Name, out)
		}
		log, err := measurement.OpenLog(filepath.Join(dir, c.preset+".turns.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		calls := map[int]int{}
		for _, turn := range log.Turns {
			if turn.Turn == 1 {
				calls[turn.Step]++
			}
		}
		for _, s := range r.Steps {
			if calls[s.Step] < 200 {
				t.Errorf("%s at %v: %d calls, want at least 200", c.preset, s.Rate, calls[s.Step])
			}
		}
		t.Logf("%s: %v; SLO knee %.4f, curvature %.3f", c.preset, took, *k.SLO.Estimate, *k.Curvature.Rate)
		if took > 30*time.Second && !raceEnabled { // half a second where nothing else runs
			t.Errorf("%s took %v, want under 30 s", c.preset, took)
		}
	}
	if *knees["h100"].SLO.Rate <= *knees["l40s"].SLO.Rate || *knees["h100"].Curvature.Rate <= *knees["l40s"].Curvature.Rate {
		t.Error("the H100's knees are not above the L40S's")
	}
}

// The same flags give the same files, to the bit; another seed gives others.
func TestDeterminism(t *testing.T) {
	files := func(dir, seed string) map[string]string {
		code, _, errs := call(t.Context(), "simulate", "--preset", "l40s", "--rates", "0.02,0.1,0.35", "--min-turns", "150", "--label", "x", "--out", dir, "--seed", seed)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		all := map[string]string{}
		for _, name := range []string{"x.turns.jsonl", "x.json", "x.csv", "x.png", "x.hlog"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(b)
			for _, place := range []string{dir, "20" + "26-", "127.0.0.1"} {
				if strings.Contains(all[name], place) {
					t.Errorf("%s holds %q: simulated files hold no date, host or path", name, place)
				}
			}
		}
		return all
	}
	a, b, c := files(t.TempDir(), "1"), files(t.TempDir(), "1"), files(t.TempDir(), "2")
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs between two runs", name)
		}
		if a[name] == c[name] {
			t.Errorf("%s is the same for another seed", name)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"simulate", "--preset", "l40s", "--model", "gpt-9"}, 2, "gemma-4-12b"},
		{[]string{"simulate", "--preset", "l40s", "--gpu", "tpu"}, 2, "h100"},
		{[]string{"simulate", "--preset", "l40s", "--mem-fraction", "0.4"}, 2, "GB"},
		{[]string{"simulate", "--gpu", "demo"}, 2, "no rates"},
		{[]string{"simulate", "--preset", "tiny"}, 2, "real engine on a CPU"},
		{[]string{"simulate", "--rates", "3,1"}, 2, "not sorted"},
		{[]string{"simulate", "--rates", "0.02,1e6"}, 2, "the step at 1e+06 is about"},
		{[]string{"simulate", "--rates", "0.02", "--gap", "1e9"}, 2, "the step at 0.02 is about"},
		{[]string{"simulate", "--rates", "0.02", "--turns", "100000"}, 2, "turns long"},
		{[]string{"simulate", "--rates", "0.02", "--temperature", "nan"}, 2, "--temperature"},
		{[]string{"simulate", "--rates", "0.02", "--temperature=-3"}, 2, "temperature"},
		{[]string{"simulate", "--rates", "0.02", "--mem-fraction", "inf"}, 2, "--mem-fraction"},
		{[]string{"simulate", "--rates", "0.02", "--gap", "1e12"}, 2, `"1e12" is no duration`},
		{[]string{"simulate", "--concurrency", "10000000"}, 2, "cannot be a number of calls"},
		{[]string{"simulate", "--rates", "0.02", "--label", strings.Repeat("x", 300)}, 2, "at most 200 bytes"},
		{[]string{"simulate", "--rates", "0.02", "--label", "a\nb"}, 2, "--label"},
		{[]string{"simulate", "--rates", "0.02", "--system-prompt-tokens", "100000000"}, 2, "every call would fail"},
		{[]string{"simulate", "--rates", "0.02", "--context-length", "10"}, 2, "--context-length"},
		{[]string{"simulate", "--rates", "0.02", "--engine", "vllm", "--chunked-prefill", "512"}, 2, "--chunked-prefill is of sglang, and --engine is vllm: leave it away, or give --max-num-batched-tokens"},
		{[]string{"simulate", "--rates", "0.02", "--engine", "vllm", "--mixed-chunk"}, 2, "--mixed-chunk is of sglang"},
		{[]string{"simulate", "--rates", "0.02", "--engine", "vllm", "--swa-full-tokens-ratio", "0.2"}, 2, "--swa-full-tokens-ratio is of sglang"},
		{[]string{"simulate", "--rates", "0.02", "--max-num-batched-tokens", "512"}, 2, "--max-num-batched-tokens is of vllm, and --engine is sglang: leave it away, or give --chunked-prefill"},
		{[]string{"simulate", "--rates", "0.02", "--no-async-scheduling"}, 2, "--no-async-scheduling is of vllm"},
		{[]string{"simulate", "--rates", "0.02", "--router", "kv"}, 2, "--router is of a fleet"},
		{[]string{"simulate", "--rates", "0.02", "--retry", "resume"}, 2, "--retry is of a fleet"},
		{[]string{"simulate", "--rates", "0.02", "--replicas", "2", "--kv-link-gb-s", "50"}, 2, "--kv-link-gb-s is of the link"},
		{[]string{"simulate", "--rates", "0.02", "--decode-replicas", "2"}, 2, "go together"},
		{[]string{"predict"}, 2, "predict"},
	} {
		code, out, errs := call(t.Context(), append(c.args, "--out", t.TempDir())...)
		if c.args[0] != "simulate" {
			code, out, errs = call(t.Context(), c.args...)
		}
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%v: exit %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// A run replayed on the engine that made it is predicted exactly.
func TestReplayOfASimulatedRun(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := call(t.Context(), "simulate", "--preset", "demo", "--rates", "3,5", "--no-extend", "--min-turns", "100", "--label", "x", "--out", dir); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs := call(t.Context(), "simulate", "--replay", filepath.Join(dir, "x.turns.jsonl"))
	for _, s := range []string{"100.0 % of the turns agree", "Cached tokens agree on 100.0 %", "calls/s  turns  hit rate", "The table counts the turns behind the first of their call, of whole steps, with warm-up and drain"} {
		if code != 0 || !strings.Contains(out, s) || strings.Contains(out, "fleet") {
			t.Errorf("exit %d, want 0 and %q\n%s%s", code, s, out, errs)
		}
	}
}

// Beside --replay stands what it goes by, and nothing else.
func TestReplayTakesNothingInVain(t *testing.T) {
	dir := t.TempDir()
	for label, flags := range map[string]string{"one": "", "fleet": "--replicas 2", "lone": "--prompt-tokens 300 --output-tokens 5"} {
		args := append(strings.Fields("simulate --preset demo --rates 3 --no-extend --min-turns 20 --label "+label+" --out "+dir), strings.Fields(flags)...)
		if code, _, errs := call(t.Context(), args...); code != 0 {
			t.Fatal(errs)
		}
	}
	for _, c := range []struct {
		log, flags string
		code       int
		want       string
	}{
		{"one", "--rates 0.01,0.02 --label z --seed 1 --seed 1", 2, "--rates, --label, --seed: of no use with --replay, which sends the turns of the log to one engine: leave them out"},
		{"one", "--json x --dump-steps y --detail 2", 2, "--json, --dump-steps, --detail: of no use"},
		{"one", "--replicas 2", 2, "--replicas: of no use with --replay, which sends the turns of the log to one engine: leave it out"},
		{"one", "--ttft-timeout 1s", 2, "--ttft-timeout: of no use"},
		{"one", "--prompt-tokens 8", 2, "--prompt-tokens: the prompts of"},
		{"lone", "--prompt-tokens 300", 2, "--prompt-tokens: the prompts of"},
		{"one", "--preset nope", 2, `--preset "nope" is not known`},
		{"one", "--preset tiny", 2, "real engine on a CPU"},
		{"one", "--preset l40s", 0, "replayed on gemma-4-12b, l40s."},
		{"one", "--preset l40s --model demo --engine vllm", 0, "replayed on demo, l40s."},
		{"fleet", "", 0, "The log is of a fleet; here one engine gets all of its turns."},
		{"lone", "", 0, "The table counts the requests of whole steps"},
		{"lone", "", 0, "requests/s  requests  hit rate"},
	} {
		code, out, errs := call(t.Context(), append([]string{"simulate", "--replay", filepath.Join(dir, c.log+".turns.jsonl")}, strings.Fields(c.flags)...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s %s: exit %d, want %d and %q\n%s%s", c.log, c.flags, code, c.code, c.want, out, errs)
		}
	}
	if code, _, errs := call(t.Context(), "simulate", "--preset", "demo", "--replay", "main_test.go"); code != 1 || !strings.Contains(errs, "not a turn log") {
		t.Errorf("exit %d, want 1\n%s", code, errs)
	}
	t.Setenv("KNEESIM_LABEL", "standing") // may be for other commands
	if code, _, errs := call(t.Context(), "simulate", "--replay", filepath.Join(dir, "one.turns.jsonl")); code != 0 {
		t.Errorf("a label of the environment: exit %d\n%s", code, errs)
	}
}

// What the engine says of itself is in the log, on the same instants as the turns: its hit rate is theirs, to the token, and what binds is
// told with it.
func TestEngineSaysTheSame(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := call(t.Context(), "simulate", "--preset", "demo", "--rates", "2,5", "--no-extend", "--min-turns", "400", "--label", "x", "--out", dir); code != 0 {
		t.Fatal(errs)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 2 || r.Mechanism.Name != "kv_eviction" {
		t.Fatalf("%d steps, %s binds; want 2 and kv_eviction", len(r.Steps), r.Mechanism.Name)
	}
	for i, s := range r.Steps {
		step, e := log.Steps[i], s.Engine
		var at []time.Duration
		for _, x := range log.Samples {
			if x.Step == step.Step {
				at = append(at, x.At)
			}
		}
		n := len(at)
		if n < mostSamples/2 || n > mostSamples+2 || at[0] != step.WindowStart || at[n-1] != step.DrainEnd || at[n-2] < step.WindowEnd || at[n-3] >= step.WindowEnd {
			t.Errorf("step %d: %d samples from %v to %v and %v, window %v to %v, end %v", i, n, at[0], at[n-2], at[n-1], step.WindowStart, step.WindowEnd, step.DrainEnd)
		}
		window := step.WindowEnd - step.WindowStart
		if every := (at[n-2] - at[0]) / time.Duration(n-2); every < window/(mostSamples+5) || every > window/(mostSamples/2-5) {
			t.Errorf("step %d: a sample every %v of a window of %v", i, every, window)
		}
		cached, prompt := 0, 0 // of turns whose first token came between the first sample and the one behind the window
		for _, turn := range log.Turns {
			if turn.FirstToken > at[0] && turn.FirstToken <= at[n-2] {
				cached += turn.CachedTokens
				prompt += turn.PromptTokens
			}
		}
		client := float64(cached) / float64(prompt)
		if e == nil || e.CacheHitRate == nil || math.Abs(*e.CacheHitRate-client) > .01 {
			t.Errorf("step %d: the engine's hit rate is %+v, that of the turns %v", i, e, client)
		}
	}
	last, cached, prompt := log.Samples[len(log.Samples)-1], 0, 0
	for _, turn := range log.Turns {
		cached += turn.CachedTokens
		prompt += turn.PromptTokens
	}
	if got := last.Values[measurement.SamplePrompt]; got != float64(prompt) || last.Values[measurement.SampleCached] != float64(cached) {
		t.Errorf("the engine counts %v prompt tokens and %v cached ones, the turns %d and %d", got, last.Values[measurement.SampleCached], prompt, cached)
	}
	evidence := strings.Join(r.Mechanism.Evidence, "\n")
	for _, want := range []string{"At 5 calls/s the server evicted ", "by its own count, first turns included, its hit rate fell from", "The server's queue grew from "} {
		if !strings.Contains(evidence, want) {
			t.Errorf("no evidence of %q in:\n%s", want, evidence)
		}
	}
	if a, b := *r.Steps[0].Engine.EvictedRate, *r.Steps[1].Engine.EvictedRate; b < 2*a {
		t.Errorf("%v tokens a second are evicted at 2 calls/s, %v at 5", a, b)
	}
}

// The help text of simulate shows the defaults that it really has, which are not those of kneeload.
func TestHelpShowsDefaults(t *testing.T) {
	_, help, _ := call(t.Context(), "simulate", "--help")
	helptest.Defaults(t, help, func(t *testing.T, args ...string) (any, measurement.Config) {
		var c commands
		p := kong.Must(&c, kong.Vars{"version": "", "presets": ""}, recipe.Vars(), defaults())
		if _, err := p.Parse(append([]string{"simulate", "--rates", "1", "--find-knee"}, args...)); err != nil {
			t.Fatal(err)
		}
		cfg, err := c.Simulate.config()
		if err != nil {
			t.Fatal(err)
		}
		return &c.Simulate, cfg
	}, "min-turns", "max-step-duration", "drain", "warmup", "confirm", "slo", "gap", "system-prompt-tokens", "ttft-timeout")
	for _, want := range []string{"--min-turns=600", "--warmup=27s", "--max-step-duration=1000000s"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help text lacks %s:\n%s", want, help)
		}
	}
}

// full is a standard output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Results that could not be written are a failure.
func TestResultsThatCannotBeWritten(t *testing.T) {
	err := run(t.Context(), []string{"simulate", "--preset", "demo", "--rates", "2", "--no-extend", "--min-turns", "10", "--out", t.TempDir()}, full{}, io.Discard)
	if cli.Code(err) != 1 || !strings.Contains(err.Error(), "standard output: no space left") {
		t.Errorf("got %v", err)
	}
}
