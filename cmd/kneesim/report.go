package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// reportSchema names the format of --json.
const reportSchema = "kneefinder/simulation/v1"

// reporting is the flags of what is shown of a simulated run.
type reporting struct {
	Detail    cli.Rates `help:"Loads to show in full, of those that were tried the nearest; by default that of the SLO knee, or the lowest." placeholder:"RATE,..." group:"output"`
	JSON      string    `name:"json" help:"Write the whole report to this file too, as JSON; -: to standard output, instead of the text." placeholder:"FILE" group:"output"`
	DumpSteps string    `help:"Write every step of the engine to this file, as JSON Lines: what was in its batch, and how full steps were. For a load or two: it is long." placeholder:"FILE" group:"output"`
}

// check refuses files that would be written over each other or over the run's own.
func (p *reporting) check(o cli.Output) error {
	own := filepath.Join(o.Out, o.Label)
	for _, f := range []struct{ flag, path string }{{"--json", p.JSON}, {"--dump-steps", p.DumpSteps}} {
		if f.path == "" || f.path == "-" {
			continue
		}
		for _, ext := range []string{".turns.jsonl", ".json", ".csv", ".png", ".hlog"} {
			if filepath.Clean(f.path) == filepath.Clean(own+ext) {
				return cli.Usage("%s %s is a file of the run itself: choose another name, or another --label", f.flag, f.path)
			}
		}
	}
	switch {
	case p.DumpSteps == "-":
		return cli.Usage("--dump-steps -: steps go to a file, such as steps.jsonl")
	case p.JSON != "" && p.JSON != "-" && filepath.Clean(p.JSON) == filepath.Clean(p.DumpSteps):
		return cli.Usage("--json and --dump-steps both name %s: give each its own file", p.JSON)
	}
	return nil
}

// text writes what a person reads.
func (p *reporting) text(w io.Writer, r measurement.Results) {
	analysis.Summary(w, r)
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprintln(w)
	analysis.Waits(w, r)
	for _, i := range p.detailed(r) {
		fmt.Fprintln(w)
		analysis.Detail(w, r, r.Steps[i])
	}
}

// detailed are the steps to show in full.
func (p *reporting) detailed(r measurement.Results) (out []int) {
	asked := []float64(p.Detail)
	switch k := r.Knees.SLO; {
	case len(asked) > 0:
	case k.Rate != nil:
		asked = []float64{*k.Rate}
	default:
		asked = []float64{math.Inf(-1)}
	}
	for _, load := range asked {
		nearest := 0
		for i, s := range r.Steps {
			if math.IsInf(load, -1) && s.Rate < r.Steps[nearest].Rate || math.Abs(s.Rate-load) < math.Abs(r.Steps[nearest].Rate-load) {
				nearest = i
			}
		}
		if i, _ := analysis.StandsFor(r.Steps, r.Steps[nearest].Rate); i >= 0 {
			nearest = i
		}
		if !slices.Contains(out, nearest) {
			out = append(out, nearest)
		}
	}
	return out
}

// runReport is the whole report.
type runReport struct {
	Schema    string                `json:"schema"`
	Label     string                `json:"label"`
	Config    measurement.Config    `json:"config"`
	Engine    measurement.Engine    `json:"engine"`
	Seed      uint64                `json:"seed"`
	Steps     []loadReport          `json:"steps"` // in the order they were run
	Knees     measurement.Knees     `json:"knees"`
	Mechanism measurement.Mechanism `json:"mechanism"`
	Warnings  []string              `json:"warnings"`
	Fleet     *fleetReport          `json:"fleet,omitempty"`
}

// loadReport is one load. Shares go from 0 to 1; what is not known is null.
type loadReport struct {
	Rate            float64              `json:"rate_calls_per_s"`
	ArrivedRate     *float64             `json:"arrived_calls_per_s"`
	WindowS         float64              `json:"window_s"`
	MeasuredTurns   int                  `json:"measured_turns"`
	Errors          int                  `json:"errors"`
	Verdict         measurement.Verdict  `json:"verdict"`
	Flags           []string             `json:"flags"`
	LiveCallsMean   *float64             `json:"live_calls_mean"`
	ThroughputTurns *float64             `json:"throughput_turns_s"`
	OutputTokens    *float64             `json:"output_tok_s"`
	Times           *measurement.Times   `json:"times"`
	Packing         *measurement.Packing `json:"packing"`
	PrefillBusy     *float64             `json:"prefill_busy"`
	DecodeBusy      *float64             `json:"decode_busy"`
	KV              cacheUse             `json:"kv"`
	Hits            hits                 `json:"cache_hit_rate"`
	Saturation      overload             `json:"saturation"`
}

type cacheUse struct {
	PoolTokens  *float64 `json:"pool_tokens"`
	UsedMean    *float64 `json:"used_mean"`
	UsedPeak    *float64 `json:"used_peak"`
	CachedMean  *float64 `json:"cached_mean"`
	EvictedRate *float64 `json:"evicted_tok_s"`
	Retractions *float64 `json:"retractions"`
}

type hits struct {
	Measured *float64                    `json:"measured_turns"`
	All      *float64                    `json:"all_requests"`
	Replicas []measurement.ReplicaResult `json:"replicas,omitempty"`
}

type overload struct {
	Saturated  *bool    `json:"saturated"`
	Completed  *float64 `json:"completed_per_arrived"`
	QueueSlope *float64 `json:"queue_slope_per_s"`
	Why        string   `json:"why"`
}

func newRunReport(r measurement.Results) runReport {
	s := runReport{Schema: reportSchema, Label: r.Label, Config: r.Config, Engine: r.Engine, Seed: r.Seed, Steps: []loadReport{},
		Knees: r.Knees, Mechanism: r.Mechanism, Warnings: r.Warnings}
	for _, step := range r.Steps {
		e := step.Engine
		if e == nil {
			e = &measurement.EngineResult{}
		}
		o := analysis.OverloadOf(r, step)
		x := loadReport{Rate: step.Rate, ArrivedRate: step.ArrivedRate, WindowS: step.WindowS, MeasuredTurns: step.MeasuredTurns, Errors: step.Errors,
			Verdict: step.Verdict, Flags: step.Flags, LiveCallsMean: step.LiveCallsMean, ThroughputTurns: step.ThroughputTurns, OutputTokens: step.OutputTokens,
			Times: step.Times, Packing: e.Packing, PrefillBusy: e.PrefillBusy, DecodeBusy: e.DecodeBusy,
			KV: cacheUse{PoolTokens: e.KVPool, UsedMean: e.KVUsageMean, UsedPeak: e.KVPeak, CachedMean: analysis.OfPool(e, e.KVCached),
				EvictedRate: e.EvictedRate, Retractions: e.Retractions},
			Hits:       hits{Measured: step.CacheHitRate, All: e.CacheHitRate, Replicas: e.Replicas},
			Saturation: overload{Completed: step.SaturationRatio, QueueSlope: e.QueuedSlope, Why: o.Why}}
		if o.Known {
			x.Saturation.Saturated = &o.Saturated
		}
		s.Steps = append(s.Steps, x)
	}
	return s
}

// writeJSON writes the report as indented JSON.
func writeJSON(w io.Writer, r measurement.Results, of *fleetReport) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	report := newRunReport(r)
	report.Fleet = of
	if err := enc.Encode(report); err != nil {
		return fmt.Errorf("write the report of %s: %w", r.Label, err)
	}
	return nil
}
