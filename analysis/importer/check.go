package importer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// Outcome says how a consistency check came out.
type Outcome string

// The outcomes of a check. Untold means that the file does not hold the figures, or that they need not agree; Figures then say why.
const (
	Consistent Outcome = "ok"
	Doubtful   Outcome = "doubtful"
	Untold     Outcome = "cannot tell"
)

// Check is one test of whether a file's figures agree with each other.
type Check struct {
	At      string // file:line
	Load    string // at which it was made
	Name    string
	Figures string // that were compared; "" when they are not there
	Outcome Outcome
	Says    string // what it means, where it is doubtful
}

// Lint checks the figures of a file against each other, each load by itself; a run at one load is as good as many. The error says why a file
// cannot be read. It may be called by many goroutines at once.
func Lint(f File) ([]Check, Found, error) {
	c, err := parse(f)
	if err != nil {
		return nil, Found{}, err
	}
	points := joinRecords(c.points)
	for _, r := range append(c.own, c.judged(nil)...) {
		points = append(points, ownPoints(f, r, c.log)...)
	}
	var out []Check
	for i := range points {
		p := &points[i]
		p.fromTurns()
		for _, check := range []func(*point) Check{tokenCount, tokensPerEvent, tpotHoldsTTFT, littlesLaw, offeredRate, zeroTTFT, rising, allAccounted, tokenSums, ofBuckets} {
			k := check(p)
			k.At, k.Load = p.at, loadText(*p)
			if !finite(p.load) {
				k.Load = "all at once"
			}
			if k.Figures == "" {
				k.Outcome = Untold
			}
			out = append(out, k)
		}
	}
	return out, Found{Name: f.Name, Kind: c.kind, Steps: len(points)}, nil
}

// ownPoints are the steps of our own results, as far as the checks need them, and of the turns of the log that they were made of, if
// it is at hand.
func ownPoints(f File, r measurement.Results, log *measurement.Log) []point {
	var out []point
	for _, s := range r.Steps {
		p := newPoint(OwnResults, fmt.Sprintf("%s (step %d)", f.Name, s.Step))
		p.load = s.Rate
		if r.Config.Arrivals == closedLoop {
			p.axis = concurrencyAxis
		}
		p.ofCalls = r.Config.LoadOf == ""
		p.ofOwnStep(s)
		p.flags = s.Flags
		for _, q := range []struct {
			into *spread
			p    float64
			ms   *float64
		}{{&p.ttft, .5, s.TTFTP50}, {&p.ttft, .95, s.TTFTP95}, {&p.ttft, .99, s.TTFTP99}, {&p.itl, .5, s.ITLP50}, {&p.itl, .95, s.ITLP95}, {&p.itl, .99, s.ITLP99}, {&p.tpot, .5, s.TPOTP50}} {
			q.into.set(q.p, value(q.ms))
		}
		if log != nil {
			i := slices.IndexFunc(log.Steps, func(x measurement.Step) bool { return x.Step == s.Step })
			p.ofOwnTurns(log.Steps[i], log.Turns)
		}
		out = append(out, p)
	}
	return out
}

// ofOwnStep takes what the checks need of a step of ours.
func (p *point) ofOwnStep(s measurement.StepResult) {
	p.inFlight, p.busy, p.offered = value(s.LiveTurnsMean), value(s.AchievedConcurrency), value(s.ArrivedRate)
	p.throughput = known(p.throughput, value(s.ThroughputTurns))
	p.calls, p.allTurns = p.offered*s.WindowS, p.throughput*s.WindowS
	p.duration, p.outputRate = s.WindowS, value(s.OutputTokens)
}

// fromTurns fills in what a file holds only as single requests.
func (p *point) fromTurns() {
	if len(p.turns) == 0 {
		return
	}
	if p.timed && math.IsNaN(p.offered) && p.axis == rateAxis {
		s := frame(measurement.Step{}, p.turns)
		if w := (s.WindowEnd - s.WindowStart).Seconds(); w > 0 {
			p.offered = float64(len(p.turns)) / w
		}
	}
	var ttft, tpot, gaps, tokens, n, m, g float64
	least := math.Inf(1)
	for i := range p.turns {
		t := &p.turns[i]
		if t.Outcome != measurement.OK {
			continue
		}
		if d, ok := t.TTFTSent(); ok {
			ttft, n = ttft+d.Seconds()*1000, n+1
			least = min(least, d.Seconds()*1000)
		}
		if d, ok := t.TPOT(); ok {
			tpot, m = tpot+d.Seconds()*1000, m+1
			tokens += float64(t.CompletionTokens)
		}
		for _, d := range t.Gaps {
			gaps, g = gaps+d.Seconds()*1000, g+1
		}
	}
	p.ttft.mean, p.ttft.min = known(p.ttft.mean, ttft/n), known(p.ttft.min, least)
	p.tpot.mean, p.itl.mean = known(p.tpot.mean, tpot/m), known(p.itl.mean, gaps/g)
	p.outputLen = known(p.outputLen, tokens/m)
	if math.IsInf(p.ttft.min, 1) {
		p.ttft.min = math.NaN()
	}
}

