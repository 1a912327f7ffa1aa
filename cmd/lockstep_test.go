// Package cmd holds tests of the whole house: which room may import which, and that the same load gives the same run over
// HTTP and in virtual time.
package cmd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/generator/openai"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// pipes is a listener whose connections are net.Pipe pairs: a network without delay, inside a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

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

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// notes keeps what a run tells.
type notes struct {
	mu    sync.Mutex
	steps []measurement.Step
	turns []measurement.Turn
}

func (n *notes) StepBegin(measurement.Step)       {}
func (n *notes) InFlight(time.Duration, int, int) {}
func (n *notes) StepEnd(s measurement.Step)       { n.mu.Lock(); n.steps = append(n.steps, s); n.mu.Unlock() }
func (n *notes) Turn(t measurement.Turn)          { n.mu.Lock(); n.turns = append(n.turns, t); n.mu.Unlock() }

// sorted returns the turns by (call, turn), without what only a wire has.
func (n *notes) sorted() []measurement.Turn {
	turns := append([]measurement.Turn(nil), n.turns...)
	sort.Slice(turns, func(i, j int) bool {
		a, b := turns[i], turns[j]
		return a.Call < b.Call || a.Call == b.Call && a.Turn < b.Turn
	})
	for i := range turns {
		t := &turns[i]
		t.WroteRequest, t.Admitted, t.Headers, t.FirstEvent, t.Reused = 0, 0, 0, 0, false
		t.Replica = 0
		t.FirstEventTokens = 0 // a stream tells only where it reports running usage
		if len(t.Gaps) == 0 {
			t.Gaps = nil
		}
	}
	return turns
}

func demoEngine(t *testing.T) engine.Config {
	t.Helper()
	c, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sweepVirtual(t *testing.T, c generator.Config, e engine.Config, rates []float64) *notes {
	t.Helper()
	eng, err := engine.New(e)
	if err != nil {
		t.Fatal(err)
	}
	var n notes
	clk, to := simulation.NewRun(eng, c.Script.Lexicon, generator.Limits{})
	clk.Run(t.Context(), func() { err = generator.Sweep(t.Context(), clk, to, &n, c, nil, generator.Rates(rates)) })
	if err != nil {
		t.Fatal(err)
	}
	return &n
}

func sweepHTTP(t *testing.T, c generator.Config, e engine.Config, rates []float64) *notes {
	t.Helper()
	var n notes
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New(e)
		if err != nil {
			t.Fatal(err)
		}
		wall := clock.NewWall()
		mock := mockserver.New(mockserver.Config{ModelName: "demo", Now: wall.Now}, eng)
		network := newPipes()
		server := &http.Server{Handler: mock.Handler()}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(network) }()
		cfg := openai.Default()
		cfg.BaseURL, cfg.Model, cfg.Dial, cfg.Nonce, cfg.Limits = "http://mock", "demo", network.Dial, c.Script.Nonce, generator.Limits{}
		client, err := openai.New(cfg, wall, c.Script.Lexicon)
		if err != nil {
			t.Fatal(err)
		}
		if err := generator.Sweep(t.Context(), wall, client, &n, c, nil, generator.Rates(rates)); err != nil {
			t.Error(err)
		}
		wall.Wait()
		client.Close()
		_ = server.Close()
		<-served
		mock.Close()
	})
	return &n
}

// traced is requests that share blocks, two of them whole prompts; two come at one instant.
const traced = `{"timestamp": 0, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
{"timestamp": 400, "input_length": 1700, "output_length": 8, "hash_ids": [5, 6, 7, 91]}
{"timestamp": 400, "input_length": 700, "output_length": 4, "hash_ids": [5, 60]}
{"timestamp": 900, "input_length": 1600, "output_length": 16, "hash_ids": [5, 6, 7, 90]}
{"timestamp": 1500, "input_length": 300, "output_length": 2}`

// single makes the calls of a sweep single requests.
func single(t *testing.T, c *generator.Config, r workload.Requests) {
	t.Helper()
	if err := r.Prepare(); err != nil {
		t.Fatal(err)
	}
	c.Script.Requests, c.Turns = &r, 1
}

