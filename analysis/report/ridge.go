package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

const (
	ridgeHead = 18  // pixels above the first row
	ridgeBins = 140 // over the width
)

// ridge draws how TTFT is distributed in each step, on one logarithmic scale: what lies right of the limit misses it.
func ridge(r *measurement.Results, ss []step) string {
	type row struct {
		s         *step
		ms        []float64
		tokenless int
	}
	var rows []row
	var all []float64
	logged := false
	for i := range ss {
		ms, tokenless := ss[i].firstTokens()
		s := ss[i].StepResult
		logged = logged || len(ms)+tokenless > 0
		if len(ms)+tokenless == 0 && s.TTFTP50 == nil && s.TTFTP95 == nil {
			continue
		}
		rows = append(rows, row{&ss[i], ms, tokenless})
		if len(ms) > 0 {
			all = append(all, ms[0], ms[len(ms)-1])
		}
		all = append(all, value(s.TTFTP50), value(s.TTFTP95), value(s.TTFTP99))
	}
	if len(rows) == 0 {
		return `<p class="empty">No turn got a token.</p>`
	}
	limit, limited := limitMS(r.Config.SLO)
	if limited {
		all = append(all, limit.LimitMS)
	}
	lo, hi := span(all)
	x := logarithmic(lo, hi, 8)
	over := 1. // from here on a figure misses the limit
	if limited {
		over = x.at(limit.LimitMS)
	}
	tall := min(max(300/len(rows), 40), 84) // a row, in pixels
	height := ridgeHead + tall*len(rows)

	var b strings.Builder
	b.WriteString(`<div class="stack"><figure class="chart"><figcaption><span class="name">TTFT of measured turns, step by step</span> <span class="note">each row is scaled to its own peak</span><span class="legend">`)
	if logged {
		key{name: "in time", kind: "area", class: "c1"}.draw(&b)
		if limited {
			key{name: "over the limit", kind: "area", class: "c2"}.draw(&b)
		}
	}
	b.WriteString(`<span class="key"><svg class="swatch" width="8" height="12" aria-hidden="true"><line class="median" x1="4" x2="4" y1="0" y2="12"/></svg>P50</span> `)
	b.WriteString(`<span class="key"><svg class="swatch" width="22" height="10" aria-hidden="true">`)
	blot(&b, measurement.Pass, "5", 5)
	blot(&b, measurement.Fail, "17", 5)
	b.WriteString(`</svg>P95, as judged</span></span></figcaption><div class="plot">`)
	fmt.Fprintf(&b, `<svg class="gutter" height="%d" aria-hidden="true">`, height+1)
	for i, w := range rows {
		fmt.Fprintf(&b, `<text x="100%%" dx="-6" y="%d" text-anchor="end">%s</text>`, ridgeHead+tall*(i+1)-3, digits(w.s.Rate))
	}
	b.WriteString(`</svg>`)
	var said []string
	for _, w := range rows {
		s := w.s.StepResult
		said = append(said, fmt.Sprintf("%s: P50 %s ms, P95 %s ms", at(r.Config, s.Rate), figure(s.TTFTP50, 1), figure(s.TTFTP95, 1)))
	}
	body(&b, height, "Distribution of TTFT in each step", strings.Join(said, "; ")+".")
	for _, t := range x.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%s" x2="%s" y1="%d" y2="%d"/>`, percent(t.at), percent(t.at), ridgeHead, height)
	}
	fmt.Fprintf(&b, `<svg width="100%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none">`, height+1, wide, height+1)
	for i, w := range rows {
		base := float64(ridgeHead + tall*(i+1))
		for _, part := range []struct {
			from, to float64
			class    string
		}{{0, over, "c1"}, {over, 1, "c2"}} {
			hill(&b, density(w.ms, &x), base, float64(tall-8), part.from, part.to, part.class)
		}
	}
	b.WriteString(`</svg>`)
	for i := range rows {
		base := ridgeHead + tall*(i+1)
		fmt.Fprintf(&b, `<line class="base" x1="0" x2="100%%" y1="%d.5" y2="%d.5"/>`, base, base)
	}
	if limited {
		u := upright{at: over, class: "line slo", name: "SLO " + waits(limit.LimitMS)}
		u.line(&b, height)
		fmt.Fprintf(&b, `<text class="halo slo-name" x="%s" dx="%d" y="11" text-anchor="%s">%s</text>`, percent(over), map[bool]int{true: 5, false: -5}[over < .5], map[bool]string{true: "start", false: "end"}[over < .5], html.EscapeString(u.name))
	}
	for i, w := range rows {
		s, base := w.s.StepResult, float64(ridgeHead+tall*(i+1))
		if s.TTFTP50 != nil {
			m := percent(x.at(*s.TTFTP50))
			fmt.Fprintf(&b, `<line class="median" x1="%s" x2="%s" y1="%.1f" y2="%.1f"/>`, m, m, base-14, base)
		}
		if v, _, _, ok := p95(s); ok {
			blot(&b, s.Verdict, percent(x.at(v)), base-1)
		}
		if text := missed(w.ms, w.tokenless, limit.LimitMS, limited); text != "" {
			fmt.Fprintf(&b, `<text class="halo" x="100%%" dx="-2" y="%.0f" text-anchor="end">%s</text>`, base-float64(tall)+14, text)
		}
	}
	b.WriteString(`</svg></div></figure>`)
	axis(&b, x.ticks, "TTFT, ms; rows: "+asked(r.Config)+", "+unit(r.Config))
	b.WriteString(`</div>`)
	if !logged {
		b.WriteString(`<p class="small">Only percentiles are known: a distribution takes the single turns, which a turn log holds.</p>`)
	}
	return b.String()
}

