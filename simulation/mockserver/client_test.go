package mockserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kneefinder/generator/wire"
)

// TestMain makes this binary the process that listens, where it is asked to.
func TestMain(m *testing.M) {
	if os.Getenv(listenRole) != "" {
		listen()
		return
	}
	goleak.VerifyTestMain(m)
}

// pipes is a listener whose connections are net.Pipe, so that a server and its clients can live in a synctest bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.accepted <- there
	return here, nil
}

// client asks one server. Its instants count from when it was made.
type client struct {
	t     testing.TB
	http  http.Client
	url   string
	start time.Time
	model string
}

// serve runs s on pipes until the test, or its bubble, ends.
func serve(t testing.TB, s *Server) *client {
	p := newPipes()
	return serveOn(t, s, p, &http.Transport{DialContext: p.dial}, "http://mock")
}

// serveLoopback runs s on a port of this machine until the test ends.
func serveLoopback(t testing.TB, s *Server) *client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, s, l, &http.Transport{MaxIdleConnsPerHost: 2000}, "http://"+l.Addr().String())
}

func serveOn(t testing.TB, s *Server, l net.Listener, tr *http.Transport, url string) *client {
	hs := &http.Server{Handler: s.Handler()}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		s.Close()
		if err := hs.Shutdown(context.Background()); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
	})
	return &client{t: t, http: http.Client{Transport: tr}, url: url, start: time.Now(), model: s.cfg.ModelName}
}

// do sends body, JSON or a string as it is, and reads the whole answer.
func (c *client) do(method, path string, body any) (status int, answer string) {
	c.t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		text = string(marshal(body))
	}
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

// heard is what a client got of one stream.
type heard struct {
	words  []string        // the text of each content event
	at     []time.Duration // when it came
	usage  *wire.Usage
	reason string
	done   bool // [DONE] came
	end    time.Duration
	err    error
}

func (h heard) text() string { return strings.Join(h.words, "") }

func (h heard) cached() int {
	if h.usage == nil {
		return 0
	}
	return *h.usage.PromptTokensDetails.CachedTokens
}

// chat streams one turn.
func (c *client) chat(ctx context.Context, id turn, maxTokens int, messages ...wire.Message) heard {
	return c.hear(ctx, id, maxTokens, messages...).read()
}

// raw is what came of a stream, as it came: reading it takes longer than hearing it.
type raw struct {
	events []event
	err    error
}

type event struct {
	at   time.Duration
	data string
}

// hear streams one turn and keeps what comes.
func (c *client) hear(ctx context.Context, id turn, maxTokens int, messages ...wire.Message) (r raw) {
	body := marshal(wire.ChatRequest{
		Model: c.model, Messages: messages, MaxTokens: maxTokens, Stream: true, IgnoreEOS: true,
		StreamOptions: &wire.StreamOptions{IncludeUsage: true},
	})
	req, err := http.NewRequestWithContext(ctx, "POST", c.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return raw{err: err}
	}
	if id != (turn{}) {
		req.Header.Set(wire.RequestIDHeader, wire.TurnID(7, id.call, id.turn))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return raw{err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return raw{err: fmt.Errorf("status %d", resp.StatusCode)}
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			r.events = append(r.events, event{time.Since(c.start), string(data)})
		}
	}
	r.err = lines.Err()
	return r
}

func (r raw) read() (h heard) {
	h.err = r.err
	for _, e := range r.events {
		if h.end, h.done = e.at, e.data == "[DONE]"; h.done {
			continue
		}
		if err := h.chunk(e.at, e.data); err != nil {
			h.err = err
			return h
		}
	}
	return h
}

func (h *heard) chunk(now time.Duration, data string) error {
	var c struct {
		wire.Chunk
		Error *wire.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	if c.Error != nil {
		return fmt.Errorf("in the stream: %s", c.Error.Message)
	}
	if c.Usage != nil {
		h.usage = c.Usage
	}
	for _, choice := range c.Choices {
		if text := choice.Delta.Content; text != nil && *text != "" {
			h.words, h.at = append(h.words, *text), append(h.at, now)
		}
		if choice.FinishReason != nil {
			h.reason = *choice.FinishReason
		}
	}
	return nil
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func user(text string) wire.Message { return wire.Message{Role: "user", Content: wire.Text(text)} }
