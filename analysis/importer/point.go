package importer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// axis is what a tool varies: the rate at which requests are sent, or how many are kept going at once.
type axis string

const (
	rateAxis        axis = "rate"
	concurrencyAxis axis = "concurrency"
)

// point is one load of one run, as a file of any tool tells it. Figures are milliseconds, seconds, tokens; NaN where the file
// does not tell.
type point struct {
	at       string // file:line, for what is said of it
	kind     Kind
	axis     axis
	load     float64
	loadFrom string // "" when the file names the load; else a sentence on where it is taken from
	arrivals string // of measurement.Config
	engine   measurement.Engine
	group    string // what else tells curves apart: dataset, lengths, deployment
	config   measurement.Config

	ttft, itl, tpot, e2e spread
	itlBasis             string
	tpotTold             float64 // what the tool calls so, where that is something else; ms

	ok, failed, issued  float64 // requests
	duration            float64 // s, from the first send to the last answer
	offered             float64 // requests/s: sends over the time in which they were sent
	throughput          float64 // completions/s
	calls, allTurns     float64 // of our own runs: calls that came in the window, turns that ended in it
	outputRate          float64 // tokens/s
	inputLen, outputLen float64 // tokens a request, mean
	inputSum, outputSum float64 // tokens
	inFlight            float64 // measured, mean
	cacheHit            float64 // share
	saturation          float64 // completions or sends per request asked
	lagP95, lagP99      float64 // ms

	busy    float64                 // of our own runs: turns in flight, as their own times add up
	well    float64                 // of our own runs: measured turns that ended well, where ok counts first turns too
	ofCalls bool                    // the load counts calls, as ours do
	whole   *measurement.StepResult // the step itself, where a file of ours holds it

	turns   []measurement.Turn // single requests, where the file holds them
	timed   bool               // they have instants, not only durations
	dueTold bool               // and when each was due, not only when it was sent

	buckets []bucket // of TTFT in seconds, where it is read from a histogram

	bound string // what stands for a quantile that the file does not hold
	flags []string
	notes []string // what must be said once of the whole curve
	own   []string // what must be said of this point
}

func newPoint(kind Kind, at string) point {
	nan := math.NaN()
	return point{kind: kind, at: at, axis: rateAxis, load: nan, arrivals: "unknown",
		ttft: noSpread(), itl: noSpread(), tpot: noSpread(), e2e: noSpread(), ok: nan, failed: nan, issued: nan, duration: nan, offered: nan,
		throughput: nan, calls: nan, allTurns: nan, outputRate: nan, busy: nan, well: nan, inputLen: nan, outputLen: nan, inputSum: nan, outputSum: nan, inFlight: nan, cacheHit: nan,
		saturation: nan, lagP95: nan, lagP99: nan, tpotTold: nan}
}

// spread is a distribution in milliseconds, as far as it is told.
type spread struct {
	mean, min float64
	quantiles map[float64]float64
	censored  float64 // the lowest quantile that is infinite; NaN where none is
}

func noSpread() spread { return spread{math.NaN(), math.NaN(), map[float64]float64{}, math.NaN()} }

// told reports whether anything is known of it.
func (s spread) told() bool {
	return len(s.quantiles) > 0 || !math.IsNaN(s.mean) || finite(s.censored)
}

// infinite reports whether a quantile is: so many requests were never answered.
func (s spread) infinite(p float64) bool { return p >= s.censored }

// at is a quantile, absent where the file has none: never made up from others.
func (s spread) at(p float64) *float64 {
	if v, ok := s.quantiles[p]; ok {
		return &v
	}
	return nil
}

func (s *spread) set(p, v float64) {
	switch {
	case finite(v):
		s.quantiles[p] = v
	case math.IsInf(v, 1) && !(s.censored <= p):
		s.censored = p
	}
}

// noTimes takes out what no time can be, and says which figures they were.
func (s *spread) noTimes() (out []string) {
	for _, q := range slices.Sorted(maps.Keys(s.quantiles)) {
		if v := s.quantiles[q]; v < 0 {
			out = append(out, fmt.Sprintf("P%s is %s ms", short(100*q), short(v)))
			delete(s.quantiles, q)
		}
	}
	for _, f := range []struct {
		name string
		v    *float64
	}{{"the mean", &s.mean}, {"the least", &s.min}} {
		if *f.v < 0 {
			out = append(out, fmt.Sprintf("%s is %s ms", f.name, short(*f.v)))
			*f.v = math.NaN()
		}
	}
	return out
}

