package generator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// ErrLost says that the endpoint stopped taking connections.
var ErrLost = errors.New("the endpoint no longer answers")

// Plan decides what the next step is from the steps so far; ok is false when the sweep is done. It is called between
// steps, never during one.
type Plan func(done []measurement.Step) (next StepPlan, ok bool)

// StepPlan is what is asked of one step.
type StepPlan struct {
	Rate         float64
	StepDuration time.Duration // of its window, at least; 0: as the Config says
	// Doomed is told every measured turn when it has ended, one after another; once it says true the window ends with that turn
	// and the step is marked. It must not wait. nil: a window is as long as it is.
	Doomed func(measurement.Turn) bool
}

// Rates is the plan of a fixed list.
func Rates(rates []float64) Plan {
	return func(done []measurement.Step) (StepPlan, bool) {
		if len(done) >= len(rates) {
			return StepPlan{}, false
		}
		return StepPlan{Rate: rates[len(done)]}, true
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
		next, ok := plan(done)
		if !ok {
			return nil
		}
		if err := clk.SleepUntil(ctx, start); err != nil {
			return err
		}
		s, err := runStep(ctx, clk, to, tell, c, len(done), next, start)
		done = append(done, s)
		if err != nil {
			return fmt.Errorf("in the step at %g: %w", next.Rate, err)
		}
		start = clk.Now()
		if c.slots() {
			start = s.WindowEnd + c.Drain
		}
	}
}
