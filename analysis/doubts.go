package analysis

import (
	"fmt"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// The limits past which a run deserves a warning.
const (
	maxConnect = .1  // of the TTFT limit, spent on opening a connection
	maxDialed  = .02 // of a step's measured turns, whose TTFT holds that
	maxShort   = .01 // of a step's measured turns, shorter than asked
)

// doubts are the warnings that concern a run as a whole: what makes its figures mean something else than they seem to, and
// the way forward.
func doubts(log measurement.Log, r measurement.Results) []string {
	var out []string
	add := func(sentence string) {
		if sentence != "" {
			out = append(out, sentence)
		}
	}
	if s := log.Header.Shard; s != "" {
		add(fmt.Sprintf("This is shard %s of a run: it holds only its own calls, and their rate is not the one asked. kneeanalyze merge joins the shards.", s))
	}
	add(notCertified(r.Arrivals))
	add(bufferedStream(r))
	add(coldCache(r))
	add(slowConnect(r))
	add(dialed(r))
	add(shortOutput(r))
	return out
}

func bufferedStream(r measurement.Results) string {
	at := loads(r, func(s *measurement.StepResult) bool { return slices.Contains(s.Flags, measurement.FlagBuffered) })
	if at == "" {
		return ""
	}
	return fmt.Sprintf("At %s answers came whole, in one read, so there is no gap between tokens to measure and TTFT is the time of a whole answer. "+
		"Something on the way holds the stream back, most likely a proxy: switch its buffering off (nginx: proxy_buffering off), or measure past it.", at)
}

// coldCache looks at the lowest rate only: at a higher one prefixes may have been evicted.
func coldCache(r measurement.Results) string {
	steps := byRate(r.Steps)
	if len(steps) == 0 || !slices.Contains(steps[0].Flags, measurement.FlagColdCache) {
		return ""
	}
	s := steps[0]
	return fmt.Sprintf("At %s only %s %% of the prompts was cached although no more than %d calls were live at once: the server's prefix cache is off or the turns of a call do not share it "+
		"(several servers behind one address, or a chat template that changes the prefix). Switch it on, or route a call to one server, before looking for a knee.",
		unitOf(r.Config).of(s.Rate), plain(s.CacheHitRate, "%.0f", 100), *s.LiveCallsMax)
}

func slowConnect(r measurement.Results) string {
	limit := ttftLimit(r.Config.SLO)
	if !(value(r.Engine.ConnectMS) > maxConnect*limit) {
		return ""
	}
	return fmt.Sprintf("Opening a connection to the server, about one round trip, takes %s, more than a tenth of the TTFT limit of %s: every TTFT holds the way there and back. Measure from nearer by, or ask for less.",
		ms(*r.Engine.ConnectMS), ms(limit))
}

func dialed(r measurement.Results) string {
	turns := 0
	at := loads(r, func(s *measurement.StepResult) bool {
		if !moreThan(s.Dialed, maxDialed, s) {
			return false
		}
		turns += s.Dialed
		return true
	})
	if at == "" {
		return ""
	}
	if r.Config.Preconnect {
		return fmt.Sprintf("At %s TTFT of %s holds opening a connection in spite of --preconnect: connections were closed before they were used, or not ready in time.", at, count(turns, "turn"))
	}
	return fmt.Sprintf("At %s TTFT of %s holds opening a connection: --preconnect leaves it out.", at, count(turns, "turn"))
}

func shortOutput(r measurement.Results) string {
	turns := 0
	at := loads(r, func(s *measurement.StepResult) bool {
		n := s.ErrorKinds[measurement.ShortOutput]
		if !moreThan(n, maxShort, s) {
			return false
		}
		turns += n
		return true
	})
	if at == "" {
		return ""
	}
	return fmt.Sprintf("At %s the answers of %s were shorter than the %d tokens asked, so throughput and ITL do not compare with those of a run whose answers were whole: "+
		"see that the server heeds ignore_eos and has room for the whole prompt and answer.", at, count(turns, "turn"), r.Config.OutputTokens)
}

func moreThan(turns int, share float64, s *measurement.StepResult) bool {
	return float64(turns) > share*float64(s.MeasuredTurns)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// loads lists the loads of those steps that is picks, ascending; "" when there are none.
func loads(r measurement.Results, is func(*measurement.StepResult) bool) string {
	var out []string
	for _, s := range byRate(r.Steps) {
		if is(&s) {
			out = append(out, rate(s.Rate))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(slices.Compact(out), ", ") + " " + string(unitOf(r.Config))
}
