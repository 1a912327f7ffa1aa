package workload

import (
	"math/rand/v2"
	"time"
)

// Rand returns the stream of randomness for one purpose of one seed, further told apart by keys (a step, a call). Streams do
// not share state: a new draw in one shifts no other, so that a resumed or sharded run draws what the whole one would.
func Rand(seed uint64, purpose string, keys ...int) *rand.Rand {
	h := mix(seed)
	for _, b := range []byte(purpose) {
		h = mix(h ^ uint64(b))
	}
	lo := mix(h ^ 0x9e3779b97f4a7c15)
	for _, k := range keys {
		h = mix(h ^ uint64(k))
		lo = mix(lo + h)
	}
	return rand.New(rand.NewPCG(h, lo))
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit moves every output bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Arrivals is a process of call arrivals: Next returns the instant of the next one after the last, both counted from the
// start of the process.
type Arrivals interface {
	Next() time.Duration
}

// Poisson is the open-loop process of rate λ: gaps are independent and exponential with mean 1/λ.
type Poisson struct {
	rng  *rand.Rand
	rate float64
	at   float64 // s
}

// NewPoisson returns the arrivals of one step of a run; rate is in calls/s and more than 0.
func NewPoisson(seed uint64, step int, rate float64) *Poisson {
	return &Poisson{rng: Rand(seed, "arrivals", step), rate: rate}
}

// Next draws the next arrival. The sum is kept in seconds and rounded once, so that rounding does not add up.
func (p *Poisson) Next() time.Duration {
	p.at += p.rng.ExpFloat64() / p.rate
	return time.Duration(p.at * float64(time.Second))
}
