package telemetry

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"kneefinder/clock"
	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// get is what /metrics answers.
func get(t testing.TB, tel *Telemetry, accept string) string {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("/metrics answers %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

const openMetrics = "application/openmetrics-text; version=1.0.0"

// gather is all families by name.
func gather(t testing.TB, tel *Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := tel.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*dto.MetricFamily{}
	for _, mf := range all {
		by[mf.GetName()] = mf
	}
	return by
}

// metric is the one series of a family with these labels, which come in pairs; nil when there is none.
func metric(fs map[string]*dto.MetricFamily, name string, labels ...string) *dto.Metric {
	for _, m := range fs[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		ok := true
		for i := 0; i+1 < len(labels); i += 2 {
			ok = ok && has[labels[i]] == labels[i+1]
		}
		if ok {
			return m
		}
	}
	return nil
}

// smallRun is two steps with a turn of every kind, told of by hand.
func smallRun(tel *Telemetry, h *hand) {
	tel.SetRun(measurement.Header{Label: "test", Tool: "kneeload v1", Config: measurement.Config{Turns: 3, OutputTokens: 4, SLO: objectives},
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5", Model: "gemma", GPU: "L40S", BaseURL: "http://10.0.0.1:30000/v1"}})
	tel.SetState(Running)
	rec := measurement.Step{Step: 0, Rate: 2, Start: 0, WindowStart: time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never}
	tel.StepBegin(rec)
	call := func(step, n int, at time.Duration, ttft time.Duration, phase measurement.Phase) {
		h.now = at
		tel.InFlight(at, 1, 0)
		for k := 1; k <= 3; k++ {
			tel.InFlight(at, 1, 1)
			u := turn(step, step*measurement.CallsPerStep+n, k, at+500*ms, ttft, 3, 20*ms)
			if k == 1 {
				u = turn(step, step*measurement.CallsPerStep+n, k, at+500*ms, ttft, 0, 0)
				u.CachedTokens, u.Dialed, u.Retries = 0, 2*ms, 1
			}
			u.Phase = phase
			at += 600 * ms
			h.now = at
			tel.InFlight(at, 1, 0)
			tel.Turn(u)
		}
		tel.sample()
		tel.InFlight(at, 0, 0)
	}
	call(0, 0, 0, 100*ms, measurement.Warmup)
	call(0, 1, 2*time.Second, 300*ms, measurement.Window)
	call(0, 2, 4*time.Second, 301*ms, measurement.Window)
	rec.WindowEnd, rec.DrainEnd = 6*time.Second, 8*time.Second
	h.now = 8 * time.Second
	tel.StepEnd(rec)
	v := func(x float64) *float64 { return &x }
	ended := measurement.StepResult{
		Step: 0, Rate: 2, ArrivedRate: v(.5), MeasuredTurns: 4, ErrorRate: v(0), TTFTP50: v(300), TTFTP95: v(301), TTFTP95CI: [2]*float64{v(299), nil},
		ITLP50: v(20), ITLP95: v(20), ITLP99: v(20), TPOTP50: v(20), CacheHitRate: v(.95), LiveCallsMean: v(.7), SaturationRatio: v(1), ScheduleLagP99: v(.05),
		Verdict: measurement.Fail, Flags: []string{measurement.FlagShort, measurement.FlagOffRate},
	}
	tel.Results(measurement.Results{
		Steps:    []measurement.StepResult{ended},
		Knees:    measurement.Knees{SLO: measurement.Knee{Status: measurement.Found, Rate: v(1), Estimate: v(1.5), CI95: [2]*float64{v(1.25), v(1.75)}}, Curvature: measurement.Knee{Status: measurement.NoKnee}, Saturation: measurement.Knee{Status: measurement.AboveRange}},
		Arrivals: measurement.Arrivals{Calls: 3, KS: &measurement.Test{P: .5}, CV: v(.9), Dispersion: []measurement.WindowTest{{WindowS: 10, Test: measurement.Test{P: .25}}}, Certified: true},
	})
	tel.ServerTTFT(0, .25, .0125)
	tel.StepBegin(measurement.Step{Step: 1, Rate: 4, Start: 8 * time.Second, WindowStart: 10 * time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never})
	tel.StepBegin(measurement.Step{Step: 1, Rate: 5, Start: 8 * time.Second, WindowStart: 10 * time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never})
	call(1, 0, 9*time.Second, 10*ms, measurement.Warmup)
	failed := turn(1, measurement.CallsPerStep+1, 2, 11*time.Second, 0, 0, 0)
	failed.FirstToken, failed.LastToken, failed.FirstEvent, failed.Events, failed.Outcome = measurement.Never, measurement.Never, measurement.Never, 0, measurement.HTTP5xx
	failed.PromptTokens, failed.CompletionTokens, failed.CachedTokens = measurement.Unknown, measurement.Unknown, measurement.Unknown
	tel.Turn(failed)
	unsent := measurement.NewTurn()
	unsent.Step, unsent.Call, unsent.Turn, unsent.Due, unsent.Phase, unsent.Outcome = 1, measurement.CallsPerStep+1, 3, 11*time.Second, measurement.Window, measurement.NotSent
	tel.Turn(unsent)
	unsent.Call, unsent.Turn, unsent.Outcome = measurement.CallsPerStep+2, 1, measurement.Shed
	tel.Turn(unsent)
	tel.CountScrape("engine", true)
	tel.CountScrape("gpu", false)
	tel.InFlight(11*time.Second, 2, 1)
	h.now = 12 * time.Second
}

// shown are the families whose values the golden file holds: all that do not depend on the build or the machine.
func shown(t testing.TB, tel *Telemetry) (all []string) {
	t.Helper()
	for name := range gather(t, tel) {
		if strings.HasPrefix(name, "kneeload_") && name != names.BuildInfo || strings.HasPrefix(name, "gen_ai_") || name == "target_info" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestGolden(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.GenAI = true })
	smallRun(tel, h)
	path := filepath.Join("testdata", "run.prom")
	if *update {
		var b bytes.Buffer
		fs := gather(t, tel)
		for _, name := range shown(t, tel) {
			if _, err := expfmt.MetricFamilyToText(&b, fs[name]); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if err := testutil.GatherAndCompare(tel.Registry(), want, shown(t, tel)...); err != nil {
		t.Error(err)
	}
}

// Every name of the contract is shown once a run has come so far, and nothing that is not in it.
func TestEveryNameIsShown(t *testing.T) {
	to := receive(t)
	tel, h := start(t, func(c *Config) {
		c.Native = true
		c.OTLP = OTLP{Endpoint: to.grpc, Insecure: true, Metrics: true, Interval: time.Hour}
	})
	fill(tel, h, 3, rand.New(rand.NewPCG(1, 2)))
	smallRun(tel, h)
	got := gather(t, tel)
	source, err := os.ReadFile(filepath.Join("names", "names.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, quoted := range regexp.MustCompile(`"kneeload_\w+"`).FindAllString(string(source), -1) {
		name := strings.Trim(quoted, `"`)
		if _, ok := got[name]; !ok {
			t.Errorf("%s is in the contract and not shown", name)
		}
	}
	for name, mf := range got {
		if strings.HasPrefix(name, "kneeload_") && (help(name) == "" || mf.GetHelp() != help(name)) {
			t.Errorf("%s is shown with the help %q, want %q", name, mf.GetHelp(), help(name))
		}
	}
}

func TestLint(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Native, c.GenAI = true, true })
	smallRun(tel, h)
	problems, err := testutil.GatherAndLint(tel.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(get(t, tel, "text/plain"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// The bucket of a limit counts the turns within it, to the nanosecond, as the analysis judges them: by milliseconds.
func TestLimitIsAnEdge(t *testing.T) {
	for _, limit := range []float64{300, 37.3, .1, 299.9999999, 1000. / 3, 61000} {
		tel, _ := start(t, func(c *Config) {
			c.Objectives = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: limit}, {Metric: "itl", Quantile: .95, LimitMS: limit}}
		})
		rng := rand.New(rand.NewPCG(7, uint64(limit*1e6)))
		edge := time.Duration(limit * 1e6)
		within, ok, gapsWithin := 0, 0, 0
		for n := range 5000 {
			d := time.Duration(rng.Float64() * 2 * float64(edge))
			if n%3 == 0 {
				d = edge + time.Duration(rng.IntN(5)-2)
			}
			u := turn(0, n, 2, time.Hour, d, 0, 0)
			u.Gaps = []time.Duration{d, d + 1}
			if n%10 == 0 {
				u.Outcome = measurement.Truncated
			}
			if float64(d)/1e6 <= limit {
				within++
				if u.Outcome == measurement.OK {
					ok++
				}
			}
			for _, g := range u.Gaps {
				if float64(g)/1e6 <= limit {
					gapsWithin++
				}
			}
			tel.step(0).began = true
			tel.Turn(u)
		}
		fs := gather(t, tel)
		for _, of := range []struct {
			name string
			want int
		}{{names.TTFT, within}, {names.ITL, gapsWithin}} {
			found := false
			for _, b := range metric(fs, of.name, names.TurnClass, names.Measured).Histogram.Bucket {
				if b.GetUpperBound() == names.Seconds(limit) {
					found = true
					if got := int(b.GetCumulativeCount()); got != of.want {
						t.Errorf("limit %v ms: the bucket of %s counts %d, want %d", limit, of.name, got, of.want)
					}
				}
			}
			if !found {
				t.Errorf("limit %v ms is no edge of %s", limit, of.name)
			}
		}
		if got := int(metric(fs, names.TurnsInSLOTotal).Counter.GetValue()); got != ok {
			t.Errorf("limit %v ms: %d turns within, want %d", limit, got, ok)
		}
	}
}

// The gauges of an ended step are the results' figures: milliseconds divided by 1,000, and nothing else done to them.
func TestFiguresAreExact(t *testing.T) {
	tel, _ := start(t, nil)
	rng := rand.New(rand.NewPCG(3, 4))
	r := measurement.StepResult{Step: 3, MeasuredTurns: 77, Verdict: measurement.Undecided}
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Type() == reflect.TypeFor[*float64]() {
			x := rng.ExpFloat64() * 1000
			f.Set(reflect.ValueOf(&x))
		}
	}
	lo, hi := 1./3, math.Pi
	r.TTFTP95CI = [2]*float64{&lo, &hi}
	tel.StepResult(r)
	fs := gather(t, tel)
	for _, c := range []struct {
		name, q string
		want    float64
	}{
		{names.StepArrived, "", *r.ArrivedRate}, {names.StepTTFT, "0.5", *r.TTFTP50 / 1e3}, {names.StepTTFT, "0.95", *r.TTFTP95 / 1e3}, {names.StepTTFT, "0.99", *r.TTFTP99 / 1e3},
		{names.StepTTFTLow, "", lo / 1e3}, {names.StepTTFTHigh, "", hi / 1e3}, {names.StepTTFTSent, "0.95", *r.TTFTSentP95 / 1e3},
		{names.StepITL, "0.5", *r.ITLP50 / 1e3}, {names.StepITL, "0.95", *r.ITLP95 / 1e3}, {names.StepITL, "0.99", *r.ITLP99 / 1e3}, {names.StepTPOT, "0.5", *r.TPOTP50 / 1e3},
		{names.StepHit, "", *r.CacheHitRate}, {names.StepErrors, "", *r.ErrorRate}, {names.StepTurns, "", 77}, {names.StepLive, "", *r.LiveCallsMean},
		{names.StepThroughput, "", *r.ThroughputTurns}, {names.StepOutput, "", *r.OutputTokens}, {names.StepSaturation, "", *r.SaturationRatio}, {names.StepLag, "", *r.ScheduleLagP99 / 1e3},
	} {
		labels := []string{names.Step, "3"}
		if c.q != "" {
			labels = append(labels, names.Quantile, c.q)
		}
		if m := metric(fs, c.name, labels...); m == nil || m.Gauge.GetValue() != c.want {
			t.Errorf("%s %s is %v, want %v", c.name, c.q, m, c.want)
		}
	}
	tel.StepResult(measurement.StepResult{Step: 3, Verdict: measurement.Fail})
	fs = gather(t, tel)
	if m := metric(fs, names.StepTTFT); m != nil {
		t.Errorf("a percentile that the results lack is shown as %v", m)
	}
	if got := metric(fs, names.StepVerdict, names.Verdict, "fail").Gauge.GetValue(); got != 1 {
		t.Errorf("the newer verdict is shown as %v, want 1", got)
	}
}

// A step that has ended is shown as it is, also when something is told of it late.
func TestLateTurnOfAnEndedStep(t *testing.T) {
	tel, h := start(t, nil)
	fill(tel, h, 2, rand.New(rand.NewPCG(1, 2)))
	count := func() float64 {
		return metric(gather(t, tel), names.TurnsTotal, names.Step, "0", names.TurnClass, names.Measured, names.Outcome, "ok").Counter.GetValue()
	}
	before := count()
	tel.Turn(turn(0, 1, 2, h.now, ms, 1, ms))
	if after := count(); after != before+1 {
		t.Errorf("%v turns after one more than %v", after, before)
	}
}

// The percentiles of the rolling window are those of the sorted raw values.
func TestPercentiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 400 {
		values := make([]float64, n)
		for i := range values {
			switch rng.IntN(10) {
			case 0:
				values[i] = math.Inf(1)
			case 1, 2, 3:
				values[i] = float64(rng.IntN(4))
			default:
				values[i] = rng.ExpFloat64()
			}
		}
		sorted := slices.Clone(values)
		slices.Sort(sorted)
		for i, got := range percentiles(values) {
			want := measurement.Quantile(sorted, quantiles[i])
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("P%v of %d values is %v, want %v", 100*quantiles[i], n, got, want)
			}
		}
	}
}

func TestWindowRolls(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Window = 10 * time.Second })
	tel.StepBegin(measurement.Step{Rate: 1})
	for i := range 30 {
		h.now = time.Duration(i) * time.Second
		tel.InFlight(h.now, 1, 0)
		tel.InFlight(h.now, 0, 0)
		u := turn(0, i, 2, h.now, time.Duration(i)*10*ms, 2, time.Duration(i)*ms)
		if i == 25 {
			u.Outcome = measurement.Stall
		}
		tel.Turn(u)
		first := turn(0, i, 1, h.now, time.Hour, 0, 0) // counts for errors alone
		tel.Turn(first)
	}
	check := func(name, q string, want float64) {
		t.Helper()
		labels := []string{}
		if q != "" {
			labels = append(labels, names.Quantile, q)
		}
		m := metric(gather(t, tel), name, labels...)
		if m == nil || math.Abs(m.Gauge.GetValue()-want) > 1e-9 {
			t.Errorf("%s %s is %v, want %v", name, q, m, want)
		}
	}
	h.now += 500 * ms // 20 to 29 s are within
	check(names.WindowTurns, "", 10)
	check(names.WindowTTFT, "0.5", .245)
	check(names.WindowITL, "0.5", .0245)
	check(names.WindowErrors, "", 1./20)
	check(names.WindowHit, "", .95)
	check(names.ArrivedRate, "", 1)
	check(names.WindowSeconds, "", 10)
	tokenless := turn(0, 99, 2, h.now, 0, 0, 0)
	tokenless.FirstToken, tokenless.Outcome = measurement.Never, measurement.TTFTTimeout
	tel.Turn(tokenless)
	if got := metric(gather(t, tel), names.WindowTTFT, names.Quantile, "0.99").Gauge.GetValue(); !math.IsInf(got, 1) {
		t.Errorf("a P99 that lands on a turn without a token is %v, want +Inf", got)
	}
	h.now += time.Hour
	check(names.WindowTurns, "", 0)
	if m := metric(gather(t, tel), names.WindowTTFT); m != nil {
		t.Errorf("a percentile of nothing is shown as %v", m)
	}
	for i := range windowTurns + 10 {
		tel.Turn(turn(0, i, 2, h.now, time.Duration(i), 5, ms))
	}
	check(names.WindowTurns, "", windowTurns)
	if n := tel.window.gaps.len(); n != windowGaps {
		t.Errorf("%d gaps are held, want %d", n, windowGaps)
	}
}

// What is in no rolling figure, and that they begin anew with each step, but not when the rate of one is turned.
func TestWindowOfAStep(t *testing.T) {
	tel, h := start(t, nil)
	want := func(why, name string, want float64) {
		t.Helper()
		m := metric(gather(t, tel), name)
		if math.IsNaN(want) {
			if m != nil {
				t.Errorf("%s: %s is %v, want none", why, name, m)
			}
		} else if m == nil || math.Abs(m.Gauge.GetValue()-want) > 1e-9 {
			t.Errorf("%s: %s is %v, want %v", why, name, m, want)
		}
	}
	none := math.NaN()
	want("by default", names.WindowSeconds, 30)
	want("before the first step", names.ArrivedRate, none)
	tel.StepBegin(measurement.Step{Step: 0, Rate: 2})
	calls := func(n int) {
		for range n {
			h.now += time.Second
			tel.InFlight(h.now, 1, 0)
			tel.InFlight(h.now, 0, 0)
		}
	}
	calls(10)
	h.now += settles
	want("10 calls in 10.1 s", names.ArrivedRate, 10/10.1)
	tel.Turn(turn(0, 1, 2, h.now, 20*ms, 1, ms))
	cut := turn(0, 2, 2, h.now, 0, 0, 0)
	cut.FirstToken, cut.Outcome, cut.Phase = measurement.Never, measurement.TotalTimeout, measurement.Drain
	tel.Turn(cut)
	unsent := measurement.NewTurn()
	unsent.Turn, unsent.Due, unsent.Phase, unsent.Outcome = 3, h.now, measurement.Drain, measurement.NotSent
	tel.Turn(unsent)
	unsent.Phase = measurement.Window
	tel.Turn(unsent)
	canceled := cut
	canceled.Phase, canceled.Outcome = measurement.Window, measurement.Canceled
	tel.Turn(canceled)
	want("a drain's", names.WindowErrors, 0)
	want("a drain's", names.WindowTurns, 1)
	want("a drain's", names.WindowTTFT, .02)
	ours := cut
	ours.Phase, ours.Outcome, ours.Local = measurement.Window, measurement.Connect, true
	tel.Turn(ours)
	want("a failure of this side is no slow server", names.WindowTTFT, .02)
	want("a failure of this side is an error", names.WindowErrors, .5)

	tel.StepBegin(measurement.Step{Step: 0, Rate: 3})
	want("the rate of the step is turned", names.WindowTurns, 2)
	want("the rate of the step is turned", names.ArrivedRate, 10/10.1)

	begin := h.now
	tel.StepBegin(measurement.Step{Step: 1, Rate: 4, Start: begin})
	for _, name := range []string{names.WindowTTFT, names.WindowITL, names.WindowErrors, names.WindowHit, names.ArrivedRate} {
		want("a new step", name, none)
	}
	want("a new step", names.WindowTurns, 0)
	calls(4)
	h.now += time.Second
	want("4 calls in 5 s", names.ArrivedRate, .8)
	tel.Turn(turn(1, 3, 2, h.now, 40*ms, 1, ms))
	tel.StepEnd(measurement.Step{Step: 1, WindowEnd: h.now, DrainEnd: h.now})
	tel.SetState(Done)
	want("just after the end", names.WindowTTFT, .04)
	h.now += time.Minute
	for _, name := range []string{names.WindowTTFT, names.WindowITL, names.WindowErrors, names.WindowHit} {
		want("a minute after the end", name, none)
	}
}

// Only a knee that is found has a rate.
func TestKneeOfAStatus(t *testing.T) {
	tel, _ := start(t, nil)
	v := func(x float64) *float64 { return &x }
	for _, status := range []measurement.KneeStatus{measurement.Found, measurement.AboveRange, measurement.BelowRange, measurement.NoKnee} {
		k := measurement.Knee{Status: status, Rate: v(2), Estimate: v(2.5), CI95: [2]*float64{v(2.1), v(2.9)}}
		tel.Results(measurement.Results{Knees: measurement.Knees{SLO: k, Curvature: k, Saturation: k}})
		fs := gather(t, tel)
		for _, kind := range []string{"slo", "curvature", "saturation"} {
			for _, name := range []string{names.KneeRate, names.KneeEstimate, names.KneeLow, names.KneeHigh} {
				if m := metric(fs, name, names.Knee, kind); (m != nil) != (status == measurement.Found) {
					t.Errorf("%s of a %s knee that is %s is %v", name, kind, status, m)
				}
			}
			if m := metric(fs, names.KneeStatus, names.Knee, kind, names.Status, string(status)); m.Gauge.GetValue() != 1 {
				t.Errorf("the status of a %s knee that is %s is %v", kind, status, m)
			}
		}
	}
}

// Calls that begin are counted exactly, however what is told of them overtakes each other.
func TestFlightsOutOfOrder(t *testing.T) {
	tel, h := start(t, nil)
	rng := rand.New(rand.NewPCG(8, 9))
	tel.StepBegin(measurement.Step{Rate: 1})
	var told []flight
	calls, began := 0, 0
	for i := range 20000 {
		if calls == 0 || rng.IntN(2) == 0 {
			calls++
			began++
		} else {
			calls--
		}
		told = append(told, flight{at: time.Duration(i) * 100 * time.Microsecond, calls: calls})
	}
	for i := 0; i+20 < len(told); i += 20 {
		rng.Shuffle(20, func(a, b int) { told[i+a], told[i+b] = told[i+b], told[i+a] })
	}
	for _, f := range told {
		tel.InFlight(f.at, f.calls, f.turns)
		if n := len(tel.flights.pending); n > 1100 {
			t.Fatalf("%d flights wait", n)
		}
	}
	h.now = 10 * time.Second
	fs := gather(t, tel)
	if got := metric(fs, names.CallsTotal).Counter.GetValue(); got != float64(began) {
		t.Errorf("%v calls began, want %d", got, began)
	}
	if got := metric(fs, names.CallsInFlight).Gauge.GetValue(); got != float64(calls) {
		t.Errorf("%v calls are in flight, want %d", got, calls)
	}
}

// Native histograms hold every value, each in a bucket that it belongs to, but for the width of an HdrHistogram's cell.
func TestNative(t *testing.T) {
	tel, _ := start(t, func(c *Config) { c.Native = true })
	rng := rand.New(rand.NewPCG(1, 9))
	var values []float64
	tel.StepBegin(measurement.Step{Rate: 1})
	for i := range 2000 {
		d := time.Duration(math.Exp(rng.Float64()*15) * float64(10*time.Microsecond))
		if i < 20 {
			d = time.Second >> i // powers of two stand at the ends of buckets
		}
		values = append(values, d.Seconds())
		tel.Turn(turn(0, i, 2, time.Hour, d, 1, d))
	}
	fs := gather(t, tel)
	for _, name := range []string{names.NativeT, names.NativeI} {
		h := metric(fs, name).Histogram
		if h.GetSchema() != nativeScale || int(h.GetSampleCount()) != len(values) {
			t.Fatalf("%s: schema %d, %d values; want %d, %d", name, h.GetSchema(), h.GetSampleCount(), nativeScale, len(values))
		}
		ends := []float64{}
		i, n := int32(0), int64(0)
		for _, s := range h.PositiveSpan {
			i += s.GetOffset()
			for range s.GetLength() {
				n += h.PositiveDelta[0]
				h.PositiveDelta = h.PositiveDelta[1:]
				for range n {
					ends = append(ends, math.Exp2(float64(i)/(1<<nativeScale)))
				}
				i++
			}
		}
		if len(ends) != len(values) {
			t.Fatalf("%s: buckets hold %d values, want %d", name, len(ends), len(values))
		}
		slices.Sort(values)
		width, cell := math.Exp2(1./(1<<nativeScale)), 512e-9 // an HdrHistogram that begins at 1 us counts by 512 ns
		for i, v := range values {
			if v > ends[i]*1.001+cell || v < ends[i]/width/1.001-cell {
				t.Errorf("%s: %v is in the bucket that ends at %v", name, v, ends[i])
			}
		}
	}
	if h := metric(fs, names.TTFT).Histogram; len(h.PositiveSpan) > 0 || len(h.Bucket) == 0 {
		t.Errorf("%s is to have explicit buckets alone", names.TTFT)
	}
}

// A token event costs less than 100 ns and allocates nothing.
func TestCostOfAToken(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Native = true })
	tel.StepBegin(measurement.Step{Rate: 1})
	h.now = time.Hour
	u := turn(0, 1, 2, h.now, 150*ms, 100, 0)
	for i := range u.Gaps {
		u.Gaps[i] = time.Duration(1+i%40) * ms
	}
	if allocs := testing.AllocsPerRun(1000, func() { tel.Turn(u) }); allocs > 0 {
		t.Errorf("a turn of 100 gaps allocates %v times", allocs)
	}
	if raceEnabled {
		t.Skip("times mean nothing under the race detector")
	}
	best := time.Hour
	for n := 0; n < 500 && best > 100*time.Nanosecond; n++ {
		begin := time.Now()
		for range 10 {
			tel.Turn(u)
		}
		best = min(best, time.Since(begin)/1000)
	}
	if best > 100*time.Nanosecond {
		t.Errorf("a token event costs %v, at most 100ns are wanted", best)
	}
}

