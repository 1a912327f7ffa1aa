package analysis

import (
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"kneefinder/measurement"
)

// sent is a log of first turns alone: a step of so many seconds at each rate, whose gaps, in units of the mean gap, come from
// next; at turns an instant of the step into the one at which the call is sent.
func sent(rates []float64, length time.Duration, next func() float64, at func(time.Duration) time.Duration) measurement.Log {
	log := measurement.Log{Header: measurement.Header{Label: "sent", Config: testConfig()}}
	start := time.Duration(0)
	for i, lambda := range rates {
		s := measurement.Step{Step: i, Rate: lambda, Start: start, WindowStart: start + 30*second, WindowEnd: start + length, DrainEnd: start + length + 30*second}
		for n, t := 0, 0.; ; n++ {
			t += next() / lambda
			due := time.Duration(t * 1e9)
			if due > length {
				break
			}
			turn := aTurn(i, n, 1, start+due, 100*time.Millisecond)
			turn.Sent = start + due
			if at != nil {
				turn.Sent = start + at(due)
			}
			log.Turns = append(log.Turns, turn)
		}
		log.Steps = append(log.Steps, s)
		start = s.DrainEnd
	}
	return log
}

var ladderRates = []float64{.2, .4, .6, .8, 1, 1.2, 1.4, 1.6}

