package fleet

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kneefinder/simulation/engine"
)

// A link is shared equally: against the obvious way, which goes from event to event and serves every flow by itself.
func TestLinkIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type wish struct {
			at    time.Duration
			bytes int64
		}
		var wishes []wish
		at := time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "transfers") {
			at += time.Duration(rapid.IntRange(0, 2000).Draw(t, "after")) * time.Microsecond
			wishes = append(wishes, wish{at, int64(rapid.IntRange(0, 5000).Draw(t, "bytes"))})
		}
		const rate = 1e6 // bytes a second
		l := link{rate: rate / 1e9}
		ends := map[*job]time.Duration{}
		var jobs []*job
		run := func(until time.Duration) {
			for next := l.next(); next < never && next <= until; next = l.next() {
				ends[l.finish(next).job] = next
			}
		}
		total := int64(0)
		for _, w := range wishes {
			run(w.at)
			j := &job{}
			jobs = append(jobs, j)
			l.start(w.at, j, w.bytes)
			total += w.bytes
		}
		run(never - 1)

		left, want := make([]float64, len(wishes)), make([]float64, len(wishes)) // bytes, seconds
		now, i := 0., 0
		active := map[int]bool{}
		busy := 0.
		for i < len(wishes) || len(active) > 0 {
			step := math.Inf(1)
			if i < len(wishes) {
				step = wishes[i].at.Seconds() - now
			}
			for k := range active {
				step = min(step, left[k]*float64(len(active))/rate)
			}
			if len(active) > 0 {
				busy += step
			}
			n := float64(len(active))
			now += step
			for k := range active {
				if left[k] -= step * rate / n; left[k] < 1e-9*rate {
					want[k] = now
					delete(active, k)
				}
			}
			for i < len(wishes) && wishes[i].at.Seconds() <= now+1e-12 {
				left[i], active[i] = float64(wishes[i].bytes), true
				i++
			}
		}
		for k, j := range jobs {
			if got := ends[j].Seconds(); math.Abs(got-want[k]) > 1e-7 {
				t.Fatalf("transfer %d of %v ends at %v, want %v", k, wishes, got, want[k])
			}
		}
		if l.bytes != total || math.Abs(l.busy.Seconds()-busy) > 1e-6 {
			t.Fatalf("%d bytes in %v, want %d in %v s", l.bytes, l.busy, total, busy)
		}
	})
}

// Two prefill and two decode engines and a link that nearly all its time carries KV: the first token does not wait for the link where
// it is told by the prefill engine, and does where it is told by the decode engine; the second waits either way.
func TestCongestedLink(t *testing.T) {
	const n, prompt = 120, 1000
	run := func(bandwidth float64, hold bool) (ttft, second, e2e time.Duration, r Report, end time.Duration) {
		e := preset(t, "demo", "demo")
		c := config(Replicas(4, e))
		for i := range c.Replicas {
			c.Replicas[i].Role = []Role{Prefill, Prefill, Decode, Decode}[i]
		}
		c.Handoff = Handoff{Link: Link{Name: "test", Bandwidth: bandwidth, Latency: 10 * time.Microsecond}, HoldFirst: hold,
			KVBytes: func(tokens int) int64 { return 65536 * int64(tokens) }}
		f, s := make1(t, c), &seconds{trace: newTrace(t), second: map[uint64]time.Duration{}}
		var arrivals []arrivalOf
		for id := range n {
			arrivals = append(arrivals, arrivalOf{time.Duration(id) * 20 * time.Millisecond,
				engine.Request{ID: uint64(id), Call: id, Prompt: words(id, prompt), MaxTokens: 20}})
		}
		drive(f, s, arrivals)
		for _, a := range arrivals {
			if len(s.ends[a.ID]) != 1 || s.ends[a.ID][0].Reason != engine.Length || s.tokens[a.ID] != 20 || s.ends[a.ID][0].CompletionTokens != 20 {
				t.Fatalf("request %d: %d tokens, ends %+v", a.ID, s.tokens[a.ID], s.ends[a.ID])
			}
			ttft += (s.firsts[a.ID] - a.at) / n
			second += (s.second[a.ID] - a.at) / n
			e2e += (s.ended[a.ID] - a.at) / n
		}
		for i, p := range f.PerReplica() {
			computed, generated := n/2*prompt, n/2
			if p.Role == Decode {
				computed, generated = 0, n/2*19
			}
			if p.Stats.ComputedTokens != computed || p.Stats.GeneratedTokens != generated {
				t.Errorf("replica %d (%s) computed %d and generated %d tokens, want %d and %d", i, p.Role, p.Stats.ComputedTokens, p.Stats.GeneratedTokens, computed, generated)
			}
		}
		return ttft, second, e2e, f.Report(s.last), s.last
	}
	const kv = 65536 * prompt
	fast, fastSecond, _, free, _ := run(1e12, false)
	slow, slowSecond, _, busy, end := run(kv/.0199, false) // just faster than they come
	held, heldSecond, _, _, _ := run(kv/.0199, true)
	jam, jamSecond, _, jammed, jamEnd := run(kv/.04, false) // half as fast as they come
	t.Logf("first and second token: fast link %v %v, nearly full %v %v, told by the decode engine %v %v, jammed %v %v", fast, fastSecond, slow, slowSecond, held, heldSecond, jam, jamSecond)
	if fast != slow || fast != jam {
		t.Errorf("first tokens told by prefill engines come after %v, %v and %v, must not depend on the link", fast, slow, jam)
	}
	if held < slow+19*time.Millisecond {
		t.Errorf("first tokens told by decode engines come after %v, by prefill engines %v: a transfer takes at least 19.9 ms", held, slow)
	}
	if jamSecond < 10*slowSecond || slowSecond < fastSecond+19*time.Millisecond {
		t.Errorf("second tokens come after %v, %v and %v, must wait for the link", fastSecond, slowSecond, jamSecond)
	}
	for _, r := range []Report{free, busy, jammed} {
		if r.Transfers.Count != n || r.Transfers.Bytes != n*kv {
			t.Errorf("%+v, want %d transfers of %d bytes", r.Transfers, n, kv)
		}
	}
	if use := busy.Transfers.Busy.Seconds() / end.Seconds(); use < .9 {
		t.Errorf("the link is in use %.3f of the time", use)
	}
	if want := time.Duration(n) * 40 * time.Millisecond; (jammed.Transfers.Busy-want).Abs() > time.Millisecond || jamEnd < want {
		t.Errorf("the jammed link is busy for %v until %v, has work for %v", jammed.Transfers.Busy, jamEnd, want)
	}
}

// seconds is a trace of second tokens.
type seconds struct {
	*trace
	second map[uint64]time.Duration
}

func (s *seconds) Tokens(id uint64, at time.Duration, n int) {
	s.trace.Tokens(id, at, n)
	if s.tokens[id] == 2 {
		s.second[id] = at
	}
}

func TestLinkPresets(t *testing.T) {
	names := LinkNames()
	if !slices.IsSorted(names) || len(names) != 3 {
		t.Errorf("presets %v", names)
	}
	for _, name := range names {
		if l, ok := LinkByName(name); !ok || l.Name != name || (Handoff{Link: l, KVBytes: func(int) int64 { return 0 }}).validate() != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if _, ok := LinkByName("pigeon"); ok {
		t.Error("there is a pigeon")
	}
}
