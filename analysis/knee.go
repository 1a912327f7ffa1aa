package analysis

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kneefinder/measurement"
)

// The knees' own limits.
const (
	saturated   = .95 // turns completed per turn arrived, under which a step is saturated
	minPoints   = 5   // points that a curvature knee needs
	minTrimmed  = 4   // points that trimming leaves at least
	fewBetween  = 2   // loads chosen between others, from which a run was a search
	flatCurve   = 1.2 // a curve that rises by less than this factor has no bend to speak of
	sensitivity = 1.  // Kneedle's S: the knee stands out by more than this many mean spacings of the points
)

// SLOKnee is the load to provision against: the largest passing λ below the first failing one. Steps without a verdict are
// judged here by their figures. At one λ a failing step outweighs a passing one; undecided steps count for neither side.
//
// The estimate is where a logistic curve through the shares of late turns of all steps reaches the share that the objective allows
// (see fitLogistic), held between that rate and the next load above the first failing one. It uses all steps and not only the two
// around the limit, and on queues whose knee is known it is nearer to it than interpolation on every one (docs/coverage.md). Where another
// objective or the errors set the knee, or the steps tell no late turns, it is interpolated between that rate and the first failing one, where the curve crosses the
// limit: isotonic regression of each objective's quantile over λ, weighted by
// turns, interpolated linearly in λ and log y; of several objectives, and of the error rate reaching 2 %, the first. A
// censored quantile counts as +Inf; a crossing between a number and +Inf has no place of its own, and the note says between
// which rates it lies.
//
// The interval, given when a quantile of TTFT set the estimate, is that of the logistic curve, widened to hold the interpolated
// crossing too: where they differ, the form of the curve is in doubt. A curve on the wrong side of a load that is decided by its own turns
// is not used: the estimate is the interpolated one, and the interval holds the curve's and both loads beside it. Where there is no such curve, and for an end that lies more than a step of the grid outside the loads tried, it is where the isotonic curves
// of a P95's own 95 % interval cross the same limit; where the upper bound goes from a number to unknown, its lower end is the last λ that still
// keeps the limit, and an end that no step bounds is absent. No estimate is extrapolated.
func SLOKnee(steps []measurement.StepResult, slo []measurement.Objective) measurement.Knee {
	return sloKnee(perSecond, steps, slo)
}

func sloKnee(u unit, steps []measurement.StepResult, slo []measurement.Objective) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: "slo"}
	if len(slo) == 0 {
		k.Note = "No objective was given."
		return k
	}
	steps = judged(byRate(steps), slo)
	firstFail, lastPass, undecided := math.NaN(), math.NaN(), []measurement.StepResult{}
	for i, s := range steps {
		if i > 0 && steps[i-1].Rate == s.Rate {
			continue
		}
		switch verdictAt(steps, s.Rate) {
		case measurement.Fail:
			if math.IsNaN(firstFail) {
				firstFail = s.Rate
			}
		case measurement.Pass:
			if math.IsNaN(firstFail) {
				lastPass = s.Rate
			}
		default:
			if math.IsNaN(firstFail) {
				undecided = append(undecided, s)
			}
		}
	}
	k.Rate = figure(lastPass)
	var notes []string
	switch {
	case !math.IsNaN(firstFail) && !math.IsNaN(lastPass):
		k.Status = measurement.Found
		notes = append(notes, fmt.Sprintf("At %s %s; at %s %s.", u.of(lastPass), reasons(u, steps, slo, lastPass), u.of(firstFail), reasons(u, steps, slo, firstFail)))
	case !math.IsNaN(firstFail) && len(undecided) > 0:
		notes = append(notes, fmt.Sprintf("No step passed: %s fails and below it nothing is decided.", u.of(firstFail)))
	case !math.IsNaN(firstFail):
		k.Status = measurement.BelowRange
		notes = append(notes, fmt.Sprintf("Already the lowest load tried, %s, fails: %s.", u.of(firstFail), reasons(u, steps, slo, firstFail)))
	case !math.IsNaN(lastPass) && steps[0].Rate == steps[len(steps)-1].Rate:
		k.Status = measurement.AboveRange
		notes = append(notes, fmt.Sprintf("The one load tried, %s, passes, so the knee lies above it if lower loads pass too. There %s.", u.of(lastPass), reasons(u, steps, slo, lastPass)))
	case !math.IsNaN(lastPass):
		k.Status = measurement.AboveRange
		notes = append(notes, fmt.Sprintf("No step failed; %s is the highest that passed, so the knee lies above it. There %s.", u.of(lastPass), reasons(u, steps, slo, lastPass)))
	default:
		notes = append(notes, "No step passed or failed.")
	}
	if len(undecided) > 0 {
		notes = append(notes, fmt.Sprintf("Undecided, and passed over: %s.", reasoned(u, undecided)))
	}
	for i, s := range steps {
		if stands, _ := StandsFor(steps, s.Rate); i == stands && (s.Rate == lastPass || s.Rate == firstFail) &&
			(slices.Contains(s.Flags, measurement.FlagOffRate) || slices.Contains(s.Flags, measurement.FlagEarlyFail) && !u.closed() && offRate(s)) {
			notes = append(notes, fmt.Sprintf("The λ that came at %s was %s.", rate(s.Rate), sig(value(s.ArrivedRate))))
		}
	}
	if k.Status == measurement.Found {
		notes = append(notes, estimate(u, &k, firstFail, steps, slo)...)
	}
	k.Note = strings.Join(notes, " ")
	return k
}

