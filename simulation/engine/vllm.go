package engine

import (
	"time"

	"kneefinder/simulation/engine/kv"
)

// oneBudget is vLLM 1's scheduler: every step has one budget of tokens, which running requests spend first, each on its next token or the
// next part of its prompt, and the queue then: who waits begins when all of its prompt has room, with no look at what anybody may still
// write. When a running request finds no room the last of them is preempted: its KV is given up and computed again later.
type oneBudget struct{}

func (p oneBudget) plan(e *Engine, at time.Duration, s Sink) {
	budget := e.config.Recipe.BatchedTokens
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := p.next(e, r, budget)
		for !e.store.MakeRoom(p.need(e, r, n)) {
			victim := p.victim(e, i)
			e.retract(victim)
			if victim == i {
				n = 0
				break
			}
		}
		if n == 0 {
			i--
			continue
		}
		budget -= p.spend(e, r, n)
	}
	if e.step.preempted && len(e.running) > 0 || !e.waiting.seen(e.step.sees) {
		return
	}
	for _, r := range e.candidates() {
		if budget <= 0 {
			return
		}
		if len(e.running) >= e.config.Recipe.MaxRunning {
			return
		}
		m := e.lookup(r)
		n := p.part(e, len(r.seq)-m.Length, budget)
		whole := e.store.Chunk(m.Length, len(r.seq), nil)
		handoff := r.Handoff && r.generated == 1
		if handoff {
			whole = e.store.Growth(m.Length, len(r.seq)+e.accepted(r))
		}
		if !e.store.Fits(m, whole) {
			if len(e.running) == 0 {
				panic("engine: a request that fits the pool was not admitted to an empty engine")
			}
			return
		}
		e.admit(r, at, s)
		if handoff {
			e.receive(r)
			n = e.accepted(r)
			e.store.MakeRoom(e.store.Growth(r.held.Len(), r.held.Len()+n))
		}
		budget -= p.spend(e, r, n)
	}
}

// blocked is sure only where there is no place for more requests: what a request needs to begin falls when its cached prefix is evicted.
func (oneBudget) blocked(e *Engine) bool { return len(e.running) >= e.config.Recipe.MaxRunning }

func (oneBudget) decoded(*Engine) {}

// next is how many tokens r computes next with so many left in the budget.
func (p oneBudget) next(e *Engine, r *request, budget int) int {
	if r.prefilled() {
		return e.accepted(r)
	}
	return p.part(e, len(r.seq)-r.held.Len(), budget)
}

// need is the memory of the next n tokens of r.
func (oneBudget) need(e *Engine, r *request, n int) kv.Need {
	l := r.held.Len()
	if r.prefilled() {
		return e.store.Growth(l, l+n)
	}
	return e.store.Chunk(l, l+n, &r.held)
}

// part is how much of so many prompt tokens one step computes.
func (oneBudget) part(e *Engine, left, budget int) int {
	n := min(left, budget)
	if most := e.config.Recipe.LongPrefill; most > 0 {
		n = min(n, most)
	}
	return n
}

// spend puts n tokens of r into the step, for which there is room, and returns what they take of the budget.
func (oneBudget) spend(e *Engine, r *request, n int) int {
	if r.prefilled() {
		e.decode(r)
		return 1 + e.config.Recipe.Speculate.Tokens
	}
	e.prefill(r, n)
	return n
}

// victim is which of the running requests from number i on is preempted: the last, or with priorities the last of the lowest.
func (oneBudget) victim(e *Engine, i int) int {
	worst := len(e.running) - 1
	if e.config.Recipe.Order != Priority {
		return worst
	}
	for j := worst; j >= i; j-- {
		if e.running[j].Priority < e.running[worst].Priority {
			worst = j
		}
	}
	return worst
}
