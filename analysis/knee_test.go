package analysis

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kneefinder/measurement"
)

var slo300 = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}

// points makes steps of 100 turns each: λ, P95 TTFT in ms (+Inf for censored), completions/arrivals (0 for unknown).
func points(rows ...[3]float64) []measurement.StepResult {
	var out []measurement.StepResult
	for i, r := range rows {
		if r[2] == 0 {
			r[2] = math.NaN()
		}
		out = append(out, measurement.StepResult{Step: i, Rate: r[0], MeasuredTurns: 100, TTFTP95: figure(r[1]), SaturationRatio: figure(r[2]), ErrorRate: figure(0)})
		if math.IsInf(r[1], 1) {
			out[i].Flags = []string{measurement.FlagCensored}
		}
	}
	return out
}

func checkKnee(t *testing.T, why string, got measurement.Knee, status measurement.KneeStatus, at, estimate float64, note string) {
	t.Helper()
	same := func(a *float64, b float64) bool {
		return a == nil && math.IsNaN(b) || a != nil && math.Abs(*a-b) <= 1e-4*math.Abs(b)
	}
	if got.Status != status || !same(got.Rate, at) || !same(got.Estimate, estimate) || !strings.Contains(got.Note, note) {
		t.Errorf("%s: %s at %v, estimate %v, note %q; want %s at %v, estimate %v, a note with %q", why, got.Status, value(got.Rate), value(got.Estimate), got.Note, status, at, estimate, note)
	}
}

