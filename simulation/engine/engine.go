// Package engine models one LLM serving engine as a passive state machine: scheduler, KV cache and cost kernel. It has no
// clock, lock, goroutine or wire; a driver tells it the instants (simulation in virtual time, mockserver on the wall).
//
// It follows SGLang 0.5 with its defaults: prefill before decode, chunked prefill without mixed batches, first come first
// served, a radix tree of prefixes with leaf-first eviction by last use, an estimate of what running requests will still
// write, and retraction when that estimate was too low. cost.go says how long a step takes, cache.go what a prefix hit is.
//
// # Instants
//
// Two drivers that submit the same requests with the same stamps see the same events at the same instants, however they
// slice time, because
//
//   - a step that starts at S sees only what is stamped strictly before S: arrivals and aborts;
//   - an idle engine starts its next step WakeUp after the arrival that woke it;
//   - requests queue by (stamp, Call, Turn, ID), and a retracted one before all of them;
//   - a step's end is computed once, from its start and its cost.
package engine

import (
	"fmt"
	"time"
)

// Token is the id of one token. Equal ids are equal content to the prefix cache.
type Token = uint32

// Request is one generation. The engine keeps Prompt (never changed by either side) until the request has finished and the
// cache has let go of it.
type Request struct {
	ID         uint64 // chosen by the driver, unique among requests in the engine
	Call, Turn int    // requests stamped with the same instant queue in the order (Call, Turn)
	Prompt     []Token
	MaxTokens  int // generated tokens; at least 1
}

// Reason says why a request ended.
type Reason string

// The reasons.
const (
	Length  Reason = "length"  // MaxTokens were generated
	Refused Reason = "refused" // it can never fit: context or pool too small
	Aborted Reason = "abort"
)

// Finish is how a request ended.
type Finish struct {
	Reason           Reason
	Detail           string // for Refused: one sentence
	CachedTokens     int    // prompt tokens found in the prefix cache at first admission
	CompletionTokens int
}

// Sink is told what happens inside, in order of instants. Its methods must not call the engine.
type Sink interface {
	Admitted(id uint64, at time.Duration, cachedTokens int) // first scheduled
	Tokens(id uint64, at time.Duration, n int)              // n more tokens were generated (n is 1 in one decode step)
	Finished(id uint64, at time.Duration, f Finish)         // after the last Tokens of the same instant
}

// WakeUp is how long after an arrival an idle engine starts a step: HTTP, tokenizer and scheduler, before any GPU work. While
// the engine is busy the same work hides behind the running step.
const WakeUp = 1500 * time.Microsecond

// Engine is one serving engine. It belongs to one driver: no two calls may overlap. New makes one.
type Engine struct {
	config Config // filled: no zero left in the recipe
	memory memory
	cache  *cache

	waiting queue
	running []*request          // past their prefill, in order of admission
	chunked *request            // the one request whose prefill is under way, if any
	here    map[uint64]*request // every request not finished
	aborts  int                 // how many of them are to be aborted

	step    step
	watcher Watcher       // of the AdvanceTo in progress, if its sink is one
	last    time.Duration // the last instant at which something happened inside
	ratio   float64       // the part of their remaining tokens that running requests are expected to write
	stats   Stats
}

// New returns an idle engine with an empty cache, or says why the config cannot be.
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.Filled()
	return &Engine{
		config: c,
		memory: newMemory(c),
		cache:  newCache(c.Model.WindowTokens),
		here:   make(map[uint64]*request),
		ratio:  initialRatio,
	}, nil
}

// Submit queues a request that arrives at the instant at. It may be called before or after AdvanceTo(at), but not after
// AdvanceTo of a later instant. A request whose ID is still here is a bug of the driver, and panics.
func (e *Engine) Submit(at time.Duration, r Request) {
	if e.here[r.ID] != nil {
		panic(fmt.Sprintf("engine: request %d is here already", r.ID))
	}
	q := &request{Request: r, stamp: at, seq: r.Prompt}
	e.here[r.ID] = q
	e.waiting.push(q)
}

// Abort ends a request at the next step boundary after at; what it has computed stays cached. A request that ends by itself
// before that is not aborted, and an id that is not here is ignored.
func (e *Engine) Abort(at time.Duration, id uint64) {
	r := e.here[id]
	if r == nil || r.aborted {
		return
	}
	r.aborted, r.abortAt = true, at
	e.aborts++
}

// Next returns the instant at which something next happens inside; ok is false when nothing will without a Submit.
func (e *Engine) Next() (at time.Duration, ok bool) {
	if e.step.kind != idle {
		return e.step.end, true
	}
	if r := e.waiting.first(); r != nil {
		return max(r.stamp+WakeUp, e.last), true
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
		e.last = next
		kind := e.step.kind
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
	e.stats.EvictedTokens += e.cache.evicted
	e.cache = newCache(e.config.Model.WindowTokens)
	return true
}

type discard struct{}

func (discard) Admitted(uint64, time.Duration, int)    {}
func (discard) Tokens(uint64, time.Duration, int)      {}
func (discard) Finished(uint64, time.Duration, Finish) {}
