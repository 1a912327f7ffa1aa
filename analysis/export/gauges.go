package export

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// staying is how often a figure that no longer changes is repeated: within the five minutes for which Prometheus believes one.
const staying = time.Minute

// gauges writes what was in progress, the figures of the steps and the knees.
func (e *exporter) gauges() {
	if len(e.steps) == 0 {
		return
	}
	e.inProgress()
	e.figures()
	end := e.end()
	e.head(names.SLO, "gauge")
	for _, o := range e.r.Config.SLO {
		e.stays(e.steps[0].Start, end, names.Seconds(o.LimitMS), names.SLO, names.Metric, o.Metric, names.Quantile, quantile(o.Quantile))
	}
	e.head(names.RunInfo, "gauge")
	g := e.r.Engine
	arrivals := cmp.Or(e.r.Config.Arrivals, "poisson")
	e.stays(e.steps[0].Start, end, 1, names.RunInfo, "tool", e.r.Tool, "model", g.Model, "engine", g.Kind, "engine_version", g.Version, "gpu", g.GPU, "fidelity", g.Fidelity, "arrivals", arrivals)
	e.head(names.RunState, "gauge")
	for _, state := range []string{"running", "done"} {
		e.stays(e.steps[0].Start, end, *truth(state == "running"), names.RunState, names.State, state)
		e.sample(end+time.Second, *truth(state == "done"), names.RunState, names.State, state)
	}
	e.knees(end)
}

// end is when the run ended.
func (e *exporter) end() (end time.Duration) {
	for i := range e.steps {
		end = max(end, e.steps[i].end)
	}
	return end
}

// stays writes a figure that holds from an instant to the run's end.
func (e *exporter) stays(from, end time.Duration, value float64, name string, labels ...string) {
	for at := from; ; at += max(staying, e.interval) {
		at = min(at, end)
		e.sample(at, value, name, labels...)
		if at >= end {
			return
		}
	}
}

// change is when calls or turns in progress became more or fewer.
type change struct {
	at time.Duration
	by int
}

