package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// tinyTrace is requests that share blocks of 512 tokens: the second begins with 1,536 tokens of the first, the third with 512, and
// the fourth is the first again, whose last block has 64 tokens.
const tinyTrace = `{"timestamp": 0, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
{"timestamp": 400, "input_length": 1700, "output_length": 8, "hash_ids": [5, 6, 7, 91]}
{"timestamp": 600, "input_length": 700, "output_length": 4, "hash_ids": [5, 60]}
{"timestamp": 2000, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
`

// simulated runs kneesim with files in a folder, and reads what it wrote.
func simulated(t *testing.T, dir string, args ...string) (measurement.Results, measurement.Log, string) {
	t.Helper()
	code, out, errs := call(t.Context(), append([]string{"simulate", "--preset", "demo", "--label", "x", "--out", dir, "--overwrite"}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s", args, code, errs)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return r, log, out + errs
}

// A trace is asked as it stands: each request once at its instant, with its lengths, and with the prefixes that its hash ids share.
func TestTrace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.jsonl")
	if err := os.WriteFile(file, []byte(tinyTrace), 0o666); err != nil {
		t.Fatal(err)
	}
	r, log, out := simulated(t, dir, "--trace", file)
	want := []struct {
		due                    float64
		prompt, output, shared int // shared with a request before it, at least; a page or a template may add to it
	}{{0, 1600, 16, 0}, {.4, 1700, 8, 1536}, {.6, 700, 4, 512}, {2, 1600, 16, 1536}}
	if len(log.Turns) != len(want) || r.Steps[0].MeasuredTurns != 4 || r.Config.SystemPromptTokens != 0 || r.Config.LoadOf != measurement.Requests {
		t.Fatalf("%d turns, %+v, %+v", len(log.Turns), r.Steps[0], r.Config)
	}
	for i, w := range want {
		u := log.Turns[i]
		if u.Turn != measurement.LoneTurn || u.Due.Seconds() != w.due || u.PromptTokens != w.prompt || u.CompletionTokens != w.output || u.Outcome != measurement.OK {
			t.Errorf("request %d: %+v, want %+v", i, u, w)
		}
		if u.CachedTokens < w.shared-16 || u.CachedTokens >= w.shared+80 {
			t.Errorf("request %d: %d tokens cached, want about %d", i, u.CachedTokens, w.shared)
		}
	}
	for _, s := range []string{"1.5 requests/s", "Arrivals:"} {
		if !strings.Contains(out, s) {
			t.Errorf("the summary lacks %q:\n%s", s, out)
		}
	}
	// Stretched and asked again and again, no turn of it finds the one before it in the cache: the hit rate stays.
	again, log, out := simulated(t, dir, "--trace", file, "--rates", "2,3", "--no-extend", "--min-turns", "400")
	for _, s := range again.Steps {
		if s.CacheHitRate == nil || *s.CacheHitRate < .6 || *s.CacheHitRate > .7 || s.MeasuredTurns < 400 {
			t.Errorf("at %g the hit rate is %v of %d turns, want .65 of 400 at least", s.Rate, s.CacheHitRate, s.MeasuredTurns)
		}
	}
	if again.Arrivals.KS != nil || again.Arrivals.Certified || again.Arrivals.CV == nil || !strings.Contains(out, "trace, as asked") {
		t.Errorf("a trace's arrivals are held to a Poisson process: %+v\n%s", again.Arrivals, out)
	}
	if len(log.Turns) < 800 {
		t.Errorf("%d turns", len(log.Turns))
	}
	if code, _, errs := call(t.Context(), "simulate", "--replay", filepath.Join(dir, "x.turns.jsonl")); code != 1 || !strings.Contains(errs, "come from tiny.jsonl, which the log does not hold: give --trace") {
		t.Errorf("a log whose prompts stand elsewhere was replayed: exit %d\n%s", code, errs)
	}
	code, out, errs := call(t.Context(), "simulate", "--replay", filepath.Join(dir, "x.turns.jsonl"), "--trace", file)
	if code != 0 || !strings.Contains(out, "100.0 % of the turns agree") || !strings.Contains(out, "Cached tokens agree on 100.0 %") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--prompt-tokens 100000000 --rates 1", "every call would fail: its first prompt has 100000000 tokens"},
		{"--prompt-tokens 5 --rates 1 --min-turns 900000", "have numbers of their own: lower --min-turns"},
		{"--prompt-tokens 5", "no rates"},
	} {
		code, out, errs := call(t.Context(), append([]string{"simulate", "--preset", "demo", "--out", t.TempDir()}, strings.Fields(c.args)...)...)
		if code != 2 || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit %d, want 2 and %q\n%s%s", c.args, code, c.want, out, errs)
		}
	}
}

// Requests that are drawn: the same flags give the same files, and a run replayed on the engine that made it is predicted exactly.
func TestRequests(t *testing.T) {
	flags := []string{"--prompt-tokens", "lognormal:300:0.8", "--output-tokens", "uniform:1:30", "--prefix-tokens", "600", "--prefixes", "6", "--prefix-zipf", "1.1", "--rates", "2,6", "--no-extend",
		"--arrivals", "burst:5:2s:10s"}
	files := func(more ...string) (string, string) {
		dir := t.TempDir()
		r, log, out := simulated(t, dir, append(flags, more...)...)
		if r.Steps[1].MeasuredTurns < simRequests || r.Arrivals.KS != nil || !strings.Contains(out, "burst:5:2s:10s, as asked") {
			t.Errorf("%+v\n%s", r.Steps[1], out)
		}
		sum := 0.
		for _, u := range log.Turns {
			if u.PromptTokens <= 600 || u.CompletionTokens < 1 || u.CompletionTokens > 30 {
				t.Fatalf("turn %+v", u)
			}
			sum += float64(u.PromptTokens)
		}
		if mean := sum / float64(len(log.Turns)); mean < 870 || mean > 930 || r.Config.PromptTokens != 900 {
			t.Errorf("prompts have %.0f tokens on average, %d told, want 900", mean, r.Config.PromptTokens)
		}
		if len(r.Warnings) > 0 && strings.Contains(strings.Join(r.Warnings, " "), "longer than was asked") {
			t.Errorf("warnings %q", r.Warnings)
		}
		b, err := os.ReadFile(filepath.Join(dir, "x.turns.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b), filepath.Join(dir, "x.turns.jsonl")
	}
	a, path := files()
	if b, _ := files(); a != b {
		t.Error("two runs with the same flags differ")
	}
	if c, _ := files("--seed", "9"); a == c {
		t.Error("another seed gives the same run")
	}
	code, out, errs := call(t.Context(), "simulate", "--replay", path)
	if code != 0 || !strings.Contains(out, "100.0 % of the turns agree") || !strings.Contains(out, "Cached tokens agree on 100.0 %") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
