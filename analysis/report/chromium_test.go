package report

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// chromium looks at an address and returns its document as it stands when all has loaded, and what its console said.
func chromium(t *testing.T, address string) (dom, console string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: the report was not looked at in a browser")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"),
		"--enable-logging=stderr", "--timeout=40000", "--window-size=1280,900", "--dump-dom", address)
	cmd.WaitDelay = 5 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, log.String()[max(0, log.Len()-2000):])
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return out.String(), console
}

// serveText serves pages, and at /frame?page=P&width=W one in a frame of a width, with all that folds away unfolded, and its measures.
func serveText(t *testing.T, pages map[string]string) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, page)
		})
	}
	mux.HandleFunc("/frame", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><body><iframe id="f" src="%s" style="border:0;width:%spx;height:800px"></iframe><p id="is"></p>
<script>
  document.getElementById("f").onload = function () {
    var d = this.contentDocument, r = d.documentElement, widest = 0, most = 0;
    d.querySelectorAll("details").forEach(function (e) { e.open = true; });
    d.querySelectorAll(".scroll").forEach(function (e) { widest = Math.max(widest, e.scrollWidth); });
    d.querySelectorAll(".card > *, .tile, .stack, figure").forEach(function (e) { most = Math.max(most, Math.ceil(e.getBoundingClientRect().right)); });
    var knees = d.querySelector("#knee .scroll");
    document.getElementById("is").textContent = "visible " + r.clientWidth + " needs " + r.scrollWidth + " reaches " + most + " table " + widest + " knees " + knees.scrollWidth + " of " + knees.clientWidth + " ground " + d.defaultView.getComputedStyle(d.body).backgroundColor + ";";
  };
</script>`, r.URL.Query().Get("page"), r.URL.Query().Get("width"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestBrowser(t *testing.T) {
	page := pageOf(t, made(1, .5, 1, 2))
	alone := made(1, .5, 1, 2)
	alone.Log = nil
	wide := made(1, .5, 1, 2)
	k := &wide.Results.Knees.SLO
	k.Rate, k.Estimate, k.CI95 = ptr(.012345), ptr(.0123456), [2]*float64{ptr(.01234562), ptr(.01234567)} // figures as long as they get
	base := serveText(t, map[string]string{
		"/wide":    pageOf(t, wide),
		"/page":    page,
		"/results": pageOf(t, alone),
		"/broken":  strings.Replace(page, "<main>", "<main><script>1</script>", 1),
	})
	dom, console := chromium(t, base+"/page")
	if console != "" {
		t.Errorf("the console says:\n%s", console)
	}
	if !strings.Contains(dom, "is the highest load tried that holds") {
		t.Error("the page was not shown")
	}
	// What the policy forbids is told on the console, so that its silence means something.
	if _, console := chromium(t, base+"/broken"); !strings.Contains(console, "Content Security Policy") {
		t.Errorf("a script was not refused; console: %q", console)
	}
	for _, at := range []struct {
		page  string
		width int
	}{{"/page", 390}, {"/page", 360}, {"/page", 1100}, {"/page", 1000}, {"/wide", 1000}, {"/wide", 900}, {"/results", 390}} {
		dom, console := chromium(t, fmt.Sprintf("%s/frame?page=%s&width=%d", base, at.page, at.width))
		_, is, _ := strings.Cut(dom, `<p id="is">`)
		var visible, needs, reaches, table, knees, room int
		if _, err := fmt.Sscanf(is, "visible %d needs %d reaches %d table %d knees %d of %d", &visible, &needs, &reaches, &table, &knees, &room); err != nil {
			t.Fatalf("%s at %d px was not measured: %v, console %s", at.page, at.width, err, console)
		}
		if knees > room {
			t.Errorf("%s at %d px: the table of knees needs %d px and has %d: its interval is cut", at.page, at.width, knees, room)
		}
		if needs > visible || reaches > visible || visible < at.width-20 {
			t.Errorf("%s at %d px: %d px are visible, the page needs %d and reaches to %d", at.page, at.width, visible, needs, reaches)
		}
		if at.width < 400 && table <= visible {
			t.Errorf("%s at %d px: the widest table needs %d px, so it proves nothing", at.page, at.width, table)
		}
		if !strings.Contains(is, "rgb(244, 245, 247)") {
			t.Errorf("%s at %d px has no style: %.200s", at.page, at.width, is)
		}
	}
}
