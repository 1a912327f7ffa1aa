package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

const (
	sglangRun = `{"backend":"sglang","request_rate":%s,"max_concurrency":%s,"duration":10,"completed":%d,"mean_ttft_ms":50,"median_ttft_ms":50,"p95_ttft_ms":%s,"accept_length":null}`
	vllmRun   = `{"backend":"vllm","tokenizer_id":"t","num_prompts":100,"request_rate":%s,"max_concurrency":null,"duration":10,"completed":100,"failed":0,"request_throughput":10,"mean_ttft_ms":50,"median_ttft_ms":50}`
)

// What is no curve is refused in one sentence that names the file, says what it is, and what to give instead.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "empty is empty"},
		{"blank", " \n\r\n", "blank is empty"},
		{"bom", "\xef\xbb\xbf", "bom is empty"},
		{"utf16", "\xff\xfe{\x00", "utf16 is UTF-16 text: save it as UTF-8"},
		{"gz", "\x1f\x8b\x08", "gz is compressed by gzip: unpack it first"},
		{"gob", "\x00\x01\x02", "vegeta encode --to json"},
		{"parquet", "PAR1....", "is a Parquet table"},
		{"hlog", "#[Histogram log format version 1.3]\n", "is an HdrHistogram log"},
		{"prom", "# HELP vllm:x y\n", "--prometheus URL"},
		{"diary", "dear diary\n", `is text that begins "dear diary"`},
		{"one", fmt.Sprintf(sglangRun, "2", "null", 10, "90"), "one:1 is one run of SGLang bench_serving at 2 requests/s, and one load is no curve: give the files of the runs at other loads too"},
		{"repeats", fmt.Sprintf(sglangRun, "2", "null", 10, "90") + "\n" + fmt.Sprintf(sglangRun, "2", "null", 10, "80"), "repeats:1 and 1 more are runs of SGLang bench_serving at 2 requests/s alone"},
		{"inf", fmt.Sprintf(vllmRun, `"inf"`), "inf:1: everything was sent at once"},
		{"no load", fmt.Sprintf(vllmRun, "null"), "names no load"},
		{"trace", `{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0]}`, "trace:1 is a trace of requests to be sent"},
		{"pytorch", `[{"benchmark":{},"model":{},"metric":{}}]`, "PyTorch's dashboard"},
		{"summary", `{"load_summary":{"count":5,"schedule_delay":{}},"successes":{"count":5,"latency":{}},"failures":{"count":0}}`, "summary of all stages together"},
		{"server", `{"load_summary":{"count":5,"requested_rate":1},"successes":{"count":5,"rate":1,"queue_len":{}}}`, "give stage_N_lifecycle_metrics.json"},
		{"requests", `[{"start_time":1,"end_time":2,"request":"","response":""}]`, "inference-perf's list of requests"},
		{"knee", `{"baseline_concurrency":1,"knee_concurrency":8,"all_points":[]}`, "give profile_export_aiperf_sweep.json"},
		{"history", `{"iterations":[],"boundary_summary":{}}`, "history of a search"},
		{"isl sweep", `{"per_combination_metrics":[{"parameters":{"isl":256},"metrics":{}}]}`, "is a combination of an AIPerf sweep over isl 256, which is no load"},
		{"guidellm", `{"metadata":{"version":2},"benchmarks":[]}`, "is a GuideLLM report without a benchmark"},
		{"v9", `{"schema":"kneefinder/results/v9"}`, `v9:1 is of schema "kneefinder/results/v9"`},
		{"other", `{"a":1,"b":2}`, "other:1 is JSON of no kind known here (its keys: a, b)"},
		{"list", "[1,2]", "list:1 is JSON, but no object"},
		{"nothing", "[]", "nothing is an empty list"},
		{"torn", `{"backend": "vll`, "torn:1: the JSON ends within a string"},
		{"torn pretty", "{\n \"a\": 1,\n \"b\"", "torn pretty:3: a colon is missing"},
		{"deep", strings.Repeat("[", 100), "deep:1: the JSON is nested more than 64 deep"},
		{"yaml", "a: 1\nb: 2\n", "is YAML, but neither an llm-d Benchmark Report"},
		{"bad yaml", "a: [1\nb: 2\n", "begins as YAML and cannot be read"},
		{"bomb.yaml", "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", "names itself over and over"},
		{"no unit.csv", "rate,ttft_p95\n1,90\n2,100\n", "no unit.csv:1 has columns without a unit (ttft_p95): put it into the name"},
		{"mean.csv", "rate,mean_ttft_ms\n1,90\n", "a mean says nothing of the slow ones"},
		{"no load.csv", "p95_ttft_ms,x\n1,90\n", "columns name no load"},
		{"no ttft.csv", "rate,x\n1,90\n", "columns name no percentile of TTFT"},
		{"neither.csv", "a,b\n1,90\n", "columns name neither a load nor a TTFT"},
		{"no row.csv", "rate,ttft_p95_ms\n", "is a table without a row"},
		{"comma.csv", "rate;ttft_p95_ms\n1;90,5\n2;100\n", `comma.csv:2 writes ttft_p95_ms as "90,5", with a comma in the number`},
		{"one row.csv", "rate,ttft_p95_ms\n1,90\n", "one row.csv:2 is one run of CSV at 1 requests/s"},
		{"units in cells.csv", "rate,ttft_p95_ms\n1,100ms\n2,400ms\n", `units in cells.csv:2 writes ttft_p95_ms as "100ms": write the number alone; its unit stands in the column's name`},
		{"a load with its unit.csv", "rate,ttft_p95_ms\n1 rps,100\n2 rps,400\n", `:2 writes rate as "1 rps"`},
		{"a share with its unit.csv", "rate,ttft_p95_ms,error_rate\n1,100,0%\n2,400,5%\n", `:2 writes error_rate as "0%"`},
		{"no figure.csv", "rate,ttft_p95_ms\n1,\n2,NaN\n", "no figure.csv:2 begins a table without any TTFT (no figure.csv:2: no figure of TTFT stands there. no figure.csv:3: no figure of TTFT stands there)"},
		{"no words.csv", "rate,ttft_p95_ms\n1,fast\n2,slow\n", `ttft_p95_ms is "fast", which is no number`},
		{"loads that are none.csv", "rate,ttft_p95_ms\n-1,100\n0,100\n1,200\n", "loads that are none.csv:4 is one run of CSV at 1 requests/s, and one load is no curve (left out: loads that are none.csv:2: -1 is no load above 0; the row is left out. loads that are none.csv:3: 0 is no load above 0; the row is left out)"},
		{"no load at all.csv", "rate,ttft_p95_ms\n-1,100\n0,100\n", "no load at all.csv:2: -1 is no load above 0; the row is left out. no load at all.csv:3: 0 is no load"},
		{"units that differ.csv", "rate,ttft_p95_ms,p95_ttft_s\n1,100,0.2\n2,400,4\n", "units that differ.csv:2 tells one figure in two columns that differ: ttft_p95_ms is 100 and p95_ttft_s is 0.2: leave one of them out"},
		{"median and p50.csv", "rate,median_ttft_ms,ttft_p50_ms,ttft_p95_ms\n1,50,60,100\n", ":2 tells one figure in two columns that differ: median_ttft_ms is 50 and ttft_p50_ms is 60"},
		{"a column twice.csv", "rate,ttft_p95_ms,TTFT P95 (ms)\n1,100,100\n", "a column twice.csv:1 has two columns TTFT P95 (ms): leave one out"},
		{"a load twice.csv", "rate,Rate,ttft_p95_ms\n1,2,100\n", ":1 has two columns Rate"},
		{"no steps", `{"schema":"kneefinder/results/v1","label":"x","steps":[]}`, "no steps:1 has no steps: nothing was measured there"},
		{"steps left out", `{"schema":"kneefinder/results/v1","label":"x"}`, "steps left out:1 has no steps"},
		{"an empty step", "{\"schema\":\"kneefinder/results/v1\",\n\"steps\":[\n{\"rate_calls_per_s\":1},\n{}]}", "an empty step:4 is a step whose rate_calls_per_s is 0, must be above 0"},
		{"a load below 0", `{"schema":"kneefinder/results/v1","steps":[{"rate_calls_per_s":-2}]}`, "a load below 0:1 is a step whose rate_calls_per_s is -2, must be above 0"},
		{"a time below 0", `{"schema":"kneefinder/results/v1","steps":[{"rate_calls_per_s":2,"ttft_p95_ms":-5}]}`, "a time below 0:1 is a step whose ttft_p95_ms is -5, must not be negative"},
		{"a word for a number", "{\"schema\":\"kneefinder/results/v1\",\"steps\":[\n{\"rate_calls_per_s\":1},\n{\"rate_calls_per_s\":\"fast\"}]}", "a word for a number:3 has a steps.rate_calls_per_s (string) that is of another kind"},
		{"results and others", `{"schema":"kneefinder/results/v1","steps":[{"rate_calls_per_s":2}]}` + "\n{}", "results and others:2 is something else than the results before it"},
		{"a log without steps", `{"type":"header","schema":"kneefinder/turns/v1"}`, "a log without steps has no steps"},
		{"a log without its head", `{"type":"turn","schema":"kneefinder/turns/v1"}`, "begins as a turn log and is none that can be read"},
		{"no stream", `{"input_config":{"concurrency":4},"request_latency":{"unit":"ms","avg":900,"p95":1200},"request_count":{"unit":"requests","avg":50}}`, "no stream:1 is a run of AIPerf summary that tells no time to first token: have the tool stream"},
		{"vegeta one", `{"attack":"","seq":0,"code":200,"timestamp":"2026-02-01T00:00:00Z","latency":5}`, "is a Vegeta attack of one request"},
	} {
		_, err := Read([]File{{Name: c.name, Data: []byte(c.content)}}, slo300)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), c.name) {
			t.Errorf("%s: %v; want one sentence that begins with the name and has %q", c.name, err, c.want)
		}
	}
	var refused *RefusedError
	if _, err := Read([]File{{Name: "x", Data: []byte("[]")}, {Name: "y"}}, slo300); !errors.As(err, &refused) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two bad files: %v; want a sentence each", err)
	}
}

