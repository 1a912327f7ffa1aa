package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/telemetry"
	"kneefinder/telemetry/page"
	"kneefinder/telemetry/scrape"
	"kneefinder/telemetry/web"
)

// watch is the flags that say how a run is shown while it happens, and what of the other side is looked at.
type watch struct {
	Listen        []string    `name:"web.listen-address" help:"Serve the live page and /metrics at this address, such as :9464; may be repeated." placeholder:"HOST:PORT" group:"watch"`
	WebConfig     string      `name:"web.config.file" help:"TLS, passwords and rate limit of those pages, in exporter-toolkit's format." type:"existingfile" placeholder:"FILE" group:"watch"`
	TelemetryPath string      `name:"web.telemetry-path" help:"Path of the metrics." default:"/metrics" group:"watch"`
	Linger        cli.Seconds `name:"web.linger" help:"Serve them for so long after the run, so that its last figures are scraped and can be read; after Ctrl-C for 5s at most." default:"0s" group:"watch"`
	LogLevel      string      `name:"log.level" help:"Least grave log lines: debug, info, warn or error." enum:"debug,info,warn,error" default:"warn" group:"watch"`
	LogFormat     string      `name:"log.format" help:"Log lines as logfmt or json." enum:"logfmt,json" default:"logfmt" group:"watch"`

	Native bool `name:"native-histograms" help:"Also show histograms as native ones, under names of their own." group:"watch"`
	GenAI  bool `name:"gen-ai-metrics" help:"Also show the gen_ai.client metrics of OpenTelemetry's conventions." group:"watch"`

	OTLPEndpoint string  `name:"otlp.endpoint" help:"Send a span for each call and turn to this collector. Headers come from OTEL_EXPORTER_OTLP_HEADERS." placeholder:"HOST:4317" group:"watch"`
	OTLPProtocol string  `name:"otlp.protocol" help:"grpc or http." enum:"grpc,http" default:"grpc" group:"watch"`
	OTLPInsecure bool    `name:"otlp.insecure" help:"Send without TLS." group:"watch"`
	OTLPRatio    float64 `name:"otlp.sample-ratio" help:"Share of the calls whose spans are sent." default:"1" group:"watch"`
	OTLPMetrics  bool    `name:"otlp.metrics" help:"Send the metrics there too." group:"watch"`

	CustomLabels  bool        `name:"custom-labels" help:"Send x-custom-labels with run_id, step and phase, for SGLang's --tokenizer-metrics-allowed-custom-labels." group:"watch"`
	EngineMetrics string      `name:"engine-metrics" help:"The engine's own metrics, read once a second into the turn log: auto is /metrics of the server if it has one, off, or a URL." default:"auto" complete:"auto,off" group:"watch"`
	GPUMetrics    []string    `name:"gpu-metrics" help:"A GPU exporter's metrics (DCGM, nvidia_gpu_exporter, AMD); may be repeated." placeholder:"URL" group:"watch"`
	ScrapeEvery   cli.Seconds `name:"scrape-interval" help:"Between two looks at those." default:"1s" group:"watch"`
}

// scrapes says of which metrics pages nothing can be read, before any load is sent.
func (w *watch) scrapes() error {
	for _, u := range append([]string{w.EngineMetrics}, w.GPUMetrics...) {
		if u == "auto" || u == "off" {
			continue
		}
		if !strings.Contains(u, "://") {
			u = "http://" + u
		}
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return cli.Usage("--engine-metrics, --gpu-metrics: give a URL such as http://127.0.0.1:9400/metrics")
		}
	}
	if every := time.Duration(w.ScrapeEvery); every != 0 && every < 100*time.Millisecond {
		return cli.Usage("--scrape-interval %v: at least 100ms, so that looking does not load the engine", every)
	}
	return nil
}

// watched is a run that is shown.
type watched struct {
	flags   watch
	clk     *clock.Wall
	log     *slog.Logger
	err     io.Writer
	metrics *telemetry.Telemetry
	page    *page.Page
	server  *web.Server

	stop context.CancelFunc // of the server and the scraper
	work sync.WaitGroup

	ready    atomic.Bool // the endpoint has answered
	draining atomic.Bool // the window of the step in progress is over

	mu   sync.Mutex
	step int
}

