package analysis

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"kneefinder/measurement"
)

// Summary writes what a person reads after a run: the steps as a table, then a sentence or two on the arrivals, on each knee, on
// what binds and on what is doubtful. Absent figures are "-".
func Summary(w io.Writer, r measurement.Results) {
	fmt.Fprintln(w, title(r))
	fmt.Fprintf(w, "Objectives: %s; errors under 2 %%.\n\n", objectives(r.Config.SLO))
	u := unitOf(r.Config)
	rows := [][]string{
		{u.column(), "λ came", "measured", "TTFT P50", "P95", "95 % interval", "P99", "ITL P50", "P95", "hit rate", "live calls", "errors", "verdict", "flags"},
		{string(u), string(perSecond), "turns", "ms", "ms", "ms", "ms", "ms", "ms", "%", "mean", "%", "", ""},
	}
	for _, s := range r.Steps {
		p95 := number(s.TTFTP95)
		if s.TTFTP95 == nil && slices.Contains(s.Flags, measurement.FlagCensored) {
			p95 = "censored"
		}
		rows = append(rows, []string{rate(s.Rate), plain(s.ArrivedRate, "%.3g", 1), fmt.Sprint(s.MeasuredTurns), number(s.TTFTP50), p95,
			interval(s.TTFTP95CI, number), number(s.TTFTP99), number(s.ITLP50), number(s.ITLP95), plain(s.CacheHitRate, "%.1f", 100),
			plain(s.LiveCallsMean, "%.1f", 1), plain(s.ErrorRate, "%.1f", 100), string(s.Verdict), strings.Join(s.Flags, " ")})
	}
	table(w, rows, "verdict", "flags")
	if slices.ContainsFunc(r.Steps, func(s measurement.StepResult) bool { return s.ITLBasis == "chunk" }) {
		fmt.Fprintln(w, "ITL is the gap between chunks of several tokens in this run, not between tokens.")
	}
	fmt.Fprintln(w)
	if c := certificate(r.Arrivals); c != "" {
		sentences(w, "Arrivals", c)
	}
	sentences(w, "SLO knee", kneeHead(u, r.Knees.SLO)+carries(r), r.Knees.SLO.Note)
	sentences(w, "Curvature knee", kneeHead(u, r.Knees.Curvature), r.Knees.Curvature.Note)
	sentences(w, "Saturation", kneeHead(u, r.Knees.Saturation), r.Knees.Saturation.Note)
	name := r.Mechanism.Name
	switch {
	case name == "":
		name = "cannot be told."
	case r.Mechanism.Confidence != "":
		name += fmt.Sprintf(" (confidence %s).", r.Mechanism.Confidence)
	}
	sentences(w, "What binds", name, strings.Join(r.Mechanism.Evidence, " "))
	for _, s := range r.Warnings {
		sentences(w, "Warning", s)
	}
}

// CompareSummary writes the knees of several runs side by side, each also as a multiple of the first run's, then every setting
// in which the runs' workloads differ: knees of different workloads do not compare.
func CompareSummary(w io.Writer, rs []measurement.Results) {
	if len(rs) == 0 {
		return
	}
	rows := [][]string{{"run", "SLO knee", "estimate", "95 % interval", "of the first", "curvature knee", "saturation", "P95 TTFT at the lowest load", "what binds"}}
	if u, ok := commonUnit(rs); ok {
		c := string(u)
		rows = append(rows, []string{"", c, c, c, "", c, c, "ms", ""})
	} else {
		rows[0] = slices.Insert(rows[0], 1, "load")
		rows = append(rows, []string{"", "", "", "", "", "", "", "", "ms", ""})
	}
	for _, r := range rs {
		k := r.Knees.SLO
		times := "-"
		if a, b := best(rs[0].Knees.SLO), best(k); a > 0 && b > 0 && unitOf(r.Config) == unitOf(rs[0].Config) {
			times = fmt.Sprintf("%.2fx", b/a)
		}
		p95 := "-"
		if steps := byRate(r.Steps); len(steps) > 0 {
			p95 = fmt.Sprintf("%s at %s", number(steps[0].TTFTP95), rate(steps[0].Rate))
		}
		row := []string{r.Label, kneeCell(k), plain(k.Estimate, "%.3g", 1), interval(k.CI95, func(v *float64) string { return plain(v, "%.3g", 1) }),
			times, kneeCell(r.Knees.Curvature), kneeCell(r.Knees.Saturation), p95, orDash(r.Mechanism.Name)}
		if len(row) < len(rows[0]) {
			row = slices.Insert(row, 1, string(unitOf(r.Config)))
		}
		rows = append(rows, row)
	}
	table(w, rows, "run", "load", "what binds")
	fmt.Fprintln(w)
	for _, r := range rs {
		fmt.Fprintln(w, title(r))
	}
	for _, r := range rs[1:] {
		for _, d := range differences(rs[0], r) {
			sentences(w, "Warning", fmt.Sprintf("%s and %s are not the same workload: %s.", rs[0].Label, r.Label, d))
		}
	}
}

