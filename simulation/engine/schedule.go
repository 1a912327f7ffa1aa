package engine

import (
	"fmt"
	"slices"
	"time"
)

// SGLang's estimate of how much of their remaining tokens running requests will write: it starts at initialRatio, falls to
// finalRatio over ratioSteps decode steps, and rises to what was seen after a retraction.
const (
	initialRatio = .7
	finalRatio   = .14 * initialRatio
	ratioSteps   = 600
	retractSteps = 20   // decode steps that a retraction provides for
	reserveClip  = 4096 // no request is expected to write more
)

type stepKind int

const (
	idle stepKind = iota
	prefilling
	decoding
)

// step is what the GPU does.
type step struct {
	kind       stepKind
	start, end time.Duration
	parts      []*request // of a prefill
	batch      batch
	told       Step // what a Watcher is told of it beside its instants and the Stats
}

// startStep decides what happens from the instant at on: prefill before decode, or nothing.
func (e *Engine) startStep(at time.Duration, s Sink) {
	e.dropAborted(at, s)
	e.step.told = Step{Running: len(e.running), Ratio: e.ratio}
	if e.gatherPrefill(at, s) {
		e.begin(prefilling, at)
		return
	}
	if e.gatherDecode() {
		e.begin(decoding, at)
		return
	}
	e.ratio = initialRatio // nothing runs, and no estimate of the past counts
}

func (e *Engine) begin(kind stepKind, at time.Duration) {
	e.step.kind, e.step.start = kind, at
	e.step.end = at + stepCost(&e.config.Model, &e.config.GPU, &e.step.batch)
	e.stats.MaxRunningSeen = max(e.stats.MaxRunningSeen, e.admitted())
}

// admitted counts the requests that hold memory; between two calls of the driver a chunked one is among the step's parts.
func (e *Engine) admitted() int { return len(e.running) + len(e.step.parts) }

