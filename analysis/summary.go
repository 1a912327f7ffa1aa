package analysis

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"kneefinder/measurement"
)

// Summary writes what a person reads after a run: first the knees, each a sentence or two, and what binds; then the steps as a
// table, the arrivals and what is doubtful. Absent figures are "-".
func Summary(w io.Writer, r measurement.Results) {
	fmt.Fprintln(w, title(r))
	cut := cutShort(r)
	if cut != "" {
		fmt.Fprintln(w, cut)
	}
	fmt.Fprintln(w)
	u := unitOf(r.Config)
	sentences(w, "SLO knee", kneeHead(u, r.Knees.SLO, r.Steps)+carries(r), r.Knees.SLO.Note)
	sentences(w, "Curvature knee", kneeHead(u, r.Knees.Curvature, r.Steps), r.Knees.Curvature.Note)
	sentences(w, "Saturation", kneeHead(u, r.Knees.Saturation, r.Steps), r.Knees.Saturation.Note)
	if s := othersSentence(u, r.Knees.Others); s != "" {
		sentences(w, "Other knees", s)
	}
	if s := HowSure(r); s != "" {
		sentences(w, "How sure", s)
	}
	binds(w, r.Mechanism)
	fmt.Fprintf(w, "\nObjectives: %s; errors under 2 %%.\n\n", objectives(r.Config.SLO))
	stepTable(w, u, r.Steps)
	fmt.Fprintln(w)
	engineTable(w, u, r.Steps)
	if c := certificate(unitOf(r.Config), r.Arrivals); c != "" {
		sentences(w, "Arrivals", c)
	}
	for _, s := range r.Warnings {
		if s != cut {
			sentences(w, "Warning", s)
		}
	}
}

// twoDigits rounds a count up to two digits.
func twoDigits(n int) int {
	scale := 1
	for n > 99*scale {
		scale *= 10
	}
	return (n + scale - 1) / scale * scale
}

// percent writes a probability; what is nearly sure is not said to be.
func percent(p float64) string {
	switch {
	case p < .01:
		return "under 1 %"
	case p > .99:
		return "over 99 %"
	}
	return fmt.Sprintf("%.0f %%", 100*p)
}

// binds writes what binds as a sentence, and below it what speaks for it.
func binds(w io.Writer, m measurement.Mechanism) {
	name := "cannot be told."
	if m.Name != "" {
		name = humanMechanism(m.Name)
		if m.Confidence != "" {
			name += fmt.Sprintf(" (%s, confidence %s)", m.Name, m.Confidence)
		}
		name += "."
	}
	sentences(w, "What binds", name)
	for _, e := range m.Evidence {
		folded(w, "  -", "   ", e)
	}
}

const tableWidth = 118

// stepTable writes a row a step; flags that would make the table too wide stand below their row. What the flags mean stands
// below the table.
func stepTable(w io.Writer, u unit, steps []measurement.StepResult) {
	rows := [][]string{
		{u.column(), "λ came", u.answers(), "TTFT P50", "P95", "95 % interval", "ITL P95", "hit", u.live(), "errors", "verdict"},
		{string(u), string(u.perSecond()), "", "ms", "ms", "ms", "ms", "%", "mean", "%", ""},
	}
	var flags []string
	for _, s := range steps {
		p95 := number(s.TTFTP95)
		if s.TTFTP95 == nil && slices.Contains(s.Flags, measurement.FlagCensored) {
			p95 = "censored"
		}
		rows = append(rows, []string{rate(s.Rate), maybe(s.ArrivedRate), fmt.Sprint(s.MeasuredTurns), number(s.TTFTP50), p95,
			interval(s.TTFTP95CI, compact), number(s.ITLP95), plain(s.CacheHitRate, "%.1f", 100),
			plain(s.LiveCallsMean, "%.1f", 1), plain(s.ErrorRate, "%.1f", 100), string(s.Verdict)})
		for _, f := range s.Flags {
			if !slices.Contains(flags, f) {
				flags = append(flags, f)
			}
		}
	}
	lines := columns(rows, "verdict")
	for i, line := range lines {
		var names string
		switch {
		case i == 0:
			names = "flags"
		case i > 1:
			names = strings.Join(steps[i-2].Flags, " ")
		}
		switch {
		case utf8.RuneCountInString(line)+2+utf8.RuneCountInString(names) <= tableWidth:
			fmt.Fprintln(w, strings.TrimRight(line+"  "+names, " "))
		case i == 0: // each row that has flags says so
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		default:
			fmt.Fprintf(w, "%s\n        flags: %s\n", strings.TrimRight(line, " "), names)
		}
	}
	if slices.ContainsFunc(steps, func(s measurement.StepResult) bool { return s.ITLBasis == "chunk" }) {
		fmt.Fprintln(w, "ITL is the gap between chunks of several tokens in this run, not between tokens.")
	}
	for _, f := range flags {
		if m := measurement.FlagMeaningOf(f, u.loadOf()); m != "" {
			fmt.Fprintf(w, "  %s: %s\n", f, m)
		}
	}
	if s := repeated(u, steps); s != "" {
		folded(w, " ", " ", s)
	}
}

