package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"kneefinder/measurement"
)

// window holds the turns of one step that were due in its window, in the order sent, and what is counted of them.
type window struct {
	length   time.Duration
	all      some // sent, shed or canceled
	warm     some // turn 1, without the canceled
	measured some // turn 2 and later, without the canceled
	canceled int
	notSent  int
	kinds    map[measurement.Outcome]int
	first    heat // of every turn 1 of the step, whenever it was due

	retries int           // of all
	busy    time.Duration // of all, from due to end
	local   bool          // one of all failed because this side was out of files or ports

	failed int  // warm and measured turns
	theirs int  // warm and measured turns, without those that failed for a reason of this side's
	errors int  // those of theirs that failed
	shed   bool // a warm or measured turn was shed

	admitted                bool // of a measured turn it is known when it was admitted; so are the rest
	ok, tokens, dialed      int
	answered, events        int // tokens and token events of answers whose tokens are known
	streamed, streamedWhole int // answers of several tokens, and those of them that came in one read
	hits                    hits
}

// hits are the prompt tokens of turns whose cached tokens are known.
type hits struct{ turns, cached, prompt int }

func (h *hits) add(t *measurement.Turn) {
	if hitKnown(t) {
		h.turns++
		h.cached += t.CachedTokens
		h.prompt += t.PromptTokens
	}
}

// rate is their cached share; NaN when there are none.
func (h hits) rate() float64 { return float64(h.cached) / float64(h.prompt) }

// windowOf takes the turns of a step.
func windowOf(s measurement.Step, turns some) window {
	w := window{length: s.WindowEnd - s.WindowStart}
	type key struct {
		sent time.Duration
		at   int32
	}
	in := make([]key, 0, turns.len())
	last := s.WindowStart
	for at, t := range turns.numbered {
		if t.Turn == 1 && t.Outcome != measurement.NotSent {
			w.first.add(t)
		}
		if s.WindowStart < 0 || !s.InWindow(t.Due) {
			continue
		}
		last = max(last, t.Due, t.End)
		if t.Outcome == measurement.NotSent {
			w.notSent++
			continue
		}
		in = append(in, key{t.Sent, at})
	}
	if s.WindowEnd < 0 {
		w.length = last - s.WindowStart
	}
	var roomA, roomB measurement.Turn
	slices.SortFunc(in, func(a, b key) int {
		if c := cmp.Compare(a.sent, b.sent); c != 0 {
			return c
		}
		x, y := turns.of.At(int(a.at), &roomA), turns.of.At(int(b.at), &roomB)
		return cmp.Or(cmp.Compare(x.Call, y.Call), cmp.Compare(x.Turn, y.Turn))
	})
	w.all = some{turns.of, make([]int32, len(in))}
	for i, k := range in {
		w.all.at[i] = k.at
	}
	w.split()
	return w
}

// windowIn is the window of a step that a log holds; of any other ok is false.
func windowIn(log measurement.Log, s measurement.StepResult) (w window, ok bool) {
	i := slices.IndexFunc(log.Steps, func(l measurement.Step) bool { return l.Step == s.Step })
	if i < 0 {
		return window{}, false
	}
	return windowOf(log.Steps[i], ofStep(log.Held(), s.Step)), true
}

// split puts the turns of the window apart and counts.
func (w *window) split() {
	of := w.all.of
	w.warm, w.measured = some{of: of}, some{of, make([]int32, 0, w.all.len())}
	for at, t := range w.all.numbered {
		w.retries += t.Retries
		w.local = w.local || t.Local
		if t.End > t.Due {
			w.busy += t.End - t.Due
		}
		if t.Outcome.Failed() {
			if w.kinds == nil {
				w.kinds = map[measurement.Outcome]int{}
			}
			w.kinds[t.Outcome]++
		}
		if t.Outcome == measurement.Canceled {
			w.canceled++
			continue
		}
		w.shed = w.shed || t.Outcome == measurement.Shed
		failed := 0
		if t.Outcome.Failed() {
			failed = 1
		}
		w.failed += failed
		if !ownFault(t) {
			w.theirs++
			w.errors += failed
		}
		if t.Turn == 1 {
			w.warm.at = append(w.warm.at, at)
			continue
		}
		w.measured.at = append(w.measured.at, at)
		w.count(t)
	}
}

// count counts a measured turn.
func (w *window) count(t *measurement.Turn) {
	w.admitted = w.admitted || t.Admitted > 0
	w.tokens += max(t.CompletionTokens, 0)
	w.hits.add(t)
	if t.Dialed > 0 {
		w.dialed++
	}
	if t.Outcome != measurement.OK {
		return
	}
	w.ok++
	if t.CompletionTokens > 0 {
		w.answered += t.CompletionTokens
		w.events += t.Events
	}
	if tokens, whole := streamed(t); tokens {
		w.streamed++
		if whole {
			w.streamedWhole++
		}
	}
}

// basis says what a gap between events is: one token each, as far as the answers' own counts show, or a chunk of several.
func (w *window) basis() string {
	switch {
	case w.answered == 0:
		return "" // nobody said how many tokens there were
	case float64(w.events) >= tokenBasis*float64(w.answered):
		return "token"
	}
	return "chunk"
}

// waitsOf are waits for the first token in milliseconds, in order; +Inf for a turn that failed without one.
func waitsOf(turns some, wait func(*measurement.Turn) (time.Duration, bool)) []float64 {
	out := make([]float64, 0, turns.len())
	for t := range turns.each {
		if d, ok := wait(t); ok {
			out = append(out, millis(d))
		} else if t.Outcome.Failed() && !ownFault(t) {
			out = append(out, math.Inf(1))
		}
	}
	return out
}

// timesOf are the times in milliseconds of those turns that have one, in order.
func timesOf(turns some, of func(*measurement.Turn) (time.Duration, bool)) []float64 {
	out := make([]float64, 0, turns.len())
	for t := range turns.each {
		if d, ok := of(t); ok {
			out = append(out, millis(d))
		}
	}
	return out
}
