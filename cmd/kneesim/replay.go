package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
)

// replay sends a recorded run's turns to the engine model at the instants at which they were really sent, and sets the
// predicted TTFT beside the measured one.
func (s *simulate) replay(ctx context.Context, flags []*kong.Flag, std cli.Streams) error {
	if names := unusedBy(flags, func(name string) bool { return slices.Contains(promptFlags, name) }); len(names) > 0 {
		return cli.Usage("%s: of no use with --replay, which sends the turns of the log to one engine: leave %s out", strings.Join(names, ", "), pronoun(names))
	}
	log, err := measurement.OpenLog(s.Replay)
	if err != nil {
		return err
	}
	from := promptsFrom(log.Header.Config)
	if names := unusedBy(flags, func(name string) bool { return slices.Contains(from, name) }); len(names) > 0 {
		return cli.Usage("%s: the prompts of %s do not come from there: leave %s out", strings.Join(names, ", "), s.Replay, pronoun(names))
	}
	if s.Preset != "" {
		log.Header.Config.Preset = s.Preset // whose model and GPU are then those of the engine
	}
	if err := s.modelled(log.Header.Config.Preset); err != nil {
		return err
	}
	r, err := Replay(ctx, log, s.Recipe, s.Workload)
	if err != nil {
		return err
	}
	r.print(std.Out, s.Replay)
	return nil
}

// given are the flags of the command line, not those of the environment or a --config file, which may be for other commands.
func given(line *kong.Context) (flags []*kong.Flag) {
	for _, part := range line.Path {
		if part.Flag != nil && !part.Resolved {
			flags = append(flags, part.Flag)
		}
	}
	return flags
}

// promptFlags are those that name whence prompts come.
var promptFlags = []string{"trace", "trace-block", "transcripts", "prompt-tokens", "output-tokens"}

// promptsFrom are those of them that a replay of such a log reads.
func promptsFrom(c measurement.Config) []string {
	switch {
	case c.Trace != "":
		return []string{"trace", "trace-block"}
	case c.Lone() && (strings.HasPrefix(c.PromptLengths, "empirical") || strings.HasPrefix(c.OutputLengths, "empirical")):
		return []string{"prompt-tokens", "output-tokens"}
	case c.Transcripts != "":
		return []string{"transcripts"}
	case strings.HasPrefix(c.OutputLengths, "empirical"):
		return []string{"output-tokens"}
	}
	return nil
}

// unusedBy are the flags that change nothing of a replay: all but the engine's and those that ok knows.
func unusedBy(flags []*kong.Flag, ok func(name string) bool) (names []string) {
	for _, f := range flags {
		of := f.Group != nil && f.Group.Key == "recipe" && f.Name != "ttft-timeout" && f.Name != "total-timeout"
		if of || f.Name == "replay" || f.Name == "preset" || f.Name == "config" || ok(f.Name) || slices.Contains(names, "--"+f.Name) {
			continue
		}
		names = append(names, "--"+f.Name)
	}
	return names
}

func pronoun(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}

// agreement is how near a replayed run comes to the recorded one.
type agreement struct {
	engine      engine.Config
	load        measurement.Config // what the log's load counts
	fleet       bool               // the log is of several engines
	turns       int                // with a first token in both
	close       float64            // share within max(5 ms, 5 %)
	cached      float64            // share with the same cached tokens, within 1 %
	hits        float64            // share that hit the prefix cache in both or in neither
	median, p95 float64            // of the difference, and of its size, ms
	steps       []stepAgreement
}

// stepAgreement is the same of one step's turns behind the first of their call.
type stepAgreement struct {
	step                int
	rate                float64
	turns               int
	hits                float64
	measured, predicted side
}

// side is what one of the two says.
type side struct{ hitRate, p50, p95 float64 }

func (a agreement) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%d turns of %s replayed on %s, %s.\n", a.turns, name, a.engine.Model.Name, a.engine.GPU.Name)
	if a.fleet {
		fmt.Fprintln(w, "The log is of a fleet; here one engine gets all of its turns.")
	}
	fmt.Fprintf(w, "TTFT from sent, predicted less measured: median %.1f ms, P95 of the difference %.1f ms.\n", a.median, a.p95)
	fmt.Fprintf(w, "%.1f %% of the turns agree within the larger of 5 ms and 5 %%. Cached tokens agree on %.1f %%. Hit or miss agrees on %.1f %%.\n\n",
		100*a.close, 100*a.cached, 100*a.hits)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	unit, what, behind := "calls/s", "turns", " behind the first of their call,"
	if a.load.LoadOf == measurement.Requests {
		unit, what, behind = "requests/s", "requests", ""
	}
	if a.load.Arrivals == "closed" {
		unit = strings.TrimSuffix(unit, "/s") + " at once"
	}
	fmt.Fprintln(t, unit+"\t"+what+"\thit rate\tpredicted\thit or miss agrees\tTTFT P50 ms\tpredicted\tTTFT P95 ms\tpredicted\t")
	for _, s := range a.steps {
		fmt.Fprintf(t, "%g\t%d\t%.3f\t%.3f\t%.1f %%\t%.0f\t%.0f\t%.0f\t%.0f\t\n", s.rate, s.turns, s.measured.hitRate, s.predicted.hitRate, 100*s.hits,
			s.measured.p50, s.predicted.p50, s.measured.p95, s.predicted.p95)
	}
	t.Flush()
	fmt.Fprintf(w, "\nThe table counts the %s%s of whole steps, with warm-up and drain, which a sweep's figures leave out. TTFT runs from sent.\n", what, behind)
	fmt.Fprintln(w, "A hit finds at least half of its prompt cached.")
}

