package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kneefinder/analysis"
	"kneefinder/analysis/export"
	"kneefinder/measurement"
)

// aRun has steps whose P95 TTFT doubles from one to the next.
func aRun(label string) measurement.Log {
	log := measurement.Log{Header: measurement.Header{Label: label, Tool: "kneeload test", Config: measurement.Config{Turns: 2, SLO: slo300, Arrivals: "constant"},
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5", Model: "m", GPU: "L40S"}}}
	ttft := 50 * time.Millisecond
	for n := range 6 {
		start := time.Duration(n) * 200 * time.Second
		s := measurement.Step{Step: n, Rate: float64(n+1) / 4, Start: start, WindowStart: start + 30*time.Second, WindowEnd: start + 120*time.Second, DrainEnd: start + 150*time.Second, ArrivedCalls: 90, LiveMean: 2, LiveMax: 3}
		for i := range 180 {
			t := measurement.NewTurn()
			t.Call, t.Turn, t.Step, t.Outcome = n*measurement.CallsPerStep+i/2, 1+i%2, n, measurement.OK
			t.Due = s.WindowStart + time.Duration(i/2)*time.Second
			t.Sent, t.FirstToken = t.Due, t.Due+ttft+time.Duration(i)*time.Millisecond/10
			t.LastToken, t.End = t.FirstToken, t.FirstToken
			t.Events, t.PromptTokens, t.CompletionTokens, t.CachedTokens = 1, 100, 1, 90*(i%2)
			log.Turns = append(log.Turns, t)
		}
		log.Steps = append(log.Steps, s)
		ttft *= 2
	}
	return log
}

// engineMetrics is an hour of an engine whose load climbs every ten minutes, as it would have been scraped.
func engineMetrics(start time.Time) string {
	var b strings.Builder
	les := []string{"0.1", "0.25", "0.5", "1.0", "+Inf"}
	share := [][]float64{{1, 1, 1, 1, 1}, {.97, 1, 1, 1, 1}, {.5, .99, 1, 1, 1}, {.2, .8, .99, 1, 1}, {0, .1, .3, .97, 1}, {0, 0, 0, .5, 1}}
	counts := make([][]float64, 241)
	total := make([]float64, len(les))
	for i := range counts { // every 15 s
		counts[i] = append([]float64{}, total...)
		level := min(i/40, 5)
		for k := range les {
			total[k] += math.Round(float64(15*(level+1)) * 2 * share[level][k])
		}
	}
	fmt.Fprintln(&b, "# TYPE vllm:time_to_first_token_seconds histogram")
	for k, le := range les {
		for i := range counts {
			fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=%q} %g %d\n", le, counts[i][k], start.Unix()+int64(15*i))
		}
	}
	for i := range counts {
		fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_count{model_name=\"m\"} %g %d\n", counts[i][4], start.Unix()+int64(15*i))
	}
	fmt.Fprintln(&b, "# EOF")
	return b.String()
}

// aPrometheus starts a server on data written by promtool and returns its address.
func aPrometheus(t *testing.T, files ...string) string {
	t.Helper()
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (apt-get install prometheus) to read from", tool)
		}
	}
	dir := t.TempDir()
	for i, content := range files {
		om := filepath.Join(dir, fmt.Sprintf("%d.om", i))
		if err := os.WriteFile(om, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", om, filepath.Join(dir, "data")).CombinedOutput(); err != nil {
			t.Fatalf("promtool: %v\n%s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--storage.tsdb.retention.time=100y", "--web.listen-address="+addr)
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	for range 150 {
		if resp, err := http.Get("http://" + addr + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + addr
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("prometheus is not ready\n%s", said.String())
	return ""
}

// A run that went through Prometheus has the figures, verdicts and knees that it had before.
func TestPrometheus(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var om []string
	want := map[string]measurement.Results{}
	for i, label := range []string{"L40S", "H100"} {
		log := aRun(label)
		for j := range log.Steps {
			log.Steps[j].Rate *= float64(i + 1)
		}
		r := analysis.Analyze(log)
		want[label] = r
		var b bytes.Buffer
		if err := export.OpenMetrics(&b, log, r, start, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		om = append(om, b.String())
	}
	before := start.Add(-2 * time.Hour)
	addr := aPrometheus(t, append(om, engineMetrics(before))...)
	s := Server{URL: addr, From: start, To: start.Add(30 * time.Minute), Do: http.DefaultClient.Do}
	rs, err := s.Curves(t.Context(), slo300)
	if err != nil || len(rs) != 2 {
		t.Fatalf("%d curves, %v; want 2", len(rs), err)
	}
	for _, got := range rs {
		w := want[got.Label]
		if len(got.Steps) != len(w.Steps) || fmt.Sprint(got.Config.SLO) != fmt.Sprint(slo300) || got.Engine.Model != "m" || got.Tool != w.Tool || got.Config.Arrivals != "constant" {
			t.Fatalf("%s: %d steps, objectives %v, engine %+v; want %d, %v", got.Label, len(got.Steps), got.Config.SLO, got.Engine, len(w.Steps), slo300)
		}
		for i := range got.Steps {
			a, b := got.Steps[i], w.Steps[i]
			for _, f := range []struct {
				name string
				a, b *float64
			}{{"rate", &a.Rate, &b.Rate}, {"P50", a.TTFTP50, b.TTFTP50}, {"P95", a.TTFTP95, b.TTFTP95}, {"P99", a.TTFTP99, b.TTFTP99}, {"low", a.TTFTP95CI[0], b.TTFTP95CI[0]}, {"high", a.TTFTP95CI[1], b.TTFTP95CI[1]},
				{"hit", a.CacheHitRate, b.CacheHitRate}, {"window", &a.WindowS, &b.WindowS}, {"ratio", a.SaturationRatio, b.SaturationRatio}, {"errors", a.ErrorRate, b.ErrorRate}} {
				if math.Abs(value(f.a)-value(f.b)) > 1e-9*math.Abs(value(f.b)) || (f.a == nil) != (f.b == nil) {
					t.Errorf("%s step %d: %s is %s; want %s", got.Label, i, f.name, show(f.a), show(f.b))
				}
			}
			if a.Verdict != b.Verdict || a.MeasuredTurns != b.MeasuredTurns || strings.Join(a.Flags, " ") != strings.Join(b.Flags, " ") {
				t.Errorf("%s step %d: %s of %d %v; want %s of %d %v", got.Label, i, a.Verdict, a.MeasuredTurns, a.Flags, b.Verdict, b.MeasuredTurns, b.Flags)
			}
		}
		if k := got.Knees.Curvature; k.Status != w.Knees.Curvature.Status || value(k.Rate) != value(w.Knees.Curvature.Rate) && k.Rate != w.Knees.Curvature.Rate {
			t.Errorf("%s: curvature knee %s at %s; want %s at %s", got.Label, k.Status, show(k.Rate), w.Knees.Curvature.Status, show(w.Knees.Curvature.Rate))
		}
		if k := got.Knees.SLO; k.Status != w.Knees.SLO.Status || value(k.Rate) != value(w.Knees.SLO.Rate) || math.Abs(value(k.Estimate)-value(w.Knees.SLO.Estimate)) > 1e-9 {
			t.Errorf("%s: SLO knee %s at %s, %s; want %s at %s, %s", got.Label, k.Status, show(k.Rate), show(k.Estimate), w.Knees.SLO.Status, show(w.Knees.SLO.Rate), show(w.Knees.SLO.Estimate))
		}
	}
	s.Label = "H100"
	if rs, err := s.Curves(t.Context(), slo300); err != nil || len(rs) != 1 || rs[0].Label != "H100" {
		t.Errorf("one label: %d curves, %v", len(rs), err)
	}
	s.To = start.Add(150 * time.Second) // the first step has just ended, the second not begun
	if rs, err := s.Curves(t.Context(), slo300); err != nil || len(rs[0].Steps) != 1 {
		t.Errorf("the first step: %v, %v", rs, err)
	}

	engine := Server{URL: addr, From: before, To: before.Add(time.Hour), Do: http.DefaultClient.Do}
	rs, err = engine.Curves(t.Context(), slo300)
	if err != nil || len(rs) != 1 {
		t.Fatalf("an engine's histograms: %d curves, %v", len(rs), err)
	}
	r := rs[0]
	if r.Engine.Kind != "vllm" || len(r.Steps) < 5 || !strings.Contains(r.Warnings[0], "interpolated within its buckets") {
		t.Errorf("engine %q, %d steps, warnings %q", r.Engine.Kind, len(r.Steps), r.Warnings)
	}
	first, last := r.Steps[0], r.Steps[len(r.Steps)-1]
	if first.Verdict != measurement.Pass || last.Verdict != measurement.Fail || r.Knees.SLO.Status != measurement.Found {
		t.Errorf("from %s at %g to %s at %g, knee %s; want from pass to fail", first.Verdict, first.Rate, last.Verdict, last.Rate, r.Knees.SLO.Status)
	}
	if first.Rate > 2.5 || last.Rate < 10 {
		t.Errorf("loads from %g to %g; the engine had 2 to 12 first tokens a second", first.Rate, last.Rate)
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "is no bound of a bucket") {
		t.Errorf("warnings %q; want one that 300 ms lies within a bucket", r.Warnings)
	}
	engine.Label = "nobody"
	if _, err := engine.Curves(t.Context(), slo300); err == nil || !strings.Contains(err.Error(), `holds neither steps of kneeload nor the TTFT histograms of SGLang or vLLM`) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("nothing there: %v", err)
	}
}

// Vectors of the classic interpolation: all mass in one bucket gives lo + p*(hi-lo).
func TestHistogramQuantile(t *testing.T) {
	inf := math.Inf(1)
	one := func(lo, hi float64) []bucket { return []bucket{{lo, 0}, {hi, 100}, {inf, 100}} }
	for _, c := range []struct {
		h         []bucket
		v, lo, hi float64
	}{
		{one(.1, .25), .2425, .1, .25}, {one(.25, .5), .4875, .25, .5}, {one(1, 2.5), 2.425, 1, 2.5}, {one(7.5, 10), 9.875, 7.5, 10}, {one(20, 40), 39, 20, 40},
		{[]bucket{{.1, 100}, {inf, 100}}, .095, 0, .1},
		{[]bucket{{.1, 50}, {inf, 100}}, .1, .1, inf},
		{[]bucket{{.1, 0}, {inf, 0}}, math.NaN(), math.NaN(), math.NaN()},
		{nil, math.NaN(), math.NaN(), math.NaN()},
	} {
		v, lo, hi := histogramQuantile(.95, c.h)
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-12 }
		if !same(v, c.v) || !same(lo, c.lo) || !same(hi, c.hi) {
			t.Errorf("P95 of %v is %g in (%g, %g]; want %g in (%g, %g]", c.h, v, lo, hi, c.v, c.lo, c.hi)
		}
	}
}

// A server that does not answer as one costs one sentence, without the password of its address.
func TestPrometheusErrors(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	answer := func(code int, body string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	for _, c := range []struct {
		do   func(*http.Request) (*http.Response, error)
		url  string
		want string
	}{
		{answer(200, "<html>"), "http://me:secret@host:9090", "is not that of a Prometheus server"},
		{answer(400, `{"status":"error","errorType":"bad_data","error":"parse error"}`), "http://me:secret@host:9090", "parse error"},
		{answer(200, `{"status":"success","data":{"resultType":"vector","result":[]}}`), "http://host:9090/", "holds neither"},
		{answer(200, `{"status":"success","data":{"result":[{"metric":{},"value":[1]}]}}`), "http://host:9090/", "is not that of a Prometheus server"},
		{func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, "http://me:secret@host:9090", "connection refused"},
		{answer(200, ""), "http://a b", "the address is none"},
	} {
		_, err := Server{URL: c.url, From: at, To: at.Add(time.Hour), Do: c.do}.Curves(context.Background(), slo300)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one sentence with %q", c.url, err, c.want)
		}
	}
	if _, err := (Server{URL: "http://host", From: at, To: at}).Curves(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "is none") {
		t.Errorf("no time: %v", err)
	}
}