// estimate fills in k's estimate and interval, and returns what must be said of them.
func estimate(u unit, k *measurement.Knee, firstFail float64, steps []measurement.StepResult, slo []measurement.Objective) (notes []string) {
	decided := slices.DeleteFunc(slices.Clone(steps), func(s measurement.StepResult) bool { return s.Verdict == measurement.Undecided })
	best, by, bracket := math.Inf(1), -1, math.Inf(1)
	take := func(c curve, limit float64, scale func(float64) float64, name string, index int) {
		x, i := c.crossing(limit, scale)
		if x < best {
			best, by = x, index
		}
		if math.IsNaN(x) && i > 0 && i < len(c.x) {
			bracket = min(bracket, c.x[i])
			notes = append(notes, fmt.Sprintf("%s is censored from %s on: it goes over the limit somewhere between %s and %s.",
				name, u.of(c.x[i]), rate(c.x[i-1]), u.of(c.x[i])))
		}
	}
	for i, o := range slo {
		c := newCurve(decided, func(s *measurement.StepResult) float64 { return figureOf(s, o) })
		if len(c.x) == 0 {
			notes = append(notes, fmt.Sprintf("No curve of %s: the steps do not hold it.", objectiveName(o)))
			continue
		}
		take(c.rising(), o.LimitMS, math.Log, objectiveName(o), i)
	}
	errors := newCurve(decided, func(s *measurement.StepResult) float64 { return value(s.ErrorRate) })
	take(errors.rising(), math.Nextafter(maxErrorRate, 0), linear, "The error rate", len(slo))
	fitted, hasFit, l, noFit := measurement.Fit{}, false, logistic{}, ""
	if o, ok := onlyTTFT(slo); ok {
		if l, noFit = fitLogistic(decided, o, *k.Rate, firstFail); noFit == "" {
			fitted, hasFit = l.fit(*k.Rate, firstFail), true
			k.Logistic = &fitted
		}
	}
	if by < 0 || best > bracket { // a crossing that has no place comes before
		return notes
	}
	if whole := best; whole > firstFail {
		crossed := Apart(4, rounded(whole), firstFail)
		if rounded(whole) <= firstFail {
			crossed = Apart(4, whole, firstFail)
		}
		best = firstFail
		notes = append(notes, fmt.Sprintf("Read over all steps the curve crosses the limit at %s %s only, for steps above %s do better than it; interpolation is held at the first load that fails.", crossed[0], u, crossed[1]))
	}
	best = max(best, *k.Rate)
	k.Estimate = &best
	switch {
	case by == len(slo):
		notes = append(notes, "The estimate is where the error rate reaches 2 %.")
	case len(slo) > 1:
		notes = append(notes, fmt.Sprintf("The estimate is where %s crosses its limit.", objectiveName(slo[by])))
	}
	if by < len(slo) && slo[by].Metric == "ttft" {
		if hasFit {
			f := *fitted.Estimate
			k.Estimate = &f
			held := ""
			switch at := math.Exp(l.knee); {
			case at < f*(1-1e-9):
				held = fmt.Sprintf(" (%s, and the estimate is held at the largest load that passes)", Apart(3, at, f)[0])
			case at > f*(1+1e-9):
				held = fmt.Sprintf(" (%s, and the estimate is held at the load above the first that fails)", Apart(3, at, f)[0])
			}
			notes = append(notes, fmt.Sprintf("The estimate is where a logistic curve through the late turns of all loads reaches the %s that may be late%s; interpolated between the loads beside it alone it is %s.",
				percentage(1-slo[by].Quantile), held, Apart(3, best, f)[0]))
		}
		if slo[by].Quantile == .95 {
			k.CI95 = crossingInterval(decided, slo[by].LimitMS)
		}
		low, high := best, best
		if hasFit {
			for i, end := range fitted.CI95 {
				if end != nil {
					k.CI95[i] = figure(*end)
				}
			}
			low, high = min(best, *fitted.Estimate), max(best, *fitted.Estimate)
		}
		if l.contradicts {
			var ends [2]float64
			ends[0], ends[1] = l.interval()
			notes = append(notes, "The estimate is interpolated between the loads beside it, and its interval reaches over both and that of the curve: "+noFit+".")
			low, high = *k.Rate, firstFail
			if lo := figure(math.Exp(ends[0])); lo != nil && (k.CI95[0] == nil || *lo < *k.CI95[0]) {
				k.CI95[0] = lo
			}
			if hi := figure(math.Exp(ends[1])); hi != nil && (k.CI95[1] == nil || *hi > *k.CI95[1]) {
				k.CI95[1] = hi
			}
		}
		if lo := k.CI95[0]; lo != nil {
			*lo = min(*lo, low)
		}
		if hi := k.CI95[1]; hi != nil {
			*hi = max(*hi, high)
		}
	}
	return notes
}

