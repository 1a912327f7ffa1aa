// Package web serves a process's pages as Prometheus exporters do: metrics, a landing page, health, readiness and reload, with TLS,
// passwords and a rate limit from a web config file.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
)

// Config says what is served, and where. A nil handler or function leaves its path out.
type Config struct {
	ListenAddresses []string     // HOST:PORT or :PORT each; port 0 is any free one
	ConfigFile      string       // exporter-toolkit's web config: TLS, passwords, headers, rate limit; "" is plain HTTP. Read again on each request
	MetricsPath     string       // of Metrics; "/metrics" when empty
	Metrics         http.Handler // the metrics
	Page            http.Handler // answers "/", and "/events", whose stream may stay open: it ends when its request's context does
	Ready           func() bool  // whether /-/ready says yes; nil is always. Any goroutine calls it
	Reload          func() error // POST /-/reload: one at a time
	Log             *slog.Logger // nil logs nothing
	Limits          Limits       // what a client may take; zero fields have defaults
}

// Limits are how long a client may take.
type Limits struct {
	Header   time.Duration // to send a request's header; 10 s when 0
	Request  time.Duration // to send all of it; 30 s when 0
	Response time.Duration // to take an answer, streams apart; 60 s when 0
	Scrape   time.Duration // to take the metrics; 5 s when 0
	Shutdown time.Duration // for answers in progress once Serve is told to end; 5 s when 0
}

// Server is bound to its addresses from Listen on, and answers while Serve runs. Its methods may be called by any goroutine.
type Server struct {
	cfg       Config
	listeners []net.Listener
	handler   http.Handler

	reloading sync.Mutex

	closing     context.Context // ends when Serve does; streams end with it
	endStreams  context.CancelFunc
	closeSocket sync.Once
}

// plainPath is a path that no client and no proxy writes otherwise.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`)

// Listen binds every address and reads the web config, so that a taken port and a bad file are known before any load is sent. Close or
// Serve ends what it began.
func Listen(cfg Config) (*Server, error) {
	if cfg.MetricsPath == "" {
		cfg.MetricsPath = "/metrics"
	}
	if p := cfg.MetricsPath; !plainPath.MatchString(p) || path.Clean(p) != p || p == "/events" || strings.HasPrefix(p, "/-/") {
		return nil, fmt.Errorf("metrics path %q: it must be a slash and then letters, digits and . _ - /, and neither /events nor below /-/", p)
	}
	if len(cfg.ListenAddresses) == 0 {
		return nil, errors.New("no address to listen on; --web.listen-address wants HOST:PORT or :PORT")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.filled()
	if err := checkFile(cfg.ConfigFile); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	s.closing, s.endStreams = context.WithCancel(context.Background())
	s.handler = s.paths()
	for _, addr := range cfg.ListenAddresses {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			s.Close()
			return nil, listenError(addr, err)
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

func (l Limits) filled() Limits {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&l.Header, 10 * time.Second}, {&l.Request, 30 * time.Second}, {&l.Response, time.Minute}, {&l.Scrape, 5 * time.Second}, {&l.Shutdown, 5 * time.Second}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return l
}

// listenError says what can be done about an address that cannot be had.
func listenError(addr string, err error) error {
	const flag = "--web.listen-address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: the port is taken, perhaps by another kneeload; choose another with %s, or port 0 for any that is free", addr, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: not allowed; choose a port above 1023 with %s", addr, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s: this machine has no such address; choose another with %s, :PORT stands for all of them", addr, flag)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // without "listen tcp" again
	}
	return fmt.Errorf("listen on %s: %w; %s wants HOST:PORT or :PORT", addr, err, flag)
}

// checkFile reads a web config as each request will.
func checkFile(path string) error {
	if path == "" {
		return nil
	}
	const help = "its format is exporter-toolkit's web-configuration.md; without --web.config.file pages are plain HTTP for all"
	if err := toolkit.Validate(path); err != nil {
		text := strings.TrimPrefix(err.Error(), "open "+path+": ")
		if strings.Contains(text, "bcrypt") {
			text += " (passwords stand as bcrypt hashes, as htpasswd -nB writes them)"
		}
		return fmt.Errorf("web config %s: %s; %s", path, strings.Join(strings.Fields(text), " "), help)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("web config %s: %w", path, err)
	}
	var file struct {
		Limit struct {
			Burst    int           `yaml:"burst"`
			Interval time.Duration `yaml:"interval"`
		} `yaml:"rate_limit"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("web config %s: %w; %s", path, err, help)
	}
	if l := file.Limit; l.Interval < 0 || l.Interval > 0 && l.Burst <= 0 {
		return fmt.Errorf("web config %s: rate_limit with interval %v and burst %d refuses every request; burst must be 1 or more", path, l.Interval, l.Burst)
	}
	return nil
}

// Addrs are the addresses bound, in the order of Config.ListenAddresses, with the port that was had for port 0.
func (s *Server) Addrs() []net.Addr {
	var out []net.Addr
	for _, l := range s.listeners {
		out = append(out, l.Addr())
	}
	return out
}

// Close lets the addresses go. Serve does so itself.
func (s *Server) Close() {
	s.closeSocket.Do(func() {
		s.endStreams()
		for _, l := range s.listeners {
			_ = l.Close() // a second close, after Serve's, says so
		}
	})
}

// Serve answers until ctx ends, and then, once, lets answers in progress end: streams at once, others within Limits.Shutdown. It
// returns when all it started has ended; nil after ctx's end, or why an address could not be served.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	ended := make(chan error, len(s.listeners))
	var servers []*http.Server
	for _, l := range s.listeners { // one server each: the toolkit wraps its server's handler
		srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: s.cfg.Limits.Header, ReadTimeout: s.cfg.Limits.Request,
			WriteTimeout: s.cfg.Limits.Response, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn)}
		servers = append(servers, srv)
		plain := false
		flags := &toolkit.FlagConfig{WebListenAddresses: &s.cfg.ListenAddresses, WebSystemdSocket: &plain, WebConfigFile: &s.cfg.ConfigFile}
		go func() { ended <- toolkit.Serve(l, srv, flags, s.cfg.Log) }()
	}
	left := len(servers)
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	s.endStreams()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Limits.Shutdown)
	defer cancel()
	var stop sync.WaitGroup
	for _, srv := range servers {
		stop.Go(func() {
			if srv.Shutdown(grace) != nil {
				_ = srv.Close() // who still takes its answer loses it
			}
		})
	}
	stop.Wait()
	s.Close()
	for ; left > 0; left-- {
		if e := <-ended; err == nil && !errors.Is(e, http.ErrServerClosed) && ctx.Err() == nil {
			err = e
		}
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the web pages: %w", err)
	}
	return nil
}
