package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// table is one of the page's: the first cell of a row names it.
type table struct {
	Caption, Note string
	Shown         bool // the caption is seen, not only read out
	Head          []column
	Rows          []row
}

type column struct {
	Name, Unit string
	Left       bool
}

type row struct {
	Class string
	Cells []cell
}

type cell struct {
	Text, Mark, Class string
	Left              bool
	Flags             []named
}

// named is a term and what it means.
type named struct{ Name, Meaning string }

func (t *table) add(class string, cells ...string) {
	r := row{Class: class}
	for i, c := range cells {
		r.Cells = append(r.Cells, cell{Text: c, Left: t.Head[i].Left})
	}
	t.Rows = append(t.Rows, r)
}

const mostRows = 200

// stepTable is the steps in the order in which they were run.
func stepTable(r *measurement.Results) table {
	c := r.Config
	t := table{Caption: "Steps, in the order in which they were run", Head: []column{{Name: asked(c), Unit: unit(c)}, {Name: "came", Unit: loadOf(c) + "/s"}, {Name: answers(c)}, {Name: "TTFT P50", Unit: "ms"}, {Name: "P95", Unit: "ms"},
		{Name: "95 % interval", Unit: "ms"}, {Name: "P99", Unit: "ms"}, {Name: "ITL P95", Unit: "ms"}, {Name: "hit rate", Unit: "%"}, {Name: live(c), Unit: "mean"},
		{Name: "output", Unit: "tokens/s"}, {Name: "errors", Unit: "%"}, {Name: "holds", Unit: "probability"}, {Name: "verdict", Left: true}, {Name: "flags", Left: true}}}
	for i := range r.Steps {
		if i == mostRows {
			t.Note = fmt.Sprintf("%d more steps are left out; kneeanalyze export --format csv has all.", len(r.Steps)-mostRows)
			break
		}
		s := &r.Steps[i]
		t.add(clip(string(s.Verdict), 20), digits(s.Rate), figure(s.ArrivedRate, 1), thousands(s.MeasuredTurns), figure(s.TTFTP50, 1), p95Cell(s), interval(s.TTFTP95CI), tail(s, s.TTFTP99), figure(s.ITLP95, 1),
			share(s.CacheHitRate), figure(s.LiveCallsMean, 1), figure(s.OutputTokens, 1), share(s.ErrorRate), sure(s.PassProbability), clip(string(s.Verdict), 20), "")
		cells := t.Rows[i].Cells
		cells[4].Class = "strong"
		cells[13].Class, cells[13].Mark = "verdict", sign(s.Verdict)
		for _, f := range s.Flags[:min(len(s.Flags), 15)] {
			cells[14].Flags = append(cells[14].Flags, named{clip(f, 40), measurement.FlagMeaningOf(f, c.LoadOf)})
		}
	}
	return t.withoutUnknown()
}

// withoutUnknown is a table without the columns that hold nothing in any row.
func (t table) withoutUnknown() table {
	for i := len(t.Head) - 1; i >= 0 && len(t.Rows) > 0; i-- {
		if slices.ContainsFunc(t.Rows, func(r row) bool { return r.Cells[i].Text != none }) {
			continue
		}
		t.Head = slices.Delete(t.Head, i, i+1)
		for j := range t.Rows {
			t.Rows[j].Cells = slices.Delete(t.Rows[j].Cells, i, i+1)
		}
	}
	return t
}

// tail is a percentile that may land on turns without a token.
func tail(s *measurement.StepResult, v *float64) string {
	if v == nil && slices.Contains(s.Flags, measurement.FlagCensored) {
		return "no token"
	}
	return figure(v, 1)
}

// p95Cell is the P95, at least so much where it is censored.
func p95Cell(s *measurement.StepResult) string {
	if s.TTFTP95 == nil && s.TTFTP95AtLeast != nil {
		return "≥ " + digits(*s.TTFTP95AtLeast)
	}
	return tail(s, s.TTFTP95)
}

func sign(v measurement.Verdict) string {
	switch v {
	case measurement.Pass:
		return "✓"
	case measurement.Fail:
		return "✕"
	}
	return "○"
}

// flagMeanings are those of the flags that occur, in the order in which they do.
func flagMeanings(r *measurement.Results) (out []named) {
	for _, s := range r.Steps {
		for _, f := range s.Flags {
			if m := measurement.FlagMeaningOf(f, r.Config.LoadOf); m != "" && !slices.ContainsFunc(out, func(n named) bool { return n.Name == f }) {
				out = append(out, named{f, m})
			}
		}
	}
	return out
}

