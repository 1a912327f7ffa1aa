package fleet

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kneefinder/simulation/engine"
)

// action is something a driver does at an instant.
type action struct {
	at    time.Duration
	abort bool
	r     engine.Request
}

type machine interface {
	Submit(time.Duration, engine.Request)
	Abort(time.Duration, uint64)
	Next() (time.Duration, bool)
	AdvanceTo(time.Duration, engine.Sink)
	Stats() engine.Stats
}

func (a action) apply(m machine) {
	if a.abort {
		m.Abort(a.at, a.r.ID)
	} else {
		m.Submit(a.at, a.r)
	}
}

func drawActions(t *rapid.T) (out []action) {
	n := rapid.IntRange(1, 25).Draw(t, "requests")
	for id := range n {
		r := engine.Request{ID: uint64(id * 7 % 101), Call: rapid.IntRange(0, 6).Draw(t, "call"), Turn: rapid.IntRange(1, 3).Draw(t, "turn"),
			MaxTokens: rapid.IntRange(0, 40).Draw(t, "max")}
		r.Prompt = append(words(rapid.IntRange(0, 3).Draw(t, "family"), rapid.IntRange(0, 200).Draw(t, "shared")), words(100+id, rapid.IntRange(1, 30).Draw(t, "own"))...)
		at := time.Duration(rapid.IntRange(0, 60).Draw(t, "at")) * 5 * time.Millisecond
		out = append(out, action{at: at, r: r})
		if rapid.IntRange(0, 4).Draw(t, "aborted") == 0 {
			out = append(out, action{at: at + time.Duration(rapid.IntRange(0, 40).Draw(t, "after"))*5*time.Millisecond, abort: true, r: r})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].at < out[j].at })
	return out
}

const quantum = 5 * time.Millisecond // events meet arrivals at the same instants now and then

func drawFleet(t *rapid.T) Config {
	s := station{servers: rapid.IntRange(1, 3).Draw(t, "servers"), token: quantum, block: 16, capacity: 60, limit: 220,
		prompt: func(r engine.Request, cached int) time.Duration {
			return time.Duration(1+(len(r.Prompt)-cached)/32)*quantum - wake
		}}
	c := Default()
	c.Router.BlockTokens = 16
	c.StartUp = time.Duration(rapid.IntRange(0, 10).Draw(t, "start-up")) * quantum
	policies := []Policy{RoundRobin, Random, LeastLoaded, LeastTokens, PrefixAware, KV}
	c.Router.Policy = rapid.SampledFrom(policies).Draw(t, "policy")
	c.Router.Decode = rapid.SampledFrom(policies).Draw(t, "decode policy")
	c.Router.Staleness = rapid.SampledFrom([]time.Duration{0, 0, 3 * quantum, 77 * time.Millisecond}).Draw(t, "staleness")
	c.Router.Affinity = rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Millisecond, time.Second}).Draw(t, "affinity")
	c.Router.MaxRequests = rapid.IntRange(0, 3).Draw(t, "most")
	c.Retry = rapid.SampledFrom([]Retry{NoRetry, Fresh, Resume}).Draw(t, "retry")
	role := Whole
	if n := rapid.IntRange(1, 4).Draw(t, "replicas"); rapid.Bool().Draw(t, "split") {
		role = Prefill
		c.Replicas = splitStations(n, rapid.IntRange(1, 3).Draw(t, "decoders"), s)
		c.Handoff = Handoff{Link: Link{"slow", 1000, time.Duration(rapid.IntRange(0, 2).Draw(t, "latency")) * quantum},
			KVBytes: func(n int) int64 { return int64(n) / 5 }, PerReplica: rapid.Bool().Draw(t, "own links"), HoldFirst: rapid.Bool().Draw(t, "hold"),
			MaxRequests: rapid.IntRange(0, 3).Draw(t, "decoding"), MaxTokens: rapid.SampledFrom([]int{0, 300}).Draw(t, "decoding tokens"), MaxHeld: rapid.IntRange(0, 3).Draw(t, "held")}
	} else {
		c.Replicas = stations(n, s)
	}
	for i := range c.Replicas {
		c.Replicas[i].Weight = float64(rapid.IntRange(0, 3).Draw(t, "weight"))
		c.Replicas[i].Off = rapid.IntRange(0, 4).Draw(t, "off") == 0
	}
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		e := Event{At: time.Duration(rapid.IntRange(0, 80).Draw(t, "event at")) * quantum, Kind: rapid.SampledFrom([]EventKind{Fail, Drain, Start}).Draw(t, "kind"),
			Replica: rapid.IntRange(0, len(c.Replicas)-1).Draw(t, "of")}
		if e.Kind == Fail {
			e.For = time.Duration(rapid.IntRange(0, 20).Draw(t, "for")) * quantum
		}
		c.Events = append(c.Events, e)
	}
	if rapid.Bool().Draw(t, "scaled") {
		n := 0
		for _, r := range c.Replicas {
			if r.Role == role {
				n++
			}
		}
		a := Autoscaler{Role: role, Signal: rapid.SampledFrom([]Signal{Outstanding, Waiting, Utilisation}).Draw(t, "signal"), Target: .5, Min: 1, Max: n,
			Every: time.Duration(rapid.IntRange(1, 20).Draw(t, "every")) * quantum, CoolDown: time.Duration(rapid.IntRange(0, 20).Draw(t, "cool-down")) * quantum}
		c.Scale = []Autoscaler{a}
	}
	drawn := sorted(c.Events)
	c.Events = nil
	for _, e := range drawn { // those that change something
		if c.Events = append(c.Events, e); c.pointless() != nil {
			c.Events = c.Events[:len(c.Events)-1]
		}
	}
	return c
}

