package main

import (
	"testing"
	"time"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// nothing is told and does nothing.
type nothing struct{}

func (nothing) Admitted(uint64, time.Duration, int)           {}
func (nothing) Tokens(uint64, time.Duration, int)             {}
func (nothing) Finished(uint64, time.Duration, engine.Finish) {}

// The parts of the KV pool add up to it, also for a model whose layers keep different numbers of tokens.
func TestPoolAddsUp(t *testing.T) {
	for _, name := range []string{"demo", "gemma-4-12b"} {
		gpu := "demo"
		if name != "demo" {
			gpu = "h100"
		}
		c, err := engine.Preset(name, gpu)
		if err != nil {
			t.Fatal(err)
		}
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
			f := figures(e.Stats())
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
