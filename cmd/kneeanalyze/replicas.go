package main

import (
	"fmt"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// questions are what else can be asked of a curve.
type questions struct {
	ReplicasFor float64 `help:"Also say how many replicas this rate of calls needs at the SLO, calls/s." placeholder:"RATE"`
	HoldsAt     float64 `help:"Also say how likely the TTFT objective holds at this load in the long run." placeholder:"RATE"`
}

func (q *questions) check(json bool) error {
	for _, f := range []struct {
		name string
		rate float64
	}{{"--replicas-for", q.ReplicasFor}, {"--holds-at", q.HoldsAt}} {
		switch {
		case !(f.rate >= 0 && f.rate <= 1e6):
			return cli.Usage("%s %v: give calls per second, more than 0", f.name, f.rate)
		case f.rate > 0 && json:
			return cli.Usage("%s answers in words and --json prints none: leave one out", f.name)
		}
	}
	return nil
}

// answer prints what was asked of one run.
func (q *questions) answer(std cli.Streams, r measurement.Results) error {
	if q.HoldsAt > 0 {
		p, ok := analysis.Holds(r, q.HoldsAt)
		if !ok {
			return fmt.Errorf("%s: how likely the objective holds at %g cannot be told: that takes turns of at least three loads, one that passes below one that fails, and a single TTFT objective", r.Label, q.HoldsAt)
		}
		fmt.Fprintf(std.Out, "\nAt %g the TTFT objective holds in the long run with a probability of %.2g %%.\n", q.HoldsAt, 100*p)
	}
	if q.ReplicasFor > 0 {
		n, err := analysis.ReplicasFor(r, q.ReplicasFor)
		if err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "\n%s\n", n)
	}
	return nil
}