const guidellmYAML = `metadata: {version: 2}
config:
  spec:
    profile: {kind: knee}
    backend: {kind: openai_http, model: m}
benchmarks:
- config: {strategy: {type_: concurrent, streams: 1}}
  metrics:
    request_totals: {successful: 50, errored: 0, incomplete: 0, total: 50}
    time_to_first_token_ms: {successful: {mean: 50.0, count: 50, percentiles: {p50: 45.0, p95: 90.0}}}
- config: {strategy: {type_: concurrent, streams: 8}}
  metrics:
    request_totals: {successful: 50, errored: 0, incomplete: 0, total: 50}
    time_to_first_token_ms: {successful: {mean: 500.0, count: 50, percentiles: {p50: 450.0, p95: 900.0}}}
conclusions:
- {profile: knee, initial: {throughput: {status: ok, knee: 6.5}}}
`

// aiperfPhases is a summary whose settings hold a list of phases, and a rate of something else.
func aiperfPhases(rate, p95 string) string {
	return `{"schema_version":"1.4","input_config":{"cancellation":{"rate":7},"phases":[{"name":"w","kind":"warmup","type":"concurrency","concurrency":1},{"name":"profiling","kind":"profiling","type":"poisson","rate":` + rate +
		`}]},"request_count":{"unit":"requests","avg":50},"request_latency":{"unit":"ms","avg":1000},"time_to_first_token":{"unit":"ms","avg":50,"p50":40,"p95":` + p95 + "}}\n"
}

