package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

const (
	// staleWithin is how soon a kept connection that the server had already closed shows it. What dies later may have been
	// at work, and asking again would double the load.
	staleWithin = 500 * time.Millisecond

	// leaveAfter is how long the end of a stream is waited for when the answer is complete, so that the connection can be
	// used again. The turn's End is the answer's.
	// It is short: a server that ends its stream does so with the last event, and a longer wait would make the call's next
	// turn late when there is no gap before it.
	leaveAfter = 5 * time.Millisecond
	leaveBytes = 64 << 10

	errorWait  = time.Second // for the body of a refusal
	errorBytes = 8 << 10     // of it
)

// Do sends one turn and times its answer.
func (c *Client) Do(ctx context.Context, req generator.Request) generator.Reply {
	t := &turn{Client: c, req: req, usage: noUsage, rec: measurement.NewTurn()}
	t.rec.Call, t.rec.Turn, t.rec.Step = req.Call, req.Turn, req.Step
	t.reader = c.readers.Get().(*reader)
	t.run(ctx)
	t.rec.PromptTokens, t.rec.CompletionTokens, t.rec.CachedTokens = t.counts()
	if n := t.rec.CompletionTokens; c.cfg.IgnoreEOS && t.rec.Outcome == measurement.OK && n >= 0 && n < req.MaxTokens {
		t.rec.Outcome = measurement.ShortOutput
		t.rec.Detail = fmt.Sprintf("%d of %d tokens came although ignore_eos was set", n, req.MaxTokens)
	}
	reply := generator.Reply{Turn: t.rec, Content: workload.Content{Text: string(t.reader.out)}}
	t.reader.reset()
	c.readers.Put(t.reader)
	return reply
}

// reader is what a turn needs while bytes come, kept for the next turn.
type reader struct {
	scanner
	walker
}

func (r *reader) reset() {
	r.scanner.reset()
	out := r.out[:0]
	if cap(out) > maxKept {
		out = nil
	}
	r.walker = walker{out: out}
}

// turn is one request and its answer under way.
type turn struct {
	*Client
	req    generator.Request
	reader *reader
	sent   *attempt

	rec      measurement.Turn
	usage    usage
	events   int  // of any kind
	complete bool // finish_reason or [DONE] came
	ended    bool // the outcome is known
	eof      bool // no more bytes come
	watch    watch
}

func (t *turn) run(ctx context.Context) {
	if ctx.Err() != nil {
		t.stopped(context.Cause(ctx), t.clk.Now())
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errReturns)
	t.sent = t.attempt(ctx)
	t.rec.Sent = t.clk.Now()
	t.watch.start(t.clk, t.cfg.Limits, t.rec.Sent, cancel)
	defer t.watch.stop()

	res, err := t.send(ctx, false)
	now := t.clk.Now()
	if err != nil && ctx.Err() == nil && t.sent.stale() && now-t.rec.Sent < staleWithin {
		t.rec.Retries++
		t.sent = t.attempt(ctx)
		res, err = t.send(ctx, true) // another that waited may be closed too
		now = t.clk.Now()
	}
	if err != nil {
		t.noAnswer(ctx, err, now)
	} else {
		t.rec.Headers = now
		if t.accept(res, now) {
			t.read(ctx, res)
		}
		res.Body.Close()
		t.conns.put(t.sent.conn)
		// The write is reported by another goroutine, which the whole answer can overtake. The report always comes: the
		// connection is either free again, and the request written, or closed.
		<-t.sent.told
	}
	t.rec.WroteRequest = time.Duration(t.sent.wrote.Load())
}

// accept looks at the head of an answer and is true when its body should be a stream.
func (t *turn) accept(res *http.Response, now time.Duration) bool {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	encoding := res.Header.Get("Content-Encoding")
	switch code := res.StatusCode; {
	case code == http.StatusTooManyRequests:
		t.refused(res, measurement.HTTP429, now)
	case code >= 500:
		t.refused(res, measurement.HTTP5xx, now)
	case code >= 400:
		t.refused(res, measurement.HTTP4xx, now)
	case code >= 300 || code < 200:
		t.fail(measurement.NotStream, now, "the server answered %d, which is not followed", code)
	case media == "text/html", media == "application/json", media == "application/problem+json":
		t.refused(res, measurement.NotStream, now)
	case encoding != "" && encoding != "identity":
		t.fail(measurement.NotStream, now, "the stream is compressed (%s) although that was not asked for", t.clean(encoding))
	default:
		return true
	}
	return false
}

