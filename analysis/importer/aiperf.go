package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kneefinder/measurement"
)

// isAIPerf knows the summaries of three generations: metrics under "records", then at the top, each with a unit of its own.
func isAIPerf(n node) bool {
	return aiperfMetric(n, "request_latency").has("unit") || aiperfMetric(n, "request_count").has("unit") && n.has("input_config")
}

// aiperfTags are the names that a metric has had.
var aiperfTags = map[string][]string{"ttft": {"time_to_first_token", "ttft"}}

func aiperfMetric(n node, tag string) node {
	names := aiperfTags[tag]
	if names == nil {
		names = []string{tag}
	}
	for _, in := range []node{n, n.get("records"), n.get("metrics")} {
		for _, name := range names {
			if m := in.get(name); m.kind == '{' {
				return m
			}
		}
	}
	return node{}
}

// milliseconds is what a unit of time is worth; NaN of one that is none.
func milliseconds(unit string) float64 {
	unit, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(unit)), "/")
	switch unit {
	case "ms", "millisecond", "milliseconds":
		return 1
	case "s", "sec", "secs", "second", "seconds":
		return 1000
	case "us", "µs", "microsecond", "microseconds":
		return 1e-3
	case "ns", "nanosecond", "nanoseconds":
		return 1e-6
	}
	return math.NaN()
}

// metricSpread reads {unit, avg, min, p50, p95, ...}.
func metricSpread(m node) spread {
	s, unit := noSpread(), milliseconds(m.get("unit").text())
	for i, key := range m.keys {
		if v := m.vals[i].number(); finite(v) && (key == "avg" || key == "mean" || key == "min" || strings.HasPrefix(key, "p")) {
			s.put(key, v*unit)
		}
	}
	return s
}

func aiperf(f File, n node, at string) ([]point, error) {
	p := newPoint(AIPerf, at)
	avg := func(tag string) float64 { return aiperfMetric(n, tag).first("avg", "value") }
	p.ttft, p.e2e = metricSpread(aiperfMetric(n, "ttft")), metricSpread(aiperfMetric(n, "request_latency"))
	p.tpot, p.itl, p.itlBasis = metricSpread(aiperfMetric(n, "inter_token_latency")), metricSpread(aiperfMetric(n, "inter_chunk_latency")), "chunk"
	p.ok, p.failed = avg("request_count"), avg("error_request_count")
	if finite(p.ok) && math.IsNaN(p.failed) {
		p.failed = 0
		for _, e := range n.get("error_summary").items() {
			p.failed += known(e.first("count"), 0)
		}
	}
	p.duration = avg("benchmark_duration") * milliseconds(orText(aiperfMetric(n, "benchmark_duration").get("unit").text(), "sec")) / 1000
	p.throughput, p.outputRate = avg("request_throughput"), avg("output_token_throughput")
	p.inputLen, p.outputLen = avg("input_sequence_length"), avg("output_sequence_length")
	p.outputSum = avg("total_osl")
	p.cacheHit = avg("overall_usage_prompt_cache_read_pct") / 100 // where the server reports it
	late := metricSpread(aiperfMetric(n, "credit_to_start_latency"))
	p.lagP95, p.lagP99 = value(late.at(.95)), value(late.at(.99))
	config := n.get("input_config")
	if names := find(config, "model_names", 0).items(); len(names) > 0 {
		p.engine.Model = names[0].text()
	} else if names := find(config, "models", 0); names.kind != 0 {
		p.engine.Model = orText(names.text(), find(names, "name", 0).text())
	}
	p.group = aiperfGroup(config)
	if n.get("was_cancelled").num == 1 {
		p.flags = append(p.flags, measurement.FlagIncomplete)
		p.doubt("the run was cancelled and counts for nothing.")
	}
	if r := n.get("runtime_submission_invalid_reasons"); len(r.items()) > 0 {
		p.doubt("AIPerf itself calls the run invalid (%.80s).", r.vals[0].text())
	}
	rate, limit, mode := aiperfLoad(config)
	for i, key := range n.get("run_info", "variation_values").keys { // a sweep's own value of the run
		v := n.get("run_info", "variation_values").vals[i].number()
		switch {
		case strings.HasSuffix(key, "concurrency"):
			limit = v
		case strings.HasSuffix(key, "rate") && !strings.Contains(key, "cancel"):
			rate = v
		}
	}
	if !p.setLoad(rate, limit) {
		p.loadFrom = "completions"
	}
	if p.axis == rateAxis {
		aiperfArrivals(&p, mode)
	}
	aiperfNotes(&p)
	return []point{p}, nil
}

// aiperfLoad is what the settings of a run ask for: of the phase that is measured, where they tell phases apart.
func aiperfLoad(config node) (rate, limit float64, mode string) {
	for _, phase := range find(config, "phases", 0).items() {
		if kind := orText(phase.get("kind").text(), phase.get("name").text()); kind == "warmup" || !phase.has("type") {
			continue
		}
		return phase.first("rate", "request_rate"), phase.first("concurrency"), phase.get("type").text()
	}
	return find(config, "request_rate", 0).number(), find(config, "concurrency", 0).number(), find(config, "request_rate_mode", 0).text()
}

