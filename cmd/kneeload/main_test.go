package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/helptest"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mock serves the demo engine on loopback; wrap may put something before its handler.
func mock(t *testing.T, cfg mockserver.Config, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	c, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ModelName = "demo"
	s := mockserver.New(cfg, eng)
	h := s.Handler()
	if wrap != nil {
		h = wrap(h)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); s.Close() })
	return server
}

// call runs kneeload and returns its exit code and what it wrote.
func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs lockedBuffer
	err := run(ctx, args, &out, &errs)
	if err != nil {
		fmt.Fprintln(&errs, "error:", err)
	}
	return cli.Code(err), out.String(), errs.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// quick are the flags of a sweep that takes a few seconds.
var quick = []string{"--system-prompt-tokens", "500", "--user-tokens", "20", "--turns", "3", "--output-tokens", "4", "--gap", "100ms-200ms",
	"--warmup", "1s", "--step-duration", "2s", "--max-step-duration", "4s", "--min-turns", "20", "--drain", "3s", "--language", "english"}

func TestValidate(t *testing.T) {
	args := []string{"--preset", "demo", "--gap", "10ms"}
	t.Run("warm", func(t *testing.T) {
		code, out, errs := call(t.Context(), append([]string{"validate", "--base-url", mock(t, mockserver.Config{}, nil).URL}, args...)...)
		if code != 0 || !strings.HasSuffix(out, "OK: turn-2 reused the warm prefix\n") || strings.Count(out, "\n") != 6 {
			t.Errorf("exit %d\n%s%s", code, out, errs)
		}
	})
	t.Run("a base URL with /v1 is the same", func(t *testing.T) {
		if code, out, errs := call(t.Context(), append([]string{"validate", "--base-url", mock(t, mockserver.Config{}, nil).URL + "/v1/"}, args...)...); code != 0 {
			t.Errorf("exit %d\n%s%s", code, out, errs)
		}
	})
	t.Run("no cache report", func(t *testing.T) {
		code, _, errs := call(t.Context(), append([]string{"validate", "--base-url", mock(t, mockserver.Config{NoCacheReport: true}, nil).URL}, args...)...)
		for _, want := range []string{"cannot tell", "--enable-cache-report", "--enable-prompt-tokens-details", "looks like a prefix cache"} {
			if code != 1 || !strings.Contains(errs, want) {
				t.Errorf("exit %d, want 1 and %q:\n%s", code, want, errs)
			}
		}
	})
	t.Run("the cache is flushed before each turn", func(t *testing.T) {
		server := mock(t, mockserver.Config{}, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/chat/completions") {
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/flush_cache", nil))
				}
				h.ServeHTTP(w, r)
			})
		})
		code, _, errs := call(t.Context(), append([]string{"validate", "--base-url", server.URL}, args...)...)
		if code != 1 || !strings.Contains(errs, "turn 2 found only 0 of the") {
			t.Errorf("exit %d:\n%s", code, errs)
		}
	})
	t.Run("the same nonce again finds turn 1 warm", func(t *testing.T) {
		server := mock(t, mockserver.Config{}, nil)
		again := append([]string{"validate", "--base-url", server.URL, "--nonce", "ff"}, args...)
		if code, _, errs := call(t.Context(), again...); code != 0 {
			t.Fatalf("first: exit %d\n%s", code, errs)
		}
		if code, _, errs := call(t.Context(), again...); code != 1 || !strings.Contains(errs, "turn 1 should be cold") {
			t.Errorf("again: exit %d\n%s", code, errs)
		}
	})
}

