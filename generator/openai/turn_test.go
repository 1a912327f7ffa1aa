package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/wire"
	"kneefinder/measurement"
)

// TestStreams plays streams in a bubble, where every instant comes out exact. Times are in ms since the request.
func TestStreams(t *testing.T) {
	const unknown = measurement.Unknown
	type want struct {
		outcome           measurement.Outcome
		detail            string // a part of it
		text              string
		first, last, end  int // -1 is Never
		gaps              []int
		n, prompt, cached int
		firstTokens       int
	}
	ok := func(first int, gaps []int, end, n int, text string) want {
		last := first
		for _, g := range gaps {
			last += g
		}
		return want{outcome: measurement.OK, text: text, first: first, last: last, end: end, gaps: gaps, n: n, prompt: unknown, cached: unknown}
	}
	failed := func(o measurement.Outcome, detail string, first, end int, gaps []int, text string) want {
		w := ok(first, gaps, end, unknown, text)
		w.outcome, w.detail = o, detail
		return w
	}
	told := func(w want, prompt, cached int) want {
		w.prompt, w.cached = prompt, cached
		return w
	}
	firstOf := func(w want, tokens int) want {
		w.firstTokens = tokens
		return w
	}
	limits := generator.Limits{TTFT: 2 * time.Second, Idle: time.Second, Total: 4 * time.Second}
	run := func(c string, completion int) string { // content with running usage
		return fmt.Sprintf(`RAW"data: {'choices':[{'index':0,'delta':{'content':'%s'}}],'usage':{'prompt_tokens':5,'completion_tokens':%d}}\n\n"`, c, completion)
	}
	for _, test := range []struct {
		name, stream string
		want         want
		change       func(*Config)
	}{
		// What a first token is.
		{name: "a role is no token", stream: `R@5 C"a"@214 C"b"@234 F@235 U(9,2) D`,
			want: told(ok(214, []int{20}, 235, 2, "ab"), 9, unknown)},
		{name: "a role with null is none", stream: `R0@2 C"a"@1300 C"b"@1320 F D`, want: ok(1300, []int{20}, 1320, unknown, "ab")},
		{name: "reasoning in both spellings", stream: `R T"h"@50 T2"m"@60 C"a"@300 F U(5,3) D`,
			want: told(ok(50, []int{10, 240}, 300, 3, "a"), 5, unknown)},
		{name: "tool calls", stream: `R G@40 G@60 F U(5,200) D`, want: told(ok(40, []int{20}, 60, 200, ""), 5, unknown)},
		{name: "white space is a token", stream: `C" "@10 C"\n"@20 F U(3,2) D`, want: told(ok(10, []int{10}, 20, 2, " \n"), 3, unknown)},
		{name: "usage is no token", stream: `C"a"@40 F U(9,1) D`, want: told(ok(40, nil, 40, 1, "a"), 9, unknown)},
		{name: "an answer without a token", stream: `R@10 F@20 U(9,1) D`, want: told(ok(-1, nil, 20, 1, ""), 9, unknown)},
		{name: "comments are nothing", stream: `K@0 K@1000 C"a"@1500 F D`, want: ok(1500, nil, 1500, unknown, "a")},
		{name: "finish and content in one", stream: `RAW"data: {'choices':[{'delta':{'content':'a'},'finish_reason':'length'}]}\n\n"@30 D@40`,
			want: ok(30, nil, 40, unknown, "a")},
		{name: "another choice is ignored", stream: `RAW"data: {'choices':[{'index':1,'delta':{'content':'no'}}]}\n\n"@5 C"a"@10 F D`,
			want: ok(10, nil, 10, unknown, "a")},
		{name: "nulls", stream: `RAW"data: {'choices':null,'usage':null}\n\ndata: {'choices':[{'delta':null}]}\n\n"@5 C"a"@10 F D`,
			want: ok(10, nil, 10, unknown, "a")},
		{name: "the whole answer again", stream: `C"a"@10 C"b"@20 RAW"data: {'choices':[{'message':{'content':'ab'},'finish_reason':'stop'}]}\n\n"@30 D`,
			want: ok(10, []int{10}, 30, unknown, "ab")},
		{name: "only the whole answer", stream: `RAW"data: {'choices':[{'message':{'content':'ab'},'finish_reason':'stop'}]}\n\n"@30`,
			want: ok(30, nil, 30, unknown, "ab")},

		// Counts.
		{name: "usage counts, not events", stream: `C"Hel"@10 C"lo" C" world" F U(4,2) D`,
			want: told(ok(10, []int{0, 0}, 10, 2, "Hello world"), 4, unknown)},
		{name: "no usage", stream: `R C"a"@1 C"b"@2 F D`, want: ok(1, []int{1}, 2, unknown, "ab")},
		{name: "running usage", stream: run("a", 10) + `@100 ` + run("b", 20) + `@200 ` + run("c", 30) + `@300 F D`,
			want: firstOf(told(ok(100, []int{100, 100}, 300, 30, "abc"), 5, unknown), 10)},
		{name: "eight tokens at first", stream: run("a", 8) + `@100 ` + run("b", 16) + `@180 F D`,
			want: firstOf(told(ok(100, []int{80}, 180, 16, "ab"), 5, unknown), 8)},
		{name: "cached null", stream: `C"a"@1 F U(18000,100,null) D`, want: told(ok(1, nil, 1, 100, "a"), 18000, unknown)},
		{name: "cached 0", stream: `C"a"@1 F U(18000,100,0) D`, want: told(ok(1, nil, 1, 100, "a"), 18000, 0)},
		{name: "cached", stream: `C"a"@1 F U(18000,100,17984) D`, want: told(ok(1, nil, 1, 100, "a"), 18000, 17984)},
		{name: "usage of zeros", stream: `C"a"@1 F U(0,0) D`, want: ok(1, nil, 1, unknown, "a")},
		{name: "a running null keeps what is known", stream: `U(9,2,4)@1 C"a"@2 F U(9,2,null) D`, want: told(ok(2, nil, 2, 2, "a"), 9, 4)},
		{name: "short output", stream: `C"a"@1 F U(18000,37,0) D`, change: func(c *Config) { c.IgnoreEOS = true },
			want: want{outcome: measurement.ShortOutput, detail: "37 of 100", text: "a", first: 1, last: 1, end: 1, n: 37, prompt: 18000}},
		{name: "full output", stream: `C"a"@1 F"length" U(18000,100,0) D`, change: func(c *Config) { c.IgnoreEOS = true },
			want: told(ok(1, nil, 1, 100, "a"), 18000, 0)},

		// When.
		{name: "one write", stream: `R@214 C"a" C"b" F U(9,2) D`, want: told(ok(214, []int{0}, 214, 2, "ab"), 9, unknown)},
		{name: "a proxy that held the whole answer back", stream: `R@3000 C"a" C"b" C"c" F U(9,3) D`, want: told(ok(3000, []int{0, 0}, 3000, 3, "abc"), 9, unknown)},
		{name: "the end is [DONE]", stream: `C"a"@10 C"b"@20 F@20 U(1,2)@220 D@230`, want: told(ok(10, []int{10}, 230, 2, "ab"), 1, unknown)},
		{name: "or the end of the stream", stream: `C"a"@10 F@20 RAW": bye\n"@300`, want: ok(10, nil, 300, unknown, "a")},
		{name: "nothing counts after [DONE]", stream: `C"a"@10 F D C"b" E"x" | C"c"@20`, want: ok(10, nil, 10, unknown, "a")},
		{name: "a rune in two writes", stream: `RAW"data: {'choices':[{'delta':{'content':'\xf0\x9f"@10 RAW"\x98\x80'}}]}\n\n"@30 F D`,
			want: ok(30, nil, 30, unknown, "😀")},
		{name: "a field in two writes", stream: `RAW"data:"@10 RAW" {'choices':[{'delta':{'content':' a '}}]}\n\n"@30 F D`,
			want: ok(30, nil, 30, unknown, " a ")},
		{name: "no blank line at the end", stream: `C"a"@10 RAW"data: [DONE]"@20`, want: ok(10, nil, 20, unknown, "a")},
		{name: "data lines in several parts", stream: `RAW"data: {'choices':\ndata: [{'delta':{'content':'a'}}]}\n\n"@10 F D`,
			want: ok(10, nil, 10, unknown, "a")},
		{name: "a space behind [DONE]", stream: `C"a"@10 RAW"data: [DONE] \r\n\r\n"@20`, want: ok(10, nil, 20, unknown, "a")},
		{name: "an id that changes", stream: `RAW"id: 1\nevent: message\ndata: {'id':'y','model':'z','choices':[{'delta':{'content':'a'}}]}\n\n"@10 C"b"@20 F D`,
			want: ok(10, []int{10}, 20, unknown, "ab")},
		{name: "a named ping that is no JSON", stream: `RAW"event: ping\ndata: hello\n\n"@1 C"a"@10 F D`, want: ok(10, nil, 10, unknown, "a")},
		{name: "chunks with a name", stream: `RAW"event: chunk\ndata: {'choices':[{'delta':{'content':'a'}}]}\n\n"@10 F D`, want: ok(10, nil, 10, unknown, "a")},
		{name: "null and text as data", stream: `RAW"data: null\n\ndata: 'x'\n\ndata:\n\n"@1 C"a"@10 F D`, want: ok(10, nil, 10, unknown, "a")},

		// Failures inside a 200.
		{name: "an error after a comment", stream: `K E"overloaded"@7 D`, want: failed(measurement.StreamError, "overloaded", -1, 7, nil, "")},
		{name: "an error after tokens", stream: `R C"a"@10 C"b"@20 E"x"@30 D`, want: failed(measurement.StreamError, ": x", 10, 30, []int{10}, "ab")},
		{name: "only an error", stream: `E"x"`, want: failed(measurement.StreamError, ": x", -1, 0, nil, "")},
		{name: "an error event", stream: `C"a"@1 RAW"event: error\ndata: {'message':'gone'}\n\n"@2`, want: failed(measurement.StreamError, ": gone", 1, 2, nil, "a")},
		{name: "an error event in words", stream: `RAW"event: error\ndata: out of memory\n\n"`, want: failed(measurement.StreamError, ": out of memory", -1, 0, nil, "")},
		{name: "a flat error", stream: `RAW"data: {'object':'error','message':'too long','code':400}\n\n"`, want: failed(measurement.StreamError, ": too long", -1, 0, nil, "")},
		{name: "an error field", stream: `RAW"error: {'code':500,'message':'slot'}\n\n"`, want: failed(measurement.StreamError, ": slot", -1, 0, nil, "")},
		{name: "an error outside an event", stream: `C"a" RAW"{'error':{'message':'bare'}}\n"`, want: failed(measurement.StreamError, ": bare", 0, 0, nil, "a")},
		{name: "an abort", stream: `C"a" F"abort" D`, want: failed(measurement.StreamError, "abort", 0, 0, nil, "a")},
		{name: "an error after the finish", stream: `C"a" F E"late"@5 D`, want: failed(measurement.StreamError, ": late", 0, 5, nil, "a")},
		{name: "not JSON", stream: `C"a" RAW"data: oops\n\n"@4 F D`, want: failed(measurement.StreamError, "not JSON", 0, 4, nil, "a")},

		// Streams that end too soon, or only seem to.
		{name: "cut", stream: `R C"a"@10 X@15`, want: failed(measurement.Truncated, "1 token events", 10, 15, nil, "a")},
		{name: "cut inside an event", stream: `R C"a"@10 RAW"data: {'choices':[{'del"@12 X`, want: failed(measurement.Truncated, "1 token events", 10, 12, nil, "a")},
		{name: "ended inside an event", stream: `R C"a"@10 RAW"data: {'choices':[{'del"@12`, want: failed(measurement.Truncated, "1 token events", 10, 12, nil, "a")},
		{name: "ended without finish", stream: `R C"a"@10`, want: failed(measurement.Truncated, "without finish_reason", 10, 10, nil, "a")},
		{name: "nothing", stream: ``, want: failed(measurement.Truncated, "headers, no event", -1, 0, nil, "")},
		{name: "nothing, cut", stream: `X`, want: failed(measurement.Truncated, "headers, no event", -1, 0, nil, "")},
		{name: "cut after the finish", stream: `R C"a"@10 F X@12`, want: ok(10, nil, 12, unknown, "a")},
		{name: "[DONE] without finish", stream: `R C"a"@10 D`, want: ok(10, nil, 10, unknown, "a")},
		{name: "only [DONE]", stream: `D@3`, want: ok(-1, nil, 3, unknown, "")},

		// Limits: 2 s to the first token, 1 s of silence, 4 s in all.
		{name: "no token in time", stream: `R@500 K@1400 R@1800 C"a"@2100 F D`, change: func(c *Config) { c.Limits = limits },
			want: failed(measurement.TTFTTimeout, "no token within 2s", -1, 2000, nil, "")},
		{name: "no event in time", stream: `C"a"@2100 F D`, change: func(c *Config) { c.Limits = limits },
			want: failed(measurement.TTFTTimeout, "headers, no event", -1, 2000, nil, "")},
		{name: "a stall", stream: `C"a"@10 C"b"@900 C"c"@1800 C"d"@2900 F D`, change: func(c *Config) { c.Limits = limits },
			want: failed(measurement.Stall, "silent for 1s after 3 token events", 10, 2800, []int{890, 900}, "abc")},
		{name: "comments break no silence limit", stream: `C"a"@10 K@1000 K@1900 C"b"@2800 F D`, change: func(c *Config) { c.Limits = limits },
			want: ok(10, []int{2790}, 2800, unknown, "ab")},
		{name: "too long in all", stream: `C"a"@800 C"b"@1700 C"c"@2600 C"d"@3500 C"e"@4400 F D`, change: func(c *Config) { c.Limits = limits },
			want: failed(measurement.TotalTimeout, "not finished within 4s", 800, 4000, []int{900, 900, 900}, "abcd")},
		{name: "silence after the finish", stream: `C"a"@800 F D@3000`, change: func(c *Config) { c.Limits = limits },
			want: ok(800, nil, 1800, unknown, "a")},
		{name: "no limits", stream: `C"a"@100000 C"b"@900000 F D`, want: ok(100000, []int{800000}, 900000, unknown, "ab")},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, closed := writes(t, test.stream)
				c := answers(func(conn net.Conn) bool { return play(conn, streamHead, all, closed) }).client(t, test.change)
				time.Sleep(3 * time.Second)
				reply := c.Do(t.Context(), ask(100))
				turn := reply.Turn
				ms := func(at time.Duration) int {
					if at < 0 {
						return -1
					}
					return int((at - turn.Sent) / time.Millisecond)
				}
				got := want{outcome: turn.Outcome, detail: turn.Detail, text: reply.Content.Text, first: ms(turn.FirstToken), last: ms(turn.LastToken),
					end: ms(turn.End), n: turn.CompletionTokens, prompt: turn.PromptTokens, cached: turn.CachedTokens, firstTokens: turn.FirstEventTokens}
				for _, g := range turn.Gaps {
					got.gaps = append(got.gaps, int(g/time.Millisecond))
				}
				if strings.Contains(got.detail, test.want.detail) && (got.detail == "") == (test.want.detail == "") {
					got.detail = test.want.detail
				}
				if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", test.want); g != w {
					t.Errorf("%s\n got %s\nwant %s", test.stream, g, w)
				}
				if turn.Sent != 3*time.Second || turn.WroteRequest != turn.Sent || turn.Headers != turn.Sent || turn.Reused {
					t.Errorf("sent %v, wrote %v, headers %v, reused %v, want 3s, 3s, 3s, false", turn.Sent, turn.WroteRequest, turn.Headers, turn.Reused)
				}
				if len(turn.Gaps) != max(turn.Events-1, 0) {
					t.Errorf("%d gaps between %d events", len(turn.Gaps), turn.Events)
				}
			})
		})
	}
}

