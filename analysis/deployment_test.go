package analysis

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// simulatedOn is a header's engine as a log brings it, with details as JSON.
func simulatedOn(t *testing.T, gpu, details string) measurement.Engine {
	t.Helper()
	e := measurement.Engine{Kind: "simulated", Model: "m", GPU: gpu, Fidelity: "uncalibrated"}
	if err := json.Unmarshal([]byte(details), &e.Details); err != nil {
		t.Fatal(err)
	}
	return e
}

// A fleet that was measured is counted as a fleet, and with the GPUs in it.
func TestWhatIsCounted(t *testing.T) {
	for _, c := range []struct{ why, details, need, stays string }{
		{"one engine on one GPU", `{"kind":"vllm"}`, "need 4 replicas for P95", "Each replica is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"one engine on several", `{"kind":"vllm","gpus":2,"tp":2}`, "need 4 replicas of 2 GPUs each, 8 GPUs in all, for P95", "Each replica is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"a fleet", `{"kind":"vllm","fleet":{"replicas":20,"router":"kv"}}`, "need 4 fleets of 20 engines each, 80 GPUs in all, for P95", "Each fleet is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"a fleet of engines on several GPUs", `{"gpus":2,"tp":2,"fleet":{"replicas":3}}`, "need 4 fleets of 3 engines of 2 GPUs each, 24 GPUs in all, for P95", "Each fleet is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"a fleet whose replicas are named", `{"fleet":{"replicas":3,"replica_gpus":["l40s","h100","l40s"]}}`, "need 4 fleets of 3 engines each, 12 GPUs", "Each fleet is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"prefill and decode apart", `{"fleet":{"prefill_replicas":2,"decode_replicas":1}}`, "need 4 fleets of 3 engines each, 12 GPUs", "Each fleet is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"a fleet of one is no more than its engine", `{"fleet":{"replicas":1,"router":"kv"}}`, "need 4 replicas for P95", "Each replica is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
		{"whatever a real endpoint hides", "", "need 4 endpoints, each like the one measured, for P95", "Each endpoint is taken"},
		{"an autoscaler", `{"fleet":{"replicas":5,"autoscale":{"min":1}}}`, "need 4 fleets of up to 5 engines each, 20 GPUs in all at most, for", "Each fleet is taken to get calls of its own, which arrive at random (Poisson) and stay with it."},
	} {
		r := measurement.Results{Label: "x", Config: measurement.Config{SLO: slo300}, Engine: simulatedOn(t, "l40s", cmp.Or(c.details, "{}")),
			Knees: measurement.Knees{SLO: measurement.Knee{Status: measurement.Found, Rate: figure(.8)}}}
		if c.details == "" {
			r.Engine = measurement.Engine{Kind: "vllm"}
		}
		got, err := ReplicasFor(r, 2.5)
		if err != nil || !strings.Contains(got.String(), c.need) || !strings.Contains(got.String(), c.stays) {
			t.Errorf("%s: %v, error %v; want %q and %q", c.why, got, err, c.need, c.stays)
		}
	}
}

// A title names whose engine it is and the shape it has; rows of a comparison what of that is not the same.
func TestShapes(t *testing.T) {
	var rs []measurement.Results
	for _, c := range []struct{ label, details, title, row string }{
		{"a", `{"kind":"vllm","tp":2,"gpus":2}`, "a: m simulated on h100, engine=vllm tp=2 (uncalibrated)", "a (engine=vllm)"},
		{"b", `{"kind":"sglang","tp":2,"gpus":2,"fleet":{"replicas":4,"router":"kv"}}`, "b: m simulated on h100, engine=sglang tp=2 fleet=4×h100 (uncalibrated)", "b (engine=sglang fleet=4×h100 router=kv)"},
		{"c", `{"kind":"sglang","tp":2,"gpus":2,"fleet":{"replicas":3,"replica_gpus":["l40s","h100","l40s"],"router":"kv"}}`, "c: m simulated on h100, engine=sglang tp=2 fleet=2×l40s+1×h100 (uncalibrated)", "c (engine=sglang fleet=2×l40s+1×h100 router=kv)"},
		{"d", `{"kind":"sglang","tp":2,"gpus":2,"fleet":{"prefill_replicas":2,"decode_replicas":1,"router":"random"}}`, "d: m simulated on h100, engine=sglang tp=2 prefill=2×h100 decode=1×h100 (uncalibrated)", "d (engine=sglang prefill=2×h100 decode=1×h100 router=random)"},
	} {
		r := measurement.Results{Label: c.label, Engine: simulatedOn(t, "h100", c.details)}
		rs = append(rs, r)
		if got := title(r); got != c.title {
			t.Errorf("title %q, want %q", got, c.title)
		}
		var b bytes.Buffer
		if CompareSummary(&b, append([]measurement.Results{{Label: "first", Engine: simulatedOn(t, "h100", `{"kind":"other","tp":2,"gpus":2}`)}}, r)); !strings.Contains(b.String(), "  "+c.row+" ") {
			t.Errorf("no row %q:\n%s", c.row, b.String())
		}
	}
	var b bytes.Buffer
	if CompareSummary(&b, []measurement.Results{rs[1], rs[1]}); strings.Contains(b.String(), "b (") {
		t.Errorf("runs alike have shapes in their rows:\n%s", b.String())
	}
	server := measurement.Results{Label: "s", Engine: measurement.Engine{Kind: "sglang", Version: "0.5", Model: "m", Details: map[string]any{"tp_size": 2.}}}
	if got, want := title(server), "s: m on sglang 0.5, tp=2 (measured or simulated is not told)"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}

// KV memory is told so that schemes can be set beside each other: bytes, and calls that fit.
func TestMemoryOf(t *testing.T) {
	const details = `{"kind":"sglang","kv_scheme":"sglang","kv_pool_bytes":16700000000,"kv_pool_tokens":59943,"kv_calls":3,"kv_call_tokens":18560,"gpus":2,"tp":2,"fleet":{"replicas":2}}`
	r := measurement.Results{Label: "a", Engine: simulatedOn(t, "l40s", details)}
	other := measurement.Results{Label: "b", Engine: simulatedOn(t, "l40s", strings.Replace(details, `"kv_scheme":"sglang"`, `"kv_scheme":"ideal"`, 1)), Config: measurement.Config{LoadOf: measurement.Requests, Turns: 1}}
	var b bytes.Buffer
	Detail(&b, r, measurement.StepResult{Engine: &measurement.EngineResult{KVPool: figure(119886), KVUsageMean: figure(.5), KVPeak: figure(.6)}})
	if want := "KV: on each GPU of each engine 16.7 GB, as scheme sglang shares it out; 3 calls of 18,560 tokens fit. Running requests hold 50.0 % of all replicas' pools on average, 60.0 % of one at most."; !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	b.Reset()
	r.Engine.Details["fleet"] = nil
	Detail(&b, r, measurement.StepResult{Engine: &measurement.EngineResult{KVPool: figure(59943), KVUsageMean: figure(.5), KVUsed: figure(23977.2), KVCached: figure(17982.9), KVPeak: figure(.6),
		WindowUsage: figure(.5), WindowCached: figure(.125)}})
	if want := "Running requests hold 40.0 % of the pool of layers that attend to everything on average, 60.0 % of one at most, and 30.0 % is cache that nobody holds; of the window layers' own it is 50.0 % and 12.5 %."; !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	r.Engine = simulatedOn(t, "l40s", details)
	b.Reset()
	CompareSummary(&b, []measurement.Results{r, other})
	for _, want := range []string{"  a (kv=sglang) ", "  b (kv=ideal) ", "KV: on each GPU of each engine 16.7 GB, as scheme ideal shares it out; 3 requests of 18,560 tokens fit"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
