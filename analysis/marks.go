package analysis

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"kneefinder/measurement"
)

// ttftCurve draws P95 TTFT: a line, its intervals, and a glyph a step that tells the verdict.
type ttftCurve struct {
	steps   []measurement.StepResult
	color   color.RGBA
	glyph   draw.GlyphDrawer // nil draws by verdict
	tags    int              // rows kept free for names above everything drawn here
	bounded bool             // leave out intervals that have no upper end
}

func waits(steps []measurement.StepResult, c color.RGBA) *ttftCurve {
	var out []measurement.StepResult
	for _, s := range steps {
		if s.Rate > 0 && s.MeasuredTurns > 0 {
			out = append(out, s)
		}
	}
	return &ttftCurve{steps: out, color: c}
}

func (t *ttftCurve) line() draw.LineStyle {
	return draw.LineStyle{Color: t.color, Width: vg.Points(1.8)}
}

func (t *ttftCurve) dot(v measurement.Verdict) draw.GlyphStyle {
	g := draw.GlyphStyle{Color: t.color, Radius: vg.Points(4.2), Shape: draw.CircleGlyph{}}
	switch {
	case t.glyph != nil:
		g.Shape = t.glyph
	case v == measurement.Fail:
		g.Color, g.Shape = colorBad, draw.BoxGlyph{}
	case v == measurement.Undecided:
		g.Shape = hollow{}
	}
	return g
}

// Plot draws the curve; it satisfies plot.Plotter.
func (t *ttftCurve) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	var line []vg.Point
	for _, s := range t.steps {
		if s.TTFTP95 != nil && *s.TTFTP95 > 0 {
			line = append(line, vg.Point{X: tx(s.Rate), Y: ty(*s.TTFTP95)})
		}
	}
	whisker := draw.LineStyle{Color: fade(t.color), Width: vg.Points(1.1)}
	for _, s := range t.steps {
		x := tx(s.Rate)
		if s.TTFTP95 == nil { // censored: above everything drawn
			drawNoP95(&c, t.bad(), vg.Point{X: x, Y: c.Max.Y - tagHeight*vg.Length(t.tags) - vg.Points(8)})
			continue
		}
		if *s.TTFTP95 <= 0 {
			continue
		}
		y, cap := ty(*s.TTFTP95), vg.Points(3)
		if t.bounded && s.TTFTP95CI[1] == nil {
			continue
		}
		if lo := s.TTFTP95CI[0]; lo != nil && *lo > 0 {
			c.StrokeLine2(whisker, x, ty(*lo), x, y)
			c.StrokeLine2(whisker, x-cap, ty(*lo), x+cap, ty(*lo))
		}
		if hi := s.TTFTP95CI[1]; hi != nil {
			c.StrokeLine2(whisker, x, y, x, ty(*hi))
			c.StrokeLine2(whisker, x-cap, ty(*hi), x+cap, ty(*hi))
		} else { // unbounded: an arrow
			end := min(y+vg.Points(17), c.Max.Y)
			c.StrokeLine2(whisker, x, y, x, end)
			c.StrokeLines(whisker, []vg.Point{{X: x - cap, Y: end - cap}, {X: x, Y: end}, {X: x + cap, Y: end - cap}})
		}
	}
	c.StrokeLines(t.line(), c.ClipLinesXY(line)...)
	for _, s := range t.steps {
		if s.TTFTP95 != nil && *s.TTFTP95 > 0 {
			c.DrawGlyph(t.dot(s.Verdict), vg.Point{X: tx(s.Rate), Y: ty(*s.TTFTP95)})
		}
	}
}

// Thumbnail draws the curve's sign in the legend; it satisfies plot.Thumbnailer.
func (t *ttftCurve) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(t.line(), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
	c.DrawGlyph(t.dot(measurement.Pass), c.Center())
}

