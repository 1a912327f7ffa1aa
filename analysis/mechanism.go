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

// The names of what can bind at a knee.
const (
	MechanismClient   = "client"                       // the generator was late or its cap held calls back
	MechanismEviction = "kv_eviction"                  // warm prefixes were gone when their turns came
	MechanismCompute  = "prefill_compute"              // the engine's time goes into prefills
	MechanismPrefill  = "queueing_behind_cold_prefill" // late turns waited while another call's first turn was prefilled
	MechanismLimit    = "engine_limit"                 // the engine runs no more requests at once
	MechanismDecode   = "decode"                       // tokens themselves came slower
	MechanismErrors   = "errors"                       // the server refused or broke requests
	MechanismRouting  = "routing"                      // turns went to replicas that do not have their prefix
	MechanismKV       = "kv_capacity"                  // the KV of running requests fills the pool
	MechanismPrompt   = "long_prompts"                 // prompts take longer than the limit even alone
)

// What evidence must show.
const (
	hitDrop      = .05 // the hit rate fell by more than this below the best lower step
	lateShare    = .6  // more than this share of the late turns overlapped a cold prefill, or had lost their prefix,
	partMargin   = .4  // or, where several things bind together, fewer, but so many more than of the turns in time
	shareMargin  = .1  // and this much more than of the turns in time
	fairCompare  = 20  // turns in time that make the comparison worth trusting
	decodeGrowth = 2.  // P95 of the gaps between tokens grew by more than this factor
)

// humanMechanism is what binds, in plain words.
func humanMechanism(name string) string {
	switch name {
	case MechanismClient:
		return "the load generator itself, not the server"
	case MechanismEviction:
		return "KV cache eviction"
	case MechanismCompute:
		return "prefill: the engine's time goes into prompts"
	case MechanismLimit:
		return "the engine's limit on requests that run at once"
	case MechanismPrefill:
		return "warm turns queue behind other calls' cold prefills"
	case MechanismDecode:
		return "decoding: the tokens themselves come slower"
	case MechanismRouting:
		return "routing: turns go to replicas that do not have their prefix"
	case MechanismKV:
		return "KV memory: running requests fill the pool, and others wait or are pushed out"
	case MechanismPrompt:
		return "the prompts' own length: even alone they take longer than the limit"
	case MechanismErrors:
		return "errors: the server refuses or breaks requests"
	}
	return name
}

// finding is one mechanism for which something speaks.
type finding struct {
	name     string
	explains float64 // share of the late turns that it explains, beyond what chance would
	sure     bool
	sentence string
}