// A scrape of 16 steps takes less than 5 ms.
func TestCostOfAScrape(t *testing.T) {
	if raceEnabled {
		t.Skip("times mean nothing under the race detector")
	}
	tel, h := start(t, nil)
	fill(tel, h, 16, rand.New(rand.NewPCG(1, 2)))
	for range windowGaps / 20 { // a full window
		tel.Turn(turn(16, 1, 2, h.now, 150*ms, 20, 10*ms))
	}
	best := time.Hour
	for begun := time.Now(); best > 5*time.Millisecond && time.Since(begun) < 20*time.Second; { // the machine may be busy with something else
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", openMetrics)
		begin := time.Now()
		tel.Handler().ServeHTTP(&nowhere{header: http.Header{}}, r)
		best = min(best, time.Since(begin))
	}
	if best > 5*time.Millisecond {
		t.Errorf("a scrape takes %v, at most 5ms are wanted", best)
	}
}

// An hour of load leaves memory and the number of series where they were.
func TestAnHour(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Native = true })
	rng := rand.New(rand.NewPCG(1, 2))
	gaps := make([]time.Duration, 20)
	series := func() (n int) {
		for _, mf := range gather(t, tel) {
			if strings.HasPrefix(mf.GetName(), "kneeload_") {
				n += len(mf.Metric)
			}
		}
		return n
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var sizes []uint64
	var counts []int
	call := 0
	for step := range 60 {
		rec := measurement.Step{Step: step, Rate: 10, Start: h.now, WindowStart: h.now, WindowEnd: h.now + time.Minute, DrainEnd: h.now + time.Minute}
		tel.StepBegin(rec)
		for range 60 * 40 {
			h.now += time.Second / 40
			call++
			tel.InFlight(h.now, 1+call%5, 1)
			u := turn(step, call, 1+call%3, h.now, time.Duration(rng.ExpFloat64()*float64(200*ms)), 0, 0)
			for i := range gaps {
				gaps[i] = time.Duration(rng.Uint64() >> 36)
			}
			u.Gaps = gaps
			if call%4 == 0 {
				u.Phase = measurement.Warmup
			}
			if call%11 < 2 {
				u.Outcome = measurement.Stall
			}
			tel.Turn(u)
			if call%40 == 0 {
				tel.sample()
			}
		}
		tel.StepEnd(rec)
		tel.StepResult(measurement.StepResult{Step: step, Verdict: measurement.Pass})
		if step == 39 || step == 59 {
			counts, sizes = append(counts, series()), append(sizes, heap())
		}
	}
	if counts[0] != counts[1] {
		t.Errorf("%d series after 40 minutes, %d after an hour", counts[0], counts[1])
	}
	if grown := float64(sizes[1])/float64(sizes[0]) - 1; grown > .05 {
		t.Errorf("%d bytes after 40 minutes, %d after an hour: %.0f %% more", sizes[0], sizes[1], 100*grown)
	}
	t.Logf("%d series, %.1f MB", counts[1], float64(sizes[1])/1e6)
	if got := len(gather(t, tel)[names.StepRate].Metric); got != keptSteps {
		t.Errorf("%d steps have series, want %d", got, keptSteps)
	}
}

