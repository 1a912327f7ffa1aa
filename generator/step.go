package generator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/clock"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Config is what a sweep asks of its calls and steps.
type Config struct {
	Script             workload.Script
	Process            workload.Process // of call arrivals
	Turns              int              // of a call; the first is the warm turn
	OutputTokens       int              // asked of every turn but the warm one, which asks 1
	Warmup             time.Duration    // before a step's window, at least a call's lifetime
	StepDuration       time.Duration    // of the window, at least
	MaxStepDuration    time.Duration    // of the window, at most, when MinTurns are slow to come
	Drain              time.Duration    // after the window, at most, for the calls in progress to end
	MinTurns           int              // measured turns that a window waits for
	MaxConcurrentCalls int              // calls beyond it are held back, in the order of their arrival
	Closed             bool             // no arrivals: the rate of a step is how many calls are spoken at once, each followed at once by the next
	Prepare            time.Duration    // how long before a turn the endpoint is told to make ready, if it can; 0 is never
	StartAt            time.Duration    // of the first step; at once when it is past
	GiveUp             int              // the endpoint is lost after so many refused connections in a row and no answer between; 0: 8
}

// slots reports whether steps begin and end at instants fixed beforehand, so that shards of one run stay in step.
func (c *Config) slots() bool { return c.Process.Shards > 1 }

// window is how long a step's window is planned to be. With slots it is what a server that keeps up needs for a fifth more
// than the minimum of turns, since a shard cannot know how many the others have had.
func (c *Config) window(rate float64) time.Duration {
	if !c.slots() {
		return c.StepDuration
	}
	need := 1.2 * float64(c.MinTurns) / (rate * float64(c.Turns-1))
	return max(c.StepDuration, min(c.MaxStepDuration, time.Duration(math.Ceil(1000*need))*time.Millisecond))
}

// Validate names the first field that cannot be, its value and the rule.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name string
		ok   bool
		got  any
		rule string
	}{
		{"turns", c.Turns >= 2, c.Turns, "at least 2: the first is the discarded warm turn"},
		{"output tokens", c.OutputTokens >= 1, c.OutputTokens, "at least 1"},
		{"system prompt", c.Script.SystemWords >= 1, c.Script.SystemWords, "at least 1 word"},
		{"user words", c.Script.UserWords >= 1, c.Script.UserWords, "at least 1 word"},
		{"gap", c.Script.GapMin >= 0 && c.Script.GapMax >= c.Script.GapMin, fmt.Sprint(c.Script.GapMin, "-", c.Script.GapMax), "0 or more, from low to high"},
		{"warm-up", c.Warmup >= 0, c.Warmup, "0 or more"},
		{"step duration", c.StepDuration > 0, c.StepDuration, "more than 0"},
		{"maximum step duration", c.MaxStepDuration >= c.StepDuration, c.MaxStepDuration, fmt.Sprintf("at least the step duration, %v", c.StepDuration)},
		{"drain", c.Drain >= 0, c.Drain, "0 or more"},
		{"minimum turns", c.MinTurns >= 0, c.MinTurns, "0 or more"},
		{"maximum concurrent calls", c.MaxConcurrentCalls >= 1, c.MaxConcurrentCalls, "at least 1"},
		{"shards", c.Process.Shards == 0 || c.Process.Shard >= 0 && c.Process.Shard < c.Process.Shards, fmt.Sprintf("%d of %d", c.Process.Shard, c.Process.Shards), "one of 0 to n-1 of n"},
		{"shards", c.Process.Shards <= 1 || !c.Closed, "in a closed loop", "an open one: a closed loop cannot be split"},
		{"lexicon", c.Script.Lexicon != nil, nil, "a language"},
	} {
		if !f.ok {
			return fmt.Errorf("%s: %v: must be %s", f.name, f.got, f.rule)
		}
	}
	return nil
}

// Observer is told what happens, when it has happened. Its methods are called by many processes at once and must not wait.
type Observer interface {
	StepBegin(measurement.Step)
	StepEnd(measurement.Step)
	Turn(measurement.Turn)
	// InFlight is called whenever a call or a turn begins or ends: so many calls and turns are now in progress.
	InFlight(at time.Duration, calls, turns int)
}

// Observers tells every one of them, in order.
type Observers []Observer

