package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"kneefinder/measurement"
)

// What evidence of prompts too long for the limit must show.
const (
	fewAlone  = 5  // turns that had the server to themselves
	mostAlone = .9 // share of those, from a length on, that are late
)

// fullKV looks for a KV pool that running requests fill: they are pushed out of the batch, or others wait while there is no room. How much of
// it explains the late turns is how many more of them than of the turns in time waited while it was full.
func fullKV(u unit, log measurement.Log, s measurement.StepResult, late, inTime some) finding {
	e := s.Engine
	i := slices.IndexFunc(log.Steps, func(l measurement.Step) bool { return l.Step == s.Step })
	if e == nil || i < 0 || late.len() == 0 || !(value(e.KVUsageMax) >= kvRoom) {
		return finding{}
	}
	w := newSampled(log.Steps[i], log.Samples)
	queues, full := 0, 0
	for _, x := range w.engine {
		if queued := x.Values[measurement.SampleQueued]; queued >= 1 && w.covers(x.At) {
			queues++
			if x.Values[measurement.SampleKVUsage] >= kvRoom {
				full++
			}
		}
	}
	retracted := value(e.Retractions) > 0
	if !retracted && (queues < fewQueues || float64(full) < batchFull*float64(queues)) {
		return finding{}
	}
	of, than := w.filled(late), w.filled(inTime)
	if !retracted && of < than+shareMargin { // nobody was late for it
		return finding{}
	}
	f := finding{name: MechanismKV, explains: of}
	f.sentence = fmt.Sprintf("At %s running requests held %.0f %% of the KV pool on average, %.0f %% at most", u.of(s.Rate), 100*value(e.KVUsageMean), 100*value(e.KVUsageMax))
	if retracted {
		f.sentence += fmt.Sprintf(", and were pushed out of the batch %s, to be computed again", often(*e.Retractions))
	}
	f.sentence += fmt.Sprintf("; %.0f %% of the %d %s over the limit waited while it was full", 100*of, late.len(), u.answers())
	if inTime.len() > 0 {
		f.explains = max(0, of-than)
		f.sure = retracted && inTime.len() >= fairCompare && of-than > 3*shareMargin && of > lateShare
		f.sentence += fmt.Sprintf(", %.0f %% of the %d in time", 100*than, inTime.len())
	}
	f.sentence += ": the KV that they need does not fit."
	return f
}

// often is how often something happened.
func often(n float64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%.0f times", n)
}

// filled is the share of turns that waited while the engine's KV pool was full, by the samples in their wait and those beside it; NaN of
// none.
func (w *sampled) filled(turns some) float64 {
	n := 0
	for t := range turns.each {
		until := max(t.Sent, t.FirstToken)
		first, _ := slices.BinarySearchFunc(w.engine, t.Sent, func(x measurement.EngineSample, at time.Duration) int { return cmp.Compare(x.At, at) })
		for _, x := range w.engine[max(0, first-1):] {
			if x.Values[measurement.SampleKVUsage] >= kvRoom {
				n++
				break
			}
			if x.At >= until {
				break
			}
		}
	}
	return float64(n) / float64(turns.len())
}

// prompt is what of a turn tells how long its prompt takes. There are as many as turns, so it is small.
type prompt struct {
	sent, first, end time.Duration
	tokens           int32 // to compute; below 0 of a turn that tells nothing
}

// wait is how long its first token took, in ms.
func (p prompt) wait() float64 { return millis(p.first - p.sent) }

