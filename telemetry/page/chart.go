package page

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A chart is drawn so that its lines stretch with the page and its text does not: lines stand in a nested svg without aspect ratio, text
// and marks beside it at places in percent. Charts of one stack share their x axis; the scale of y stands in a gutter of fixed width.

// series is one line of a chart; y has a value for each x, NaN where there is none, +Inf for one that is off every scale.
type series struct {
	name  string
	class string // of the style sheet: colour and dashes
	now   string // its current value, with unit
	y     []float64
	base  []float64 // for an area: its lower edge; nil is a line
}

// limit is a horizontal line that must not be crossed.
type limit struct {
	at   float64
	name string
}

// chart is what is drawn.
type chart struct {
	title  string
	note   string // unit, and what the figures are of
	text   string // what those who do not see it are told beside the legend
	height int
	log    bool
	top    float64 // least end of the scale
	series []series
	limits []limit
	legend []key     // before the series' own
	steps  bool      // names the steps above their boundaries
	stairs []plateau // λ asked, where it is shown
}

// key is one of a legend's entries.
type key struct {
	name, class, now string
}

// axis is the x of a stack of charts.
type axis struct {
	from, to float64
	x        []float64 // of the series
	bounds   []bound
	ticks    []tick
}

// plateau is a stretch with one λ asked.
type plateau struct{ from, to, rate float64 }

// bound is where a step begins.
type bound struct {
	at   float64
	name string
}

// tick is a place on a scale, as a share of it, and its name.
type tick struct {
	at   float64
	name string
}

const viewWidth = 1000 // of the nested svg

// num writes a coordinate to a tenth.
func num(b *strings.Builder, v float64) {
	tenths := int64(math.Round(v * 10))
	var buf [24]byte
	out := buf[:0]
	if tenths < 0 {
		out, tenths = append(out, '-'), -tenths
	}
	out = strconv.AppendInt(out, tenths/10, 10)
	if d := tenths % 10; d != 0 {
		out = append(out, '.', byte('0'+d))
	}
	b.Write(out)
}

// short names a place on a scale.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return digits(v/1e6) + "M"
	case v >= 1e4:
		return digits(v/1e3) + "k"
	}
	return digits(v)
}

func (a *axis) share(x float64) float64 { return (x - a.from) / (a.to - a.from) }

// scale maps figures to heights.
type scale struct {
	lo, hi float64
	log    bool
	height float64
	ticks  []tick
}

// y is the height of a figure, counted from the top; one above the scale is at the top.
func (s *scale) y(v float64) float64 { return s.height * (1 - min(max(s.at(v), 0), 1)) }

func (s *scale) at(v float64) float64 {
	if math.IsInf(v, 1) {
		return 1
	}
	if s.log {
		if v <= 0 {
			return 0
		}
		return math.Log(v/s.lo) / math.Log(s.hi/s.lo)
	}
	return (v - s.lo) / (s.hi - s.lo)
}

// scaleOf fits a scale to figures: from 0 when linear, on the ladder 1, 2, 5 when logarithmic.
func scaleOf(logarithmic bool, top, height float64, values ...[]float64) scale {
	lo, hi := math.Inf(1), top
	for _, ys := range values {
		for _, y := range ys {
			if math.IsNaN(y) || math.IsInf(y, 0) {
				continue
			}
			hi = max(hi, y)
			if y > 0 {
				lo = min(lo, y)
			}
		}
	}
	if hi <= 0 {
		hi = 1
	}
	if logarithmic && lo < hi && hi/lo >= 8 {
		s := scale{lo: ladderDown(lo), hi: ladderUp(hi), log: true, height: height}
		room := max(2, int(height/24))
		steps := ladder(s.lo, s.hi)
		if len(steps) > room {
			steps = every(2, steps)
		}
		for skip := 1; len(steps) > room; skip++ { // only powers of ten, of 100, ...
			steps = every(skip, slices.DeleteFunc(ladder(s.lo, s.hi), func(v float64) bool { return math.Abs(math.Log10(v)-math.Round(math.Log10(v))) > 1e-6 }))
		}
		for _, v := range steps {
			s.ticks = append(s.ticks, tick{s.at(v), short(v)})
		}
		return s
	}
	n := 2.0
	switch {
	case height >= 130:
		n = 4
	case height >= 80:
		n = 3
	}
	step := ladderUp(hi / n)
	s := scale{hi: step * math.Ceil(hi/step-1e-9), height: height}
	for v := 0.0; v <= s.hi+step/2; v += step {
		s.ticks = append(s.ticks, tick{v / s.hi, short(v)})
	}
	return s
}

// every takes the first of every n.
func every(n int, of []float64) (out []float64) {
	for i := 0; i < len(of); i += n {
		out = append(out, of[i])
	}
	return out
}

func ladderUp(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v*(1-1e-9) {
			return m * p
		}
	}
	return 10 * p
}

func ladderDown(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*p <= v*(1+1e-9) {
			return m * p
		}
	}
	return p
}

