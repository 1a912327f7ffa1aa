package main

import (
	"context"
	"time"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// mostFilled is how many tokens of prompts are put into an engine to see how many calls fit: beyond it that takes too long to tell.
const mostFilled = 10_000_000

// stepTokens is how many tokens a step of the engine is as much work as, however few it computes.
const stepTokens = 64

// room tells in a run's header how large the KV memory of one engine is and how many calls of the workload stay warm in it: tokens of
// different schemes are not alike, calls are.
func room(ctx context.Context, details map[string]any, cfg engine.Config, c measurement.Config) {
	e, err := engine.New(cfg)
	if err != nil {
		return
	}
	details["kv_pool_tokens"] = e.Stats().KVPoolTokens
	tokens := callLength(c)
	if n, ok := fitting(ctx, cfg, tokens); ok {
		details["kv_calls"], details["kv_call_tokens"] = n, tokens
	}
}

// callLength is the tokens of a call when its last answer has ended, or of a single request; 0 where they are not the same for all, or begin
// alike.
func callLength(c measurement.Config) int {
	switch {
	case c.Transcripts != "" || c.Trace != "" || c.PrefixTokens > 0:
		return 0
	case c.Lone():
		return c.PromptTokens + c.OutputTokens
	}
	return c.SystemPromptTokens + c.Turns*(c.UserTokens+c.OutputTokens)
}

// fitting is how many calls of so many tokens an engine keeps warm: it has one after another, then each comes back and finds all of its
// own. That is the engine's own memory at work, whatever shares it out among layers. ok is false where none is kept, or it would take
// too long to tell.
func fitting(ctx context.Context, cfg engine.Config, tokens int) (calls int, ok bool) {
	if tokens < 2 || cfg.Recipe.NoPrefix {
		return 0, false
	}
	left := mostFilled
	_, last, done := fill(ctx, cfg, tokens, 1<<30, &left) // as many as come before anything is evicted, which is near
	if !done {
		return 0, false
	}
	n := max(1, last)
	kept, _, done := fill(ctx, cfg, tokens, n, &left)
	up := kept
	for step := 1; done; step *= 2 {
		switch {
		case kept && !up:
			return between(ctx, cfg, tokens, n, last, &left)
		case !kept && up:
			return between(ctx, cfg, tokens, last, n, &left)
		case step > 1<<20:
			return 0, false
		}
		if last = n; up {
			n += step
		} else {
			n = max(0, n-step)
		}
		kept, _, done = fill(ctx, cfg, tokens, n, &left)
	}
	return 0, false
}

// between bisects: so many fit, and more do not.
func between(ctx context.Context, cfg engine.Config, tokens, fit, not int, left *int) (int, bool) {
	for not-fit > 1 {
		n := (fit + not) / 2
		kept, _, done := fill(ctx, cfg, tokens, n, left)
		if !done {
			return 0, false
		}
		if kept {
			fit = n
		} else {
			not = n
		}
	}
	return fit, fit > 0
}

// fill has n calls one after another, and reports whether each finds all of its own when it comes back; or, of more than fit, how many came
// before anything was evicted. done is false when there is no work left to do it with, or nobody waits for it any more.
func fill(ctx context.Context, cfg engine.Config, tokens, n int, left *int) (kept bool, unharmed int, done bool) {
	e, err := engine.New(cfg)
	if err != nil {
		return false, 0, false
	}
	at := time.Duration(0)
	send := func(call, id int) (cached int) {
		prompt := make([]engine.Token, tokens) // the engine's own from here on
		for i := range prompt {
			prompt[i] = engine.Token(call*tokens + i)
		}
		before := e.Stats()
		e.Submit(at, engine.Request{ID: uint64(id), Call: id, Prompt: prompt, MaxTokens: 1})
		at += time.Hour
		e.AdvanceTo(at, nil)
		now := e.Stats()
		*left -= max(tokens, stepTokens*(now.PrefillSteps-before.PrefillSteps))
		return now.CachedTokens - before.CachedTokens
	}
	for i := range n {
		if *left < 0 || ctx.Err() != nil {
			return false, 0, false
		}
		if send(i, i); n == 1<<30 && e.Stats().EvictedTokens > 0 {
			return false, i, true
		}
	}
	for i := range n {
		if ctx.Err() != nil {
			return false, 0, false
		}
		if send(i, n+i) < tokens-tokens/8-64 { // whole pages, and never the last token
			return false, 0, true
		}
	}
	return true, n, true
}