// Files that are odd, and read all the same.
func TestOddFiles(t *testing.T) {
	two := func(a, b string) string { return a + "\n" + b + "\n" }
	slow := fmt.Sprintf(sglangRun, "4", "null", 40, "900")
	for _, c := range []struct{ name, content, p95, warning string }{
		{"bare Infinity", two(fmt.Sprintf(sglangRun, "Infinity", "2", 20, "90"), fmt.Sprintf(sglangRun, "Infinity", "4", 40, "900")), "[2:90 4:900]", ""},
		{"a rate as a string", two(fmt.Sprintf(sglangRun, `"2"`, "null", 20, "90"), slow), "[2:90 4:900]", ""},
		{"NaN", two(fmt.Sprintf(sglangRun, "2", "null", 20, "NaN"), slow), "[2:- 4:900]", "1 of 2 steps hold no P95 TTFT"},
		{"infinite latency", two(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), fmt.Sprintf(sglangRun, "4", "null", 40, "Infinity")), "[2:90 4:-]", ""},
		{"CRLF and BOM", "\xef\xbb\xbf" + strings.ReplaceAll(two(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), slow), "\n", "\r\n"), "[2:90 4:900]", ""},
		{"objects side by side", fmt.Sprintf(sglangRun, "2", "null", 20, "90") + slow, "[2:90 4:900]", ""},
		{"a list", "[" + fmt.Sprintf(sglangRun, "2", "null", 20, "90") + "," + slow + "]", "[2:90 4:900]", ""},
		{"a key twice", two(strings.Replace(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), `"p95_ttft_ms"`, `"p95_ttft_ms":4.9,"p95_ttft_ms"`, 1), slow), "[2:90 4:900]", `:1: the key "p95_ttft_ms" stands twice`},
		{"a torn last line", two(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), slow) + `{"backend": "sgl`, "[2:90 4:900]", ":3: the JSON ends within a string; the line is left out"},
		{"a torn middle line", two(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), "{\"backend\": \"sgl\n"+slow), "[2:90 4:900]", ":2: a string does not end on its line; the line is left out"},
		{"a step without requests", two(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), strings.ReplaceAll(fmt.Sprintf(sglangRun, "4", "null", 0, "0"), "50,", "0,")), "[2:90 4:-]", ":2: the step holds no request."},
		{"mixed units", "rate,ttft_p95_ms,ttft_p99_s\n2,90,0.1\n4,900,1.5\n", "[2:90 4:900]", ""},
		{"our own columns", "step,rate_calls_per_s,arrived_calls_per_s,ttft_p95_ms,ttft_p95_ci_low_ms,ttft_p95_ci_high_ms\n0,2,2.1,90,70,110\n1,4,3.9,900,700,1100\n", "[2:90 4:900]", ""},
		{"YAML of GuideLLM", guidellmYAML, "[1:90 8:900]", "It found one at 6.5 requests at once."},
		{"stages at once", `{"load_summary":{"count":9,"requested_rate":3,"achieved_rate":3,"concurrency":2},"successes":{"count":9,"latency":{"time_to_first_token":{"p95":0.09}}},"failures":{"count":0}}` +
			`{"load_summary":{"count":9,"requested_rate":4,"achieved_rate":4,"concurrency":4},"successes":{"count":9,"latency":{"time_to_first_token":{"p95":0.9}}},"failures":{"count":0}}`, "[2:90 4:900]", ""},
		{"phases of AIPerf", aiperfPhases("2", "90") + aiperfPhases("4", "900"), "[2:90 4:900]", ""},
		{"a figure in two units", "rate,ttft_p95_ms,ttft_p95_s\n2,90,0.09\n4,900,0.9\n", "[2:90 4:900]", ""},
		{"loads that are none", "rate,ttft_p95_ms\n-1,7\n0,7\n2,90\n4,900\n", "[2:90 4:900]", "f:2: -1 is no load above 0; the row is left out.\nf:3: 0 is no load above 0; the row is left out."},
		{"cells that are missing", "rate,ttft_p95_ms\n2,90\n4,900\n8,\n9,NaN\n", "[2:90 4:900 8:- 9:-]", "f:4: no figure of TTFT stands there.\nf:5: no figure of TTFT stands there."},
		{"no time", "rate,ttft_p50_ms,ttft_p95_ms\n2,7,-5\n4,90,900\n", "[2:- 4:900]", "f:2: of TTFT P95 is -5 ms, and no time is negative: taken as absent."},
		{"no share", "rate,ttft_p95_ms,cache_hit_rate\n2,90,97\n4,900,.5\n", "[2:90 4:900]", "f:2: the cache hit rate is 97, which it cannot be"},
		{"tabs", "rate\tp95_ttft_ms\n2\t90\n4\t900\n", "[2:90 4:900]", ""},
		{"a cell that is no number", "rate,ttft_p95_ms\n2,90\n4,900\n8,oops\n", "[2:90 4:900 8:-]", `:4: ttft_p95_ms is "oops", which is no number`},
		{"a load that is none", "rate,ttft_p95_ms\n2,90\n4,900\nmany,7\n", "[2:90 4:900]", `:4: the load "many" is no number; the row is left out.`},
	} {
		in, err := Read([]File{{Name: "f", Data: []byte(c.content)}}, slo300)
		if err != nil || len(in.Curves) != 1 {
			t.Errorf("%s: %d curves, %v; want one", c.name, len(in.Curves), err)
			continue
		}
		var got []string
		for _, s := range in.Curves[0].Steps {
			got = append(got, fmt.Sprintf("%g:%s", s.Rate, show(s.TTFTP95)))
		}
		if fmt.Sprint(got) != c.p95 || !strings.Contains(strings.Join(in.Curves[0].Warnings, "\n"), c.warning) {
			t.Errorf("%s: P95 TTFT %v, warnings %q; want %s and a warning with %q", c.name, got, in.Curves[0].Warnings, c.p95, c.warning)
		}
	}
}