// TestEverySplit checks that one stream is the same answer however it is cut, in HTTP chunks and in writes.
func TestEverySplit(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		all, _ := writes(t, `R C"naïve" C"😀" K F U(9,2,4) D`)
		stream := strings.ReplaceAll(all[0].bytes, "\n", end)
		check := func(t *testing.T, name string, pieces []write) {
			t.Helper()
			synctest.Test(t, func(t *testing.T) {
				c := answers(func(conn net.Conn) bool { return play(conn, streamHead, pieces, false) }).client(t, nil)
				reply := c.Do(t.Context(), ask(2))
				turn := reply.Turn
				if turn.Outcome != measurement.OK || reply.Content.Text != "naïve😀" || turn.Events != 2 || turn.CompletionTokens != 2 ||
					turn.CachedTokens != 4 || turn.FirstToken != turn.Sent || turn.End != turn.Sent {
					t.Errorf("%q %s: got %q %+v", end, name, reply.Content.Text, turn)
				}
			})
		}
		for cut := 1; cut < len(stream); cut++ {
			check(t, fmt.Sprint("cut at ", cut), []write{{0, stream[:cut]}, {0, stream[cut:]}})
		}
		var bytes []write
		for i := range len(stream) {
			bytes = append(bytes, write{0, stream[i : i+1]})
		}
		check(t, "byte by byte", bytes)
	}
}

