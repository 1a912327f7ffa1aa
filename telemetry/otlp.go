package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"kneefinder/telemetry/names"
)

const (
	spanQueue = 4096             // spans that wait to be sent, at most; more are dropped
	spanBatch = 512              // sent at once
	patience  = 5 * time.Second  // for one push that fails, tries and pauses together; what it held is then dropped
	linger    = 2 * time.Second  // of a span before it is sent, at most
	pushEvery = 10 * time.Second // between pushes of metrics, where nothing else is asked
)

// headerVariables are the variables of the environment from which headers come. Their values are never shown.
var headerVariables = []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"}

func (o *OTLP) fill() error {
	if o.Endpoint == "" {
		return nil
	}
	if o.Protocol == "" {
		o.Protocol = "grpc"
	}
	if o.Protocol != "grpc" && o.Protocol != "http" {
		return fmt.Errorf("OTLP protocol %q: must be grpc or http", o.Protocol)
	}
	if !(o.SampleRatio >= 0 && o.SampleRatio <= 1) {
		return fmt.Errorf("OTLP sample ratio %v: must be from 0 to 1", o.SampleRatio)
	}
	if o.Interval == 0 {
		o.Interval = pushEvery
	}
	if o.Interval < 0 {
		return fmt.Errorf("OTLP interval %v: must be above 0", o.Interval)
	}
	if o.SampleRatio == 0 && !o.Metrics {
		return errors.New("OTLP endpoint given, but neither spans (a sample ratio above 0) nor metrics are asked for")
	}
	if strings.Contains(o.Endpoint, "://") {
		u, err := url.Parse(o.Endpoint)
		switch {
		case err != nil || u.Host == "":
			return errors.New("OTLP endpoint: not a URL of the form http://host:port")
		case u.User != nil || u.RawQuery != "":
			return errors.New("OTLP endpoint: a URL without user, password and query; a key belongs into OTEL_EXPORTER_OTLP_HEADERS")
		case u.Scheme != "http" && u.Scheme != "https":
			return fmt.Errorf("OTLP endpoint of scheme %q: must be http or https", u.Scheme)
		}
	} else if host, port, err := net.SplitHostPort(o.Endpoint); err != nil || host == "" || port == "" {
		return fmt.Errorf("OTLP endpoint %q: must be host:port or a URL", o.Endpoint)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		if u, err := url.Parse(os.Getenv(name)); err != nil || u.User != nil { // the SDK would print it
			return fmt.Errorf("%s: not a URL without user and password; the endpoint that is used is --otlp.endpoint", name)
		}
	}
	return checkHeaders()
}

// checkHeaders finds what the SDK could not read, and would print together with its secret.
func checkHeaders() error {
	for _, name := range headerVariables {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		for i, pair := range strings.Split(value, ",") {
			key, v, ok := strings.Cut(pair, "=")
			key = strings.TrimSpace(key)
			_, err := url.PathUnescape(v)
			if !ok || err != nil || key == "" || strings.ContainsFunc(key, notInName) {
				return fmt.Errorf("%s: entry %d is not of the form name=value, with percent signs only as escapes", name, i+1)
			}
		}
	}
	return nil
}

