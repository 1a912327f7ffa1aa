package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/measurement"
)

// The limits of a step that can be trusted.
const (
	maxErrorRate   = .02 // this share of failed turns or more fails the step
	tokenBasis     = .98 // events per completion token from which a gap is a gap between tokens
	littlesLawEdge = .05 // what Little's law may miss beyond the turns cut by the window's ends
)

// AnalyzeStep computes one point of the curve from the turns of that step; turns of other steps are left out. Percentiles are
// type 7 on raw values; gaps between tokens come from the step's histograms, and are absent when answers came whole.
//
// Measured are the turns from the second on that were due in the window and sent. A failed turn without a first token enters
// TTFT as +Inf, so that a percentile landing there is absent and the step is flagged censored; a whole answer without a
// content event has no TTFT. A turn that this side canceled because the run was cut is known to neither side: it is counted
// among the error kinds and nowhere else, and its step is incomplete. Samples are what the other side said of itself; see EngineOf.
func AnalyzeStep(c measurement.Config, s measurement.Step, turns []measurement.Turn, samples []measurement.EngineSample) measurement.StepResult {
	return AnalyzeTurns(c, s, measurement.TurnsOf(turns), samples)
}

// AnalyzeTurns is AnalyzeStep of turns that may be packed.
func AnalyzeTurns(c measurement.Config, s measurement.Step, turns *measurement.Turns, samples []measurement.EngineSample) measurement.StepResult {
	r, _ := analyzeStep(c, s, ofStep(turns, s.Step), samples)
	return r
}

// analyzeStep takes the turns of the step. It is made of few passes over them: packed ones are unpacked in each.
func analyzeStep(c measurement.Config, s measurement.Step, turns some, samples []measurement.EngineSample) (measurement.StepResult, []string) {
	var warnings []string
	in := windowOf(s, turns)
	r := measurement.StepResult{Step: s.Step, Rate: s.Rate, WindowS: in.length.Seconds(), NotSentTurns: in.notSent,
		MeasuredTurns: in.measured.len(), ErrorKinds: in.kinds,
		Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{}}
	complete := s.WindowEnd >= 0
	perSecond := func(n float64) *float64 { return figure(n / r.WindowS) } // absent when no window has passed

	arrived := s.ArrivedCalls
	if !complete {
		if arrived = in.warm.len(); c.Lone() {
			arrived = in.measured.len()
		}
	}
	r.ArrivedRate = perSecond(float64(arrived))
	r.Errors = in.errors
	r.ErrorRate = figure(float64(in.errors) / float64(in.theirs))

	waits := waitsOf(in.measured, (*measurement.Turn).TTFT)
	ttft := sorted(waits)
	sum := 0.
	for _, w := range waits {
		sum += w
	}
	r.TTFTMean = figure(sum / float64(len(waits)))
	r.TTFTP50, r.TTFTP95, r.TTFTP99 = quantile(ttft, .5), quantile(ttft, .95), quantile(ttft, .99)
	if r.TTFTP95 == nil && len(ttft) > 0 {
		r.TTFTP95AtLeast = figure(measurement.Quantile(ascending(waitsOf(in.measured, atLeast)), .95))
	}
	lo, hi := quantileInterval(waits, ttft, .95)
	r.TTFTP95CI = [2]*float64{figure(lo), figure(hi)}
	decide(&r, c, waits, ttft, s.EarlyFail)
	sent := ascending(waitsOf(in.measured, (*measurement.Turn).TTFTSent))
	r.TTFTSentP95 = quantile(sent, .95)
	r.WarmTTFTP50 = quantile(ascending(waitsOf(in.warm, (*measurement.Turn).TTFT)), .5)
	r.TPOTP50 = quantile(ascending(timesOf(in.measured, tpot)), .5)

	itl, itlByTurn, err := mergeITL(s.ITL)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("step %d (%s): %v; its gaps between tokens are left out", s.Step, unitOf(c).of(s.Rate), err))
	}
	if in.buffered() {
		itl, itlByTurn = nil, nil
	}
	r.ITLP50, r.ITLP95, r.ITLP99 = figure(gapQuantile(itl, .5)), figure(gapQuantile(itl, .95)), figure(gapQuantile(itl, .99))
	if itl != nil {
		r.ITLBasis = in.basis()
	}

	if in.admitted {
		r.Times = times(in.measured, ttft, itl)
	}
	r.Dialed, r.Retries = in.dialed, in.retries
	r.ThroughputTurns, r.OutputTokens = perSecond(float64(in.ok)), perSecond(float64(in.tokens))
	r.CacheHitRate = figure(in.hits.rate())
	r.AchievedConcurrency = perSecond(in.busy.Seconds())
	r.ScheduleLagP99 = quantile(ascending(timesOf(in.all, (*measurement.Turn).Lag)), .99)
	if complete {
		r.LiveTurnsMean, r.LiveCallsMean, r.LiveCallsMax = figure(s.LiveTurnsMean), figure(s.LiveMean), &s.LiveMax
		r.InFlightSlope = figure(float64(s.InFlightEnd-s.InFlightStart) / float64(in.all.len()))
		r.SaturationRatio = saturationRatio(s, in)
		if w := littlesLaw(unitOf(c), s, turns); w != "" {
			warnings = append(warnings, w)
		}
	}
	r.ByTurn = byTurn(in, itlByTurn)
	var back []string
	if r.Engine, back = engineOf(s, turns, samples); len(back) > 0 {
		warnings = append(warnings, restarted(unitOf(c), s, back))
	}

	r.Flags = flags(c, s, in, r, ttft)
	at := func(o measurement.Objective) float64 {
		switch o.Metric {
		case "ttft":
			return measurement.Quantile(ttft, o.Quantile)
		case "itl":
			return gapQuantile(itl, o.Quantile)
		}
		return math.NaN()
	}
	for _, o := range c.SLO {
		r.Objectives = append(r.Objectives, measurement.ObjectiveResult{Objective: o, ValueMS: figure(at(o))})
	}
	r.Verdict = verdict(c.SLO, r, at, func(p float64) float64 { return measurement.Quantile(sent, p) })
	return r, warnings
}

