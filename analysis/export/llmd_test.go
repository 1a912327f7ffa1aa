package export

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"kneefinder/analysis"
	"kneefinder/analysis/importer"
	"kneefinder/measurement"
)

// form is what Benchmark Report v0.2 lets stand in an object: keys that must be there, and others. A key whose value has a form of
// its own is named with it.
type form struct {
	must, may []string
	of        map[string]*form
	open      bool // anything else may stand there too
}

// reportForm is v0.2 as far as its schema closes it.
func reportForm() *form {
	statistics := &form{must: []string{"units", "mean"}, may: strings.Fields("mode stddev min p0p1 p1 p5 p10 p25 p50 p75 p90 p95 p99 p99p9 max")}
	length := &form{must: []string{"distribution", "value"}, may: []string{"std_dev", "min", "max"}}
	each := func(f *form, names string) *form {
		out := &form{may: strings.Fields(names), of: map[string]*form{}}
		for _, n := range out.may {
			out.of[n] = f
		}
		return out
	}
	native := &form{may: []string{"args", "envars", "config"}}
	requests := each(statistics, "input_length output_length")
	requests.must, requests.may = []string{"total"}, append(requests.may, "failures", "incomplete")
	performance := &form{may: []string{"requests", "latency", "throughput"}, of: map[string]*form{"requests": requests,
		"latency":    each(statistics, "time_to_first_token normalized_time_per_output_token time_per_output_token inter_token_latency request_latency"),
		"throughput": each(statistics, "input_token_rate output_token_rate total_token_rate request_rate")}}
	load := &form{must: []string{"metadata", "standardized", "native"}, of: map[string]*form{"native": native,
		"metadata": {may: []string{"schema_version", "cfg_id", "description"}},
		"standardized": {must: []string{"tool", "tool_version", "source", "input_seq_len"}, may: strings.Fields("parallelism stage output_seq_len prefix multi_turn rate_qps concurrency"), of: map[string]*form{
			"input_seq_len": length, "output_seq_len": length,
			"prefix":     {must: []string{"prefix_len", "num_groups", "num_users_per_group", "num_prefixes"}, of: map[string]*form{"prefix_len": length}},
			"multi_turn": {may: []string{"enabled", "max_turns"}, of: map[string]*form{"max_turns": length}}}}}}
	component := &form{must: []string{"metadata", "standardized", "native"}, of: map[string]*form{"native": native,
		"metadata":     {must: []string{"label", "cfg_id"}, may: []string{"schema_version", "description"}},
		"standardized": {must: []string{"kind", "tool", "tool_version"}, open: true}}}
	observed := &form{must: []string{"component_label"}, may: strings.Fields("replica_id aggregate time_series raw_data_path graph_path"), of: map[string]*form{
		"aggregate": each(statistics, "kv_cache_usage gpu_cache_usage cpu_cache_usage gpu_memory_usage cpu_memory_usage storage_usage gpu_utilization cpu_utilization power_consumption running_requests waiting_requests swapped_requests")}}
	return &form{must: []string{"version", "run", "results"}, may: []string{"scenario"}, of: map[string]*form{
		"run":      {must: []string{"uid"}, may: strings.Fields("eid cid pid time user description keywords"), of: map[string]*form{"time": {may: []string{"start", "end", "duration"}}}},
		"scenario": {may: []string{"stack", "load"}, of: map[string]*form{"stack": component, "load": load}},
		"results": {may: strings.Fields("request_performance observability profiling component_health"), of: map[string]*form{
			"request_performance": {may: []string{"aggregate", "time_series"}, of: map[string]*form{"aggregate": performance}},
			"observability":       {may: []string{"components", "drop_rate"}, open: true, of: map[string]*form{"components": observed}}}}}}
}

