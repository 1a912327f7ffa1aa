package mockserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

// calls is a small load on the demo engine: calls that come at the given instants (several at one), speak turns turns with
// gap between the end of one and the start of the next, and send their whole history each time.
type calls struct {
	at      []time.Duration
	turns   int
	gap     time.Duration
	tokens  int
	opening int           // words of a call's system message
	hangUp  time.Duration // when call 0 hangs up, in its first turn; 0 is never
}

func (c calls) opened(call int) []wire.Message {
	var text []byte
	for i := range c.opening {
		text = fmt.Appendf(text, "c%dw%d ", call, i)
	}
	return []wire.Message{{Role: "system", Content: wire.Text(text)}, c.says(1)}
}

func (c calls) says(turn int) wire.Message {
	return user(fmt.Sprintf("and then what, %d times over?", turn))
}

// direct is what the engine tells when it is driven by hand, from instant to instant.
func (c calls) direct(eng Engine) map[turn]told {
	r := record(eng)
	d := &hand{calls: c, rec: r, turn: map[uint64]turn{}, history: map[int][]wire.Message{}, due: map[turn]time.Duration{}}
	for call, at := range c.at {
		d.history[call] = c.opened(call)
		d.due[turn{call, 1}] = at
	}
	for {
		at, ok := r.Next()
		for _, due := range d.due {
			if !ok || due < at {
				at, ok = due, true
			}
		}
		if hang := c.hangUp; hang > 0 && !d.hungUp && (!ok || hang <= at) {
			at, ok = hang, true
		}
		if !ok {
			d.forgetUnheard()
			return r.told
		}
		r.AdvanceTo(at, d)
		d.act(at)
	}
}

// hand drives an engine.
type hand struct {
	calls
	rec     *recorder
	turn    map[uint64]turn
	history map[int][]wire.Message
	due     map[turn]time.Duration
	hungUp  bool
}

func (d *hand) act(at time.Duration) {
	for t, due := range d.due {
		if due != at {
			continue
		}
		delete(d.due, t)
		id := uint64(t.call*1000 + t.turn)
		d.turn[id] = t
		d.rec.Submit(at, engine.Request{ID: id, Call: t.call, Turn: t.turn, Prompt: promptTokens(d.history[t.call]), MaxTokens: d.tokens})
	}
	if d.hangUp > 0 && at == d.hangUp && !d.hungUp {
		d.hungUp = true
		d.rec.Abort(at, 1)
	}
}

// forgetUnheard drops the tokens that came after their client had hung up: the engine ends a request with its step.
func (d *hand) forgetUnheard() {
	first := turn{0, 1}
	if t := d.rec.told[first]; d.hungUp {
		t.Tokens = slices.DeleteFunc(t.Tokens, func(at time.Duration) bool { return at > d.hangUp })
		d.rec.told[first] = t
	}
}

func (d *hand) Admitted(uint64, time.Duration, int) {}
func (d *hand) Tokens(uint64, time.Duration, int)   {}
func (d *hand) Finished(id uint64, at time.Duration, f engine.Finish) {
	t := d.turn[id]
	if f.Reason != engine.Length || t.turn == d.turns {
		return
	}
	a := answer{seed: engine.ReplySeed(promptTokens(d.history[t.call]))}
	reply := a.completion(progress{tokens: f.CompletionTokens}).Choices[0].Message
	d.history[t.call] = append(d.history[t.call], reply, d.says(t.turn+1))
	d.due[turn{t.call, t.turn + 1}] = at + d.gap
}

// overWire is what clients hear when the same load comes over HTTP.
func (c calls) overWire(cl *client) map[turn]told {
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[turn]told{}
	for call, at := range c.at {
		all.Go(func() {
			time.Sleep(at)
			ctx := context.Background()
			if call == 0 && c.hangUp > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, cl.start.Add(c.hangUp))
				defer cancel()
			}
			history := c.opened(call)
			for k := 1; k <= c.turns; k++ {
				h := cl.chat(ctx, turn{call, k}, c.tokens, history...)
				mu.Lock()
				got[turn{call, k}] = told{h.at, h.cached()}
				mu.Unlock()
				if ctx.Err() != nil {
					return
				}
				if h.err != nil || !h.done {
					cl.t.Errorf("call %d turn %d: done %t, %v", call, k, h.done, h.err)
					return
				}
				history = append(history, wire.Message{Role: "assistant", Content: wire.Text(h.text())}, c.says(k+1))
				time.Sleep(c.gap)
			}
		})
	}
	all.Wait()
	return got
}

