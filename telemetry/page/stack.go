package page

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// column takes one figure out of every bucket; some is false when none of them has it.
func (s *snapshot) column(of func(*bucket) float64) (ys []float64, some bool) {
	ys = make([]float64, len(s.buckets))
	for i := range s.buckets {
		ys[i] = of(&s.buckets[i])
		some = some || !math.IsNaN(ys[i])
	}
	return ys, some
}

func (s *snapshot) signal(i int) ([]float64, bool) {
	return s.column(func(b *bucket) float64 { return b.signal[i] })
}

// latest is the last known figure, with a unit; none when the last minute, or four buckets, had none.
func (s *snapshot) latest(ys []float64, times float64, unit string) string {
	back := max(4, int(time.Minute/s.width))
	for i := len(ys) - 1; i >= max(0, len(ys)-back); i-- {
		if !math.IsNaN(ys[i]) {
			return strings.TrimSpace(digits(ys[i]*times) + " " + unit)
		}
	}
	return none
}

// carried fills short stretches without a sample with the figure before them, so that a slow exporter's line does not break.
func (s *snapshot) carried(ys []float64) []float64 {
	reach := max(1, int(35*time.Second/s.width))
	last, age := math.NaN(), 0
	for i, y := range ys {
		if !math.IsNaN(y) {
			last, age = y, 0
			continue
		}
		if age++; age <= reach {
			ys[i] = last
		}
	}
	return ys
}

// drawStack draws the charts over time.
func drawStack(s *snapshot, started time.Time) string {
	a := &axis{from: s.origin.Seconds()}
	a.to = max(s.now.Seconds(), a.from+10)
	for i := range s.buckets {
		end := s.origin + time.Duration(i+1)*s.width
		a.x = append(a.x, min(end, s.now).Seconds())
	}
	var asked []plateau
	step := -1
	for i, m := range s.marks {
		to := s.now
		if i+1 < len(s.marks) {
			to = s.marks[i+1].at
		}
		if m.rate > 0 {
			asked = append(asked, plateau{m.at.Seconds(), to.Seconds(), m.rate})
		}
		if m.rate > 0 && m.step != step {
			step = m.step
			a.bounds = append(a.bounds, bound{m.at.Seconds(), fmt.Sprintf("step %d", s.ordinal(m.step))})
		}
	}
	a.ticks = timeTicks(a.from, a.to)
	window := elapsed(s.window)
	if !s.steady {
		window += " of a step"
	}

	came, _ := s.column(func(b *bucket) float64 { return b.came })
	over := final(s.state) // then nothing is now
	at := func(v string) string {
		if over {
			return ""
		}
		return v
	}
	now := at(none)
	if s.asked > 0 {
		now = at(digits(s.asked))
	}
	u := unit(s.run.Config)
	load := chart{title: "Load", note: u, height: 90, stairs: asked, steps: !s.steady, legend: []key{{"asked", "asked", now}}}
	if !closed(s.run.Config) {
		load.note = "λ, " + u + "; what came, of the last " + window
		load.series = []series{{name: "came", class: "c1", now: at(digits(s.last.came)), y: came}}
	}
	charts := []chart{load}

	p50, _ := s.column(func(b *bucket) float64 { return b.p50 })
	p95, _ := s.column(func(b *bucket) float64 { return b.p95 })
	p99, _ := s.column(func(b *bucket) float64 { return b.p99 })
	ttft := chart{title: "Time to first token", note: "ms, turns 2.. of the last " + window, height: 170, log: true,
		series: []series{{name: "P50", class: "c3 dash", now: at(digits(s.last.p50)), y: p50}, {name: "P95", class: "c1 thick", now: at(digits(s.last.p95)), y: p95},
			{name: "P99", class: "c2 dot", now: at(digits(s.last.p99)), y: p99}}}
	for _, o := range s.slo {
		if o.Metric == "ttft" {
			ttft.limits = append(ttft.limits, limit{o.LimitMS, fmt.Sprintf("SLO: P%g ≤ %s ms", math.Round(o.Quantile*1e6)/1e4, digits(o.LimitMS))})
			ttft.text += fmt.Sprintf("The objective is P%g at most %s ms. ", math.Round(o.Quantile*1e6)/1e4, digits(o.LimitMS))
		}
	}
	charts = append(charts, ttft)

	hitNow := percent(s.last.hit)
	if hitNow != none {
		hitNow += " %"
	}
	hit, _ := s.column(func(b *bucket) float64 { return b.hit * 100 })
	charts = append(charts, chart{title: "Cache hit rate", note: "% of prompt tokens, last " + window, height: 80, top: 100,
		series: []series{{name: "hit rate", class: "c1", now: at(hitNow), y: hit}}})

	calls, _ := s.column(func(b *bucket) float64 { return b.calls })
	turns, _ := s.column(func(b *bucket) float64 { return b.turns })
	charts = append(charts, chart{title: "In flight", note: "calls, and turns that wait for the server", height: 90, top: 2,
		series: []series{{name: "calls", class: "c1", now: at(digits(s.last.calls)), y: calls}, {name: "turns", class: "c2 dash", now: at(digits(s.last.turns)), y: turns}}})

	name := "minutes:seconds since the start"
	if a.to >= 3600 {
		name = "hours:minutes since the start"
	}
	if !started.IsZero() {
		name += ", " + started.UTC().Format("15:04:05 UTC")
	}
	var b strings.Builder
	group := func(head string, cs []chart) {
		if len(cs) == 0 {
			return
		}
		fmt.Fprintf(&b, `<h3>%s</h3>`, head)
		for i := range cs {
			cs[i].draw(&b, a)
		}
		drawTicks(&b, a.ticks, name)
	}
	group("What callers see", charts)
	group("The engine", s.engineCharts())
	group("Its GPUs", s.gpuCharts())
	return b.String()
}