func TestSweepWritesItsFiles(t *testing.T) {
	dir := t.TempDir()
	server := mock(t, mockserver.Config{}, nil)
	args := append([]string{"sweep", "--base-url", server.URL, "--rates", "4,8", "--no-extend", "--label", "x", "--out", dir}, quick...)
	code, out, errs := call(t.Context(), args...)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	if !strings.Contains(out, "SLO knee") || !strings.Contains(errs, "λ 8 calls/s: about") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", out, errs)
	}
	live, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if err := measurement.WriteResults(&a, live); err != nil {
		t.Fatal(err)
	}
	if err := measurement.WriteResults(&b, analysis.Analyze(log)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("the curve from the log read again is not the one that was written")
	}
	for _, s := range live.Steps {
		if s.MeasuredTurns < 20 || s.CacheHitRate == nil || *s.CacheHitRate < .8 || s.TTFTP95 == nil || s.ITLBasis != "token" || s.ScheduleLagP99 == nil {
			t.Errorf("step %+v", s)
		}
		if *s.CacheHitRate > 1 {
			t.Errorf("hit rate %v", *s.CacheHitRate)
		}
	}
	for _, turn := range log.Turns { // the wanted length, within 1 %
		if turn.Turn == 1 && (turn.PromptTokens < 515 || turn.PromptTokens > 525) {
			t.Fatalf("a first turn of %d tokens, want 520 within 1 %%", turn.PromptTokens)
		}
	}
	for _, name := range []string{"x.csv", "x.png", "x.hlog"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	before, _ := os.ReadFile(filepath.Join(dir, "x.turns.jsonl"))
	code, _, errs = call(t.Context(), args...)
	if code != 2 || !strings.Contains(errs, "--overwrite") {
		t.Errorf("a label that exists: exit %d\n%s", code, errs)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "x.turns.jsonl")); !bytes.Equal(before, after) {
		t.Error("a refused label's log was touched")
	}
}

