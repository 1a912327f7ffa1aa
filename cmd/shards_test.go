package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
)

// The logs of three shards that load one engine together, joined, are in every count, percentile and verdict the log of one
// process that sends the union of their arrivals.
func TestMergedShardsEqualOneProcess(t *testing.T) {
	const shards, rate = 3, 4.
	l, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	config := measurement.Config{Rates: []float64{rate}, SystemPromptTokens: 2700, UserTokens: 60, Turns: 4, OutputTokens: 16, GapMinSeconds: .4,
		GapMaxSeconds: .8, MinTurns: 60, SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}}
	base := generator.Config{Script: workload.Script{Nonce: 42, Seed: 3, Lexicon: l, SystemWords: 2700, UserWords: 60,
		GapMin: 400 * time.Millisecond, GapMax: 800 * time.Millisecond}, Turns: 4, OutputTokens: 16, Warmup: 3 * time.Second,
		StepDuration: 30 * time.Second, MaxStepDuration: time.Minute, Drain: time.Minute, MinTurns: 60, MaxConcurrentCalls: 400}
	header := func(shard string) measurement.Header {
		return measurement.Header{Label: "x", Tool: "test", Config: config, Seed: 3, Nonce: "2a", Shard: shard}
	}
	type process struct {
		gen generator.Config
		log bytes.Buffer
		rec *measurement.LogWriter
	}
	run := func(ps []*process, shardOf func(i int) string) []measurement.Log {
		eng, err := engine.New(demoEngine(t))
		if err != nil {
			t.Fatal(err)
		}
		clk, to := simulation.NewRun(eng, l, generator.Limits{})
		clk.Run(t.Context(), func() {
			for i, p := range ps {
				p.rec = measurement.NewLogWriter(&p.log, false)
				p.rec.Header(header(shardOf(i)))
				clk.Go(fmt.Sprint("process ", i), func() {
					if err := generator.Sweep(t.Context(), clk, to, logged{p.rec}, p.gen, nil, generator.Rates([]float64{rate})); err != nil {
						t.Error(err)
					}
				})
			}
		})
		var logs []measurement.Log
		for i, p := range ps {
			p.rec.Flush()
			log, err := measurement.ReadLog(&p.log, fmt.Sprint("shard ", i))
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, log)
		}
		return logs
	}

	var several []*process
	for i := range shards {
		g := base
		g.Process = workload.Process{Shard: i, Shards: shards}
		several = append(several, &process{gen: g})
	}
	merged, err := analysis.Merge(run(several, func(i int) string { return fmt.Sprintf("%d/%d", i, shards) }))
	if err != nil {
		t.Fatal(err)
	}

	var union []workload.Arrival
	for i := range shards {
		arrivals := workload.Process{Shard: i, Shards: shards}.Arrivals(3, 0, rate)
		for {
			a, _ := arrivals.Next()
			if a.At > 2*time.Minute {
				break
			}
			union = append(union, a)
		}
	}
	slices.SortFunc(union, func(a, b workload.Arrival) int { return int(a.At - b.At) })
	one := base
	one.Process = workload.Process{Kind: "recorded", Recorded: union}
	single := run([]*process{{gen: one}}, func(int) string { return "" })[0]

	if a, b := len(merged.Turns), len(single.Turns); a != b || a < 400 {
		t.Errorf("%d turns in the merged logs, %d in the one", a, b)
	}
	want, got := analysis.Analyze(single), analysis.Analyze(merged)
	if d := cmp.Diff(asMap(t, want), asMap(t, got), cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) })); d != "" {
		t.Errorf("results (-one process +merged shards):\n%s", d)
	}
	if got.Steps[0].MeasuredTurns < 300 || got.Steps[0].Verdict == measurement.Undecided && len(got.Steps[0].Flags) == 0 {
		t.Errorf("the comparison shows little: %+v", got.Steps[0])
	}
}

// logged writes what an observer is told into a log.
type logged struct{ *measurement.LogWriter }

func (logged) InFlight(time.Duration, int, int) {}

func asMap(t *testing.T, r measurement.Results) map[string]any {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
