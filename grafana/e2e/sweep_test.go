package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
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

	names.TurnsTotal + `{outcome!~"ok|`: "no turn failed",
}

// Every query of every board and rule has an answer where a real sweep against a mock of each engine is scraped. There is no GPU
// here: its exporter is a fixture.
func TestQueriesOnASweep(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep takes a minute")
	}
	all := asked(t)
	bin := built(t, "kneeload", "kneemock")
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
		startMock(t, bin, kind, engines[kind])
	}

	var sweeps sync.WaitGroup
	for _, kind := range kinds {
		sweeps.Go(func() {
			sweep := exec.CommandContext(t.Context(), filepath.Join(bin, "kneeload"), "sweep", "--base-url", "http://"+engines[kind],
				"--preset", "demo", "--rates", "2,9", "--slo", "1500ms", "--no-extend", "--label", kind, "--out", t.TempDir(),
				"--web.listen-address", loads[kind], "--web.linger", "5s", "--gpu-metrics", "http://"+gpu,
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

		// The sweep has gone, and is still shown.
		until(t, 30*time.Second, "the sweep's series are stale", func() bool {
			found, err := server.Vector(t.Context(), names.RunInfo+`{label="`+kind+`"}`, time.Now())
			return err == nil && len(found) == 0
		})
		answers, err = server.Ask(t.Context(), of(all, "knee.json", ""), v, queries.Span{From: began, To: time.Now(), Step: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if !a.OK() && (len(a.Missed) == 0 || slices.ContainsFunc(a.Missed, func(selector string) bool { return !excused(selector) })) {
				t.Errorf("%s, after its end: %s", kind, a)
			}
		}
	}
}

// startMock starts a mock server of a kind at an address, and stops it when the test ends.
func startMock(t *testing.T, bin, kind, address string) {
	t.Helper()
	mock := exec.Command(filepath.Join(bin, "kneemock"), "serve", "--kind", kind, "--model", "demo", "--gpu", "demo", "--listen", address)
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
	until(t, 20*time.Second, "kneemock is ready", func() bool { return answers(t.Context(), "http://"+address+"/v1/models") })
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
	found, err := server.Vector(t.Context(), expr, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d values, want one", expr, len(found))
	}
	return found[0].Value
}
