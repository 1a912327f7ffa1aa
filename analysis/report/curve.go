package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// marksOf are the points of a curve over the load: y of each whole step that has one.
func marksOf(ss []step, x *scale, y func(*measurement.StepResult) (v, lo, hi float64, ok bool)) (out []mark) {
	for i := range ss {
		s := ss[i].StepResult
		if !drawable(s) {
			continue
		}
		if v, lo, hi, ok := y(s); ok {
			out = append(out, mark{x.at(s.Rate), v, lo, hi, s.Verdict})
		}
	}
	return out
}

// drawable reports whether a step is a point of the curve: it came to its end and has a place on the axis.
func drawable(s *measurement.StepResult) bool {
	return s.Rate > least && s.Rate < greatest && !incomplete(s)
}

// p95 is a step's P95 TTFT with its interval: at least so much where it is censored, +Inf where not even that is known.
func p95(s *measurement.StepResult) (v, lo, hi float64, ok bool) {
	v, lo, hi = value(s.TTFTP95), value(s.TTFTP95CI[0]), math.Inf(1)
	if s.TTFTP95CI[1] != nil {
		hi = *s.TTFTP95CI[1]
		if s.TTFTP95CI[0] == nil {
			lo = 0
		}
	}
	if s.TTFTP95 == nil {
		if !slices.Contains(s.Flags, measurement.FlagCensored) {
			return v, lo, hi, false
		}
		v, lo, hi = math.Inf(1), math.NaN(), math.NaN()
		if s.TTFTP95AtLeast != nil {
			v = *s.TTFTP95AtLeast
			lo, hi = v, math.Inf(1)
		}
	}
	return v, lo, hi, true
}

// through is a line through marks.
func through(name, class string, ms []mark) trace {
	t := trace{name: name, class: class}
	for _, m := range ms {
		t.x, t.y = append(t.x, m.x), append(t.y, m.y)
	}
	return t
}

// verdictKeys are the legend of the verdicts that occur.
func verdictKeys(ms []mark) (out []key) {
	for _, k := range []key{{name: "passes", kind: "pass"}, {name: "fails", kind: "fail"}, {name: "undecided", kind: "undecided"}} {
		if slices.ContainsFunc(ms, func(m mark) bool { return string(m.verdict) == k.kind }) {
			out = append(out, k)
		}
	}
	return out
}

