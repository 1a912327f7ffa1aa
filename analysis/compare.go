package analysis

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// ComparisonSchema names the form of a Comparison in JSON.
const ComparisonSchema = "kneefinder/comparison/v1"

// Comparison is several runs beside the first of them. It is a value: goroutines may share it.
type Comparison struct {
	Schema   string        `json:"schema"`
	Runs     []ComparedRun `json:"runs"`     // in the order given
	Warnings []string      `json:"warnings"` // why the knees may not be comparable: other workloads, other windows

	results []measurement.Results
}

// ComparedRun is one run of a comparison. What a run costs is absent where it was not told.
type ComparedRun struct {
	Label     string           `json:"label"`
	Unit      string           `json:"unit"` // of its loads: "calls/s", or "calls at once" of a closed loop
	Knee      measurement.Knee `json:"slo_knee"`
	OfFirst   Ratio            `json:"of_first"`
	GPUs      *float64         `json:"gpus,omitempty"`
	Price     *float64         `json:"price_dollars_per_hour,omitempty"`
	PerGPU    *Share           `json:"per_gpu,omitempty"`                     // calls/s (or calls at once) a GPU
	PerDollar *Share           `json:"per_dollar_per_hour,omitempty"`         // calls/s (or calls at once) for a dollar an hour
	BreakEven *Share           `json:"break_even_dollars_per_hour,omitempty"` // the price at which it carries as much for a dollar as the first run does
	Binds     string           `json:"binds"`                                 // the name of what binds; "" when that cannot be told
}

// Share is a knee by what it costs.
type Share struct {
	Estimate *float64    `json:"estimate"`
	CI95     [2]*float64 `json:"ci95"`
	OfFirst  Ratio       `json:"of_first"`
}

// Ratio is how many times the first run's SLO knee another run's is.
//
// Its interval comes from those of the two knees by recovering their variances on the log scale (MOVER, Zou and Donner 2008): with
// knees a and b, whose intervals are (al, ah) and (bl, bh), its ends are ln(b/a) - sqrt(ln(b/bl)^2 + ln(ah/a)^2) and ln(b/a) +
// sqrt(ln(bh/b)^2 + ln(a/al)^2). It keeps the intervals' asymmetry, takes the two runs as independent, and is too wide when
// they shared their arrivals. An end for which one of the knees has none is absent.
type Ratio struct {
	Estimate *float64    `json:"estimate"`
	CI95     [2]*float64 `json:"ci95"`
	Note     string      `json:"note"` // why something cannot be told; "" when nothing is missing
}

// Costs are what runs took, by label.
type Costs struct {
	Price map[string]float64 // dollars an hour, of all that the run used together
	GPUs  map[string]float64 // how many
}

// check says of the first label that no run has, and of the first figure that is none.
func (c Costs) check(rs []measurement.Results) error {
	var labels []string
	for _, r := range rs {
		labels = append(labels, r.Label)
	}
	for _, m := range []struct {
		name  string
		of    map[string]float64
		whole bool
	}{{"price", c.Price, false}, {"number of GPUs", c.GPUs, true}} {
		for _, label := range slices.Sorted(maps.Keys(m.of)) {
			switch v := m.of[label]; {
			case !slices.Contains(labels, label):
				return fmt.Errorf("the %s of %q: no run has this label; the labels are %s", m.name, label, strings.Join(labels, ", "))
			case !(v > 0) || math.IsInf(v, 0):
				return fmt.Errorf("the %s of %q is %v, must be above 0", m.name, label, v)
			case m.whole && v != math.Trunc(v):
				return fmt.Errorf("the %s of %q is %v, must be a whole number", m.name, label, v)
			}
		}
	}
	return nil
}

