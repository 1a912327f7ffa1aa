package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kneefinder/measurement"
)

// The limits of the certificate.
const (
	fewArrivals = 20   // calls that the tests need
	rejected    = .001 // a true Poisson process has a p under this once in a thousand tests
)

// Certify tests whether calls really were sent as a Poisson process of the rate asked. It takes the instants at which first
// turns were sent, not those at which they were due: a generator that stalls sends in bunches.
//
// Each step counts from its start to the end of its window, a cut one to its last call, one whose cap held a call to that
// call: what a cap lets through is not what arrived. Gaps are multiplied by the rate asked (of a shard, by its part of that):
// in that time, which runs on through all steps, a Poisson process has one rate of 1 (time rescaling; Brown et al. 2002), so
// that the gap cut by a step's end goes on in the next step and long gaps are not lost. A closed loop has no arrivals of its
// own and is not tested, nor are fewer than twenty calls. Of a process whose rate changes by design, and of instants from a file, only
// the variation of gaps is told: tests against a Poisson process of one rate say nothing of them.
func Certify(log measurement.Log) measurement.Arrivals {
	a := measurement.Arrivals{Process: process(log.Header.Config), Dispersion: []measurement.WindowTest{}}
	lag := ascending(timesOf(all(log.Held()), (*measurement.Turn).Lag))
	a.LagP50, a.LagP99, a.LagMax = quantile(lag, .5), quantile(lag, .99), quantile(lag, 1)
	steps := sentCalls(log)
	for _, s := range steps {
		a.Calls += len(s.at)
	}
	if a.Process == closed || a.Calls < fewArrivals {
		return a
	}
	gaps := ascending(rescaled(steps))
	if !oneRate(a.Process) {
		a.CV = figure(variation(gaps))
		return a
	}
	a.KS, a.AD, a.CV = kolmogorovSmirnov(gaps), andersonDarling(gaps), figure(variation(gaps))
	for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		if t := countDispersion(steps, w); t != nil {
			a.Dispersion = append(a.Dispersion, measurement.WindowTest{WindowS: w.Seconds(), Test: *t})
		}
	}
	a.Lag1, a.WholeSeconds = lag1(steps), wholeSeconds(steps)
	a.Certified = a.Process == poisson && len(objections(a)) == 0
	return a
}

// oneRate reports whether a process has the rate asked all the time, at least in the window of a step.
func oneRate(process string) bool {
	kind, args, _ := strings.Cut(process, ":")
	switch kind {
	case poisson, "constant", "gamma":
		return true
	case "ramp":
		return !strings.Contains(args, ":") // it only rises to its rate, in the warm-up
	}
	return false
}

// sentStep is the calls of one step: when they were sent, counted from its start, and until when it was watched.
type sentStep struct {
	rate   float64
	length time.Duration
	at     []time.Duration // ascending
	cut    bool            // it was watched to a call, not to an instant fixed beforehand
}

// sentCalls are the steps of a log as Certify takes them.
func sentCalls(log measurement.Log) []sentStep {
	turns := byStep(log.Held())
	first := log.Header.Config.FirstTurn()
	shards := 1
	if _, n, err := parseShard(log.Header.Shard); err == nil {
		shards = n
	}
	var out []sentStep
	for _, s := range log.Steps {
		c := sentStep{rate: s.Rate / float64(shards), cut: s.WindowEnd < 0}
		end := s.WindowEnd
		if c.cut {
			end = math.MaxInt64
		}
		for t := range turns[s.Step].each {
			if t.Turn == first && (t.Held >= 0 || t.Outcome == measurement.Shed) && t.Due < end {
				end, c.cut = t.Due, true
			}
		}
		for t := range turns[s.Step].each {
			if t.Turn == first && t.Held < 0 && t.Sent >= s.Start && t.Sent <= end {
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

// rescaled are the gaps between the calls of all steps in units of the mean gap asked for, as if one step followed the other
// at once.
func rescaled(steps []sentStep) []float64 {
	var out []float64
	rest := 0. // since the last call of the steps before
	for _, s := range steps {
		last := time.Duration(0)
		for i, g := range s.gaps() {
			if i == 0 {
				g += rest
			}
			out = append(out, g)
			last, rest = s.at[i], 0
		}
		if s.cut {
			rest = 0
		} else {
			rest += (s.length - last).Seconds() * s.rate
		}
	}
	return out
}

// gaps are the gaps between the calls of one step, the first from its start, in units of the mean gap asked for.
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
func certificate(u unit, a measurement.Arrivals) string {
	calls := u.calls()
	var head string
	switch {
	case a.Process == "":
		return ""
	case a.Process == closed:
		head = "closed loop. The next " + strings.TrimSuffix(calls, "s") + " starts when one ends, so a server that slows down slows its own load and queueing stays hidden"
	case a.Calls < fewArrivals:
		head = "too few " + calls + " to certify"
	case a.Certified:
		head = "certified Poisson"
	case a.Process == poisson:
		head = "not Poisson"
	case !oneRate(a.Process):
		head = a.Process + ", as asked. Its rate is not one all the time, so it is not tested against Poisson"
	default:
		head = a.Process + ", as asked; tested against Poisson"
	}
	parts := []string{fmt.Sprintf("%d %s", a.Calls, calls)}
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