// Replay predicts the turns of a log; the engine is the one that the flags name, by default the preset's of the log. Files from which
// the log's prompts come are those that the flags of a workload name.
func Replay(ctx context.Context, log measurement.Log, engineFlags recipe.Recipe, files cli.Workload) (agreement, error) {
	c := log.Header.Config
	cfg, err := engineFlags.Config(c.Preset)
	if err != nil {
		return agreement{}, cli.Usage("%w", err)
	}
	nonce, err := strconv.ParseUint(log.Header.Nonce, 16, 64)
	if err != nil || log.Header.Engine.Calibration == nil {
		return agreement{}, fmt.Errorf("the log's header has no nonce or no calibration, so its prompts cannot be drawn again")
	}
	gen, err := files.Again(c, log.Header.Seed, nonce)
	if err != nil {
		return agreement{}, err
	}
	// Lengths are those of the log in tokens; the model's tokenizer makes one of each word, whatever the server's did.
	cal := measurement.Calibration{Overhead: float64(simulation.Overhead(&gen.Script)), TokensPerWord: 1}
	script := generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens}, cal)
	eng, err := engine.New(cfg)
	if err != nil {
		return agreement{}, err
	}
	clk, endpoint := simulation.NewRun(eng, script.Lexicon, generator.Limits{})
	var predicted []measurement.Turn
	clk.Run(ctx, func() {
		predicted = simulation.Replay(ctx, clk, endpoint, script, c.OutputTokens, log.Turns)
	})
	return compare(cfg, log, predicted), ctx.Err()
}

func compare(cfg engine.Config, log measurement.Log, predicted []measurement.Turn) agreement {
	type key struct{ call, turn int }
	was := map[key]measurement.Turn{}
	for _, t := range log.Turns {
		was[key{t.Call, t.Turn}] = t
	}
	a := agreement{engine: cfg, load: log.Header.Config}
	_, a.fleet = log.Header.Engine.Details["fleet"]
	steps := map[int]*pairs{}
	var all pairs
	for _, p := range predicted {
		m := was[key{p.Call, p.Turn}]
		if !all.add(m, p) {
			continue
		}
		if p.Turn > 1 {
			if steps[p.Step] == nil {
				steps[p.Step] = &pairs{}
			}
			steps[p.Step].add(m, p)
		}
	}
	a.turns = len(all.measured)
	var diff, size []float64
	for i, m := range all.measured {
		d := all.predicted[i] - m
		if math.Abs(d) <= max(5, m/20) {
			a.close++
		}
		diff, size = append(diff, d), append(size, math.Abs(d))
	}
	slices.Sort(diff)
	slices.Sort(size)
	a.median, a.p95 = measurement.Quantile(diff, .5), measurement.Quantile(size, .95)
	a.close /= float64(max(1, a.turns))
	a.cached = float64(all.same) / float64(max(1, all.known))
	a.hits = float64(all.agree) / float64(max(1, all.known))
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		n := steps[step]
		a.steps = append(a.steps, stepAgreement{step: step, rate: rateOf(log, step), turns: len(n.measured), hits: float64(n.agree) / float64(max(1, n.known)),
			measured: n.side(n.measured, n.wasCached), predicted: n.side(n.predicted, n.isCached)})
	}
	return a
}

// rateOf is the rate of a step of the log.
func rateOf(log measurement.Log, step int) float64 {
	for _, s := range log.Steps {
		if s.Step == step {
			return s.Rate
		}
	}
	return 0
}

// pairs are turns that were measured and predicted.
type pairs struct {
	measured, predicted         []float64 // TTFT from sent, ms
	known, same, agree          int       // turns whose cached tokens both know; with as many; that hit in both or in neither
	prompt, wasCached, isCached int       // tokens of those that are known
}

// add reports whether both have a first token.
func (n *pairs) add(m, p measurement.Turn) bool {
	mt, ok := m.TTFTSent()
	pt, ok2 := p.TTFTSent()
	if !ok || !ok2 {
		return false
	}
	n.measured, n.predicted = append(n.measured, float64(mt)/1e6), append(n.predicted, float64(pt)/1e6)
	if m.CachedTokens < 0 || m.PromptTokens < 1 {
		return true
	}
	n.known++
	n.prompt += m.PromptTokens
	n.wasCached += m.CachedTokens
	n.isCached += p.CachedTokens * m.PromptTokens / max(1, p.PromptTokens) // as a part of the prompt
	if delta := m.CachedTokens - p.CachedTokens; max(delta, -delta) <= m.PromptTokens/100 {
		n.same++
	}
	if (2*m.CachedTokens >= m.PromptTokens) == (2*p.CachedTokens >= p.PromptTokens) {
		n.agree++
	}
	return true
}

func (n *pairs) side(ttft []float64, cached int) side {
	sorted := slices.Sorted(slices.Values(ttft))
	return side{float64(cached) / float64(max(1, n.prompt)), measurement.Quantile(sorted, .5), measurement.Quantile(sorted, .95)}
}
