package queries

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kneefinder/telemetry/names"
)

// Facts are what a Prometheus knows of a run, as far as they decide which queries can have no answer though all is well.
type Facts struct {
	Label    string
	Labels   []string  // of all runs of the span, in order
	Known    bool      // Label is one of them
	State    string    // in which the run was last seen; empty where it told none
	LastSeen time.Time // when it was
	Ended    bool      // a step has figures
	Found    []string  // the knees that are found
	Tested   bool      // the arrivals have been tested
	Engines  []string  // that are scraped: "sglang", "vllm"
	GPUs     []string  // exporters that are: "DCGM", "nvidia_gpu_exporter", "AMD"
	Scrapes  bool      // kneeload itself reads the engine's metrics
	Traces   bool      // it counts spans or metrics that it could not send
	Hits     bool      // the server tells cached tokens
	Filled   bool      // the run was not scraped, but back-filled
	Escaped  bool      // SGLang is scraped, under names that no board asks for
}

// engineOf and gpuOf tell a server by what a family's name begins with.
var (
	engineOf = map[string]string{"sglang:": "sglang", "vllm:": "vllm"}
	gpuOf    = map[string]string{"DCGM_": "DCGM", "nvidia_smi_": "nvidia_gpu_exporter", "gpu_": "AMD"}
)

// Facts asks what is known in the span of the run that the variables pick.
func (s Server) Facts(ctx context.Context, v Variables, over Span) (Facts, error) {
	f := Facts{Label: v["label"]}
	runs, err := s.series(ctx, names.RunInfo, over)
	if err != nil {
		return f, err
	}
	for _, run := range runs {
		f.Labels = append(f.Labels, run[names.Label])
	}
	slices.Sort(f.Labels)
	f.Labels = slices.Compact(f.Labels)
	if f.Known = slices.Contains(f.Labels, f.Label); !f.Known {
		return f, nil
	}
	picked := func(name string, matchers ...string) string {
		return v.With(name + "{" + strings.Join(append([]string{`job=~"$job"`, `instance=~"$instance"`, `label="$label"`}, matchers...), ",") + "}")
	}
	span := fmt.Sprintf("[%ds]", max(int(over.To.Sub(over.From).Seconds()), 1))
	seen, err := s.Vector(ctx, "max(max_over_time(timestamp("+picked("", `__name__=~"`+names.RunInfo+"|"+names.RunState+`"`)+")"+strings.TrimSuffix(span, "]")+":1s]))", over.To)
	if err != nil {
		return f, err
	}
	f.LastSeen = over.To
	if len(seen) == 1 {
		f.LastSeen = time.UnixMilli(int64(seen[0].Value * 1000))
	}
	// What is asked of a run is asked at its last sight: what an older run of the label had is not there any more.
	first := func(expr, label string) (values []string, err error) {
		found, err := s.Vector(ctx, expr, f.LastSeen)
		for _, sample := range found {
			values = append(values, sample.Labels[label])
		}
		return values, err
	}
	var states []string
	for _, ask := range []struct {
		into  *[]string
		expr  string
		label string
	}{
		{&states, picked(names.RunState) + " == 1", names.State},
		{&f.Found, "max by (knee) (" + picked(names.KneeStatus, `status="found"`) + ") == 1", names.Knee},
	} {
		if *ask.into, err = first(ask.expr, ask.label); err != nil {
			return f, err
		}
	}
	for _, run := range runs {
		f.Filled = f.Filled || run[names.Label] == f.Label && run["instance"] == backfill
	}
	if len(states) > 0 {
		f.State = states[0]
	}
	for _, ask := range []struct {
		into *bool
		expr string
	}{
		{&f.Ended, picked("", `__name__=~"`+names.StepVerdict+"|"+names.StepTurns+"|"+names.StepArrived+`"`)},
		{&f.Tested, picked("", `__name__=~"`+names.ArrivalsCalls+"|"+names.ArrivalsOK+"|"+names.ArrivalsTestP+`"`)},
		{&f.Scrapes, v.With(names.ScrapesTotal + `{job=~"$job",instance=~"$instance",source="engine"}`)},
		{&f.Traces, v.With(names.DroppedTotal + `{job=~"$job",instance=~"$instance"}`)},
		{&f.Hits, picked(names.KnownPromptTokens) + " > 0"},
	} {
		found, err := s.Vector(ctx, ask.expr, f.LastSeen)
		if err != nil {
			return f, err
		}
		*ask.into = len(found) > 0
	}
	for _, of := range []struct {
		servers  map[string]string
		into     *[]string
		selector string
	}{{engineOf, &f.Engines, `{__name__=~"%s.+",job=~"$engine_job",instance=~"$engine_instance"}`}, {gpuOf, &f.GPUs, `{__name__=~"%s.+",job=~"$gpu_job",instance=~"$gpu_instance"}`}} {
		for prefix, server := range of.servers {
			found, err := s.exists(ctx, v.With(fmt.Sprintf(of.selector, prefix)), over)
			if err != nil {
				return f, err
			}
			if found {
				*of.into = append(*of.into, server)
			}
		}
		slices.Sort(*of.into)
	}
	f.Escaped, err = s.exists(ctx, v.With(`sglang_num_running_reqs{job=~"$engine_job",instance=~"$engine_instance"}`), over)
	return f, err
}

