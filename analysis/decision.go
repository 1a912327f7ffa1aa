package analysis

import (
	"gonum.org/v1/gonum/mathext"

	"kneefinder/measurement"
)

const (
	certain   = .05 // a step is decided where the other verdict has less than this probability
	mostCalls = 1e6 // calls more than which are not asked for
)

// decide says how sure a step's TTFT objective is: how many of its turns were late, how many independent turns they are worth
// (see quantileInterval), the probability that in the long run no more are late than the objective allows, and what a test at
// 95 % says; when that is undecided, about how many more calls like these would decide it. A step that was ended early is decided by
// the test that ended it. waits are the turns' TTFTs in
// milliseconds in the order they were sent, +Inf for those without a token; ascending are the same. Of several objectives the least likely counts.
func decide(r *measurement.StepResult, c measurement.Config, waits, ascending []float64, early bool) {
	if len(waits) == 0 {
		return
	}
	for _, o := range c.SLO {
		if o.Metric != "ttft" {
			continue
		}
		allowed := 1 - o.Quantile
		n, late := float64(len(waits)), 0.
		for _, v := range waits {
			if v > o.LimitMS {
				late++
			}
		}
		v := inflation(waits, ascending, o.Quantile)
		neff, x := n/v, late/v
		p := holdProbability(x, neff, allowed)
		if r.PassProbability != nil && *r.PassProbability <= p {
			continue
		}
		count := int(late)
		r.NEff, r.LateTurns, r.PassProbability, r.MoreCalls = &neff, &count, &p, nil
		r.Decided = tested(x, neff, allowed)
		switch {
		case early: // the sequential test decided it
			r.Decided = measurement.Fail
		case r.Decided == measurement.Undecided:
			r.MoreCalls = moreCalls(x, neff, allowed, v, c)
		}
	}
}

// holdProbability is that of a share of late turns of at most allowed when x of n were late, from Jeffreys' prior.
func holdProbability(x, n, allowed float64) float64 {
	return mathext.RegIncBeta(x+.5, n-x+.5, allowed)
}

// tested is the exact binomial test of both sides at 95 %: P(Bin(n, allowed) <= x) and P(>= x), written as incomplete beta
// functions so that x and n need not be whole.
func tested(x, n, allowed float64) measurement.Verdict {
	switch {
	case x < n && 1-mathext.RegIncBeta(x+1, n-x, allowed) <= certain:
		return measurement.Pass
	case x > 0 && mathext.RegIncBeta(x, n-x+1, allowed) <= certain:
		return measurement.Fail
	}
	return measurement.Undecided
}

// moreTurns is how many more independent turns, of which the same share is late, decide the test; ok is false when a
// thousand times as many do not.
func moreTurns(x, n, allowed float64) (more float64, ok bool) {
	for times := 1.; times < 1000; times *= 1.02 {
		if tested(x*times, n*times, allowed) != measurement.Undecided {
			return n * (times - 1), true
		}
	}
	return 0, false
}
