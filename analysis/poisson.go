package analysis

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"kneefinder/measurement"
)

// What the tests of a Poisson process go by.
const (
	nearSecond = time.Millisecond // from a whole second, on either side
	fullWindow = 1.               // calls expected in a window that is worth counting
	fewWindows = 10               // such windows that the test of their counts needs
)

// kolmogorovSmirnov compares ascending values with the exponential distribution of mean 1, nothing estimated: the largest
// distance between the distribution functions, its probability by Kolmogorov's distribution with Stephens' correction for
// small samples (Stephens 1974, "EDF statistics for goodness of fit and some comparisons").
func kolmogorovSmirnov(sorted []float64) *measurement.Test {
	n, d := float64(len(sorted)), 0.
	for i, v := range sorted {
		f := -math.Expm1(-v)
		d = max(d, float64(i+1)/n-f, f-float64(i)/n)
	}
	return &measurement.Test{Value: d, P: kolmogorov(d * (math.Sqrt(n) + .12 + .11/math.Sqrt(n)))}
}

// kolmogorov is the probability that Kolmogorov's statistic exceeds x, by whichever of its two series converges at once.
func kolmogorov(x float64) float64 {
	if x <= 0 {
		return 1
	}
	sum := 0.
	if x < 1.18 {
		for k := 1.; k <= 5; k += 2 {
			sum += math.Exp(-k * k * math.Pi * math.Pi / (8 * x * x))
		}
		return 1 - math.Sqrt(2*math.Pi)/x*sum
	}
	for k, sign := 1., 1.; k <= 4; k, sign = k+1, -sign {
		sum += sign * math.Exp(-2*k*k*x*x)
	}
	return 2 * sum
}

// andersonDarling compares ascending values with an exponential distribution of their own mean: Stephens' modified
// A²(1+.6/n), which weighs the tails (D'Agostino and Stephens 1986, "Goodness-of-Fit Techniques", chapter 4).
// nil when all of them are 0.
func andersonDarling(sorted []float64) *measurement.Test {
	n, mean, sum := float64(len(sorted)), average(sorted), 0.
	if mean == 0 {
		return nil
	}
	scaled := func(i int) float64 { return max(sorted[i]/mean, 1e-9) } // two calls at one instant have no logarithm
	for i := range sorted {
		sum += float64(2*i+1) * (math.Log(-math.Expm1(-scaled(i))) - scaled(len(sorted)-1-i))
	}
	a := (-n - sum/n) * (1 + .6/n)
	return &measurement.Test{Value: a, P: andersonDarlingP(a)}
}

// andersonDarlingP is the probability of a modified A² over a, by D'Agostino and Stephens' piecewise fit for the exponential
// distribution of unknown mean. The last piece turns upwards past 10, where it is held.
func andersonDarlingP(a float64) float64 {
	fit := func(c0, c1, c2 float64) float64 { return math.Exp(c0 + c1*a + c2*a*a) }
	switch {
	case a <= .26:
		return 1 - fit(-12.2204, 67.459, -110.3)
	case a <= .51:
		return 1 - fit(-6.1327, 20.218, -18.663)
	case a < .95:
		return fit(.9209, -3.353, .3)
	}
	a = min(a, 10)
	return fit(.731, -3.009, .15)
}

// variation is the coefficient of variation.
func variation(v []float64) float64 {
	mean, sum := average(v), 0.
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum/float64(len(v)-1)) / mean
}

func average(v []float64) float64 {
	sum := 0.
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// countDispersion is the index of dispersion of the calls in windows of length w, over all steps that expect a call or more in
// one: variance/mean within each step. Each step's own mean is taken, not the rate asked: given its calls, a step's
// (k-1)·variance/mean is close to chi-squared even where windows hold few of them, which it is not about a known mean. nil
// when there are fewer than ten windows.
func countDispersion(steps []sentStep, w time.Duration) *measurement.Test {
	squares, windows, free := 0., 0, 0.
	for _, s := range steps {
		if s.rate*w.Seconds() < fullWindow { // before they are counted: at a tiny rate a step has more windows than fit in memory
			continue
		}
		counts := s.counts(w)
		if len(counts) < 2 || slices.Max(counts) == 0 {
			continue
		}
		squares += chiSquared(counts)
		windows += len(counts)
		free += float64(len(counts) - 1)
	}
	if windows < fewWindows {
		return nil
	}
	d := distuv.ChiSquared{K: free}
	return &measurement.Test{Value: squares / free, P: min(1, 2*min(d.CDF(squares), d.Survival(squares)))}
}

// chiSquared is the sum of (count-mean)²/mean.
func chiSquared(counts []float64) float64 {
	mean, sum := average(counts), 0.
	for _, n := range counts {
		sum += (n - mean) * (n - mean) / mean
	}
	return sum
}

// lag1 is the autocorrelation of successive gaps within steps; without any it is normal about 0 with a variance of one over the
// number of gaps.
func lag1(steps []sentStep) *measurement.Test {
	var all []float64
	for _, s := range steps {
		all = append(all, s.gaps()...)
	}
	mean, squares, products, pairs := average(all), 0., 0., 0.
	for _, s := range steps {
		gaps := s.gaps()
		for i, g := range gaps {
			squares += (g - mean) * (g - mean)
			if i > 0 {
				products += (g - mean) * (gaps[i-1] - mean)
				pairs++
			}
		}
	}
	if squares == 0 || pairs == 0 {
		return nil
	}
	r := products / squares
	return &measurement.Test{Value: r, P: math.Erfc(math.Abs(r) * float64(len(all)) / math.Sqrt(2*pairs))}
}

// wholeSeconds is the share of calls sent within a millisecond of a whole second of their step, and the probability of so many
// or more where a five-hundredth is expected.
func wholeSeconds(steps []sentStep) *measurement.Test {
	n, near := 0, 0
	for _, s := range steps {
		for _, at := range s.at {
			n++
			if (at+nearSecond)%time.Second <= 2*nearSecond {
				near++
			}
		}
	}
	b := distuv.Binomial{N: float64(n), P: 2 * nearSecond.Seconds()}
	p := 1.
	if near > 0 {
		p = max(0, b.Survival(float64(near-1)))
	}
	return &measurement.Test{Value: float64(near) / float64(n), P: p}
}
