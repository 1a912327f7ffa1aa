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
