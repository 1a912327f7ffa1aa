package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// Server is a Prometheus server and what of it is to be read.
type Server struct {
	URL      string // as http://127.0.0.1:9090; user info in it is sent and never told
	From, To time.Time
	Label    string                                      // of one run, or the model of an engine; "" for all
	Do       func(*http.Request) (*http.Response, error) // http.Client.Do
}

// The windows in which an engine's histograms are read, and the loads they are put together to.
const (
	engineWindow = time.Minute
	engineLoads  = 10
	engineFewest = 20 // first tokens that a load needs
)

// Curves are those of the runs whose own series the server holds, one a label; where it holds none, what the histograms of SGLang
// or vLLM tell. It may be called by many goroutines at once, if Do may.
func (s Server) Curves(ctx context.Context, slo []measurement.Objective) ([]measurement.Results, error) {
	if !s.To.After(s.From) {
		return nil, fmt.Errorf("the time from %s to %s is none", s.From.Format(time.RFC3339), s.To.Format(time.RFC3339))
	}
	rates, err := s.last(ctx, names.StepRate)
	if err != nil {
		return nil, err
	}
	if len(rates) > 0 {
		return s.own(ctx, rates)
	}
	for _, engine := range []struct{ kind, metric string }{{"sglang", "sglang:time_to_first_token_seconds"},
		{"sglang", "sglang_time_to_first_token_seconds"}, // as Prometheus 2 reads it: SGLang's client escapes colons in OpenMetrics
		{"vllm", "vllm:time_to_first_token_seconds"}} {
		r, found, err := s.engine(ctx, engine.kind, engine.metric, slo)
		if err != nil || found {
			return []measurement.Results{r}, err
		}
	}
	return nil, fmt.Errorf("%s holds neither steps of kneeload nor the TTFT histograms of SGLang or vLLM from %s to %s%s", s.name(), s.From.Format(time.RFC3339), s.To.Format(time.RFC3339), s.labelled())
}

func (s Server) labelled() string {
	if s.Label == "" {
		return ""
	}
	return fmt.Sprintf(" with the label %q", s.Label)
}

// name is the address without what must not be told.
func (s Server) name() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "the server"
	}
	return u.Redacted()
}

// series is one of an answer: its labels and its values in time.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  sample            `json:"value"`
	Values []sample          `json:"values"`
}

// sample is [unix seconds, "value"].
type sample struct{ at, value float64 }

// UnmarshalJSON reads a sample as Prometheus writes it.
func (s *sample) UnmarshalJSON(b []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	var text string
	if err := errors.Join(json.Unmarshal(pair[0], &s.at), json.Unmarshal(pair[1], &text)); err != nil {
		return err
	}
	var err error
	s.value, err = strconv.ParseFloat(text, 64)
	return err
}

const mostAnswer = 256 << 20 // bytes of an answer that are read

func (s Server) get(ctx context.Context, path string, args url.Values) ([]series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(s.URL, "/")+path, strings.NewReader(args.Encode()))
	if err != nil {
		return nil, fmt.Errorf("ask %s: the address is none (want http://HOST:9090)", s.name())
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := s.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("ask %s: %w", s.name(), err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask %s: the answer (%s) is not that of a Prometheus server", s.name(), resp.Status)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("ask %s: %.200s", s.name(), answer.Error)
	}
	return answer.Data.Result, nil
}

// last is the last value in the time asked of each series of a metric.
func (s Server) last(ctx context.Context, metric string) ([]series, error) {
	match := ""
	if s.Label != "" {
		match = fmt.Sprintf("{%s=%q}", names.Label, s.Label)
	}
	return s.get(ctx, "/api/v1/query", url.Values{
		"query": {fmt.Sprintf("last_over_time(%s%s[%ds])", metric, match, int(math.Ceil(s.To.Sub(s.From).Seconds())))},
		"time":  {strconv.FormatFloat(float64(s.To.UnixMilli())/1e3, 'f', 3, 64)},
	})
}

