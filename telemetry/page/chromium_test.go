package page

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kneefinder/measurement"
)

// chromium runs a headless browser on an address and returns its document as it stands after a while, and what its console said.
func chromium(t *testing.T, address string, args ...string) (dom, console string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: the page was not looked at in a browser")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	// The browser stays until its answer is on stdout; its own end may take longer than the directory lives.
	cmd := exec.CommandContext(ctx, path, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + filepath.Join(dir, "profile"),
		"--enable-logging=stderr", "--timeout=40000", "--dump-dom"}, append(args, address)...)...)
	cmd.WaitDelay = 5 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, tail(log.String()))
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return out.String(), console
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// serveFilled serves a page in the middle of a sweep; what opens its stream first sees the sweep end.
func serveFilled(t *testing.T, edit func(*Page)) *httptest.Server {
	t.Helper()
	p, _ := filled(9*time.Minute + 5*time.Second)
	if edit != nil {
		edit(p)
	}
	var streams atomic.Int32
	mux := http.NewServeMux()
	mux.Handle("/", p)
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		if streams.Add(1) == 1 {
			p.SetState(Done)
		}
		p.ServeHTTP(w, r)
	})
	mux.HandleFunc("/frame", func(w http.ResponseWriter, r *http.Request) { // a window of its own cannot be as narrow, nor its script off
		q := r.URL.Query()
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><body><iframe id="f" %s src="/" style="border:0;width:%spx;height:800px"></iframe><p id="is"></p><img src="/hold">
<script>
  var f = document.getElementById("f"), tries = 0;
  f.onload = function look() {
    var d = f.contentDocument, r = d.documentElement, table = d.querySelector(".scroll") || r; // a steady load has none
    if (!r.outerHTML.includes(%q) && ++tries < 300) { setTimeout(look, 100); return; }
    document.getElementById("is").textContent = "visible " + r.clientWidth + " needs " + r.scrollWidth + " table " + table.scrollWidth + "; " + r.outerHTML;
    fetch("/release");
  }
</script>`, q.Get("attr"), q.Get("width"), q.Get("until"))
	})
	looked := make(chan struct{}) // the browser prints a document when its last image has come
	var once sync.Once
	mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) { once.Do(func() { close(looked) }) })
	mux.HandleFunc("/hold", func(http.ResponseWriter, *http.Request) {
		select {
		case <-looked:
		case <-time.After(45 * time.Second):
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// inFrame looks at the page inside a frame of a width, once it holds a text: its measures and its document.
func inFrame(t *testing.T, base string, width int, attr, until string) (measures, document, console string) {
	t.Helper()
	dom, console := chromium(t, base+"/frame?"+url.Values{"width": {strconv.Itoa(width)}, "attr": {attr}, "until": {until}}.Encode(), "--window-size=1280,900")
	_, is, _ := strings.Cut(dom, `<p id="is">`)
	is, _, _ = strings.Cut(is, "</p>")
	measures, document, ok := strings.Cut(html.UnescapeString(is), "; ")
	if !ok {
		t.Fatalf("the page was not looked at: %q, console %q", tail(dom), console)
	}
	return measures, document, console
}

func TestBrowserFollows(t *testing.T) {
	s := serveFilled(t, nil)
	_, dom, console := inFrame(t, s.URL, 1100, "", "Done after")
	if console != "" {
		t.Errorf("the console says:\n%s", console)
	}
	for _, want := range []string{`class="on">live`, `class="state done"`, "<title>L40S: done - kneeload</title>", "Done after 9 min 5 s."} {
		if !strings.Contains(dom, want) {
			t.Errorf("the document that followed the stream lacks %q", want)
		}
	}
}

// What the policy forbids is told on the console, so that its silence means something.
func TestBrowserHoldsThePolicy(t *testing.T) {
	s := serveFilled(t, func(p *Page) { p.policy = strings.Replace(p.policy, hash(script), "'none'", 1) })
	dom, console := chromium(t, s.URL)
	if !strings.Contains(console, "Content Security Policy") {
		t.Errorf("a script that the policy does not name was not refused; console: %q", console)
	}
	if !strings.Contains(dom, `class="state running"`) {
		t.Error("without its script the page does not show what the server drew")
	}
}

func TestBrowserNarrow(t *testing.T) {
	sweep := serveFilled(t, nil)
	load := serveFilled(t, func(p *Page) {
		p.cfg.Steady = true
		for _, o := range []measurement.Outcome{measurement.NotSent, measurement.Shed, measurement.TotalTimeout} { // those with the longest words
			u := turn(4, 3, 9*time.Minute, 0)
			u.FirstToken, u.Outcome = measurement.Never, o
			p.Turn(u)
		}
	})
	narrow(t, sweep, 375, 390, 1100)
	narrow(t, load, 375)
}

// narrow wants the page to fit into each width.
func narrow(t *testing.T, s *httptest.Server, widths ...int) {
	t.Helper()
	for _, width := range widths {
		is, _, _ := inFrame(t, s.URL, width, "", "")
		var visible, needs, table int
		if _, err := fmt.Sscanf(is, "visible %d needs %d table %d", &visible, &needs, &table); err != nil {
			t.Fatalf("at %d px: the page was not measured: %q, %v", width, is, err)
		}
		if needs > visible || visible < width-20 {
			t.Errorf("at %d px: %d px are visible and the page needs %d", width, visible, needs)
		}
		if table > visible {
			t.Errorf("at %d px: the steps need %d px: some of their figures cannot be seen", width, table)
		}
	}
}

func TestBrowserWithoutScript(t *testing.T) {
	s := serveFilled(t, nil)
	_, dom, _ := inFrame(t, s.URL, 390, `sandbox="allow-same-origin"`, "")
	for _, want := range []string{`<noscript><meta http-equiv="refresh" content="5"></noscript>`, "reloads every 5 s", `class="state running"`,
		"The knee so far: 2 calls/s is the highest load that passes", "<svg"} {
		if !strings.Contains(dom, want) {
			t.Errorf("without JavaScript the document lacks %q", want)
		}
	}
	if strings.Contains(dom, ">live<") {
		t.Error("a script ran")
	}
}

// TestShot writes pictures of the page into the folder that KNEEFINDER_SHOTS names: a desktop in daylight, a phone at night.
func TestShot(t *testing.T) {
	dir := os.Getenv("KNEEFINDER_SHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	p, _ := filled(9*time.Minute + 5*time.Second)
	mux := http.NewServeMux()
	mux.Handle("/", p)
	mux.HandleFunc("/phone", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><html style="color-scheme:light dark"><body style="margin:0"><iframe src="/" style="border:0;width:390px;height:1900px;display:block"></iframe>`)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	defer s.CloseClientConnections()
	for _, shot := range []struct {
		name, path string
		args       []string
	}{
		{"live.png", "/", []string{"--window-size=1280,2540"}},
		{"live-phone.png", "/phone", []string{"--window-size=500,1900", "--blink-settings=preferredColorScheme=0"}},
	} {
		file := filepath.Join(dir, shot.name)
		chromium(t, s.URL+shot.path, append(shot.args, "--hide-scrollbars", "--screenshot="+file)...)
		if info, err := os.Stat(file); err != nil || info.Size() < 20_000 {
			t.Errorf("%s: no picture: %v", shot.name, err)
		}
	}
}
