// Package generator produces load and times it: calls arrive, each speaks its turns, steps and sweeps are made of calls.
// It knows neither who answers nor whether time is real.
package generator

import (
	"context"
	"errors"
	"time"

	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Request is one turn to be sent.
type Request struct {
	Step, Call, Turn int
	Prompt           workload.Prompt // unchanged until Do returns
	MaxTokens        int
	Last             bool              // no further turn of this call will be sent
	Phase            measurement.Phase // of the step, in which the turn is due
}

// Reply is what became of a Request. The endpoint fills Turn's instants from Sent on, its gaps, counts, Reused, Outcome and
// Detail; the generator fills the rest. Content is the assistant's words, verbatim, for the history of the next turn.
type Reply struct {
	Turn    measurement.Turn
	Content workload.Content
}

// Endpoint is whoever answers. Do sends one turn and returns when its answer has ended or failed; it is called by many
// processes at once. A failure is told in Reply.Turn.Outcome. When ctx ends first the outcome is measurement.TotalTimeout if
// context.Cause(ctx) is ErrDrained, else measurement.Canceled, unless the answer had already failed in its own way.
type Endpoint interface {
	Do(ctx context.Context, req Request) Reply
}

// Limits are how long an endpoint waits for an answer before it calls it failed; zero is no limit.
type Limits struct {
	TTFT  time.Duration // from Sent to the first token
	Idle  time.Duration // between two reads once the stream has begun
	Total time.Duration // from Sent to the end
}

// ErrDrained is the cause with which the generator ends turns that are still open when a step's drain is cut.
var ErrDrained = errors.New("the step's drain was cut")
