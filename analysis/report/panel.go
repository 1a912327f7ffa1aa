package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"kneefinder/measurement"
)

// A panel is drawn so that its lines stretch with the page and its text does not: lines and dots stand in a nested svg without
// aspect ratio, text and marks beside it at places in percent, the scale of y in a gutter of fixed width. Panels of one stack
// share their x axis. Every x is a share of the panel's width, every y a figure on its scale.
type panel struct {
	name, note string // caption: what is shown; its unit and what it is of
	desc       string // the same for those who do not see it
	height     int
	head       int // of that, pixels at the top that no figure is drawn in: room for names
	y          scale

	keys     []key // of the legend, before those of lines and dots
	shades   []shade
	uprights []upright
	areas    []trace
	lines    []trace
	dots     []cloud
	levels   []level
	marks    []mark
}

// key is an entry of a legend.
type key struct{ name, class, kind, now string } // kind: "line", "dot", "area" or a verdict

// shade is a stretch of x set apart.
type shade struct {
	from, to float64
	class    string
}

// upright is a line at an x, with a name in a row of its own.
type upright struct {
	at          float64
	class, name string
	row         int
}

// trace is a line, or an area down to base; y is NaN where it breaks.
type trace struct {
	name, class, now string
	x, y, base       []float64
	stairs           bool // y holds until the next x
}

// cloud is dots.
type cloud struct {
	name, class, now string
	at               []dot
}

// dot is a place in a thousandth of the width and in pixels from the top.
type dot struct{ x, y int }

// level is a line across that must not be crossed.
type level struct {
	at   float64
	name string
}

// mark is a verdict at a place, with an interval where lo is a number; hi may be +Inf.
type mark struct {
	x, y, lo, hi float64
	verdict      measurement.Verdict
}

const wide = 1000 // of the nested svg

// coord writes a coordinate to a tenth.
func coord(b *strings.Builder, v float64) {
	b.WriteString(strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64))
}

// top is the height of a figure, in pixels from the top.
func (p *panel) top(v float64) float64 {
	return float64(p.head) + float64(p.height-p.head)*(1-p.y.at(v))
}

func (p *panel) draw(b *strings.Builder) {
	b.WriteString(`<figure class="chart">`)
	p.caption(b)
	b.WriteString(`<div class="plot">`)
	fmt.Fprintf(b, `<svg class="gutter" height="%d" aria-hidden="true">`, p.height+1)
	for _, t := range p.y.ticks {
		y := float64(p.head) + float64(p.height-p.head)*(1-t.at) + 4
		fmt.Fprintf(b, `<text x="100%%" dx="-6" y="%.0f" text-anchor="end">%s</text>`, min(max(y, 9), float64(p.height)), t.name)
	}
	b.WriteString(`</svg>`)
	body(b, p.height, p.name, p.desc)
	for _, s := range p.shades {
		fmt.Fprintf(b, `<rect class="%s" x="%s" width="%s" y="0" height="%d"/>`, s.class, percent(s.from), percent(max(s.to-s.from, 0)), p.height)
	}
	for _, t := range p.y.ticks {
		y := math.Round(float64(p.head)+float64(p.height-p.head)*(1-t.at)) + .5
		fmt.Fprintf(b, `<line class="grid" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/>`, y, y)
	}
	for _, u := range p.uprights {
		u.line(b, p.height)
	}
	fmt.Fprintf(b, `<svg width="100%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none">`, p.height+1, wide, p.height+1)
	for _, t := range p.areas {
		p.path(b, &t)
	}
	for _, t := range p.lines {
		p.path(b, &t)
	}
	for _, c := range p.dots {
		c.draw(b)
	}
	b.WriteString(`</svg>`)
	for _, l := range p.levels {
		y := p.top(l.at)
		text := y - 5
		if text < 10 {
			text = y + 13
		}
		fmt.Fprintf(b, `<line class="line slo" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/><text class="halo slo-name" x="0" dx="4" y="%.1f">%s</text>`, y, y, text, html.EscapeString(l.name))
	}
	for _, m := range p.marks {
		if !math.IsNaN(m.lo) {
			fmt.Fprintf(b, `<line class="whisker" x1="%s" x2="%s" y1="%.1f" y2="%.1f"/>`, percent(m.x), percent(m.x), p.top(m.lo), p.top(m.hi))
		}
	}
	for _, m := range p.marks {
		blot(b, m.verdict, percent(m.x), p.top(m.y))
	}
	for _, u := range p.uprights {
		u.label(b)
	}
	b.WriteString(`</svg></div></figure>`)
}

// body opens a picture with what it says to those who do not see it.
func body(b *strings.Builder, height int, name, desc string) {
	fmt.Fprintf(b, `<svg class="body" height="%d" role="img"><title>%s</title><desc>%s</desc>`, height+1, html.EscapeString(name), html.EscapeString(desc))
}

// caption is the panel's name, its unit and its legend.
func (p *panel) caption(b *strings.Builder) {
	fmt.Fprintf(b, `<figcaption><span class="name">%s</span> <span class="note">%s</span>`, html.EscapeString(p.name), html.EscapeString(p.note))
	keys := slices.Clone(p.keys)
	for _, t := range p.areas {
		keys = append(keys, key{t.name, t.class, "area", t.now})
	}
	for _, t := range p.lines {
		keys = append(keys, key{t.name, t.class, "line", t.now})
	}
	for _, c := range p.dots {
		keys = append(keys, key{c.name, c.class, "dot", c.now})
	}
	b.WriteString(`<span class="legend">`)
	for _, k := range keys {
		k.draw(b)
	}
	b.WriteString(`</span></figcaption>`)
}

