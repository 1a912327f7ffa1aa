package telemetry

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// collector shows the registry what OpenTelemetry's exporter makes of a snapshot. Series of steps that have ended do not
// change any more: theirs are translated once, not at each scrape.
type collector struct {
	t         *Telemetry
	now, then prometheus.Collector // the exporter's, of all else and of the ended steps

	mu     sync.Mutex
	sealed []seal
	kept   []prometheus.Metric // of the sealed steps
}

// seal is an ended step as it was at its last change.
type seal struct{ step, changes int }

// part is the snapshot of the steps that are sealed, or of all else.
type part struct {
	c      *collector
	sealed bool
}

// register puts telemetry's metrics into its registry.
func (t *Telemetry) register(res *resource.Resource) error {
	c := &collector{t: t}
	for _, p := range []struct {
		part part
		to   *prometheus.Collector
		opts []otelprom.Option
	}{{part{c, false}, &c.now, nil}, {part{c, true}, &c.then, []otelprom.Option{otelprom.WithoutTargetInfo()}}} {
		reader, err := otelprom.New(append(p.opts, otelprom.WithRegisterer(taken{to: p.to}), otelprom.WithProducer(p.part), otelprom.WithoutScopeInfo(),
			otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))...)
		if err != nil {
			return fmt.Errorf("telemetry: %w", err)
		}
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res)) // a reader reads once a provider has it
	}
	return t.registry.Register(c)
}

// taken takes the collector that an exporter would register.
type taken struct {
	prometheus.Registerer
	to *prometheus.Collector
}

func (r taken) Register(c prometheus.Collector) error {
	*r.to = c
	return nil
}

// Describe says nothing: which series there will be is not known.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every series.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sealed := c.t.seals(); !slices.Equal(sealed, c.sealed) {
		c.sealed = sealed // what then collects
		c.kept = keep(c.then)
	}
	c.now.Collect(ch)
	for _, m := range c.kept {
		ch <- m
	}
}

// seals are the steps that have ended.
func (t *Telemetry) seals() (all []seal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.steps {
		if s != t.current {
			all = append(all, seal{s.rec.Step, s.changes})
		}
	}
	return all
}

// Produce is called while c.mu is held: sealed does not change meanwhile.
func (p part) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	return p.c.t.snapshot(!p.sealed, func(s *step) bool {
		return p.sealed == slices.ContainsFunc(p.c.sealed, func(o seal) bool { return o.step == s.rec.Step })
	}), nil
}

// keep collects once.
func keep(c prometheus.Collector) (kept []prometheus.Metric) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	for m := range ch {
		k := &constant{Metric: m}
		if m.Write(&k.as) == nil { // what cannot be written says so at the scrape
			m = k
		}
		kept = append(kept, m)
	}
	return kept
}

// constant is a metric that has been written once.
type constant struct {
	prometheus.Metric
	as dto.Metric
}

func (c *constant) Write(out *dto.Metric) error {
	out.Label, out.Gauge, out.Counter, out.Histogram, out.TimestampMs = c.as.Label, c.as.Gauge, c.as.Counter, c.as.Histogram, c.as.TimestampMs
	return nil
}