// shown is what a run is called where it is shown.
type shown struct {
	label  string
	config measurement.Config
	nonce  uint64
	window time.Duration // of the rolling figures; 0 is the default
	steady bool          // one load without steps to compare
	reload func() error  // nil: nothing can be reloaded
}

// open binds the addresses, so that one that is taken is known before any load is sent, and begins to serve.
func (w *watch) open(ctx context.Context, clk *clock.Wall, started time.Time, r shown, stderr io.Writer) (*watched, error) {
	if err := w.scrapes(); err != nil {
		return nil, err
	}
	if w.OTLPRatio < 0 || w.OTLPRatio > 1 {
		return nil, cli.Usage("--otlp.sample-ratio %v: must be from 0 to 1", w.OTLPRatio)
	}
	d := &watched{flags: *w, clk: clk, err: stderr, log: w.logger(stderr)}
	cfg := telemetry.Config{Label: r.label, Objectives: r.config.SLO, Window: r.window, Native: w.Native, GenAI: w.GenAI, Clock: clk, Started: started,
		Version: cli.Version, Log: d.log, CustomLabels: w.CustomLabels, RunID: fmt.Sprintf("%016x", r.nonce)}
	cfg.OTLP.Endpoint, cfg.OTLP.Protocol, cfg.OTLP.Insecure = w.OTLPEndpoint, w.OTLPProtocol, w.OTLPInsecure
	cfg.OTLP.SampleRatio, cfg.OTLP.Metrics = w.OTLPRatio, w.OTLPMetrics
	d.page = page.New(page.Config{Clock: clk, Started: started, Label: r.label, Title: "Kneefinder", Objectives: r.config.SLO, Version: cli.Version,
		Window: r.window, Steady: r.steady})
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	if len(w.Listen) > 0 {
		// The handler is there before the metrics are: nothing is asked for until Serve.
		var err error
		d.server, err = web.Listen(web.Config{ListenAddresses: w.Listen, ConfigFile: w.WebConfig, MetricsPath: w.TelemetryPath,
			Metrics: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { d.metrics.Handler().ServeHTTP(rw, r) }),
			Page:    d.page, Ready: d.ready.Load, Reload: r.reload, Log: d.log})
		if err != nil {
			stop()
			return nil, err
		}
	}
	var err error
	if d.metrics, err = telemetry.New(ctx, cfg); err != nil {
		if d.server != nil {
			d.server.Close()
		}
		stop()
		return nil, cli.Usage("%w", err)
	}
	if d.server != nil {
		d.work.Go(func() {
			if err := d.server.Serve(served); err != nil {
				d.log.Error("the live page and /metrics are gone; the load goes on", "err", err)
			}
		})
		for _, a := range d.server.Addrs() {
			fmt.Fprintf(stderr, "live page and metrics: %s\n", pageURL(a.String(), w.WebConfig))
		}
	}
	d.setState("starting")
	return d, nil
}

// pageURL is where a person opens the page that is served at an address with a web config.
func pageURL(addr, config string) string {
	scheme := "http"
	text, err := os.ReadFile(config)
	var c struct {
		TLS map[string]any `yaml:"tls_server_config"`
	}
	if config != "" && err == nil && yaml.Unmarshal(text, &c) == nil && len(c.TLS) > 0 {
		scheme = "https"
	}
	return scheme + "://" + strings.Replace(addr, "[::]", "localhost", 1) + "/"
}

func (w *watch) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(w.LogLevel)) // one of the enum
	o := &slog.HandlerOptions{Level: level}
	if w.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

// annotate adds a turn's trace and labels to its request. Calibration is no turn of a step.
func (d *watched) annotate(h http.Header, r generator.Request) {
	if r.Phase != 0 {
		d.metrics.Annotate(h, r.Step, r.Call, r.Turn, r.Phase)
	}
}

// setRun tells what is run, of whom.
func (d *watched) setRun(h measurement.Header) {
	d.ready.Store(true)
	d.metrics.SetRun(h)
	d.page.SetRun(h)
}

func (d *watched) setState(s string) {
	d.metrics.SetState(telemetry.State(s))
	d.page.SetState(s)
}

