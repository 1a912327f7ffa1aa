package mockserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

// Fifty clients at once on a real network: everyone gets the whole of its own answer.
func TestManyStreams(t *testing.T) {
	const streams, turns, tokens = 50, 3, 20
	s := New(Config{}, demoEngine(t))
	c := serveLoopback(t, s)
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			for k := range turns {
				message := user(fmt.Sprintf("I am caller %d and this is question %d", i, k))
				seed := engine.ReplySeed(promptTokens([]wire.Message{message}))
				want := (&answer{seed: seed}).completion(progress{tokens: tokens}).Choices[0].Message.Content
				h := c.chat(t.Context(), turn{i, k + 1}, tokens, message)
				switch {
				case h.err != nil || !h.done:
					t.Errorf("stream %d.%d: done %t, %v", i, k, h.done, h.err)
				case len(h.words) != tokens || h.text() != string(want):
					t.Errorf("stream %d.%d: got %d events saying %s, want %d saying %s", i, k, len(h.words), h.text(), tokens, want)
				case h.usage == nil || h.usage.CompletionTokens != tokens || h.reason != "length":
					t.Errorf("stream %d.%d: got usage %+v and reason %q", i, k, h.usage, h.reason)
				}
			}
		})
	}
	all.Wait()
	if got, want := s.Stats().GeneratedTokens, streams*turns*tokens; got != want {
		t.Errorf("%d tokens generated, want %d", got, want)
	}
	if n := len(s.driver.open); n != 0 {
		t.Errorf("%d requests are still open", n)
	}
}

// Streams on a real network keep to the engine's instants: what is late does not make what follows later.
func TestPacing(t *testing.T) { punctual(t, 200, 100, 0) }

// Scrapes, a hundred times as many as usual, do not hold up the streams.
func TestPacingWhileScraped(t *testing.T) { punctual(t, 100, 60, 10*time.Millisecond) }

// punctual fails unless 99 % of tokens are late by less than a quarter of a second, once in three tries: the machine may have
// other things to do.
func punctual(t *testing.T, streams, tokens int, scrape time.Duration) {
	if testing.Short() {
		t.Skip("runs on the wall for seconds")
	}
	limit := 250 * time.Millisecond
	if raceEnabled {
		limit *= 8 // which is there to find races, not to keep a pace
	}
	least := time.Hour
	for try := 0; try < 3 && least > limit; try++ {
		late := paced(t, streams, tokens, scrape)
		last, all := quantile(late[len(late)-1], .5), slices.Concat(late...)
		least = min(least, quantile(all, .99))
		t.Logf("%d tokens late by: P50 %v, P99 %v, max %v; last tokens P50 %v", len(all), quantile(all, .5), quantile(all, .99), quantile(all, 1), last)
	}
	if least > limit {
		t.Errorf("P99 of lateness is %v at best, want under %v", least, limit)
	}
}

// paced is how late clients hear tokens on loopback, by the number of the token: streams in lockstep, one token each in 20 ms,
// which is the worst case for the server since all are due at once. The metrics are scraped every so often; 0 is never.
func paced(t testing.TB, streams, tokens int, scrape time.Duration) (late [][]time.Duration) {
	start := time.Now()
	rec := record(&lockstep{step: 20 * time.Millisecond})
	s := New(Config{Now: func() time.Duration { return time.Since(start) }}, rec)
	c := serveLoopback(t, s)
	var scraper sync.WaitGroup
	done := make(chan struct{})
	if scrape > 0 {
		scraper.Go(func() {
			n := 0
			for ; ; n++ {
				select {
				case <-done:
					if n < 2 {
						t.Errorf("only %d scrapes", n)
					}
					return
				case <-time.After(scrape):
					if status, _ := c.do("GET", "/metrics", nil); status != http.StatusOK {
						t.Errorf("scrape: %d", status)
					}
				}
			}
		})
	}
	heard := hearAll(t, listenOrder{c.url, c.model, streams, tokens}, start)
	close(done)
	scraper.Wait()
	s.Stats() // what the recorder has is ours after the server's lock
	return lateness(t, heard, func(stream int) []time.Duration { return rec.told[turn{stream, 1}].Tokens }, tokens)
}

// lateness is how much later than due tokens were heard, by the number of the token.
func lateness(t testing.TB, heard [][]time.Duration, due func(stream int) []time.Duration, tokens int) [][]time.Duration {
	late := make([][]time.Duration, tokens)
	for i, at := range heard {
		due := due(i)
		if len(at) != tokens || len(due) != tokens {
			t.Fatalf("stream %d: heard %d tokens of %d", i, len(at), len(due))
		}
		for k := range tokens {
			late[k] = append(late[k], at[k]-due[k])
			if at[k] < due[k]-time.Millisecond { // two processes' clocks agree to a fraction of that
				t.Fatalf("stream %d: token %d came %v before it was due", i, k, due[k]-at[k])
			}
		}
	}
	return late
}

// listenRole makes the test binary a process that listens to streams: as in real use the clients are another process than the server.
const listenRole = "MOCKSERVER_TEST_LISTEN"

// listenOrder is what that process is told on its input.
type listenOrder struct {
	URL, Model      string
	Streams, Tokens int
}

