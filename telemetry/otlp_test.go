package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	colmetricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// receiver is an OTLP endpoint of both protocols that keeps what it gets.
type receiver struct {
	coltracepb.UnimplementedTraceServiceServer
	grpc, http string // addresses

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	scrapes  []*colmetricspb.ExportMetricsServiceRequest
	headers  []string // the values of x-key
	answer   error    // of each push; nil is well
}

type metricsService struct {
	colmetricspb.UnimplementedMetricsServiceServer
	r *receiver
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, r)
	colmetricspb.RegisterMetricsServiceServer(server, metricsService{r: r})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	web := httptest.NewServer(r)
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
		web.Close()
	})
	r.grpc, r.http = listener.Addr().String(), strings.TrimPrefix(web.URL, "http://")
	return r
}

func (r *receiver) Export(ctx context.Context, q *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, md.Get("x-key")...)
	if r.answer != nil {
		return nil, r.answer
	}
	for _, rs := range q.ResourceSpans {
		r.resource = attributes(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (s metricsService) Export(_ context.Context, q *colmetricspb.ExportMetricsServiceRequest) (*colmetricspb.ExportMetricsServiceResponse, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.answer != nil {
		return nil, s.r.answer
	}
	s.r.scrapes = append(s.r.scrapes, q)
	return &colmetricspb.ExportMetricsServiceResponse{}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var answer proto.Message
	ctx := metadata.NewIncomingContext(q.Context(), metadata.Pairs("x-key", q.Header.Get("X-Key")))
	switch q.URL.Path {
	case "/v1/traces":
		m := &coltracepb.ExportTraceServiceRequest{}
		if err = errors.Join(err, proto.Unmarshal(body, m)); err == nil {
			answer, err = r.Export(ctx, m)
		}
	case "/v1/metrics":
		m := &colmetricspb.ExportMetricsServiceRequest{}
		if err = errors.Join(err, proto.Unmarshal(body, m)); err == nil {
			answer, err = metricsService{r: r}.Export(ctx, m)
		}
	default:
		err = fmt.Errorf("no %s here", q.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error()+" "+q.Header.Get("X-Key"), http.StatusUnauthorized) // an endpoint that sends the key back
		return
	}
	b, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b)
}

func attributes(kvs []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			m[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *commonpb.AnyValue_BoolValue:
			m[kv.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return m
}

// stop ends telemetry and wants it to go well.
func stop(t *testing.T, tel *Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := tel.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestSpans(t *testing.T) {
	for _, protocol := range []string{"grpc", "http", "url"} {
		t.Run(protocol, func(t *testing.T) {
			to := receive(t)
			tel, h := start(t, func(c *Config) {
				c.OTLP = OTLP{Endpoint: to.grpc, Insecure: true, SampleRatio: 1}
				switch protocol {
				case "http":
					c.OTLP.Protocol, c.OTLP.Endpoint = "http", to.http
				case "url":
					c.OTLP.Protocol, c.OTLP.Endpoint, c.OTLP.Insecure = "http", "http://"+to.http, false
				}
			})
			smallRun(tel, h)
			sent := http.Header{}
			tel.Annotate(sent, 0, 1, 2, measurement.Window)
			stop(t, tel)

			spans := map[string]*tracepb.Span{}
			calls, turns := 0, 0
			for _, s := range to.spans {
				if spans[string(s.SpanId)] != nil {
					t.Errorf("two spans have the id %x", s.SpanId)
				}
				spans[string(s.SpanId)] = s
				if s.Name == "call" {
					calls++
				} else {
					turns++
				}
			}
			if calls != 4 || turns != 13 { // the call of step 1 whose first turn was never told has no span of its own
				t.Errorf("%d spans of calls and %d of turns, want 4 and 13", calls, turns)
			}
			orphans := 0
			for _, s := range to.spans {
				parent := spans[string(s.ParentSpanId)]
				switch {
				case s.Name == "call":
					if len(s.ParentSpanId) > 0 {
						t.Errorf("the span of a call has the parent %x", s.ParentSpanId)
					}
				case parent == nil:
					orphans++
				case parent.Name != "call" || !bytes.Equal(parent.TraceId, s.TraceId):
					t.Errorf("the parent of %s is %s in another trace", s.Name, parent.Name)
				case parent.StartTimeUnixNano > s.StartTimeUnixNano || parent.EndTimeUnixNano < s.EndTimeUnixNano:
					t.Errorf("a turn from %d to %d is not within its call from %d to %d", s.StartTimeUnixNano, s.EndTimeUnixNano, parent.StartTimeUnixNano, parent.EndTimeUnixNano)
				}
			}
			if orphans != 1 {
				t.Errorf("%d turns without a call, want 1", orphans)
			}

			parts := strings.Split(sent.Get("traceparent"), "-")
			id, err := hex.DecodeString(parts[2])
			if err != nil || len(parts) != 4 || parts[0] != "00" || parts[3] != "01" {
				t.Fatalf("traceparent %q", sent.Get("traceparent"))
			}
			s := spans[string(id)]
			if s == nil || hex.EncodeToString(s.TraceId) != parts[1] {
				t.Fatalf("no span has the ids of %q", sent.Get("traceparent"))
			}
			if s.Name != "chat gemma" || s.Kind != tracepb.Span_SPAN_KIND_CLIENT {
				t.Errorf("the span is %q of kind %v", s.Name, s.Kind)
			}
			got := attributes(s.Attributes)
			u := turn(0, 1, 2, 2*time.Second+1100*ms, 300*ms, 3, 20*ms)
			for k, want := range map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "sglang", "gen_ai.request.model": "gemma", "gen_ai.request.max_tokens": "4", "gen_ai.request.stream": "true",
				"gen_ai.conversation.id": "1", "gen_ai.usage.input_tokens": "2000", "gen_ai.usage.output_tokens": "4", "gen_ai.usage.cache_read.input_tokens": "1900",
				"gen_ai.response.time_to_first_chunk": fmt.Sprint((u.FirstEvent - u.Sent).Seconds()), "server.address": "10.0.0.1", "server.port": "30000",
				"kneeload.step": "0", "kneeload.turn": "2", "kneeload.phase": "window", "kneeload.due": fmt.Sprint(u.Due.Seconds()), "kneeload.ttft": "0.3",
			} {
				if got[k] != want {
					t.Errorf("%s is %q, want %q", k, got[k], want)
				}
			}
			if start := epoch.Add(u.Sent).UnixNano(); int64(s.StartTimeUnixNano) != start || int64(s.EndTimeUnixNano) != epoch.Add(u.End).UnixNano() {
				t.Errorf("the span begins at %d, want %d", s.StartTimeUnixNano, start)
			}
			var events []string
			for _, e := range s.Events {
				events = append(events, e.Name)
				if e.Name == "first token" && int64(e.TimeUnixNano) != epoch.Add(u.FirstToken).UnixNano() {
					t.Errorf("the first token is at %d, want %d", e.TimeUnixNano, epoch.Add(u.FirstToken).UnixNano())
				}
			}
			if got, want := strings.Join(events, ", "), "request written, headers, first event, first token, last token"; got != want {
				t.Errorf("events %s, want %s", got, want)
			}
			failed := 0
			for _, s := range to.spans {
				if attributes(s.Attributes)["error.type"] == "http_5xx" && s.Status.Code == tracepb.Status_STATUS_CODE_ERROR {
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d spans failed with http_5xx, want 1", failed)
			}
			if to.resource["service.name"] != "kneeload" || to.resource["service.instance.id"] != "run" || to.resource["service.version"] != "v1" {
				t.Errorf("the resource is %v", to.resource)
			}
		})
	}
}

// A call is traced whole or not at all, the request says which, and its exemplar leads to a span that exists.
func TestSampling(t *testing.T) {
	to := receive(t)
	tel, h := start(t, func(c *Config) { c.OTLP = OTLP{Endpoint: to.grpc, Insecure: true, SampleRatio: .25} })
	tel.SetRun(measurement.Header{Config: measurement.Config{Turns: 2}})
	tel.StepBegin(measurement.Step{Rate: 1})
	want := map[string]bool{}
	for call := range 1000 {
		for k := 1; k <= 2; k++ {
			h.now += ms
			tel.Turn(turn(0, call, k, h.now, time.Duration(call)*ms, 2, ms))
			head := http.Header{}
			tel.Annotate(head, 0, call, k, measurement.Window)
			if p := strings.Split(head.Get("traceparent"), "-"); p[3] == "01" {
				want[p[1]+p[2]] = true
			}
		}
	}
	text := get(t, tel, openMetrics)
	stop(t, tel)
	got := map[string]bool{}
	for _, s := range to.spans {
		if s.Name != "call" {
			got[hex.EncodeToString(s.TraceId)+hex.EncodeToString(s.SpanId)] = true
		}
	}
	if len(got) < 400 || len(got) > 600 || len(got) != len(want) {
		t.Errorf("%d turns were sent and %d were announced, want about 500", len(got), len(want))
	}
	for id := range got {
		if !want[id] {
			t.Errorf("the span %s was not announced", id)
		}
	}
	exemplars := 0
	for line := range strings.Lines(text) {
		_, e, ok := strings.Cut(line, " # {")
		if !ok {
			continue
		}
		exemplars++
		var trace, span string
		for _, l := range strings.Split(strings.Split(e, "}")[0], ",") {
			k, v, _ := strings.Cut(l, "=")
			switch v = strings.Trim(v, `"`); k {
			case "trace_id":
				trace = v
			case "span_id":
				span = v
			}
		}
		if !strings.HasPrefix(line, names.TTFT+"_bucket") || !got[trace+span] {
			t.Errorf("the exemplar of %s has no span", line)
		}
	}
	if exemplars < 10 {
		t.Errorf("%d exemplars, want one for most buckets of TTFT", exemplars)
	}
}

// Calls whose number of turns is not known end when their step does, or when they have been silent; and only so many are kept.
func TestOpenCalls(t *testing.T) {
	to := receive(t)
	tel, h := start(t, func(c *Config) { c.OTLP = OTLP{Endpoint: to.grpc, Insecure: true, SampleRatio: 1} })
	tel.SetRun(measurement.Header{Config: measurement.Config{Turns: 2, Transcripts: "calls.jsonl"}})
	tel.StepBegin(measurement.Step{Rate: 1})
	h.now = time.Second
	for call := range openCalls {
		h.now += time.Microsecond
		tel.Turn(turn(0, call, 1, h.now, ms, 0, 0))
	}
	tel.Turn(turn(0, openCalls, 1, h.now+1, ms, 0, 0))
	if n, gone := len(tel.spans.open), tel.spans.open[0] == nil; n != openCalls || !gone {
		t.Errorf("%d calls are open, the oldest among them: %v", n, !gone)
	}
	tel.spans.sweep(h.now + silentCall + time.Second)
	if n := len(tel.spans.open); n > 0 {
		t.Errorf("%d calls are open after %v of silence", n, silentCall)
	}
	tel.Turn(turn(0, 9999, 1, h.now, ms, 0, 0))
	tel.StepEnd(measurement.Step{DrainEnd: h.now})
	if n := len(tel.spans.open); n > 0 {
		t.Errorf("%d calls are open after the step", n)
	}
	stop(t, tel)
	// More spans than the queue holds ended at once: what was not sent was counted.
	if sent, lost := len(to.spans), tel.exports.dropped[signalSpans].n.Load(); sent+int(lost) != 2*(openCalls+2) {
		t.Errorf("%d spans were sent and %d counted as lost, want %d together", sent, lost, 2*(openCalls+2))
	}
}

// What OTLP carries equals what /metrics shows, to the last count.
func TestMetricsAgree(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			to := receive(t)
			tel, h := start(t, func(c *Config) {
				c.Native, c.GenAI = true, true
				c.OTLP = OTLP{Endpoint: to.grpc, Protocol: protocol, Insecure: true, Metrics: true, Interval: time.Hour}
				if protocol == "http" {
					c.OTLP.Endpoint = to.http
				}
			})
			fill(tel, h, 3, rand.New(rand.NewPCG(1, 2)))
			smallRun(tel, h)
			fs := gather(t, tel)
			stop(t, tel) // pushes
			if len(to.scrapes) != 1 {
				t.Fatalf("%d pushes, want 1", len(to.scrapes))
			}
			points := 0
			label := func(kvs []*commonpb.KeyValue) (pairs []string) {
				for k, v := range attributes(kvs) {
					pairs = append(pairs, strings.ReplaceAll(k, ".", "_"), v)
				}
				return pairs
			}
			for _, m := range to.scrapes[0].ResourceMetrics[0].ScopeMetrics[0].Metrics {
				name := strings.ReplaceAll(m.Name, ".", "_")
				if strings.HasPrefix(m.Name, "gen_ai") {
					for full := range fs {
						if full == name+"_total" || full == name+"_seconds" {
							name = full
						}
					}
				}
				of := func(kvs []*commonpb.KeyValue) *dto.Metric {
					points++
					s := metric(fs, name, label(kvs)...)
					if s == nil || len(s.Label) != len(kvs) && !strings.HasPrefix(name, "gen_ai") {
						t.Fatalf("/metrics has no %s %v", name, kvs)
					}
					return s
				}
				switch d := m.Data.(type) {
				case *metricspb.Metric_Gauge:
					for _, p := range d.Gauge.DataPoints {
						if got, want := of(p.Attributes).Gauge.GetValue(), p.GetAsDouble(); got != want {
							t.Errorf("%s: %v and %v", name, got, want)
						}
					}
				case *metricspb.Metric_Sum:
					for _, p := range d.Sum.DataPoints {
						if got, want := of(p.Attributes).Counter.GetValue(), float64(p.GetAsInt()); got != want {
							t.Errorf("%s: %v and %v", name, got, want)
						}
					}
				case *metricspb.Metric_Histogram:
					for _, p := range d.Histogram.DataPoints {
						if strings.HasPrefix(name, "gen_ai") && len(p.Attributes) == 3 {
							points++ // one of two series; the other has an error.type
							continue
						}
						s := of(p.Attributes).Histogram
						sum := uint64(0)
						for i, b := range s.Bucket {
							if i < len(p.ExplicitBounds) {
								sum += p.BucketCounts[i]
								if b.GetUpperBound() != p.ExplicitBounds[i] || b.GetCumulativeCount() != sum {
									t.Errorf("%s, bucket %v: %d and %d", name, b.GetUpperBound(), b.GetCumulativeCount(), sum)
								}
							}
						}
						if s.GetSampleCount() != p.Count || s.GetSampleSum() != p.GetSum() {
							t.Errorf("%s: %d and %d values", name, s.GetSampleCount(), p.Count)
						}
					}
				case *metricspb.Metric_ExponentialHistogram:
					for _, p := range d.ExponentialHistogram.DataPoints {
						s := of(p.Attributes).Histogram
						n := p.ZeroCount
						for _, c := range p.Positive.BucketCounts {
							n += c
						}
						if s.GetSampleCount() != p.Count || n != p.Count || s.GetSchema() != p.Scale {
							t.Errorf("%s: %d and %d values, %d of them in buckets", name, s.GetSampleCount(), p.Count, n)
						}
					}
				}
			}
			want := 0
			for name, f := range fs {
				if strings.HasPrefix(name, "kneeload_") || strings.HasPrefix(name, "gen_ai_") {
					want += len(f.Metric)
				}
			}
			if points != want {
				t.Errorf("OTLP has %d series, /metrics %d", points, want)
			}
		})
	}
}

// logged is a log in memory.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// An endpoint that is down costs one warning and what could not be sent, which is counted; nothing waits for it.
func TestEndpointDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			log := &logged{}
			tel, h := start(t, func(c *Config) {
				c.Log = slog.New(slog.NewTextHandler(log, nil))
				c.OTLP = OTLP{Endpoint: nobody, Protocol: protocol, Insecure: true, SampleRatio: 1, Metrics: true, Interval: time.Hour}
			})
			tel.SetRun(measurement.Header{Config: measurement.Config{Turns: 1}})
			const calls = 3 * spanQueue
			longest := time.Duration(0)
			for i := range calls {
				h.now += ms
				begin := time.Now()
				tel.Turn(turn(0, i, 1, h.now, ms, 0, 0))
				longest = max(longest, time.Since(begin))
			}
			if longest > patience/2 {
				t.Errorf("telling a turn took %v", longest)
			}
			begin := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if err := tel.Shutdown(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%v, with time left", err)
			}
			if took := time.Since(begin); took > 7*time.Second { // of which 2 are granted
				t.Errorf("Shutdown took %v", took)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings, want 1:\n%s", n, log)
			}
			if !strings.Contains(log.String(), "level=INFO msg=\"OTLP: lost in all\" spans=") {
				t.Errorf("the log does not say how much was lost:\n%s", log)
			}
			dropped := metric(gather(t, tel), names.DroppedTotal, names.Signal, "spans").Counter.GetValue()
			if math.Abs(dropped-2*calls) > spanBatch {
				t.Errorf("%v spans counted as lost, want %d", dropped, 2*calls)
			}
		})
	}
}