// Compare sets runs beside the first of them. Costs of labels that no run has are an error.
func Compare(rs []measurement.Results, costs Costs) (Comparison, error) {
	if err := costs.check(rs); err != nil {
		return Comparison{}, err
	}
	c := Comparison{Schema: ComparisonSchema, Runs: []ComparedRun{}, Warnings: []string{}, results: rs}
	for i, r := range rs {
		run := ComparedRun{Label: r.Label, Unit: string(unitOf(r.Config)), Knee: r.Knees.SLO, OfFirst: ratioOf(rs[0], r), Binds: r.Mechanism.Name}
		if run.OfFirst.Estimate != nil && i == 0 { // itself, with no doubt
			run.OfFirst = Ratio{Estimate: figure(1), CI95: [2]*float64{figure(1), figure(1)}}
		}
		first := func(of map[string]float64) float64 {
			if v, ok := of[rs[0].Label]; ok {
				return v
			}
			return math.NaN()
		}
		if v, ok := costs.GPUs[r.Label]; ok {
			run.GPUs, run.PerGPU = &v, shareOf(r, v, run.OfFirst, first(costs.GPUs))
		}
		if v, ok := costs.Price[r.Label]; ok {
			run.Price, run.PerDollar = &v, shareOf(r, v, run.OfFirst, first(costs.Price))
		}
		if p := first(costs.Price); i > 0 && !math.IsNaN(p) && run.OfFirst.Estimate != nil {
			run.BreakEven = &Share{Estimate: figure(p * *run.OfFirst.Estimate), OfFirst: run.OfFirst,
				CI95: [2]*float64{figure(p * value(run.OfFirst.CI95[0])), figure(p * value(run.OfFirst.CI95[1]))}}
		}
		c.Runs = append(c.Runs, run)
	}
	for _, r := range rs[min(1, len(rs)):] {
		c.Warnings = append(c.Warnings, unlike(rs[0], r)...)
	}
	return c, nil
}

// kneeAt is where a run's SLO knee is: its estimate, or the rate tried where it has none; NaN when there is no knee within the loads
// tried, and why.
func kneeAt(r measurement.Results) (at float64, why string) {
	u, k := unitOf(r.Config), r.Knees.SLO
	switch {
	case k.Status == measurement.Found && k.Estimate != nil && *k.Estimate > 0:
		return *k.Estimate, ""
	case k.Status == measurement.Found && k.Rate != nil && *k.Rate > 0:
		return *k.Rate, ""
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return math.NaN(), fmt.Sprintf("the SLO knee of %s lies above %s, the highest load tried", r.Label, u.of(*k.Rate))
	case k.Status == measurement.BelowRange:
		return math.NaN(), fmt.Sprintf("the SLO knee of %s lies below the loads tried", r.Label)
	}
	return math.NaN(), r.Label + " has no SLO knee"
}

func ratioOf(a, b measurement.Results) Ratio {
	if ua, ub := unitOf(a.Config), unitOf(b.Config); ua != ub {
		return Ratio{Note: fmt.Sprintf("%s counts %s and %s %s", a.Label, ua, b.Label, ub)}
	}
	x, noA := kneeAt(a)
	y, noB := kneeAt(b)
	if noA != "" || noB != "" {
		if noA != "" && noB != "" && noA != noB {
			noA += ", and "
		} else if noA == noB {
			noB = ""
		}
		return Ratio{Note: noA + noB}
	}
	out := Ratio{Estimate: figure(y / x)}
	ends := func(k measurement.Knee, at float64) (below, above float64) { // how far an interval reaches, in logs; NaN where it does not end
		below, above = math.NaN(), math.NaN()
		if lo := k.CI95[0]; lo != nil && *lo > 0 {
			below = math.Log(at / min(*lo, at))
		}
		if hi := k.CI95[1]; hi != nil {
			above = math.Log(max(*hi, at) / at)
		}
		return below, above
	}
	belowA, aboveA := ends(a.Knees.SLO, x)
	belowB, aboveB := ends(b.Knees.SLO, y)
	out.CI95 = [2]*float64{figure(y / x * math.Exp(-math.Hypot(belowB, aboveA))), figure(y / x * math.Exp(math.Hypot(aboveB, belowA)))}
	var open []string
	say := func(v float64, end, label string) {
		if math.IsNaN(v) {
			open = append(open, fmt.Sprintf("that of %s has no %s end", label, end))
		}
	}
	say(belowB, "lower", b.Label)
	say(aboveB, "upper", b.Label)
	say(belowA, "lower", a.Label)
	say(aboveA, "upper", a.Label)
	if len(open) > 0 {
		out.Note = "of the knees' intervals " + strings.Join(open, ", ")
	}
	return out
}

