package measurement

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotResults says that a file is something other than a results file.
var ErrNotResults = errors.New("not a results file")

// WriteResults writes r as indented JSON.
func WriteResults(w io.Writer, r Results) error {
	r.Schema = ResultsSchema
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	if r.Mechanism.Evidence == nil {
		r.Mechanism.Evidence = []string{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write results of %s: %w", r.Label, err)
	}
	return nil
}

// ReadResults reads the results file at path; ErrNotResults when it is something else.
func ReadResults(path string) (Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Results{}, fmt.Errorf("read results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return Results{}, fmt.Errorf("%s: %w (%v)", path, ErrNotResults, err)
	}
	if r.Schema != ResultsSchema {
		return Results{}, fmt.Errorf("%s: %w (its schema is %q, wanted %q)", path, ErrNotResults, r.Schema, ResultsSchema)
	}
	return r, nil
}

// WriteCSV writes one row a step. A figure that is absent is an empty cell; intervals are two columns, flags and objectives one
// each, joined by spaces. What holds for the whole run stands in every row.
func WriteCSV(w io.Writer, r Results) error {
	out := csv.NewWriter(w)
	columns := csvColumns(&r)
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.name
	}
	if err := out.Write(head); err != nil {
		return fmt.Errorf("write %s as CSV: %w", r.Label, err)
	}
	for _, s := range r.Steps {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = c.value(&s)
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("write %s as CSV: %w", r.Label, err)
		}
	}
	out.Flush()
	return out.Error()
}

type csvColumn struct {
	name  string
	value func(*StepResult) string
}

