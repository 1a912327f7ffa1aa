package workload

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Arrivals is a process of call arrivals: Next returns the next one, in order of instants, and false when there are no more.
type Arrivals interface {
	Next() (a Arrival, ok bool)
}

// Arrival is one call's.
type Arrival struct {
	At time.Duration // from the start of the process
	N  int           // the call's number in its step
}

// Process is a kind of arrivals. The zero value is Poisson.
type Process struct {
	Kind     string        // "" or "poisson", "constant", "gamma", "ramp", "recorded"
	CV       float64       // of gamma's gaps: 1 is Poisson, more is burstier
	Over     time.Duration // ramp: the rate rises from 0 to the asked one over this long, then stays
	Recorded []Arrival     // rising; the rate asked only names them
	Shard    int           // this process is one of Shards with streams of their own, from 0
	Shards   int           // how many share the rate; 0 is 1
}

// ParseProcess reads "poisson", "constant", "gamma:CV" or "ramp:DURATION".
func ParseProcess(text string) (Process, error) {
	kind, arg, _ := strings.Cut(text, ":")
	switch {
	case (kind == "poisson" || kind == "constant") && arg == "":
		return Process{Kind: kind}, nil
	case kind == "gamma":
		if cv, err := strconv.ParseFloat(arg, 64); err == nil && cv > 0 && cv <= 100 {
			return Process{Kind: kind, CV: cv}, nil
		}
	case kind == "ramp":
		if d, err := time.ParseDuration(arg); err == nil && d > 0 {
			return Process{Kind: kind, Over: d}, nil
		}
	}
	return Process{}, fmt.Errorf("no arrivals %q; there are poisson, constant, gamma:CV such as gamma:2, ramp:DURATION such as ramp:30s, or a file of instants", text)
}

// String is what ParseProcess reads.
func (p Process) String() string {
	switch p.Kind {
	case "":
		return "poisson"
	case "gamma":
		return "gamma:" + strconv.FormatFloat(p.CV, 'g', -1, 64)
	case "ramp":
		return "ramp:" + p.Over.String()
	}
	return p.Kind
}

// ReadInstants reads recorded arrivals: a number of seconds from the start of a step on each line, rising; empty lines and
// those that begin with # are passed over. A bad line is named as name:line.
func ReadInstants(r io.Reader, name string) ([]Arrival, error) {
	var out []Arrival
	in := bufio.NewScanner(r)
	for line := 1; in.Scan(); line++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || s < 0 || s > 1e9 || math.IsNaN(s) {
			return nil, fmt.Errorf("%s:%d: %q is no instant; give seconds from the start of the step, one a line", name, line, text)
		}
		at := time.Duration(math.Round(s * float64(time.Second)))
		if n := len(out); n > 0 && at < out[n-1].At {
			return nil, fmt.Errorf("%s:%d: %s s comes before the line above it; the instants must rise", name, line, text)
		}
		out = append(out, Arrival{At: at, N: len(out)})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: holds no instants", name)
	}
	return out, nil
}

// Arrivals are those of one step of a run at a rate in calls/s, more than 0. A shard's are an independent stream of its part
// of the rate, and it numbers its calls apart from the others'; the union of n Poisson shards is Poisson with the whole rate.
func (p Process) Arrivals(seed uint64, step int, rate float64) Arrivals {
	shards := max(p.Shards, 1)
	keys := []int{step}
	if shards > 1 {
		rate /= float64(shards)
		keys = append(keys, p.Shard)
	}
	rng := Rand(seed, "arrivals", keys...)
	r := &renewal{n: p.Shard, stride: shards}
	switch p.Kind {
	case "recorded":
		return &recorded{p.Recorded}
	case "constant":
		r.at = float64(p.Shard) / float64(shards) / rate // shards interleave
		r.gap = func() float64 { return 1 / rate }
	case "gamma":
		shape := 1 / (p.CV * p.CV)
		r.gap = func() float64 { return gamma(rng, shape) / (shape * rate) }
	case "ramp":
		r.gap, r.warp = rng.ExpFloat64, rampInverse(rate, p.Over.Seconds())
	default:
		r.gap = func() float64 { return rng.ExpFloat64() / rate }
	}
	return r
}

// rampInverse is the inverse of the integral of the intensity rate*min(1, t/over): it turns unit-rate arrivals into those of a
// ramp. The integral is rate*t*t/(2*over) on the ramp and rate*(t - over/2) after it.
func rampInverse(rate, over float64) func(sum float64) float64 {
	return func(sum float64) float64 {
		if t := sum/rate + over/2; t >= over {
			return t
		}
		return math.Sqrt(2 * sum * over / rate)
	}
}

// renewal has independent gaps of one distribution, in seconds. The sum is rounded once, so that rounding does not add up.
type renewal struct {
	at        float64
	gap       func() float64
	warp      func(float64) float64 // from the sum of gaps to the instant; nil for none
	n, stride int
}

// lastArrival is the last second that a time.Duration can tell of, with room for what follows a call.
const lastArrival = 9e9

func (r *renewal) Next() (Arrival, bool) {
	r.at += r.gap()
	at := r.at
	if r.warp != nil {
		at = r.warp(at)
	}
	if !(at < lastArrival) { // at a rate at which nothing comes in a lifetime
		return Arrival{}, false
	}
	a := Arrival{At: time.Duration(at * float64(time.Second)), N: r.n}
	r.n += r.stride
	return a, true
}

type recorded struct{ left []Arrival }

func (r *recorded) Next() (Arrival, bool) {
	if len(r.left) == 0 {
		return Arrival{}, false
	}
	a := r.left[0]
	r.left = r.left[1:]
	return a, true
}

// gamma draws from the gamma distribution of that shape and scale 1 (Marsaglia and Tsang 2000; below shape 1 with their boost).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(rng.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
