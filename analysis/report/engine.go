package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kneefinder/measurement"
)

// told is a value that an engine told over time, in shares of a step's time.
type told struct{ x, y []float64 }

// gauge is a value as it was sampled; of many samples, means over equal stretches.
func gauge(samples []measurement.EngineSample, name string, o over) told {
	var t told
	for _, s := range samples {
		if v, ok := s.Values[name]; ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			t.x, t.y = append(t.x, o.at(s.At)), append(t.y, v)
		}
	}
	return t.thinned()
}

// pace is how fast a counter grew from one sample to the next, a second; a counter that fell back began anew.
func pace(samples []measurement.EngineSample, name string, o over) told {
	var t told
	last, at, known := 0., 0., false
	for _, s := range samples {
		v, ok := s.Values[name]
		if !ok {
			continue
		}
		now := seconds(s.At)
		if known && v >= last && now > at {
			t.x, t.y = append(t.x, (o.at(s.At)+at0(o, at))/2), append(t.y, (v-last)/(now-at))
		}
		last, at, known = v, now, true
	}
	return t.thinned()
}

// at0 is the place of an instant in seconds.
func at0(o over, s float64) float64 { return (s - seconds(o.from)) / seconds(o.to-o.from) }

func (t told) thinned() told {
	if len(t.x) <= seriesBins {
		return t
	}
	sum, n, x := make([]float64, seriesBins), make([]float64, seriesBins), make([]float64, seriesBins)
	for i := range t.x {
		at := min(max(int(t.x[i]*seriesBins), 0), seriesBins-1)
		sum[at] += t.y[i]
		x[at] += t.x[i]
		n[at]++
	}
	var out told
	for i := range n {
		if n[i] > 0 {
			out.x, out.y = append(out.x, x[i]/n[i]), append(out.y, sum[i]/n[i])
		}
	}
	return out
}

func (t told) most() float64 {
	if len(t.y) == 0 {
		return 0
	}
	return slices.Max(t.y)
}

func (t told) times(f float64) told {
	out := told{x: t.x}
	for _, v := range t.y {
		out.y = append(out.y, v*f)
	}
	return out
}

// enginePanels are what the engine and its GPUs said of themselves over a step; none of what they did not tell.
func enginePanels(s *step, o over) (out []panel) {
	samples := slices.Clone(s.samples)
	slices.SortStableFunc(samples, func(a, b measurement.EngineSample) int { return cmp.Compare(a.At, b.At) })
	line := func(name, class string, t told) trace { return trace{name: name, class: class, x: t.x, y: t.y} }

	used, cached := gauge(samples, measurement.SampleKVUsed, o), gauge(samples, measurement.SampleKVCached, o)
	usage := gauge(samples, measurement.SampleKVUsage, o)
	switch {
	case len(used.y) > 1 && len(used.y) == len(cached.y):
		pool, free := gauge(samples, measurement.SampleKVPool, o), gauge(samples, measurement.SampleKVFree, o)
		whole := pool.most() // of which the parts are shares: a request's tokens may take more of it than their number
		if whole > 0 {
			used, cached, free = used.times(100/whole), cached.times(100/whole), free.times(100/whole)
		}
		sum, zero := make([]float64, len(used.y)), make([]float64, len(used.y))
		for i := range sum {
			sum[i] = used.y[i] + cached.y[i]
		}
		p := panel{name: "KV cache", note: "tokens", height: 84, head: 6, desc: fmt.Sprintf("At most %s tokens in use and %s cached.", short(used.most()), short(cached.most())),
			areas: []trace{{name: "in use", class: "c1", x: used.x, y: used.y, base: zero}, {name: "cached, evictable", class: "c3", x: used.x, y: sum, base: used.y}}}
		top := slices.Max(sum)
		if len(free.y) == len(sum) {
			all := make([]float64, len(sum))
			for i := range all {
				all[i] = sum[i] + free.y[i]
			}
			p.areas = append(p.areas, trace{name: "free", class: "quiet", x: used.x, y: all, base: sum})
			top = slices.Max(all)
		}
		p.y = linear(top, 2)
		if whole > 0 {
			p.note, p.y = "% of the pool", percents()
			p.desc = fmt.Sprintf("At most %s %% in use and %s %% cached.", digits(used.most()), digits(cached.most()))
		}
		out = append(out, p)
	case len(usage.y) > 1:
		out = append(out, panel{name: "KV cache in use", note: "% of the pool, by running requests", height: 66, head: 6, y: percents(),
			desc: fmt.Sprintf("At most %s %%.", digits(100*usage.most())), lines: []trace{line("", "c1", usage.times(100))}})
	}
	if e := pace(samples, measurement.SampleEvicted, o); e.most() > 0 {
		out = append(out, panel{name: "Evicted from the cache", note: "tokens/s", height: 66, head: 6, y: linear(e.most(), 2),
			desc: fmt.Sprintf("At most %s tokens a second.", short(e.most())), lines: []trace{line("", "c2", e)}})
	}
	running, queued := gauge(samples, measurement.SampleRunning, o), gauge(samples, measurement.SampleQueued, o)
	if len(running.y)+len(queued.y) > 2 {
		p := panel{name: "Requests in the engine", note: "as sampled", height: 84, head: 6, y: linear(max(running.most(), queued.most()), 2),
			desc: fmt.Sprintf("At most %s running and %s queued.", digits(running.most()), digits(queued.most()))}
		p.lines = []trace{line("running", "c1", running), line("queued", "c2 dash", queued)}
		out = append(out, p)
	}
	var gpu []trace
	for _, g := range []struct{ name, class, of string }{{"busy", "c1", measurement.SampleGPUUtil}, {"tensor cores", "c2 dash", measurement.SampleGPUTensor}, {"memory traffic", "c3 dash", measurement.SampleGPUDRAM}} {
		if t := gauge(samples, g.of, o).times(100); len(t.y) > 1 {
			gpu = append(gpu, line(g.name, g.class, t))
		}
	}
	if len(gpu) > 0 {
		out = append(out, panel{name: "GPUs", note: "% of the time, mean of all", height: 66, head: 6, y: percents(), desc: "How busy the GPUs were.", lines: gpu})
	}
	if w := gauge(samples, measurement.SampleGPUPower, o); len(w.y) > 1 {
		out = append(out, panel{name: "GPU power", note: "W, all GPUs", height: 66, head: 6, y: linear(w.most(), 2),
			desc: fmt.Sprintf("At most %s W.", digits(w.most())), lines: []trace{line("", "c2", w)}})
	}
	return out
}