// end plays on until nothing happens any more.
func end(t *rapid.T, m machine, sink engine.Sink) {
	steps := 0
	for at, ok := m.Next(); ok; at, ok = m.Next() {
		m.AdvanceTo(at, sink)
		if steps++; steps > 100_000 {
			t.Fatalf("it does not end: %v", at)
		}
	}
}

// Whatever a fleet is and whatever befalls it, it tells the same however time is sliced, and every request ends exactly once.
func TestTimeSlicesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { inSlices(t, drawFleet(t)) })
}

// The same of real engines, whose pools are too small now and then.
func TestTimeSlicesOfEngines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawFleet(t)
		e := preset(t, "demo", "demo")
		e.Recipe.KVTokens = rapid.IntRange(250, 2000).Draw(t, "pool")
		e.Recipe.ChunkedPrefill = rapid.IntRange(10, 300).Draw(t, "chunk")
		e.Recipe.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		if rapid.Bool().Draw(t, "vLLM") {
			e.Recipe.Kind = engine.VLLM
			e.Recipe.ChunkedPrefill = 0
			e.Recipe.SyncScheduling = rapid.Bool().Draw(t, "sync")
		}
		e.Recipe.MixedChunk = rapid.Bool().Draw(t, "mixed")
		e.Recipe.Order = rapid.SampledFrom([]engine.Order{engine.FCFS, engine.LongestPrefix, engine.Priority}).Draw(t, "order")
		e.Recipe.NoPrefix = rapid.IntRange(0, 5).Draw(t, "no prefix") == 0
		if rapid.IntRange(0, 2).Draw(t, "speculates") == 0 {
			e.Recipe.Speculate = engine.Speculate{Tokens: rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "drafted"), Acceptance: .8, DraftCost: .1}
		}
		for i := range c.Replicas {
			c.Replicas[i].New = func() (Member, error) { return engine.New(e) }
		}
		inSlices(t, c)
	})
}