// A warning comes once, and again only when the endpoint had answered in between; no secret is in it, even one sent back.
func TestWarnsOnceWithoutSecrets(t *testing.T) {
	const key = "sesame open/1"
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame%20open/1")
	to := receive(t)
	log := &logged{}
	tel, h := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(log, nil))
		c.OTLP = OTLP{Endpoint: to.http, Protocol: "http", Insecure: true, SampleRatio: 1, Metrics: true, Interval: time.Hour}
	})
	push := func(answer error) {
		to.mu.Lock()
		to.answer = answer
		to.mu.Unlock()
		h.now += time.Second
		tel.Turn(turn(0, int(h.now/time.Second), 2, h.now, ms, 0, 0))
		if err := tel.exports.tracing.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	push(nil)
	push(errors.New("go away"))
	push(errors.New("go away"))
	push(errors.New("go away"))
	push(nil)
	push(errors.New("go away"))
	push(nil)
	if warned, well := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO"); warned != 2 || well != 2 {
		t.Errorf("%d warnings and %d all-clears, want 2 and 2:\n%s", warned, well, log)
	}
	if got := metric(gather(t, tel), names.DroppedTotal, names.Signal, "spans").Counter.GetValue(); got != 4 {
		t.Errorf("%v spans lost, want 4", got)
	}
	if len(to.headers) == 0 || to.headers[0] != key {
		t.Errorf("the endpoint got the keys %q, want %q", to.headers, key)
	}
	said := log.String() + get(t, tel, openMetrics)
	stop(t, tel)
	for _, s := range to.spans {
		said += s.String()
	}
	for _, m := range to.scrapes {
		said += m.String()
	}
	if strings.Contains(said, "sesame") {
		t.Error("the key is shown")
	}

	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "a=b,sesame%zz")
	_, err := New(t.Context(), Config{Clock: &hand{}, OTLP: OTLP{Endpoint: to.http, SampleRatio: 1}})
	if want := "OTEL_EXPORTER_OTLP_HEADERS: entry 2 is not of the form name=value, with percent signs only as escapes"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestLost(t *testing.T) {
	for _, c := range []struct {
		err  string
		want int
	}{
		{"connection refused", 10},
		{"OTLP partial success: too old (3 spans rejected)", 3},
		{"OTLP partial success: a warning (0 spans rejected)", 0},
		{"OTLP partial success: odd (99 metric data points rejected)", 10},
		{"OTLP partial success: odd", 10},
	} {
		if got := lost(10, errors.New(c.err)); got != c.want {
			t.Errorf("%q costs %d of 10, want %d", c.err, got, c.want)
		}
	}
}
