package analysis

import (
	"errors"
	"fmt"
	"math"

	"kneefinder/measurement"
)

// ErrClosedLoop is the error of what cannot be asked of a run whose load is calls at once.
var ErrClosedLoop = errors.New("a closed loop, whose load is calls at once")

// Replicas is how many replicas a rate of calls needs: of what was measured, which may itself be a fleet of engines.
type Replicas struct {
	Demand    float64 // calls/s, or requests/s where loads count these
	Count     int     // by the SLO knee, the largest rate that passes: what to provision
	Estimated int     // by the estimate of where the limit is crossed; 0 where there is none
	Low       int     // by the upper end of its interval; 0 when it has none
	High      int     // by the lower end; 0 when it has none
	knee      measurement.Knee
	slo       []measurement.Objective
	unit      unit
	each      deployment
	poisson   bool // calls arrived so when it was measured
	simulated bool
}

// ReplicasFor is how many replicas like the one that was measured a rate of calls needs for each to stay at or under the SLO
// knee: by the largest rate that passes, for there the objectives were seen to hold, while at the estimate they hold or fail by
// chance. It assumes that those of each replica arrive at random, as a router
// that deals them at random makes of a Poisson process, and that a call stays with its replica. Without a knee it says why it cannot tell.
func ReplicasFor(r measurement.Results, demand float64) (Replicas, error) {
	k := r.Knees.SLO
	u := unitOf(r.Config)
	out := Replicas{Demand: demand, knee: k, slo: r.Config.SLO, unit: u, each: deploymentOf(r.Engine), poisson: process(r.Config) == poisson, simulated: r.Engine.Kind == "simulated"}
	if !(demand > 0) || math.IsInf(demand, 0) {
		return out, fmt.Errorf("replicas for %v calls/s: give a rate of more than 0", demand)
	}
	need := func(each float64) int { return int(math.Ceil(demand/each - 1e-9)) }
	switch {
	case u.closed():
		return out, fmt.Errorf("%s: how many replicas a call rate needs cannot be told from %w; sweep call rates", r.Label, ErrClosedLoop)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return out, fmt.Errorf("%s: the SLO knee lies above %s, the highest load tried, so %s enough and how few would do is not known; sweep higher rates", r.Label, u.of(*k.Rate), enough(out.each, need(*k.Rate)))
	case k.Status == measurement.BelowRange && r.Mechanism.Name == MechanismPrompt && r.Mechanism.Confidence == "high":
		return out, fmt.Errorf("%s: prompts take longer than the limit even alone, so no number of %ss is enough: ask for shorter prompts, a faster engine or another objective (--slo)", r.Label, out.each.one())
	case k.Status == measurement.BelowRange:
		return out, fmt.Errorf("%s: already the lowest load tried misses the objectives, so no number of %ss is known to be enough; sweep lower rates", r.Label, out.each.one())
	case k.Status != measurement.Found || k.Rate == nil:
		return out, fmt.Errorf("%s: there is no SLO knee, so how many %ss are needed cannot be told: %s", r.Label, out.each.one(), k.Note)
	}
	out.Count = need(*k.Rate)
	if k.Estimate != nil {
		out.Estimated = need(*k.Estimate)
	}
	if hi := k.CI95[1]; hi != nil {
		out.Low = need(*hi)
	}
	if lo := k.CI95[0]; lo != nil && *lo > 0 {
		out.High = need(*lo)
	}
	return out, nil
}

// String is the answer in sentences: what to provision and why, and what the estimate and the ends of its interval would make of it.
func (r Replicas) String() string {
	k := r.knee
	figure := among(3, &r.Demand, k.Rate, k.Estimate, k.CI95[0], k.CI95[1])
	out := fmt.Sprintf("%s %s need %s for %s: %s %s is the largest load that passes, where the objectives were seen to hold, so provision by it.",
		figure(&r.Demand), r.unit, r.each.needs(r.Count), objectives(r.slo), figure(k.Rate), r.unit)
	figure = among(3, k.Rate, k.Estimate, k.CI95[0], k.CI95[1])
	if k.Estimate == nil {
		out += " There is no estimate of where the limit is crossed, so how many fewer would do is not known."
	} else {
		if *k.Estimate > *k.Rate {
			out += fmt.Sprintf(" By the estimate of where the limit is crossed, %s, %d would do, where they hold or fail by chance; ", figure(k.Estimate), r.Estimated)
		} else {
			out += " The estimate of where the limit is crossed lies no higher, so the objectives hold there or fail by chance; "
		}
		ends := interval(k.CI95, figure)
		switch {
		case r.Low > 0 && r.High > 0 && r.Low == r.High:
			out += fmt.Sprintf("by both ends of its 95 %% interval, %s, %d.", ends, r.Low)
		case r.Low > 0 && r.High > 0:
			out += fmt.Sprintf("by the ends of its 95 %% interval, %s, %d to %d.", ends, r.Low, r.High)
		case r.High > 0:
			out += fmt.Sprintf("by the lower end of its 95 %% interval, %s, at most %d, and how few would do is not known.", ends, r.High)
		case r.Low > 0:
			out += fmt.Sprintf("by the upper end of its 95 %% interval, %s, at least %d, and how many are surely enough is not known.", ends, r.Low)
		default:
			out += "it has no interval, so how sure that is cannot be told."
		}
	}
	if r.High > r.Count {
		out += fmt.Sprintf(" The interval reaches below the load that passed: only %d are surely enough, unless a longer step there (--min-turns) shows more.", r.High)
	}
	calls := r.unit.calls()
	arrive := "like those that were measured"
	if r.poisson {
		arrive = "at random (Poisson)"
	}
	out += fmt.Sprintf(" Each %s is taken to get %s of its own, which arrive %s and stay with it.", r.each.one(), calls, arrive)
	if r.Count > 1 {
		out += fmt.Sprintf(" A router that deals %s out in turn, and brings each back to where it was, may do with fewer: ", calls)
		if r.simulated {
			out += fmt.Sprintf("simulate that fleet at %s %s.", sig(r.Demand), r.unit)
		} else {
			out += "measure, or simulate, such a fleet."
		}
	}
	return out
}

// enough is that many of what was measured, as what suffices.
func enough(d deployment, n int) string {
	if n == 1 {
		return d.needs(n) + " is"
	}
	return d.needs(n) + " are"
}
