package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"kneefinder/measurement"
)

// What the counters of a server tell.
const (
	restartDrop = .5  // a counter that falls below this part of itself began anew; less may be two readers of one server, out of order
	strangers   = .1  // share of requests by which the server's count may differ from this side's and still be of the same ones,
	fewStrange  = 2.  // or so many
	bornAfter   = 2   // a counter is known to begin at 0 when so many samples of the step were without it
	millisIn    = 1e3 // of a second
)

// EngineOf is what the other side said of itself over a step's window; nil when it said nothing during the step. Samples and turns of other steps
// are left out; samples may come in any order.
//
// A counter that goes back, because the server was restarted, tells nothing of that window. One that is missing and then appears in the course of
// a step began at 0: some clients show a counter with its first count.
func EngineOf(step measurement.Step, turns []measurement.Turn, samples []measurement.EngineSample) *measurement.EngineResult {
	r, _ := engineOf(step, ofStep(measurement.TurnsOf(turns), step.Step), samples)
	return r
}

// engineOf also names the counters that went back.
func engineOf(step measurement.Step, turns some, samples []measurement.EngineSample) (*measurement.EngineResult, []string) {
	w := newSampled(step, samples)
	if len(w.engine)+len(w.gpus) == 0 {
		return nil, nil
	}
	var r measurement.EngineResult
	in := func(ss []measurement.EngineSample) (n int) {
		for _, s := range ss {
			if w.covers(s.At) {
				n++
			}
		}
		return n
	}
	r.Samples, r.GPUSamples = in(w.engine), in(w.gpus)
	running, queued, usage := w.gauge(measurement.SampleRunning), w.gauge(measurement.SampleQueued), w.gauge(measurement.SampleKVUsage)
	free := w.gauge(measurement.SampleKVFree)
	r.RunningMean, r.QueuedMean, r.QueuedMax = mean(running), mean(queued), most(queued)
	r.KVUsageMean, r.KVUsageMax = mean(usage), most(usage)
	r.KVPool, r.KVUsed, r.KVCached = mean(w.gauge(measurement.SampleKVPool)), mean(w.gauge(measurement.SampleKVUsed)), mean(w.gauge(measurement.SampleKVCached))
	r.KVFree, r.KVFreeMin = mean(free), least(free)

	perSecond := func(name string) *float64 {
		d := w.counted(w.engine, name)
		return figure(d.by[0] / d.seconds())
	}
	ratio := func(above, below string, times float64) *float64 {
		d := w.counted(w.engine, above, below)
		return figure(times * d.by[0] / d.by[1])
	}
	r.EvictedRate = perSecond(measurement.SampleEvicted)
	r.PrefillBusy, r.DecodeBusy = perSecond(measurement.SamplePrefillBusy), perSecond(measurement.SampleDecodeBusy)
	r.Retractions = figure(w.counted(w.engine, measurement.SampleRetractions).by[0])
	r.CacheHitRate = ratio(measurement.SampleCached, measurement.SamplePrompt, 1)
	r.ITLMean = ratio(measurement.SampleITLSum, measurement.SampleITLCount, millisIn)
	r.QueueMean = ratio(measurement.SampleQueueSum, measurement.SampleQueueCount, millisIn)
	ttft := w.counted(w.engine, measurement.SampleTTFTSum, measurement.SampleTTFTCount)
	r.TTFTMean, r.TTFTRequests = figure(millisIn*ttft.by[0]/ttft.by[1]), figure(ttft.by[1])
	r.TTFTClientMinus = clientMinus(turns, ttft)

	r.Engines = most(w.gauge(measurement.SampleEngines))
	w.simulated(&r)
	if n := len(r.Replicas); n > 1 { // counters are sums: of the time of one
		for _, busy := range []*float64{r.PrefillBusy, r.DecodeBusy} {
			if busy != nil {
				*busy /= float64(n)
			}
		}
	}
	r.GPUs, r.GPUUtil, r.GPUTensor = mean(w.gauge(measurement.SampleGPUs)), mean(w.gauge(measurement.SampleGPUUtil)), mean(w.gauge(measurement.SampleGPUTensor))
	r.GPUDRAM, r.GPUMemory = mean(w.gauge(measurement.SampleGPUDRAM)), mean(w.gauge(measurement.SampleGPUMemory))
	r.GPUClock, r.GPUTempMost = mean(w.gauge(measurement.SampleGPUClock)), most(w.gauge(measurement.SampleGPUTemp))
	joules := w.counted(w.gpus, measurement.SampleGPUEnergy)
	r.GPUPower = figure(joules.by[0] / joules.seconds())
	if r.GPUPower == nil || *r.GPUPower == 0 { // no GPU draws nothing: the counter stands still
		r.GPUPower = mean(w.gauge(measurement.SampleGPUPower))
	}
	return &r, slices.Sorted(maps.Keys(w.back))
}

