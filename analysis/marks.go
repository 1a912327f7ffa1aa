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

// ttftCurve draws P95 TTFT: a line through the steps that came to their end, their intervals, and a glyph a step that tells the
// verdict.
type ttftCurve struct {
	steps []measurement.StepResult
	color color.RGBA
	glyph draw.GlyphDrawer // the run's shape among several runs; nil draws by verdict only
	tags  int              // rows kept free for names above everything drawn here
}

func waits(steps []measurement.StepResult, c color.RGBA) *ttftCurve {
	var out []measurement.StepResult
	for _, s := range steps {
		if s.Rate > 0 && s.MeasuredTurns > 0 && !(incomplete(s) && s.TTFTP95 == nil) {
			out = append(out, s)
		}
	}
	return &ttftCurve{steps: out, color: c}
}

func (t *ttftCurve) line() draw.LineStyle {
	return draw.LineStyle{Color: t.color, Width: vg.Points(1.8)}
}

func (t *ttftCurve) whisker() draw.LineStyle {
	return draw.LineStyle{Color: fade(t.color), Width: vg.Points(1.1)}
}

func (t *ttftCurve) dot(v measurement.Verdict) draw.GlyphStyle {
	g := draw.GlyphStyle{Color: t.color, Radius: vg.Points(4.2), Shape: draw.CircleGlyph{}}
	if t.glyph != nil {
		g.Shape = t.glyph
	}
	switch {
	case v == measurement.Fail && t.glyph != nil:
		g.Shape, g.Radius = crossed{g.Shape}, vg.Points(4.6)
	case v == measurement.Fail:
		g.Color, g.Shape = colorBad, draw.BoxGlyph{}
	case v == measurement.Undecided:
		g.Shape = hollow{g.Shape}
	}
	return g
}

// path are the points of the line.
func (t *ttftCurve) path(tx, ty func(float64) vg.Length) []vg.Point {
	var line []vg.Point
	for _, s := range whole(t.steps) {
		if s.TTFTP95 != nil && *s.TTFTP95 > 0 {
			line = append(line, vg.Point{X: tx(s.Rate), Y: ty(*s.TTFTP95)})
		}
	}
	return line
}

// reach is the span of a step's interval; an unbounded one ends in an arrow.
func (t *ttftCurve) reach(s measurement.StepResult, ty func(float64) vg.Length, top vg.Length) (low, high vg.Length, open bool) {
	low, high = ty(*s.TTFTP95), ty(*s.TTFTP95)
	if lo := s.TTFTP95CI[0]; lo != nil && *lo > 0 {
		low = ty(*lo)
	}
	if hi := s.TTFTP95CI[1]; hi != nil {
		return low, ty(*hi), false
	}
	if !unbounded(s) {
		return low, high, false
	}
	return low, min(high+vg.Points(17), top), true
}

// unbounded reports whether a step had too few turns to bound its P95 above. Files of other tools have no intervals at all.
func unbounded(s measurement.StepResult) bool {
	return s.TTFTP95 != nil && s.TTFTP95CI[1] == nil && (s.TTFTP95CI[0] != nil || s.NEff != nil)
}

// Plot draws the curve; it satisfies plot.Plotter.
func (t *ttftCurve) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, s := range t.steps {
		x, cap := tx(s.Rate), vg.Points(3)
		if s.TTFTP95 == nil { // censored: above everything drawn
			drawNoP95(&c, t.bad(), vg.Point{X: x, Y: c.Max.Y - tagHeight*vg.Length(t.tags) - vg.Points(8)})
			continue
		}
		if *s.TTFTP95 <= 0 {
			continue
		}
		low, high, open := t.reach(s, ty, c.Max.Y)
		c.StrokeLine2(t.whisker(), x, low, x, high)
		if low < ty(*s.TTFTP95) {
			c.StrokeLine2(t.whisker(), x-cap, low, x+cap, low)
		}
		if open {
			c.StrokeLines(t.whisker(), []vg.Point{{X: x - cap, Y: high - cap}, {X: x, Y: high}, {X: x + cap, Y: high - cap}})
		} else {
			c.StrokeLine2(t.whisker(), x-cap, high, x+cap, high)
		}
	}
	c.StrokeLines(t.line(), c.ClipLinesXY(t.path(tx, ty))...)
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

