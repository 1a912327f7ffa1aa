package analysis_test

import (
	"fmt"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

func ExampleSLOKnee() {
	p95 := func(ms float64) *float64 { return &ms }
	steps := []measurement.StepResult{
		{Rate: .8, MeasuredTurns: 216, TTFTP95: p95(118)},
		{Rate: 1.0, MeasuredTurns: 270, TTFTP95: p95(160)},
		{Rate: 1.2, MeasuredTurns: 324, TTFTP95: p95(410)},
	}
	k := analysis.SLOKnee(steps, []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}})
	fmt.Printf("%s: %v calls/s; the curve crosses at %.3f\n%s\n", k.Status, *k.Rate, *k.Estimate, k.Note)
	// Output:
	// found: 1 calls/s; the curve crosses at 1.134
	// At 1 calls/s P95 TTFT is 160 ms (limit 300 ms); at 1.2 calls/s P95 TTFT is 410 ms (limit 300 ms).
}

func ExampleKneedle() {
	load := []float64{.2, .5, .8, 1, 1.1, 1.2, 1.25, 1.3}
	latency := []float64{100, 105, 120, 170, 240, 420, 700, 1500}
	i, ok := analysis.Kneedle(load, latency, analysis.ConvexIncreasing)
	fmt.Println(load[i], ok)
	// Output: 1.1 true
}
