package analysis

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"kneefinder/measurement"
)

// Chart draws a run as a PNG: P95 TTFT over the load on log axes with its interval and the SLO, the cache hit rate below it,
// and the SLO knee and the curvature knee through both. Where another objective decides, its curve and limit are drawn too.
func Chart(w io.Writer, r measurement.Results) error { return pictured(r).png(w) }

// ChartSVG draws what Chart draws, as an SVG.
func ChartSVG(w io.Writer, r measurement.Results) error { return pictured(r).svg(w) }

// how names the way in which a knee's estimate was found.
func how(k measurement.Knee) string {
	if k.Logistic != nil && k.Estimate != nil && value(k.Logistic.Estimate) == *k.Estimate {
		return "estimated"
	}
	return "interpolated"
}

func pictured(r measurement.Results) picture {
	u := unitOf(r.Config)
	steps := byRate(r.Steps)
	decides := decider(r)
	other := decides.curve(steps)
	var marks []mark
	for _, k := range []struct {
		name  string
		knee  measurement.Knee
		color color.Color
	}{{"SLO knee", r.Knees.SLO, colorSLOKnee}, {"curvature knee", r.Knees.Curvature, colorElbow}} {
		if k.knee.Status != measurement.Found || k.knee.Rate == nil {
			continue
		}
		label := k.name + " " + u.of(*k.knee.Rate)
		if k.knee.Estimate != nil {
			label += fmt.Sprintf(" (%s %s)", how(k.knee), sig(*k.knee.Estimate))
		}
		marks = append(marks, mark{*k.knee.Rate, k.color, label})
	}
	top, bottom := panels(2, other.values(), r)
	curve := waits(steps, colorData)
	curve.tags = 2
	l := &layout{marks: marks, curves: []*ttftCurve{curve}, other: other}
	legend := curve.legend()
	for _, limit := range limits([]measurement.Results{r}) {
		l.levels = append(l.levels, level{limit, "SLO", colorSLO})
	}
	if other != nil {
		l.levels = append(l.levels, level{other.objective.LimitMS, objectiveName(other.objective) + " at most", colorOther})
		legend = append(legend, entry{objectiveName(other.objective) + decides.says, other})
	}
	l.addTo(top, bottom)
	if len(curve.steps) == 0 {
		top.Add(&notice{"no step has measured turns"})
	}
	hits, known := hitCurve(steps, colorData, draw.CircleGlyph{})
	bottom.Add(hits...)
	if !known && len(curve.steps) > 0 {
		bottom.Add(&notice{"the server did not say how many tokens were cached"})
	}
	head := []string{title(r), "SLO knee: " + kneeHead(u, r.Knees.SLO, r.Steps) + "  Curvature knee: " + kneeHead(u, r.Knees.Curvature, r.Steps)}
	return picture{append(head, notes(r, decides)...), u.axis(), waitAxis(top, other), legend, top, bottom}
}

// notes are what a reader of the picture must know of its points, in short sentences.
func notes(r measurement.Results, d decision) []string {
	u := unitOf(r.Config)
	var out, off []string
	var undecided []measurement.StepResult
	if cut := cutShort(r); cut != "" {
		out = append(out, cut)
	}
	if d.note != "" {
		out = append(out, d.note)
	}
	for _, s := range byRate(r.Steps) {
		if s.Verdict == measurement.Undecided && !incomplete(s) {
			undecided = append(undecided, s)
		}
		if slices.Contains(s.Flags, measurement.FlagOffRate) && s.ArrivedRate != nil {
			off = append(off, came(s))
		}
	}
	if len(undecided) > 0 {
		out = append(out, fmt.Sprintf("Undecided: %s.", reasoned(u, undecided)))
	}
	if len(off) > 0 {
		out = append(out, fmt.Sprintf("λ that came, where it is off by more than a tenth: %s %s.", listed(off), u.perSecond()))
	}
	if len(out) == 0 {
		return nil
	}
	return []string{strings.Join(out, " ")}
}

// decision is what a run's first failing step failed by, where that is not P95 TTFT.
type decision struct {
	objective *measurement.Objective // nil when P95 TTFT or the errors decide
	says      string
	note      string
}