// forget empties it: it was of no request.
func (s *spread) forget() { *s = noSpread() }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func figure(v float64) *float64 {
	if !finite(v) {
		return nil
	}
	return &v
}

// known is a if it is a number, else b.
func known(a, b float64) float64 {
	if !math.IsNaN(a) {
		return a
	}
	return b
}

// asked takes the lengths of prompts and answers that a tool says it asked for.
func (p *point) asked(input, output float64) {
	if input > 0 {
		p.config.UserTokens = int(min(input, 1e9))
	}
	if output > 0 {
		p.config.OutputTokens = int(min(output, 1e9))
	}
}

func (p *point) note(sentence string) { p.notes = append(p.notes, sentence) }

func (p *point) doubt(format string, args ...any) {
	p.own = append(p.own, p.at+": "+fmt.Sprintf(format, args...))
}

// setLoad takes a rate asked, or a limit of requests at once: a rate that is infinite leaves the limit, and the load is a closed
// loop. ok is false when neither is a number.
func (p *point) setLoad(rate, limit float64) bool {
	switch {
	case finite(rate) && rate > 0:
		p.axis, p.load = rateAxis, rate
		if finite(limit) && limit > 0 {
			p.config.MaxConcurrentCalls = int(min(limit, 1e9))
			p.note(fmt.Sprintf("At most %s requests were let in flight at once: what waited for a place is in no latency of the file.", short(limit)))
		}
	case finite(limit) && limit > 0:
		p.axis, p.load, p.arrivals = concurrencyAxis, limit, closedLoop
	default:
		return false
	}
	return true
}

const closedLoop = "closed"

// normal puts right what tools write down for want of anything better: figures of no request, failures that came as zero.
func (p *point) normal() {
	for _, of := range []struct {
		name string
		in   *spread
	}{{"TTFT", &p.ttft}, {"ITL", &p.itl}, {"TPOT", &p.tpot}, {"E2E", &p.e2e}} {
		if bad := of.in.noTimes(); len(bad) > 0 {
			p.doubt("of %s %s, and no time is negative: taken as absent.", of.name, strings.Join(bad, " and "))
		}
	}
	for _, of := range []struct {
		name string
		v    *float64
		most float64
	}{{"duration", &p.duration, math.Inf(1)}, {"rate of completions", &p.throughput, math.Inf(1)}, {"rate that was sent", &p.offered, math.Inf(1)}, {"rate of output tokens", &p.outputRate, math.Inf(1)},
		{"number in flight", &p.inFlight, math.Inf(1)}, {"number of answers", &p.ok, math.Inf(1)}, {"number of failures", &p.failed, math.Inf(1)}, {"cache hit rate", &p.cacheHit, 1}} {
		if *of.v < 0 || *of.v > of.most {
			p.doubt("the %s is %s, which it cannot be: taken as absent.", of.name, short(*of.v))
			*of.v = math.NaN()
		}
	}
	if p.ok == 0 {
		p.ttft.forget()
		p.itl.forget()
		p.tpot.forget()
		p.e2e.forget()
		if p.failed > 0 {
			p.doubt("all %s requests failed, so there is no latency.", short(p.failed))
		} else {
			p.doubt("the step holds no request.")
		}
	}
	if p.ttft.min == 0 {
		p.doubt("the least TTFT is 0: failed requests are pooled with the answered ones, and every percentile is too low.")
	}
	if v := p.ttft.at(.95); v != nil {
		if lo, hi, ok := bucketBehind(.95, *v); ok {
			p.doubt("P95 TTFT is %s ms: %s.", short(*v), bucketSays(lo, hi))
		}
	}
	if p.itlBasis == "" && p.itl.told() && p.tpot.mean > 0 {
		switch r := p.itl.mean / p.tpot.mean; {
		case r > 1.05:
			p.itlBasis = "chunk"
		case r > .9:
			p.itlBasis = "token"
		}
	}
}

