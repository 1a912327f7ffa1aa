package mockserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

const tick = 10 * time.Millisecond

func TestStream(t *testing.T) {
	tests := []struct {
		name string
		kind Kind
		want string
	}{
		{"sglang", SGLang, streamed},
		{"vllm", VLLM, streamed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, New(Config{Kind: test.kind, ModelName: `a"b`}, &lockstep{step: tick}))
				req := wire.ChatRequest{Model: `a"b`, Messages: []wire.Message{user("hello there")}, MaxTokens: 2, Stream: true,
					StreamOptions: &wire.StreamOptions{IncludeUsage: true}}
				status, got := c.do("POST", "/v1/chat/completions", req)
				seed := engine.ReplySeed(promptTokens(req.Messages))
				n := len(promptTokens(req.Messages))
				want := strings.NewReplacer("WORD0", engine.ReplyWord(seed, 0), "WORD1", engine.ReplyWord(seed, 1),
					"PROMPT", strconv.Itoa(n), "TOTAL", strconv.Itoa(n+2)).Replace(test.want)
				if status != http.StatusOK {
					t.Errorf("status %d", status)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("stream (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A bubble's clock starts on 1 January 2000: created is that instant.
const streamed = `data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":946684800,"model":"a\"b","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":946684800,"model":"a\"b","choices":[{"index":0,"delta":{"content":"WORD0"},"finish_reason":null}]}

data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":946684800,"model":"a\"b","choices":[{"index":0,"delta":{"content":" WORD1"},"finish_reason":null}]}

data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":946684800,"model":"a\"b","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}

data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":946684800,"model":"a\"b","choices":[],"usage":{"prompt_tokens":PROMPT,"completion_tokens":2,"total_tokens":TOTAL,"prompt_tokens_details":{"cached_tokens":0}}}

data: [DONE]

`

// When a stream's bytes come: SGLang sends its headers with the first token, vLLM at once; both send the role with it.
func TestStreamBegins(t *testing.T) {
	for kind, want := range map[Kind]time.Duration{SGLang: tick, VLLM: 0} {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, New(Config{Kind: kind}, &lockstep{step: tick}))
			body := marshal(wire.ChatRequest{Model: c.model, Messages: []wire.Message{user("hi")}, Stream: true})
			resp, err := c.http.Post(c.url+"/v1/chat/completions", "application/json", strings.NewReader(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(c.start); got != want {
				t.Errorf("%s: headers after %v, want %v", kind, got, want)
			}
			resp.Body.Read(make([]byte, 1))
			if got := time.Since(c.start); got != tick {
				t.Errorf("%s: first event after %v, want %v", kind, got, tick)
			}
			resp.Body.Close()
		})
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name       string
		cfg        Config
		stream     bool
		options    string
		want, miss string
	}{
		{"whole answers have usage", Config{}, false, `null`, `"prompt_tokens_details":{"cached_tokens":0}`, "data:"},
		{"streams have it only when asked", Config{}, true, `null`, "[DONE]", "usage"},
		{"nor when the options leave it out", Config{}, true, `{}`, "[DONE]", "usage"},
		{"with it asked", Config{}, true, `{"include_usage":true}`, `"completion_tokens":16`, "null}}"},
		{"without a cache report", Config{NoCacheReport: true}, true, `{"include_usage":true}`, `"prompt_tokens_details":null`, "cached_tokens"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, New(test.cfg, &lockstep{step: tick}))
				_, got := c.do("POST", "/v1/chat/completions", fmt.Sprintf(
					`{"model":"kneemock","messages":[{"role":"user","content":"hi"}],"stream":%t,"stream_options":%s}`, test.stream, test.options))
				if !strings.Contains(got, test.want) {
					t.Errorf("got %s, want %s", got, test.want)
				}
				if strings.Contains(got, test.miss) {
					t.Errorf("got %s, which has %s", got, test.miss)
				}
			})
		})
	}
}

