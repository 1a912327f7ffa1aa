package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"kneefinder/clock"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard keeps what a Scraper tells.
type heard struct {
	mu      sync.Mutex
	samples []measurement.EngineSample
	counts  map[string]int
	log     bytes.Buffer
}

func (h *heard) tell(s measurement.EngineSample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, s)
}

func (h *heard) count(source string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	h.counts[fmt.Sprint(source, " ", ok)]++
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

func (h *heard) config(c Config) Config {
	c.Tell, c.Count, c.Log = h.tell, h.count, slog.New(slog.NewTextHandler(h, nil))
	return c
}

// pipes is a network of net.Pipe, for a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// bubble serves h without a network and scrapes it for so long.
func bubble(t *testing.T, h http.HandlerFunc, long time.Duration, c Config) *heard {
	t.Helper()
	var out heard
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(network) }()
		c.Clock, c.dial = clock.NewWall(), network.dial
		s, err := New(out.config(c))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		s.Run(ctx)
		_ = server.Close()
		synctest.Wait()
	})
	return &out
}

// Scrapes begin at whole multiples of the interval; one that takes longer costs those that would have begun meanwhile; a sample is
// stamped between the request and the head of the answer.
func TestSchedule(t *testing.T) {
	n := 0
	h := bubble(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		switch n {
		case 2:
			time.Sleep(100 * time.Millisecond)
		case 3:
			time.Sleep(2500 * time.Millisecond)
		}
		fmt.Fprintf(w, "sglang:num_running_reqs %d\n", n)
	}, 6500*time.Millisecond, Config{Engine: "engine"})
	want := []measurement.EngineSample{}
	for i, at := range []time.Duration{0, 1050 * time.Millisecond, 3250 * time.Millisecond, 5 * time.Second, 6 * time.Second} {
		want = append(want, measurement.EngineSample{At: at, Values: map[string]float64{measurement.SampleRunning: float64(i + 1)}})
	}
	if d := cmp.Diff(want, h.samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"engine true": 5}, h.counts); d != "" || h.log.Len() > 0 {
		t.Errorf("counts (-want +got):\n%s\nlog, want none:\n%s", d, h.log.String())
	}
}

// A scrape that takes too long is given up, and the samples belong to the step that was named last.
func TestTimeoutAndStep(t *testing.T) {
	n := 0
	var s *Scraper
	var h heard
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch n++; n {
			case 1:
				<-r.Context().Done()
			case 2:
				fmt.Fprint(w, "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\n") // and then nothing for ever
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			default:
				fmt.Fprint(w, "sglang:num_running_reqs 1\n")
			}
		})}
		go func() { _ = server.Serve(network) }()
		var err error
		s, err = New(h.config(Config{Clock: clock.NewWall(), Engine: "engine", Timeout: 700 * time.Millisecond, dial: network.dial}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		time.AfterFunc(3500*time.Millisecond, func() { s.SetStep(7) })
		s.Run(ctx)
		_ = server.Close()
		synctest.Wait()
	})
	want := []measurement.EngineSample{
		{At: 2 * time.Second, Step: 0, Values: map[string]float64{measurement.SampleRunning: 1}},
		{At: 3 * time.Second, Step: 0, Values: map[string]float64{measurement.SampleRunning: 1}},
		{At: 4 * time.Second, Step: 7, Values: map[string]float64{measurement.SampleRunning: 1}},
	}
	if d := cmp.Diff(want, h.samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	log := h.log.String()
	if strings.Count(log, "level=WARN") != 2 || !strings.Contains(log, "no whole page within 700ms") || !strings.Contains(log, "can be read again") {
		t.Errorf("log, want one warning of the timeout and one of the end:\n%s", log)
	}
}