// The number of series does not depend on how many calls were made.
func TestSeriesAreIndependentOfCalls(t *testing.T) {
	count := func(calls int) (n int) {
		tel, h := start(t, nil)
		tel.StepBegin(measurement.Step{Rate: 1})
		h.now = 2 * time.Second
		for i := range calls {
			h.now += ms
			tel.Turn(turn(0, i, 1+i%4, h.now, time.Duration(i)*ms, 3, ms))
		}
		tel.sample()
		for _, mf := range gather(t, tel) {
			n += len(mf.Metric)
		}
		return n
	}
	if few, many := count(8), count(8000); few != many {
		t.Errorf("%d series after 8 calls, %d after 8000", few, many)
	}
}

// Calls in flight are sampled once a second while a step runs.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, err := New(t.Context(), Config{Clock: clock.NewWall()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * ms)
		tel.StepBegin(measurement.Step{Rate: 1})
		tel.InFlight(tel.cfg.Clock.Now(), 7, 3)
		time.Sleep(3 * time.Second)
		tel.StepEnd(measurement.Step{Rate: 1, DrainEnd: tel.cfg.Clock.Now()})
		time.Sleep(5 * time.Second)
		if h := metric(gather(t, tel), names.Calls).Histogram; h.GetSampleCount() != 3 || h.GetSampleSum() != 21 {
			t.Errorf("%d samples of %v calls together, want 3 of 21", h.GetSampleCount(), h.GetSampleSum())
		}
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if fs := gather(t, tel); metric(fs, names.Calls) == nil {
			t.Error("nothing is shown after Shutdown")
		}
	})
}

