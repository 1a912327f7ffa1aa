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
	r, _ := analyzeStep(c, s, turns, samples)
	return r
}

func analyzeStep(c measurement.Config, s measurement.Step, turns []measurement.Turn, samples []measurement.EngineSample) (measurement.StepResult, []string) {
	var warnings []string
	in := windowTurns(s, turns)
	r := measurement.StepResult{Step: s.Step, Rate: s.Rate, WindowS: in.length.Seconds(), NotSentTurns: in.notSent,
		MeasuredTurns: len(in.measured), ErrorKinds: in.kinds,
		Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{}}
	complete := s.WindowEnd >= 0
	perSecond := func(n float64) *float64 { return figure(n / r.WindowS) } // absent when no window has passed

	arrived := s.ArrivedCalls
	if !complete {
		if arrived = len(in.warm); c.Lone() {
			arrived = len(in.measured)
		}
	}
	r.ArrivedRate = perSecond(float64(arrived))
	sentTurns := 0
	for _, t := range in.counted() {
		if ownFault(t) {
			continue
		}
		sentTurns++
		if t.Outcome.Failed() {
			r.Errors++
		}
	}
	r.ErrorRate = figure(float64(r.Errors) / float64(sentTurns))

	waits := firstTokens(in.measured, (*measurement.Turn).TTFT)
	ttft := sorted(waits)
	sum := 0.
	for _, w := range waits {
		sum += w
	}
	r.TTFTMean = figure(sum / float64(len(waits)))
	r.TTFTP50, r.TTFTP95, r.TTFTP99 = quantile(ttft, .5), quantile(ttft, .95), quantile(ttft, .99)
	if r.TTFTP95 == nil && len(ttft) > 0 {
		r.TTFTP95AtLeast = figure(measurement.Quantile(sorted(firstTokens(in.measured, atLeast)), .95))
	}
	lo, hi := quantileInterval(waits, .95)
	r.TTFTP95CI = [2]*float64{figure(lo), figure(hi)}
	decide(&r, c, waits, s.EarlyFail)
	sent := sorted(firstTokens(in.measured, (*measurement.Turn).TTFTSent))
	r.TTFTSentP95 = quantile(sent, .95)
	r.WarmTTFTP50 = quantile(sorted(firstTokens(in.warm, (*measurement.Turn).TTFT)), .5)
	r.TPOTP50 = quantile(sorted(tpots(in.measured)), .5)

	itl, itlByTurn, err := mergeITL(s.ITL)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("step %d (%s): %v; its gaps between tokens are left out", s.Step, unitOf(c).of(s.Rate), err))
	}
	if buffered(in.measured) {
		itl, itlByTurn = nil, nil
	}
	r.ITLP50, r.ITLP95, r.ITLP99 = figure(gapQuantile(itl, .5)), figure(gapQuantile(itl, .95)), figure(gapQuantile(itl, .99))
	if itl != nil {
		r.ITLBasis = basis(in.measured)
	}

	r.Times = times(in.measured, itl)
	ok, tokens := 0, 0
	for _, t := range in.measured {
		if t.Outcome == measurement.OK {
			ok++
		}
		if t.Dialed > 0 {
			r.Dialed++
		}
		tokens += max(t.CompletionTokens, 0)
	}
	r.ThroughputTurns, r.OutputTokens = perSecond(float64(ok)), perSecond(float64(tokens))
	r.CacheHitRate = figure(hitRate(in.measured))
	var busy time.Duration
	for _, t := range in.all {
		r.Retries += t.Retries
		if t.End > t.Due {
			busy += t.End - t.Due
		}
	}
	r.AchievedConcurrency = perSecond(busy.Seconds())
	r.ScheduleLagP99 = quantile(sorted(lags(in.all)), .99)
	if complete {
		r.LiveTurnsMean, r.LiveCallsMean, r.LiveCallsMax = figure(s.LiveTurnsMean), figure(s.LiveMean), &s.LiveMax
		r.InFlightSlope = figure(float64(s.InFlightEnd-s.InFlightStart) / float64(len(in.all)))
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
	arrived, failed := 0, 0
	for _, t := range in.counted() {
		if t.Outcome == measurement.Shed {
			return nil
		}
		arrived++
		if t.Outcome.Failed() {
			failed++
		}
	}
	if s.HeldCalls > 0 || arrived == 0 {
		return nil
	}
	growth := float64(s.InFlightEnd - s.InFlightStart)
	if math.Abs(growth) <= growthZ*math.Sqrt(float64(s.InFlightEnd+s.InFlightStart)) {
		growth = 0
	}
	return figure(1 - min(1, (max(0, growth)+float64(failed))/float64(arrived)))
}

// window holds the turns of one step that were due in its window, in the order sent.
type window struct {
	length   time.Duration
	all      []*measurement.Turn // sent, shed or canceled
	warm     []*measurement.Turn // turn 1, without the canceled
	measured []*measurement.Turn // turn 2 and later, without the canceled
	canceled int
	notSent  int
	kinds    map[measurement.Outcome]int
	first    []*measurement.Turn // every turn 1 of the step, whenever it was due
}

// counted are the turns that error rates are made of.
func (w *window) counted() []*measurement.Turn { return append(slices.Clone(w.warm), w.measured...) }

