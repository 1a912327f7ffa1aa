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

	prompts, sequences, mixed, most, peak int // of the parts
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
	w.parts(s)
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

// parts looks at what a step computes of each request.
func (w *watched) parts(s Step) {
	prompts, input, context := 0, 0, 0
	for i, p := range s.Parts {
		if p.KV < p.Query || p.Query < 1 || !p.Prefill && p.Query != 1 || p.Call != int(p.ID) {
			w.t.Errorf("at %v: part %d is %+v", s.End, i, p)
		}
		if p.Prefill {
			prompts, input = prompts+1, input+p.Query
		} else {
			context += p.KV
		}
	}
	n := len(s.Parts)
	if input != s.Input || !s.Prefill && (n != s.Running || context != s.Context) {
		w.t.Errorf("at %v: %d parts with %d prompt tokens and %d tokens behind decodes of %+v", s.End, n, input, context, s)
	}
	w.prompts, w.sequences = w.prompts+prompts, w.sequences+n-prompts
	if prompts > 0 && n > prompts {
		w.mixed++
	}
	w.most, w.peak = max(w.most, n), max(w.peak, s.KVTokens)
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
	for _, kind := range []Kind{SGLang, VLLM} {
		t.Run(string(kind), func(t *testing.T) { watch(t, kind) })
	}
}

func watch(t *testing.T, kind Kind) {
	c := preset(t, "demo", "demo")
	c.Recipe.Kind, c.Recipe.KVTokens, c.Recipe.ChunkedPrefill, c.Recipe.BatchedTokens, c.Recipe.PageTokens = kind, 6000, 512, 512, 1
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
	if stats.Retractions == 0 || stats.EvictedTokens == 0 || w.chunked == 0 || w.hitAgain == 0 || kind == VLLM && w.mixed == 0 {
		t.Fatalf("the load does not show what it is for: %+v", stats)
	}
	type sums struct {
		prefills, decodes, input, hit, first, generated, retracted, finished int
		prompts, sequences, mixed, most                                      int
	}
	got := sums{w.prefills, w.decodes, w.input, w.hit - w.hitAgain, w.input - w.inputAgain + w.hit - w.hitAgain, w.tokens, w.retracted, w.finished,
		w.prompts, w.sequences, w.mixed, w.most}
	want := sums{stats.PrefillSteps, stats.DecodeSteps, stats.ComputedTokens, stats.CachedTokens, stats.PromptTokens, stats.GeneratedTokens, stats.Retractions, 12,
		stats.PromptsStepped, stats.DecodesStepped, stats.MixedSteps, stats.MaxBatch}
	if got != want {
		t.Errorf("told  %+v\ncounts %+v", got, want)
	}
	if peak := stats.KVPeakBytes * int64(stats.KVPoolTokens) / stats.KVPoolBytes; peak != int64(w.peak) {
		t.Errorf("at the peak %d of %d tokens were in use, told at most %d", peak, stats.KVPoolTokens, w.peak)
	}
	if w.rests == 0 || w.rest != stats {
		t.Errorf("at rest %+v, want %+v", w.rest, stats)
	}
}

// Peaks begin anew with what is in progress.
func TestResetPeaks(t *testing.T) {
	e, err := New(preset(t, "demo", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]Token, 500)
	for i := range prompt {
		prompt[i] = firstWord + Token(i)
	}
	for id := range uint64(3) {
		e.Submit(0, Request{ID: id, Prompt: prompt[:100*(id+1)], MaxTokens: 10 + 200*int(id)})
	}
	e.AdvanceTo(time.Hour, nil)
	if s := e.Stats(); s.MaxBatch != 3 || s.KVPeakBytes == 0 || s.KVUsedBytes != 0 {
		t.Fatalf("three requests at once, and all have ended: %+v", s)
	}
	e.ResetPeaks()
	if s := e.Stats(); s.MaxBatch != 0 || s.KVPeakBytes != 0 {
		t.Errorf("nothing runs: peaks of %d requests and %d bytes", s.MaxBatch, s.KVPeakBytes)
	}
	told := e.Stats().GeneratedTokens
	e.Submit(time.Hour, Request{ID: 9, Prompt: prompt, MaxTokens: 1000})
	for at, ok := e.Next(); ok && e.Stats().GeneratedTokens < told+500; at, ok = e.Next() {
		e.AdvanceTo(at, nil)
	}
	before := e.Stats()
	e.ResetPeaks()
	if s := e.Stats(); s.MaxBatch != 1 || s.KVPeakBytes != before.KVUsedBytes {
		t.Errorf("one runs with %d bytes: peaks of %d requests and %d bytes", before.KVUsedBytes, s.MaxBatch, s.KVPeakBytes)
	}
}
