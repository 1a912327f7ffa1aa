package cli

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
)

// demoSweep is a sweep of the demo's engine at three rates, and the engine.
func demoSweep(t *testing.T) (w Workload, c measurement.Config, gen generator.Config, eng *engine.Engine) {
	t.Helper()
	w = Workload{Calls: Calls{Preset: "demo", Seed: 4}, Rates: Rates{2, 4, 6}}
	c, err := w.Config()
	if err != nil {
		t.Fatal(err)
	}
	if gen, err = w.Generator(c, 7); err != nil {
		t.Fatal(err)
	}
	demo, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	if eng, err = engine.New(demo); err != nil {
		t.Fatal(err)
	}
	return w, c, gen, eng
}

// simulated runs a sweep of the demo's engine in virtual time into out, or goes on with the one that is there.
func simulated(t *testing.T, out Output) measurement.Results {
	t.Helper()
	w, c, gen, eng := demoSweep(t)
	gen.Script = generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens},
		measurement.Calibration{Overhead: float64(simulation.Overhead(&gen.Script)), TokensPerWord: 1})
	return goOn(t, w, c, gen, eng, out, nil)
}

// goOn runs a sweep in virtual time into out, or goes on with the one that is there; progress may be nil.
func goOn(t *testing.T, w Workload, c measurement.Config, gen generator.Config, eng *engine.Engine, out Output, progress *Progress) measurement.Results {
	t.Helper()
	var err error
	s := Sweep{Flags: &w, Progress: progress, Header: measurement.Header{Label: "x", Tool: "test", Config: c, Seed: 4, Nonce: "7"}}
	var log *os.File
	if _, err := os.Stat(filepath.Join(out.Out, out.Label+".turns.jsonl")); err == nil {
		if s.Files, log, s.Past, err = out.Reopen(); err != nil {
			t.Fatal(err)
		}
		if err := SameRun(s.Past.Header, s.Header); err != nil {
			t.Fatal(err)
		}
		gen.StartAt = s.Past.End() + time.Second
		s.Epoch = &measurement.Epoch{FromStep: len(s.Past.Complete()), At: gen.StartAt, Nonce: "7"}
	} else if s.Files, log, err = out.Open(); err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	clk, to := simulation.NewRun(eng, gen.Script.Lexicon, generator.Limits{})
	s.Generator, s.Endpoint, s.Clock, s.Log = gen, to, clk, log
	var r measurement.Results
	clk.Run(t.Context(), func() { r, err = s.Run(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A run that is killed at any byte of its log and then gone on with ends as the whole one does: the same counts, percentiles
// and knees; and what the log held stays in it as it was.
func TestResumeAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	whole := simulated(t, Output{Label: "x", Out: dir})
	text, err := os.ReadFile(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	header := strings.IndexByte(string(text), '\n') + 1
	rng := rand.New(rand.NewPCG(1, 2))
	cuts := []int{header, header + 1, len(text) - 1, len(text)}
	for range 12 {
		cuts = append(cuts, header+rng.IntN(len(text)-header))
	}
	figures := func(r measurement.Results) map[string]any {
		r.Warnings = nil // the torn line
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	nearly := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 2e-3*max(math.Abs(a), math.Abs(b), 1) }) // a fresh engine has not the template in its cache
	for _, cut := range cuts {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.turns.jsonl")
		if err := os.WriteFile(path, text[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
		resumed := simulated(t, Output{Label: "x", Out: dir})
		if d := cmp.Diff(figures(whole), figures(resumed), nearly); d != "" {
			t.Fatalf("cut at byte %d of %d (-whole +resumed):\n%s", cut, len(text), d)
		}
		after, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(after), string(text[:cut])) {
			t.Fatalf("cut at byte %d: the log was rewritten (%v)", cut, err)
		}
	}
}

func TestResumeRefusesAnotherRun(t *testing.T) {
	dir := t.TempDir()
	simulated(t, Output{Label: "x", Out: dir})
	_, log, past, err := Output{Label: "x", Out: dir}.Reopen()
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	other := past.Header
	other.Config.Turns = 7
	if err := SameRun(past.Header, other); err == nil || !strings.Contains(err.Error(), "turns 4, now it is 7") {
		t.Errorf("other turns: %v", err)
	}
	other = past.Header
	other.Seed = 9
	if err := SameRun(past.Header, other); err == nil || !strings.Contains(err.Error(), "seed 4, now it is 9") {
		t.Errorf("another seed: %v", err)
	}
	if _, _, _, err := (Output{Label: "y", Out: dir}).Reopen(); err == nil || Code(err) != Misuse {
		t.Errorf("a label that is not there: %v", err)
	}
}

// A log that can no longer be written stops the run: what is not kept need not be asked of the server.
func TestFullDiskStopsTheRun(t *testing.T) {
	var err error
	w, c, gen, eng := demoSweep(t)
	clk, to := simulation.NewRun(eng, gen.Script.Lexicon, generator.Limits{})
	s := Sweep{Flags: &w, Header: measurement.Header{Label: "x", Config: c}, Generator: gen, Endpoint: to, Clock: clk, Log: &disk{room: 20_000},
		Files: Files{Log: filepath.Join(t.TempDir(), "none")}}
	clk.Run(t.Context(), func() { _, err = s.Run(t.Context()) })
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if clk.Now() > 40*time.Second { // three steps take longer
		t.Errorf("the load went on until %v", clk.Now())
	}
}

type disk struct{ room int }

func (d *disk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}