// The pages of several GPU exporters come as one sample; one that fails is missing from the count of GPUs and holds up nobody.
func TestSeveralGPUExporters(t *testing.T) {
	var asked atomic.Int32 // of b
	h := bubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "b" && asked.Add(1) == 3 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		for i := range map[string]int{"a": 1, "b": 3}[r.Host] {
			fmt.Fprintf(w, "DCGM_FI_DEV_POWER_USAGE{UUID=\"%s%d\"} 100\nDCGM_FI_DEV_GPU_TEMP{UUID=\"%s%d\"} %d\n", r.Host, i, r.Host, i, 40+i)
			fmt.Fprintf(w, "DCGM_FI_DEV_GPU_UTIL{UUID=\"%s%d\"} %d\n", r.Host, i, map[string]int{"a": 100, "b": 20}[r.Host])
		}
		if r.Host == "a" {
			fmt.Fprint(w, "DCGM_FI_DEV_SM_CLOCK{UUID=\"a0\"} 1000\n") // which b does not tell
		}
	}, 3500*time.Millisecond, Config{GPUs: []string{"a", "http://b/"}})
	both := map[string]float64{measurement.SampleGPUs: 4, measurement.SampleGPUPower: 400, measurement.SampleGPUTemp: 42, measurement.SampleGPUUtil: .4}
	alone := map[string]float64{measurement.SampleGPUs: 1, measurement.SampleGPUPower: 100, measurement.SampleGPUTemp: 40, measurement.SampleGPUUtil: 1,
		measurement.SampleGPUClock: 1e9}
	want := []measurement.EngineSample{{At: 0, Values: both}, {At: time.Second, Values: both}, {At: 2 * time.Second, Values: alone}, {At: 3 * time.Second, Values: both}}
	if d := cmp.Diff(want, h.samples, exact); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"gpu true": 7, "gpu false": 1}, h.counts); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
}

// A server that fails in every way there is, over real sockets: each failure costs its own samples and no more, and is told once.
func TestFlappingServer(t *testing.T) {
	whole := string(fixture(t, "sglang-0.5.23.prom"))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, whole); err != nil || z.Close() != nil {
		t.Fatal("the page cannot be packed")
	}
	const secret = "kf-secret"
	var mode string
	var mu sync.Mutex
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		m := mode
		mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+secret || r.URL.Path != "/metrics" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		switch m {
		case "whole":
			fmt.Fprint(w, whole)
		case "gzip":
			if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				t.Error("gzip is not asked for")
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		case "half":
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
			_, _ = io.WriteString(w, whole[:strings.Index(whole, "sglang:prefill_effective_tokens_total{")+20])
		case "500":
			http.Error(w, secret, http.StatusInternalServerError)
		case "404":
			http.NotFound(w, r)
		case "elsewhere":
			http.Redirect(w, r, "http://127.0.0.1:1/login?token="+secret, http.StatusFound)
		case "html":
			fmt.Fprint(w, "<html><body>It works!</body></html>\n")
		case "long":
			line := strings.Repeat("# filler\n", 1<<17)
			for range 10 {
				_, _ = io.WriteString(w, line)
			}
		case "slow":
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		}
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, c := range []struct {
		mode string
		want string // of the error; "" for none
		n    int    // figures told
	}{
		{"whole", "", 17},
		{"gzip", "", 17},
		{"half", "unexpected EOF (line ", 5},
		{"500", "500 Internal Server Error", 0},
		{"404", "--enable-metrics", 0},
		{"elsewhere", `302 Found, to \"http://127.0.0.1:1/login\": redirects are not followed`, 0},
		{"html", "no metrics of SGLang, vLLM, llama.cpp or TGI", 0},
		{"long", "longer than 8 MiB", 0},
		{"slow", "no whole page within 300ms", 0},
		{"refused", "connection refused", 0},
	} {
		mu.Lock()
		mode = c.mode
		mu.Unlock()
		var h heard
		timeout := 10 * time.Second
		if c.mode == "slow" {
			timeout = 300 * time.Millisecond
		}
		address := strings.Replace(server.URL, "http://", "http://user:"+secret+"@", 1) + "?token=" + secret
		if c.mode == "refused" {
			free, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address = free.Addr().String()
			_ = free.Close()
		}
		s, err := New(h.config(Config{Clock: clock.NewWall(), Engine: address, Interval: 20 * time.Millisecond, Timeout: timeout,
			Header: http.Header{"Authorization": {"Bearer " + secret}}}))
		if err != nil {
			t.Fatal(err)
		}
		src := s.sources[0]
		for range 2 {
			s.scrape(t.Context(), src, 0)
		}
		mu.Lock()
		mode = "whole"
		mu.Unlock()
		if c.mode == "refused" {
			src.url = server.URL + "/metrics"
		}
		s.scrape(t.Context(), src, 0)
		s.closed()

		log := h.log.String()
		warnings, ok := 2, map[string]int{"engine false": 2, "engine true": 1}
		if c.want == "" {
			warnings, ok = 0, map[string]int{"engine true": 3}
		}
		if strings.Count(log, "level=WARN") != warnings || !strings.Contains(log, c.want) {
			t.Errorf("%s: log, want %d warnings with %q:\n%s", c.mode, warnings, c.want, log)
		}
		if strings.Contains(log, secret) {
			t.Errorf("%s: a secret is in the log:\n%s", c.mode, log)
		}
		if d := cmp.Diff(ok, h.counts); d != "" {
			t.Errorf("%s: counts (-want +got):\n%s", c.mode, d)
		}
		var got []int
		for _, x := range h.samples {
			got = append(got, len(x.Values))
		}
		want := []int{c.n, c.n, 17}
		if c.n == 0 {
			want = want[2:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: samples of %v figures, want %v", c.mode, got, want)
		}
	}
}

