package page

import (
	"fmt"
	"math"
	"net/url"
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

// about writes a time that is estimated.
func about(d time.Duration) string {
	if d < 90*time.Second {
		return elapsed(max(d, 0).Round(10 * time.Second))
	}
	return elapsed(d.Round(time.Minute))
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

// meaning says in a few words what a step's flag stands for.
func meaning(flag string) string {
	switch flag {
	case measurement.FlagClientLimited:
		return "the generator itself was late"
	case measurement.FlagCapBound:
		return "calls waited for --max-concurrent-calls"
	case measurement.FlagUnstable:
		return "turns in flight kept growing"
	case measurement.FlagContaminated:
		return "first turns were not cold"
	case measurement.FlagCensored:
		return "a percentile lands on turns that got no token"
	case measurement.FlagShort:
		return "fewer measured turns than asked"
	case measurement.FlagIncomplete:
		return "the step was cut before it ended and counts for nothing"
	case measurement.FlagErrors:
		return "2 % of turns or more failed"
	case measurement.FlagBuffered:
		return "answers came whole, in one read"
	case measurement.FlagColdCache:
		return "later turns found no warm prefix although few calls were live"
	case measurement.FlagOffRate:
		return "the λ that came differs from the λ asked by more than a tenth"
	}
	return ""
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
			s += fmt.Sprintf("; the curve crosses the limit near %s", figure(k.Estimate, 1))
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
	case "errors":
		return "errors: the server refuses or breaks requests"
	}
	return strings.ReplaceAll(name, "_", " ")
}
