package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// recorder keeps what it is told of steps.
type recorder struct {
	replicas []int
	parts    []engine.Part
	last     time.Duration
	t        *testing.T
}

func (r *recorder) Step(replica int, s *engine.Step) {
	if s.End < r.last || len(s.Parts) == 0 {
		r.t.Errorf("a step to %v after one to %v, with %d requests", s.End, r.last, len(s.Parts))
	}
	r.last = s.End
	r.replicas = append(r.replicas, replica)
	r.parts = append(r.parts, s.Parts...)
}

func config(t *testing.T, running int) engine.Config {
	t.Helper()
	c, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	c.Recipe.MaxRunning = running
	return c
}

// ask sends so many requests at once and returns what became of them, by call.
func ask(t *testing.T, eng Engine, calls int, w StepWatcher) []measurement.Turn {
	t.Helper()
	lexicon, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	clk, endpoint := NewRun(eng, lexicon, generator.Limits{})
	if w != nil {
		endpoint.Watch(w)
	}
	turns := make([]measurement.Turn, calls)
	clk.Run(t.Context(), func() {
		open, done := calls, clk.NewEvent()
		for call := range calls {
			clk.Go(fmt.Sprint("call ", call), func() {
				words := workload.Segment{Call: call + 1, Words: 300}
				prompt := workload.Prompt{{Role: "user", Content: workload.Content{Segment: words}}}
				turns[call] = endpoint.Do(t.Context(), generator.Request{Call: call, Turn: 2, Prompt: prompt, MaxTokens: 20, Last: true}).Turn
				if open--; open == 0 {
					done.Set()
				}
			})
		}
		_ = done.Wait(t.Context())
	})
	return turns
}

// A turn knows when it was admitted: where one request runs at once, the second waits for the first, and what it waited and what came
// then are its TTFT.
func TestAdmitted(t *testing.T) {
	eng, err := engine.New(config(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	turns := ask(t, eng, 2, nil)
	first, second := turns[0], turns[1]
	if first.Admitted <= first.Sent || second.Admitted != first.End {
		t.Errorf("the first, sent at %v, was admitted at %v and ended at %v; the second was admitted at %v", first.Sent, first.Admitted, first.End, second.Admitted)
	}
	wait, _ := second.QueueWait()
	rest, ok := second.TTFTAdmitted()
	if sum, _ := second.TTFTSent(); !ok || wait+rest != sum || wait < first.End-first.Admitted {
		t.Errorf("the second waited %v and got its first token %v after, of %v", wait, rest, sum)
	}
}

// A turn knows which of several engines it went to, watched or not, and of one that prefills and one that decodes the first; of one
// engine, behind a router or not, there is nothing to know.
func TestReplica(t *testing.T) {
	behind := func(replicas []fleet.Replica) func() Engine {
		return func() Engine {
			c := fleet.Default()
			c.Replicas = replicas
			c.Handoff.Link, _ = fleet.LinkByName("nixl")
			c.Handoff.KVBytes = func(tokens int) int64 { return int64(tokens) << 10 }
			f, err := fleet.New(c)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	split := fleet.Replicas(3, config(t, 8))
	split[0].Role, split[1].Role, split[2].Role = fleet.Prefill, fleet.Prefill, fleet.Decode
	one := func() Engine {
		e, err := engine.New(config(t, 8))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, c := range []struct {
		why  string
		eng  func() Engine
		want []int32
	}{
		{"one engine", one, []int32{0, 0, 0, 0}},
		{"a fleet of one", behind(fleet.Replicas(1, config(t, 8))), []int32{0, 0, 0, 0}},
		{"three in turn", behind(fleet.Replicas(3, config(t, 8))), []int32{1, 2, 3, 1}},
		{"two that prefill before one that decodes", behind(split), []int32{1, 2, 1, 2}},
	} {
		for _, w := range []StepWatcher{nil, &recorder{t: t}} {
			turns := ask(t, c.eng(), 4, w)
			got := make([]int32, len(turns))
			for i, turn := range turns {
				got[i] = turn.Replica
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, watched %v: went to %v, want %v", c.why, w != nil, got, c.want)
			}
		}
	}
}

// Who watches the steps is told of all of them, of one engine and of a fleet's, and changes nothing.
func TestWatch(t *testing.T) {
	one := func() Engine {
		e, err := engine.New(config(t, 8))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	two := func() Engine {
		c := fleet.Default()
		c.Replicas = fleet.Replicas(2, config(t, 8))
		f, err := fleet.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name     string
		eng      func() Engine
		replicas []int
	}{{"engine", one, []int{0}}, {"fleet", two, []int{0, 1}}} {
		w := &recorder{t: t}
		watched, alone := ask(t, c.eng(), 4, w), ask(t, c.eng(), 4, nil)
		for i := range watched {
			a, b := watched[i], alone[i]
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("%s: watched %+v\nalone %+v", c.name, a, b)
			}
		}
		slices.Sort(w.replicas)
		if got := slices.Compact(w.replicas); !slices.Equal(got, c.replicas) {
			t.Errorf("%s: steps of the replicas %v, want %v", c.name, got, c.replicas)
		}
		prompt, decoded := 0, 0
		for _, p := range w.parts {
			if p.Turn != 2 {
				t.Errorf("%s: %+v", c.name, p)
			}
			if p.Prefill {
				prompt += p.Query
			} else {
				decoded++
			}
		}
		want := 0
		for _, turn := range alone {
			want += turn.PromptTokens - turn.CachedTokens
		}
		if prompt != want || decoded != 4*19 {
			t.Errorf("%s: %d prompt tokens and %d decodes, want %d and %d", c.name, prompt, decoded, want, 4*19)
		}
	}
}