func TestSLOKnee(t *testing.T) {
	none, inf := math.NaN(), math.Inf(1)
	verdicts := func(steps []measurement.StepResult, v ...measurement.Verdict) []measurement.StepResult {
		for i := range v {
			steps[i].Verdict = v[i]
		}
		return steps
	}
	failing := points([3]float64{1, 100}, [3]float64{2, 110}, [3]float64{3, 120})
	failing[1].ErrorRate, failing[2].ErrorRate = figure(.01), figure(.05)
	both := points([3]float64{1, 100}, [3]float64{2, 200}, [3]float64{3, 400})
	for i, itl := range []float64{20, 60, 80} {
		both[i].ITLP95 = figure(itl)
	}
	censoredErrors := points([3]float64{1, 100}, [3]float64{2, inf})
	censoredErrors[1].ErrorRate = figure(.2)
	censoredThenITL := points([3]float64{1, 100}, [3]float64{2, inf}, [3]float64{3, inf})
	for i, itl := range []float64{20, 30, 80} {
		censoredThenITL[i].ITLP95, censoredThenITL[i].ErrorRate = figure(itl), nil
	}
	cut := verdicts(points([3]float64{1, 100}, [3]float64{2, 400}), measurement.Pass, measurement.Fail)
	cut[1].Flags = []string{measurement.FlagIncomplete}
	off := points([3]float64{1, 100}, [3]float64{2, 400})
	off[1].Flags, off[1].ArrivedRate = []string{measurement.FlagOffRate}, figure(1.7)
	own := func(limit float64, quantile float64, metric string, rows ...[]float64) []measurement.StepResult { // λ, P95 TTFT, the objective's value
		var out []measurement.StepResult
		for _, r := range rows {
			s := points([3]float64{r[0], r[1]})[0]
			s.Objectives = []measurement.ObjectiveResult{{Objective: measurement.Objective{Metric: metric, Quantile: quantile, LimitMS: limit}, ValueMS: figure(r[2])}}
			out = append(out, s)
		}
		return out
	}
	const p, f, u = measurement.Pass, measurement.Fail, measurement.Undecided
	for _, c := range []struct {
		why          string
		steps        []measurement.StepResult
		slo          []measurement.Objective
		status       measurement.KneeStatus
		at, estimate float64
		note         string
	}{
		{"eight even rates", points([3]float64{.2, 92}, [3]float64{.4, 95}, [3]float64{.6, 101}, [3]float64{.8, 118}, [3]float64{1, 160}, [3]float64{1.2, 410}, [3]float64{1.4, 2900}, [3]float64{1.6, 9800}),
			slo300, measurement.Found, 1, 1.13361, "P95 TTFT is 160 ms (limit 300 ms); at 1.2"},
		{"rates in any order", points([3]float64{3, 900}, [3]float64{1, 100}, [3]float64{2, 200}), slo300, measurement.Found, 2, 2.26957, ""},
		{"a pass above the first fail does not count", points([3]float64{1, 100}, [3]float64{2, 400}, [3]float64{3, 250}, [3]float64{4, 900}), slo300, measurement.Found, 1, 1 + math.Log(3)/math.Log(3.25), ""},
		{"all pass", points([3]float64{1, 100}, [3]float64{2, 200}), slo300, measurement.AboveRange, 2, none, "No step failed"},
		{"all fail", points([3]float64{1, 400}, [3]float64{2, 500}), slo300, measurement.BelowRange, none, none, "Already the lowest load"},
		{"nothing measured", []measurement.StepResult{{Rate: 1}}, slo300, measurement.NoKnee, none, none, "No step passed or failed"},
		{"no objective", points([3]float64{1, 400}), nil, measurement.NoKnee, none, none, "No objective"},
		{"undecided below the fail", verdicts(points([3]float64{1, 100}, [3]float64{2, 400}), u, f), slo300, measurement.NoKnee, none, none, "nothing is decided"},
		{"undecided between: the curve skips it", verdicts(points([3]float64{1, 100}, [3]float64{2, 250}, [3]float64{3, 900}), p, u, f), slo300, measurement.Found, 1, 2, "Undecided, and passed over: 2 calls/s"},
		{"undecided above", verdicts(points([3]float64{1, 100}, [3]float64{2, 250}), p, u), slo300, measurement.AboveRange, 1, none, "passed over: 2"},
		{"censored without errors known: a bracket and no estimate", points([3]float64{1, 100}, [3]float64{2, inf}), slo300, measurement.Found, 1, none, "somewhere between 1 and 2"},
		{"censored with errors: the errors place it", censoredErrors, slo300, measurement.Found, 1, 1.1, "The estimate is where the error rate reaches 2 %"},
		{"errors alone", failing, slo300, measurement.Found, 2, 2.25, "5 % of turns fail"},
		{"two objectives: the first to cross", both, append([]measurement.Objective{{Metric: "itl", Quantile: .95, LimitMS: 40}}, slo300...), measurement.Found, 1, 1 + math.Log(2)/math.Log(3), "where P95 ITL crosses"},
		{"a percentile that steps do not hold", verdicts(points([3]float64{1, 100}, [3]float64{2, 400}), p, f), []measurement.Objective{{Metric: "ttft", Quantile: .9, LimitMS: 300}}, measurement.Found, 1, none, "No curve of P90 TTFT"},
		{"P90 of TTFT by its own values", own(300, .9, "ttft", []float64{1, 400, 100}, []float64{2, 900, 200}, []float64{3, 2000, 400}), []measurement.Objective{{Metric: "ttft", Quantile: .9, LimitMS: 300}},
			measurement.Found, 2, 2 + math.Log(1.5)/math.Log(2), "P90 TTFT is 200 ms (limit 300 ms); at 3"},
		{"P99.9 of ITL beside P95 of TTFT", own(100, .999, "itl", []float64{1, 100, 50}, []float64{2, 200, 200}, []float64{3, 400, 300}), append([]measurement.Objective{{Metric: "itl", Quantile: .999, LimitMS: 100}}, slo300...),
			measurement.Found, 1, 1.5, "where P99.9 ITL crosses its limit"},
		{"a censored P90", own(300, .9, "ttft", []float64{1, 100, 100}, []float64{2, inf, inf}), []measurement.Objective{{Metric: "ttft", Quantile: .9, LimitMS: 300}},
			measurement.Found, 1, none, "P90 TTFT is censored from 2 calls/s on"},
		{"steps above the first failing one do better: the estimate stays below it", points([3]float64{1, 100}, [3]float64{2, 310}, [3]float64{3, 250}, [3]float64{4, 900}), slo300, measurement.Found, 1, 2, "crosses the limit at 3.06 calls/s only"},
		{"a crossing behind a censored one is no estimate", censoredThenITL, []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}, {Metric: "itl", Quantile: .95, LimitMS: 40}}, measurement.Found, 1, none, "somewhere between 1 and 2"},
		{"a cut step counts for nothing, whatever verdict it was given", cut, slo300, measurement.AboveRange, 1, none, "No step failed"},
		{"the λ that came", off, slo300, measurement.Found, 1, 1 + math.Log(3)/math.Log(4), "The λ that came at 2 was 1.7."},
		{"repeats of a rate: a fail outweighs", points([3]float64{1, 100}, [3]float64{2, 200}, [3]float64{2, 400}, [3]float64{3, 900}), slo300, measurement.Found, 1, 2, ""},
	} {
		checkKnee(t, c.why, SLOKnee(c.steps, c.slo), c.status, c.at, c.estimate, c.note)
	}
}