// Mechanism says what binds at the first failing step (or, when none fails, what keeps the first undecided one from a
// verdict). Steps that were cut count for nothing. The engine's own metrics are asked where they are there: for how its time is
// spent, for a full batch, and for hits where the server tells none of a turn; what else they show is told too, and decides
// nothing. The generator binds only where it explains the miss: the objectives hold from sent on, or the turns that failed are
// those that its cap never let go; else its lateness is a remark. Mechanism names the finding that explains most of the turns over
// the TTFT limit and gives one sentence of evidence for each. A correlation is all it can see: the figures are there to be judged.
func Mechanism(log measurement.Log, r measurement.Results) measurement.Mechanism {
	none := measurement.Mechanism{Evidence: []string{}, Confidence: "none"}
	u := unitOf(r.Config)
	steps := judged(byRate(whole(r.Steps)), r.Config.SLO)
	at := slices.IndexFunc(steps, func(s measurement.StepResult) bool { return s.Verdict == measurement.Fail })
	if at < 0 {
		at = slices.IndexFunc(steps, func(s measurement.StepResult) bool {
			return s.Verdict == measurement.Undecided && clientBound(s) != ""
		})
	}
	if at < 0 {
		none.Evidence = []string{"No step failed, so nothing is seen to bind."}
		return none
	}
	if i, _ := StandsFor(steps, steps[at].Rate); i >= 0 && steps[i].Verdict == steps[at].Verdict {
		at = i
	}
	s := steps[at]
	var below []measurement.StepResult
	for _, b := range steps[:at] {
		if b.Rate < s.Rate {
			below = append(below, b)
		}
	}
	late, inTime := lateTurns(log, s, ttftLimit(r.Config.SLO))
	decode := slowDecode(u, s, below)
	if onlyITL(s, r.Config.SLO) { // then what made a few turns late is not what failed the step
		late, inTime, decode.explains = some{}, some{}, 1
	}

	turns := ofStep(log.Held(), s.Step)
	went := routingOf(deploymentOf(r.Engine), s.Engine, turns)
	evicted := eviction(u, s, below, late, went)
	if evicted.name == "" {
		evicted = fewEvictions(u, s, below, late, inTime, went)
	}
	if evicted.name == "" {
		evicted = misrouted(u, s, went, warmTurns(log, s), late, inTime)
	}
	if evicted.name == "" {
		evicted = serverEviction(u, s, below, went)
	}
	var found []finding
	for _, f := range []finding{client(u, log, s, r.Config.SLO), failures(u, s), engineLimit(u, log, s, late, inTime, r.Engine), evicted,
		longPrompts(u, log, s, r.Config.SLO, late, inTime), prefillCompute(u, log, s, below, late, evicted.name != "", went), coldPrefill(u, s, turns, late, inTime, went),
		fullKV(u, log, s, late, inTime), decode} {
		if f.name != "" {
			found = append(found, f)
		}
	}
	isFull := slices.ContainsFunc(found, func(f finding) bool { return f.name == MechanismKV })
	remark := clientRemark(u, log, s)
	if remark != "" && len(found) > 0 && found[0].name == MechanismClient {
		remark = ""
	}
	told := engineSigns(u, s, below, isFull)
	if len(found) == 0 {
		none.Evidence = append([]string{untold(u, s, below)}, told...)
		if remark != "" {
			none.Evidence = append(none.Evidence, remark)
		}
		return none
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(b.explains, a.explains) })
	m := measurement.Mechanism{Name: found[0].name, Confidence: "low"}
	if found[0].sure {
		m.Confidence = "high"
	}
	for _, f := range found {
		m.Evidence = append(m.Evidence, f.sentence)
	}
	m.Evidence = append(m.Evidence, told...)
	if remark != "" {
		m.Evidence = append(m.Evidence, remark)
	}
	return m
}

// untold says what was looked for and not found, as far as it could be looked for.
func untold(u unit, s measurement.StepResult, below []measurement.StepResult) string {
	hits := "the hit rate held"
	switch {
	case s.CacheHitRate == nil:
		hits = "the hit rate is unknown"
	case len(below) == 0:
		hits = fmt.Sprintf("the hit rate is %.0f %%, with no lower load to hold it against", 100**s.CacheHitRate)
	}
	unseen := ""
	if s.Engine == nil {
		unseen = ", which holds nothing of the engine's own queue, batch and KV cache"
	}
	return fmt.Sprintf("At %s %s, late turns were not tied to cold prefills and tokens did not slow down: what binds cannot be told from this run%s.", u.of(s.Rate), hits, unseen)
}

// failures names the kind of failure that most of a failing step's errors have, when it is errors that fail it.
func failures(u unit, s measurement.StepResult) finding {
	if s.ErrorRate == nil || *s.ErrorRate < maxErrorRate || s.Errors == 0 {
		return finding{}
	}
	kind, most := measurement.Outcome(""), 0
	for _, k := range slices.Sorted(maps.Keys(s.ErrorKinds)) {
		if n := s.ErrorKinds[k]; n > most && k != measurement.Shed {
			kind, most = k, n
		}
	}
	switch kind {
	case "", measurement.TTFTTimeout, measurement.TotalTimeout, measurement.Stall: // slowness, whose cause the others look for
		return finding{}
	}
	share := float64(most) / float64(s.Errors)
	return finding{name: MechanismErrors, explains: share, sure: share > .5,
		sentence: fmt.Sprintf("At %s %s of the turns failed, %d of the %d failures as %s: the server refused or broke them, which is no matter of waiting.", u.of(s.Rate), percentage(*s.ErrorRate), most, s.Errors, kind)}
}

