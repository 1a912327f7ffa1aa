package main

import (
	"errors"
	"fmt"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// questions are what else can be asked of a curve.
type questions struct {
	ReplicasFor *float64 `help:"Also say how many replicas this rate of calls needs at the SLO, calls/s: by the largest rate that passes, by the estimate of the knee and by the ends of its interval." placeholder:"RATE"`
	HoldsAt     *float64 `help:"Also say how likely the TTFT objective holds at this load in the long run, by the curve through all loads and by the load's own turns." placeholder:"RATE"`
}

func (q *questions) check(json bool) error {
	for _, f := range []struct {
		name, unit string
		rate       *float64
	}{{"--replicas-for", "calls per second", q.ReplicasFor}, {"--holds-at", "a load, as calls per second", q.HoldsAt}} {
		switch {
		case f.rate == nil:
		case !(*f.rate > 0 && *f.rate <= 1e6):
			return cli.Usage("%s %v: give %s, more than 0 and at most a million", f.name, *f.rate, f.unit)
		case json:
			return cli.Usage("%s answers in words and --json prints none: leave one out", f.name)
		}
	}
	return nil
}

// answer prints what was asked of one run. What cannot be told is an error and keeps no other answer back.
func (q *questions) answer(std cli.Streams, r measurement.Results) error {
	var errs []error
	if q.HoldsAt != nil {
		says, err := analysis.HoldsAt(r, *q.HoldsAt)
		if err == nil {
			fmt.Fprintf(std.Out, "\n%s\n", says)
		}
		errs = append(errs, err)
	}
	if q.ReplicasFor != nil {
		n, err := analysis.ReplicasFor(r, *q.ReplicasFor)
		if err == nil {
			fmt.Fprintf(std.Out, "\n%s\n", n)
		}
		if errors.Is(err, analysis.ErrClosedLoop) {
			err = cli.Usage("--replicas-for: %w", err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
