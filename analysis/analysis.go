// Package analysis reads a run afterwards: its curve, its knees, and what binds there.
//
// Everything here is a pure function of records: no clock, no network, no files. The same log gives the same bytes.
package analysis

import (
	"fmt"
	"math"
	"slices"

	"kneefinder/measurement"
)

// Analyze turns a log into its curve: every step in the order it was run, the certificate of its
// arrivals, the three knees, the mechanism and the warnings.
func Analyze(log measurement.Log) measurement.Results {
	r := measurement.Results{
		Schema: measurement.ResultsSchema, Label: log.Header.Label, Tool: log.Header.Tool, Config: log.Header.Config,
		Engine: log.Header.Engine, Seed: log.Header.Seed, Steps: []measurement.StepResult{},
		Warnings: append([]string{}, log.Warnings...),
	}
	turns := byStep(log.Turns)
	for _, s := range log.Steps {
		step, warnings := analyzeStep(log.Header.Config, s, turns[s.Step])
		if log.Header.Shard != "" { // whose part of λ is no sign of anything
			step.Flags = slices.DeleteFunc(step.Flags, func(f string) bool { return f == measurement.FlagOffRate })
		}
		r.Steps = append(r.Steps, step)
		r.Warnings = append(r.Warnings, warnings...)
	}
	r.Arrivals = Certify(log)
	u := unitOf(r.Config)
	r.Knees = measurement.Knees{
		SLO:        sloKnee(u, r.Steps, r.Config.SLO),
		Curvature:  curvatureKnee(u, r.Steps),
		Saturation: saturationKnee(u, r.Steps),
	}
	r.Mechanism = Mechanism(log, r)
	r.Warnings = append(r.Warnings, doubts(log, r)...)
	return r
}

// byStep sorts turns into their steps, keeping their order.
func byStep(turns []measurement.Turn) map[int][]measurement.Turn {
	m := map[int][]measurement.Turn{}
	for _, t := range turns {
		m[t.Step] = append(m[t.Step], t)
	}
	return m
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
func rate(v float64) string { return fmt.Sprintf("%.4g", v) }
