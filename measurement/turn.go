// Package measurement holds the records of a run: what was asked, what came back, and when.
//
// Every instant is a time.Duration since the start of the run, from a monotonic clock (or virtual time). An instant that
// never came is Never. Values are plain: any goroutine may read a record that its owner no longer changes.
package measurement

import "time"

// Never is the instant of something that did not happen.
const Never time.Duration = -1

// Unknown is the count of something that nobody reported. It is not zero.
const Unknown = -1

// Outcome says how a turn ended: OK, or one of a small closed set of failures.
type Outcome string

// The outcomes of a turn. Every one but OK and NotSent is a failure, and a failure is a measurement.
const (
	OK           Outcome = "ok"
	Connect      Outcome = "connect"       // no connection: refused, unreachable, reset before anything was written
	TLS          Outcome = "tls"           // the handshake failed
	HTTP4xx      Outcome = "http_4xx"      // a 4xx other than 429
	HTTP429      Outcome = "http_429"      // told to slow down
	HTTP5xx      Outcome = "http_5xx"      // the server failed or shed the request
	StreamError  Outcome = "stream_error"  // an error event inside a 200, or a stream that is not the protocol
	Truncated    Outcome = "truncated"     // the stream ended without finish_reason and without [DONE]
	NotStream    Outcome = "not_stream"    // a 200 that is not an event stream
	TTFTTimeout  Outcome = "ttft_timeout"  // no token within the TTFT limit
	TotalTimeout Outcome = "total_timeout" // not finished within the total limit, or still open when the drain was cut
	Stall        Outcome = "stall"         // silent for longer than the idle limit after the stream began
	Canceled     Outcome = "canceled"      // stopped by this side: the run was interrupted
	Shed         Outcome = "shed"          // never sent: the call was still held by the concurrency cap when the step ended
	ShortOutput  Outcome = "short_output"  // fewer tokens than asked although ignore_eos was set
	NotSent      Outcome = "not_sent"      // never due: an earlier turn of the call failed
)

// Failed reports whether the outcome counts as an error.
func (o Outcome) Failed() bool { return o != OK && o != NotSent }

// Phase is a stretch of a step; 0 is none that is known.
type Phase uint8

// The phases of a step, one after another. Only turns due in the window are measured.
const (
	Warmup Phase = iota + 1
	Window
	Drain
)

// String is the phase's name; "" for none that is known.
func (p Phase) String() string { return [...]string{"", "warmup", "window", "drain"}[p] }

// Turn is one request of a call and everything that was timed about it.
type Turn struct {
	Call int // the call's number, unique in the run: step*CallsPerStep + its arrival's number
	Turn int // 1 is the warm turn; a call that is a single request has none, and its turn is LoneTurn
	Step int // the step's number, from 0

	Due          time.Duration // when the turn should start; for NotSent, when it became known that it never would
	Held         time.Duration // until when the concurrency cap held the call back; Never when it did not
	Sent         time.Duration // just before the request was handed to the transport
	WroteRequest time.Duration // the last byte of the request was written
	Admitted     time.Duration // the engine first took it into its batch; 0 when it never did, or nobody knows, as of real endpoints
	Headers      time.Duration // the response's headers were read
	FirstEvent   time.Duration // the first event of any kind was read
	FirstToken   time.Duration // the first event with content, reasoning or a tool call was read
	LastToken    time.Duration // the last such event was read
	End          time.Duration // the stream ended, or the failure was known

	Gaps             []time.Duration // between token events, in order; owned by the record; nil when read from a log that did not keep them
	GapMax           time.Duration   // the longest of them, where only that was kept
	Events           int             // token events
	FirstEventTokens int             // tokens in the first token event; 0 when not told, and then taken as 1

	PromptTokens     int // Unknown when the server did not say
	CompletionTokens int // Unknown when the server did not say
	CachedTokens     int // Unknown when the server did not say

	// Small fields stand together: a log of a million turns is held in memory.
	Phase   Phase         // of the step, in which the turn was due; 0 when read from a log, which tells it by the step's instants
	Local   bool          // a failure of this side: it is out of files or ports; it says nothing of the server
	Reused  bool          // the request went over a connection that had carried one before
	Replica int32         // of several engines behind a router, the one that first admitted it, from 1 (a log has it from 0); 0 for one engine, or where nobody knows
	Dialed  time.Duration // connecting and TLS handshake that the turn itself waited for; 0 when the connection was there
	Retries int           // times the request was sent again because a kept connection turned out to be closed
	Outcome Outcome
	Detail  string // for a failure: one sentence of what was seen; never a secret, never prompt text
}

