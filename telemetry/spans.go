package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"kneefinder/measurement"
)

const (
	openCalls  = 4096            // kept at most; of more, the one that has been silent longest is taken to have ended
	silentCall = 2 * time.Minute // after which a call is taken to have ended, where its number of turns is not known
)

// spans makes the spans of calls and turns when they have ended. Their ids follow from the run, the call and the turn alone,
// so that a request can carry those of a span that does not exist yet. A call's span is the root; it begins when the call's
// first turn was due and ends with its last turn that is known: the planned last one, or one that failed.
type spans struct {
	runID   string
	started time.Time
	sampler sdktrace.Sampler
	tracer  trace.Tracer

	mu     sync.Mutex
	name   string // of a turn's span
	common []attribute.KeyValue
	first  int // number of a call's first turn
	turns  int // number of its last; 0 when calls differ
	max    int64
	open   map[int]*openCall
}

// openCall is a call of which more turns may come.
type openCall struct {
	ids                trace.SpanContext
	call, step, turns  int
	begin, end         time.Duration
	outcome            measurement.Outcome
	input, output, hit int
}

func newSpans(cfg *Config, provider trace.TracerProvider) *spans {
	s := &spans{
		runID: cfg.RunID, started: cfg.Started, sampler: sdktrace.TraceIDRatioBased(cfg.OTLP.SampleRatio),
		tracer: provider.Tracer("kneefinder/telemetry", trace.WithInstrumentationVersion(cfg.Version)), open: map[int]*openCall{},
	}
	s.setRun(measurement.Header{})
	return s
}

