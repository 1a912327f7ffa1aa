package analysis

import (
	"fmt"
	"math"
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
	odd := oddities{log: log, most: log.Header.Config.OutputTokens}
	for t := range log.Held().All() {
		odd.add(t)
	}
	add(cutShort(r))
	add(odd.noTurns())
	add(odd.impossibleInstants())
	if s := log.Header.Shard; s != "" {
		add(fmt.Sprintf("This is shard %s of a run: it holds only its own calls, and their rate is not the one asked. kneeanalyze merge joins the shards.", s))
	}
	add(unsteady(r))
	add(rateThatCame(r))
	add(notCertified(r.Arrivals))
	add(bufferedStream(r))
	add(coldCache(r))
	add(slowConnect(r))
	add(dialed(r))
	add(shortOutput(r))
	add(odd.longOutput())
	add(odd.impossibleCounts())
	add(odd.ownFaults())
	return out
}

// oddities are turns of a whole log that cast doubt on it.
type oddities struct {
	log  measurement.Log
	most int // tokens that a turn was asked for

	due         bool             // a turn was due in the window of its step
	early       int              // turns answered before they were due or sent
	first       measurement.Turn // the first of them
	long, known int              // answers longer than asked, and of those whose length is known
	cached      int              // turns with more cached than there was of their prompt
	own         int              // turns that failed on this side
	said        string           // of the last of them
}

func (o *oddities) add(t *measurement.Turn) {
	if !o.due {
		o.due = slices.ContainsFunc(o.log.Steps, func(s measurement.Step) bool { return s.Step == t.Step && s.InWindow(t.Due) })
	}
	if t.FirstToken >= 0 && t.FirstToken < max(t.Due, t.Sent) {
		if o.early++; o.early == 1 {
			o.first = *t
		}
	}
	if t.Outcome == measurement.OK && t.CompletionTokens >= 0 {
		o.known++
		if t.Turn > 1 && t.CompletionTokens > o.most || t.Turn == 1 && t.CompletionTokens > 1 {
			o.long++
		}
	}
	if t.PromptTokens > 0 && t.CachedTokens > t.PromptTokens {
		o.cached++
	}
	if t.Local {
		o.own, o.said = o.own+1, t.Detail
	}
}

// longOutput says that the server does not heed max_tokens.
func (o *oddities) longOutput() string {
	c := o.log.Header.Config
	if c.OutputLengths != "" || c.Trace != "" { // each turn was asked for another number of tokens, which a log does not hold
		return ""
	}
	if float64(o.long) <= maxShort*float64(o.known) {
		return ""
	}
	return fmt.Sprintf("%d of %d answers are longer than was asked: the server does not heed max_tokens, so it did more work than the run says.", o.long, o.known)
}

// noTurns says that a log has steps and no turns, or none that a step's window holds.
func (o *oddities) noTurns() string {
	turns := o.log.Held().Len()
	switch {
	case len(o.log.Steps) == 0 || o.due:
		return ""
	case turns == 0:
		return fmt.Sprintf("The log holds no turns, only %s: it was cut, or its lines were lost, and there is nothing to judge.", count(len(o.log.Steps), "step"))
	}
	return fmt.Sprintf("None of the %s in the log was due in the window of its step, so there is nothing to judge: the run was cut before a window opened, or instants or numbers of steps are wrong.", count(turns, "turn"))
}

// impossibleInstants says that answers began before they were asked for.
func (o *oddities) impossibleInstants() string {
	if o.early == 0 {
		return ""
	}
	return fmt.Sprintf("%s got a first token before it was due or sent (the first is turn %d of call %d, due at %s, sent at %s, answered at %s): the instants of the log cannot be right, nor TTFT with them.",
		count(o.early, "turn"), o.first.Turn, o.first.Call, instant(o.first.Due), instant(o.first.Sent), instant(o.first.FirstToken))
}

// impossibleCounts says that more of a prompt was cached than there was of it.
func (o *oddities) impossibleCounts() string {
	if o.cached == 0 {
		return ""
	}
	return fmt.Sprintf("%d turns report more cached tokens than their prompt has: the server's counts cannot be right, and those turns are left out of hit rates.", o.cached)
}

// ownFaults says that this side was out of files or ports.
func (o *oddities) ownFaults() string {
	if o.own == 0 {
		return ""
	}
	return fmt.Sprintf("%d turns failed on this side and are not held against the server (%s): raise the limit of open files (ulimit -n), or send the load from several machines (--shard).", o.own, o.said)
}

// cutShort says which steps did not end; "" when all did.
func cutShort(r measurement.Results) string {
	var at []string
	last := false
	for i, s := range r.Steps {
		if incomplete(s) {
			at, last = append(at, asked(unitOf(r.Config), s.Rate)), i == len(r.Steps)-1
		}
	}
	switch {
	case len(at) == 0:
		return ""
	case len(at) == 1 && last:
		return fmt.Sprintf("The run was cut: its last step, %s, did not end and counts for nothing.", at[0])
	case len(at) == 1:
		return fmt.Sprintf("The run was cut: its step of %s did not end and counts for nothing.", at[0])
	}
	return fmt.Sprintf("The run was cut: its steps of %s did not end and count for nothing.", strings.Join(at, ", "))
}