func aiperfArrivals(p *point, mode string) {
	switch {
	case strings.Contains(mode, "poisson"):
		p.arrivals = "poisson"
	case strings.Contains(mode, "constant") || strings.Contains(mode, "user_centric"):
		p.arrivals = "constant"
	}
}

func aiperfNotes(p *point) {
	p.note("AIPerf counts TTFT from when a request was sent, not from when it was due, and gives up what it falls behind by: its own lateness is in no percentile. Continued turns of a conversation take slots of the rate, so the rate is of requests, not of calls.")
	if math.IsNaN(p.cacheHit) {
		p.note("The file has no report of cached tokens: whether prefixes were reused cannot be told.")
	}
}

// aiperfGroup is what the prompts were, as far as the settings tell.
func aiperfGroup(config node) string {
	var parts []string
	for _, k := range []struct{ at, name string }{{"input_tokens", "in "}, {"isl", "in "}, {"output_tokens", "out "}, {"osl", "out "}, {"public_dataset", ""}, {"file", ""}} {
		v := find(config, k.at, 0)
		if v.kind == '{' {
			v = v.get("mean")
		}
		if t := v.text(); t != "" {
			parts = append(parts, k.name+t)
		}
	}
	return strings.Join(parts, " ")
}

// find looks for a key anywhere in settings whose shape differs between generations; the first in order wins.
func find(n node, key string, depth int) node {
	if depth > 8 {
		return node{}
	}
	if v := n.get(key); !v.null() {
		return v
	}
	for i, v := range n.vals {
		if v.kind != '{' && v.kind != '[' || len(n.keys) > i && strings.Contains(n.keys[i], "warmup") {
			continue
		}
		if found := find(v, key, depth+1); found.kind != 0 {
			return found
		}
	}
	return node{}
}

// aiperfRecords reads profile_export.jsonl: a request a line, and no word on the load.
func aiperfRecords(f File, docs []node) (contents, error) {
	p := newPoint(AIPerfRecords, fmt.Sprintf("%s:%d", f.Name, docs[0].line))
	origin := math.Inf(1)
	start := func(d node) float64 { return d.get("metadata").first("request_start_ns", "timestamp_ns") }
	for _, d := range docs {
		if s := start(d); s < origin {
			origin = s
		}
	}
	number := func(d node, tag string) float64 {
		m := aiperfMetric(d, tag)
		v := m.first("value")
		if u := milliseconds(m.get("unit").text()); finite(u) {
			return v * u / 1000
		}
		return v
	}
	for i, d := range docs {
		meta := d.get("metadata")
		if phase := meta.first("_"); finite(phase) || meta.get("benchmark_phase").text() == "warmup" || meta.get("credit_phase").text() == "warmup" {
			continue
		}
		if !d.has("metrics") {
			p.doubt("line %d is no record of a request and is left out.", d.line)
			continue
		}
		var gaps []float64
		chunks := aiperfMetric(d, "inter_chunk_latency")
		for _, g := range chunks.get("value").numbers() {
			gaps = append(gaps, g*milliseconds(chunks.get("unit").text())/1000)
		}
		begin := start(d)
		t := request(i, (begin-origin)/1e9, number(d, "ttft"), number(d, "request_latency"), gaps)
		if issued := meta.first("credit_issued_ns"); issued > 0 && issued <= begin {
			t.Due, p.dueTold = instant((issued-origin)/1e9), true
		}
		if k := meta.first("turn_index"); k > 0 {
			t.Turn = 1 + int(min(k, 1e6))
		}
		if n := number(d, "input_sequence_length"); n > 0 {
			t.PromptTokens = int(min(n, 1e9))
		}
		if n, hit := number(d, "usage_prompt_tokens"), number(d, "usage_prompt_cache_read_tokens"); n > 0 && hit >= 0 { // as the server counts
			t.PromptTokens, t.CachedTokens = int(min(n, 1e9)), int(min(hit, 1e9))
		}
		if n := number(d, "output_sequence_length"); n > 0 {
			t.CompletionTokens = int(min(n, 1e9))
		}
		if e := d.get("error"); !e.null() || meta.get("was_cancelled").num == 1 {
			t = failed(t, "error")
		}
		p.turns = append(p.turns, t)
	}
	if len(p.turns) == 0 {
		return contents{}, refuse(f.Name, "holds no measured request of AIPerf", "")
	}
	p.timed, p.itlBasis = true, "chunk"
	countTurns(&p)
	aiperfNotes(&p)
	p.loadFrom = "requests"
	return contents{kind: AIPerfRecords, points: []point{p}}, nil
}

// countTurns fills in what single requests tell together.
func countTurns(p *point) {
	p.ok, p.failed = 0, 0
	var first, last, sum, n float64
	first = math.Inf(1)
	for _, t := range p.turns {
		first, last = min(first, t.Due.Seconds()), max(last, t.End.Seconds())
		if t.Outcome != measurement.OK {
			p.failed++
			continue
		}
		p.ok++
		if t.End > t.Due {
			sum, n = sum+(t.End-t.Due).Seconds(), n+1
		}
	}
	p.duration, p.e2e.mean = last-first, 1000*sum/n
	p.throughput = p.ok / p.duration
}

