package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
)

// replay sends a recorded run's turns to the engine model at the instants at which they were really sent, and sets the
// predicted TTFT beside the measured one.
func (s *simulate) replay(ctx context.Context, std cli.Streams) error {
	log, err := measurement.OpenLog(s.Replay)
	if err != nil {
		return err
	}
	r, err := Replay(ctx, log, s.Recipe)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "%d turns of %s replayed on %s, %s.\n", r.turns, s.Replay, r.engine.Model.Name, r.engine.GPU.Name)
	fmt.Fprintf(std.Out, "TTFT from sent, predicted less measured: median %.1f ms, P95 of the difference %.1f ms.\n", r.median, r.p95)
	fmt.Fprintf(std.Out, "%.1f %% of the turns agree within the larger of 5 ms and 5 %%. Cached tokens agree on %.1f %%.\n", 100*r.close, 100*r.cached)
	return nil
}

// agreement is how near a replayed run comes to the recorded one.
type agreement struct {
	engine      engine.Config
	turns       int     // with a first token in both
	close       float64 // share within max(5 ms, 5 %)
	cached      float64 // share with the same cached tokens, within 1 %
	median, p95 float64 // of the difference, and of its size, ms
}

// Replay predicts the turns of a log; the engine is the one that the flags name, by default the preset's of the log.
func Replay(ctx context.Context, log measurement.Log, engineFlags recipe.Recipe) (agreement, error) {
	c := log.Header.Config
	cfg, err := engineFlags.Engine(c.Preset)
	if err != nil {
		return agreement{}, cli.Usage("%w", err)
	}
	nonce, err := strconv.ParseUint(log.Header.Nonce, 16, 64)
	if err != nil || log.Header.Engine.Calibration == nil {
		return agreement{}, fmt.Errorf("the log's header has no nonce or no calibration, so its prompts cannot be drawn again")
	}
	gen, err := cli.Generator(c, log.Header.Seed, nonce)
	if err != nil {
		return agreement{}, err
	}
	script := generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens}, *log.Header.Engine.Calibration)
	eng, err := engine.New(cfg)
	if err != nil {
		return agreement{}, err
	}
	clk, endpoint := simulation.NewRun(eng, script.Lexicon, generator.Limits{})
	var predicted []measurement.Turn
	clk.Run(ctx, func() {
		predicted = simulation.Replay(ctx, clk, endpoint, script, c.OutputTokens, log.Turns)
	})
	return compare(cfg, log.Turns, predicted), ctx.Err()
}

func compare(cfg engine.Config, measured, predicted []measurement.Turn) agreement {
	type key struct{ call, turn int }
	was := map[key]measurement.Turn{}
	for _, t := range measured {
		was[key{t.Call, t.Turn}] = t
	}
	a := agreement{engine: cfg}
	var diff, size []float64
	cached, known := 0, 0
	for _, p := range predicted {
		m := was[key{p.Call, p.Turn}]
		mt, ok := m.TTFTSent()
		pt, ok2 := p.TTFTSent()
		if !ok || !ok2 {
			continue
		}
		a.turns++
		d := pt - mt
		if d.Abs() <= max(5*time.Millisecond, mt/20) {
			a.close++
		}
		diff = append(diff, float64(d)/1e6)
		size = append(size, math.Abs(float64(d)/1e6))
		if m.CachedTokens >= 0 {
			known++
			if delta := m.CachedTokens - p.CachedTokens; max(delta, -delta) <= m.PromptTokens/100 {
				cached++
			}
		}
	}
	slices.Sort(diff)
	slices.Sort(size)
	a.median, a.p95 = measurement.Quantile(diff, .5), measurement.Quantile(size, .95)
	a.close /= float64(max(1, a.turns))
	a.cached = float64(cached) / float64(max(1, known))
	return a
}
