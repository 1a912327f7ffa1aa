package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"kneefinder/measurement"
)

// BenchmarkReport is one step of a run as an llm-d Benchmark Report v0.2, which tells of one load. It is a value: goroutines may share
// it.
//
// Its figures are of the measured turns, from the second of each call on; times to first token run from when a turn was due. A turn
// that failed without a token stands in no mean, and over every percentile: one that lands there is absent. rate_qps counts requests,
// calls/s times the turns of a call; the calls/s stand in scenario.load.native, by which package importer finds the curve
// again, among the run's settings. What v0.2 has no place for, the 95 % interval of P95 TTFT, how many turns were late, the verdict
// and its flags, stands in results.profiling.kneefinder: the step as the results file has it. Gaps between tokens are left out where an event holds several
// tokens.
type BenchmarkReport struct {
	Step int
	doc  map[string]any
}

// YAML writes the report.
func (b BenchmarkReport) YAML(w io.Writer) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(b.doc); err != nil {
		return fmt.Errorf("write Benchmark Report: %w", err)
	}
	return e.Close()
}

// JSON writes the report.
func (b BenchmarkReport) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(b.doc); err != nil {
		return fmt.Errorf("write Benchmark Report: %w", err)
	}
	return nil
}

// BenchmarkReports are the reports of a run's complete steps, in the order they were run. r is what Analyze makes of the log.
func BenchmarkReports(log measurement.Log, r measurement.Results) []BenchmarkReport {
	var out []BenchmarkReport
	byStep := map[int][]*measurement.Turn{}
	for i := range log.Turns {
		byStep[log.Turns[i].Step] = append(byStep[log.Turns[i].Step], &log.Turns[i])
	}
	for _, s := range log.Complete() {
		i := slices.IndexFunc(r.Steps, func(x measurement.StepResult) bool { return x.Step == s.Step })
		if i >= 0 {
			out = append(out, BenchmarkReport{Step: s.Step, doc: benchmarkReport(log, s, r.Steps[i], byStep[s.Step])})
		}
	}
	return out
}

type object = map[string]any

func benchmarkReport(log measurement.Log, s measurement.Step, r measurement.StepResult, turns []*measurement.Turn) object {
	h := log.Header
	label := h.Engine.Kind
	if label == "" {
		label = "engine"
	}
	c := h.Config
	tool, version, _ := strings.Cut(h.Tool, " ")
	if version == "" {
		version = "unknown"
	}
	standardized := object{"tool": "kneefinder", "tool_version": strings.TrimSpace(tool + " " + version), "parallelism": 1, "source": "random", "stage": s.Step,
		"input_seq_len":  object{"distribution": "other", "value": c.SystemPromptTokens + c.UserTokens + c.PromptTokens},
		"output_seq_len": object{"distribution": "fixed", "value": c.OutputTokens},
		"multi_turn":     object{"enabled": c.Turns > 1, "max_turns": object{"distribution": "fixed", "value": max(c.Turns, 1)}}}
	if c.Transcripts != "" {
		standardized["source"] = "sampled"
	}
	if c.SystemPromptTokens > 0 && c.Transcripts == "" { // every call has a prefix of its own
		standardized["prefix"] = object{"prefix_len": object{"distribution": "fixed", "value": c.SystemPromptTokens}, "num_groups": max(s.ArrivedCalls, 1), "num_users_per_group": 1, "num_prefixes": 1}
	}
	native := plain(c)
	native["label"], native["seed"] = h.Label, h.Seed
	if c.Arrivals == "closed" {
		standardized["concurrency"] = int(s.Rate)
		native["arrivals"], native["concurrent_calls"] = c.Arrivals, s.Rate
	} else {
		standardized["rate_qps"] = s.Rate * float64(max(c.Turns, 1))
		native["arrivals"], native["rate_calls_per_s"] = orPoisson(c.Arrivals), s.Rate
	}
	run := object{"uid": id(h.Label, h.Nonce, fmt.Sprint(h.Seed, s.Step)), "eid": id(h.Label, h.Nonce), "description": fmt.Sprintf("%s, step %d", h.Label, s.Step),
		"time": object{"duration": fmt.Sprintf("PT%gS", (s.WindowEnd - s.WindowStart).Seconds())}}
	if began, told := log.Wall(s.WindowStart); told {
		at := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
		run["time"] = object{"start": at(began), "end": at(began.Add(s.WindowEnd - s.WindowStart)), "duration": fmt.Sprintf("PT%gS", (s.WindowEnd - s.WindowStart).Seconds())}
	}
	results := object{"request_performance": object{"aggregate": performance(s, r, turns)}, "profiling": object{"kneefinder": plain(r)}}
	if o := observed(label, r.Engine); o != nil {
		results["observability"] = o
	}
	return object{"version": "0.2", "run": run, "results": results, "scenario": object{
		"stack": []any{component(label, h.Engine)},
		"load":  object{"metadata": object{"schema_version": "0.0.1", "cfg_id": id(fmt.Sprint(c))}, "standardized": standardized, "native": object{"config": native}}}}
}

func orPoisson(arrivals string) string {
	if arrivals == "" {
		return "poisson"
	}
	return arrivals
}

