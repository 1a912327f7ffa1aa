package analysis

import (
	"math"
	"slices"
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
	fewAnswers  = 5                    // fewer answers of a step show neither a buffer nor a cache that is off
	fewTokens   = 5                    // an answer of fewer shows no buffer
	wholeAnswer = time.Millisecond     // an answer whose gaps add up to less came in one read
	mostAnswers = .8                   // this share of them says that the stream is buffered
	coldHit     = .5                   // a hit rate under this with no more than
	fewLive     = 2                    // so many calls at once was not brought about by eviction
	maxOffRate  = .1                   // the λ that came may differ from the λ asked by this share of it
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
		{measurement.FlagClientLimited, r.ScheduleLagP99 != nil && *r.ScheduleLagP99 > lagLimit || w.local},
		{measurement.FlagCapBound, s.HeldCalls > 0},
		{measurement.FlagUnstable, s.WindowEnd >= 0 && unstable(s, w.all.len())},
		{measurement.FlagContaminated, w.first.contaminated()},
		{measurement.FlagCensored, censored},
		{measurement.FlagShort, w.measured.len() < c.MinTurns && !s.EarlyFail},
		{measurement.FlagIncomplete, !complete},
		{measurement.FlagErrors, r.ErrorRate != nil && *r.ErrorRate >= maxErrorRate},
		{measurement.FlagBuffered, w.buffered()},
		{measurement.FlagColdCache, !c.Lone() && cold(w.hits, r)},
		{measurement.FlagEarlyFail, s.EarlyFail},
		{measurement.FlagOffRate, complete && !s.EarlyFail && !unitOf(c).closed() && offRate(r)},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// offRate reports whether the λ that came is another one than was asked.
func offRate(r measurement.StepResult) bool {
	return r.ArrivedRate != nil && math.Abs(*r.ArrivedRate/r.Rate-1) > maxOffRate
}

// reason says in a few words what keeps a step from a verdict; "" when nothing is known.
func reason(u unit, s measurement.StepResult) string {
	for _, f := range []string{measurement.FlagIncomplete, measurement.FlagClientLimited, measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated} {
		if slices.Contains(s.Flags, f) {
			if f == measurement.FlagIncomplete {
				return "the step was cut"
			}
			return measurement.FlagMeaningOf(f, u.loadOf())
		}
	}
	if s.MeasuredTurns == 0 {
		return "no " + u.answers()
	}
	if slices.ContainsFunc(s.Objectives, func(o measurement.ObjectiveResult) bool { return o.ValueMS == nil }) {
		return "an objective was not measured"
	}
	return ""
}

func incomplete(s measurement.StepResult) bool {
	return slices.Contains(s.Flags, measurement.FlagIncomplete)
}

// whole are the steps that came to their end: no other counts for anything.
func whole(steps []measurement.StepResult) []measurement.StepResult {
	return slices.DeleteFunc(slices.Clone(steps), incomplete)
}

// unstable reports whether the turns in flight grew by more than chance allows: by more than a twentieth of what arrived, and
// by more than two standard deviations of the difference of two counts, which for independent Poisson counts is the root of
// their sum. The second keeps a step of few turns from being called unstable for two or three of them.
func unstable(s measurement.Step, arrived int) bool {
	growth := float64(s.InFlightEnd - s.InFlightStart)
	return growth > maxGrowth*float64(arrived) && growth > growthZ*math.Sqrt(float64(s.InFlightEnd+s.InFlightStart))
}

// heat is how many first turns found their prompts cached already, of those of which that is known.
type heat struct{ known, hot int }

func (h *heat) add(t *measurement.Turn) {
	if t.CachedTokens < 0 || t.PromptTokens <= 0 {
		return
	}
	h.known++
	if t.CachedTokens > template && float64(t.CachedTokens) > maxWarmHit*float64(t.PromptTokens) {
		h.hot++
	}
}

// contaminated reports whether more than a few were hot (or a hundredth of many), or more than half of fewer.
func (h heat) contaminated() bool { return h.hot > max(fewTurns, h.known/100) || 2*h.hot > h.known }

// Buffered reports whether answers came whole, in one read, although they are streams of tokens: something on the way holds
// them back. At least so many answers of several tokens must be there to tell, and four fifths of them whole. The gaps of an
// answer add up to the time from its first token to its last.
func Buffered(turns []*measurement.Turn, fewest int) bool {
	answers, whole := 0, 0
	for _, t := range turns {
		if tokens, inOne := streamed(t); tokens {
			answers++
			if inOne {
				whole++
			}
		}
	}
	return mostWhole(answers, whole, fewest)
}

// streamed reports whether a turn is a good answer of several tokens, and one that came in one read.
func streamed(t *measurement.Turn) (tokens, whole bool) {
	if t.Outcome != measurement.OK || t.Events < fewTokens || t.CompletionTokens < fewTokens {
		return false, false
	}
	return true, t.LastToken-t.FirstToken < wholeAnswer
}

func mostWhole(answers, whole, fewest int) bool {
	return answers >= fewest && float64(whole) >= mostAnswers*float64(answers)
}

// buffered is Buffered of the measured turns.
func (w *window) buffered() bool { return mostWhole(w.streamed, w.streamedWhole, fewAnswers) }

// cold reports whether turns missed their prefixes although hardly any other call was there to evict them: the cache is off, or
// the turns of a call do not share one.
func cold(found hits, r measurement.StepResult) bool {
	return found.turns >= fewAnswers && r.LiveCallsMax != nil && *r.LiveCallsMax <= fewLive && r.CacheHitRate != nil && *r.CacheHitRate < coldHit
}

// hitKnown reports whether the server told how much of a turn's prompt it had: no more than all of it.
func hitKnown(t *measurement.Turn) bool {
	return t.CachedTokens >= 0 && t.CachedTokens <= t.PromptTokens && t.PromptTokens > 0
}
