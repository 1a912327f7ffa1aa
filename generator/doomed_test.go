package generator

import (
	"testing"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// A doomed step's window ends with the turn that dooms it, whether it waits for its planned end or for its minimum of turns; what a
// plan says of one step does not concern the next.
func TestDoomedStepEndsEarly(t *testing.T) {
	for _, minTurns := range []int{20, 100_000} {
		c := testConfig()
		c.MinTurns = minTurns
		v := clock.NewVirtual()
		f := steady(100 * time.Millisecond)
		f.clk = v
		var n notes
		var ends []time.Duration // of the measured turns that the step was asked about
		plan := func(done []measurement.Step) (StepPlan, bool) {
			switch len(done) {
			case 0:
				return StepPlan{Rate: 2, StepDuration: 5 * time.Minute, Doomed: func(turn measurement.Turn) bool {
					if turn.Turn < 2 || turn.Due < 10*time.Second {
						t.Errorf("asked about turn %d due at %v", turn.Turn, turn.Due)
					}
					ends = append(ends, turn.End)
					return len(ends) >= 50
				}}, true
			case 1:
				return StepPlan{Rate: 1, StepDuration: 30 * time.Second, Doomed: func(measurement.Turn) bool { return false }}, minTurns == 20
			}
			return StepPlan{}, false
		}
		var err error
		v.Run(t.Context(), func() { err = Sweep(t.Context(), v, f, &n, c, nil, plan) })
		if err != nil {
			t.Fatal(err)
		}
		s := n.steps[0]
		if len(ends) != 50 || !s.EarlyFail || s.WindowEnd != ends[49] {
			t.Errorf("at least %d turns: window to %v, early %v, asked about %d turns, the last ended at %v", minTurns, s.WindowEnd, s.EarlyFail, len(ends), ends[len(ends)-1])
		}
		if s.DrainEnd < s.WindowEnd || s.DrainEnd > s.WindowEnd+10*time.Second {
			t.Errorf("drained at %v, want soon after %v", s.DrainEnd, s.WindowEnd)
		}
		var first []measurement.Turn
		for _, turn := range n.turns {
			if turn.Step == 0 {
				first = append(first, turn)
				if turn.Turn == 1 && turn.Due > s.WindowEnd {
					t.Errorf("call %d arrived at %v, after the window's end", turn.Call, turn.Due)
				}
			}
		}
		checkPhases(t, s, first)
		if minTurns == 20 {
			if s := n.steps[1]; s.EarlyFail || s.WindowEnd-s.WindowStart != 30*time.Second {
				t.Errorf("the next step: window of %v, early %v; want 30 s, false", s.WindowEnd-s.WindowStart, s.EarlyFail)
			}
		}
	}
}
