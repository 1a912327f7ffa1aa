package page

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// handClock tells the time that a test sets.
type handClock struct {
	*clock.Wall
	now atomic.Int64
}

func newHandClock() *handClock { return &handClock{Wall: clock.NewWall()} }

func (c *handClock) Now() time.Duration   { return time.Duration(c.now.Load()) }
func (c *handClock) set(at time.Duration) { c.now.Store(int64(at)) }

func ptr[T any](v T) *T { return &v }

var objective = measurement.Objective{Metric: "ttft", Quantile: .95, LimitMS: 300}

func header(rates ...float64) measurement.Header {
	return measurement.Header{Label: "L40S", Tool: "kneeload 0.9", Config: measurement.Config{Rates: rates, SystemPromptTokens: 18000, UserTokens: 60, Turns: 4,
		OutputTokens: 100, GapMinSeconds: 5, GapMaxSeconds: 7, WarmupSeconds: 30, StepSeconds: 90, MaxStepSeconds: 1200, DrainSeconds: 60,
		MinTurns: 60, SLO: []measurement.Objective{objective}},
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5.2", Model: "gemma-4-12b", GPU: "L40S", Fidelity: "measured",
			BaseURL: "http://ada:secret@gpu-7.example.net:30000/v1?key=secret"}}
}

// fillSteps are the rates of fill's run and what its steps measure.
var fillSteps = []struct {
	rate, came, p50, p95, p99, lo, hi, itl, hit, live, errors float64
	verdict                                                   measurement.Verdict
	flags                                                     []string
}{
	{.5, .48, 38, 61, 84, 52, 96, 11.2, .991, 11.1, 0, measurement.Pass, nil},
	{1, 1.04, 41, 92, 140, 74, 133, 12, .988, 22.4, 0, measurement.Pass, nil},
	{2, 1.93, 47, 188, 262, 141, 246, 14.1, .979, 46.5, 0, measurement.Pass, nil},
	{3, 3.08, 66, 412, 690, 287, 655, 19.8, .912, 77, .004, measurement.Fail, nil},
	{4, 4.5, 240, 1490, 2240, 1180, math.NaN(), 38.5, .61, 131, .026, measurement.Fail, []string{measurement.FlagUnstable, measurement.FlagErrors, measurement.FlagOffRate}},
}

func fillResult(i int) measurement.StepResult {
	s := fillSteps[i]
	r := measurement.StepResult{Step: i, Rate: s.rate, ArrivedRate: &s.came, WindowS: 90, MeasuredTurns: int(270 * s.rate), TTFTP50: &s.p50, TTFTP95: &s.p95,
		TTFTP99: &s.p99, TTFTP95CI: [2]*float64{&s.lo, &s.hi}, ITLP50: ptr(s.itl * .7), ITLP95: &s.itl, ITLBasis: "token", CacheHitRate: &s.hit,
		LiveCallsMean: &s.live, ErrorRate: &s.errors, Verdict: s.verdict, Flags: s.flags}
	if math.IsNaN(s.hi) {
		r.TTFTP95CI[1] = nil
	}
	return r
}

