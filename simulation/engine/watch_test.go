package engine

import (
	"testing"
	"time"
)

// watched adds up what a Watcher is told.
type watched struct {
	counter
	t                                      *testing.T
	end                                    time.Duration
	prefills, decodes, chunked             int
	input, inputAgain, hit, hitAgain       int
	before, finished, retracted, discarded int
	rests                                  int
	rest                                   Stats
}

func (w *watched) Finished(id uint64, at time.Duration, f Finish) { w.finished++ }

func (w *watched) Retracted(_ uint64, at time.Duration, generated int) {
	if at != w.end {
		w.t.Errorf("retracted at %v, between steps is %v", at, w.end)
	}
	w.retracted++
	w.discarded += generated
}

func (w *watched) Stepped(s Step) {
	if s.Start < w.end || s.End <= s.Start {
		w.t.Errorf("a step from %v to %v after %v", s.Start, s.End, w.end)
	}
	w.end = s.End
	if s.Stats.GeneratedTokens != w.tokens {
		w.t.Errorf("at %v: %d tokens generated, told %d", s.End, s.Stats.GeneratedTokens, w.tokens)
	}
	if used, pool := s.Stats.KVUsedTokens+s.Stats.KVCachedTokens+s.Stats.KVFreeTokens, s.Stats.KVPoolTokens; used != pool {
		w.t.Errorf("at %v: used, cached and free are %d tokens of %d", s.End, used, pool)
	}
	w.input, w.inputAgain = w.input+s.Input, w.inputAgain+s.InputAgain
	w.hit, w.hitAgain = w.hit+s.Hit, w.hitAgain+s.HitAgain
	if n := w.tokens - w.before; !s.Prefill && n != s.Running {
		w.t.Errorf("at %v: %d tokens of %d sequences", s.End, n, s.Running)
	}
	w.before = w.tokens
	if !s.Prefill {
		w.decodes++
		if s.Context < 100*s.Running || s.Input+s.Hit != 0 {
			w.t.Errorf("a decode step of %d sequences of %d tokens prefills %d", s.Running, s.Context, s.Input)
		}
		return
	}
	w.prefills++
	if s.Chunked {
		w.chunked++
		if s.Stats.Running == 0 {
			w.t.Errorf("at %v a request is left with a part to do and none runs", s.End)
		}
	}
}

func (w *watched) Rested(at time.Duration, s Stats) {
	if s.Running != 0 || s.KVUsedTokens != 0 {
		w.t.Errorf("at rest at %v with %d running and %d tokens in use", at, s.Running, s.KVUsedTokens)
	}
	w.rests, w.rest = w.rests+1, s
}

// counter counts tokens.
type counter struct{ tokens int }

func (c *counter) Admitted(uint64, time.Duration, int)     {}
func (c *counter) Tokens(_ uint64, _ time.Duration, n int) { c.tokens += n }

// What a Watcher is told adds up to the engine's own counts, and the engine does the same with and without one.
func TestWatcher(t *testing.T) {
	c := preset(t, "demo", "demo")
	c.Recipe.KVTokens, c.Recipe.ChunkedPrefill = 6000, 512
	run := func(s Sink) Stats {
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		prompts := make([][]Token, 4)
		for i := range prompts {
			prompts[i] = make([]Token, 900)
			for k := range prompts[i] {
				prompts[i][k] = firstWord + Token(i*1000+k)
			}
		}
		for i := range 12 {
			at := time.Duration(i) * 300 * time.Millisecond
			e.AdvanceTo(at, s)
			e.Submit(at, Request{ID: uint64(i), Call: i, Prompt: prompts[i%4][:600+20*i], MaxTokens: 1500})
		}
		e.Abort(5*time.Second, 3)
		e.AdvanceTo(time.Minute, s)
		return e.Stats()
	}
	w := &watched{t: t}
	stats := run(w)
	if alone := run(nil); alone != stats {
		t.Errorf("watched %+v\nalone   %+v", stats, alone)
	}
	if stats.Retractions == 0 || stats.EvictedTokens == 0 || w.chunked == 0 || w.hitAgain == 0 {
		t.Fatalf("the load does not show what it is for: %+v", stats)
	}
	type sums struct{ prefills, decodes, input, hit, first, generated, retracted, finished int }
	got := sums{w.prefills, w.decodes, w.input, w.hit - w.hitAgain, w.input - w.inputAgain + w.hit - w.hitAgain, w.tokens, w.retracted, w.finished}
	want := sums{stats.PrefillSteps, stats.DecodeSteps, stats.ComputedTokens, stats.CachedTokens, stats.PromptTokens, stats.GeneratedTokens, stats.Retractions, 12}
	if got != want {
		t.Errorf("told  %+v\ncounts %+v", got, want)
	}
	if w.rests == 0 || w.rest != stats {
		t.Errorf("at rest %+v, want %+v", w.rest, stats)
	}
}