// clientMinus is the mean of ttft_sent over the turns whose first token came while the server counted, less the server's mean.
func clientMinus(turns some, server counts) *float64 {
	n, sum := 0., 0.
	for t := range turns.each {
		if d, ok := t.TTFTSent(); ok && t.FirstToken > server.from && t.FirstToken <= server.to {
			n++
			sum += d.Seconds()
		}
	}
	if !(math.Abs(n-server.by[1]) <= max(fewStrange, strangers*server.by[1])) {
		return nil
	}
	return figure(millisIn * (sum/n - server.by[0]/server.by[1]))
}

// restarted is the warning of counters that went back.
func restarted(u unit, s measurement.Step, names []string) string {
	return fmt.Sprintf("step %d (%s): the server's counters went back (%s): it was restarted, or another one answers there, and what they count over the window is left out",
		s.Step, u.of(s.Rate), strings.Join(names, ", "))
}

// sampled are the samples of one step, by instant.
type sampled struct {
	from, to     time.Duration // the window
	engine, gpus []measurement.EngineSample
	born         map[string]int  // by counter: the sample of the engine that first has it, when those before are known to mean 0
	back         map[string]bool // counters that went back
}

func newSampled(step measurement.Step, samples []measurement.EngineSample) *sampled {
	w := &sampled{from: step.WindowStart, to: step.WindowEnd, born: map[string]int{}, back: map[string]bool{}}
	for _, s := range samples {
		if s.Step != step.Step || s.At < step.Start || step.DrainEnd >= 0 && s.At > step.DrainEnd || len(s.Values) == 0 {
			continue
		}
		gpu := true
		for name := range s.Values {
			gpu = gpu && strings.HasPrefix(name, "gpu")
		}
		if gpu {
			w.gpus = append(w.gpus, s)
		} else {
			w.engine = append(w.engine, s)
		}
		if step.WindowEnd < 0 { // the step was cut: up to what was seen last
			w.to = max(w.to, s.At)
		}
	}
	for _, ss := range [][]measurement.EngineSample{w.engine, w.gpus} {
		slices.SortStableFunc(ss, func(a, b measurement.EngineSample) int { return cmp.Compare(a.At, b.At) })
	}
	for _, name := range []string{measurement.SampleEvicted, measurement.SampleRetractions, measurement.SampleCached} {
		has := func(s measurement.EngineSample) bool { _, ok := s.Values[name]; return ok }
		first := slices.IndexFunc(w.engine, has)
		if first >= bornAfter && !slices.ContainsFunc(w.engine[first:], func(s measurement.EngineSample) bool { return !has(s) }) {
			w.born[name] = first
		}
	}
	return w
}

func (w *sampled) covers(at time.Duration) bool { return at >= w.from && at <= w.to }

// gauge are the values in the window.
func (w *sampled) gauge(name string) []float64 {
	var out []float64
	ss := w.engine
	if strings.HasPrefix(name, "gpu") {
		ss = w.gpus
	}
	for _, s := range ss {
		if v, ok := s.Values[name]; ok && w.covers(s.At) {
			out = append(out, v)
		}
	}
	return out
}

// counts are what some counters counted between two samples; NaN when that is not known.
type counts struct {
	from, to time.Duration
	by       []float64
}

func (c counts) seconds() float64 { return (c.to - c.from).Seconds() }

// counted is what the counters counted between the last sample before the window that has them all - the first in it, without one - and
// the first behind it, or the last in it.
func (w *sampled) counted(ss []measurement.EngineSample, names ...string) counts {
	out := counts{by: make([]float64, len(names))}
	for i := range out.by {
		out.by[i] = math.NaN()
	}
	var have []int
	for i := range ss {
		if !slices.ContainsFunc(names, func(name string) bool { return math.IsNaN(w.value(ss, i, name)) }) {
			have = append(have, i)
		}
	}
	if len(have) == 0 {
		return out
	}
	a, b := 0, len(have)-1
	for i, at := range have {
		if ss[at].At <= w.from {
			a = i
		}
	}
	for i := b; i >= 0 && ss[have[i]].At >= w.to; i-- {
		b = i
	}
	if b <= a {
		return out
	}
	out.from, out.to = ss[have[a]].At, ss[have[b]].At
	went := false
	for n, name := range names {
		last := w.value(ss, have[a], name)
		out.by[n] = w.value(ss, have[b], name) - last
		back := out.by[n] < 0
		for _, i := range have[a : b+1] {
			v := w.value(ss, i, name)
			back = back || v < restartDrop*last
			last = v
		}
		if back {
			went, w.back[name] = true, true
		}
	}
	if went {
		for n := range out.by {
			out.by[n] = math.NaN()
		}
	}
	return out
}

