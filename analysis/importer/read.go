// Package importer reads the result files of other load generators as curves of our own kind.
//
// A file is known by its keys, never by its name. What a file does not tell stays absent: no percentile is made from a mean, no
// load from a throughput without saying so. What cannot be a curve is refused with one sentence that says what it is and what
// to give instead.
package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// Kind is a format of result files, named as its users name it.
type Kind string

// The formats that are read.
const (
	SGLang          Kind = "SGLang bench_serving"
	VLLM            Kind = "vLLM bench serve"
	InferenceX      Kind = "InferenceX"
	GuideLLM        Kind = "GuideLLM"
	AIPerf          Kind = "AIPerf summary"
	AIPerfRecords   Kind = "AIPerf records"
	AIPerfCSV       Kind = "AIPerf CSV"
	AIPerfSweep     Kind = "AIPerf sweep"
	InferencePerf   Kind = "inference-perf"
	GenAIBench      Kind = "genai-bench"
	BenchReport     Kind = "llm-d Benchmark Report"
	VegetaReport    Kind = "Vegeta report"
	VegetaResults   Kind = "Vegeta results"
	Fortio          Kind = "Fortio"
	CSV             Kind = "CSV"
	OwnResults      Kind = "kneefinder results"
	OwnLog          Kind = "kneefinder turn log"
	OwnCSV          Kind = "kneefinder CSV"
	PrometheusData  Kind = "Prometheus"
	HDRHistogramLog Kind = "HdrHistogram log"
)

// File is a file that was read whole.
type File struct {
	Name string // as the user named it; it stands in what is said of the file
	Data []byte
}

// Found is what a file turned out to be.
type Found struct {
	Name  string
	Kind  Kind
	Steps int // loads in it
}

// Import is what files hold together.
type Import struct {
	Files  []Found
	Curves []measurement.Results // in the order in which the files have them
}

// RefusedError says why a file gives no curve.
type RefusedError struct {
	At      string // file, or file:line
	Is      string // what it is
	Instead string // what to give instead; "" when nothing would do
}

// Error is one sentence.
func (e *RefusedError) Error() string {
	s := e.At + " " + e.Is
	if e.Instead != "" {
		s += ": " + e.Instead
	}
	return s
}

func refuse(at, is, instead string) error { return &RefusedError{At: at, Is: is, Instead: instead} }

