package analysis

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
		{"the same, saturated from 1.1 on: what follows is not looked at", points([3]float64{.2, 100, 1}, [3]float64{.5, 105, 1}, [3]float64{.8, 120, .99}, [3]float64{1, 170, .98}, [3]float64{1.1, 240, .9}, [3]float64{1.2, 420, .8}, [3]float64{1.25, 700, .7}, [3]float64{1.3, 1500, .6}), measurement.Found, .8, "saturates at 1.1"},
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