func notInName(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// describe is the resource: who sends.
func describe(cfg Config) *resource.Resource {
	return resource.NewSchemaless(attribute.String("service.name", "kneeload"), attribute.String("service.instance.id", cfg.RunID),
		attribute.String("service.version", cfg.Version))
}

// exports is what OTLP sends. A failure is said once, until an endpoint answers again; what was lost is counted.
type exports struct {
	log      *slog.Logger
	endpoint string
	secrets  []string // that no message may hold

	waiting atomic.Int64 // spans that have ended and were not handed to the exporter
	dropped map[string]*drops
	tracing *sdktrace.TracerProvider // nil without spans
	metrics *sdkmetric.MeterProvider // nil without metrics
	cut     context.Context          // ends when nothing is to be sent any more
	cutAll  context.CancelFunc
	gone    chan struct{} // closed when the last span has been handed over

	mu   sync.Mutex
	down map[string]bool // signals that fail
}

// drops is how much of a signal was lost.
type drops struct {
	n     atomic.Int64
	attrs attribute.Set
}

// The signals.
const (
	signalSpans   = "spans"
	signalMetrics = "metrics"
)

// export starts the push of spans and metrics.
func (t *Telemetry) export(ctx context.Context, res *resource.Resource) error {
	o := &t.cfg.OTLP
	e := &exports{log: t.cfg.Log, endpoint: o.Endpoint, dropped: map[string]*drops{}, down: map[string]bool{}, gone: make(chan struct{})}
	e.cut, e.cutAll = context.WithCancel(context.Background())
	for _, name := range headerVariables {
		for _, pair := range strings.Split(os.Getenv(name), ",") {
			_, v, _ := strings.Cut(pair, "=")
			plain, err := url.PathUnescape(v)
			for _, secret := range []string{strings.TrimSpace(v), strings.TrimSpace(plain)} {
				if err == nil && secret != "" {
					e.secrets = append(e.secrets, secret)
				}
			}
		}
	}
	for _, signal := range []string{signalSpans, signalMetrics} {
		e.dropped[signal] = &drops{attrs: t.attrs(names.Signal, signal)}
	}
	t.exports = e
	if o.SampleRatio > 0 {
		to, err := o.spanExporter(ctx)
		if err != nil {
			return fmt.Errorf("OTLP spans: %w", err)
		}
		batch := sdktrace.NewBatchSpanProcessor(spanExporter{to, e}, sdktrace.WithMaxQueueSize(spanQueue),
			sdktrace.WithMaxExportBatchSize(spanBatch), sdktrace.WithBatchTimeout(linger))
		e.tracing = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithIDGenerator(givenIDs{}),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.SampleRatio))), sdktrace.WithSpanProcessor(gate{batch, e}))
		t.spans = newSpans(&t.cfg, e.tracing)
	}
	if o.Metrics {
		to, err := o.metricExporter(ctx)
		if err != nil {
			e.cutAll()
			if e.tracing != nil {
				err = errors.Join(err, e.tracing.Shutdown(ctx))
			}
			return fmt.Errorf("OTLP metrics: %w", err)
		}
		reader := sdkmetric.NewPeriodicReader(metricExporter{to, e}, sdkmetric.WithInterval(o.Interval), sdkmetric.WithProducer(t))
		e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	}
	return nil
}

// stays is an HTTP client that follows nobody to another host: headers that hold a key are for the endpoint alone.
func stays() *http.Client {
	return &http.Client{Timeout: patience, Transport: http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (o *OTLP) spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	isURL := strings.Contains(o.Endpoint, "://")
	if o.Protocol == "http" {
		opts := []otlptracehttp.Option{otlptracehttp.WithEndpoint(o.Endpoint), otlptracehttp.WithTimeout(patience), otlptracehttp.WithHTTPClient(stays()),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: patience, MaxElapsedTime: patience})}
		if isURL {
			opts[0] = otlptracehttp.WithEndpointURL(o.signalURL("/v1/traces"))
		} else if o.Insecure {
			opts = append(opts, otlptracehttp.WithInsecure())
		}
		return otlptracehttp.New(ctx, opts...)
	}
	opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(o.Endpoint), otlptracegrpc.WithTimeout(patience),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: patience, MaxElapsedTime: patience})}
	if isURL {
		opts[0] = otlptracegrpc.WithEndpointURL(o.Endpoint)
	} else if o.Insecure {
		opts = append(opts, otlptracegrpc.WithInsecure())
	}
	return otlptracegrpc.New(ctx, opts...)
}

func (o *OTLP) metricExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	isURL := strings.Contains(o.Endpoint, "://")
	if o.Protocol == "http" {
		opts := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(o.Endpoint), otlpmetrichttp.WithTimeout(patience), otlpmetrichttp.WithHTTPClient(stays()),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: patience, MaxElapsedTime: patience})}
		if isURL {
			opts[0] = otlpmetrichttp.WithEndpointURL(o.signalURL("/v1/metrics"))
		} else if o.Insecure {
			opts = append(opts, otlpmetrichttp.WithInsecure())
		}
		return otlpmetrichttp.New(ctx, opts...)
	}
	opts := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(o.Endpoint), otlpmetricgrpc.WithTimeout(patience),
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: patience, MaxElapsedTime: patience})}
	if isURL {
		opts[0] = otlpmetricgrpc.WithEndpointURL(o.Endpoint)
	} else if o.Insecure {
		opts = append(opts, otlpmetricgrpc.WithInsecure())
	}
	return otlpmetricgrpc.New(ctx, opts...)
}

// signalURL is where a signal goes, the endpoint being a URL.
func (o *OTLP) signalURL(path string) string { return strings.TrimSuffix(o.Endpoint, "/") + path }