// legend explains what is seen of one run, and only that.
func (t *ttftCurve) legend() []entry {
	names := map[measurement.Verdict]string{measurement.Pass: "P95 TTFT, step passes", measurement.Fail: "P95 TTFT, step fails", measurement.Undecided: "P95 TTFT, undecided"}
	var out []entry
	for _, v := range []measurement.Verdict{measurement.Pass, measurement.Fail, measurement.Undecided} {
		for _, s := range t.steps {
			if s.Verdict == v && s.TTFTP95 != nil {
				out = append(out, entry{names[v], sign(func(c *draw.Canvas) {
					c.StrokeLine2(t.line(), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
					c.DrawGlyph(t.dot(v), c.Center())
				})})
				break
			}
		}
	}
	whisker := draw.LineStyle{Color: fade(t.color), Width: vg.Points(1.1)}
	var bounded, open bool
	for _, s := range t.steps {
		bounded = bounded || s.TTFTP95 != nil && s.TTFTP95CI[1] != nil
		open = open || s.TTFTP95 != nil && s.TTFTP95CI[1] == nil
	}
	if bounded {
		out = append(out, entry{"95 % interval", sign(func(c *draw.Canvas) {
			x, cap := c.Center().X, vg.Points(3)
			c.StrokeLine2(whisker, x, c.Min.Y, x, c.Max.Y)
			c.StrokeLine2(whisker, x-cap, c.Min.Y, x+cap, c.Min.Y)
			c.StrokeLine2(whisker, x-cap, c.Max.Y, x+cap, c.Max.Y)
		})})
	}
	if open {
		out = append(out, entry{"too few turns to bound it above", sign(func(c *draw.Canvas) {
			x, cap := c.Center().X, vg.Points(3)
			c.StrokeLine2(whisker, x, c.Min.Y, x, c.Max.Y)
			c.StrokeLines(whisker, []vg.Point{{X: x - cap, Y: c.Max.Y - cap}, {X: x, Y: c.Max.Y}, {X: x + cap, Y: c.Max.Y - cap}})
		})})
	}
	if t.censored() {
		out = append(out, noP95(colorBad))
	}
	return out
}

// bad is the colour of a step without a P95.
func (t *ttftCurve) bad() color.RGBA {
	if t.glyph != nil {
		return t.color
	}
	return colorBad
}

func (t *ttftCurve) censored() bool {
	return slices.ContainsFunc(t.steps, func(s measurement.StepResult) bool { return s.TTFTP95 == nil })
}

// noP95 is the sign at the upper edge for a step whose P95 is censored.
func noP95(col color.RGBA) entry {
	return entry{"no P95: too many turns got no token", sign(func(c *draw.Canvas) { drawNoP95(c, col, c.Center()) })}
}

func drawNoP95(c *draw.Canvas, col color.RGBA, at vg.Point) {
	h, w := vg.Points(5), vg.Points(4)
	c.StrokeLines(draw.LineStyle{Color: col, Width: vg.Points(1.8)}, []vg.Point{{X: at.X - w, Y: at.Y}, {X: at.X, Y: at.Y + h}, {X: at.X + w, Y: at.Y}},
		[]vg.Point{{X: at.X - w, Y: at.Y - h}, {X: at.X, Y: at.Y}, {X: at.X + w, Y: at.Y - h}})
}

// hollow draws a ring on white, so that the line behind it does not show through.
type hollow struct{}

// DrawGlyph satisfies draw.GlyphDrawer.
func (hollow) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	draw.CircleGlyph{}.DrawGlyph(c, s, at)
	c.SetColor(color.White)
	s.Radius -= vg.Points(1.6)
	draw.CircleGlyph{}.DrawGlyph(c, s, at)
}

func fade(c color.RGBA) color.RGBA {
	mix := func(v uint8) uint8 { return uint8((int(v) + 0xff) / 2) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 0xff}
}

func hitCurve(steps []measurement.StepResult, col color.RGBA, glyph draw.GlyphDrawer) (out []plot.Plotter, known bool) {
	var xy plotter.XYs
	for _, s := range steps {
		if s.CacheHitRate != nil && s.Rate > 0 {
			xy = append(xy, plotter.XY{X: s.Rate, Y: 100 * *s.CacheHitRate})
		}
	}
	if len(xy) == 0 {
		return nil, false
	}
	line := &plotter.Line{XYs: xy, LineStyle: draw.LineStyle{Color: col, Width: vg.Points(1.8)}}
	dots := &plotter.Scatter{XYs: xy, GlyphStyle: draw.GlyphStyle{Color: col, Radius: vg.Points(3.6), Shape: glyph}}
	return []plot.Plotter{line, dots}, true
}

