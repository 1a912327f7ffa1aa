package queries_test

import (
	"strings"
	"testing"
	"time"

	"kneefinder/grafana/queries"
)

// What a healthy run cannot have is told from what is missing.
func TestExcuse(t *testing.T) {
	steady := queries.Facts{Label: "a", Known: true, State: "running", Hits: true, Engines: []string{"sglang"}, GPUs: []string{"DCGM"}}
	with := func(change func(f *queries.Facts)) queries.Facts {
		f := steady
		f.Ended, f.Tested, f.Scrapes, f.Traces, f.Found = true, true, true, true, []string{"slo"}
		change(&f)
		return f
	}
	swept := with(func(*queries.Facts) {})
	missed := func(selectors ...string) queries.Answer { return queries.Answer{Missed: selectors} }
	for _, c := range []struct {
		facts  queries.Facts
		answer queries.Answer
		want   string // in the reason; empty: it is missing
	}{
		{steady, missed(`kneeload_step_ttft_seconds{label="a"}`), "a steady load has no ended steps"},
		{steady, missed(`kneeload_knee_calls_per_second{label="a"}`), "a steady load has no ended steps"},
		{steady, missed(`kneeload_arrivals_certified{label="a"}`), "a steady load has no ended steps"},
		{steady, missed(`kneeload_step_start_timestamp_seconds{label="a"}`), ""}, // a step has it as soon as it begins
		{steady, missed(`kneeload_dials_total{label="a"}`), ""},
		{steady, missed(`kneeload_target_scrapes_total`), "reads no engine's metrics"},
		{steady, missed(`kneeload_telemetry_dropped_total`), "nothing is sent to a collector"},
		{swept, missed(`kneeload_step_verdict{label="a"}`), ""},
		{swept, missed(`kneeload_step_flag{label="a"}`), "nothing is to be doubted"},
		{swept, missed(`kneeload_knee_ci95_low_calls_per_second{knee="slo"}`), "unbounded"},
		{swept, missed(`kneeload_knee_calls_per_second{knee="slo"}`), ""},
		{swept, missed(`kneeload_knee_calls_per_second{knee="saturation"}`), "the knee is not found"},
		{with(func(f *queries.Facts) { f.Found = nil }), missed(`kneeload_knee_calls_per_second{label="a"}`), "the knee is not found"},
		{with(func(f *queries.Facts) { f.Found = nil }), missed(`kneeload_knee_status{label="a"}`), ""},
		{with(func(f *queries.Facts) { f.Tested = false }), missed(`kneeload_arrivals_certified`), "tested when the run is over"},
		{with(func(f *queries.Facts) { f.Tested, f.State = false, "done" }), missed(`kneeload_arrivals_certified`), ""},
		{with(func(f *queries.Facts) { f.Hits = false }), missed(`kneeload_step_cache_hit_ratio`), "no cached tokens"},
		{swept, missed(`kneeload_step_cache_hit_ratio`), ""},
		{swept, missed(`sglang:num_running_reqs{a="b"} or vllm:num_requests_running`), ""}, // SGLang is scraped, and should have it
		{swept, missed(`sglang:num_retracted_requests_total or vllm:num_preemptions_total`), "first retraction"},
		{with(func(f *queries.Facts) { f.Engines = []string{"vllm"} }), missed(`sglang:kv_evictable_tokens`), "vllm lacks it"},
		{with(func(f *queries.Facts) { f.Engines = nil }), missed(`sglang:kv_evictable_tokens or vllm:x`), "no engine is scraped"},
		{with(func(f *queries.Facts) { f.Engines, f.Escaped = nil, true }), missed(`sglang:kv_evictable_tokens`), ""},
		{with(func(f *queries.Facts) { f.GPUs = nil }), missed(`DCGM_FI_DEV_GPU_UTIL or gpu_gfx_activity`), "no GPU exporter is scraped"},
		{with(func(f *queries.Facts) { f.GPUs = []string{"AMD"} }), missed(`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE`), "AMD lacks it"},
		{swept, missed(`DCGM_FI_DEV_GPU_UTIL`), ""},
		{with(func(f *queries.Facts) { f.Engines = nil }), missed(`sglang:x`, `kneeload_dials_total`), ""}, // one excuse does not cover the other
		{with(func(f *queries.Facts) { f.Filled = true }), missed(`kneeload_build_info`), "turn log"},
		{with(func(f *queries.Facts) { f.Filled = true }), missed(`kneeload_step_ttft_seconds`), ""},
		{swept, queries.Answer{Series: 2}, "nothing to count"},
		{swept, queries.Answer{Query: queries.Query{Expr: "kneeload_dials_total"}}, ""},
		{swept, queries.Answer{Series: 1, Numbers: 1}, ""}, // an answer needs none
	} {
		if got := c.facts.Excuse(c.answer); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v of %+v: %q, want %q", c.answer, c.facts, got, c.want)
		}
	}
}

func TestFactsSay(t *testing.T) {
	seen := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		facts queries.Facts
		want  string
	}{
		{queries.Facts{Label: "a"}, "there is no run in the time asked about: no series kneeload_run_info"},
		{queries.Facts{Label: "a", Labels: []string{"b", "c"}}, `there is no run "a" in the time asked about; there are: b, c`},
		{queries.Facts{Label: "a", Known: true, State: "running", LastSeen: seen, Engines: []string{"sglang", "vllm"}},
			"run a: running, last seen 2026-01-31T12:00:00Z; engine scraped: sglang, vllm; no GPU exporter is scraped"},
		{queries.Facts{Label: "a", Known: true, LastSeen: seen, Escaped: true}, "run a: in no state that it tells, last seen 2026-01-31T12:00:00Z; " +
			"no engine is scraped; no GPU exporter is scraped; SGLang's names came with underscores: give its job the metric_relabel_configs of deploy/scrape-snippet.yml"},
	} {
		if got := c.facts.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