func windowTurns(s measurement.Step, turns []measurement.Turn) window {
	w := window{length: s.WindowEnd - s.WindowStart, all: make([]*measurement.Turn, 0, len(turns))}
	last := s.WindowStart
	for i := range turns {
		t := &turns[i]
		if t.Step != s.Step {
			continue
		}
		if t.Turn == 1 && t.Outcome != measurement.NotSent {
			w.first = append(w.first, t)
		}
		if s.WindowStart < 0 || !s.InWindow(t.Due) {
			continue
		}
		last = max(last, t.Due, t.End)
		if t.Outcome == measurement.NotSent {
			w.notSent++
			continue
		}
		w.all = append(w.all, t)
	}
	if s.WindowEnd < 0 {
		w.length = last - s.WindowStart
	}
	slices.SortFunc(w.all, func(a, b *measurement.Turn) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Turn, b.Turn))
	})
	w.measured = make([]*measurement.Turn, 0, len(w.all))
	for _, t := range w.all {
		if t.Outcome.Failed() {
			if w.kinds == nil {
				w.kinds = map[measurement.Outcome]int{}
			}
			w.kinds[t.Outcome]++
		}
		switch {
		case t.Outcome == measurement.Canceled:
			w.canceled++
		case t.Turn == 1:
			w.warm = append(w.warm, t)
		default:
			w.measured = append(w.measured, t)
		}
	}
	return w
}

// firstTokens are the waits for the first token in milliseconds, in order; +Inf for a turn that failed without one.
func firstTokens(turns []*measurement.Turn, wait func(*measurement.Turn) (time.Duration, bool)) []float64 {
	out := make([]float64, 0, len(turns))
	for _, t := range turns {
		if d, ok := wait(t); ok {
			out = append(out, millis(d))
		} else if t.Outcome.Failed() && !ownFault(t) {
			out = append(out, math.Inf(1))
		}
	}
	return out
}

// atLeast is a turn's TTFT, or how long it had been due when it was given up without a token.
func atLeast(t *measurement.Turn) (time.Duration, bool) {
	if d, ok := t.TTFT(); ok || !t.Outcome.Failed() {
		return d, ok
	}
	return t.End - t.Due, t.End >= t.Due
}

func tpots(turns []*measurement.Turn) []float64 {
	out := make([]float64, 0, len(turns))
	for _, t := range turns {
		if d, ok := t.TPOT(); ok && t.Outcome == measurement.OK {
			out = append(out, millis(d))
		}
	}
	return out
}

func lags(turns []*measurement.Turn) []float64 {
	out := make([]float64, 0, len(turns))
	for _, t := range turns {
		if d, ok := t.Lag(); ok {
			out = append(out, millis(d))
		}
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sorted(v []float64) []float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v
}

func quantile(sorted []float64, p float64) *float64 { return figure(measurement.Quantile(sorted, p)) }

// hitRate is the cached share of the prompt tokens of those turns whose cached tokens are known; NaN when there are none.
func hitRate(turns []*measurement.Turn) float64 {
	cached, prompt := 0, 0
	for _, t := range turns {
		if hitKnown(t) {
			cached += t.CachedTokens
			prompt += t.PromptTokens
		}
	}
	return float64(cached) / float64(prompt)
}

// ownFault reports whether a turn failed for a reason that is this side's: it was never sent, or this side was out of files or
// ports. It says nothing of the server and counts in none of its figures.
func ownFault(t *measurement.Turn) bool { return t.Outcome == measurement.Shed || t.Local }

// basis says what a gap between events is: one token each, as far as the answers' own counts show, or a chunk of several.
func basis(measured []*measurement.Turn) string {
	events, tokens := 0, 0
	for _, t := range measured {
		if t.Outcome == measurement.OK && t.CompletionTokens > 0 {
			events += t.Events
			tokens += t.CompletionTokens
		}
	}
	switch {
	case tokens == 0:
		return "" // nobody said how many tokens there were
	case float64(events) >= tokenBasis*float64(tokens):
		return "token"
	}
	return "chunk"
}

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

func byTurn(w window, itl map[int]*hdrhistogram.Histogram) []measurement.TurnResult {
	groups := map[int][]*measurement.Turn{}
	for _, t := range w.counted() {
		groups[t.Turn] = append(groups[t.Turn], t)
	}
	out := []measurement.TurnResult{}
	for turn, ts := range groups {
		ttft := sorted(firstTokens(ts, (*measurement.Turn).TTFT))
		var prompt []float64
		for _, t := range ts {
			if t.PromptTokens >= 0 {
				prompt = append(prompt, float64(t.PromptTokens))
			}
		}
		out = append(out, measurement.TurnResult{Turn: turn, Turns: len(ts), TTFTP50: quantile(ttft, .5), TTFTP95: quantile(ttft, .95),
			ITLP50: figure(gapQuantile(itl[turn], .5)), ITLP95: figure(gapQuantile(itl[turn], .95)),
			CacheHitRate: figure(hitRate(ts)), PromptP50: quantile(sorted(prompt), .5)})
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
func littlesLaw(u unit, s measurement.Step, turns []measurement.Turn) string {
	var busy time.Duration
	for _, t := range turns {
		if t.Step == s.Step && t.Sent >= 0 && t.End >= 0 {
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