// TestDelays puts waits where none of the others has them.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{serve: func(conn net.Conn, _ int) {
			time.Sleep(time.Second)
			if _, _, err := readRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			time.Sleep(2 * time.Second)
			all, _ := writes(t, `R@40 C"a"@100 F D`)
			play(conn, streamHead, all, false)
		}}
		c := p.client(t, nil)
		dial := c.asks.DialContext
		c.asks.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(500 * time.Millisecond)
			return dial(ctx, network, addr)
		}
		turn := c.Do(t.Context(), ask(1)).Turn
		got := []time.Duration{turn.Sent, turn.WroteRequest, turn.Headers, turn.FirstEvent, turn.FirstToken, turn.End}
		want := []time.Duration{0, 1500 * time.Millisecond, 3500 * time.Millisecond, 3540 * time.Millisecond, 3600 * time.Millisecond, 3600 * time.Millisecond}
		if !slices.Equal(got, want) || turn.Dialed != 500*time.Millisecond {
			t.Errorf("got %v, dialed %v, want %v, dialed 500ms", got, turn.Dialed, want)
		}
	})
}

// TestChunkInParts has the size of an HTTP chunk come long before what is in it.
func TestChunkInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := writes(t, `C"a" C"b" F D`)
		c := answers(func(conn net.Conn) bool {
			for _, part := range []string{streamHead, fmt.Sprintf("%x\r", len(all[0].bytes)), "\n", all[0].bytes, "\r\n0\r\n\r\n"} {
				if _, err := io.WriteString(conn, part); err != nil {
					return false
				}
				time.Sleep(100 * time.Millisecond)
			}
			return true
		}).client(t, nil)
		turn := c.Do(t.Context(), ask(2)).Turn
		if want := 300 * time.Millisecond; turn.Outcome != measurement.OK || turn.FirstToken != want || turn.End != want {
			t.Errorf("got %+v, want all of it at %v", turn, want)
		}
	})
}

