package page

import (
	"math"
	"slices"
	"time"

	"kneefinder/measurement"
)

const (
	maxBuckets = 480     // of the charts; when they are full, two become one
	maxRecent  = 1 << 14 // turns that percentiles are taken of, at most
)

// leastCame is how long a step must have run for its arrivals to make a rate.
const leastCame = 5 * time.Second

// leastRate is how far apart two counts must lie for their difference to make a rate.
const leastRate = 900 * time.Millisecond

// The figures of samples that charts show. Shares are of 1.
const (
	kvUsed = iota
	kvCached
	evicted // tokens/s
	queued
	running
	gpuUtil
	gpuTensor
	gpuDRAM
	gpuPower // W
	signals
)

// ring is a run's figures over time: buckets of equal width from its origin on. They begin one second wide; when there are maxBuckets,
// neighbours are joined, so that a run of any length takes the same memory.
type ring struct {
	origin time.Duration
	width  time.Duration
	span   time.Duration // of the rolling figures
	closed []bucket
	open   opening

	asked float64       // λ asked now; 0 between steps
	began time.Duration // when the newest step did

	calls, turns int // in flight

	recent [maxRecent]ended // the last turns, oldest overwritten
	n      int              // turns ever
	first  int              // the number of the first turn of the newest step

	evictedTotal float64 // of the last sample that had it
	evictedAt    time.Duration
}

// bucket is what charts show of one stretch. NaN is unknown; +Inf a percentile that lands on turns that got no token. What rolls is of
// the span before the bucket's end, as far as the step that ran then reaches into it.
type bucket struct {
	p50, p95, p99 float64 // TTFT of the turns 2.. that ended, ms
	hit           float64 // share of their prompt tokens that the server found cached
	failed        float64 // share of all turns in the same span
	held          float64 // share of the turns 2.. in the same span that ended well and within the limit
	came          float64 // calls begun in the same span, a second
	begun         int     // calls begun in the bucket itself
	calls, turns  float64 // in flight at its end; a mean of several where buckets were joined
	signal        [signals]float64
}

// opening is the bucket that is being filled.
type opening struct {
	begun int
	sum   [signals]float64
	n     [signals]int
}

// ended is a turn that has ended.
type ended struct {
	at             time.Duration
	ttft           float64 // ms
	later          bool    // turn 2..
	timed          bool    // its TTFT counts
	failed         bool
	held           bool // it ended well and within the limit
	prompt, cached int
}

func (r *ring) init(now, span time.Duration) {
	r.origin, r.width, r.span = now, time.Second, span
	r.closed = make([]bucket, 0, maxBuckets)
	r.evictedAt = measurement.Never
}

// end is when the open bucket ends.
func (r *ring) end() time.Duration { return r.origin + time.Duration(len(r.closed)+1)*r.width }

// advance closes every bucket that ended by now.
func (r *ring) advance(now time.Duration) {
	for now >= r.end() {
		r.closed = append(r.closed, r.at(r.end()))
		r.open = opening{}
		if len(r.closed) == maxBuckets {
			r.join()
		}
	}
}

// begin begins the rolling figures anew: of one step nothing is carried into the next.
func (r *ring) begin(now time.Duration) { r.began, r.first = now, r.n }

// window is what the rolling figures are of: the span, or a bucket where that is longer.
func (r *ring) window() time.Duration { return max(r.span, r.width) }

// at is the open bucket as of t.
func (r *ring) at(t time.Duration) bucket {
	b := bucket{begun: r.open.begun, calls: float64(r.calls), turns: float64(r.turns)}
	w := r.window()
	var ttft []float64
	var all, failed, prompt, cached, later, held int
	for i := r.n - 1; i >= max(r.first, r.n-maxRecent); i-- {
		e := &r.recent[i%maxRecent]
		if e.at <= t-w {
			break
		}
		all++
		if e.failed {
			failed++
		}
		if !e.later {
			continue
		}
		later++
		if e.held {
			held++
		}
		if e.timed {
			ttft = append(ttft, e.ttft)
		}
		prompt += e.prompt
		cached += e.cached
	}
	slices.Sort(ttft)
	b.p50, b.p95, b.p99 = measurement.Quantile(ttft, .5), measurement.Quantile(ttft, .95), measurement.Quantile(ttft, .99)
	b.hit, b.failed, b.held = ratio(cached, prompt), ratio(failed, all), ratio(held, later)
	b.came = r.came(t)
	for i := range b.signal {
		b.signal[i] = math.NaN()
		if r.open.n[i] > 0 {
			b.signal[i] = r.open.sum[i] / float64(r.open.n[i])
		}
	}
	return b
}

func ratio(a, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return float64(a) / float64(of)
}

