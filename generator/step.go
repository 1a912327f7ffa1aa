package generator

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// RunStep runs one step from now on: calls arrive as Config.Process says, at the rate, from its start to the end of its
// window; then the calls in progress end. The step is complete when WindowEnd is set.
func RunStep(ctx context.Context, clk clock.Clock, to Endpoint, tell Observer, c Config, number int, rate float64) (measurement.Step, error) {
	return runStep(ctx, clk, to, tell, c, number, StepPlan{Rate: rate}, clk.Now())
}

func runStep(ctx context.Context, clk clock.Clock, to Endpoint, tell Observer, c Config, number int, plan StepPlan, start time.Duration) (measurement.Step, error) {
	if plan.StepDuration > 0 {
		c.StepDuration = plan.StepDuration
		c.MaxStepDuration = max(c.MaxStepDuration, plan.StepDuration)
	}
	s := &step{clk: clk, to: to, tell: tell, c: c, doomed: plan.Doomed, doomedAt: measurement.Never, enough: clk.NewEvent(), over: clk.NewEvent(), idle: clk.NewEvent(),
		rec: measurement.Step{Step: number, Rate: plan.Rate, Start: start, WindowStart: start + c.Warmup, WindowEnd: measurement.Never,
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
	over    clock.Event // nothing more is to be measured: the endpoint takes no connection, or the step is doomed
	idle    clock.Event // arrivals have ended and no call is in progress

	doomed func(measurement.Turn) bool // nil: no step is

	blocked time.Duration // until when the cap last held arrivals back; of the process of arrivals

	mu       sync.Mutex
	rec      measurement.Step
	live     int                       // calls in progress
	turns    int                       // turns in flight
	arriving bool                      // the process of arrivals runs
	slot     clock.Event               // set when a call ends, for the arrival that the cap holds back; nil when none
	measured int                       // measured turns sent, or lost because an earlier turn failed
	lastDue  time.Duration             // when the MinTurns-th of them was due, or was let go by the cap
	refused  int                       // connections refused in a row
	doomedAt time.Duration             // when the turn ended that doomed the step
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
		switch {
		case s.c.Closed:
			s.cycle(arriveCtx, callCtx)
		case s.c.Dial != nil:
			s.turned(arriveCtx, callCtx)
		default:
			s.arrive(arriveCtx, arriveCtx, callCtx, segment{begin: s.rec.Start, arrivals: s.c.Process.Arrivals(s.c.Script.Seed, s.rec.Step, s.rec.Rate)})
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
	if s.over.WaitUntil(ctx, begin) {
		return ErrLost
	}
	s.mu.Lock()
	s.integrate(begin)
	s.liveArea, s.turnsArea = 0, 0
	s.rec.LiveMax, s.rec.InFlightStart = s.live, s.turns
	planned := begin + s.c.window(s.rec.Rate) // which a dial may turn
	s.mu.Unlock()
	if s.over.WaitUntil(ctx, planned) && !s.isDoomed() {
		return ErrLost
	}
	longest := begin + s.c.MaxStepDuration
	if s.c.extends() && !s.isDoomed() {
		s.enough.WaitUntil(ctx, longest)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := planned
	switch {
	case !s.c.extends():
	case s.measured < s.c.MinTurns:
		end = longest
	default:
		end = max(end, s.lastDue)
	}
	if s.doomedAt >= 0 && s.doomedAt < end {
		end, s.rec.EarlyFail = s.doomedAt, true
	}
	s.integrate(max(end, s.last))
	s.rec.WindowEnd, s.rec.InFlightEnd = end, s.turns
	if span := (end - begin).Seconds(); span > 0 {
		s.rec.LiveMean, s.rec.LiveTurnsMean = s.liveArea/span, s.turnsArea/span
	}
	return nil
}

func (s *step) isDoomed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doomedAt >= 0
}

// windowEnd is the window's end, or the end of time while it is not known; mu is held.
func (s *step) windowEnd() time.Duration {
	if s.rec.WindowEnd < 0 {
		return math.MaxInt64
	}
	return s.rec.WindowEnd
}

// phase is the phase in which a turn is due, once it has been counted; mu is held. While the window is still open its end is
// known as soon as a turn can be due behind it: the planned end when no turns are waited for or enough have been, else the
// last turn that was.
func (s *step) phase(due time.Duration) measurement.Phase {
	end := s.rec.WindowEnd
	if end < 0 {
		end = s.rec.WindowStart + s.c.window(s.rec.Rate)
		switch {
		case !s.c.extends():
		case s.measured < s.c.MinTurns:
			end = s.rec.WindowStart + s.c.MaxStepDuration
		default:
			end = max(end, s.lastDue)
		}
		if s.doomedAt >= 0 {
			end = min(end, s.doomedAt)
		}
	}
	switch {
	case due < s.rec.WindowStart:
		return measurement.Warmup
	case due > end:
		return measurement.Drain
	}
	return measurement.Window
}

// integrate adds the time since the last change to the areas under live and turns, within the window; mu is held.
func (s *step) integrate(now time.Duration) {
	if span := min(now, s.windowEnd()) - max(s.last, s.rec.WindowStart); span > 0 {
		s.liveArea += span.Seconds() * float64(s.live)
		s.turnsArea += span.Seconds() * float64(s.turns)
	}
	s.last = max(s.last, now)
}