// ordinal is a step's place in the run, from 1.
func (s *snapshot) ordinal(number int) int {
	for i := range s.steps {
		if s.steps[i].number == number {
			return s.dropped + i + 1
		}
	}
	return number + 1
}

// sampled is a line of a chart of samples.
type sampled struct {
	signal      int
	name, class string
}

// lines is a chart of samples: those of its figures that were told, each times a factor. None is no chart.
func (s *snapshot) lines(c chart, times float64, unit string, of ...sampled) []chart {
	for _, x := range of {
		ys, some := s.signal(x.signal)
		if !some {
			continue
		}
		ys = s.carried(ys)
		now := ""
		if !final(s.state) {
			now = s.latest(ys, times, unit)
		}
		for j := range ys {
			ys[j] *= times
		}
		c.series = append(c.series, series{name: x.name, class: x.class, now: now, y: ys})
	}
	if len(c.series) == 0 {
		return nil
	}
	return []chart{c}
}

func (s *snapshot) engineCharts() []chart {
	kv := s.lines(chart{title: "KV cache", note: "% of the pool", height: 90, top: 100}, 100, "%",
		sampled{kvUsed, "in use by running requests", "c1"}, sampled{kvCached, "held by the prefix cache alone", "c3 dash"})
	if len(kv) == 1 && len(kv[0].series) == 2 { // the second stands on the first
		c := &kv[0]
		used, cached := c.series[0].y, c.series[1].y
		for i := range cached {
			cached[i] += used[i]
		}
		c.series[0].base, c.series[1].base = make([]float64, len(used)), used
		c.note = "% of the pool, one on the other; free above them"
		if last := cached[len(cached)-1]; !math.IsNaN(last) && !final(s.state) {
			c.note += ": " + digits(100-last) + " %"
		}
	}
	out := kv
	out = append(out, s.lines(chart{title: "Evictions", note: "tokens/s that left the prefix cache", height: 70, top: 10}, 1, "",
		sampled{evicted, "evicted", "c2"})...)
	return append(out, s.lines(chart{title: "Engine requests", note: "in the batch, and waiting", height: 80, top: 2}, 1, "",
		sampled{running, "running", "c1"}, sampled{queued, "queued", "c2 dash"})...)
}

func (s *snapshot) gpuCharts() []chart {
	out := s.lines(chart{title: "Activity", note: "% of the time", height: 90, top: 100}, 100, "%",
		sampled{gpuUtil, "any kernel", "c3 dash"}, sampled{gpuTensor, "tensor cores", "c1"}, sampled{gpuDRAM, "DRAM", "c2 dot"})
	return append(out, s.lines(chart{title: "Power", note: "W, all GPUs together", height: 70, top: 50}, 1, "W", sampled{gpuPower, "power", "c1"})...)
}
