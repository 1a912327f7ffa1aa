// Package analysis reads a run afterwards: its curve, its knees, and what binds there.
//
// Everything here is a pure function of records: no clock, no network, no files. The same log gives the same bytes.
package analysis

import (
	"math"
	"slices"

	"kneefinder/measurement"
)

// SoFar is the curve of the steps that have ended, in a run that has not: no certificate of arrivals, no mechanism.
func SoFar(h measurement.Header, steps []measurement.StepResult) measurement.Results {
	r := measurement.Results{Schema: measurement.ResultsSchema, Label: h.Label, Tool: h.Tool, Config: h.Config, Engine: h.Engine, Seed: h.Seed,
		Steps: steps, Mechanism: measurement.Mechanism{Evidence: []string{}, Confidence: "none"}, Warnings: []string{}}
	r.Knees = knees(r)
	return r
}

// knees are those of a curve.
func knees(r measurement.Results) measurement.Knees {
	u := unitOf(r.Config)
	return measurement.Knees{SLO: sloKnee(u, r.Steps, r.Config.SLO), Curvature: curvatureKnee(u, r.Steps), Saturation: saturationKnee(u, r.Steps),
		Others: otherKnees(u, r.Config, r.Steps)}
}

// Analyze turns a log into its curve: every step in the order it was run, the certificate of its
// arrivals, the three knees, the mechanism and the warnings.
func Analyze(log measurement.Log) measurement.Results {
	r := measurement.Results{
		Schema: measurement.ResultsSchema, Label: log.Header.Label, Tool: log.Header.Tool, Config: log.Header.Config,
		Engine: log.Header.Engine, Seed: log.Header.Seed, Steps: []measurement.StepResult{},
		Warnings: append([]string{}, log.Warnings...),
	}
	turns := byStep(log.Held())
	for _, s := range log.Steps {
		step, warnings := analyzeStep(log.Header.Config, s, turns[s.Step], log.Samples)
		r.Steps = append(r.Steps, OfShard(log.Header.Shard, step))
		r.Warnings = append(r.Warnings, warnings...)
	}
	r.Arrivals = Certify(log)
	r.Knees = knees(r)
	r.Mechanism = Mechanism(log, r)
	r.Warnings = append(r.Warnings, doubts(log, r)...)
	return r
}

// OfShard is the result of a step as one of that shard's; "" is no shard. A shard's part of λ is no sign of anything: its steps
// are never off_rate.
func OfShard(shard string, r measurement.StepResult) measurement.StepResult {
	if shard != "" {
		r.Flags = slices.DeleteFunc(slices.Clone(r.Flags), func(f string) bool { return f == measurement.FlagOffRate })
	}
	return r
}

// figure makes a number that may be absent: NaN and the infinities are absent.
func figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// value is the opposite of figure: an absent number is NaN.
func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// rate writes a load as it stands in sentences.
func rate(v float64) string { return Digits(v, 4) }