// A quantile between others that the file holds is judged by them where they decide, and by nothing else.
func TestVerdictsByOtherQuantiles(t *testing.T) {
	for _, c := range []struct {
		p50, p99 float64
		want     measurement.Verdict
	}{
		{400, 900, measurement.Fail}, {100, 250, measurement.Pass}, {100, 900, measurement.Undecided}, {math.NaN(), math.NaN(), measurement.Undecided},
	} {
		p := newPoint(VLLM, "f:1")
		p.ok, p.failed, p.load = 100, 0, 1
		p.ttft.set(.5, c.p50)
		p.ttft.set(.99, c.p99)
		if got := p.step(0, slo300); got.Verdict != c.want || got.TTFTP95 != nil {
			t.Errorf("P50 %v, P99 %v: %s with P95 %v; want %s and none", c.p50, c.p99, got.Verdict, show(got.TTFTP95), c.want)
		}
	}
}

// An infinite percentile is one of requests that were never answered: it fails, in whatever format it stands.
func TestInfiniteFails(t *testing.T) {
	for name, text := range map[string]string{
		"CSV":  "rate,ttft_p95_ms\n2,90\n4,inf\n",
		"JSON": fmt.Sprintf(sglangRun, "2", "null", 20, "90") + fmt.Sprintf(sglangRun, "4", "null", 40, "Infinity"),
	} {
		in, err := Read([]File{{Name: "f", Data: []byte(text)}}, slo300)
		if err != nil {
			t.Fatal(err)
		}
		r := in.Curves[0]
		if s := r.Steps[1]; s.Verdict != measurement.Fail || s.TTFTP95 != nil || !slices.Contains(s.Flags, measurement.FlagCensored) || r.Knees.SLO.Status != measurement.Found || *r.Knees.SLO.Rate != 2 {
			t.Errorf("%s: %+v, %+v; want a censored fail, and the knee at 2", name, s, r.Knees.SLO)
		}
	}
}