// saturationRatio is completions per arrival over the window, 1 - (in flight at its end - at its start)/arrived turns, written so
// that the noise of the arrivals cancels; a turn that failed is no completion. Growth within two standard deviations of the
// difference of two counts is none: a few turns more or fewer in flight at the very end of a short window are chance. Absent
// when the cap held calls back, for then arrivals are the generator's.
func saturationRatio(s measurement.Step, in window) *float64 {
	arrived := in.warm.len() + in.measured.len()
	if in.shed || s.HeldCalls > 0 || arrived == 0 {
		return nil
	}
	growth := float64(s.InFlightEnd - s.InFlightStart)
	if math.Abs(growth) <= growthZ*math.Sqrt(float64(s.InFlightEnd+s.InFlightStart)) {
		growth = 0
	}
	return figure(1 - min(1, (max(0, growth)+float64(in.failed))/float64(arrived)))
}

// atLeast is a turn's TTFT, or how long it had been due when it was given up without a token.
func atLeast(t *measurement.Turn) (time.Duration, bool) {
	if d, ok := t.TTFT(); ok || !t.Outcome.Failed() {
		return d, ok
	}
	return t.End - t.Due, t.End >= t.Due
}

// tpot is the TPOT of a turn that ended well.
func tpot(t *measurement.Turn) (time.Duration, bool) {
	d, ok := t.TPOT()
	return d, ok && t.Outcome == measurement.OK
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sorted(v []float64) []float64 { return ascending(slices.Clone(v)) }

// ascending sorts v itself.
func ascending(v []float64) []float64 {
	slices.Sort(v)
	return v
}

func quantile(sorted []float64, p float64) *float64 { return figure(measurement.Quantile(sorted, p)) }

// ownFault reports whether a turn failed for a reason that is this side's: it was never sent, or this side was out of files or
// ports. It says nothing of the server and counts in none of its figures.
func ownFault(t *measurement.Turn) bool { return t.Outcome == measurement.Shed || t.Local }

// mergeITL decodes a step's histograms and adds them up; nil when there is nothing in them.
func mergeITL(hs []measurement.Histogram) (all *hdrhistogram.Histogram, byTurn map[int]*hdrhistogram.Histogram, err error) {
	byTurn = map[int]*hdrhistogram.Histogram{}
	for _, h := range hs {
		d, err := measurement.DecodeHistogram(h)
		if err != nil {
			return nil, nil, err
		}
		if d.TotalCount() == 0 {
			continue
		}
		if all == nil {
			all = hdrhistogram.New(d.LowestTrackableValue(), d.HighestTrackableValue(), int(d.SignificantFigures()))
		}
		all.Merge(d)
		if have := byTurn[h.Turn]; have != nil {
			have.Merge(d)
		} else {
			byTurn[h.Turn] = d
		}
	}
	return all, byTurn, nil
}

// gapQuantile is a quantile of a histogram of nanoseconds, in milliseconds; NaN of an empty one.
func gapQuantile(h *hdrhistogram.Histogram, p float64) float64 {
	if h == nil || h.TotalCount() == 0 {
		return math.NaN()
	}
	return millis(time.Duration(h.ValueAtQuantile(100 * p)))
}

// byTurn are the figures of each turn index.
func byTurn(w window, itl map[int]*hdrhistogram.Histogram) []measurement.TurnResult {
	groups := map[int]some{}
	for _, part := range []some{w.warm, w.measured} {
		for at, t := range part.numbered {
			groups[t.Turn] = some{part.of, append(groups[t.Turn].at, at)}
		}
	}
	out := []measurement.TurnResult{}
	for turn, ts := range groups {
		var found hits
		prompt := make([]float64, 0, ts.len())
		for t := range ts.each {
			found.add(t)
			if t.PromptTokens >= 0 {
				prompt = append(prompt, float64(t.PromptTokens))
			}
		}
		ttft := ascending(waitsOf(ts, (*measurement.Turn).TTFT))
		out = append(out, measurement.TurnResult{Turn: turn, Turns: ts.len(), TTFTP50: quantile(ttft, .5), TTFTP95: quantile(ttft, .95),
			ITLP50: figure(gapQuantile(itl[turn], .5)), ITLP95: figure(gapQuantile(itl[turn], .95)),
			CacheHitRate: figure(found.rate()), PromptP50: quantile(ascending(prompt), .5)})
	}
	slices.SortFunc(out, func(a, b measurement.TurnResult) int { return cmp.Compare(a.Turn, b.Turn) })
	return out
}

// verdict judges a step by the objectives, whose values at tells (NaN when it cannot, +Inf when censored); sent tells quantiles
// of TTFT counted from when turns were sent. A step that was cut is undecided whatever its figures. Over an objective, with too
// many errors or without a P95 for want of first tokens, a step fails whatever else is doubtful, unless the generator was late
// and from sent on the objective holds: then the miss is the generator's. A step that was ended because it was certain to fail
// fails, also where the turns still open then bring its figures back to a limit. It passes only when nothing that could flatter
// it is.
func verdict(slo []measurement.Objective, r measurement.StepResult, at func(measurement.Objective) float64, sent func(p float64) float64) measurement.Verdict {
	if incomplete(r) {
		return measurement.Undecided
	}
	known, own := r.MeasuredTurns > 0, false
	for _, o := range append([]measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: math.MaxFloat64}}, slo...) {
		switch v := at(o); {
		case v > o.LimitMS && o.Metric == "ttft" && sent(o.Quantile) <= o.LimitMS && slices.Contains(r.Flags, measurement.FlagClientLimited):
			known, own = false, true
		case v > o.LimitMS:
			return measurement.Fail
		case math.IsNaN(v) && o.LimitMS < math.MaxFloat64:
			known = false
		}
	}
	if r.ErrorRate != nil && *r.ErrorRate >= maxErrorRate || !own && slices.Contains(r.Flags, measurement.FlagEarlyFail) {
		return measurement.Fail
	}
	for _, f := range []string{measurement.FlagClientLimited, measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated} {
		known = known && !slices.Contains(r.Flags, f)
	}
	if !known {
		return measurement.Undecided
	}
	return measurement.Pass
}

