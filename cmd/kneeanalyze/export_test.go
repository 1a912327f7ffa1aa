package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// near reports whether two figures are alike: both absent, or within a share of each other.
func near(a, b *float64, share float64) bool {
	return (a == nil) == (b == nil) && (a == nil || math.Abs(*a-*b) <= share*math.Abs(*b))
}

// sameCurve compares what survives a form: loads, waits, tokens' gaps, verdicts, and the knee.
func sameCurve(t *testing.T, what string, got, want measurement.Results, within float64) {
	t.Helper()
	if len(got.Steps) != len(want.Steps) {
		t.Fatalf("%s: %d steps, want %d", what, len(got.Steps), len(want.Steps))
	}
	for i, w := range want.Steps {
		g := got.Steps[i]
		if g.Rate != w.Rate || g.MeasuredTurns != w.MeasuredTurns || g.Verdict != w.Verdict {
			t.Errorf("%s, step %d: %g calls/s, %d turns, %s; want %g, %d, %s", what, i, g.Rate, g.MeasuredTurns, g.Verdict, w.Rate, w.MeasuredTurns, w.Verdict)
		}
		for name, v := range map[string][2]*float64{"ttft p50": {g.TTFTP50, w.TTFTP50}, "ttft p95": {g.TTFTP95, w.TTFTP95}, "ttft p99": {g.TTFTP99, w.TTFTP99},
			"itl p50": {g.ITLP50, w.ITLP50}, "itl p95": {g.ITLP95, w.ITLP95}, "tpot p50": {g.TPOTP50, w.TPOTP50}} {
			if !near(v[0], v[1], within) {
				t.Errorf("%s, step %d: %s is %v, want %v", what, i, name, v[0], v[1])
			}
		}
	}
	g, w := got.Knees, want.Knees
	estimate := near(g.SLO.Estimate, w.SLO.Estimate, .01)
	if g.SLO.Logistic == nil && w.SLO.Logistic != nil && g.SLO.Estimate != nil && w.SLO.CI95[0] != nil && w.SLO.CI95[1] != nil { // the form does not tell how many turns were late
		estimate = *g.SLO.Estimate >= *w.SLO.CI95[0] && *g.SLO.Estimate <= *w.SLO.CI95[1]
	}
	if g.SLO.Status != w.SLO.Status || !near(g.SLO.Rate, w.SLO.Rate, 0) || !estimate || !near(g.Curvature.Rate, w.Curvature.Rate, 0) {
		t.Errorf("%s: knees %+v, want %+v", what, g, w)
	}
}

// A run that is written as Benchmark Reports and read again is the same curve.
func TestBenchmarkReports(t *testing.T) {
	inRuns(t)
	want, err := measurement.ReadResults("results/L40S.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".yaml", ".json"} {
		got := command(t, "export", "results/L40S.turns.jsonl", "--format", "llm-d", "-o", "reports/L40S"+ext)
		files, err := filepath.Glob("reports/*" + ext)
		if got.code != 0 || err != nil || len(files) != 6 || !strings.Contains(got.err, "wrote reports/L40S-5"+ext) {
			t.Fatalf("%s: code %d, %q, %q, %v", ext, got.code, got.err, files, err)
		}
		if got := command(t, append([]string{"import", "-o", "again.json"}, files...)...); got.code != 0 {
			t.Fatalf("%s: import: code %d, %q", ext, got.code, got.err)
		}
		r, err := measurement.ReadResults("again.json")
		if err != nil {
			t.Fatal(err)
		}
		sameCurve(t, ext, r, want, 1e-9)
		for i, s := range r.Steps {
			if !near(s.CacheHitRate, want.Steps[i].CacheHitRate, 1e-9) || !near(s.ArrivedRate, want.Steps[i].ArrivedRate, 1e-9) {
				t.Errorf("%s, step %d: hit rate and λ that came %v, %v", ext, i, s.CacheHitRate, s.ArrivedRate)
			}
		}
		if r.Engine.Model != "gemma-4-12b" {
			t.Errorf("%s: the model is %q", ext, r.Engine.Model)
		}
	}
	whole := command(t, "export", "results/L40S.turns.jsonl", "--format", "llm-d")
	if err := os.WriteFile("all.yaml", []byte(whole.out), 0o666); err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(command(t, "knee", "results/L40S.turns.jsonl").out, "SLO knee: ")
	said, _, _ = strings.Cut(said, "Curvature")
	if got := command(t, "knee", "all.yaml"); got.code != 0 || said == "" || !strings.Contains(got.out, said) {
		t.Errorf("all in one: code %d, %q\n%s", got.code, got.err, got.out)
	}
	if got := command(t, "export", "results/L40S.turns.jsonl", "--format", "llm-d", "-o", "x.om"); got.code != 2 || !strings.Contains(got.err, "YAML or JSON") {
		t.Errorf("a name of another form: %d %q", got.code, got.err)
	}
}

