package engine

import (
	"fmt"
	"slices"
	"time"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/kv"
)

// policy is how an engine fills its steps. It is a value without state: what it decides follows from the engine's requests, memory
// and recipe, and from the instant.
type policy interface {
	// plan puts into the step that starts at the instant at what it computes; nothing when it finds nothing to do.
	plan(e *Engine, at time.Duration, s Sink)
	// blocked reports whether none of the requests that wait can be admitted before one of those that run ends.
	blocked(e *Engine) bool
	// decoded is called at the end of every step that decodes.
	decoded(e *Engine)
}

// Scheduler names a policy.
type Scheduler string

// The schedulers.
const (
	PrefillFirst Scheduler = "prefill-first" // SGLang's
	OneBudget    Scheduler = "one-budget"    // vLLM's
)

var policies = map[Scheduler]policy{PrefillFirst: prefillFirst{}, OneBudget: oneBudget{}}

type stepKind int

const (
	idle       stepKind = iota
	prefilling          // parts of prompts, and with some policies decodes beside them
	decoding            // one token for every running request, and nothing else
)

// step is what the GPU does.
type step struct {
	kind       stepKind
	start, end time.Duration
	sees       time.Duration // what has arrived up to this instant was known when it was put together
	batch      cost.Batch
	preempted  bool // somebody has been retracted to make room for it
	told       Step // what a Watcher is told of it beside its instants and the Stats
}

// startStep decides what happens from the instant at on.
func (e *Engine) startStep(at time.Duration, s Sink) {
	e.dropAborted(at, s)
	e.dropRefused(at, s)
	e.step.batch = cost.Batch{Prefill: e.step.batch.Prefill[:0]}
	e.step.preempted = false
	e.step.told = Step{Running: e.decodable(), Ratio: e.ratio}
	e.policy.plan(e, at, s)
	b := &e.step.batch
	switch {
	case len(b.Prefill) > 0:
		e.step.kind = prefilling
	case b.Decodes > 0:
		e.step.kind = decoding
		e.step.told.Running, e.step.told.Context = b.Decodes, b.Context
	default:
		e.ratio = initialRatio // nothing runs, and no estimate of the past counts
		return
	}
	e.step.start, e.step.end = at, at+e.kernel.Step(b)
	e.stats.MaxRunningSeen = max(e.stats.MaxRunningSeen, len(e.running))
	e.peaks()
	if e.watcher != nil {
		e.tellParts()
	}
	e.ends = append(e.ends[:0], e.step.end)
	if e.step.kind == decoding {
		e.planRun()
	}
}

// decodable counts the running requests that are past their prefill.
func (e *Engine) decodable() (n int) {
	for _, r := range e.running {
		if r.prefilled() {
			n++
		}
	}
	return n
}

// dropAborted ends what is to be aborted by a step that starts at the instant at.
func (e *Engine) dropAborted(at time.Duration, s Sink) {
	if e.aborts == 0 {
		return
	}
	due := func(r *request) bool { return r.aborted && r.abortAt <= at }
	finish := Finish{Reason: Aborted}
	for _, r := range e.waiting.take(due) {
		e.finish(r, at, finish, s)
	}
	e.running = slices.DeleteFunc(e.running, func(r *request) bool {
		if !due(r) {
			return false
		}
		e.release(r)
		e.finish(r, at, finish, s)
		return true
	})
}

// dropRefused ends what can never run, once it is seen.
func (e *Engine) dropRefused(at time.Duration, s Sink) {
	if e.refusals == 0 {
		return
	}
	for _, r := range e.waiting.take(func(r *request) bool { return r.refusal != "" && r.stamp <= e.step.sees }) {
		e.finish(r, at, Finish{Reason: Refused, Detail: r.refusal}, s)
	}
}