// hearAll lets a process of its own listen to streams that begin 1 ms after one another. Of each it returns when its tokens came,
// counted from start.
func hearAll(t testing.TB, order listenOrder, start time.Time) [][]time.Duration {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), listenRole+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tell, answers := json.NewEncoder(in), json.NewDecoder(out)
	// The processes' clocks are compared as NTP does: the exchange that took least errs least.
	var offset time.Duration
	best := time.Hour
	for range 100 {
		before := time.Since(start)
		var theirs time.Duration
		if err := errors.Join(tell.Encode(nil), answers.Decode(&theirs)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start) - before; took < best {
			best, offset = took, before+took/2-theirs
		}
	}
	var heard [][]time.Duration
	if err := errors.Join(tell.Encode(order), in.Close(), answers.Decode(&heard), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	for _, at := range heard {
		for k := range at {
			at[k] += offset
		}
	}
	return heard
}

// listen is the process of hearAll: it says what its clock shows whenever asked, then listens.
func listen() {
	debug.SetGCPercent(-1) // a pause would be taken for the server's
	debug.SetMemoryLimit(1 << 30)
	start := time.Now()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var order *listenOrder
		if err := in.Decode(&order); err != nil {
			panic(err)
		}
		if order == nil {
			_ = out.Encode(time.Since(start))
			continue
		}
		c := &client{http: http.Client{Transport: &http.Transport{}}, url: order.URL, start: start, model: order.Model}
		streams := make([]raw, order.Streams)
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				streams[i] = c.hear(context.Background(), turn{i, 1}, order.Tokens, user("hello"))
			})
		}
		all.Wait()
		heard := make([][]time.Duration, order.Streams)
		for i, s := range streams {
			h := s.read()
			if h.err != nil || !h.done {
				panic(fmt.Sprintf("stream %d: done %t, %v", i, h.done, h.err))
			}
			heard[i] = h.at
		}
		_ = out.Encode(heard)
		return
	}
}

func quantile(late []time.Duration, q float64) time.Duration {
	late = slices.Sorted(slices.Values(late))
	return late[min(int(q*float64(len(late))), len(late)-1)]
}

// BenchmarkToken is one token's events on their way into the response.
func BenchmarkToken(b *testing.B) {
	a := answer{streamed: true, seed: 1, chunk: wire.Chunk{ID: "chatcmpl-0000000000000001", Model: "m"}}
	out := &writer{w: discard{http.Header{}}}
	out.control = http.NewResponseController(out.w)
	b.ReportAllocs()
	for i := range b.N {
		if err := out.events(a.next(progress{tokens: i + 1})); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) Flush()                      {}

// BenchmarkRequest is what a request costs before the engine sees it: 18,000 words read, decoded, tokenized.
func BenchmarkRequest(b *testing.B) {
	body := string(marshal(wire.ChatRequest{Model: "m", Messages: []wire.Message{user(strings.Repeat("harbor ", 18_000))}}))
	s := New(Config{ModelName: "m"}, &lockstep{step: tick})
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/chat/completions", io.NopCloser(strings.NewReader(body)))
		var req wire.ChatRequest
		if refusal := readJSON(nil, r, &req); refusal != nil {
			b.Fatal(refusal.message)
		}
		if _, refusal := s.plan(req); refusal != nil {
			b.Fatal(refusal.message)
		}
	}
}

// BenchmarkPacing is how late clients in a process of their own hear tokens, one in 20 ms for each of many streams in lockstep, and
// by how much streams have drifted at their end. Beside it the same of a bare server, whose handlers sleep until each token is due and
// write an event that is ready made.
func BenchmarkPacing(b *testing.B) {
	const tokens = 250
	for _, streams := range []int{100, 500, 1000, 1200, 1500, 2000} {
		for _, server := range []struct {
			name  string
			paced func() [][]time.Duration
		}{
			{"mock", func() [][]time.Duration { return paced(b, streams, tokens, 0) }},
			{"bare", func() [][]time.Duration { return pacedBare(b, streams, tokens) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", streams, server.name), func(b *testing.B) {
				for b.Loop() {
					late := server.paced()
					all := slices.Concat(late...)
					ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
					b.ReportMetric(ms(quantile(all, .5)), "P50-ms")
					b.ReportMetric(ms(quantile(all, .99)), "P99-ms")
					b.ReportMetric(ms(quantile(late[tokens-1], .5)-quantile(late[tokens/2], .5)), "drift-ms")
				}
			})
		}
	}
}

// pacedBare is paced with a bare server.
func pacedBare(b *testing.B, streams, tokens int) (late [][]time.Duration) {
	const step = 20 * time.Millisecond
	start := time.Now()
	word := "harbor "
	event := appendEvent(nil, wire.Chunk{ID: "chatcmpl-0000000000000001", Object: "chat.completion.chunk", Model: "m",
		Choices: []wire.ChunkChoice{{Delta: wire.Delta{Content: &word}}}})
	due := make([][]time.Duration, streams)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, stream, _, _ := wire.ParseTurnID(r.Header.Get(wire.RequestIDHeader))
		flush := http.NewResponseController(w)
		at := time.Since(start).Truncate(step) + step
		for range tokens {
			due[stream] = append(due[stream], at)
			time.Sleep(at - time.Since(start))
			_, _ = w.Write(event)
			_ = flush.Flush()
			at += step
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	heard := hearAll(b, listenOrder{hs.URL, "bare", streams, tokens}, start)
	hs.Close() // its handlers have ended
	return lateness(b, heard, func(stream int) []time.Duration { return due[stream] }, tokens)
}
