package fleet

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kneefinder/simulation/engine"
)

// waits is how long each request waits for its first admission.
type waits struct {
	arrived map[uint64]time.Duration
	sum     float64 // seconds
	n       int
}

func (w *waits) Admitted(id uint64, at time.Duration, _ int) {
	w.sum += (at - w.arrived[id]).Seconds()
	w.n++
	delete(w.arrived, id)
}
func (w *waits) Tokens(uint64, time.Duration, int)             {}
func (w *waits) Finished(uint64, time.Duration, engine.Finish) {}

// meanWait is the mean wait, in mean service times, of n requests that arrive at random at c servers with exponential service,
// each the part rho of its time busy.
func meanWait(t *testing.T, c Config, rho float64, n int) float64 {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	f, w := make1(t, c), &waits{arrived: map[uint64]time.Duration{}}
	at := 0.
	rate := rho * float64(len(c.Replicas))
	for id := range n {
		at += r.ExpFloat64() / rate
		stamp := time.Duration(at * 1e9)
		f.AdvanceTo(stamp, w)
		w.arrived[uint64(id)] = stamp
		f.Submit(stamp, engine.Request{ID: uint64(id), Call: id, Prompt: []engine.Token{engine.Token(r.ExpFloat64() * 1e6)}, MaxTokens: 1})
	}
	for at, ok := f.Next(); ok; at, ok = f.Next() {
		f.AdvanceTo(at, w)
	}
	if w.n != n {
		t.Fatalf("%d of %d requests admitted", w.n, n)
	}
	return w.sum / float64(n)
}

// served makes stations whose service time stands in the request: its only token, in microseconds.
func served(n int) []Replica {
	return stations(n, station{servers: 1, prompt: func(r engine.Request, _ int) time.Duration {
		return max(1, time.Duration(r.Prompt[0])*time.Microsecond)
	}})
}

// erlangC is the mean wait in M/M/c, in mean service times.
func erlangC(c int, rho float64) float64 {
	a, term, sum := float64(c)*rho, 1., 0.
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	busy := term / (1 - rho)
	return busy / (sum + busy) / (float64(c) * (1 - rho))
}

// What queueing theory says of four servers: each with a queue of its own to which chance sends is M/M/1; one queue for all is M/M/c;
// the shortest queue lies between.
func TestQueues(t *testing.T) {
	const rho, n = .7, 60_000
	router := func(policy Policy, most int) Config {
		c := config(served(4))
		c.Router.Policy, c.Router.MaxRequests = policy, most
		return c
	}
	random, mm1 := meanWait(t, router(Random, 0), rho, 3*n), rho/(1-rho)
	if math.Abs(random/mm1-1) > .03 {
		t.Errorf("random: waits %.3f, M/M/1 says %.3f", random, mm1)
	}
	central, mmc := meanWait(t, router(LeastLoaded, 1), rho, 3*n), erlangC(4, rho)
	if math.Abs(central/mmc-1) > .03 {
		t.Errorf("one queue: waits %.3f, M/M/4 says %.3f", central, mmc)
	}
	shortest := meanWait(t, router(LeastLoaded, 0), rho, n)
	if shortest < central || shortest > random/2 {
		t.Errorf("shortest queue: waits %.3f, one queue %.3f, by chance %.3f", shortest, central, random)
	}
	turns := meanWait(t, router(RoundRobin, 0), rho, n) // E4/M/1: steadier arrivals than M/M/1's
	if turns < shortest || turns > random {
		t.Errorf("in turn: waits %.3f, shortest queue %.3f, by chance %.3f", turns, shortest, random)
	}

	// An old view herds: everybody goes where it was empty. The older, the longer the waits, until chance would be better.
	last := shortest
	for _, old := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second} {
		c := router(LeastLoaded, 0)
		c.Router.Staleness = old
		got := meanWait(t, c, rho, n)
		t.Logf("staleness %v: waits %.3f", old, got)
		if got <= last {
			t.Errorf("staleness %v: waits %.3f, no longer than %.3f with a younger view", old, got, last)
		}
		last = got
	}
	if last < random {
		t.Errorf("the oldest view: waits %.3f, by chance %.3f", last, random)
	}
	t.Logf("random %.3f (M/M/1 %.3f), turns %.3f, shortest %.3f, central %.3f (M/M/4 %.3f)", random, mm1, turns, shortest, central, mmc)
}