// id is a name in the form of a UUID that is the same for the same parts.
func id(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	x := hex.EncodeToString(sum[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// component is the engine as far as it is known, which is less than v0.2 wants to know of an inference_engine.
func component(label string, e measurement.Engine) object {
	known := object{"kind": "generic", "tool": label, "tool_version": "unknown"}
	for key, v := range map[string]string{"tool_version": e.Version, "fidelity": e.Fidelity} {
		if v != "" {
			known[key] = v
		}
	}
	if e.Model != "" {
		known["model"] = object{"name": e.Model}
	}
	if e.GPU != "" {
		known["accelerator"] = object{"model": e.GPU}
	}
	return object{"metadata": object{"schema_version": "0.0.1", "label": label, "cfg_id": id(e.Kind, e.Version, e.Model, e.GPU)}, "standardized": known, "native": object{}}
}

// plain is a record of ours as our files have it in JSON, without what is absent.
func plain(record any) object {
	var out object
	b, err := json.Marshal(record)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // records are figures and words
	}
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

func performance(s measurement.Step, r measurement.StepResult, turns []*measurement.Turn) object {
	var ttft, tpot, e2e, input, output []float64
	failures, incomplete := 0, 0
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, t := range turns {
		if t.Turn < 2 || !s.InWindow(t.Due) || t.Outcome == measurement.NotSent {
			continue
		}
		if t.Outcome == measurement.Canceled {
			incomplete++
			continue
		}
		if t.Outcome.Failed() {
			failures++
		}
		if d, ok := t.TTFT(); ok {
			ttft = append(ttft, millis(d))
		} else if t.Outcome.Failed() && t.Outcome != measurement.Shed && !t.Local {
			ttft = append(ttft, math.Inf(1))
		}
		if t.Outcome != measurement.OK {
			continue
		}
		e2e = append(e2e, millis(t.End-t.Due))
		if d, ok := t.TPOT(); ok {
			tpot = append(tpot, millis(d))
		}
		if t.PromptTokens >= 0 {
			input = append(input, float64(t.PromptTokens))
		}
		if t.CompletionTokens >= 0 {
			output = append(output, float64(t.CompletionTokens))
		}
	}
	requests := object{"total": r.MeasuredTurns, "failures": failures}
	if incomplete > 0 {
		requests["incomplete"] = incomplete
	}
	latency, throughput := object{}, object{}
	put := func(into object, name, units string, values []float64) {
		if m := statistics(units, values); m != nil {
			into[name] = m
		}
	}
	put(requests, "input_length", "count", input)
	put(requests, "output_length", "count", output)
	put(latency, "time_to_first_token", "ms", ttft)
	put(latency, "time_per_output_token", "ms/token", tpot)
	put(latency, "request_latency", "ms", e2e)
	if m := gaps(s, r); m != nil {
		latency["inter_token_latency"] = m
	}
	if r.ThroughputTurns != nil {
		throughput["request_rate"] = object{"units": "queries/s", "mean": *r.ThroughputTurns}
	}
	if r.OutputTokens != nil {
		throughput["output_token_rate"] = object{"units": "tokens/s", "mean": *r.OutputTokens}
	}
	return object{"requests": requests, "latency": latency, "throughput": throughput}
}

// percentiles that a report has names for.
var percentiles = []struct {
	name string
	p    float64
}{{"p0p1", .001}, {"p1", .01}, {"p5", .05}, {"p10", .1}, {"p25", .25}, {"p50", .5}, {"p75", .75}, {"p90", .9}, {"p95", .95}, {"p99", .99}, {"p99p9", .999}}

// statistics are those of values, of which +Inf is one that never came: it is in no mean, and percentiles that land there are
// absent. nil when none came.
func statistics(units string, values []float64) object {
	slices.Sort(values)
	came, sum := 0, 0.
	for _, v := range values {
		if !math.IsInf(v, 1) {
			came, sum = came+1, sum+v
		}
	}
	if came == 0 {
		return nil
	}
	out := object{"units": units, "mean": sum / float64(came), "min": values[0]}
	if came == len(values) {
		out["max"] = values[came-1]
	}
	for _, q := range percentiles {
		if v := measurement.Quantile(values, q.p); !math.IsInf(v, 1) {
			out[q.name] = v
		}
	}
	return out
}

// gaps are those between tokens; nil where the events hold several, or nothing is known.
func gaps(s measurement.Step, r measurement.StepResult) object {
	if r.ITLBasis != "token" {
		return nil
	}
	n, sum := int64(0), 0.
	for _, packed := range s.ITL {
		h, err := measurement.DecodeHistogram(packed)
		if err != nil {
			return nil
		}
		n, sum = n+h.TotalCount(), sum+h.Mean()*float64(h.TotalCount())
	}
	if n == 0 {
		return nil
	}
	out := object{"units": "ms/token", "mean": sum / float64(n) / float64(time.Millisecond)}
	for name, v := range map[string]*float64{"p50": r.ITLP50, "p95": r.ITLP95, "p99": r.ITLP99} {
		if v != nil {
			out[name] = *v
		}
	}
	return out
}

// observed is what the engine said of itself; nil when it said nothing.
func observed(label string, e *measurement.EngineResult) object {
	if e == nil {
		return nil
	}
	aggregate := object{}
	add := func(name, units string, mean, most *float64, times float64) {
		if mean == nil {
			return
		}
		m := object{"units": units, "mean": *mean * times}
		if most != nil {
			m["max"] = *most * times
		}
		aggregate[name] = m
	}
	add("running_requests", "count", e.RunningMean, nil, 1)
	add("waiting_requests", "count", e.QueuedMean, e.QueuedMax, 1)
	add("kv_cache_usage", "percent", e.KVUsageMean, e.KVUsageMax, 100)
	add("gpu_utilization", "percent", e.GPUUtil, nil, 100)
	add("gpu_memory_usage", "GiB", e.GPUMemory, nil, 1./(1<<30))
	add("power_consumption", "Watts", e.GPUPower, nil, 1)
	if len(aggregate) == 0 {
		return nil
	}
	return object{"components": []any{object{"component_label": label, "aggregate": aggregate}}}
}
