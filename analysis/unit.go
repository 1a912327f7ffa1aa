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
func (u unit) of(load float64) string {
	if u == atOnce && load == 1 {
		return "1 call at once"
	}
	return rate(load) + " " + string(u)
}

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

// commonUnit is the unit of all of several runs; ok is false when they have none in common.
func commonUnit(rs []measurement.Results) (u unit, ok bool) {
	for i, r := range rs {
		if i > 0 && unitOf(r.Config) != u {
			return u, false
		}
		u = unitOf(r.Config)
	}
	return u, len(rs) > 0
}
