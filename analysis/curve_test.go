package analysis

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"kneefinder/measurement"
)

// minimax is isotonic regression by its definition: max over starts up to i of min over ends from i of the block's mean.
func minimax(y, w []float64) []float64 {
	out := make([]float64, len(y))
	for i := range y {
		best := math.Inf(-1)
		for a := 0; a <= i; a++ {
			least := math.Inf(1)
			sum, weight := 0., 0.
			for b := a; b < len(y); b++ {
				sum, weight = sum+y[b]*w[b], weight+w[b]
				if b >= i {
					least = min(least, sum/weight)
				}
			}
			best = max(best, least)
		}
		out[i] = best
	}
	return out
}

func TestRisingIsIsotonicRegression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		y := rapid.SliceOfN(rapid.Float64Range(-100, 100), n, n).Draw(t, "y")
		w := rapid.SliceOfN(rapid.Float64Range(1, 50), n, n).Draw(t, "w")
		got := curve{x: upTo(n), y: y, w: w}.rising().y
		for i, want := range minimax(y, w) {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Fatalf("%v weighted %v: got %v at %d, want %v", y, w, got[i], i, want)
			}
		}
	})
}

func TestRising(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		why        string
		y, w, want []float64
	}{
		{"already rising", []float64{1, 2, 3}, []float64{1, 1, 1}, []float64{1, 2, 3}},
		{"a violator pools by weight", []float64{1, 4, 2}, []float64{1, 1, 3}, []float64{1, 2.5, 2.5}},
		{"a censored step makes all above it censored", []float64{1, inf, 5}, []float64{1, 1, 1}, []float64{1, inf, inf}},
	} {
		got := curve{x: upTo(len(c.y)), y: c.y, w: c.w}.rising().y
		for i := range c.want {
			if got[i] != c.want[i] {
				t.Errorf("%s: got %v, want %v", c.why, got, c.want)
				break
			}
		}
	}
}

func TestCrossing(t *testing.T) {
	inf := math.Inf(1)
	rates := []float64{.2, .4, .6, .8, 1, 1.2, 1.4, 1.6}
	p95 := []float64{92, 95, 101, 118, 160, 410, 2900, 9800}
	for _, c := range []struct {
		why   string
		x, y  []float64
		limit float64
		scale func(float64) float64
		want  float64
		at    int
	}{
		{"300 ms, log-linear", rates, p95, 300, math.Log, 1.13361, 5},
		{"twice the lowest steps' geometric mean", rates, p95, 2 * math.Sqrt(92*95), math.Log, 1.03312, 5},
		{"three times", rates, p95, 3 * math.Sqrt(92*95), math.Log, 1.11929, 5},
		{"300 ms, linear", []float64{92.19, 122.6}, []float64{80, 3187}, 300, linear, 94.34, 1},
		{"exactly on a point: not over it yet", []float64{1, 2, 3}, []float64{100, 300, 500}, 300, linear, 2, 2},
		{"over from the first point on: not extrapolated", []float64{1, 2}, []float64{400, 500}, 300, linear, math.NaN(), 0},
		{"never over: not extrapolated", []float64{1, 2}, []float64{100, 200}, 300, linear, math.NaN(), 2},
		{"from a number to never: somewhere between", []float64{1, 2}, []float64{100, inf}, 300, math.Log, math.NaN(), 1},
	} {
		got, at := curve{x: c.x, y: c.y}.crossing(c.limit, c.scale)
		if at != c.at || !(math.Abs(got-c.want) < 5e-3*c.want || math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: got %v at %d, want %v at %d", c.why, got, at, c.want, c.at)
		}
	}
}

func TestNewCurve(t *testing.T) {
	steps := []measurement.StepResult{{Rate: 2, MeasuredTurns: 10}, {Rate: 1, MeasuredTurns: 30}, {Rate: 2, MeasuredTurns: 30}, {Rate: 3}}
	ys := []float64{100, 50, 200, math.NaN()}
	for i := range steps {
		steps[i].TTFTP95 = figure(ys[i])
	}
	c := newCurve(steps, func(s *measurement.StepResult) float64 { return value(s.TTFTP95) })
	if len(c.x) != 2 || c.x[0] != 1 || c.x[1] != 2 || c.y[0] != 50 || c.y[1] != 175 || c.w[1] != 40 {
		t.Errorf("got %+v, want points (1, 50) and (2, 175 by 40 turns)", c)
	}
}
