package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"

	"kneefinder/measurement"
	"kneefinder/simulation/mockserver"
	"kneefinder/telemetry/names"
)

// freePort is an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get is a page's text, or "" when there is none.
func get(url string) string {
	res, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}

// waitFor polls until ok, and fails the test after a while.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// values reads a metrics page as series by their text.
func values(t *testing.T, page string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("the metrics page: %v", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, mapValues(families)...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, s := range samples {
		out[s.Metric.String()] = float64(s.Value)
	}
	return out
}

func mapValues[K comparable, V any](m map[K]V) (vs []V) {
	for _, v := range m {
		vs = append(vs, v)
	}
	return vs
}

// receiver is a collector of spans.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []string // as text
	names []string
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans = append(r.spans, prototext.Format(s))
				r.names = append(r.names, s.Name)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect serves a receiver on loopback.
func collect(t *testing.T) (*receiver, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, s := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return r, l.Addr().String()
}

// TestSweepIsShown sweeps and holds what was shown against what was written: the metrics, the live page, the spans, the
// engine's own figures, and the headers that the server saw.
func TestSweepIsShown(t *testing.T) {
	spans, collector := collect(t)
	var seen sync.Map // traceparent and custom labels that the server saw
	server := mock(t, mockserver.Config{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/chat/completions") && r.Header.Get("traceparent") != "" {
				seen.Store(r.Header.Get("traceparent"), r.Header.Get("x-custom-labels"))
			}
			h.ServeHTTP(w, r)
		})
	})
	dir, addr := t.TempDir(), freePort(t)
	type result struct {
		code      int
		out, errs string
	}
	ended := make(chan result, 1)
	go func() {
		code, out, errs := call(t.Context(), append([]string{"sweep", "--base-url", server.URL, "--rates", "4,8", "--no-extend", "--label", "x", "--out", dir, "--slo", "20ms",
			"--web.listen-address", addr, "--web.linger", "2s", "--otlp.endpoint", collector, "--otlp.insecure", "--custom-labels", "--scrape-interval", "200ms"}, quick...)...)
		ended <- result{code, out, errs}
	}()
	waitFor(t, "readiness", func() bool { return get("http://"+addr+"/-/ready") != "" })
	live := ""
	waitFor(t, "the first step on the live page", func() bool { live = get("http://" + addr + "/"); return strings.Contains(live, "<svg") })
	var page string
	waitFor(t, "the run's end", func() bool {
		page = get("http://" + addr + "/metrics")
		return strings.Contains(page, names.RunState+`{label="x",state="done"} 1`)
	})
	r := <-ended
	if r.code != 0 {
		t.Fatalf("exit %d\n%s", r.code, r.errs)
	}
	got := values(t, page)
	results, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	wantValue := func(series string, want float64) {
		t.Helper()
		v, ok := got[series]
		if !ok || math.Abs(v-want) > 1e-12*math.Abs(want) {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	for i, s := range results.Steps {
		within, tokens, gaps := 0, 0, 0
		for _, turn := range log.Turns {
			if d, ok := turn.TTFT(); ok && turn.Turn > 1 && turn.Step == i && log.Steps[i].InWindow(turn.Due) {
				tokens++
				gaps += turn.Events - 1
				if d <= 20*time.Millisecond {
					within++
				}
			}
		}
		measured := fmt.Sprintf(`label="x", step="%d", turn_class="measured"}`, i)
		wantValue(fmt.Sprintf(`%s_bucket{label="x", le="0.02", step="%d", turn_class="measured"}`, names.TTFT, i), float64(within))
		wantValue(names.TTFT+"_count{"+measured, float64(tokens))
		wantValue(names.TurnsInSLOTotal+"{"+measured, float64(within))
		wantValue(names.ITL+"_count{"+measured, float64(gaps))
		step := fmt.Sprintf(`label="x", step="%d"}`, i)
		wantValue(fmt.Sprintf(`%s{label="x", q="0.95", step="%d"}`, names.StepTTFT, i), *s.TTFTP95/1e3)
		wantValue(names.StepTurns+"{"+step, float64(s.MeasuredTurns))
		wantValue(names.StepRate+"{"+step, s.Rate)
		wantValue(names.StepHit+"{"+step, *s.CacheHitRate)
		wantValue(fmt.Sprintf(`%s{label="x", step="%d", verdict="%s"}`, names.StepVerdict, i, s.Verdict), 1)
		if s.Engine == nil || s.Engine.Samples < 5 || s.Engine.TTFTMean == nil {
			t.Errorf("step %d: the engine's own figures: %+v", i, s.Engine)
		}
	}
	if len(log.Samples) < 10 {
		t.Errorf("%d samples of the engine in the log", len(log.Samples))
	}
	turns := 0
	for _, turn := range log.Turns {
		if turn.Sent >= 0 {
			turns++
		}
	}
	spans.mu.Lock()
	defer spans.mu.Unlock()
	chats := 0
	for i, name := range spans.names {
		if strings.HasPrefix(name, "chat ") {
			chats++
		} else if name != "call" {
			t.Errorf("a span named %q: %s", name, spans.spans[i])
		}
	}
	if chats != turns || len(spans.names) == chats {
		t.Errorf("%d spans of turns of %d, want %d and some of calls", chats, len(spans.names), turns)
	}
	n, all := 0, strings.Join(spans.spans, "\n")
	parent := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`)
	phases := map[string]bool{}
	seen.Range(func(p, labels any) bool {
		n++
		if !parent.MatchString(p.(string)) {
			t.Errorf("traceparent %q", p)
		}
		m := regexp.MustCompile(`^\{"run_id":"[0-9a-f]{16}","step":"[01]","phase":"([a-z]+)"\}$`).FindStringSubmatch(labels.(string))
		if m == nil {
			t.Errorf("custom labels %q", labels)
			return true
		}
		phases[m[1]] = true
		return true
	})
	if n != turns || !phases["warmup"] || !phases["window"] || !phases["drain"] {
		t.Errorf("%d requests with a trace of their own, want %d; phases %v", n, turns, phases)
	}
	if words := "the of and"; strings.Contains(all, words) {
		t.Error("prompt text stands in spans")
	}
}

// TestRun turns the rate of a steady load by reload and ends it.
func TestRun(t *testing.T) {
	server := mock(t, mockserver.Config{}, nil)
	dir, addr := t.TempDir(), freePort(t)
	file := filepath.Join(dir, "run.yaml")
	turns := 3
	write := func(rate string) {
		text := fmt.Sprintf("base-url: %s\npreset: demo\ngap: 50ms-100ms\nturns: %d\nrate: %s\nlabel: night\nweb.listen-address: [%q]\nwindow: 5s\n", server.URL, turns, rate, addr)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("2")
	ctx, stop := context.WithCancel(t.Context())
	var errs lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"run", "--config", file}, io.Discard, &errs) }()
	metric := func(series, value string) bool {
		return strings.Contains(get("http://"+addr+"/metrics"), "\n"+series+" "+value)
	}
	reload := func() (int, string) {
		res, err := http.Post("http://"+addr+"/-/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b)
	}
	waitFor(t, "the load", func() bool { return metric(names.OfferedRate+`{label="night"}`, "2\n") })
	write("9")
	if code, text := reload(); code != http.StatusOK {
		t.Fatalf("reload: %d %s", code, text)
	}
	waitFor(t, "the new rate", func() bool { return metric(names.OfferedRate+`{label="night"}`, "9\n") })
	waitFor(t, "calls at it", func() bool {
		m := regexp.MustCompile(names.ArrivedRate + `\{label="night"\} ([0-9.]+)`).FindStringSubmatch(get("http://" + addr + "/metrics"))
		return m != nil && m[1] > "5" && len(m[1]) > 1 && !strings.HasPrefix(m[1], "0.")
	})
	for _, bad := range []string{"-1", "fast", "0"} {
		write(bad)
		if code, text := reload(); code == http.StatusOK || !strings.Contains(text, "rate") || !strings.Contains(text, "stays at 9") {
			t.Errorf("reload of rate %s: %d %q", bad, code, text)
		}
	}
	if !metric(names.WindowSeconds+`{label="night"}`, "5\n") {
		t.Error("the rolling window is not the one asked for")
	}
	turns = 4
	write("9")
	if code, text := reload(); code != http.StatusOK || !strings.Contains(errs.String(), "changes turns, which is read at the start alone") {
		t.Errorf("a change that is passed over: %d %q\n%s", code, text, errs.String())
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a load that is told to stop has done what it was to: %v", err)
	}
	if s := errs.String(); !strings.Contains(s, "λ 9 calls/s, was 2") || !regexp.MustCompile(`stopped after \d+s: [1-9]\d* turns, 0 failed`).MatchString(s) {
		t.Errorf("stderr:\n%s", s)
	}
}

// TestRunFlagWins: a rate on the command line wins over the file, also when the file is read again; a bounded load says what
// it was like; one that is interrupted shows that for as long as it lingers.
func TestRunFlagWins(t *testing.T) {
	server := mock(t, mockserver.Config{}, nil)
	file, addr := filepath.Join(t.TempDir(), "run.yaml"), freePort(t)
	if err := os.WriteFile(file, []byte("rate: 5\nturns: 3\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--config", file, "--base-url", server.URL, "--preset", "demo", "--gap", "50ms", "--rate", "3", "--web.listen-address", addr}
	var out, errs lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), append(args, "--duration", "3s"), &out, &errs) }()
	waitFor(t, "the load", func() bool {
		return strings.Contains(get("http://"+addr+"/metrics"), names.OfferedRate+`{label="run"} 3`)
	})
	res, err := http.Post("http://"+addr+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode == http.StatusOK || !strings.Contains(string(text), "command line") {
		t.Errorf("reload: %d %q", res.StatusCode, text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := out.String(); !strings.Contains(s, "λ asked") || strings.Contains(s, "SLO knee") || strings.Contains(s, "short") {
		t.Errorf("stdout:\n%s", s)
	}

	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- run(ctx, append(args, "--web.linger", "1s"), &out, &errs) }()
	waitFor(t, "the load", func() bool {
		return strings.Contains(get("http://"+addr+"/metrics"), names.OfferedRate+`{label="run"} 3`)
	})
	stop()
	waitFor(t, "the last state", func() bool {
		return strings.Contains(get("http://"+addr+"/metrics"), names.RunState+`{label="run",state="done"} 1`)
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWatchRefuses wants what cannot be shown to be said before any load is sent.
func TestWatchRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(config, []byte("basic_auth_users: {a: plain}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--web.listen-address", taken.Addr().String()}, 1, "the port is taken"},
		{[]string{"--web.listen-address", "127.0.0.1:0", "--web.config.file", config}, 1, "bcrypt"},
		{[]string{"--otlp.endpoint", "127.0.0.1:1", "--otlp.sample-ratio", "2"}, 2, "from 0 to 1"},
		{[]string{"--engine-metrics", "ftp://x"}, 2, "give a URL"},
		{[]string{"--gpu-metrics", "http://"}, 2, "give a URL"},
	} {
		var asked bool
		server := mock(t, mockserver.Config{}, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })
		})
		code, _, errs := call(t.Context(), append([]string{"sweep", "--base-url", server.URL, "--rates", "4", "--label", "x", "--out", t.TempDir()}, append(test.args, quick...)...)...)
		if code != test.code || !strings.Contains(errs, test.want) || asked {
			t.Errorf("%v: exit %d, asked the server: %v, want %d, %q and no question:\n%s", test.args, code, asked, test.code, test.want, errs)
		}
	}
}

// TestCollectorDown: nobody takes the spans, the engine's metrics are broken, the GPU's are not there; the run goes on and its
// results are whole.
func TestCollectorDown(t *testing.T) {
	server := mock(t, mockserver.Config{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				_, _ = io.WriteString(w, "sglang:num_running_reqs 1\nsglang:num_queue_reqs{ broken\n")
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	code, out, errs := call(t.Context(), append([]string{"sweep", "--base-url", server.URL, "--rates", "8", "--no-extend", "--label", "x", "--out", dir,
		"--otlp.endpoint", freePort(t), "--otlp.insecure", "--gpu-metrics", "http://" + freePort(t) + "/metrics"}, quick...)...)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	if n := strings.Count(errs, "level=WARN"); n < 2 || n > 5 || !strings.Contains(errs, "span") || !strings.Contains(errs, "gpu") && !strings.Contains(errs, "GPU") {
		t.Errorf("want one warning of the collector, one of the GPU's metrics and no flood, got %d:\n%s", n, errs)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil || len(r.Steps) != 1 || r.Steps[0].MeasuredTurns < 20 || !bytes.Contains([]byte(out), []byte("λ asked")) {
		t.Errorf("%v\n%s", err, out)
	}
}