// setRun takes from the header what all spans say.
func (s *spans) setRun(h measurement.Header) {
	kvs := append(common(&h), attribute.Bool("gen_ai.request.stream", true))
	if u, err := url.Parse(h.Engine.BaseURL); err == nil && u.Host != "" {
		kvs = append(kvs, attribute.String("server.address", u.Hostname()))
		if _, port, err := net.SplitHostPort(u.Host); err == nil {
			if n, err := strconv.Atoi(port); err == nil {
				kvs = append(kvs, attribute.Int("server.port", n))
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.common, s.max = "chat", kvs, int64(h.Config.OutputTokens)
	if h.Engine.Model != "" {
		s.name += " " + h.Engine.Model
	}
	s.first, s.turns = h.Config.FirstTurn(), h.Config.Turns
	switch {
	case h.Config.Lone():
		s.turns = measurement.LoneTurn
	case h.Config.Transcripts != "":
		s.turns = 0
	}
	if h.Config.OutputLengths != "" || h.Config.Trace != "" {
		s.max = 0 // each turn asks for another number
	}
}

// ids are those of a turn's span; turn 0 stands for the call itself.
func (s *spans) ids(call, turn int) trace.SpanContext {
	var buf [128]byte
	b := append(buf[:0], s.runID...)
	b = append(b, 0)
	b = strconv.AppendInt(b, int64(call), 10)
	c := trace.SpanContextConfig{}
	sum := sha256.Sum256(b)
	copy(c.TraceID[:], sum[:])
	b = append(b, 0)
	b = strconv.AppendInt(b, int64(turn), 10)
	sum = sha256.Sum256(b)
	copy(c.SpanID[:], sum[:])
	if s.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: c.TraceID}).Decision == sdktrace.RecordAndSample {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// traceparent is the W3C header that joins a server's span to a turn's.
func (s *spans) traceparent(call, turn int) string {
	c := s.ids(call, turn)
	id, span := c.TraceID(), c.SpanID()
	b := make([]byte, 0, 55)
	b = hex.AppendEncode(append(b, "00-"...), id[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(c.TraceFlags())})
	return string(b)
}

// turn makes a turn's span, and its call's when the turn was the last; it returns the ids for an exemplar, invalid when the
// call's spans are not sent. A turn never sent has no span.
func (s *spans) turn(u *measurement.Turn) (e exemplar) {
	if u.Sent < 0 || u.End < 0 {
		return exemplar{}
	}
	ids := s.ids(u.Call, u.Turn)
	if !ids.IsSampled() {
		return exemplar{}
	}
	s.mu.Lock()
	c := s.open[u.Call]
	if c == nil && u.Turn == s.first {
		c = &openCall{ids: s.ids(u.Call, 0), call: u.Call, step: u.Step, begin: u.Due}
		s.open[u.Call] = c
	}
	var done []*openCall
	if c != nil {
		c.turns++
		c.end, c.outcome = u.End, u.Outcome
		c.input += max(u.PromptTokens, 0)
		c.output += max(u.CompletionTokens, 0)
		c.hit += max(u.CachedTokens, 0)
		if u.Outcome.Failed() || u.Turn == s.turns {
			delete(s.open, u.Call)
			done = append(done, c)
		}
	}
	if len(s.open) > openCalls {
		done = append(done, s.silent())
	}
	name, kvs, limit := s.name, s.common, s.max
	s.mu.Unlock()
	s.emitTurn(u, ids, name, kvs, limit)
	s.emit(done...)
	return exemplar{trace: ids.TraceID(), span: ids.SpanID()}
}

// silent takes out the call that has been silent longest. mu is held.
func (s *spans) silent() *openCall {
	call := -1
	for n, c := range s.open {
		if call < 0 || c.end < s.open[call].end || c.end == s.open[call].end && n < call {
			call = n
		}
	}
	c := s.open[call]
	delete(s.open, call)
	return c
}

// sweep ends the calls that have been silent for long.
func (s *spans) sweep(now time.Duration) {
	s.mu.Lock()
	var done []*openCall
	for n, c := range s.open {
		if now-c.end > silentCall {
			delete(s.open, n)
			done = append(done, c)
		}
	}
	s.mu.Unlock()
	s.emit(done...)
}

// endAll ends all calls.
func (s *spans) endAll() {
	s.mu.Lock()
	open := s.open
	s.open = map[int]*openCall{}
	s.mu.Unlock()
	for _, c := range open {
		s.emit(c)
	}
}

// emit makes the spans of calls.
func (s *spans) emit(calls ...*openCall) {
	for _, c := range calls {
		_, span := s.tracer.Start(context.WithValue(context.Background(), idsKey{}, c.ids), "call", trace.WithNewRoot(),
			trace.WithTimestamp(s.started.Add(c.begin)), trace.WithAttributes(
				attribute.String("gen_ai.conversation.id", strconv.Itoa(c.call)), attribute.Int("kneeload.step", c.step), attribute.Int("kneeload.turns", c.turns),
				attribute.Int("gen_ai.usage.input_tokens", c.input), attribute.Int("gen_ai.usage.output_tokens", c.output),
				attribute.Int("gen_ai.usage.cache_read.input_tokens", c.hit)))
		fail(span, c.outcome)
		span.End(trace.WithTimestamp(s.started.Add(c.end)))
	}
}

func fail(span trace.Span, o measurement.Outcome) {
	if o.Failed() {
		span.SetAttributes(attribute.String("error.type", string(o)))
		span.SetStatus(codes.Error, string(o))
	}
}

// emitTurn makes the span of a turn, from sending to end.
func (s *spans) emitTurn(u *measurement.Turn, ids trace.SpanContext, name string, common []attribute.KeyValue, limit int64) {
	parent := trace.ContextWithSpanContext(context.Background(), s.ids(u.Call, 0))
	kvs := make([]attribute.KeyValue, 0, len(common)+16)
	kvs = append(kvs, common...)
	kvs = append(kvs, attribute.String("gen_ai.conversation.id", strconv.Itoa(u.Call)),
		attribute.Int("kneeload.step", u.Step), attribute.Int("kneeload.turn", u.Turn), attribute.String("kneeload.phase", u.Phase.String()),
		attribute.Float64("kneeload.due", u.Due.Seconds()), attribute.Bool("kneeload.connection.reused", u.Reused))
	if u.Turn == 1 {
		limit = min(limit, 1) // the warm turn asks for one token
	}
	if limit > 0 {
		kvs = append(kvs, attribute.Int64("gen_ai.request.max_tokens", limit))
	}
	if lag, ok := u.Lag(); ok {
		kvs = append(kvs, attribute.Float64("kneeload.schedule_lag", lag.Seconds()))
	}
	if ttft, ok := u.TTFT(); ok {
		kvs = append(kvs, attribute.Float64("kneeload.ttft", ttft.Seconds()))
	}
	if d, ok := firstChunk(u); ok {
		kvs = append(kvs, attribute.Float64("gen_ai.response.time_to_first_chunk", d.Seconds()))
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"gen_ai.usage.input_tokens", u.PromptTokens}, {"gen_ai.usage.output_tokens", u.CompletionTokens}, {"gen_ai.usage.cache_read.input_tokens", u.CachedTokens}} {
		if n.value >= 0 {
			kvs = append(kvs, attribute.Int(n.name, n.value))
		}
	}
	_, span := s.tracer.Start(context.WithValue(parent, idsKey{}, ids), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(s.started.Add(u.Sent)), trace.WithAttributes(kvs...))
	for _, e := range []struct {
		name string
		at   time.Duration
	}{{"request written", u.WroteRequest}, {"headers", u.Headers}, {"first event", u.FirstEvent}, {"first token", u.FirstToken}, {"last token", u.LastToken}} {
		if e.at >= 0 {
			span.AddEvent(e.name, trace.WithTimestamp(s.started.Add(e.at)))
		}
	}
	fail(span, u.Outcome)
	span.End(trace.WithTimestamp(s.started.Add(u.End)))
}

// idsKey is the context key of the ids that the next span has.
type idsKey struct{}

// givenIDs gives each span the ids that its context holds.
type givenIDs struct{}

func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c := ctx.Value(idsKey{}).(trace.SpanContext)
	return c.TraceID(), c.SpanID()
}

func (givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(idsKey{}).(trace.SpanContext).SpanID()
}