// dropAborted ends what was aborted before at.
func (e *Engine) dropAborted(at time.Duration, s Sink) {
	if e.aborts == 0 {
		return
	}
	due := func(r *request) bool { return r.aborted && r.abortAt < at }
	finish := Finish{Reason: Aborted}
	for _, r := range e.waiting.remove(due) {
		e.finish(r, at, finish, s)
	}
	if e.chunked != nil && due(e.chunked) {
		e.release(e.chunked)
		e.finish(e.chunked, at, finish, s)
		e.chunked = nil
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

// gatherPrefill fills a prefill batch: first the request whose prefill is under way, then the queue in order until tokens,
// memory or places run out. At most one request, the last, is left with a part to do.
func (e *Engine) gatherPrefill(at time.Duration, s Sink) bool {
	budget := min(e.config.Recipe.ChunkedPrefill, e.config.Recipe.MaxPrefillTokens)
	e.step.parts = e.step.parts[:0]
	e.step.batch = batch{prefill: e.step.batch.prefill[:0]}
	if r := e.chunked; r != nil {
		e.chunked = nil
		budget -= e.compute(r, budget)
	}
	reserved := int64(-1) // not known yet
	for budget > 0 {
		r := e.waiting.first()
		if r == nil || r.stamp >= at {
			break
		}
		if why := e.refusal(r); why != "" {
			e.waiting.pop()
			e.finish(r, at, Finish{Reason: Refused, Detail: why}, s)
			continue
		}
		if e.admitted() >= e.config.Recipe.MaxRunning {
			break
		}
		if reserved < 0 {
			reserved = e.reserve()
		}
		if !e.fits(r, reserved) {
			break
		}
		e.waiting.pop()
		e.admit(r, at, s)
		budget -= e.compute(r, budget)
		reserved += e.expected(r)
	}
	if r := e.waiting.first(); r != nil && r.stamp < at && e.admitted() == 0 {
		panic("engine: a request that fits the pool was not admitted to an empty engine")
	}
	return len(e.step.parts) > 0
}

// refusal says why a request can never run; empty when it can.
func (e *Engine) refusal(r *request) string {
	total := len(r.Prompt) + r.MaxTokens
	switch {
	case len(r.Prompt) == 0:
		return "the prompt is empty"
	case r.MaxTokens < 1:
		return fmt.Sprintf("max tokens is %d, must be at least 1", r.MaxTokens)
	case total > e.config.Recipe.ContextLimit:
		return fmt.Sprintf("%d prompt tokens and %d to generate exceed the context limit of %d tokens",
			len(r.Prompt), r.MaxTokens, e.config.Recipe.ContextLimit)
	case e.memory.bytes(0, total) > e.memory.pool:
		return fmt.Sprintf("%d prompt tokens and %d to generate exceed the KV pool of %d tokens",
			len(r.Prompt), r.MaxTokens, e.memory.capacity())
	}
	return ""
}

// fits reports whether r, and all it may still write, has room beside what is reserved for others. Everything that no request
// has locked can be evicted for it.
func (e *Engine) fits(r *request, reserved int64) bool {
	m := e.lookup(r)
	end := len(r.seq) + min(r.remaining(), reserveClip)
	need := e.memory.bytes(m.length, end) + e.memory.window*int64(min(m.length, e.memory.size))
	room := e.memory.free(e.cache) + e.memory.evictable(e.cache) - e.memory.full*int64(e.cache.unlocked(m))
	return need+reserved <= room
}

// lookup finds the cached prefix of a request; at least one token is left to compute. A blocked queue asks in every step, so the
// answer is kept until the cache changes.
func (e *Engine) lookup(r *request) match {
	if r.found.node == nil || r.foundAt != e.cache.version {
		r.found, r.foundAt = e.cache.find(r.seq[:len(r.seq)-1]), e.cache.version
	}
	return r.found
}

// reserve is what requests that hold memory already are expected to write yet.
func (e *Engine) reserve() (bytes int64) {
	for _, r := range e.running {
		ahead := int(float64(min(r.remaining(), reserveClip)) * e.ratio)
		bytes += e.memory.bytes(r.kv, r.kv+ahead)
	}
	for _, r := range e.step.parts {
		bytes += e.expected(r)
	}
	return bytes
}

// expected is what a request in its prefill may write yet.
func (e *Engine) expected(r *request) int64 {
	return e.memory.bytes(r.kv, len(r.seq)+min(r.remaining(), reserveClip))
}

// admit locks the cached prefix of r.
func (e *Engine) admit(r *request, at time.Duration, s Sink) {
	m := e.lookup(r)
	r.found = match{}
	r.node, r.kv = e.cache.lock(m), m.length
	e.step.told.Hit += m.length
	if r.admitted {
		e.step.told.HitAgain += m.length
	}
	e.memory.tails += min(r.kv, e.memory.size)
	if r.admitted {
		return
	}
	r.admitted, r.cached = true, m.length
	e.stats.PromptTokens += len(r.Prompt)
	e.stats.CachedTokens += r.cached
	s.Admitted(r.ID, at, r.cached)
}

// compute puts up to most of the tokens that r has to prefill into the step, and returns how many.
func (e *Engine) compute(r *request, most int) int {
	n := min(most, len(r.seq)-r.kv)
	e.mustGrow(r.kv, r.kv+n)
	e.step.batch.prefill = append(e.step.batch.prefill, span{offset: r.kv, n: n, last: r.kv+n == len(r.seq)})
	e.step.parts = append(e.step.parts, r)
	r.kv += n
	e.stats.ComputedTokens += n
	e.step.told.Input += n
	if len(r.seq) > len(r.Prompt) {
		e.step.told.InputAgain += n
	}
	return n
}

func (e *Engine) mustGrow(from, to int) {
	if !e.memory.makeFree(e.cache, e.memory.bytes(from, to)) {
		panic("engine: memory that admission had counted on is not there")
	}
	e.memory.hold(from, to)
}

// gatherDecode makes a batch of all running requests, after retracting those for which there is no room.
func (e *Engine) gatherDecode() bool {
	for len(e.running) > 0 && !e.memory.makeFree(e.cache, e.nextTokens()) {
		e.retract()
	}
	b := batch{prefill: e.step.batch.prefill[:0], decodes: len(e.running)}
	for _, r := range e.running {
		e.memory.hold(r.kv, r.kv+1)
		r.kv++
		b.context += r.kv
		b.recent += min(r.kv, e.memory.size)
	}
	e.step.batch = b
	e.step.told.Running, e.step.told.Context = b.decodes, b.context
	return b.decodes > 0
}

// nextTokens is the memory of one more token for every running request.
func (e *Engine) nextTokens() (bytes int64) {
	for _, r := range e.running {
		bytes += e.memory.bytes(r.kv, r.kv+1)
	}
	return bytes
}

// retract takes the running request with the fewest generated tokens, of those the one with the longest prompt, back to the
// queue. Its KV becomes evictable; what it has told stays told.
func (e *Engine) retract() {
	if len(e.running) == 1 {
		panic("engine: a request that fits the pool has no room although it is alone")
	}
	least := 0
	for i, r := range e.running {
		l := e.running[least]
		if r.generated < l.generated || r.generated == l.generated && len(r.Prompt) >= len(l.Prompt) {
			least = i // of equals the last admitted
		}
	}
	r := e.running[least]
	e.running = slices.Delete(e.running, least, least+1)
	e.release(r)
	r.seq = r.reply(slices.Clone(r.Prompt), 0, r.generated)
	e.waiting.putBack(r)
	e.stats.Retractions++
	if e.watcher != nil {
		e.watcher.Retracted(r.ID, e.last, r.generated)
	}

	decoded, wanted := 0, 0
	for _, r := range e.running {
		decoded += r.generated
		wanted += r.MaxTokens
	}
	e.ratio = min(1, float64(decoded+retractSteps*len(e.running))/float64(wanted))
}

// ended is what a Watcher is told of the step that has just been finished.
func (e *Engine) ended(kind stepKind) Step {
	s := e.step.told
	s.Start, s.End, s.Prefill = e.step.start, e.step.end, kind == prefilling
	s.Stats = e.Stats()
	if s.Chunked = s.Prefill && e.chunked != nil; s.Chunked {
		s.Stats.Running++ // the next step takes it up
	}
	return s
}

// finishStep applies what the step that ends now has computed.
func (e *Engine) finishStep(s Sink) {
	kind, took := e.step.kind, e.step.end-e.step.start
	e.step.kind = idle
	switch kind {
	case prefilling:
		e.finishPrefill(s)
		e.stats.PrefillSteps++
		e.stats.PrefillBusy += took
	case decoding:
		n := len(e.running)
		e.finishDecode(s)
		e.stats.DecodeSteps++
		e.stats.DecodeBusy += took
		e.stats.DecodeBatch = n
		e.stats.GenThroughput = float64(n) / took.Seconds()
	}
}

func (e *Engine) finishPrefill(s Sink) {
	for _, r := range e.step.parts {
		e.store(r, r.seq[r.node.depth:r.kv])
		if !r.prefilled() {
			e.chunked = r
			continue
		}
		if !e.emit(r, s) {
			e.running = append(e.running, r)
		}
	}
	e.step.parts = e.step.parts[:0]
}

func (e *Engine) finishDecode(s Sink) {
	left := e.running[:0]
	for _, r := range e.running {
		if !e.emit(r, s) {
			left = append(left, r)
		}
	}
	clear(e.running[len(left):])
	e.running = left
	e.ratio = max(finalRatio, e.ratio-(initialRatio-finalRatio)/ratioSteps)
}

// emit tells of one more token of r, and reports whether it was the last.
func (e *Engine) emit(r *request, s Sink) (done bool) {
	r.generated++
	e.stats.GeneratedTokens++
	s.Tokens(r.ID, e.step.end, 1)
	if r.generated < r.MaxTokens {
		return false
	}
	e.release(r)
	e.finish(r, e.step.end, Finish{Reason: Length}, s)
	return true
}

// store moves tokens that r holds by itself into the tree. Where the tree has them already, r's own are given back; where that
// makes a place resident that was not, something else may have to go.
func (e *Engine) store(r *request, own []Token) {
	e.memory.private -= r.private()
	r.node = e.cache.insert(r.node, own)
	e.memory.makeFree(e.cache, 0)
}

// release leaves all that r has computed to the cache, evictable.
func (e *Engine) release(r *request) {
	if own := r.private(); own > 0 { // generated: prefill is stored at the end of its step
		from := r.node.depth - len(r.Prompt)
		e.store(r, r.reply(make([]Token, 0, own), from, from+own))
	}
	e.cache.unlock(r.node)
	e.memory.tails -= min(r.kv, e.memory.size)
	r.node, r.kv = nil, 0
}

// finish tells of the end of r and forgets it.
func (e *Engine) finish(r *request, at time.Duration, f Finish, s Sink) {
	delete(e.here, r.ID)
	if r.aborted {
		e.aborts--
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
}
