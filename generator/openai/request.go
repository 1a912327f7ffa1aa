package openai

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"kneefinder/generator/wire"
	"kneefinder/measurement"
)

// attempt is what the transport tells of one try to send a request. It does so from several goroutines, some of which may
// outlive the turn.
type attempt struct {
	connected, reused, answered, tlsFailed atomic.Bool
	wrote                                  atomic.Int64 // the instant
}

// stale reports whether the request met a kept connection that the server had closed.
func (a *attempt) stale() bool { return a.reused.Load() && !a.answered.Load() }

// request builds the turn's request, and with it an attempt.
func (t *turn) request(ctx context.Context) *http.Request {
	a := new(attempt)
	a.wrote.Store(int64(measurement.Never))
	t.sent = a
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.connected.Store(true)
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { a.tlsFailed.Store(err != nil) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.wrote.Store(int64(t.clk.Now()))
			}
		},
		GotFirstResponseByte: func() { a.answered.Store(true) },
	})
	tail := appendTail(nil, t.req.MaxTokens, t.options)
	fresh := func() *body {
		return &body{words: t.words, head: t.head, prompt: t.req.Prompt, tail: tail}
	}
	b := fresh()
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           t.chat,
		Host:          t.host,
		Header:        make(http.Header, len(t.header)+3),
		Body:          b,
		ContentLength: b.length(),
		GetBody:       func() (io.ReadCloser, error) { return fresh(), nil }, // used only while nothing was written
	}
	r.Header["Accept"] = []string{"text/event-stream"}
	r.Header["Content-Type"] = []string{"application/json"}
	r.Header[wire.RequestIDHeader] = []string{wire.TurnID(t.cfg.Nonce, t.req.Call, t.req.Turn)}
	for name, values := range t.header {
		r.Header[name] = values
	}
	return r.WithContext(ctx)
}
