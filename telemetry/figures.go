package telemetry

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// figure is one value of a gauge that does not change until it is replaced.
type figure struct {
	name  string
	attrs attribute.Set
	value float64
}

func float(q float64) string { return strconv.FormatFloat(q, 'g', -1, 64) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (t *Telemetry) buildInfo() figure {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return figure{names.BuildInfo, attribute.NewSet(attribute.String("version", t.cfg.Version), attribute.String("revision", revision),
		attribute.String("goversion", runtime.Version()), attribute.String("goos", runtime.GOOS), attribute.String("goarch", runtime.GOARCH)), 1}
}

func (t *Telemetry) limits(objectives []measurement.Objective) (fs []figure) {
	seen := map[attribute.Distinct]bool{}
	for _, o := range objectives {
		attrs := t.attrs(names.Metric, o.Metric, names.Quantile, float(o.Quantile))
		if !seen[attrs.Equivalent()] { // the first of two that contradict each other
			seen[attrs.Equivalent()] = true
			fs = append(fs, figure{names.SLO, attrs, names.Seconds(o.LimitMS)})
		}
	}
	return fs
}

func (t *Telemetry) runInfo(h measurement.Header) figure {
	g := h.Engine
	return figure{names.RunInfo, t.attrs("tool", h.Tool, "model", g.Model, "engine", g.Kind, "engine_version", g.Version, "gpu", g.GPU,
		"fidelity", g.Fidelity, "arrivals", cmp.Or(h.Config.Arrivals, "poisson")), 1}
}

// stepFigures are a result's. What is null there is absent here.
func (t *Telemetry) stepFigures(r *measurement.StepResult) (fs []figure) {
	number := strconv.Itoa(r.Step)
	attrs := t.attrs(names.Step, number)
	put := func(name string, v *float64, scale float64, pairs ...string) {
		if v == nil {
			return
		}
		of := attrs
		if len(pairs) > 0 {
			of = t.attrs(append([]string{names.Step, number}, pairs...)...)
		}
		fs = append(fs, figure{name, of, *v / scale})
	}
	const ms = 1e3
	turns := float64(r.MeasuredTurns)
	put(names.StepArrived, r.ArrivedRate, 1)
	put(names.StepTTFT, r.TTFTP50, ms, names.Quantile, "0.5")
	put(names.StepTTFT, r.TTFTP95, ms, names.Quantile, "0.95")
	put(names.StepTTFT, r.TTFTP99, ms, names.Quantile, "0.99")
	put(names.StepTTFTLow, r.TTFTP95CI[0], ms)
	put(names.StepTTFTHigh, r.TTFTP95CI[1], ms)
	put(names.StepTTFTSent, r.TTFTSentP95, ms, names.Quantile, "0.95")
	put(names.StepITL, r.ITLP50, ms, names.Quantile, "0.5")
	put(names.StepITL, r.ITLP95, ms, names.Quantile, "0.95")
	put(names.StepITL, r.ITLP99, ms, names.Quantile, "0.99")
	put(names.StepTPOT, r.TPOTP50, ms, names.Quantile, "0.5")
	put(names.StepHit, r.CacheHitRate, 1)
	put(names.StepErrors, r.ErrorRate, 1)
	put(names.StepTurns, &turns, 1)
	put(names.StepLive, r.LiveCallsMean, 1)
	put(names.StepThroughput, r.ThroughputTurns, 1)
	put(names.StepOutput, r.OutputTokens, 1)
	put(names.StepSaturation, r.SaturationRatio, 1)
	put(names.StepLag, r.ScheduleLagP99, ms)
	for _, v := range []measurement.Verdict{measurement.Pass, measurement.Fail, measurement.Undecided} {
		is := truth(r.Verdict == v)
		put(names.StepVerdict, &is, 1, names.Verdict, string(v))
	}
	one := 1.
	for _, flag := range r.Flags {
		put(names.StepFlag, &one, 1, names.Flag, flag)
	}
	return fs
}

// runFigures are the knees and the certificate of the arrivals.
func (t *Telemetry) runFigures(r *measurement.Results) (fs []figure) {
	put := func(name string, v *float64, pairs ...string) {
		if v != nil {
			fs = append(fs, figure{name, t.attrs(pairs...), *v})
		}
	}
	for _, k := range []struct {
		name string
		measurement.Knee
	}{{"slo", r.Knees.SLO}, {"curvature", r.Knees.Curvature}, {"saturation", r.Knees.Saturation}} {
		if k.Status == measurement.Found { // above the range Rate is the highest one tried, which is no knee
			put(names.KneeRate, k.Rate, names.Knee, k.name)
			put(names.KneeEstimate, k.Estimate, names.Knee, k.name)
			put(names.KneeLow, k.CI95[0], names.Knee, k.name)
			put(names.KneeHigh, k.CI95[1], names.Knee, k.name)
		}
		for _, status := range []measurement.KneeStatus{measurement.Found, measurement.AboveRange, measurement.BelowRange, measurement.NoKnee} {
			is := truth(k.Status == status)
			put(names.KneeStatus, &is, names.Knee, k.name, names.Status, string(status))
		}
	}
	a := &r.Arrivals
	test := func(name string, v *measurement.Test) {
		if v != nil {
			put(names.ArrivalsTestP, &v.P, names.Test, name)
		}
	}
	test("ks", a.KS)
	test("ad", a.AD)
	test("lag1", a.Lag1)
	test("whole_seconds", a.WholeSeconds)
	for i := range a.Dispersion {
		test("dispersion_"+float(a.Dispersion[i].WindowS)+"s", &a.Dispersion[i].Test)
	}
	put(names.ArrivalsCV, a.CV)
	if a.Calls > 0 { // while the run goes on nothing has been tested, which is not to fail
		calls, ok := float64(a.Calls), truth(a.Certified)
		put(names.ArrivalsCalls, &calls)
		put(names.ArrivalsOK, &ok)
	}
	return fs
}