func inSlices(t *rapid.T, c Config) {
	actions := drawActions(t)
	fresh := func() *Fleet {
		f, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	at := func() (m *Fleet, sink *trace) { return fresh(), newTrace(t) }

	// All is known before anything happens.
	early, first := at()
	for _, a := range actions {
		if !a.abort {
			a.apply(early)
		}
	}
	for _, a := range actions {
		if a.abort {
			a.apply(early)
		}
	}
	early.AdvanceTo(time.Second, first)
	end(t, early, first)

	// From one instant to the next, input before or after what happens at its instant, in any order.
	sliced, second := at()
	for i := 0; i < len(actions); {
		k := i
		for k < len(actions) && actions[k].at == actions[i].at {
			k++
		}
		now := actions[i].at
		for next, ok := sliced.Next(); ok && next < now; next, ok = sliced.Next() {
			sliced.AdvanceTo(next, second)
		}
		batch := slices.Clone(actions[i:k])
		if rapid.Bool().Draw(t, "last first") {
			slices.Reverse(batch)
			sort.SliceStable(batch, func(a, b int) bool { return !batch[a].abort && batch[b].abort })
		}
		if rapid.Bool().Draw(t, "advance first") {
			sliced.AdvanceTo(now, second)
		}
		for n, a := range batch {
			if n == len(batch)/2 && rapid.Bool().Draw(t, "advance between") {
				sliced.AdvanceTo(now, second)
			}
			a.apply(sliced)
		}
		i = k
	}
	end(t, sliced, second)
	if a, b := strings.Join(first.lines, "\n"), strings.Join(second.lines, "\n"); a != b {
		t.Fatalf("in one go\n%s\nin slices\n%s", a, b)
	}
	if a, b := early.Report(time.Minute), sliced.Report(time.Minute); !reflect.DeepEqual(a, b) {
		t.Fatalf("in one go %+v\nin slices %+v", a, b)
	}

	// A sink of bursts is told the same, tokens of different replicas perhaps in another order.
	burst, third := fresh(), &burstTrace{trace: newTrace(t)}
	third.loose = true
	for _, a := range actions {
		burst.AdvanceTo(a.at, third)
		a.apply(burst)
	}
	for next, ok := burst.Quiet(); ok; next, ok = burst.Quiet() {
		burst.AdvanceTo(next, third)
	}
	a, b := slices.Clone(first.lines), slices.Clone(third.lines)
	sort.Strings(a)
	sort.Strings(b)
	if !slices.Equal(a, b) {
		t.Fatalf("in order\n%s\nin bursts\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if a, b := events(first.lines), events(third.lines); !slices.Equal(a, b) {
		t.Fatalf("in order\n%s\nin bursts\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}

	conserved(t, early, first, actions)
}

// conserved checks that all is accounted for.
func conserved(t *rapid.T, f *Fleet, s *trace, actions []action) {
	n := 0
	for _, a := range actions {
		if a.abort {
			continue
		}
		n++
		ends := s.ends[a.r.ID]
		if len(ends) != 1 {
			t.Fatalf("request %d ends %d times: %+v\n%s", a.r.ID, len(ends), ends, strings.Join(s.lines, "\n"))
		}
		e := ends[0]
		if e.CompletionTokens != s.tokens[a.r.ID] {
			t.Fatalf("request %d ends with %d tokens, told %d", a.r.ID, e.CompletionTokens, s.tokens[a.r.ID])
		}
		if e.Reason == engine.Length && e.CompletionTokens != a.r.MaxTokens {
			t.Fatalf("request %d ends with %d tokens of %d", a.r.ID, e.CompletionTokens, a.r.MaxTokens)
		}
	}
	r := f.Report(time.Minute)
	if r.Ended != n || r.Transfers.Underway != 0 || r.Transfers.Waiting != 0 {
		t.Fatalf("%d requests: %+v", n, r)
	}
	if st := f.Stats(); st.Running+st.Waiting != 0 || len(f.open) != 0 {
		t.Fatalf("left over: %+v, %d open", st, len(f.open))
	}
	for i, p := range f.PerReplica() {
		if p.Outstanding != 0 || p.Held != 0 || f.replicas[i].now.tokens != 0 {
			t.Fatalf("replica %d is left with %+v", i, p)
		}
	}
}

func events(lines []string) (out []string) {
	for _, l := range lines {
		if !strings.Contains(l, "tokens ") {
			out = append(out, l)
		}
	}
	return out
}

// burstTrace takes bursts.
type burstTrace struct{ *trace }

func (s *burstTrace) Burst(ids []uint64, ats []time.Duration) {
	for _, at := range ats {
		for _, id := range ids {
			s.Tokens(id, at, 1)
		}
	}
}

// A fleet of one engine is the engine.
func TestFleetOfOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := preset(t, "demo", "demo")
		c.Recipe.KVTokens = rapid.IntRange(200, 2000).Draw(t, "pool")
		c.Recipe.ChunkedPrefill = rapid.IntRange(10, 300).Draw(t, "chunk")
		c.Recipe.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		alone, err := engine.New(c)
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(config(Replicas(1, c)))
		if err != nil {
			t.Fatal(err)
		}
		a, b := &watchTrace{trace: newTrace(t)}, &watchTrace{trace: newTrace(t)}
		plain, p := make1(t, config(Replicas(1, c))), newTrace(t)
		actions := drawActions(t)
		stamps := map[uint64]time.Duration{}
		for i := range actions {
			in := &actions[i]
			in.at += time.Duration(rapid.IntRange(0, 3000).Draw(t, "shift")) * time.Microsecond
			if !in.abort {
				stamps[in.r.ID] = in.at
			}
			in.at = max(in.at, stamps[in.r.ID])
			in.r.Handoff = in.r.MaxTokens > 1 && rapid.IntRange(0, 5).Draw(t, "handoff") == 0
		}
		sort.SliceStable(actions, func(i, j int) bool { return actions[i].at < actions[j].at })
		for _, in := range actions {
			early := rapid.Bool().Draw(t, "advance first")
			for _, m := range []struct {
				machine
				s engine.Sink
			}{{alone, a}, {f, b}, {plain, p}} {
				if early {
					m.AdvanceTo(in.at, m.s)
				}
				in.apply(m)
			}
		}
		end(t, alone, a)
		end(t, f, b)
		end(t, plain, p)
		if x, y := strings.Join(a.lines, "\n"), strings.Join(b.lines, "\n"); x != y {
			t.Fatalf("the engine\n%s\nthe fleet\n%s", x, y)
		}
		if x, y := told(a.lines), p.lines; !slices.Equal(x, y) {
			t.Fatalf("the engine\n%s\nthe fleet\n%s", strings.Join(x, "\n"), strings.Join(y, "\n"))
		}
		if x, y := alone.Stats(), f.Stats(); x != y {
			t.Fatalf("the engine %+v\nthe fleet %+v", x, y)
		}
	})
}

// told is the lines that a sink gets which is no watcher.
func told(lines []string) (out []string) {
	for _, l := range lines {
		if !strings.Contains(l, "watch") {
			out = append(out, l)
		}
	}
	return out
}

// watchTrace writes down steps too.
type watchTrace struct{ *trace }

func (s *watchTrace) Retracted(id uint64, at time.Duration, generated int) {
	s.lines = append(s.lines, fmt.Sprintf("watch %d retracted %d %d", at, id, generated))
}

func (s *watchTrace) Stepped(step engine.Step) {
	s.lines = append(s.lines, fmt.Sprintf("watch step %+v", step))
}

func (s *watchTrace) Rested(at time.Duration, st engine.Stats) {
	s.lines = append(s.lines, fmt.Sprintf("watch %d rested %+v", at, st))
}

// What a replica writes into its cache of a reply that another has begun is the reply that was told: the next turn finds all of it.
func TestResumedReplyIsFoundAgain(t *testing.T) {
	const tokens = 200
	for _, split := range []bool{false, true} {
		c := config(Replicas(2, preset(t, "demo", "demo")))
		c.Retry = Resume
		c.Events = []Event{{At: 500 * time.Millisecond, Kind: Fail, Replica: 0}}
		if split {
			c.Replicas = Replicas(4, preset(t, "demo", "demo"))
			for i := range c.Replicas {
				c.Replicas[i].Role = []Role{Decode, Decode, Prefill, Prefill}[i]
			}
			c.Handoff = Handoff{Link: Link{Name: "fast", Bandwidth: 1e12}, KVBytes: func(n int) int64 { return int64(n) }}
		}
		f, s := make1(t, c), newTrace(t)
		prompt := words(1, 300)
		f.Submit(0, engine.Request{ID: 1, Prompt: prompt, MaxTokens: tokens})
		f.AdvanceTo(499*time.Millisecond, s)
		if n := s.tokens[1]; n == 0 || n == tokens {
			t.Fatalf("%d tokens before the replica fails", n)
		}
		f.AdvanceTo(time.Minute, s)
		if got := f.Report(time.Minute).Retried; got != 1 {
			t.Fatalf("retried %d times", got)
		}
		next := slices.Clone(prompt)
		for n := range tokens {
			next = append(next, engine.ReplyToken(engine.ReplySeed(prompt), n))
		}
		if got, want := f.replicas[1].member.Cached(append(next, 1)), len(next)-1; got != want {
			t.Errorf("split %v: %d of the %d tokens are found again", split, got, want)
		}
	}
}