// backfill is the instance that kneeanalyze export writes.
const backfill = "backfill"

// unfilled are families that no back-filled run has, each with its reason.
var unfilled = map[string]string{
	names.BuildInfo:      "a turn log does not hold what the process told of itself",
	names.ScrapesTotal:   "a turn log does not hold what the process told of itself",
	names.DroppedTotal:   "a turn log does not hold what the process told of itself",
	names.Calls:          "a turn log does not hold samples of the calls in progress",
	names.StepServerTTFT: "the engine's own figures are not back-filled",
	names.StepTTFTMinus:  "the engine's own figures are not back-filled",
	names.WindowITL:      "a turn log holds the gaps between tokens a step, not as they came",
	names.RunState:       "a back-filled run is never interrupted",
}

// String says it in a few lines.
func (f Facts) String() string {
	if !f.Known {
		if len(f.Labels) == 0 {
			return "there is no run in the time asked about: no series " + names.RunInfo
		}
		return fmt.Sprintf("there is no run %q in the time asked about; there are: %s", f.Label, strings.Join(f.Labels, ", "))
	}
	list := func(what string, of []string) string {
		if len(of) == 0 {
			return "no " + what + " is scraped"
		}
		return what + " scraped: " + strings.Join(of, ", ")
	}
	state := f.State
	if state == "" {
		state = "in no state that it tells"
	}
	said := fmt.Sprintf("run %s: %s, last seen %s; %s; %s", f.Label, state, f.LastSeen.UTC().Format(time.RFC3339), list("engine", f.Engines), list("GPU exporter", f.GPUs))
	if f.Escaped {
		said += "; SGLang's names came with underscores: give its job the metric_relabel_configs of deploy/scrape-snippet.yml"
	}
	return said
}

// Excuse says why an answer that is not OK is none, where that is as it should be; else nothing.
func (f Facts) Excuse(a Answer) string {
	switch {
	case a.OK() || a.Err != nil:
		return ""
	case len(a.Missed) == 0 && a.Series > 0: // a share of nothing, such as the hit rate without a turn that told
		return "nothing to count in the time asked about"
	case len(a.Missed) == 0:
		return f.unmatched(a)
	}
	reason := ""
	for _, group := range a.Missed {
		for _, selector := range strings.Split(group, " or ") {
			why := f.absent(selector)
			if why == "" {
				return ""
			}
			if reason == "" {
				reason = why
			}
		}
	}
	return reason
}

// unmatched explains a query whose series are all there, and which yet finds nothing.
func (f Facts) unmatched(a Answer) string {
	if n, err := NeedOf(Picked("x").With(a.Expr)); err == nil {
		for _, s := range n.Selectors() {
			if strings.HasPrefix(s.Family, "kneeload_knee_") {
				return f.absent(s.Selector)
			}
		}
	}
	return ""
}

