// Package telemetry shows a run while it happens: Prometheus metrics, and spans and metrics by OTLP.
//
// Nothing is recorded a token: a turn brings its gaps between tokens along when it has ended, and they are counted then, under
// one lock, into the aggregate of the turn's step and class. Buckets are counted from raw values, so that the bucket of an
// objective's limit holds exactly the turns that held it. /metrics and OTLP read the same snapshot of the same aggregates and
// agree to the last count.
//
// Memory and the number of series do not grow with the run. The newest 32 steps are kept; a step before them loses its
// series. The rolling window holds what ended within Config.Window, at most the newest 16,384 turns and 65,536 gaps. It begins anew
// with each step, and turns that were due in a drain are not in it.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"

	"kneefinder/clock"
	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// Config is what telemetry is to show, and where.
type Config struct {
	Label      string                  // of the run; the label on every metric
	Objectives []measurement.Objective // their limits are edges of buckets; the first of TTFT decides which turns are within
	Window     time.Duration           // over which the kneeload_window_ gauges roll; 30 s when 0
	Native     bool                    // native histograms too, under names of their own
	GenAI      bool                    // the gen_ai.client metrics of the semantic conventions v0.1.0 too

	Clock   clock.Clock  // the run's; its instants are those of the records
	Started time.Time    // wall time of the clock's 0; now less the clock's time when zero
	Version string       // of this program
	Log     *slog.Logger // nil discards

	OTLP OTLP

	CustomLabels bool   // x-custom-labels on each request, so that a server can tell its own metrics apart by step and phase
	RunID        string // public name of the run, in trace ids and custom labels; Label when empty
}

// OTLP says where spans and metrics are pushed. Headers, which may hold a key, come from OTEL_EXPORTER_OTLP_HEADERS alone.
type OTLP struct {
	Endpoint    string        // host:port, or a URL; empty is no OTLP
	Protocol    string        // "grpc" or "http"; "grpc" when empty
	Insecure    bool          // no TLS, where Endpoint is host:port
	SampleRatio float64       // share of calls whose spans are sent, 0 to 1; 0 is no tracing
	Metrics     bool          // push metrics too
	Interval    time.Duration // between pushes of metrics; 10 s when 0
}

func (c *Config) fill() error {
	if c.Clock == nil {
		return errors.New("telemetry: no clock")
	}
	if c.Window == 0 {
		c.Window = 30 * time.Second
	}
	if c.Window < time.Second {
		return fmt.Errorf("telemetry: a rolling window of %v: at least 1 s", c.Window)
	}
	if c.Started.IsZero() {
		c.Started = time.Now().Add(-c.Clock.Now())
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.RunID == "" {
		c.RunID = c.Label
	}
	for _, o := range c.Objectives {
		if !(o.LimitMS > 0) || math.IsInf(o.LimitMS, 0) {
			return fmt.Errorf("telemetry: an objective of %v ms for %s: must be above 0", o.LimitMS, o.Metric)
		}
	}
	return c.OTLP.fill()
}

// Telemetry is told what happens, as a generator's observer is, and shows it. Its methods may be called by any goroutine; those
// that tell it something never wait for a network.
type Telemetry struct {
	cfg      Config
	registry *prometheus.Registry
	handler  http.Handler
	exports  *exports // nil without OTLP
	spans    *spans   // nil without tracing

	once    sync.Once // of Shutdown
	stop    func()
	stopped chan struct{}

	collecting sync.Mutex // one snapshot at a time
	scratch    []float64  // of the snapshot being made

	layout layout
	limit  int64         // of TTFT, nanoseconds; -1 without one
	base   attribute.Set // the run's label alone
	build  figure

	mu      sync.Mutex
	header  measurement.Header
	state   State
	run     []figure // of the header
	results []figure // of the results
	steps   []*step  // the newest, by number
	current *step    // nil while none runs
	flights flights
	window  window
	genai   *genai // nil unless asked for
	scrapes map[scrape]*count
}

// New starts telemetry; Shutdown ends it. ctx bounds only the start.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		cfg: cfg, registry: prometheus.NewRegistry(), stopped: make(chan struct{}), scrapes: map[scrape]*count{},
		state: Starting, layout: newLayout(cfg.Objectives, cfg.Native), limit: -1, window: newWindow(cfg.Window),
	}
	for _, o := range slices.Backward(cfg.Objectives) {
		if o.Metric == "ttft" {
			t.limit = int64(names.Within(o.LimitMS))
		}
	}
	t.base, t.build, t.run = t.attrs(), t.buildInfo(), t.limits(cfg.Objectives)
	if cfg.GenAI {
		t.genai = newGenAI()
	}
	res := describe(cfg)
	if err := t.register(res); err != nil {
		return nil, err
	}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.handler = promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 40, Registry: t.registry,
		ErrorLog:           complaints{cfg.Log},
		DisableCompression: true, // compressing would cost more of the load generator's time than all the rest
	})
	if cfg.OTLP.Endpoint != "" {
		if err := t.export(ctx, res); err != nil {
			return nil, err
		}
	}
	ticking, stop := context.WithCancel(context.Background())
	t.stop = stop
	go t.tick(ticking)
	return t, nil
}

// complaints are what promhttp has to say of a scrape that went wrong. It says so for every family that it can no longer send to
// a reader who has gone: that is the reader's affair.
type complaints struct{ log *slog.Logger }

func (c complaints) Println(v ...any) {
	level := slog.LevelWarn
	for _, x := range v {
		if err, ok := x.(error); ok && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
			level = slog.LevelDebug
		}
	}
	c.log.Log(context.Background(), level, "metrics: "+strings.TrimSpace(fmt.Sprintln(v...)))
}

// tick does once a second, of wall time, what nobody tells telemetry to do.
func (t *Telemetry) tick(ctx context.Context) {
	defer close(t.stopped)
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			now := t.cfg.Clock.Now()
			t.sample()
			if t.spans != nil {
				t.spans.sweep(now)
			}
		}
	}
}

// Registry is the registry behind Handler.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Handler answers scrapes, uncompressed. It goes on answering after Shutdown.
func (t *Telemetry) Handler() http.Handler { return t.handler }

// Shutdown sends what has not been sent, and ends. It returns within ctx; what could not be sent by then is lost and counted.
// Again it does nothing.
func (t *Telemetry) Shutdown(ctx context.Context) (err error) {
	t.once.Do(func() {
		t.stop()
		<-t.stopped
		if t.spans != nil {
			t.spans.endAll()
		}
		if t.exports != nil {
			err = t.exports.shutdown(ctx)
		}
	})
	return err
}