// onlyITL reports whether a step misses its objectives for the gaps between tokens and none for the first ones.
func onlyITL(s measurement.StepResult, slo []measurement.Objective) bool {
	itl := false
	for _, o := range slo {
		if figureOf(&s, o) > o.LimitMS {
			if o.Metric != "itl" {
				return false
			}
			itl = true
		}
	}
	return itl
}

// lateTurns splits the measured turns of a step that got a token into those over the limit and those within it. A turn that was
// refused did not wait, and what made it fail is told by its kind.
func lateTurns(log measurement.Log, s measurement.StepResult, limitMS float64) (late, inTime some) {
	w, ok := windowIn(log, s)
	if !ok || math.IsNaN(limitMS) {
		return some{}, some{}
	}
	in := w.measured
	late.of, inTime.of = in.of, in.of
	for at, t := range in.numbered {
		switch d, ok := t.TTFT(); {
		case ok && millis(d) <= limitMS:
			inTime.at = append(inTime.at, at)
		case ok:
			late.at = append(late.at, at)
		}
	}
	return late, inTime
}

// warmTurns are the first turns of the window.
func warmTurns(log measurement.Log, s measurement.StepResult) some {
	w, _ := windowIn(log, s)
	return w.warm
}

func clientBound(s measurement.StepResult) string {
	for _, f := range []string{measurement.FlagCapBound, measurement.FlagClientLimited} {
		if slices.Contains(s.Flags, f) {
			return f
		}
	}
	return ""
}

func client(u unit, log measurement.Log, s measurement.StepResult, slo []measurement.Objective) finding {
	f := finding{name: MechanismClient, explains: 1, sure: true}
	if s.Verdict == measurement.Fail && !clientExplains(log, s, slo) {
		return finding{}
	}
	switch clientBound(s) {
	case measurement.FlagCapBound:
		f.sentence = fmt.Sprintf("At %s %s were held back by %s, and once sent they met the objectives, so the step measures the cap: raise it to see what the server does.", u.of(s.Rate), u.calls(), u.cap(log, s))
	case measurement.FlagClientLimited:
		f.sentence = fmt.Sprintf("At %s the generator sent its turns late%s, so the step measures the generator.", u.of(s.Rate), lateness(s))
	default:
		return finding{}
	}
	return f
}

// clientExplains reports whether a failing step would have met its objectives but for the generator: TTFT from sent on is within
// its limits, and so are the errors without the calls that the cap never let go.
func clientExplains(log measurement.Log, s measurement.StepResult, slo []measurement.Objective) bool {
	w, ok := windowIn(log, s)
	if !ok {
		return false
	}
	sent := ascending(waitsOf(w.measured, (*measurement.Turn).TTFTSent))
	if math.IsInf(measurement.Quantile(sent, .95), 1) {
		return false
	}
	for _, o := range slo {
		v := figureOf(&s, o)
		if o.Metric == "ttft" {
			v = measurement.Quantile(sent, o.Quantile)
		}
		if v > o.LimitMS {
			return false
		}
	}
	shed := s.ErrorKinds[measurement.Shed]
	return s.Errors == 0 || float64(s.Errors-shed)/float64(s.Errors)*value(s.ErrorRate) < maxErrorRate
}

// clientRemark says that the generator was late or its cap held calls, where that does not explain a failing step.
func clientRemark(u unit, log measurement.Log, s measurement.StepResult) string {
	switch clientBound(s) {
	case measurement.FlagCapBound:
		return fmt.Sprintf("Beside that, %s at %s were held back by %s, which does not explain the miss%s.", u.calls(), u.of(s.Rate), u.cap(log, s), fromSent(s))
	case measurement.FlagClientLimited:
		return fmt.Sprintf("Beside that, the generator sent its turns at %s late%s, which does not explain the miss%s.", u.of(s.Rate), lateness(s), fromSent(s))
	}
	return ""
}

