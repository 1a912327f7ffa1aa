package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// certificate is whether the load was the one asked for, in a sentence.
func certificate(a measurement.Arrivals) string {
	calls := plural(a.Calls, "call")
	switch {
	case a.Process == "":
		return "Nothing is known of when calls were sent."
	case a.Process == "closed":
		return "Closed loop: the next call starts when one ends, so a server that slows down slows its own load, and queueing stays hidden."
	case a.KS == nil && a.CV != nil:
		return fmt.Sprintf("%s were asked to arrive as %s, whose rate is not one all the time: they are not tested against a Poisson process.", strings.ToUpper(calls[:1])+calls[1:], clip(a.Process, 40))
	case a.KS == nil:
		return fmt.Sprintf("%s: too few to certify how they arrived (20 are needed).", strings.ToUpper(calls[:1])+calls[1:])
	case a.Certified:
		return fmt.Sprintf("Certified: %s were sent as a Poisson process of the λ asked would send them.", calls)
	case a.Process == "poisson":
		return fmt.Sprintf("Not Poisson: at least one test says that the %s were not sent as asked, so the knee is not that of Poisson calls.", calls)
	}
	return fmt.Sprintf("%s calls were asked to arrive as %s; the tests hold them against a Poisson process, which they need not be.", thousands(a.Calls), clip(a.Process, 40))
}

// arrivalTests are the tests in words.
func arrivalTests(a measurement.Arrivals) table {
	t := table{Caption: "Tests of the arrivals", Head: []column{{Name: "question", Left: true}, {Name: "figure"}, {Name: "p"}, {Name: "in words", Left: true}}}
	add := func(question string, times float64, v *measurement.Test) {
		if v != nil {
			class := ""
			if v.P < .001 {
				class = "fail"
			}
			t.add(class, question, digits(v.Value*times), probability(v.P), chance(v.P))
		}
	}
	add("Are the gaps exponential, of the λ asked? (Kolmogorov-Smirnov)", 1, a.KS)
	add("Exponential, whatever their mean? (Anderson-Darling)", 1, a.AD)
	add("Is a gap like the one before it? (autocorrelation; 0: no)", 1, a.Lag1)
	for _, d := range a.Dispersion {
		add(fmt.Sprintf("Do counts in %s s vary as they should? (dispersion; 1: yes)", digits(d.WindowS)), 1, &d.Test)
	}
	add("Do calls come on whole seconds? (% of them; .2 by chance)", 100, a.WholeSeconds)
	if a.CV != nil {
		t.add("", "How much do gaps vary? (variation; 1: as exponential ones)", digits(*a.CV), none, "no test of its own")
	}
	return t
}

// gaps draws the distribution of the gaps between calls against the exponential one.
func gaps(log *measurement.Log) string {
	if log == nil {
		return ""
	}
	v := analysis.CallGaps(*log)
	v = slices.DeleteFunc(slices.Clone(v), func(g float64) bool { return math.IsNaN(g) || g < 0 })
	if len(v) < 20 {
		return ""
	}
	slices.Sort(v)
	n := float64(len(v))
	hi := max(4, math.Ceil(min(v[len(v)-1], 8)))
	d := 1.358 / (math.Sqrt(n) + .12 + .11/math.Sqrt(n)) // the distance that KS passes in 5 of 100 samples (Stephens 1974)
	p := panel{name: "Gaps between calls", note: "share of gaps no longer than so much, %", height: 240, head: 6, y: percents()}
	band, model := trace{name: "where 95 of 100 Poisson runs stay", class: "quiet"}, trace{name: "Poisson", class: "quiet dash"}
	const points = 80
	for i := range points + 1 {
		x := float64(i) / points
		f := -math.Expm1(-x * hi)
		model.x, model.y = append(model.x, x), append(model.y, 100*f)
		band.x, band.y, band.base = append(band.x, x), append(band.y, 100*min(f+d, 1)), append(band.base, 100*max(f-d, 0))
	}
	seen := trace{name: "this run", class: "c1", stairs: true, x: []float64{0}, y: []float64{0}}
	const most = 400
	for i := range min(len(v), most) {
		rank := (i + 1) * len(v) / min(len(v), most)
		g := v[rank-1]
		if g > hi {
			break
		}
		seen.x, seen.y = append(seen.x, g/hi), append(seen.y, 100*float64(rank)/n)
	}
	p.areas, p.lines = []trace{band}, []trace{model, seen}
	p.desc = fmt.Sprintf("%s gaps, each times the λ asked, against the exponential distribution of mean 1. The median is %s (exponential: .693), the longest %s.", thousands(len(v)), digits(v[len(v)/2]), digits(v[len(v)-1]))
	var b strings.Builder
	b.WriteString(`<div class="stack">`)
	p.draw(&b)
	var ticks []tick
	for i := 0; float64(i) <= hi; i++ {
		ticks = append(ticks, tick{float64(i) / hi, fmt.Sprint(i)})
	}
	axis(&b, ticks, "gap × λ asked (1 is the mean of a Poisson process)")
	b.WriteString(`</div>`)
	return b.String()
}