// StepBegin tells all.
func (os Observers) StepBegin(s measurement.Step) {
	for _, o := range os {
		o.StepBegin(s)
	}
}

// StepEnd tells all.
func (os Observers) StepEnd(s measurement.Step) {
	for _, o := range os {
		o.StepEnd(s)
	}
}

// Turn tells all.
func (os Observers) Turn(t measurement.Turn) {
	for _, o := range os {
		o.Turn(t)
	}
}

// InFlight tells all.
func (os Observers) InFlight(at time.Duration, calls, turns int) {
	for _, o := range os {
		o.InFlight(at, calls, turns)
	}
}

// ErrLost says that the endpoint stopped taking connections.
var ErrLost = errors.New("the endpoint no longer answers")

// Plan decides the rate of the next step from the steps so far; ok is false when the sweep is done. It is called between
// steps, never during one.
type Plan func(done []measurement.Step) (rate float64, ok bool)

// Rates is the plan of a fixed list.
func Rates(rates []float64) Plan {
	return func(done []measurement.Step) (float64, bool) {
		if len(done) >= len(rates) {
			return 0, false
		}
		return rates[len(done)], true
	}
}

// Preparer is an Endpoint that can make ready for a turn shortly before it is due: open a connection, say. Prepare may block;
// it is called in a process of its own.
type Preparer interface {
	Prepare(ctx context.Context)
}

// Sweep runs one step after another as plan says, behind those done before it, if it goes on with an earlier run. It returns
// when the plan is done, with ctx's error when ctx ends first, and with ErrLost when the endpoint is gone; what was measured
// so far has been told to the observer in every case. It must run in a process of clk.
func Sweep(ctx context.Context, clk clock.Clock, to Endpoint, tell Observer, c Config, done []measurement.Step, plan Plan) error {
	if err := c.Validate(); err != nil {
		return err
	}
	done = slices.Clone(done)
	start := max(clk.Now(), c.StartAt)
	for {
		rate, ok := plan(done)
		if !ok {
			return nil
		}
		if err := clk.SleepUntil(ctx, start); err != nil {
			return err
		}
		s, err := runStep(ctx, clk, to, tell, c, len(done), rate, start)
		done = append(done, s)
		if err != nil {
			return fmt.Errorf("in the step at %g: %w", rate, err)
		}
		start = clk.Now()
		if c.slots() {
			start = s.WindowEnd + c.Drain
		}
	}
}

// RunStep runs one step from now on: calls arrive as Config.Process says, at the rate, from its start to the end of its
// window; then the calls in progress end. The step is complete when WindowEnd is set.
func RunStep(ctx context.Context, clk clock.Clock, to Endpoint, tell Observer, c Config, number int, rate float64) (measurement.Step, error) {
	return runStep(ctx, clk, to, tell, c, number, rate, clk.Now())
}

func runStep(ctx context.Context, clk clock.Clock, to Endpoint, tell Observer, c Config, number int, rate float64, start time.Duration) (measurement.Step, error) {
	s := &step{clk: clk, to: to, tell: tell, c: c, enough: clk.NewEvent(), lost: clk.NewEvent(), idle: clk.NewEvent(),
		rec: measurement.Step{Step: number, Rate: rate, Start: start, WindowStart: start + c.Warmup, WindowEnd: measurement.Never,
			DrainEnd: measurement.Never},
		lastDue: measurement.Never}
	if s.c.GiveUp == 0 {
		s.c.GiveUp = 8
	}
	s.last = start
	s.prepare, _ = to.(Preparer)
	return s.run(ctx)
}

// step is one step while it runs. mu guards what follows it; it is never held while waiting or telling.
type step struct {
	clk     clock.Clock
	to      Endpoint
	prepare Preparer // to, if it can; nil otherwise
	tell    Observer
	c       Config
	enough  clock.Event // MinTurns measured turns have been sent, or can never be
	lost    clock.Event // the endpoint takes no connection
	idle    clock.Event // arrivals have ended and no call is in progress

	blocked time.Duration // until when the cap last held arrivals back; of the process of arrivals

	mu       sync.Mutex
	rec      measurement.Step
	live     int                       // calls in progress
	turns    int                       // turns in flight
	arriving bool                      // the process of arrivals runs
	slot     clock.Event               // set when a call ends, for the arrival that the cap holds back; nil when none
	measured int                       // measured turns sent, or lost because an earlier turn failed
	lastDue  time.Duration             // when the MinTurns-th of them was due
	refused  int                       // connections refused in a row
	gaps     []*hdrhistogram.Histogram // by turn index

	last      time.Duration // when live and turns last changed
	liveArea  float64       // integral over the window, s
	turnsArea float64
}