func TestSLOKneeInterval(t *testing.T) {
	steps := points([3]float64{1, 100}, [3]float64{2, 200}, [3]float64{3, 400}, [3]float64{4, 900})
	for i, ci := range [][2]float64{{80, math.Inf(1)}, {150, 250}, {250, 600}, {500, math.Inf(1)}} {
		steps[i].TTFTP95CI = [2]*float64{figure(ci[0]), figure(ci[1])}
	}
	k := SLOKnee(steps, slo300)
	near(t, "lower end", k.CI95[0], 2+math.Log(300./250)/math.Log(600./250))
	near(t, "upper end", k.CI95[1], 3+math.Log(300./250)/math.Log(500./250))
	if k.Estimate == nil || *k.Estimate < *k.CI95[0] || *k.Estimate > *k.CI95[1] {
		t.Errorf("estimate %v outside its interval", value(k.Estimate))
	}
	steps[2].TTFTP95CI[1] = nil
	near(t, "lower end, unknown above 2", SLOKnee(steps, slo300).CI95[0], 2)
	steps[3].TTFTP95CI[0] = figure(290)
	if k := SLOKnee(steps, slo300); k.CI95[1] != nil {
		t.Errorf("no lower bound over the limit: upper end %v, want none", *k.CI95[1])
	}
}

// TestSLOKneeIsInOrder throws random steps at the knee: it is at or under its estimate, that at or under the load above the first failing
// one, and the interval holds the estimate.
func TestSLOKneeIsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, bounded, fitted := 0, 0, 0
	for range 5000 {
		var steps []measurement.StepResult
		for i := range 2 + r.IntN(7) {
			y := 50 * math.Exp(3*r.Float64()+.3*float64(i))
			if r.IntN(12) == 0 {
				y = math.Inf(1)
			}
			s := points([3]float64{float64(i + 1), y})[0]
			s.MeasuredTurns = 1 + r.IntN(300)
			lo, hi := y*r.Float64(), y*(1+r.Float64())
			if r.IntN(3) == 0 {
				lo = math.NaN()
			}
			if r.IntN(2) == 0 {
				hi = math.Inf(1)
			}
			s.TTFTP95CI = [2]*float64{figure(lo), figure(hi)}
			if r.IntN(3) > 0 { // shares of late turns beside it, for the logistic curve
				late := r.IntN(1 + s.MeasuredTurns/20)
				if y > 300 {
					late = s.MeasuredTurns - r.IntN(1+19*s.MeasuredTurns/20)
				}
				s.LateTurns, s.NEff = &late, figure(float64(s.MeasuredTurns)*(.02+.98*r.Float64()))
			}
			if r.IntN(5) == 0 {
				s.ErrorRate = figure(.1 * r.Float64())
			}
			steps = append(steps, s)
		}
		k := SLOKnee(steps, slo300)
		if k.Estimate == nil {
			continue
		}
		found++
		_, first := bracket(judged(steps, slo300))
		top := first
		if k.Logistic != nil && *k.Estimate == *k.Logistic.Estimate {
			for _, s := range slices.Backward(judged(byRate(steps), slo300)) { // the next load that tells
				if s.Rate > first && s.NEff != nil && s.Verdict != measurement.Undecided {
					top = s.Rate
				}
			}
		}
		if !(*k.Rate <= *k.Estimate && *k.Estimate <= top+1e-9) {
			t.Fatalf("knee %v, estimate %v, first failing rate %v", *k.Rate, *k.Estimate, first)
		}
		for _, end := range k.CI95 {
			if end != nil {
				bounded++
			}
		}
		if f := k.Logistic; f != nil {
			fitted++
			e := *f.Estimate
			if e < *k.Rate || math.IsNaN(e) || f.CI95[0] != nil && *f.CI95[0] > e || f.CI95[1] != nil && *f.CI95[1] < e {
				t.Fatalf("knee %v, the curve's estimate %v in %v to %v", *k.Rate, e, value(f.CI95[0]), value(f.CI95[1]))
			}
		}
		if lo, hi := k.CI95[0], k.CI95[1]; lo != nil && *lo > *k.Estimate || hi != nil && *hi < *k.Estimate {
			t.Fatalf("estimate %v outside %v to %v", *k.Estimate, value(lo), value(hi))
		}
		// The bound curves themselves hold the crossing, before anything is widened.
		c := newCurve(steps, func(s *measurement.StepResult) float64 { return figureOf(s, slo300[0]) }).rising()
		if x, _ := c.crossing(300, math.Log); !math.IsNaN(x) {
			ci := crossingInterval(judged(steps, slo300), 300)
			if ci[0] != nil && *ci[0] > x+1e-9 || ci[1] != nil && *ci[1] < x-1e-9 {
				t.Fatalf("crossing %v outside %v to %v", x, value(ci[0]), value(ci[1]))
			}
		}
	}
	if found < 1000 || bounded < 1000 || fitted < 500 {
		t.Errorf("%d estimates with %d ends tried, want a thousand of each; %d curves, want 500", found, bounded, fitted)
	}
}

