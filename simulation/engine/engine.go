// Package engine models one LLM serving engine as a passive state machine: scheduler, KV cache and cost kernel. It has no
// clock, lock, goroutine or wire; a driver tells it the instants (simulation in virtual time, mockserver on the wall).
package engine

import "time"

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