// asked names a load as the λ that it is, if it is one.
func asked(u unit, load float64) string {
	if !u.closed() {
		return "λ " + u.of(load)
	}
	return u.of(load)
}

// unsteady names steps that fail at or below a rate at which one passes.
func unsteady(r measurement.Results) string {
	steps := judged(byRate(r.Steps), r.Config.SLO)
	lowest, top := math.Inf(1), math.Inf(-1) // rates that fail and pass
	for _, s := range steps {
		switch s.Verdict {
		case measurement.Fail:
			lowest = min(lowest, s.Rate)
		case measurement.Pass:
			top = max(top, s.Rate)
		}
	}
	var fail, pass []string
	for _, s := range steps {
		switch {
		case s.Verdict == measurement.Fail && s.Rate <= top:
			fail = append(fail, rate(s.Rate))
		case s.Verdict == measurement.Pass && s.Rate >= lowest:
			pass = append(pass, rate(s.Rate))
		}
	}
	advice := unsteadyBecause(r, lowest)
	fail, pass = slices.Compact(fail), slices.Compact(pass)
	switch {
	case len(fail) == 0:
		return ""
	case lowest == top:
		return fmt.Sprintf("At %s one step fails and another passes: %s", unitOf(r.Config).of(top), advice)
	}
	fails, passes := "fails", "passes"
	if len(fail) > 1 {
		fails = "fail"
	}
	if len(pass) > 1 {
		passes = "pass"
	}
	return fmt.Sprintf("%s %s %s but %s %s: %s", strings.Join(fail, ", "), unitOf(r.Config), fails, strings.Join(pass, ", "), passes, advice)
}

// unsteadyBecause says what it can be that a load fails and a higher one passes, and what to do. What is simulated has no noise of its own.
func unsteadyBecause(r measurement.Results, load float64) string {
	d := deploymentOf(r.Engine)
	switch {
	case r.Engine.Kind != "simulated":
		return "the steps are too short or the server is unsteady; measure longer (--min-turns) around there."
	case d.rhythm && d.alike && !unitOf(r.Config).closed():
		return fmt.Sprintf("a simulated fleet has no noise, so it is the arrivals of this seed or the rhythm of the router. Calls dealt in turn meet the next call's cold first turn at their replica %s s later (%d replicas at %s), while they last, and which of their turns it meets is up to both. Try %s.",
			sig(float64(d.engines)/load), d.engines, unitOf(r.Config).of(load), d.others(r.Seed))
	case d.rhythm:
		return fmt.Sprintf("a simulated fleet has no noise, so it is the arrivals of this seed or the rhythm of the router, by which calls meet the same others at their replica again and again; try %s.", d.others(r.Seed))
	}
	return fmt.Sprintf("a simulated engine has no noise, so it is the arrivals of this seed; measure longer (--min-turns) around there, or try --seed %d.", r.Seed+1)
}

// rateThatCame names steps whose λ was another one than asked.
func rateThatCame(r measurement.Results) string {
	var off []string
	for _, s := range byRate(r.Steps) {
		if slices.Contains(s.Flags, measurement.FlagOffRate) && s.ArrivedRate != nil {
			off = append(off, came(s))
		}
	}
	if len(off) == 0 {
		return ""
	}
	return fmt.Sprintf("The λ that came differs from the λ asked by more than a tenth: %s %s. Few arrivals make it so: measure longer (--min-turns) for a λ nearer to the one asked. The x of the knees is the λ asked.",
		listed(off), unitOf(r.Config).perSecond())
}

// came is the λ that came and the one asked.
func came(s measurement.StepResult) string {
	if came := Apart(3, *s.ArrivedRate, s.Rate)[0]; came != rate(s.Rate) {
		return came + " for " + rate(s.Rate)
	}
	return strings.Join(Apart(4, *s.ArrivedRate, s.Rate), " for ")
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
	if len(steps) == 0 || !slices.Contains(steps[0].Flags, measurement.FlagColdCache) || steps[0].CacheHitRate == nil || steps[0].LiveCallsMax == nil {
		return ""
	}
	s := steps[0]
	return fmt.Sprintf("At %s only %.0f %% of the prompts was cached although no more than %d calls were live at once: the server's prefix cache is off or the turns of a call do not share it "+
		"(several servers behind one address, or a chat template that changes the prefix). Switch it on, or route a call to one server, before looking for a knee.",
		unitOf(r.Config).of(s.Rate), 100**s.CacheHitRate, *s.LiveCallsMax)
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

// thereAre is how many there are, as a clause.
func thereAre(n int) string {
	if n == 1 {
		return "there is 1"
	}
	return fmt.Sprintf("there are %d", n)
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
	return listed(slices.Compact(out)) + " " + string(unitOf(r.Config))
}
