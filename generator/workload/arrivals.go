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
	Kind     string        // "" or "poisson", "constant", "gamma", "ramp", "wave", "burst", "onoff", "recorded", "trace"
	CV       float64       // of gamma's gaps: 1 is Poisson, more is burstier
	Over     time.Duration // ramp: how long the rate takes to go From To, and then stays; wave: its period
	From, To float64       // ramp: in parts of the rate asked; both 0 is from 0 to the rate itself
	Depth    float64       // wave: how far the rate swings around the one asked, as a part of it, up to 1
	Ratio    float64       // burst: how many times the rate between bursts the rate in them is
	On, Off  time.Duration // burst, onoff: the mean lengths of bursts and of what is between, both exponential
	Recorded []Arrival     // rising; the rate asked only names them
	Trace    *Trace        // whose gaps are kept in shape; the rate asked sets its speed
	Once     bool          // trace: no arrivals behind its last, instead of its first again
	Begin    int           // trace: the number of the request with which it begins, a gap after the start unless it is the first
	Shard    int           // this process is one of Shards with streams of their own, from 0
	Shards   int           // how many share the rate; 0 is 1
}

// leastSojourn keeps the state of a burst from changing so often that it takes long to tell when the next call comes.
const leastSojourn = 10 * time.Millisecond

// ParseProcess reads "poisson", "constant", "gamma:CV", "ramp:DURATION", "ramp:A-B:DURATION", "wave:DEPTH:PERIOD",
// "burst:RATIO:ON:OFF" or "onoff:ON:OFF".
func ParseProcess(text string) (Process, error) {
	fields := strings.Split(text, ":")
	kind, args := fields[0], fields[1:]
	number := func(i int, least, most float64) (float64, bool) {
		v, err := strconv.ParseFloat(args[i], 64)
		return v, err == nil && v >= least && v <= most
	}
	span := func(i int, least time.Duration) (time.Duration, bool) {
		d, err := time.ParseDuration(args[i])
		return d, err == nil && d >= least && d.Seconds() < lastArrival/100
	}
	p := Process{Kind: kind}
	var ok, ok2, ok3 bool
	switch kind + strconv.Itoa(len(args)) {
	case "poisson0", "constant0":
		return p, nil
	case "gamma1":
		if p.CV, ok = number(0, 0, 100); ok && p.CV > 0 {
			return p, nil
		}
	case "ramp1":
		if p.Over, ok = span(0, 1); ok {
			return p, nil
		}
	case "ramp2":
		from, to, two := strings.Cut(args[0], "-")
		args = []string{from, to, args[1]}
		if two {
			p.From, ok = number(0, 0, 1000)
			p.To, ok2 = number(1, 0, 1000)
			if p.Over, ok3 = span(2, 1); ok && ok2 && ok3 && p.From+p.To > 0 {
				return p, nil
			}
		}
	case "wave2":
		p.Depth, ok = number(0, 0, 1)
		if p.Over, ok2 = span(1, 1); ok && ok2 && p.Depth > 0 {
			return p, nil
		}
	case "burst3":
		p.Ratio, ok = number(0, 1, 1e6)
		p.On, ok2 = span(1, leastSojourn)
		if p.Off, ok3 = span(2, leastSojourn); ok && ok2 && ok3 {
			return p, nil
		}
	case "onoff2":
		p.On, ok = span(0, leastSojourn)
		if p.Off, ok2 = span(1, leastSojourn); ok && ok2 {
			return p, nil
		}
	}
	return Process{}, fmt.Errorf("no arrivals %q; there are poisson, constant, gamma:CV such as gamma:2, ramp:DURATION such as ramp:30s, ramp:A-B:DURATION in parts of the rate "+
		"such as ramp:0.5-1.5:90s, wave:DEPTH:PERIOD such as wave:0.5:10m, burst:RATIO:ON:OFF such as burst:8:10s:50s, onoff:ON:OFF such as onoff:2s:8s (ON and OFF %v or more), or a file of instants", text, leastSojourn)
}

// String is what ParseProcess reads.
func (p Process) String() string {
	n := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	switch p.Kind {
	case "":
		return "poisson"
	case "gamma":
		return "gamma:" + n(p.CV)
	case "ramp":
		if p.Warms() {
			return "ramp:" + p.Over.String()
		}
		return "ramp:" + n(p.From) + "-" + n(p.To) + ":" + p.Over.String()
	case "wave":
		return "wave:" + n(p.Depth) + ":" + p.Over.String()
	case "burst":
		return "burst:" + n(p.Ratio) + ":" + p.On.String() + ":" + p.Off.String()
	case "onoff":
		return "onoff:" + p.On.String() + ":" + p.Off.String()
	}
	return p.Kind
}