// refused ends a turn with what the body of a refusal says.
func (t *turn) refused(res *http.Response, o measurement.Outcome, now time.Duration) {
	t.watch.leaveAt(now, now+errorWait)
	said, _ := io.ReadAll(io.LimitReader(res.Body, errorBytes))
	what := fmt.Sprintf("the server answered %d", res.StatusCode)
	if o == measurement.NotStream {
		what += " with " + t.clean(res.Header.Get("Content-Type")) + " instead of a stream"
	}
	if after := res.Header.Get("Retry-After"); after != "" {
		what += " (retry after " + t.clean(after) + ")"
	}
	t.fail(o, now, "%s%s", what, t.quote(said))
}

// read follows the stream to its end.
func (t *turn) read(ctx context.Context, res *http.Response) {
	for {
		// Reading into nothing waits for the next chunk (where a body is not in chunks, it returns at once). A thousand streams so
		// need no thousand buffers, and the few that they share stay in the CPU's cache.
		_, err := res.Body.Read(nil)
		n, buf := 0, t.buffers.Get().(*buffer)
		if err == nil {
			n, err = res.Body.Read(buf[:])
		}
		now := t.clk.Now()
		over := false
		if n > 0 {
			t.watch.hears(now)
			over = t.feed(buf[:n], now)
		}
		t.buffers.Put(buf)
		switch {
		case over:
			t.leave(res.Body, now)
			return
		case err == nil:
		case err == io.EOF:
			t.endOfStream(res, now)
			return
		default:
			t.broken(ctx, err, now)
			return
		}
	}
}

// feed reads the events that p completes and reports whether the turn has ended.
func (t *turn) feed(p []byte, now time.Duration) bool {
	for len(p) > 0 {
		ev, rest, ok, err := t.reader.next(p)
		if err != nil {
			t.fail(measurement.StreamError, now, "%v", err)
			return true
		}
		if !ok {
			return false
		}
		if t.event(ev, now); t.ended {
			return true
		}
		p = rest
	}
	return false
}

var doneMark = []byte("[DONE]")

// event reads one event.
func (t *turn) event(ev event, now time.Duration) {
	data := bytes.TrimSpace(ev.data)
	if len(data) == 0 && ev.kind != kindError {
		return
	}
	t.events++
	if t.rec.FirstEvent < 0 {
		t.rec.FirstEvent = now
	}
	switch {
	case ev.kind == kindError:
		t.fail(measurement.StreamError, now, "the stream reports an error%s", t.quote(data))
		return
	case ev.kind == kindBare:
		t.fail(measurement.StreamError, now, "the stream holds JSON outside an event%s", t.quote(data))
		return
	case bytes.Equal(data, doneMark):
		t.complete = true
		t.end(measurement.OK, now)
		return
	}

	w := &t.reader.walker
	kept := len(w.out)
	if err := w.parse(data); err != nil {
		switch {
		case t.eof: // the last line is cut off
		case ev.kind == kindNamed: // some ping
		default:
			t.fail(measurement.StreamError, now, "%v", err)
		}
		return
	}
	if w.failed {
		t.fail(measurement.StreamError, now, "the stream reports an error%s", t.quote(data))
		return
	}
	if w.token && w.whole && t.rec.Events > 0 { // the whole answer once more
		w.token = false
		w.out = w.out[:kept]
	}
	t.usage.update(w.delta.usage)
	if w.token {
		t.token(now, w.delta.usage.completion)
	}
	if w.finish != nil {
		t.complete = true
		switch reason := string(w.finish); reason {
		case "error", "server_error", "abort", "aborted", "cancelled", "canceled", "insufficient_system_resource":
			t.fail(measurement.StreamError, now, "the server gave up: finish_reason is %s", reason)
		}
	}
}

