package page

import (
	"fmt"
	"math"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"kneefinder/measurement"
)

const none = "–" // an absent figure

// digits writes three significant digits; whole numbers from 100 on.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return none
	case math.IsInf(v, 1):
		return "no token"
	case a >= 1e7:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 100 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return s
}

// figure is one that may be absent, times a factor.
func figure(v *float64, times float64) string {
	if v == nil {
		return none
	}
	return digits(*v * times)
}

// percent writes a share of 1 to a tenth of a hundredth.
func percent(v float64) string {
	if math.IsNaN(v) {
		return none
	}
	return strconv.FormatFloat(v*100, 'f', 1, 64)
}

func share(v *float64) string {
	if v == nil {
		return none
	}
	return percent(*v)
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

// elapsed writes a time as a person says it: "42 s", "3 min 20 s", "2 h 5 min".
func elapsed(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	switch {
	case s < 0:
		return "0 s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d days %d h", s/86400, s/3600%24)
}

// about writes a time that is estimated, at the beginning of a sentence.
func about(d time.Duration) string {
	if d < 90*time.Second {
		d = max(d, 0).Round(10 * time.Second)
		if d == 0 {
			return "A moment"
		}
		return "About " + elapsed(d)
	}
	return "About " + elapsed(d.Round(time.Minute))
}

// count writes so many of what.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// closed reports whether the load is a number of calls that are kept going, rather than a rate.
func closed(c measurement.Config) bool { return c.Arrivals == "closed" }

// unit is what the load counts.
func unit(c measurement.Config) string {
	if closed(c) {
		return "calls at once"
	}
	return "calls/s"
}

// asked names the load asked for.
func asked(c measurement.Config) string {
	if closed(c) {
		return "asked"
	}
	return "λ asked"
}

func objectiveName(o measurement.Objective) string {
	return "P" + strconv.FormatFloat(o.Quantile*100, 'f', -1, 64) + " " + strings.ToUpper(o.Metric)
}

// address is a base URL without user info, query and fragment.
func address(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// kneeSentence is the SLO knee in one sentence.
func kneeSentence(c measurement.Config, k measurement.Knee, final bool) string {
	u := unit(c)
	so := " so far"
	if final {
		so = ""
	}
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		s := fmt.Sprintf("The knee%s: %s %s is the highest load that passes", so, figure(k.Rate, 1), u)
		if k.Estimate != nil {
			s += fmt.Sprintf("; it is estimated at %s", figure(k.Estimate, 1))
			if k.CI95 != [2]*float64{} {
				s += " (95 % interval " + interval(k.CI95) + ")"
			}
		}
		return s + "."
	case k.Status == measurement.AboveRange && k.Rate != nil:
		return fmt.Sprintf("No knee%s: %s %s still passes, and is the highest load tried.", so, figure(k.Rate, 1), u)
	case k.Status == measurement.BelowRange:
		return "The knee lies below every load tried" + so + ": the lowest already fails."
	case final:
		return "No knee was found."
	}
	return "No knee yet: it needs a step that passes and one that fails."
}

// lateSentence doubts a knee below the range when this side was late in every step that fails.
func (s *snapshot) lateSentence(k measurement.Knee) string {
	if k.Status != measurement.BelowRange {
		return ""
	}
	failed := 0
	for i := range s.steps {
		r := s.steps[i].result
		if r == nil || r.Verdict != measurement.Fail {
			continue
		}
		if failed++; !slices.Contains(r.Flags, measurement.FlagClientLimited) {
			return ""
		}
	}
	if failed == 0 {
		return ""
	}
	return " But in every step that fails the load generator itself was late: the miss may be its own, not the server's."
}

// saturationSentence says up to where completions keep up; "" when that was not seen.
func saturationSentence(c measurement.Config, k measurement.Knee) string {
	switch {
	case k.Status == measurement.Found && k.Rate != nil:
		near := ""
		if k.Estimate != nil {
			near = fmt.Sprintf(" (interpolated: ~%s)", figure(k.Estimate, 1))
		}
		return fmt.Sprintf("Completions keep up with arrivals up to %s %s%s.", figure(k.Rate, 1), unit(c), near)
	case k.Status == measurement.BelowRange:
		return "Completions do not keep up with arrivals at the lowest load tried."
	}
	return ""
}

// flagged are the flags of steps, in the order in which doubts are told.
var flagged = []string{measurement.FlagClientLimited, measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated, measurement.FlagCensored,
	measurement.FlagShort, measurement.FlagIncomplete, measurement.FlagErrors, measurement.FlagBuffered, measurement.FlagColdCache, measurement.FlagEarlyFail,
	measurement.FlagOffRate}

// flagDoubts is a line for each flag that a step has, with the loads of those steps, unless a warning says the same.
func (s *snapshot) flagDoubts() (out []string) {
	warned := strings.ToLower(strings.Join(s.results.Warnings, "\n"))
	for _, f := range flagged {
		var at []string
		for i := range s.steps {
			if r := s.steps[i].result; r != nil && slices.Contains(r.Flags, f) {
				at = append(at, digits(r.Rate))
			}
		}
		if len(at) > 0 && !strings.Contains(warned, measurement.FlagMeaning(f)) {
			out = append(out, fmt.Sprintf("At %s %s %s (%s).", and(at), unit(s.run.Config), measurement.FlagMeaning(f), f))
		}
	}
	return out
}

// and joins a list.
func and(of []string) string {
	if n := len(of); n > 1 {
		return strings.Join(of[:n-1], ", ") + " and " + of[n-1]
	}
	return of[0]
}

// arrivalsSentence is the certificate of the arrivals; "" when none were tested.
func arrivalsSentence(a measurement.Arrivals) string {
	if a.Calls == 0 {
		return ""
	}
	least, by := math.Inf(1), ""
	for _, t := range []struct {
		name string
		test *measurement.Test
	}{{"their distribution (Kolmogorov-Smirnov)", a.KS}, {"their distribution (Anderson-Darling)", a.AD}, {"how a gap follows on the one before", a.Lag1},
		{"how many fall on whole seconds", a.WholeSeconds}} {
		if t.test != nil && t.test.P < least {
			least, by = t.test.P, t.name
		}
	}
	for i := range a.Dispersion {
		if d := &a.Dispersion[i]; d.P < least {
			least, by = d.P, fmt.Sprintf("how their number scatters from one %s s to the next", digits(d.WindowS))
		}
	}
	of := count(a.Calls, "call")
	switch {
	case a.Certified:
		return fmt.Sprintf("Arrivals: certified Poisson. Of %s no test rejects it; %s is the least likely, with a probability of %s.", of, by, probability(least))
	case a.Process == "closed":
		return fmt.Sprintf("Arrivals: a closed loop, no Poisson process (%s).", of)
	case a.Process != "" && a.Process != "poisson":
		return fmt.Sprintf("Arrivals: %s, as asked, so not certified as Poisson (%s).", a.Process, of)
	case by == "":
		return fmt.Sprintf("Arrivals: not certified, %s are too few to test.", of)
	}
	return fmt.Sprintf("Arrivals: not certified as Poisson. Of %s %s would be so with a probability of %s.", of, by, probability(least))
}

// probability writes one; what is nearly impossible is not said to be 0.
func probability(p float64) string {
	if p < .001 {
		return "under 0.001"
	}
	return digits(math.Round(p*1000) / 1000)
}

// scrapesSaid says of each source of samples whether its metrics can be read.
func scrapesSaid(s *snapshot) (out []string) {
	for _, x := range s.scrapes {
		name := x.source
		switch x.source {
		case "engine":
			name = "the engine's metrics"
		case "gpu":
			name = "the GPUs' metrics"
		}
		looks := x.read + x.failed
		n := min(looks, 8)
		bad := bits.OnesCount8(x.lately)
		switch {
		case final(s.state):
			out = append(out, fmt.Sprintf("%s: read in %d of %s", name, x.read, count(looks, "look")))
		case bad == 0:
			out = append(out, name+": read")
		case bad == n:
			out = append(out, fmt.Sprintf("%s: cannot be read (%d of %s failed)", name, x.failed, count(looks, "look")))
		default:
			out = append(out, fmt.Sprintf("%s: %d of the last %s failed", name, bad, count(n, "look")))
		}
	}
	return out
}

// outcomeMeaning says in a few words how a turn ended.
func outcomeMeaning(o measurement.Outcome) string {
	switch o {
	case measurement.OK:
		return "ended well"
	case measurement.Connect:
		return "no connection"
	case measurement.TLS:
		return "the TLS handshake failed"
	case measurement.HTTP4xx:
		return "refused with a 4xx"
	case measurement.HTTP429:
		return "told to slow down"
	case measurement.HTTP5xx:
		return "the server failed"
	case measurement.StreamError:
		return "an error inside the stream"
	case measurement.Truncated:
		return "the stream ended early"
	case measurement.NotStream:
		return "the answer was no stream"
	case measurement.TTFTTimeout:
		return "no token in time"
	case measurement.TotalTimeout:
		return "not finished in time, or cut at the end"
	case measurement.Stall:
		return "the stream fell silent"
	case measurement.Canceled:
		return "stopped by this side"
	case measurement.Shed:
		return "held by the cap until the end, never sent"
	case measurement.ShortOutput:
		return "fewer tokens than asked"
	case measurement.NotSent:
		return "never due: an earlier turn of the call failed"
	}
	return ""
}

// mechanism names what binds as a person says it.
func mechanism(name string) string {
	switch name {
	case "client":
		return "the load generator itself, not the server"
	case "kv_eviction":
		return "KV cache eviction"
	case "queueing_behind_cold_prefill":
		return "warm turns queue behind other calls' cold prefills"
	case "decode":
		return "decoding: the tokens themselves come slower"
	case "kv_capacity":
		return "KV memory: running requests fill the pool, and others wait or are pushed out"
	case "long_prompts":
		return "the prompts' own length: even alone they take longer than the limit"
	case "errors":
		return "errors: the server refuses or breaks requests"
	}
	return strings.ReplaceAll(name, "_", " ")
}
