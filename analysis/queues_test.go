package analysis

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"kneefinder/measurement"
)

// A queue is a server whose knee is known: customers come at λ a second until an instant, and it says when each was answered.
// Cutting the arrivals changes none that came before, for the same r.
type queue struct {
	name     string
	capacity float64 // calls/s
	turns    int     // of a call
	simulate func(r *rand.Rand, lambda, until float64) []visit
	fresh    float64 // seconds after which it begins anew when its P95 is looked for; 0: never
	exact    float64 // P95 in seconds at .7 of the capacity, where a formula tells it; 0: a long run does
}

// visit is one turn: due and answered, in seconds. The first turn of a call is not measured.
type visit struct {
	call, turn int
	due, end   float64
	hit        bool
}

// atKnee is the share of the capacity at which the objective is set: λ* is this times the capacity.
const atKnee = .7

func queues() []queue {
	erlang4 := func(r *rand.Rand) float64 {
		return (r.ExpFloat64() + r.ExpFloat64() + r.ExpFloat64() + r.ExpFloat64()) / 4
	}
	return []queue{
		{name: "one server, service cv .5", capacity: 4, turns: 2, simulate: servers(1, func(r *rand.Rand) float64 { return erlang4(r) / 4 }, 0)},
		{name: "one server, constant service", capacity: 4, turns: 2, simulate: servers(1, func(*rand.Rand) float64 { return .25 }, 0)},
		{name: "eight servers", capacity: 4, turns: 2, simulate: servers(8, func(r *rand.Rand) float64 { return 2 * r.ExpFloat64() }, .1), exact: .1 + erlangCWait(8, .5, atKnee*4, .95)},
		{name: "processor sharing", capacity: 4, turns: 2, simulate: sharing(func(r *rand.Rand) float64 { return r.ExpFloat64() / 4 })},
		{name: "28 warm prefixes", capacity: .55, turns: 4, fresh: 328, simulate: prefixes(28, .05, .9, 4)},
	}
}

// servers is a queue in order of arrival before n servers. With a fixed wait for an answer once a server is free, TTFT is wait
// and that; with 0 it is wait and service.
func servers(n int, service func(*rand.Rand) float64, answer float64) func(*rand.Rand, float64, float64) []visit {
	return func(r *rand.Rand, lambda, until float64) []visit {
		free := make([]float64, n)
		var out []visit
		for t := r.ExpFloat64() / lambda; t < until; t += r.ExpFloat64() / lambda {
			i := 0
			for j := range free {
				if free[j] < free[i] {
					i = j
				}
			}
			begin := max(t, free[i])
			free[i] = begin + service(r)
			v := visit{call: len(out), turn: 2, due: t, end: free[i]}
			if answer > 0 {
				v.end = begin + answer
			}
			out = append(out, v)
		}
		return out
	}
}

type job struct {
	at    float64 // of attained service, when it ends
	index int
}

type jobs []job

func (h jobs) Len() int           { return len(h) }
func (h jobs) Less(i, j int) bool { return h[i].at < h[j].at }
func (h jobs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *jobs) Push(x any)        { *h = append(*h, x.(job)) }
func (h *jobs) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// sharing is one server that all customers share equally. Each has attained as much service as any other since it came, so the
// order of their ends is that of the attained service at which they end.
func sharing(work func(*rand.Rand) float64) func(*rand.Rand, float64, float64) []visit {
	return func(r *rand.Rand, lambda, until float64) []visit {
		var out []visit
		var in jobs
		now, attained := 0., 0.
		leave := func(before float64) {
			for len(in) > 0 {
				end := now + (in[0].at-attained)*float64(len(in))
				if end > before {
					break
				}
				now, attained = end, in[0].at
				out[heap.Pop(&in).(job).index].end = end
			}
		}
		for t := r.ExpFloat64() / lambda; t < until; t += r.ExpFloat64() / lambda {
			leave(t)
			if len(in) > 0 {
				attained += (t - now) / float64(len(in))
			}
			now = t
			heap.Push(&in, job{attained + work(r), len(out)})
			out = append(out, visit{call: len(out), turn: 2, due: t})
		}
		leave(math.Inf(1))
		return out
	}
}

type pending struct {
	visit
	gaps []float64
}

type agenda []pending

func (h agenda) Len() int           { return len(h) }
func (h agenda) Less(i, j int) bool { return h[i].due < h[j].due }
func (h agenda) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *agenda) Push(x any)        { *h = append(*h, x.(pending)) }
func (h *agenda) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// prefixes is one server with room for the prefixes of so many calls, the least lately used of which is forgotten: a turn
// whose prefix is there takes warm seconds, one whose prefix is not takes cold. Calls pause for 5 to 7 s between turns. Past its
// capacity the cache holds nothing long enough and the server collapses.
func prefixes(slots int, warm, cold float64, turns int) func(*rand.Rand, float64, float64) []visit {
	return func(r *rand.Rand, lambda, until float64) []visit {
		var out []visit
		var due agenda
		calls := 0
		for t := r.ExpFloat64() / lambda; t < until; t += r.ExpFloat64() / lambda {
			p := pending{visit: visit{call: calls, turn: 1, due: t}}
			for range turns - 1 {
				p.gaps = append(p.gaps, 5+2*r.Float64())
			}
			due = append(due, p)
			calls++
		}
		heap.Init(&due)
		var recent []int // calls, the least lately used first
		free := 0.
		for len(due) > 0 {
			p := heap.Pop(&due).(pending)
			begin := max(p.due, free)
			at := slices.Index(recent, p.call)
			p.hit = at >= 0
			service := cold
			if p.hit {
				service = warm
				recent = slices.Delete(recent, at, at+1)
			}
			if len(recent) == slots {
				recent = slices.Delete(recent, 0, 1)
			}
			recent = append(recent, p.call)
			free = begin + service
			p.end = free
			out = append(out, p.visit)
			if p.turn < turns {
				next := pending{visit{call: p.call, turn: p.turn + 1, due: p.end + p.gaps[0]}, p.gaps[1:]}
				heap.Push(&due, next)
			}
		}
		slices.SortFunc(out, func(a, b visit) int { return cmp.Compare(a.due, b.due) })
		return out
	}
}

