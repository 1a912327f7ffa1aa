package web

import (
	"context"
	"io"
	"net/http"
	"time"
)

// paths are the pages. A method that a page does not know is a 405.
func (s *Server) paths() http.Handler {
	mux := http.NewServeMux()
	if s.cfg.Page != nil {
		mux.Handle("GET /{$}", s.cfg.Page)
		mux.Handle("GET /events", s.stream(s.cfg.Page))
	}
	if s.cfg.Metrics != nil {
		mux.Handle("GET "+s.cfg.MetricsPath, s.promptly(s.cfg.Metrics))
	}
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if s.cfg.Ready != nil && !s.cfg.Ready() {
			say(w, http.StatusServiceUnavailable, "not ready yet")
			return
		}
		say(w, http.StatusOK, "ready")
	})
	if s.cfg.Reload != nil {
		reload := http.NewCrossOriginProtection().Handler(http.HandlerFunc(s.reload)) // no page of another site may ask for it
		mux.Handle("POST /-/reload", reload)
		mux.Handle("PUT /-/reload", reload)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // who has gone needs no answer
}

func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if err := s.cfg.Reload(); err != nil {
		s.cfg.Log.Warn("reload", "err", err)
		say(w, http.StatusInternalServerError, "not reloaded: "+err.Error())
		return
	}
	s.cfg.Log.Info("reloaded")
	say(w, http.StatusOK, "reloaded")
}

// promptly gives up a reader who does not take the metrics: only so many may be at them at once, and a scrape has long
// timed out by then.
func (s *Server) promptly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.Limits.Scrape))
		next.ServeHTTP(w, r)
	})
}

// stream lets an answer take as long as it likes, until the server ends.
func (s *Server) stream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.closing, cancel)()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a writer without deadlines has none to lift
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