// decider looks at the first failing step. When none fails and no P95 of TTFT is asked for, the first objective decides.
func decider(r measurement.Results) decision {
	u := unitOf(r.Config)
	p95 := func(o measurement.Objective) bool { return o.Metric == "ttft" && o.Quantile == .95 }
	for _, s := range judged(byRate(r.Steps), r.Config.SLO) {
		if s.Verdict != measurement.Fail {
			continue
		}
		var missed []measurement.Objective
		for _, o := range r.Config.SLO {
			if figureOf(&s, o) > o.LimitMS {
				missed = append(missed, o)
			}
		}
		switch {
		case slices.ContainsFunc(missed, p95):
			return decision{}
		case len(missed) > 0:
			return decision{&missed[0], ", which decides", fmt.Sprintf("The first step to fail, %s, fails by %s.", u.of(s.Rate), objectiveName(missed[0]))}
		case s.ErrorRate != nil && *s.ErrorRate >= maxErrorRate:
			return decision{note: fmt.Sprintf("The first step to fail, %s, fails by its errors: %s of turns.", u.of(s.Rate), percentage(*s.ErrorRate))}
		}
		return decision{}
	}
	if len(r.Config.SLO) > 0 && !slices.ContainsFunc(r.Config.SLO, p95) {
		return decision{objective: &r.Config.SLO[0]}
	}
	return decision{}
}

// curve is that of the objective which decides; nil when that is not drawn by itself.
func (d decision) curve(steps []measurement.StepResult) *otherCurve {
	if d.objective == nil {
		return nil
	}
	c := &otherCurve{objective: *d.objective}
	for _, s := range whole(steps) {
		if y := figureOf(&s, *d.objective); s.Rate > 0 && y > 0 && !math.IsInf(y, 1) {
			c.xy = append(c.xy, plotter.XY{X: s.Rate, Y: y})
		}
	}
	return c
}

// ChartCompare draws the same for several runs in one picture, a colour and a shape each, with their SLO knees. Open and closed
// loops have no axis in common and are refused.
func ChartCompare(w io.Writer, rs []measurement.Results) error {
	p, err := overlaid(rs)
	if err != nil {
		return err
	}
	return p.png(w)
}

// ChartCompareSVG draws what ChartCompare draws, as an SVG.
func ChartCompareSVG(w io.Writer, rs []measurement.Results) error {
	p, err := overlaid(rs)
	if err != nil {
		return err
	}
	return p.svg(w)
}

func overlaid(rs []measurement.Results) (picture, error) {
	if len(rs) == 0 {
		return picture{}, fmt.Errorf("draw chart: no results")
	}
	u, ok := commonUnit(rs)
	if !ok {
		return picture{}, fmt.Errorf("draw chart: the loads of these runs count different things (calls or requests, a second or at once): they do not share an axis")
	}
	rows := len(rs)
	if rows > maxNames {
		rows = 0
	}
	top, bottom := panels(rows, nil, rs...)
	l := &layout{}
	for _, limit := range limits(rs) {
		l.levels = append(l.levels, level{limit, "SLO", colorSLO})
	}
	var legend []entry
	var hits []plot.Plotter
	var all []measurement.StepResult
	known := false
	for i, r := range rs {
		steps := byRate(r.Steps)
		line := waits(steps, palette[i%len(palette)])
		line.glyph, line.tags = glyphs[i%len(glyphs)], rows
		l.curves = append(l.curves, line)
		all = append(all, line.steps...)
		h, ok := hitCurve(steps, line.color, line.glyph)
		hits, known = append(hits, h...), known || ok
		k := r.Knees.SLO
		k.CI95 = [2]*float64{} // the summary has room for it
		label := fmt.Sprintf("%s (%s): SLO knee %s", r.Label, fidelity(r), strings.TrimSuffix(kneeHead(u, k, r.Steps), "."))
		if d := decider(r); d.objective != nil {
			label += ", by " + objectiveName(*d.objective)
		} else if d.note != "" {
			label += ", by errors"
		}
		if cutShort(r) != "" {
			label += ", cut"
		}
		legend = append(legend, entry{label, line})
		if k.Status == measurement.Found && k.Rate != nil {
			m := mark{x: *k.Rate, color: line.color}
			if rows > 0 {
				m.label = r.Label + " " + u.of(*k.Rate)
			}
			l.marks = append(l.marks, m)
		}
	}
	l.addTo(top, bottom)
	bottom.Add(hits...)
	grey := waits(all, colorGrey)
	grey.glyph = draw.CircleGlyph{}
	legend = append(legend, grey.legend()...)
	if !known {
		bottom.Add(&notice{"no server said how many tokens were cached"})
	}
	return picture{[]string{"P95 TTFT and cache hit rate over the load"}, u.axis(), waitAxis(top, nil), legend, top, bottom}, nil
}

