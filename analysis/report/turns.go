package report

import (
	"fmt"
	"math"
	"strings"

	"kneefinder/measurement"
)

const mostTurnIndices = 60

// byTurn draws TTFT and hit rate by the turn's number within its call, for the steps on the two sides of the knee.
func byTurn(r *measurement.Results, ss []step, pass, fail int) string {
	type line struct {
		s     *measurement.StepResult
		class string
	}
	var lines []line
	for _, k := range []struct {
		i     int
		class string
	}{{pass, "c1"}, {fail, "c2"}} {
		if k.i >= 0 && len(ss[k.i].ByTurn) > 0 {
			lines = append(lines, line{ss[k.i].StepResult, k.class})
		}
	}
	last := 0
	var values []float64
	for _, l := range lines {
		for _, t := range l.s.ByTurn {
			if t.Turn > 0 && t.Turn <= mostTurnIndices {
				last = max(last, t.Turn)
				values = append(values, value(t.TTFTP50), value(t.TTFTP95))
			}
		}
	}
	if r.Config.Lone() {
		return `<p class="empty">Each request is a call of one turn.</p>`
	}
	if last == 0 {
		return `<p class="empty">Nothing is known by turn.</p>`
	}
	limit, limited := limitMS(r.Config.SLO)
	if limited {
		values = append(values, limit.LimitMS)
	}
	x := func(turn int) float64 { return (float64(turn) - .5) / float64(last) }
	lo, hi := span(values)
	p := panel{name: "TTFT by turn of the call", note: "ms, log; turn 1 only warms the cache and is not measured", height: 190, head: 12, y: logarithmic(lo, hi, 7)}
	h := panel{name: "Cache hit rate by turn", note: "% of prompt tokens", height: 90, head: 8, y: percents()}
	if limited {
		p.levels = []level{{limit.LimitMS, "SLO " + waits(limit.LimitMS)}}
	}
	var said []string
	for i, l := range lines {
		name := fmt.Sprintf("%s (%s)", at(r.Config, l.s.Rate), l.s.Verdict)
		var low, high, hits trace
		low, high, hits = trace{name: name + ": P50", class: l.class + " dash"}, trace{name: "P95", class: l.class}, trace{name: name, class: l.class}
		points, hitPoints := cloud{class: l.class + " big"}, cloud{class: l.class + " big"}
		if i == 0 && len(lines) > 1 { // drawn below the others: a rim stays seen where they meet
			points.class, hitPoints.class = l.class+" rim", l.class+" rim"
		}
		put := func(t *trace, c *cloud, p *panel, turn int, v *float64, times float64) {
			y := value(v) * times
			t.x, t.y = append(t.x, x(turn)), append(t.y, y)
			if !math.IsNaN(y) {
				c.at = append(c.at, dot{int(x(turn) * wide), int(math.Round(p.top(y)))})
			}
		}
		for _, t := range l.s.ByTurn {
			if t.Turn < 1 || t.Turn > mostTurnIndices {
				continue
			}
			put(&low, &points, &p, t.Turn, t.TTFTP50, 1)
			put(&high, &points, &p, t.Turn, t.TTFTP95, 1)
			put(&hits, &hitPoints, &h, t.Turn, t.CacheHitRate, 100)
			if len(said) < 40 {
				said = append(said, fmt.Sprintf("turn %d at %s: P50 %s ms, P95 %s ms, hit rate %s %%", t.Turn, digits(l.s.Rate), figure(t.TTFTP50, 1), figure(t.TTFTP95, 1), share(t.CacheHitRate)))
			}
		}
		p.lines, p.dots = append(p.lines, high, low), append(p.dots, points)
		h.lines, h.dots = append(h.lines, hits), append(h.dots, hitPoints)
	}
	for i := range p.lines { // the name of the load stands before its P95
		if i%2 == 0 {
			name, _, _ := strings.Cut(p.lines[i+1].name, ": P50")
			p.lines[i].name, p.lines[i+1].name = name+": P95", "P50"
		}
	}
	p.desc = strings.Join(said, "; ") + "."
	h.desc = p.desc
	var b strings.Builder
	b.WriteString(`<div class="stack">`)
	p.draw(&b)
	known := false
	for _, l := range h.lines {
		for _, v := range l.y {
			known = known || !math.IsNaN(v)
		}
	}
	if known {
		h.draw(&b)
	}
	var ticks []tick
	every := (last + 11) / 12
	for t := 1; t <= last; t += every {
		ticks = append(ticks, tick{x(t), fmt.Sprint(t)})
	}
	axis(&b, ticks, "turn of the call")
	b.WriteString(`</div>`)
	return b.String()
}

// byTurnTable is the same in figures, of all steps shown.
func byTurnTable(r *measurement.Results, ss []step) table {
	t := table{Caption: "By turn, step by step", Head: []column{{Name: asked(r.Config), Unit: unit(r.Config)}, {Name: "turn"}, {Name: "turns"}, {Name: "TTFT P50", Unit: "ms"}, {Name: "P95", Unit: "ms"},
		{Name: "ITL P50", Unit: "ms"}, {Name: "P95", Unit: "ms"}, {Name: "hit rate", Unit: "%"}, {Name: "prompt P50", Unit: "tokens"}}}
	const most = 300
	for i := range ss {
		for _, k := range ss[i].ByTurn {
			if len(t.Rows) == most {
				t.Note = fmt.Sprintf("Only the first %d rows are shown.", most)
				return t
			}
			t.add("", digits(ss[i].Rate), fmt.Sprint(k.Turn), thousands(k.Turns), figure(k.TTFTP50, 1), figure(k.TTFTP95, 1), figure(k.ITLP50, 1), figure(k.ITLP95, 1), share(k.CacheHitRate), figure(k.PromptP50, 1))
		}
	}
	return t
}
