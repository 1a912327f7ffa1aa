package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kneefinder/measurement"
)

const (
	seriesBins  = 150 // of lines over time
	mostDots    = 16_000
	cachedShare = .5 // a turn with less of its prompt cached missed its prefix
)

// over is a stretch of time as the x of a stack.
type over struct{ from, to time.Duration }

func (o over) at(t time.Duration) float64 { return float64(t-o.from) / float64(o.to-o.from) }

// whole is the time from a step's start until its last turn ended.
func (s *step) whole() over {
	o := over{from: s.log.Start, to: max(s.log.Start+time.Second, s.log.WindowEnd, s.log.DrainEnd)}
	for _, t := range s.turns {
		o.to = max(o.to, t.Due, t.End)
	}
	return o
}

// story draws what happened within a step over time: every turn's wait, the hit rate, the load, and what the engine said of itself.
// Turns that share a pixel share a dot; thinned says that, to stay within dots, places a few pixels apart share one too.
func story(r *measurement.Results, s *step, y scale, dots int) (out string, thinned bool) {
	if s.log == nil || s.log.WindowStart < 0 {
		return `<p class="empty">This step was cut before its window began.</p>`, false
	}
	o := s.whole()
	length := seconds(o.to - o.from)
	end := s.log.WindowEnd
	if end < 0 {
		end = o.to
	}
	shades := []shade{{0, o.at(s.log.WindowStart), "outside"}, {o.at(end), 1, "outside"}}
	uprights := []upright{{at: o.at(s.log.WindowStart), class: "bound"}, {at: o.at(end), class: "bound"}}

	var b strings.Builder
	b.WriteString(`<div class="stack">`)
	var p panel
	p, thinned = s.waitsOverTime(r, o, y, dots)
	p.shades, p.uprights = shades, uprights
	p.draw(&b)
	for _, q := range append([]panel{s.hitsOverTime(o), s.flightOverTime(o)}, enginePanels(s, o)...) {
		if q.height > 0 {
			q.shades, q.uprights = shades, uprights
			q.draw(&b)
		}
	}
	axis(&b, clockTicks(length), "time since the step began, min:s; shaded: warm-up and drain, which do not count")
	b.WriteString(`</div>`)
	return b.String(), thinned
}

// waitsOverTime is the TTFT of every turn when it was due.
func (s *step) waitsOverTime(r *measurement.Results, o over, y scale, most int) (panel, bool) {
	p := panel{name: "TTFT of every turn", note: "ms, log", height: 180, head: 12, y: y}
	clouds := []cloud{{name: "first turn, cold by design", class: "first"}, {name: "prefix cached", class: "c1"}, {name: "cached tokens unknown", class: "c1"}, {name: "prefix missed", class: "c2 square"}, {name: "no token", class: "gone square"}}
	const first, hit, unknown, miss, gone = 0, 1, 2, 3, 4
	counts := make([]int, len(clouds))
	kind := func(t *measurement.Turn) int {
		switch _, ok := t.TTFT(); {
		case t.Outcome == measurement.NotSent || t.Due < 0:
			return -1
		case !ok && t.Outcome.Failed() && t.Outcome != measurement.Canceled:
			return gone
		case !ok:
			return -1
		case t.Turn == 1:
			return first
		case t.CachedTokens < 0 || t.PromptTokens <= 0:
			return unknown
		case float64(t.CachedTokens) < cachedShare*float64(t.PromptTokens):
			return miss
		}
		return hit
	}
	place := func(t *measurement.Turn, k int) dot {
		d := dot{x: int(min(max(o.at(t.Due), 0), 1) * wide), y: 4}
		if k != gone {
			w, _ := t.TTFT()
			d.y = int(math.Round(p.top(millis(w))))
		}
		return d
	}
	late, limit, limited := 0, measurement.Objective{}, false
	if limit, limited = limitMS(r.Config.SLO); limited {
		p.levels = []level{{limit.LimitMS, "SLO " + waits(limit.LimitMS)}}
	}
	for _, t := range s.turns {
		if k := kind(t); k >= 0 {
			counts[k]++
			if w, ok := t.TTFT(); ok && k != first && s.measured(t) && millis(w) > limit.LimitMS {
				late++
			}
		}
	}
	coarse := 1
	for ; ; coarse *= 2 {
		total := 0
		taken := make([][]bool, len(clouds))
		cols, rows := wide/coarse+1, p.height/coarse+1
		for _, t := range s.turns {
			k := kind(t)
			if k < 0 {
				continue
			}
			if taken[k] == nil {
				taken[k] = make([]bool, cols*rows)
			}
			d := place(t, k)
			if cell := d.x/coarse*rows + d.y/coarse; !taken[k][cell] {
				taken[k][cell] = true
				total++
			}
		}
		if total > most && coarse < 64 {
			continue
		}
		for k := range clouds {
			for cell, is := range taken[k] {
				if is {
					clouds[k].at = append(clouds[k].at, dot{min(cell/rows*coarse+coarse/2, wide), min(cell%rows*coarse+coarse/2, p.height)})
				}
			}
		}
		break
	}
	for k := range clouds {
		if counts[k] > 0 {
			clouds[k].now = thousands(counts[k])
			p.dots = append(p.dots, clouds[k])
		}
	}
	p.desc = fmt.Sprintf("Step of %s: %s measured turns, P50 %s ms, P95 %s ms; %d over the limit; %d without a token.", at(r.Config, s.Rate), thousands(s.MeasuredTurns),
		figure(s.TTFTP50, 1), figure(s.TTFTP95, 1), late, counts[gone])
	return p, coarse > 1
}

