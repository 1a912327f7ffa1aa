package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kneefinder/simulation/engine"
)

// station is an engine that a person can follow: so many servers, one queue, a time for a prompt and one for each further token, and
// a cache of blocks.
type station struct {
	servers  int
	prompt   func(r engine.Request, cached int) time.Duration
	token    time.Duration
	block    int // tokens; 0 is no cache
	capacity int // blocks; 0 is no limit
	limit    int // of prompt and reply; 0 is none

	waiting []*customer
	served  []*customer
	last    time.Duration
	stats   engine.Stats
	blocks  map[uint64]int // by hash of all up to its end: when it was last used
	uses    int
}

type customer struct {
	engine.Request
	stamp     time.Duration
	next      time.Duration // of its tokens
	cached    int
	generated int
	abort     time.Duration
}

const wake = time.Microsecond

func (s *station) Submit(at time.Duration, r engine.Request) {
	c := &customer{Request: r, stamp: at, abort: never}
	i, _ := slices.BinarySearchFunc(s.waiting, c, func(a, b *customer) int {
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.ID, b.ID))
	})
	s.waiting = slices.Insert(s.waiting, i, c)
}

func (s *station) Abort(at time.Duration, id uint64) {
	for _, c := range append(slices.Clone(s.waiting), s.served...) {
		if c.ID == id && c.abort == never {
			c.abort = at
		}
	}
}

func (s *station) Next() (at time.Duration, ok bool) {
	at = never
	for _, c := range s.served {
		at = min(at, c.next)
	}
	if len(s.served) < s.servers && len(s.waiting) > 0 {
		at = min(at, max(s.waiting[0].stamp+wake, s.last))
	}
	return at, at < never
}

func (s *station) Quiet() (at time.Duration, ok bool) {
	at, ok = s.Next()
	leaves := func(c *customer) bool { return c.abort < never }
	if !ok || len(s.served) < s.servers && len(s.waiting) > 0 || slices.ContainsFunc(s.waiting, leaves) {
		return at, ok
	}
	at = never
	for _, c := range s.served {
		end := c.next // of its prompt
		switch {
		case leaves(c):
		case c.generated > 0:
			end += time.Duration(c.MaxTokens-c.generated-1) * s.token
		}
		at = min(at, end)
	}
	return at, true
}

func (s *station) AdvanceTo(to time.Duration, sink engine.Sink) {
	for at, ok := s.Next(); ok && at <= to; at, ok = s.Next() {
		s.last = at
		s.served = slices.DeleteFunc(s.served, func(c *customer) bool { return c.next == at && s.serve(c, at, sink) })
		s.waiting = slices.DeleteFunc(s.waiting, func(c *customer) bool {
			if c.abort >= at {
				return false
			}
			s.stats.FinishedAborted++
			sink.Finished(c.ID, at, engine.Finish{Reason: engine.Aborted})
			return true
		})
		for len(s.served) < s.servers && len(s.waiting) > 0 && s.waiting[0].stamp < at {
			c := s.waiting[0]
			s.waiting = s.waiting[1:]
			if s.limit > 0 && len(c.Prompt)+c.MaxTokens > s.limit || c.MaxTokens < 1 {
				s.stats.FinishedRefused++
				sink.Finished(c.ID, at, engine.Finish{Reason: engine.Refused, Detail: "too long"})
				continue
			}
			c.cached = s.Cached(c.Prompt)
			sink.Admitted(c.ID, at, c.cached)
			if c.Handoff {
				c.generated, c.next = 1, at+s.token
			} else {
				s.stats.PromptTokens += len(c.Prompt)
				s.stats.CachedTokens += c.cached
				c.next = at + s.prompt(c.Request, c.cached)
			}
			s.served = append(s.served, c)
		}
		if n := len(s.waiting); len(s.served) < s.servers && n > 0 && s.waiting[0].stamp >= at {
			s.last = s.waiting[0].stamp + wake
		}
	}
}

// serve gives c what it has waited for, and reports whether it has ended.
func (s *station) serve(c *customer, at time.Duration, sink engine.Sink) bool {
	if c.abort < at {
		s.stats.FinishedAborted++
		sink.Finished(c.ID, at, engine.Finish{Reason: engine.Aborted, CompletionTokens: c.generated, CachedTokens: c.cached})
		return true
	}
	if c.generated == 0 {
		s.store(c.Prompt)
	}
	c.generated++
	s.stats.GeneratedTokens++
	sink.Tokens(c.ID, at, 1)
	if c.generated < c.MaxTokens {
		c.next = at + s.token
		return false
	}
	s.stats.FinishedLength++
	sink.Finished(c.ID, at, engine.Finish{Reason: engine.Length, CompletionTokens: c.generated, CachedTokens: c.cached})
	return true
}

func (s *station) Stats() engine.Stats {
	st := s.stats
	st.Running, st.Waiting = len(s.served), len(s.waiting)
	return st
}