func TestArrivalsVector(t *testing.T) {
	gaps := []float64{.12, .95, .33, 2.10, .05, .71, 1.44, .28, .62, 3.05, .17, .88, .41, 1.02, .09, .54, 1.77, .23, .66, .37}
	is := func(name string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	scaled := make([]float64, len(gaps))
	for i, g := range gaps {
		scaled[i] = 1.2 * g
	}
	is("CV", variation(gaps), .98047, 1e-5)
	ks, ad := kolmogorovSmirnov(sorted(scaled)), andersonDarling(sorted(gaps))
	is("KS against 1.2/s", ks.Value, .094052, 1e-6)
	is("its p", ks.P, .98705, .006) // the exact one, which Stephens' correction comes close to
	is("A*", ad.Value, .133439, 1e-6)
	own := sentStep{rate: 1, length: 16 * second}
	at := 0.
	for _, g := range gaps {
		at += g
		own.at = append(own.at, time.Duration(math.Round(at*1e9)))
	}
	counts := own.counts(2 * second)
	is("chi-squared of counts in 2 s", chiSquared(counts), 2.4, 1e-9)
	is("its upper p", distuv.ChiSquared{K: 7}.Survival(chiSquared(counts)), .93444, 1e-5)
	for a, p := range map[float64]float64{1.062: .10, 1.321: .05, 1.959: .01} {
		is("p of A*", andersonDarlingP(a), p, .03*p)
	}
	for a, last := .01, 1.; a < 20; a += .01 { // the pieces meet, and none turns back
		p := andersonDarlingP(a)
		if p > last+2e-3 {
			t.Fatalf("p of A* %.2f is %v, more than %v just before", a, p, last)
		}
		last = p
	}
	for x, p := range map[float64]float64{.5: .96394, 1.17: .12937, 1.19: .11782, 1.3581: .05, 1.6276: .01} {
		is("Kolmogorov", kolmogorov(x), p, 1e-4)
	}
}

// TestPoissonIsCertified draws 200 Poisson runs of two kinds: each test must reject about one in twenty of them at 5 %, and
// hardly a run be refused. Where steps see few calls, the gap cut at each one's end counts.
func TestPoissonIsCertified(t *testing.T) {
	const runs = 200
	for _, c := range []struct {
		why    string
		rates  []float64
		length time.Duration
		tests  int
		jumpy  string // tests that count few things, whose p jumps over .05: these may reject less often
	}{
		{"many calls", ladderRates, 150 * second, 7, "whole seconds"},
		{"six calls a step", slices.Repeat([]float64{.02}, 10), 300 * second, 5, "whole seconds, lag-1, dispersion 60"},
	} {
		rejects, made, refused := map[string]int{}, map[string]int{}, 0
		for seed := range uint64(runs) {
			a := Certify(sent(c.rates, c.length, rand.New(rand.NewPCG(seed, 1)).ExpFloat64, nil))
			if !a.Certified {
				refused++
			}
			tests := map[string]*measurement.Test{"KS": a.KS, "AD": a.AD, "lag-1": a.Lag1, "whole seconds": a.WholeSeconds}
			for _, d := range a.Dispersion {
				tests["dispersion "+rate(d.WindowS)] = &d.Test
			}
			for name, test := range tests {
				made[name]++
				if test.P < .05 {
					rejects[name]++
				}
			}
		}
		for name, n := range made {
			share := float64(rejects[name]) / runs
			if n != runs || share > .09 || share < .02 && !strings.Contains(c.jumpy, name) {
				t.Errorf("%s: %s, made in %d of %d runs, rejects %.1f %% of Poisson runs at 5 %%, want 2 to 9", c.why, name, n, runs, 100*share)
			}
		}
		if len(made) != c.tests || refused > 3 {
			t.Errorf("%s: %d tests made, want %d; %d of %d Poisson runs not certified, want hardly any", c.why, len(made), c.tests, refused, runs)
		}
	}
}

func TestNotPoissonIsCaught(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	var again float64
	for _, c := range []struct {
		why  string
		next func() float64
		at   func(time.Duration) time.Duration
		says string
	}{
		{"Erlang-2 gaps, as of every second call of a Poisson process", func() float64 { return (r.ExpFloat64() + r.ExpFloat64()) / 2 }, nil, "gaps between calls are not exponential"},
		{"uniform gaps", func() float64 { return 2 * r.Float64() }, nil, "gaps between calls are not exponential"},
		{"constant gaps", func() float64 { return 1 }, nil, "gaps between calls"},
		{"hyperexponential gaps, CV 2", func() float64 { // balanced means
			if r.Float64() < .8873 {
				return r.ExpFloat64() / (2 * .8873)
			}
			return r.ExpFloat64() / (2 * .1127)
		}, nil, "gaps between calls are not exponential"},
		{"calls that snap to whole seconds, half of them", r.ExpFloat64, func(at time.Duration) time.Duration {
			if r.Float64() < .5 {
				return at.Truncate(time.Second) + 200*time.Microsecond
			}
			return at
		}, "came within 1 ms of a whole second"},
		{"each gap twice, as two workers of one seed send", func() float64 {
			if again > 0 {
				g := again
				again = 0
				return g
			}
			again = r.ExpFloat64()
			return again
		}, nil, "resembles the one before it"},
		{"a tenth faster than asked and half of the time idle", func() float64 {
			if r.Float64() < .02 {
				return 5 + r.ExpFloat64()
			}
			return .9 * r.ExpFloat64()
		}, nil, ""},
		{"a generator that stalls for 20 s of every minute, then sends what is due", r.ExpFloat64, func(at time.Duration) time.Duration {
			if in := at % time.Minute; in < 20*second {
				return at - in + 20*second
			}
			return at
		}, "counts in windows of 10 s"},
		{"half the rate asked", func() float64 { return 2 * r.ExpFloat64() }, nil, "of the rate asked"},
	} {
		log := sent(ladderRates, 300*second, c.next, c.at)
		res := Analyze(log)
		warning := notCertified(res.Arrivals)
		if res.Arrivals.Certified || !strings.HasPrefix(warning, "The load that was sent is not Poisson: ") || !strings.Contains(warning, c.says) {
			t.Errorf("%s: certified %v, warning %q, want one with %q", c.why, res.Arrivals.Certified, warning, c.says)
		}
		if !slices.Contains(res.Warnings, warning) || !strings.HasPrefix(certificate(perSecond, res.Arrivals), "not Poisson (") {
			t.Errorf("%s: warnings %q, summary %q", c.why, res.Warnings, certificate(perSecond, res.Arrivals))
		}
	}
}

func TestWhatIsCertified(t *testing.T) {
	poissonLog := func() measurement.Log {
		return sent(ladderRates, 300*second, rand.New(rand.NewPCG(5, 1)).ExpFloat64, nil)
	}
	whole := len(poissonLog().Turns)
	for _, c := range []struct {
		why       string
		edit      func(*measurement.Log)
		process   string
		calls     int // -1: any
		tested    bool
		certified bool
		says      string
	}{
		{"a Poisson run", func(*measurement.Log) {}, "poisson", whole, true, true, "certified Poisson ("},
		{"other arrivals have a truth of their own", func(l *measurement.Log) { l.Header.Config.Arrivals = "gamma:2" }, "gamma:2", whole, true, false, "gamma:2, as asked; tested against Poisson ("},
		{"a closed loop is not tested", func(l *measurement.Log) { l.Header.Config.Arrivals = "closed" }, "closed", whole, false, false, "queueing stays hidden"},
		{"a shard sends its part of the rate", func(l *measurement.Log) {
			l.Header.Shard = "1/2"
			for i := range l.Steps {
				l.Steps[i].Rate *= 2
			}
		}, "poisson", whole, true, true, "certified Poisson ("},
		{"few calls", func(l *measurement.Log) { l.Steps, l.Turns = l.Steps[:1], l.Turns[:19] }, "poisson", 19, false, false, "too few calls to certify (19 calls"},
		{"nothing sent", func(l *measurement.Log) { l.Steps, l.Turns = nil, nil }, "poisson", 0, false, false, "too few calls to certify (0 calls)."},
		{"calls that were never sent and later turns do not count", func(l *measurement.Log) {
			never := l.Turns[len(l.Turns)-1]
			never.Call, never.Sent, never.Outcome = 7777777, measurement.Never, measurement.Canceled
			l.Turns = append(l.Turns, never, aTurn(0, 3, 2, 20*second, 50*time.Millisecond))
		}, "poisson", whole, true, true, "certified"},
		{"a step cut before its window's end counts to its last call", func(l *measurement.Log) {
			l.Steps[7].WindowEnd, l.Steps[7].DrainEnd = measurement.Never, measurement.Never
		}, "poisson", whole, true, true, "certified"},
		{"from the first call that the cap held on a step does not count", func(l *measurement.Log) {
			capped := 0
			for i := range l.Turns {
				if t := &l.Turns[i]; t.Step == 7 && t.Due > l.Steps[7].Start+60*second {
					if t.Held = measurement.Never; capped%3 == 0 {
						t.Held = t.Due + 40*time.Second
						t.Sent = t.Held
					}
					capped++
				}
			}
		}, "poisson", -1, true, true, "certified"},
	} {
		log := poissonLog()
		c.edit(&log)
		a := Certify(log)
		if a.Process != c.process || c.calls >= 0 && a.Calls != c.calls || (a.KS != nil) != c.tested || a.Certified != c.certified || !strings.Contains(certificate(perSecond, a), c.says) {
			t.Errorf("%s: process %s, %d calls, KS made %v, certified %v, %q; want %s, %d, %v, %v, %q", c.why, a.Process, a.Calls, a.KS != nil, a.Certified, certificate(perSecond, a), c.process, c.calls, c.tested, c.certified, c.says)
		}
		if w := notCertified(a); w != "" {
			t.Errorf("%s: an alarm: %q", c.why, w)
		}
	}
	if s := certificate(perSecond, measurement.Arrivals{}); s != "" {
		t.Errorf("results without a certificate: %q", s)
	}
}

func TestABurstCanBeWritten(t *testing.T) {
	log := sent([]float64{1}, 60*second, func() float64 { return 1 }, func(time.Duration) time.Duration { return 0 })
	r := Analyze(log)
	if err := measurement.WriteResults(io.Discard, r); err != nil || r.Arrivals.Certified || r.Arrivals.AD != nil {
		t.Errorf("calls sent all at once: %v, certified %v, AD %v", err, r.Arrivals.Certified, r.Arrivals.AD)
	}
}

func TestCertificateInWords(t *testing.T) {
	test := func(v, p float64) *measurement.Test { return &measurement.Test{Value: v, P: p} }
	a := measurement.Arrivals{Process: "poisson", Calls: 312, Certified: true, KS: test(.05, .42), AD: test(.6, .0049), CV: figure(1.018), Lag1: test(.01, .8), WholeSeconds: test(0, 1),
		Dispersion: []measurement.WindowTest{{WindowS: 1, Test: *test(.981, .8)}, {WindowS: 10, Test: *test(1.2, .8)}}, LagP50: figure(.1), LagP99: figure(1.2), LagMax: figure(123.4)}
	want := "certified Poisson (312 calls, KS p .42, AD p .005, CV 1.02, dispersion .981/1.2 in windows of 1/10 s, schedule lag P50 .1, P99 1.2, max 123 ms)."
	if got := certificate(perSecond, a); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.Certified, a.KS, a.Lag1 = false, test(.3, 1e-9), test(.5, 0)
	want = "The load that was sent is not Poisson: a gap resembles the one before it (autocorrelation .5); gaps between calls do not follow the exponential distribution of the rate asked (KS .3); so the knee is not that of Poisson calls."
	if got := notCertified(a); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWindowsOfATinyRateAreNotCounted(t *testing.T) {
	// A call in a year: its seconds, three billion of a century, hold no call each, and do not fit in memory.
	s := sentStep{rate: 1 / (365 * 86400.), length: 100 * 365 * 24 * time.Hour}
	for i := range 100 {
		s.at = append(s.at, time.Duration(i)*365*24*time.Hour)
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		if d := countDispersion([]sentStep{s}, w); d != nil {
			t.Errorf("windows of %v: %v, want none", w, *d)
		}
	}
	runtime.ReadMemStats(&m1)
	if bytes := m1.TotalAlloc - m0.TotalAlloc; bytes > 1e6 {
		t.Errorf("%d bytes for windows that do not count", bytes)
	}
}