// Warms reports whether the arrivals only rise to the rate asked, and then stay at it.
func (p Process) Warms() bool { return p.Kind == "ramp" && p.From == 0 && p.To == 0 }

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
	whole := rate * float64(shards)
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
		from, to := p.From, p.To
		if p.Warms() {
			to = 1
		}
		r.gap, r.warp = rng.ExpFloat64, rampInverse(from*rate, to*rate, p.Over.Seconds())
	case "wave":
		r.gap, r.warp = rng.ExpFloat64, waveInverse(rate, p.Depth, p.Over.Seconds())
	case "burst", "onoff":
		return newBursts(p, r, rng, Rand(seed, "bursts", step), rate) // shards burst together
	case "trace":
		return &traced{trace: p.Trace, scale: p.Trace.Rate() / whole, n: p.Shard, stride: shards, begin: p.Begin, once: p.Once}
	default:
		r.gap = func() float64 { return rng.ExpFloat64() / rate }
	}
	return r
}

// rampInverse is the inverse of the integral of an intensity that goes from a to b over a time and stays there: it turns unit-rate
// arrivals into those of a ramp. The integral is a*t + (b-a)*t*t/(2*over) on the ramp, and b more for each second after it.
func rampInverse(a, b, over float64) func(sum float64) float64 {
	whole := (a + b) / 2 * over
	return func(sum float64) float64 {
		if sum <= 0 {
			return 0
		}
		if sum >= whole {
			return over + (sum-whole)/b
		}
		// The root of the quadratic, in the form that holds for a = b too.
		return 2 * sum / (a + math.Sqrt(a*a+2*(b-a)*sum/over))
	}
}

// waveInverse is the inverse of the integral of rate*(1 + depth*sin(2*pi*t/period)), which is rate*(t + swing*(1 - cos(2*pi*t/period)))
// with swing = depth*period/(2*pi): so t is between sum/rate - 2*swing and sum/rate, and bisection finds it.
func waveInverse(rate, depth, period float64) func(sum float64) float64 {
	swing := depth * period / (2 * math.Pi)
	return func(sum float64) float64 {
		u := sum / rate
		lo, hi := max(0, u-2*swing), u
		for range 60 {
			mid := (lo + hi) / 2
			if mid+swing*(1-math.Cos(2*math.Pi*mid/period)) < u {
				lo = mid
			} else {
				hi = mid
			}
		}
		return hi
	}
}

// bursts is a Poisson process whose rate is switched between two by a Markov chain in continuous time (MMPP-2); the mean rate is the
// one asked.
type bursts struct {
	r          *renewal // numbers the calls
	rng, state *rand.Rand
	rate, stay [2]float64 // between bursts and in them: calls/s, mean seconds
	in         int        // 1 in a burst
	at, until  float64
}

func newBursts(p Process, r *renewal, rng, state *rand.Rand, rate float64) *bursts {
	b := &bursts{r: r, rng: rng, state: state, stay: [2]float64{p.Off.Seconds(), p.On.Seconds()}}
	on := b.stay[1] / (b.stay[0] + b.stay[1]) // the share of time
	if p.Kind == "onoff" {
		b.rate[1] = rate / on
	} else {
		b.rate[0] = rate / (1 - on + on*p.Ratio)
		b.rate[1] = p.Ratio * b.rate[0]
	}
	if state.Float64() < on {
		b.in = 1
	}
	b.until = b.stay[b.in] * state.ExpFloat64()
	return b
}

func (b *bursts) Next() (Arrival, bool) {
	for need := b.rng.ExpFloat64(); ; {
		if has := (b.until - b.at) * b.rate[b.in]; need < has {
			b.at += need / b.rate[b.in]
			return b.r.arrival(b.at)
		} else {
			need -= has
		}
		b.at, b.in = b.until, 1-b.in
		b.until += b.stay[b.in] * b.state.ExpFloat64()
		if !(b.at < lastArrival) {
			return Arrival{}, false
		}
	}
}

// traced are the instants of a trace, stretched. Shards take its requests in turn.
type traced struct {
	trace     *Trace
	scale     float64
	n, stride int
	begin     int
	once      bool
}

func (t *traced) Next() (Arrival, bool) {
	if t.once && t.begin+t.n >= t.trace.Len() {
		return Arrival{}, false
	}
	at := (t.trace.instant(t.begin+t.n) - t.trace.instant(max(0, t.begin-1))) * t.scale
	if !(at < lastArrival*float64(time.Second)) {
		return Arrival{}, false
	}
	a := Arrival{At: time.Duration(math.Round(at)), N: t.n}
	t.n += t.stride
	return a, true
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
	return r.arrival(at)
}

// arrival numbers the one at an instant.
func (r *renewal) arrival(at float64) (Arrival, bool) {
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
