package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run of a fleet says what was simulated, on the page and in its files, and what befell the replicas.
func TestFleetReport(t *testing.T) {
	for _, c := range []struct {
		name, args string
		want       []string // on the page
		gpu        string
		details    map[string]any
	}{
		{"failing", "--replicas 3 --replica-event|fail 1 at 3s for 4s|--rates 30 --retry resume",
			[]string{"a model of SGLang with demo on demo, 3 replicas behind a router (round_robin), not a measurement", "were lost with a replica that failed"}, "demo",
			map[string]any{"replicas": 3., "router": "round_robin", "retry": "resume", "replica_events": []any{"fail 1 at 3s for 4s"}}},
		{"apart", "--prefill-replicas 1 --decode-replicas 2 --engine vllm --kv-link-gb-s 50 --rates 4",
			[]string{"a model of vLLM with demo on demo, 1 prefill and 2 decode replicas behind", "prompts' KV, ", "prefill 0 ", "decode 1 0 - "}, "demo",
			map[string]any{"prefill_replicas": 1., "decode_replicas": 2., "router": "round_robin", "kv_link_gb_s": 50.}},
		{"mixed", "--replica-gpus demo,l40s,demo --router kv --affinity 9s --rates 4",
			[]string{"on demo, l40s, 3 replicas behind a router (kv, affinity 9s)"}, "demo, l40s",
			map[string]any{"replicas": 3., "replica_gpus": []any{"demo", "l40s", "demo"}, "router": "kv", "affinity_s": 9., "router_block": 512., "overlap_weight": 1.}},
		{"scaled", "--replicas 3 --autoscale-target 1 --rates 6",
			[]string{"the autoscaler started replicas", "replicas were paid for on average"}, "demo", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var args []string
			for i, part := range strings.Split(c.args, "|") {
				if i == 1 {
					args = append(args, part)
					continue
				}
				args = append(args, strings.Fields(part)...)
			}
			report := filepath.Join(dir, "report.json")
			r, _, out := simulated(t, dir, append(args, "--no-extend", "--min-turns", "60", "--step-duration", "20s", "--json", report)...)
			page := strings.Join(strings.Fields(out), " ")
			for _, want := range c.want {
				if !strings.Contains(page, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			got, _ := r.Engine.Details["fleet"].(map[string]any)
			if r.Engine.GPU != c.gpu || got == nil {
				t.Errorf("engine %+v", r.Engine)
			}
			if c.details != nil && !same(t, got, c.details) {
				t.Errorf("fleet %v, want %v", got, c.details)
			}
			if most := r.Engine.Details["max_running_requests"]; most != 3*256. {
				t.Errorf("%v requests at a time at most", most)
			}
			data, err := os.ReadFile(report)
			if err != nil {
				t.Fatal(err)
			}
			var j struct{ Fleet *fleetReport }
			if err := json.Unmarshal(data, &j); err != nil || j.Fleet == nil || j.Fleet.Requests == 0 {
				t.Errorf("%+v, %v", j.Fleet, err)
			}
			if e := r.Steps[0].Engine; c.name == "apart" && (*e.CacheHitRate != *e.Replicas[0].CacheHitRate || j.Fleet.Transfers == 0) {
				t.Errorf("hit rate %v of all, %v where prompts are computed", *e.CacheHitRate, *e.Replicas[0].CacheHitRate)
			}
		})
	}
}

// A single engine has no fleet in its files.
func TestNoFleet(t *testing.T) {
	r, _, out := simulated(t, t.TempDir(), "--rates", "2", "--no-extend", "--min-turns", "60", "--step-duration", "20s")
	if _, ok := r.Engine.Details["fleet"]; ok || strings.Contains(out, "Fleet, over") || !strings.Contains(out, "a model of SGLang with demo on demo, not a measurement") {
		t.Errorf("%+v\n%s", r.Engine, out)
	}
}

func same(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(x) == string(y)
}

// Large figures of a fleet are written out: no reader takes 2e+03 GB for a number.
func TestFleetFiguresHaveNoExponent(t *testing.T) {
	var b strings.Builder
	(&fleetReport{Transfers: 3156, TransferGB: 1996.4, TransferMeanMS: 12.345, TransferMaxMS: 1234.5, TransferWaitMS: 65432, LinkBusy: 1, disaggregated: true}).text(&b)
	if want := "3156 prompts' KV, 1996 GB, went from prefill to decode in 12.3 ms on average, 1234 at most, behind 65432 ms of waiting for a place; the link was busy 100 % of the time"; !strings.Contains(b.String(), want) {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