func (s *step) run(ctx context.Context) (measurement.Step, error) {
	s.tell.StepBegin(s.rec)
	callCtx, cutCalls := s.clk.WithCancelCause(ctx)
	defer cutCalls(nil)
	arriveCtx, stopArrivals := s.clk.WithCancelCause(ctx)
	defer stopArrivals(nil)
	s.arriving = true
	s.clk.Go("the arrivals of step "+strconv.Itoa(s.rec.Step), func() {
		if s.c.Closed {
			s.cycle(arriveCtx, callCtx)
		} else {
			s.arrive(arriveCtx, callCtx, s.c.Process.Arrivals(s.c.Script.Seed, s.rec.Step, s.rec.Rate))
		}
		s.mu.Lock()
		s.arriving = false
		idle := s.live == 0
		s.mu.Unlock()
		if idle {
			s.idle.Set()
		}
	})

	err := s.window(ctx)
	stopArrivals(nil)
	if err == nil {
		s.idle.WaitUntil(ctx, s.rec.WindowEnd+s.c.Drain)
		s.mu.Lock()
		s.rec.Residue = s.live
		s.mu.Unlock()
	}
	if ctx.Err() == nil {
		cutCalls(ErrDrained)
	}
	_ = s.idle.Wait(context.Background()) // calls end at once: their context has

	s.mu.Lock()
	s.rec.DrainEnd = s.clk.Now()
	for i, h := range s.gaps {
		if h == nil {
			continue
		}
		enc, encErr := measurement.EncodeHistogram(i, h)
		if encErr != nil {
			panic(encErr) // a histogram of our own making always encodes
		}
		s.rec.ITL = append(s.rec.ITL, enc)
	}
	rec := s.rec
	s.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	s.tell.StepEnd(rec)
	return rec, err
}

