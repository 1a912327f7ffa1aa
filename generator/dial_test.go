package generator

import (
	"context"
	"math"
	"testing"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// TestDial turns the rate of a running step up, down and up, and counts the calls that come.
func TestDial(t *testing.T) {
	v := clock.NewVirtual()
	c := testConfig()
	c.Warmup, c.StepDuration, c.MaxStepDuration, c.MinTurns = 0, 10000*time.Hour, 10000*time.Hour, 0
	dial := NewDial(v, 10)
	c.Dial = dial
	f := steady(time.Millisecond)
	f.clk = v
	var n notes
	ctx, stop := v.WithCancelCause(t.Context())
	rates := []float64{10, .001, 2, 2, 20}
	const stretch = 1000 * time.Second
	var begun []measurement.Step
	v.Run(t.Context(), func() {
		v.Go("the hand", func() {
			for i := range rates {
				dial.Turn(rates[i])
				_ = v.SleepUntil(context.Background(), time.Duration(i+1)*stretch)
			}
			stop(nil)
		})
		_, err := RunStep(ctx, v, f, begins{&n, &begun}, c, 0, 10)
		if err != context.Canceled {
			t.Errorf("got %v, want the context's end", err)
		}
	})
	calls := make([]float64, len(rates))
	seen := map[int]bool{}
	for _, turn := range n.turns {
		if turn.Turn != 1 {
			continue
		}
		if seen[turn.Call] {
			t.Fatalf("two calls have the number %d", turn.Call)
		}
		seen[turn.Call] = true
		calls[min(int(turn.Due/stretch), len(rates)-1)]++
	}
	for i, rate := range rates {
		want := rate * stretch.Seconds()
		if d := math.Abs(calls[i] - want); d > 4*math.Sqrt(want)+1 {
			t.Errorf("at %g calls/s %v calls came in %v, want about %v", rate, calls[i], stretch, want)
		}
	}
	var told []float64
	for _, s := range begun {
		told = append(told, s.Rate)
	}
	if want := []float64{10, .001, 2, 20}; len(told) != len(want) || told[1] != want[1] || told[2] != want[2] || told[3] != want[3] {
		t.Errorf("rates told: %v, want %v: once for each turn of the dial", told, want)
	}
}

// begins keeps the steps as they begin.
type begins struct {
	Observer
	steps *[]measurement.Step
}

func (b begins) StepBegin(s measurement.Step) { *b.steps = append(*b.steps, s) }