func csvColumns(r *Results) []csvColumn {
	num := func(f func(*StepResult) *float64) func(*StepResult) string {
		return func(s *StepResult) string {
			if v := f(s); v != nil {
				return strconv.FormatFloat(*v, 'g', -1, 64)
			}
			return ""
		}
	}
	engine := func(f func(*EngineResult) *float64) func(*StepResult) string {
		return num(func(s *StepResult) *float64 {
			if s.Engine == nil {
				return nil
			}
			return f(s.Engine)
		})
	}
	n := func(f func(*StepResult) int) func(*StepResult) string {
		return func(s *StepResult) string { return strconv.Itoa(f(s)) }
	}
	whole := func(f func(*StepResult) *int) func(*StepResult) string {
		return func(s *StepResult) string {
			if v := f(s); v != nil {
				return strconv.Itoa(*v)
			}
			return ""
		}
	}
	run := func(cell string) func(*StepResult) string { return func(*StepResult) string { return cell } }
	loads, arrivals, turns, slo := r.Config.LoadOf, r.Config.Arrivals, "", []string{}
	if loads == "" {
		loads = "calls"
	}
	if arrivals == "" {
		arrivals = "poisson"
	}
	if r.Config.Turns > 0 && r.Config.Told("turns") {
		turns = strconv.Itoa(r.Config.Turns)
	}
	for _, o := range r.Config.SLO {
		slo = append(slo, fmt.Sprintf("%s:p%.12g:%gms", o.Metric, o.Quantile*100, o.LimitMS))
	}
	var simulated []csvColumn // what only the log of a simulated run tells
	if slices.ContainsFunc(r.Steps, func(s StepResult) bool { return s.Times != nil }) {
		for _, of := range TimesOf() {
			for _, q := range SpreadOf() {
				simulated = append(simulated, csvColumn{of.Name + "_" + q.Name + "_ms", num(func(s *StepResult) *float64 {
					if s.Times == nil {
						return nil
					}
					return *q.At(of.At(s.Times))
				})})
			}
		}
	}
	if slices.ContainsFunc(r.Steps, func(s StepResult) bool { return s.Engine != nil && s.Engine.Packing != nil }) {
		packing := func(f func(*Packing) *float64) func(*StepResult) string {
			return engine(func(e *EngineResult) *float64 {
				if e.Packing == nil {
					return nil
				}
				return f(e.Packing)
			})
		}
		simulated = append(simulated,
			csvColumn{"engine_steps", packing(func(p *Packing) *float64 { return &p.Steps })},
			csvColumn{"engine_batch_mean", packing(func(p *Packing) *float64 { return p.BatchMean })},
			csvColumn{"engine_batch_max", packing(func(p *Packing) *float64 { return p.BatchMost })},
			csvColumn{"engine_mixed_step_share", packing(func(p *Packing) *float64 { return p.MixedShare })},
			csvColumn{"engine_kv_usage_peak", engine(func(e *EngineResult) *float64 { return e.KVPeak })},
			csvColumn{"engine_kv_window_usage_mean", engine(func(e *EngineResult) *float64 { return e.WindowUsage })},
			csvColumn{"engine_kv_window_cached_mean", engine(func(e *EngineResult) *float64 { return e.WindowCached })})
	}
	return append([]csvColumn{
		{"step", n(func(s *StepResult) int { return s.Step })},
		{"rate_calls_per_s", num(func(s *StepResult) *float64 { return &s.Rate })},
		{"arrived_calls_per_s", num(func(s *StepResult) *float64 { return s.ArrivedRate })},
		{"window_s", num(func(s *StepResult) *float64 { return &s.WindowS })},
		{"measured_turns", n(func(s *StepResult) int { return s.MeasuredTurns })},
		{"not_sent_turns", n(func(s *StepResult) int { return s.NotSentTurns })},
		{"errors", n(func(s *StepResult) int { return s.Errors })},
		{"error_rate", num(func(s *StepResult) *float64 { return s.ErrorRate })},
		{"ttft_p50_ms", num(func(s *StepResult) *float64 { return s.TTFTP50 })},
		{"ttft_p95_ms", num(func(s *StepResult) *float64 { return s.TTFTP95 })},
		{"ttft_p99_ms", num(func(s *StepResult) *float64 { return s.TTFTP99 })},
		{"ttft_p95_ci_low_ms", num(func(s *StepResult) *float64 { return s.TTFTP95CI[0] })},
		{"ttft_p95_ci_high_ms", num(func(s *StepResult) *float64 { return s.TTFTP95CI[1] })},
		{"ttft_p95_at_least_ms", num(func(s *StepResult) *float64 { return s.TTFTP95AtLeast })},
		{"ttft_sent_p95_ms", num(func(s *StepResult) *float64 { return s.TTFTSentP95 })},
		{"warm_turn_ttft_p50_ms", num(func(s *StepResult) *float64 { return s.WarmTTFTP50 })},
		{"itl_p50_ms", num(func(s *StepResult) *float64 { return s.ITLP50 })},
		{"itl_p95_ms", num(func(s *StepResult) *float64 { return s.ITLP95 })},
		{"itl_p99_ms", num(func(s *StepResult) *float64 { return s.ITLP99 })},
		{"itl_basis", func(s *StepResult) string { return s.ITLBasis }},
		{"tpot_p50_ms", num(func(s *StepResult) *float64 { return s.TPOTP50 })},
		{"throughput_turns_s", num(func(s *StepResult) *float64 { return s.ThroughputTurns })},
		{"output_tok_s", num(func(s *StepResult) *float64 { return s.OutputTokens })},
		{"cache_hit_rate", num(func(s *StepResult) *float64 { return s.CacheHitRate })},
		{"achieved_concurrency", num(func(s *StepResult) *float64 { return s.AchievedConcurrency })},
		{"live_turns_mean", num(func(s *StepResult) *float64 { return s.LiveTurnsMean })},
		{"live_calls_mean", num(func(s *StepResult) *float64 { return s.LiveCallsMean })},
		{"live_calls_max", whole(func(s *StepResult) *int { return s.LiveCallsMax })},
		{"in_flight_slope", num(func(s *StepResult) *float64 { return s.InFlightSlope })},
		{"saturation_ratio", num(func(s *StepResult) *float64 { return s.SaturationRatio })},
		{"schedule_lag_p99_ms", num(func(s *StepResult) *float64 { return s.ScheduleLagP99 })},
		{"retries", n(func(s *StepResult) int { return s.Retries })},
		{"dialed_turns", n(func(s *StepResult) int { return s.Dialed })},
		{"objectives", func(s *StepResult) string {
			var parts []string
			for _, o := range s.Objectives {
				value := "-"
				if o.ValueMS != nil {
					value = strconv.FormatFloat(*o.ValueMS, 'g', -1, 64)
				}
				parts = append(parts, fmt.Sprintf("%s:p%.12g=%s", o.Metric, o.Quantile*100, value))
			}
			return strings.Join(parts, " ")
		}},
		{"verdict", func(s *StepResult) string { return string(s.Verdict) }},
		{"flags", func(s *StepResult) string { return strings.Join(s.Flags, " ") }},
		{"engine_running_mean", engine(func(e *EngineResult) *float64 { return e.RunningMean })},
		{"engine_queued_mean", engine(func(e *EngineResult) *float64 { return e.QueuedMean })},
		{"engine_queued_max", engine(func(e *EngineResult) *float64 { return e.QueuedMax })},
		{"engine_kv_usage_mean", engine(func(e *EngineResult) *float64 { return e.KVUsageMean })},
		{"engine_kv_cached_tokens_mean", engine(func(e *EngineResult) *float64 { return e.KVCached })},
		{"engine_kv_free_tokens_mean", engine(func(e *EngineResult) *float64 { return e.KVFree })},
		{"engine_evicted_tok_s", engine(func(e *EngineResult) *float64 { return e.EvictedRate })},
		{"engine_retractions", engine(func(e *EngineResult) *float64 { return e.Retractions })},
		{"engine_cache_hit_rate", engine(func(e *EngineResult) *float64 { return e.CacheHitRate })},
		{"engine_ttft_mean_ms", engine(func(e *EngineResult) *float64 { return e.TTFTMean })},
		{"engine_ttft_client_minus_ms", engine(func(e *EngineResult) *float64 { return e.TTFTClientMinus })},
		{"engine_itl_mean_ms", engine(func(e *EngineResult) *float64 { return e.ITLMean })},
		{"engine_queue_mean_ms", engine(func(e *EngineResult) *float64 { return e.QueueMean })},
		{"gpu_utilization_mean", engine(func(e *EngineResult) *float64 { return e.GPUUtil })},
		{"gpu_tensor_active_mean", engine(func(e *EngineResult) *float64 { return e.GPUTensor })},
		{"gpu_power_watts_mean", engine(func(e *EngineResult) *float64 { return e.GPUPower })},
		{"ttft_mean_ms", num(func(s *StepResult) *float64 { return s.TTFTMean })},
		{"late_turns", whole(func(s *StepResult) *int { return s.LateTurns })},
		{"n_eff", num(func(s *StepResult) *float64 { return s.NEff })},
		{"pass_probability", num(func(s *StepResult) *float64 { return s.PassProbability })},
		{"decided", func(s *StepResult) string { return string(s.Decided) }},
		{"more_calls_needed", whole(func(s *StepResult) *int { return s.MoreCalls })},
		{"label", run(r.Label)},
		{"load_of", run(loads)},
		{"arrivals", run(arrivals)},
		{"turns", run(turns)},
		{"slo", run(strings.Join(slo, " "))},
	}, simulated...)
}

