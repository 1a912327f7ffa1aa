package analysis

import (
	"fmt"
	"math"
	"slices"
	"time"

	"kneefinder/measurement"
)

// What evidence of a busy or a full engine must show.
const (
	prefillHeavy = .7  // share of the time that goes into prefills from which they are what the engine is short of,
	prefillSure  = .85 // and from which that is sure
	beyondAll    = .1  // share of the time beyond all of it up to which an estimate may still be right
	prefillIdle  = .5  // the engine's own share under which an estimate of more is wrong
	fewQueues    = 5   // samples with a queue that show whether the batch was full
	batchFull    = .8  // share of these at which it must have been
	batchFlat    = .02 // of the most requests at once, that a full batch may lack
	kvRoom       = .9  // of the KV pool: with less in use it is not what keeps requests out of the batch
)

// prefillCompute looks for an engine whose time goes into prefills: by its own count, or else by how many calls came and how long
// the first turn of each took when little else ran. Prefills of prefixes that were lost again are left out when the hit
// rate fell, for then eviction caused them.
func prefillCompute(u unit, log measurement.Log, s measurement.StepResult, below []measurement.StepResult, late some, lost bool, went routing) finding {
	if u.closed() || late.len() == 0 {
		return finding{}
	}
	i := slices.IndexFunc(log.Steps, func(l measurement.Step) bool { return l.Step == s.Step })
	in := windowOf(log.Steps[i], ofStep(log.Held(), s.Step))
	firsts, all := uncached(in.warm), uncached(in.warm)+uncached(in.measured)
	if firsts == 0 {
		return finding{}
	}
	share, whose := 1., "prefills"
	if lost {
		share, whose = firsts/all, "prefills of first turns"
	}
	f := finding{name: MechanismCompute}
	times := 1 / millisIn / float64(went.engines) // from what a first turn takes to what each takes of the time
	if !lost {
		times *= all / firsts
	}
	served := firstTokens(log.Steps[i], ofStep(log.Held(), s.Step))
	cold, where := coldTTFT(u, s, below, in.warm)
	if served*cold*times > 1+beyondAll { // more than there was: they waited too
		if v := measurement.Quantile(ascending(timesOf(in.warm, (*measurement.Turn).TTFTAdmitted)), .5); v < cold {
			cold, where = v, u.of(s.Rate)+", once admitted"
		}
	}
	estimate := value(s.ArrivedRate) * cold * times
	if served*cold*times > 1+beyondAll { // or there are more engines than are known
		estimate = math.NaN()
	}
	told := math.NaN()
	if s.Engine != nil {
		told = value(s.Engine.PrefillBusy) * share
	}
	took := "took " + ms(cold)
	if math.IsInf(cold, 1) { // how long it takes nobody knows
		took, estimate = "got no token", math.NaN()
	}
	came := fmt.Sprintf("%s calls/s came, and the first turn of each %s at %s", sig(value(s.ArrivedRate)), took, where)
	switch {
	case told >= prefillHeavy:
		f.sure = told >= prefillSure
		f.sentence = fmt.Sprintf("At %s the engine's time went into %s for %.0f %%, by its own count", u.of(s.Rate), whose, 100*told)
		if b := slices.IndexFunc(below, func(b measurement.StepResult) bool { return b.Engine != nil && b.Engine.PrefillBusy != nil }); b >= 0 {
			f.sentence += fmt.Sprintf(", for %.0f %% at %s", 100**below[b].Engine.PrefillBusy, u.of(below[b].Rate))
		}
		f.sentence += ": " + came + "."
	case estimate >= prefillHeavy && !(told < prefillIdle):
		of := "the time"
		if went.engines > 1 {
			of += fmt.Sprintf(" of %d engines", went.engines)
		}
		if estimate > 1+beyondAll {
			of += ", more than there is, so that a backlog grows"
		}
		f.sentence = fmt.Sprintf("At %s %s need about %.0f %% of %s: %s. The engine did not say.", u.of(s.Rate), whose, 100*estimate, of, came)
		if !math.IsNaN(told) {
			f.sentence = fmt.Sprintf("At %s %s need about %.0f %% of %s: %s; the engine counts %.0f %%.", u.of(s.Rate), whose, 100*estimate, of, came, 100*told)
		}
	default:
		return finding{}
	}
	f.explains = 1
	if lost || firsts >= all*lateShare { // else most of it is later turns': no prefix is cached
		f.explains = overlapShare(coldSpans(ofStep(log.Held(), s.Step)), late)
	}
	return f
}

