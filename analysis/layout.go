package analysis

import (
	"image/color"
	"math/bits"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// level is a horizontal line at a limit, and its name.
type level struct {
	y     float64
	name  string
	color color.Color
}

// mark is a vertical line at a knee, and its name, which may be empty.
type mark struct {
	x     float64
	color color.Color
	label string
}

// layout is what stands in the upper panel beside its grid: lines beneath, curves upon them, and names where no line crosses
// them. The marks go on through the lower panel.
type layout struct {
	marks  []mark
	levels []level
	curves []*ttftCurve
	other  *otherCurve
}

// addTo adds everything in the order in which it is drawn.
func (l *layout) addTo(top, bottom *plot.Plot) {
	top.Add(drawing(l.lines))
	bottom.Add(drawing(func(c draw.Canvas, p *plot.Plot) {
		tx, _ := p.Transforms(&c)
		for i, m := range l.marks {
			l.stroke(c, i, tx(m.x), c.Max.Y)
		}
	}))
	if l.other != nil {
		top.Add(l.other)
	}
	for _, t := range l.curves {
		top.Add(t)
	}
	top.Add(drawing(l.names))
}

// drawing is a plotter made of a function.
type drawing func(draw.Canvas, *plot.Plot)

// Plot satisfies plot.Plotter.
func (d drawing) Plot(c draw.Canvas, p *plot.Plot) { d(c, p) }

const tagHeight = vg.Inch / 4

// stroke draws a mark; several at one place all show.
func (l *layout) stroke(c draw.Canvas, i int, x, top vg.Length) {
	shift := vg.Length(0)
	for _, m := range l.marks[:i] {
		if m.x == l.marks[i].x {
			shift++
		}
	}
	x += vg.Points(1.5) * shift
	c.StrokeLine2(draw.LineStyle{Color: l.marks[i].color, Width: vg.Points(1.5), Dashes: dashes, DashOffs: vg.Points(4) * shift}, x, c.Min.Y, x, top)
}

func (l *layout) lines(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, v := range l.levels {
		c.StrokeLine2(draw.LineStyle{Color: v.color, Width: vg.Points(1.3), Dashes: dashes}, c.Min.X, ty(v.y), c.Max.X, ty(v.y))
	}
	places := l.arrange(c, tx)
	for i, m := range l.marks {
		l.stroke(c, i, tx(m.x), places[i].top)
	}
}

func (l *layout) names(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	places := l.arrange(c, tx)
	for i, m := range l.marks {
		if m.label != "" {
			boxed(c, style(labelSize, m.color), places[i].at, m.label)
		}
	}
	lines := l.obstacles(c, tx, ty, places)
	for _, v := range l.levels {
		label := v.name + " " + onAxis(p, v.y)
		s := style(labelSize, v.color)
		box := freePlace(c, ty(v.y), s.Width(label), s.Height(label), lines)
		boxed(c, s, box.Min, label)
		lines = append(lines, []vg.Point{box.Min, box.Max}) // the next name keeps off this one
	}
}

var labelSize = vg.Points(11.5)

// place is where a mark ends above, and the lower left corner of its name.
type place struct {
	top vg.Length
	at  vg.Point
}

// arrange gives each name a row under the top and a side of its mark so that it crosses no other mark: marks end in the rows of
// their own names, so a name passes above those of lower rows. All arrangements are tried; there are few names.
func (l *layout) arrange(c draw.Canvas, tx func(float64) vg.Length) []place {
	n := len(l.marks)
	out := make([]place, n)
	for i := range out {
		out[i].top = c.Max.Y
	}
	if n == 0 || n > maxNames || l.marks[0].label == "" {
		return out
	}
	widths := make([]vg.Length, n)
	for i, m := range l.marks {
		widths[i] = style(labelSize, m.color).Width(m.label)
	}
	span := func(i int, right bool) (from, to vg.Length) {
		x := tx(l.marks[i].x)
		if right {
			return x + vg.Points(7), x + vg.Points(7) + widths[i]
		}
		return x - vg.Points(6) - widths[i], x - vg.Points(6)
	}
	least := -1
	for _, rows := range permutations(n) {
		for sides := range uint(1) << n {
			cost := bits.OnesCount(sides)
			for i := range n {
				from, to := span(i, sides>>i&1 == 1)
				if from < c.Min.X+vg.Points(3) || to > c.Max.X-vg.Points(3) {
					cost += 1000
				}
				for j, m := range l.marks {
					if x := tx(m.x); j != i && rows[j] < rows[i] && x > from-vg.Points(3) && x < to+vg.Points(3) {
						cost += 100
					}
				}
			}
			if least >= 0 && cost >= least {
				continue
			}
			least = cost
			for i := range n {
				from, _ := span(i, sides>>i&1 == 1)
				y := c.Max.Y - tagHeight*vg.Length(rows[i]+1)
				out[i] = place{y + tagHeight - vg.Points(4), vg.Point{X: from, Y: y}}
			}
		}
	}
	return out
}

// permutations of 0..n-1, the ascending one first.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for at := n - 1; at >= 0; at-- {
			out = append(out, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return out
}

// obstacles are the lines that a limit's name keeps off.
func (l *layout) obstacles(c draw.Canvas, tx, ty func(float64) vg.Length, places []place) [][]vg.Point {
	var out [][]vg.Point
	for i, m := range l.marks {
		out = append(out, []vg.Point{{X: tx(m.x), Y: c.Min.Y}, {X: tx(m.x), Y: places[i].top}})
	}
	for _, v := range l.levels {
		out = append(out, []vg.Point{{X: c.Min.X, Y: ty(v.y)}, {X: c.Max.X, Y: ty(v.y)}})
	}
	for _, t := range l.curves {
		out = append(out, t.path(tx, ty))
		for _, s := range t.steps {
			if s.TTFTP95 == nil || *s.TTFTP95 <= 0 {
				continue
			}
			low, high, _ := t.reach(s, ty, c.Max.Y)
			x, y, r := tx(s.Rate), ty(*s.TTFTP95), vg.Points(5)
			out = append(out, []vg.Point{{X: x, Y: low}, {X: x, Y: high}}, []vg.Point{{X: x - r, Y: y - r}, {X: x + r, Y: y + r}})
		}
	}
	return append(out, l.other.path(tx, ty))
}

// freePlace is the box of a name above or below a level, where fewest lines cross it; of equal ones the first from the left.
func freePlace(c draw.Canvas, y, width, height vg.Length, lines [][]vg.Point) vg.Rectangle {
	var best vg.Rectangle
	least := -1
	const places = 24
	pad := vg.Points(2)
	for _, low := range []vg.Length{y + vg.Points(3), y - vg.Points(3) - height} {
		for i := range places + 1 {
			x := c.Min.X + vg.Points(6) + (c.Max.X-c.Min.X-width-vg.Points(12))*vg.Length(i)/places
			box := vg.Rectangle{Min: vg.Point{X: x, Y: low}, Max: vg.Point{X: x + width, Y: low + height}}
			around := draw.Canvas{Rectangle: vg.Rectangle{Min: vg.Point{X: box.Min.X - pad, Y: box.Min.Y - pad}, Max: vg.Point{X: box.Max.X + pad, Y: box.Max.Y + pad}}}
			hits := 0
			for _, line := range lines {
				if len(line) > 1 && len(around.ClipLinesXY(line)) > 0 {
					hits++
				}
			}
			if box.Min.Y < c.Min.Y || box.Max.Y > c.Max.Y {
				hits += 100
			}
			if least < 0 || hits < least {
				best, least = box, hits
			}
		}
	}
	return best
}
