package analysis

import (
	"fmt"
	"math"

	"kneefinder/measurement"
)

// Replicas is how many replicas a rate of calls needs.
type Replicas struct {
	Demand float64 // calls/s
	Count  int     // by the estimate of the knee
	Low    int     // by the upper end of its interval; 0 when it has none
	High   int     // by the lower end; 0 when it has none
	knee   measurement.Knee
	slo    []measurement.Objective
}

// ReplicasFor is how many replicas like the one that was measured a rate of calls needs for each to stay at or under the SLO
// knee. It assumes that calls are spread evenly and that a call stays with its replica. Without a knee it says why it cannot tell.
func ReplicasFor(r measurement.Results, demand float64) (Replicas, error) {
	k := r.Knees.SLO
	out := Replicas{Demand: demand, knee: k, slo: r.Config.SLO}
	if !(demand > 0) || math.IsInf(demand, 0) {
		return out, fmt.Errorf("replicas for %v calls/s: give a rate of more than 0", demand)
	}
	need := func(each float64) int { return int(math.Ceil(demand/each - 1e-9)) }
	switch {
	case unitOf(r.Config) != perSecond:
		return out, fmt.Errorf("%s: how many replicas a call rate needs cannot be told from a closed loop, whose load is calls at once; sweep call rates", r.Label)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return out, fmt.Errorf("%s: the SLO knee lies above %s, the highest load tried, so %d replicas are enough and how few would do is not known; sweep higher rates", r.Label, perSecond.of(*k.Rate), need(*k.Rate))
	case k.Status == measurement.BelowRange:
		return out, fmt.Errorf("%s: already the lowest load tried misses the objectives, so no number of replicas is known to be enough; sweep lower rates", r.Label)
	case k.Status != measurement.Found || k.Rate == nil:
		return out, fmt.Errorf("%s: there is no SLO knee, so how many replicas are needed cannot be told: %s", r.Label, k.Note)
	}
	each := *k.Rate
	if k.Estimate != nil {
		each = *k.Estimate
	}
	out.Count = need(each)
	if hi := k.CI95[1]; hi != nil {
		out.Low = need(*hi)
	}
	if lo := k.CI95[0]; lo != nil && *lo > 0 {
		out.High = need(*lo)
	}
	return out, nil
}

// String is the answer as a sentence.
func (r Replicas) String() string {
	replicas := "replicas"
	if r.Count == 1 {
		replicas = "replica"
	}
	doubt := ""
	switch {
	case r.Low > 0 && r.High > 0 && r.Low == r.High:
		doubt = fmt.Sprintf(" (%d at both ends of the knee's 95 %% interval)", r.Low)
	case r.Low > 0 && r.High > 0:
		doubt = fmt.Sprintf(" (between %d and %d)", r.Low, r.High)
	case r.High > 0:
		doubt = fmt.Sprintf(" (at most %d; how few would do is not known)", r.High)
	case r.Low > 0:
		doubt = fmt.Sprintf(" (at least %d; how many are surely enough is not known)", r.Low)
	default:
		doubt = " (the knee has no interval, so how sure that is cannot be told)"
	}
	each := *r.knee.Rate
	if r.knee.Estimate != nil {
		each = *r.knee.Estimate
	}
	carries := fmt.Sprintf("one carries %.3g calls/s", each)
	if r.knee.CI95 != [2]*float64{} {
		carries += ", 95 % interval " + interval(r.knee.CI95, func(v *float64) string { return plain(v, "%.3g", 1) })
	}
	return fmt.Sprintf("%s need %d %s%s for %s: %s. Calls are taken to be spread evenly, each staying with its replica.",
		perSecond.of(r.Demand), r.Count, replicas, doubt, objectives(r.slo), carries)
}