// value is a counter in the i-th sample; NaN when it was not told.
func (w *sampled) value(ss []measurement.EngineSample, i int, name string) float64 {
	if v, ok := ss[i].Values[name]; ok {
		return v
	}
	if i < w.born[name] {
		return 0
	}
	return math.NaN()
}

// What of an engine's figures is a sign.
const (
	fullPool    = .05 // less than this part of the KV pool is free
	longQueue   = 1.  // so many requests wait on average,
	queueGrowth = 2.  // and more than so many times those of the calmest lower step
)

// engineSigns are what the engine's own metrics show at a failing step and did not show below it, a sentence each: evictions that cost
// hits, a KV pool without room, a queue that grew, requests pushed out of the batch. A cache that is full evicts what nobody
// asks for again at any load, so evictions are a sign only where the server's own hit rate fell with them, or is not known. Where isFull, what
// fills the pool and pushes requests out is told already.
func engineSigns(u unit, s measurement.StepResult, below []measurement.StepResult, isFull bool) []string {
	e := s.Engine
	if e == nil {
		return nil
	}
	type E = measurement.EngineResult
	lower := func(f func(*E) float64, better func(a, b float64) bool) (v float64, at string, ok bool) {
		for _, b := range below {
			if b.Engine == nil {
				continue
			}
			if x := f(b.Engine); !math.IsNaN(x) && (!ok || better(x, v)) {
				v, at, ok = x, u.of(b.Rate), true
			}
		}
		return v, at, ok
	}
	less, more := func(a, b float64) bool { return a < b }, func(a, b float64) bool { return a > b }
	evicted, hits := func(e *E) float64 { return value(e.EvictedRate) }, func(e *E) float64 { return value(e.CacheHitRate) }
	free := func(e *E) float64 { return value(e.KVFree) / value(e.KVPool) }
	queued := func(e *E) float64 { return value(e.QueuedMean) }

	var out []string
	best, bestAt, compared := lower(hits, more)
	if fell := best - hits(e); evicted(e) > 0 && !(compared && fell <= hitDrop) {
		t := fmt.Sprintf("At %s the server evicted %s tokens a second from its cache", u.of(s.Rate), round(evicted(e)))
		if was, at, ok := lower(evicted, less); ok {
			t += fmt.Sprintf(", %s at %s", round(was), at)
		}
		if fell > hitDrop {
			t += fmt.Sprintf("; by its own count, first turns included, its hit rate fell from %.0f %% at %s to %.0f %%", 100*best, bestAt, 100*hits(e))
		}
		out = append(out, t+".")
	}
	if fullest, at, ok := lower(free, less); !isFull && free(e) < fullPool && !(ok && fullest < fullPool) {
		t := fmt.Sprintf("At %s %.1f %% of the KV pool was free on average", u.of(s.Rate), 100*free(e))
		if ok {
			t += fmt.Sprintf(", %.0f %% at %s", 100*fullest, at)
		}
		out = append(out, t+": a new prefix takes the room of another.")
	}
	if v := queued(e); v >= longQueue {
		was, at, ok := lower(queued, less)
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("At %s %.1f requests waited in the server's queue on average, %.0f at most.", u.of(s.Rate), v, value(e.QueuedMax)))
		case v > queueGrowth*was:
			out = append(out, fmt.Sprintf("The server's queue grew from %.1f requests on average at %s to %.1f, %.0f at most, at %s.", was, at, v, value(e.QueuedMax), rate(s.Rate)))
		}
	}
	if v := value(e.Retractions); v > 0 && !isFull {
		out = append(out, fmt.Sprintf("At %s the server pushed requests out of its batch %s, to compute them again: the KV that running requests need did not fit.", u.of(s.Rate), often(v)))
	}
	return out
}

// round writes a number to three digits, and a large one as a whole number.
func round(v float64) string {
	if v < 1000 {
		return sig(v)
	}
	digits := math.Pow10(int(math.Log10(v)) - 2)
	return grouped(fmt.Sprintf("%.0f", math.Round(v/digits)*digits))
}

// mean, most and least are absent of nothing.

func mean(v []float64) *float64 {
	sum := 0.
	for _, x := range v {
		sum += x
	}
	return figure(sum / float64(len(v)))
}

func most(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	return figure(slices.Max(v))
}

func least(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	return figure(slices.Min(v))
}