// aiperfSweep reads a sweep's aggregate: a combination a load.
func aiperfSweep(f File, n node, at string) ([]point, error) {
	var points []point
	trials := find(n.get("metadata"), "num_trials_per_value", 0).number()
	for _, c := range n.get("per_combination_metrics").items() {
		p := newPoint(AIPerfSweep, fmt.Sprintf("%s:%d", f.Name, c.line))
		var rest []string
		rate, limit := math.NaN(), math.NaN()
		for i, key := range c.get("parameters").keys {
			v := c.get("parameters").vals[i]
			switch {
			case strings.HasSuffix(key, "concurrency"):
				limit = v.number()
			case strings.HasSuffix(key, "rate") && !strings.Contains(key, "cancel"):
				rate = v.number()
			default:
				rest = append(rest, key[strings.LastIndex(key, ".")+1:]+" "+v.text())
			}
		}
		if !p.setLoad(rate, limit) {
			return nil, refuse(p.at, fmt.Sprintf("is a combination of an AIPerf sweep over %s, which is no load", orText(strings.Join(rest, ", "), "nothing")), "give a sweep over concurrency or request_rate")
		}
		slices.Sort(rest)
		p.group = strings.Join(rest, " ")
		for i, key := range c.get("metrics").keys {
			m := c.get("metrics").vals[i]
			tag, stat, v := key, "avg", m.first("mean", "avg", "value")
			if k := strings.LastIndex(key, "_"); k > 0 && aiperfStat.MatchString(key[k+1:]) {
				tag, stat = key[:k], key[k+1:]
			}
			if unit := milliseconds(m.get("unit").text()); finite(unit) {
				v *= unit
			}
			switch tag {
			case "time_to_first_token", "ttft":
				p.ttft.put(stat, v)
			case "request_latency":
				p.e2e.put(stat, v)
			case "inter_token_latency":
				p.tpot.put(stat, v)
			case "inter_chunk_latency":
				p.itl.put(stat, v)
				p.itlBasis = "chunk"
			case "request_throughput":
				p.throughput = v
			case "output_token_throughput":
				p.outputRate = v
			case "request_count":
				p.ok = v
			case "error_request_count":
				p.failed = v
			case "benchmark_duration":
				p.duration = v / 1000
			}
		}
		if trials > 1 {
			p.note(fmt.Sprintf("Each percentile is a mean over %s trials of AIPerf, which is no percentile of all requests: give the profile_export.jsonl or the .json of each trial for one.", short(trials)))
		}
		aiperfNotes(&p)
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, refuse(at, "is an AIPerf sweep without a combination", "give the aggregate of a sweep that came to its end")
	}
	return points, nil
}

var aiperfStat = regexp.MustCompile(`^(avg|mean|min|max|std|p[0-9]+)$`)

// aiperfCSV reads the two blocks of profile_export_aiperf.csv, which name no load.
func aiperfCSV(f File) (contents, error) {
	p := newPoint(AIPerfCSV, f.Name+":1")
	r := csv.NewReader(bytes.NewReader(f.Data))
	r.FieldsPerRecord, r.LazyQuotes = -1, true
	var head []string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return contents{}, refuse(f.Name, fmt.Sprintf("is no CSV that can be read (%v)", err), "")
		}
		if row[0] == "Metric" {
			head = row
			continue
		}
		name, unit, _ := strings.Cut(strings.TrimSuffix(row[0], ")"), " (")
		s := noSpread()
		for i := 1; i < len(row) && i < len(head); i++ {
			if v, err := strconv.ParseFloat(row[i], 64); err == nil {
				if head[i] == "Value" {
					s.mean = v
					continue
				}
				if u := milliseconds(unit); finite(u) {
					v *= u
				}
				s.put(head[i], v)
			}
		}
		switch name {
		case "Time to First Token":
			p.ttft = s
		case "Request Latency":
			p.e2e = s
		case "Inter Token Latency":
			p.tpot = s
		case "Inter Chunk Latency":
			p.itl, p.itlBasis = s, "chunk"
		case "Request Throughput":
			p.throughput = s.mean
		case "Output Token Throughput":
			p.outputRate = s.mean
		case "Request Count":
			p.ok = s.mean
		case "Error Request Count":
			p.failed = s.mean
		case "Benchmark Duration":
			p.duration = s.mean
		case "Input Sequence Length":
			p.inputLen = s.mean
		case "Output Sequence Length":
			p.outputLen = s.mean
		}
	}
	if !p.ttft.told() && !p.e2e.told() {
		return contents{}, refuse(f.Name, "is a table of metrics without a latency", "give profile_export_aiperf.json")
	}
	if finite(p.ok) {
		p.failed = known(p.failed, 0)
	}
	p.loadFrom = "completions"
	aiperfNotes(&p)
	return contents{kind: AIPerfCSV, points: []point{p}}, nil
}
