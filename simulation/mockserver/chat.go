package mockserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

const (
	maxBody          = 64 << 20 // bytes of a request's body
	defaultMaxTokens = 16       // tokens generated for a request that names no limit
)

// chat answers POST /v1/chat/completions. The model never stops of its own accord, so every answer has as many tokens as the
// request allows, with or without ignore_eos. A full miss of the prefix cache is told as 0 cached tokens (the real servers say
// null, and so cannot be told from servers without a cache report).
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var req wire.ChatRequest
	if refusal := readJSON(w, r, &req); refusal != nil {
		refusal.write(w)
		return
	}
	work, refusal := s.plan(req)
	if refusal != nil {
		refusal.write(w)
		return
	}
	var named bool
	_, work.Call, work.Turn, named = wire.ParseTurnID(r.Header.Get(wire.RequestIDHeader))
	a := answer{
		streamed:     req.Stream,
		usage:        !req.Stream || req.StreamOptions != nil && req.StreamOptions.IncludeUsage,
		cacheReport:  !s.cfg.NoCacheReport,
		seed:         engine.ReplySeed(work.Prompt),
		promptTokens: len(work.Prompt),
	}
	req.Messages = nil // not needed while the answer lasts

	acc := account{streamed: req.Stream, labels: customLabels(r.Header.Get(customLabelsHeader), s.cfg.CustomLabels)}
	st, ok := s.driver.submit(work, named, acc)
	if !ok {
		shuttingDown.write(w)
		return
	}
	a.chunk = wire.Chunk{ID: fmt.Sprintf("chatcmpl-%016x", st.id), Object: "chat.completion.chunk", Created: s.created, Model: s.cfg.ModelName}
	out := &writer{w: w, control: http.NewResponseController(w)}
	if req.Stream && s.cfg.Kind == VLLM {
		out.open()
	}
	if err := s.follow(r.Context(), st, &a, out); err != nil {
		s.driver.abort(st)
	}
}

// follow writes what the engine tells of a request, until it has ended. An error means that nobody reads any more.
func (s *Server) follow(ctx context.Context, st *stream, a *answer, out *writer) error {
	for {
		select {
		case <-st.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.driver.closed:
			return out.refuse(shuttingDown)
		}
		p := st.read()
		switch {
		case p.done && p.finish.Reason == engine.Failed:
			return out.refuse(&refusal{status: http.StatusServiceUnavailable, message: p.finish.Detail})
		case p.done && p.finish.Reason != engine.Length:
			return out.refuse(&refusal{status: http.StatusBadRequest, message: p.finish.Detail})
		case !a.streamed && p.done:
			return out.whole(a.completion(p))
		case !a.streamed:
			continue
		}
		if err := out.events(a.next(p)); err != nil || p.done {
			return err
		}
	}
}

// plan is what a request asks of the engine, or why it is refused.
func (s *Server) plan(req wire.ChatRequest) (engine.Request, *refusal) {
	limit := req.MaxTokens
	if req.MaxCompletion != 0 {
		limit = req.MaxCompletion
	}
	switch {
	case req.Model != s.cfg.ModelName:
		return engine.Request{}, refuse(http.StatusNotFound, "The model %q does not exist. This server serves %q.", req.Model, s.cfg.ModelName)
	case len(req.Messages) == 0:
		return engine.Request{}, refuse(http.StatusBadRequest, "messages is empty.")
	case limit < 0:
		return engine.Request{}, refuse(http.StatusBadRequest, "max_tokens is %d: it must be at least 1.", limit)
	case limit == 0:
		limit = defaultMaxTokens
	}
	prompt := promptTokens(req.Messages)
	if c := s.cfg.ContextLimit; c > 0 && limit > c-len(prompt) { // a sum may be more than an int holds
		return engine.Request{}, refuse(http.StatusBadRequest, "This model's maximum context length is %d tokens. However, you requested %d tokens "+
			"(%d in the messages, %d in the completion). Please reduce the length of the messages or completion.",
			c, uint64(len(prompt))+uint64(limit), len(prompt), limit)
	}
	priority := req.Priority
	if s.cfg.Kind == VLLM {
		priority = -max(priority, -math.MaxInt) // the lowest int has no opposite
	}
	return engine.Request{Prompt: prompt, MaxTokens: limit, Priority: priority}, nil
}

// promptTokens is a chat as the model reads it: the messages, and the opening of the assistant's answer.
func promptTokens(messages []wire.Message) []engine.Token {
	tokens := engine.AppendBOS(nil)
	for _, m := range messages {
		tokens = engine.AppendOpen(tokens, m.Role)
		tokens = engine.AppendText(tokens, string(m.Content))
		tokens = engine.AppendClose(tokens)
	}
	return engine.AppendOpen(tokens, "assistant")
}

// readJSON reads the request's body into v.
func readJSON(w http.ResponseWriter, r *http.Request, v any) *refusal {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "The request's body is larger than %d bytes.", tooLarge.Limit)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "The request's body could not be read: %v.", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return refuse(http.StatusBadRequest, "The request's body is not the JSON expected: %v.", err)
	}
	return nil
}

// refusal is an answer that says why there is no other.
type refusal struct {
	status  int
	message string
}

var shuttingDown = &refusal{http.StatusServiceUnavailable, "The server is shutting down."}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// body is the refusal in OpenAI's shape.
func (r *refusal) body() wire.ErrorBody {
	kind := map[int]string{
		http.StatusBadRequest:            "BadRequestError",
		http.StatusNotFound:              "NotFoundError",
		http.StatusRequestEntityTooLarge: "RequestEntityTooLargeError",
		http.StatusServiceUnavailable:    "ServiceUnavailableError",
	}[r.status]
	return wire.ErrorBody{Error: wire.Error{Message: r.message, Type: kind, Code: json.RawMessage(strconv.Itoa(r.status))}}
}

func (r *refusal) write(w http.ResponseWriter) { writeJSON(w, r.status, r.body()) }

// writeJSON answers with v. There is nobody to tell when the client has gone.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(body, '\n'))
	return err
}