// TestLimitsBeforeTheStream checks which limit a turn breaks when no stream has begun, and that it says how far it came.
func TestLimitsBeforeTheStream(t *testing.T) {
	hang := make(chan struct{})
	for _, test := range []struct {
		name   string
		serve  func(conn net.Conn, _ int)
		limits generator.Limits
		want   measurement.Outcome
		detail string
	}{
		{"no reader", func(net.Conn, int) { <-hang }, generator.Limits{TTFT: time.Second, Total: 2 * time.Second}, measurement.TTFTTimeout, "request not written"},
		{"no answer", func(c net.Conn, _ int) { io.Copy(io.Discard, c) }, generator.Limits{TTFT: time.Second, Idle: time.Millisecond}, measurement.TTFTTimeout, "request written, no answer"},
		{"no answer, only a total limit", func(c net.Conn, _ int) { io.Copy(io.Discard, c) }, generator.Limits{Total: time.Second}, measurement.TotalTimeout, "request written, no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang = make(chan struct{})
				c := (&pipes{serve: test.serve}).client(t, func(c *Config) { c.Limits = test.limits })
				turn := c.Do(t.Context(), ask(1)).Turn
				if turn.Outcome != test.want || turn.End != time.Second || !strings.Contains(turn.Detail, test.detail) {
					t.Errorf("got %s after %v, %q, want %s after 1s, %q", turn.Outcome, turn.End, turn.Detail, test.want, test.detail)
				}
				close(hang)
			})
		})
	}
}

func TestContextEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		cause  error
		at     time.Duration
		stream string
		want   measurement.Outcome
		end    time.Duration
		text   string
	}{
		{"interrupted", nil, 15 * time.Millisecond, `C"a"@10 C"b"@20 F D`, measurement.Canceled, 15 * time.Millisecond, "a"},
		{"drained", generator.ErrDrained, 15 * time.Millisecond, `C"a"@10 C"b"@20 F D`, measurement.TotalTimeout, 15 * time.Millisecond, "a"},
		{"drained before headers", generator.ErrDrained, 0, ``, measurement.TotalTimeout, 0, ""},
		{"had failed before", nil, 15 * time.Millisecond, `C"a"@10 E"x"@12 D@20`, measurement.StreamError, 12 * time.Millisecond, "a"},
		{"was complete before", nil, 15 * time.Millisecond, `C"a"@10 D@12 K@20`, measurement.OK, 12 * time.Millisecond, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, _ := writes(t, test.stream)
				c := answers(func(conn net.Conn) bool { return play(conn, streamHead, all, false) }).client(t, nil)
				ctx, cancel := context.WithCancelCause(t.Context())
				if test.at == 0 {
					cancel(test.cause)
				}
				time.AfterFunc(test.at, func() { cancel(test.cause) })
				reply := c.Do(ctx, ask(1))
				turn := reply.Turn
				if turn.Outcome != test.want || turn.End != test.end || reply.Content.Text != test.text {
					t.Errorf("got %s after %v with %q (%s), want %s after %v with %q",
						turn.Outcome, turn.End, reply.Content.Text, turn.Detail, test.want, test.end, test.text)
				}
				if test.at == 0 && turn.Sent != measurement.Never {
					t.Errorf("sent at %v although the context had ended", turn.Sent)
				}
			})
		})
	}
}

func TestConnectionsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := writes(t, `C"a"@10 F D`)
		p := answers(func(conn net.Conn) bool { return play(conn, streamHead, all, false) })
		c := p.client(t, nil)
		for i, wait := range []time.Duration{0, 0, 3900 * time.Millisecond, 4100 * time.Millisecond, 7 * time.Second} {
			time.Sleep(wait)
			turn := c.Do(t.Context(), ask(1)).Turn
			if want := i == 1 || i == 2; turn.Outcome != measurement.OK || turn.Reused != want {
				t.Errorf("turn %d after %v: got %s, reused %v, want %v", i, wait, turn.Outcome, turn.Reused, want)
			}
		}
		if p.opened() != 3 {
			t.Errorf("%d connections were opened, want 3", p.opened())
		}
	})
}

// TestIdleCloseOfTheServer has the pauses of callers straddle the instant at which uvicorn closes an idle connection.
func TestIdleCloseOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := writes(t, `C"a"@10 F D`)
		p := &pipes{serve: func(conn net.Conn, _ int) {
			for r := bufio.NewReader(conn); ; {
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := r.Peek(1); err != nil {
					return
				}
				conn.SetReadDeadline(time.Time{})
				if _, _, err := readRequest(r); err != nil || !play(conn, streamHead, all, false) {
					return
				}
			}
		}}
		c := p.client(t, nil)
		for pause := 3 * time.Second; pause <= 7*time.Second; pause += 100 * time.Millisecond {
			if turn := c.Do(t.Context(), ask(1)).Turn; turn.Outcome != measurement.OK || turn.FirstToken != turn.Sent+10*time.Millisecond {
				t.Errorf("before a pause of %v: got %+v", pause, turn)
			}
			time.Sleep(pause)
		}
	})
}