func lateness(s measurement.StepResult) string {
	if s.ScheduleLagP99 == nil {
		return ""
	}
	return fmt.Sprintf(" (P99 %s)", ms(*s.ScheduleLagP99))
}

func fromSent(s measurement.StepResult) string {
	if s.TTFTSentP95 == nil {
		return ""
	}
	return fmt.Sprintf(": counted from sent, P95 TTFT is %s", ms(*s.TTFTSentP95))
}

func eviction(u unit, s measurement.StepResult, below []measurement.StepResult, late some, went routing) finding {
	best, bestRate := math.NaN(), 0.
	for _, b := range below {
		if h := value(b.CacheHitRate); h > best || math.IsNaN(best) && !math.IsNaN(h) {
			best, bestRate = h, b.Rate
		}
	}
	now := value(s.CacheHitRate)
	if !(best-now > hitDrop) {
		return finding{}
	}
	missed, known, strays := 0, 0, 0
	for at, t := range late.numbered {
		if hitKnown(t) {
			known++
			if float64(t.CachedTokens) < (best-hitDrop)*float64(t.PromptTokens) {
				missed++
				if went.strays[at] {
					strays++
				}
			}
		}
	}
	name, gone := lost(s, went, missed, strays, "warm prefixes had been evicted before their next turn came")
	f := finding{name: name, sure: best-now > 2*hitDrop && !(went.blind() && name == MechanismEviction)}
	f.sentence = fmt.Sprintf("The cache hit rate fell from %.0f %% at %s to %.0f %% at %s: %s", 100*best, u.of(bestRate), 100*now, rate(s.Rate), gone)
	if known > 0 {
		f.explains = float64(missed) / float64(known)
		f.sentence += fmt.Sprintf("; %d of %d turns over the limit missed their prefix", missed, known)
		f.sure = f.sure && f.explains > .5
	}
	f.sentence += "."
	return f
}

// fewEvictions looks for prefixes that were gone when their turns came, where so few were that the hit rate hardly shows it: one turn in
// twenty is enough to move a P95.
func fewEvictions(u unit, s measurement.StepResult, below []measurement.StepResult, late, inTime some, went routing) finding {
	missed, known, strays := misses(late, went)
	alike, others, _ := misses(inTime, went)
	of, than := float64(missed)/float64(max(1, known)), float64(alike)/float64(max(1, others))
	if known < 5 || of < than+partMargin {
		return finding{}
	}
	e := s.Engine
	none := u.loadOf() == measurement.Requests || e != nil && e.EvictedRate != nil && *e.EvictedRate == 0 // no prefix need be shared, or kept
	if none && others == alike && !slices.ContainsFunc(below, func(b measurement.StepResult) bool { return value(b.CacheHitRate) > hitDrop }) {
		return finding{} // nobody ever found one, so there is none to lose
	}
	name, gone := lost(s, went, missed, strays, "it had been evicted before their turn came")
	f := finding{name: name, explains: of - than, sure: others >= fairCompare && known >= 10 && of > lateShare && !(went.blind() && name == MechanismEviction)}
	f.sentence = fmt.Sprintf("At %s %d of the %d turns over the limit had lost more than half of their prefix", u.of(s.Rate), missed, known)
	if others > 0 {
		f.sentence += fmt.Sprintf(", %d of the %d in time", alike, others)
	}
	f.sentence += ": " + gone + "."
	return f
}

// lost is what took prefixes that turns missed, and that in words: eviction, in the words evicted, unless most of the turns went to another
// replica than the one that had it, or there are several that evicted nothing.
func lost(s measurement.StepResult, went routing, missed, strays int, evicted string) (mechanism, words string) {
	e := s.Engine
	switch {
	case 2*strays > missed:
		return MechanismRouting, fmt.Sprintf("%d of these went to another replica than the turn before them, which had it still", strays)
	case e != nil && len(e.Replicas) > 1 && e.EvictedRate != nil && *e.EvictedRate == 0:
		return MechanismRouting, "nothing was evicted, so they went to another replica than the turns before them"
	case went.blind():
		return MechanismEviction, evicted + ", or they went to another replica, which the log does not tell"
	}
	return MechanismEviction, evicted
}

