package page

import (
	"bytes"
	"context"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// ServeHTTP answers "/events" with a stream of what changes on the page, and every other path with the page itself. A stream ends with its
// request's context, or when its client takes nothing for ten seconds. At most 64 run at once.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/events") {
		p.events(w, r)
		return
	}
	f := p.current()
	type part struct {
		ID   string
		HTML template.HTML
	}
	var parts []part
	for i, id := range fragments {
		if p.stands(id) {
			parts = append(parts, part{id, template.HTML(f.parts[i])})
		}
	}
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, "page", map[string]any{"Title": f.title, "Style": template.CSS(style), "Script": template.JS(script),
		"Parts": parts, "Version": p.cfg.Version, "Links": p.cfg.Links, "Name": p.cfg.Title})
	if err != nil {
		panic(err) // a template of our own over a view of our own
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes()) // who has gone needs no answer
}

// current is a frame of this tick; all clients share it.
func (p *Page) current() *frame {
	p.drawing.Lock()
	defer p.drawing.Unlock()
	key := edition{p.cfg.Clock.Now() / p.tick, p.version.Load()}
	if p.frame == nil || p.frame.key != key {
		p.frame = p.draw()
		p.frame.key = key
	}
	return p.frame
}

func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if p.clients.Add(1) > maxClients {
		p.clients.Add(-1)
		w.Header().Set("Retry-After", "60")
		http.Error(w, "64 pages follow already; this one shows what was when it was loaded", http.StatusServiceUnavailable)
		return
	}
	defer p.clients.Add(-1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies: pass each event on
	p.follow(r.Context(), w)
}

// follow writes what has changed, tick by tick.
func (p *Page) follow(ctx context.Context, w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	ticker := time.NewTicker(p.tick)
	defer ticker.Stop()
	var sent frame
	quiet := 0
	for text := "retry: 2000\n\n"; ; {
		text += changes(&sent, p.current())
		if quiet++; text == "" && quiet >= 15 {
			text = ": nothing new\n\n" // so that whoever is gone is noticed
		}
		if text != "" {
			quiet = 0
			_ = rc.SetWriteDeadline(time.Now().Add(p.stall)) // a writer without deadlines cannot stall
			if _, err := w.Write([]byte(text)); err != nil {
				return
			}
			if rc.Flush() != nil {
				return
			}
		}
		text = ""
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// changes is an event with the fragments of next that differ from those sent, which it then brings up to date; "" when none does.
func changes(sent, next *frame) string {
	diff := map[string]string{}
	for i, id := range fragments {
		if sent.parts[i] != next.parts[i] {
			diff[id] = next.parts[i]
		}
	}
	if sent.title != next.title {
		diff["title"] = next.title
	}
	if len(diff) == 0 {
		return ""
	}
	*sent = *next
	var b strings.Builder
	b.WriteString("data: ")
	e := json.NewEncoder(&b) // one line, keys in order
	e.SetEscapeHTML(false)
	if err := e.Encode(diff); err != nil {
		panic(err) // strings always encode
	}
	b.WriteString("\n")
	return b.String()
}
