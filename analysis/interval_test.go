package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestQuantileIntervalOfIndependentTurns(t *testing.T) {
	// Shuffled values 1..n are their own ranks. The ranks are the binomial ones to within one.
	for _, c := range []struct{ n, lo, hi int }{{150, 137, 148}, {200, 184, 197}, {270, 249, 264}, {300, 277, 293}, {500, 465, 485}, {1000, 936, 964}, {2000, 1880, 1920}} {
		x := make([]float64, c.n)
		for i, v := range rand.New(rand.NewPCG(uint64(c.n), 2)).Perm(c.n) {
			x[i] = float64(v + 1)
		}
		lo, hi := quantileInterval(x, sorted(x), .95)
		v := inflation(x, sorted(x), .95)
		if v == 1 && (math.Abs(lo-float64(c.lo)) > 1 || math.Abs(hi-float64(c.hi)) > 1) {
			t.Errorf("n %d: ranks %v and %v, want %d and %d", c.n, lo, hi, c.lo, c.hi)
		}
		if v > 1.5 {
			t.Errorf("n %d: independent turns inflate by %v", c.n, v)
		}
	}
}

func TestQuantileIntervalSides(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		why         string
		x           []float64
		loKnown, up bool
	}{
		{"none", nil, false, false},
		{"one turn bounds nothing", []float64{5}, false, false},
		{"few turns bound nothing above", []float64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4}, true, false},
		{"the upper rank lands on a turn without a token", append(make([]float64, 95), inf, inf, inf, inf, inf), true, false},
	} {
		lo, hi := quantileInterval(c.x, sorted(c.x), .95)
		if math.IsNaN(lo) == c.loKnown || math.IsInf(hi, 1) == c.up {
			t.Errorf("%s: got %v to %v", c.why, lo, hi)
		}
	}
}

func TestAutocorrelationWidensTheInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, state := make([]float64, 1000), 0.
	for i := range x {
		state = .9*state + r.NormFloat64()
		x[i] = 100 + state
	}
	// An AR(1) series with coefficient a is worth n(1-a)/(1+a) independent values: a nineteenth here.
	if v := varianceInflation(x); v < 10 || v > 30 {
		t.Errorf("variance inflation %v, want about 19", v)
	}
	alternating := make([]float64, 100)
	for i := range alternating {
		alternating[i] = float64(i % 2)
	}
	if v := varianceInflation(alternating); v != 1 {
		t.Errorf("turns that repel each other: inflation %v, want 1: never more turns than there are", v)
	}
}

func TestAutocorrelationOfLongResemblanceIsThatOfPlainSums(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		why string
		n   int
		x   func(i int) float64
	}{
		{"a ramp, as the waits behind a burst", 4000, func(i int) float64 { return 1e5 - float64(i) }},
		{"half late, half in time", 5001, func(i int) float64 { return float64(2 * i / 5001) }},
		{"a slow wave with noise", 8192, func(i int) float64 { return math.Sin(float64(i)/1500) + .1*r.NormFloat64() }},
	} {
		x := make([]float64, c.n)
		mean := 0.
		for i := range x {
			x[i] = c.x(i)
			mean += x[i] / float64(c.n)
		}
		covariance := func(k int) (sum float64) {
			for i := k; i < len(x); i++ {
				sum += (x[i] - mean) * (x[i-k] - mean)
			}
			return sum
		}
		want, lags := 1., 0
		for k := 1; k <= c.n/4 && covariance(k)/covariance(0) > .05; k++ {
			want += 2 * covariance(k) / covariance(0)
			lags = k
		}
		if lags <= 2*directLags {
			t.Fatalf("%s: the series resembles itself for %d lags only", c.why, lags)
		}
		if v := varianceInflation(x); math.Abs(v/want-1) > 1e-9 {
			t.Errorf("%s: inflation %v, by plain sums %v", c.why, v, want)
		}
	}
}

func TestAutocorrelationOfAMillionTurnsOfOneBurst(t *testing.T) {
	x := make([]float64, 1e6)
	for i := range x {
		x[i] = float64(i)
	}
	start := time.Now()
	quantileInterval(x, sorted(x), .95)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("%v: the time grows with the square of the turns", took)
	}
}