// step makes a step of a curve out of a point.
func (p *point) step(n int, slo []measurement.Objective) measurement.StepResult {
	if len(p.turns) > 0 {
		return p.stepOfTurns(n, slo)
	}
	if p.whole != nil {
		s := *p.whole
		s.Rate = p.load
		return s
	}
	s := measurement.StepResult{Step: n, Rate: p.load, WindowS: known(p.duration, 0), Flags: append([]string{}, p.flags...),
		Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{},
		ArrivedRate: figure(p.offered), ThroughputTurns: figure(p.throughput), OutputTokens: figure(p.outputRate), CacheHitRate: figure(p.cacheHit),
		TTFTP50: p.ttft.at(.5), TTFTP95: p.ttft.at(.95), TTFTP99: p.ttft.at(.99), TTFTSentP95: p.ttft.at(.95),
		ITLP50: p.itl.at(.5), ITLP95: p.itl.at(.95), ITLP99: p.itl.at(.99), ITLBasis: p.itlBasis, TPOTP50: p.tpot.at(.5),
		AchievedConcurrency: figure(p.throughput * p.e2e.mean / 1000), LiveTurnsMean: figure(p.inFlight), LiveCallsMean: figure(p.inFlight),
		ScheduleLagP99: figure(p.lagP99), SaturationRatio: figure(min(p.saturation, 1)),
	}
	count := known(known(p.ok+known(p.failed, 0), p.issued), math.Round(p.throughput*p.duration))
	if math.IsNaN(count) {
		count = 1
		p.note(fmt.Sprintf("How many requests were made the files of %s do not say: each step counts as one, and all weigh alike.", p.kind))
	}
	s.MeasuredTurns, s.Errors = int(min(count, 1e12)), int(min(known(p.failed, 0), 1e12))
	if finite(p.failed) && count > 0 {
		s.ErrorRate = figure(p.failed / count)
		s.SaturationRatio = figure(min(p.saturation, 1) * (1 - p.failed/count)) // a failure is no completion
	}
	if count == 0 {
		s.SaturationRatio = nil
	}
	for _, o := range slo {
		s.Objectives = append(s.Objectives, measurement.ObjectiveResult{Objective: o, ValueMS: p.spreadOf(o.Metric).at(o.Quantile)})
	}
	if s.ErrorRate != nil && *s.ErrorRate >= .02 {
		s.Flags = append(s.Flags, measurement.FlagErrors)
	}
	if finite(p.ttft.censored) && count > 0 {
		s.Flags = append(s.Flags, measurement.FlagCensored)
	}
	late := p.lagP99 > max(5, .02*ttftLimit(slo))
	if (p.kind == Fortio || p.kind == InferencePerf) && p.axis == rateAxis && p.offered < capSent*p.load {
		late = true // what was not sent in time waited, and is in no latency
	}
	if late {
		s.Flags = append(s.Flags, measurement.FlagClientLimited)
	}
	s.Verdict = p.verdict(&s, slo)
	return s
}

func (p *point) spreadOf(metric string) *spread {
	if metric == "itl" {
		return &p.itl
	}
	return &p.ttft
}

func ttftLimit(slo []measurement.Objective) float64 {
	limit := 0.
	for _, o := range slo {
		if o.Metric == "ttft" && (limit == 0 || o.LimitMS < limit) {
			limit = o.LimitMS
		}
	}
	return limit
}