// inProgress writes the rate asked, the step, and calls and turns in flight, at every tick.
func (e *exporter) inProgress() {
	var calls, turns []change
	for i := range e.steps {
		type span struct{ begin, end time.Duration }
		spans := map[int]span{}
		for j := range e.steps[i].turns {
			t := &e.steps[i].turns[j]
			if t.Sent < 0 || t.End < 0 {
				continue
			}
			turns = append(turns, change{t.Sent, 1}, change{t.End, -1})
			c, ok := spans[t.Call]
			if !ok {
				c.begin = max(t.Due, t.Held)
			}
			c.begin, c.end = min(c.begin, max(t.Due, t.Held)), max(c.end, t.End)
			spans[t.Call] = c
		}
		for _, c := range spans {
			calls = append(calls, change{c.begin, 1}, change{c.end, -1})
		}
	}
	for _, f := range []struct {
		name    string
		changes []change
	}{{names.CallsInFlight, calls}, {names.TurnsInFlight, turns}} {
		slices.SortFunc(f.changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
		e.head(f.name, "gauge")
		live, next := 0, 0
		e.everyTick(func(at time.Duration, _ *step) {
			for ; next < len(f.changes) && f.changes[next].at <= at; next++ {
				live += f.changes[next].by
			}
			e.sample(at, float64(live), f.name)
		})
	}
	e.head(names.OfferedRate, "gauge")
	e.everyTick(func(at time.Duration, s *step) { e.sample(at, s.Rate, names.OfferedRate) })
	e.head(names.CurrentStep, "gauge")
	e.everyTick(func(at time.Duration, s *step) { e.sample(at, float64(s.Step.Step), names.CurrentStep) })
}

// everyTick calls f for each instant of the run, in order and once, with the step that it belongs to.
func (e *exporter) everyTick(f func(at time.Duration, s *step)) {
	last := time.Duration(-1)
	for i := range e.steps {
		s := &e.steps[i]
		e.ticks(s, func(at time.Duration, _ int) {
			if at > last {
				f(at, s)
				last = at
			}
		})
	}
}

// figures writes the figures of the steps, from the end of each on; its rate and instants from its start on.
func (e *exporter) figures() {
	end := e.end()
	results := map[int]*measurement.StepResult{}
	for i := range e.r.Steps {
		results[e.r.Steps[i].Step] = &e.r.Steps[i]
	}
	unix := func(at time.Duration) float64 { return float64(e.wall(at).UnixNano()) / 1e9 }
	for _, f := range []struct {
		name  string
		from  func(s *step) time.Duration
		value func(s *step) float64
	}{
		{names.StepRate, func(s *step) time.Duration { return s.Start }, func(s *step) float64 { return s.Rate }},
		{names.StepStart, func(s *step) time.Duration { return s.Start }, func(s *step) float64 { return unix(s.Start) }},
		{names.StepWindowStart, func(s *step) time.Duration { return s.Start }, func(s *step) float64 { return unix(s.WindowStart) }},
		{names.StepEnd, func(s *step) time.Duration { return s.end }, func(s *step) float64 { return unix(s.end) }},
	} {
		e.head(f.name, "gauge")
		for i := range e.steps {
			s := &e.steps[i]
			e.stays(f.from(s), end, f.value(s), f.name, names.Step, strconv.Itoa(s.Step.Step))
		}
	}
	each := func(name string, f func(s *step, r *measurement.StepResult, put func(v *float64, scale float64, labels ...string))) {
		e.head(name, "gauge")
		for i := range e.steps {
			s := &e.steps[i]
			r := results[s.Step.Step]
			if r == nil {
				continue
			}
			f(s, r, func(v *float64, scale float64, labels ...string) {
				if v != nil {
					e.stays(s.end, end, *v/scale, name, append([]string{names.Step, strconv.Itoa(s.Step.Step)}, labels...)...)
				}
			})
		}
	}
	type put = func(v *float64, scale float64, labels ...string)
	each(names.StepWindowEnd, func(s *step, _ *measurement.StepResult, put put) {
		if s.WindowEnd >= 0 {
			at := unix(s.WindowEnd)
			put(&at, 1)
		}
	})
	simple := func(name string, scale float64, value func(r *measurement.StepResult) *float64) {
		each(name, func(_ *step, r *measurement.StepResult, put put) { put(value(r), scale) })
	}
	three := func(name string, values func(r *measurement.StepResult) [3]*float64) {
		each(name, func(_ *step, r *measurement.StepResult, put put) {
			for i, v := range values(r) {
				put(v, 1e3, names.Quantile, [3]string{"0.5", "0.95", "0.99"}[i])
			}
		})
	}
	const ms = 1e3
	three(names.StepTTFT, func(r *measurement.StepResult) [3]*float64 { return [3]*float64{r.TTFTP50, r.TTFTP95, r.TTFTP99} })
	three(names.StepTTFTSent, func(r *measurement.StepResult) [3]*float64 { return [3]*float64{nil, r.TTFTSentP95, nil} })
	three(names.StepITL, func(r *measurement.StepResult) [3]*float64 { return [3]*float64{r.ITLP50, r.ITLP95, r.ITLP99} })
	three(names.StepTPOT, func(r *measurement.StepResult) [3]*float64 { return [3]*float64{r.TPOTP50, nil, nil} })
	simple(names.StepArrived, 1, func(r *measurement.StepResult) *float64 { return r.ArrivedRate })
	simple(names.StepTTFTLow, ms, func(r *measurement.StepResult) *float64 { return r.TTFTP95CI[0] })
	simple(names.StepTTFTHigh, ms, func(r *measurement.StepResult) *float64 { return r.TTFTP95CI[1] })
	simple(names.StepHit, 1, func(r *measurement.StepResult) *float64 { return r.CacheHitRate })
	simple(names.StepErrors, 1, func(r *measurement.StepResult) *float64 { return r.ErrorRate })
	simple(names.StepTurns, 1, func(r *measurement.StepResult) *float64 { n := float64(r.MeasuredTurns); return &n })
	simple(names.StepLive, 1, func(r *measurement.StepResult) *float64 { return r.LiveCallsMean })
	simple(names.StepThroughput, 1, func(r *measurement.StepResult) *float64 { return r.ThroughputTurns })
	simple(names.StepOutput, 1, func(r *measurement.StepResult) *float64 { return r.OutputTokens })
	simple(names.StepSaturation, 1, func(r *measurement.StepResult) *float64 { return r.SaturationRatio })
	simple(names.StepLag, ms, func(r *measurement.StepResult) *float64 { return r.ScheduleLagP99 })
	each(names.StepVerdict, func(_ *step, r *measurement.StepResult, put put) {
		for _, v := range []measurement.Verdict{measurement.Pass, measurement.Fail, measurement.Undecided} {
			put(truth(r.Verdict == v), 1, names.Verdict, string(v))
		}
	})
	each(names.StepFlag, func(_ *step, r *measurement.StepResult, put put) {
		for _, flag := range r.Flags {
			put(truth(true), 1, names.Flag, flag)
		}
	})
}

func truth(b bool) *float64 {
	v := 0.
	if b {
		v = 1
	}
	return &v
}

// quantile is .95 as "0.95".
func quantile(q float64) string { return strconv.FormatFloat(q, 'g', -1, 64) }

// knees writes what is known when the run has ended.
func (e *exporter) knees(end time.Duration) {
	all := []struct {
		name string
		knee measurement.Knee
	}{{"slo", e.r.Knees.SLO}, {"curvature", e.r.Knees.Curvature}, {"saturation", e.r.Knees.Saturation}}
	for _, f := range []struct {
		name  string
		value func(k measurement.Knee) *float64
	}{
		{names.KneeRate, func(k measurement.Knee) *float64 { return k.Rate }},
		{names.KneeEstimate, func(k measurement.Knee) *float64 { return k.Estimate }},
		{names.KneeLow, func(k measurement.Knee) *float64 { return k.CI95[0] }},
		{names.KneeHigh, func(k measurement.Knee) *float64 { return k.CI95[1] }},
	} {
		e.head(f.name, "gauge")
		for _, k := range all {
			if v := f.value(k.knee); v != nil && k.knee.Status == measurement.Found {
				e.sample(end, *v, f.name, names.Knee, k.name)
			}
		}
	}
	e.head(names.KneeStatus, "gauge")
	for _, k := range all {
		for _, status := range []measurement.KneeStatus{measurement.Found, measurement.AboveRange, measurement.BelowRange, measurement.NoKnee} {
			e.sample(end, *truth(k.knee.Status == status), names.KneeStatus, names.Knee, k.name, names.Status, string(status))
		}
	}
	a := e.r.Arrivals
	e.head(names.ArrivalsTestP, "gauge")
	test := func(name string, t *measurement.Test) {
		if t != nil {
			e.sample(end, t.P, names.ArrivalsTestP, names.Test, name)
		}
	}
	test("ks", a.KS)
	test("ad", a.AD)
	test("lag1", a.Lag1)
	test("whole_seconds", a.WholeSeconds)
	for _, d := range a.Dispersion {
		test("dispersion_"+strings.TrimSuffix(quantile(d.WindowS), ".0")+"s", &d.Test)
	}
	if a.CV != nil {
		e.head(names.ArrivalsCV, "gauge")
		e.sample(end, *a.CV, names.ArrivalsCV)
	}
	e.head(names.ArrivalsCalls, "gauge")
	e.sample(end, float64(a.Calls), names.ArrivalsCalls)
	e.head(names.ArrivalsOK, "gauge")
	e.sample(end, *truth(a.Certified), names.ArrivalsOK)
}
