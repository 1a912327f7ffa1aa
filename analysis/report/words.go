package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

const none = "–" // an absent figure

// digits writes three significant digits; whole numbers from 100 on.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return none
	case math.IsInf(v, 0):
		return "no token"
	case a >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 100 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return analysis.Digits(v, 3)
}

// against writes a time so that it shows on which side of its limit it is.
func against(v, limit float64) string {
	if s := digits(v); s != digits(limit) || v == limit {
		return s
	}
	return analysis.Apart(4, v, limit)[0]
}

// short names a place on a scale.
func short(v float64) string {
	switch {
	case v >= 1e9:
		return digits(v/1e9) + "G"
	case v >= 1e6:
		return digits(v/1e6) + "M"
	case v >= 1e4:
		return digits(v/1e3) + "k"
	}
	return digits(v)
}

// figure writes one that may be absent, times a factor.
func figure(v *float64, times float64) string {
	if v == nil {
		return none
	}
	return digits(*v * times)
}

// large is the same with M and k for many.
func large(v *float64) string {
	if v == nil {
		return none
	}
	return short(*v)
}

// share writes a share of 1 in hundredths.
func share(v *float64) string {
	if v == nil {
		return none
	}
	return strconv.FormatFloat(*v*100, 'f', 1, 64)
}

func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// interval writes two ends; one that is unknown is open.
func interval(ci [2]*float64) string {
	switch {
	case ci[0] == nil && ci[1] == nil:
		return none
	case ci[1] == nil:
		return figure(ci[0], 1) + " or more"
	case ci[0] == nil:
		return "up to " + figure(ci[1], 1)
	}
	return figure(ci[0], 1) + " to " + figure(ci[1], 1)
}

// waits writes milliseconds as a person says them.
func waits(ms float64) string {
	if ms >= 10_000 {
		return digits(ms/1000) + " s"
	}
	return digits(ms) + " ms"
}

func seconds(d time.Duration) float64 { return d.Seconds() }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// elapsed writes a time as a person says it.
func elapsed(s float64) string {
	n := int(math.Round(s))
	switch {
	case s < 60:
		return digits(s) + " s"
	case n < 3600 && n%60 == 0:
		return fmt.Sprintf("%d min", n/60)
	case n < 3600:
		return fmt.Sprintf("%d min %d s", n/60, n%60)
	}
	return fmt.Sprintf("%d h %d min", n/3600, n/60%60)
}

// clip keeps a text that somebody else wrote to a length, and to one line of printable characters.
func clip(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case c == utf8.RuneError || !unicode.IsPrint(c):
			return -1
		}
		return c
	}, s[:min(len(s), 8*most)])
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// closed reports whether the load is a number of calls that are kept going, rather than a rate.
func closed(c measurement.Config) bool { return c.Arrivals == "closed" }

// unit is what the load counts.
func unit(c measurement.Config) string {
	if closed(c) {
		return loadOf(c) + " at once"
	}
	return loadOf(c) + "/s"
}

// live names how much was going at once.
func live(c measurement.Config) string {
	if c.LoadOf == measurement.Requests {
		return "in flight"
	}
	return "live calls"
}

// loadOf is what a load counts.
func loadOf(c measurement.Config) string {
	if c.LoadOf == measurement.Requests {
		return measurement.Requests
	}
	return "calls"
}

// answers names what a step counts: turns, or requests of which each is a call.
func answers(c measurement.Config) string {
	if c.LoadOf == measurement.Requests {
		return measurement.Requests
	}
	return "turns"
}

// asked names the load asked for.
func asked(c measurement.Config) string {
	if closed(c) {
		return "asked"
	}
	return "λ asked"
}

// at is a load in a sentence.
func at(c measurement.Config, load float64) string { return digits(load) + " " + unit(c) }

func objectiveName(o measurement.Objective) string {
	return "P" + strconv.FormatFloat(math.Round(o.Quantile*1e4)/100, 'f', -1, 64) + " " + strings.ToUpper(clip(o.Metric, 20))
}