// foreign reports whether another tool measured a run: it knows nothing of what only ours counts.
func foreign(r *measurement.Results) bool {
	return r.Tool != "" && !strings.HasPrefix(r.Tool, "kneeload") && !strings.HasPrefix(r.Tool, "kneesim")
}

// client is how the generator itself did, step by step; empty where the files tell nothing of it.
func client(r *measurement.Results, ss []step) table {
	logged := slices.ContainsFunc(ss, func(s step) bool { return len(s.turns) > 0 })
	dials := !foreign(r) || slices.ContainsFunc(ss, func(s step) bool { return s.Dialed+s.Retries > 0 })
	if !dials && !slices.ContainsFunc(ss, func(s step) bool { return s.ScheduleLagP99 != nil }) {
		return table{}
	}
	t := table{Caption: "The generator's own health", Head: []column{{Name: asked(r.Config), Unit: unit(r.Config)}}}
	if logged {
		t.Head = append(t.Head, column{Name: "turns", Unit: "sent"}, column{Name: "lateness P50", Unit: "ms"})
	}
	t.Head = append(t.Head, column{Name: "lateness P99", Unit: "ms"})
	if logged {
		t.Head = append(t.Head, column{Name: "most", Unit: "ms"}, column{Name: "reused", Unit: "% of turns"}, column{Name: "held", Unit: "by the cap"}, column{Name: "own faults", Unit: "turns"})
	}
	if dials {
		t.Head = append(t.Head, column{Name: "dialed", Unit: "in TTFT"}, column{Name: "sent again"})
	}
	for i := range ss {
		s := &ss[i]
		cells := []string{digits(s.Rate)}
		if logged {
			var lags []float64
			sent, reused, held, local := 0, 0, 0, 0
			for _, k := range s.turns {
				if s.log == nil || s.log.WindowStart < 0 || !s.log.InWindow(k.Due) {
					continue
				}
				if d, ok := k.Lag(); ok {
					lags = append(lags, millis(d))
					sent++
				}
				if k.Reused {
					reused++
				}
				if k.Held >= 0 {
					held++
				}
				if k.Local {
					local++
				}
			}
			slices.Sort(lags)
			cells = append(cells, thousands(sent), digits(measurement.Quantile(lags, .5)), figure(s.ScheduleLagP99, 1), digits(measurement.Quantile(lags, 1)),
				digits(100*float64(reused)/float64(sent)), thousands(held), thousands(local))
		} else {
			cells = append(cells, figure(s.ScheduleLagP99, 1))
		}
		class := ""
		if slices.Contains(s.Flags, measurement.FlagClientLimited) {
			class = "fail"
		}
		if dials {
			cells = append(cells, thousands(s.Dialed), thousands(s.Retries))
		}
		t.add(class, cells...)
	}
	return t
}
