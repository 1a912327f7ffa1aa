// Package engine models one LLM serving engine as a passive state machine: requests, scheduler, KV memory and step times. It has no
// clock, lock, goroutine or wire; a driver tells it the instants (simulation in virtual time, mockserver on the wall).
//
// Its rooms: model (shapes), gpu (what accelerators can do), cost (how long a step takes), kv (pools and the prefix cache). Here are
// the schedulers: SGLang's (prefill before decode, in chunks; an estimate of what running requests will still write, and retraction
// when that was too low) and vLLM's (one budget of tokens a step for prefill and decode alike, preemption by recomputing).
//
// # Instants
//
// Two drivers that submit the same requests with the same stamps see the same events at the same instants, however they
// slice time, because
//
//   - the host takes a while, at least a nanosecond, to prepare a request; steps that start when it is done or later see it, and an idle
//     engine starts one then. An abort is seen by steps that start after its instant;
//   - requests queue by (stamp, Call, Turn, ID), and a retracted one before all of them;
//   - a step's end is computed once, from its start and its cost.
package engine

import (
	"fmt"
	"time"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
)

// Token is the id of one token. Equal ids are equal content to the prefix cache.
type Token = kv.Token

// Request is one generation. The engine keeps Prompt (never changed by either side) until the request has finished and the
// cache has let go of it.
type Request struct {
	ID         uint64 // chosen by the driver, unique among requests in the engine
	Call, Turn int    // requests stamped with the same instant queue in the order (Call, Turn)
	Prompt     []Token
	MaxTokens  int // generated tokens; at least 1
	Priority   int // higher goes first where the recipe's order is by priority

	// Handoff says that the prompt's KV comes with the request, and that the first token has been generated and told elsewhere:
	// generation goes on with the second.
	Handoff bool

	// Said is how many tokens at the end of Prompt are the beginning of the reply, generated before: what is generated goes on behind
	// them.
	Said int
}

// Reason says why a request ended.
type Reason string

// The reasons.
const (
	Length  Reason = "length"  // MaxTokens were generated
	Refused Reason = "refused" // it can never fit: context or pool too small
	Aborted Reason = "abort"
	Failed  Reason = "failed" // its engine is gone; told by a fleet
)

// Finish is how a request ended.
type Finish struct {
	Reason           Reason
	Detail           string // for Refused: one sentence
	CachedTokens     int    // prompt tokens found in the prefix cache at first admission
	CompletionTokens int    // with those told elsewhere
}

// Sink is told what happens inside, in order of instants. Its methods must not call the engine.
type Sink interface {
	Admitted(id uint64, at time.Duration, cachedTokens int) // first scheduled
	Tokens(id uint64, at time.Duration, n int)              // n more tokens were generated (n is 1 in one decode step)
	Finished(id uint64, at time.Duration, f Finish)         // after the last Tokens of the same instant
}

// BurstSink is a Sink that is told of runs of decode steps at once: every one of the ids got one more token at each of the
// instants, which rise. It stands for Tokens(id, at, 1) for each instant and, at each, for each id in that order. The slices are
// the engine's.
type BurstSink interface {
	Sink
	Burst(ids []uint64, ats []time.Duration)
}

// Engine is one serving engine. It belongs to one driver: no two calls may overlap. New makes one.
type Engine struct {
	config Config // filled: no zero left in the recipe
	kernel *cost.Kernel
	store  kv.Store
	policy policy

	overheads gpu.Overheads
	hostBytes int64 // that a token comes back from the host tier as

	waiting  queue
	running  []*request          // admitted, in order of admission
	here     map[uint64]*request // every request not finished
	aborts   int                 // how many of them are to be aborted,
	refusals int                 // and how many to be refused

	step    step
	ends    []time.Duration // of the step in progress and of those planned behind it, see planRun
	growing int             // sequences in these steps that are shorter than the window
	ids     []uint64        // of a burst
	watcher Watcher         // of the AdvanceTo in progress, if its sink is one
	parts   []Part          // of the step in progress, for it
	last    time.Duration   // the last instant at which something happened inside
	ratio   float64         // the part of their remaining tokens that running requests are expected to write
	stats   Stats

	free     []*request // of no use any more, for the next Submit
	stepwise bool       // no runs are planned, so that a test can compare
}

// New returns an idle engine with an empty cache, or says why the config cannot be.
func New(c Config) (*Engine, error) {
	c = c.Filled()
	kernel, store, err := c.parts()
	if err != nil {
		return nil, err
	}
	return &Engine{
		config:    c,
		kernel:    kernel,
		store:     store,
		policy:    policies[c.Recipe.Scheduler],
		overheads: kernel.Overheads(),
		hostBytes: kernel.Memory().FullBytes,
		here:      make(map[uint64]*request),
		ratio:     initialRatio,
	}, nil
}

