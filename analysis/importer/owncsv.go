package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// ownCSVHead is how the CSV of a run of ours begins.
const ownCSVHead = "step,rate_calls_per_s,arrived_calls_per_s,window_s,measured_turns,"

func isOwnCSV(head []byte) bool { return bytes.HasPrefix(head, []byte(ownCSVHead)) }

// ownTable is a run of ours as its CSV has it. Objectives stand in the CSV since it names them; before, slo is nil.
type ownTable struct {
	label, arrivals string
	loadOf          string // as in measurement.Config
	turns           int    // of a call; 0 where the CSV does not say
	slo             []measurement.Objective
	steps           []measurement.StepResult
	warnings        []string
}

// ownCells are how the cells of each column of measurement.WriteCSV are read; empty ones are absent and are not read.
func ownCells() map[string]func(t *ownTable, s *measurement.StepResult, text string) error {
	type step = measurement.StepResult
	type cell = func(t *ownTable, s *step, text string) error
	figures := func(at func(*step) **float64) cell {
		return func(_ *ownTable, s *step, text string) error {
			v, err := ownNumber(text)
			*at(s) = &v
			return err
		}
	}
	engine := func(at func(*measurement.EngineResult) **float64) cell {
		return figures(func(s *step) **float64 {
			if s.Engine == nil {
				s.Engine = &measurement.EngineResult{}
			}
			return at(s.Engine)
		})
	}
	number := func(at func(*step) *float64) cell {
		return func(_ *ownTable, s *step, text string) (err error) {
			*at(s), err = ownNumber(text)
			return err
		}
	}
	count := func(at func(*step) *int) cell {
		return func(_ *ownTable, s *step, text string) (err error) {
			*at(s), err = strconv.Atoi(text)
			return err
		}
	}
	counts := func(at func(*step) **int) cell {
		return func(_ *ownTable, s *step, text string) error {
			v, err := strconv.Atoi(text)
			*at(s) = &v
			return err
		}
	}
	type E = measurement.EngineResult
	packing := func(at func(*measurement.Packing) **float64) cell {
		return engine(func(e *E) **float64 {
			if e.Packing == nil {
				e.Packing = &measurement.Packing{}
			}
			return at(e.Packing)
		})
	}
	cells := map[string]cell{
		"step":                         count(func(s *step) *int { return &s.Step }),
		"rate_calls_per_s":             number(func(s *step) *float64 { return &s.Rate }),
		"arrived_calls_per_s":          figures(func(s *step) **float64 { return &s.ArrivedRate }),
		"window_s":                     number(func(s *step) *float64 { return &s.WindowS }),
		"measured_turns":               count(func(s *step) *int { return &s.MeasuredTurns }),
		"not_sent_turns":               count(func(s *step) *int { return &s.NotSentTurns }),
		"errors":                       count(func(s *step) *int { return &s.Errors }),
		"error_rate":                   figures(func(s *step) **float64 { return &s.ErrorRate }),
		"ttft_p50_ms":                  figures(func(s *step) **float64 { return &s.TTFTP50 }),
		"ttft_p95_ms":                  figures(func(s *step) **float64 { return &s.TTFTP95 }),
		"ttft_p99_ms":                  figures(func(s *step) **float64 { return &s.TTFTP99 }),
		"ttft_p95_ci_low_ms":           figures(func(s *step) **float64 { return &s.TTFTP95CI[0] }),
		"ttft_p95_ci_high_ms":          figures(func(s *step) **float64 { return &s.TTFTP95CI[1] }),
		"ttft_p95_at_least_ms":         figures(func(s *step) **float64 { return &s.TTFTP95AtLeast }),
		"ttft_sent_p95_ms":             figures(func(s *step) **float64 { return &s.TTFTSentP95 }),
		"warm_turn_ttft_p50_ms":        figures(func(s *step) **float64 { return &s.WarmTTFTP50 }),
		"itl_p50_ms":                   figures(func(s *step) **float64 { return &s.ITLP50 }),
		"itl_p95_ms":                   figures(func(s *step) **float64 { return &s.ITLP95 }),
		"itl_p99_ms":                   figures(func(s *step) **float64 { return &s.ITLP99 }),
		"itl_basis":                    ownWord(func(s *step) *string { return &s.ITLBasis }, "token", "chunk"),
		"tpot_p50_ms":                  figures(func(s *step) **float64 { return &s.TPOTP50 }),
		"throughput_turns_s":           figures(func(s *step) **float64 { return &s.ThroughputTurns }),
		"output_tok_s":                 figures(func(s *step) **float64 { return &s.OutputTokens }),
		"cache_hit_rate":               figures(func(s *step) **float64 { return &s.CacheHitRate }),
		"achieved_concurrency":         figures(func(s *step) **float64 { return &s.AchievedConcurrency }),
		"live_turns_mean":              figures(func(s *step) **float64 { return &s.LiveTurnsMean }),
		"live_calls_mean":              figures(func(s *step) **float64 { return &s.LiveCallsMean }),
		"live_calls_max":               counts(func(s *step) **int { return &s.LiveCallsMax }),
		"in_flight_slope":              figures(func(s *step) **float64 { return &s.InFlightSlope }),
		"saturation_ratio":             figures(func(s *step) **float64 { return &s.SaturationRatio }),
		"schedule_lag_p99_ms":          figures(func(s *step) **float64 { return &s.ScheduleLagP99 }),
		"retries":                      count(func(s *step) *int { return &s.Retries }),
		"dialed_turns":                 count(func(s *step) *int { return &s.Dialed }),
		"objectives":                   ownObjectives,
		"verdict":                      ownWord(func(s *step) *measurement.Verdict { return &s.Verdict }, measurement.Pass, measurement.Fail, measurement.Undecided),
		"flags":                        func(_ *ownTable, s *step, text string) error { s.Flags = strings.Fields(text); return nil },
		"engine_running_mean":          engine(func(e *E) **float64 { return &e.RunningMean }),
		"engine_queued_mean":           engine(func(e *E) **float64 { return &e.QueuedMean }),
		"engine_queued_max":            engine(func(e *E) **float64 { return &e.QueuedMax }),
		"engine_kv_usage_mean":         engine(func(e *E) **float64 { return &e.KVUsageMean }),
		"engine_kv_cached_tokens_mean": engine(func(e *E) **float64 { return &e.KVCached }),
		"engine_kv_free_tokens_mean":   engine(func(e *E) **float64 { return &e.KVFree }),
		"engine_evicted_tok_s":         engine(func(e *E) **float64 { return &e.EvictedRate }),
		"engine_retractions":           engine(func(e *E) **float64 { return &e.Retractions }),
		"engine_cache_hit_rate":        engine(func(e *E) **float64 { return &e.CacheHitRate }),
		"engine_ttft_mean_ms":          engine(func(e *E) **float64 { return &e.TTFTMean }),
		"engine_ttft_client_minus_ms":  engine(func(e *E) **float64 { return &e.TTFTClientMinus }),
		"engine_itl_mean_ms":           engine(func(e *E) **float64 { return &e.ITLMean }),
		"engine_queue_mean_ms":         engine(func(e *E) **float64 { return &e.QueueMean }),
		"gpu_utilization_mean":         engine(func(e *E) **float64 { return &e.GPUUtil }),
		"gpu_tensor_active_mean":       engine(func(e *E) **float64 { return &e.GPUTensor }),
		"gpu_power_watts_mean":         engine(func(e *E) **float64 { return &e.GPUPower }),
		"ttft_mean_ms":                 figures(func(s *step) **float64 { return &s.TTFTMean }),
		"late_turns":                   counts(func(s *step) **int { return &s.LateTurns }),
		"n_eff":                        figures(func(s *step) **float64 { return &s.NEff }),
		"pass_probability":             figures(func(s *step) **float64 { return &s.PassProbability }),
		"decided":                      ownWord(func(s *step) *measurement.Verdict { return &s.Decided }, measurement.Pass, measurement.Fail, measurement.Undecided),
		"more_calls_needed":            counts(func(s *step) **int { return &s.MoreCalls }),
		"label":                        func(t *ownTable, _ *step, text string) error { t.label = text; return nil },
		"arrivals":                     func(t *ownTable, _ *step, text string) error { t.arrivals = text; return nil },
		"load_of": func(t *ownTable, _ *step, text string) error {
			if text != "calls" {
				t.loadOf = text
			}
			return nil
		},
		"turns": func(t *ownTable, _ *step, text string) (err error) {
			t.turns, err = strconv.Atoi(text)
			return err
		},
		"slo": func(t *ownTable, _ *step, text string) error {
			t.slo = []measurement.Objective{}
			for _, part := range strings.Fields(text) {
				o, limit, err := ownObjective(part, ":")
				if err == nil {
					o.LimitMS, err = ownNumber(strings.TrimSuffix(limit, "ms"))
				}
				if err != nil {
					return err
				}
				t.slo = append(t.slo, o)
			}
			return nil
		},
		"engine_steps": func(_ *ownTable, s *step, text string) (err error) {
			if s.Engine == nil {
				s.Engine = &E{}
			}
			if s.Engine.Packing == nil {
				s.Engine.Packing = &measurement.Packing{}
			}
			s.Engine.Packing.Steps, err = ownNumber(text)
			return err
		},
		"engine_batch_mean":            packing(func(p *measurement.Packing) **float64 { return &p.BatchMean }),
		"engine_batch_max":             packing(func(p *measurement.Packing) **float64 { return &p.BatchMost }),
		"engine_mixed_step_share":      packing(func(p *measurement.Packing) **float64 { return &p.MixedShare }),
		"engine_kv_usage_peak":         engine(func(e *E) **float64 { return &e.KVPeak }),
		"engine_kv_window_usage_mean":  engine(func(e *E) **float64 { return &e.WindowUsage }),
		"engine_kv_window_cached_mean": engine(func(e *E) **float64 { return &e.WindowCached }),
	}
	for _, of := range measurement.TimesOf() {
		for _, q := range measurement.SpreadOf() {
			cells[of.Name+"_"+q.Name+"_ms"] = figures(func(s *step) **float64 {
				if s.Times == nil {
					s.Times = &measurement.Times{}
				}
				return q.At(of.At(s.Times))
			})
		}
	}
	return cells
}

