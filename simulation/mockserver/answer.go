package mockserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

// answer turns the progress of one request into bytes.
type answer struct {
	streamed     bool
	usage        bool // tell usage
	cacheReport  bool // tell cached tokens in usage
	seed         uint64
	promptTokens int
	chunk        wire.Chunk // what all chunks have in common

	sent          int    // tokens written so far
	buf           []byte // the last events
	before, after []byte // the bytes of a token's event around its text
}

// next is the events that tell what is new in p: one event a token, so that late tokens are as many events as punctual
// ones. The first comes with the role before it, as both servers do; the last is followed by the reason and the usage. The bytes
// are good until the next call.
func (a *answer) next(p progress) []byte {
	a.buf = a.buf[:0]
	if a.before == nil {
		a.event(wire.ChunkChoice{Delta: wire.Delta{Role: "assistant", Content: new(string)}})
		a.cutTokenEvent()
	}
	for ; a.sent < p.tokens; a.sent++ {
		a.buf = append(a.buf, a.before...)
		a.buf = append(a.buf, wordInText(a.seed, a.sent)...)
		a.buf = append(a.buf, a.after...)
	}
	if p.done {
		reason := string(p.finish.Reason)
		a.event(wire.ChunkChoice{FinishReason: &reason})
		if a.usage {
			last := a.chunk
			last.Choices, last.Usage = []wire.ChunkChoice{}, a.counted(p)
			a.buf = appendEvent(a.buf, last)
		}
		a.buf = append(a.buf, "data: [DONE]\n\n"...)
	}
	return a.buf
}

func (a *answer) event(choice wire.ChunkChoice) {
	c := a.chunk
	c.Choices = []wire.ChunkChoice{choice}
	a.buf = appendEvent(a.buf, c)
}

// cutTokenEvent prepares before and after: a stream's token events differ in one word, which needs no escape.
func (a *answer) cutTokenEvent() {
	const sign = `"content":"@"` // cannot be inside a JSON string
	c, at := a.chunk, "@"
	c.Choices = []wire.ChunkChoice{{Delta: wire.Delta{Content: &at}}}
	whole := appendEvent(nil, c)
	i := bytes.Index(whole, []byte(sign)) + len(sign) - len(`@"`)
	a.before, a.after = whole[:i], whole[i+1:]
}

// completion is the whole answer.
func (a *answer) completion(p progress) wire.Completion {
	var text strings.Builder
	for i := range p.tokens {
		text.WriteString(wordInText(a.seed, i))
	}
	return wire.Completion{
		ID: a.chunk.ID, Object: "chat.completion", Created: a.chunk.Created, Model: a.chunk.Model,
		Choices: []wire.Choice{{
			Message:      wire.Message{Role: "assistant", Content: wire.Text(text.String())},
			FinishReason: string(p.finish.Reason),
		}},
		Usage: a.counted(p),
	}
}

func (a *answer) counted(p progress) *wire.Usage {
	u := &wire.Usage{PromptTokens: a.promptTokens, CompletionTokens: p.tokens, TotalTokens: a.promptTokens + p.tokens}
	if a.cacheReport {
		u.PromptTokensDetails = &wire.PromptDetails{CachedTokens: &p.finish.CachedTokens}
	}
	return u
}

// wordInText is word n of a reply with the space that stands before it.
func wordInText(seed uint64, n int) string {
	if n == 0 {
		return engine.ReplyWord(seed, n)
	}
	return " " + engine.ReplyWord(seed, n)
}

// appendEvent appends v as one server-sent event. What the wire declares always marshals.
func appendEvent(dst []byte, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}

// writer sends an answer and remembers whether its stream has begun.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	opened  bool
}

// open sends the headers of a stream.
func (o *writer) open() error {
	o.head()
	return o.control.Flush()
}

func (o *writer) head() {
	if o.opened {
		return
	}
	o.opened = true
	o.w.Header().Set("Content-Type", "text/event-stream")
	o.w.Header().Set("Cache-Control", "no-cache")
	o.w.WriteHeader(http.StatusOK)
}

// events sends events at once.
func (o *writer) events(events []byte) error {
	o.head()
	if _, err := o.w.Write(events); err != nil {
		return err
	}
	return o.control.Flush()
}

// whole sends an answer that is not a stream.
func (o *writer) whole(c wire.Completion) error { return writeJSON(o.w, http.StatusOK, c) }

// refuse says why the answer ends here: as the response's status, or in the stream once that has begun.
func (o *writer) refuse(r *refusal) error {
	if !o.opened {
		return writeJSON(o.w, r.status, r.body())
	}
	return o.events(append(appendEvent(nil, r.body()), "data: [DONE]\n\n"...))
}