// longPrompts looks for turns that are late whatever the load: those with so many tokens to compute that the server takes longer than the
// limit for them when it has nothing else to do, as those turns of the run show that were alone from sent to first token. Where too few were,
// turns that had no other prompt beside them tell it, and then those of the step itself, from when the engine took them. A turn that
// lost its prefix is not looked at, for that is another's doing.
func longPrompts(u unit, log measurement.Log, s measurement.StepResult, slo []measurement.Objective, late, inTime some) finding {
	limit := ttftLimit(slo)
	if late.len() == 0 {
		return finding{}
	}
	lone := log.Header.Config.Lone()
	length := func(t *measurement.Turn) int32 {
		switch {
		case t.PromptTokens <= 0 || t.Turn < 2 || !lone && hitKnown(t) && 2*t.CachedTokens < t.PromptTokens:
			return -1
		case hitKnown(t):
			return int32(min(t.PromptTokens-t.CachedTokens, math.MaxInt32))
		}
		return int32(min(t.PromptTokens, math.MaxInt32))
	}
	low := map[int]bool{} // the steps up to this load: at higher ones nobody is alone
	for _, step := range log.Steps {
		low[step.Step] = step.Rate <= s.Rate
	}
	var sent []prompt
	for t := range log.Held().All() {
		if !low[t.Step] || t.Sent < 0 || t.End < t.Sent {
			continue
		}
		p := prompt{t.Sent, t.FirstToken, t.End, length(t)}
		if p.first < p.sent { // it got no token, and was there until its end
			p.first, p.tokens = p.end, -1
		}
		sent = append(sent, p)
	}
	slices.SortStableFunc(sent, func(a, b prompt) int { return cmp.Compare(a.sent, b.sent) })
	taken := func() (out []prompt) {
		for _, turns := range []some{late, inTime} {
			for t := range turns.each {
				if t.Admitted > 0 && t.FirstToken >= t.Admitted {
					out = append(out, prompt{sent: t.Admitted, first: t.FirstToken, tokens: length(t)})
				}
			}
		}
		return out
	}
	var from int32
	var of int
	var median float64
	how := ""
	for _, try := range []struct {
		prompts func() []prompt
		how     string
	}{
		{func() []prompt { return undisturbed(sent, false) }, "that had the server to themselves"},
		{func() []prompt { return undisturbed(sent, true) }, "that had no other prompt beside them"},
		{taken, ""},
	} {
		if from, of, median = tooLong(try.prompts(), limit); of >= fewAlone {
			how = try.how
			break
		}
	}
	if of < fewAlone {
		return finding{}
	}
	long := func(turns some) (n int) {
		for t := range turns.each {
			if length(t) >= from {
				n++
			}
		}
		return n
	}
	n, all := long(late)+long(inTime), late.len()+inTime.len()
	share, allowed := float64(n)/float64(all), 1.
	for _, o := range slo {
		if o.Metric == "ttft" && o.LimitMS == limit {
			allowed = min(allowed, 1-o.Quantile)
		}
	}
	who, some := fmt.Sprintf("%s with %s tokens or more to compute", u.answers(), grouped(fmt.Sprint(from))), ""
	if n < all {
		some = fmt.Sprintf("; they are %s of the %s at %s", percentage(share), u.answers(), u.of(s.Rate))
	} else {
		who = "all " + u.answers()
	}
	f := finding{name: MechanismPrompt, explains: float64(long(late)) / float64(late.len())}
	if how == "" {
		f.sentence = fmt.Sprintf("Counted from when the engine took them, %s took longer than the limit, %s in the median of %d%s, and %s may be late.", who, ms(median), of, some, percentage(allowed))
		return f
	}
	f.sure = share > allowed && of >= 2*fewAlone
	f.sentence = fmt.Sprintf("Even alone, %s take longer than the limit, %s in the median of the %d %s%s; %s may be late", who, ms(median), of, how, some, percentage(allowed))
	if share > allowed {
		f.sentence += ": no load is low enough, and replicas do not help; shorter prompts, a faster engine or a longer limit do"
	}
	f.sentence += "."
	return f
}

// undisturbed are the prompts that had nothing beside them from sent until their first token; or, where others may be answering, no other
// prompt. They stand by when they were sent.
func undisturbed(sent []prompt, answering bool) (alone []prompt) {
	busy := time.Duration(math.MinInt64) // until when those before are
	for i, p := range sent {
		if p.sent >= busy && (i+1 == len(sent) || sent[i+1].sent >= p.first) {
			alone = append(alone, p)
		}
		if busy = max(busy, p.first); !answering {
			busy = max(busy, p.end)
		}
	}
	return alone
}

// cap says which cap on concurrent calls held calls back, and, where calls ended, how many of them go on at once at that rate, as the
// rate times how long one lasts: what a cap must be above to hold nobody back while calls last as long.
func (u unit) cap(log measurement.Log, s measurement.StepResult) string {
	most := log.Header.Config.MaxConcurrentCalls
	out := fmt.Sprintf("--max-concurrent-calls %d", most)
	type span struct{ from, to time.Duration }
	spans := map[int]span{}
	for t := range log.Held().All() {
		if t.Step != s.Step || t.Sent < 0 || t.End < t.Sent {
			continue
		}
		c, ok := spans[t.Call]
		if !ok {
			c.from = t.Sent
		}
		spans[t.Call] = span{min(c.from, t.Sent), max(c.to, t.End)}
	}
	if len(spans) == 0 {
		return out
	}
	sum := 0.
	for _, call := range slices.Sorted(maps.Keys(spans)) {
		sum += (spans[call].to - spans[call].from).Seconds()
	}
	lasts := sum / float64(len(spans))
	if need := s.Rate * lasts; need > float64(most) {
		out += fmt.Sprintf(" (one lasts %s s, so that about %s are there at once)", sig(lasts), round(math.Ceil(need)))
	}
	return out
}

// tooLong is the fewest tokens to compute from which on nearly all of some prompts waited longer than the limit, how many such prompts there
// are, and the median of their wait in ms; 0 prompts where there is no such length.
func tooLong(prompts []prompt, limitMS float64) (from int32, n int, median float64) {
	prompts = slices.DeleteFunc(prompts, func(p prompt) bool { return p.tokens < 0 })
	slices.SortStableFunc(prompts, func(a, b prompt) int { return cmp.Compare(b.tokens, a.tokens) })
	late, best := 0, 0
	for i, p := range prompts {
		if p.wait() > limitMS {
			late++
		}
		last, apart := i+1 == len(prompts) || prompts[i+1].tokens < p.tokens, late-(i+1-late)
		if last && float64(late) >= mostAlone*float64(i+1) && apart > best { // where it tells those late from those in time best
			from, n, best = p.tokens, i+1, apart
		}
	}
	var waits []float64
	for _, p := range prompts[:n] {
		waits = append(waits, p.wait())
	}
	return from, n, measurement.Quantile(sorted(waits), .5)
}
