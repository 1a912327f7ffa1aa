package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kneefinder/grafana/queries"
	"kneefinder/telemetry/names"
)

// of lists the queries that one panel asks at one instant, of every panel without a title; the variables come first.
func of(all []queries.Query, file, title string) []queries.Query {
	var out []queries.Query
	for _, q := range all {
		if q.File == file && (q.Kind == queries.Computed || q.Kind == queries.Variable || q.Kind == queries.Panel && q.Instant && strings.HasPrefix(q.Where, title)) {
			out = append(out, q)
		}
	}
	return out
}

// answerOf is what the query of a panel finds at the end of a span, by its labels, as Grafana would ask.
func answerOf(t *testing.T, server queries.Server, all []queries.Query, file, where string, v queries.Variables, over queries.Span) []queries.Sample {
	t.Helper()
	i := slices.IndexFunc(all, func(q queries.Query) bool { return q.File == file && q.Where == where })
	if i < 0 {
		t.Fatalf("%s has no query %q", file, where)
	}
	v, err := server.Compute(t.Context(), of(all, file, "\x00"), v, over)
	if err != nil {
		t.Fatal(err)
	}
	found, err := server.Vector(t.Context(), v.With(all[i].Expr), over.To)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// When the process has gone for longer than Prometheus believes a sample, the boards still show the run: the newest one of its
// label that began in the range, and nothing of an older one, even where that had more steps, flags and bounds.
func TestAfterTheEnd(t *testing.T) {
	all := asked(t)
	var run atomic.Int32
	var second time.Time
	began := time.Now()
	older := func(p *page) {
		fill(p, began, 60)
		for step := 3; step < 5; step++ {
			at := []string{names.Label, fixtureRun, names.Step, strconv.Itoa(step)}
			p.gauge(names.StepStart, float64(began.Unix()), at...)
			p.gauge(names.StepRate, float64(step+1), at...)
			p.gauge(names.StepTTFT, 1, append(at, names.Quantile, "0.95")...)
			p.gauge(names.StepFlag, 1, append(at, names.Flag, "unstable")...)
		}
	}
	// newer is in its second step: it has no flag, no interval and no knee, all of which the older one had.
	newer := func(p *page) {
		for step := range 2 {
			at := []string{names.Label, fixtureRun, names.Step, strconv.Itoa(step)}
			p.gauge(names.StepStart, float64(second.UnixMilli())/1000, at...)
			p.gauge(names.StepRate, 10*float64(step+1), at...)
		}
		p.gauge(names.StepTTFT, .25, names.Label, fixtureRun, names.Step, "0", names.Quantile, "0.95")
		p.gauge(names.RunInfo, 1, names.Label, fixtureRun, "tool", "kneeload")
		for _, state := range []string{"running", "interrupted"} {
			p.gauge(names.RunState, bit(state == "interrupted"), names.Label, fixtureRun, names.State, state)
		}
		for _, status := range []string{"found", "none"} {
			p.gauge(names.KneeStatus, bit(status == "none"), names.Label, fixtureRun, names.Knee, "slo", names.Status, status)
		}
	}
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := new(page)
		switch run.Load() {
		case 1:
			older(p)
		case 2:
			newer(p)
		default:
			http.Error(w, "gone", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, p.String())
	}))
	run.Store(1)
	server := startPrometheus(t, []target{{"kneeload", address}})
	v := queries.Picked(fixtureRun)
	here := func(what string) bool {
		found, err := server.Vector(t.Context(), what, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}
	gone := func() {
		t.Helper()
		run.Store(0)
		until(t, 30*time.Second, "the run's series are stale", func() bool { return !here(names.RunInfo) })
	}
	over := func() queries.Span {
		return queries.Span{From: began.Add(-time.Hour), To: time.Now(), Step: time.Second}
	}
	until(t, 30*time.Second, "the older run is scraped often enough for a rate", func() bool {
		return here("count_over_time(" + names.StepFlag + `{step="4"}[1m]) >= 4`)
	})
	gone()
	firstEnded := over()

	board := append(of(all, "knee.json", ""), of(all, "generator.json", "")...)
	if len(board) < 40 {
		t.Fatalf("only %d queries", len(board))
	}
	found, err := server.Ask(t.Context(), board, v, firstEnded)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		if !a.OK() {
			t.Errorf("after the end: %s", a)
		}
	}
	for where, want := range map[string]int{"The steps A": 5, "The steps K": 2, "Flags A": 4, "SLO knee A": 1, "Run A": 1} {
		if got := answerOf(t, server, all, "knee.json", where, v, firstEnded); len(got) != want {
			t.Errorf("%s after the end of the older run: %v, want %d values", where, got, want)
		}
	}

	if out, well := checked(t, server.URL, fixtureRun); !well || !strings.Contains(out, "run "+fixtureRun+": running, last seen ") {
		t.Errorf("after the end the command takes a whole run for a broken one:\n%s", out)
	}

	second = time.Now()
	run.Store(2)
	until(t, 30*time.Second, "the newer run is scraped for a while", func() bool {
		return here(names.StepRate+`{step="1"} == 20`) && time.Since(second) > 3*time.Second
	})
	gone()
	for where, want := range map[string]string{
		"The steps A": "0=10 1=20", "The steps E": "0=0.25", "The steps F": "", "Flags A": "", "SLO knee A": "", "SLO knee B": "",
		"Where it bends, whatever the objective A": "", "What became of each knee A": "=1", "Run A": "=1", "Arrivals A": "",
		"P95 TTFT over the rate of calls A": "0=10 1=20", "P95 TTFT over the rate of calls B": "0=0.25",
	} {
		var got []string
		for _, s := range answerOf(t, server, all, "knee.json", where, v, over()) {
			got = append(got, fmt.Sprintf("%s=%v", s.Labels[names.Step], s.Value))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s after the end of the newer run: got %q, want %q", where, strings.Join(got, " "), want)
		}
	}
	// A range that ends before the newer run shows the older one.
	if got := answerOf(t, server, all, "knee.json", "The steps A", v, firstEnded); len(got) != 5 {
		t.Errorf("the older run's range shows %v, want its five steps", got)
	}
	// The state is the newer run's, though the older one has none that is interrupted.
	if got := answerOf(t, server, all, "knee.json", "Run A", v, over()); len(got) != 1 || got[0].Labels[names.State] != "interrupted" {
		t.Errorf("the run is %v, want interrupted", got)
	}
}