// verdict is that of a step whose objective's own quantile the file may not hold: a lower quantile over the limit fails it, a
// higher one within the limit passes it, since quantiles do not fall; else it is undecided.
func (p *point) verdict(s *measurement.StepResult, slo []measurement.Objective) measurement.Verdict {
	decided := true
	for _, o := range slo {
		sp := p.spreadOf(o.Metric)
		if sp.at(o.Quantile) != nil {
			continue
		}
		if sp.infinite(o.Quantile) {
			p.bound = fmt.Sprintf("P%s %s is infinite (limit %s ms)", short(100*o.Quantile), metricName(o.Metric), short(o.LimitMS))
			return measurement.Fail
		}
		over, within := math.NaN(), math.NaN()
		for q, v := range sp.quantiles {
			if q < o.Quantile && v > o.LimitMS && !(over > q) {
				over = q
			}
			if q > o.Quantile && v <= o.LimitMS && !(within < q) {
				within = q
			}
		}
		name := fmt.Sprintf("P%s %s", short(100*o.Quantile), metricName(o.Metric))
		switch {
		case finite(over):
			p.bound = fmt.Sprintf("P%s %s is %s ms already (limit %s ms at P%s)", short(100*over), metricName(o.Metric), short(sp.quantiles[over]), short(o.LimitMS), short(100*o.Quantile))
			p.doubt("it holds no %s, but P%s is %s ms already, over the limit of %s ms: it fails.", name, short(100*over), short(sp.quantiles[over]), short(o.LimitMS))
			return measurement.Fail
		case finite(within):
			p.bound = fmt.Sprintf("P%s %s is %s ms (limit %s ms at P%s)", short(100*within), metricName(o.Metric), short(sp.quantiles[within]), short(o.LimitMS), short(100*o.Quantile))
			p.doubt("it holds no %s, but P%s is %s ms, within the limit of %s ms: that one is too.", name, short(100*within), short(sp.quantiles[within]), short(o.LimitMS))
		default:
			decided = false
		}
	}
	if !decided {
		if s.ErrorRate != nil && *s.ErrorRate >= .02 {
			return measurement.Fail
		}
		return measurement.Undecided
	}
	return analysis.Judge(*s, heldBy(s, slo))
}

// heldBy are the objectives whose quantile the step holds.
func heldBy(s *measurement.StepResult, slo []measurement.Objective) []measurement.Objective {
	return slices.DeleteFunc(slices.Clone(slo), func(o measurement.Objective) bool {
		return !slices.ContainsFunc(s.Objectives, func(h measurement.ObjectiveResult) bool { return h.Objective == o && h.ValueMS != nil })
	})
}

func metricName(metric string) string {
	if metric == "itl" {
		return "ITL"
	}
	return "TTFT"
}

// stepOfTurns analyses single requests by the rules of our own runs. Requests of which none belongs to a conversation of several
// turns are all measured; of conversations the first turn is cold and stands apart, as in our own runs.
func (p *point) stepOfTurns(n int, slo []measurement.Objective) measurement.StepResult {
	several := slices.ContainsFunc(p.turns, func(t measurement.Turn) bool { return t.Turn > 1 })
	turns, gaps := slices.Clone(p.turns), measurement.NewHistogram()
	for i := range turns {
		t := &turns[i]
		t.Step = n
		if !several {
			t.Turn = 2
		}
		if t.Turn > 1 && t.Outcome == measurement.OK {
			for _, g := range t.Gaps {
				measurement.RecordGap(gaps, g)
			}
		}
	}
	s := measurement.Step{Step: n, Rate: p.load}
	if p.timed {
		s = frame(s, turns)
	}
	if gaps.TotalCount() > 0 {
		if h, err := measurement.EncodeHistogram(2, gaps); err == nil {
			s.ITL = append(s.ITL, h)
		}
	}
	r := analysis.AnalyzeStep(measurement.Config{SLO: slo, Arrivals: p.arrivals}, s, turns, nil)
	r.WindowS = known(p.duration, r.WindowS)
	r.ThroughputTurns, r.OutputTokens = figure(known(p.throughput, value(r.ThroughputTurns))), figure(known(p.outputRate, value(r.OutputTokens)))
	if !p.timed {
		r.ArrivedRate, r.AchievedConcurrency, r.InFlightSlope, r.SaturationRatio = figure(p.offered), figure(p.throughput*p.e2e.mean/1000), nil, figure(min(p.saturation, 1))
		r.LiveTurnsMean, r.LiveCallsMean, r.LiveCallsMax, r.ScheduleLagP99 = figure(p.inFlight), figure(p.inFlight), nil, figure(p.lagP99)
		r.Flags = slices.DeleteFunc(r.Flags, func(f string) bool { return f == measurement.FlagOffRate })
	} else {
		r.LiveCallsMean, r.LiveCallsMax = r.LiveTurnsMean, nil
	}
	if !p.dueTold {
		r.ScheduleLagP99 = figure(p.lagP99)
	}
	if p.arrivals == closedLoop {
		r.SaturationRatio, r.InFlightSlope = nil, nil
		r.Flags = slices.DeleteFunc(r.Flags, func(f string) bool {
			return f == measurement.FlagOffRate || f == measurement.FlagUnstable
		})
	}
	if p.itlBasis != "" && r.ITLP50 != nil {
		r.ITLBasis = p.itlBasis
	}
	if !several { // nor is there a later turn that could find a warm prefix
		r.Flags = slices.DeleteFunc(r.Flags, func(f string) bool { return f == measurement.FlagColdCache })
		for i := range r.ByTurn {
			r.ByTurn[i].Turn = 1
		}
	} else {
		p.note("The first turn of each conversation is taken as cold and stands apart from the percentiles, which therefore differ from the tool's own.")
	}
	for _, f := range p.flags {
		if !slices.Contains(r.Flags, f) {
			r.Flags = append(r.Flags, f)
		}
	}
	return r
}