// Results of ours come through with what is odd about them said.
func TestOddResults(t *testing.T) {
	step := func(rate string, p95 string) string {
		return `{"rate_calls_per_s":` + rate + `,"measured_turns":100,"ttft_p95_ms":` + p95 + `,"verdict":"undecided"}`
	}
	run := func(label, steps string) string {
		return `{"schema":"kneefinder/results/v1","label":"` + label + `","seed":18446744073709551615,"config":{"slo":[{"metric":"ttft","quantile":0.95,"limit_ms":300}]},` + "\n\"steps\":[" + steps + "]}"
	}
	in, err := Read([]File{{Name: "f", Data: []byte(run("a", step("2", "NaN")+",\n"+step("4", "900")) + run("b", step("3", "-Infinity")))}}, slo300)
	if err != nil || len(in.Curves) != 2 {
		t.Fatal(len(in.Curves), err)
	}
	a, b := in.Curves[0], in.Curves[1]
	if a.Label != "a" || b.Label != "b" || a.Seed != math.MaxUint64 || a.Steps[0].TTFTP95 != nil || *a.Steps[1].TTFTP95 != 900 || b.Steps[0].Rate != 3 {
		t.Errorf("%+v\n%+v", a, b)
	}
	for i, want := range []string{"f:2: a figure stands there that is no number (NaN or infinite): it is taken as absent.", "f:4: a figure stands there"} {
		if got := strings.Join(in.Curves[i].Warnings, "\n"); !strings.Contains(got, want) || !strings.Contains(got, "the results tell no knees: they are read from the steps") {
			t.Errorf("%q; want %q", got, want)
		}
	}
	moved := strings.TrimSuffix(run("c", step("2", "90")), "}") + `,"knees":{"slo":{"status":"found","rate_calls_per_s":3}}}`
	rs, lines, ours, err := Own(File{Name: "f", Data: []byte("[" + moved + ",\n" + moved + "]")})
	if err != nil || !ours || len(rs) != 2 || fmt.Sprint(lines) != "[1 3]" || !strings.Contains(rs[0].Warnings[0], "f:2: the SLO knee stands at 3, where none of the steps was run") {
		t.Errorf("%v, %v, lines %v, %+v", ours, err, lines, rs)
	}
	if _, _, ours, err := Own(File{Name: "f", Data: []byte(fmt.Sprintf(sglangRun, "2", "null", 20, "90"))}); ours || err != nil {
		t.Errorf("another tool's: %v, %v", ours, err)
	}
}