// firstTokens is how many first turns got their first token in a step's window, a second.
func firstTokens(step measurement.Step, turns some) float64 {
	n := 0
	for t := range turns.each {
		if t.Turn == 1 && t.FirstToken >= step.WindowStart && t.FirstToken < step.WindowEnd {
			n++
		}
	}
	return float64(n) / (step.WindowEnd - step.WindowStart).Seconds()
}

// uncached are the prompt tokens of turns that had to be prefilled; of a first turn all where the server did not say.
func uncached(turns some) float64 {
	n := 0
	for t := range turns.each {
		switch {
		case t.PromptTokens <= 0:
		case t.CachedTokens >= 0:
			n += max(0, t.PromptTokens-t.CachedTokens)
		case t.Turn == 1:
			n += t.PromptTokens
		}
	}
	return float64(n)
}

// coldTTFT is how long a first turn waits for its token when little else runs, in ms, and at which load: the least median of the
// lower steps, or without one the fastest tenth of the step itself.
func coldTTFT(u unit, s measurement.StepResult, below []measurement.StepResult, warm some) (cold float64, at string) {
	cold = math.NaN()
	for _, b := range below {
		if v := value(b.WarmTTFTP50); v > 0 && !(v >= cold) {
			cold, at = v, u.of(b.Rate)
		}
	}
	if math.IsNaN(cold) {
		v := ascending(waitsOf(warm, (*measurement.Turn).TTFTSent))
		cold, at = measurement.Quantile(v, .1), u.of(s.Rate)
	}
	return cold, at
}

// engineLimit looks for a batch that is as full as the engine lets it be while others wait: in the engine's samples, or else by what is
// known of its limit and how many turns were in flight when others were sent. A KV pool that is full keeps requests out of
// the batch too, so without a limit that is known there must be room in it.
func engineLimit(u unit, log measurement.Log, s measurement.StepResult, late, inTime some, e measurement.Engine) finding {
	i := slices.IndexFunc(log.Steps, func(l measurement.Step) bool { return l.Step == s.Step })
	if i < 0 || late.len() == 0 {
		return finding{}
	}
	limit, isKnown := runningLimit(e)
	w := newSampled(log.Steps[i], log.Samples)
	top, queues, full := 0., 0, 0
	for _, r := range w.gauge(measurement.SampleRunning) {
		top = max(top, r)
	}
	for _, x := range w.engine {
		running, ok := x.Values[measurement.SampleRunning]
		queued, also := x.Values[measurement.SampleQueued]
		if ok && also && w.covers(x.At) && queued >= 1 {
			queues++
			if running >= top*(1-batchFlat) {
				full++
			}
		}
	}
	f := finding{name: MechanismLimit, sure: isKnown}
	switch sampled := s.Engine != nil && s.Engine.RunningMean != nil && s.Engine.QueuedMean != nil; {
	case isKnown && (top >= limit || !sampled):
		top = limit
	case sampled && !isKnown && value(s.Engine.KVUsageMax) < kvRoom:
	default:
		return finding{}
	}
	if queues > 0 || !isKnown {
		if queues < fewQueues || float64(full) < batchFull*float64(queues) {
			return finding{}
		}
		f.sentence = fmt.Sprintf("At %s %.0f requests ran in %d of the %d samples in which others waited", u.of(s.Rate), top, full, queues)
		if isKnown {
			f.sentence += ", which is the engine's limit"
		}
		if v := s.Engine.KVUsageMax; v != nil {
			f.sentence += fmt.Sprintf(", with %.0f %% of the KV pool in use at most", 100**v)
		}
		f.sentence += "; "
	} else {
		f.sure = false
		f.sentence = fmt.Sprintf("The engine runs %.0f requests at once at most: at %s ", limit, u.of(s.Rate))
	}
	turns := ofStep(log.Held(), s.Step)
	of, than := crowded(turns, late, top), crowded(turns, inTime, top)
	if !(of > lateShare) || inTime.len() > 0 && of < than+shareMargin {
		return finding{}
	}
	f.explains = of
	f.sentence += fmt.Sprintf("%.0f %% of the %d turns over the limit were sent while at least as many were in flight", 100*of, late.len())
	if inTime.len() > 0 {
		f.explains = of - than
		f.sentence += fmt.Sprintf(", %.0f %% of the %d in time", 100*than, inTime.len())
	}
	f.sentence += "."
	return f
}

// runningLimit is how many requests the engine runs at once at most, as far as its own settings tell.
func runningLimit(e measurement.Engine) (float64, bool) {
	for _, name := range []string{"max_running_requests", "max_num_seqs"} {
		switch v := e.Details[name].(type) {
		case float64:
			return v, v > 0
		case int:
			return float64(v), v > 0
		}
	}
	return 0, false
}

