package telemetry

import (
	"math"
	"time"

	"kneefinder/measurement"
)

// windowTurns, windowGaps and windowCalls are how many, the newest, the rolling window holds at most.
const (
	windowTurns = 1 << 14
	windowGaps  = 1 << 16
	windowCalls = 1 << 16
)

// ring is a queue of limited length: what is pushed into a full one takes the place of its oldest.
type ring[T any] struct {
	buf         []T
	first, next uint64 // numbers of the oldest that is held, and of the next to come
}

func newRing[T any](size int) ring[T] { return ring[T]{buf: make([]T, size)} }

func (r *ring[T]) push(v T) {
	r.buf[r.next%uint64(len(r.buf))] = v
	r.next++
	r.first = max(r.first, r.next-min(r.next, uint64(len(r.buf))))
}

func (r *ring[T]) len() int        { return int(r.next - r.first) }
func (r *ring[T]) at(i uint64) *T  { return &r.buf[i%uint64(len(r.buf))] }
func (r *ring[T]) forget(n uint64) { r.first = max(r.first, n) }

// window is what has ended lately, of the newest step alone.
type window struct {
	length time.Duration
	began  time.Duration // when that step did
	turns  ring[ended]
	gaps   ring[time.Duration]
	calls  ring[time.Duration] // when they began
}

// ended is a turn that has.
type ended struct {
	at             time.Duration
	ttft           time.Duration // Never without a token
	later          bool          // a turn 2..
	timed          bool          // its TTFT counts
	failed         bool
	prompt, cached int32  // where both are known; else 0
	gaps           uint64 // the number of the first gap that is not this or an earlier turn's
}

func newWindow(length time.Duration) window {
	return window{length: length, began: measurement.Never, turns: newRing[ended](windowTurns), gaps: newRing[time.Duration](windowGaps), calls: newRing[time.Duration](windowCalls)}
}

// begin forgets everything: of one step nothing is carried into the next.
func (w *window) begin(at time.Duration) {
	w.began = at
	w.turns.forget(w.turns.next)
	w.gaps.forget(w.gaps.next)
	w.calls.forget(w.calls.next)
}

// add puts a turn into the window, if it rolls.
func (w *window) add(u *measurement.Turn) {
	if !u.Rolls() {
		return
	}
	e := ended{at: u.End, ttft: measurement.Never, later: u.Turn > 1, failed: u.Outcome.Failed()}
	if e.at < 0 {
		e.at = u.Due // shed
	}
	ttft, ok := u.TTFT()
	if ok {
		e.ttft = ttft
	}
	e.timed = ok || e.failed && !u.Local // what ended well with nothing to time, or never reached the server, has no TTFT
	if e.later {
		if u.PromptTokens >= 0 && u.CachedTokens >= 0 {
			e.prompt, e.cached = int32(u.PromptTokens), int32(u.CachedTokens)
		}
		for _, g := range u.Gaps {
			w.gaps.push(g)
		}
	}
	e.gaps = w.gaps.next
	w.turns.push(e)
}

// roll forgets what ended before the window.
func (w *window) roll(now time.Duration) {
	from := now - w.length
	for w.turns.len() > 0 && w.turns.at(w.turns.first).at < from {
		w.gaps.forget(w.turns.at(w.turns.first).gaps)
		w.turns.first++
	}
	for w.calls.len() > 0 && *w.calls.at(w.calls.first) < from {
		w.calls.first++
	}
}

// lately is what the window says. Percentiles that land on turns without a token are +Inf; what is of nothing is NaN.
type lately struct {
	turns       int
	ttft, itl   [3]float64 // nanoseconds
	hit, errors float64
	arrived     float64 // calls/s
}

// leastSpan is how long a step must have run for its arrivals to make a rate.
const leastSpan = time.Second

var quantiles = [3]float64{.5, .95, .99}

// copy writes the raw values that percentiles are of into scratch, one kind behind the other, and counts the rest; the
// percentiles are found outside the lock.
func (w *window) copy(now time.Duration, scratch []float64) (l lately, ttft, itl []float64) {
	w.roll(now)
	var prompt, cached, all, failed int
	for i := w.turns.first; i < w.turns.next; i++ {
		e := w.turns.at(i)
		all++
		if e.failed {
			failed++
		}
		if !e.later {
			continue
		}
		l.turns++
		prompt += int(e.prompt)
		cached += int(e.cached)
		switch {
		case !e.timed:
		case e.ttft < 0:
			scratch = append(scratch, math.Inf(1))
		default:
			scratch = append(scratch, float64(e.ttft))
		}
	}
	n := len(scratch)
	for i := w.gaps.first; i < w.gaps.next; i++ {
		scratch = append(scratch, float64(*w.gaps.at(i)))
	}
	l.hit, l.errors = float64(cached)/float64(prompt), float64(failed)/float64(all) // 0/0 is NaN
	l.arrived = math.NaN()
	if span := min(w.length, now-w.began); w.began >= 0 && span >= leastSpan {
		if calls := w.calls.len(); calls == len(w.calls.buf) {
			span = now - *w.calls.at(w.calls.first)
		}
		l.arrived = float64(w.calls.len()) / span.Seconds()
	}
	return l, scratch[:n], scratch[n:]
}

// percentiles are type 7, of raw values, which it reorders.
func percentiles(values []float64) (ps [3]float64) {
	from := 0
	for i, p := range quantiles {
		if n := len(values); n > 0 { // Quantile reads the values at one place of the order and at the next: only they must be there
			k := min(int(math.Floor(p*float64(n-1))), n-1)
			if k >= from {
				place(values[from:], k-from)
				from = k
			}
			if k+1 < n {
				place(values[k+1:], 0)
			}
		}
		ps[i] = measurement.Quantile(values, p)
	}
	return ps
}

// place puts the value of rank k to index k, no larger ones before it and no smaller ones behind it (Hoare's selection).
func place(v []float64, k int) {
	for lo, hi := 0, len(v)-1; lo < hi; {
		pivot := v[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return
		}
	}
}