// kneeTable is the three knees side by side.
func kneeTable(r *measurement.Results) table {
	t := table{Caption: "Knees", Head: []column{{Name: "knee", Left: true}, {Name: "at", Unit: unit(r.Config)}, {Name: "estimate"}, {Name: "95 % interval"}}}
	add := func(name string, k measurement.Knee) {
		t.add("", name, kneeWords(k), figure(k.Estimate, 1), interval(k.CI95))
		if rate, estimate, ci := kneeFigures(k); k.Status == measurement.Found && rate != "" {
			cells := t.Rows[len(t.Rows)-1].Cells
			for i, s := range []string{rate, estimate, ci} {
				if s != "" {
					cells[i+1].Text = s
				}
			}
		}
	}
	add("SLO knee", r.Knees.SLO)
	if k := r.Knees.SLO; k.Logistic != nil && value(k.Logistic.Estimate) != value(k.Estimate) { // results of an earlier version
		t.add("", "by a logistic curve", none, figure(k.Logistic.Estimate, 1), interval(k.Logistic.CI95))
	}
	add("curvature", r.Knees.Curvature)
	add("saturation", r.Knees.Saturation)
	return t
}

// otherKnees are what else is called a knee.
func otherKnees(r *measurement.Results) table {
	t := table{Caption: "What else is called a knee", Head: []column{{Name: "knee", Left: true}, {Name: "at", Unit: unit(r.Config)}, {Name: "interpolated"}, {Name: "which is", Left: true}}}
	for _, k := range r.Knees.Others[:min(len(r.Knees.Others), 10)] {
		t.add("", method(k.Method), kneeWords(k), figure(k.Estimate, 1), clip(k.Note, 200))
	}
	return t
}

// method names what else is called a knee.
func method(name string) string {
	switch name {
	case "max_throughput":
		return "most completed"
	case "inflation_2x":
		return "P95 doubled"
	case "inflation_3x":
		return "P95 trebled"
	case "power":
		return "most per mean TTFT"
	}
	return clip(strings.ReplaceAll(name, "_", " "), 40)
}

// unpooled is a part of a KV pool in tokens, where the whole of it was not told.
func unpooled(e *measurement.EngineResult, part *float64) string {
	if e.KVPool != nil {
		return none
	}
	return large(part)
}

// engineTable is what the engine said of itself; columns of which nothing is known are left out. nil rows where nothing is.
func engineTable(r *measurement.Results, ss []step) table {
	t := table{Caption: "What the server said of itself, over the same windows and of all its requests", Shown: true, Head: []column{{Name: asked(r.Config), Unit: unit(r.Config)}}}
	type E = measurement.EngineResult
	columns := []struct {
		column
		of func(*E) string
	}{
		{column{Name: "running", Unit: "mean"}, func(e *E) string { return figure(e.RunningMean, 1) }},
		{column{Name: "queued", Unit: "mean"}, func(e *E) string { return figure(e.QueuedMean, 1) }},
		{column{Name: "queued", Unit: "most"}, func(e *E) string { return figure(e.QueuedMax, 1) }},
		{column{Name: "KV in use", Unit: "%"}, func(e *E) string { return share(e.KVUsageMean) }},
		{column{Name: "KV cached", Unit: "%"}, func(e *E) string { return share(analysis.OfPool(e, e.KVCached)) }},
		{column{Name: "KV free", Unit: "%"}, func(e *E) string { return share(analysis.OfPool(e, e.KVFree)) }},
		{column{Name: "KV cached", Unit: "tokens"}, func(e *E) string { return unpooled(e, e.KVCached) }},
		{column{Name: "KV free", Unit: "tokens"}, func(e *E) string { return unpooled(e, e.KVFree) }},
		{column{Name: "evicted", Unit: "tokens/s"}, func(e *E) string { return large(e.EvictedRate) }},
		{column{Name: "retracted"}, func(e *E) string { return figure(e.Retractions, 1) }},
		{column{Name: "hit rate", Unit: "%"}, func(e *E) string { return share(e.CacheHitRate) }},
		{column{Name: "prefill", Unit: "% busy"}, func(e *E) string { return share(e.PrefillBusy) }},
		{column{Name: "decode", Unit: "% busy"}, func(e *E) string { return share(e.DecodeBusy) }},
		{column{Name: "TTFT", Unit: "mean, ms"}, func(e *E) string { return figure(e.TTFTMean, 1) }},
		{column{Name: "client adds", Unit: "ms"}, func(e *E) string { return figure(e.TTFTClientMinus, 1) }},
		{column{Name: "in queue", Unit: "mean, ms"}, func(e *E) string { return figure(e.QueueMean, 1) }},
		{column{Name: "GPU busy", Unit: "%"}, func(e *E) string { return share(e.GPUUtil) }},
		{column{Name: "power", Unit: "W"}, func(e *E) string { return figure(e.GPUPower, 1) }},
	}
	for _, c := range columns {
		if slices.ContainsFunc(ss, func(s step) bool { return s.Engine != nil && c.of(s.Engine) != none }) {
			t.Head = append(t.Head, c.column)
		}
	}
	if len(t.Head) == 1 {
		return t
	}
	for i := range ss {
		if ss[i].Engine == nil {
			continue
		}
		cells := []string{digits(ss[i].Rate)}
		for _, c := range columns {
			if slices.Contains(t.Head, c.column) {
				cells = append(cells, c.of(ss[i].Engine))
			}
		}
		t.add("", cells...)
	}
	return t
}