// The picture's measures and colours (Okabe and Ito's, told apart by colour-blind readers too).
const (
	chartWidth  = 9.5 * vg.Inch
	chartHeight = 7 * vg.Inch
	chartDPI    = 150
	topShare    = .68
	maxNames    = 4 // more knees than these are named in the legend only
)

var (
	colorData    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	colorBad     = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	colorSLO     = color.RGBA{0xc0, 0x20, 0x20, 0xff}
	colorSLOKnee = color.RGBA{0x00, 0x7a, 0x5a, 0xff}
	colorOther   = color.RGBA{0x8a, 0x5a, 0x00, 0xff}
	colorElbow   = color.RGBA{0x99, 0x4f, 0x88, 0xff}
	colorGrid    = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	colorGrey    = color.RGBA{0x55, 0x55, 0x55, 0xff}

	palette = []color.RGBA{colorData, colorBad, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x33, 0x33, 0x33, 0xff}}
	glyphs  = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}
	dashes  = []vg.Length{vg.Points(5), vg.Points(3)}
)

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func style(size vg.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: sans(size), Handler: plot.DefaultTextHandler}
}

// measuredRates are the rates of the steps that can stand on a log axis.
func measuredRates(r measurement.Results) []float64 {
	var out []float64
	for _, s := range r.Steps {
		if s.Rate > 0 && s.MeasuredTurns > 0 {
			out = append(out, s.Rate)
		}
	}
	return out
}

func p95Objectives(r measurement.Results) []measurement.Objective {
	var out []measurement.Objective
	for _, o := range r.Config.SLO {
		if o.Metric == "ttft" && o.Quantile == .95 && o.LimitMS > 0 {
			out = append(out, o)
		}
	}
	return out
}

// limits are the different P95 TTFT limits of several runs.
func limits(rs []measurement.Results) []float64 {
	var out []float64
	seen := map[float64]bool{}
	for _, r := range rs {
		for _, o := range p95Objectives(r) {
			if !seen[o.LimitMS] {
				seen[o.LimitMS] = true
				out = append(out, o.LimitMS)
			}
		}
	}
	return out
}

// panels returns the two empty plots, scaled to hold all runs, the values beside, and so many knees' names above the data.
func panels(names int, beside []float64, rs ...measurement.Results) (top, bottom *plot.Plot) {
	x0, x1, y0, y1 := math.Inf(1), 0., math.Inf(1), 0.
	for _, y := range beside {
		y0, y1 = min(y0, y), max(y1, y)
	}
	for _, r := range rs {
		for _, x := range measuredRates(r) {
			x0, x1 = min(x0, x), max(x1, x)
		}
		for _, s := range r.Steps {
			for _, y := range []*float64{s.TTFTP95, s.TTFTP95CI[0], s.TTFTP95CI[1]} {
				if y != nil && *y > 0 {
					y0, y1 = min(y0, *y), max(y1, *y)
				}
			}
		}
	}
	for _, l := range limits(rs) {
		y0, y1 = min(y0, l), max(y1, l)
	}
	if y1 == 0 {
		y0, y1 = 1, 1000
	}
	if x1 == 0 {
		x0, x1 = .1, 1
	}
	margin := max(math.Pow(x1/x0, .04), 1.02)
	if x0 == x1 {
		margin = 1.5
	}
	x0, x1 = x0/margin, x1*margin
	span := max(y1/y0, 3)
	head := .1 + .07*float64(names) // of the panel's height
	y0, y1 = y0/math.Pow(span, .08), y0*math.Pow(span, 1/(1-head))

	top, bottom = newPanel(x0, x1), newPanel(x0, x1)
	top.Y.Min, top.Y.Max = y0, y1
	top.Y.Scale, top.Y.Tick.Marker = plot.LogScale{}, logTicks{seconds: inSeconds(top)}
	top.X.Tick.Marker = logTicks{bare: true}
	bottom.Y.Min, bottom.Y.Max = 0, 104
	bottom.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 100, Label: "100"}}
	return top, bottom
}