// crossingInterval is where the isotonic curves of the P95's own interval cross the limit. P95 does not fall as load rises, so
// a step too short to bound it above is bounded by the next higher one that is not, and one too short to bound it below by the
// next lower one. A bound never stands on the wrong side of the P95 itself, and all three curves hold the same points at the
// same weights: isotonic regression keeps their order, so that the interval holds the crossing of the P95.
func crossingInterval(steps []measurement.StepResult, limit float64) (ci [2]*float64) {
	p95 := measurement.Objective{Metric: "ttft", Quantile: .95}
	of := func(bound func(*measurement.StepResult, float64) float64) curve {
		return newCurve(steps, func(s *measurement.StepResult) float64 {
			y := figureOf(s, p95)
			if math.IsNaN(y) {
				return y
			}
			return bound(s, y)
		})
	}
	mid := of(func(_ *measurement.StepResult, y float64) float64 { return y })
	high := of(func(s *measurement.StepResult, y float64) float64 {
		if s.TTFTP95CI[1] == nil {
			return math.Inf(1)
		}
		return max(*s.TTFTP95CI[1], y)
	})
	for i := len(high.y) - 2; i >= 0; i-- {
		if math.IsInf(high.y[i], 1) {
			high.y[i] = max(high.y[i+1], mid.y[i])
		}
	}
	high = high.rising()
	if x, i := high.crossing(limit, math.Log); i > 0 {
		if math.IsNaN(x) {
			x = high.x[i-1]
		}
		ci[0] = &x
	}
	low := of(func(s *measurement.StepResult, y float64) float64 {
		switch {
		case s.TTFTP95CI[0] != nil:
			return min(*s.TTFTP95CI[0], y)
		case math.IsInf(y, 1) && s.TTFTP95CI[1] == nil && s.MeasuredTurns >= fewAnswers: // both ends are censored too
			return y
		}
		return 0
	})
	for i := range low.y {
		if low.y[i] == 0 && i > 0 {
			low.y[i] = min(low.y[i-1], mid.y[i])
		}
	}
	low = low.rising()
	for i, y := range low.y {
		low.y[i] = max(y, math.SmallestNonzeroFloat64) // the scale is logarithmic
	}
	if x, i := low.crossing(limit, math.Log); i < len(low.x) {
		if math.IsNaN(x) && i > 0 {
			x = low.x[i]
		}
		ci[1] = figure(x)
	}
	return ci
}

