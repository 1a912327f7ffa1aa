// Package simulation predicts a run: an endpoint on an engine model in virtual time, for the same generator that drives a
// real one.
package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// Engine is the state machine behind an Endpoint: one engine, or a fleet.
type Engine interface {
	Submit(at time.Duration, r engine.Request)
	Abort(at time.Duration, id uint64)
	Quiet() (at time.Duration, ok bool)
	AdvanceTo(at time.Duration, s engine.Sink)
}

// Endpoint answers the generator from an engine model on a virtual clock, with no wire between: a request is in the queue at
// the instant it is sent, a token is read at the instant it is made. It is a clock.Source and belongs to the clock's processes.
type Endpoint struct {
	clk     clock.Clock
	eng     Engine
	limits  generator.Limits
	words   [workload.BlockWords]engine.Token
	nextID  uint64
	open    map[uint64]*answer
	several bool          // engines behind a router
	steps   StepWatcher   // nil for nobody
	chats   map[int]*chat // by call
}

// answer is one request while it is in the engine.
type answer struct {
	first clock.Event // set at the first token or the end
	done  clock.Event
	turn  measurement.Turn
	last  bool // nobody reads the reply
	most  int  // tokens asked for
	seed  uint64
	reply []engine.Token
}

// chat is the tokens of a call so far. They only grow, so that the prompts of successive turns share them.
type chat struct {
	tokens   []engine.Token // of the messages rendered, without the opening of the reply
	messages int
}

// NewEndpoint joins an engine to a virtual clock; the caller must have made the endpoint one of the clock's sources, see
// NewRun. The lexicon is the one the prompts are drawn from.
func NewEndpoint(clk clock.Clock, eng Engine, lexicon *workload.Lexicon, limits generator.Limits) *Endpoint {
	e := &Endpoint{clk: clk, eng: eng, limits: limits, open: map[uint64]*answer{}, chats: map[int]*chat{}}
	if f, ok := eng.(*fleet.Fleet); ok {
		e.several = len(f.PerReplica()) > 1
	}
	for i, w := range lexicon.Words {
		e.words[i] = engine.WordToken(w)
	}
	return e
}

// NewRun returns a virtual clock with an endpoint on eng.
func NewRun(eng Engine, lexicon *workload.Lexicon, limits generator.Limits) (*clock.Virtual, *Endpoint) {
	var e *Endpoint
	clk := clock.NewVirtual(source{&e})
	e = NewEndpoint(clk, eng, lexicon, limits)
	return clk, e
}

// source lets the clock be made before the endpoint that it drives.
type source struct{ e **Endpoint }

// Next may pass over instants at which nothing happens but further tokens: no process waits for those.
func (s source) Next() (time.Duration, bool) { return (*s.e).eng.Quiet() }
func (s source) AdvanceTo(at time.Duration) {
	e := *s.e
	if e.steps != nil {
		e.eng.AdvanceTo(at, watchSink{sink{e}})
		return
	}
	e.eng.AdvanceTo(at, sink{e})
}

// StepWatcher is told of every step of the engine, when it has ended.
type StepWatcher interface {
	// Step is of the engine with that index behind a router, of 0 where there is one engine. What it is told is the engine's.
	Step(replica int, s *engine.Step)
}

// Watch tells w of every step that begins from now on. The engine then makes each of them by itself, which takes longer and changes
// nothing.
func (e *Endpoint) Watch(w StepWatcher) { e.steps = w }