func TestImportHLog(t *testing.T) {
	inRuns(t)
	want, err := measurement.ReadResults("results/L40S.json")
	if err != nil {
		t.Fatal(err)
	}
	var rates []string
	for _, s := range want.Steps {
		rates = append(rates, fmt.Sprint(s.Rate))
	}
	got := command(t, "import", "results/L40S.hlog", "--rates", strings.Join(rates, ","), "-o", "again.json")
	if got.code != 0 {
		t.Fatalf("code %d, %q", got.code, got.err)
	}
	r, err := measurement.ReadResults("again.json")
	if err != nil {
		t.Fatal(err)
	}
	sameCurve(t, "hlog", r, want, .001)
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "those that failed are in no percentile") }) {
		t.Errorf("no warning of what the log lacks: %q", r.Warnings)
	}
	if err := os.WriteFile("torn.hlog", []byte("#[Histogram log format version 1.3]\nTag=ttft,30.000,90.000,50.0,HISTFAAA\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("other.hlog", []byte("#[Histogram log format version 1.3]\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"import results/L40S.hlog", 1, "--rates 2,3,4"},
		{"import results/L40S.hlog --rates 1,2", 1, "results/L40S.hlog holds 6 intervals, and the loads of 2 are given"},
		{"import results/L40S.hlog --rates 1,2,3,4,5,0", 1, "no load above 0"},
		{"import results/L40S.hlog results/H100.hlog --rates 1,2", 2, "--rates is for one HdrHistogram log"},
		{"import results/L40S.json --rates 1,2", 2, "which results/L40S.json is not"},
		{"import torn.hlog --rates 1", 1, "torn.hlog:2 holds a histogram that cannot be read"},
		{"import other.hlog --rates 1", 1, "without a histogram"},
		{"import missing.hlog --rates 1", 1, "missing.hlog"},
	} {
		got := command(t, strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.err, c.want) || got.out != "" || strings.Contains(got.err, "\n") {
			t.Errorf("%s: code %d, %q, printed %q; want %d and %q", c.args, got.code, got.err, got.out, c.code, c.want)
		}
	}
}

// How large the samples are is said on standard error, and while they are written too.
func TestExportSize(t *testing.T) {
	inRuns(t)
	for _, args := range [][]string{{"-o", "x.om"}, nil} {
		got := command(t, append([]string{"export", "results/L40S.turns.jsonl", "--start-at", "2026-01-31T12:00:00Z", "--interval", "15s"}, args...)...)
		size := len(got.out)
		if args != nil {
			info, err := os.Stat("x.om")
			if err != nil {
				t.Fatal(err)
			}
			size = int(info.Size())
		}
		if want := fmt.Sprintf("%.1f MB of samples, one every 15s over ", float64(size)/1e6); got.code != 0 || !strings.Contains(got.err, want) || strings.Contains(got.out, want) {
			t.Errorf("exit %d, %q; want %q", got.code, got.err, want)
		}
	}
	var out, progress strings.Builder
	s := &sized{to: &out, progress: &progress, next: sizeStep}
	for range 3 {
		s.n += sizeStep - 10
		if _, err := s.Write(make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	s.sum(time.Second, time.Hour)
	if got, want := progress.String(), "256 MB written\n512 MB written\n768.0 MB of samples, one every 1s over 1h0m0s; a longer --interval, that of your scrapes, makes it smaller\n"; got != want || out.Len() != 15 {
		t.Errorf("%q, want %q", got, want)
	}
}