// judge is doubtful when two figures differ by more than a share of the second.
func judge(c Check, a, b, share float64, says string) Check {
	if !finite(a) || !finite(b) || b == 0 {
		c.Figures = ""
		return c
	}
	c.Outcome = Consistent
	if math.Abs(a-b) > share*math.Abs(b) {
		c.Outcome, c.Says = Doubtful, says
	}
	return c
}

func tokenCount(p *point) Check {
	want := (p.e2e.mean - p.ttft.mean) / (p.outputLen - 1)
	c := Check{Name: "TPOT is (E2E-TTFT)/(n-1)", Figures: fmt.Sprintf("TPOT %s ms, computed %s ms", short(p.tpot.mean), short(want))}
	if !(p.outputLen > 1) {
		want = math.NaN()
	}
	return judge(c, p.tpot.mean, want, .05, fmt.Sprintf("the tool counts %s times as many tokens as the lengths say, or means of ratios are far from the ratio of means", short(want/p.tpot.mean)))
}

func tokensPerEvent(p *point) Check {
	ratio := p.itl.mean / p.tpot.mean
	c := Check{Name: "ITL/TPOT is tokens per event", Figures: fmt.Sprintf("ITL %s ms, TPOT %s ms: %s", short(p.itl.mean), short(p.tpot.mean), short(ratio))}
	says := fmt.Sprintf("events hold about %s tokens: what is called ITL is the gap between chunks", short(ratio))
	if ratio < 1 {
		says = "tokens of one chunk count as gaps of zero"
	}
	lost := 0.
	if p.failed > 0 { // means may be over other requests then: gaps before a failure are gaps
		lost = p.failed / (p.ok + p.failed)
	}
	return judge(c, ratio, 1, .1+lost, says)
}

func tpotHoldsTTFT(p *point) Check {
	told := known(p.tpotTold, p.tpot.mean)
	c := Check{Name: "TPOT leaves TTFT out", Figures: fmt.Sprintf("TPOT*n %s ms, E2E %s ms, E2E-TTFT %s ms", short(told*p.outputLen), short(p.e2e.mean), short(p.e2e.mean-p.ttft.mean))}
	if !finite(told*p.outputLen) || !finite(p.e2e.mean-p.ttft.mean) {
		c.Figures = ""
		return c
	}
	c.Outcome = Consistent
	with, without := math.Abs(told*p.outputLen-p.e2e.mean), math.Abs(told*(p.outputLen-1)-(p.e2e.mean-p.ttft.mean))
	if with < .05*p.e2e.mean && with < without && p.ttft.mean > .05*p.e2e.mean {
		c.Outcome, c.Says = Doubtful, "the time per output token holds the wait for the first one"
	}
	return c
}

// few is by which share a mean of so many can be off by chance, three standard deviations of a Poisson count; 0 when that is
// not known.
func few(n float64) float64 {
	if !(n > 0) {
		return 0
	}
	return 3 / math.Sqrt(n)
}

func littlesLaw(p *point) Check {
	flight, of := p.inFlight, "in flight"
	if !finite(flight) && p.axis == concurrencyAxis {
		flight, of = p.load, "allowed at once"
	}
	x := known(p.busy, p.throughput*p.e2e.mean/1000)
	c := Check{Name: "throughput*E2E is in flight (Little)", Figures: fmt.Sprintf("%s computed, %s %s", short(x), short(flight), of)}
	c = judge(c, x, flight, .1+few(p.allTurns), "requests are missing from the figures, or the run was mostly start and end")
	if c.Outcome != Doubtful || !finite(p.calls) {
		return c
	}
	switch flagged := func(f string) bool { return slices.Contains(p.flags, f) }; { // our own: turns last from when they are due, and are in flight from when they are sent
	case flagged(measurement.FlagCapBound):
		c.Outcome, c.Says, c.Figures = Untold, "", c.Figures+", and need not agree: the cap held calls back, so that turns were due before they were in flight (cap_bound)"
	case flagged(measurement.FlagUnstable):
		c.Outcome, c.Says, c.Figures = Untold, "", c.Figures+", and need not agree: turns in flight kept growing, and many that were due in the window ended behind it (unstable)"
	case flagged(measurement.FlagIncomplete):
		c.Outcome, c.Says, c.Figures = Untold, "", c.Figures+", and need not agree: the step was cut (incomplete)"
	}
	return c
}

func offeredRate(p *point) Check {
	c := Check{Name: "offered rate is sends over their window"}
	if finite(p.calls) { // our own: λ counts calls, throughput turns, and a Poisson process is off by chance
		c.Figures = fmt.Sprintf("asked %s calls/s, came %s calls/s", short(p.load), short(p.offered))
		return judge(c, p.offered, p.load, .02+few(p.calls), "more or fewer calls came than chance explains")
	}
	asked := math.NaN()
	if p.axis == rateAxis && p.loadFrom == "" {
		asked = p.load
	}
	sent := known(p.offered, math.NaN())
	c.Figures = fmt.Sprintf("asked %s/s, sent %s/s, completed %s/s", short(asked), short(sent), short(p.throughput))
	switch {
	case finite(asked) && finite(sent):
		return judge(c, sent, asked, .02, "the client did not send what was asked: beyond this load the curve measures the client too")
	case finite(asked) && finite(p.throughput):
		return judge(c, p.throughput, asked, .05, "sends are not told, and completions over the whole duration, the wait for the last answers included, are not the rate that was offered")
	}
	c.Figures = ""
	return c
}

