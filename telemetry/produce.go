package telemetry

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"kneefinder/telemetry/names"
)

// snapshot is everything at one instant.
type snapshot struct {
	start, time time.Time
	metrics     []metricdata.Metrics
	at          map[string]int // where a family stands in metrics
}

// Produce is a snapshot of everything.
func (t *Telemetry) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	return t.snapshot(true, func(*step) bool { return true }), nil
}

// snapshot is of the steps that are wanted, and of what is one of the run if that is.
func (t *Telemetry) snapshot(run bool, wanted func(*step) bool) []metricdata.ScopeMetrics {
	t.collecting.Lock()
	defer t.collecting.Unlock()
	t.mu.Lock()
	now := t.cfg.Clock.Now()
	s := &snapshot{start: t.cfg.Started, time: t.cfg.Started.Add(now), at: map[string]int{}}
	t.settle(now - settles)
	for _, st := range t.steps {
		if wanted(st) {
			t.produceStep(s, st)
		}
	}
	if run {
		l, ttft, itl := t.window.copy(now, t.scratch[:0])
		t.scratch = ttft[:0]
		t.produceRun(s)
		t.mu.Unlock()
		l.ttft, l.itl = percentiles(ttft), percentiles(itl)
		t.produceWindow(s, &l)
	} else {
		t.mu.Unlock()
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: "kneefinder/telemetry", Version: t.cfg.Version}, Metrics: s.metrics}}
}

// produceRun shows what is one of a run. mu is held.
func (t *Telemetry) produceRun(s *snapshot) {
	s.figures(t.run...)
	s.figures(t.build)
	s.figures(t.results...)
	for _, state := range states {
		s.gauge(names.RunState, t.attrs(names.State, string(state)), truth(state == t.state))
	}
	rate := 0.
	if t.current != nil {
		rate = t.current.rec.Rate
		s.gauge(names.CurrentStep, t.base, float64(t.current.rec.Step))
	}
	s.gauge(names.OfferedRate, t.base, rate)
	f := t.flights.now()
	s.gauge(names.CallsInFlight, t.base, float64(f.calls))
	s.gauge(names.TurnsInFlight, t.base, float64(f.turns))
	for _, c := range t.scrapes {
		s.count(names.ScrapesTotal, c.attrs, c.n)
	}
	if t.genai != nil {
		t.genai.produce(s, &t.header)
	}
	if t.exports != nil {
		t.exports.produce(s)
	}
}

// produceStep shows what is one of a step. mu is held.
func (t *Telemetry) produceStep(s *snapshot, st *step) {
	s.gauge(names.StepRate, st.attrs, st.rec.Rate)
	s.figures(st.figures...)
	s.figures(st.server...)
	if !st.began {
		return
	}
	instant := func(name string, at time.Duration) {
		if at >= 0 {
			s.gauge(name, st.attrs, float64(t.cfg.Started.Add(at).UnixNano())/1e9)
		}
	}
	instant(names.StepStart, st.rec.Start)
	instant(names.StepWindowStart, st.rec.WindowStart)
	if st != t.current {
		instant(names.StepWindowEnd, st.rec.WindowEnd)
		instant(names.StepEnd, st.rec.DrainEnd)
	}
	s.count(names.CallsTotal, st.attrs, st.calls)
	s.count(names.Retries, st.attrs, st.retries)
	s.count(names.Dials, st.attrs, st.dials)
	s.histogram(names.Calls, names.NativeC, st.attrs, &st.live)
	for _, c := range st.classes {
		if c == nil {
			continue
		}
		for _, n := range c.turns {
			s.count(names.TurnsTotal, n.attrs, n.n)
		}
		if t.limit >= 0 {
			s.count(names.TurnsInSLOTotal, c.attrs, c.inSLO)
		}
		s.count(names.PromptTokens, c.attrs, c.prompt)
		s.count(names.KnownPromptTokens, c.attrs, c.known)
		s.count(names.CachedTokens, c.attrs, c.cached)
		s.count(names.OutputTokens, c.attrs, c.output)
		s.count(names.TokenEvents, c.attrs, c.events)
		s.histogram(names.TTFT, names.NativeT, c.attrs, &c.ttft)
		s.histogram(names.TTFTSent, "", c.attrs, &c.ttftSent)
		s.histogram(names.ITL, names.NativeI, c.attrs, &c.itl)
		s.histogram(names.TPOT, "", c.attrs, &c.tpot)
		s.histogram(names.E2E, "", c.attrs, &c.e2e)
		s.histogram(names.Lag, "", c.attrs, &c.lag)
		s.histogram(names.Cached, names.NativeP, c.attrs, &c.tokens)
	}
}

// produceWindow shows the rolling window: what is of nothing is absent.
func (t *Telemetry) produceWindow(s *snapshot, l *lately) {
	known := func(name string, attrs attribute.Set, v float64) {
		if !math.IsNaN(v) {
			s.gauge(name, attrs, v)
		}
	}
	for i, q := range quantiles {
		attrs := t.attrs(names.Quantile, float(q))
		known(names.WindowTTFT, attrs, l.ttft[i]/1e9)
		known(names.WindowITL, attrs, l.itl[i]/1e9)
	}
	known(names.WindowHit, t.base, l.hit)
	known(names.WindowErrors, t.base, l.errors)
	s.gauge(names.WindowTurns, t.base, float64(l.turns))
	s.gauge(names.WindowSeconds, t.base, t.cfg.Window.Seconds())
	known(names.ArrivedRate, t.base, l.arrived)
}

// family is where the points of a family are; data makes it when it is the first.
func (s *snapshot) family(name string, data metricdata.Aggregation) *metricdata.Metrics {
	i, ok := s.at[name]
	if !ok {
		i = len(s.metrics)
		s.at[name] = i
		s.metrics = append(s.metrics, metricdata.Metrics{Name: name, Description: help(name), Unit: unit(name), Data: data})
	}
	return &s.metrics[i]
}

func (s *snapshot) figures(fs ...figure) {
	for _, f := range fs {
		s.gauge(f.name, f.attrs, f.value)
	}
}

func (s *snapshot) gauge(name string, attrs attribute.Set, v float64) {
	m := s.family(name, metricdata.Gauge[float64]{})
	g := m.Data.(metricdata.Gauge[float64])
	g.DataPoints = append(g.DataPoints, metricdata.DataPoint[float64]{Attributes: attrs, Time: s.time, Value: v})
	m.Data = g
}

func (s *snapshot) count(name string, attrs attribute.Set, n int64) {
	m := s.family(name, metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true})
	c := m.Data.(metricdata.Sum[int64])
	c.DataPoints = append(c.DataPoints, metricdata.DataPoint[int64]{Attributes: attrs, StartTime: s.start, Time: s.time, Value: n})
	m.Data = c
}

// histogram shows one that is not empty, and its native form where there is one.
func (s *snapshot) histogram(name, native string, attrs attribute.Set, h *histogram) {
	if h.n == 0 {
		return
	}
	m := s.family(name, metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality})
	d := m.Data.(metricdata.Histogram[float64])
	d.DataPoints = append(d.DataPoints, h.point(attrs, s))
	m.Data = d
	if h.hdr == nil {
		return
	}
	m = s.family(native, metricdata.ExponentialHistogram[float64]{Temporality: metricdata.CumulativeTemporality})
	e := m.Data.(metricdata.ExponentialHistogram[float64])
	e.DataPoints = append(e.DataPoints, h.exponentialPoint(attrs, s))
	m.Data = e
}
