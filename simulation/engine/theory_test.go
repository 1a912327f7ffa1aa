package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
)

// clockwork is an engine whose steps cost what its overheads say and next to nothing else: a queue of the textbooks.
func clockwork(t testing.TB, servers int, o gpu.Overheads) *Engine {
	t.Helper()
	all := gpu.Curve{{M: 1, Fraction: 1}}
	product := gpu.Product{Compute: all, Stream: all}
	c := preset(t, "demo", "demo")
	c.GPU = gpu.GPU{Name: "clockwork", Memory: 1 << 40, Bandwidth: 1e20, BF16: 1e22, PCIe: 1e20, Overheads: &o, Kernels: gpu.Kernels{
		BF16: product, FP8: product, Experts: product, Experts4: product,
		Prefill: []gpu.Prefill{{HeadDim: 128, Fraction: 1}}, Decode: []gpu.Decode{{HeadDim: 128, Fraction: 1}},
		Pass: gpu.Pass{Launch: 1, Fraction: 1},
	}}
	c.Recipe.Kind, c.Recipe.KVScheme, c.Recipe.SyncScheduling = VLLM, kv.Ideal, true // prefill and decode share a step
	c.Recipe.MaxRunning, c.Recipe.KVTokens, c.Recipe.NoPrefix, c.Recipe.ContextLimit = servers, 10_000_000, true, c.Model.ContextLimit
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// waits is the mean time from arrival to admission.
type waits struct {
	sent map[uint64]time.Duration
	sum  time.Duration
	n    int
}

func (w *waits) Admitted(id uint64, at time.Duration, _ int) {
	w.sum += at - w.sent[id]
	w.n++
	delete(w.sent, id)
}
func (w *waits) Tokens(uint64, time.Duration, int)      {}
func (w *waits) Burst([]uint64, []time.Duration)        {}
func (w *waits) Finished(uint64, time.Duration, Finish) {}

// play submits requests that arrive as a Poisson process, and returns their mean wait.
func play(e *Engine, requests int, rate float64, tokens func(*rand.Rand) int) time.Duration {
	random := rand.New(rand.NewPCG(3, 7))
	w := &waits{sent: map[uint64]time.Duration{}}
	at := time.Duration(0)
	prompt := []Token{1, 2, 3, 4}
	for id := range uint64(requests) {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		e.AdvanceTo(at, w)
		w.sent[id] = at
		e.Submit(at, Request{ID: id, Call: int(id), Prompt: prompt, MaxTokens: tokens(random)})
	}
	for at, ok := e.Quiet(); ok; at, ok = e.Quiet() {
		e.AdvanceTo(at, w)
	}
	return w.sum / time.Duration(w.n)
}

// One place and steps of one length make an M/D/1 queue: the mean wait is rho * D / (2 * (1 - rho)).
func TestMD1(t *testing.T) {
	const step = 10 * time.Millisecond
	for _, rho := range []float64{.3, .6, .8} {
		e := clockwork(t, 1, gpu.Overheads{Prefill: step})
		got := play(e, 600_000, rho/step.Seconds(), func(*rand.Rand) int { return 1 })
		want := rho * step.Seconds() / (2 * (1 - rho))
		check(t, "M/D/1", rho, got, want)
	}
}

// c places and exponential numbers of tokens make an M/M/c queue: the mean wait is Erlang's C / (c*mu - lambda).
func TestMMc(t *testing.T) {
	const (
		step = time.Millisecond
		mean = 400.
	)
	for _, q := range []struct {
		c   int
		rho float64
	}{{1, .6}, {4, .7}} {
		e := clockwork(t, q.c, gpu.Overheads{Prefill: step, Decode: step})
		mu := 1 / (mean * step.Seconds())
		rate := q.rho * float64(q.c) * mu
		got := play(e, 250_000, rate, func(r *rand.Rand) int { return 1 + int(r.ExpFloat64()*mean) })
		check(t, "M/M/c", q.rho, got, erlangC(q.c, rate/mu)/(float64(q.c)*mu-rate))
	}
}

// erlangC is the probability that an arrival waits, with c servers and a load of a.
func erlangC(c int, a float64) float64 {
	term, sum := 1., 0.
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	term *= float64(c) / (float64(c) - a)
	return term / (sum + term)
}

func check(t *testing.T, queue string, rho float64, got time.Duration, want float64) {
	t.Helper()
	off := got.Seconds()/want - 1
	t.Logf("%s at %.1f: mean wait %.3f ms, theory %.3f ms, %+.2f %%", queue, rho, got.Seconds()*1e3, want*1e3, 100*off)
	if math.Abs(off) > .02 {
		t.Errorf("%s at %.1f: mean wait %v, want %.6f s within 2 %%", queue, rho, got, want)
	}
}
