package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"kneefinder/measurement"
)

func TestImport(t *testing.T) {
	inRuns(t)
	files := []string{"results/sglang_conc16.jsonl", "results/sglang_conc128.jsonl"}
	got := command(t, append([]string{"import", "-o", "results/sglang.json", "--slo", "ttft:p99:5s"}, files...)...)
	if got.code != 0 || got.out != "" || !strings.Contains(got.err, "wrote results/sglang.json: random in 1024 out 1024, 2 steps") {
		t.Fatalf("import: code %d, printed %q, %q", got.code, got.out, got.err)
	}
	r, err := measurement.ReadResults("results/sglang.json")
	if err != nil || len(r.Steps) != 2 || r.Config.Arrivals != "closed" || r.Knees.SLO.Rate == nil || *r.Knees.SLO.Rate != 16 {
		t.Errorf("%+v, %v; want two steps of a closed loop, and 5 s at P99 kept by 16 at once", r.Knees.SLO, err)
	}
	// What was imported is read like a run of ours, and the files themselves say the same.
	imported := command(t, "knee", "results/sglang.json")
	direct := command(t, append([]string{"knee", "--slo", "ttft:p99:5s"}, files...)...)
	if imported.code != 0 || imported.out != direct.out {
		t.Errorf("imported: %d %q %q\ndirectly: %d %q %q", imported.code, imported.out, imported.err, direct.code, direct.out, direct.err)
	}
	if got := command(t, append([]string{"import"}, files...)...); got.code != 0 || !strings.Contains(got.out, `"schema": "kneefinder/results/v1"`) || got.err != "printed random in 1024 out 1024, 2 steps, as JSON; -o FILE writes it to a file\n" {
		t.Errorf("import to standard output: %d %q %q", got.code, got.out, got.err)
	}
	if got := command(t, append([]string{"compare", "results/L40S.json"}, files...)...); got.code != 0 || !strings.Contains(got.out, "random in 1024 out 1024") || !strings.Contains(got.out, "L40S") {
		t.Errorf("compare with a run of ours: %d %q %q", got.code, got.out, got.err)
	}
	if got := command(t, append([]string{"compare"}, files...)...); got.code != 2 || !strings.Contains(got.err, "at least two curves") {
		t.Errorf("compare of one curve in two files: %d %q", got.code, got.err)
	}
	if got := command(t, "knee", files[0]); got.code != 1 || !strings.Contains(got.err, "one load is no curve") {
		t.Errorf("one load: %d %q", got.code, got.err)
	}
	if got := command(t, "knee", files[0], "missing"); got.code != 1 || !strings.Contains(got.err, "missing") || !strings.Contains(got.err, "one load is no curve") {
		t.Errorf("a missing file beside one load: %d %q", got.code, got.err)
	}
	// Several curves go into numbered files.
	if err := os.WriteFile("t.csv", []byte("engine,rate,ttft_p95_ms\nvllm,1,90\nvllm,2,400\nsglang,1,80\nsglang,2,95\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "import", "t.csv", "-o", "t.json"); got.code != 0 || !strings.Contains(got.err, "t-1.json") || !strings.Contains(got.err, "t-2.json") {
		t.Errorf("two curves: %d %q", got.code, got.err)
	}
}

func TestLint(t *testing.T) {
	inRuns(t)
	got := command(t, "lint", "results/sglang_conc16.jsonl", "results/L40S.turns.jsonl")
	if got.code != 0 || !strings.Contains(got.out, "16 requests at once (results/sglang_conc16.jsonl:1)") || !strings.Contains(got.out, "events hold about 29.23 tokens") || !strings.Contains(got.out, "\nof 10 checks 1 are doubtful and 4 cannot be made\n") || !strings.Contains(got.out, "kneefinder turn log") {
		t.Errorf("lint: %d %q %q", got.code, got.out, got.err)
	}
	for _, line := range strings.Split(strings.TrimSpace(got.out), "\n") {
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  ok ") && !strings.HasPrefix(line, "  doubtful ") && !strings.HasPrefix(line, "  cannot tell ") {
			t.Errorf("%q has no verdict", line)
		}
	}
	if got := command(t, "lint", "--fail", "results/sglang_conc16.jsonl"); got.code != 3 || !strings.Contains(got.err, "1 checks are doubtful") {
		t.Errorf("--fail: %d %q", got.code, got.err)
	}
	if got := command(t, "lint", "results/missing.json"); got.code != 1 {
		t.Errorf("a file that is not there: %d %q", got.code, got.err)
	}
	if got := command(t, "lint", "results"); got.code != 1 || !strings.Contains(got.err, "results is a folder") {
		t.Errorf("a folder: %d %q", got.code, got.err)
	}
}

func TestPrometheusFlags(t *testing.T) {
	inRuns(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"knee"}, "--prometheus URL"},
		{[]string{"knee", "--prometheus", "http://host", "results/L40S.json"}, "give one or the other"},
		{[]string{"knee", "--label", "x", "results/L40S.json"}, "which is missing"},
		{[]string{"knee", "--prometheus", "http://host", "--from", "yesterday", "--to", "2026-01-31T12:00:00Z"}, `--from "yesterday" is no time`},
		{[]string{"knee", "--prometheus", "http://host", "--from", "2026-01-31T12:00:00Z"}, `--to "" is no time`},
		{[]string{"knee", "--prometheus", "http://host", "--from", "2026-01-31T12:00:00Z", "--to", "2026-01-31T12:00:00Z"}, "is not after"},
	} {
		if got := command(t, c.args...); got.code != 2 || !strings.Contains(got.err, c.want) {
			t.Errorf("%v: %d %q; want 2 and %q", c.args, got.code, got.err, c.want)
		}
	}
	// A server that answers as Prometheus does: two steps of one run.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		var result []any
		for step, v := range map[string]map[string]float64{"0": {"rate_calls_per_s": 1, "measured_turns": 90, "ttft_s": .1}, "1": {"rate_calls_per_s": 2, "measured_turns": 90, "ttft_s": .9}} {
			for name, of := range map[string]string{"rate_calls_per_s": "kneeload_step_rate_calls_per_second{", "measured_turns": "kneeload_step_measured_turns{", "ttft_s": "kneeload_step_ttft_seconds{"} {
				if strings.Contains(query, of) {
					result = append(result, map[string]any{"metric": map[string]string{"label": "run", "step": step, "q": "0.95"}, "value": []any{1, fmt.Sprint(v[name])}})
				}
			}
		}
		if strings.Contains(query, "kneeload_slo_seconds{") {
			result = append(result, map[string]any{"metric": map[string]string{"label": "run", "metric": "ttft", "q": "0.95"}, "value": []any{1, "0.3"}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"result": result}})
	}))
	defer server.Close()
	got := command(t, "knee", "--prometheus", server.URL, "--from", "2026-01-31T12:00:00Z", "--to", "2026-01-31T13:00:00Z", "--label", "run")
	if got.code != 0 || !strings.Contains(got.out, "SLO knee: 1 calls/s") || !strings.HasPrefix(got.out, "run:") {
		t.Errorf("a server: %d %q %q; want the knee at 1", got.code, got.out, got.err)
	}
}
