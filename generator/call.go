package generator

import (
	"context"
	"strconv"
	"time"

	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// segment is a stretch of arrivals at one rate.
type segment struct {
	begin    time.Duration // arrivals count from here
	first    int           // number of its first call within the step
	arrivals workload.Arrivals
}

// arrive starts a call at each arrival until ctx ends, and awaits none when rateCtx does; it returns how many it started. An
// arrival that finds the cap reached waits for a call to end, and so do those behind it: first come, first served. What is
// still held when the window ends is shed.
func (s *step) arrive(ctx, rateCtx, callCtx context.Context, g segment) int {
	for started := 0; ; started++ {
		a, ok := g.arrivals.Next()
		if !ok {
			return started
		}
		due := g.begin + a.At
		s.prepareRequest(rateCtx, callCtx, due)
		if s.clk.SleepUntil(rateCtx, due) != nil {
			if ctx.Err() != nil {
				s.shed(a, g)
			}
			return started
		}
		held, ok := s.admit(ctx, due, s.c.MaxConcurrentCalls)
		if !ok {
			s.shed(a, g)
			return started
		}
		s.begin(callCtx, g.first+a.N, due, held)
	}
}

// prepareRequest has the endpoint make ready for a single request that is due soon. In conversations nobody waits for the first turn.
func (s *step) prepareRequest(rateCtx, callCtx context.Context, due time.Duration) {
	if s.c.Script.Requests == nil || s.prepare == nil || s.c.Prepare <= 0 || s.clk.SleepUntil(rateCtx, due-s.c.Prepare) != nil {
		return
	}
	s.clk.Go("preparing", func() { s.prepare.Prepare(callCtx) })
}

// cycle keeps as many calls in progress as the step's rate says, until ctx ends: a closed loop.
func (s *step) cycle(ctx, callCtx context.Context) {
	for n := 0; ; n++ {
		if _, ok := s.admit(ctx, s.clk.Now(), int(s.rec.Rate)); !ok {
			return
		}
		s.begin(callCtx, n, s.clk.Now(), measurement.Never)
	}
}

// begin starts a call that has been admitted.
func (s *step) begin(ctx context.Context, n int, due, held time.Duration) {
	s.mu.Lock()
	s.arrived(due, held >= 0)
	s.mu.Unlock()
	call := s.rec.Step*measurement.CallsPerStep + n
	s.clk.Go("call "+strconv.Itoa(call), func() { s.call(ctx, call, due, held) })
}

// admit takes a slot under the cap, waiting for one if need be; ok is false when ctx ended first.
func (s *step) admit(ctx context.Context, due time.Duration, limit int) (held time.Duration, ok bool) {
	held = measurement.Never
	if due < s.blocked { // it came while the one before it was held
		held = s.blocked
	}
	for {
		s.mu.Lock()
		if s.live < limit {
			now := s.clk.Now()
			s.integrate(now)
			s.live++
			s.rec.LiveMax = max(s.rec.LiveMax, s.live)
			calls, turns := s.live, s.turns
			s.mu.Unlock()
			s.tell.InFlight(now, calls, turns)
			return held, true
		}
		s.slot = s.clk.NewEvent()
		free := s.slot
		s.mu.Unlock()
		err := free.Wait(ctx)
		s.mu.Lock()
		s.slot = nil
		s.mu.Unlock()
		if err != nil {
			return held, false
		}
		if now := s.clk.Now(); now > due {
			held, s.blocked = now, now
		}
	}
}

// arrived counts an arrival, if it is of the window; mu is held.
func (s *step) arrived(due time.Duration, held bool) {
	if !s.rec.InWindow(due) {
		return
	}
	s.rec.ArrivedCalls++
	if held {
		s.rec.HeldCalls++
	}
}

// shed logs the arrivals of the window that the cap never let through: this one and those due behind it.
func (s *step) shed(a workload.Arrival, g segment) {
	s.mu.Lock()
	end := s.rec.WindowEnd
	s.mu.Unlock()
	for ok := true; ok && g.begin+a.At <= end; a, ok = g.arrivals.Next() {
		due := g.begin + a.At
		s.mu.Lock()
		s.arrived(due, true)
		phase := s.phase(due)
		s.mu.Unlock()
		t := unsent(s.rec.Step, s.rec.Step*measurement.CallsPerStep+g.first+a.N, s.c.firstTurn(), due, phase)
		t.Outcome, t.Detail = measurement.Shed, "held by the cap of "+strconv.Itoa(s.c.MaxConcurrentCalls)+" calls until the window ended"
		s.tell.Turn(t)
	}
}

// call speaks one call's turns. A failure ends it; a gap that ctx cuts ends it too.
func (s *step) call(ctx context.Context, call int, due, held time.Duration) {
	defer s.callEnds()
	if s.c.Script.Requests != nil {
		s.request(ctx, call, due, held)
		return
	}
	prompt := s.c.Script.Open(call)
	last := s.c.Script.Turns(call, s.c.Turns)
	for turn := 1; ; turn++ {
		if turn > 1 && s.prepare != nil && s.c.Prepare > 0 {
			if s.clk.SleepUntil(ctx, due-s.c.Prepare) != nil {
				return
			}
			s.clk.Go("preparing for call "+strconv.Itoa(call), func() { s.prepare.Prepare(ctx) })
		}
		if s.clk.SleepUntil(ctx, due) != nil {
			return
		}
		req := Request{Step: s.rec.Step, Call: call, Turn: turn, Prompt: prompt, MaxTokens: 1, Last: turn == last}
		if turn > 1 {
			req.MaxTokens = s.c.Script.OutputTokens(call, turn, s.c.OutputTokens)
		}
		reply := s.do(ctx, &req, due, held)
		t := &reply.Turn
		held = measurement.Never
		if t.Outcome != measurement.OK {
			defer s.stay(ctx, due)
			for rest := turn + 1; rest <= last; rest++ {
				s.tell.Turn(unsent(req.Step, call, rest, t.End, s.missed(t.End)))
			}
			return
		}
		if req.Last {
			return
		}
		due = t.End + s.c.Script.Gap(call, turn)
		prompt = s.c.Script.Next(prompt, call, turn, reply.Content)
	}
}

// request asks the one thing that a call of a single turn asks.
func (s *step) request(ctx context.Context, call int, due, held time.Duration) {
	if s.clk.SleepUntil(ctx, due) != nil {
		return
	}
	ask := s.c.Script.Ask(call, call-s.rec.Step*measurement.CallsPerStep)
	req := Request{Step: s.rec.Step, Call: call, Turn: measurement.LoneTurn, Prompt: ask.Prompt, MaxTokens: ask.MaxTokens, Last: true}
	if r := s.do(ctx, &req, due, held); r.Turn.Outcome != measurement.OK {
		s.stay(ctx, due)
	}
}

// do sends a turn, and tells of it when it has ended.
func (s *step) do(ctx context.Context, req *Request, due, held time.Duration) Reply {
	req.Phase = s.turnBegins(req.Turn, due, held)
	r := s.to.Do(ctx, *req)
	t := &r.Turn
	t.Step, t.Call, t.Turn, t.Due, t.Held, t.Phase = req.Step, req.Call, req.Turn, due, held, req.Phase
	s.turnEnds(t)
	s.tell.Turn(*t)
	return r
}

// stay keeps the place of a call that has failed in a closed loop: were it followed at once, that would be no load but a flood.
func (s *step) stay(ctx context.Context, due time.Duration) {
	if s.c.Closed {
		_ = s.clk.SleepUntil(ctx, due+failedCallStays)
	}
}

// failedCallStays is how long a failed call of a closed loop keeps its place, from when its turn was due.
const failedCallStays = time.Second

// unsent is the record of a turn that was never sent.
func unsent(step, call, turn int, due time.Duration, phase measurement.Phase) measurement.Turn {
	t := measurement.NewTurn()
	t.Step, t.Call, t.Turn, t.Due, t.Phase, t.Outcome = step, call, turn, due, phase, measurement.NotSent
	return t
}

func (s *step) turnBegins(turn int, due, held time.Duration) measurement.Phase {
	s.mu.Lock()
	now := s.clk.Now()
	s.integrate(now)
	s.turns++
	calls, turns := s.live, s.turns
	enough := turn > 1 && s.countMeasured(due, max(due, held))
	phase := s.phase(due)
	s.mu.Unlock()
	if enough {
		s.enough.Set()
	}
	s.tell.InFlight(now, calls, turns)
	return phase
}

// missed counts a turn that will never be due, so that a step whose calls fail does not wait for turns that cannot come.
func (s *step) missed(at time.Duration) measurement.Phase {
	s.mu.Lock()
	enough := s.countMeasured(at, at)
	phase := s.phase(at)
	s.mu.Unlock()
	if enough {
		s.enough.Set()
	}
	return phase
}

// countMeasured reports whether this turn, which begins at an instant, made the minimum; mu is held. A window does not end before
// the turn that made it long enough has begun, even if the cap held it back.
func (s *step) countMeasured(due, begins time.Duration) bool {
	if due < s.rec.WindowStart || s.measured >= s.c.MinTurns {
		return false
	}
	s.measured++
	s.lastDue = max(s.lastDue, begins)
	return s.measured == s.c.MinTurns
}

func (s *step) turnEnds(t *measurement.Turn) {
	s.mu.Lock()
	now := s.clk.Now()
	s.integrate(now)
	if over := min(now, s.windowEnd()) - max(t.End, s.rec.WindowStart); t.End >= 0 && over > 0 {
		s.turnsArea -= over.Seconds() // what the endpoint took to let go of a turn that had ended
	}
	s.turns--
	calls, turns := s.live, s.turns
	if t.Outcome == measurement.Connect && !t.Local {
		s.refused++
	} else if t.Outcome != measurement.Canceled {
		s.refused = 0
	}
	lost := s.refused >= s.c.GiveUp
	if t.Turn > 1 && t.Phase == measurement.Window && len(t.Gaps) > 0 {
		for len(s.gaps) <= t.Turn {
			s.gaps = append(s.gaps, nil)
		}
		if s.gaps[t.Turn] == nil {
			s.gaps[t.Turn] = measurement.NewHistogram()
		}
		for _, g := range t.Gaps {
			measurement.RecordGap(s.gaps[t.Turn], g)
		}
	}
	dooms := s.doomed != nil && s.doomedAt < 0 && s.rec.WindowEnd < 0 && t.Turn > 1 && t.Due >= s.rec.WindowStart && s.doomed(*t)
	if dooms {
		s.doomedAt = t.End
	}
	s.mu.Unlock()
	if lost || dooms {
		s.over.Set()
	}
	if dooms {
		s.enough.Set()
	}
	s.tell.InFlight(now, calls, turns)
}

func (s *step) callEnds() {
	s.mu.Lock()
	now := s.clk.Now()
	s.integrate(now)
	s.live--
	calls, turns, free := s.live, s.turns, s.slot
	idle := s.live == 0 && !s.arriving
	s.mu.Unlock()
	if free != nil {
		free.Set()
	}
	if idle {
		s.idle.Set()
	}
	s.tell.InFlight(now, calls, turns)
}