// Submit queues a request that arrives at the instant at. It may be called before or after AdvanceTo(at), but not after
// AdvanceTo of a later instant. A request whose ID is still here is a bug of the driver, and panics.
func (e *Engine) Submit(at time.Duration, r Request) {
	if e.here[r.ID] != nil {
		panic(fmt.Sprintf("engine: request %d is here already", r.ID))
	}
	q := e.newRequest()
	q.Request, q.seq = r, r.Prompt
	q.stamp = at + e.HostTime(len(r.Prompt))
	if r.Handoff {
		q.generated = 1
	}
	if q.refusal = e.refusal(&r); q.refusal != "" {
		e.refusals++
	}
	e.here[r.ID] = q
	e.waiting.push(q)
	e.cutRun(q.stamp, e.config.Recipe.ahead())
}

// HostTime is how long the host prepares a request with a prompt of so many tokens before a step can see it.
func (e *Engine) HostTime(prompt int) time.Duration {
	return max(1, e.overheads.Request+time.Duration(prompt)*e.overheads.PromptToken)
}

// newRequest returns a zero request.
func (e *Engine) newRequest() *request {
	if n := len(e.free); n > 0 {
		r := e.free[n-1]
		e.free = e.free[:n-1]
		return r
	}
	return new(request)
}

// Abort ends a request at the next step boundary after at; what it has computed stays cached. A request that ends by itself
// before that is not aborted, and an id that is not here is ignored.
func (e *Engine) Abort(at time.Duration, id uint64) {
	r := e.here[id]
	if r == nil || r.aborted {
		return
	}
	r.aborted, r.abortAt = true, at+1
	e.aborts++
	e.cutRun(r.abortAt, false)
}

// Cached is how many tokens of a prompt the prefix cache would give to a request that came now.
func (e *Engine) Cached(prompt []Token) int {
	if len(prompt) == 0 {
		return 0
	}
	return e.store.Find(prompt[:len(prompt)-1]).Length
}

// Next returns the instant at which something next happens inside; ok is false when nothing will without a Submit.
func (e *Engine) Next() (at time.Duration, ok bool) {
	if e.step.kind != idle {
		return e.step.end, true
	}
	return e.wakes()
}

// Quiet returns the instant at which something may next happen inside but one more token of a running request, unless a Submit or an
// Abort comes before it; ok is false when nothing will. It is no earlier than Next.
func (e *Engine) Quiet() (at time.Duration, ok bool) {
	if e.step.kind == decoding {
		return e.ends[len(e.ends)-1], true
	}
	return e.Next()
}

// wakes is the instant at which an idle engine starts a step.
func (e *Engine) wakes() (at time.Duration, ok bool) {
	if r := e.waiting.first(); r != nil {
		return max(r.stamp, e.last), true
	}
	return 0, false
}

// AdvanceTo does everything that happens up to and including the instant at, and tells s, which may be nil.
func (e *Engine) AdvanceTo(at time.Duration, s Sink) {
	if s == nil {
		s = discard{}
	}
	e.watcher, _ = s.(Watcher)
	for next, ok := e.Next(); ok && next <= at; next, ok = e.Next() {
		if e.step.kind == decoding && len(e.ends) > 1 {
			e.takeRun(at, s)
			if e.step.end > at {
				break
			}
		}
		next = e.step.end
		kind := e.step.kind
		if kind == idle {
			next, _ = e.wakes()
		}
		e.last, e.step.sees = next, next
		if kind != idle {
			e.step.sees = e.sees(e.step.start, next)
		}
		e.finishStep(s)
		if e.watcher != nil && kind != idle {
			e.watcher.Stepped(e.ended(kind))
		}
		e.startStep(next, s)
		if e.watcher != nil && e.step.kind == idle {
			e.watcher.Rested(next, e.Stats())
		}
	}
	e.watcher = nil
}

// FlushCache drops all cached prefixes. While requests run or wait it does nothing and returns false.
func (e *Engine) FlushCache() bool {
	if len(e.here) > 0 {
		return false
	}
	e.store.Flush()
	return true
}

type discard struct{}

func (discard) Admitted(uint64, time.Duration, int)    {}
func (discard) Tokens(uint64, time.Duration, int)      {}
func (discard) Finished(uint64, time.Duration, Finish) {}
func (discard) Burst([]uint64, []time.Duration)        {}
