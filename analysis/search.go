package analysis

import (
	"math"
	"slices"

	"kneefinder/measurement"
)

// The sequential test that ends a step early: Wald's ratio of late turns at 1.6 times the share that the objective allows against
// .6 times it, for P95 .08 against .03. Only a fail ends a step: queues start empty, so a step looks good before it goes bad.
const (
	sureLate   = 1.6
	sureInTime = .6
	sureRatio  = 6.9 // ln of the ratio from which a step is certain to fail: a thousand to one for independent turns
)

// FailsEarly returns the test that ends a step as soon as it is certain to miss a TTFT objective: told every measured turn as it
// ends, it says true from the one that makes it certain. It holds the state of one step and is for one goroutine at a time.
func FailsEarly(slo []measurement.Objective) func(measurement.Turn) bool {
	var tests []measurement.Objective
	for _, o := range slo {
		if o.Metric == "ttft" {
			tests = append(tests, o)
		}
	}
	ratios := make([]float64, len(tests))
	return func(t measurement.Turn) bool {
		wait, ok := t.TTFT()
		if !ok && (!t.Outcome.Failed() || ownFault(&t) || t.Outcome == measurement.Canceled) {
			return false
		}
		for i, o := range tests {
			allowed := 1 - o.Quantile
			bad, good := min(sureLate*allowed, .99), sureInTime*allowed
			if !ok || millis(wait) > o.LimitMS {
				ratios[i] += math.Log(bad / good)
			} else {
				ratios[i] += math.Log((1 - bad) / (1 - good))
			}
			if ratios[i] >= sureRatio {
				return true
			}
		}
		return false
	}
}

// Resolution is how close a search brings the lowest failing rate to the largest passing one, at least: their ratio less 1. What lies
// between them is the estimate's matter, which all steps tell; closer ends cost time and hardly better it.
const Resolution = .2

// The bounds of a search.
const (
	mostProbes   = 40
	mostDoubled  = 20
	mostHalved   = 6
	mostTries    = 6   // at one rate, where nothing is decided
	confirmTimes = 2   // passes of a confirming step that the final rate needs
	retestTimes  = 2   // steps that the rate above it needs
	wideBracket  = 1.5 // of the two ends, between which a rough step tells enough
	keepOff      = .2  // of the bracket, in logs, that a step keeps off either end
)

// Probe is the next step of a search.
type Probe struct {
	Rate    float64
	Rough   bool // a window of a minute is enough: the rate is far from where the knee will be
	Confirm bool // the step is to have the longer window
}

// Search says what to try next to find the SLO knee, from the steps so far and nothing else: it doubles the rate from start until
// a step fails (or halves it until one passes), divides the bracket until its ends are a fifth apart - where the steps estimate the knee, or in
// the geometric middle while they do not - and confirms its passing end by two
// steps with windows of at least confirmS seconds, and tries its failing end again between them. Of the steps at one rate those
// with the longest windows count, and of these a fail outweighs a pass. An undecided step counts as a pass where only the
// generator's lateness keeps it from one, for that can but worsen its figures, and else as a fail; neither confirms anything.
// When a re-test turns an end over, the search goes on from there, by the longer windows: the shorter ones have misled it. ok is
// false when it is done, after 20 doublings or 6 halvings, after six steps at a passing end that cannot be decided, and after 40
// steps.
func Search(start, confirmS float64, steps []measurement.StepResult) (p Probe, ok bool) {
	if len(steps) >= mostProbes {
		return Probe{}, false
	}
	again := false // a rate has been tried again
	tried := map[float64]*triedRate{}
	var rates []float64
	for _, s := range steps {
		if incomplete(s) {
			continue
		}
		t := tried[s.Rate]
		if again = again || t != nil; t == nil {
			t = &triedRate{}
			tried[s.Rate] = t
			rates = append(rates, s.Rate)
		}
		t.add(s, confirmS)
	}
	slices.Sort(rates)
	lo, hi := 0., 0.
	for _, r := range rates {
		if !tried[r].passes {
			hi = r
			break
		}
		lo = r
	}
	switch {
	case len(rates) == 0:
		return Probe{Rate: start, Rough: true}, true
	case hi == 0 && len(rates) > mostDoubled, lo == 0 && hi <= start/(1<<mostHalved)*1.01:
		return Probe{}, false
	case hi == 0:
		return Probe{Rate: neat(2 * lo), Rough: true}, true
	case lo == 0:
		return Probe{Rate: neat(hi / 2), Rough: true}, true
	}
	if mid := neat(math.Sqrt(lo * hi)); hi/lo > 1+Resolution && mid > lo && mid < hi {
		if est := estimated(steps); est > 0 && !again {
			span := math.Pow(hi/lo, keepOff)
			if r := neat(min(max(est, lo*span), hi/span)); r > lo && r < hi {
				mid = r
			}
		}
		return Probe{Rate: mid, Rough: hi/lo > wideBracket && !again, Confirm: again}, true
	}
	switch { // each end once before either is believed: what is turned over by the first try needs no second
	case tried[lo].confirmed == 0 && tried[lo].steps < mostTries:
		return Probe{Rate: lo, Confirm: true}, true
	case tried[hi].steps < retestTimes:
		return Probe{Rate: hi, Confirm: true}, true
	case tried[lo].confirmed < confirmTimes && tried[lo].steps < mostTries:
		return Probe{Rate: lo, Confirm: true}, true
	}
	return Probe{}, false
}

// estimated is the SLO knee that the steps of a search estimate so far, by the objectives that they hold; 0 while there is none.
func estimated(steps []measurement.StepResult) float64 {
	var slo []measurement.Objective
	for _, o := range steps[0].Objectives {
		slo = append(slo, o.Objective)
	}
	if k := SLOKnee(steps, slo); k.Estimate != nil {
		return *k.Estimate
	}
	return 0
}

// triedRate is what the steps of a search at one rate say.
type triedRate struct {
	passes    bool
	long      bool // by steps that confirm
	steps     int
	confirmed int // passes of steps that confirm
}

func (t *triedRate) add(s measurement.StepResult, confirmS float64) {
	passes := s.Verdict == measurement.Pass || onlyLate(s)
	// A step that was ended early was meant to be as long as any other, and is certain.
	confirms := s.WindowS >= confirmS*(1-1e-6) // a window is a whole number of nanoseconds
	long := confirms || slices.Contains(s.Flags, measurement.FlagEarlyFail) && t.steps > 0
	switch {
	case t.steps == 0 || long && !t.long:
		t.passes = passes
	case long == t.long:
		t.passes = t.passes && passes
	}
	t.long = t.long || long
	t.steps++
	if s.Verdict == measurement.Pass && confirms {
		t.confirmed++
	}
}

// onlyLate reports whether nothing but the generator's own lateness keeps a step from a pass.
func onlyLate(s measurement.StepResult) bool {
	if s.Verdict != measurement.Undecided || !slices.Contains(s.Flags, measurement.FlagClientLimited) || len(s.Objectives) == 0 {
		return false
	}
	for _, f := range []string{measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated} {
		if slices.Contains(s.Flags, f) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Objectives, func(o measurement.ObjectiveResult) bool { return !(value(o.ValueMS) <= o.LimitMS) })
}
