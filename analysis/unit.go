package analysis

import "kneefinder/measurement"

// unit is what the load of a run counts: an open loop is asked for calls per second, a closed one keeps so many calls going.
type unit string

const (
	perSecond unit = "calls/s"
	atOnce    unit = "calls at once"
)

// The processes of arrivals that are not like the others.
const (
	poisson = "poisson"
	closed  = "closed"
)

// process is how calls were asked to arrive.
func process(c measurement.Config) string {
	if c.Arrivals == "" {
		return poisson
	}
	return c.Arrivals
}

func unitOf(c measurement.Config) unit {
	if process(c) == closed {
		return atOnce
	}
	return perSecond
}

// of writes a load as it stands in sentences.
func (u unit) of(load float64) string { return rate(load) + " " + string(u) }

// column is the head of a column of loads asked for.
func (u unit) column() string {
	if u == atOnce {
		return "asked"
	}
	return "λ asked"
}

// axis is the name of an axis of loads asked for.
func (u unit) axis() string {
	if u == atOnce {
		return "calls at once (closed loop)"
	}
	return "offered load λ, calls/s"
}