// fill tells a page a sweep up to an instant, as a generator, an engine's scraper and an analysis would: steps of 120 s, turns whose TTFT grows
// with the rate, a KV pool that fills and then evicts.
func fill(p *Page, c *handClock, until time.Duration) {
	rates := make([]float64, len(fillSteps))
	for i, s := range fillSteps {
		rates[i] = s.rate
	}
	p.SetRun(header(rates...))
	p.SetState(Running)
	rng := rand.New(rand.NewPCG(1, 2))
	const stepTime = 120 * time.Second
	var evictedTokens, pool = 0.0, 0.0
	number := -1
	calls := 0.0
	begun, ended := 0.0, 0.0
	live := 0
	for at := time.Duration(0); at <= until; at += 100 * time.Millisecond {
		c.set(at)
		if n := int(at / stepTime); n != number && n < len(fillSteps) {
			if number >= 0 {
				p.StepEnd(measurement.Step{Step: number, Rate: fillSteps[number].rate, WindowEnd: at - 15*time.Second})
				p.StepResult(fillResult(number))
				k := measurement.Knees{}
				if number >= 3 {
					k.SLO = measurement.Knee{Status: measurement.Found, Rate: ptr(2.0), Estimate: ptr(2.47), CI95: [2]*float64{ptr(2.12), ptr(2.94)},
						Note: "At 2 calls/s P95 TTFT is 188 ms (limit 300 ms); at 3 calls/s P95 TTFT is 412 ms (limit 300 ms; its 95 % interval, 287 to 655 ms, reaches under the limit)."}
				}
				m := measurement.Mechanism{}
				if number >= 3 {
					m = measurement.Mechanism{Name: "queueing_behind_cold_prefill", Confidence: "high",
						Evidence: []string{"38 of 41 turns over the limit waited while another call's first turn was being prefilled, 9 % of those in time.", "The cache hit rate fell from 98 % at 2 calls/s to 91 % at 3."}}
				}
				p.Results(measurement.Results{Knees: k, Mechanism: m})
			}
			number = n
			p.StepBegin(measurement.Step{Step: n, Rate: fillSteps[n].rate, Start: at, WindowStart: at + 30*time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never})
			begun, ended = 0, 0
		}
		s := fillSteps[number]
		in := (at - time.Duration(number)*stepTime).Seconds()
		target := s.live * (1 - math.Exp(-in/12))
		if in > 105 {
			target *= max(0, (119-in)/14)
		}
		calls += (target - calls) * .1
		if in < 105 {
			begun += s.rate * .1
		}
		for ; begun >= 1+rng.NormFloat64()*.4; begun-- {
			live++
			p.InFlight(at, live, live/7)
		}
		for live > int(calls) && live > 0 {
			live--
			p.InFlight(at, live, live/7)
		}
		for ended += s.rate * .3; ended >= 1; ended-- {
			// a log-normal turn whose median and P95 are the step's
			sigma := math.Log(s.p95/s.p50) / 1.645
			ttft := time.Duration(s.p50 * math.Exp(sigma*rng.NormFloat64()) * float64(time.Millisecond))
			turn := measurement.NewTurn()
			turn.Step, turn.Turn, turn.Phase, turn.Outcome = number, 2+rng.IntN(3), measurement.Window, measurement.OK
			turn.Due, turn.FirstToken = at-ttft, at
			turn.PromptTokens, turn.CachedTokens = 18200, int(18200*min(1, s.hit+rng.NormFloat64()*.01))
			if rng.Float64() < s.errors {
				turn.FirstToken, turn.Outcome = measurement.Never, measurement.TTFTTimeout
			}
			p.Turn(turn)
		}
		if at%time.Second == 0 {
			pool = min(.97, pool+.0011*s.rate)
			used := min(.9, float64(live)*.006)
			if pool+used > .97 {
				evictedTokens += 900 * s.rate * s.rate * (.8 + .4*rng.Float64())
			}
			cached := max(0, min(pool, .97-used))
			p.Sample(measurement.EngineSample{At: at, Values: map[string]float64{measurement.SampleKVPool: 480000, measurement.SampleKVUsed: 480000 * used,
				measurement.SampleKVCached: 480000 * cached, measurement.SampleKVFree: 480000 * (1 - used - cached), measurement.SampleEvicted: evictedTokens,
				measurement.SampleQueued: float64(max(0, live/7-9)), measurement.SampleRunning: float64(min(live/7, 9))}})
			busy := math.Tanh(s.rate / 2.2)
			p.Sample(measurement.EngineSample{At: at, Values: map[string]float64{measurement.SampleGPUUtil: min(1, busy+.1*rng.Float64()),
				measurement.SampleGPUTensor: busy * .45 * (.9 + .2*rng.Float64()), measurement.SampleGPUDRAM: busy * .7 * (.9 + .2*rng.Float64()),
				measurement.SampleGPUPower: 95 + 240*busy + 12*rng.Float64()}})
		}
	}
}

// filled is a page at 9 min of fill's sweep, in its last step.
func filled(at time.Duration) (*Page, *handClock) {
	c := newHandClock()
	p := New(Config{Clock: c, Started: time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC), Label: "L40S", Version: "kneeload 0.9.0", Links: []Link{{"metrics", "metrics"}, {"health", "-/healthy"}}})
	fill(p, c, at)
	return p, c
}
