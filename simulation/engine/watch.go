package engine

import "time"

// Watcher is a Sink that is also told of the engine's steps, for what a server's own metrics show. An engine whose sink is no
// Watcher does no more work than before. Its methods must not call the engine.
type Watcher interface {
	Sink
	Retracted(id uint64, at time.Duration, generated int) // taken back to the queue, its KV left to the cache
	Stepped(s Step)                                       // after all tokens and ends of that instant were told
	Rested(at time.Duration, s Stats)                     // nothing runs or can start
}

// Step is one step of the GPU, told when it has ended. Tokens are counted in the step that computes them, hits in the step
// that admits their request.
type Step struct {
	Start, End time.Duration
	Prefill    bool
	Chunked    bool // a prefill that leaves a request with a part to do
	Running    int  // of a decode step its sequences; of a prefill those that decode meanwhile waits for
	Context    int  // of a decode step: the sum of its sequences' lengths

	Input, Hit           int // of a prefill: prompt tokens computed, and found in the cache
	InputAgain, HitAgain int // of them, of requests that had been retracted

	Parts    []Part // what it computes of each request, in order of admission; the engine's, and good until Stepped returns
	KVTokens int    // whose KV was in use while it ran, as Stats.KVUsedTokens; Stats has what is left of it

	Ratio float64 // the part of their remaining tokens that running requests were expected to write when it began
	Stats Stats   // as of End, without what has ended and before the next step begins
}

// Part is what one step computes of one request.
type Part struct {
	ID         uint64
	Call, Turn int
	Prefill    bool // of its prompt, or of what a retraction has discarded; else its next token
	Query      int  // tokens that go through the model: of a decode 1 and those that a draft proposes
	KV         int  // tokens of the request whose KV is there at its end
}

// tellParts notes for the watcher what the step that begins computes.
func (e *Engine) tellParts() {
	e.parts = e.parts[:0]
	for _, r := range e.running {
		if r.now == 0 {
			continue
		}
		p := Part{ID: r.ID, Call: r.Call, Turn: r.Turn, KV: r.held.Len(), Query: 1 + e.config.Recipe.Speculate.Tokens}
		if r.held.Len() <= len(r.seq) {
			p.Prefill, p.Query = true, r.now
		}
		e.parts = append(e.parts, p)
	}
	e.step.told.Parts = e.parts
	e.step.told.KVTokens = e.store.Figures().UsedTokens
}
