package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
)

// startClock is the time since an instant, in a bubble the bubble's.
type startClock time.Time

func (c startClock) Now() time.Duration { return time.Since(time.Time(c)) }

func lexicon(t testing.TB) *workload.Lexicon {
	l, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pipes is a server at the other end of net.Pipe: serve gets each connection that the client opens, and closes it.
type pipes struct {
	serve func(conn net.Conn, n int) // n counts from 1
	wg    sync.WaitGroup
	mu    sync.Mutex
	n     int
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.mu.Lock()
	p.n++
	n := p.n
	p.mu.Unlock()
	p.wg.Go(func() {
		defer server.Close()
		p.serve(server, n)
	})
	return client, nil
}

func (p *pipes) opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// client makes a client of the server that ends, with the server, when the test does.
func (p *pipes) client(t testing.TB, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{BaseURL: "http://server/v1", Model: "m", Dial: p.dial}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		p.wg.Wait()
	})
	return c
}

// readRequest reads one request with its body.
func readRequest(r *bufio.Reader) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	return req, body, err
}

// answers serves every request of every connection with the same bytes.
func answers(write func(conn net.Conn) (keep bool)) *pipes {
	return &pipes{serve: func(conn net.Conn, _ int) {
		answersOn(conn, func() bool { return write(conn) })
	}}
}

// answersOn serves the requests of one connection until one says to close it.
func answersOn(conn net.Conn, write func() (keep bool)) {
	for r := bufio.NewReader(conn); ; {
		if _, _, err := readRequest(r); err != nil || !write() {
			return
		}
	}
}

// write is some bytes and when, since the headers.
type write struct {
	at    time.Duration
	bytes string
}

var noted = regexp.MustCompile(`^([A-Z]+[0-9]?)("(?:[^"\\]|\\.)*")?(\([^)]*\))?(?:@([0-9]+))?$`)

// writes reads the notation of a stream: events with the instants in ms at which they are written, those of one instant
// together unless a | parts them.
//
//	R, R0     the role with empty content, with null      C"x"   content          T"x", T2"x"  reasoning, in both spellings
//	G         a tool call        F, F"why"  the finish    U(p,c,k)  usage, k cached tokens, null, or left out
//	D         [DONE]             K          a comment     E"x"   an error         RAW"x"       these bytes, a ' for each "
//	X         the connection is closed, without the end of the body
func writes(t testing.TB, notation string) (all []write, closed bool) {
	t.Helper()
	var at time.Duration
	joined := false
	for _, word := range splitWords(notation) {
		if word == "|" {
			joined = false
			continue
		}
		m := noted.FindStringSubmatch(word)
		if m == nil {
			t.Fatalf("%q: cannot read %q", notation, word)
		}
		text, _ := strconv.Unquote(m[2])
		quoted, _ := json.Marshal(text)
		args := strings.Split(strings.Trim(m[3], "()"), ",")
		if m[4] != "" {
			ms, _ := strconv.Atoi(m[4])
			if d := time.Duration(ms) * time.Millisecond; d != at {
				at, joined = d, false
			}
		}
		choice := func(delta, finish string) string {
			return `data: {"id":"x","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
		}
		var b string
		switch m[1] {
		case "R":
			b = choice(`{"role":"assistant","content":""}`, "null")
		case "R0":
			b = choice(`{"role":"assistant","content":null}`, "null")
		case "C":
			b = choice(fmt.Sprintf(`{"content":%s}`, quoted), "null")
		case "T":
			b = choice(fmt.Sprintf(`{"reasoning_content":%s}`, quoted), "null")
		case "T2":
			b = choice(fmt.Sprintf(`{"reasoning":%s}`, quoted), "null")
		case "G":
			b = choice(`{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}`, "null")
		case "F":
			if text == "" {
				quoted = []byte(`"stop"`)
			}
			b = choice(`{}`, string(quoted))
		case "U":
			details := ""
			if len(args) == 3 {
				details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%s}`, args[2])
				if args[2] == "null" {
					details = `,"prompt_tokens_details":null`
				}
			}
			b = fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%s,\"completion_tokens\":%s%s}}\n\n", args[0], args[1], details)
		case "D":
			b = "data: [DONE]\n\n"
		case "K":
			b = ": ping\n\n"
		case "E":
			b = fmt.Sprintf("data: {\"error\":{\"message\":%s,\"code\":503}}\n\n", quoted)
		case "RAW":
			b = strings.ReplaceAll(text, "'", `"`)
		case "X":
			if at > 0 {
				all = append(all, write{at, ""})
			}
			return all, true
		default:
			t.Fatalf("%q: no event %q", notation, word)
		}
		if joined {
			all[len(all)-1].bytes += b
		} else {
			all = append(all, write{at, b})
		}
		joined = true
	}
	return all, false
}

// splitWords splits at spaces outside quotes.
func splitWords(s string) (words []string) {
	start, quoted := -1, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
			if start < 0 {
				start = i
			}
		case s[i] == ' ' && !quoted:
			if start >= 0 {
				words = append(words, s[start:i])
			}
			start = -1
		case start < 0:
			start = i
		}
	}
	if start >= 0 {
		words = append(words, s[start:])
	}
	return words
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// play writes a stream in HTTP chunks, one a write, after its headers; it is false when the connection must be closed.
func play(conn net.Conn, head string, all []write, closed bool) bool {
	if _, err := io.WriteString(conn, head); err != nil {
		return false
	}
	start := time.Now()
	for _, w := range all {
		time.Sleep(w.at - time.Since(start))
		if w.bytes == "" {
			continue
		}
		if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(w.bytes), w.bytes); err != nil {
			return false
		}
	}
	if closed {
		return false
	}
	_, err := io.WriteString(conn, "0\r\n\r\n")
	return err == nil
}

// ask is a small request.
func ask(maxTokens int) generator.Request {
	return generator.Request{Step: 1, Call: 1_000_002, Turn: 3, MaxTokens: maxTokens, Prompt: workload.Prompt{
		{Role: "system", Content: workload.Content{Segment: workload.Segment{Nonce: 7, Call: 2, Words: 100}}},
		{Role: "user", Content: workload.Content{Text: "Say \"naïve\"\n twice."}},
	}}
}