func TestStraddling(t *testing.T) {
	steps := points([3]float64{1, 111}, [3]float64{2, 400})
	steps[0].TTFTP95CI = [2]*float64{figure(71), figure(369)}
	if note := SLOKnee(steps, slo300).Note; !strings.Contains(note, "(limit 300 ms; its 95 % interval, 71 to 369 ms, reaches over the limit)") {
		t.Errorf("a passing step whose interval reaches over: %q", note)
	}
	steps[0].TTFTP95CI[1] = nil
	if note := SLOKnee(steps, slo300).Note; !strings.Contains(note, "its 95 % interval, 71 ms or more, reaches over the limit") {
		t.Errorf("a passing step without an upper bound: %q", note)
	}
	steps[0].TTFTP95CI[1], steps[1].TTFTP95CI = figure(299), [2]*float64{figure(290), figure(500)}
	if note := SLOKnee(steps, slo300).Note; strings.Contains(note, "over the limit") || !strings.Contains(note, "290 to 500 ms, reaches under the limit") {
		t.Errorf("a failing step whose interval reaches under: %q", note)
	}
}

func TestCurvatureKnee(t *testing.T) {
	none, inf := math.NaN(), math.Inf(1)
	incomplete := points([3]float64{1, 100}, [3]float64{2, 110}, [3]float64{3, 130}, [3]float64{4, 200}, [3]float64{5, 900})
	incomplete[4].Flags = []string{measurement.FlagIncomplete}
	for _, c := range []struct {
		why    string
		steps  []measurement.StepResult
		status measurement.KneeStatus
		at     float64
		note   string
	}{
		{"eight even rates", points([3]float64{.2, 92}, [3]float64{.4, 95}, [3]float64{.6, 101}, [3]float64{.8, 118}, [3]float64{1, 160}, [3]float64{1.2, 410}, [3]float64{1.4, 2900}, [3]float64{1.6, 9800}), measurement.Found, 1.2, ""},
		{"uneven rates", points([3]float64{.2, 100}, [3]float64{.5, 105}, [3]float64{.8, 120}, [3]float64{1, 170}, [3]float64{1.1, 240}, [3]float64{1.2, 420}, [3]float64{1.25, 700}, [3]float64{1.3, 1500}), measurement.Found, 1.1, ""},
		{"the same, saturated from 1.1 on: what follows is not looked at", points([3]float64{.2, 100, 1}, [3]float64{.5, 105, 1}, [3]float64{.8, 120, .99}, [3]float64{1, 170, .98}, [3]float64{1.1, 240, .9}, [3]float64{1.2, 420, .8}, [3]float64{1.25, 700, .7}, [3]float64{1.3, 1500, .6}), measurement.Found, .8, "completions lag behind arrivals from 1.1 on"},
		{"saturated at once: four points are kept", points([3]float64{1, 100, .9}, [3]float64{2, 110, .9}, [3]float64{3, 120, .9}, [3]float64{4, 1000, .9}, [3]float64{5, 99999, .9}), measurement.Found, 3, "read up to 4"},
		{"censored at the end", points([3]float64{1, 100}, [3]float64{2, 110}, [3]float64{3, 120}, [3]float64{4, 1000}, [3]float64{5, inf}), measurement.Found, 3, "censored at 5"},
		{"censored too soon", points([3]float64{1, 100}, [3]float64{2, 110}, [3]float64{3, inf}, [3]float64{4, inf}, [3]float64{5, inf}), measurement.NoKnee, none, "too few"},
		{"four rates", points([3]float64{1, 100}, [3]float64{2, 110}, [3]float64{3, 120}, [3]float64{4, 1000}), measurement.NoKnee, none, "at least 5 rates; there are 4"},
		{"an incomplete step is not a point", incomplete, measurement.NoKnee, none, "there are 4"},
		{"flat, but for noise", points([3]float64{1, 100}, [3]float64{2, 97}, [3]float64{3, 103}, [3]float64{4, 99}, [3]float64{5, 110}), measurement.NoKnee, none, "flat"},
		{"linear", points([3]float64{1, 100}, [3]float64{2, 200}, [3]float64{3, 300}, [3]float64{4, 400}, [3]float64{5, 500}), measurement.NoKnee, none, "straight line"},
		{"almost linear", points([3]float64{1, 100}, [3]float64{2, 190}, [3]float64{3, 280}, [3]float64{4, 390}, [3]float64{5, 500}), measurement.NoKnee, none, "almost in a straight line"},
		{"concave", points([3]float64{1, 100}, [3]float64{2, 700}, [3]float64{3, 900}, [3]float64{4, 980}, [3]float64{5, 1000}), measurement.NoKnee, none, "no elbow"},
	} {
		checkKnee(t, c.why, CurvatureKnee(c.steps), c.status, c.at, none, c.note)
	}
}

