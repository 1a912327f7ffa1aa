package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/grafana/queries"
	"kneefinder/telemetry/names"
)

// silent are the queries that one kind of server cannot answer, each with its reason.
var silent = map[string]map[string]string{
	"sglang": {
		"Retractions and preemptions A": "the counter appears with the first retraction",
	},
	"vllm": {
		"Retractions and preemptions B": "it counts preemptions, and tells no number of those that are out",
		"KV pool B":                     "what is not used may be evictable or free: vLLM tells them apart nowhere",
		"KV pool C":                     "the same",
		"Warm prefixes lost A":          "it exports no eviction count",
	},
	"dcgm": {},
	"nvidia_gpu_exporter": {
		"Tensor and DRAM activity A": "nvidia-smi knows nothing of tensor cores",
	},
	"amd":       {"Tensor and DRAM activity A": "the field is DCGM's"},
	"amd_mi250": {"Tensor and DRAM activity A": "the field is DCGM's"},
}

// Every query of every board and rule has an answer where a kneeload, both engines and all GPU exporters are scraped; the engine
// board's and the GPU board's also where only one of them is picked; and none would stay answered if a metric were renamed.
func TestQueriesOnFixtures(t *testing.T) {
	at := map[string]string{
		"sglang": serve(t, moving(t, "../../telemetry/scrape/testdata/sglang-0.5.23.prom")),
		"vllm":   serve(t, moving(t, "../../telemetry/scrape/testdata/vllm-0.32.prom")),
	}
	targets := []target{{"kneeload", serve(t, kneeload())}, {"engine", at["sglang"]}, {"engine", at["vllm"]}}
	for _, exporter := range []string{"dcgm", "nvidia_gpu_exporter", "amd", "amd_mi250"} {
		at[exporter] = serve(t, moving(t, "testdata/"+exporter+".prom"))
		targets = append(targets, target{"gpu", at[exporter]})
	}
	// Three kneeloads that have renamed something: a histogram, a counter, a gauge.
	broken := map[string]string{}
	for _, family := range []string{names.TTFT, names.Retries, names.StepSaturation} {
		broken[family] = serve(t, renamed(kneeload(), family))
		targets = append(targets, target{"broken", broken[family]})
	}

	all := asked(t)
	began := time.Now()
	server := startPrometheus(t, targets)
	v := queries.Picked(fixtureRun)
	v["job"], v["engine_job"], v["gpu_job"] = "kneeload", "engine", "gpu"
	answered(t, server, all, v, began, 90*time.Second)
	if t.Failed() {
		return
	}
	// The command says the same.
	if out, well := checked(t, server.URL, fixtureRun); !well || !strings.Contains(out, "0 are absent for a known reason, 0 are missing") {
		t.Errorf("go run . --prometheus: well %t\n%s", well, out)
	}

	for kind, exceptions := range silent {
		variable, board := "gpu_instance", "gpu.json"
		if kind == "sglang" || kind == "vllm" {
			variable, board = "engine_instance", "engine.json"
		}
		one := queries.Variables{}
		for name, value := range v {
			one[name] = value
		}
		one[variable] = at[kind]
		var of []queries.Query
		for _, q := range all {
			if q.File == board && q.Kind == queries.Panel && strings.Contains(q.Expr, "$"+variable) {
				of = append(of, q)
			}
		}
		if len(of) < 8 {
			t.Fatalf("only %d queries of %s ask for %s", len(of), board, variable)
		}
		missing := unanswered(t, server, of, one, began)
		facts, err := server.Facts(t.Context(), one, queries.Span{From: began, To: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range missing {
			if exceptions[a.Where] == "" {
				t.Errorf("where only %s is scraped: %s", kind, a)
			} else if facts.Excuse(a) == "" {
				t.Errorf("where only %s is scraped the command does not know why %s", kind, a)
			}
		}
		for where, reason := range exceptions {
			if !slices.ContainsFunc(missing, func(a queries.Answer) bool { return a.Where == where }) {
				t.Errorf("%s answers %q, although %s", kind, where, reason)
			}
		}
	}

	for family, instance := range broken {
		other := queries.Variables{}
		for name, value := range v {
			other[name] = value
		}
		other["job"], other["instance"] = "broken", instance
		var red []string
		for _, a := range unanswered(t, server, all, other, began) {
			red = append(red, a.String())
		}
		if !strings.Contains(strings.Join(red, "\n"), "no series for "+family) {
			t.Errorf("with %s renamed, no query misses it: %q", family, red)
		}
	}
	everyMetricIsMissed(t, all, v)
}

// everyMetricIsMissed wants, of each of kneeload's metrics that is asked for, a query that nothing else can answer.
func everyMetricIsMissed(t *testing.T, all []queries.Query, v queries.Variables) {
	t.Helper()
	needs := map[string][]queries.Need{}
	for _, q := range all {
		n, err := queries.NeedOf(v.With(q.Expr))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range n.Selectors() {
			if strings.HasPrefix(s.Family, "kneeload_") {
				needs[s.Family] = append(needs[s.Family], n)
			}
		}
	}
	if len(needs) < 60 {
		t.Errorf("only %d of kneeload's metrics are asked for", len(needs))
	}
	for family, asking := range needs {
		if !slices.ContainsFunc(asking, func(n queries.Need) bool {
			return len(n.Met(func(s queries.Need) bool { return s.Family != family })) > 0
		}) {
			t.Errorf("%s could be renamed, and no query would go dark", family)
		}
	}
}
