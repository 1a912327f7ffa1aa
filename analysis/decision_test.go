package analysis

import (
	"math"
	"math/rand/v2"
	"testing"

	"kneefinder/measurement"
)

// The probabilities are those of a beta distribution with Jeffreys' prior, the bounds those of the exact binomial test.
func TestHoldProbability(t *testing.T) {
	for _, c := range []struct{ x, n, want float64 }{{0, 59, .986}, {3, 100, .819}, {5, 100, .472}, {8, 100, .091}, {13, 270, .539}, {20, 270, .041}} {
		if got := holdProbability(c.x, c.n, .05); math.Abs(got-c.want) > .0006 {
			t.Errorf("%v of %v late: probability %.4f, want %v", c.x, c.n, got, c.want)
		}
	}
}

func TestTested(t *testing.T) {
	for _, c := range []struct{ n, pass, fail float64 }{{60, 0, 7}, {100, 1, 10}, {150, 2, 13}, {200, 4, 16}, {270, 7, 21}, {300, 8, 22}, {360, 10, 26}, {500, 16, 34}, {1000, 38, 63}, {2000, 83, 117}} {
		for x, want := range map[float64]measurement.Verdict{c.pass: measurement.Pass, c.pass + 1: measurement.Undecided, c.fail - 1: measurement.Undecided, c.fail: measurement.Fail} {
			if got := tested(x, c.n, .05); got != want {
				t.Errorf("%v of %v late: %s, want %s", x, c.n, got, want)
			}
		}
	}
	for late, n := range []float64{59, 93, 124, 153, 181, 208, 234, 260, 286, 311, 336, 361, 386} { // the fewest turns that pass
		if tested(float64(late), n, .05) != measurement.Pass || tested(float64(late), n-1, .05) == measurement.Pass {
			t.Errorf("%d late: want a pass from %v turns on", late, n)
		}
	}
	if got := tested(58, 58, .05); got != measurement.Fail {
		t.Errorf("all late: %s", got)
	}
}

func TestMoreTurns(t *testing.T) {
	for _, c := range [][2]float64{{3, 100}, {0, 20}, {6, 100}, {12.5, 200}} {
		more, ok := moreTurns(c[0], c[1], .05)
		if !ok || more <= 0 {
			t.Errorf("%v of %v: %v more turns, %v", c[0], c[1], more, ok)
			continue
		}
		times := (c[1] + more) / c[1]
		if tested(c[0]*times, c[1]*times, .05) == measurement.Undecided {
			t.Errorf("%v of %v: still undecided after %.0f more turns", c[0], c[1], more)
		}
		if more > 10 && tested(c[0]*(1+(times-1)*.8), c[1]*(1+(times-1)*.8), .05) != measurement.Undecided {
			t.Errorf("%v of %v: %.0f more turns are too many", c[0], c[1], more)
		}
	}
	if more, ok := moreTurns(5, 100, .05); ok {
		t.Errorf("exactly as many late as allowed: decided after %.0f more turns", more)
	}
}

func TestDecideOfAStep(t *testing.T) {
	slo := []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}, {Metric: "ttft", Quantile: .5, LimitMS: 200}, {Metric: "itl", Quantile: .95, LimitMS: 1}}
	r := rand.New(rand.NewPCG(3, 4))
	waits := make([]float64, 200)
	for i := range waits {
		waits[i] = 100 + 50*r.Float64()
	}
	waits[7], waits[70], waits[150] = 400, math.Inf(1), 301
	var s measurement.StepResult
	c := measurement.Config{Turns: 4, SLO: slo}
	decide(&s, c, waits, sorted(waits), false)
	if s.LateTurns == nil || *s.LateTurns != 3 || s.Decided != measurement.Pass || *s.NEff > 200 || *s.NEff < 100 {
		t.Fatalf("3 of 200 late: %v late, n_eff %v, %s", value2(s.LateTurns), value(s.NEff), s.Decided)
	}
	short := measurement.StepResult{}
	decide(&short, c, waits[:40], sorted(waits[:40]), false)
	if short.Decided != measurement.Undecided || short.MoreCalls == nil || *short.MoreCalls < 20 || *short.MoreCalls > 200 {
		t.Errorf("1 of 40 late: %s, %v more calls", short.Decided, value2(short.MoreCalls))
	}
	early := measurement.StepResult{}
	decide(&early, c, waits[:40], sorted(waits[:40]), true)
	if early.Decided != measurement.Fail || early.MoreCalls != nil || *early.PassProbability != *short.PassProbability {
		t.Errorf("the same, of a step that was ended early: %s, %v more calls; the test that ended it decided it", early.Decided, value2(early.MoreCalls))
	}
	none := measurement.StepResult{}
	decide(&none, measurement.Config{Turns: 4, SLO: slo[2:]}, waits, sorted(waits), false)
	if none.PassProbability != nil || none.Decided != "" {
		t.Errorf("no TTFT objective: %+v", none)
	}
	// Neighbours that are alike are worth fewer turns, and what one step would decide another does not.
	state, alike := 0., make([]float64, 200)
	for i := range alike {
		state = .95*state + r.NormFloat64()
		alike[i] = 100 + state
	}
	like := measurement.StepResult{}
	decide(&like, measurement.Config{Turns: 4, SLO: slo[:1]}, alike, sorted(alike), false)
	if *like.NEff > 60 || like.Decided == measurement.Pass {
		t.Errorf("200 turns that resemble their neighbours: worth %.0f, %s", *like.NEff, like.Decided)
	}
}

func value2(n *int) any {
	if n == nil {
		return nil
	}
	return *n
}
