package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		benchMain(role)
		return
	}
	goleak.VerifyTestMain(m)
}

const key = "sk-very-secret-0123456789"

// loopback makes a client of a base URL over real sockets, with a key that no Detail may show.
func loopback(t *testing.T, base string, limits generator.Limits) *Client {
	t.Helper()
	cfg := Config{BaseURL: base, Model: "m", APIKey: key, Limits: limits}
	c, err := New(cfg, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// raw listens and gives each connection to serve, which need not close it.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pipes{}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func TestFailures(t *testing.T) {
	closed := raw(t, func(net.Conn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + l.Addr().String()
	l.Close()

	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)

	answer := func(code int, header, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			for line := range strings.SplitSeq(header, "\n") {
				name, value, _ := strings.Cut(line, ": ")
				w.Header().Set(name, value)
			}
			w.WriteHeader(code)
			io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	sends := func(text string) string {
		return raw(t, func(conn net.Conn) {
			readRequest(bufio.NewReader(conn))
			io.WriteString(conn, text)
		})
	}
	// secret is sends behind TLS, by a server that dies without a word of farewell.
	secret := func(text string) string {
		config := &tls.Config{Certificates: secure.TLS.Certificates}
		return strings.Replace(raw(t, func(conn net.Conn) {
			hidden := tls.Server(conn, config)
			readRequest(bufio.NewReader(hidden))
			io.WriteString(hidden, text)
		}), "http:", "https:", 1)
	}
	prompt := ask(1).Prompt
	words := string(lexicon(t).AppendText(nil, prompt[0].Content.Segment))
	const jsonType, htmlType = "Content-Type: application/json", "Content-Type: text/html; charset=utf-8"

	for _, test := range []struct {
		name, base string
		want       measurement.Outcome
		detail     string // all of it when it ends in a full stop, else a part
		limits     generator.Limits
	}{
		{name: "refused", base: refusing, want: measurement.Connect, detail: "connection refused"},
		{name: "no such host", base: "http://nowhere.invalid", want: measurement.Connect, detail: "no connection"},
		{name: "a certificate of nobody", base: secure.URL, want: measurement.TLS, detail: "certificate"},
		{name: "no TLS at all", base: strings.Replace(closed, "http:", "https:", 1), want: measurement.TLS, detail: "TLS handshake"},
		{name: "HTTP where TLS was meant", base: strings.Replace(answer(200, "", ""), "http:", "https:", 1), want: measurement.TLS, detail: "TLS handshake"},
		{name: "TLS where HTTP was meant", base: strings.Replace(secure.URL, "https:", "http:", 1), want: measurement.HTTP4xx, detail: "HTTP request to an HTTPS server"},
		{name: "reset when the request has come", base: raw(t, func(conn net.Conn) { readRequest(bufio.NewReader(conn)); conn.(*net.TCPConn).SetLinger(0) }),
			want: measurement.Truncated, detail: "before any answer"},
		{name: "closed when the request has come", base: sends(""), want: measurement.Truncated, detail: "before any answer"},
		{name: "closed inside the headers", base: sends("HTTP/1.1 200 OK\r\nContent-Type: text"), want: measurement.Truncated, detail: "within the answer's headers"},
		{name: "closed inside a header's name", base: sends("HTTP/1.1 200 OK\r\nContent-Ty"), want: measurement.Truncated, detail: "within the answer's headers"},
		{name: "closed inside the first header's name over TLS", base: secret("HTTP/1.1 200 OK\r\nCont"), want: measurement.Truncated, detail: "within the answer's headers"},
		{name: "closed inside the protocol", base: sends("HTTP/1."), want: measurement.Truncated, detail: "within the answer's headers"},
		{name: "closed inside the status", base: sends("HTTP/1.1 20"), want: measurement.Truncated, detail: "within the answer's headers"},
		{name: "closed inside a trailer's name", base: sends(streamHead + "8\r\n: ping\n\n\r\n0\r\nX-Tr"), want: measurement.Truncated, detail: "headers, no event"},
		{name: "a whole header without a colon", base: sends("HTTP/1.1 200 OK\r\nContent-Type\r\n\r\n"), want: measurement.StreamError, detail: "not HTTP"},
		{name: "not HTTP and no whole line", base: sends("SSH-2.0-Open"), want: measurement.StreamError, detail: "not HTTP"},
		{name: "not HTTP", base: sends("SSH-2.0-OpenSSH_9.6\r\n"), want: measurement.StreamError, detail: "not HTTP"},
		{name: "half a body", base: sends("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n: ping\n\n"),
			want: measurement.Truncated, detail: "headers, no event: unexpected EOF"},
		{name: "half a chunk", base: sends(streamHead + "ff\r\n: ping\n\n"), want: measurement.Truncated, detail: "unexpected EOF"},
		{name: "chunks without the last", base: sends(streamHead + "8\r\n: ping\n\n\r\n"), want: measurement.Truncated, detail: "unexpected EOF"},
		{name: "nonsense for a chunk", base: sends(streamHead + "zz\r\nhello\r\n"), want: measurement.StreamError, detail: "not HTTP"},
		{name: "slow headers", base: raw(t, func(conn net.Conn) { io.Copy(io.Discard, conn) }), want: measurement.TTFTTimeout,
			detail: "no token within 80ms: request written, no answer", limits: generator.Limits{TTFT: 80 * time.Millisecond}},

		{name: "429", base: answer(429, jsonType+"\nRetry-After: 7", `{"error":{"message":"slow down","type":"overloaded"}}`),
			want: measurement.HTTP429, detail: "the server answered 429 (retry after 7): slow down"},
		{name: "429 as TGI has it", base: answer(429, jsonType, `{"error":"Model is overloaded","error_type":"overloaded"}`), want: measurement.HTTP429, detail: "Model is overloaded"},
		{name: "503 flat", base: answer(503, jsonType, `{"object":"error","message":"queue is full","type":"x","param":null,"code":503}`),
			want: measurement.HTTP5xx, detail: "the server answered 503: queue is full"},
		{name: "502 page", base: answer(502, htmlType, "<html><head><title>502 Bad\n Gateway</title></head></html>"), want: measurement.HTTP5xx, detail: "the server answered 502: 502 Bad Gateway"},
		{name: "500 in words", base: answer(500, "", "Internal Server Error\n"), want: measurement.HTTP5xx, detail: "the server answered 500: Internal Server Error"},
		{name: "500 mute", base: answer(500, "", ""), want: measurement.HTTP5xx, detail: "the server answered 500"},
		{name: "404", base: answer(404, jsonType, `{"detail":"Not Found"}`), want: measurement.HTTP4xx, detail: "404: Not Found"},
		{name: "422 repeats the input", base: answer(422, jsonType, `{"detail":[{"type":"t","loc":["body","top_k"],"msg":"not a number","input":{"messages":"`+words+`"}}]}`),
			want: measurement.HTTP4xx, detail: "422: [body top_k]: not a number"},
		{name: "413 that never ends", base: sends("HTTP/1.1 413 Too Large\r\nContent-Length: 100\r\n\r\nhalf"), want: measurement.HTTP4xx, detail: "413: half"},
		{name: "the key comes back", base: answer(401, jsonType, `{"error":{"message":"Incorrect API key provided: `+key+`."}}`), want: measurement.HTTP4xx, detail: "provided: [secret]."},
		{name: "the prompt comes back", base: answer(400, jsonType, `{"error":{"message":"cannot read: `+words[100:140]+`"}}`), want: measurement.HTTP4xx, detail: "not shown"},
		{name: "the user's words come back", base: answer(400, jsonType, `{"error":{"message":"in `+strings.Repeat("x", 40)+` say \"naïve\"\n twice"}}`), want: measurement.HTTP4xx, detail: "xxx"},
		{name: "long-winded", base: answer(400, "", strings.Repeat("é", 300)), want: measurement.HTTP4xx, detail: ": " + strings.Repeat("é", 100) + "..."},
		{name: "elsewhere", base: answer(307, "Location: /login", ""), want: measurement.NotStream, detail: "answered 307"},

		{name: "a page", base: answer(200, htmlType, "<html><title>Log in</title>"), want: measurement.NotStream, detail: "answered 200 with text/html; charset=utf-8 instead of a stream: Log in"},
		{name: "a completion", base: answer(200, jsonType, `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"no secret"}}]}`),
			want: measurement.NotStream, detail: "the server answered 200 with application/json instead of a stream."},
		{name: "an error in a 200", base: answer(200, jsonType, `{"error":{"message":"no such model"}}`), want: measurement.NotStream, detail: "stream: no such model"},
		{name: "plain text", base: answer(200, "Content-Type: text/plain", "hello"), want: measurement.NotStream, detail: "text/plain and no event"},
		{name: "compressed", base: answer(200, "Content-Type: text/event-stream\nContent-Encoding: gzip", "\x1f\x8b"), want: measurement.NotStream, detail: "compressed (gzip)"},
		{name: "no content", base: answer(204, "", ""), want: measurement.Truncated, detail: "no event"},
		{name: "a stream under another name", base: answer(201, "Content-Type: text/plain", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"), want: measurement.OK},
		{name: "a stream that ends with its connection", base: sends("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n"), want: measurement.OK},
		{name: "the key in a stream", base: answer(200, "Content-Type: text/event-stream", "event: error\ndata: bad key "+key+"\n\n"), want: measurement.StreamError, detail: "bad key [secret]"},
		{name: "an event of 5 MB", base: answer(200, "Content-Type: text/event-stream",
			"data: {\"x\":\""+strings.Repeat("y", 5<<20)+"\",\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n"), want: measurement.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := loopback(t, test.base, test.limits)
			if strings.HasSuffix(test.name, "over TLS") {
				c.asks.TLSClientConfig.InsecureSkipVerify = true
			}
			reply := c.Do(context.Background(), ask(1))
			turn := reply.Turn
			if turn.Outcome != test.want || !strings.Contains(turn.Detail+".", test.detail) || (turn.Detail == "") != (test.detail == "") {
				t.Errorf("got %s: %s\nwant %s: %s", turn.Outcome, turn.Detail, test.want, test.detail)
			}
			if all := fmt.Sprintf("%+v", reply); strings.Contains(all, key) || strings.Contains(turn.Detail, words[:25]) {
				t.Errorf("a secret or the prompt stands in %s", all)
			}
			if turn.End < turn.Sent || turn.Sent < 0 {
				t.Errorf("sent %v, end %v", turn.Sent, turn.End)
			}
		})
	}
}

// TestManyAtOnce has many streams share the client, for the race detector.
func TestManyAtOnce(t *testing.T) {
	all, _ := writes(t, `R C"a"@1 C"b"@2 C"c"@3 F U(9,3,4) D`)
	base := raw(t, func(conn net.Conn) {
		answersOn(conn, func() bool { return play(conn, streamHead, all, false) })
	})
	c := loopback(t, base, generator.Limits{TTFT: 10 * time.Second, Idle: 10 * time.Second, Total: 10 * time.Second})
	outcomes := make(chan string)
	for call := range 50 {
		go func() {
			for turn := range 4 {
				r := ask(3)
				r.Call, r.Turn = call, turn
				reply := c.Do(context.Background(), r)
				outcomes <- fmt.Sprintf("%s %s %d %s", reply.Turn.Outcome, reply.Content.Text, reply.Turn.CachedTokens, reply.Turn.Detail)
			}
		}()
	}
	for range 200 {
		if got := <-outcomes; got != "ok abc 4 " {
			t.Errorf("got %q", got)
		}
	}
}

// TestTLS checks that HTTP/2 is not taken although it is offered, and that the handshake is paid once.
func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", r.Proto)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	cfg := Config{BaseURL: s.URL, InsecureTLS: true}
	c, err := New(cfg, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 2 {
		reply := c.Do(context.Background(), ask(1))
		if reply.Turn.Outcome != measurement.OK || reply.Content.Text != "HTTP/1.1" || reply.Turn.Reused != (i == 1) {
			t.Errorf("turn %d: got %q, %+v", i, reply.Content.Text, reply.Turn)
		}
	}
}

func TestSecretsStayInside(t *testing.T) {
	cfg := Config{
		BaseURL: "http://me:pass-word@127.0.0.1:1/v1", APIKey: key,
		Header: http.Header{"X-Api-Key": {"other-key"}, "Cookie": {"session=abc"}},
	}
	text, _ := json.Marshal(cfg)
	for _, s := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %s %v", cfg, cfg, cfg, &cfg), string(text)} {
		for _, secret := range []string{key, "pass-word", "other-key", "abc"} {
			if strings.Contains(s, secret) {
				t.Errorf("%s stands in %s", secret, s)
			}
		}
	}
	c, err := New(cfg, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.clean("a "+key+" pass-word other-key session=abc me x"), "a [secret] [secret] [secret] [secret] me x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := c.Models(context.Background()); err == nil || strings.Contains(err.Error(), "pass-word") {
		t.Errorf("got %v", err)
	}
	if e, err := c.Identify(context.Background()); err == nil || strings.Contains(fmt.Sprint(e, err), "pass-word") {
		t.Errorf("got %v, %v", e, err)
	}
}

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err == nil {
		t.Error("no base URL: got no error")
	}
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) {}, ""},
		{func(c *Config) { c.BaseURL = "localhost:8000" }, "base URL"},
		{func(c *Config) { c.BaseURL = "ftp://x" }, "base URL"},
		{func(c *Config) { c.BaseURL = "http://me:pass-word@%zz" }, "base URL: not a URL"},
		{func(c *Config) { c.APIKey = "x\n" }, "control character"},
		{func(c *Config) { c.Temperature = -1 }, "temperature: -1"},
		{func(c *Config) { c.Limits.Idle = -1 }, "idle limit"},
		{func(c *Config) { c.ExtraBody = map[string]json.RawMessage{"stream": json.RawMessage("false")} }, `"stream"`},
		{func(c *Config) { c.ExtraBody = map[string]json.RawMessage{"top_k": json.RawMessage("{")} }, `"top_k"`},
		{func(c *Config) { c.Header = http.Header{"idempotency-key": {"1"}} }, "twice"},
	} {
		cfg := Default()
		cfg.BaseURL = "https://host/v1"
		test.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "pass-word")) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
	for in, want := range map[string]string{
		"http://h": "http://h", "http://h/": "http://h", "http://h/v1": "http://h", "http://h/v1/": "http://h", "http://h/a/v1": "http://h/a",
		"http://h/v1/chat/completions": "http://h", "http://h/av1": "http://h/av1", "http://h?x=1": "http://h?x=1",
	} {
		if u, err := baseURL(in); err != nil || u.String() != want {
			t.Errorf("%s: got %v, %v, want %s", in, u, err, want)
		}
	}
}

// TestPromptOfTokens checks that a prompt from another kind of endpoint is a bug, not a failed turn.
func TestPromptOfTokens(t *testing.T) {
	c := loopback(t, "http://127.0.0.1:1", generator.Limits{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	r := ask(1)
	r.Prompt = slices.Concat(r.Prompt, workload.Prompt{{Role: "assistant", Content: workload.Content{Tokens: []uint32{1}}}})
	c.Do(context.Background(), r)
}