// once are families that a healthy run need not have, each with its reason.
var once = map[string]string{
	names.StepTTFTLow:  "the interval of a P95 of few turns is unbounded",
	names.StepTTFTHigh: "the interval of a P95 of few turns is unbounded",
	names.KneeLow:      "the interval of the knee is unbounded",
	names.KneeHigh:     "the interval of the knee is unbounded",
	names.StepFlag:     "nothing is to be doubted in any step",

	"sglang:num_retracted_requests_total": "SGLang's counter appears with the first retraction",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":     "DCGM knows tensor activity on data-centre GPUs only",
	"DCGM_FI_PROF_DRAM_ACTIVE":            "DCGM knows DRAM activity on data-centre GPUs only",
	"DCGM_FI_DEV_FB_RESERVED":             "older DCGM exporters do not tell it",
}

// ofSteps are the figures that a step has when it has ended.
var ofSteps = []string{names.StepWindowStart, names.StepWindowEnd, names.StepEnd, names.StepArrived, names.StepTTFT, names.StepTTFTLow, names.StepTTFTHigh, names.StepTTFTSent,
	names.StepITL, names.StepTPOT, names.StepHit, names.StepErrors, names.StepTurns, names.StepLive, names.StepThroughput, names.StepOutput,
	names.StepSaturation, names.StepLag, names.StepVerdict, names.StepFlag, names.StepServerTTFT, names.StepTTFTMinus}

// absent says why no series matches a selector, where that is as it should be.
func (f Facts) absent(selector string) string {
	family := Family(selector[:strings.IndexByte(selector+"{", '{')])
	if family == "" { // of a variable that lists engines or GPU exporters by name
		switch {
		case strings.Contains(selector, "sglang:") && len(f.Engines) == 0:
			return "no engine is scraped"
		case strings.Contains(selector, "DCGM_") && len(f.GPUs) == 0:
			return "no GPU exporter is scraped"
		}
		return ""
	}
	for _, of := range []struct {
		servers map[string]string
		there   []string
		what    string
	}{{engineOf, f.Engines, "engine"}, {gpuOf, f.GPUs, "GPU exporter"}} {
		for prefix, server := range of.servers {
			if !strings.HasPrefix(family, prefix) || slices.Contains(of.there, server) {
				continue
			}
			if server == "sglang" && f.Escaped {
				return ""
			}
			if len(of.there) == 0 {
				return "no " + of.what + " is scraped"
			}
			return strings.Join(of.there, ", ") + " lacks it"
		}
	}
	if f.Filled && (unfilled[family] != "" || !strings.HasPrefix(family, "kneeload_")) {
		if unfilled[family] == "" {
			return "a turn log does not hold what the process told of itself"
		}
		return unfilled[family]
	}
	over := slices.Contains([]string{"done", "interrupted", "failed"}, f.State)
	switch {
	case !f.Ended && (slices.Contains(ofSteps, family) || strings.HasPrefix(family, "kneeload_knee_") || strings.HasPrefix(family, "kneeload_arrivals_")):
		if over {
			return "no step has figures: a steady load has no ended steps, and a sweep can end before one does"
		}
		return "a steady load has no ended steps, and a sweep has none before its first one ends"
	case once[family] != "":
		return once[family]
	case strings.HasPrefix(family, "kneeload_knee_") && family != names.KneeStatus:
		for _, knee := range f.Found {
			if !strings.Contains(selector, names.Knee+`="`) || strings.Contains(selector, names.Knee+`="`+knee+`"`) {
				return ""
			}
		}
		return "the knee is not found"
	case strings.HasPrefix(family, "kneeload_arrivals_") && !f.Tested && !over:
		return "the arrivals are tested when the run is over"
	case (family == names.StepServerTTFT || family == names.StepTTFTMinus || family == names.ScrapesTotal) && !f.Scrapes:
		return "kneeload itself reads no engine's metrics"
	case family == names.DroppedTotal && !f.Traces:
		return "nothing is sent to a collector"
	case (family == names.WindowHit || family == names.StepHit || family == names.Cached) && !f.Hits:
		return "the server tells no cached tokens"
	}
	return ""
}