// came is how many calls began a second by t; NaN in the first seconds of a step.
func (r *ring) came(t time.Duration) float64 {
	if r.asked <= 0 {
		return math.NaN()
	}
	from := max(t-r.window(), r.began)
	begun, since := r.open.begun, r.origin+time.Duration(len(r.closed))*r.width
	for i := len(r.closed) - 1; i >= 0 && since-r.width >= from; i-- {
		begun += r.closed[i].begun
		since -= r.width
	}
	since = max(since, r.began)
	if t-since < leastCame {
		return math.NaN()
	}
	return float64(begun) / (t - since).Seconds()
}

// stopped tells that no call was to arrive from t on, which is known only later.
func (r *ring) stopped(t time.Duration) {
	r.asked = 0
	for i := len(r.closed) - 1; i >= 0 && r.origin+time.Duration(i+1)*r.width > t; i-- {
		r.closed[i].came = math.NaN()
	}
}

// join makes one of every two buckets.
func (r *ring) join() {
	half := r.closed[:0]
	for i := 0; i+1 < len(r.closed); i += 2 {
		half = append(half, joined(r.closed[i], r.closed[i+1]))
	}
	r.closed, r.width = half, 2*r.width
}

// joined is of two neighbours: the worse percentiles and errors, the later rolling shares, the mean of what was in flight or sampled.
func joined(a, b bucket) bucket {
	c := bucket{p50: worse(a.p50, b.p50), p95: worse(a.p95, b.p95), p99: worse(a.p99, b.p99), failed: worse(a.failed, b.failed),
		held: known(b.held, a.held), hit: known(b.hit, a.hit), came: known(b.came, a.came), begun: a.begun + b.begun, calls: (a.calls + b.calls) / 2, turns: (a.turns + b.turns) / 2}
	for i := range c.signal {
		c.signal[i] = (known(a.signal[i], b.signal[i]) + known(b.signal[i], a.signal[i])) / 2
	}
	return c
}

func known(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return a
}

func worse(a, b float64) float64 { return max(known(a, b), known(b, a)) }

// turn takes a turn that rolls; limit is the TTFT that holds the objective, in ms.
func (r *ring) turn(now time.Duration, t *measurement.Turn, limit float64) {
	e := ended{at: now, ttft: math.Inf(1), later: t.Turn > 1, failed: t.Outcome.Failed()}
	d, ok := t.TTFT()
	if ok {
		e.ttft = float64(d) / float64(time.Millisecond)
	}
	e.timed = ok || e.failed && !t.Local // what ended well with nothing to time, or never reached the server, has no TTFT
	e.held = t.Outcome == measurement.OK && e.ttft <= limit
	if t.CachedTokens >= 0 && t.PromptTokens >= 0 {
		e.prompt, e.cached = t.PromptTokens, t.CachedTokens
	}
	r.recent[r.n%maxRecent] = e
	r.n++
}

// sample takes the figures that charts show.
func (r *ring) sample(now time.Duration, s *measurement.EngineSample) {
	tell := func(i int, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			r.open.sum[i] += v
			r.open.n[i]++
		}
	}
	for name, i := range map[string]int{measurement.SampleQueued: queued, measurement.SampleRunning: running, measurement.SampleGPUUtil: gpuUtil,
		measurement.SampleGPUTensor: gpuTensor, measurement.SampleGPUDRAM: gpuDRAM, measurement.SampleGPUPower: gpuPower} {
		if v, ok := s.Values[name]; ok {
			tell(i, v)
		}
	}
	used, cached, known := kvShares(s.Values)
	if known {
		tell(kvUsed, used)
		tell(kvCached, cached)
	}
	if total, ok := s.Values[measurement.SampleEvicted]; ok {
		switch dt := now - r.evictedAt; {
		case r.evictedAt < 0 || total < r.evictedTotal: // the first, or the server began anew
			r.evictedTotal, r.evictedAt = total, now
		case dt >= leastRate:
			tell(evicted, (total-r.evictedTotal)/dt.Seconds())
			r.evictedTotal, r.evictedAt = total, now
		}
	}
}

// kvShares are the shares of the KV pool in use and held by the prefix cache alone, the latter NaN when it is not told.
func kvShares(v map[string]float64) (used, cached float64, ok bool) {
	used, cached = math.NaN(), math.NaN()
	u, haveUsed := v[measurement.SampleKVUsed]
	c, haveCached := v[measurement.SampleKVCached]
	f, haveFree := v[measurement.SampleKVFree]
	pool, havePool := v[measurement.SampleKVPool]
	if !havePool && haveUsed && haveCached && haveFree {
		pool, havePool = u+c+f, true
	}
	if havePool && pool > 0 {
		switch {
		case haveUsed:
			used = u / pool
		case haveCached && haveFree:
			used = (pool - c - f) / pool
		}
		switch {
		case haveCached:
			cached = c / pool
		case haveUsed && haveFree:
			cached = (pool - u - f) / pool
		}
	}
	if usage, ok := v[measurement.SampleKVUsage]; ok && math.IsNaN(used) {
		used = usage
	}
	return used, cached, !math.IsNaN(used)
}