// TimesOf are the columns that a CSV has of Times beside those it has of every run.
func TimesOf() []struct {
	Name string
	At   func(*Times) *Spread
} {
	return []struct {
		Name string
		At   func(*Times) *Spread
	}{
		{"queue_wait", func(t *Times) *Spread { return &t.QueueWait }},
		{"ttft_from_admit", func(t *Times) *Spread { return &t.TTFTAdmitted }},
		{"e2e", func(t *Times) *Spread { return &t.E2E }},
	}
}

// SpreadOf are the figures of a Spread, by name.
func SpreadOf() []struct {
	Name string
	At   func(*Spread) **float64
} {
	return []struct {
		Name string
		At   func(*Spread) **float64
	}{
		{"mean", func(s *Spread) **float64 { return &s.Mean }},
		{"p50", func(s *Spread) **float64 { return &s.P50 }},
		{"p90", func(s *Spread) **float64 { return &s.P90 }},
		{"p95", func(s *Spread) **float64 { return &s.P95 }},
		{"p99", func(s *Spread) **float64 { return &s.P99 }},
	}
}

// ReplaceFile writes a whole file so that a reader sees the old one or the new one, never half: to a temporary file beside
// it, then renamed over it. The folder is made if need be.
func ReplaceFile(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b.Bytes(), 0o666); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// mayBeNegative are the figures of a step that are differences.
var mayBeNegative = []string{"in_flight_slope", "saturation_ratio", "schedule_lag_p99_ms"}

// Check says of the first figure of a step that cannot be one of a measurement which it is, by its name in the files: a load is above 0,
// counts, times and rates are not negative, shares are at most 1. What an engine said of itself is its own.
func (s *StepResult) Check() error {
	if !(s.Rate > 0) || math.IsInf(s.Rate, 0) {
		return fmt.Errorf("rate_calls_per_s is %v, must be above 0", s.Rate)
	}
	if s.Verdict != "" && !slices.Contains([]Verdict{Pass, Fail, Undecided}, s.Verdict) {
		return fmt.Errorf("verdict is %q, must be %s, %s or %s", s.Verdict, Pass, Fail, Undecided)
	}
	for _, c := range csvColumns(&Results{Steps: []StepResult{*s}}) {
		if strings.HasPrefix(c.name, "engine_") || strings.HasPrefix(c.name, "gpu_") || slices.Contains(mayBeNegative, c.name) {
			continue
		}
		v, err := strconv.ParseFloat(c.value(s), 64)
		switch {
		case err != nil: // a word, or absent
		case v < 0:
			return fmt.Errorf("%s is %v, must not be negative", c.name, v)
		case v > 1+1e-9 && slices.Contains([]string{"error_rate", "cache_hit_rate", "pass_probability"}, c.name):
			return fmt.Errorf("%s is %v, must be at most 1", c.name, v)
		}
	}
	return nil
}

// Check says that results have no steps, or which of their steps holds a figure that no measurement can have; see StepResult.Check.
func (r *Results) Check() error {
	if len(r.Steps) == 0 {
		return errors.New("has no steps")
	}
	for i := range r.Steps {
		if err := r.Steps[i].Check(); err != nil {
			return fmt.Errorf("has a step %d whose %w", r.Steps[i].Step, err)
		}
	}
	return nil
}