// prefixed is requests with a prefix that they share with those of the same rank, drawn by Zipf's law with exponent s (0: evenly).
func prefixed(prefixes, shared, own, n int, rate, s float64, seed uint64) (out []arrivalOf) {
	r := rand.New(rand.NewPCG(seed, 2))
	weights := make([]float64, prefixes)
	sum := 0.
	for i := range weights {
		sum += math.Pow(float64(i+1), -s)
		weights[i] = sum
	}
	heads := make([][]engine.Token, prefixes)
	for i := range heads {
		heads[i] = words(i, shared)
	}
	at := 0.
	for id := range n {
		at += r.ExpFloat64() / rate
		rank, _ := slices.BinarySearch(weights, r.Float64()*sum)
		prompt := append(slices.Clone(heads[rank]), words(10_000+id, own)...)
		out = append(out, arrivalOf{time.Duration(at * 1e9), engine.Request{ID: uint64(id), Call: id, Prompt: prompt, MaxTokens: 20}})
	}
	return out
}

// Each policy's figures under prefixes of very different popularity.
func TestSpread(t *testing.T) {
	s := station{servers: 8, block: 512, token: 10 * time.Millisecond, prompt: perToken(50 * time.Microsecond)}
	arrivals := prefixed(40, 2048, 1024, 3000, 20, 1.1, 1)
	report := func(policy Policy, weight float64) Report {
		c := config(stations(4, s))
		c.Router.Policy, c.Router.OverlapWeight = policy, weight
		f := make1(t, c)
		drive(f, nil, arrivals)
		r := f.Report(time.Hour)
		t.Logf("%-12s weight %v: hit rate %.3f (%.3f to %.3f), block reuse %.3f, requests %d to %d", policy, weight, r.HitRate(), r.HitRateLow, r.HitRateHigh, r.BlockReuse(), r.RequestsLow, r.RequestsHigh)
		if r.BlocksReused != 4*r.Hits || r.Blocks != 6*r.Counts.Requests { // all of the prefix or nothing
			t.Errorf("%s: %d blocks of %d reused in %d hits", policy, r.BlocksReused, r.Blocks, r.Hits)
		}
		return r
	}
	misses := func(r Report) int { return r.Counts.Requests - r.Hits }
	turns, home, kv, blind := report(RoundRobin, 1), report(PrefixAware, 1), report(KV, 1), report(KV, 0)
	if turns.RequestsLow != turns.RequestsHigh {
		t.Errorf("in turn: %d to %d requests", turns.RequestsLow, turns.RequestsHigh)
	}
	// Without locality every replica has to compute every prefix once, and again what arrives while it does.
	if m := misses(turns); m < 140 || m > 200 {
		t.Errorf("in turn: %d misses, prefixes x replicas is 160", m)
	}
	if m := misses(home); m < 40 || m > 60 {
		t.Errorf("prefix_aware: %d misses, there are 40 prefixes", m)
	}
	// The home of the most popular prefix is hot; the other extreme gets what is left.
	if home.RequestsHigh < 2*home.RequestsLow {
		t.Errorf("prefix_aware: %d to %d requests, and no hot spot", home.RequestsLow, home.RequestsHigh)
	}
	if m := misses(kv); m > misses(turns) || kv.RequestsHigh > home.RequestsHigh {
		t.Errorf("kv: %d misses, %d to %d requests; must have fewer misses than in turn and a cooler hot spot than prefix_aware", m, kv.RequestsLow, kv.RequestsHigh)
	}
	if misses(blind) < misses(kv) {
		t.Errorf("kv without weight: %d misses, with %d", misses(blind), misses(kv))
	}
}