// A simulated run that is back-filled answers the board of the knee in its own time range, long past.
func TestBackfill(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed: nothing is back-filled")
	}
	all := asked(t)
	bin, dir := built(t, "kneesim", "kneeanalyze"), t.TempDir()
	start := time.Now().Add(-26 * time.Hour).Truncate(time.Second)
	for _, args := range [][]string{
		{filepath.Join(bin, "kneesim"), "simulate", "--preset", "demo", "--model", "demo", "--gpu", "demo", "--rates", "2,5,9", "--no-extend", "--label", "filled", "--out", dir},
		{filepath.Join(bin, "kneeanalyze"), "export", filepath.Join(dir, "filled.turns.jsonl"), "--start-at", start.UTC().Format(time.RFC3339), "-o", filepath.Join(dir, "filled.om")},
		{"promtool", "tsdb", "create-blocks-from", "openmetrics", filepath.Join(dir, "filled.om"), filepath.Join(dir, "data")},
	} {
		command := exec.CommandContext(t.Context(), args[0], args[1:]...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if blocks, err := os.ReadDir(filepath.Join(dir, "data")); err != nil || len(blocks) == 0 {
		t.Fatalf("no block: %v", err)
	}
	server := startPrometheusIn(t, dir, nil)
	v := queries.Picked("filled")
	over := queries.Span{From: start, To: start.Add(time.Hour), Step: time.Second}
	facts, err := server.Facts(t.Context(), v, over)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(facts)
	if !facts.Ended || facts.State != "done" || facts.LastSeen.Before(start.Add(time.Minute)) || facts.LastSeen.After(start.Add(time.Hour)) {
		t.Errorf("got %+v, want a run that is done, with steps, within the hour behind its start", facts)
	}
	var board []queries.Query
	for _, q := range all {
		if q.File == "knee.json" {
			board = append(board, q)
		}
	}
	// At the end of the run, and where Grafana's range ends long after it.
	for _, to := range []time.Time{facts.LastSeen, over.To} {
		found, err := server.Ask(t.Context(), board, v, queries.Span{From: start, To: to, Step: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found {
			if !a.OK() && facts.Excuse(a) == "" {
				t.Errorf("back-filled, asked up to %s behind its start: %s", to.Sub(start), a)
			}
		}
	}
	if got := answerOf(t, server, all, "knee.json", "The steps E", v, over); len(got) != 3 {
		t.Errorf("P95 TTFT of the steps: %v, want three", got)
	}
}