// ttftLimit is the tightest TTFT limit in milliseconds; NaN when there is none.
func ttftLimit(slo []measurement.Objective) float64 {
	limit := math.NaN()
	for _, o := range slo {
		if o.Metric == "ttft" && !(o.LimitMS >= limit) {
			limit = o.LimitMS
		}
	}
	return limit
}

func objectiveQuantiles(slo []measurement.Objective) []float64 {
	var out []float64
	for _, o := range slo {
		if o.Metric == "ttft" {
			out = append(out, o.Quantile)
		}
	}
	return out
}

// littlesLaw compares the turns in flight, counted as they began and ended, with what the turns' own times add up to within
// the window (Little 1961: L = λW, here without its edge terms, since every turn's overlap with the window is known). A
// difference of more than a twentieth means that turns were lost or counted twice.
func littlesLaw(u unit, s measurement.Step, turns some) string {
	var busy time.Duration
	for t := range turns.each {
		if t.Sent >= 0 && t.End >= 0 {
			busy += max(0, min(t.End, s.WindowEnd)-max(t.Sent, s.WindowStart))
		}
	}
	computed := busy.Seconds() / (s.WindowEnd - s.WindowStart).Seconds()
	gap := math.Abs(s.LiveTurnsMean - computed)
	if gap <= littlesLawEdge*max(s.LiveTurnsMean, computed) || gap < .01 {
		return ""
	}
	return fmt.Sprintf("step %d (%s): %s turns in flight were counted but their times add up to %s: turns may be missing from the log",
		s.Step, u.of(s.Rate), sig(s.LiveTurnsMean), sig(computed))
}
