package mockserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// web counts HTTP requests under the names that either kind has for them.
type web struct {
	kind     Kind
	families families

	mu     sync.Mutex
	routes map[route]*traffic
	whole  histogram // of vLLM: how long requests took
}

// route is a closed set: paths that the server has, and methods that HTTP has.
type route struct{ path, method string }

type traffic struct {
	begun, ended int
	answers      map[int]int // by status
	took         histogram   // of vLLM
}

var (
	vllmHTTP      = inSeconds(.1, .5, 1)
	vllmHTTPWhole = inSeconds(.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
	vllmUncounted = []string{"/metrics", "/health", "/load", "/ping", "/version", "/server_info"}
	methods       = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

func newWeb(kind Kind) *web {
	w := &web{kind: kind, families: families{}, routes: map[route]*traffic{}, whole: histogram{scale: vllmHTTPWhole}}
	if kind == VLLM {
		w.families.add(nil, []string{"handler", "method", "status"}, "http_requests_total", "HTTP requests that have been answered.")
		w.families.add(nil, []string{"handler", "method"}, "http_request_duration_seconds", "Time of an HTTP request to the end of its answer.")
		w.families.add(nil, nil, "http_request_duration_highr_seconds", "Time of an HTTP request to the end of its answer.")
		return w
	}
	w.families.add(nil, []string{"endpoint", "method"},
		"sglang:http_requests_total", "HTTP requests that have begun.",
		"sglang:http_requests_active", "HTTP requests that have not ended.")
	w.families.add(nil, []string{"endpoint", "method", "status_code"}, "sglang:http_responses_total", "HTTP requests that have been answered.")
	return w
}

// serve lets mux answer r, and counts.
func (c *web) serve(mux *http.ServeMux, w http.ResponseWriter, r *http.Request, now func() time.Duration) {
	_, pattern := mux.Handler(r)
	_, path, known := strings.Cut(pattern, " ")
	if c.kind == VLLM && slices.ContainsFunc(vllmUncounted, func(part string) bool { return strings.Contains(path, part) }) {
		mux.ServeHTTP(w, r)
		return
	}
	at := route{path, r.Method}
	if !known {
		at.path = "none"
	}
	if !slices.Contains(methods, r.Method) {
		at.method = "OTHER"
	}
	start := now()
	c.count(at, func(t *traffic) { t.begun++ })
	heard := &listener{ResponseWriter: w}
	defer func() { // also when a handler panics to cut the connection
		took := now() - start
		c.count(at, func(t *traffic) {
			t.ended++
			t.took.seconds(took)
			c.whole.seconds(took)
			if heard.status != 0 {
				t.answers[heard.status]++
			}
		})
	}()
	mux.ServeHTTP(heard, r)
}

func (c *web) count(at route, change func(*traffic)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.routes[at]
	if t == nil {
		t = &traffic{answers: map[int]int{}, took: histogram{scale: vllmHTTP}}
		c.routes[at] = t
	}
	change(t)
}

// snapshot copies what is counted.
func (c *web) snapshot() figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	shot := &webShot{kind: c.kind, families: c.families, whole: c.whole, routes: make(map[route]traffic, len(c.routes))}
	for at, t := range c.routes {
		u := *t
		u.answers = maps.Clone(t.answers)
		shot.routes[at] = u
	}
	return shot
}

type webShot struct {
	kind     Kind
	families families
	whole    histogram
	routes   map[route]traffic
}

func (f *webShot) write(out chan<- prometheus.Metric) {
	s := sheet{f.families, out}
	if f.kind == VLLM {
		s.histogram("http_request_duration_highr_seconds", &f.whole)
	}
	for at, t := range f.routes {
		if f.kind == VLLM {
			f.writeVLLM(s, at, t)
			continue
		}
		s.counter("sglang:http_requests_total", float64(t.begun), at.path, at.method)
		s.gauge("sglang:http_requests_active", float64(t.begun-t.ended), at.path, at.method)
		for status, n := range t.answers {
			s.counter("sglang:http_responses_total", float64(n), at.path, at.method, strconv.Itoa(status))
		}
	}
}

func (f *webShot) writeVLLM(s sheet, at route, t traffic) {
	classes := map[int]int{}
	for status, n := range t.answers {
		classes[status/100] += n
	}
	for class, n := range classes {
		s.counter("http_requests_total", float64(n), at.path, at.method, fmt.Sprintf("%dxx", class))
	}
	if t.ended > 0 {
		s.histogram("http_request_duration_seconds", &t.took, at.path, at.method)
	}
}

// listener hears the status of an answer.
type listener struct {
	http.ResponseWriter
	status int
}

// Unwrap is for http.ResponseController.
func (l *listener) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *listener) WriteHeader(status int) {
	if l.status == 0 {
		l.status = status
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *listener) Write(b []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	return l.ResponseWriter.Write(b)
}
