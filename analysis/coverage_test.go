package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// A campaign is one way to look for the knee of a queue.
type campaign struct {
	name string
	run  func(q queue, c measurement.Config, seed uint64) (steps []measurement.StepResult, seconds float64)
}

func campaigns() []campaign {
	grid := func(from, to float64) func(queue, measurement.Config, uint64) ([]measurement.StepResult, float64) {
		return func(q queue, c measurement.Config, seed uint64) (steps []measurement.StepResult, seconds float64) {
			for i := range 10 {
				s, turns, took := q.step(c, i, seed, q.capacity*(from+(to-from)*float64(i)/9), 300, false)
				steps = append(steps, AnalyzeStep(c, s, turns, nil))
				seconds += took.Seconds()
			}
			return steps, seconds
		}
	}
	return []campaign{
		{"10 x 300 s, .1 to 1.5 of capacity", grid(.1, 1.5)},
		{"10 x 300 s, .4 to 1 of capacity", grid(.4, 1)},
		{"--find-knee, 60 s, 90 s, confirmed by 300 s", func(q queue, c measurement.Config, seed uint64) (steps []measurement.StepResult, seconds float64) {
			start := q.capacity * .05 * math.Pow(4, rand.New(rand.NewPCG(seed, 1)).Float64()) // .05 to .2 of it
			for {
				p, ok := Search(neat(start), 300, steps)
				if !ok {
					return steps, seconds
				}
				window := 90.
				switch {
				case p.Rough:
					window = 60
				case p.Confirm:
					window = 300
				}
				window = max(window, 60/(p.Rate*float64(c.Turns-1)))
				s, turns, took := q.step(c, len(steps), seed, p.Rate, window, true)
				steps = append(steps, AnalyzeStep(c, s, turns, nil))
				seconds += took.Seconds()
			}
		}},
	}
}

// outcome is how many times a campaign was run and how its knees lie about the truth; shares are of all runs, the rest of
// the true knee.
type outcome struct {
	runs, found, held, bounded int
	widths, mid, between       []float64 // of the interval; of the estimate, and of interpolation alone, over the truth
	minutes                    float64   // of the engine's time, each
	steps                      int
}

func (o *outcome) add(k measurement.Knee, interpolated, truth float64, steps int, seconds float64) {
	o.runs++
	o.steps += steps
	o.minutes += seconds / 60
	if k.Status != measurement.Found || k.Estimate == nil {
		return
	}
	o.found++
	o.mid = append(o.mid, *k.Estimate/truth)
	o.between = append(o.between, interpolated/truth)
	lo, hi := k.CI95[0], k.CI95[1]
	if (lo == nil || *lo <= truth) && (hi == nil || *hi >= truth) {
		o.held++
	}
	if lo != nil && hi != nil {
		o.bounded++
		o.widths = append(o.widths, (*hi-*lo)/truth)
	}
}

// interpolation is the knee that the loads on its two sides alone would estimate: of steps that do not tell their late turns.
func interpolation(steps []measurement.StepResult, slo []measurement.Objective) float64 {
	bare := slices.Clone(steps)
	for i := range bare {
		bare[i].LateTurns = nil
	}
	return value(SLOKnee(bare, slo).Estimate)
}

func (o *outcome) share(n int) float64 { return float64(n) / float64(o.runs) }

func rmse(ratios []float64) float64 {
	sum := 0.
	for _, r := range ratios {
		sum += (r - 1) * (r - 1)
	}
	return math.Sqrt(sum / float64(len(ratios)))
}

func median(v []float64) float64 { return measurement.Quantile(sorted(v), .5) }

// bounds are what a campaign must reach.
type bounds struct{ held, bounded, width, rmse float64 }

func (o *outcome) check(t *testing.T, name string, b bounds) {
	t.Helper()
	for _, c := range []struct {
		is   bool
		what string
	}{
		{o.share(o.held) < b.held, "the interval holds the knee too rarely"}, {o.share(o.bounded) < b.bounded, "it is bounded too rarely"},
		{!(median(o.widths) <= b.width), "it is too wide"}, {!(rmse(o.mid) <= b.rmse), "the estimate is too far off"},
	} {
		if c.is {
			t.Errorf("%s: %s\n%s", name, c.what, o.row(name, ""))
		}
	}
}

func (o *outcome) row(name, way string) string {
	return fmt.Sprintf("| %s | %s | %d | %.0f %% | %.0f %% | %.0f %% | %.0f %% | %.1f %% | %.1f %% | %.1f | %.1f |", way, name, o.runs, 100*o.share(o.found),
		100*o.share(o.held), 100*o.share(o.bounded), 100*median(o.widths), 100*rmse(o.mid), 100*rmse(o.between), o.minutes/float64(o.runs), float64(o.steps)/float64(o.runs))
}

func (o *outcome) join(x outcome) {
	o.runs, o.found, o.held, o.bounded, o.steps, o.minutes = o.runs+x.runs, o.found+x.found, o.held+x.held, o.bounded+x.bounded, o.steps+x.steps, o.minutes+x.minutes
	o.widths, o.mid, o.between = append(o.widths, x.widths...), append(o.mid, x.mid...), append(o.between, x.between...)
}

// TestCoverage looks many times for a knee that is known and counts how often its interval holds it. KNEE_COVERAGE says how
// many times (make coverage), and then every queue must reach the bounds; otherwise a few, and all queues together must.
func TestCoverage(t *testing.T) {
	runs, calls, many := 3, 100_000, false
	if n, err := strconv.Atoi(os.Getenv("KNEE_COVERAGE")); err == nil && n > 0 {
		runs, calls, many = n, 1_000_000, true
	}
	want := bounds{held: .9, bounded: .9, width: .4, rmse: .1}
	var rows []string
	for i, way := range campaigns() {
		if i == 1 && !many {
			continue
		}
		var all outcome
		for _, q := range queues() {
			c := q.config(q.limitMS(calls))
			var o outcome
			for i := range runs {
				steps, seconds := way.run(q, c, uint64(i+1))
				o.add(SLOKnee(steps, c.SLO), interpolation(steps, c.SLO), atKnee*q.capacity, len(steps), seconds)
			}
			rows = append(rows, o.row(q.name, way.name))
			all.join(o)
			if many && i == 0 {
				o.check(t, q.name, want)
			}
		}
		rows = append(rows, all.row("all", way.name))
		if many && !(rmse(all.mid) <= rmse(all.between)) {
			t.Errorf("%s: the estimate is farther off than interpolation alone", way.name)
		}
		if !many && i == 0 {
			all.check(t, "all queues", want)
		}
		if i == 2 && all.share(all.found) < .95 {
			t.Errorf("the search found the knee in %.0f %% of its runs, want 95 %%", 100*all.share(all.found))
		}
	}
	t.Logf("\n| measured by | queue | runs | found | holds λ* | bounded | median width | RMSE | RMSE interpolated | engine minutes | steps |\n|---|---|---|---|---|---|---|---|---|---|---|\n%s", strings.Join(rows, "\n"))
}
