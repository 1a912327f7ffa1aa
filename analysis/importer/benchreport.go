package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"kneefinder/measurement"
)

func isBenchReport(n node) bool {
	return n.has("version", "scenario") && (n.get("results").has("request_performance") || n.get("metrics").has("latency"))
}

// looksYAML reports whether a text begins as a mapping of YAML, or a list of them.
func looksYAML(head []byte) bool {
	for line := range bytes.Lines(head) {
		line = bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' || bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("%YAML")) {
			continue
		}
		line = bytes.TrimPrefix(line, []byte("- "))
		key, _, ok := bytes.Cut(line, []byte(":"))
		return ok && len(key) > 0 && len(key) < 40 && !bytes.ContainsAny(key, " ,;\t\"[{") && (len(line) == len(key)+1 || line[len(key)+1] == ' ')
	}
	return false
}

// fromYAML reads what stands in YAML, one document or several: llm-d Benchmark Reports, and GuideLLM's own.
func fromYAML(f File) (contents, error) {
	c := contents{kind: BenchReport}
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	for {
		var y yaml.Node
		if err := dec.Decode(&y); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return contents{}, refuse(f.Name, fmt.Sprintf("begins as YAML and cannot be read as such (%v)", strings.TrimPrefix(err.Error(), "yaml: ")), "")
		}
		budget := maxYAML
		doc := yamlNode(&y, 0, &budget)
		if budget < 0 {
			return contents{}, refuse(f.Name, "is YAML that names itself over and over", "")
		}
		docs := []node{doc}
		if doc.kind == '[' {
			docs = doc.vals
		}
		for _, d := range docs {
			at := fmt.Sprintf("%s:%d", f.Name, max(d.line, 1))
			read := benchReport
			switch {
			case isGuideLLM(d):
				c.kind, read = GuideLLM, guideLLM
			case !isBenchReport(d):
				return contents{}, refuse(at, "is YAML, but neither an llm-d Benchmark Report (version, scenario, results) nor a report of GuideLLM", "")
			}
			points, err := read(f, d, at)
			if err != nil {
				return contents{}, err
			}
			c.points = append(c.points, points...)
		}
	}
	if len(c.points) == 0 {
		return contents{}, refuse(f.Name, "holds no report", "")
	}
	return c, nil
}

const maxYAML = 1 << 20 // values of a document, with those that aliases repeat

// yamlNode makes the same of YAML as of JSON.
func yamlNode(y *yaml.Node, depth int, budget *int) node {
	if *budget--; *budget < 0 || depth > maxDepth || y == nil {
		return node{}
	}
	n := node{line: y.Line}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) > 0 {
			return yamlNode(y.Content[0], depth, budget)
		}
	case yaml.AliasNode:
		return yamlNode(y.Alias, depth+1, budget)
	case yaml.MappingNode:
		n.kind = '{'
		for i := 0; i+1 < len(y.Content); i += 2 {
			n.put(y.Content[i].Value, yamlNode(y.Content[i+1], depth+1, budget))
		}
	case yaml.SequenceNode:
		n.kind = '['
		for _, c := range y.Content {
			n.vals = append(n.vals, yamlNode(c, depth+1, budget))
		}
	case yaml.ScalarNode:
		switch y.Tag {
		case "!!int", "!!float":
			n.kind = '0'
			if y.Decode(&n.num) != nil {
				n.num = math.NaN()
			}
		case "!!null":
			n.kind = 'n'
		case "!!bool":
			n.kind = 'b'
			if y.Value == "true" {
				n.num = 1
			}
		default:
			n.kind, n.str = 's', y.Value
		}
	}
	return n
}