// Read makes curves of files. Runs of one tool at several loads are one curve when the files say that nothing else differs (model,
// engine, dataset, rate or concurrency), in as many files as it may be. Steps are judged by slo. Every file that is refused
// is in the error, a sentence each, and then there are no curves. It may be called by many goroutines at once.
func Read(files []File, slo []measurement.Objective) (Import, error) {
	var in Import
	var errs []error
	var points []point
	for _, f := range files {
		c, err := parse(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.own = append(c.own, c.judged(slo)...)
		in.Files = append(in.Files, Found{Name: f.Name, Kind: c.kind, Steps: len(c.points) + steps(c.own)})
		in.Curves = append(in.Curves, c.own...)
		points = append(points, c.points...)
	}
	if len(errs) > 0 {
		return Import{Files: in.Files}, errors.Join(errs...)
	}
	curves, err := curvesOf(joinRecords(points), slo)
	if err != nil {
		return Import{Files: in.Files}, err
	}
	in.Curves = append(in.Curves, curves...)
	return in, nil
}

func steps(rs []measurement.Results) (n int) {
	for _, r := range rs {
		n += len(r.Steps)
	}
	return n
}

// contents are what one file holds: points to be put together with those of others, or whole curves of our own.
type contents struct {
	kind   Kind
	points []point
	own    []measurement.Results
	tables []ownTable       // curves of our own, which may have to be judged
	log    *measurement.Log // that the one curve of own was made of
}

// judged are the tables as curves.
func (c contents) judged(slo []measurement.Objective) (out []measurement.Results) {
	for _, t := range c.tables {
		out = append(out, t.results(slo))
	}
	return out
}

// parse reads one file.
func parse(f File) (contents, error) {
	data, err := plainText(f)
	if err != nil {
		return contents{}, err
	}
	f.Data = data
	switch head := bytes.TrimSpace(data[:min(len(data), 4096)]); {
	case head[0] == '{' || head[0] == '[' && !looksYAML(head):
		docs, warnings, err := documents(f.Name, data)
		if err != nil {
			return contents{}, refuse(err.Error(), "(the file begins as JSON and is none, or was cut short)", "")
		}
		if len(docs) == 0 {
			return contents{}, refuse(strings.Join(warnings, "; "), "and nothing else is in the file", "")
		}
		c, err := fromJSON(f, docs)
		return withWarnings(c, warnings), err
	case looksYAML(head):
		return fromYAML(f)
	case isVegetaCSV(head):
		return vegetaCSV(f)
	case bytes.HasPrefix(head, []byte("Metric,")):
		return aiperfCSV(f)
	case isOwnCSV(head):
		return ownCSV(f)
	case looksTable(head):
		return table(f)
	default:
		return contents{}, refuse(f.Name, fmt.Sprintf("is text that begins %.60q, of no kind known here", firstLine(head)), anyKnown)
	}
}

const anyKnown = "give one of those that kneeanalyze import --help names, or a CSV with columns such as rate_calls_per_s,ttft_p95_ms"

// plainText is a file's text without byte order mark; what is no text is refused by name.
func plainText(f File) ([]byte, error) {
	data := bytes.TrimPrefix(f.Data, []byte("\xef\xbb\xbf"))
	for _, b := range []struct{ magic, is, instead string }{
		{"\xff\xfe", "is UTF-16 text", "save it as UTF-8"},
		{"\xfe\xff", "is UTF-16 text", "save it as UTF-8"},
		{"\x1f\x8b", "is compressed by gzip", "unpack it first"},
		{"\x28\xb5\x2f\xfd", "is compressed by zstd", "unpack it first"},
		{"PAR1", "is a Parquet table", "write it as CSV with a load and a TTFT percentile a row"},
		{"PK\x03\x04", "is a zip archive or a spreadsheet", "unpack it, or save the table as CSV"},
		{"\x89PNG", "is a picture", "give the figures it was drawn from"},
		{"%PDF", "is a PDF", "give the figures it was made from"},
		{"#[Histogram log", "is an HdrHistogram log, whose histograms stand at no load", "give the results (.json) or the turn log (.turns.jsonl) of the run, or import it with the load of each interval (kneeanalyze import FILE --rates 2,3,4)"},
		{"#[StartTime", "is an HdrHistogram log, whose histograms stand at no load", "give the results (.json) or the turn log (.turns.jsonl) of the run, or import it with the load of each interval (kneeanalyze import FILE --rates 2,3,4)"},
		{"# HELP", "is one scrape of a server's metrics, which holds one instant and no curve", "read the Prometheus server that scrapes it: kneeanalyze knee --prometheus URL --from TIME --to TIME"},
		{"# TYPE", "is one scrape of a server's metrics, which holds one instant and no curve", "read the Prometheus server that scrapes it: kneeanalyze knee --prometheus URL --from TIME --to TIME"},
		{"<!DOCTYPE", "is a web page", "give the data that it was made from"},
		{"<html", "is a web page", "give the data that it was made from"},
	} {
		if bytes.HasPrefix(bytes.TrimLeft(data[:min(len(data), 256)], " \t\r\n"), []byte(b.magic)) || bytes.HasPrefix(data, []byte(b.magic)) {
			return nil, refuse(f.Name, b.is, b.instead)
		}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, refuse(f.Name, "is empty", "")
	}
	if bytes.IndexByte(data[:min(len(data), 4096)], 0) >= 0 {
		return nil, refuse(f.Name, "is no text", "of Vegeta's binary results make JSON: vegeta encode --to json")
	}
	return data, nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(bytes.TrimSpace(line))
}

func withWarnings(c contents, warnings []string) contents {
	if len(warnings) > 0 && len(c.points) > 0 {
		c.points[0].own = append(warnings, c.points[0].own...)
	}
	for i := range c.own {
		c.own[i].Warnings = append(c.own[i].Warnings, warnings...)
	}
	return c
}

// format is one that stands in JSON: keys that it has and no other, and how a document of it is read.
type format struct {
	kind Kind
	is   func(node) bool
	read func(f File, doc node, at string) ([]point, error)
}

// formats are tried in order: what has more telling keys comes first.
func formats() []format {
	return []format{
		{BenchReport, isBenchReport, benchReport},
		{GuideLLM, isGuideLLM, guideLLM},
		{AIPerfSweep, func(n node) bool { return n.has("per_combination_metrics") }, aiperfSweep},
		{AIPerf, isAIPerf, aiperf},
		{InferencePerf, func(n node) bool { return n.has("load_summary", "successes") }, inferencePerf},
		{GenAIBench, func(n node) bool { return n.has("aggregated_metrics") }, genAIBench},
		{Fortio, func(n node) bool { return n.has("DurationHistogram", "RequestedQPS") }, fortio},
		{VegetaReport, func(n node) bool { return n.get("latencies").kind == '{' && n.has("requests", "rate", "success") }, vegetaReport},
		{SGLang, isSGLang, serving},
		{VLLM, isVLLM, serving},
		{InferenceX, isInferenceX, serving},
	}
}

// fromJSON reads documents of one kind.
func fromJSON(f File, docs []node) (contents, error) {
	if len(docs) == 1 && docs[0].kind == '[' { // a list of runs
		if err := listRefusal(f, docs[0]); err != nil {
			return contents{}, err
		}
		docs = docs[0].vals
	}
	first := docs[0]
	at := func(n node) string { return fmt.Sprintf("%s:%d", f.Name, n.line) }
	switch schema := first.get("schema").text(); {
	case schema == measurement.ResultsSchema:
		return ownResults(f, docs)
	case schema == measurement.LogSchema || first.get("type").text() == "header" && strings.HasPrefix(schema, "kneefinder/"):
		return ownLog(f)
	case strings.HasPrefix(schema, "kneefinder/"):
		return contents{}, refuse(at(first), fmt.Sprintf("is of schema %q, which this version does not read", schema), "")
	case first.has("metadata", "metrics") && first.get("metrics").kind == '{' && first.get("metadata").has("x_request_id"):
		return aiperfRecords(f, docs)
	case isVegetaResult(first):
		return vegetaResults(f, docs)
	}
	var c contents
	for _, doc := range docs {
		i := slices.IndexFunc(formats(), func(x format) bool { return doc.kind == '{' && x.is(doc) })
		if i < 0 {
			return contents{}, unknownJSON(at(doc), doc)
		}
		x := formats()[i]
		if c.kind == "" {
			c.kind = x.kind
		}
		points, err := x.read(f, doc, at(doc))
		if err != nil {
			return contents{}, err
		}
		c.points = append(c.points, points...)
	}
	if len(c.points) == 0 {
		return contents{}, refuse(f.Name, "holds no run", "")
	}
	return c, nil
}

// listRefusal refuses lists that are known not to be of runs.
func listRefusal(f File, list node) error {
	if len(list.vals) == 0 {
		return refuse(f.Name, "is an empty list", "")
	}
	n := list.vals[0]
	switch {
	case n.has("benchmark", "metric") && n.has("model"):
		return refuse(f.Name, "is what vLLM bench writes for PyTorch's dashboard", "give the .json of the run beside it")
	case n.has("start_time", "end_time", "request"):
		return refuse(f.Name, "is inference-perf's list of requests, which tells neither when each was due nor at which load", "give the stage_N_lifecycle_metrics.json of the same run")
	}
	return nil
}

// unknownJSON says what an object is that is no run.
func unknownJSON(at string, n node) error {
	for _, k := range []struct {
		keys        []string
		is, instead string
	}{
		{[]string{"hash_ids", "input_length"}, "is a trace of requests to be sent: nothing was measured", "give the results of a run that replayed it"},
		{[]string{"timestamp", "input_length", "output_length"}, "is a trace of requests to be sent: nothing was measured", "give the results of a run that replayed it"},
		{[]string{"knee_concurrency"}, "is AIPerf's own knee, with one figure a load", "give profile_export_aiperf_sweep.json of the same sweep"},
		{[]string{"boundary_summary"}, "is AIPerf's history of a search, with one figure a load", "give profile_export_aiperf_sweep.json, or profile_export_aiperf.json of each iteration"},
		{[]string{"convergence_reason"}, "is AIPerf's history of a search, with one figure a load", "give profile_export_aiperf_sweep.json, or profile_export_aiperf.json of each iteration"},
		{[]string{"metadata", "metrics", "aiperf_version"}, "is AIPerf's aggregate of repeats at one load", "give profile_export_aiperf_sweep.json, or profile_export_aiperf.json of each load"},
		{[]string{"cmd", "benchmark_version"}, "is the metadata of a genai-bench experiment", "give the .json of each scenario and concurrency beside it"},
		{[]string{"traceEvents"}, "is a trace of a profiler", ""},
		{[]string{"root_group"}, "is a summary of k6, which times whole answers over a whole run", "give a CSV with a row a load: rate_calls_per_s,ttft_p95_ms"},
	} {
		if n.has(k.keys...) {
			return refuse(at, k.is, k.instead)
		}
	}
	if n.kind != '{' {
		return refuse(at, "is JSON, but no object", anyKnown)
	}
	if len(n.keys) == 0 {
		return refuse(at, "is an empty object in JSON", anyKnown)
	}
	names := slices.Clone(n.keys)
	slices.Sort(names)
	if len(names) > 6 {
		names = append(names[:6], "...")
	}
	for i := range names {
		names[i] = fmt.Sprintf("%.40s", names[i])
	}
	return refuse(at, fmt.Sprintf("is JSON of no kind known here (its keys: %s)", strings.Join(names, ", ")), anyKnown)
}

// folder is where a file lies, in a few characters: "" for the current folder.
func folder(name string) string {
	dir := path.Base(path.Dir(filepath.ToSlash(name)))
	if dir == "." || dir == "/" {
		return ""
	}
	return dir
}
