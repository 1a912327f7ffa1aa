package anchor

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/generator/openai"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// pipes is a network without delay, inside a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// overHTTP measures an engine model behind the mock server.
func overHTTP(t *testing.T, cfg engine.Config, p Plan, noReport bool) (d Data, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eng, e := engine.New(cfg)
		if e != nil {
			t.Fatal(e)
		}
		wall := clock.NewWall()
		mock := mockserver.New(mockserver.Config{Kind: mockserver.Kind(cfg.Recipe.Kind), ModelName: "tiny", Now: wall.Now, NoCacheReport: noReport}, eng)
		network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: mock.Handler()}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(network) }()
		c := openai.Default()
		c.BaseURL, c.Model, c.Dial, c.Nonce, c.Limits = "http://mock", "tiny", network.Dial, 7, generator.Limits{}
		client, e := openai.New(c, wall, english(t))
		if e != nil {
			t.Fatal(e)
		}
		d, err = Measure(t.Context(), Target{Clock: wall, To: client, Lexicon: english(t), Nonce: 7}, setup(cfg), Server{}, p)
		wall.Wait()
		client.Close()
		_ = server.Close()
		<-served
		mock.Close()
	})
	return d, err
}

// The client on the mock server over HTTP reads what the endpoint in virtual time reads, to the last figure, and the fit is the same.
func TestReadingsOverHTTP(t *testing.T) {
	for _, kind := range []engine.Kind{engine.SGLang, engine.VLLM} {
		cfg := cpu(t, kind)
		p, err := Default(Limits{Context: 32768, Pool: 40000, Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		http, err := overHTTP(t, cfg, p, false)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(virtual(t, cfg, p, english(t)), http); d != "" {
			t.Errorf("%s (-virtual +HTTP):\n%s", kind, d)
		}
		if raceEnabled {
			continue
		}
		r, err := Fit(http, cfg.Model, Card{Name: "fitted", Memory: 64e9})
		if err != nil {
			t.Fatal(err)
		}
		if most, at := worst(t, cfg, r.GPU, http); most > .03 {
			t.Errorf("%s, %s: %.1f %% off, want at most 3 %%", kind, at, 100*most)
		}
	}
}

// A server that reports no cached tokens is measured as far as that goes, and the fit says what is missing.
func TestNoCacheReport(t *testing.T) {
	cfg := cpu(t, engine.VLLM)
	p, err := Default(Limits{Context: 32768, Pool: 40000, Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, err := overHTTP(t, cfg, p, true)
	if err != nil {
		t.Fatal(err)
	}
	if d.Cache != measurement.CacheNotReported || len(d.Skips) != 1 {
		t.Errorf("cache report %q, skips %q", d.Cache, d.Skips)
	}
	r, err := Fit(d, cfg.Model, Card{Name: "fitted", Memory: 64e9})
	if err != nil {
		t.Fatal(err)
	}
	if r.GPU.Anchor.Cached != 0 || r.GPU.Overheads.PromptToken != 0 || len(r.Notes) != 1 {
		t.Errorf("cached %d, a prompt token %v, notes %q: nothing is known of warm requests", r.GPU.Anchor.Cached, r.GPU.Overheads.PromptToken, r.Notes)
	}
	cfg.GPU = r.GPU
	if got := Doubts(cfg, Load{}); len(got) != 1 {
		t.Errorf("doubts %q, want one, of warm requests", got)
	}
}