// check reports what of a value its form does not allow.
func (f *form) check(t *testing.T, at string, v any) {
	t.Helper()
	if list, ok := v.([]any); ok {
		for _, x := range list {
			f.check(t, at, x)
		}
		return
	}
	o, ok := v.(map[string]any)
	if !ok {
		t.Errorf("%s is %T, want an object", at, v)
		return
	}
	allowed := map[string]bool{}
	for _, key := range f.must {
		if allowed[key] = true; o[key] == nil {
			t.Errorf("%s has no %s", at, key)
		}
	}
	for _, key := range f.may {
		allowed[key] = true
	}
	for key, x := range o {
		if !allowed[key] && !f.open {
			t.Errorf("%s has the key %s, which v0.2 does not know", at, key)
		}
		if x == nil {
			t.Errorf("%s.%s is null", at, key)
		} else if sub := f.of[key]; sub != nil {
			sub.check(t, at+"."+key, x)
		}
	}
}

// reported is a run of three steps of 40 calls each: the turns of the last wait, and of its calls every fourth gets no token.
func reported(t *testing.T, arrivals string) measurement.Log {
	t.Helper()
	log := measurement.Log{Header: measurement.Header{Schema: measurement.LogSchema, Label: "r", Tool: "kneeload 1.2", Started: "2026-01-02T03:04:05Z", Seed: 7, Nonce: "n",
		Config: measurement.Config{SystemPromptTokens: 100, UserTokens: 20, Turns: 2, OutputTokens: 10, MinTurns: 20, Arrivals: arrivals, SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5", Model: "m/x", GPU: "L40S", Fidelity: "measured"}}}
	for n := range 3 {
		start := time.Duration(n) * 100 * time.Second
		s := measurement.Step{Step: n, Rate: float64(n + 1), Start: start, WindowStart: start + 10*time.Second, WindowEnd: start + 50*time.Second, DrainEnd: start + 60*time.Second, ArrivedCalls: 40}
		h := measurement.NewHistogram()
		measurement.RecordGap(h, 20*time.Millisecond)
		packed, err := measurement.EncodeHistogram(2, h)
		if err != nil {
			t.Fatal(err)
		}
		s.ITL = []measurement.Histogram{packed}
		for call := range 40 {
			for k := 1; k <= 2; k++ {
				turn := measurement.NewTurn()
				due := s.WindowStart + time.Duration(call)*time.Second
				wait := time.Duration(50+10*call+n*200) * time.Millisecond
				turn.Call, turn.Turn, turn.Step, turn.Due, turn.Sent, turn.Outcome = n*measurement.CallsPerStep+call, k, n, due, due, measurement.OK
				turn.FirstToken, turn.LastToken, turn.End = due+wait, due+wait+180*time.Millisecond, due+wait+180*time.Millisecond
				turn.Events, turn.PromptTokens, turn.CompletionTokens, turn.CachedTokens = 10, 120, 10, 100*(k-1)
				if n == 2 && k == 2 && call%4 == 0 {
					turn.FirstToken, turn.LastToken, turn.Outcome, turn.Events = measurement.Never, measurement.Never, measurement.TTFTTimeout, 0
				}
				log.Turns = append(log.Turns, turn)
			}
		}
		log.Steps = append(log.Steps, s)
		log.Samples = append(log.Samples, measurement.EngineSample{At: start + 20*time.Second, Step: n, Values: map[string]float64{measurement.SampleRunning: 3, measurement.SampleQueued: 1, measurement.SampleKVUsage: .4, measurement.SampleGPUMemory: 1 << 31}})
	}
	log.Steps = append(log.Steps, measurement.Step{Step: 3, Rate: 9, Start: 300 * time.Second, WindowStart: 310 * time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never})
	return log
}

func TestBenchmarkReport(t *testing.T) {
	log := reported(t, "")
	r := analysis.Analyze(log)
	all := BenchmarkReports(log, r)
	if len(all) != 3 {
		t.Fatalf("%d reports, want one of each of the 3 complete steps", len(all))
	}
	uids := map[any]bool{}
	for i, b := range all {
		var y, j, again bytes.Buffer
		if err := b.YAML(&y); err != nil {
			t.Fatal(err)
		}
		if err := b.JSON(&j); err != nil {
			t.Fatal(err)
		}
		_ = BenchmarkReports(log, r)[i].YAML(&again)
		if y.String() != again.String() {
			t.Errorf("step %d: two reports of one run", i)
		}
		var fromYAML, fromJSON map[string]any
		if err := yaml.Unmarshal(y.Bytes(), &fromYAML); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(j.Bytes(), &fromJSON); err != nil {
			t.Fatal(err)
		}
		reportForm().check(t, "report", fromYAML)
		reportForm().check(t, "report", fromJSON)
		uids[fromJSON["run"].(map[string]any)["uid"]] = true
		get := func(path string) any {
			var v any = fromJSON
			for _, key := range strings.Split(path, ".") {
				m, ok := v.(map[string]any)
				if !ok {
					return nil
				}
				v = m[key]
			}
			return v
		}
		const perf = "results.request_performance.aggregate."
		for path, want := range map[string]any{
			"version": "0.2", "scenario.load.standardized.rate_qps": 2. * float64(i+1), "scenario.load.standardized.stage": float64(i), "scenario.load.native.config.rate_calls_per_s": float64(i + 1),
			"run.time.duration": "PT40S", "run.time.start": []string{"2026-01-02T03:04:15Z", "2026-01-02T03:05:55Z", "2026-01-02T03:07:35Z"}[i],
			perf + "requests.total": 40., perf + "requests.failures": []any{0., 0., 10.}[i], perf + "latency.time_to_first_token.units": "ms",
			perf + "latency.inter_token_latency.units": "ms/token", perf + "requests.input_length.mean": 120.,
		} {
			if got := get(path); got != want {
				t.Errorf("step %d: %s is %v, want %v", i, path, got, want)
			}
		}
		p95, told := get(perf + "latency.time_to_first_token.p95").(float64)
		if held := r.Steps[i].TTFTP95; told != (held != nil) || told && math.Abs(p95-*held) > 1e-9 || told == (i == 2) {
			t.Errorf("step %d: P95 TTFT %v, %v; want that of the curve, %v, and none of the last", i, p95, told, held)
		}
		if mean := get(perf + "latency.time_to_first_token.mean").(float64); i == 2 && (mean < 650 || mean > 660) { // of the 30 that got a token
			t.Errorf("the mean TTFT of those that got a token is %v", mean)
		}
	}
	if len(uids) != 3 {
		t.Errorf("reports share a uid: %v", uids)
	}
	var whole bytes.Buffer
	for _, b := range all {
		whole.WriteString("---\n")
		if err := b.YAML(&whole); err != nil {
			t.Fatal(err)
		}
	}
	in, err := importer.Read([]importer.File{{Name: "r.yaml", Data: whole.Bytes()}}, log.Header.Config.SLO)
	if err != nil || len(in.Curves) != 1 || len(in.Curves[0].Steps) != 3 {
		t.Fatalf("read again: %v, %d curves", err, len(in.Curves))
	}
	for i, got := range in.Curves[0].Steps { // of the last a quarter failed
		want := r.Steps[i]
		if got.Rate != want.Rate || got.Verdict != want.Verdict || math.Abs(*got.SaturationRatio-*want.SaturationRatio) > 1e-9 || !slices.Equal(slices.Sorted(slices.Values(got.Flags)), slices.Sorted(slices.Values(want.Flags))) || (got.TTFTP95CI[0] == nil) != (want.TTFTP95CI[0] == nil) || (got.TTFTP95AtLeast == nil) != (want.TTFTP95AtLeast == nil) {
			t.Errorf("step %d read again: %+v\nwant %+v", i, got, want)
		}
	}
	if e := in.Curves[0].Engine; e.Kind != "sglang" || e.Version != "0.5" || e.Model != "m/x" || e.GPU != "L40S" || e.Fidelity != "measured" {
		t.Errorf("the engine read again: %+v", e)
	}
	loop := reported(t, "closed")
	var b bytes.Buffer
	if err := BenchmarkReports(loop, analysis.Analyze(loop))[1].YAML(&b); err != nil || !strings.Contains(b.String(), "concurrency: 2\n") || strings.Contains(b.String(), "rate_qps") {
		t.Errorf("a closed loop: %v\n%s", err, b.String())
	}
}
