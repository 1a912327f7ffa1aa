package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"kneefinder/measurement"
)

// The limits of the certificate.
const (
	fewArrivals = 20               // calls that the tests need
	rejected    = .001             // a true Poisson process has a p under this once in a thousand tests
	nearSecond  = time.Millisecond // from a whole second, on either side
	fullWindow  = 1.               // calls expected in a window that is worth counting
	fewWindows  = 10               // such windows that the test of their counts needs
)

// Certify tests whether calls really were sent as a Poisson process of the rate asked. It takes the instants at which first
// turns were sent, not those at which they were due: a generator that stalls sends in bunches.
//
// Each step counts from its start to the end of its window, a cut one to its last call, one whose cap held a call to that
// call: what a cap lets through is not what arrived. Gaps, the first one from the start of the step, are multiplied by the rate
// asked, so that gaps of all steps are one sample. A closed loop and a shard of a run are no Poisson processes and are not
// tested, nor are fewer than twenty calls.
func Certify(log measurement.Log) measurement.Arrivals {
	a := measurement.Arrivals{Process: process(log.Header.Config), Dispersion: []measurement.WindowTest{}}
	lag := sorted(lags(pointers(log.Turns)))
	a.LagP50, a.LagP99, a.LagMax = quantile(lag, .5), quantile(lag, .99), quantile(lag, 1)
	steps := sentCalls(log)
	var gaps [][]float64
	for _, s := range steps {
		a.Calls += len(s.at)
		gaps = append(gaps, s.gaps())
	}
	if a.Process == closed || log.Header.Shard != "" || a.Calls < fewArrivals {
		return a
	}
	all := sorted(slices.Concat(gaps...))
	a.KS, a.AD, a.CV = kolmogorovSmirnov(all), andersonDarling(all), figure(variation(all))
	for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		if t := countDispersion(steps, w); t != nil {
			a.Dispersion = append(a.Dispersion, measurement.WindowTest{WindowS: w.Seconds(), Test: *t})
		}
	}
	a.Lag1, a.WholeSeconds = lag1(gaps), wholeSeconds(steps)
	a.Certified = a.Process == poisson && len(objections(a)) == 0
	return a
}

// sentStep is the calls of one step: when they were sent, counted from its start, and until when it was watched.
type sentStep struct {
	rate   float64
	length time.Duration
	at     []time.Duration // ascending
}

// sentCalls are the steps of a log as Certify takes them.
func sentCalls(log measurement.Log) []sentStep {
	turns := byStep(log.Turns)
	var out []sentStep
	for _, s := range log.Steps {
		end := time.Duration(math.MaxInt64)
		if s.WindowEnd >= 0 {
			end = s.WindowEnd
		}
		for _, t := range turns[s.Step] {
			if t.Turn == 1 && (t.Held >= 0 || t.Outcome == measurement.Shed) {
				end = min(end, t.Due)
			}
		}
		c := sentStep{rate: s.Rate}
		for _, t := range turns[s.Step] {
			if t.Turn == 1 && t.Held < 0 && t.Sent >= s.Start && t.Sent <= end {
				c.at = append(c.at, t.Sent-s.Start)
			}
		}
		slices.Sort(c.at)
		switch {
		case end < math.MaxInt64:
			c.length = end - s.Start
		case len(c.at) > 0:
			c.length = c.at[len(c.at)-1]
		}
		if c.rate > 0 {
			out = append(out, c)
		}
	}
	return out
}

// gaps are the gaps between calls in units of the mean gap asked for, in order.
func (s sentStep) gaps() []float64 {
	out := make([]float64, len(s.at))
	last := time.Duration(0)
	for i, at := range s.at {
		out[i] = (at - last).Seconds() * s.rate
		last = at
	}
	return out
}