// misses counts the turns that found less than half of their prompt cached, of those of which that is known, and those of them that left it
// at another replica.
func misses(turns some, went routing) (missed, known, strays int) {
	for at, t := range turns.numbered {
		if hitKnown(t) {
			known++
			if 2*t.CachedTokens < t.PromptTokens {
				missed++
				if went.strays[at] {
					strays++
				}
			}
		}
	}
	return missed, known, strays
}

// coldPrefill looks for late turns that waited, from due to first token, while another call's first turn was between sent and
// first token, on the same replica where there are several. A long wait overlaps more of everything, so the turns in time stand beside them. Of
// a fleet whose log does not tell which replica a turn went to it is never sure.
func coldPrefill(u unit, s measurement.StepResult, turns, late, inTime some, went routing) finding {
	if late.len() == 0 {
		return finding{}
	}
	cold := coldSpans(turns)
	of, than := overlapShare(cold, late), overlapShare(cold, inTime)
	part := inTime.len() >= fairCompare && of > than+partMargin
	if !part && (!(of > lateShare) || inTime.len() > 0 && of < than+shareMargin) {
		return finding{}
	}
	f := finding{name: MechanismPrefill}
	if inTime.len() > 0 { // without any in time, chance alone may have made the overlap
		f.explains, f.sure = of-than, inTime.len() >= fairCompare && of-than > 3*shareMargin && of > lateShare && !went.blind()
	}
	f.sentence = fmt.Sprintf("At %s %.0f %% of the %d turns over the limit waited while another call's first turn was being prefilled", u.of(s.Rate), 100*of, late.len())
	if went.told {
		f.sentence += " on the same replica"
	}
	if inTime.len() > 0 {
		f.sentence += fmt.Sprintf(", %.0f %% of the %d in time", 100*than, inTime.len())
	}
	if went.blind() {
		f.sentence += "; whether on the same replica the log does not tell"
	}
	f.sentence += "."
	return f
}

type span struct {
	call     int
	from, to time.Duration
}

// spans are those of one replica, by their start, and the length of the longest.
type spans struct {
	list    []span
	longest time.Duration
}

// coldSpans are the prefills of first turns, from sent to first token, by replica; 0 is the one there is, or any where that is not told.
func coldSpans(turns some) map[int32]*spans {
	out := map[int32]*spans{}
	for t := range turns.each {
		if t.Turn == 1 && t.Sent >= 0 && t.FirstToken >= t.Sent {
			on := out[t.Replica]
			if on == nil {
				on = new(spans)
				out[t.Replica] = on
			}
			on.list = append(on.list, span{t.Call, t.Sent, t.FirstToken})
			on.longest = max(on.longest, t.FirstToken-t.Sent)
		}
	}
	for _, on := range out {
		slices.SortFunc(on.list, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.call, b.call)) })
	}
	return out
}

// overlapShare is the share of turns whose wait overlaps a span of another call on their replica; NaN of none.
func overlapShare(cold map[int32]*spans, turns some) float64 {
	n := 0
	for t := range turns.each {
		on := cold[t.Replica]
		if on == nil {
			continue
		}
		until := t.FirstToken
		if until < 0 {
			until = t.End
		}
		first, _ := slices.BinarySearchFunc(on.list, t.Due-on.longest, func(s span, at time.Duration) int { return cmp.Compare(s.from, at) })
		for _, s := range on.list[first:] { // those before have ended
			if s.from >= until {
				break
			}
			if s.to > t.Due && s.call != t.Call {
				n++
				break
			}
		}
	}
	return float64(n) / float64(turns.len())
}