// The watched is told of everything, as every observer is.

func (d *watched) StepBegin(s measurement.Step) {
	d.mu.Lock()
	d.step = s.Step
	d.mu.Unlock()
	if d.draining.CompareAndSwap(true, false) {
		d.setState("running")
	}
	d.metrics.StepBegin(s)
	d.page.StepBegin(s)
}

func (d *watched) StepEnd(s measurement.Step) { d.metrics.StepEnd(s); d.page.StepEnd(s) }

// Turn tells of a turn; the first that was due in a drain tells that the window is over.
func (d *watched) Turn(t measurement.Turn) {
	if t.Phase == measurement.Drain && d.draining.CompareAndSwap(false, true) {
		d.setState("draining")
	}
	d.metrics.Turn(t)
	d.page.Turn(t)
}

func (d *watched) Results(r measurement.Results) { d.metrics.Results(r); d.page.Results(r) }

func (d *watched) InFlight(at time.Duration, calls, turns int) {
	d.metrics.InFlight(at, calls, turns)
	d.page.InFlight(at, calls, turns)
}

func (d *watched) StepResult(r measurement.StepResult) {
	d.metrics.StepResult(r)
	if e := r.Engine; e != nil && e.TTFTMean != nil && e.TTFTClientMinus != nil {
		d.metrics.ServerTTFT(r.Step, *e.TTFTMean/1e3, *e.TTFTClientMinus/1e3)
	}
	d.page.StepResult(r)
}

// look reads the engine's metrics and the GPUs' until ctx ends, and tells of each sample; wait returns when it has ended.
func (d *watched) look(ctx context.Context, to *connected, tell func(measurement.EngineSample)) (wait func(), err error) {
	base := strings.TrimRight(to.engine.BaseURL, "/")
	header := http.Header{}
	u := d.flags.EngineMetrics
	if to.key != "" && (u == "auto" || strings.HasPrefix(u, base+"/")) { // the key is for the server alone
		header.Set("Authorization", "Bearer "+to.key)
	}
	switch u {
	case "off":
		u = ""
	case "auto":
		u = base + "/metrics"
		if !scrape.Answers(ctx, u, header, to.insecure) {
			u = ""
		}
	}
	if u == "" && len(d.flags.GPUMetrics) == 0 {
		return func() {}, nil
	}
	s, err := scrape.New(scrape.Config{Clock: d.clk, Engine: u, GPUs: d.flags.GPUMetrics, Header: header, InsecureTLS: to.insecure, Interval: time.Duration(d.flags.ScrapeEvery), Log: d.log,
		Count: func(source string, ok bool) { d.metrics.CountScrape(source, ok); d.page.Scrape(source, ok) }, Tell: func(x measurement.EngineSample) {
			d.mu.Lock()
			x.Step = d.step
			d.mu.Unlock()
			d.page.Sample(x)
			tell(x)
		}})
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	var work sync.WaitGroup
	work.Go(func() { s.Run(ctx) })
	return work.Wait, nil
}

// interruptedLinger is how long a run that was told to stop lingers at most.
const interruptedLinger = 5 * time.Second

// linger serves the last figures for as long as was asked, or until the process is told to stop once more.
func (d *watched) linger(ctx context.Context) {
	last := time.Duration(d.flags.Linger)
	if d.server == nil || last <= 0 {
		return
	}
	told := ctx.Done()
	if ctx.Err() != nil {
		last, told = min(last, interruptedLinger), nil // a second signal ends the process
	}
	fmt.Fprintf(d.err, "serving the last figures for %v; Ctrl-C ends it\n", last)
	select {
	case <-time.After(last):
	case <-told:
	}
}

// flushWithin is how long the last spans and metrics may take to be sent.
const flushWithin = 5 * time.Second

// close lets the last figures be read, sends what is left, and ends. It is given the run's end.
func (d *watched) close(ctx context.Context, err error) {
	switch {
	case err == nil:
		d.setState("done")
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		d.setState("interrupted")
	default:
		d.setState("failed")
	}
	d.linger(ctx)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	if err := d.metrics.Shutdown(flush); err != nil {
		d.log.Warn("some spans or metrics could not be sent", "err", err)
	}
	d.stop()
	d.work.Wait()
}