// The elbow of a run depends on where its loads end, and on which were chosen: a run that does not reach saturation says so, and one
// whose loads a search chose has none.
func TestCurvatureOfAPart(t *testing.T) {
	sweep := points([3]float64{1, 100, 1}, [3]float64{2, 110, 1}, [3]float64{3, 130, 1}, [3]float64{4, 200, .99}, [3]float64{5, 900, .98})
	checkKnee(t, "it ends before saturation", CurvatureKnee(sweep), measurement.Found, 4, math.NaN(), "The loads end at 5 calls/s, before saturation")
	whole := append(slices.Clone(sweep), points([3]float64{6, 5000, .5})...)
	if k := CurvatureKnee(whole); k.Status != measurement.Found || strings.Contains(k.Note, "before saturation") {
		t.Errorf("saturated at 6: %s, %q", k.Status, k.Note)
	}
	searched := points([3]float64{1, 100, 1}, [3]float64{2, 110, 1}, [3]float64{4, 200, 1}, [3]float64{8, 900, 1}, [3]float64{5.6, 400, 1}, [3]float64{4.8, 250, 1}, [3]float64{4.8, 260, 1})
	checkKnee(t, "bisected", CurvatureKnee(searched), measurement.NoKnee, math.NaN(), math.NaN(), "2 of the 6 loads were chosen between others")
	extended := points([3]float64{3, 130, 1}, [3]float64{4, 200, 1}, [3]float64{5, 900, .7}, [3]float64{2, 110, 1}, [3]float64{1, 100, 1})
	checkKnee(t, "a sweep that went on below", CurvatureKnee(extended), measurement.Found, 4, math.NaN(), "")
}

