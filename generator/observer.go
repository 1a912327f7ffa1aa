package generator

import (
	"time"

	"kneefinder/measurement"
)

// Observer is told what happens, when it has happened. Its methods are called by many processes at once and must not wait.
type Observer interface {
	// StepBegin is called again, with the same number, when the rate of a running step is turned.
	StepBegin(measurement.Step)
	StepEnd(measurement.Step)
	Turn(measurement.Turn)
	// InFlight is called whenever a call or a turn begins or ends: so many calls and turns are now in progress.
	InFlight(at time.Duration, calls, turns int)
}

// Observers tells every one of them, in order.
type Observers []Observer

// StepBegin tells all.
func (os Observers) StepBegin(s measurement.Step) {
	for _, o := range os {
		o.StepBegin(s)
	}
}

// StepEnd tells all.
func (os Observers) StepEnd(s measurement.Step) {
	for _, o := range os {
		o.StepEnd(s)
	}
}

// Turn tells all.
func (os Observers) Turn(t measurement.Turn) {
	for _, o := range os {
		o.Turn(t)
	}
}

// InFlight tells all.
func (os Observers) InFlight(at time.Duration, calls, turns int) {
	for _, o := range os {
		o.InFlight(at, calls, turns)
	}
}