// A reply that comes back in the next prompt is the tokens that the engine put in its cache.
func TestReplyTokenizesBack(t *testing.T) {
	const n = 500
	prompt := promptTokens([]wire.Message{user("tell me a story")})
	a := answer{seed: engine.ReplySeed(prompt)}
	text := a.completion(progress{tokens: n}).Choices[0].Message.Content
	var want []engine.Token
	for i := range n {
		want = append(want, engine.ReplyToken(a.seed, i))
	}
	if diff := cmp.Diff(want, engine.AppendText(nil, string(text))); diff != "" {
		t.Errorf("tokens of the reply (-told +read):\n%s", diff)
	}
	if quoted := string(marshal(text)); quoted != `"`+string(text)+`"` {
		t.Errorf("a reply's words need escapes in JSON: %s", quoted)
	}
}

func TestRefusals(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"another model", `{"model":"gpt-4",` + hi + `}`, 404, `The model \"gpt-4\" does not exist. This server serves \"kneemock\".`},
		{"no model", `{` + hi + `}`, 404, `This server serves \"kneemock\".`},
		{"over the context", `{"model":"kneemock","max_tokens":200,` + hi + `}`, 400, "maximum context length is 100 tokens"},
		{"max_completion_tokens wins", `{"model":"kneemock","max_tokens":1,"max_completion_tokens":200,` + hi + `}`, 400, "200 in the completion"},
		{"more tokens than an int can add", `{"model":"kneemock","max_tokens":9223372036854775807,` + hi + `}`, 400, "9223372036854775807 in the completion"},
		{"negative max_tokens", `{"model":"kneemock","max_tokens":-1,` + hi + `}`, 400, "max_tokens is -1: it must be at least 1."},
		{"no messages", `{"model":"kneemock"}`, 400, "messages is empty."},
		{"not JSON", `{"model":`, 400, "is not the JSON expected: unexpected end of JSON input"},
		{"other JSON", `{"model":7}`, 400, "is not the JSON expected"},
		{"what the engine refuses", `{"model":"kneemock",` + strings.Replace(hi, "hi", strings.Repeat("hi ", 60), 1) + `}`, 400, "The prompt is larger than the pool."},
		{"what it refuses in a stream", `{"model":"kneemock","stream":true,` + strings.Replace(hi, "hi", strings.Repeat("hi ", 60), 1) + `}`, 400, "The prompt is larger than the pool."},
		{"a large body", strings.Repeat(" ", maxBody+1), 413, "larger than 67108864 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := serveLoopback(t, New(Config{ContextLimit: 100}, &lockstep{step: time.Millisecond, maxPrompt: 50}))
			status, got := c.do("POST", "/v1/chat/completions", test.body)
			if status != test.status || !strings.Contains(got, test.want) {
				t.Errorf("got %d %s, want %d %s", status, got, test.status, test.want)
			}
			if want := fmt.Sprintf(`"code":%d}}`, test.status); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// vLLM's headers are gone when the engine refuses: the refusal is an event.
func TestRefusedInStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(Config{Kind: VLLM}, &lockstep{step: tick, maxPrompt: 1}))
		h := c.chat(context.Background(), turn{}, 1, user("hi"))
		if h.err == nil || h.err.Error() != "in the stream: The prompt is larger than the pool." {
			t.Errorf("got %v", h.err)
		}
	})
}