// A load that was measured more than once has one figure, and the others are told as such.
func TestALoadMeasuredTwice(t *testing.T) {
	steps := points([3]float64{1, 100}, [3]float64{2, 281}, [3]float64{3, 500}, [3]float64{2, 240}, [3]float64{3, 450}, [3]float64{2, 260})
	for i, w := range []float64{60, 90, 90, 300, 300, 300} {
		steps[i].WindowS = w
		steps[i].LiveCallsMean, steps[i].LiveCallsMax = figure(float64(i)+.5), &steps[i].Step
	}
	for load, want := range map[float64][2]int{1: {0, 1}, 2: {5, 3}, 3: {4, 2}, 4: {-1, 0}} {
		if i, of := StandsFor(judged(steps, slo300), load); i != want[0] || of != want[1] {
			t.Errorf("%v: step %d of %d stands for it, want %d of %d", load, i, of, want[0], want[1])
		}
	}
	failed := slices.Clone(steps)
	failed[1].TTFTP95 = figure(310)
	if i, _ := StandsFor(judged(failed, slo300), 2); i != 1 {
		t.Errorf("step %d, want the one that fails", i)
	}
	k := SLOKnee(steps, slo300)
	for _, want := range []string{"At 2 calls/s P95 TTFT is 260 ms (limit 300 ms; in the other steps of this load 281 ms, 240 ms)", "at 3 calls/s P95 TTFT is 450 ms (limit 300 ms; in the other step of this load 500 ms)"} {
		if !strings.Contains(k.Note, want) {
			t.Errorf("no %q in %q", want, k.Note)
		}
	}
	if got := carries(measurement.Results{Config: measurement.Config{SLO: slo300}, Steps: judged(steps, slo300), Knees: measurement.Knees{SLO: k}}); !strings.Contains(got, "5.5 calls are live") {
		t.Errorf("%q is not of the step that stands for it", got)
	}
	near := points([3]float64{1, 100}, [3]float64{2, 300.3})
	if n := SLOKnee(near, slo300).Note; !strings.Contains(n, "P95 TTFT is 300.3 ms (limit 300 ms)") {
		t.Errorf("a hair over the limit: %q", n)
	}
}

func TestSaturationKnee(t *testing.T) {
	none := math.NaN()
	for _, c := range []struct {
		why          string
		steps        []measurement.StepResult
		status       measurement.KneeStatus
		at, estimate float64
	}{
		{"crosses", points([3]float64{1, 0, 1}, [3]float64{2, 0, .99}, [3]float64{3, 0, .79}), measurement.Found, 2, 2.2},
		{"a lucky step does not undo it", points([3]float64{1, 0, 1}, [3]float64{2, 0, .9}, [3]float64{3, 0, 1}, [3]float64{4, 0, .5}), measurement.Found, 3, 3 + 0./.45},
		{"never", points([3]float64{1, 0, 1}, [3]float64{2, 0, .97}), measurement.AboveRange, 2, none},
		{"from the start", points([3]float64{1, 0, .9}, [3]float64{2, 0, .8}), measurement.BelowRange, none, none},
		{"unknown", points([3]float64{1}), measurement.NoKnee, none, none},
	} {
		checkKnee(t, c.why, SaturationKnee(c.steps), c.status, c.at, c.estimate, "")
	}
	more := points([3]float64{1, 0, 1.03}, [3]float64{2, 0, .5})
	if note := SaturationKnee(more).Note; note != "Of the loads asked, at 1 calls/s all of the turns that came were completed; at 2 calls/s 50 % of the turns that came were completed." {
		t.Errorf("more completed than arrived: %q", note)
	}
	more[0].ArrivedRate = figure(.97)
	if note := SaturationKnee(more).Note; !strings.HasPrefix(note, "Of the loads asked, at 1 calls/s, of which 0.97 came, all of the turns that came were completed;") {
		t.Errorf("what came is known: %q", note)
	}
	more[1].Flags = []string{measurement.FlagIncomplete}
	if k := SaturationKnee(more); k.Status != measurement.AboveRange {
		t.Errorf("a cut step: saturation %s, want above_range", k.Status)
	}
}

// ladder is a published load ladder: seven rates past saturation, P95 of TTFT in seconds after sending.
type ladder struct {
	name                      string
	rates, p95                []float64
	lastPass, crossing, chord float64
}

// Published with inference-perf by kubernetes-sigs (demos/kubecon-na-2025, Apache-2.0); its first rate is about 1/s.
var ladders = []ladder{
	{"vllm", []float64{1, 31.4, 61.8, 92.19, 122.6, 153, 183.4}, []float64{.036, .038, .049, .080, 3.187, 3.281, 3.324}, 92.19, 94.34, 92.19},
	{"vllm+batch_size", []float64{1, 38, 74.94, 111.92, 148.9, 185.9, 222.8}, []float64{.036, .040, .053, .345, 2.386, 2.285, 2.735}, 74.94, 106.19, 111.92},
	{"vllm+chunking_and_prefix_caching", []float64{1, 43.3, 85.5, 127.75, 169.99, 212.2, 254.5}, []float64{.036, .032, .034, .039, .306, 1.870, 1.913}, 127.75, 169.08, 169.99},
}

