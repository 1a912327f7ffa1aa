// Package scrape reads what an engine and its GPUs say of themselves, on the clock of a run.
//
// It never touches the measurement: it has a client, connections and goroutines of its own, and what it cannot read is missing
// from its samples. A figure that the other side does not tell is absent, never 0.
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// Where samples come from, as Config.Count is told.
const (
	Engine = "engine"
	GPU    = "gpu"
)

// Config says what is read, how often, and who is told. The zero value of every field but Clock and the addresses works.
type Config struct {
	Clock       clock.Clock   // of the run; samples are stamped by it
	Engine      string        // where the engine's metrics are; a host without a path gets /metrics; "" for none
	GPUs        []string      // where GPU exporters are, one a machine; alike
	Header      http.Header   // sent to the engine and to no GPU exporter; never logged
	InsecureTLS bool          // do not check the engine's certificate
	Interval    time.Duration // from scrape to scrape, at whole multiples of it on the clock; 1 s when 0
	Timeout     time.Duration // the longest scrape; 5 s when 0
	Log         *slog.Logger  // told when a source begins to fail and when it recovers; nil for nobody

	// Tell is told each sample; nil for nobody. It is called by one goroutine at a time and must not wait. The figures of several
	// GPU exporters come as one sample.
	Tell func(measurement.EngineSample)
	// Count is told of each scrape: of Engine or GPU, and whether the page was read to its end. Nil for nobody; it may be called
	// by several goroutines at once.
	Count func(source string, ok bool)

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // of tests
}

// Scraper reads its sources until it is told to stop.
type Scraper struct {
	cfg     Config
	sources []*source
	client  *http.Client
	closed  func()

	mu   sync.Mutex
	step int
	gpus gpuPages
}

// New checks the configuration: it says which field is wrong and why.
func New(c Config) (*Scraper, error) {
	if c.Clock == nil {
		return nil, errors.New("scrape: there is no clock")
	}
	if c.Interval < 0 || c.Timeout < 0 {
		return nil, fmt.Errorf("scrape: an interval of %v and a timeout of %v: neither may be negative", c.Interval, c.Timeout)
	}
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Tell == nil {
		c.Tell = func(measurement.EngineSample) {}
	}
	if c.Count == nil {
		c.Count = func(string, bool) {}
	}
	s := &Scraper{cfg: c, gpus: make(gpuPages, len(c.GPUs))}
	s.client, s.closed = newClient(c)
	if c.Engine != "" {
		src, err := newSource(Engine, c.Engine)
		if err != nil {
			return nil, fmt.Errorf("the engine's metrics: %w", err)
		}
		src.header = c.Header.Clone()
		s.sources = append(s.sources, src)
	}
	for i, u := range c.GPUs {
		src, err := newSource(GPU, u)
		if err != nil {
			return nil, fmt.Errorf("the GPUs' metrics: %w", err)
		}
		src.number = i
		s.sources = append(s.sources, src)
	}
	return s, nil
}

// SetStep says to which step the samples from here on belong. Any goroutine may call it.
func (s *Scraper) SetStep(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = n
}

// Run scrapes until ctx ends, each source in a goroutine of its own and never twice at once: a scrape that takes longer than the
// interval costs those that would have begun meanwhile. It returns when all of them have ended.
func (s *Scraper) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, src := range s.sources {
		all.Go(func() { s.watch(ctx, src) })
	}
	all.Wait()
	s.closed()
}

func (s *Scraper) watch(ctx context.Context, src *source) {
	every := s.cfg.Interval
	for at := (max(0, s.cfg.Clock.Now()) + every - 1) / every * every; s.cfg.Clock.SleepUntil(ctx, at) == nil; {
		s.scrape(ctx, src, at)
		at = (max(0, s.cfg.Clock.Now())/every + 1) * every
	}
}

// scrape reads a source once, as was due, and tells what it says.
//
// A page is made somewhere between the request and the first byte of the answer, so a sample is stamped in the middle of the
// two: at most half the server's delay from the truth, and on average right, where the end of the read would always be late - by
// tens of milliseconds on a server that gathers its page from many processes.
func (s *Scraper) scrape(ctx context.Context, src *source, due time.Duration) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	sent := s.cfg.Clock.Now()
	answered := sent
	body, err := src.get(limited, s.client, func() { answered = s.cfg.Clock.Now() })
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no whole page within %v", s.cfg.Timeout)
	}
	var p page
	var v values
	if err == nil || body.torn {
		p = readPage(body, src.wants())
		v = src.read(p)
		switch {
		case body.torn && p.trouble != "":
			err = fmt.Errorf("%w (%s)", err, p.trouble)
		case err == nil && len(v) == 0:
			err = errors.New(src.nothing())
		}
	}
	s.cfg.Count(src.kind, err == nil)
	src.report(s.cfg.Log, p.trouble, err)
	if len(v) == 0 {
		return
	}
	s.tell(src, due, sent+(answered-sent)/2, v)
}

func (s *Scraper) tell(src *source, due, at time.Duration, v values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src.kind == Engine {
		s.cfg.Tell(measurement.EngineSample{At: at, Step: s.step, Values: v})
		return
	}
	for _, together := range s.gpus.add(src.number, gpuSample{due, at, v}) {
		s.cfg.Tell(measurement.EngineSample{At: together.at, Step: s.step, Values: together.values})
	}
}

// newSource makes sense of an address.
func newSource(kind, address string) (*source, error) {
	a := address
	if !strings.Contains(a, "://") {
		a = "http://" + a
	}
	u, err := url.Parse(a)
	if err != nil {
		var in *url.Error
		if errors.As(err, &in) { // whose own text holds the address, and any password in it
			err = in.Err
		}
		return nil, fmt.Errorf("the address cannot be read: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no address such as http://127.0.0.1:30000/metrics", u.Redacted())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	u.Fragment = ""
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return &source{kind: kind, url: u.String(), shown: shown.String()}, nil
}

// Answers reports whether an engine's metrics are at the address, within two seconds.
func Answers(ctx context.Context, address string, header http.Header, insecureTLS bool) bool {
	src, err := newSource(Engine, address)
	if err != nil {
		return false
	}
	src.header = header
	client, closed := newClient(Config{Timeout: 2 * time.Second, InsecureTLS: insecureTLS})
	defer closed()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	b, err := src.get(ctx, client, func() {})
	return err == nil && len(src.read(readPage(b, src.wants()))) > 0
}
