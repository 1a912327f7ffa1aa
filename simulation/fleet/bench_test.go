package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"kneefinder/simulation/engine"
)

// counting is a sink that takes bursts.
type counting struct{ tokens, ends int }

func (c *counting) Admitted(uint64, time.Duration, int)           {}
func (c *counting) Tokens(_ uint64, _ time.Duration, n int)       { c.tokens += n }
func (c *counting) Burst(ids []uint64, ats []time.Duration)       { c.tokens += len(ids) * len(ats) }
func (c *counting) Finished(uint64, time.Duration, engine.Finish) { c.ends++ }

// poisson is n requests at a rate, 512 tokens in and 512 out.
func poisson(n int, rate float64) (out []arrivalOf) {
	r := rand.New(rand.NewPCG(1, 2))
	at := 0.
	for id := range n {
		at += r.ExpFloat64() / rate
		out = append(out, arrivalOf{time.Duration(at * 1e9), engine.Request{ID: uint64(id), Call: id, Prompt: words(id, 512), MaxTokens: 512}})
	}
	return out
}

type driven interface {
	Submit(time.Duration, engine.Request)
	Quiet() (time.Duration, bool)
	AdvanceTo(time.Duration, engine.Sink)
}

func play(m driven, s engine.Sink, arrivals []arrivalOf) {
	for _, a := range arrivals {
		m.AdvanceTo(a.at, s)
		m.Submit(a.at, a.Request)
	}
	for at, ok := m.Quiet(); ok; at, ok = m.Quiet() {
		m.AdvanceTo(at, s)
	}
}

// BenchmarkFleet is 10,000 requests at 32/s on four engines behind each router; BenchmarkAlone the same engines without one, each with
// every fourth request.
func BenchmarkFleet(b *testing.B) {
	e := preset(b, "llama-3.1-8b", "h100")
	arrivals := poisson(10_000, 32)
	for _, policy := range []Policy{RoundRobin, LeastLoaded, PrefixAware, KV} {
		b.Run(string(policy), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := config(Replicas(4, e))
				c.Router.Policy = policy
				f, s := make1(b, c), &counting{}
				play(f, s, arrivals)
				if s.tokens != 10_000*512 || s.ends != 10_000 {
					b.Fatalf("%+v", s)
				}
			}
		})
	}
}

func BenchmarkAlone(b *testing.B) {
	e := preset(b, "llama-3.1-8b", "h100")
	arrivals := poisson(10_000, 32)
	b.ReportAllocs()
	for b.Loop() {
		s := &counting{}
		for k := range 4 {
			m, err := engine.New(e)
			if err != nil {
				b.Fatal(err)
			}
			var own []arrivalOf
			for i := k; i < len(arrivals); i += 4 {
				own = append(own, arrivals[i])
			}
			play(m, s, own)
		}
		if s.tokens != 10_000*512 {
			b.Fatalf("%+v", s)
		}
	}
}

// BenchmarkWideFleet is the same load for each of 64 engines, and BenchmarkFleet's number of requests.
func BenchmarkWideFleet(b *testing.B) {
	e := preset(b, "llama-3.1-8b", "h100")
	arrivals := poisson(10_000, 512)
	b.ReportAllocs()
	for b.Loop() {
		c := config(Replicas(64, e))
		c.Router.Policy = LeastLoaded
		f, s := make1(b, c), &counting{}
		play(f, s, arrivals)
		if s.tokens != 10_000*512 || s.ends != 10_000 {
			b.Fatalf("%+v", s)
		}
	}
}