// refusal says why a request can never run; empty when it can.
func (e *Engine) refusal(r *Request) string {
	exceeds := func(limit int) bool { return r.MaxTokens > limit-len(r.Prompt) } // the sum of the two may be more than an int holds
	switch {
	case len(r.Prompt) == 0:
		return "the prompt is empty"
	case r.MaxTokens < 1:
		return fmt.Sprintf("max tokens is %d, must be at least 1", r.MaxTokens)
	case r.Handoff && r.MaxTokens < 2:
		return fmt.Sprintf("max tokens is %d, must be at least 2 where the first has been generated elsewhere", r.MaxTokens)
	case exceeds(e.config.Recipe.ContextLimit):
		return fmt.Sprintf("%d prompt tokens and %d to generate exceed the context limit of %d tokens",
			len(r.Prompt), r.MaxTokens, e.config.Recipe.ContextLimit)
	case exceeds(e.store.Longest()):
		return fmt.Sprintf("%d prompt tokens and %d to generate exceed the KV pool of %d tokens",
			len(r.Prompt), r.MaxTokens, e.store.Longest())
	}
	return ""
}

// lookup finds the cached prefix of a request; at least one token is left to compute. A blocked queue asks in every step, so the
// answer is kept until the cache changes.
func (e *Engine) lookup(r *request) kv.Match {
	if now := e.store.Version() + 1; r.foundAt != now {
		r.found, r.foundAt = e.store.Find(r.seq[:len(r.seq)-1]), now
	}
	return r.found
}

// admit takes r from the queue and holds its cached prefix.
func (e *Engine) admit(r *request, at time.Duration, s Sink) {
	m := e.lookup(r)
	e.waiting.remove(r)
	r.foundAt = 0
	e.store.Open(&r.held, m, r.seq)
	e.running = append(e.running, r)
	e.step.batch.Loaded += int64(m.Host) * e.hostBytes
	e.step.told.Hit += m.Length
	if r.admitted {
		e.step.told.HitAgain += m.Length
		return
	}
	r.admitted, r.cached = true, m.Length
	e.stats.PromptTokens += len(r.Prompt)
	e.stats.CachedTokens += r.cached
	s.Admitted(r.ID, at, r.cached)
}

// prefill puts n of the tokens that r has to compute into the step. There must be room.
func (e *Engine) prefill(r *request, n int) {
	from := r.held.Len()
	e.mustGrow(r, n)
	r.now = n
	last := r.prefilled()
	if last {
		r.told = 1
	}
	e.step.batch.Prefill = append(e.step.batch.Prefill, cost.Span{Offset: from, N: n, Last: last})
	e.stats.ComputedTokens += n
	e.step.told.Input += n
	if len(r.seq) > len(r.Prompt) {
		e.step.told.InputAgain += n
	}
}

// receive gives r, whose KV comes from elsewhere, the memory for it. There must be room.
func (e *Engine) receive(r *request) {
	l := r.held.Len()
	if !e.store.MakeRoom(e.store.Growth(l, len(r.seq))) {
		panic("engine: memory that admission had counted on is not there")
	}
	e.store.Grow(&r.held, len(r.seq))
	e.store.Commit(&r.held, r.content(r.held.Committed(), r.held.Len()))
}

// decode puts the next token of r into the step, or with speculation those that the draft got right. There must be room.
func (e *Engine) decode(r *request) {
	n := e.accepted(r)
	e.store.Grow(&r.held, r.held.Len()+n)
	r.now, r.told = n, n
	b := &e.step.batch
	b.Decodes++
	b.Context += r.held.Len()
	b.Recent += min(r.held.Len(), e.config.Model.WindowTokens)
}

// accepted is how many tokens the next decode step of r generates: one, and those of the draft before the first wrong one.
func (e *Engine) accepted(r *request) int {
	sp := e.config.Recipe.Speculate
	n := 1
	for ; n <= sp.Tokens && n < r.remaining(); n++ {
		if float64(mix(r.ID<<20^uint64(r.generated+n))>>11)/(1<<53) >= sp.Acceptance {
			break
		}
	}
	return n
}