// benchReport reads a report of v0.1 or v0.2, JSON or YAML: one load, each figure with its unit.
func benchReport(_ File, n node, at string) ([]point, error) {
	p := newPoint(BenchReport, at)
	perf := n.get("results", "request_performance", "aggregate")
	if perf.kind == 0 {
		perf = n.get("results", "request_performance")
	}
	requests := perf.get("requests")
	if perf.kind == 0 { // v0.1
		perf = n.get("metrics")
		requests = perf.get("requests")
	}
	dist := func(names ...string) spread {
		for _, name := range names {
			if m := perf.get("latency", name); m.kind == '{' {
				return reportSpread(m)
			}
		}
		return noSpread()
	}
	p.ttft, p.e2e = dist("time_to_first_token"), dist("request_latency")
	p.tpot, p.itl = dist("time_per_output_token"), dist("inter_token_latency")
	rate := func(names ...string) float64 {
		for _, name := range names {
			m := perf.get("throughput", name)
			if v := known(m.first("mean"), m.number()); finite(v) {
				return v
			}
		}
		return math.NaN()
	}
	p.throughput, p.outputRate = rate("request_rate", "requests_per_sec"), rate("output_token_rate", "output_tokens_per_sec")
	total := requests.first("total")
	p.failed = requests.first("failures")
	p.ok = total - known(p.failed, 0)
	if v := requests.first("incomplete"); v > 0 {
		p.doubt("%s requests were cut at the end and are in no percentile.", short(v))
	}
	p.inputLen, p.outputLen = requests.get("input_length").first("mean"), requests.get("output_length").first("mean")
	p.duration = perf.get("time").first("duration")
	if math.IsNaN(p.duration) {
		p.duration = isoSeconds(n.get("run", "time", "duration").text())
	}

	load := n.get("scenario", "load")
	std := load.get("standardized")
	tool := orText(std.get("tool").text(), load.get("name").text())
	p.engine.Model = orText(n.get("scenario", "model", "name").text(), reportModel(n))
	p.group = strings.TrimSpace(tool + " " + lengths(std))
	p.asked(std.get("input_seq_len").first("value"), std.get("output_seq_len").first("value"))
	r, c := std.first("rate_qps"), std.first("concurrency")
	if !finite(r) && !finite(c) { // v0.1 keeps the tool's own settings
		args := load.get("args")
		r = known(find(args, "rate_qps", 0).number(), known(find(args, "request_rate", 0).number(), find(args, "qps", 0).number()))
		c = known(find(args, "max_concurrency", 0).number(), find(args, "concurrency", 0).number())
	}
	ours := tool == "kneefinder"
	if ours { // its loads are calls, of several requests each
		if err := ownReport(&p, load.get("native", "config"), n.get("results", "profiling", "kneefinder")); err != nil {
			return nil, refuse(at, fmt.Sprintf("is a report of kneefinder whose own figures cannot be read (%v)", err), "")
		}
		for _, c := range n.get("scenario", "stack").items() {
			c = c.get("standardized")
			p.engine.Kind, p.engine.GPU, p.engine.Fidelity = c.get("tool").text(), c.get("accelerator", "model").text(), c.get("fidelity").text()
			if v := c.get("tool_version").text(); v != "unknown" {
				p.engine.Version = v
			}
		}
		r, c = known(load.get("native", "config", "rate_calls_per_s").number(), r), known(load.get("native", "config", "concurrent_calls").number(), c)
	}
	if !p.setLoad(r, c) {
		if !finite(p.throughput) {
			return nil, refuse(at, "is a Benchmark Report that names no load (rate_qps, concurrency)", "give the report of a run at a rate or a concurrency")
		}
		p.loadFrom = "completions"
	}
	if ours {
		p.note("A Benchmark Report of kneefinder holds its steps, and neither what bound nor whether arrivals were as asked: read the turn log for these.")
		return []point{p}, nil
	}
	p.note(fmt.Sprintf("A Benchmark Report does not say from when TTFT counts: that is the tool's own way (%s). Nor does it say how late requests were sent.", orText(tool, "unknown")))
	if strings.Contains(tool, "aiperf") {
		p.note("A report made of AIPerf's files counts distinct errors as failures: there may be many more.")
	}
	return []point{p}, nil
}

// ownReport takes what a report that kneeanalyze wrote holds beside the form: the run's settings, and the step as results have it.
func ownReport(p *point, settings, figures node) error {
	if figures.kind != '{' || settings.kind != '{' {
		return errors.New("they are missing")
	}
	var c measurement.Config
	s := measurement.StepResult{Flags: []string{}, Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{}}
	if err := settings.into(&c); err != nil {
		return err
	}
	if err := figures.into(&s); err != nil {
		return err
	}
	p.config, p.whole, p.arrivals, p.ofCalls = c, &s, c.Arrivals, c.LoadOf == ""
	p.group = settings.get("label").text()
	p.ofOwnStep(s)
	if p.itl.told() {
		p.itlBasis = "token" // others are left out
	}
	return nil
}

// reportSpread reads {units, mean, p50, p0p1, p99p9, ...}; "ms/token" is ms.
func reportSpread(m node) spread {
	s, unit := noSpread(), milliseconds(orText(m.get("units").text(), m.get("unit").text()))
	for i, key := range m.keys {
		if v := m.vals[i].number(); finite(v) && (key == "mean" || key == "min" || key == "median" || strings.HasPrefix(key, "p")) {
			s.put("p"+strings.ReplaceAll(strings.TrimPrefix(key, "p"), "p", "."), v*unit)
			if key == "mean" || key == "min" || key == "median" {
				s.put(key, v*unit)
			}
		}
	}
	return s
}

func reportModel(n node) string {
	for _, s := range n.get("scenario", "stack").items() {
		if m := find(s, "model", 0); m.kind != 0 {
			return orText(m.text(), m.get("name").text())
		}
	}
	return ""
}

// lengths are those of prompts and answers that a scenario asks for.
func lengths(std node) string {
	var parts []string
	for _, k := range []struct{ key, name string }{{"input_seq_len", "in"}, {"output_seq_len", "out"}} {
		if v := std.get(k.key).first("value"); v > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", k.name, short(v)))
		}
	}
	return strings.Join(parts, " ")
}

// isoSeconds reads durations such as PT5.02S or PT1M3S; NaN of others.
func isoSeconds(text string) float64 {
	rest, ok := strings.CutPrefix(text, "PT")
	if !ok || rest == "" {
		return math.NaN()
	}
	var total float64
	for rest != "" {
		var v float64
		var unit rune
		var n int
		if _, err := fmt.Sscanf(rest, "%g%c", &v, &unit); err != nil {
			return math.NaN()
		}
		n = strings.IndexRune(rest, unit)
		worth := map[rune]float64{'H': 3600, 'M': 60, 'S': 1}[unit]
		if worth == 0 || n < 0 {
			return math.NaN()
		}
		total += v * worth
		rest = rest[n+1:]
	}
	return total
}