// best is the estimate, or the knee itself, of a found knee; NaN of any other.
func best(k measurement.Knee) float64 {
	if k.Status != measurement.Found {
		return math.NaN()
	}
	if k.Estimate != nil {
		return *k.Estimate
	}
	return value(k.Rate)
}

// title names a run: its label, what answered, and how far its figures are to be believed.
func title(r measurement.Results) string {
	var who []string
	if r.Engine.Model != "" {
		who = append(who, r.Engine.Model)
	}
	switch kind := strings.TrimSpace(r.Engine.Kind + " " + r.Engine.Version); {
	case r.Engine.Kind == "simulated":
		who = append(who, kind)
	case kind != "":
		who = append(who, "on "+kind)
	}
	if r.Engine.GPU != "" {
		who = append(who, "on "+r.Engine.GPU)
	}
	return strings.Join(append([]string{r.Label + ":"}, append(who, "("+fidelity(r)+")")...), " ")
}

// fidelity says how far a run's figures are to be believed.
func fidelity(r measurement.Results) string {
	if r.Engine.Fidelity == "" {
		return "fidelity unknown"
	}
	return r.Engine.Fidelity
}

func objectives(slo []measurement.Objective) string {
	if len(slo) == 0 {
		return "none"
	}
	var out []string
	for _, o := range slo {
		out = append(out, fmt.Sprintf("%s at most %s", objectiveName(o), ms(o.LimitMS)))
	}
	return strings.Join(out, ", ")
}

// kneeHead is a knee in a few words.
func kneeHead(u unit, k measurement.Knee) string {
	var head string
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		head = u.of(*k.Rate)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return "above " + u.of(*k.Rate) + ", the range tried."
	case k.Status == measurement.BelowRange:
		return "below the range tried."
	default:
		return "none."
	}
	if k.Estimate != nil {
		head += fmt.Sprintf("; interpolated %.3g", *k.Estimate)
	}
	if k.CI95 != [2]*float64{} {
		head += ", 95 % interval " + interval(k.CI95, func(v *float64) string { return plain(v, "%.3g", 1) })
	}
	return head + "."
}

func kneeCell(k measurement.Knee) string {
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		return rate(*k.Rate)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return "> " + rate(*k.Rate)
	case k.Status == measurement.BelowRange:
		return "below range"
	}
	return "none"
}

// carries says how many calls are live at the SLO knee, which is what a deployment is sized by.
func carries(r measurement.Results) string {
	k := r.Knees.SLO
	if k.Rate == nil {
		return ""
	}
	for _, s := range r.Steps {
		if s.Rate == *k.Rate && s.Verdict == measurement.Pass && s.LiveCallsMean != nil && s.LiveCallsMax != nil {
			return fmt.Sprintf(" At %s %.1f calls are live on average, %d at most.", unitOf(r.Config).of(s.Rate), *s.LiveCallsMean, *s.LiveCallsMax)
		}
	}
	return ""
}

// differences names the settings that make two runs' knees incomparable.
func differences(a, b measurement.Results) []string {
	var out []string
	for _, f := range []struct {
		name string
		of   func(measurement.Config) any
	}{
		{"system_prompt_tokens", func(c measurement.Config) any { return c.SystemPromptTokens }},
		{"user_tokens", func(c measurement.Config) any { return c.UserTokens }},
		{"turns", func(c measurement.Config) any { return c.Turns }},
		{"output_tokens", func(c measurement.Config) any { return c.OutputTokens }},
		{"ignore_eos", func(c measurement.Config) any { return c.IgnoreEOS }},
		{"gap_min_s", func(c measurement.Config) any { return c.GapMinSeconds }},
		{"gap_max_s", func(c measurement.Config) any { return c.GapMaxSeconds }},
		{"arrivals", func(c measurement.Config) any { return process(c) }},
		{"slo", func(c measurement.Config) any { return objectives(c.SLO) }},
	} {
		if va, vb := f.of(a.Config), f.of(b.Config); va != vb {
			out = append(out, fmt.Sprintf("%s is %v against %v", f.name, va, vb))
		}
	}
	return out
}

// number writes milliseconds for a cell.
func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strings.TrimSuffix(ms(*v), " ms")
}

func plain(v *float64, format string, times float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*times)
}

// interval writes two ends; one that is unknown is open.
func interval(ci [2]*float64, end func(*float64) string) string {
	switch {
	case ci[0] == nil && ci[1] == nil:
		return "-"
	case ci[1] == nil:
		return end(ci[0]) + " or more"
	case ci[0] == nil:
		return "up to " + end(ci[1])
	}
	return end(ci[0]) + " to " + end(ci[1])
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// table writes rows whose first is the head; columns of figures stand to the right, those named in left to the left.
func table(w io.Writer, rows [][]string, left ...string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if slices.Contains(left, rows[0][i]) {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// sentences writes a headed paragraph, folded so that it stays readable in a terminal.
func sentences(w io.Writer, head string, text ...string) {
	const width = 110
	line := head + ":"
	for _, word := range strings.Fields(strings.Join(text, " ")) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(w, line)
			line = "   "
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}
