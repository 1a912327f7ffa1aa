package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"kneefinder/measurement"
)

// maxQuote is how many bytes of a server's own words are kept.
const maxQuote = 200

// noAnswer ends a turn whose request brought no head of an answer.
func (t *turn) noAnswer(ctx context.Context, err error, now time.Duration) {
	switch cause := context.Cause(ctx); {
	case cause != nil:
		t.stopped(cause, now)
	case errors.As(err, &tlsError{}):
		t.fail(measurement.TLS, now, "TLS handshake: %s", t.clean(err.Error()))
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
		t.rec.Local = true
		t.fail(measurement.Connect, now, "this side is out of files or ports: %s", t.clean(err.Error()))
	case t.sent.conn == nil:
		t.fail(measurement.Connect, now, "no connection: %s", t.clean(err.Error()))
	case t.sent.answered.Load() && (!t.sent.conn.lost(err) || foreign(err)):
		t.fail(measurement.StreamError, now, "the answer is not HTTP: %s", t.clean(err.Error()))
	case t.sent.answered.Load():
		t.fail(measurement.Truncated, now, "the connection ended within the answer's headers: %s", t.clean(err.Error()))
	case t.sent.wrote.Load() >= 0:
		t.fail(measurement.Truncated, now, "the connection ended before any answer: %s", t.clean(err.Error()))
	default:
		t.fail(measurement.Connect, now, "the connection ended before the request was written: %s", t.clean(err.Error()))
	}
}

// broken ends a turn whose stream broke off.
func (t *turn) broken(ctx context.Context, err error, now time.Duration) {
	switch cause := context.Cause(ctx); {
	case t.complete: // only the end was missing
		t.end(measurement.OK, now)
	case cause != nil:
		t.stopped(cause, now)
	case t.sent.conn.lost(err):
		t.fail(measurement.Truncated, now, "the connection ended after %s: %s", t.sofar(), t.clean(err.Error()))
	default:
		t.fail(measurement.StreamError, now, "the answer is not HTTP after %s: %s", t.sofar(), t.clean(err.Error()))
	}
}

// lost is whether an error comes of the connection's end, not of nonsense that it brought. A line that the end cut reads like
// nonsense, which the error alone does not tell.
func (c *conn) lost(err error) bool {
	var op *net.OpError
	var no syscall.Errno
	return c.end.Load() || errors.As(err, &op) || errors.As(err, &no) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrDeadlineExceeded)
}

// foreign is whether an error says that the first line of an answer is not HTTP, nor the beginning of it.
func foreign(err error) bool {
	_, line, ok := strings.Cut(err.Error(), "malformed HTTP response \"")
	line = strings.TrimSuffix(line, "\"")
	return ok && !strings.HasPrefix("HTTP/1.1", line) && !strings.HasPrefix("HTTP/1.0", line)
}

// quote is ": " and the server's own words, or "" when it said nothing that can be shown.
func (t *turn) quote(said []byte) string {
	message := t.clean(serverMessage(said))
	switch {
	case message == "":
		return ""
	case t.repeatsPrompt(message):
		return " (its message repeats the prompt and is not shown)"
	}
	return ": " + message
}

// repeatsPrompt is whether a message holds a stretch of the prompt. Any 30 bytes of it are found, fewer perhaps not.
func (t *turn) repeatsPrompt(message string) bool {
	const window, stride = 20, 10
	if len(message) < window {
		return false
	}
	var text []byte
	for _, m := range t.req.Prompt {
		text = append(text, m.Content.Text...)
		for i := 0; ; i++ {
			part, ok := m.Content.Part(i)
			if !ok {
				break
			}
			for b := range part.Blocks() {
				text = t.words.AppendTextBlock(text, part, b)
			}
			text = append(text, ' ')
		}
		text = append(text, '\n')
	}
	for i := 0; i+window <= len(message); i += stride {
		if bytes.Contains(text, []byte(message[i:i+window])) {
			return true
		}
	}
	return false
}

// clean makes one short line of what another side said, without secrets.
func (c *Client) clean(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(c.hide(s), "?"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(s) <= maxQuote {
		return s
	}
	cut := maxQuote
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// hide replaces the secrets in s.
func (c *Client) hide(s string) string {
	for _, secret := range c.secrets {
		s = strings.ReplaceAll(s, secret, "[secret]")
	}
	return s
}

var htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// serverMessage finds the sentence for people in the body of a refusal or in an error event. Servers differ:
// {"error":{"message":""}}, {"error":""}, {"object":"error","message":""}, {"detail":""}, {"detail":[{"loc":[],"msg":""}]},
// an HTML page, plain text.
func serverMessage(said []byte) string {
	said = bytes.TrimSpace(said)
	var v any
	if json.Unmarshal(said, &v) == nil {
		return messageIn(v)
	}
	if title := htmlTitle.FindSubmatch(said); title != nil {
		return string(title[1])
	}
	if len(said) > 0 && (said[0] == '<' || said[0] == '{' || said[0] == '[') {
		return "" // markup, or JSON that is cut off
	}
	return string(said)
}

func messageIn(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		for _, e := range v {
			if m := messageIn(e); m != "" {
				return m
			}
		}
	case map[string]any:
		if m, ok := v["msg"].(string); ok { // a validation error: where and what, but not the input that it repeats
			if loc, ok := v["loc"].([]any); ok {
				return fmt.Sprintf("%v: %s", loc, m)
			}
			return m
		}
		for _, name := range []string{"error", "message", "detail", "errors", "choices", "error_type", "type"} {
			if m := messageIn(v[name]); m != "" {
				return m
			}
		}
	}
	return ""
}