// A client that did not send what was asked hides the wait: its step cannot pass, however short its latencies are.
func TestCoordinatedOmission(t *testing.T) {
	run := func(asked string, came float64) string {
		return fmt.Sprintf(`{"RunType":"HTTP","RequestedQPS":%q,"ActualQPS":%g,"ActualDuration":4e9,"NumThreads":8,"DurationHistogram":{"Count":700,"Min":0.02,"Avg":0.04,"Percentiles":[{"Percentile":95,"Value":0.0427}]},"RetCodes":{"200":700}}`, asked, came)
	}
	in, err := Read([]File{{Name: "f", Data: []byte(run("180", 178) + run("400", 193))}}, slo300)
	if err != nil {
		t.Fatal(err)
	}
	steps := in.Curves[0].Steps
	if steps[0].Verdict != measurement.Pass || steps[1].Verdict != measurement.Undecided || fmt.Sprint(steps[1].Flags) != "[buffered client_limited]" {
		t.Errorf("%s, then %s with %v; want pass, then undecided by client_limited", steps[0].Verdict, steps[1].Verdict, steps[1].Flags)
	}
}

// Our own results and logs come through as they are.
func TestOwn(t *testing.T) {
	var log bytes.Buffer
	w := measurement.NewLogWriter(&log, false)
	w.Header(measurement.Header{Label: "mine", Config: measurement.Config{SLO: slo300}})
	s := measurement.Step{Step: 0, Rate: 1, WindowEnd: measurement.Never}
	w.StepBegin(s)
	w.Flush()
	read, err := measurement.ReadLog(bytes.NewReader(log.Bytes()), "log")
	if err != nil {
		t.Fatal(err)
	}
	want := analysis.Analyze(read)
	var results bytes.Buffer
	if err := measurement.WriteResults(&results, want); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"log": log.Bytes(), "results": results.Bytes()} {
		in, err := Read([]File{{Name: name, Data: data}}, nil)
		if err != nil || len(in.Curves) != 1 {
			t.Fatalf("%s: %d curves, %v", name, len(in.Curves), err)
		}
		a, _ := json.Marshal(in.Curves[0])
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: got %s\nwant %s", name, a, b)
		}
	}
}

