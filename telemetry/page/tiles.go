package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"kneefinder/measurement"
)

// tiles are the figures of now, which roll; of a run that has ended they are the last step's, and say so.
func (v *view) tiles(s *snapshot) {
	ended := tile{Name: "turns ended", Value: strconv.Itoa(s.totals.ended), Note: "measured and not"}
	if final(s.state) {
		v.Tiles = append(s.lastStepTiles(), ended)
		return
	}
	v.Tiles = append(s.rolling(), ended)
}

// rolling are the five figures that roll.
func (s *snapshot) rolling() []tile {
	b := s.last
	window := "last " + elapsed(s.reach)
	if s.reach < time.Second {
		window = "just begun"
	}
	rate := tile{Name: asked(s.run.Config), Value: none, Note: "no step runs"}
	if n := len(s.steps); n > 0 && s.steps[n-1].drains && s.steps[n-1].end < 0 {
		rate.Note = "no more calls arrive; those in progress end"
	}
	if s.asked > 0 {
		rate.Value, rate.Unit = digits(s.asked), unit(s.run.Config)
		switch {
		case closed(s.run.Config):
			rate.Note = "kept going"
		case s.state == Draining:
			rate.Note = "no more arrive; calls in progress end"
		case math.IsNaN(b.came):
			rate.Note = "too early to say what came"
		default:
			rate.Note = fmt.Sprintf("came %s, %s", digits(b.came), window)
		}
	}
	p95 := s.p95Tile(b.p95, window)
	hit := shareTile("cache hit rate", b.hit, window)
	errs := shareTile("errors", b.failed, window)
	live := tile{Name: "live calls", Value: digits(b.calls), Note: count(int(b.turns), "turn") + " in flight now"}
	return []tile{rate, p95, hit, live, errs}
}

func shareTile(name string, v float64, note string) tile {
	t := tile{Name: name, Value: percent(v), Unit: "%", Note: note}
	if t.Value == none {
		t.Unit = ""
	}
	return t
}

// p95Tile holds the P95 against its limit.
func (s *snapshot) p95Tile(v float64, of string) tile {
	t := tile{Name: "P95 TTFT", Value: digits(v), Unit: "ms", Note: of}
	if math.IsInf(v, 1) || math.IsNaN(v) {
		t.Unit = ""
	}
	if l, ok := s.ttftObjective(.95); ok && !math.IsNaN(v) {
		t.Mark, t.Note = "pass", fmt.Sprintf("within %s ms, %s", digits(l), of)
		if v > l {
			t.Mark, t.Note = "fail", fmt.Sprintf("over %s ms, %s", digits(l), of)
		}
	}
	return t
}

// lastStepTiles are the results of the last step that has any.
func (s *snapshot) lastStepTiles() []tile {
	var r measurement.StepResult
	of := "no step was measured"
	for i := range s.steps {
		if x := s.steps[i].result; x != nil {
			r, of = *x, "last step"
		}
	}
	rate := tile{Name: asked(s.run.Config), Value: none, Note: of}
	if r.Rate > 0 {
		rate.Value, rate.Unit = digits(r.Rate), unit(s.run.Config)
		if r.ArrivedRate != nil && !closed(s.run.Config) {
			rate.Note = fmt.Sprintf("came %s, %s", digits(*r.ArrivedRate), of)
		}
	}
	p95 := orNaN(r.TTFTP95)
	if r.TTFTP95 == nil && slices.Contains(r.Flags, measurement.FlagCensored) {
		p95 = math.Inf(1)
	}
	live := tile{Name: "live calls", Value: figure(r.LiveCallsMean, 1), Note: of}
	if r.LiveCallsMean != nil {
		live.Note = "mean, " + of
	}
	return []tile{rate, s.p95Tile(p95, of), shareTile("cache hit rate", orNaN(r.CacheHitRate), of), live, shareTile("errors", orNaN(r.ErrorRate), of)}
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// steadyTiles are those of a steady load: of now while it runs, of all of it when it has ended.
func (v *view) steadyTiles(s *snapshot) {
	t := &s.totals
	const since = "since the start"
	name := "within the objective"
	if o, ok := firstTTFT(s.slo); ok {
		name = fmt.Sprintf("TTFT within %s ms", digits(o.LimitMS))
	}
	if final(s.state) {
		v.Tiles = []tile{shareTile("cache hit rate", ratio(t.cached, t.prompt), since), shareTile("errors", ratio(t.failed, t.all), since)}
		if len(s.slo) > 0 {
			v.Tiles = append(v.Tiles, s.heldTile(name, ratio(t.held, t.later), since))
		}
	} else {
		v.Tiles = s.rolling()
		if len(s.slo) > 0 {
			v.Tiles = append(v.Tiles, s.heldTile(name, s.last.held, "last "+elapsed(s.window)))
		}
	}
	if final(s.state) || len(s.slo) == 0 {
		v.Tiles = append(v.Tiles, tile{Name: "turns ended", Value: strconv.Itoa(t.ended), Note: since})
	}
}

// heldTile is the share of turns within the first objective of TTFT, against the share that it asks for.
func (s *snapshot) heldTile(name string, share float64, of string) tile {
	t := shareTile(name, share, "turns 2.., "+of)
	o, ok := firstTTFT(s.slo)
	if !ok || math.IsNaN(share) {
		return t
	}
	t.Mark = "pass"
	if share < o.Quantile {
		t.Mark = "fail"
	}
	return t
}

// since says what a steady load has been like since its start.
func (v *view) since(s *snapshot) {
	t := &s.totals
	if o, ok := firstTTFT(s.slo); ok {
		say := func(share float64, of string) {
			if math.IsNaN(share) {
				return
			}
			v.Held = append(v.Held, fmt.Sprintf("%s %% of turns 2.. came within %s ms %s (asked: %s %%).", percent(share), digits(o.LimitMS), of,
				strconv.FormatFloat(math.Round(o.Quantile*1e6)/1e4, 'f', -1, 64)))
		}
		say(ratio(t.held, t.later), "since the start")
		if !final(s.state) {
			say(s.last.held, "in the last "+elapsed(s.reach))
		}
	}
	all := 0
	var names []measurement.Outcome
	for o, n := range t.outcomes {
		all += n
		names = append(names, o)
	}
	slices.SortFunc(names, func(a, b measurement.Outcome) int {
		if n := t.outcomes[b] - t.outcomes[a]; n != 0 {
			return n
		}
		if a < b {
			return -1
		}
		return 1
	})
	for _, o := range names {
		v.Outcomes = append(v.Outcomes, outcome{string(o), outcomeMeaning(o), strconv.Itoa(t.outcomes[o]), percent(ratio(t.outcomes[o], all)) + " %"})
	}
}
