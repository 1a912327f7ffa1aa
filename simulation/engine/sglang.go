package engine

import (
	"time"

	"kneefinder/simulation/engine/kv"
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

// prefillFirst is SGLang 0.5's scheduler: prefill before decode, long prompts in chunks, of which at most one is under way; a
// request is admitted when all that it and the others are expected to write has room, and when that was too little the ones
// that have written least are retracted.
type prefillFirst struct{}

func (p prefillFirst) plan(e *Engine, at time.Duration, s Sink) {
	p.prefill(e, at, s)
	if len(e.step.batch.Prefill) == 0 || e.config.Recipe.MixedChunk {
		p.decode(e)
	}
}

// blocked is sure only where there is no place for more requests: the memory that is reserved for those that run shrinks as they write.
func (prefillFirst) blocked(e *Engine) bool { return len(e.running) >= e.config.Recipe.MaxRunning }

func (prefillFirst) decoded(e *Engine) {
	e.ratio = max(finalRatio, e.ratio-(initialRatio-finalRatio)/ratioSteps)
}

// prefill fills a prefill batch: first the request whose prefill is under way, then the queue in order until tokens, memory or places
// run out. At most one request, the last, is left with a part to do.
func (p prefillFirst) prefill(e *Engine, at time.Duration, s Sink) {
	rec := &e.config.Recipe
	budget := rec.MaxPrefillTokens
	if rec.ChunkedPrefill > 0 {
		budget = min(budget, rec.ChunkedPrefill)
	}
	if rec.MixedChunk {
		budget -= e.step.told.Running
	}
	if n := len(e.running); n > 0 && !e.running[n-1].prefilled() {
		r := e.running[n-1]
		l := r.held.Len()
		part := max(0, min(budget, len(r.seq)-l))
		for !e.store.MakeRoom(e.store.Chunk(l, l+part, &r.held)) { // others have decoded meanwhile, beside its last part
			p.retract(e)
		}
		if part > 0 {
			e.prefill(r, part)
		}
		budget -= part
	}
	if !e.waiting.seen(e.step.sees) {
		return
	}
	begun := len(e.running) // those admitted in this step are behind
	reserved, known := kv.Need{}, false
	for _, r := range e.candidates() {
		if budget <= 0 {
			return
		}
		if len(e.running) >= rec.MaxRunning || rec.MaxPrefillRequests > 0 && len(e.step.batch.Prefill) >= rec.MaxPrefillRequests {
			return
		}
		if !known {
			reserved, known = p.reserve(e), true
		}
		m := e.lookup(r)
		end := len(r.seq) + min(r.remaining(), reserveClip)
		if !e.store.Fits(m, reserved.Plus(e.store.Chunk(m.Length, end, nil))) {
			if len(e.running) == 0 {
				panic("engine: a request that fits the pool was not admitted to an empty engine")
			}
			return
		}
		part := len(r.seq) - m.Length
		if rec.ChunkedPrefill > 0 {
			part = min(part, budget)
		} else if part > budget && len(e.running) > begun { // whole prompts only; a longer one goes alone
			return
		}
		e.admit(r, at, s)
		if r.Handoff && r.generated == 1 {
			e.receive(r)
			reserved = reserved.Plus(p.expected(e, r))
			continue
		}
		e.prefill(r, part)
		budget -= part
		reserved = reserved.Plus(p.expected(e, r))
	}
}

// reserve is what requests that hold memory already are expected to write yet.
func (p prefillFirst) reserve(e *Engine) (sum kv.Need) {
	for _, r := range e.running {
		if r.now > 0 || !r.prefilled() {
			sum = sum.Plus(p.expected(e, r))
			continue
		}
		ahead := int(float64(min(r.remaining(), reserveClip)) * e.ratio)
		sum = sum.Plus(e.store.Growth(r.held.Len(), r.held.Len()+ahead))
	}
	return sum
}

// expected is what a request in its prefill may write yet.
func (prefillFirst) expected(e *Engine, r *request) kv.Need {
	return e.store.Chunk(r.held.Len(), len(r.seq)+min(r.remaining(), reserveClip), &r.held)
}

// decode puts a token of every request past its prefill into the step, after retracting those for which there is no room.
func (p prefillFirst) decode(e *Engine) {
	for !e.store.MakeRoom(p.nextTokens(e)) {
		p.retract(e)
	}
	for _, r := range e.running {
		if r.now == 0 && r.prefilled() {
			e.decode(r)
		}
	}
}

// nextTokens is the memory of the next tokens of every request that decodes.
func (prefillFirst) nextTokens(e *Engine) (sum kv.Need) {
	for _, r := range e.running {
		if r.now == 0 && r.prefilled() {
			sum = sum.Plus(e.store.Growth(r.held.Len(), r.held.Len()+e.accepted(r)))
		}
	}
	return sum
}

// retract takes the decoding request with the fewest generated tokens, of those the one with the longest prompt, back to the queue.
func (prefillFirst) retract(e *Engine) {
	least, others := -1, 0
	for i, r := range e.running {
		if r.now > 0 || !r.prefilled() {
			continue
		}
		others++
		if least < 0 {
			least = i
			continue
		}
		l := e.running[least]
		if r.generated < l.generated || r.generated == l.generated && len(r.Prompt) >= len(l.Prompt) {
			least = i // of equals the last admitted
		}
	}
	if len(e.running) == 1 || others == 0 {
		panic("engine: a request that fits the pool has no room although it is alone")
	}
	e.retract(least)
	decoded, wanted := 0, 0
	for _, r := range e.running {
		decoded += r.generated
		wanted += r.MaxTokens
	}
	e.ratio = min(1, float64(decoded+retractSteps*len(e.running))/float64(wanted))
}
