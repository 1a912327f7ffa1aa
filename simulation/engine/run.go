package engine

import (
	"math"
	"sort"
	"time"

	"kneefinder/simulation/engine/kv"
)

// longestRun bounds how many decode steps are planned at once: a plan that an arrival cuts was made in vain.
const longestRun = 256

// planRun extends the decode step that has just begun by those behind it in which nothing can happen but one more token for each of
// the same sequences: nobody ends, is admitted, retracted or aborted, no sequence leaves its window's length, and the pool has
// room. What the steps do is then done for all of them at once when time has come (see takeRun), with the same result as one by one.
func (e *Engine) planRun() {
	most := e.alike()
	if most == 1 {
		return
	}
	arrival, abort := e.disturbed()
	b := e.step.batch
	b.Loaded = 0 // by the first
	for before, last := e.step.start, e.step.end; len(e.ends) < most && last < abort && e.sees(before, last) < arrival; {
		b.Context += b.Decodes
		b.Recent += e.growing
		before, last = last, last+e.kernel.Step(&b)
		e.ends = append(e.ends, last)
	}
}

// sees is the instant up to which a step that starts at start, behind one that started at before, sees what has arrived: with
// scheduling ahead it was put together when that one started.
func (e *Engine) sees(before, start time.Duration) time.Duration {
	if e.config.Recipe.ahead() {
		return before
	}
	return start
}

// disturbed is from when on a step sees a request that has been submitted already, and from when on one has something to abort.
func (e *Engine) disturbed() (arrival, abort time.Duration) {
	arrival, abort = math.MaxInt64, math.MaxInt64
	if stamp, ok := e.waiting.unseen(e.step.sees); ok {
		arrival = stamp
	}
	if e.aborts > 0 {
		for _, r := range e.here {
			if r.aborted {
				abort = min(abort, r.abortAt)
			}
		}
	}
	return arrival, abort
}

// alike is how many decode steps from the one that has just begun are alike as long as nothing comes.
func (e *Engine) alike() int {
	if e.stepwise || e.watcher != nil || e.config.Recipe.Speculate.Tokens > 0 ||
		e.waiting.seen(e.step.sees) && !e.policy.blocked(e) {
		return 1
	}
	steps := longestRun
	window := e.config.Model.WindowTokens
	e.growing = 0
	for _, r := range e.running {
		steps = min(steps, r.remaining())
		if l := r.held.Len(); l < window {
			e.growing++
			steps = min(steps, window-l)
		}
	}
	if steps <= 1 {
		return 1
	}
	// The first step has its memory already.
	return 1 + sort.Search(steps-1, func(i int) bool {
		g := e.growth(i + 1)
		return !e.store.Fits(kv.Match{}, g) || !e.store.AtOnce(g)
	})
}

// growth is the memory of n more tokens for every running request.
func (e *Engine) growth(n int) (sum kv.Need) {
	for _, r := range e.running {
		sum = sum.Plus(e.store.Growth(r.held.Len(), r.held.Len()+n))
	}
	return sum
}

// cutRun drops the planned steps that start at the instant at or later, because something is to be seen then; all but the first of
// them where it is seen a step late.
func (e *Engine) cutRun(at time.Duration, late bool) {
	if len(e.ends) > 1 {
		n := 1 + sort.Search(len(e.ends), func(i int) bool { return e.ends[i] >= at })
		if late {
			n++
		}
		e.ends = e.ends[:min(len(e.ends), n)]
	}
}

// takeRun does what the planned steps that end at or before at do, and begins the one after them. It leaves a run's last step, whose
// end the scheduler has to look at, in progress.
func (e *Engine) takeRun(at time.Duration, s Sink) {
	n := sort.Search(len(e.ends)-1, func(i int) bool { return e.ends[i] > at })
	if n == 0 {
		return
	}
	ends := e.ends[:n]
	e.tell(ends, s)
	took := ends[n-1] - e.step.start
	before := e.step.start
	if n > 1 {
		before = ends[n-2]
	}
	e.stats.GeneratedTokens += n * len(e.running)
	e.stats.DecodeSteps += n
	e.stats.DecodesStepped += n * len(e.running)
	e.stats.DecodeBusy += took
	e.stats.DecodeBatch = len(e.running)
	e.stats.GenThroughput = float64(len(e.running)) / (ends[n-1] - before).Seconds()
	e.last = ends[n-1]
	for range n {
		e.policy.decoded(e)
	}
	if !e.store.MakeRoom(e.growth(n)) {
		panic("engine: memory that a run of decode steps had counted on is not there")
	}
	for _, r := range e.running {
		r.generated += n
		e.store.Grow(&r.held, r.held.Len()+n)
	}
	e.peaks()
	b := &e.step.batch
	b.Loaded = 0
	b.Context += n * b.Decodes
	b.Recent += n * e.growing
	e.step.start, e.step.end = ends[n-1], e.ends[n]
	e.ends = e.ends[:copy(e.ends, e.ends[n:])]
}

// tell tells of one more token of every running request at each of the instants.
func (e *Engine) tell(ats []time.Duration, s Sink) {
	if b, ok := s.(BurstSink); ok {
		e.ids = e.ids[:0]
		for _, r := range e.running {
			e.ids = append(e.ids, r.ID)
		}
		b.Burst(e.ids, ats)
		return
	}
	for _, at := range ats {
		for _, r := range e.running {
			s.Tokens(r.ID, at, 1)
		}
	}
}