// objectives are what must hold, in words.
func objectives(slo []measurement.Objective) string {
	var out []string
	for _, o := range slo {
		out = append(out, objectiveName(o)+" ≤ "+waits(o.LimitMS))
	}
	if len(out) == 0 {
		return "no objective"
	}
	return strings.Join(out, " and ")
}

// limitMS is the tightest P95 TTFT limit, or of TTFT at all where P95 has none; ok is false without one.
func limitMS(slo []measurement.Objective) (o measurement.Objective, ok bool) {
	for _, s := range slo {
		if s.Metric != "ttft" || s.LimitMS <= 0 {
			continue
		}
		better := s.LimitMS < o.LimitMS
		if (s.Quantile == .95) != (o.Quantile == .95) {
			better = s.Quantile == .95
		}
		if !ok || better {
			o, ok = s, true
		}
	}
	return o, ok
}

// headline is the SLO knee in a sentence.
func headline(r *measurement.Results) string {
	k, c := r.Knees.SLO, r.Config
	holds := objectives(c.SLO)
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		rate, estimate, ci := kneeFigures(k)
		s := fmt.Sprintf("%s %s is the highest load tried that holds %s: provision by it", rate, unit(c), holds)
		if estimate != "" {
			s += "; the limit is crossed near " + estimate
			if ci != "" {
				s += " (95 % interval " + ci + ")"
			}
		}
		return s + "."
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return fmt.Sprintf("The knee lies above every load tried: %s, the highest that passes, still holds %s.", at(c, *k.Rate), holds)
	case k.Status == measurement.BelowRange:
		return fmt.Sprintf("The knee lies below every load tried: the lowest already fails %s.", holds)
	}
	return "No knee was found."
}

// kneeFigures are a knee's rate, its estimate and its interval, as a sentence that names them all writes them; "" for what is absent.
func kneeFigures(k measurement.Knee) (rate, estimate, ci string) {
	var of []float64
	for _, v := range []*float64{k.Rate, k.Estimate, k.CI95[0], k.CI95[1]} {
		if v != nil {
			of = append(of, *v)
		}
	}
	texts := analysis.Apart(3, of...)
	next := func(v *float64) (s string) {
		if v != nil {
			s, texts = texts[0], texts[1:]
		}
		return s
	}
	rate, estimate = next(k.Rate), next(k.Estimate)
	lo, hi := next(k.CI95[0]), next(k.CI95[1])
	switch {
	case lo != "" && hi != "":
		ci = lo + " to " + hi
	case lo != "":
		ci = lo + " or more"
	case hi != "":
		ci = "up to " + hi
	}
	return rate, estimate, ci
}

// binds is what binds in a sentence.
func binds(m measurement.Mechanism) string {
	switch {
	case m.Name == "":
		return "What binds cannot be told."
	case m.Confidence == "" || m.Confidence == "none":
		return "What binds: " + clip(analysis.MechanismMeaning(m.Name), 120) + "."
	}
	return fmt.Sprintf("What binds: %s (confidence %s).", clip(analysis.MechanismMeaning(m.Name), 120), clip(m.Confidence, 20))
}

// sure writes a probability; what is nearly certain is not said to be.
func sure(p *float64) string {
	switch {
	case p == nil:
		return none
	case *p < .01:
		return "< 1 %"
	case *p > .99:
		return "> 99 %"
	}
	return fmt.Sprintf("%.0f %%", 100**p)
}

// howSure says how likely the objective holds on the two sides of the knee, and what would decide it; "" when that is not known.
func howSure(r *measurement.Results) string {
	s := analysis.HowSure(*r)
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// kneeWords is a knee's place in few words.
func kneeWords(k measurement.Knee) string {
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		return digits(*k.Rate)
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return "above " + digits(*k.Rate)
	case k.Status == measurement.BelowRange:
		return "below the range"
	}
	return "none"
}

