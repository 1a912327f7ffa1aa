package page

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// point is a step on the curve. A P95 that lands on turns without a token is +Inf.
type point struct {
	rate, p95, lo, hi float64
	verdict           measurement.Verdict
}

// points are the steps that have a P95, by rate. Those that were cut count for nothing.
func (s *snapshot) points() (out []point) {
	for i := range s.steps {
		r := s.steps[i].result
		if r == nil || r.Rate <= 0 || slices.Contains(r.Flags, measurement.FlagIncomplete) {
			continue
		}
		p := point{rate: r.Rate, lo: math.NaN(), hi: math.NaN(), verdict: r.Verdict}
		switch {
		case r.TTFTP95 != nil:
			p.p95 = *r.TTFTP95
		case slices.Contains(r.Flags, measurement.FlagCensored):
			p.p95 = math.Inf(1)
		default:
			continue
		}
		if ci := r.TTFTP95CI; ci[0] != nil {
			p.lo = *ci[0]
			p.hi = math.Inf(1)
		}
		if ci := r.TTFTP95CI; ci[1] != nil {
			p.hi = *ci[1]
			p.lo = known(p.lo, 0)
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b point) int { return cmp.Compare(a.rate, b.rate) })
	return out
}

// across is a scale of loads; linear ones begin at 0.
func across(rates []float64) scale {
	lo, hi := slices.Min(rates), slices.Max(rates)
	if hi/lo >= 8 {
		s := scale{lo: lo / 1.25, hi: hi * 1.25, log: true, height: 1}
		for _, v := range ladder(ladderUp(s.lo), s.hi) {
			s.ticks = append(s.ticks, tick{s.at(v), digits(v)})
		}
		return s
	}
	step := ladderUp(hi * 1.08 / 6)
	s := scale{hi: hi * 1.08, height: 1}
	for v := 0.0; v <= s.hi; v += step {
		s.ticks = append(s.ticks, tick{v / s.hi, digits(v)})
	}
	return s
}

// drawCurve draws P95 TTFT over λ asked, as far as it is known.
func drawCurve(s *snapshot) string {
	const height = 230
	points := s.points()
	u := unit(s.run.Config)
	var b strings.Builder
	c := chart{title: "P95 TTFT over the load", note: "ms, measured turns of whole steps", height: height}
	for _, k := range []struct {
		verdict measurement.Verdict
		name    string
	}{{measurement.Pass, "passes"}, {measurement.Fail, "fails"}, {measurement.Undecided, "undecided"}} {
		if slices.ContainsFunc(points, func(p point) bool { return p.verdict == k.verdict }) {
			c.legend = append(c.legend, key{name: k.name, class: string(k.verdict)})
		}
	}
	b.WriteString(`<figure class="chart">`)
	c.curveCaption(&b)
	if len(points) == 0 {
		b.WriteString(`<p class="empty">The curve begins with the first step's end.</p></figure>`)
		return b.String()
	}
	values := []float64{}
	rates := []float64{}
	said := []string{}
	for _, p := range points {
		values = append(values, p.p95, p.lo, p.hi, 1.2*p.p95) // and some room above
		rates = append(rates, p.rate)
		said = append(said, fmt.Sprintf("%s ms at %s (%s)", digits(p.p95), digits(p.rate), p.verdict))
	}
	l, hasLimit := s.ttftObjective(.95)
	if hasLimit {
		values = append(values, l)
	}
	if s.asked > 0 {
		rates = append(rates, s.asked)
	}
	y, x := scaleOf(true, 0, height, values), across(rates)

	b.WriteString(`<div class="plot">`)
	gutter(&b, &y, height)
	fmt.Fprintf(&b, `<svg class="body" height="%d" role="img"><title>%s</title><desc>%s.</desc>`, height+1, c.title, html.EscapeString(strings.Join(said, "; ")))
	for _, t := range y.ticks {
		at := math.Round(height*(1-t.at)) + .5
		fmt.Fprintf(&b, `<line class="grid" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/>`, at, at)
	}
	at := func(rate float64) float64 { return 100 * x.at(rate) }
	if k := s.results.Knees.SLO; k.Estimate != nil && *k.Estimate > 0 {
		if lo, hi := k.CI95[0], k.CI95[1]; lo != nil && hi != nil && *lo > 0 {
			fmt.Fprintf(&b, `<rect class="band" x="%.2f%%" width="%.2f%%" y="0" height="%d"/>`, at(*lo), max(at(*hi)-at(*lo), 0), height)
		}
		fmt.Fprintf(&b, `<line class="knee" x1="%.2f%%" x2="%.2f%%" y1="0" y2="%d"/>`, at(*k.Estimate), at(*k.Estimate), height)
		beside(&b, at(*k.Estimate), 11, "knee "+digits(*k.Estimate)) // a curve that rises leaves room on the upper left
	}
	if s.asked > 0 && !final(s.state) {
		fmt.Fprintf(&b, `<line class="bound" x1="%.2f%%" x2="%.2f%%" y1="0" y2="%d"/>`, at(s.asked), at(s.asked), height)
		beside(&b, at(s.asked), height-6, "now")
	}
	for i := 1; i < len(points); i++ {
		p, q := points[i-1], points[i]
		fmt.Fprintf(&b, `<line class="line c1" x1="%.2f%%" y1="%.1f" x2="%.2f%%" y2="%.1f"/>`, at(p.rate), y.y(p.p95), at(q.rate), y.y(q.p95))
	}
	if hasLimit {
		limit{l, fmt.Sprintf("SLO: P95 ≤ %s ms", digits(l))}.draw(&b, &y, true) // steps that pass lie below it
	}
	for _, p := range points {
		p.draw(&b, at(p.rate), &y)
	}
	b.WriteString(`</svg></div>`)
	drawTicks(&b, x.ticks, asked(s.run.Config)+", "+u)
	b.WriteString(`</figure>`)
	return b.String()
}