// Do submits the request at this instant and waits for its end.
func (e *Endpoint) Do(ctx context.Context, req generator.Request) generator.Reply {
	sent := e.clk.Now()
	e.nextID++
	id := e.nextID
	prompt := e.render(req)
	a := &answer{first: e.clk.NewEvent(), done: e.clk.NewEvent(), last: req.Last, most: req.MaxTokens, seed: engine.ReplySeed(prompt), turn: measurement.NewTurn()}
	a.turn.Sent, a.turn.WroteRequest, a.turn.PromptTokens, a.turn.Reused = sent, sent, len(prompt), true
	e.open[id] = a
	e.eng.Submit(sent, engine.Request{ID: id, Call: req.Call, Turn: req.Turn, Prompt: prompt, MaxTokens: req.MaxTokens})
	late := e.wait(ctx, a, sent)
	if a.turn.End == measurement.Never { // cut from this side
		e.eng.Abort(e.clk.Now(), id)
		a.turn.Outcome, a.turn.End, a.turn.Detail = late, e.clk.Now(), "no answer in time"
		a.turn.PromptTokens = measurement.Unknown
	}
	delete(e.open, id)
	if req.Last || a.turn.Outcome != measurement.OK {
		delete(e.chats, req.Call)
	}
	return generator.Reply{Turn: a.turn, Content: workload.Content{Tokens: a.reply}}
}

// wait returns when the answer has ended, or with the outcome of whatever limit came first.
func (e *Endpoint) wait(ctx context.Context, a *answer, sent time.Duration) measurement.Outcome {
	const never = time.Duration(1<<63 - 1)
	total := never
	if e.limits.Total > 0 {
		total = sent + e.limits.Total
	}
	if e.limits.TTFT > 0 && !a.first.WaitUntil(ctx, min(sent+e.limits.TTFT, total)) && ctx.Err() == nil {
		if sent+e.limits.TTFT <= total {
			return measurement.TTFTTimeout
		}
		return measurement.TotalTimeout
	}
	if total == never {
		_ = a.done.Wait(ctx)
	} else {
		a.done.WaitUntil(ctx, total)
	}
	switch {
	case ctx.Err() == nil, errors.Is(context.Cause(ctx), generator.ErrDrained):
		return measurement.TotalTimeout
	default:
		return measurement.Canceled
	}
}

// render returns the tokens of a prompt as the mock server's tokenizer would read them from its text.
func (e *Endpoint) render(req generator.Request) []engine.Token {
	c := e.chats[req.Call]
	if c == nil || c.messages > len(req.Prompt) {
		c = &chat{tokens: engine.AppendBOS(nil)}
		e.chats[req.Call] = c
	}
	for _, m := range req.Prompt[c.messages:] {
		c.tokens = engine.AppendOpen(c.tokens, m.Role)
		switch {
		case m.Content.Tokens != nil:
			c.tokens = append(c.tokens, m.Content.Tokens...)
		case m.Content.Text != "":
			c.tokens = engine.AppendText(c.tokens, m.Content.Text)
		default:
			c.tokens = e.appendDrawn(c.tokens, &m.Content)
		}
		c.tokens = engine.AppendClose(c.tokens)
	}
	c.messages = len(req.Prompt)
	open := engine.AppendOpen(c.tokens, "assistant") // shares c.tokens unless it has to grow; what follows the prompt is the same for all
	return open[:len(open):len(open)]
}

// appendDrawn appends the tokens of drawn words, which are as many.
func (e *Endpoint) appendDrawn(dst []engine.Token, c *workload.Content) []engine.Token {
	words := 0
	for i := 0; ; i++ {
		s, ok := c.Part(i)
		if !ok {
			break
		}
		words += s.Words
	}
	dst = slices.Grow(dst, words+templateRoom)
	var index [workload.BlockWords]uint8
	for i := 0; ; i++ {
		s, ok := c.Part(i)
		if !ok {
			return dst
		}
		for b := range s.Blocks() {
			block, at := s.AppendBlock(index[:0], b), len(dst)
			dst = dst[:at+len(block)] // there is room
			for i, out := 0, dst[at:]; i < len(block) && i < len(out); i++ {
				out[i] = e.words[block[i]%workload.BlockWords]
			}
		}
	}
}

// templateRoom is enough for what the chat template adds behind a message.
const templateRoom = 32

// Overhead is how many tokens the chat template adds to the script's own words of a call's first turn.
func Overhead(script *workload.Script) int {
	n := len(engine.AppendBOS(nil))
	for _, role := range script.Roles() {
		n += len(engine.AppendOpen(nil, role)) + len(engine.AppendClose(nil))
	}
	return n + len(engine.AppendOpen(nil, "assistant"))
}