// NewTurn is a turn of which nothing has happened and nothing is known yet.
func NewTurn() Turn {
	return Turn{Due: Never, Held: Never, Sent: Never, WroteRequest: Never, Headers: Never, FirstEvent: Never, FirstToken: Never,
		LastToken: Never, End: Never, PromptTokens: Unknown, CompletionTokens: Unknown, CachedTokens: Unknown}
}

// CallsPerStep separates the call numbers of steps: call n of step s is s*CallsPerStep + n.
const CallsPerStep = 1_000_000

// Rolls reports whether a turn is in figures of what happens now: not one that was never due, that this side canceled, or that
// was due in a drain, which may be cut.
func (t *Turn) Rolls() bool {
	return t.Outcome != NotSent && t.Outcome != Canceled && t.Phase != Drain
}

// TTFT is FirstToken - Due, what the caller feels; ok is false when no token came.
func (t *Turn) TTFT() (d time.Duration, ok bool) {
	if t.FirstToken < 0 || t.Due < 0 {
		return 0, false
	}
	return t.FirstToken - t.Due, true
}

// TTFTSent is FirstToken - Sent, without this side's own lateness; ok is false when no token came.
func (t *Turn) TTFTSent() (d time.Duration, ok bool) {
	if t.FirstToken < 0 || t.Sent < 0 {
		return 0, false
	}
	return t.FirstToken - t.Sent, true
}

// QueueWait is Admitted - Sent, the time in the engine's queue with the host's preparing of the request; ok is false when it was
// never admitted or nobody knows.
func (t *Turn) QueueWait() (d time.Duration, ok bool) {
	if t.Admitted <= 0 || t.Sent < 0 {
		return 0, false
	}
	return t.Admitted - t.Sent, true
}

// TTFTAdmitted is FirstToken - Admitted, TTFT without any waiting; ok is false when no token came or nobody knows when the
// request was admitted.
func (t *Turn) TTFTAdmitted() (d time.Duration, ok bool) {
	if t.FirstToken < 0 || t.Admitted <= 0 {
		return 0, false
	}
	return t.FirstToken - t.Admitted, true
}

// E2E is LastToken - Due, from when the turn was due to its last token; ok is false when it did not end well.
func (t *Turn) E2E() (d time.Duration, ok bool) {
	if t.Outcome != OK || t.LastToken < 0 || t.Due < 0 {
		return 0, false
	}
	return t.LastToken - t.Due, true
}

// TPOT is (LastToken - FirstToken)/(n - k), n the completion tokens and k those of the first event; ok is false when n <= k
// or n is unknown.
func (t *Turn) TPOT() (d time.Duration, ok bool) {
	k := max(t.FirstEventTokens, 1)
	if t.FirstToken < 0 || t.CompletionTokens <= k {
		return 0, false
	}
	return (t.LastToken - t.FirstToken) / time.Duration(t.CompletionTokens-k), true
}

// Lag is the generator's own lateness: Sent less the instant from which it could have sent. ok is false for a turn never sent.
func (t *Turn) Lag() (d time.Duration, ok bool) {
	if t.Sent < 0 || t.Due < 0 {
		return 0, false
	}
	return t.Sent - max(t.Due, t.Held), true
}