// legend explains what is seen, and only that.
func (t *ttftCurve) legend() []entry {
	names := map[measurement.Verdict]string{measurement.Pass: "P95 TTFT, step passes", measurement.Fail: "P95 TTFT, step fails", measurement.Undecided: "P95 TTFT, undecided"}
	if t.glyph != nil {
		names = map[measurement.Verdict]string{measurement.Pass: "filled: passes", measurement.Fail: "crossed: fails", measurement.Undecided: "hollow: undecided"}
	}
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
	whisker := t.whisker()
	var bounded, open bool
	for _, s := range t.steps {
		bounded = bounded || s.TTFTP95 != nil && s.TTFTP95CI[1] != nil
		open = open || unbounded(s)
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
		out = append(out, noP95(t.bad()))
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

// hollow draws the outline of a shape on white, so that the line behind it does not show through.
type hollow struct{ shape draw.GlyphDrawer }

// DrawGlyph satisfies draw.GlyphDrawer.
func (h hollow) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	h.shape.DrawGlyph(c, s, at)
	s.Color, s.Radius = color.White, s.Radius-vg.Points(1.6)
	c.DrawGlyph(draw.GlyphStyle{Color: s.Color, Radius: s.Radius, Shape: h.shape}, at)
}

// crossed draws the outline of a shape and a cross over it.
type crossed struct{ shape draw.GlyphDrawer }

// DrawGlyph satisfies draw.GlyphDrawer.
func (x crossed) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	hollow(x).DrawGlyph(c, s, at)
	r := s.Radius
	c.StrokeLines(draw.LineStyle{Color: s.Color, Width: vg.Points(1.5)}, []vg.Point{{X: at.X - r, Y: at.Y - r}, {X: at.X + r, Y: at.Y + r}},
		[]vg.Point{{X: at.X - r, Y: at.Y + r}, {X: at.X + r, Y: at.Y - r}})
}

func fade(c color.RGBA) color.RGBA {
	mix := func(v uint8) uint8 { return uint8((int(v) + 0xff) / 2) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 0xff}
}

func hitCurve(steps []measurement.StepResult, col color.RGBA, glyph draw.GlyphDrawer) (out []plot.Plotter, known bool) {
	var xy plotter.XYs
	for _, s := range whole(steps) {
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

// otherCurve draws an objective that is not a P95 of TTFT, thin and dashed.
type otherCurve struct {
	objective measurement.Objective
	xy        plotter.XYs
}

// values are those that the axis must hold.
func (o *otherCurve) values() []float64 {
	if o == nil {
		return nil
	}
	out := []float64{o.objective.LimitMS}
	for _, p := range o.xy {
		out = append(out, p.Y)
	}
	return out
}

func (o *otherCurve) line() draw.LineStyle {
	return draw.LineStyle{Color: colorOther, Width: vg.Points(1.1), Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}
}

func (o *otherCurve) path(tx, ty func(float64) vg.Length) []vg.Point {
	var out []vg.Point
	if o != nil {
		for _, p := range o.xy {
			out = append(out, vg.Point{X: tx(p.X), Y: ty(p.Y)})
		}
	}
	return out
}

// Plot satisfies plot.Plotter.
func (o *otherCurve) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	path := o.path(tx, ty)
	c.StrokeLines(o.line(), path)
	for _, at := range path {
		c.DrawGlyph(draw.GlyphStyle{Color: colorOther, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}, at)
	}
}

// Thumbnail satisfies plot.Thumbnailer.
func (o *otherCurve) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(o.line(), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
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