// missed says how many turns were over the limit, and how many got no token.
func missed(ms []float64, tokenless int, limit float64, limited bool) string {
	n := float64(len(ms) + tokenless)
	if n == 0 {
		return ""
	}
	var out []string
	if limited {
		i, _ := slices.BinarySearch(ms, math.Nextafter(limit, math.Inf(1)))
		out = append(out, share(part(len(ms)-i, n))+" % over")
	}
	if tokenless > 0 {
		out = append(out, share(part(tokenless, n))+" % no token")
	}
	return strings.Join(out, ", ")
}

func part(of int, n float64) *float64 {
	v := float64(of) / n
	return &v
}

// density counts figures in equal stretches of a scale, a little smoothed and as a share of the highest; nil of none.
func density(sorted []float64, x *scale) []float64 {
	if len(sorted) == 0 {
		return nil
	}
	d := make([]float64, ridgeBins)
	for _, v := range sorted {
		d[min(int(x.at(v)*ridgeBins), ridgeBins-1)]++
	}
	for range 2 {
		last := 0.
		for i, v := range d {
			next := 0.
			if i+1 < len(d) {
				next = d[i+1]
			}
			d[i], last = (last+2*v+next)/4, v
		}
	}
	top := slices.Max(d)
	for i := range d {
		d[i] /= top
	}
	return d
}

// hill appends the part of a density between two places as an area on a base.
func hill(b *strings.Builder, d []float64, base, room, from, to float64, class string) {
	if d == nil || from >= to {
		return
	}
	height := func(at float64) float64 { // linear between the middles of the bins
		p := at*float64(len(d)) - .5
		i := int(math.Floor(p))
		v := func(i int) float64 {
			if i < 0 || i >= len(d) {
				return 0
			}
			return d[i]
		}
		f := p - float64(i)
		return v(i)*(1-f) + v(i+1)*f
	}
	fmt.Fprintf(b, `<path class="area edge %s" d="M%.1f %.1f`, class, from*wide, base)
	put := func(at float64) {
		b.WriteByte('L')
		coord(b, at*wide)
		b.WriteByte(' ')
		coord(b, base-room*height(at))
	}
	put(from)
	for i := range d {
		at := (float64(i) + .5) / float64(len(d))
		if at <= from || at >= to {
			continue
		}
		// Within a stretch of nothing only its ends are drawn.
		if d[i] < 1e-3 && i > 0 && d[i-1] < 1e-3 && i+1 < len(d) && d[i+1] < 1e-3 {
			continue
		}
		put(at)
	}
	put(to)
	b.WriteByte('L')
	coord(b, to*wide)
	b.WriteByte(' ')
	coord(b, base)
	b.WriteString(`Z"/>`)
}