func (s *station) FlushCache() bool {
	if len(s.served)+len(s.waiting) > 0 {
		return false
	}
	s.blocks = nil
	return true
}

func (s *station) hashes(prompt []engine.Token) (out []uint64) {
	if s.block == 0 {
		return nil
	}
	h := uint64(0)
	for i := s.block; i <= len(prompt); i += s.block {
		for _, t := range prompt[i-s.block : i] {
			h = mix(h ^ uint64(t))
		}
		out = append(out, h)
	}
	return out
}

func (s *station) Cached(prompt []engine.Token) (n int) {
	for _, h := range s.hashes(prompt) {
		if _, ok := s.blocks[h]; !ok {
			break
		}
		n += s.block
	}
	return min(n, max(0, len(prompt)-1))
}

func (s *station) store(prompt []engine.Token) {
	if s.blocks == nil {
		s.blocks = map[uint64]int{}
	}
	list := s.hashes(prompt)
	for i := len(list) - 1; i >= 0; i-- { // the first is the last used
		s.uses++
		s.blocks[list[i]] = s.uses
	}
	for s.capacity > 0 && len(s.blocks) > s.capacity {
		oldest, when := uint64(0), s.uses+1
		for h, used := range s.blocks {
			if used < when {
				oldest, when = h, used
			}
		}
		delete(s.blocks, oldest)
		s.stats.EvictedTokens += s.block
	}
}

// perToken is a prompt time of so much for each token that is not cached.
func perToken(d time.Duration) func(engine.Request, int) time.Duration {
	return func(r engine.Request, cached int) time.Duration {
		return time.Duration(max(1, len(r.Prompt)-cached)) * d
	}
}

// stations are n replicas of such engines.
func stations(n int, s station) (out []Replica) {
	for range n {
		out = append(out, Replica{New: func() (Member, error) { c := s; return &c, nil }})
	}
	return out
}

// splitStations are prefill and decode replicas of such engines.
func splitStations(prefill, decode int, s station) []Replica {
	out := stations(prefill+decode, s)
	for i := range out {
		out[i].Role = Prefill
		if i >= prefill {
			out[i].Role = Decode
		}
	}
	return out
}

// preset is a real engine.
func preset(t failer, model, gpu string) engine.Config {
	t.Helper()
	c, err := engine.Preset(model, gpu)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// failer is *testing.T, *testing.B or *rapid.T.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// make1 is a fleet that must be.
func make1(t failer, c Config) *Fleet {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func config(replicas []Replica) Config {
	c := Default()
	c.Replicas = replicas
	return c
}

// trace writes down what a sink is told, and checks its order.
type trace struct {
	t      failer
	lines  []string
	last   time.Duration
	loose  bool // bursts may come out of order
	tokens map[uint64]int
	ends   map[uint64][]engine.Finish
	firsts map[uint64]time.Duration
	ended  map[uint64]time.Duration
}

func newTrace(t failer) *trace {
	return &trace{t: t, tokens: map[uint64]int{}, ends: map[uint64][]engine.Finish{}, firsts: map[uint64]time.Duration{}, ended: map[uint64]time.Duration{}}
}

func (s *trace) at(at time.Duration) {
	if at < s.last && !s.loose {
		s.t.Errorf("told of %v after %v", at, s.last)
	}
	s.last = max(s.last, at)
}

func (s *trace) Admitted(id uint64, at time.Duration, cached int) {
	s.at(at)
	s.lines = append(s.lines, fmt.Sprintf("%d admitted %d cached %d", at, id, cached))
}

func (s *trace) Tokens(id uint64, at time.Duration, n int) {
	s.at(at)
	if s.tokens[id] == 0 {
		s.firsts[id] = at
	}
	s.tokens[id] += n
	s.lines = append(s.lines, fmt.Sprintf("%d tokens %d %d", at, id, n))
}

func (s *trace) Finished(id uint64, at time.Duration, f engine.Finish) {
	s.at(at)
	s.ends[id] = append(s.ends[id], f)
	s.ended[id] = at
	s.lines = append(s.lines, fmt.Sprintf("%d finished %d %+v", at, id, f))
}

// drive submits requests at their instants, and ends when nothing happens any more.
func drive(f interface {
	Submit(time.Duration, engine.Request)
	Next() (time.Duration, bool)
	AdvanceTo(time.Duration, engine.Sink)
}, sink engine.Sink, arrivals []arrivalOf) {
	for _, a := range arrivals {
		f.AdvanceTo(a.at, sink)
		f.Submit(a.at, a.Request)
	}
	for at, ok := f.Next(); ok; at, ok = f.Next() {
		f.AdvanceTo(at, sink)
	}
}

type arrivalOf struct {
	at time.Duration
	engine.Request
}

// words is a prompt of n tokens that begins with those of a family.
func words(family, n int) []engine.Token {
	out := make([]engine.Token, n)
	for i := range out {
		out[i] = engine.Token(1000 + family*100_000 + i)
	}
	return out
}