// erlangCWait is the p-quantile of the wait before n servers of rate mu each in order of arrival, Poisson arrivals and exponential
// service: P(W > t) = C exp(-(n mu - lambda)t), C by Erlang.
func erlangCWait(n int, mu, lambda, p float64) float64 {
	a := lambda / mu
	sum, term := 0., 1.
	for k := range n {
		sum += term
		term *= a / float64(k+1)
	}
	last := term * float64(n) / (float64(n) - a)
	c := last / (sum + last)
	return max(0, math.Log(c/(1-p))/(float64(n)*mu-lambda))
}

var knownLimits sync.Map // by the queue's name

// limitMS is the objective that makes .7 of the capacity the knee: the P95 there, by the formula or over so many calls.
func (q queue) limitMS(calls int) float64 {
	if q.exact > 0 {
		return 1000 * q.exact
	}
	type key struct {
		name  string
		calls int
	}
	if v, ok := knownLimits.Load(key{q.name, calls}); ok {
		return v.(float64)
	}
	lambda := atKnee * q.capacity
	var waits []float64
	span := float64(calls) / lambda
	times, skip := 1, 100.
	if q.fresh > 0 {
		times, span, skip = int(span/q.fresh), q.fresh, 28
	}
	for i := range times {
		for _, v := range q.simulate(rand.New(rand.NewPCG(99, uint64(i))), lambda, span) {
			if v.turn > 1 && v.due > skip && v.due < span {
				waits = append(waits, 1000*(v.end-v.due))
			}
		}
	}
	slices.Sort(waits)
	limit := measurement.Quantile(waits, .95)
	knownLimits.Store(key{q.name, calls}, limit)
	return limit
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// step runs one step of a sweep against the queue: warm-up, window and drain, and how long it took. With early it ends when it
// is certain to fail.
func (q queue) step(c measurement.Config, number int, seed uint64, lambda, windowS float64, early bool) (measurement.Step, []measurement.Turn, time.Duration) {
	run := func(end float64) []measurement.Turn {
		var turns []measurement.Turn
		for _, v := range q.simulate(rand.New(rand.NewPCG(seed, uint64(number))), lambda, end) {
			t := measurement.NewTurn()
			t.Call, t.Turn, t.Step = number*measurement.CallsPerStep+v.call, v.turn, number
			t.Due, t.Sent, t.FirstToken, t.End = ofSeconds(v.due), ofSeconds(v.due), ofSeconds(v.end), ofSeconds(v.end)
			t.LastToken, t.Events, t.PromptTokens, t.CompletionTokens, t.CachedTokens, t.Outcome = t.End, 1, 1000, 1, 0, measurement.OK
			if v.hit {
				t.CachedTokens = 990
			}
			turns = append(turns, t)
		}
		return turns
	}
	end := c.WarmupSeconds + windowS
	s := measurement.Step{Step: number, Rate: lambda, WindowStart: ofSeconds(c.WarmupSeconds), WindowEnd: ofSeconds(end)}
	turns := run(end)
	if early {
		doomed := FailsEarly(c.SLO)
		for _, t := range slices.SortedStableFunc(slices.Values(turns), func(a, b measurement.Turn) int { return cmp.Compare(a.End, b.End) }) {
			if t.Turn > 1 && s.InWindow(t.Due) && t.End < s.WindowEnd && doomed(t) {
				s.WindowEnd, s.EarlyFail = t.End, true
				turns = run(t.End.Seconds())
				break
			}
		}
	}
	calls := map[int]bool{}
	for _, t := range turns {
		s.DrainEnd = max(s.DrainEnd, t.End)
		if first := !calls[t.Call]; first && s.InWindow(t.Due) {
			s.ArrivedCalls++
		}
		calls[t.Call] = true
		for _, at := range []struct {
			when  time.Duration
			count *int
		}{{s.WindowStart, &s.InFlightStart}, {s.WindowEnd, &s.InFlightEnd}} {
			if t.Due <= at.when && t.End > at.when {
				*at.count++
			}
		}
	}
	s.DrainEnd = max(s.DrainEnd, s.WindowEnd)
	return s, turns, s.DrainEnd
}

// config is a sweep's against the queue.
func (q queue) config(limitMS float64) measurement.Config {
	c := measurement.Config{SystemPromptTokens: 1000, Turns: q.turns, MinTurns: 60, WarmupSeconds: 20, StepSeconds: 300, MaxStepSeconds: 1200,
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: limitMS}}}
	if q.turns > 2 {
		c.WarmupSeconds = 28
	}
	return c
}
