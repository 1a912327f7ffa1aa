package fleet

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"kneefinder/simulation/engine"
)

// Policy is how the router chooses among the replicas that are up and have a place. Ties go to the replica that it has chosen the
// least for its weight (what affinity keeps where it was is no choice), then to the lowest index.
type Policy string

// The policies.
const (
	RoundRobin  Policy = "round_robin"  // in turn, smoothly by weight
	Random      Policy = "random"       // by weight, keyed by (seed, Call, Turn): another request shifts nothing
	LeastLoaded Policy = "least_loaded" // fewest requests that have been sent there and have not ended, for its weight
	LeastTokens Policy = "least_tokens" // the same of their tokens: of the prompt what was not found in the cache when it was admitted, and all they may generate
	PrefixAware Policy = "prefix_aware" // the home of the prompt's first block, by rendezvous hashing: a replica more or less moves only its share
	KV          Policy = "kv"           // lowest OverlapWeight x blocks of the prompt that are not cached there + blocks of the tokens of LeastTokens, for its weight
)

// Router is how requests find their replica. Of an old view only loads and caches are old: which replicas are up, and how many requests
// and tokens it has itself sent to each where that is limited, the router knows.
type Router struct {
	Policy        Policy
	Decode        Policy        // for the decode replica; empty is LeastLoaded
	Seed          uint64        // of Random
	BlockTokens   int           // of a block, for PrefixAware, KV and the figures of block reuse
	OverlapWeight float64       // of KV; 0 balances load alone
	Staleness     time.Duration // 0: decisions see replicas as they are; else as they were at the last multiple of it
	Affinity      time.Duration // a call's next request within so long goes where its last one went, if that can take it; 0: no affinity
	MaxRequests   int           // that a replica without role Decode has at a time; others wait at the router, in order; 0: no limit
}

func (r Router) validate() error {
	for _, f := range []struct {
		name   string
		policy Policy
	}{{"policy", r.Policy}, {"decode policy", cmp.Or(r.Decode, LeastLoaded)}} {
		switch f.policy {
		case RoundRobin, Random, LeastLoaded, LeastTokens, PrefixAware, KV:
		default:
			return fmt.Errorf("router: %s is %q; there are %s, %s, %s, %s, %s and %s", f.name, f.policy,
				RoundRobin, Random, LeastLoaded, LeastTokens, PrefixAware, KV)
		}
	}
	switch {
	case r.BlockTokens < 1:
		return fmt.Errorf("router: a block has %d tokens, must be at least 1", r.BlockTokens)
	case !(r.OverlapWeight >= 0) || math.IsInf(r.OverlapWeight, 0):
		return fmt.Errorf("router: overlap weight is %v, must be at least 0", r.OverlapWeight)
	case r.Staleness < 0:
		return fmt.Errorf("router: staleness is %v, must be at least 0", r.Staleness)
	case r.Affinity < 0:
		return fmt.Errorf("router: affinity lasts %v, must be at least 0", r.Affinity)
	case r.MaxRequests < 0:
		return fmt.Errorf("router: a replica takes %d requests, must be at least 1, or 0 for no limit", r.MaxRequests)
	}
	return nil
}

// view is what the router knows of a replica that can take a request.
type view struct {
	replica int
	weight  float64
	load    load
	chosen  int // ever, by the policy: a call that stays where it was is not new there
	due     *float64
}

// load is what has been sent to a replica and has not ended; see LeastTokens.
type load struct{ requests, tokens int }

type router struct {
	Router
	views  []view
	boring time.Duration // the instant of the last snapshot
	due    []float64     // of round robin, by replica
	chosen []int         // how often, by replica
	homes  map[int]home  // by call
	visits []visit       // of calls, by instant
}

type home struct {
	replica int
	last    time.Duration
}

type visit struct {
	call int
	at   time.Duration
}

func newRouter(r Router, replicas int) router {
	r.Decode = cmp.Or(r.Decode, LeastLoaded)
	return router{Router: r, boring: -1, due: make([]float64, replicas), chosen: make([]int, replicas), homes: map[int]home{}}
}

// route chooses a replica of a role for j; ok is false when none can take it.
func (f *Fleet) route(j *job, role Role, at time.Duration) (index int, ok bool) {
	t := &f.router
	t.views = t.views[:0]
	sticky := nowhere
	if t.Affinity > 0 && role != Decode {
		sticky = t.home(j.Call, at)
	}
	for i, r := range f.replicas {
		if r.Role != role || r.state != Up || !f.room(r, j) {
			continue
		}
		if i == sticky {
			t.settle(j.Call, i, at)
			return i, true
		}
		v := view{replica: i, weight: r.Weight, load: r.now, chosen: t.chosen[i], due: &t.due[i]}
		if t.Staleness > 0 {
			v.load = r.seen
		}
		t.views = append(t.views, v)
	}
	if len(t.views) == 0 {
		return 0, false
	}
	policy := t.Policy
	if role == Decode {
		policy = t.Decode
	}
	index = f.pick(policy, j)
	t.chosen[index]++
	if t.Affinity > 0 && role != Decode {
		t.settle(j.Call, index, at)
	}
	return index, true
}