// judged gives a verdict to the steps that have none, from their figures, and takes it from those that were cut.
func judged(steps []measurement.StepResult, slo []measurement.Objective) []measurement.StepResult {
	steps = slices.Clone(steps)
	for i := range steps {
		if s := &steps[i]; s.Verdict == "" || incomplete(*s) {
			s.Verdict = verdict(slo, *s, func(o measurement.Objective) float64 { return figureOf(s, o) }, func(p float64) float64 {
				if p != .95 {
					return math.NaN()
				}
				return value(s.TTFTSentP95)
			})
		}
	}
	return steps
}

// figureOf is an objective's quantile in milliseconds: +Inf where it is censored, NaN where the step does not hold it. A step
// holds the quantiles that were its objectives, and P50, P95 and P99.
func figureOf(s *measurement.StepResult, o measurement.Objective) float64 {
	for _, held := range s.Objectives {
		if held.Metric == o.Metric && held.Quantile == o.Quantile {
			return heldFigure(s, o, held.ValueMS)
		}
	}
	figures := map[string]map[float64]*float64{
		"ttft": {.5: s.TTFTP50, .95: s.TTFTP95, .99: s.TTFTP99},
		"itl":  {.5: s.ITLP50, .95: s.ITLP95, .99: s.ITLP99},
	}
	v, held := figures[o.Metric][o.Quantile]
	if !held {
		return math.NaN()
	}
	return heldFigure(s, o, v)
}

// heldFigure takes an absent quantile of TTFT as censored where the step says that one is.
func heldFigure(s *measurement.StepResult, o measurement.Objective, v *float64) float64 {
	if v == nil && o.Metric == "ttft" && s.MeasuredTurns > 0 && slices.Contains(s.Flags, measurement.FlagCensored) {
		return math.Inf(1)
	}
	return value(v)
}

func objectiveName(o measurement.Objective) string {
	return fmt.Sprintf("P%s %s", rate(100*o.Quantile), strings.ToUpper(o.Metric))
}

// reasons lists the figures that an SLO verdict at this rate rests on.
func reasons(u unit, steps []measurement.StepResult, slo []measurement.Objective, at float64) string {
	v := verdictAt(steps, at)
	i, of := StandsFor(steps, at)
	if i < 0 {
		i = slices.IndexFunc(steps, func(s measurement.StepResult) bool { return s.Rate == at && s.Verdict == v })
	}
	s := &steps[i]
	var out []string
	for _, o := range slo {
		switch y := figureOf(s, o); {
		case math.IsInf(y, 1):
			out = append(out, fmt.Sprintf("%s is censored (too many %s got no token)", objectiveName(o), u.answers()))
		case !math.IsNaN(y):
			is, limit := msApart(y, o.LimitMS)
			out = append(out, fmt.Sprintf("%s is %s (limit %s%s%s)", objectiveName(o), is, limit, straddles(s, o, y), elsewhere(steps, i, of, o)))
		}
	}
	if s.ErrorRate != nil && *s.ErrorRate > 0 {
		out = append(out, fmt.Sprintf("%s of %s fail", percentage(*s.ErrorRate), u.answers()))
	}
	if len(out) == 0 {
		return "no figure is at hand"
	}
	return strings.Join(out, ", ")
}