// beside writes a name to the left of a line, or to its right near the edge.
func beside(b *strings.Builder, at float64, y int, text string) {
	anchor, dx := "end", -5
	if at < 20 {
		anchor, dx = "start", 5
	}
	fmt.Fprintf(b, `<text class="step" x="%.2f%%" dx="%d" y="%d" text-anchor="%s">%s</text>`, at, dx, y, anchor, html.EscapeString(text))
}

// draw appends a point and its interval: a disc passes, a cross fails, a ring is undecided. An interval without an upper end goes to the top.
func (p *point) draw(b *strings.Builder, at float64, y *scale) {
	if !math.IsNaN(p.lo) {
		fmt.Fprintf(b, `<line class="whisker" x1="%.2f%%" x2="%.2f%%" y1="%.1f" y2="%.1f"/>`, at, at, y.y(p.lo), y.y(p.hi))
	}
	blot(b, p.verdict, fmt.Sprintf("%.2f%%", at), y.y(p.p95))
}

// blot writes a verdict's mark at an x, which may be in percent.
func blot(b *strings.Builder, v measurement.Verdict, x string, y float64) {
	switch v {
	case measurement.Pass:
		fmt.Fprintf(b, `<circle class="dot pass" cx="%s" cy="%.1f" r="5"/>`, x, y)
	case measurement.Fail: // paths know no percent: an svg moves it there
		fmt.Fprintf(b, `<svg x="%s" y="%.1f" overflow="visible"><path class="cross back" d="M-5-5 5 5M5-5-5 5"/><path class="cross" d="M-5-5 5 5M5-5-5 5"/></svg>`, x, y)
	default:
		fmt.Fprintf(b, `<circle class="dot undecided" cx="%s" cy="%.1f" r="5"/>`, x, y)
	}
}

// curveCaption is the curve's name and what its marks mean.
func (c *chart) curveCaption(b *strings.Builder) {
	fmt.Fprintf(b, `<figcaption><span class="name">%s</span> <span class="note">%s</span><span class="legend">`, c.title, c.note)
	for _, k := range c.legend {
		b.WriteString(`<span class="key"><svg class="swatch" width="14" height="14" aria-hidden="true">`)
		blot(b, measurement.Verdict(k.class), "7", 7)
		fmt.Fprintf(b, `</svg>%s</span> `, k.name)
	}
	b.WriteString(`</span></figcaption>`)
}