// The arithmetic of a published example: four replicas, kv, eight prefixes of 2,048 tokens in prompts of 4,096, blocks of 512, 200
// requests at 6/s. A hit finds the 4 blocks of the prefix of the prompt's 8, so the part of the blocks that is reused is half the hit
// rate, and 2,048 tokens times it are found for a request; about one miss for each (prefix, replica) that is touched.
func TestFleetExample(t *testing.T) {
	c := config(Replicas(4, preset(t, "llama-3.1-8b", "h100")))
	c.Router.Policy = KV
	f := make1(t, c)
	drive(f, nil, prefixed(8, 2048, 2048, 200, 6, 0, 3))
	r := f.Report(time.Minute)
	t.Logf("%d requests: hit rate %.3f (%.3f to %.3f), block reuse %.3f, %d tokens a request", r.Counts.Requests, r.HitRate(), r.HitRateLow, r.HitRateHigh, r.BlockReuse(), r.TokensReused/r.Counts.Requests)
	if r.Counts.Requests != 200 || r.BlockReuse() != r.HitRate()/2 || r.TokensReused != 2048*r.Hits {
		t.Errorf("%+v", r)
	}
	if misses := 200 - r.Hits; misses < 8 || misses > 40 {
		t.Errorf("%d misses, must be from 8, the prefixes, to about 32, each on each replica", misses)
	}
}

// Policies as functions of what they see.
func TestPick(t *testing.T) {
	prompt := words(1, 1024)
	counts := func(c Config, n int, change func(*engine.Request)) (out []int) {
		f := make1(t, c)
		for id := range n {
			r := engine.Request{ID: uint64(id), Call: id, Prompt: prompt, MaxTokens: 1}
			if change != nil {
				change(&r)
			}
			f.Submit(0, r)
		}
		f.AdvanceTo(1, nil)
		for _, s := range f.PerReplica() {
			out = append(out, s.Sent)
		}
		return out
	}
	s := station{servers: 1, block: 512, prompt: perToken(time.Millisecond)}
	fleet := func(policy Policy, weights ...float64) Config {
		c := config(stations(len(weights), s))
		for i, w := range weights {
			c.Replicas[i].Weight = w
		}
		c.Router.Policy = policy
		return c
	}
	for _, test := range []struct {
		name string
		c    Config
		n    int
		want []int
	}{
		{"in turn", fleet(RoundRobin, 1, 1, 1), 10, []int{4, 3, 3}},
		{"in turn by weight", fleet(RoundRobin, 1, 2, 4), 70, []int{10, 20, 40}},
		{"loads by weight", fleet(LeastLoaded, 1, 2, 4), 70, []int{10, 20, 40}},
		{"tokens by weight", fleet(LeastTokens, 1, 2, 4), 70, []int{10, 20, 40}},
	} {
		if got := counts(test.c, test.n, nil); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	for _, policy := range []Policy{Random, PrefixAware} {
		got := counts(fleet(policy, 1, 2, 4), 7000, func(r *engine.Request) { r.Prompt = words(r.Call+1, 8) })
		for i, want := range []int{1000, 2000, 4000} {
			if math.Abs(float64(got[i]-want)) > 4*math.Sqrt(float64(want)) {
				t.Errorf("%s by weight: got %v, want about %d at %d", policy, got, want, i)
			}
		}
	}
	// Taking a replica away moves only what was there.
	with, without := fleet(PrefixAware, 1, 1, 1, 1), fleet(PrefixAware, 1, 1, 1, 1)
	without.Replicas[3].Off = true
	moved := 0
	for call := range 200 {
		one := func(r *engine.Request) { r.Prompt = words(call, 8) }
		a, b := slices.Index(counts(with, 1, one), 1), slices.Index(counts(without, 1, one), 1)
		switch {
		case a == 3:
			moved++
		case a != b:
			t.Fatalf("prompt %d moves from %d to %d although %d is there", call, a, b, a)
		}
	}
	if moved < 25 || moved > 75 {
		t.Errorf("%d of 200 prompts had their home on one of four replicas", moved)
	}
	// A few requests of a call stay together with affinity, whatever the policy.
	c := fleet(Random, 1, 1, 1, 1)
	c.Router.Affinity = time.Minute
	if got := counts(c, 20, func(r *engine.Request) { r.Call, r.Turn = 7, r.Call }); slices.Max(got) != 20 {
		t.Errorf("a call with affinity goes to %v", got)
	}
}

// New calls go round although older ones have come back to the replicas where they were: those turns are no choice of the router's.
func TestTiesBesideAffinity(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastLoaded, LeastTokens} {
		c := config(stations(4, station{servers: 1, prompt: perToken(time.Millisecond)}))
		c.Router.Policy, c.Router.Affinity = policy, time.Minute
		f := make1(t, c)
		for id, r := range []struct {
			at   time.Duration
			call int
		}{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {10, 1}, {11, 2}, {12, 3}, {13, 4}} {
			at := r.at * time.Second
			f.AdvanceTo(at, nil)
			f.Submit(at, engine.Request{ID: uint64(id), Call: r.call, Turn: id, Prompt: words(r.call, 1), MaxTokens: 1})
		}
		f.AdvanceTo(time.Minute, nil)
		var got []int
		for _, p := range f.PerReplica() {
			got = append(got, p.Sent)
		}
		if want := []int{5, 1, 1, 1}; !slices.Equal(got, want) {
			t.Errorf("%s: %v requests at the replicas, want %v", policy, got, want)
		}
	}
}