// room reports whether r has a place for j.
func (f *Fleet) room(r *replica, j *job) bool {
	h := &f.config.Handoff
	switch r.Role {
	case Decode:
		return (h.MaxRequests == 0 || r.now.requests < h.MaxRequests) &&
			(h.MaxTokens == 0 || r.now.requests == 0 || r.now.tokens+r.weigh(j) <= h.MaxTokens)
	case Prefill:
		if h.MaxHeld > 0 && r.held >= h.MaxHeld {
			return false
		}
	}
	return f.router.MaxRequests == 0 || r.now.requests < f.router.MaxRequests
}

func (f *Fleet) pick(policy Policy, j *job) int {
	t := &f.router
	switch policy {
	case RoundRobin:
		return inTurn(t.views)
	case Random:
		return byChance(t.views, unit(mix(mix(mix(t.Seed)^uint64(j.Call))^uint64(j.Turn)<<16^uint64(len(policy)))))
	case LeastLoaded:
		return least(t.views, func(v view) float64 { return float64(v.load.requests+1) / v.weight })
	case LeastTokens:
		own := len(j.prompt) + j.max
		return least(t.views, func(v view) float64 { return float64(v.load.tokens+own) / v.weight })
	case PrefixAware:
		return byHash(t.views, blockHash(j.prompt[:min(len(j.prompt), t.BlockTokens)]))
	}
	blocks := (len(j.prompt) + t.BlockTokens - 1) / t.BlockTokens
	return least(t.views, func(v view) float64 {
		missed := blocks - f.overlap(f.replicas[v.replica], j.prompt)/t.BlockTokens
		return t.OverlapWeight*float64(missed) + float64(v.load.tokens)/float64(t.BlockTokens)/v.weight
	})
}

// least is the replica with the lowest score.
func least(views []view, score func(view) float64) int {
	best, low := views[0], score(views[0])
	for _, v := range views[1:] {
		s := score(v)
		if s < low || s == low && float64(v.chosen)/v.weight < float64(best.chosen)/best.weight {
			best, low = v, s
		}
	}
	return best.replica
}

// inTurn is smooth weighted round robin: every candidate is due its weight more, and the one that is due most goes back by the sum.
func inTurn(views []view) int {
	sum, best := 0., 0
	for i, v := range views {
		*v.due += v.weight
		sum += v.weight
		if *v.due > *views[best].due {
			best = i
		}
	}
	*views[best].due -= sum
	return views[best].replica
}

// byChance is the replica at the part u, from 0 to 1, of the weights.
func byChance(views []view, u float64) int {
	sum := 0.
	for _, v := range views {
		sum += v.weight
	}
	u *= sum
	for _, v := range views[:len(views)-1] {
		if u -= v.weight; u < 0 {
			return v.replica
		}
	}
	return views[len(views)-1].replica
}

// byHash is weighted rendezvous hashing (Mosko's -w/ln u): the highest score of a hash of the key and the replica wins, with a
// probability that is its part of the weights.
func byHash(views []view, key uint64) int {
	best, high := nowhere, math.Inf(-1)
	for _, v := range views {
		if s := -v.weight / math.Log(unit(mix(key^mix(uint64(v.replica+1))))); s > high {
			best, high = v.replica, s
		}
	}
	return best
}

func blockHash(block []engine.Token) uint64 {
	h := mix(uint64(len(block)))
	for _, t := range block {
		h = mix(h ^ uint64(t))
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is a number above 0 and below 1.
func unit(x uint64) float64 { return (float64(x>>11) + .5) / (1 << 53) }

// home is the replica that had the call's last request, or nowhere.
func (t *router) home(call int, at time.Duration) int {
	for len(t.visits) > 0 && t.visits[0].at+t.Affinity < at { // forget
		v := t.visits[0]
		t.visits = t.visits[1:]
		if t.homes[v.call].last == v.at {
			delete(t.homes, v.call)
		}
	}
	if h, ok := t.homes[call]; ok {
		return h.replica
	}
	return nowhere
}

func (t *router) settle(call, replica int, at time.Duration) {
	t.homes[call] = home{replica, at}
	t.visits = append(t.visits, visit{call, at})
}

// refresh makes a snapshot, if one is due by the instant at: the state is as it has been since before.
func (f *Fleet) refresh(at time.Duration) {
	every := f.router.Staleness
	if every == 0 || at < 0 {
		return
	}
	if at -= at % every; at <= f.router.boring {
		return
	}
	f.router.boring = at
	for _, r := range f.replicas {
		r.seen = r.now
		clear(r.fresh)
		r.fresh = r.fresh[:0]
	}
}

// fresh is what a replica has put into its cache since the last snapshot: all of prompt behind the first had tokens, and what
// follows.
type fresh struct {
	prompt []engine.Token
	had    int
}

// overlap is how many tokens of a prompt the router believes to be cached at r. An old view lacks what was computed since; what was
// evicted since is not believed either.
func (f *Fleet) overlap(r *replica, prompt []engine.Token) int {
	n := r.member.Cached(prompt)
	for _, p := range r.fresh {
		if n <= p.had {
			continue
		}
		if c := common(prompt, p.prompt); c > p.had || c == len(p.prompt) {
			n = min(n, p.had)
		}
	}
	return n
}

func common(a, b []engine.Token) int {
	n := min(len(a), len(b))
	if n == 0 || &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
