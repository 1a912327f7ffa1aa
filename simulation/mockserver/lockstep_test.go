package mockserver

import (
	"slices"
	"time"

	"kneefinder/simulation/engine"
)

// lockstep is an engine whose instants are plain to see: at every multiple of step, each request submitted before it gets
// perStep tokens. Its pool is maxPrompt tokens, 0 for no limit.
type lockstep struct {
	step      time.Duration
	perStep   int
	maxPrompt int

	at      time.Duration
	running []*lockstepRequest
	aborted []uint64 // of which the sink has not been told
	total   engine.Stats
}

type lockstepRequest struct {
	engine.Request
	at   time.Duration
	told int
}

func (l *lockstep) Submit(at time.Duration, r engine.Request) {
	l.running = append(l.running, &lockstepRequest{Request: r, at: at})
}

func (l *lockstep) Abort(_ time.Duration, id uint64) {
	l.running = slices.DeleteFunc(l.running, func(r *lockstepRequest) bool { return r.ID == id })
	l.aborted = append(l.aborted, id)
}

func (l *lockstep) Next() (time.Duration, bool) {
	return l.at + l.step, len(l.running) > 0
}

func (l *lockstep) AdvanceTo(to time.Duration, sink engine.Sink) {
	for _, id := range l.aborted {
		sink.Finished(id, to, engine.Finish{Reason: engine.Aborted})
	}
	l.aborted = nil
	for ; l.at+l.step <= to; l.at += l.step {
		end := l.at + l.step
		l.running = slices.DeleteFunc(l.running, func(r *lockstepRequest) bool { return r.at < end && l.advance(r, end, sink) })
	}
}

// advance gives one request its tokens and reports whether it has ended.
func (l *lockstep) advance(r *lockstepRequest, at time.Duration, sink engine.Sink) bool {
	if l.maxPrompt > 0 && len(r.Prompt) > l.maxPrompt {
		sink.Finished(r.ID, at, engine.Finish{Reason: engine.Refused, Detail: "The prompt is larger than the pool."})
		return true
	}
	if r.told == 0 {
		sink.Admitted(r.ID, at, 0)
		l.total.PromptTokens += len(r.Prompt)
	}
	n := min(max(l.perStep, 1), r.MaxTokens-r.told)
	r.told += n
	l.total.GeneratedTokens += n
	sink.Tokens(r.ID, at, n)
	if r.told < r.MaxTokens {
		return false
	}
	sink.Finished(r.ID, at, engine.Finish{Reason: engine.Length, CompletionTokens: r.told})
	return true
}

func (l *lockstep) Stats() engine.Stats { return l.total }
func (l *lockstep) FlushCache() bool    { return len(l.running) == 0 }

// recorder is an engine that keeps what it told, by call and turn.
type recorder struct {
	Engine
	sink  engine.Sink
	turns map[uint64]turn
	told  map[turn]told
}

// told is what there is to tell of one turn.
type told struct {
	Tokens []time.Duration // when each came
	Cached int             // prompt tokens, when it has run to its end
}

type turn struct{ call, turn int }

func record(e Engine) *recorder {
	return &recorder{Engine: e, turns: map[uint64]turn{}, told: map[turn]told{}}
}

func (r *recorder) Submit(at time.Duration, q engine.Request) {
	r.turns[q.ID] = turn{q.Call, q.Turn}
	r.Engine.Submit(at, q)
}

func (r *recorder) AdvanceTo(at time.Duration, sink engine.Sink) {
	r.sink = sink
	r.Engine.AdvanceTo(at, r)
}

func (r *recorder) Admitted(id uint64, at time.Duration, cached int) { r.sink.Admitted(id, at, cached) }

func (r *recorder) Tokens(id uint64, at time.Duration, n int) {
	t := r.told[r.turns[id]]
	for range n {
		t.Tokens = append(t.Tokens, at)
	}
	r.told[r.turns[id]] = t
	r.sink.Tokens(id, at, n)
}

func (r *recorder) Finished(id uint64, at time.Duration, f engine.Finish) {
	if t := r.told[r.turns[id]]; f.Reason == engine.Length {
		t.Cached = f.CachedTokens
		r.told[r.turns[id]] = t
	}
	r.sink.Finished(id, at, f)
}