func ownNumber(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errors.New("no number")
	}
	return v, nil
}

// ownWord reads one of a few words.
func ownWord[T ~string](at func(*measurement.StepResult) *T, words ...T) func(*ownTable, *measurement.StepResult, string) error {
	return func(_ *ownTable, s *measurement.StepResult, text string) error {
		*at(s) = T(text)
		if !slices.Contains(words, T(text)) {
			return errors.New("none of its words")
		}
		return nil
	}
}

// ownObjective reads "ttft:p95" and what stands behind the mark.
func ownObjective(text, mark string) (o measurement.Objective, rest string, err error) {
	metric, rest, _ := strings.Cut(text, ":")
	quantile, rest, ok := strings.Cut(rest, mark)
	q, err := ownNumber(strings.TrimPrefix(quantile, "p") + "e-2") // a division would miss it by a bit
	if err != nil || !ok || metric == "" || !(q > 0 && q < 1) {
		return o, "", errors.New("no objective")
	}
	return measurement.Objective{Metric: metric, Quantile: q}, rest, nil
}

// ownObjectives reads "ttft:p95=41.5 itl:p95=-": what was measured for each; their limits stand in the column slo.
func ownObjectives(_ *ownTable, s *measurement.StepResult, text string) error {
	for _, part := range strings.Fields(text) {
		o, value, err := ownObjective(part, "=")
		if err != nil {
			return err
		}
		r := measurement.ObjectiveResult{Objective: o}
		if value != "-" {
			v, err := ownNumber(value)
			if err != nil {
				return err
			}
			r.ValueMS = &v
		}
		s.Objectives = append(s.Objectives, r)
	}
	return nil
}