// repeated says which loads stand in several rows, and which row stands for them; "" when none does.
func repeated(u unit, steps []measurement.StepResult) string {
	var loads []string
	ended := byRate(whole(steps))
	for i := 1; i < len(ended); i++ {
		if again := ended[i].Rate; again == ended[i-1].Rate && !slices.Contains(loads, rate(again)) {
			loads = append(loads, rate(again))
		}
	}
	if len(loads) == 0 {
		return ""
	}
	were, it := "were", "Each"
	if len(loads) == 1 {
		were, it = "was", "It"
	}
	return fmt.Sprintf("%s %s %s measured more than once. %s counts as one load: it fails if one of its steps does, and of those that decide it the longest stands for it.", strings.Join(loads, ", "), u, were, it)
}

// engineTable writes what the engines said of themselves, a row a step; columns of which nothing is known are left out, and so is the
// whole table where nothing is.
func engineTable(w io.Writer, u unit, steps []measurement.StepResult) {
	show := func(f func(*measurement.EngineResult) *float64, format string, times float64) func(*measurement.EngineResult) string {
		return func(e *measurement.EngineResult) string { return plain(f(e), format, times) }
	}
	type E = measurement.EngineResult
	rows := [][]string{{u.column()}, {string(u)}}
	for _, s := range steps {
		if s.Engine != nil {
			rows = append(rows, []string{rate(s.Rate)})
		}
	}
	pool, parts := "%", func(e *E, v *float64) string { return plain(OfPool(e, v), "%.1f", 100) }
	if !poolKnown(steps) {
		pool, parts = "tokens", func(_ *E, v *float64) string { return compact(v) }
	}
	for _, c := range []struct {
		head, unit string
		cell       func(*E) string
	}{
		{"running", "mean", show(func(e *E) *float64 { return e.RunningMean }, "%.1f", 1)},
		{"queued", "mean", show(func(e *E) *float64 { return e.QueuedMean }, "%.1f", 1)},
		{"", "most", show(func(e *E) *float64 { return e.QueuedMax }, "%.0f", 1)},
		{"KV used", "%", show(func(e *E) *float64 { return e.KVUsageMean }, "%.1f", 100)},
		{"KV cached", pool, func(e *E) string { return parts(e, e.KVCached) }},
		{"KV free", pool, func(e *E) string { return parts(e, e.KVFree) }},
		{"evicted", "tokens/s", func(e *E) string { return compact(e.EvictedRate) }},
		{"retracted", "", show(func(e *E) *float64 { return e.Retractions }, "%.0f", 1)},
		{"hit", "%", show(func(e *E) *float64 { return e.CacheHitRate }, "%.1f", 100)},
		{"TTFT", "mean, ms", func(e *E) string { return number(e.TTFTMean) }},
		{"client adds", "ms", show(func(e *E) *float64 { return e.TTFTClientMinus }, "%.1f", 1)},
		{"GPU busy", "%", show(func(e *E) *float64 { return e.GPUUtil }, "%.0f", 100)},
		{"power", "W", show(func(e *E) *float64 { return e.GPUPower }, "%.0f", 1)},
	} {
		cells, known := []string{c.head, c.unit}, false
		for _, s := range steps {
			if s.Engine != nil {
				cells = append(cells, c.cell(s.Engine))
				known = known || cells[len(cells)-1] != "-"
			}
		}
		for i := range rows {
			if known {
				rows[i] = append(rows[i], cells[i])
			}
		}
	}
	if len(rows[0]) == 1 {
		return
	}
	fmt.Fprintln(w, "What the server said of itself, over the same windows and of all its requests:")
	table(w, rows)
	fmt.Fprintln(w)
}

