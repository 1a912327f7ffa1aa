package analysis

import (
	"math"
	"time"

	"kneefinder/measurement"
)

// The limits past which a step is flagged.
const (
	maxLag      = 5 * time.Millisecond // P99 of the generator's own lateness, or
	maxLagOfSLO = .02                  // this share of the TTFT limit, whichever is more
	maxGrowth   = .05                  // turns in flight gained per arrived turn
	growthZ     = 2                    // and by this many standard deviations of two Poisson counts
	maxWarmHit  = .10                  // a first turn with more than this share of its prompt cached was not cold,
	template    = 64                   // unless it is so few tokens that the chat template alone can make them
	fewTurns    = 3                    // and this many of those are forgiven
	fewAnswers  = 5                    // fewer answers, or fewer tokens in one, show neither a buffer nor a cache that is off
	wholeAnswer = time.Millisecond     // an answer whose gaps add up to less came in one read
	mostAnswers = .8                   // this share of them says that the stream is buffered
	coldHit     = .5                   // a hit rate under this with no more than
	fewLive     = 2                    // so many calls at once was not brought about by eviction
)

// flags names what is doubtful about a step, in the order of the constants.
func flags(c measurement.Config, s measurement.Step, w window, r measurement.StepResult, ttft []float64) []string {
	complete := s.WindowEnd >= 0 && w.canceled == 0
	lagLimit := millis(maxLag)
	if limit := ttftLimit(c.SLO); !math.IsNaN(limit) {
		lagLimit = max(lagLimit, maxLagOfSLO*limit)
	}
	censored := false
	for _, p := range append(objectiveQuantiles(c.SLO), .5, .95, .99) {
		censored = censored || math.IsInf(measurement.Quantile(ttft, p), 1)
	}
	out := []string{}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{measurement.FlagClientLimited, r.ScheduleLagP99 != nil && *r.ScheduleLagP99 > lagLimit},
		{measurement.FlagCapBound, s.HeldCalls > 0},
		{measurement.FlagUnstable, s.WindowEnd >= 0 && unstable(s, len(w.all))},
		{measurement.FlagContaminated, contaminated(w.first)},
		{measurement.FlagCensored, censored},
		{measurement.FlagShort, len(w.measured) < c.MinTurns},
		{measurement.FlagIncomplete, !complete},
		{measurement.FlagErrors, r.ErrorRate != nil && *r.ErrorRate >= maxErrorRate},
		{measurement.FlagBuffered, buffered(w.measured)},
		{measurement.FlagColdCache, cold(w.measured, r)},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// unstable reports whether the turns in flight grew by more than chance allows: by more than a twentieth of what arrived, and
// by more than two standard deviations of the difference of two counts, which for independent Poisson counts is the root of
// their sum. The second keeps a step of few turns from being called unstable for two or three of them.
func unstable(s measurement.Step, arrived int) bool {
	growth := float64(s.InFlightEnd - s.InFlightStart)
	return growth > maxGrowth*float64(arrived) && growth > growthZ*math.Sqrt(float64(s.InFlightEnd+s.InFlightStart))
}

// contaminated reports whether first turns found their prompts cached already: more than a few of them (or a hundredth of many),
// or more than half of fewer.
func contaminated(first []*measurement.Turn) bool {
	known, hot := 0, 0
	for _, t := range first {
		if t.CachedTokens < 0 || t.PromptTokens <= 0 {
			continue
		}
		known++
		if t.CachedTokens > template && float64(t.CachedTokens) > maxWarmHit*float64(t.PromptTokens) {
			hot++
		}
	}
	return hot > max(fewTurns, known/100) || 2*hot > known
}

// buffered reports whether answers came whole, in one read, although they are streams of tokens: something on the way holds
// them back. The gaps of an answer add up to the time from its first token to its last.
func buffered(measured []*measurement.Turn) bool {
	answers, whole := 0, 0
	for _, t := range measured {
		if t.Outcome != measurement.OK || t.Events < fewAnswers || t.CompletionTokens < fewAnswers {
			continue
		}
		answers++
		if t.LastToken-t.FirstToken < wholeAnswer {
			whole++
		}
	}
	return answers >= fewAnswers && float64(whole) >= mostAnswers*float64(answers)
}

// cold reports whether turns missed their prefixes although hardly any other call was there to evict them: the cache is off, or
// the turns of a call do not share one.
func cold(measured []*measurement.Turn, r measurement.StepResult) bool {
	known := 0
	for _, t := range measured {
		if t.CachedTokens >= 0 && t.PromptTokens > 0 {
			known++
		}
	}
	return known >= fewAnswers && r.LiveCallsMax != nil && *r.LiveCallsMax <= fewLive && *r.CacheHitRate < coldHit
}