func newPanel(x0, x1 float64) *plot.Plot {
	p := plot.New()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
	p.X.Min, p.X.Max = x0, x1
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		a.Tick.Label.Font = sans(vg.Points(11))
		a.LineStyle.Color, a.Tick.LineStyle.Color = colorGrey, colorGrey
	}
	grid := plotter.NewGrid()
	for _, l := range []*draw.LineStyle{&grid.Horizontal, &grid.Vertical} {
		l.Color, l.Width = colorGrid, vg.Points(.8)
	}
	p.Add(grid)
	return p
}

// logTicks labels 1, 2 and 5 of every decade, more of them where the axis spans little, fewer where it spans much.
type logTicks struct {
	bare    bool
	seconds bool // the values are milliseconds, the labels seconds
}

// inSeconds reports whether a panel of milliseconds reads better in seconds.
func inSeconds(p *plot.Plot) bool { return p.Y.Max > 10_000 }

// onAxis writes milliseconds in the unit of a panel's axis.
func onAxis(p *plot.Plot, v float64) string {
	if inSeconds(p) {
		return sig(v/1000) + " s"
	}
	return ms(v)
}

// Ticks returns the ticks between two values.
func (l logTicks) Ticks(lo, hi float64) []plot.Tick {
	labelled := func(mantissas ...float64) []plot.Tick {
		var out []plot.Tick
		for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
			for _, m := range mantissas {
				v, err := strconv.ParseFloat(fmt.Sprintf("%ge%d", m, int(e)), 64)
				if err == nil && v >= lo && v <= hi {
					shown := v
					if l.seconds {
						shown /= 1000
					}
					out = append(out, plot.Tick{Value: v, Label: grouped(strconv.FormatFloat(shown, 'f', -1, 64))})
				}
			}
		}
		return out
	}
	ticks := labelled(1, 2, 5)
	switch {
	case len(ticks) > 12:
		ticks = labelled(1)
	case len(ticks) < 4:
		ticks = labelled(1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
	}
	if len(ticks) < 3 {
		ticks = plot.DefaultTicks{}.Ticks(lo, hi)
	}
	seen := map[float64]bool{}
	for i := range ticks {
		seen[ticks[i].Value] = true
		if l.bare && ticks[i].Label != "" {
			ticks[i].Label = " "
		}
	}
	for _, t := range labelled(1, 2, 3, 4, 5, 6, 7, 8, 9) {
		if !seen[t.Value] {
			ticks = append(ticks, plot.Tick{Value: t.Value})
		}
	}
	return ticks
}