// shareOf is a run's knee by so much of something, of which the first run took first.
func shareOf(r measurement.Results, by float64, times Ratio, first float64) *Share {
	at, why := kneeAt(r)
	divide := func(v *float64, by float64) *float64 { return figure(value(v) / by) }
	ci := r.Knees.SLO.CI95
	s := &Share{Estimate: figure(at / by), OfFirst: Ratio{Note: times.Note}}
	if why == "" {
		s.CI95 = [2]*float64{divide(ci[0], by), divide(ci[1], by)}
	}
	if math.IsNaN(first) {
		s.OfFirst.Note = "what the first run took was not told"
		return s
	}
	s.OfFirst.Estimate = divide(times.Estimate, by/first)
	s.OfFirst.CI95 = [2]*float64{divide(times.CI95[0], by/first), divide(times.CI95[1], by/first)}
	return s
}

// unlike are the warnings of two runs that were not the same workload, or not measured alike.
func unlike(a, b measurement.Results) (out []string) {
	if d := differences(a, b, workload); d != "" {
		out = append(out, fmt.Sprintf("%s and %s are not the same workload: %s.", a.Label, b.Label, d))
	}
	if d := differences(a, b, windows); d != "" {
		if wa, wb := windowRange(a), windowRange(b); wa != wb {
			d += fmt.Sprintf("; windows lasted %s against %s", wa, wb)
		}
		out = append(out, fmt.Sprintf("%s and %s were not measured alike: %s. A longer window bounds a P95 better and sees more of what builds up slowly.", a.Label, b.Label, d))
	}
	return out
}

// CompareSummary writes the knees of several runs side by side, each estimate also as a multiple of the first run's, then which
// steps count for nothing and every setting in which the runs differ: knees of different workloads do not compare.
func CompareSummary(w io.Writer, rs []measurement.Results) {
	if c, err := Compare(rs, Costs{}); err == nil { // without costs there is nothing to refuse
		c.Summary(w)
	}
}