func ladder(lo, hi float64) (out []float64) {
	for v := lo; v <= hi*(1+1e-9); v = ladderUp(v * 1.01) {
		out = append(out, v)
	}
	return out
}

// draw appends a chart as a figure.
func (c *chart) draw(b *strings.Builder, a *axis) {
	h := float64(c.height)
	values := make([][]float64, 0, len(c.series)+1)
	var limits []float64
	for _, s := range c.series {
		values = append(values, s.y)
	}
	for _, l := range c.limits {
		limits = append(limits, l.at)
	}
	for _, p := range c.stairs {
		limits = append(limits, p.rate)
	}
	sc := scaleOf(c.log, c.top, h, append(values, limits)...)

	b.WriteString(`<figure class="chart">`)
	c.caption(b)
	if c.steps {
		stepNames(b, a)
	}
	b.WriteString(`<div class="plot">`)
	gutter(b, &sc, c.height)
	fmt.Fprintf(b, `<svg class="body" height="%d" role="img"><title>%s</title><desc>%s</desc>`, c.height+1, html.EscapeString(c.title), html.EscapeString(c.said()))
	for _, t := range sc.ticks {
		y := strconv.FormatFloat(math.Round(h*(1-t.at))+.5, 'f', -1, 64)
		fmt.Fprintf(b, `<line class="grid" x1="0" x2="100%%" y1="%s" y2="%s"/>`, y, y)
	}
	boundaries(b, a)
	fmt.Fprintf(b, `<svg width="100%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none">`, c.height+1, viewWidth, c.height+1)
	for _, s := range c.series {
		if s.base != nil {
			area(b, a, &sc, &s)
		}
	}
	if len(c.stairs) > 0 {
		b.WriteString(`<path class="line asked" d="`)
		stairs(b, c.stairs, a, &sc)
		b.WriteString(`"/>`)
	}
	for _, s := range onTop(c.series) {
		fmt.Fprintf(b, `<path class="line %s" d="`, s.class)
		path(b, a.x, s.y, a, &sc)
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	for _, l := range c.limits {
		l.draw(b, &sc, c.free(a, &sc, l.at))
	}
	b.WriteString(`</svg></div></figure>`)
}

// onTop puts thick lines last: what is drawn last lies on top.
func onTop(of []series) []series {
	out := slices.Clone(of)
	slices.SortStableFunc(out, func(a, b series) int {
		return cmp.Compare(strings.Count(a.class, "thick"), strings.Count(b.class, "thick"))
	})
	return out
}

// said is the chart's newest figures in words, and its text.
func (c *chart) said() string {
	var out []string
	for _, k := range c.legend {
		out = append(out, k.said())
	}
	for _, s := range c.series {
		out = append(out, key{s.name, s.class, s.now}.said())
	}
	return strings.TrimSpace(strings.Join(out, ", ") + ". " + c.text)
}

func (k key) said() string { return strings.TrimSpace(k.name + " " + k.now) }

// caption is the chart's name, unit and legend.
func (c *chart) caption(b *strings.Builder) {
	fmt.Fprintf(b, `<figcaption><span class="name">%s</span> <span class="note">%s</span><span class="legend">`, html.EscapeString(c.title), html.EscapeString(c.note))
	for _, k := range c.legend {
		k.draw(b)
	}
	for _, s := range c.series {
		key{s.name, s.class, s.now}.draw(b)
	}
	b.WriteString(`</span></figcaption>`)
}

func (k key) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<span class="key"><svg class="swatch" width="22" height="10" aria-hidden="true"><path class="line %s" d="M1 5H21"/></svg>%s`, k.class, html.EscapeString(k.name))
	if k.now != "" {
		fmt.Fprintf(b, ` <b>%s</b>`, html.EscapeString(k.now))
	}
	b.WriteString(`</span> `)
}

// gutter is the scale of y, right-aligned beside the chart.
func gutter(b *strings.Builder, sc *scale, height int) {
	fmt.Fprintf(b, `<svg class="gutter" height="%d" aria-hidden="true">`, height+1)
	for _, t := range sc.ticks {
		y := sc.height*(1-t.at) + 4
		y = min(max(y, 9), sc.height)
		fmt.Fprintf(b, `<text x="100%%" dx="-6" y="%.0f" text-anchor="end">%s</text>`, y, t.name)
	}
	b.WriteString(`</svg>`)
}

// boundaries are the instants at which steps begin.
func boundaries(b *strings.Builder, a *axis) {
	for _, m := range a.bounds {
		at := a.share(m.at)
		fmt.Fprintf(b, `<line class="bound" x1="%.2f%%" x2="%.2f%%" y1="0" y2="100%%"/>`, at*100, at*100)
	}
}

// stepNames are the names of the steps, above the plot, where nothing is drawn; those for which there is no room are left out.
func stepNames(b *strings.Builder, a *axis) {
	b.WriteString(`<div class="plot"><span class="gutter"></span><svg class="body" height="14" aria-hidden="true">`)
	last := -1.0
	for _, m := range a.bounds {
		if at := a.share(m.at); at-last > .12 && at < .9 {
			fmt.Fprintf(b, `<text class="step" x="%.2f%%" y="10">%s</text>`, at*100, html.EscapeString(m.name))
			last = at
		}
	}
	b.WriteString(`</svg></div>`)
}

// free says on which side of a chart a name above the height of a figure is less in the way of lines.
func (c *chart) free(a *axis, sc *scale, at float64) (left bool) {
	var l, r int
	y := sc.y(at) - 8
	for _, s := range c.series {
		for i, v := range s.y {
			if math.IsNaN(v) || math.Abs(sc.y(v)-y) > 9 {
				continue
			}
			switch x := a.share(a.x[i]); {
			case x < .35:
				l++
			case x > .65:
				r++
			}
		}
	}
	return l < r
}

// draw appends a line across and its name, above it where there is room.
func (l limit) draw(b *strings.Builder, sc *scale, left bool) {
	y := sc.y(l.at)
	fmt.Fprintf(b, `<line class="line slo" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/>`, y, y)
	text := y - 5
	if text < 10 {
		text = y + 13
	}
	x, dx, anchor := "100%", -4, "end"
	if left {
		x, dx, anchor = "0", 4, "start"
	}
	fmt.Fprintf(b, `<text class="slo-name" x="%s" dx="%d" y="%.1f" text-anchor="%s">%s</text>`, x, dx, text, anchor, html.EscapeString(l.name))
}

// path appends the data of a line that breaks where figures are missing; points between two equal ones are left out.
func path(b *strings.Builder, xs, ys []float64, a *axis, sc *scale) {
	pen := false
	for i, v := range ys {
		if math.IsNaN(v) {
			pen = false
			continue
		}
		next := i+1 < len(ys) && !math.IsNaN(ys[i+1])
		if pen && next && ys[i-1] == v && ys[i+1] == v {
			continue
		}
		if pen {
			b.WriteByte('L')
		} else {
			b.WriteByte('M')
		}
		num(b, a.share(xs[i])*viewWidth)
		b.WriteByte(' ')
		num(b, sc.y(v))
		if !pen && !next {
			b.WriteString("h.1") // a point: its round ends are seen
		}
		pen = true
	}
}

// stairs appends the data of plateaus, joined where one follows at once on another.
func stairs(b *strings.Builder, ps []plateau, a *axis, sc *scale) {
	for i, p := range ps {
		if p.to < a.from {
			continue
		}
		if i > 0 && ps[i-1].to == p.from && p.from > a.from {
			b.WriteByte('V')
		} else {
			b.WriteByte('M')
			num(b, max(a.share(p.from), 0)*viewWidth)
			b.WriteByte(' ')
		}
		num(b, sc.y(p.rate))
		b.WriteByte('H')
		num(b, a.share(p.to)*viewWidth)
	}
}

// area appends what lies between a series and its base.
func area(b *strings.Builder, a *axis, sc *scale, s *series) {
	fmt.Fprintf(b, `<path class="area %s" d="`, s.class)
	for i := 0; i < len(s.y); {
		if math.IsNaN(s.y[i]) {
			i++
			continue
		}
		j := i
		for j < len(s.y) && !math.IsNaN(s.y[j]) {
			j++
		}
		path(b, a.x[i:j], s.y[i:j], a, sc)
		for k := j - 1; k >= i; k-- {
			if k > i && k < j-1 && s.base[k-1] == s.base[k] && s.base[k+1] == s.base[k] {
				continue
			}
			b.WriteByte('L')
			num(b, a.share(a.x[k])*viewWidth)
			b.WriteByte(' ')
			num(b, sc.y(known(s.base[k], 0)))
		}
		b.WriteByte('Z')
		i = j
	}
	b.WriteString(`"/>`)
}

