package main

import (
	"context"
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
		{recipe.Recipe{GPU: "l40s", Engine: "vllm"}, 18_420, 25}, // 26 come before anything is evicted, and coming back takes room too
		{recipe.Recipe{GPU: "l40s", Engine: "vllm"}, 18_560, 25},
		{recipe.Recipe{GPU: "h100", Engine: "vllm"}, 18_560, 72},
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
		n, ok := fitting(t.Context(), cfg, c.tokens)
		if n != c.want || ok != (c.want > 0) {
			t.Errorf("%s, %s, %s, calls of %d tokens: %d fit, %v; want %d", cfg.Model.Name, c.r.Engine, c.r.KVScheme, c.tokens, n, ok, c.want)
		}
		if left := mostFilled; ok {
			one, _, _ := fill(t.Context(), cfg, c.tokens, n, &left)
			more, _, _ := fill(t.Context(), cfg, c.tokens, n+1, &left)
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

// However short calls are, and in however many steps an engine computes them, it is told in bounded work how many fit.
func TestFillingIsBounded(t *testing.T) {
	for _, c := range []struct {
		r            recipe.Recipe
		tokens, want int // work for ten calls that come twice, or until one finds nothing of its own
	}{
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "vllm", NoPrefixCache: true}, 1000, 11 * 1000},
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "vllm"}, 2, 20 * stepTokens},
		{recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "vllm", LongPrefill: 1}, 16, 20 * 16 * stepTokens},
	} {
		cfg, err := c.r.Config("")
		if err != nil {
			t.Fatal(err)
		}
		left := mostFilled
		fill(t.Context(), cfg, c.tokens, 10, &left)
		if got := mostFilled - left; got != c.want {
			t.Errorf("%d tokens: %d, want %d", c.tokens, got, c.want)
		}
	}
}

// Nobody who has given up waits for it.
func TestFillingEnds(t *testing.T) {
	cfg, err := recipe.Recipe{Model: "llama-3.1-8b", GPU: "h100", Engine: "vllm"}.Config("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	left := mostFilled
	if _, _, done := fill(ctx, cfg, 1000, 10, &left); done || left != mostFilled {
		t.Errorf("done %t with %d of %d left", done, left, mostFilled)
	}
}