func TestLadders(t *testing.T) {
	for _, l := range ladders {
		t.Run(l.name, func(t *testing.T) { checkLadder(t, l, 2e-3) })
	}
}

// TestLadderFiles reads the same ladders from their files, where a checkout has them beside it.
func TestLadderFiles(t *testing.T) {
	dir := filepath.Join("..", "..", "shared", "data", "ladders")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the ladders' own files are not at %s; TestLadders checks their rounded figures", dir)
	}
	for _, l := range ladders {
		l.rates, l.p95 = nil, nil
		for i := range 7 {
			b, err := os.ReadFile(filepath.Join(dir, l.name, fmt.Sprintf("stage_%d_lifecycle_metrics.json", i)))
			if err != nil {
				t.Fatal(err)
			}
			var stage struct {
				Load struct {
					Rate float64 `json:"requested_rate"`
				} `json:"load_summary"`
				Successes struct {
					Latency struct {
						TTFT struct {
							P95 float64 `json:"p95"`
						} `json:"time_to_first_token"`
					} `json:"latency"`
				} `json:"successes"`
			}
			if err := json.Unmarshal(b, &stage); err != nil {
				t.Fatal(err)
			}
			l.rates, l.p95 = append(l.rates, stage.Load.Rate), append(l.p95, stage.Successes.Latency.TTFT.P95)
		}
		t.Run(l.name, func(t *testing.T) { checkLadder(t, l, 1e-4) })
	}
}

func checkLadder(t *testing.T, l ladder, tolerance float64) {
	var rows [][3]float64
	for i := range l.rates {
		rows = append(rows, [3]float64{l.rates[i], 1000 * l.p95[i]})
	}
	steps := points(rows...)
	is := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance*want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	k := SLOKnee(steps, slo300)
	is("last pass", value(k.Rate), l.lastPass)
	if k.Status != measurement.Found || value(k.Estimate) < l.lastPass {
		t.Errorf("status %s, estimate %v", k.Status, value(k.Estimate))
	}
	// The published crossing is linear in the latency and takes the points as they are.
	c := newCurve(steps, func(s *measurement.StepResult) float64 { return value(s.TTFTP95) })
	x, _ := c.crossing(300, linear)
	is("linear crossing", x, l.crossing)
	is("chord knee", value(CurvatureKnee(steps).Rate), l.chord)
	if i, ok := Kneedle(c.x, c.y, ConvexIncreasing); !ok {
		t.Error("Kneedle: none")
	} else {
		is("Kneedle", c.x[i], l.chord)
	}
}

// A load at which the cap held calls back tells nothing of what the server completes, and is not passed off as untried.
func TestSaturationWhereTheCapHeldCalls(t *testing.T) {
	kept := 1.
	var steps []measurement.StepResult
	for i, x := range []float64{6, 12, 18} {
		s := points([3]float64{x, 40})[0]
		s.Step, s.MeasuredTurns, s.ThroughputTurns, s.SaturationRatio = i, 100, figure(3*x), &kept
		steps = append(steps, s)
	}
	steps[2].SaturationRatio, steps[2].Flags, steps[2].Verdict = nil, []string{measurement.FlagCapBound}, measurement.Undecided
	steps[2].ThroughputTurns = figure(39.3)
	k := SaturationKnee(steps)
	if head := kneeHead(perSecond, k, steps); head != "above 12 calls/s, the highest load that tells." || !strings.Contains(k.Note, "At 18 calls/s the cap on concurrent calls held some back, so that it cannot be read there") {
		t.Errorf("saturation: %s %q", head, k.Note)
	}
	if said := othersSentence(perSecond, otherKnees(perSecond, measurement.Config{Turns: 4}, steps)); !strings.Contains(said, "throughput peaks above 12") {
		t.Errorf("what the cap lets through is taken for what the server does: %s", said)
	}
	if head := kneeHead(perSecond, SaturationKnee(steps[:2]), steps[:2]); head != "above 12 calls/s, the range tried." {
		t.Errorf("nothing above was tried: %s", head)
	}
	one := SLOKnee(steps[:1], slo300)
	if one.Status != measurement.AboveRange || !strings.Contains(one.Note, "The one load tried, 6 calls/s, passes, so the knee lies above it if lower loads pass too.") {
		t.Errorf("one load: %+v", one)
	}
}