// Summary writes the comparison for a person: the knees side by side, the ratio of each to the first with its interval, what the
// runs cost where that was told, and the warnings.
func (c Comparison) Summary(w io.Writer) {
	rs := c.results
	if len(rs) == 0 {
		return
	}
	rows := [][]string{{"run", "SLO knee", "estimate", "95 % interval", "of first's", "curvature", "saturation", "lowest load", "what binds"}}
	if u, ok := commonUnit(rs); ok {
		c := string(u)
		rows = append(rows, []string{"", c, c, c, "estimate", c, c, "P95 TTFT, ms", ""})
	} else {
		rows[0] = slices.Insert(rows[0], 1, "load")
		rows = append(rows, []string{"", "", "", "", "", "estimate", "", "", "P95 TTFT, ms", ""})
	}
	var shapes []deployment
	for _, r := range rs {
		shapes = append(shapes, deploymentOf(r.Engine))
	}
	names := distinct(shapes)
	for i, r := range rs {
		k := r.Knees.SLO
		times := "-"
		if v := c.Runs[i].OfFirst.Estimate; v != nil && k.Estimate != nil && rs[0].Knees.SLO.Estimate != nil {
			times = fmt.Sprintf("%.2fx", *v)
		}
		p95 := "-"
		if steps := byRate(whole(r.Steps)); len(steps) > 0 {
			p95 = fmt.Sprintf("%s at %s", number(steps[0].TTFTP95), rate(steps[0].Rate))
			if steps[0].TTFTP95 == nil {
				p95 = "none at " + rate(steps[0].Rate)
			}
		}
		name := r.Label
		if names[i] != "" {
			name += " (" + names[i] + ")"
		}
		row := []string{name, kneeCell(k), maybe(k.Estimate), interval(k.CI95, maybe),
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
		if kv := KVMemory(r); kv != "" {
			fmt.Fprintln(w, "    KV: "+kv)
		}
		if cut := cutShort(r); cut != "" {
			fmt.Fprintln(w, "    "+cut)
		}
	}
	for _, run := range c.Runs[1:] {
		sentences(w, "Ratio", run.OfFirst.says(c.Runs[0].Label, run.Label))
	}
	c.costs(w)
	for i := range c.Runs[1:] {
		if s := c.breakEven(i + 1); s != "" {
			sentences(w, "Break-even", s)
		}
	}
	for _, s := range c.Warnings {
		sentences(w, "Warning", s)
	}
}

// breakEven says at which price a run carries as much for a dollar as the first does, and on which side of it its own price is; "" where
// what the first costs was not told, or there is no ratio.
func (c Comparison) breakEven(i int) string {
	run, first := c.Runs[i], c.Runs[0]
	if run.BreakEven == nil {
		return ""
	}
	text := among(3, run.BreakEven.Estimate, run.BreakEven.CI95[0], run.BreakEven.CI95[1], run.Price)
	s := fmt.Sprintf("a dollar carries as much on %s as on %s when %s costs $%s/h", run.Label, first.Label, run.Label, text(run.BreakEven.Estimate))
	if run.BreakEven.CI95 != [2]*float64{} {
		s += ", 95 % interval " + interval(run.BreakEven.CI95, text)
	}
	if a, b := first.Knee.Rate, run.Knee.Rate; first.Knee.Status == measurement.Found && run.Knee.Status == measurement.Found && a != nil && b != nil && *a > 0 {
		s += fmt.Sprintf("; provisioned by the largest loads that pass, when it costs $%s/h", sig(*first.Price**b / *a))
	}
	switch lo, hi := run.BreakEven.CI95[0], run.BreakEven.CI95[1]; {
	case run.Price == nil:
	case lo != nil && *run.Price < *lo:
		s += fmt.Sprintf(". At $%s/h it carries more for a dollar", text(run.Price))
	case hi != nil && *run.Price > *hi:
		s += fmt.Sprintf(". At $%s/h it carries less for a dollar", text(run.Price))
	default:
		s += fmt.Sprintf(". At $%s/h which of them carries more for a dollar cannot be told", text(run.Price))
	}
	return s + "."
}

// says is the ratio as a sentence.
func (r Ratio) says(first, other string) string {
	if r.Estimate == nil {
		return fmt.Sprintf("how %s compares with %s cannot be told: %s.", other, first, r.Note)
	}
	s := fmt.Sprintf("%s carries %s times what %s carries", other, sig(*r.Estimate), first)
	lo, hi := value(r.CI95[0]), value(r.CI95[1])
	switch {
	case r.CI95 == [2]*float64{}:
		return fmt.Sprintf("%s; how sure that is cannot be told: %s.", s, r.Note)
	case lo > 1 || hi < 1:
		s += ", 95 % interval " + r.interval()
	default:
		s += ", 95 % interval " + r.interval() + ": which of them carries more cannot be told"
	}
	if r.Note != "" {
		s += "; " + r.Note
	}
	return s + "."
}

func (r Ratio) interval() string {
	return interval(r.CI95, maybe)
}

// costs writes what a GPU and a dollar carry, where something of it was told.
func (c Comparison) costs(w io.Writer) {
	unit := c.Runs[0].Unit
	rows := [][]string{{"run"}, {""}}
	for _, run := range c.Runs {
		rows = append(rows, []string{run.Label})
		if run.Unit != unit {
			unit = "calls"
		}
	}
	add := func(head, unit string, cell func(ComparedRun) string) {
		cells, known := []string{head, unit}, false
		for _, run := range c.Runs {
			cells = append(cells, cell(run))
			known = known || cells[len(cells)-1] != "-"
		}
		for i := range rows {
			if known {
				rows[i] = append(rows[i], cells[i])
			}
		}
	}
	shares := func(of func(ComparedRun) *Share, head, unit string) {
		figures := func(f func(*Share) string) func(ComparedRun) string {
			return func(run ComparedRun) string {
				if s := of(run); s != nil {
					return f(s)
				}
				return "-"
			}
		}
		add(head, unit, figures(func(s *Share) string { return maybe(s.Estimate) }))
		add("95 % interval", unit, figures(func(s *Share) string {
			return interval(s.CI95, maybe)
		}))
		add("of first's", "", figures(func(s *Share) string {
			if s.OfFirst.Estimate == nil {
				return "-"
			}
			if lo, hi := s.OfFirst.CI95[0], s.OfFirst.CI95[1]; lo == hi || value(lo) == value(hi) { // none, or the first's own
				return fmt.Sprintf("%.2fx", *s.OfFirst.Estimate)
			}
			return fmt.Sprintf("%.2fx (%s)", *s.OfFirst.Estimate, s.OfFirst.interval())
		}))
	}
	add("GPUs", "", func(run ComparedRun) string { return maybePlain(run.GPUs) })
	shares(func(run ComparedRun) *Share { return run.PerGPU }, "a GPU carries", unit)
	if len(rows[0]) > 1 {
		fmt.Fprintln(w)
		table(w, rows, "run")
	}
	for i := range rows {
		rows[i] = rows[i][:1]
	}
	add("price", "$/h", func(run ComparedRun) string { return maybePlain(run.Price) })
	shares(func(run ComparedRun) *Share { return run.PerDollar }, "$1/h carries", unit)
	if len(rows[0]) > 1 {
		fmt.Fprintln(w)
		table(w, rows, "run")
	}
}

// KneeBelow reports, in a sentence, that a run's SLO knee is not known to be at so many calls/s (calls at once of a closed loop) or
// above; "" when it is. The knee is its estimate, or the rate tried where there is none.
func KneeBelow(r measurement.Results, least float64) string {
	u, k := unitOf(r.Config), r.Knees.SLO
	at, why := kneeAt(r)
	switch {
	case why == "" && at < least:
		compared := Apart(3, at, least)
		how := ""
		if k.Estimate != nil {
			how = ", as estimated,"
		}
		return fmt.Sprintf("the SLO knee of %s%s is %s %s, below %s", r.Label, how, compared[0], u, compared[1])
	case why == "" || k.Status == measurement.AboveRange && k.Rate != nil && *k.Rate >= least:
		return ""
	case k.Status == measurement.BelowRange && lowest(r) <= least:
		return fmt.Sprintf("%s, so below %s", why, rate(least))
	}
	return fmt.Sprintf("%s: whether it is below %s cannot be told", why, rate(least))
}

// lowest is the lowest load tried; NaN of none.
func lowest(r measurement.Results) float64 {
	if steps := byRate(whole(r.Steps)); len(steps) > 0 {
		return steps[0].Rate
	}
	return math.NaN()
}

// Regressed says of each run behind the first whose SLO knee fell by more than a share (0..1) of the first's, in a sentence
// each. A run fell when the whole interval of its ratio is below 1 - share; strict lets the estimate decide, and so does an interval
// without an upper end, lest doubt pass for success. Where there is no ratio, a knee above the loads tried is none that fell if
// they reach far enough, and any other counts as one that did, with the reason.
func (c Comparison) Regressed(share float64, strict bool) (out []string) {
	keep := 1 - share
	percent := sig(100*share) + " %"
	for i := 1; i < len(c.Runs); i++ {
		run, first := c.Runs[i], c.Runs[0]
		r := run.OfFirst
		switch {
		case r.Estimate == nil:
			at, why := kneeAt(c.results[0])
			k := c.results[i].Knees.SLO
			if why == "" && run.Unit == first.Unit {
				if k.Status == measurement.AboveRange && k.Rate != nil && *k.Rate >= keep*at {
					continue
				}
				if k.Status == measurement.BelowRange && lowest(c.results[i]) <= keep*at {
					out = append(out, fmt.Sprintf("%s fell by more than %s against %s: %s", run.Label, percent, first.Label, r.Note))
					continue
				}
			}
			out = append(out, fmt.Sprintf("whether %s fell by more than %s against %s cannot be told: %s", run.Label, percent, first.Label, r.Note))
		case strict && *r.Estimate < keep:
			text := Apart(3, *r.Estimate, keep)
			out = append(out, fmt.Sprintf("%s carries %s times what %s carries, less than %s", run.Label, text[0], first.Label, text[1]))
		case !strict && r.CI95[1] != nil && *r.CI95[1] < keep:
			text := among(3, r.Estimate, r.CI95[0], r.CI95[1], &keep)
			out = append(out, fmt.Sprintf("%s carries %s times what %s carries, 95 %% interval %s, less than %s", run.Label, text(r.Estimate), first.Label, interval(r.CI95, text), text(&keep)))
		case !strict && r.CI95[1] == nil && *r.Estimate < keep:
			text := Apart(3, *r.Estimate, keep)
			out = append(out, fmt.Sprintf("%s carries %s times what %s carries, less than %s, and how sure that is cannot be told", run.Label, text[0], first.Label, text[1]))
		}
	}
	return out
}

// windowRange is how long the windows of a run's whole steps were.
func windowRange(r measurement.Results) string {
	var s []float64
	for _, step := range whole(r.Steps) {
		s = append(s, step.WindowS)
	}
	if len(s) == 0 {
		return "no time"
	}
	lo, hi := sig(slices.Min(s)), sig(slices.Max(s))
	if lo == hi {
		return lo + " s"
	}
	return lo + " to " + hi + " s"
}

// setting is one that may make two runs' knees incomparable.
type setting struct {
	name string
	of   func(measurement.Config) any
}

var (
	workload = []setting{
		{"system_prompt_tokens", func(c measurement.Config) any { return c.SystemPromptTokens }},
		{"user_tokens", func(c measurement.Config) any { return c.UserTokens }},
		{"turns", func(c measurement.Config) any { return c.Turns }},
		{"output_tokens", func(c measurement.Config) any { return c.OutputTokens }},
		{"output_lengths", func(c measurement.Config) any { return c.OutputLengths }},
		{"prompt_tokens", func(c measurement.Config) any { return c.PromptTokens }},
		{"prompt_lengths", func(c measurement.Config) any { return c.PromptLengths }},
		{"prefix_tokens", func(c measurement.Config) any { return c.PrefixTokens }},
		{"prefixes", func(c measurement.Config) any { return c.Prefixes }},
		{"prefix_zipf", func(c measurement.Config) any { return c.PrefixZipf }},
		{"trace", func(c measurement.Config) any { return c.Trace }},
		{"ignore_eos", func(c measurement.Config) any { return c.IgnoreEOS }},
		{"gap_min_s", func(c measurement.Config) any { return c.GapMinSeconds }},
		{"gap_max_s", func(c measurement.Config) any { return c.GapMaxSeconds }},
		{"arrivals", func(c measurement.Config) any { return process(c) }},
		{"slo", func(c measurement.Config) any { return objectives(c.SLO) }},
	}
	windows = []setting{
		{"warmup_s", func(c measurement.Config) any { return c.WarmupSeconds }},
		{"step_duration_s", func(c measurement.Config) any { return c.StepSeconds }},
		{"max_step_duration_s", func(c measurement.Config) any { return c.MaxStepSeconds }},
		{"min_turns", func(c measurement.Config) any { return c.MinTurns }},
	}
)

// differences names those of the settings in which two runs differ; "" when they are alike. A setting that one of them does not
// tell is no difference.
func differences(a, b measurement.Results, of []setting) string {
	var out []string
	for _, f := range of {
		if !a.Config.Told(f.name) || !b.Config.Told(f.name) {
			continue
		}
		if va, vb := f.of(a.Config), f.of(b.Config); va != vb {
			x, xok := va.(float64)
			y, yok := vb.(float64)
			if xok && yok { // what was computed ends in a bit more or less
				text := Apart(4, x, y)
				va, vb = text[0], text[1]
			}
			if va != vb {
				out = append(out, fmt.Sprintf("%s is %v against %v", f.name, va, vb))
			}
		}
	}
	return strings.Join(out, "; ")
}
