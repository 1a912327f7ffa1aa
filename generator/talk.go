package generator

import (
	"context"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// Talk speaks one call by itself, from now on, and tells of each turn when it has ended; a failure ends it. It is what a
// step does for each of its calls, for looking at one call closely.
func Talk(ctx context.Context, clk clock.Clock, to Endpoint, c Config, call int, tell func(measurement.Turn)) {
	s := &step{clk: clk, to: to, tell: turnsOnly(tell), c: c, enough: clk.NewEvent(), over: clk.NewEvent(), idle: clk.NewEvent()}
	s.c.GiveUp = 1
	s.call(ctx, call, clk.Now(), measurement.Never)
}

type turnsOnly func(measurement.Turn)

func (turnsOnly) StepBegin(measurement.Step) {}
func (turnsOnly) StepEnd(measurement.Step)   {}
func (f turnsOnly) Turn(t measurement.Turn)  { f(t) }
func (turnsOnly) InFlight(at time.Duration, calls, turns int) {
}
