package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kneefinder/clock"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// epoch is the wall time of every test's 0.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hand is a clock that a test sets.
type hand struct {
	clock.Clock
	now time.Duration
}

func (h *hand) Now() time.Duration { return h.now }

var objectives = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}, {Metric: "itl", Quantile: .95, LimitMS: 33.3}}

// start is telemetry that ends with the test.
func start(t testing.TB, change func(*Config)) (*Telemetry, *hand) {
	t.Helper()
	h := &hand{}
	cfg := Config{Label: "test", Objectives: objectives, Clock: h, Started: epoch, Version: "v1", RunID: "run"}
	if change != nil {
		change(&cfg)
	}
	tel, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	tel.stop() // the tests tick by hand
	<-tel.stopped
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = tel.Shutdown(ctx)
	})
	return tel, h
}

// turn is one that ended well at an instant.
func turn(step, call, number int, end, ttft time.Duration, gaps int, gap time.Duration) measurement.Turn {
	u := measurement.NewTurn()
	u.Step, u.Call, u.Turn, u.Phase, u.Outcome = step, call, number, measurement.Window, measurement.OK
	u.LastToken, u.End = end, end
	u.FirstToken = end - time.Duration(gaps)*gap
	u.Due = u.FirstToken - ttft
	u.Sent = u.Due + 50*time.Microsecond
	u.WroteRequest, u.Headers, u.FirstEvent = u.Sent+ms/10, u.FirstToken-ms/5, u.FirstToken-ms/10
	for range gaps {
		u.Gaps = append(u.Gaps, gap)
	}
	u.Events, u.PromptTokens, u.CompletionTokens, u.CachedTokens = gaps+1, 2000, gaps+1, 1900
	return u
}

// fill tells of n steps of a few hundred turns, every class and outcome among them.
func fill(tel *Telemetry, h *hand, n int, rng *rand.Rand) {
	for step := range n {
		rec := measurement.Step{Step: step, Rate: float64(step + 1), Start: h.now, WindowStart: h.now + 10*time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never}
		tel.StepBegin(rec)
		live := 0
		for call := range 100 {
			live++
			tel.InFlight(h.now, live, 0)
			for k := 1; k <= 4; k++ {
				h.now += 100 * ms
				u := turn(step, step*measurement.CallsPerStep+call, k, h.now, time.Duration(rng.ExpFloat64()*float64(200*ms)), 20, time.Duration(rng.ExpFloat64()*float64(20*ms)))
				if call < 10 {
					u.Phase = measurement.Warmup
				}
				if rng.IntN(50) == 0 {
					u.FirstToken, u.Outcome, u.Gaps = measurement.Never, measurement.TTFTTimeout, nil
				}
				tel.Turn(u)
			}
			if call%7 > 0 {
				live--
				tel.InFlight(h.now, live, 0)
			}
			tel.sample()
		}
		rec.WindowEnd, rec.DrainEnd = h.now, h.now
		tel.StepEnd(rec)
		v := func(x float64) *float64 { return &x }
		tel.StepResult(measurement.StepResult{
			Step: step, Rate: rec.Rate, ArrivedRate: v(1.1), MeasuredTurns: 300, ErrorRate: v(.01), TTFTP50: v(100), TTFTP95: v(290), TTFTP99: v(400), TTFTP95CI: [2]*float64{v(250), v(310)},
			TTFTSentP95: v(280), ITLP50: v(10), ITLP95: v(20), ITLP99: v(30), TPOTP50: v(11), ThroughputTurns: v(3), OutputTokens: v(60), CacheHitRate: v(.95), LiveCallsMean: v(4),
			SaturationRatio: v(.99), ScheduleLagP99: v(.2), Verdict: measurement.Pass, Flags: []string{measurement.FlagShort},
		})
	}
}

func BenchmarkTurn(b *testing.B) {
	for _, gaps := range []int{50, 100} {
		for _, native := range []bool{false, true} {
			b.Run(fmt.Sprintf("gaps=%d/native=%v", gaps, native), func(b *testing.B) {
				tel, h := start(b, func(c *Config) { c.Native = native })
				h.now = time.Hour
				tel.StepBegin(measurement.Step{Step: 0, Rate: 1})
				u := turn(0, 1, 2, h.now, 150*ms, gaps, 0)
				for i := range u.Gaps {
					u.Gaps[i] = time.Duration(1+i%40) * ms
				}
				b.ReportAllocs()
				for b.Loop() {
					tel.Turn(u)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(gaps), "ns/gap")
			})
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, format := range []string{"text/plain", "application/openmetrics-text; version=1.0.0", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"} {
		b.Run(strings.Fields(format)[0], func(b *testing.B) {
			tel, h := start(b, nil)
			fill(tel, h, 16, rand.New(rand.NewPCG(1, 2)))
			bytes := 0
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Accept", format)
				w := &nowhere{header: http.Header{}}
				tel.Handler().ServeHTTP(w, r)
				bytes = w.n
			}
			b.ReportMetric(float64(bytes), "B/scrape")
		})
	}
}

// nowhere is a response that nobody reads.
type nowhere struct {
	header http.Header
	n      int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(int)             {}
func (w *nowhere) Write(b []byte) (int, error) { w.n += len(b); return len(b), nil }

// A reader that leaves in the middle of a page is no reason to warn.
func TestReaderGone(t *testing.T) {
	var b strings.Builder
	c := complaints{slog.New(slog.NewTextHandler(&b, nil))}
	c.Println("error encoding and sending metric family:", &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)})
	if b.Len() > 0 {
		t.Errorf("a reader that has gone: %s", b.String())
	}
	c.Println("error gathering metrics:", errors.New("twice"))
	if !strings.Contains(b.String(), "gathering metrics: twice") {
		t.Errorf("got %q", b.String())
	}
}
