package telemetry

import (
	"cmp"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// keptSteps is how many steps, the newest, have series.
const keptSteps = 32

// step is what has been counted of one step.
type step struct {
	rec     measurement.Step
	began   bool // rec is told; else only its result is
	attrs   attribute.Set
	classes [3]*class // nil while no turn of the class has come
	calls   int64
	retries int64
	dials   int64
	live    histogram // calls in flight, sampled
	figures []figure  // of its result
	server  []figure  // of the server's own figures
	changes int       // counts what was told of it
}

// class is what has been counted of the turns of one class of a step.
type class struct {
	name  string
	attrs attribute.Set
	turns map[measurement.Outcome]*count

	inSLO, prompt, known, cached, output, events int64

	ttft, ttftSent, itl, tpot, e2e, lag, tokens histogram
}

var classNames = [3]string{names.First, names.Measured, names.Unmeasured}

func classOf(t *measurement.Turn) int {
	switch {
	case t.Turn == 1:
		return 0
	case t.Phase == measurement.Window:
		return 1
	}
	return 2
}

// step returns the step of this number, which it begins to keep unless 32 newer ones are kept; then it is nil. mu is held.
func (t *Telemetry) step(number int) *step {
	i, found := slices.BinarySearchFunc(t.steps, number, func(s *step, n int) int { return cmp.Compare(s.rec.Step, n) })
	if found {
		return t.steps[i]
	}
	if len(t.steps) == keptSteps {
		if i == 0 {
			return nil
		}
		t.steps = slices.Delete(t.steps, 0, 1)
		i--
	}
	s := &step{live: newHistogram(t.layout.calls), attrs: t.attrs(names.Step, strconv.Itoa(number))}
	s.rec.Step = number
	t.steps = slices.Insert(t.steps, i, s)
	return s
}

// attrs are attributes beside the run's label.
func (t *Telemetry) attrs(pairs ...string) attribute.Set {
	kvs := []attribute.KeyValue{attribute.String(names.Label, t.cfg.Label)}
	for i := 0; i+1 < len(pairs); i += 2 {
		kvs = append(kvs, attribute.String(pairs[i], pairs[i+1]))
	}
	return attribute.NewSet(kvs...)
}

func (t *Telemetry) class(s *step, i int) *class {
	if s.classes[i] == nil {
		l := &t.layout
		s.classes[i] = &class{
			name: classNames[i], attrs: t.attrs(names.Step, strconv.Itoa(s.rec.Step), names.TurnClass, classNames[i]), turns: map[measurement.Outcome]*count{},
			ttft: newHistogram(l.ttft), ttftSent: newHistogram(l.sent), itl: newHistogram(l.itl), tpot: newHistogram(l.tpot),
			e2e: newHistogram(l.sent), lag: newHistogram(l.lag), tokens: newHistogram(l.tokens),
		}
	}
	return s.classes[i]
}

// count is how many, and the attributes of that series.
type count struct {
	n     int64
	attrs attribute.Set
}

// turn counts a turn of the step; a TTFT of at most limit, in nanoseconds, is within. e is its exemplar when its spans are sent,
// and else invalid.
func (t *Telemetry) turn(s *step, u *measurement.Turn, e exemplar) {
	s.changes++
	s.retries += int64(u.Retries)
	if u.Dialed > 0 {
		s.dials++
	}
	c := t.class(s, classOf(u))
	if c.turns[u.Outcome] == nil {
		c.turns[u.Outcome] = &count{attrs: t.attrs(names.Step, strconv.Itoa(s.rec.Step), names.TurnClass, c.name, names.Outcome, string(u.Outcome))}
	}
	c.turns[u.Outcome].n++
	ttft, ok := u.TTFT()
	if i := c.ttft.addTime(ttft, ok); i >= 0 && e.trace.IsValid() {
		e.value, e.at = int64(ttft), u.FirstToken
		c.ttft.remember(i, e)
	}
	if ok && u.Outcome == measurement.OK && int64(ttft) <= t.limit {
		c.inSLO++
	}
	c.ttftSent.addTime(u.TTFTSent())
	c.tpot.addTime(u.TPOT())
	c.lag.addTime(u.Lag())
	if u.Outcome == measurement.OK && u.End >= 0 && u.Due >= 0 {
		c.e2e.add(int64(u.End - u.Due))
	}
	for _, g := range u.Gaps {
		c.itl.add(int64(g))
	}
	c.events += int64(u.Events)
	c.prompt += int64(max(u.PromptTokens, 0))
	c.output += int64(max(u.CompletionTokens, 0))
	if u.CachedTokens >= 0 {
		c.tokens.add(int64(u.CachedTokens))
		if u.PromptTokens >= 0 {
			c.known += int64(u.PromptTokens)
			c.cached += int64(u.CachedTokens)
		}
	}
}