// hitsOverTime is the hit rate of later turns by when they were due; no panel where nothing is known.
func (s *step) hitsOverTime(o over) panel {
	known := 0
	counts := func(t *measurement.Turn) bool {
		return t.Turn > 1 && t.Due >= 0 && t.CachedTokens >= 0 && t.PromptTokens > 0 && t.CachedTokens <= t.PromptTokens
	}
	for _, t := range s.turns {
		if counts(t) {
			known++
		}
	}
	if known == 0 {
		return panel{}
	}
	bins := min(max(known/6, 6), seriesBins)
	cached, prompt := make([]float64, bins), make([]float64, bins)
	for _, t := range s.turns {
		if counts(t) {
			i := min(max(int(o.at(t.Due)*float64(bins)), 0), bins-1)
			cached[i] += float64(t.CachedTokens)
			prompt[i] += float64(t.PromptTokens)
		}
	}
	line := trace{class: "c3"}
	lowest := math.Inf(1)
	for i := range bins {
		if prompt[i] == 0 { // no turn was due: the line goes on to the next
			continue
		}
		v := 100 * cached[i] / prompt[i]
		lowest = min(lowest, v)
		line.x, line.y = append(line.x, (float64(i)+.5)/float64(bins)), append(line.y, v)
	}
	return panel{name: "Cache hit rate", note: fmt.Sprintf("%% of the prompt tokens of turns 2.. due in %s", elapsed(seconds(o.to-o.from)/float64(bins))),
		desc: fmt.Sprintf("The lowest is %s %%.", digits(lowest)), height: 66, head: 6, y: percents(), lines: []trace{line}}
}

// occupancy adds up how many things go on, as a mean over each of n equal stretches.
type occupancy struct{ part, step []float64 }

func newOccupancy(n int) *occupancy {
	return &occupancy{make([]float64, n), make([]float64, n+1)}
}

// add counts one thing that goes on from one share of the whole to another.
func (o *occupancy) add(from, to float64) {
	n := float64(len(o.part))
	from, to = min(max(from, 0), 1)*n, min(max(to, 0), 1)*n
	if !(to > from) {
		return
	}
	i, j := min(int(from), len(o.part)-1), min(int(to), len(o.part)-1)
	if i == j {
		o.part[i] += to - from
		return
	}
	o.part[i] += float64(i+1) - from
	o.part[j] += to - float64(j)
	o.step[i+1]++
	o.step[j]--
}

func (o *occupancy) means() []float64 {
	out, whole := make([]float64, len(o.part)), 0.
	for i := range out {
		whole += o.step[i]
		out[i] = whole + o.part[i]
	}
	return out
}

// flightOverTime is how many calls and turns were in progress: a call from its first turn's request to its last turn's end.
func (s *step) flightOverTime(o over) panel {
	type life struct{ from, to time.Duration }
	alive := map[int]life{}
	calls, turns := newOccupancy(seriesBins), newOccupancy(seriesBins)
	for _, t := range s.turns {
		if t.Sent < 0 || t.End < t.Sent {
			continue
		}
		turns.add(o.at(t.Sent), o.at(t.End))
		l, ok := alive[t.Call]
		if !ok {
			l = life{t.Sent, t.End}
		}
		alive[t.Call] = life{min(l.from, t.Sent), max(l.to, t.End)}
	}
	if len(alive) == 0 {
		return panel{}
	}
	ids := make([]int, 0, len(alive))
	for id := range alive {
		ids = append(ids, id)
	}
	slices.Sort(ids) // sums of floats keep one order
	for _, id := range ids {
		calls.add(o.at(alive[id].from), o.at(alive[id].to))
	}
	c, t := calls.means(), turns.means()
	x := middles(seriesBins)
	most := max(slices.Max(c), slices.Max(t))
	return panel{name: "In progress", note: "means over " + elapsed(seconds(o.to-o.from)/seriesBins), height: 84, head: 6, y: linear(most, 2),
		desc:  fmt.Sprintf("At most %s calls at once.", digits(slices.Max(c))),
		lines: []trace{{name: "calls", class: "c1", x: x, y: c}, {name: "turns", class: "c2 dash", x: x, y: t}}}
}

// middles are those of n equal stretches.
func middles(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = (float64(i) + .5) / float64(n)
	}
	return out
}
