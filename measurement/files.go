package measurement

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// WriteCSV writes one row a step. A figure that is absent is an empty cell; intervals are two columns, flags one, joined by
// spaces.
func WriteCSV(w io.Writer, r Results) error {
	out := csv.NewWriter(w)
	columns := csvColumns()
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

func csvColumns() []csvColumn {
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
	return []csvColumn{
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
		{"live_calls_max", func(s *StepResult) string {
			if s.LiveCallsMax == nil {
				return ""
			}
			return strconv.Itoa(*s.LiveCallsMax)
		}},
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
				parts = append(parts, fmt.Sprintf("%s:p%g=%s", o.Metric, o.Quantile*100, value))
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