// Percentiles that no times can have are doubtful.
func TestLintPercentiles(t *testing.T) {
	for _, c := range []struct {
		row  string
		want Outcome
		says string
	}{
		{"2,50,90", Consistent, ""}, {"2,90,90", Consistent, ""}, {"2,,", Untold, ""},
		{"2,50,-5", Doubtful, "P95 TTFT is -5 ms, and no time is negative"}, {"2,90,50", Doubtful, "P95 TTFT is 50 ms, less than P50, 90 ms"},
	} {
		checks, _, err := Lint(File{Name: "f", Data: []byte("rate,ttft_p50_ms,ttft_p95_ms\n" + c.row + "\n")})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == "percentiles rise, from 0 on" })
		if i < 0 || checks[i].Outcome != c.want || checks[i].Says != c.says {
			t.Errorf("%s: %+v; want %s %q", c.row, checks, c.want, c.says)
		}
	}
}

// The checks on files whose quirks are known.
func TestLint(t *testing.T) {
	for _, c := range []struct {
		file, check string
		outcome     Outcome
		figures     string
	}{
		{"sglang_conc16.jsonl", "TPOT is (E2E-TTFT)/(n-1)", Consistent, "TPOT 11.91 ms, computed 11.91 ms"},
		{"sglang_conc16.jsonl", "ITL/TPOT is tokens per event", Doubtful, "29.23"},
		{"sglang_conc16.jsonl", "throughput*E2E is in flight (Little)", Consistent, "15.33 computed, 16 allowed"},
		{"ladder/stage_4_lifecycle_metrics.json", "TPOT is (E2E-TTFT)/(n-1)", Doubtful, "computed"},
		{"ladder/stage_4_lifecycle_metrics.json", "offered rate is sends over their window", Doubtful, "asked 122.6/s, sent 106.5/s, completed 101.2/s"},
		{"ladder/stage_3_lifecycle_metrics.json", "offered rate is sends over their window", Consistent, "asked 92.19/s"},
		{"guidellm_knee.json", "TPOT leaves TTFT out", Doubtful, "E2E 60 ms"},
		{"guidellm_sweep.json", "completed and failed are all", Doubtful, "900 completed, 0 failed, 905 issued"},
		{"vllm_joined.json", "offered rate is sends over their window", Doubtful, "asked 30/s, sent unknown/s, completed 22.1/s"},
		{"vllm_joined.json", "completed and failed are all", Consistent, "300 completed, 0 failed, 300 issued"},
		{"vllm_joined.json", "token totals are rates and lengths", Consistent, "output tokens"},
		{"vllm_detailed.json", "throughput*E2E is in flight (Little)", Untold, ""},
		{"aiperf_conc100.json", "throughput*E2E is in flight (Little)", Doubtful, "86.53 computed, 100 allowed"},
		{"vegeta_results.csv", "no TTFT is 0", Consistent, "least TTFT 50 ms"},
	} {
		checks, _, err := Lint(testFiles(t, c.file)[0])
		if err != nil {
			t.Fatal(err)
		}
		found := false
		var seen []string
		for _, k := range checks {
			if k.Name == c.check {
				seen = append(seen, fmt.Sprintf("%s (%s)", k.Outcome, k.Figures))
				found = found || k.Outcome == c.outcome && strings.Contains(k.Figures, c.figures)
			}
		}
		if !found {
			t.Errorf("%s: %s: %q; want %s with %q at some load", c.file, c.check, seen, c.outcome, c.figures)
		}
	}
	for ms, want := range map[float64]bool{242.5: true, 487.5: true, 19500: true, 39000: true, 390: true, 243: false, 300: false, 195.1: false} {
		lo, hi, got := bucketBehind(.95, ms)
		if got != want || got && !(lo < ms && ms < hi) {
			t.Errorf("a P95 of %g ms: of a bucket %v (%g to %g); want %v", ms, got, lo, hi, want)
		}
	}
	if in, err := Read([]File{{Name: "f", Data: []byte("rate,ttft_p95_ms\n1,242.5\n2,39000\n")}}, slo300); err != nil || !strings.Contains(strings.Join(in.Curves[0].Warnings, "\n"), "f:3: P95 TTFT is 39000 ms: it is exactly what an engine's histogram makes of a bucket from 20000 to 40000 ms") {
		t.Errorf("artefacts of buckets: %v, %v", in.Curves, err)
	}
	pooled := strings.Replace(fmt.Sprintf(sglangRun, "2", "null", 20, "90"), `"mean_ttft_ms"`, `"min_ttft_ms":0,"mean_ttft_ms"`, 1)
	checks, _, err := Lint(File{Name: "pooled", Data: []byte(pooled)})
	if err != nil || !strings.Contains(fmt.Sprint(checks), "failed requests are pooled") {
		t.Errorf("a least TTFT of 0: %v, %v; want it called pooled failures", checks, err)
	}
}