// window waits through warm-up and window and fixes the window's end. The window ends at a nominal instant: its planned end,
// or the due instant of the turn that made the minimum.
func (s *step) window(ctx context.Context) error {
	begin := s.rec.WindowStart
	if s.lost.WaitUntil(ctx, begin) {
		return ErrLost
	}
	s.mu.Lock()
	s.integrate(begin)
	s.liveArea, s.turnsArea = 0, 0
	s.rec.LiveMax, s.rec.InFlightStart = s.live, s.turns
	s.mu.Unlock()
	planned := begin + s.c.window(s.rec.Rate)
	if s.lost.WaitUntil(ctx, planned) {
		return ErrLost
	}
	longest := begin + s.c.MaxStepDuration
	extends := s.c.MinTurns > 0 && !s.c.slots()
	if extends {
		s.enough.WaitUntil(ctx, longest)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := planned
	switch {
	case !extends:
	case s.measured < s.c.MinTurns:
		end = longest
	default:
		end = max(end, s.lastDue)
	}
	s.integrate(max(end, s.last))
	s.rec.WindowEnd, s.rec.InFlightEnd = end, s.turns
	if span := (end - begin).Seconds(); span > 0 {
		s.rec.LiveMean, s.rec.LiveTurnsMean = s.liveArea/span, s.turnsArea/span
	}
	return nil
}

// arrive starts a call at each arrival until ctx ends. An arrival that finds the cap reached waits for a call to end, and so
// do those behind it: first come, first served. What is still held when the window ends is shed.
func (s *step) arrive(ctx, callCtx context.Context, arrivals workload.Arrivals) {
	for {
		a, ok := arrivals.Next()
		if !ok {
			return
		}
		due := s.rec.Start + a.At
		if s.clk.SleepUntil(ctx, due) != nil {
			s.shed(a, arrivals)
			return
		}
		held, ok := s.admit(ctx, due, s.c.MaxConcurrentCalls)
		if !ok {
			s.shed(a, arrivals)
			return
		}
		s.begin(callCtx, a.N, due, held)
	}
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
func (s *step) shed(a workload.Arrival, arrivals workload.Arrivals) {
	s.mu.Lock()
	end := s.rec.WindowEnd
	s.mu.Unlock()
	for ok := true; ok && s.rec.Start+a.At <= end; a, ok = arrivals.Next() {
		due := s.rec.Start + a.At
		s.mu.Lock()
		s.arrived(due, true)
		s.mu.Unlock()
		t := unsent(s.rec.Step, s.rec.Step*measurement.CallsPerStep+a.N, 1, due)
		t.Outcome, t.Detail = measurement.Shed, "held by the cap of "+strconv.Itoa(s.c.MaxConcurrentCalls)+" calls until the window ended"
		s.tell.Turn(t)
	}
}

// call speaks one call's turns. A failure ends it; a gap that ctx cuts ends it too.
func (s *step) call(ctx context.Context, call int, due, held time.Duration) {
	defer s.callEnds()
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
		req := Request{Step: s.rec.Step, Call: call, Turn: turn, Prompt: prompt, MaxTokens: s.c.OutputTokens, Last: turn == last}
		if turn == 1 {
			req.MaxTokens = 1
		}
		s.turnBegins(turn, due)
		reply := s.to.Do(ctx, req)
		t := reply.Turn
		t.Step, t.Call, t.Turn, t.Due, t.Held = req.Step, call, turn, due, held
		held = measurement.Never
		s.turnEnds(&t)
		s.tell.Turn(t)
		if t.Outcome != measurement.OK {
			if s.c.Closed { // a call that fails at once must not be followed at once: that would be no load but a flood
				defer func() { _ = s.clk.SleepUntil(ctx, due+failedCallStays) }()
			}
			for rest := turn + 1; rest <= last; rest++ {
				s.missed(t.End)
				s.tell.Turn(unsent(req.Step, call, rest, t.End))
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

// failedCallStays is how long a failed call of a closed loop keeps its place, from when its turn was due.
const failedCallStays = time.Second

// unsent is the record of a turn that was never sent.
func unsent(step, call, turn int, due time.Duration) measurement.Turn {
	return measurement.Turn{Step: step, Call: call, Turn: turn, Due: due, Held: measurement.Never, Sent: measurement.Never,
		WroteRequest: measurement.Never, Headers: measurement.Never, FirstEvent: measurement.Never, FirstToken: measurement.Never,
		LastToken: measurement.Never, End: measurement.Never, PromptTokens: measurement.Unknown,
		CompletionTokens: measurement.Unknown, CachedTokens: measurement.Unknown, Outcome: measurement.NotSent}
}

func (s *step) turnBegins(turn int, due time.Duration) {
	s.mu.Lock()
	now := s.clk.Now()
	s.integrate(now)
	s.turns++
	calls, turns := s.live, s.turns
	enough := turn > 1 && s.countMeasured(due)
	s.mu.Unlock()
	if enough {
		s.enough.Set()
	}
	s.tell.InFlight(now, calls, turns)
}

// missed counts a turn that will never be due, so that a step whose calls fail does not wait for turns that cannot come.
func (s *step) missed(at time.Duration) {
	s.mu.Lock()
	enough := s.countMeasured(at)
	s.mu.Unlock()
	if enough {
		s.enough.Set()
	}
}

// countMeasured reports whether this turn made the minimum; mu is held.
func (s *step) countMeasured(due time.Duration) bool {
	if due < s.rec.WindowStart || s.measured >= s.c.MinTurns {
		return false
	}
	s.measured++
	s.lastDue = max(s.lastDue, due)
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
	if t.Turn > 1 && s.rec.InWindow(t.Due) && len(t.Gaps) > 0 {
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
	s.mu.Unlock()
	if lost {
		s.lost.Set()
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

// windowEnd is the window's end, or the end of time while it is not known; mu is held.
func (s *step) windowEnd() time.Duration {
	if s.rec.WindowEnd < 0 {
		return math.MaxInt64
	}
	return s.rec.WindowEnd
}

// integrate adds the time since the last change to the areas under live and turns, within the window; mu is held.
func (s *step) integrate(now time.Duration) {
	if span := min(now, s.windowEnd()) - max(s.last, s.rec.WindowStart); span > 0 {
		s.liveArea += span.Seconds() * float64(s.live)
		s.turnsArea += span.Seconds() * float64(s.turns)
	}
	s.last = max(s.last, now)
}