// ownCSV reads what measurement.WriteCSV wrote: a row a step, one run or, joined below each other, several. A row that was cut short
// costs that row.
func ownCSV(f File) (contents, error) {
	r := csv.NewReader(bytes.NewReader(f.Data))
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if err != nil {
		return contents{}, refuse(f.Name, fmt.Sprintf("is no table that can be read (%v)", err), "")
	}
	cells := ownCells()
	base := path.Base(filepath.ToSlash(f.Name))
	byFile := strings.TrimSuffix(base, path.Ext(base))
	var tables []*ownTable
	var warnings []string
	for _, name := range head {
		if cells[name] == nil {
			warnings = append(warnings, fmt.Sprintf("%s:1: the column %.60q is of no kneeanalyze known here; it is left out.", f.Name, name))
		}
	}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		line, _ := r.FieldPos(0)
		at := fmt.Sprintf("%s:%d", f.Name, line)
		if err != nil || len(row) != len(head) {
			warnings = append(warnings, fmt.Sprintf("%s: the row is torn (%d of %d cells); it is left out.", at, len(row), len(head)))
			continue
		}
		if slices.Equal(row, head) {
			continue // files joined below each other
		}
		run := ownTable{label: byFile}
		s := measurement.StepResult{Flags: []string{}, Objectives: []measurement.ObjectiveResult{}, ByTurn: []measurement.TurnResult{}}
		for i, text := range row {
			if read := cells[head[i]]; read != nil && text != "" {
				if err := read(&run, &s, text); err != nil {
					return contents{}, refuse(at, fmt.Sprintf("has %.40q as its %s, which is %v", text, head[i], err), "give the file as it was written, or the results (.json) beside it")
				}
			}
		}
		if !(s.Rate > 0) {
			return contents{}, refuse(at, fmt.Sprintf("is of %s calls/s, which is no load above 0", short(s.Rate)), "give the file as it was written, or the results (.json) beside it")
		}
		if err := s.Check(); err != nil {
			return contents{}, refuse(at, fmt.Sprintf("is a step whose %v", err), "give the file as it was written, or the results (.json) beside it")
		}
		i := slices.IndexFunc(tables, func(t *ownTable) bool { return t.label == run.label })
		if i < 0 {
			i, tables = len(tables), append(tables, &run)
		}
		tables[i].steps = append(tables[i].steps, s)
	}
	if len(tables) == 0 {
		return contents{}, refuse(f.Name, "is a curve of ours without a whole row", "give the results (.json) beside it")
	}
	c := contents{kind: OwnCSV}
	tables[0].warnings = warnings
	for _, t := range tables {
		t.name(head)
		c.tables = append(c.tables, *t)
	}
	return c, nil
}