// own reads the gauges of ended steps: the figures of the results file, but for the unit.
func (s Server) own(ctx context.Context, rates []series) ([]measurement.Results, error) {
	type key struct{ label, step string }
	of := func(m map[string]string) key { return key{m[names.Label], m[names.Step]} }
	steps := map[key]*measurement.StepResult{}
	ended := map[key]bool{}
	for _, r := range rates {
		n, err := strconv.Atoi(r.Metric[names.Step])
		if err != nil {
			continue
		}
		steps[of(r.Metric)] = &measurement.StepResult{Step: n, Rate: r.Value.value, Flags: []string{}, Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{}}
	}
	each := func(metric string, take func(step *measurement.StepResult, m map[string]string, v float64)) func() error {
		return func() error {
			all, err := s.last(ctx, metric)
			for _, x := range all {
				if step := steps[of(x.Metric)]; step != nil {
					take(step, x.Metric, x.Value.value)
				}
			}
			return err
		}
	}
	gauge := func(metric string, unit float64, at func(*measurement.StepResult) **float64) func() error {
		return each(metric, func(step *measurement.StepResult, _ map[string]string, v float64) { *at(step) = figure(v * unit) })
	}
	quantiles := func(metric string, at map[string]func(*measurement.StepResult) **float64) func() error {
		return each(metric, func(step *measurement.StepResult, m map[string]string, v float64) {
			if f := at[m[names.Quantile]]; f != nil {
				*f(step) = figure(v * 1e3)
			}
		})
	}
	windows := map[*measurement.StepResult]float64{}
	slos, err := s.last(ctx, names.SLO)
	if err != nil {
		return nil, err
	}
	for _, ask := range []func() error{
		gauge(names.StepArrived, 1, func(r *measurement.StepResult) **float64 { return &r.ArrivedRate }),
		quantiles(names.StepTTFT, map[string]func(*measurement.StepResult) **float64{
			"0.5": func(r *measurement.StepResult) **float64 { return &r.TTFTP50 }, "0.95": func(r *measurement.StepResult) **float64 { return &r.TTFTP95 },
			"0.99": func(r *measurement.StepResult) **float64 { return &r.TTFTP99 }}),
		gauge(names.StepTTFTLow, 1e3, func(r *measurement.StepResult) **float64 { return &r.TTFTP95CI[0] }),
		gauge(names.StepTTFTHigh, 1e3, func(r *measurement.StepResult) **float64 { return &r.TTFTP95CI[1] }),
		quantiles(names.StepTTFTSent, map[string]func(*measurement.StepResult) **float64{"0.95": func(r *measurement.StepResult) **float64 { return &r.TTFTSentP95 }}),
		quantiles(names.StepITL, map[string]func(*measurement.StepResult) **float64{
			"0.5": func(r *measurement.StepResult) **float64 { return &r.ITLP50 }, "0.95": func(r *measurement.StepResult) **float64 { return &r.ITLP95 },
			"0.99": func(r *measurement.StepResult) **float64 { return &r.ITLP99 }}),
		quantiles(names.StepTPOT, map[string]func(*measurement.StepResult) **float64{"0.5": func(r *measurement.StepResult) **float64 { return &r.TPOTP50 }}),
		gauge(names.StepHit, 1, func(r *measurement.StepResult) **float64 { return &r.CacheHitRate }),
		gauge(names.StepErrors, 1, func(r *measurement.StepResult) **float64 { return &r.ErrorRate }),
		gauge(names.StepLive, 1, func(r *measurement.StepResult) **float64 { return &r.LiveCallsMean }),
		gauge(names.StepThroughput, 1, func(r *measurement.StepResult) **float64 { return &r.ThroughputTurns }),
		gauge(names.StepOutput, 1, func(r *measurement.StepResult) **float64 { return &r.OutputTokens }),
		gauge(names.StepSaturation, 1, func(r *measurement.StepResult) **float64 { return &r.SaturationRatio }),
		gauge(names.StepLag, 1e3, func(r *measurement.StepResult) **float64 { return &r.ScheduleLagP99 }),
		each(names.StepTurns, func(r *measurement.StepResult, m map[string]string, v float64) {
			r.MeasuredTurns, ended[of(m)] = int(min(max(v, 0), 1e12)), true
		}),
		each(names.StepWindowStart, func(r *measurement.StepResult, _ map[string]string, v float64) { windows[r] = v }),
		each(names.StepWindowEnd, func(r *measurement.StepResult, _ map[string]string, v float64) {
			if from, ok := windows[r]; ok {
				r.WindowS = math.Round(1e3*(v-from)) / 1e3
			}
		}),
		each(names.StepVerdict, func(r *measurement.StepResult, m map[string]string, v float64) {
			if v == 1 {
				r.Verdict = measurement.Verdict(m[names.Verdict])
			}
		}),
		each(names.StepFlag, func(r *measurement.StepResult, m map[string]string, v float64) {
			if v == 1 && !slices.Contains(r.Flags, m[names.Flag]) {
				r.Flags = append(r.Flags, m[names.Flag])
			}
		}),
	} {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	infos, err := s.last(ctx, names.RunInfo)
	if err != nil {
		return nil, err
	}
	found, err := s.foundKnees(ctx)
	if err != nil {
		return nil, err
	}
	byLabel := map[string][]measurement.StepResult{}
	cut := map[string][]string{}
	for k, step := range steps {
		slices.SortFunc(step.Flags, func(a, b string) int {
			return cmp.Or(cmp.Compare(slices.Index(flagOrder, a), slices.Index(flagOrder, b)), cmp.Compare(a, b))
		})
		if !ended[k] {
			cut[k.label] = append(cut[k.label], short(step.Rate))
			continue
		}
		byLabel[k.label] = append(byLabel[k.label], *step)
	}
	var out []measurement.Results
	labels := make([]string, 0, len(byLabel))
	for label := range byLabel {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	for _, label := range labels {
		run := byLabel[label]
		slices.SortFunc(run, func(a, b measurement.StepResult) int { return cmp.Compare(a.Step, b.Step) })
		h := measurement.Header{Label: label, Config: measurement.Config{Rates: []float64{}, Unknown: append(untold(measurement.Config{}), "turns")}}
		for _, i := range infos {
			if m := i.Metric; m[names.Label] == label {
				h.Tool, h.Config.Arrivals = m["tool"], m["arrivals"]
				h.Engine = measurement.Engine{Kind: m["engine"], Version: m["engine_version"], Model: m["model"], GPU: m["gpu"], Fidelity: m["fidelity"]}
			}
		}
		for _, o := range slos {
			if m := o.Metric; m[names.Label] == label {
				if q, err := strconv.ParseFloat(m[names.Quantile], 64); err == nil {
					h.Config.SLO = append(h.Config.SLO, measurement.Objective{Metric: m[names.Metric], Quantile: q, LimitMS: math.Round(1e6*1e3*o.Value.value) / 1e6})
				}
			}
		}
		for i := range run {
			h.Config.Rates = append(h.Config.Rates, run[i].Rate)
		}
		r := analysis.SoFar(h, run)
		if k, ok := found[[2]string{label, "curvature"}]; ok && len(cut[label]) == 0 { // it rests on ages of turns given up, too, which are in no series
			k.Method = r.Knees.Curvature.Method
			r.Knees.Curvature = k
		}
		if k := found[[2]string{label, "slo"}]; len(cut[label]) == 0 && k.Status == r.Knees.SLO.Status && value(k.Rate) == value(r.Knees.SLO.Rate) {
			r.Knees.SLO.Estimate, r.Knees.SLO.CI95 = k.Estimate, k.CI95 // they rest on how many turns were late, which are in no series of steps
		}
		r.Mechanism.Evidence = append(r.Mechanism.Evidence, "What binds is told by the turn log, not by what Prometheus keeps.")
		r.Warnings = append(r.Warnings, fmt.Sprintf("Read from %s: the figures of ended steps as kneeload gave them; its turn log holds more.", s.name()))
		if c := cut[label]; len(c) > 0 {
			slices.Sort(c)
			r.Warnings = append(r.Warnings, fmt.Sprintf("Steps that have no figures in that time are left out (%s calls/s): they had not ended, or ended later.", strings.Join(c, ", ")))
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds steps of kneeload that began from %s to %s, but none that ended", s.name(), s.From.Format(time.RFC3339), s.To.Format(time.RFC3339))
	}
	return out, nil
}

// flagOrder is the order in which flags stand in results.
var flagOrder = []string{measurement.FlagClientLimited, measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated, measurement.FlagCensored,
	measurement.FlagShort, measurement.FlagIncomplete, measurement.FlagErrors, measurement.FlagBuffered, measurement.FlagColdCache, measurement.FlagOffRate}

// foundKnees are the knees that kneeload gave at a run's end, by label and name.
func (s Server) foundKnees(ctx context.Context) (map[[2]string]measurement.Knee, error) {
	out := map[[2]string]measurement.Knee{}
	statuses, err := s.last(ctx, names.KneeStatus)
	if err != nil {
		return nil, err
	}
	for _, x := range statuses {
		if x.Value.value == 1 {
			out[[2]string{x.Metric[names.Label], x.Metric[names.Knee]}] = measurement.Knee{Status: measurement.KneeStatus(x.Metric[names.Status]), Note: "As kneeload found it at the run's end."}
		}
	}
	for metric, set := range map[string]func(k *measurement.Knee, v float64){
		names.KneeRate:     func(k *measurement.Knee, v float64) { k.Rate = figure(v) },
		names.KneeEstimate: func(k *measurement.Knee, v float64) { k.Estimate = figure(v) },
		names.KneeLow:      func(k *measurement.Knee, v float64) { k.CI95[0] = figure(v) },
		names.KneeHigh:     func(k *measurement.Knee, v float64) { k.CI95[1] = figure(v) },
	} {
		values, err := s.last(ctx, metric)
		if err != nil {
			return nil, err
		}
		for _, x := range values {
			at := [2]string{x.Metric[names.Label], x.Metric[names.Knee]}
			if k, ok := out[at]; ok {
				set(&k, x.Value.value)
				out[at] = k
			}
		}
	}
	return out, nil
}

// bucket is one of a classic histogram: how many observations were at most le.
type bucket struct{ le, count float64 }

// histogramQuantile is the p-quantile of a classic histogram, interpolated within its bucket as Prometheus does, and the bounds
// that it surely lies between; hi is +Inf when it lies beyond the highest bound, and v is that bound.
func histogramQuantile(p float64, h []bucket) (v, lo, hi float64) {
	if len(h) == 0 || !(h[len(h)-1].count > 0) {
		return math.NaN(), math.NaN(), math.NaN()
	}
	rank := p * h[len(h)-1].count
	below := 0.
	for _, b := range h {
		if b.count >= rank {
			if math.IsInf(b.le, 1) {
				return lo, lo, b.le
			}
			if b.count > below {
				return lo + (b.le-lo)*(rank-below)/(b.count-below), lo, b.le
			}
			return b.le, lo, b.le
		}
		lo, below = b.le, b.count
	}
	return lo, lo, math.Inf(1)
}

// engine makes a curve of an engine's TTFT histogram: minutes of about the same load are put together, their counts added (which
// is exact, where averaging percentiles is not).
func (s Server) engine(ctx context.Context, kind, metric string, slo []measurement.Objective) (r measurement.Results, found bool, err error) {
	match := ""
	if s.Label != "" {
		match = fmt.Sprintf("{model_name=%q}", s.Label)
	}
	w := int(engineWindow.Seconds())
	got, err := s.get(ctx, "/api/v1/query_range", url.Values{
		"query": {fmt.Sprintf("sum by (le) (increase(%s_bucket%s[%ds]))", metric, match, w)},
		"start": {strconv.FormatInt(s.From.Add(engineWindow).Unix(), 10)}, "end": {strconv.FormatInt(s.To.Unix(), 10)}, "step": {strconv.Itoa(w)},
	})
	if err != nil || len(got) == 0 {
		return r, false, err
	}
	minutes := map[float64][]bucket{}
	for _, x := range got {
		le, err := strconv.ParseFloat(x.Metric["le"], 64)
		if err != nil {
			continue
		}
		for _, v := range x.Values {
			minutes[v.at] = append(minutes[v.at], bucket{le, v.value})
		}
	}
	var all [][]bucket
	for _, h := range minutes {
		slices.SortFunc(h, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		if n := h[len(h)-1].count; math.IsInf(h[len(h)-1].le, 1) && n > .5 {
			all = append(all, h)
		}
	}
	total := func(h []bucket) float64 { return h[len(h)-1].count }
	slices.SortFunc(all, func(a, b []bucket) int { return cmp.Compare(total(a), total(b)) })
	if len(all) == 0 {
		return r, false, nil
	}
	var points []point
	n := min(engineLoads, len(all))
	for i := range n {
		group := all[i*len(all)/n : (i+1)*len(all)/n]
		sum := map[float64]float64{}
		for _, h := range group {
			for _, b := range h {
				sum[b.le] += b.count
			}
		}
		var h []bucket
		for le, count := range sum {
			h = append(h, bucket{le, count})
		}
		slices.SortFunc(h, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		if total(h) < engineFewest {
			continue
		}
		points = append(points, s.enginePoint(kind, metric, h, len(group)))
	}
	if len(points) < 2 || points[0].load == points[len(points)-1].load {
		return r, true, fmt.Errorf("%s holds %s for %d minutes at one load, and one load is no curve: ask for a longer time", s.name(), metric, len(all))
	}
	r = curve(points, nil, slo)
	r.Label = kind
	boundedVerdicts(&r, points, slo)
	r.Warnings = append([]string{
		fmt.Sprintf("TTFT is that of the engine's own histogram %s: percentiles are interpolated within its buckets, so each may be anything between the two bounds, and one limit that is no bound of a bucket cannot be judged where its bucket holds the percentile. Buckets lean to their upper bound.", metric),
		"The load is requests that got their first token a second, put together from minutes of about the same load: beyond saturation it folds back on itself, and what waits before the engine is not in it.",
	}, r.Warnings...)
	return r, true, nil
}

func (s Server) enginePoint(kind, metric string, h []bucket, minutes int) point {
	p := newPoint(PrometheusData, fmt.Sprintf("%s (%d min)", metric, minutes))
	p.engine = measurement.Engine{Kind: kind, Model: s.Label}
	p.ok = math.Round(h[len(h)-1].count)
	p.duration = float64(minutes) * engineWindow.Seconds()
	p.throughput = p.ok / p.duration
	p.load = p.throughput
	for _, q := range []float64{.5, .9, .95, .99} {
		if v, _, hi := histogramQuantile(q, h); !math.IsInf(hi, 1) {
			p.ttft.set(q, v*1000)
		}
	}
	p.buckets = h
	return p
}

// boundedVerdicts judges by the bounds of the bucket that holds a percentile: where the limit lies within it nothing is decided.
func boundedVerdicts(r *measurement.Results, points []point, slo []measurement.Objective) {
	for i := range r.Steps {
		s := &r.Steps[i]
		s.Verdict = measurement.Pass
		for _, o := range slo {
			if o.Metric != "ttft" {
				s.Verdict = measurement.Undecided
				continue
			}
			_, lo, hi := histogramQuantile(o.Quantile, points[i].buckets)
			if math.IsInf(hi, 1) && !slices.Contains(s.Flags, measurement.FlagCensored) {
				s.Flags, s.TTFTP95AtLeast = append(s.Flags, measurement.FlagCensored), figure(lo*1000)
			}
			switch {
			case lo*1000 >= o.LimitMS:
				s.Verdict = measurement.Fail
			case hi*1000 > o.LimitMS:
				if s.Verdict == measurement.Pass {
					s.Verdict = measurement.Undecided
				}
				r.Warnings = append(r.Warnings, fmt.Sprintf("At %s requests/s P%s TTFT lies between %s and %s ms: the limit of %s ms is no bound of a bucket, so nothing is decided there.", short(s.Rate), short(100*o.Quantile), short(lo*1000), short(hi*1000), short(o.LimitMS)))
			}
			if s.Verdict == measurement.Fail {
				break
			}
		}
	}
	curvature := r.Knees.Curvature
	r.Knees = analysis.SoFar(measurement.Header{Label: r.Label, Tool: r.Tool, Config: r.Config, Engine: r.Engine}, r.Steps).Knees
	r.Knees.Curvature = curvature
}
