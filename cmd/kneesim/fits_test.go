package main

import (
	"testing"

	"kneefinder/cmd/internal/recipe"
	"kneefinder/measurement"
)

// How many calls fit is what the engine's memory keeps: so many come back warm, and with one more not all do.
func TestFitting(t *testing.T) {
	for _, c := range []struct {
		r      recipe.Recipe
		tokens int
		want   int
	}{
		{recipe.Recipe{GPU: "l40s", Engine: "sglang"}, 18_560, 3},
		{recipe.Recipe{GPU: "l40s", Engine: "sglang", KVScheme: "ideal"}, 18_560, 26},
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "vllm", KVTokens: 16 * 1000}, 1600, 10},
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "sglang", KVTokens: 16 * 1000}, 1601, 9},
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "sglang", KVTokens: 1000}, 1601, 0},
		{recipe.Recipe{GPU: "l40s", Engine: "sglang", NoPrefixCache: true}, 18_560, 0},
		{recipe.Recipe{GPU: "l40s", Engine: "sglang"}, 0, 0},
	} {
		cfg, err := c.r.Config("")
		if err != nil {
			t.Fatal(err)
		}
		n, ok := fitting(cfg, c.tokens)
		if n != c.want || ok != (c.want > 0) {
			t.Errorf("%s, %s, %s, calls of %d tokens: %d fit, %v; want %d", cfg.Model.Name, c.r.Engine, c.r.KVScheme, c.tokens, n, ok, c.want)
		}
		if left := mostFilled; ok {
			one, _, _ := fill(cfg, c.tokens, n, &left)
			more, _, _ := fill(cfg, c.tokens, n+1, &left)
			if !one || more {
				t.Errorf("%d fit: %v, one more: %v", n, one, more)
			}
		}
	}
	for want, c := range map[int]measurement.Config{
		18_000 + 4*140: {SystemPromptTokens: 18_000, Turns: 4, UserTokens: 40, OutputTokens: 100},
		640:            {LoadOf: measurement.Requests, Turns: 1, PromptTokens: 512, OutputTokens: 128},
		0:              {LoadOf: measurement.Requests, Turns: 1, PromptTokens: 512, OutputTokens: 128, PrefixTokens: 100},
	} {
		if got := callLength(c); got != want {
			t.Errorf("%+v: %d tokens, want %d", c, got, want)
		}
	}
}