// frame says when the step of timed requests began and ended, and what was in flight at its ends. A run starts empty: growth is
// counted from when the first answers have come, for what is in flight before is no backlog.
func frame(s measurement.Step, turns []measurement.Turn) measurement.Step {
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	var longest time.Duration
	for _, t := range turns {
		first, last = min(first, t.Due), max(last, t.Due)
	}
	quarter := first + (last-first)/4
	for _, t := range turns {
		if t.Due <= quarter && t.End > t.Due {
			longest = max(longest, t.End-t.Due)
		}
	}
	s.Start, s.WindowStart, s.WindowEnd, s.DrainEnd, s.ArrivedCalls = first, first, last, last, len(turns)
	if n := time.Duration(len(turns)); n > 1 && last > first {
		s.WindowEnd = first + (last-first)/(n-1)*n
	}
	at := func(when time.Duration) (n int) {
		for _, t := range turns {
			if t.Due <= when && t.End > when {
				n++
			}
		}
		return n
	}
	s.InFlightEnd = at(last)
	s.InFlightStart = s.InFlightEnd
	if early := first + longest; early < first+(last-first)/2 {
		s.InFlightStart = at(early)
	}
	var busy time.Duration
	for _, t := range turns {
		busy += max(0, min(t.End, s.WindowEnd)-t.Due)
	}
	if w := s.WindowEnd - s.WindowStart; w > 0 {
		s.LiveTurnsMean = busy.Seconds() / w.Seconds()
		s.LiveMean = s.LiveTurnsMean
	}
	return s
}

func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// short writes a figure as it stands in sentences.
func short(v float64) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return analysis.Digits(v, 4)
}

// request makes a turn of a request's times: start is since the run began, the others since start; NaN for what never came.
func request(call int, start, ttft, end float64, gaps []float64) measurement.Turn {
	t := measurement.NewTurn()
	t.Call, t.Turn, t.Outcome = call, 1, measurement.OK
	t.Due = instant(start)
	t.Sent = t.Due
	t.End = t.Due
	if finite(ttft) && ttft >= 0 {
		t.FirstToken = t.Due + span(ttft)
		t.LastToken, t.End = t.FirstToken, t.FirstToken
		t.Events = 1
		for _, g := range gaps {
			if !finite(g) || g < 0 {
				continue
			}
			t.Gaps = append(t.Gaps, span(g))
			t.LastToken += span(g)
			t.Events++
		}
		t.End = t.LastToken
	}
	if finite(end) && end >= 0 {
		t.End = max(t.End, t.Due+span(end))
		if len(t.Gaps) == 0 && t.FirstToken >= 0 {
			t.LastToken = t.End
		}
	}
	return t
}

// failed marks a turn as a failure of a kind that other tools do not tell apart: only that an answer was not had.
func failed(t measurement.Turn, detail string) measurement.Turn {
	t.Outcome, t.Detail, t.FirstToken, t.LastToken, t.Gaps, t.Events = measurement.StreamError, "", measurement.Never, measurement.Never, nil, 0
	if detail != "" {
		t.Detail = "as the file tells"
	}
	return t
}

// longest is the longest time that a figure of a file can stand for; more is no time.
const longest = 1e6 // s

func span(s float64) time.Duration {
	return time.Duration(min(max(s, 0), longest) * float64(time.Second))
}

func instant(s float64) time.Duration {
	if !finite(s) {
		return 0
	}
	return span(s)
}