// level is a horizontal line at an SLO.
type level struct {
	y     float64
	color color.RGBA
}

// Plot satisfies plot.Plotter.
func (l *level) Plot(c draw.Canvas, p *plot.Plot) {
	_, ty := p.Transforms(&c)
	y := ty(l.y)
	c.StrokeLine2(draw.LineStyle{Color: l.color, Width: vg.Points(1.3), Dashes: dashes}, c.Min.X, y, c.Max.X, y)
}

// levelTag names a level, above its left end.
type levelTag struct{ level }

// Plot satisfies plot.Plotter.
func (l *levelTag) Plot(c draw.Canvas, p *plot.Plot) {
	_, ty := p.Transforms(&c)
	boxed(c, style(vg.Points(11.5), l.color), vg.Point{X: c.Min.X + vg.Points(6), Y: ty(l.y) + vg.Points(3)}, "SLO "+ms(l.y))
}

// mark is a vertical line; several at one place all show.
type mark struct {
	x     float64
	row   int
	color color.Color
	shift int // how many marks of this place were drawn before
}

// Plot satisfies plot.Plotter.
func (m *mark) Plot(c draw.Canvas, p *plot.Plot) {
	tx, _ := p.Transforms(&c)
	x := tx(m.x) + vg.Points(1.5)*vg.Length(m.shift)
	c.StrokeLine2(draw.LineStyle{Color: m.color, Width: vg.Points(1.5), Dashes: dashes, DashOffs: vg.Points(4) * vg.Length(m.shift)}, x, c.Min.Y, x, c.Max.Y)
}

const tagHeight = vg.Inch / 4

// tag names a mark, beside it, its row under the top. It is added last, so that no line crosses it.
type tag struct {
	mark
	label string
}

// Plot satisfies plot.Plotter.
func (t *tag) Plot(c draw.Canvas, p *plot.Plot) {
	tx, _ := p.Transforms(&c)
	s := style(vg.Points(11.5), t.color)
	at := vg.Point{X: tx(t.x) - s.Width(t.label) - vg.Points(6), Y: c.Max.Y - tagHeight*vg.Length(t.row+1)}
	if at.X < c.Min.X+vg.Points(4) {
		at.X = tx(t.x) + vg.Points(7)
	}
	boxed(c, s, at, t.label)
}

// boxed writes text on white, so that lines behind it do not cross it; at is its lower left corner.
func boxed(c draw.Canvas, s text.Style, at vg.Point, label string) {
	pad := vg.Points(1.5)
	w, h := s.Width(label), s.Height(label)
	c.FillPolygon(color.RGBA{0xff, 0xff, 0xff, 0xff}, []vg.Point{{X: at.X - pad, Y: at.Y - pad}, {X: at.X + w + pad, Y: at.Y - pad},
		{X: at.X + w + pad, Y: at.Y + h + pad}, {X: at.X - pad, Y: at.Y + h + pad}})
	s.XAlign, s.YAlign = text.XLeft, text.YBottom
	c.FillText(s, at, label)
}

// notice is a sentence in the middle of an empty plot.
type notice struct{ text string }

// Plot satisfies plot.Plotter.
func (n *notice) Plot(c draw.Canvas, _ *plot.Plot) {
	s := style(vg.Points(12), colorGrey)
	boxed(c, s, vg.Point{X: c.Center().X - s.Width(n.text)/2, Y: c.Center().Y}, n.text)
}

// entry is one line of the legend.
type entry struct {
	label string
	thumb plot.Thumbnailer
}

// sign is a thumbnail made of a function.
type sign func(*draw.Canvas)

// Thumbnail satisfies plot.Thumbnailer.
func (s sign) Thumbnail(c *draw.Canvas) { s(c) }