// elsewhere says what the other steps of a load measured for an objective; "" where there are none.
func elsewhere(steps []measurement.StepResult, stands, of int, o measurement.Objective) string {
	var out []string
	for i := range steps {
		if i == stands || steps[i].Rate != steps[stands].Rate || incomplete(steps[i]) {
			continue
		}
		switch y := figureOf(&steps[i], o); {
		case math.IsInf(y, 1):
			out = append(out, "censored")
		case !math.IsNaN(y):
			is, _ := msApart(y, o.LimitMS)
			out = append(out, is)
		}
	}
	if len(out) == 0 {
		return ""
	}
	which := "the other step"
	if of > 2 {
		which = "the other steps"
	}
	return fmt.Sprintf("; in %s of this load %s", which, strings.Join(out, ", "))
}

// msApart writes a time and its limit so that it shows on which side of the limit it is.
func msApart(v, limit float64) (is, most string) {
	if is, most = ms(v), ms(limit); is == most && v != limit {
		text := Apart(4, v, limit)
		return text[0] + " ms", text[1] + " ms"
	}
	return is, most
}

// straddles says that a P95 of TTFT stands on one side of its limit and its interval on both.
func straddles(s *measurement.StepResult, o measurement.Objective, y float64) string {
	ci, side := s.TTFTP95CI, "over"
	switch {
	case o.Metric != "ttft" || o.Quantile != .95 || ci == [2]*float64{}:
		return ""
	case y <= o.LimitMS && ci[1] != nil && *ci[1] <= o.LimitMS:
		return ""
	case y > o.LimitMS:
		if ci[0] == nil || *ci[0] > o.LimitMS {
			return ""
		}
		side = "under"
	}
	end := func(v *float64) string {
		if v == nil {
			return "-"
		}
		is, _ := msApart(*v, o.LimitMS)
		return strings.TrimSuffix(is, " ms")
	}
	span := interval(ci, end) + " ms"
	if ci[1] == nil {
		span = end(ci[0]) + " ms or more"
	}
	return fmt.Sprintf("; its 95 %% interval, %s, reaches %s the limit", span, side)
}

// rounded is a figure as it is printed.
func rounded(v float64) float64 {
	r, err := strconv.ParseFloat(sig(v), 64)
	if err != nil {
		return v
	}
	return r
}

// ms writes milliseconds with three digits, or all of a longer whole part.
func ms(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f ms", v)
	}
	return sig(v) + " ms"
}

// CurvatureKnee is the elbow of P95 TTFT over the λ asked, whatever the SLO: Kneedle on linear axes for a convex increasing
// curve, the largest difference. How far a sweep runs into collapse would move it, so the curve is cut after the first
// saturated step (isotonic completions/arrivals under .95), at least four points kept. A censored P95 counts
// with its lower bound, the age at which turns were given up.
//
// Where the loads end before saturation the elbow is that of the range tried, and the note says so. Loads that a search chose, between such as
// it had tried, crowd about the SLO knee and are cut short when they fail: where their curve bends is no property of the server, and no
// elbow is given.
func CurvatureKnee(steps []measurement.StepResult) measurement.Knee {
	return curvatureKnee(perSecond, steps)
}