// name gives steps the limits of their objectives, and says what the columns lack.
func (t *ownTable) name(head []string) {
	if !slices.Contains(head, "late_turns") {
		t.warnings = append(t.warnings, "The CSV is of an earlier version, which left out how many turns were late: the intervals rest on those of P95 alone. The results (.json) beside it hold all.")
	}
	for i := range t.steps {
		for j := range t.steps[i].Objectives {
			o := &t.steps[i].Objectives[j]
			for _, named := range t.slo {
				if named.Metric == o.Metric && named.Quantile == o.Quantile {
					o.LimitMS = named.LimitMS
				}
			}
		}
	}
}

// results are the curve, judged by slo where the CSV does not name its own objectives.
func (t ownTable) results(slo []measurement.Objective) measurement.Results {
	warnings := t.warnings
	if t.slo == nil {
		t.slo = slo
		var other []string
		for i := range t.steps {
			s := &t.steps[i]
			told := s.Verdict
			s.Verdict = analysis.Judge(*s, slo)
			if told != "" && told != s.Verdict {
				other = append(other, short(s.Rate))
			}
			held := s.Objectives
			s.Objectives = []measurement.ObjectiveResult{}
			for _, o := range slo {
				r := measurement.ObjectiveResult{Objective: o}
				for _, h := range held {
					if h.Metric == o.Metric && h.Quantile == o.Quantile {
						r.ValueMS = h.ValueMS
					}
				}
				if r.ValueMS == nil {
					r.ValueMS = quantileOf(s, o)
				}
				s.Objectives = append(s.Objectives, r)
			}
		}
		if len(other) > 0 {
			warnings = append(warnings, fmt.Sprintf("The CSV does not name the limits that its verdicts rest on; judged by --slo they differ at %s.", strings.Join(other, ", ")))
		}
	}
	c := measurement.Config{Rates: []float64{}, Turns: t.turns, Arrivals: t.arrivals, SLO: t.slo, LoadOf: t.loadOf}
	c.Unknown = untold(c)
	if t.turns == 0 {
		c.Unknown = append(c.Unknown, "turns")
	}
	if t.arrivals == "" {
		c.Unknown = append(c.Unknown, "arrivals")
	}
	for _, s := range t.steps {
		if !slices.Contains(c.Rates, s.Rate) {
			c.Rates = append(c.Rates, s.Rate)
		}
	}
	r := analysis.SoFar(measurement.Header{Label: t.label, Config: c}, t.steps)
	r.Arrivals = measurement.Arrivals{Dispersion: []measurement.WindowTest{}}
	r.Mechanism.Evidence = append(r.Mechanism.Evidence, "What binds is told by the results (.json) or the turn log of the run, not by its CSV.")
	r.Warnings = append(r.Warnings, warnings...)
	return r
}

// quantileOf is an objective's quantile among those that every step holds.
func quantileOf(s *measurement.StepResult, o measurement.Objective) *float64 {
	return map[string]map[float64]*float64{"ttft": {.5: s.TTFTP50, .95: s.TTFTP95, .99: s.TTFTP99}, "itl": {.5: s.ITLP50, .95: s.ITLP95, .99: s.ITLP99}}[o.Metric][o.Quantile]
}

// untold are the settings, by their names in JSON, that a file which is no record of ours leaves at nothing: they are unknown, not 0.
// How many turns a call has and how calls arrive are for the reader of the file to say.
func untold(c measurement.Config) []string {
	out := []string{"seed"} // beside the settings
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).IsZero() && !slices.Contains([]string{"turns", "arrivals", "load_of", "unknown", "slo", "rates_calls_per_s"}, name) {
			out = append(out, name)
		}
	}
	return out
}