// TestServerThatNeverEnds checks that a server which keeps a finished stream open costs neither time nor a hang.
func TestServerThatNeverEnds(t *testing.T) {
	for name, tail := range map[string]string{"silent": "", "endless": strings.Repeat(": x\n", 1000)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := answers(func(conn net.Conn) bool {
					all, _ := writes(t, `C"a"@10 F D`)
					play(conn, streamHead, all, true)
					for {
						if tail == "" {
							time.Sleep(time.Hour)
							return false
						}
						if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(tail), tail); err != nil {
							return false
						}
					}
				})
				c := p.client(t, nil)
				turn := c.Do(t.Context(), ask(1)).Turn
				if turn.Outcome != measurement.OK || turn.End != 10*time.Millisecond {
					t.Errorf("got %s at %v, want ok at 10ms", turn.Outcome, turn.End)
				}
				if now := c.clk.Now(); now > turn.End+leaveAfter {
					t.Errorf("Do returned at %v", now)
				}
			})
		})
	}
}

// TestStaleConnection has a server that closes a kept connection in ever later moments of the second request.
func TestStaleConnection(t *testing.T) {
	for _, test := range []struct {
		name string
		die  func(conn net.Conn, r *bufio.Reader) // how the first connection meets its second request
		want measurement.Outcome
		sent int // requests that a server may have begun to answer
	}{
		{"as the request comes", func(_ net.Conn, r *bufio.Reader) { r.ReadByte() }, measurement.OK, 2},
		{"when it has come", func(_ net.Conn, r *bufio.Reader) { readRequest(r) }, measurement.OK, 2},
		{"after a while of work", func(_ net.Conn, r *bufio.Reader) { readRequest(r); time.Sleep(time.Second) }, measurement.Truncated, 1},
		{"after the first byte of an answer", func(c net.Conn, r *bufio.Reader) { readRequest(r); io.WriteString(c, streamHead[:30]) }, measurement.Truncated, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answered := 0
				p := &pipes{serve: func(conn net.Conn, n int) {
					r := bufio.NewReader(conn)
					for k := 1; ; k++ {
						if n == 1 && k == 2 {
							test.die(conn, r)
							return
						}
						if _, _, err := readRequest(r); err != nil {
							return
						}
						answered++
						all, _ := writes(t, `C"a"@10 F D`)
						if !play(conn, streamHead, all, false) {
							return
						}
					}
				}}
				c := p.client(t, nil)
				first := c.Do(t.Context(), ask(1)).Turn
				time.Sleep(time.Second)
				turn := c.Do(t.Context(), ask(1)).Turn
				if first.Outcome != measurement.OK || turn.Outcome != test.want || answered != test.sent {
					t.Errorf("got %s, %s (%s), %d answers begun, want ok, %s, %d", first.Outcome, turn.Outcome, turn.Detail, answered, test.want, test.sent)
				}
				if first.Retries != 0 || turn.Retries != test.sent-1 || turn.Dialed != 0 {
					t.Errorf("retried %d and %d times, dialed %v, want 0, %d, 0s", first.Retries, turn.Retries, turn.Dialed, test.sent-1)
				}
				if turn.Outcome == measurement.OK && (turn.Reused || turn.Sent != 1010*time.Millisecond || turn.FirstToken != turn.Sent+10*time.Millisecond) {
					t.Errorf("got %+v, want not reused, sent at 1.01s, first token 10ms later", turn)
				}
			})
		})
	}
}