func curvatureKnee(u unit, steps []measurement.StepResult) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: "kneedle"}
	run := steps
	steps = slices.DeleteFunc(byRate(steps), func(s measurement.StepResult) bool { return s.MeasuredTurns == 0 || incomplete(s) })
	var notes []string
	all := newCurve(steps, func(s *measurement.StepResult) float64 {
		switch {
		case s.TTFTP95 != nil:
			return *s.TTFTP95
		case s.TTFTP95AtLeast != nil:
			return *s.TTFTP95AtLeast
		}
		return math.Inf(1)
	})
	c := all
	if n := len(c.x); n < minPoints {
		k.Note = fmt.Sprintf("An elbow needs at least %d rates; %s.", minPoints, thereAre(n))
		return k
	}
	ratio := newCurve(steps, func(s *measurement.StepResult) float64 { return value(s.SaturationRatio) }).falling()
	if i := slices.IndexFunc(ratio.y, func(r float64) bool { return r < saturated }); i >= 0 {
		n := max(slices.Index(c.x, ratio.x[i])+1, minTrimmed)
		if n < len(c.x) {
			notes = append(notes, fmt.Sprintf("The curve is read up to %s: completions lag behind arrivals from %s on.", u.of(c.x[n-1]), rate(ratio.x[i])))
			c = curve{c.x[:n], c.y[:n], c.w[:n]}
		}
	}
	if i := slices.IndexFunc(c.y, func(y float64) bool { return math.IsInf(y, 1) }); i >= 0 {
		notes = append(notes, fmt.Sprintf("P95 TTFT is censored at %s: the curve is read below it.", u.of(c.x[i])))
		c = curve{c.x[:i], c.y[:i], c.w[:i]}
	}
	if len(c.x) >= minTrimmed && c.y[0] > flatCurve*c.y[1] && c.y[0] > flatCurve*c.y[2] {
		notes = append(notes, fmt.Sprintf("P95 TTFT falls from %s at %s to %s at %s: the first step met a cold cache or a server still warming up; measure the lowest loads again.", ms(c.y[0]), u.of(c.x[0]), ms(c.y[1]), rate(c.x[1])))
	}
	if chosen := between(run); chosen >= fewBetween {
		k.Note = fmt.Sprintf("%d of the %d loads were chosen between others, as a search for the SLO knee does: they crowd about it, and those that fail are cut short. Where such a curve bends does not compare with the elbow of a sweep, so none is given. Sweep loads up to saturation (--rates) for one.", chosen, len(all.x))
		return k
	}
	knee, height := kneedle(c.x, c.y, ConvexIncreasing)
	iso := c.rising().y
	switch {
	case len(c.x) < minTrimmed:
		notes = append(notes, fmt.Sprintf("That leaves %d rates, too few for an elbow.", len(c.x)))
	case iso[len(iso)-1] < flatCurve*iso[0]:
		notes = append(notes, fmt.Sprintf("P95 TTFT is flat: %s at %s, %s at %s.", ms(iso[0]), u.of(c.x[0]), ms(iso[len(iso)-1]), rate(c.x[len(c.x)-1])))
	case height == 0:
		notes = append(notes, "P95 TTFT rises in a straight line or flattens out: it has no elbow.")
		if _, bend := kneedle(c.x, iso, ConcaveIncreasing); bend > sensitivity/float64(len(c.x)-1) {
			notes = append(notes, fmt.Sprintf("It rises fastest from the lowest load, %s, on, as that of a server does which is saturated from the first step: try lower loads.", u.of(c.x[0])))
		}
	case height <= sensitivity/float64(len(c.x)-1):
		notes = append(notes, fmt.Sprintf("P95 TTFT rises almost in a straight line: its bend, %.2f of the range, does not stand out among %d rates.", height, len(c.x)))
	default:
		k.Status, k.Rate = measurement.Found, &c.x[knee]
		if n := len(ratio.x); n > 0 && ratio.x[n-1] == all.x[len(all.x)-1] && ratio.y[n-1] >= saturated {
			notes = append(notes, fmt.Sprintf("The loads end at %s, before saturation: where higher ones are tried the elbow lies elsewhere, so it compares only with that of a run over the same loads.", u.of(all.x[len(all.x)-1])))
		}
		if i := slices.IndexFunc(steps[:len(c.x)], func(s measurement.StepResult) bool { return s.TTFTP95 == nil }); i >= 0 {
			notes = append(notes, fmt.Sprintf("From %s on P95 TTFT is censored and taken at the age at which %s were given up, which is less than it was.", u.of(steps[i].Rate), u.answers()))
		}
		notes = append(notes, fmt.Sprintf("P95 TTFT is %s there, %s at %s and %s at %s.", ms(c.y[knee]), ms(c.y[0]), u.of(c.x[0]), ms(c.y[len(c.y)-1]), rate(c.x[len(c.x)-1])))
	}
	k.Note = strings.Join(notes, " ")
	return k
}

