package page

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

func get(t *testing.T, p *Page, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	return w
}

func TestPageHeaders(t *testing.T) {
	p, _ := filled(time.Minute)
	w := get(t, p, "/")
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
	body := w.Body.String()
	for _, bad := range []string{"http://www.w3.org/1999", " style=", " onclick", " onload", "src=\"http", "href=\"http", "@import", "url(http"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, want := range []string{`<meta name="viewport"`, `http-equiv="refresh"`, "<title>L40S: running - kneeload</title>", "Time to first token", "http://gpu-7.example.net:30000/v1",
		"gemma-4-12b on sglang 0.5.2 on L40S (measured)"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// stream opens the page's events and returns what each of them holds.
func stream(t *testing.T, ctx context.Context, url string) (next func() map[string]string, end func()) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("%d, content type %q", resp.StatusCode, got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	return func() map[string]string {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					var out map[string]string
					if err := json.Unmarshal([]byte(data), &out); err != nil && ctx.Err() == nil { // what was cut by us is no event
						t.Errorf("event %.200q: %v", data, err)
					}
					return out
				}
			}
			return nil
		}, func() {
			resp.Body.Close()
			tr.CloseIdleConnections()
		}
}

func TestEventsHoldWhatChanges(t *testing.T) {
	p, _ := filled(3 * time.Minute)
	p.tick = 5 * time.Millisecond
	s := httptest.NewServer(p)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next, end := stream(t, ctx, s.URL)
	defer end()
	first := next()
	for _, id := range append(fragments[:], "title") {
		if (first[id] != "") != (id == "title" || p.stands(id)) {
			t.Errorf("the first event lacks %s", id)
		}
	}
	p.Results(measurement.Results{Warnings: []string{"a doubt\nin two lines"}})
	second := next()
	if len(second) != 1 || !strings.Contains(second["knee"], "a doubt\nin two lines") {
		t.Errorf("after one change: got %v, want the fragment that it concerns", second)
	}
	p.SetState(Interrupted)
	third := next()
	if third["title"] != "L40S: interrupted - kneeload" || !strings.Contains(third["head"], "interrupted") || third["steps"] == first["steps"] {
		t.Errorf("after the end: got title %q", third["title"])
	}
}

// A client that takes nothing is dropped, and does not keep its goroutine.
func TestStalledClient(t *testing.T) {
	p, c := filled(3 * time.Minute)
	p.tick, p.stall = time.Millisecond, 100*time.Millisecond
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ServeHTTP(w, r)
		close(ended)
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for {
		c.set(c.Now() + 10*time.Millisecond) // each tick has news
		select {
		case <-ended:
			if n := p.clients.Load(); n != 0 {
				t.Errorf("%d clients are counted", n)
			}
			return
		case <-deadline:
			t.Fatal("a client that reads nothing still holds the stream")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestTooManyClients(t *testing.T) {
	p := New(Config{Clock: newHandClock()})
	s := httptest.NewServer(p)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxClients {
		next, end := stream(t, ctx, s.URL)
		next()
		defer end()
	}
	w := get(t, p, "/events")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more: got %d %q", w.Code, w.Body)
	}
	if w := get(t, p, "/"); w.Code != http.StatusOK {
		t.Errorf("the page itself: %d", w.Code)
	}
	cancel()
	for began := time.Now(); p.clients.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d streams are still counted", p.clients.Load())
		}
	}
}

// Many tell, many look.
func TestAllAtOnce(t *testing.T) {
	c := clock.NewWall()
	p := New(Config{Clock: c})
	p.tick = 2 * time.Millisecond
	s := httptest.NewServer(p)
	defer s.Close()
	var tellers, clients sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		clients.Go(func() {
			next, end := stream(t, ctx, s.URL)
			defer end()
			for next() != nil {
			}
		})
	}
	const each = 3000
	for g := range 4 {
		tellers.Go(func() {
			for i := range each {
				now := c.Now()
				p.InFlight(now, i%9, i%5)
				p.Turn(turn(g, 1+i%4, now, time.Duration(i)*time.Microsecond))
				if i%100 == 0 {
					p.StepBegin(measurement.Step{Step: g, Rate: float64(i + 1)})
					p.Sample(measurement.EngineSample{Values: map[string]float64{measurement.SampleQueued: float64(i)}})
					p.StepResult(fillResult(g))
					p.Results(measurement.Results{Warnings: []string{"w"}})
					p.SetRun(header(1, 2))
					p.SetState(Running)
					p.StepEnd(measurement.Step{Step: g})
					get(t, p, "/")
				}
			}
		})
	}
	tellers.Wait()
	cancel()
	clients.Wait()
	snap := p.snapshot()
	turns := 0
	for _, st := range snap.steps {
		turns += st.turns
	}
	if snap.totals.ended != 4*each || turns == 0 {
		t.Errorf("%d turns were counted, %d of steps, want %d", snap.totals.ended, turns, 4*each)
	}
	for i, text := range p.draw().parts {
		if (text == "") == p.stands(fragments[i]) {
			t.Errorf("%s is %d bytes long", fragments[i], len(text))
		}
	}
}