// Everything may be told and asked at once; run with -race.
func TestManyAtOnce(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Native, c.GenAI = true, true })
	h.now = time.Minute
	tel.StepBegin(measurement.Step{Rate: 1})
	done := make(chan bool)
	for g := range 4 {
		go func() {
			defer func() { done <- true }()
			for i := range 200 {
				tel.InFlight(time.Duration(i), g, g)
				tel.Turn(turn(i/50, i, 2, h.now, ms, 3, ms))
				tel.CountScrape("engine", true)
				if i%40 == 0 {
					tel.StepResult(measurement.StepResult{Step: i / 50})
					tel.SetState(Draining)
					tel.Annotate(http.Header{}, 0, i, 1, measurement.Window)
					if _, err := tel.Registry().Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
}

// Scrapes share what has been translated once; run with -race.
func TestScrapesAtOnce(t *testing.T) {
	tel, h := start(t, func(c *Config) { c.Native = true })
	fill(tel, h, 3, rand.New(rand.NewPCG(1, 2)))
	want := strings.Count(get(t, tel, "text/plain"), "\n"+names.TTFT+"_bucket")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				accept := []string{"text/plain", openMetrics, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"}[i%3]
				if got := strings.Count(get(t, tel, accept), "\n"+names.TTFT+"_bucket"); i%3 < 2 && got != want {
					t.Errorf("%d buckets, want %d", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestBadConfig(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no clock", func(c *Config) { c.Clock = nil }, "no clock"},
		{"window", func(c *Config) { c.Window = ms }, "a rolling window of 1ms: at least 1 s"},
		{"limit", func(c *Config) { c.Objectives = []measurement.Objective{{Metric: "ttft", LimitMS: -1}} }, "an objective of -1 ms for ttft: must be above 0"},
		{"protocol", func(c *Config) { c.OTLP = OTLP{Endpoint: "a:1", Protocol: "udp", SampleRatio: 1} }, `OTLP protocol "udp": must be grpc or http`},
		{"ratio", func(c *Config) { c.OTLP = OTLP{Endpoint: "a:1", SampleRatio: 1.5} }, "OTLP sample ratio 1.5: must be from 0 to 1"},
		{"no port", func(c *Config) { c.OTLP = OTLP{Endpoint: "collector", SampleRatio: 1} }, `OTLP endpoint "collector": must be host:port or a URL`},
		{"nothing to send", func(c *Config) { c.OTLP = OTLP{Endpoint: "a:1"} }, "neither spans"},
		{"a password", func(c *Config) { c.OTLP = OTLP{Endpoint: "http://me:sesame@a:1", SampleRatio: 1} }, "without user"},
		{"scheme", func(c *Config) { c.OTLP = OTLP{Endpoint: "ftp://a:1", SampleRatio: 1} }, `scheme "ftp"`},
	} {
		cfg := Config{Clock: &hand{}}
		c.change(&cfg)
		_, err := New(context.Background(), cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAnnotateLabels(t *testing.T) {
	tel, _ := start(t, func(c *Config) { c.CustomLabels, c.RunID = true, `a"b` })
	h := http.Header{}
	tel.Annotate(h, 3, 7, 2, measurement.Window)
	want := http.Header{"X-Custom-Labels": {`{"run_id":"a\"b","step":"3","phase":"window"}`}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestUnits(t *testing.T) {
	for name, want := range map[string]string{names.TTFT: "s", names.WindowHit: "1", names.OfferedRate: "", genInput: "{token}", genDuration: "s", names.TurnsTotal: ""} {
		if got := unit(name); got != want {
			t.Errorf("unit of %s is %q, want %q", name, got, want)
		}
	}
}

func ExampleTelemetry() {
	tel, err := New(context.Background(), Config{Label: "l40s", Objectives: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}, Clock: clock.NewWall()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tel.Shutdown(context.Background()) }()
	tel.StepBegin(measurement.Step{Step: 0, Rate: 2})
	for i, ttft := range []time.Duration{120 * time.Millisecond, 300 * time.Millisecond, 301 * time.Millisecond} {
		u := measurement.NewTurn()
		u.Call, u.Turn, u.Phase, u.Outcome = i, 2, measurement.Window, measurement.OK
		u.Due, u.Sent, u.FirstToken, u.End = 0, 0, ttft, time.Second
		tel.Turn(u)
	}
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, `ttft_seconds_bucket`) && strings.Contains(line, `le="0.3"`) || strings.HasPrefix(line, "kneeload_turns_within") {
			fmt.Print(line)
		}
	}
	// Output:
	// kneeload_ttft_seconds_bucket{label="l40s",step="0",turn_class="measured",le="0.3"} 2
	// kneeload_turns_within_slo_total{label="l40s",step="0",turn_class="measured"} 2
}

// bucket is the count of the bucket with this bound.
func bucket(m *dto.Metric, bound float64) uint64 {
	for _, b := range m.Histogram.Bucket {
		if b.GetUpperBound() == bound {
			return b.GetCumulativeCount()
		}
	}
	return 0
}
