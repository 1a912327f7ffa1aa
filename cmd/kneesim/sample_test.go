package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/kv"
)

// nothing is told and does nothing.
type nothing struct{}

func (nothing) Admitted(uint64, time.Duration, int)           {}
func (nothing) Tokens(uint64, time.Duration, int)             {}
func (nothing) Finished(uint64, time.Duration, engine.Finish) {}

// The parts of the KV pool add up to it, also for a model whose layers keep different numbers of tokens.
func TestPoolAddsUp(t *testing.T) {
	for _, x := range []struct {
		name, gpu string
		scheme    kv.Scheme
	}{{"demo", "demo", ""}, {"gemma-4-12b", "h100", ""}, {"gemma-4-12b", "h100", kv.Ideal}} {
		name := x.name
		c, err := engine.Preset(x.name, x.gpu)
		if err != nil {
			t.Fatal(err)
		}
		c.Recipe.KVScheme = x.scheme
		split := c.Filled().Recipe.KVScheme == kv.SGLang
		e, err := engine.New(c)
		if err != nil {
			t.Fatal(err)
		}
		prompt := make([]engine.Token, 3000)
		for i := range prompt {
			prompt[i] = engine.Token(i + 1)
		}
		e.Submit(0, engine.Request{ID: 1, Prompt: prompt, MaxTokens: 50})
		for range 40 {
			at, ok := e.Next()
			if !ok {
				break
			}
			e.AdvanceTo(at, nothing{})
			f := figures(e.Stats(), split)
			if _, two := f[measurement.SampleWindowUsage]; two != (split && name != "demo") {
				t.Fatalf("%s, scheme %q: %v", name, x.scheme, f)
			}
			pool, sum := f[measurement.SampleKVPool], f[measurement.SampleKVUsed]+f[measurement.SampleKVCached]+f[measurement.SampleKVFree]
			if pool <= 0 || sum < pool*.999999 || sum > pool*1.000001 {
				t.Fatalf("%s at %v: used, cached and free are %.0f together, the pool %.0f", name, at, sum, pool)
			}
		}
	}
}

// A load that comes at whole seconds is seen as it is, not as it stands at whole seconds: of requests that take so long at such a rate that many
// run on average (Little).
func TestSamplesOfAPeriodicLoad(t *testing.T) {
	dir := t.TempDir()
	r, _, _ := simulated(t, dir, "--prompt-tokens", "500", "--output-tokens", "100", "--arrivals", "constant", "--rates", "0.5,1,2", "--no-extend", "--min-turns", "200")
	for _, s := range r.Steps {
		want := s.Rate * *s.Times.E2E.Mean / 1000
		if got := *s.Engine.RunningMean; got < .7*want || got > 1.3*want {
			t.Errorf("at %g requests/s %.2f run on average, want %.2f", s.Rate, got, want)
		}
	}
	seen := make([]int, 10)
	for n := range 1000 {
		seen[int(10*within(n))]++
	}
	for i, n := range seen {
		if n < 95 || n > 105 {
			t.Errorf("%d of 1000 samples in tenth %d", n, i)
		}
	}
	if within(0) != 0 {
		t.Errorf("the first sample is not at the window's start: %v", within(0))
	}
}

// Where layers with a window have a pool of their own, the pool that evicts is seen to be full: running requests fill the other layers' with
// three prompts, as many as fit, and the window layers' not.
func TestPoolsAreToldApart(t *testing.T) {
	c, err := engine.Preset("gemma-4-12b", "l40s")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	size := e.Stats().KVPoolTokens / 3 * 95 / 100
	for id := range 3 {
		prompt := make([]engine.Token, size)
		for i := range prompt {
			prompt[i] = engine.Token(id*size + i)
		}
		e.Submit(0, engine.Request{ID: uint64(id), Call: id, Prompt: prompt, MaxTokens: 20})
	}
	e.AdvanceTo(time.Minute, nothing{})
	f := figures(e.Stats(), true)
	if got := f[measurement.SampleKVPeak]; got < .94 || got > .96 {
		t.Errorf("%.3f of the fuller pool was held at most, want .95", got)
	}
	if got := f[measurement.SampleKVCached] / f[measurement.SampleKVPool]; got < .94 || got > .96 || f[measurement.SampleKVUsage] != 0 {
		t.Errorf("%.3f of it is cache afterwards, %v in use, want .95 and 0", got, f[measurement.SampleKVUsage])
	}
	if got := f[measurement.SampleWindowCached]; got < .02 || got > .5 {
		t.Errorf("%.3f of the window layers' pool is cache, want a window for each chunk", got)
	}
	e.ResetPeaks()
	if got := figures(e.Stats(), true)[measurement.SampleKVPeak]; got != 0 {
		t.Errorf("a peak of %v after a reset, want 0", got)
	}
}

// A window of less than a second is seen too: of a trace asked once as many run as come times how long each takes (Little), less those that are
// still answered behind its end.
func TestSamplesOfAShortWindow(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "short.csv")
	rows := "timestamp_s,isl,osl\n"
	for i := range 31 {
		rows += fmt.Sprintf("%g,300,4\n", float64(i)*.025)
	}
	if err := os.WriteFile(file, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	r, _, _ := simulated(t, dir, "--trace", file)
	s := r.Steps[0]
	want := s.Rate * *s.Times.E2E.Mean / 1000
	if got := *s.Engine.RunningMean; got < .7*want || got > 1.3*want || s.Engine.Samples < 30 || *s.Engine.KVUsageMean <= 0 {
		t.Errorf("%.3f run on average by %d samples of a window of %g s, want %.3f", got, s.Engine.Samples, s.WindowS, want)
	}
}
