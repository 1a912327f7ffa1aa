package openai

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"kneefinder/generator/workload"
)

func newBody(t testing.TB, prompt workload.Prompt) *body {
	cfg := Config{Model: "m", IgnoreEOS: true}
	return &body{words: lexicon(t), head: cfg.head(), prompt: prompt, tail: appendTail(nil, 100, cfg.options())}
}

func TestBody(t *testing.T) {
	text := func(s string) workload.Content { return workload.Content{Text: s} }
	drawn := func(words int) workload.Content {
		return workload.Content{Segment: workload.Segment{Nonce: 1, Call: 2, Part: 3, Words: words}}
	}
	for name, prompt := range map[string]workload.Prompt{
		"none":            nil,
		"empty":           {{Role: "user"}},
		"drawn":           {{Role: "system", Content: drawn(1)}, {Role: "user", Content: drawn(64)}, {Role: "user", Content: drawn(65)}, {Role: "user", Content: drawn(1000)}},
		"drawn in parts":  {{Role: "user", Content: workload.Content{Parts: []workload.Segment{{Nonce: 1, Words: 64}, {Nonce: 1, Call: 5, Words: 1}, {Nonce: 2, Words: 200}}}}, {Role: "user", Content: drawn(3)}},
		"verbatim":        {{Role: "assistant", Content: text("\"\\\n\r\t\x00\x1f\u007f é 😀 \u2028 </script>")}},
		"not UTF-8":       {{Role: "assistant", Content: text("a\xffb\xf0\x9f\x98 \xc3")}},
		"long, in runes":  {{Role: "assistant", Content: text(strings.Repeat("é😀a", 1000))}},
		"long, not UTF-8": {{Role: "assistant", Content: text(strings.Repeat("\x80", 3000))}},
		"an odd role":     {{Role: "a\"b", Content: text("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBody(t, prompt)
			want := b.length()
			whole, err := io.ReadAll(b)
			if err != nil || int64(len(whole)) != want {
				t.Fatalf("got %d bytes, %v, want %d", len(whole), err, want)
			}
			if err := iotest.TestReader(newBody(t, prompt), whole); err != nil {
				t.Error(err)
			}
			var got struct {
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal(whole, &got); err != nil || len(got.Messages) != len(prompt) {
				t.Fatalf("%v, %d messages in %s", err, len(got.Messages), whole)
			}
			for i, m := range prompt {
				want := string([]rune(m.Content.Text)) // with U+FFFD for what is not UTF-8
				if m.Content.Text == "" {
					want = string(lexicon(t).AppendText(nil, m.Content.Segment))
				}
				for i, part := range m.Content.Parts {
					if i > 0 {
						want += " "
					}
					want += string(lexicon(t).AppendText(nil, part))
				}
				if got.Messages[i].Role != m.Role || got.Messages[i].Content != want {
					t.Errorf("message %d: got %+v, want %q", i, got.Messages[i], want)
				}
			}
		})
	}
}

func TestEscapedLen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = byte(r.IntN(256))
			if r.IntN(3) == 0 {
				b[i] = "\"\\\n\x01\xf0\x9f\x98\x80\xc3\xa9"[r.IntN(10)]
			}
		}
		if got, want := escapedLen(string(b)), len(appendEscaped(nil, string(b))); got != want {
			t.Fatalf("%q: got %d, want %d", b, got, want)
		}
	}
}

func TestClosedBody(t *testing.T) {
	b := newBody(t, ask(1).Prompt)
	b.Read(make([]byte, 200))
	b.Close()
	if n, err := b.Read(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("got %d, %v, want 0, EOF", n, err)
	}
}

// TestBodyMemory checks that a prompt of 18,000 words is never held.
func TestBodyMemory(t *testing.T) {
	prompt := workload.Prompt{{Role: "system", Content: workload.Content{Segment: workload.Segment{Words: 18000}}}}
	prompt = append(prompt, workload.Message{Role: "assistant", Content: workload.Content{Text: strings.Repeat("a word ", 2000)}})
	p := make([]byte, 32<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b := newBody(t, prompt)
	length := b.length()
	n := int64(0)
	for {
		k, err := b.Read(p)
		n += int64(k)
		if err != nil {
			break
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<10 || n != length || n < 100<<10 {
		t.Errorf("%d bytes allocated for a body of %d (%d announced), want at most 16 KiB", got, n, length)
	}
}

func BenchmarkBody(b *testing.B) {
	prompt := workload.Prompt{{Role: "system", Content: workload.Content{Segment: workload.Segment{Words: 18000}}}}
	p := make([]byte, 32<<10)
	b.ReportAllocs()
	for b.Loop() {
		r := newBody(b, prompt)
		b.SetBytes(r.length())
		for {
			if _, err := r.Read(p); err != nil {
				break
			}
		}
	}
}