// grouped sets commas between the thousands of a whole number.
func grouped(s string) string {
	if strings.Contains(s, ".") {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// picture is what stands in a chart.
type picture struct {
	head        []string // its lines
	load, wait  string   // the names of the axes
	legend      []entry
	top, bottom *plot.Plot
}

// waitAxis names what is drawn in the upper panel.
func waitAxis(top *plot.Plot, other *otherCurve) string {
	name, unit := "P95 TTFT", "ms"
	if other != nil {
		name += " and " + objectiveName(other.objective)
	}
	if inSeconds(top) {
		unit = "s"
	}
	return name + ", " + unit
}

// png writes the picture as a PNG.
func (p picture) png(w io.Writer) error {
	img := vgimg.NewWith(vgimg.UseWH(chartWidth, chartHeight), vgimg.UseDPI(chartDPI))
	p.drawOn(draw.New(img))
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(w); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

// svg writes the picture as an SVG on white. Its texts name the font that they were laid out with, whose measures Arial and
// Helvetica have too.
func (p picture) svg(w io.Writer) error {
	img := vgsvg.New(chartWidth, chartHeight)
	c := draw.New(img)
	c.FillPolygon(color.White, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	p.drawOn(c)
	var b bytes.Buffer
	if _, err := img.WriteTo(&b); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	named := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if _, err := w.Write(named); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

// drawOn lays out the head, the legend and the two panels, the data areas one above the other.
func (p picture) drawOn(c draw.Canvas) {
	top, bottom := p.top, p.bottom
	pad := vg.Points(10)
	c = draw.Crop(c, pad, -pad-vg.Points(6), pad, -pad)
	for i, line := range p.head {
		s := style(vg.Points(11.5), colorGrey)
		if i == 0 {
			s = style(vg.Points(14), color.Black)
		}
		lines := []string{line}
		if i > 1 {
			s = style(vg.Points(10.5), colorGrey)
			lines = wrapped(s, line, c.Max.X-c.Min.X)
		}
		for _, line := range lines {
			s := fit(s, line, c.Max.X-c.Min.X)
			s.YAlign = text.YTop
			c.FillText(s, vg.Point{X: c.Min.X, Y: c.Max.Y}, line)
			c.Max.Y -= s.Height(line) + vg.Points(5)
		}
	}
	c.Max.Y = drawLegend(c, p.legend) - vg.Points(9)

	low, high := c, c
	axis := vg.Points(22) // the axes' names are written here: on a log axis plot reserves room for them in the wrong place
	low.Min.X, high.Min.X, low.Min.Y = c.Min.X+axis, c.Min.X+axis, c.Min.Y+axis
	split := low.Min.Y + (c.Max.Y-low.Min.Y)*(1-topShare)
	high.Min.Y, low.Max.Y = split+vg.Points(5), split-vg.Points(5)
	left := max(top.DataCanvas(high).Min.X, bottom.DataCanvas(low).Min.X)
	for range 2 { // ticks may change as the canvas narrows; the second pass settles it
		high.Min.X += left - top.DataCanvas(high).Min.X
		low.Min.X += left - bottom.DataCanvas(low).Min.X
	}
	top.Draw(high)
	bottom.Draw(low)
	name := style(vg.Points(13), color.Black)
	name.XAlign, name.YAlign = text.XCenter, text.YBottom
	data, upper := bottom.DataCanvas(low), top.DataCanvas(high)
	c.FillText(name, vg.Point{X: data.Center().X, Y: c.Min.Y}, p.load)
	name.Rotation, name.YAlign = math.Pi/2, text.YTop
	c.FillText(name, vg.Point{X: c.Min.X, Y: data.Center().Y}, "cache hit rate, %")
	c.FillText(fit(name, p.wait, upper.Size().Y), vg.Point{X: c.Min.X, Y: upper.Center().Y}, p.wait)
}

// wrapped breaks a text into lines no wider than so much.
func wrapped(s text.Style, label string, width vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(label) {
		if line != "" && s.Width(line+" "+word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// fit makes a text smaller until it is no wider than so much.
func fit(s text.Style, label string, width vg.Length) text.Style {
	if w := s.Width(label); w > width {
		s.Font.Size *= width / w
	}
	return s
}

// drawLegend lets the entries flow from left to right under the head and returns where the legend ends.
func drawLegend(c draw.Canvas, legend []entry) (bottom vg.Length) {
	plain := style(vg.Points(11), color.Black)
	plain.YAlign = text.YCenter
	thumb, gap, height := vg.Points(26), vg.Points(6), vg.Points(17)
	x, y := c.Min.X, c.Max.Y
	for _, e := range legend {
		s := fit(plain, e.label, c.Max.X-c.Min.X-thumb-gap)
		width := thumb + gap + s.Width(e.label) + 3*gap
		if x > c.Min.X && x+width > c.Max.X+3*gap {
			x, y = c.Min.X, y-height
		}
		t := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: y - height + vg.Points(2)}, Max: vg.Point{X: x + thumb, Y: y - vg.Points(2)}}}
		e.thumb.Thumbnail(&t)
		c.FillText(s, vg.Point{X: x + thumb + gap, Y: t.Center().Y}, e.label)
		x += width
	}
	if len(legend) == 0 {
		return y
	}
	return y - height
}