// counts are the calls in each whole window of length w.
func (s sentStep) counts(w time.Duration) []float64 {
	out := make([]float64, s.length/w)
	for _, at := range s.at {
		if i := int(at / w); i < len(out) {
			out[i]++
		}
	}
	return out
}

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
func andersonDarling(sorted []float64) *measurement.Test {
	n, mean, sum := float64(len(sorted)), average(sorted), 0.
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
		counts := s.counts(w)
		if s.rate*w.Seconds() < fullWindow || len(counts) < 2 || slices.Max(counts) == 0 {
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
func lag1(steps [][]float64) *measurement.Test {
	all := slices.Concat(steps...)
	mean, squares, products, pairs := average(all), 0., 0., 0.
	for _, gaps := range steps {
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

// objections say in words what speaks against a Poisson process, the strongest first.
func objections(a measurement.Arrivals) []string {
	type objection struct {
		p    float64
		what string
	}
	var found []objection
	add := func(t *measurement.Test, format string, times float64) {
		if t != nil && t.P < rejected {
			found = append(found, objection{t.P, fmt.Sprintf(format, short(times*t.Value))})
		}
	}
	add(a.KS, "gaps between calls do not follow the exponential distribution of the rate asked (KS %s)", 1)
	add(a.AD, "gaps between calls are not exponential (AD %s)", 1)
	add(a.Lag1, "a gap resembles the one before it (autocorrelation %s)", 1)
	add(a.WholeSeconds, "%s %% of calls came within 1 ms of a whole second instead of .2 %%", 100)
	for _, d := range a.Dispersion {
		add(&d.Test, "counts in windows of "+rate(d.WindowS)+" s vary %s times as much as they should", 1)
	}
	slices.SortStableFunc(found, func(a, b objection) int { return cmp.Compare(a.p, b.p) })
	var out []string
	for _, o := range found {
		out = append(out, o.what)
	}
	return out
}

// notCertified is the warning that a run's load was not what it was asked to be; "" when there is none to give.
func notCertified(a measurement.Arrivals) string {
	if a.Certified || a.Process != poisson || a.KS == nil {
		return ""
	}
	return fmt.Sprintf("The load that was sent is not Poisson: %s; so the knee is not that of Poisson calls.", strings.Join(objections(a), "; "))
}

// certificate is what is known of the arrivals in one sentence; "" when nothing is, as in results of an older version.
func certificate(a measurement.Arrivals) string {
	var head string
	switch {
	case a.Process == "":
		return ""
	case a.Process == closed:
		head = "closed loop. The next call starts when one ends, so a server that slows down slows its own load and queueing stays hidden"
	case a.Calls < fewArrivals:
		head = "too few calls to certify"
	case a.KS == nil:
		head = "not tested, for this is one shard of a run"
	case a.Certified:
		head = "certified Poisson"
	case a.Process == poisson:
		head = "not Poisson"
	default:
		head = a.Process + ", as asked"
	}
	parts := []string{fmt.Sprintf("%d calls", a.Calls)}
	if a.KS != nil {
		parts = append(parts, "KS p "+probability(a.KS.P))
	}
	if a.AD != nil {
		parts = append(parts, "AD p "+probability(a.AD.P))
	}
	if a.CV != nil {
		parts = append(parts, "CV "+short(*a.CV))
	}
	if len(a.Dispersion) > 0 {
		var values, windows []string
		for _, d := range a.Dispersion {
			values, windows = append(values, short(d.Value)), append(windows, rate(d.WindowS))
		}
		parts = append(parts, fmt.Sprintf("dispersion %s in windows of %s s", strings.Join(values, "/"), strings.Join(windows, "/")))
	}
	if a.LagP50 != nil && a.LagP99 != nil && a.LagMax != nil {
		parts = append(parts, fmt.Sprintf("schedule lag P50 %s, P99 %s, max %s ms", short(*a.LagP50), short(*a.LagP99), short(*a.LagMax)))
	}
	return head + " (" + strings.Join(parts, ", ") + ")."
}

// short writes a figure with three digits, without the zero before the point.
func short(v float64) string {
	s := number(&v)
	if rest, ok := strings.CutPrefix(s, "0."); ok {
		return "." + rest
	}
	if rest, ok := strings.CutPrefix(s, "-0."); ok {
		return "-." + rest
	}
	return s
}

func probability(p float64) string {
	switch {
	case p < rejected:
		return "< .001"
	case p < .01:
		return short(math.Round(1000*p) / 1000)
	}
	return short(math.Round(100*p) / 100)
}

func pointers(turns []measurement.Turn) []*measurement.Turn {
	out := make([]*measurement.Turn, len(turns))
	for i := range turns {
		out[i] = &turns[i]
	}
	return out
}
