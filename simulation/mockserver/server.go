// Package mockserver serves a simulated engine as an OpenAI-compatible HTTP server, in real time.
package mockserver

import (
	"cmp"
	"net/http"
	"time"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// Engine is what answers: one simulated engine, or several behind a router. The server calls it from one goroutine at a time,
// with instants that never go back; telling the sink must not block, nor may the sink be told of instants yet to come. The end of
// every request is told, that of an aborted one too. The sink
// is an engine.Watcher: for an engine that tells it of no steps, the gauges of /metrics are as of the scrape, and what only steps
// know stays 0.
type Engine interface {
	Submit(at time.Duration, r engine.Request)
	Abort(at time.Duration, id uint64)
	Next() (at time.Duration, ok bool)
	AdvanceTo(at time.Duration, sink engine.Sink)
	Stats() engine.Stats
	FlushCache() bool
}

// Fleet is an Engine that is several, and tells a fleet.Watcher of each. /metrics shows them as the real servers show the ranks of data
// parallelism: SGLang's schedulers have a label dp_rank and its figures of requests are of all, vLLM's series have the replica in the
// label engine. What waits at the router is in no queue of theirs. An Engine that is none is one.
type Fleet interface {
	Engine
	PerReplica() []fleet.Standing
}

// replicaStats is the figures of each engine behind e.
func replicaStats(e Engine) (out []engine.Stats) {
	f, ok := e.(Fleet)
	if !ok {
		return []engine.Stats{e.Stats()}
	}
	for _, r := range f.PerReplica() {
		out = append(out, r.Stats)
	}
	return out
}

// Kind is the server that is imitated where the two differ.
type Kind string

// The kinds. They differ in who owns the model in /v1/models, and in when the headers of a stream are sent: SGLang sends
// them with the first token, vLLM as soon as it has read the request.
const (
	SGLang Kind = "sglang"
	VLLM   Kind = "vllm"
)

// Config is how the server presents its engine. The zero value works.
type Config struct {
	Kind          Kind   // "" is SGLang
	ModelName     string // the name requests must ask for; "" is "kneemock"
	ContextLimit  int    // tokens of prompt and completion together that a request may have; 0 is no limit
	NoCacheReport bool   // leave cached tokens out of usage, as servers started without a cache report do
	Version       string // of kneemock; "" is "dev"

	// What /server_info tells of the engine beside what Stats knows.
	ModelPath      string // the model behind the name; "" is ModelName
	GPU            string
	ChunkedPrefill int     // tokens of prompt in one step
	MemFraction    float64 // of GPU memory for weights and cache

	// What /metrics shows, beside the above.
	WeightBytes       int64     // of the model; 0 is not known
	DecodeLogInterval int       // SGLang's gauges are refreshed every so many decode steps, and with every prefill; 0 is 40
	TTFTBuckets       []float64 // seconds: upper bounds of SGLang's histograms; nil is SGLang's own
	ITLBuckets        []float64
	E2EBuckets        []float64
	CustomLabels      []string // names of the labels that SGLang takes from the header x-custom-labels, for its figures of requests

	// Now tells the engine's instants and runs at the pace of the wall; nil is the time since New. Now never goes back.
	Now func() time.Duration
}

// Server answers requests with its engine's tokens at its engine's instants. Its methods may be called by many goroutines.
type Server struct {
	cfg     Config
	driver  *driver
	web     *web
	created int64 // Unix seconds: what the model list and every answer give as their date
}

// New is a server of the engine, which is the server's own from then on. Close ends it. A config against the rules panics.
func New(cfg Config, eng Engine) *Server {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	cfg.Kind = cmp.Or(cfg.Kind, SGLang)
	cfg.DecodeLogInterval = cmp.Or(cfg.DecodeLogInterval, defaultDecodeLogInterval)
	cfg.ModelName = cmp.Or(cfg.ModelName, "kneemock")
	cfg.ModelPath = cmp.Or(cfg.ModelPath, cfg.ModelName)
	cfg.Version = cmp.Or(cfg.Version, "dev")
	start := time.Now()
	if cfg.Now == nil {
		cfg.Now = func() time.Duration { return time.Since(start) }
	}
	var b book
	if stats := replicaStats(eng); cfg.Kind == VLLM {
		b = newVLLMs(cfg, stats)
	} else {
		b = newSGLang(cfg, stats)
	}
	return &Server{cfg: cfg, driver: newDriver(cfg.Now, eng, b), web: newWeb(cfg.Kind), created: start.Unix()}
}

// Close stops the engine's clock: answers in progress end with an error, later requests are refused. To let answers end in
// their own time, shut the http.Server down first.
func (s *Server) Close() { s.driver.close() }

// Stats is what the engine has counted since it began.
func (s *Server) Stats() engine.Stats { return s.driver.stats() }

// Handler serves chat completions, streamed or whole, the metrics of the server that is imitated, and the small endpoints that
// clients ask before and between runs.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /version", s.version)
	mux.HandleFunc("GET /server_info", s.info)
	mux.HandleFunc("GET /get_server_info", s.info) // SGLang's older name
	mux.HandleFunc("GET /flush_cache", s.flushCache)
	mux.HandleFunc("POST /flush_cache", s.flushCache)
	mux.HandleFunc("POST /reset_prefix_cache", s.flushCache) // vLLM's name
	mux.Handle("GET /metrics", s.metrics())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "kneemock/"+s.cfg.Version)
		s.web.serve(mux, w, r, s.cfg.Now)
	})
}