// token notes a token event; completion is how many tokens the answer has so far, as far as the event says so.
func (t *turn) token(now time.Duration, completion int) {
	if t.rec.Events == 0 {
		t.watch.hearsToken()
		t.rec.FirstToken = now
		t.rec.FirstEventTokens = max(completion, 0)
		t.rec.Gaps = make([]time.Duration, 0, min(max(t.req.MaxTokens, 1), 1024)-1)
	} else {
		t.rec.Gaps = append(t.rec.Gaps, now-t.rec.LastToken)
	}
	t.rec.Events++
	t.rec.LastToken = now
}

// endOfStream judges an answer whose bytes have ended as HTTP lets them.
func (t *turn) endOfStream(res *http.Response, now time.Duration) {
	t.eof = true
	for !t.ended {
		ev, ok := t.reader.last()
		if !ok {
			break
		}
		t.event(ev, now)
	}
	switch media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); {
	case t.ended:
	case t.complete:
		t.end(measurement.OK, now)
	case t.events == 0 && media != "" && media != "text/event-stream":
		t.fail(measurement.NotStream, now, "the server answered %d with %s and no event", res.StatusCode, t.clean(media))
	default:
		t.fail(measurement.Truncated, now, "the stream ended after %s without finish_reason and without [DONE]", t.sofar())
	}
}

// leave reads what follows a complete answer, normally only the end of the body, so that the connection can be kept.
func (t *turn) leave(rest io.Reader, now time.Duration) {
	t.watch.leaveAt(now, now+leaveAfter)
	buf := t.buffers.Get().(*buffer)
	defer t.buffers.Put(buf)
	for n := 0; n < leaveBytes; {
		k, err := rest.Read(buf[:])
		if err != nil {
			return
		}
		n += k
	}
}

// end sets the outcome; the first one stays.
func (t *turn) end(o measurement.Outcome, now time.Duration) {
	if t.ended {
		return
	}
	t.ended = true
	t.rec.Outcome = o
	t.rec.End = now
}

// fail ends the turn with a failure; what has been formatted must be clean of secrets.
func (t *turn) fail(o measurement.Outcome, now time.Duration, format string, args ...any) {
	if !t.ended {
		t.end(o, now)
		t.rec.Detail = fmt.Sprintf(format, args...)
	}
}

// counts are the tokens that the server told of. A prompt of 0 tokens, or an answer of 0 tokens with content, is a server
// that does not count.
func (t *turn) counts() (prompt, completion, cached int) {
	u := t.usage
	if u.prompt == 0 {
		u.prompt = measurement.Unknown
	}
	if u.completion == 0 && t.rec.Events > 0 {
		u.completion = measurement.Unknown
	}
	return u.prompt, u.completion, u.cached
}

// stopped ends the turn for the reason that its context ended.
func (t *turn) stopped(cause error, now time.Duration) {
	limits := t.cfg.Limits
	switch {
	case errors.Is(cause, errTTFT):
		t.fail(measurement.TTFTTimeout, now, "no token within %v: %s", limits.TTFT, t.sofar())
	case errors.Is(cause, errIdle):
		t.fail(measurement.Stall, now, "silent for %v after %s", limits.Idle, t.sofar())
	case errors.Is(cause, errTotal):
		t.fail(measurement.TotalTimeout, now, "not finished within %v: %s", limits.Total, t.sofar())
	case errors.Is(cause, generator.ErrDrained):
		t.fail(measurement.TotalTimeout, now, "still open when the step's drain was cut: %s", t.sofar())
	default:
		t.fail(measurement.Canceled, now, "the run was interrupted: %s", t.sofar())
	}
}

// sofar says how far the turn has come.
func (t *turn) sofar() string {
	switch {
	case t.rec.Sent < 0:
		return "not sent"
	case t.rec.Events > 0:
		return fmt.Sprintf("%d token events", t.rec.Events)
	case t.events > 0:
		return fmt.Sprintf("%d events, no token", t.events)
	case t.rec.Headers >= 0:
		return "headers, no event"
	case t.sent.conn == nil:
		return "not connected"
	case t.sent.wrote.Load() < 0:
		return "request not written"
	}
	return "request written, no answer"
}