func TestBadInput(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + refused.Addr().String()
	refused.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>Welcome to nginx</html>")
	}))
	defer html.Close()
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hang.Close()
	htmlChat := mock(t, mockserver.Config{}, onChat(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>Bad gateway</html>")
	}))
	cut := mock(t, mockserver.Config{}, onChat(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	hangChat := mock(t, mockserver.Config{}, onChat(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	noUsage := mock(t, mockserver.Config{}, onChat(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	good := mock(t, mockserver.Config{ContextLimit: 4096}, nil)
	for _, c := range []struct {
		why  string
		args []string
		code int
		want string // in the message
	}{
		{"nobody listens", []string{"--base-url", nobody, "--rates", "1"}, 1, "connection refused"},
		{"a server that is no LLM server", []string{"--base-url", html.URL, "--rates", "1"}, 1, "is --base-url right"},
		{"a server that hangs", []string{"--base-url", hang.URL, "--rates", "1", "--ttft-timeout", "300ms"}, 1, "is it up"},
		{"HTML for an answer", []string{"--base-url", htmlChat.URL, "--rates", "1"}, 1, "not_stream"},
		{"a stream that ends in the middle", []string{"--base-url", cut.URL, "--rates", "1"}, 1, "truncated"},
		{"an answer that never comes", []string{"--base-url", hangChat.URL, "--rates", "1", "--ttft-timeout", "300ms"}, 1, "ttft_timeout"},
		{"no usage", []string{"--base-url", noUsage.URL, "--rates", "1"}, 1, "stream_options.include_usage"},
		{"an unknown model", []string{"--base-url", good.URL, "--rates", "1", "--model", "gpt-9"}, 1, `does not know the model "gpt-9"; it serves demo`},
		{"a context too long", []string{"--base-url", good.URL, "--rates", "1", "--system-prompt-tokens", "9000"}, 1, "4096"},
		{"no rates", []string{"--base-url", good.URL}, 2, "no rates"},
		{"an empty list", []string{"--base-url", good.URL, "--rates", ""}, 2, "cannot be a rate"},
		{"unsorted rates", []string{"--base-url", good.URL, "--rates", "2,1"}, 2, "not sorted"},
		{"a rate twice", []string{"--base-url", good.URL, "--rates", "1,1"}, 2, "twice"},
		{"a rate of 0", []string{"--base-url", good.URL, "--rates", "0,1"}, 2, "1e-6"},
		{"a rate that is no number", []string{"--base-url", good.URL, "--rates", "nan"}, 2, "cannot be a rate"},
		{"a rate that is next to none", []string{"--base-url", good.URL, "--rates", "1e-300"}, 2, "cannot be a rate"},
		{"a percentile that is no number", []string{"--base-url", good.URL, "--rates", "1", "--slo", "ttft:pnan:300ms"}, 2, "no percentile"},
		{"a ramp longer than the warm-up", []string{"--base-url", good.URL, "--rates", "1", "--arrivals", "ramp:1h"}, 2, "longer than the warm-up"},
		{"a nonce with a tail", []string{"--base-url", good.URL, "--rates", "1", "--nonce", "12zz"}, 2, "hexadecimal"},
		{"a word for a rate", []string{"--base-url", good.URL, "--rates", "fast"}, 2, `"fast"`},
		{"one turn", []string{"--base-url", good.URL, "--rates", "1", "--turns", "1"}, 2, "at least 2"},
		{"a gap that runs backwards", []string{"--base-url", good.URL, "--rates", "1", "--gap", "7s-5s"}, 2, "high to low"},
		{"an SLO of nothing", []string{"--base-url", good.URL, "--rates", "1", "--slo", "soon"}, 2, "300ms"},
		{"an SLO on what is not measured", []string{"--base-url", good.URL, "--rates", "1", "--slo", "e2e:p95:1s"}, 2, "ttft:p95"},
		{"an unknown preset", []string{"--base-url", good.URL, "--preset", "b200"}, 2, "l40s"},
		{"an unknown language", []string{"--base-url", good.URL, "--rates", "1", "--language", "klingon"}, 2, "hindi"},
		{"no base URL", []string{"--rates", "1"}, 2, "--base-url"},
		{"a base URL that is none", []string{"--base-url", "localhost:30000", "--rates", "1"}, 2, "http"},
		{"an unknown flag", []string{"--base-url", good.URL, "--rates", "1", "--fast"}, 2, "--fast"},
		{"a label that is a path", []string{"--base-url", good.URL, "--rates", "1", "--label", "../x"}, 2, "--label"},
		{"an extra body that is no object", []string{"--base-url", good.URL, "--rates", "1", "--extra-body", "[1]"}, 2, "--extra-body"},
		{"a header without a value", []string{"--base-url", good.URL, "--rates", "1", "--header", "secret"}, 2, "NAME:VALUE"},
		{"a key file that is not there", []string{"--base-url", good.URL, "--rates", "1", "--api-key-file", "/nonexistent"}, 2, "--api-key-file"},
	} {
		t.Run(c.why, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"sweep", "--out", dir, "--label", "x"}, quick...)
			code, out, errs := call(t.Context(), append(args, c.args...)...)
			if code != c.code || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.want, errs)
			}
			if out != "" {
				t.Errorf("stdout: %q", out)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// onChat answers chat requests in place of the mock.
func onChat(answer http.HandlerFunc) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/chat/completions") {
				_, _ = http.MaxBytesReader(w, r.Body, 1<<26).Read(make([]byte, 1<<20))
				answer(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// A server that dies in the middle of a sweep ends it soon, with what was measured on disk and readable.
func TestServerDiesMidSweep(t *testing.T) {
	dir := t.TempDir()
	server := mock(t, mockserver.Config{}, nil)
	go func() {
		time.Sleep(7 * time.Second)
		server.Listener.Close() // first: no connection is made between the two
		server.CloseClientConnections()
	}()
	begun := time.Now()
	code, _, errs := call(t.Context(), append([]string{"sweep", "--base-url", server.URL, "--rates", "6,7,8,9,10,11", "--label", "x", "--out", dir}, quick...)...)
	if code != 1 || !strings.Contains(errs, "no longer answers") || !strings.Contains(errs, "kneeanalyze knee") {
		t.Errorf("exit %d:\n%s", code, errs)
	}
	if took := time.Since(begun); took > 25*time.Second {
		t.Errorf("noticed after %v", took)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "x.json"))
	if err != nil || len(r.Steps) < 2 || r.Steps[0].Verdict == measurement.Fail || r.Steps[0].MeasuredTurns == 0 {
		t.Fatalf("results: %d steps, %v", len(r.Steps), err)
	}
	last := r.Steps[len(r.Steps)-1]
	if last.Verdict == measurement.Pass {
		t.Errorf("the step in which the server died passed: %+v", last)
	}
}

// An interrupt ends a sweep cleanly, with everything so far saved.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	var aborted atomic.Int32
	server := mock(t, mockserver.Config{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			if r.Context().Err() != nil {
				aborted.Add(1)
			}
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	args := append([]string{"sweep", "--base-url", server.URL, "--rates", "6,40", "--label", "x", "--out", dir}, quick...)
	code, out, errs := call(ctx, append(args, "--step-duration", "3s", "--max-step-duration", "30s")...)
	if code != 1 || !strings.Contains(errs, "interrupted") {
		t.Errorf("exit %d:\n%s", code, errs)
	}
	if !strings.Contains(out, "incomplete") {
		t.Errorf("the summary does not say that the last step is incomplete:\n%s", out)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil || len(log.Warnings) > 0 || len(log.Steps) != 2 || log.Steps[1].WindowEnd != measurement.Never {
		t.Errorf("log: %d steps, warnings %q, %v", len(log.Steps), log.Warnings, err)
	}
}

// The API key reaches the server and nothing else.
func TestSecretsStay(t *testing.T) {
	const secret = "sk-very-secret-0123456789"
	t.Setenv("KNEELOAD_API_KEY", secret)
	var seen atomic.Int32
	server := mock(t, mockserver.Config{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer "+secret {
				seen.Add(1)
			}
			if seen.Load()%5 == 4 { // a server that quotes the key
				http.Error(w, "bad key "+secret, http.StatusUnauthorized)
				seen.Add(1)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	const password, query = "pw-very-secret-4711", "query-very-secret-0815"
	base := strings.Replace(server.URL, "http://", "http://user:"+password+"@", 1) + "?api-key=" + query
	spans, collector := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key="+secret)
	addr, shown := freePort(t), make(chan string)
	go func() {
		metrics, live := "", ""
		for {
			page := get("http://" + addr + "/metrics")
			if page == "" && metrics != "" {
				break
			}
			if page != "" {
				metrics, live = page, live+get("http://"+addr+"/")
			}
			time.Sleep(50 * time.Millisecond)
		}
		shown <- metrics + live
	}()
	_, out, errs := call(t.Context(), append([]string{"sweep", "--base-url", base, "--rates", "8", "--no-extend", "--label", "x", "--out", dir,
		"--header", "X-Other: " + secret, "--web.listen-address", addr, "--otlp.endpoint", collector, "--otlp.insecure", "--log.level", "debug"}, quick...)...)
	if seen.Load() < 10 {
		t.Fatalf("the server saw the key %d times\n%s", seen.Load(), errs)
	}
	texts := map[string]string{"stdout": out, "stderr": errs, "the pages": <-shown, "the spans": strings.Join(spans.spans, "")}
	if len(texts["the pages"]) < 1000 || len(texts["the spans"]) < 1000 {
		t.Errorf("%d bytes of pages and %d of spans prove nothing", len(texts["the pages"]), len(texts["the spans"]))
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(b)
	}
	for where, text := range texts {
		for _, hidden := range []string{secret, password, query} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s is in %s", hidden, where)
			}
		}
	}
}

func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := call(t.Context(), "sweep", "--base-url", "http://127.0.0.1:9", "--preset", "l40s", "--label", "x", "--out", dir, "--dry-run", "--gpu-price", "1.4")
	if code != 0 || !strings.Contains(out, "0.005") || !strings.Contains(out, "$") || !strings.Contains(out, "P95 TTFT <= 300 ms") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("a dry run wrote %v", left)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"sweep", "--help"}, {"validate", "--help"}, {"demo", "--help"}, {"--version"}} {
		code, out, errs := call(t.Context(), args...)
		if code != 0 || len(out) < 10 || errs != "" {
			t.Errorf("%v: exit %d, stdout %d bytes, stderr %q", args, code, len(out), errs)
		}
	}
	if code, _, errs := call(t.Context()); code != 2 || errs == "" {
		t.Errorf("no command: exit %d, %q", code, errs)
	}
}

// Flags win over the environment, the environment over the file; a key that is no flag is refused.
func TestConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(more ...string) (int, string) {
		code, out, errs := call(t.Context(), append([]string{"sweep", "--dry-run", "--config", file}, more...)...)
		return code, out + errs
	}
	write("base-url: http://127.0.0.1:9\nrates: [0.25, 0.75]\nturns: 5\nslo: 400ms\nignore-eos: false\nextra-body: {top_k: 1}\nheader: ['A: b, c', 'D: e']\n")
	if code, out := plan(); code != 0 || !strings.Contains(out, "0.75") || !strings.Contains(out, "5 turns") || !strings.Contains(out, "400 ms") {
		t.Errorf("from the file: exit %d\n%s", code, out)
	}
	t.Setenv("KNEELOAD_TURNS", "6")
	if code, out := plan(); code != 0 || !strings.Contains(out, "6 turns") {
		t.Errorf("the environment does not win over the file: exit %d\n%s", code, out)
	}
	if code, out := plan("--turns", "7"); code != 0 || !strings.Contains(out, "7 turns") {
		t.Errorf("the flag does not win over the environment: exit %d\n%s", code, out)
	}
	write("base-url: http://127.0.0.1:9\nrates: [1]\nspeed: 3\n")
	if code, out := plan(); code != 2 || !strings.Contains(out, "speed: no flag has this name") {
		t.Errorf("an unknown key: exit %d\n%s", code, out)
	}
	write("rates: [1\n")
	if code, out := plan(); code != 2 || !strings.Contains(out, "c.yaml") {
		t.Errorf("broken YAML: exit %d\n%s", code, out)
	}
}

// What was kept under a label is replaced only when there is something to put in its place.
func TestOverwriteWaitsForTheServer(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "x.json")
	if err := os.WriteFile(old, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	code, _, errs := call(t.Context(), append([]string{"sweep", "--base-url", "http://127.0.0.1:1", "--rates", "5", "--label", "x", "--out", dir, "--overwrite"}, quick...)...)
	if b, err := os.ReadFile(old); code != 1 || err != nil || string(b) != "old" {
		t.Errorf("exit %d, the old results are %q, %v\n%s", code, b, err, errs)
	}
}

// Two runs with one label: the second is refused while the first writes, and touches nothing.
func TestOneRunALabel(t *testing.T) {
	dir := t.TempDir()
	server := mock(t, mockserver.Config{}, nil)
	args := append([]string{"sweep", "--base-url", server.URL, "--rates", "5", "--no-extend", "--label", "x", "--out", dir}, quick...)
	first := make(chan int)
	go func() {
		code, _, _ := call(t.Context(), args...)
		first <- code
	}()
	path := filepath.Join(dir, "x.turns.jsonl")
	for range 100 {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, how := range []string{"--overwrite", "--resume"} {
		if code, _, errs := call(t.Context(), append(args, how)...); code != 1 || !strings.Contains(errs, "in progress") {
			t.Errorf("%s beside a running run: exit %d\n%s", how, code, errs)
		}
	}
	if code := <-first; code != 0 {
		t.Errorf("the first run: exit %d", code)
	}
}

func TestTranscripts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "calls.jsonl")
	if err := os.WriteFile(file, []byte(`{"system": "`+strings.Repeat("You are a bank and never in a hurry. ", 30)+`", "turns": ["hello there", "my balance please", "thank you"]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	server := mock(t, mockserver.Config{}, nil)
	code, _, errs := call(t.Context(), append([]string{"sweep", "--base-url", server.URL, "--rates", "5", "--no-extend", "--label", "x", "--out", dir, "--transcripts", file}, quick...)...)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range log.Turns {
		if turn.Turn == 1 && (turn.CachedTokens > 20 || turn.PromptTokens < 280 || turn.PromptTokens > 310) || turn.Turn > 1 && turn.CachedTokens < 240 {
			t.Fatalf("turn %d of call %d: %d of %d tokens cached; want a cold first turn of the transcript's length and warm ones after it", turn.Turn, turn.Call, turn.CachedTokens, turn.PromptTokens)
		}
	}
}

// What validate says of servers whose counts cannot be right.
func TestValidateDoubts(t *testing.T) {
	usage := func(prompt, completion func(turn int) int, cached func(turn int) string) func(http.Handler) http.Handler {
		var n atomic.Int32
		return onChat(func(w http.ResponseWriter, r *http.Request) {
			turn := int(n.Add(1)) - 3 // behind three requests of the calibration
			p := map[int]int{-2: 206, -1: 206, 0: 519}[turn]
			if turn > 0 {
				p = prompt(turn)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}]}`+"\n\n")
			fmt.Fprintf(w, `data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%s}}}`+"\n\ndata: [DONE]\n\n",
				p, completion(turn), cached(turn))
		})
	}
	same := func(n int) func(int) int { return func(int) int { return n } }
	grows := func(turn int) int { return 520 + 30*(turn-1) }
	for _, c := range []struct {
		why        string
		prompt     func(int) int
		completion func(int) int
		cached     func(int) string
		want       string
	}{
		{"more cached than there is", grows, same(1), func(turn int) string { return []string{"0", "0", "9999"}[min(2, max(0, turn))] }, "cannot be right"},
		{"the third turn is cold", grows, same(1), func(turn int) string { return []string{"0", "0", "519", "0"}[max(0, turn)] }, "turn 3 found only 0"},
		{"prompts that shrink", func(turn int) int { return 530 - 10*turn }, same(1), func(turn int) string { return []string{"0", "0", "500", "490"}[max(0, turn)] }, "fewer than turn"},
		{"more tokens than asked", grows, same(50), func(turn int) string { return []string{"0", "0", "519", "549"}[max(0, turn)] }, "max_tokens"},
	} {
		server := mock(t, mockserver.Config{}, usage(c.prompt, c.completion, c.cached))
		code, out, errs := call(t.Context(), "validate", "--base-url", server.URL, "--system-prompt-tokens", "500", "--user-tokens", "20", "--turns", "3", "--output-tokens", "1", "--gap", "0", "--language", "english")
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d, want 1 and %q\n%s%s", c.why, code, c.want, out, errs)
		}
	}
}

