package openai

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"kneefinder/generator/wire"
	"kneefinder/measurement"
)

// attempt is one try to send a request. The transport tells of it from several goroutines, some of which may outlive the turn.
type attempt struct {
	request  *http.Request
	conn     *conn // nil when there is none
	waited   bool  // the connection had been waiting for the turn, and may be closed at the other end
	answered atomic.Bool
	wrote    atomic.Int64  // the instant; Never before it, and for a write that failed
	told     chan struct{} // takes one when wrote is known
}

// stale reports whether the request met a kept connection that the server had closed.
func (a *attempt) stale() bool { return a.waited && !a.answered.Load() }

// send sends what t.sent holds over a connection that waits, or over a new one.
func (t *turn) send(ctx context.Context, anew bool) (*http.Response, error) {
	a := t.sent
	begun := t.clk.Now()
	var err error
	if anew {
		a.conn, err = t.conns.open(ctx)
	} else {
		a.conn, a.waited, err = t.conns.take(ctx, t.req.Turn > 1) // as only later turns are prepared for
	}
	if !a.waited {
		t.rec.Dialed = t.clk.Now() - begun
	}
	if err != nil {
		t.rec.Reused = false
		return nil, err
	}
	t.rec.Reused = a.conn.used
	a.conn.used = true
	res, err := a.conn.RoundTrip(a.request)
	if err != nil {
		a.conn.Close()
	}
	return res, err
}

// attempt builds the turn's request.
func (t *turn) attempt(ctx context.Context) *attempt {
	a := &attempt{told: make(chan struct{}, 1)}
	a.wrote.Store(int64(measurement.Never))
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.wrote.Store(int64(t.clk.Now()))
			}
			select {
			case a.told <- struct{}{}:
			default:
			}
		},
		GotFirstResponseByte: func() { a.answered.Store(true) },
	})
	tail := appendTail(nil, t.req.MaxTokens, t.options)
	b := &body{words: t.words, head: t.head, prompt: t.req.Prompt, tail: tail}
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           t.chat,
		Host:          t.host,
		Header:        make(http.Header, len(t.header)+3),
		Body:          b,
		ContentLength: b.length(),
	}
	r.Header["Accept"] = []string{"text/event-stream"}
	r.Header["Content-Type"] = []string{"application/json"}
	r.Header[wire.RequestIDHeader] = []string{wire.TurnID(t.cfg.Nonce, t.req.Call, t.req.Turn)}
	if t.cfg.Annotate != nil {
		t.cfg.Annotate(r.Header, t.req)
	}
	for name, values := range t.header {
		r.Header[name] = values
	}
	a.request = r.WithContext(ctx)
	return a
}