// crowded is the share of turns that were sent while at least so many others of the step were in flight; NaN of none.
func crowded(turns, of some, least float64) float64 {
	var sent, ended []time.Duration
	for t := range turns.each {
		if t.Sent >= 0 && t.End >= t.Sent {
			sent, ended = append(sent, t.Sent), append(ended, t.End)
		}
	}
	slices.Sort(sent)
	slices.Sort(ended)
	n := 0
	for t := range of.each {
		before, _ := slices.BinarySearch(sent, t.Sent)
		over, _ := slices.BinarySearch(ended, t.Sent)
		if float64(before-over) >= least {
			n++
		}
	}
	return float64(n) / float64(of.len())
}

// serverEviction is eviction as the engine tells it, for servers that do not say what of a prompt was cached: its own hit rate fell
// while it evicted.
func serverEviction(u unit, s measurement.StepResult, below []measurement.StepResult, went routing) finding {
	if s.CacheHitRate != nil || s.Engine == nil || !(value(s.Engine.EvictedRate) > 0) {
		return finding{}
	}
	best, at := math.NaN(), 0.
	for _, b := range below {
		if b.Engine != nil {
			if h := value(b.Engine.CacheHitRate); h > best || math.IsNaN(best) && !math.IsNaN(h) {
				best, at = h, b.Rate
			}
		}
	}
	now := value(s.Engine.CacheHitRate)
	if !(best-now > hitDrop) {
		return finding{}
	}
	_, gone := lost(s, went, 0, 0, "warm prefixes had been evicted before their next turn came")
	return finding{name: MechanismEviction, explains: (best - now) / best, sentence: fmt.Sprintf(
		"The engine evicted %s tokens a second at %s, and by its own count its hit rate fell from %.0f %% at %s to %.0f %%: %s. Which turns missed theirs it does not say.",
		round(*s.Engine.EvictedRate), u.of(s.Rate), 100*best, u.of(at), 100*now, gone)}
}

// slowDecode looks for tokens that come slower. The growth of P95 is that of the median, by which every token is slower, times that of P95 over
// the median, by which a few are. Where the second is the larger, or the engine says that its time goes into prefills, the batch is not
// what slows down: tokens stand still while prompts are prefilled.
func slowDecode(u unit, s measurement.StepResult, below []measurement.StepResult) finding {
	i := slices.IndexFunc(below, func(b measurement.StepResult) bool { return b.ITLP95 != nil && *b.ITLP95 > 0 })
	if i < 0 || s.ITLP95 == nil {
		return finding{}
	}
	b := below[i]
	growth := *s.ITLP95 / *b.ITLP95
	if growth <= decodeGrowth {
		return finding{}
	}
	says := fmt.Sprintf("P95 of the gaps between tokens grew %.1f times, from %s at %s to %s at %s", growth, ms(*b.ITLP95), u.of(b.Rate), ms(*s.ITLP95), rate(s.Rate))
	median := value(s.ITLP50) / value(b.ITLP50)
	if math.IsNaN(median) {
		return finding{name: MechanismDecode, sentence: says + "."}
	}
	if growth/median > median {
		return finding{name: MechanismPrefill, sentence: fmt.Sprintf("%s, and their median only from %s to %s: some tokens stand still while prompts are prefilled.", says, ms(*b.ITLP50), ms(*s.ITLP50))}
	}
	if s.Engine != nil && value(s.Engine.PrefillBusy) >= prefillHeavy {
		return finding{name: MechanismPrefill, sentence: fmt.Sprintf("%s: tokens stand still while prompts are prefilled, which by the engine's own count takes %.0f %% of its time.", says, 100**s.Engine.PrefillBusy)}
	}
	batch := func(r measurement.StepResult) float64 {
		if r.Engine != nil && r.Engine.RunningMean != nil {
			return *r.Engine.RunningMean
		}
		return value(r.LiveTurnsMean)
	}
	if was, is := batch(b), batch(s); is > was {
		says += fmt.Sprintf(", as the turns in flight grew from %s to %s", sig(was), sig(is))
	}
	f := finding{name: MechanismDecode}
	if s.Engine != nil && value(s.Engine.DecodeBusy) >= prefillSure {
		f.sure = true
		says += fmt.Sprintf(", and the engine decodes for %.0f %% of its time", 100**s.Engine.DecodeBusy)
	}
	f.sentence = says + ": the batch itself slows down."
	return f
}