func (k key) draw(b *strings.Builder) {
	if k.name == "" {
		return
	}
	b.WriteString(`<span class="key"><svg class="swatch" width="22" height="10" aria-hidden="true">`)
	switch k.kind {
	case "line":
		fmt.Fprintf(b, `<path class="line %s" d="M1 5H21"/>`, k.class)
	case "dot":
		fmt.Fprintf(b, `<path class="dots %s" d="M5 5h.1M11 3h.1M16 7h.1"/>`, k.class)
	case "area":
		fmt.Fprintf(b, `<path class="area %s" d="M1 0H21V10H1Z"/>`, k.class)
	default:
		blot(b, measurement.Verdict(k.kind), "11", 5)
	}
	fmt.Fprintf(b, `</svg>%s`, html.EscapeString(k.name))
	if k.now != "" {
		fmt.Fprintf(b, ` <b>%s</b>`, html.EscapeString(k.now))
	}
	b.WriteString(`</span> `)
}

func (u *upright) line(b *strings.Builder, height int) {
	fmt.Fprintf(b, `<line class="%s" x1="%s" x2="%s" y1="0" y2="%d"/>`, u.class, percent(u.at), percent(u.at), height)
}

// label writes the name to the left of its line, or to its right in the left half.
func (u *upright) label(b *strings.Builder) {
	if u.name == "" {
		return
	}
	anchor, dx := "end", -5
	if u.at < .5 {
		anchor, dx = "start", 5
	}
	fmt.Fprintf(b, `<text class="halo" x="%s" dx="%d" y="%d" text-anchor="%s">%s</text>`, percent(u.at), dx, 11+14*u.row, anchor, html.EscapeString(u.name))
}

// path appends a line that breaks where figures are missing, or the area down to its base. Points between two equal ones are left
// out.
func (p *panel) path(b *strings.Builder, t *trace) {
	kind := "line"
	if t.base != nil {
		kind = "area"
	}
	fmt.Fprintf(b, `<path class="%s %s" d="`, kind, t.class)
	for i := 0; i < len(t.y); {
		if math.IsNaN(t.y[i]) {
			i++
			continue
		}
		j := i
		for j < len(t.y) && !math.IsNaN(t.y[j]) {
			j++
		}
		p.run(b, t.x[i:j], t.y[i:j], t.stairs)
		if t.base != nil {
			for k := j - 1; k >= i; k-- {
				if k > i && k < j-1 && t.base[k-1] == t.base[k] && t.base[k+1] == t.base[k] {
					continue
				}
				b.WriteByte('L')
				coord(b, t.x[k]*wide)
				b.WriteByte(' ')
				coord(b, p.top(t.base[k]))
			}
			b.WriteByte('Z')
		}
		i = j
	}
	b.WriteString(`"/>`)
}

// run appends a line without gaps.
func (p *panel) run(b *strings.Builder, xs, ys []float64, stairs bool) {
	for i, v := range ys {
		if i > 0 && i+1 < len(ys) && ys[i-1] == v && ys[i+1] == v {
			continue
		}
		switch {
		case i == 0:
			b.WriteByte('M')
		case stairs:
			b.WriteByte('H')
			coord(b, xs[i]*wide)
			b.WriteByte('L')
		default:
			b.WriteByte('L')
		}
		coord(b, xs[i]*wide)
		b.WriteByte(' ')
		coord(b, p.top(v))
	}
	if len(ys) == 1 {
		b.WriteString("h.1") // a point: its round ends are seen
	}
}

func (c *cloud) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<path class="dots %s" d="`, c.class)
	for _, d := range c.at {
		fmt.Fprintf(b, "M%d %dh.1", d.x, d.y)
	}
	b.WriteString(`"/>`)
}

// blot writes a verdict's mark at an x, which may be in percent: a disc passes, a cross fails, a ring is undecided.
func blot(b *strings.Builder, v measurement.Verdict, x string, y float64) {
	switch v {
	case measurement.Pass:
		fmt.Fprintf(b, `<circle class="blot pass" cx="%s" cy="%.1f" r="5"/>`, x, y)
	case measurement.Fail: // paths know no percent: an svg moves it there
		fmt.Fprintf(b, `<svg x="%s" y="%.1f" overflow="visible"><path class="cross back" d="M-4-4 4 4M4-4-4 4"/><path class="cross" d="M-4-4 4 4M4-4-4 4"/></svg>`, x, y)
	default:
		fmt.Fprintf(b, `<circle class="blot undecided" cx="%s" cy="%.1f" r="5"/>`, x, y)
	}
}

// axis appends the x axis of a stack.
func axis(b *strings.Builder, ticks []tick, name string) {
	b.WriteString(`<div class="plot ticks"><span class="gutter"></span><svg class="body" height="18" aria-hidden="true">`)
	for _, t := range ticks {
		anchor := "middle"
		switch {
		case t.at < .03:
			anchor = "start"
		case t.at > .97:
			anchor = "end"
		}
		fmt.Fprintf(b, `<text x="%s" y="13" text-anchor="%s">%s</text>`, percent(t.at), anchor, html.EscapeString(t.name))
	}
	fmt.Fprintf(b, `</svg></div><p class="axis">%s</p>`, html.EscapeString(name))
}

// percent writes a share of a width.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}