func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{ModelName: "m", ContextLimit: 4096, Version: "1.2", GPU: "l40s", ChunkedPrefill: 8192, MemFraction: .88}, &lockstep{step: tick})
		c := serve(t, s)
		tests := []struct {
			method, path string
			body         any
			status       int
			want         string
		}{
			{"GET", "/health", nil, 200, ""},
			{"GET", "/v1/models", nil, 200, `{"object":"list","data":[{"id":"m","object":"model","created":946684800,"owned_by":"sglang","max_model_len":4096}]}` + "\n"},
			{"GET", "/version", nil, 200, `{"version":"1.2"}` + "\n"},
			{"GET", "/server_info", nil, 200, info},
			{"GET", "/get_server_info", nil, 200, info},
			{"GET", "/flush_cache", nil, 200, "Cache flushed.\n"},
			{"POST", "/flush_cache", nil, 200, "Cache flushed.\n"},
			{"POST", "/tokenize", `{"prompt":"a b"}`, 200, tokenized(append(engine.AppendBOS(nil), engine.AppendText(nil, "a b")...))},
			{"POST", "/tokenize", `{"messages":[{"role":"user","content":"a b"}]}`, 200, tokenized(promptTokens([]wire.Message{user("a b")}))},
			{"POST", "/tokenize", `[]`, 400, ""},
			{"GET", "/v1/chat/completions", nil, 405, "Method Not Allowed\n"},
			{"GET", "/metrics", nil, 200, ""},
			{"GET", "/nothing", nil, 404, "404 page not found\n"},
		}
		for _, test := range tests {
			status, got := c.do(test.method, test.path, test.body)
			if status != test.status || test.want != "" && got != test.want {
				t.Errorf("%s %s: got %d %s, want %d %s", test.method, test.path, status, got, test.status, test.want)
			}
		}
		s.Close()
		if status, got := c.do("GET", "/health", nil); status != 503 {
			t.Errorf("/health of a closed server: got %d %s, want 503", status, got)
		}
	})
}

const info = `{"engine":"kneemock","kind":"sglang","version":"1.2","model_path":"m","served_model_name":"m","gpu":"l40s",` +
	`"context_length":4096,"max_total_num_tokens":0,"chunked_prefill_size":8192,"mem_fraction_static":0.88,"enable_cache_report":true}` + "\n"

func tokenized(tokens []engine.Token) string {
	return fmt.Sprintf(`{"tokens":%s,"count":%d,"max_model_len":4096}`+"\n", marshal(tokens), len(tokens))
}

func TestFlushWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(Config{}, &lockstep{step: tick}))
		done := make(chan heard)
		go func() { done <- c.chat(t.Context(), turn{}, 5, user("hi")) }()
		time.Sleep(2*tick + tick/2)
		if status, got := c.do("POST", "/flush_cache", nil); status != 400 {
			t.Errorf("while running: got %d %s, want 400", status, got)
		}
		if h := <-done; h.err != nil {
			t.Error(h.err)
		}
		if status, got := c.do("POST", "/flush_cache", nil); status != 200 {
			t.Errorf("afterwards: got %d %s, want 200", status, got)
		}
	})
}

// Tokens that the engine tells together are as many events, and come at once.
func TestTokensTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(Config{}, &lockstep{step: tick, perStep: 2}))
		h := c.chat(t.Context(), turn{}, 5, user("hi"))
		if diff := cmp.Diff([]time.Duration{tick, tick, 2 * tick, 2 * tick, 3 * tick}, h.at); diff != "" || h.err != nil {
			t.Errorf("tokens (-want +got):\n%s%v", diff, h.err)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{}, &lockstep{step: tick})
		c := serve(t, s)
		running, waiting := make(chan heard), make(chan heard)
		go func() { running <- c.chat(t.Context(), turn{}, 100, user("hi")) }()
		time.Sleep(2*tick + tick/2)
		go func() { waiting <- c.chat(t.Context(), turn{}, 100, user("hi")) }()
		synctest.Wait()
		s.Close()
		s.Close()
		if h := <-running; len(h.words) != 2 || h.err == nil || h.err.Error() != "in the stream: The server is shutting down." {
			t.Errorf("running: got %d tokens, %v", len(h.words), h.err)
		}
		if h := <-waiting; h.err == nil || h.err.Error() != "status 503" {
			t.Errorf("waiting: got %v", h.err)
		}
		if h := c.chat(t.Context(), turn{}, 100, user("hi")); h.err == nil || h.err.Error() != "status 503" {
			t.Errorf("later: got %v", h.err)
		}
	})
}