// between is how many loads were run for the first time when both a lower and a higher one had been.
func between(run []measurement.StepResult) (n int) {
	lo, hi := math.Inf(1), math.Inf(-1)
	seen := map[float64]bool{}
	for _, s := range whole(run) {
		if s.Rate > lo && s.Rate < hi && !seen[s.Rate] {
			n++
		}
		seen[s.Rate] = true
		lo, hi = min(lo, s.Rate), max(hi, s.Rate)
	}
	return n
}

// SaturationKnee is where the server no longer completes what arrives: the rate is the last one before the isotonic ratio of
// completions to arrivals falls under .95, the estimate the crossing, interpolated.
func SaturationKnee(steps []measurement.StepResult) measurement.Knee {
	return saturationKnee(perSecond, steps)
}

func saturationKnee(u unit, steps []measurement.StepResult) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: "completions/arrivals"}
	if u.closed() {
		k.Note = "In a closed loop a call arrives only when another ends, so completions keep up with arrivals at any load."
		return k
	}
	c := newCurve(whole(steps), func(s *measurement.StepResult) float64 { return value(s.SaturationRatio) }).falling()
	if len(c.x) == 0 {
		k.Note = fmt.Sprintf("No step tells how many %s were in flight at its ends.", u.answers())
		return k
	}
	x, i := c.negated().crossing(-saturated, linear)
	switch {
	case i == 0:
		k.Status = measurement.BelowRange
		k.Note = fmt.Sprintf("Already %s.", kept(u, steps, c.x[0], c.y[0]))
	case i == len(c.x):
		k.Status, k.Rate = measurement.AboveRange, &c.x[i-1]
		k.Note = fmt.Sprintf("Up to %s at least 95 %% of the %s that come are completed.", u.of(c.x[i-1]), u.answers()) + unread(u, steps, c.x[i-1])
	default:
		k.Status, k.Rate, k.Estimate = measurement.Found, &c.x[i-1], figure(x)
		k.Note = fmt.Sprintf("Of the loads asked, %s; %s.", kept(u, steps, c.x[i-1], c.y[i-1]), kept(u, steps, c.x[i], c.y[i]))
	}
	return k
}

// unread says why higher loads that were tried tell nothing of saturation; "" where there are none.
func unread(u unit, steps []measurement.StepResult, highest float64) string {
	var capped, others []string
	for _, s := range byRate(whole(steps)) {
		switch {
		case s.Rate <= highest || s.MeasuredTurns == 0:
		case slices.Contains(s.Flags, measurement.FlagCapBound):
			capped = append(capped, rate(s.Rate))
		default:
			others = append(others, rate(s.Rate))
		}
	}
	out := ""
	if at := slices.Compact(capped); len(at) > 0 {
		out += fmt.Sprintf(" At %s %s the cap on concurrent %s held some back, so that it cannot be read there: raise --max-concurrent-calls.", listed(at), u, u.calls())
	}
	if at := slices.Compact(others); len(at) > 0 {
		out += fmt.Sprintf(" At %s %s it is not known how many %s were in flight, so that it cannot be read there.", listed(at), u, u.answers())
	}
	return out
}

// kept says what was asked, what of it came, and what of that was completed.
func kept(u unit, steps []measurement.StepResult, load, ratio float64) string {
	if i, _ := StandsFor(steps, load); i >= 0 && steps[i].ArrivedRate != nil {
		return fmt.Sprintf("at %s, of which %s came, %s of the %s that came were completed", u.of(load), sig(*steps[i].ArrivedRate), completed(ratio), u.answers())
	}
	return fmt.Sprintf("at %s %s of the %s that came were completed", u.of(load), completed(ratio), u.answers())
}

// completed writes completions per arrival; turns left over from the warm-up can make them more than all.
func completed(ratio float64) string {
	if ratio >= .995 {
		return "all"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}