// OfPool is a part of an engine's KV pool as a share of the whole; nil where one of them is unknown. A pool is told in tokens of the
// longest sequence that it holds. Of a model some of whose layers see a window only (Gemma) a request shorter than that takes more of it than
// its tokens, so that only shares can be set against each other.
func OfPool(e *measurement.EngineResult, part *float64) *float64 {
	return figure(value(part) / value(e.KVPool))
}

// poolKnown reports whether every step whose engine told parts of its KV pool told the whole of it too.
func poolKnown(steps []measurement.StepResult) bool {
	return !slices.ContainsFunc(steps, func(s measurement.StepResult) bool {
		return s.Engine != nil && (s.Engine.KVCached != nil || s.Engine.KVFree != nil) && !(value(s.Engine.KVPool) > 0)
	})
}

// compact writes milliseconds in few characters: K stands for a thousand, M for a million.
func compact(v *float64) string {
	switch {
	case v == nil:
	case *v >= 9.995e5:
		return sig(*v/1e6) + "M"
	case *v >= 10000:
		return sig(*v/1000) + "K"
	}
	return number(v)
}

// title names a run: its label, what answered and in what shape, and how far its figures are to be believed.
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
	if shape := deploymentOf(r.Engine).shape(); shape != "" && len(who) > 0 {
		who[len(who)-1] += ","
		who = append(who, shape)
	}
	return strings.Join(append([]string{r.Label + ":"}, append(who, "("+fidelity(r)+")")...), " ")
}

// fidelity says how far a run's figures are to be believed.
func fidelity(r measurement.Results) string {
	if r.Engine.Fidelity == "" {
		return "measured or simulated is not told"
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
func kneeHead(u unit, k measurement.Knee, steps []measurement.StepResult) string {
	var head string
	figure := among(3, k.Rate, k.Estimate, k.CI95[0], k.CI95[1])
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		head = u.of(*k.Rate)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		for _, s := range whole(steps) {
			if s.Rate > *k.Rate {
				return "above " + u.of(*k.Rate) + ", the highest load that tells."
			}
		}
		return "above " + u.of(*k.Rate) + ", the range tried."
	case k.Status == measurement.BelowRange:
		return "below the range tried."
	default:
		return "none."
	}
	if k.Estimate != nil {
		head += "; " + how(k) + " " + figure(k.Estimate)
	}
	if k.CI95 != [2]*float64{} {
		head += ", 95 % interval " + interval(k.CI95, figure)
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
	if i, _ := StandsFor(r.Steps, *k.Rate); i >= 0 {
		if s := r.Steps[i]; s.Verdict == measurement.Pass && s.LiveCallsMean != nil && s.LiveCallsMax != nil {
			u, live := unitOf(r.Config), "live"
			if u.loadOf() == measurement.Requests {
				live = "in flight"
			}
			return fmt.Sprintf(" At %s %.1f %s are %s on average, %d at most.", u.of(s.Rate), *s.LiveCallsMean, u.calls(), live, *s.LiveCallsMax)
		}
	}
	return ""
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
	for _, line := range columns(rows, left...) {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// columns are the lines of a table, all equally long.
func columns(rows [][]string, left ...string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var lines []string
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
		lines = append(lines, line.String())
	}
	return lines
}

// sentences writes a headed paragraph.
func sentences(w io.Writer, head string, text ...string) {
	folded(w, head+":", "   ", text...)
}

// folded writes a paragraph folded so that it stays readable in a terminal; every line but the first begins with indent and a
// space.
func folded(w io.Writer, head, indent string, text ...string) {
	const width = 110
	line := head
	for _, word := range strings.Fields(strings.Join(text, " ")) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(w, line)
			line = indent
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}