// TestRequest checks what goes over the wire.
func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var req *http.Request
		var body []byte
		p := &pipes{serve: func(conn net.Conn, _ int) {
			var err error
			if req, body, err = readRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			io.WriteString(conn, streamHead+"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
		}}
		c := p.client(t, func(c *Config) {
			c.BaseURL = "http://server:8000/prefix/v1/"
			c.Model = `a "model"`
			c.APIKey = "sk-secret"
			c.Nonce = 0xabc
			c.IgnoreEOS = true
			c.Temperature = .5
			c.Header = http.Header{"x-extra": {"1"}, "Host": {"other"}}
			c.ExtraBody = map[string]json.RawMessage{"top_k": json.RawMessage(" 1 "), "temperature": json.RawMessage("1")}
		})
		if turn := c.Do(t.Context(), ask(100)).Turn; turn.Outcome != measurement.OK && turn.Outcome != measurement.ShortOutput {
			t.Fatalf("got %s: %s", turn.Outcome, turn.Detail)
		}
		if got, want := req.Method+" "+req.URL.Path+" "+req.Proto+" "+req.Host, "POST /prefix/v1/chat/completions HTTP/1.1 other"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer sk-secret", "X-Extra": "1", "Accept": "text/event-stream", "Content-Type": "application/json",
			"Accept-Encoding": "", wire.RequestIDHeader: "knee-0000000000000abc-1000002-3",
		} {
			if got := req.Header.Get(name); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if int64(len(body)) != req.ContentLength {
			t.Errorf("%d bytes, but Content-Length is %d", len(body), req.ContentLength)
		}
		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		prompt := ask(100).Prompt
		want := map[string]any{
			"model": `a "model"`, "max_tokens": 100.0, "temperature": 1.0, "ignore_eos": true, "stream": true, "top_k": 1.0,
			"stream_options": map[string]any{"include_usage": true},
			"messages": []any{
				map[string]any{"role": "system", "content": string(lexicon(t).AppendText(nil, prompt[0].Content.Segment))},
				map[string]any{"role": "user", "content": prompt[1].Content.Text},
			},
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf(" got %s\nwant %s", g, w)
		}
	})
}

// BenchmarkTokens is what one token costs between the read and the next, all of it.
func BenchmarkTokens(b *testing.B) {
	c := &Client{clk: startClock(time.Now()), words: lexicon(b)}
	read := []byte("data: " + tokenEvent + "\n\n")
	t := &turn{Client: c, req: ask(100), reader: new(reader)}
	t.watch.start(c.clk, generator.Limits{}, 0, nil)
	t.rec.Gaps = make([]time.Duration, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		now := c.clk.Now()
		t.watch.hears(now)
		if t.feed(read, now) {
			b.Fatal(t.rec.Detail)
		}
		t.reader.out = t.reader.out[:0]
		t.rec.Gaps = t.rec.Gaps[:0]
	}
}

// TestWroteBehindAnswer has the whole answer come before the report that the request was written, as it can when the
// writing goroutine is not run at once.
func TestWroteBehindAnswer(t *testing.T) {
	for _, stream := range []string{``, `R C"a"@10 F D`, `X`} {
		synctest.Test(t, func(t *testing.T) {
			all, closed := writes(t, stream)
			c := answers(func(conn net.Conn) bool { return play(conn, streamHead, all, closed) }).client(t, nil)
			dial := c.asks.DialContext
			c.asks.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return slowReturn{conn}, err
			}
			turn := c.Do(t.Context(), ask(1)).Turn
			if want := turn.Sent + time.Second; turn.WroteRequest != want || turn.Headers != turn.Sent {
				t.Errorf("%q: wrote %v, headers %v, want %v, %v", stream, turn.WroteRequest, turn.Headers, want, turn.Sent)
			}
		})
	}
}

// slowReturn is a connection whose write of a request's end returns a second after it has arrived.
type slowReturn struct{ net.Conn }

func (c slowReturn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.HasSuffix(p, []byte("}")) {
		time.Sleep(time.Second)
	}
	return n, err
}