// Over HTTP in a bubble, every token comes at exactly the instant at which the engine, driven by hand, tells it.
func TestExact(t *testing.T) {
	at := func(ms ...int) (all []time.Duration) {
		for _, m := range ms {
			all = append(all, time.Duration(m)*time.Millisecond)
		}
		return all
	}
	tests := []struct {
		name  string
		calls calls
	}{
		{"one call", calls{at: at(0), turns: 3, gap: 50 * time.Millisecond, tokens: 20, opening: 300}},
		{"calls at one instant", calls{at: at(5, 5, 5, 5, 5, 5, 5, 5), turns: 3, gap: 30 * time.Millisecond, tokens: 12, opening: 400}},
		{"calls in a row", calls{at: at(0, 1, 2, 3, 10, 11, 12, 40, 41, 80, 81, 81), turns: 4, gap: 20 * time.Millisecond, tokens: 15, opening: 700}},
		{"more than the cache holds", calls{at: at(0, 0, 7, 7, 14, 14, 21, 21, 28, 28, 35, 35, 42, 42, 49, 49), turns: 3, gap: 100 * time.Millisecond, tokens: 10, opening: 3000}},
		{"one hangs up", calls{at: at(0, 0, 3), turns: 2, gap: 30 * time.Millisecond, tokens: 60, opening: 200, hangUp: 153_100 * time.Microsecond}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := test.calls.direct(demoEngine(t))
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{}, demoEngine(t))
				got := test.calls.overWire(serve(t, s))
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(turn{})); diff != "" {
					t.Errorf("instants of tokens (-direct +over HTTP):\n%s", diff)
				}
			})
			tokens, cached := 0, 0
			for _, told := range want {
				tokens += len(told.Tokens)
				cached += told.Cached
			}
			t.Logf("%d turns, %d tokens, %d cached prompt tokens", len(want), tokens, cached)
		})
	}
}

// Scrapes at any instant change none of the others.
func TestScrapesChangeNothing(t *testing.T) {
	load := calls{at: []time.Duration{0, 0, tick, tick, 2 * tick, 3 * tick}, turns: 3, gap: 31 * time.Millisecond, tokens: 30, opening: 3000}
	want := load.direct(demoEngine(t))
	for _, kind := range []Kind{SGLang, VLLM} {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, New(Config{Kind: kind}, demoEngine(t)))
			ctx, cancel := context.WithCancel(t.Context())
			var scraper sync.WaitGroup
			scrapes := 0
			scraper.Go(func() {
				for ; ctx.Err() == nil; scrapes++ {
					c.do("GET", "/metrics", nil)
					time.Sleep(13_700_001 * time.Nanosecond)
				}
			})
			got := load.overWire(c)
			cancel()
			scraper.Wait()
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(turn{})); diff != "" || scrapes < 50 {
				t.Errorf("%s: instants of tokens under %d scrapes (-direct +over HTTP):\n%s", kind, scrapes, diff)
			}
		})
	}
}

// A client that goes away frees its place at that instant, and nothing is generated for it afterwards.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{}, &lockstep{step: tick})
		c := serve(t, s)
		for _, after := range []time.Duration{tick / 2, 3*tick + tick/2} { // before the first token, and in the stream
			before := s.Stats().GeneratedTokens
			ctx, cancel := context.WithTimeout(t.Context(), after)
			h := c.chat(ctx, turn{}, 100, user("hi"))
			cancel()
			if h.err == nil {
				t.Errorf("after %v: no error", after)
			}
			synctest.Wait()
			if status, answer := c.do("POST", "/flush_cache", nil); status != 200 {
				t.Errorf("after %v: flush: got %d %s, want 200", after, status, answer)
			}
			time.Sleep(10*tick - after%tick)
			if got, want := s.Stats().GeneratedTokens-before, int(after/tick); got != want {
				t.Errorf("after %v: %d tokens generated, want %d", after, got, want)
			}
		}
	})
}

// A client that does not read holds up nobody but itself, and what it missed is there when it reads on.
func TestStalledClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{}, &lockstep{step: tick})
		c := serve(t, s)
		body := marshal(wire.ChatRequest{Model: c.model, Messages: []wire.Message{user("hi")}, MaxTokens: 20, Stream: true})
		resp, err := c.http.Post(c.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		h := c.chat(t.Context(), turn{}, 5, user("hi"))
		if diff := cmp.Diff([]time.Duration{2 * tick, 3 * tick, 4 * tick, 5 * tick, 6 * tick}, h.at); diff != "" {
			t.Errorf("the other client's tokens (-want +got):\n%s", diff)
		}
		time.Sleep(30 * tick)
		before := time.Now()
		stalled, err := io.ReadAll(resp.Body)
		if n := bytes.Count(stalled, []byte(`"content":"`)); err != nil || n != 21 || time.Since(before) != 0 {
			t.Errorf("the stalled client read %d content events of 21 in %v, %v", n, time.Since(before), err)
		}
	})
}
