package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// tokenEvent is a token as vLLM sends it.
const tokenEvent = `{"id":"chatcmpl-4f6a1be5c3f34d1c9e4a3d7b1f0e2a77","object":"chat.completion.chunk","created":1756300800,` +
	`"model":"google/gemma-3-12b-it","choices":[{"index":0,"delta":{"role":null,"content":" naïve","reasoning_content":null,` +
	`"tool_calls":null},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`

func TestDelta(t *testing.T) {
	const unknown = measurement.Unknown
	type want struct {
		text   string
		token  bool
		whole  bool
		finish string
		failed bool
		usage  usage
	}
	none := noUsage
	content := func(text string) want { return want{text: text, token: true, usage: none} }
	for _, test := range []struct {
		name, event string
		want        want
	}{
		{"content", tokenEvent, content(" naïve")},
		{"role only", `{"choices":[{"delta":{"role":"assistant","content":""}}]}`, want{usage: none}},
		{"role with null", `{"choices":[{"delta":{"role":"assistant","content":null}}]}`, want{usage: none}},
		{"white space is content", `{"choices":[{"delta":{"content":" \n"}}]}`, content(" \n")},
		{"reasoning_content", `{"choices":[{"delta":{"reasoning_content":"h"}}]}`, want{token: true, usage: none}},
		{"reasoning", `{"choices":[{"delta":{"content":null,"reasoning":"m"}}]}`, want{token: true, usage: none}},
		{"empty reasoning", `{"choices":[{"delta":{"reasoning":"","reasoning_content":""}}]}`, want{usage: none}},
		{"reasoning_details", `{"choices":[{"delta":{"reasoning_details":[{"text":"x"}]}}]}`, want{token: true, usage: none}},
		{"tool call", `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, want{token: true, usage: none}},
		{"no tool calls", `{"choices":[{"delta":{"tool_calls":[],"content":""}}]}`, want{usage: none}},
		{"old tool call", `{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`, want{token: true, usage: none}},
		{"finish", `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, want{finish: "stop", usage: none}},
		{"finish with content", `{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`,
			want{text: "a", token: true, finish: "length", usage: none}},
		{"an empty finish is none", `{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}`, content("a")},
		{"finish without delta", `{"choices":[{"index":0,"finish_reason":"stop"}]}`, want{finish: "stop", usage: none}},
		{"nulls everywhere", `{"id":null,"object":null,"choices":[{"index":null,"delta":null,"finish_reason":null}],"usage":null,"error":null}`, want{usage: none}},
		{"null choices", `{"choices":null,"usage":null}`, want{usage: none}},
		{"null as choice", `{"choices":[null]}`, want{usage: none}},
		{"another choice", `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`, want{usage: none}},
		{"another choice, index last", `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop","index":1}]}`, want{usage: none}},
		{"two choices", `{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}`, content("a")},
		{"two choices without index", `{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`, content("a")},
		{"usage", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}`, want{usage: usage{9, 2, 4}}},
		{"usage, details null", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}}`, want{usage: usage{9, 2, unknown}}},
		{"usage, cached null", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":null}}}`, want{usage: usage{9, 2, unknown}}},
		{"usage, cached 0", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"audio_tokens":1,"cached_tokens":0}}}`, want{usage: usage{9, 2, 0}}},
		{"usage without choices", `{"usage":{"prompt_tokens":9,"completion_tokens":2}}`, want{usage: usage{9, 2, unknown}}},
		{"usage in the choice", `{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":2,"cached_tokens":3}}]}`,
			want{finish: "stop", usage: usage{9, 2, 3}}},
		{"usage as DeepSeek has it", `{"choices":[],"usage":{"prompt_cache_hit_tokens":5,"prompt_tokens":9,"completion_tokens":2}}`, want{usage: usage{9, 2, 5}}},
		{"usage in floats", `{"choices":[],"usage":{"prompt_tokens":9.0,"completion_tokens":2e2,"prompt_tokens_details":{"cached_tokens":1.5}}}`, want{usage: usage{9, 200, unknown}}},
		{"usage in nonsense", `{"choices":[],"usage":{"prompt_tokens":-9,"completion_tokens":"2","prompt_tokens_details":[1]}}`, want{usage: none}},
		{"usage beyond reason", `{"choices":[],"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":3000000000}}`, want{usage: none}},
		{"running usage", `{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":8}}`, want{text: "a", token: true, usage: usage{9, 8, unknown}}},
		{"error", `{"error":{"message":"x","code":503}}`, want{failed: true, usage: none}},
		{"error as text", `{"error":"x"}`, want{failed: true, usage: none}},
		{"error as list", `{"error":[{"message":"x"}]}`, want{failed: true, usage: none}},
		{"error true", `{"error":true}`, want{failed: true, usage: none}},
		{"error code", `{"error":500}`, want{failed: true, usage: none}},
		{"no error", `{"error":false,"choices":[]}`, want{usage: none}},
		{"no error either", `{"error":{},"choices":[]}`, want{usage: none}},
		{"nor here", `{"error":"","choices":[]}`, want{usage: none}},
		{"error zero", `{"error":0,"choices":[]}`, want{usage: none}},
		{"flat error", `{"object":"error","message":"x","code":400}`, want{failed: true, usage: none}},
		{"typed error", `{"type":"error","message":"x"}`, want{failed: true, usage: none}},
		{"nameless error", `{"message":"x","code":400}`, want{failed: true, usage: none}},
		{"FastAPI's error", `{"detail":"x"}`, want{failed: true, usage: none}},
		{"error in the choice", `{"choices":[{"delta":{"content":""},"error":{"code":502,"message":"x"},"finish_reason":"error"}]}`,
			want{failed: true, finish: "error", usage: none}},
		{"error beside choices", `{"choices":[{"delta":{"content":"a"}}],"error":{"message":"x"}}`, want{text: "a", token: true, failed: true, usage: none}},
		{"the word error in content", `{"choices":[{"delta":{"content":"{\"error\":{}}"}}]}`, content(`{"error":{}}`)},
		{"error deep inside", `{"choices":[{"delta":{"content":"a"},"logprobs":{"error":{"x":1}}}],"meta":{"error":"x"}}`, content("a")},
		{"parts", `{"choices":[{"delta":{"content":[{"type":"text","text":"a"},"b",null,{"text":"c"}]}}]}`, content("abc")},
		{"thinking part", `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"x"}]}]}}]}`, want{token: true, usage: none}},
		{"empty parts", `{"choices":[{"delta":{"content":[{"type":"text","text":""}]}}]}`, want{usage: none}},
		{"content of another type", `{"choices":[{"delta":{"content":{"a":1}}},{"delta":{"content":5}}]}`, want{usage: none}},
		{"whole message", `{"choices":[{"message":{"role":"assistant","content":"ab"},"finish_reason":"stop"}]}`, want{text: "ab", token: true, whole: true, finish: "stop", usage: none}},
		{"message beside delta", `{"choices":[{"message":{"content":"ab"},"delta":{"content":"b"}}]}`, content("b")},
		{"message after delta", `{"choices":[{"delta":{"content":""},"message":{"content":"ab"}}]}`, want{usage: none}},
		{"escaped keys", `{"\u0063hoices":[{"d\u0065lta":{"cont\u0065nt":"a"}}]}`, content("a")},
		{"escapes", `{"choices":[{"delta":{"content":"\"\\\/\b\f\n\r\t\u00e9\u0000"}}]}`, content("\"\\/\b\f\n\r\té\x00")},
		{"surrogate pair", `{"choices":[{"delta":{"content":"\ud83d\ude00"}}]}`, content("😀")},
		{"high surrogate alone", `{"choices":[{"delta":{"content":"\ud83dx"}}]}`, content("\ufffdx")},
		{"low surrogate alone", `{"choices":[{"delta":{"content":"\ude00\ud83d"}}]}`, content("\ufffd\ufffd")},
		{"high surrogate, then a letter", `{"choices":[{"delta":{"content":"\ud83d\u0041"}}]}`, content("\ufffdA")},
		{"not UTF-8", "{\"choices\":[{\"delta\":{\"content\":\"a\xff\xfeb\"}}]}", content("a\ufffd\ufffdb")},
		{"not a number", `{"choices":[{"delta":{"content":"a"},"logprobs":[NaN,-Infinity,Infinity]}]}`, content("a")},
		{"in a list", `[{"choices":[{"delta":{"content":"a"}}]}]`, content("a")},
		{"error in a list", `[{"error":{"message":"x"}}]`, want{failed: true, usage: none}},
		{"null", `null`, want{usage: none}},
		{"text", `"ping"`, want{usage: none}},
		{"empty", `{}`, want{usage: none}},
		{"white space", " {\n\t\"choices\" : [ { \"delta\" : { \"content\" : \"a\" } } ] }\r\n", content("a")},
		{"unknown members", `{"x":{"y":[1,{"z":"\\"}]},"choices":[{"q":[[]],"delta":{"content":"a","k":-1.5e-3}}],"system_fingerprint":"fp"}`, content("a")},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := walker{out: []byte("before")}
			if err := w.parse([]byte(test.event)); err != nil {
				t.Fatalf("got %v", err)
			}
			text, _ := strings.CutPrefix(string(w.out), "before")
			got := want{text, w.token, w.whole, string(w.finish), w.failed, w.usage}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestDeltaRefuses(t *testing.T) {
	for _, event := range []string{
		"", " ", "{", "}", "[", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,]`, `[1 2]`, `{"a":1 "b":2}`, `{} {}`, `{}x`,
		`{"a":"`, `{"a":"\`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, "{\"a\":\"\n\"}", "{\"a\":\"0123456\x1f\"}", `{'a':1}`,
		`{"a":tru}`, `{"a":nul`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":+1}`, `{"a":-NaN}`, `{"a":Inf}`,
		`{"choices":[{"delta":{"content":"half`, `{"choices":[{"delta":{"content":"a"}}`, "{\"a\":\x00}", "[1,\x00]", "[DONE", "hello",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		w := walker{out: []byte("before")}
		if err := w.parse([]byte(event)); err == nil {
			t.Errorf("%.40q: got no error", event)
		}
		if string(w.out) != "before" {
			t.Errorf("%.40q: the reply became %q", event, w.out)
		}
	}
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if err := new(walker).parse([]byte(deep)); err != nil {
		t.Errorf("%d levels: got %v", maxDepth, err)
	}
}

// meaning reads a chunk the slow way. It knows delta's content, reasoning and tool calls, finish_reason and usage.
func meaning(v any) (text string, token bool, finish string, u usage) {
	u = noUsage
	count := func(v any, into *int) {
		if f, ok := v.(float64); ok && f == math.Trunc(f) && f >= 0 && f <= math.MaxInt32 && !(f == 0 && math.Signbit(f)) {
			*into = int(f)
		}
	}
	tell := func(v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		got := noUsage
		count(m["prompt_tokens"], &got.prompt)
		count(m["completion_tokens"], &got.completion)
		if d, ok := m["prompt_tokens_details"].(map[string]any); ok {
			count(d["cached_tokens"], &got.cached)
		}
		u.update(got)
	}
	chunk, ok := v.(map[string]any)
	if !ok {
		return "", false, "", u
	}
	choices, _ := chunk["choices"].([]any)
	for i, c := range choices {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		index := i
		count(c["index"], &index)
		if index != 0 {
			continue
		}
		if d, ok := c["delta"].(map[string]any); ok {
			if s, ok := d["content"].(string); ok && s != "" {
				text += s
				token = true
			}
			for _, name := range []string{"reasoning_content", "reasoning", "tool_calls"} {
				switch v := d[name].(type) {
				case string:
					token = token || v != ""
				case []any:
					token = token || len(v) > 0
				case map[string]any:
					token = token || len(v) > 0
				}
			}
		}
		if s, ok := c["finish_reason"].(string); ok && s != "" {
			finish = s
		}
	}
	tell(chunk["usage"])
	return text, token, finish, u
}

// plainEnough is whether meaning and the walker must agree on a valid event: no key twice in an object, since a map keeps
// the last, and no key of the shapes that meaning leaves out.
func plainEnough(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // a key comes next
	}
	var levels []level
	for {
		tok, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if len(levels) > 0 {
			if top := &levels[len(levels)-1]; top.keys != nil {
				if key, ok := tok.(string); ok && top.key {
					switch key {
					case "message", "thinking", "refusal", "function_call", "reasoning_details", "cached_tokens", "prompt_cache_hit_tokens":
						if key != "cached_tokens" || len(levels) != 3 {
							return false
						}
					}
					if top.keys[key] {
						return false
					}
					top.keys[key] = true
					top.key = false
					continue
				}
				top.key = true
			}
		}
		switch tok {
		case json.Delim('{'):
			levels = append(levels, level{map[string]bool{}, true})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}

// walkersOwn is whether an event has shapes that only the walker reads: a list of chunks, content in parts, usage in a choice.
func walkersOwn(v any) bool {
	chunk, ok := v.(map[string]any)
	if !ok {
		_, list := v.([]any)
		return list
	}
	choices, _ := chunk["choices"].([]any)
	for _, c := range choices {
		if c, ok := c.(map[string]any); ok {
			d, _ := c["delta"].(map[string]any)
			if _, parts := d["content"].([]any); parts || c["usage"] != nil {
				return true
			}
		}
	}
	return false
}

// FuzzDelta holds the walker against encoding/json: the same bytes are JSON, and a chunk means the same.
func FuzzDelta(f *testing.F) {
	f.Add([]byte(tokenEvent))
	f.Add([]byte(`{"choices":[{"index":1,"delta":{"content":"\ud83d\ude00\ud83d"}},{"index":0,"delta":{"reasoning":"x","tool_calls":[{}]},"finish_reason":"stop"}]}`))
	f.Add([]byte(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2.0,"prompt_tokens_details":{"cached_tokens":null}}}`))
	f.Add([]byte(" [1.5e+3, -0, true, false, null, \"\\u00e9\\/\", {\"a\":[]}] "))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := walker{out: []byte("before")}
		err := w.parse(data)
		again := walker{out: w.out, frame: w.frame}
		if errAgain := again.parse(data); err == nil && w.frame.from > 0 && // once more, by its frame
			(errAgain != nil || again.token != w.token || again.usage != w.usage || string(again.out) != string(w.out)+string(w.out[len("before"):])) {
			t.Fatalf("%q: got %q %v %v the second time, %q %v %v the first", data, again.out, again.token, again.usage, w.out, w.token, w.usage)
		}
		if bytes.Contains(data, []byte("NaN")) || bytes.Contains(data, []byte("Infinity")) {
			return
		}
		if valid := json.Valid(data); valid != (err == nil) {
			t.Fatalf("%q: encoding/json says valid is %v, the walker %v", data, valid, err)
		}
		var v any
		if err != nil || json.Unmarshal(data, &v) != nil || !plainEnough(data) || walkersOwn(v) {
			return
		}
		text, token, finish, u := meaning(v)
		if got := string(w.out); got != "before"+text || w.token != token || w.usage != u || string(appendUnescaped(nil, w.finish)) != finish {
			t.Errorf("%q: got %q %v %q %v, want %q %v %q %v", data, got, w.token, w.finish, w.usage, text, token, finish, u)
		}
	})
}

// FuzzFrame puts another text where an event has its content, and holds the walker that has read the event against one that
// has not.
func FuzzFrame(f *testing.F) {
	for _, event := range []string{
		tokenEvent,
		`{"choices":[{"delta":{"content":"a"}}]}`,
		`{"choices":[{"delta":{"content":"a","reasoning":"a"}}],"usage":{"completion_tokens":3}}`,
		`{"choices":[{"delta":{"reasoning":"x"}},{"delta":{"content":"a"}}]}`,
		`{"choices":[{"delta":{"content":"a","content":"a"}}]}`,
		`{"choices":[{"delta":{"content":"a"},"delta":{"content":"b"}}]}`,
		`{"choices":[{"delta":{"content":["a",{"text":"a"}]}}]}`,
		`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":"a"}}]}`,
		`[{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}]`,
	} {
		for _, text := range []string{"b", "", `\"`, `"`, `b","content":"c`, "\n", "naïve", "\xff", "\x01", `\`} {
			f.Add([]byte(event), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, event, text []byte) {
		first, rest, ok := bytes.Cut(event, []byte(`"content":"`))
		if !ok {
			return
		}
		_, rest, _ = bytes.Cut(rest, []byte(`"`))
		other := slices.Concat(first, []byte(`"content":"`), text, []byte(`"`), rest)
		var knows, fresh walker
		knows.parse(event)
		knows.out = knows.out[:0]
		errKnows, err := knows.parse(other), fresh.parse(other)
		if (errKnows == nil) != (err == nil) {
			t.Fatalf("%q after %q: got %v, without it %v", other, event, errKnows, err)
		}
		if err != nil {
			return
		}
		got := fmt.Sprintf("%q %v %v %q %v %v", knows.out, knows.token, knows.whole, knows.finish, knows.failed, knows.delta.usage)
		want := fmt.Sprintf("%q %v %v %q %v %v", fresh.out, fresh.token, fresh.whole, fresh.finish, fresh.failed, fresh.delta.usage)
		if got != want {
			t.Fatalf("%q after %q:\n got %s\nwant %s", other, event, got, want)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	usage := strings.Replace(tokenEvent, `"usage":null`, `"usage":{"prompt_tokens":18000,"completion_tokens":37,"total_tokens":18037,"prompt_tokens_details":{"cached_tokens":17984}}`, 1)
	for _, event := range []struct {
		name, data string
		other      bool // than the event before it, in more than its text
	}{{"token", tokenEvent, false}, {"first_token", tokenEvent, true}, {"running_usage", usage, true}} {
		b.Run(event.name, func(b *testing.B) {
			var w walker
			data := []byte(event.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				w.out = w.out[:0]
				if event.other {
					w.frame = frame{}
				}
				if w.parse(data) != nil || !w.token {
					b.Fatal("no token")
				}
			}
		})
	}
}