func zeroTTFT(p *point) Check {
	c := Check{Name: "no TTFT is 0", Figures: fmt.Sprintf("least TTFT %s ms", short(p.ttft.min)), Outcome: Consistent}
	if !finite(p.ttft.min) {
		c.Figures = ""
	}
	if p.ttft.min <= 0 {
		c.Outcome, c.Says = Doubtful, "failed requests are pooled with the answered ones, so every percentile is too low"
	}
	return c
}

func rising(p *point) Check {
	c := Check{Name: "percentiles rise, from 0 on", Outcome: Consistent}
	var parts, bad []string
	n := 0
	for _, of := range []struct {
		name string
		in   *spread
	}{{"TTFT", &p.ttft}, {"ITL", &p.itl}, {"TPOT", &p.tpot}, {"E2E", &p.e2e}} {
		before, at := 0., 0.
		for _, q := range slices.Sorted(maps.Keys(of.in.quantiles)) {
			v, name := of.in.quantiles[q], fmt.Sprintf("P%s %s", short(100*q), of.name)
			switch {
			case v < 0:
				bad = append(bad, fmt.Sprintf("%s is %s ms, and no time is negative", name, short(v)))
			case v < before*(1-1e-9):
				bad = append(bad, fmt.Sprintf("%s is %s ms, less than P%s, %s ms", name, short(v), short(100*at), short(before)))
			}
			before, at, n = v, q, n+1
		}
		if len(of.in.quantiles) > 0 {
			parts = append(parts, of.name)
		}
	}
	if n > 0 {
		c.Figures = fmt.Sprintf("%d of %s", n, strings.Join(parts, ", "))
	}
	if len(bad) > 0 {
		c.Outcome, c.Says = Doubtful, strings.Join(bad, "; ")
	}
	return c
}

func allAccounted(p *point) Check {
	c := Check{Name: "completed and failed are all", Figures: fmt.Sprintf("%s completed, %s failed, %s issued", short(p.ok), short(p.failed), short(p.issued))}
	if !finite(p.ok+p.failed) || !finite(p.issued) {
		c.Figures = ""
		return c
	}
	c.Outcome = Consistent
	if p.ok+p.failed != p.issued {
		c.Outcome, c.Says = Doubtful, fmt.Sprintf("%s requests are in no figure: cut at the end, most likely the slow ones", short(p.issued-p.ok-p.failed))
	}
	return c
}

func tokenSums(p *point) Check {
	var parts []string
	c := Check{Name: "token totals are rates and lengths", Outcome: Consistent}
	ok := known(p.well, p.ok)
	for _, k := range []struct {
		name      string
		sum, want float64
	}{
		{"output tokens", p.outputSum, p.outputLen * ok},
		{"output tokens by their rate", p.outputRate * p.duration, p.outputLen * ok},
		{"input tokens", p.inputSum, p.inputLen * ok},
	} {
		if !finite(k.sum) || !finite(k.want) || k.want == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s, computed %s", k.name, short(k.sum), short(k.want)))
		if math.Abs(k.sum-k.want) > .02*k.want {
			c.Outcome, c.Says = Doubtful, "tokens of requests that are in no other figure are counted, or lengths leave some out"
		}
	}
	c.Figures = strings.Join(parts, "; ")
	return c
}

// engineBounds are those of the TTFT histograms of vLLM and SGLang, in seconds.
var engineBounds = [][]float64{
	{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560},
	{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
}

// bucketBehind finds the bucket of an engine's histogram whose interpolation gives exactly this percentile when everything lies in
// it; ok is false when none does.
func bucketBehind(p, ms float64) (lo, hi float64, ok bool) {
	for _, bounds := range engineBounds {
		for i := 1; i < len(bounds); i++ {
			lo, hi := bounds[i-1]*1000, bounds[i]*1000
			if math.Abs(ms-(lo+p*(hi-lo))) < 1e-4*ms {
				return lo, hi, true
			}
		}
	}
	return 0, 0, false
}

func ofBuckets(p *point) Check {
	c := Check{Name: "P95 TTFT is no bucket's interpolation", Outcome: Consistent}
	v := p.ttft.at(.95)
	if v == nil {
		return c
	}
	c.Figures = fmt.Sprintf("P95 TTFT %s ms", short(*v))
	if lo, hi, ok := bucketBehind(.95, *v); ok {
		c.Outcome, c.Says = Doubtful, bucketSays(lo, hi)
	}
	return c
}

func bucketSays(lo, hi float64) string {
	return fmt.Sprintf("it is exactly what an engine's histogram makes of a bucket from %s to %s ms that holds everything, so it may stand for anything between them", short(lo), short(hi))
}