// The help text of each command shows the defaults that it really has.
func TestHelpShowsDefaults(t *testing.T) {
	for _, cmd := range []struct {
		name  string
		args  []string
		of    func(*commands) (any, *cli.Workload)
		named []string
	}{
		{"sweep", []string{"--rates", "1", "--find-knee"}, func(c *commands) (any, *cli.Workload) { return &c.Sweep, &c.Sweep.Workload },
			[]string{"min-turns", "max-step-duration", "drain", "warmup", "confirm", "slo", "gap", "system-prompt-tokens", "ttft-timeout", "arrivals", "engine-metrics"}},
		{"run", []string{"--rate", "1"}, func(c *commands) (any, *cli.Workload) {
			return &c.Run, &cli.Workload{Calls: c.Run.Calls, Rates: cli.Rates{1}, SLO: c.Run.SLO, MaxConcurrentCalls: &c.Run.MaxCalls}
		}, []string{"slo", "gap", "turns", "window"}},
		{"validate", nil, func(c *commands) (any, *cli.Workload) {
			return &c.Validate, &cli.Workload{Calls: c.Validate.Calls, Rates: cli.Rates{1}}
		}, []string{"gap", "turns", "language"}},
	} {
		t.Run(cmd.name, func(t *testing.T) {
			_, help, _ := call(t.Context(), cmd.name, "--help")
			helptest.Defaults(t, help, func(t *testing.T, args ...string) (any, measurement.Config) {
				var c commands
				p := kong.Must(&c, kong.Vars{"version": "", "presets": ""}, defaults())
				if _, err := p.Parse(append(append([]string{cmd.name, "--base-url", "http://127.0.0.1:1"}, cmd.args...), args...)); err != nil {
					t.Fatal(err)
				}
				flags, w := cmd.of(&c)
				cfg, err := w.Config()
				if err != nil {
					t.Fatal(err)
				}
				return flags, cfg
			}, cmd.named...)
		})
	}
}