// A router forgets calls that have not been seen for longer than affinity lasts.
func TestAffinityForgets(t *testing.T) {
	c := config(stations(3, station{servers: 1, prompt: perToken(time.Millisecond)}))
	c.Router.Affinity = time.Second
	f := make1(t, c)
	for id := range 1000 {
		at := time.Duration(id) * 100 * time.Millisecond
		f.AdvanceTo(at, nil)
		f.Submit(at, engine.Request{ID: uint64(id), Call: id, Prompt: words(0, 1), MaxTokens: 1})
	}
	if n := len(f.router.homes); n > 12 {
		t.Errorf("%d calls are remembered, 10 came in the last second", n)
	}
}

// With an old view of the caches a prefix that has just been computed is not seen yet, one that was there before the snapshot is.
func TestStaleOverlap(t *testing.T) {
	for _, test := range []struct {
		old    time.Duration
		second time.Duration
		want   int // the replica of the second request
	}{
		{0, 150 * time.Millisecond, 0},                       // computed at 128 ms, seen at once
		{time.Second, 150 * time.Millisecond, 1},             // not seen before 1 s: the empty replica looks as good, and has had less
		{time.Second, 1100 * time.Millisecond, 0},            // seen since 1 s
		{100 * time.Millisecond, 190 * time.Millisecond, 1},  // not seen before 200 ms
		{100 * time.Millisecond, 2010 * time.Millisecond, 0}, // seen
	} {
		c := config(stations(2, station{servers: 1, block: 32, prompt: perToken(time.Millisecond)}))
		c.Router.Policy, c.Router.BlockTokens, c.Router.Staleness = KV, 32, test.old
		f := make1(t, c)
		f.Submit(0, engine.Request{ID: 1, Call: 1, Prompt: words(1, 128), MaxTokens: 1})
		f.AdvanceTo(test.second, nil)
		f.Submit(test.second, engine.Request{ID: 2, Call: 2, Prompt: append(words(1, 128), words(2, 5)...), MaxTokens: 1})
		f.AdvanceTo(test.second+1, nil)
		if got := f.PerReplica()[test.want].Outstanding; got != 1 {
			t.Errorf("staleness %v, at %v: the second request is not at %d: %+v", test.old, test.second, test.want, f.PerReplica())
		}
	}
}