// timeTicks are whole numbers of seconds, minutes or hours.
func timeTicks(from, to float64) (out []tick) {
	step := 86400.0
	for _, s := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200} {
		if (to-from)/s <= 7 {
			step = s
			break
		}
	}
	for step*8 < to-from {
		step *= 2
	}
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		s := int(v)
		name := fmt.Sprintf("%d:%02d", s/60, s%60)
		if to >= 3600 {
			name = fmt.Sprintf("%d:%02d h", s/3600, s/60%60)
		}
		out = append(out, tick{(v - from) / (to - from), name})
	}
	return out
}

// drawTicks appends the x axis of a stack.
func drawTicks(b *strings.Builder, ticks []tick, name string) {
	b.WriteString(`<div class="plot ticks"><span class="gutter"></span><svg class="body" height="18" aria-hidden="true">`)
	for _, t := range ticks {
		anchor := "middle"
		switch {
		case t.at < .03:
			anchor = "start"
		case t.at > .97:
			anchor = "end"
		}
		fmt.Fprintf(b, `<text x="%.2f%%" y="13" text-anchor="%s">%s</text>`, t.at*100, anchor, html.EscapeString(t.name))
	}
	fmt.Fprintf(b, `</svg></div><p class="axis">%s</p>`, html.EscapeString(name))
}