// curve draws P95 TTFT and the hit rate over the load, and whatever else has an objective.
func curve(r *measurement.Results, ss []step) string {
	var loads, values []float64
	for i := range ss {
		if v, lo, hi, ok := p95(ss[i].StepResult); ok && drawable(ss[i].StepResult) {
			loads, values = append(loads, ss[i].Rate), append(values, v, lo, hi, value(ss[i].TTFTP50))
		}
	}
	if len(loads) == 0 {
		return `<p class="empty">No step has a P95 TTFT, so there is no curve.</p>`
	}
	limit, limited := limitMS(r.Config.SLO)
	if limited {
		values = append(values, limit.LimitMS)
	}
	x := across(loads)
	knees, shades := kneeLines(r, &x)
	lo, hi := span(values)
	p := panel{name: "P95 TTFT over the load", note: "ms; bars are 95 % intervals", height: 300 + 28*min(len(r.Mechanism.Evidence), 6), head: 8 + 14*len(knees), y: logarithmic(lo, hi, 9), uprights: knees, shades: shades}
	p.marks = marksOf(ss, &x, p95)
	p.keys = verdictKeys(p.marks)
	single := one(r, ss) // the line takes one figure of each load
	p50 := marksOf(single, &x, func(s *measurement.StepResult) (float64, float64, float64, bool) {
		return value(s.TTFTP50), math.NaN(), math.NaN(), s.TTFTP50 != nil
	})
	p.lines = []trace{through("P95", "c1", marksOf(single, &x, p95)), through("P50", "quiet dash", p50)}
	if limited {
		p.levels = []level{{limit.LimitMS, "SLO: " + objectives([]measurement.Objective{limit})}}
	}
	var said []string
	for i := range ss {
		s := ss[i].StepResult
		if v, _, _, ok := p95(s); ok && drawable(s) && len(said) < 60 {
			what := digits(v) + " ms"
			if s.TTFTP95 == nil {
				what = "on turns without a token"
			}
			said = append(said, fmt.Sprintf("%s at %s (%s)", what, digits(s.Rate), s.Verdict))
		}
	}
	p.desc = "P95 TTFT: " + strings.Join(said, "; ") + "."

	var b strings.Builder
	b.WriteString(`<div class="stack">`)
	p.draw(&b)
	bare := func() []upright {
		u := slices.Clone(knees)
		for i := range u {
			u[i].name = ""
		}
		return u
	}
	for _, o := range others(r.Config.SLO) {
		of := func(s *measurement.StepResult) (float64, float64, float64, bool) {
			for _, v := range s.Objectives {
				if v.Metric == o.Metric && v.Quantile == o.Quantile && v.ValueMS != nil {
					return *v.ValueMS, math.NaN(), math.NaN(), true
				}
			}
			return 0, 0, 0, false
		}
		q := panel{name: objectiveName(o) + " over the load", note: "ms", height: 120, head: 16, uprights: bare(), shades: shades, marks: marksOf(ss, &x, of),
			levels: []level{{o.LimitMS, "SLO: " + objectives([]measurement.Objective{o})}}}
		q.lines = []trace{through("", "c1", marksOf(single, &x, of))}
		lo, hi := span(q.lines[0].y, []float64{o.LimitMS})
		q.y = logarithmic(lo, hi, 5)
		q.desc = q.name + "."
		q.draw(&b)
	}
	hits := marksOf(single, &x, func(s *measurement.StepResult) (float64, float64, float64, bool) {
		return 100 * value(s.CacheHitRate), math.NaN(), math.NaN(), s.CacheHitRate != nil
	})
	if len(hits) > 0 {
		h := panel{name: "Cache hit rate", note: "% of the prompt tokens of measured turns", height: 96, head: 6, y: percents(), uprights: bare(), shades: shades}
		h.lines = []trace{through("", "c3", hits)}
		c := cloud{class: "c3 big"}
		var said []string
		for _, m := range hits {
			c.at = append(c.at, dot{int(m.x * wide), int(h.top(m.y))})
			said = append(said, digits(m.y))
		}
		h.dots = []cloud{c}
		h.desc = "In the order of the loads, in percent: " + strings.Join(said[:min(len(said), 60)], ", ") + "."
		h.draw(&b)
	}
	axis(&b, x.ticks, asked(r.Config)+", "+unit(r.Config))
	b.WriteString(`</div>`)
	return b.String()
}

// others are the objectives that the first panel does not show.
func others(slo []measurement.Objective) (out []measurement.Objective) {
	shown, _ := limitMS(slo)
	for _, o := range slo {
		if o != shown && o.LimitMS > 0 && len(out) < 4 {
			out = append(out, o)
		}
	}
	return out
}

// percents is the scale of shares.
func percents() scale {
	return scale{hi: 100, ticks: []tick{{0, "0"}, {.5, "50"}, {1, "100"}}}
}

// kneeLines are the knees as lines, each name in a row of its own, and the interval of the SLO knee as a stretch.
func kneeLines(r *measurement.Results, x *scale) (lines []upright, shades []shade) {
	if k := r.Knees.SLO; k.Status == measurement.Found && (k.Estimate != nil || k.Rate != nil) {
		v := value(k.Estimate)
		if k.Estimate == nil {
			v = *k.Rate
		}
		name := "SLO knee " + digits(v)
		if k.Estimate != nil {
			name = "limit crossed at " + digits(v)
		}
		if k.CI95 != [2]*float64{} {
			name += " (" + interval(k.CI95) + ")"
			from, to := 0., 1.
			if k.CI95[0] != nil {
				from = x.at(*k.CI95[0])
			}
			if k.CI95[1] != nil {
				to = x.at(*k.CI95[1])
			}
			shades = append(shades, shade{from, to, "band"})
		}
		lines = append(lines, upright{at: x.at(v), class: "knee", name: name})
	}
	for _, k := range []struct {
		knee        measurement.Knee
		name, class string
	}{{r.Knees.Curvature, "curvature knee", "bend"}, {r.Knees.Saturation, "saturation", "full"}} {
		if k.knee.Status != measurement.Found {
			continue
		}
		v := k.knee.Estimate
		if v == nil {
			v = k.knee.Rate
		}
		if v != nil {
			lines = append(lines, upright{at: x.at(*v), class: k.class, name: k.name + " " + digits(*v), row: len(lines)})
		}
	}
	return lines, shades
}