// A page that is broken in one place is told of once, by its line.
func TestBrokenLineIsToldOnce(t *testing.T) {
	h := bubble(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "sglang:num_running_reqs 1\nsglang:num_queue_reqs many\n")
	}, 3500*time.Millisecond, Config{Engine: "engine"})
	log := h.log.String()
	if len(h.samples) != 4 || strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "line 2: expected float") {
		t.Errorf("%d samples, want 4; log, want one warning of line 2:\n%s", len(h.samples), log)
	}
}

func TestBadConfig(t *testing.T) {
	clk := clock.NewWall()
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "no clock"},
		{Config{Clock: clk, Interval: -1}, "negative"},
		{Config{Clock: clk, Engine: "ftp://host"}, `"ftp://host" is no address such as`},
		{Config{Clock: clk, Engine: "http://user:word@"}, `is no address such as`},
		{Config{Clock: clk, GPUs: []string{"http://user:word@host:port"}}, "cannot be read"},
	} {
		_, err := New(c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "word") {
			t.Errorf("%+v: %v, want %q and no password", c.config, err, c.want)
		}
	}
	for address, want := range map[string]string{
		"host": "http://host/metrics", "host:30000": "http://host:30000/metrics", "https://host/": "https://host/metrics",
		"http://host/v1/metrics": "http://host/v1/metrics", "http://u:p@host/m?key=k": "http://host/m",
	} {
		s, err := New(Config{Clock: clk, Engine: address})
		if err != nil || s.sources[0].shown != want {
			t.Errorf("%s: shown as %v, %v, want %s", address, s, err, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && r.Header.Get("X-Key") == "k" {
			fmt.Fprint(w, "vllm:num_requests_running 0\n")
		}
	}))
	defer server.Close()
	key := http.Header{"X-Key": {"k"}}
	for _, c := range []struct {
		why, address string
		header       http.Header
		want         bool
	}{
		{"an engine", server.URL, key, true},
		{"without the key", server.URL, nil, false},
		{"another page", server.URL + "/v1/models", key, false},
		{"nobody there", "127.0.0.1:1", key, false},
		{"no address", "http://", key, false},
	} {
		if got := Answers(t.Context(), c.address, c.header, false); got != c.want {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

// Without sources there is nothing to wait for.
func TestNothingToScrape(t *testing.T) {
	s, err := New(Config{Clock: clock.NewWall()})
	if err != nil {
		t.Fatal(err)
	}
	s.Run(t.Context())
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "sglang:num_running_reqs{model_name=\"m\"} 3\nsglang:num_queue_reqs{model_name=\"m\"} 1\n")
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(Config{
		Clock: clock.NewWall(), Engine: server.URL, Interval: 10 * time.Millisecond,
		Tell: func(s measurement.EngineSample) {
			if ctx.Err() == nil {
				fmt.Println(s.Values[measurement.SampleRunning], "run,", s.Values[measurement.SampleQueued], "waits")
				cancel()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Run(ctx)
	// Output: 3 run, 1 waits
}
