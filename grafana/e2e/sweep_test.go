package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kneefinder/grafana/queries"
	"kneefinder/telemetry/names"
)

// sometimes are beginnings of selectors of what a good run need not have, each with its reason.
var sometimes = map[string]string{
	names.StepTTFTLow + "{":  "the interval of a P95 of few turns is unbounded",
	names.StepTTFTHigh + "{": "the same",
	names.KneeLow + "{":      "the interval of the knee is unbounded",
	names.KneeHigh + "{":     "the same",
	names.StepFlag + "{":     "nothing is to be doubted",
}

// Every query of every board and rule has an answer where a real sweep against a mock of each engine is scraped. There is no GPU
// here: its exporter is a fixture.
func TestQueriesOnASweep(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep takes a minute")
	}
	all := asked(t)
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/kneeload", "./cmd/kneemock")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	gpu := serve(t, moving(t, "testdata/dcgm.prom"))
	kinds := []string{"sglang", "vllm"}
	engines, loads := map[string]string{}, map[string]string{}
	targets := []target{{"gpu", gpu}}
	for _, kind := range kinds {
		engines[kind], loads[kind] = freeAddress(t), freeAddress(t)
		targets = append(targets, target{"engine", engines[kind]}, target{"kneeload", loads[kind]})
	}
	began := time.Now()
	server := startPrometheus(t, targets)
	for _, kind := range kinds {
		mock := exec.Command(filepath.Join(bin, "kneemock"), "serve", "--kind", kind, "--model", "demo", "--gpu", "demo", "--listen", engines[kind])
		if err := mock.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := mock.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := mock.Wait(); err != nil {
				t.Errorf("kneemock: %v", err)
			}
		})
		until(t, 20*time.Second, "kneemock is ready", func() bool { return answers(t.Context(), "http://"+engines[kind]+"/v1/models") })
	}

	var sweeps sync.WaitGroup
	for _, kind := range kinds {
		sweeps.Go(func() {
			sweep := exec.CommandContext(t.Context(), filepath.Join(bin, "kneeload"), "sweep", "--base-url", "http://"+engines[kind],
				"--preset", "demo", "--rates", "2,9", "--slo", "1500ms", "--no-extend", "--label", kind, "--out", t.TempDir(),
				"--web.listen-address", loads[kind], "--web.linger", "30s", "--gpu-metrics", "http://"+gpu,
				"--otlp.endpoint", freeAddress(t), "--otlp.insecure") // nobody collects spans: they are dropped, and counted
			out, err := sweep.CombinedOutput()
			if err != nil {
				t.Errorf("kneeload sweep: %v", err)
			}
			t.Logf("kneeload sweep: %s", out)
		})
	}
	sweeps.Wait()
	if t.Failed() {
		return
	}

	for _, kind := range kinds {
		v := queries.Picked(kind)
		v["job"], v["engine_job"], v["gpu_job"] = "kneeload", "engine", "gpu"
		v["instance"], v["engine_instance"], v["gpu_instance"] = loads[kind], engines[kind], gpu
		over := queries.Span{From: began, To: lastSeen(t, server, names.RunState+`{label="`+kind+`",state="done"} == 1`), Step: time.Second}
		answers, err := server.Ask(t.Context(), all, v, over)
		if err != nil {
			t.Fatal(err)
		}
		excused := func(selector string) bool { return rare(selector) }
		if number(t, server, names.KneeStatus+`{label="`+kind+`",knee="slo",status="found"}`, over.To) == 0 {
			// A machine that is too busy for the load makes its first step fail; a knee that was not found has no rate.
			excused = func(selector string) bool {
				return rare(selector) || strings.Contains(selector, `knee="slo"`) && !strings.HasPrefix(selector, names.KneeStatus)
			}
		}
		asked := 0
		for _, a := range answers {
			switch {
			case a.OK(), a.Kind == queries.Alert && a.Err == nil && len(a.Missed) == 0:
				asked++
			case silent[kind][a.Where] != "":
			case len(a.Missed) > 0 && !slices.ContainsFunc(a.Missed, func(selector string) bool { return !excused(selector) }):
				t.Logf("%s: %s", kind, a)
			default:
				t.Errorf("%s: %s", kind, a)
			}
		}
		t.Logf("%s: %d of %d queries have an answer", kind, asked, len(answers))
	}
}

// rare reports whether a selector asks for what a good run need not have.
func rare(selector string) bool {
	for beginning := range sometimes {
		if strings.HasPrefix(selector, beginning) {
			return true
		}
	}
	return false
}

// lastSeen is when the last sample of a series was taken.
func lastSeen(t *testing.T, server queries.Server, selector string) time.Time {
	t.Helper()
	seconds := number(t, server, "max_over_time(timestamp("+selector+")[10m:1s])", time.Now())
	return time.UnixMilli(int64(seconds * 1000))
}

// number is the one number that an expression has at an instant.
func number(t *testing.T, server queries.Server, expr string, at time.Time) float64 {
	t.Helper()
	response, err := http.PostForm(server.URL+"/api/v1/query", url.Values{"query": {expr}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value []any }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Data.Result) != 1 {
		t.Fatalf("%s has %d values, want one", expr, len(answer.Data.Result))
	}
	text, _ := answer.Data.Result[0].Value[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