// The same sweep against the mock server over HTTP, in a bubble of no network delay, and in virtual time is the same, turn
// by turn, to the nanosecond: under random gaps, under constant gaps (turns that end together are due together), and with
// the cap in force.
func TestHTTPEqualsVirtualTime(t *testing.T) {
	l, err := workload.LexiconByName("hindi")
	if err != nil {
		t.Fatal(err)
	}
	base := generator.Config{Script: workload.Script{Nonce: 42, Seed: 3, Lexicon: l, SystemWords: 2700, UserWords: 60,
		GapMin: 400 * time.Millisecond, GapMax: 800 * time.Millisecond},
		Turns: 4, OutputTokens: 16, Warmup: 3 * time.Second, StepDuration: 10 * time.Second, MaxStepDuration: time.Minute,
		Drain: 10 * time.Minute, MinTurns: 60, MaxConcurrentCalls: 400}
	for _, c := range []struct {
		name   string
		change func(*generator.Config)
		rates  []float64
	}{
		{"random gaps", func(*generator.Config) {}, []float64{1, 4}},
		{"constant gaps", func(c *generator.Config) { c.Script.GapMax = c.Script.GapMin }, []float64{2, 6}},
		{"no gaps", func(c *generator.Config) { c.Script.GapMin, c.Script.GapMax = 0, 0 }, []float64{2, 6}},
		{"the cap in force", func(c *generator.Config) { c.MaxConcurrentCalls = 5 }, []float64{1, 4}},
		{"the drain cut", func(c *generator.Config) { c.Drain = time.Second }, []float64{2}},
		{"requests with shared prefixes", func(c *generator.Config) {
			single(t, c, workload.Requests{Prompt: workload.Lengths{Kind: "lognormal", A: 400, B: .8}, Output: workload.Lengths{Kind: "uniform", A: 1, B: 30}, PrefixTokens: 900, Prefixes: 4, Zipf: 1})
		}, []float64{4, 16}},
		{"requests of a trace", func(c *generator.Config) {
			trace, err := workload.ReadTrace(strings.NewReader(traced), "trace", 0)
			if err != nil {
				t.Fatal(err)
			}
			single(t, c, workload.Requests{Trace: trace})
			c.Process = workload.Process{Kind: "trace", Trace: trace}
		}, []float64{2, 12}},
		{"requests one after another", func(c *generator.Config) {
			single(t, c, workload.Requests{Prompt: workload.Constant(700), Output: workload.Constant(9)})
			c.Closed = true
		}, []float64{1, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := base
			c.change(&cfg)
			virtual := sweepVirtual(t, cfg, demoEngine(t), c.rates)
			http := sweepHTTP(t, cfg, demoEngine(t), c.rates)
			a, b := virtual.sorted(), http.sorted()
			if len(a) != len(b) {
				t.Errorf("%d turns in virtual time, %d over HTTP", len(a), len(b))
			}
			differ, queued := 0, 0
			for i := range min(len(a), len(b)) {
				if d := cmp.Diff(a[i], b[i]); d != "" {
					if differ++; differ <= 3 {
						t.Errorf("turn %d of call %d (-virtual +HTTP):\n%s", a[i].Turn, a[i].Call, d)
					}
				}
				if ttft, ok := a[i].TTFT(); ok && ttft > 300*time.Millisecond {
					queued++
				}
			}
			if differ > 0 {
				t.Errorf("%d of %d turns differ", differ, len(a))
			}
			for i := range virtual.steps {
				v, h := virtual.steps[i], http.steps[i]
				v.LiveMax, h.LiveMax, v.ITL, h.ITL = 0, 0, nil, nil // at one instant an end and a begin may come in either order
				if d := cmp.Diff(fmt.Sprintf("%+v", v), fmt.Sprintf("%+v", h)); d != "" {
					t.Errorf("step %d (-virtual +HTTP):\n%s", i, d)
				}
			}
			t.Logf("%d turns, %d of them over 300 ms", len(a), queued)
		})
	}
}
