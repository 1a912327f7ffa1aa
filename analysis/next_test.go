package analysis

import (
	"testing"

	"kneefinder/measurement"
)

func TestNextRate(t *testing.T) {
	const p, f, u = measurement.Pass, measurement.Fail, measurement.Undecided
	type run struct {
		rate float64
		v    measurement.Verdict
	}
	for _, c := range []struct {
		why   string
		asked []float64
		done  []run
		ext   int
		want  float64
		ok    bool
	}{
		{"bracketed", []float64{1, 2, 4}, []run{{1, p}, {2, p}, {4, f}}, 6, 0, false},
		{"the highest passes", []float64{1, 2, 4}, []run{{1, p}, {2, p}, {4, p}}, 6, 8, true},
		{"and still passes", []float64{1, 2, 4}, []run{{1, p}, {2, p}, {4, p}, {8, p}}, 6, 16, true},
		{"and then fails", []float64{1, 2, 4}, []run{{1, p}, {2, p}, {4, p}, {8, f}}, 6, 0, false},
		{"the lowest fails", []float64{1, 2, 4}, []run{{1, f}, {2, f}, {4, f}}, 6, .5, true},
		{"and fails lower down", []float64{1, 2}, []run{{1, f}, {2, f}, {.5, f}}, 6, .25, true},
		{"and passes lower down", []float64{1, 2}, []run{{1, f}, {2, f}, {.5, p}}, 6, 0, false},
		{"a fine grid goes on by at least half", []float64{1, 1.1}, []run{{1, p}, {1.1, p}}, 6, 1.65, true},
		{"a coarse one at most doubles", []float64{.1, 1}, []run{{.1, p}, {1, p}}, 6, 2, true},
		{"one rate", []float64{.3}, []run{{.3, f}}, 6, .15, true},
		{"three digits", []float64{.3}, []run{{.3, f}, {.15, f}, {.075, f}}, 6, .0375, true},
		{"an undecided end is no reason", []float64{1, 2}, []run{{1, p}, {2, u}}, 6, 0, false},
		{"an unmeasured end neither", []float64{1, 2, 4}, []run{{1, p}, {2, p}}, 6, 0, false},
		{"stopped after the first fail", []float64{1, 2, 4}, []run{{1, p}, {2, f}}, 6, 0, false},
		{"the extensions are spent", []float64{1, 2}, []run{{1, p}, {2, p}, {4, p}}, 1, 0, false},
		{"no extensions", []float64{1, 2}, []run{{1, p}, {2, p}}, 0, 0, false},
		{"never more than six", []float64{1}, []run{{1, p}, {2, p}, {4, p}, {8, p}, {16, p}, {32, p}, {64, p}}, 99, 0, false},
		{"a fail outweighs a pass at one rate", []float64{1, 2}, []run{{1, p}, {2, p}, {2, f}}, 6, 0, false},
		{"nothing asked", nil, []run{{1, p}}, 6, 0, false},
		{"nothing done", []float64{1}, nil, 6, 0, false},
	} {
		var steps []measurement.StepResult
		for _, d := range c.done {
			steps = append(steps, measurement.StepResult{Rate: d.rate, Verdict: d.v})
		}
		got, ok := NextRate(c.asked, steps, c.ext)
		if ok != c.ok || got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: got %v, %v, want %v, %v", c.why, got, ok, c.want, c.ok)
		}
	}
}