// sink stamps what the engine tells on the answers it concerns.
type sink struct{ e *Endpoint }

func (s sink) Admitted(id uint64, at time.Duration, cached int) {
	if a := s.e.open[id]; a != nil {
		a.turn.Admitted, a.turn.CachedTokens = at, cached
	}
}

// Routed is where a request goes, as long as none of it has been admitted: behind a router that splits prefill from decoding the replica that
// prefills it.
func (s sink) Routed(id uint64, _ time.Duration, replica int) {
	if a := s.e.open[id]; a != nil && a.turn.Admitted == 0 && s.e.several {
		a.turn.Replica = int32(replica) + 1
	}
}

func (s sink) Tokens(id uint64, at time.Duration, n int) {
	a := s.e.open[id]
	if a == nil {
		return
	}
	t := &a.turn
	if t.FirstToken == measurement.Never {
		t.Headers, t.FirstEvent, t.FirstToken, t.FirstEventTokens = at, at, at, n
		t.Gaps = make([]time.Duration, 0, min(max(a.most, n), mostAtOnce)-1)
		a.first.Set()
	} else {
		t.Gaps = append(t.Gaps, at-t.LastToken)
	}
	t.Events++
	t.LastToken = at
	if a.last {
		return
	}
	for range n {
		a.reply = append(a.reply, engine.ReplyToken(a.seed, len(a.reply)))
	}
}

// Burst is Tokens for each id and each instant.
func (s sink) Burst(ids []uint64, ats []time.Duration) {
	for _, id := range ids {
		if a := s.e.open[id]; a != nil {
			a.burst(ats)
		}
	}
}

// mostAtOnce is for how many tokens room is made before they come.
const mostAtOnce = 4096

// burst takes one more token at each of the instants; the first has come before.
func (a *answer) burst(ats []time.Duration) {
	t := &a.turn
	last := t.LastToken
	for _, at := range ats {
		t.Gaps = append(t.Gaps, at-last)
		last = at
	}
	t.LastToken = last
	t.Events += len(ats)
	if a.last {
		return
	}
	for range ats {
		a.reply = append(a.reply, engine.ReplyToken(a.seed, len(a.reply)))
	}
}

func (s sink) Finished(id uint64, at time.Duration, f engine.Finish) {
	a := s.e.open[id]
	if a == nil {
		return
	}
	a.turn.End, a.turn.CompletionTokens, a.turn.CachedTokens = at, f.CompletionTokens, f.CachedTokens
	a.turn.Outcome = measurement.OK
	if f.Reason == engine.Failed {
		a.turn.Outcome, a.turn.Detail, a.turn.PromptTokens = measurement.HTTP5xx, f.Detail, measurement.Unknown
		a.turn.CompletionTokens, a.turn.CachedTokens = measurement.Unknown, measurement.Unknown
		if a.turn.FirstToken != measurement.Never {
			a.turn.Outcome = measurement.StreamError
		}
	}
	if f.Reason == engine.Refused {
		a.turn.Outcome, a.turn.Detail, a.turn.PromptTokens = measurement.HTTP4xx, f.Detail, measurement.Unknown
		a.turn.CompletionTokens, a.turn.CachedTokens = measurement.Unknown, measurement.Unknown
	}
	a.first.Set()
	a.done.Set()
}

// watchSink also passes on the steps, of one engine and of several: it is an engine's Watcher and a fleet's.
type watchSink struct{ sink }

func (watchSink) Retracted(uint64, time.Duration, int)           {}
func (watchSink) Rested(time.Duration, engine.Stats)             {}
func (watchSink) ReplicaRested(int, time.Duration, engine.Stats) {}
func (s watchSink) Stepped(step engine.Step)                     { s.e.steps.Step(0, &step) }
func (s watchSink) ReplicaStepped(replica int, step engine.Step) { s.e.steps.Step(replica, &step) }