// failures are the kinds of failure, with what was seen of one.
func failures(ss []step) table {
	t := table{Caption: "Failures, of turns due in a window", Head: []column{{Name: "kind", Left: true}, {Name: "turns"}, {Name: "at"}, {Name: "which is", Left: true}}}
	counts, loads, said := map[measurement.Outcome]int{}, map[measurement.Outcome][]string{}, map[measurement.Outcome]string{}
	for i := range ss {
		for kind, n := range ss[i].ErrorKinds {
			counts[kind] += n
			loads[kind] = append(loads[kind], digits(ss[i].Rate))
		}
		for _, k := range ss[i].turns {
			if k.Outcome.Failed() && k.Detail != "" && said[k.Outcome] == "" {
				said[k.Outcome] = clip(k.Detail, 200)
			}
		}
	}
	if len(said) > 0 {
		t.Head = append(t.Head, column{Name: "one of them said", Left: true})
	}
	kinds := slices.Sorted(maps.Keys(counts))
	for _, kind := range kinds[:min(len(kinds), 30)] {
		where := slices.Compact(loads[kind])
		text := strings.Join(where[:min(len(where), 8)], ", ")
		if len(where) > 8 {
			text += ", …"
		}
		cells := []string{clip(string(kind), 40), thousands(counts[kind]), text, failure(kind)}
		if len(said) > 0 {
			cells = append(cells, said[kind])
		}
		t.add("", cells...)
	}
	return t
}

// tiles are the figures that matter most.
func tiles(r *measurement.Results, ss []step, pass, fail int) (out []tile) {
	k := r.Knees.SLO
	knee := tile{Name: "SLO knee", Value: kneeWords(k), Unit: unit(r.Config), Note: "highest load that passes: provision by it"}
	switch {
	case k.Status == measurement.AboveRange:
		knee.Note = "no load tried failed"
	case k.Status != measurement.Found:
		knee.Unit, knee.Note = "", "of the loads tried none passes"
		if k.Status != measurement.BelowRange {
			knee.Note = "too little to say"
		}
	}
	out = append(out, knee)
	if k.Estimate != nil {
		out = append(out, tile{Name: "Limit crossed at", Value: digits(*k.Estimate), Unit: unit(r.Config), Note: "95 %: " + interval(k.CI95)})
	}
	side := func(i int, name string) {
		if i < 0 {
			return
		}
		s := ss[i].StepResult
		v := p95Cell(s)
		if o, ok := limitMS(r.Config.SLO); ok && o.Quantile == .95 && s.TTFTP95 != nil {
			v = against(*s.TTFTP95, o.LimitMS)
		}
		t := tile{Name: fmt.Sprintf("P95 TTFT at %s", digits(s.Rate)), Value: v, Unit: "ms", Note: name, Class: string(s.Verdict), Mark: sign(s.Verdict)}
		if v == "no token" || v == none {
			t.Unit = ""
		}
		out = append(out, t)
	}
	for _, s := range []struct {
		i    int
		name measurement.Verdict
		said string
	}{{pass, measurement.Pass, "passes"}, {fail, measurement.Fail, "fails"}} {
		if s.i < 0 {
			continue
		}
		side(s.i, s.said)
		last := &out[len(out)-1]
		if v := ss[s.i].Verdict; v != s.name {
			last.Note = string(v)
		}
		if _, of := analysis.StandsFor(r.Steps, ss[s.i].Rate); of > 1 {
			last.Note += fmt.Sprintf("; the longest of %d steps", of)
		}
	}
	if pass >= 0 {
		if s := ss[pass].StepResult; s.LiveCallsMean != nil {
			note := ""
			if s.LiveCallsMax != nil {
				note = fmt.Sprintf("mean; at most %d", *s.LiveCallsMax)
			}
			out = append(out, tile{Name: "Live calls at " + digits(s.Rate), Value: digits(*s.LiveCallsMean), Note: note})
		}
	}
	hit := math.NaN()
	note := ""
	for _, i := range []int{pass, fail} {
		if i >= 0 && ss[i].CacheHitRate != nil {
			if math.IsNaN(hit) {
				hit, note = *ss[i].CacheHitRate, "at "+digits(ss[i].Rate)
			} else {
				note = fmt.Sprintf("%s; %s %% at %s", note, share(ss[i].CacheHitRate), digits(ss[i].Rate))
			}
		}
	}
	if !math.IsNaN(hit) {
		out = append(out, tile{Name: "Cache hit rate", Value: share(&hit), Unit: "%", Note: note})
	}
	return out
}

type tile struct{ Name, Value, Unit, Note, Class, Mark string }
