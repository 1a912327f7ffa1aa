package analysis

import (
	"math"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// shares makes steps of 1000 turns each, worth so many, of which the logistic curve's share is late.
func sharesOf(knee, slope, worth float64, rates ...float64) []measurement.StepResult {
	var out []measurement.StepResult
	for i, x := range rates {
		late := int(math.Round(1000 * expit(logit(.05)+slope*math.Log(x/knee))))
		p95 := 300 * (.5 + 10*float64(late)/1000) // over the limit where more than 5 % are late
		s := points([3]float64{x, p95})[0]
		s.Step, s.MeasuredTurns, s.LateTurns, s.NEff = i, 1000, &late, figure(worth)
		out = append(out, s)
	}
	return out
}

func TestLogisticFindsTheCurve(t *testing.T) {
	steps := sharesOf(2.5, 6, 1000, 1, 1.5, 2, 3, 4)
	l, why := fitLogistic(steps, slo300[0], 2, 3)
	if why != "" || math.Abs(l.knee-math.Log(2.5)) > .02 || math.Abs(l.slope-6) > .3 || l.scale != 1 {
		t.Fatalf("knee %v, slope %v, misfit %v, %v; want 2.5, 6", math.Exp(l.knee), l.slope, l.scale, why)
	}
	if p := l.holds(l.knee); math.Abs(p-.5) > 1e-3 {
		t.Errorf("at the knee the objective holds with probability %v, want .5", p)
	}
	last := 1.
	for x := 1.5; x < 4; x += .1 {
		p := l.holds(math.Log(x))
		if p > last+1e-9 {
			t.Errorf("at %v the probability %v is more than at less load, %v", x, p, last)
		}
		last = p
	}
	lo, hi := l.interval()
	if !(lo < l.knee && l.knee < hi) || math.Abs(l.holds(lo)-.975) > 1e-3 || math.Abs(l.holds(hi)-.025) > 1e-3 {
		t.Errorf("interval %v to %v: the probabilities at its ends are %v and %v", math.Exp(lo), math.Exp(hi), l.holds(lo), l.holds(hi))
	}
	// The profile is the maximum over all slopes.
	at := math.Log(2.2)
	best := math.Inf(-1)
	for b := 0.; b < 60; b += .001 {
		best = max(best, l.likelihood(l.target+b*(l.center-at), b))
	}
	if got, want := l.deviance(at), 2*(l.best-best); math.Abs(got-want) > 1e-4 {
		t.Errorf("deviance at 2.2: %v, by trying all slopes %v", got, want)
	}
	few, _ := fitLogistic(sharesOf(2.5, 6, 50, 1, 1.5, 2, 3, 4), slo300[0], 2, 3)
	if a, b := few.interval(); !(a < lo && b > hi || math.IsNaN(a) || math.IsNaN(b)) {
		t.Errorf("turns worth a twentieth: %v to %v is no wider than %v to %v", a, b, lo, hi)
	}
}

func TestLogisticDoesNotMindUnits(t *testing.T) {
	a, _ := fitLogistic(sharesOf(2.5, 6, 100, 1, 1.5, 2, 3, 4), slo300[0], 2, 3)
	b, _ := fitLogistic(sharesOf(2500, 6, 100, 1000, 1500, 2000, 3000, 4000), slo300[0], 2000, 3000)
	if d := math.Exp(b.knee-a.knee) - 1000; math.Abs(d) > 1e-3 {
		t.Errorf("in calls per 1000 s the knee is %v times as much", d+1000)
	}
}

func TestLogisticRefuses(t *testing.T) {
	falling := sharesOf(2.5, 6, 1000, 1, 1.5, 2, 3, 4)
	for i := range falling {
		falling[i].Rate = 5 - falling[i].Rate
	}
	unknown := sharesOf(2.5, 6, 1000, 1, 2, 3)
	unknown[1].NEff = nil
	silent := sharesOf(2.5, 6, 1000, 1, 2, 3)
	for i := range silent {
		silent[i].LateTurns = nil
	}
	for want, steps := range map[string][]measurement.StepResult{
		"takes at least 3 decided loads whose late turns are known, and there are 2": sharesOf(2.5, 6, 1000, 2, 3), "at no load more than 5 %": sharesOf(9, 6, 1000, 1, 2, 3),
		"at every load more than 5 %": sharesOf(.1, 6, 1000, 1, 2, 3), "does not rise": falling, "known, and there are 2": unknown, "holds no turns": silent,
	} {
		if l, why := fitLogistic(steps, slo300[0], 2, 3); !strings.Contains(why, want) {
			t.Errorf("%q, a knee at %v; want %q", why, math.Exp(l.knee), want)
		}
	}
	// What rounding leaves of the likelihood's last digits is no reason: these counts once ended the search for its maximum below where
	// it began.
	var close []measurement.StepResult
	for i, s := range []struct {
		rate, neff  float64
		turns, late int
	}{{.005, 204.4527954485695, 600, 5}, {.01, 600, 600, 11}, {.02, 537.7987567885237, 600, 30}, {.04, 111.57013611374104, 176, 16}, {.0283, 536.1156142849779, 600, 34},
		{.0238, 455.2032066068048, 600, 28}, {.026, 537.7987567885232, 600, 30}, {.0283, 600, 600, 32}, {.026, 537.7987567885233, 600, 30}} {
		close = append(close, measurement.StepResult{Step: i, Rate: s.rate, NEff: &s.neff, MeasuredTurns: s.turns, LateTurns: &s.late, Verdict: measurement.Pass})
	}
	if l, why := fitLogistic(close, slo300[0], .026, .0283); why != "" || !(math.Abs(math.Exp(l.knee)-.0247) < .001) {
		t.Errorf("%q, a knee at %v; want one near .0247", why, math.Exp(l.knee))
	}
}

func TestLogisticBesideTheEstimate(t *testing.T) {
	k := SLOKnee(sharesOf(2.5, 6, 200, 1, 1.5, 2, 3, 4), slo300)
	if k.Logistic == nil || k.Estimate == nil || k.CI95[0] == nil || k.CI95[1] == nil {
		t.Fatalf("%+v", k)
	}
	if e := *k.Logistic.Estimate; math.Abs(e-2.5) > .1 {
		t.Errorf("the curve's estimate is %v, want 2.5", e)
	}
	for _, e := range []float64{*k.Estimate, *k.Logistic.Estimate} {
		if e < *k.CI95[0] || e > *k.CI95[1] {
			t.Errorf("the interval %v to %v does not hold %v", *k.CI95[0], *k.CI95[1], e)
		}
	}
	r := measurement.Results{Config: measurement.Config{SLO: slo300}, Steps: sharesOf(2.5, 6, 200, 1, 1.5, 2, 3, 4)}
	l, why := fitOf(r)
	if low, high := l.holds(math.Log(2)), l.holds(math.Log(3)); why != "" || low < .9 || high > .1 {
		t.Errorf("the objective holds with probability %v at 2 and %v at 3, %s", low, high, why)
	}
	if *k.Estimate != *k.Logistic.Estimate || !strings.Contains(k.Note, "interpolated between the loads beside it alone it is") {
		t.Errorf("the estimate is %v, the curve's %v, and the note %q", *k.Estimate, *k.Logistic.Estimate, k.Note)
	}
	if _, why := fitOf(measurement.Results{Config: measurement.Config{SLO: slo300}, Steps: sharesOf(9, 6, 200, 1, 2, 3)}); !strings.Contains(why, "no load passes below one that fails") {
		t.Errorf("nothing fails: %q", why)
	}
	// Far above the limit is held at the load behind the first that fails.
	level := sharesOf(2.5, 6, 1000, 1, 2, 3, 4, 5) // hardly more are late at more load, and at one none of a few
	for i := range level {
		late := 60 + i
		level[i].LateTurns = &late
	}
	none := 0
	level[2].LateTurns, level[2].NEff = &none, figure(10)
	if l, why := fitLogistic(level, slo300[0], 2, 3); !strings.Contains(why, "outside all loads tried") {
		t.Errorf("%q, a knee at %v, outside all loads", why, math.Exp(l.knee))
	}
	l, _ = fitLogistic(sharesOf(6, 1, 200, 1, 2, 3, 12), slo300[0], 1, 2)
	if f := l.fit(1, 2); *f.Estimate > 3+1e-9 {
		t.Errorf("estimate %v, want 3 at most", *f.Estimate)
	}
}

// The late turns of these loads are those of a fleet whose calls meet each other at some loads only.
func TestACurveThatItsOwnLoadsContradictIsNotBelieved(t *testing.T) {
	at := func(loads ...[2]float64) measurement.Results {
		var steps []measurement.StepResult
		for i, l := range loads {
			s := points([3]float64{l[0], 300 * (.5 + 10*l[1]/3000)})[0]
			s.TTFTP95CI = [2]*float64{figure(.95 * *s.TTFTP95), figure(1.05 * *s.TTFTP95)}
			late, n := int(l[1]), 3000.
			p := holdProbability(l[1], n, .05)
			s.Step, s.MeasuredTurns, s.LateTurns, s.NEff, s.PassProbability, s.Decided = i, 3000, &late, &n, &p, tested(l[1], n, .05)
			steps = append(steps, s)
		}
		return measurement.Results{Label: "x", Config: measurement.Config{Turns: 4, SLO: slo300}, Steps: steps}
	}
	for _, c := range []struct {
		why       string
		r         measurement.Results
		pass, bad float64
		want      string // of the note; "" where the curve is believed
	}{
		{"more are late at the first failing load than above it", at([2]float64{1, 3}, [2]float64{1.5, 10}, [2]float64{2, 216}, [2]float64{2.5, 210}), 1.5, 2,
			"not below 2, which fails by the test of its own turns at 95 %, and these are to be believed: the loads are not in order of lateness, for 7.2 % of the turns are late at 2 and 7 % at 2.5."},
		{"a wave of failures passes through the grid", at([2]float64{1, 60}, [2]float64{2, 300}, [2]float64{3, 100}, [2]float64{4, 90}, [2]float64{5, 900}), 1, 2, "not below 2"},
		{"the curve lies under a load that surely passes", at([2]float64{1, 140}, [2]float64{2, 145}, [2]float64{3, 100}, [2]float64{4, 2000}, [2]float64{5, 2100}, [2]float64{6, 2150}), 3, 4, "not above 3, which passes"},
		{"in order", at([2]float64{1, 3}, [2]float64{1.5, 40}, [2]float64{2, 216}, [2]float64{2.5, 500}), 1.5, 2, ""},
	} {
		k := SLOKnee(c.r.Steps, slo300)
		_, why := fitOf(c.r)
		sure, _ := HoldsAt(c.r, c.bad)
		if k.Estimate == nil || k.CI95[0] == nil || k.CI95[1] == nil || *k.Estimate < *k.CI95[0] || *k.Estimate > *k.CI95[1] {
			t.Errorf("%s: the estimate %v is outside of %v to %v", c.why, value(k.Estimate), value(k.CI95[0]), value(k.CI95[1]))
			continue
		}
		if c.want == "" {
			if k.Logistic == nil || why != "" || !strings.Contains(HowSure(c.r), "By the logistic curve") {
				t.Errorf("%s: no curve: %s", c.why, why)
			}
			continue
		}
		if k.Logistic != nil || how(k) != "interpolated" || *k.Estimate > c.bad || *k.Estimate < c.pass || *k.CI95[0] > c.pass || *k.CI95[1] < c.bad || !strings.Contains(k.Note, c.want) {
			t.Errorf("%s: %s %v in %v to %v, want it between %v and %v: %q", c.why, how(k), *k.Estimate, *k.CI95[0], *k.CI95[1], c.pass, c.bad, k.Note)
		}
		if said := HowSure(c.r); strings.Contains(said, "it is ") || !strings.Contains(said, "which contradicts them") {
			t.Errorf("%s: how sure: %q", c.why, said)
		}
		if strings.Contains(sure, "By the logistic curve") || !strings.Contains(sure, "are to be believed") {
			t.Errorf("%s: at %v: %q", c.why, c.bad, sure)
		}
	}
}