// FuzzRead: no bytes make it panic, an error is never empty, and what is read can be written as results.
func FuzzRead(f *testing.F) {
	for _, file := range testFiles(f, "*.json", "*.jsonl", "*.csv", "*.yaml", "ladder/stage_4*.json", "aiperf_run/*") {
		f.Add(file.Data[:min(len(file.Data), 6000)])
		f.Add(file.Data)
	}
	for _, s := range []string{"{", "[", `{"a":{"b":[`, "Metric,avg\n,\n", "rate,ttft_p95_ms\n1,2\n2,3", "1770000000000000000,200,5,0,0,,,a,0\n", "- a: 1\n", `{"metadata":{"x_request_id":"a"},"metrics":{}}`, `{"type":"header","schema":"kneefinder/turns/v1"}`} {
		f.Add([]byte(s))
	}
	own := csvOf(f, analysis.Analyze(aRun("L")))
	f.Add([]byte(own))
	f.Add([]byte(strings.ReplaceAll(own, "ttft:p95:300ms", "")))
	f.Add([]byte(`{"version":"0.2","scenario":{"load":{"standardized":{"tool":"kneefinder"},"native":{"config":{"label":"L","turns":2,"rate_calls_per_s":1,"slo":[{"metric":"ttft","quantile":0.95,"limit_ms":300}]}}}},"results":{"request_performance":{"aggregate":{"requests":{"total":9}}},"profiling":{"kneefinder":{"ttft_p95_ms":90,"measured_turns":9,"flags":[],"ttft_p95_ci_ms":[1,null]}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := Read([]File{{Name: "a", Data: data}}, slo300)
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatal("an error that says nothing")
		}
		for _, r := range in.Curves {
			if err := measurement.WriteResults(&bytes.Buffer{}, r); err != nil {
				t.Fatalf("%v", err)
			}
			analysis.Summary(&bytes.Buffer{}, r)
		}
		_, _, _ = Lint(File{Name: "a", Data: data})
		_, _ = Read([]File{{Name: "a/x", Data: data}, {Name: "a/y", Data: []byte(fmt.Sprintf(sglangRun, "2", "null", 20, "90"))}}, slo300)
	})
}