// who names what was measured.
func who(r *measurement.Results) string {
	e := r.Engine
	model, kind, gpu := clip(e.Model, 80), clip(strings.TrimSpace(e.Kind+" "+e.Version), 60), clip(e.GPU, 60)
	s := model
	switch {
	case e.Kind == "simulated":
		s = strings.TrimSpace(s + " simulated")
	case kind != "" && s != "":
		s += " on " + kind
	case kind != "":
		s = kind
	}
	if gpu != "" {
		s = strings.TrimSpace(s + ", " + gpu)
	}
	if shape := clip(analysis.Deployed(e), 80); shape != "" {
		s += ", " + shape
	}
	return strings.TrimPrefix(s, ", ")
}

// fidelity says how far the figures are to be believed.
func fidelity(r *measurement.Results) string {
	switch r.Engine.Fidelity {
	case "":
		return "measured or simulated is not told"
	case "measured":
		return "measured"
	}
	return clip(r.Engine.Fidelity, 40)
}

// load describes what callers did.
func load(c measurement.Config) string {
	if c.Turns == 0 {
		return ""
	}
	gap := digits(c.GapMinSeconds) + " to " + digits(c.GapMaxSeconds) + " s"
	if c.GapMinSeconds == c.GapMaxSeconds {
		gap = digits(c.GapMinSeconds) + " s"
	}
	if c.Lone() {
		asked := c.Asked()
		if asked == "" {
			asked = "how long prompts and answers were the files do not tell"
		}
		return fmt.Sprintf("Requests %s: %s.", arrive(c), asked)
	}
	var of []string // what is known of them
	for _, s := range []named{{"turns", plural(c.Turns, "turn") + " each"}, {"system_prompt_tokens", "a system prompt of " + thousands(c.SystemPromptTokens) + " tokens"},
		{"output_tokens", "answers of " + plural(c.OutputTokens, "token")}, {"gap_min_s", "pauses of " + gap}} {
		if c.Told(s.Name) {
			of = append(of, s.Meaning)
		}
	}
	return fmt.Sprintf("%s %s: %s.", strings.ToUpper(loadOf(c)[:1])+loadOf(c)[1:], arrive(c), strings.Join(of, ", "))
}

// arrive says how calls or requests do.
func arrive(c measurement.Config) string {
	switch {
	case !c.Told("arrivals"):
		return "arrive in a way that the files do not tell"
	case closed(c):
		return "follow each other without a pause"
	case c.Arrivals == "trace":
		return "arrive as in the trace"
	case c.Arrivals != "" && c.Arrivals != "poisson":
		return "arrive " + clip(c.Arrivals, 40)
	}
	return "arrive as a Poisson process"
}

// thousands sets commas into a whole number.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// chance says a p value in words.
func chance(p float64) string {
	switch {
	case p < .001:
		return "rejected: not one in 1000 true ones is this far off"
	case p < .05:
		return fmt.Sprintf("unusual, not rejected: %s of 100 true ones are this far off", digits(max(math.Round(p*1000)/10, .1)))
	}
	return fmt.Sprintf("by chance: %.0f of 100 true ones are this far off", p*100)
}

func probability(p float64) string {
	if p < .001 {
		return "< .001"
	}
	if p >= .9995 {
		return "1"
	}
	return strings.TrimPrefix(strconv.FormatFloat(p, 'f', 3, 64), "0")
}

// failure says what an outcome means.
func failure(o measurement.Outcome) string {
	switch o {
	case measurement.Connect:
		return "no connection"
	case measurement.TLS:
		return "the handshake failed"
	case measurement.HTTP4xx:
		return "refused with a 4xx"
	case measurement.HTTP429:
		return "told to slow down (429)"
	case measurement.HTTP5xx:
		return "the server failed or shed the request"
	case measurement.StreamError:
		return "an error inside the stream"
	case measurement.Truncated:
		return "the stream ended early"
	case measurement.NotStream:
		return "an answer that is no event stream"
	case measurement.TTFTTimeout:
		return "no token within the limit"
	case measurement.TotalTimeout:
		return "not finished within the limit, or open when the drain was cut"
	case measurement.Stall:
		return "silent for too long"
	case measurement.Canceled:
		return "stopped by this side"
	case measurement.Shed:
		return "never sent: the cap on calls held it until the step ended; error rates, which are the server's, leave it out"
	case measurement.ShortOutput:
		return "fewer tokens than asked"
	}
	return clip(string(o), 40)
}