// settled notes how a push of n spans or points ended.
func (e *exports) settled(signal string, n int, err error) {
	if err != nil {
		e.dropped[signal].n.Add(int64(lost(n, err)))
	}
	e.mu.Lock()
	before := len(e.down)
	if err != nil {
		e.down[signal] = true
	} else {
		delete(e.down, signal)
	}
	after := len(e.down)
	e.mu.Unlock()
	switch {
	case before == 0 && after > 0:
		e.log.Warn("OTLP: pushes fail; the load goes on, and what is lost is counted in "+names.DroppedTotal, "endpoint", e.endpoint, "signal", signal, "err", e.clean(err))
	case before > 0 && after == 0:
		e.log.Info("OTLP: pushes arrive again", "endpoint", e.endpoint)
	}
}

// lost is how many of n a failure cost: all, or those that the other side says it refused.
func lost(n int, err error) int {
	_, after, ok := strings.Cut(err.Error(), "OTLP partial success: ")
	if !ok {
		return n
	}
	if i := strings.LastIndexByte(after, '('); i >= 0 {
		count, _, _ := strings.Cut(after[i+1:], " ")
		if refused, err := strconv.Atoi(count); err == nil {
			return min(refused, n)
		}
	}
	return n
}

// clean is an error's text without secrets that the other side may have sent back, and not longer than a line.
func (e *exports) clean(err error) string {
	text := err.Error()
	for _, s := range e.secrets {
		text = strings.ReplaceAll(text, s, "…")
	}
	if text = strings.Join(strings.Fields(text), " "); len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}

// produce shows what was lost.
func (e *exports) produce(s *snapshot) {
	for _, d := range e.dropped {
		s.count(names.DroppedTotal, d.attrs, d.n.Load())
	}
}

// shutdown sends what waits, spans and metrics at once.
func (e *exports) shutdown(ctx context.Context) error {
	var spans, metrics error
	var wg sync.WaitGroup
	if e.tracing != nil {
		wg.Go(func() {
			spans = e.tracing.Shutdown(ctx)
			e.cutAll()
			<-e.gone
			e.dropped[signalSpans].n.Add(max(0, e.waiting.Swap(0)))
		})
	}
	if e.metrics != nil {
		wg.Go(func() { metrics = e.metrics.Shutdown(ctx) })
	}
	wg.Wait()
	if spans, points := e.dropped[signalSpans].n.Load(), e.dropped[signalMetrics].n.Load(); spans+points > 0 {
		e.log.Info("OTLP: lost in all", "spans", spans, "points", points)
	}
	if err := errors.Join(spans, metrics); err != nil {
		return errors.New("OTLP: " + e.clean(err))
	}
	return nil
}

// gate lets spans to the batches while they have room, which drop what they have none for and do not say how much.
type gate struct {
	sdktrace.SpanProcessor
	e *exports
}

func (g gate) OnEnd(s sdktrace.ReadOnlySpan) {
	if g.e.waiting.Add(1) > spanQueue {
		g.e.waiting.Add(-1)
		g.e.dropped[signalSpans].n.Add(1)
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// spanExporter counts what could not be sent, and keeps the failure from the SDK, which would print it.
type spanExporter struct {
	sdktrace.SpanExporter
	e *exports
}

func (x spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.e.cut, cancel)()
	x.e.waiting.Add(-int64(len(spans)))
	x.e.settled(signalSpans, len(spans), x.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// Shutdown is called once, after the last ExportSpans.
func (x spanExporter) Shutdown(ctx context.Context) error {
	defer close(x.e.gone)
	return x.SpanExporter.Shutdown(ctx)
}

// metricExporter does the same for metrics.
type metricExporter struct {
	sdkmetric.Exporter
	e *exports
}

func (x metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	x.e.settled(signalMetrics, points(m), x.Exporter.Export(ctx, m))
	return nil
}

// points is how many points of data there are.
func points(m *metricdata.ResourceMetrics) (n int) {
	for _, scope := range m.ScopeMetrics {
		for _, f := range scope.Metrics {
			switch d := f.Data.(type) {
			case metricdata.Gauge[float64]:
				n += len(d.DataPoints)
			case metricdata.Sum[int64]:
				n += len(d.DataPoints)
			case metricdata.Histogram[float64]:
				n += len(d.DataPoints)
			case metricdata.ExponentialHistogram[float64]:
				n += len(d.DataPoints)
			}
		}
	}
	return n
}
