package analysis

import "kneefinder/measurement"

// unit is what the load of a run counts: an open loop is asked for calls per second, a closed one keeps so many calls going. Those of
// other tools count requests.
type unit string

const (
	perSecond         unit = "calls/s"
	atOnce            unit = "calls at once"
	requestsPerSecond unit = "requests/s"
	requestsAtOnce    unit = "requests at once"
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
	loop := process(c) == closed
	switch {
	case c.LoadOf == measurement.Requests && loop:
		return requestsAtOnce
	case c.LoadOf == measurement.Requests:
		return requestsPerSecond
	case loop:
		return atOnce
	}
	return perSecond
}

// closed reports whether the load is how many are kept going.
func (u unit) closed() bool { return u == atOnce || u == requestsAtOnce }

// loadOf is what it counts, as in measurement.Config.
func (u unit) loadOf() string {
	if u == requestsAtOnce || u == requestsPerSecond {
		return measurement.Requests
	}
	return ""
}

// calls names what is loaded with.
func (u unit) calls() string {
	if of := u.loadOf(); of != "" {
		return of
	}
	return "calls"
}

// answers names what is answered, one of which a call of several has many.
func (u unit) answers() string {
	if u.loadOf() == measurement.Requests {
		return "requests"
	}
	return "turns"
}

// live names how much of it was going at once.
func (u unit) live() string {
	if u.loadOf() == measurement.Requests {
		return "in flight"
	}
	return "live calls"
}

// perSecond is what the arrivals of such a load are counted in.
func (u unit) perSecond() unit {
	if u.loadOf() == measurement.Requests {
		return requestsPerSecond
	}
	return perSecond
}

// of writes a load as it stands in sentences.
func (u unit) of(load float64) string {
	switch {
	case u == atOnce && load == 1:
		return "1 call at once"
	case u == requestsAtOnce && load == 1:
		return "1 request at once"
	}
	return rate(load) + " " + string(u)
}

// column is the head of a column of loads asked for.
func (u unit) column() string {
	if u.closed() {
		return "asked"
	}
	return "λ asked"
}

// axis is the name of an axis of loads asked for.
func (u unit) axis() string {
	if u.closed() {
		return string(u) + " (closed loop)"
	}
	return "offered load λ, " + string(u)
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