func (e *Engine) mustGrow(r *request, n int) {
	l := r.held.Len()
	if !e.store.MakeRoom(e.store.Chunk(l, l+n, &r.held)) {
		panic("engine: memory that admission had counted on is not there")
	}
	e.store.GrowChunk(&r.held, l+n)
}

// retract takes running request number i back to the queue. Its KV becomes evictable; what it has told stays told.
func (e *Engine) retract(i int) {
	r := e.running[i]
	e.running = slices.Delete(e.running, i, i+1)
	e.release(r)
	r.seq = r.content(0, len(r.Prompt)+r.generated)
	e.waiting.putBack(r)
	e.step.preempted = true
	e.stats.Retractions++
	if e.watcher != nil {
		e.watcher.Retracted(r.ID, e.last, r.generated)
	}
}

// ended is what a Watcher is told of the step that has just been finished.
func (e *Engine) ended(kind stepKind) Step {
	s := e.step.told
	s.Start, s.End, s.Prefill = e.step.start, e.step.end, kind == prefilling
	s.Stats = e.Stats()
	s.Chunked = s.Prefill && slices.ContainsFunc(e.running, func(r *request) bool { return !r.prefilled() })
	return s
}

// finishStep applies what the step that ends now has computed.
func (e *Engine) finishStep(s Sink) {
	kind, took := e.step.kind, e.step.end-e.step.start
	e.step.kind = idle
	if kind == idle {
		return
	}
	told := e.stats.GeneratedTokens
	left := e.running[:0]
	for _, r := range e.running {
		if !e.finishPart(r, s) {
			left = append(left, r)
		}
	}
	clear(e.running[len(left):])
	e.running = left
	if n := e.step.batch.Decodes; n > 0 {
		e.stats.DecodeBatch = n
		e.stats.DecodesStepped += n
		e.stats.GenThroughput = float64(e.stats.GeneratedTokens-told) / took.Seconds()
		e.policy.decoded(e)
	}
	if kind == prefilling {
		e.stats.PromptsStepped += len(e.step.batch.Prefill)
		if e.step.batch.Decodes > 0 {
			e.stats.MixedSteps++
		}
		e.stats.PrefillSteps++
		e.stats.PrefillBusy += took
	} else {
		e.stats.DecodeSteps++
		e.stats.DecodeBusy += took
	}
}

// finishPart applies what the step has computed of r, and reports whether it was the last of it.
func (e *Engine) finishPart(r *request, s Sink) (done bool) {
	if r.now == 0 {
		return false
	}
	if r.held.Len() <= len(r.seq) { // a prefill
		e.store.Commit(&r.held, r.content(r.held.Committed(), r.held.Len()))
	}
	n := r.told
	r.now, r.told = 0, 0
	if n == 0 {
		return false
	}
	r.generated += n
	e.stats.GeneratedTokens += n
	s.Tokens(r.ID, e.step.end, n)
	if r.generated < r.MaxTokens {
		return false
	}
	e.release(r)
	e.finish(r, e.step.end, Finish{Reason: Length}, s)
	return true
}

// release leaves all that r has computed to the cache, evictable.
func (e *Engine) release(r *request) {
	e.store.Close(&r.held, r.content(r.held.Committed(), r.held.Len()))
	r.held, r.now, r.told = kv.Sequence{}, 0, 0
}

// finish tells of the end of r and forgets it.
func (e *Engine) finish(r *request, at time.Duration, f Finish, s Sink) {
	delete(e.here, r.ID)
	if r.aborted {
		e.aborts--
	}
	if r.refusal != "" {
		e.refusals--
	}
	switch f.Reason {
	case Length:
		e.stats.FinishedLength++
	case Refused:
		e.stats.FinishedRefused++
	case Aborted:
		e.stats.FinishedAborted++
	}
	f.CachedTokens, f.CompletionTokens = r.cached, r.generated
	s.Finished(r.ID, at, f)
	*r = request{}
	e.free = append(e.free, r)
}
