package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const bound = 1 << 20 // bytes of a page

func pageOf(t testing.TB, r Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > bound {
		t.Errorf("the page has %d bytes", b.Len())
	}
	return b.String()
}

func markdownOf(t testing.TB, r Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 65_536 {
		t.Errorf("the Markdown has %d bytes: a comment holds 65,536", b.Len())
	}
	return b.String()
}

// skeleton is a page's text, a line an element.
func skeleton(page string) string {
	for _, cut := range []string{`(?s)<style>.*?</style>`, `(?s)<head>.*?<title>`, `</?(b|i|span|dt|dd|td|th)\b[^>]*>`} {
		with := ""
		if strings.Contains(cut, "span") {
			with = " "
		}
		page = regexp.MustCompile(cut).ReplaceAllString(page, with)
	}
	page = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "\n")
	var lines []string
	for line := range strings.Lines(html.UnescapeString(page)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestGolden(t *testing.T) {
	r := made(1, .5, 1, 2)
	golden(t, "report.txt", skeleton(pageOf(t, r)))
	golden(t, "report.md", markdownOf(t, r))
	r.Log = nil
	golden(t, "results.txt", skeleton(pageOf(t, r)))
}

func TestSameRunSameBytes(t *testing.T) {
	r := made(1, .5, 1, 2)
	first, mark := pageOf(t, r), markdownOf(t, r)
	for range 5 { // maps are walked in another order each time
		again := made(1, .5, 1, 2)
		if pageOf(t, again) != first || markdownOf(t, again) != mark {
			t.Fatal("the same run gave other bytes")
		}
	}
}

// wellFormed reads a page as XML: every element is closed, every attribute is quoted.
func wellFormed(page string) error {
	page = regexp.MustCompile(`<(meta|link)\b([^>]*)>`).ReplaceAllString(page, "<$1$2/>")
	d := xml.NewDecoder(strings.NewReader(strings.TrimSpace(strings.TrimPrefix(page, "<!doctype html>"))))
	d.Entity = xml.HTMLEntity
	for {
		switch _, err := d.Token(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func TestPictures(t *testing.T) {
	page := pageOf(t, made(1, .5, 1, 2))
	if err := wellFormed(page); err != nil {
		t.Errorf("the page is not well formed: %v", err)
	}
	bare := strings.NewReplacer("http://www.w3.org/2000/svg", "", "http-equiv", "", "http://127.0.0.1:30000", "").Replace(page) // names, not links
	for _, bad := range []string{"NaN", "Inf", "%!", "<script", "style=\"", "http", "src="} {
		if strings.Contains(bare, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	bodies, titled := strings.Count(page, `class="body" height`), strings.Count(page, `role="img"><title>`)
	if hidden := strings.Count(page, `class="body" height="18" aria-hidden="true"`); bodies == 0 || titled != bodies-hidden {
		t.Errorf("of %d pictures, %d of them axes, %d have a title", bodies, hidden, titled)
	}
	if tables, captions := strings.Count(page, "<table>"), strings.Count(page, "<caption"); tables == 0 || tables != captions {
		t.Errorf("%d tables have %d captions", tables, captions)
	}
	for _, name := range []string{"KV cache", "Evicted from the cache", "Requests in the engine", "GPUs", "GPU power", "In progress", "Cache hit rate", "TTFT of every turn"} {
		if strings.Count(page, "<title>"+name+"</title>") < 1 {
			t.Errorf("there is no picture %q", name)
		}
	}
}

// What other people wrote stands in the report as text, whatever it holds.
func TestHostileText(t *testing.T) {
	const evil = "x</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>|`@all\n# h\n[a](javascript:alert(3)) \x1b[31m\u202e\xff"
	r := made(1, .5, 1, 2)
	res := &r.Results
	res.Label, res.Tool, r.Source = evil, evil, evil
	res.Engine = measurement.Engine{Kind: evil, Version: evil, Model: evil, GPU: evil, Fidelity: evil, BaseURL: evil, Details: map[string]any{evil: evil, "context_length": evil, "m": map[string]any{evil: evil}},
		Calibration: &measurement.Calibration{CacheReport: evil}}
	res.Config.Preset, res.Config.Arrivals, res.Config.Language, res.Config.Transcripts = evil, evil, evil, evil
	res.Config.SLO = append(res.Config.SLO, measurement.Objective{Metric: evil, Quantile: .5, LimitMS: 3})
	res.Mechanism = measurement.Mechanism{Name: evil, Confidence: evil, Evidence: []string{evil}}
	res.Warnings = []string{evil}
	res.Knees.SLO.Note, res.Knees.Curvature.Note, res.Arrivals.Process = evil, evil, evil
	for i := range res.Steps {
		res.Steps[i].Flags = []string{evil}
		res.Steps[i].ErrorKinds = map[measurement.Outcome]int{evil: 3, measurement.TTFTTimeout: 2}
		res.Steps[i].ITLBasis = evil
	}
	res.Steps[1].Verdict = evil
	r.Log.Header.Started, r.Log.Header.Nonce, r.Log.Header.Shard = evil, evil, evil
	for i := range r.Log.Turns {
		if r.Log.Turns[i].Outcome.Failed() {
			r.Log.Turns[i].Detail = evil
		}
	}
	page := pageOf(t, r)
	if err := wellFormed(page); err != nil {
		t.Errorf("the page is not well formed: %v", err)
	}
	for _, bad := range []string{"<script", "<img", "\x1b", "\u202e"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;") {
		t.Error("the page does not show the text")
	}
	text := markdownOf(t, r)
	for _, bad := range []string{"<script", "<img", "\n# h", "[a](", "@all", "\x1b", "\u202e"} {
		if strings.Contains(text, bad) {
			t.Errorf("the Markdown holds %q", bad)
		}
	}
	for line := range strings.Lines(text) {
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); strings.HasPrefix(line, "| ") && n != 13 && n != 5 {
			t.Errorf("a row has %d bars: %s", n, line)
		}
	}
}

func TestSecretsStayOut(t *testing.T) {
	page := pageOf(t, made(1, 1))
	if strings.Contains(page, "sesame") {
		t.Error("the page tells a key that the server's settings hold")
	}
	if !strings.Contains(page, "chunked_prefill_size") {
		t.Error("the page does not tell the server's settings")
	}
}

// However long a log is, its page stays small, and says what it leaves out.
func TestSizeIsBounded(t *testing.T) {
	loads := []float64{1, 2}
	for i := range 40 {
		loads = append(loads, 3+float64(i)/4)
	}
	r := made(3, loads...)
	for i := range 500 {
		r.Results.Warnings = append(r.Results.Warnings, strings.Repeat("A long warning. ", 100))
		r.Results.Mechanism.Evidence = append(r.Results.Mechanism.Evidence, strings.Repeat("evidence ", 500))
		r.Results.Engine.Details[fmt.Sprint("setting ", i)] = strings.Repeat("v", 3000)
	}
	for range 500 { // steps of which the log knows nothing
		s := r.Results.Steps[len(r.Results.Steps)-1]
		s.Step += 1000
		s.Flags = []string{"a", "b", "c", "d", "e"}
		r.Results.Steps = append(r.Results.Steps, s)
	}
	r.Results.Label = strings.Repeat("label ", 10_000)
	if len(r.Log.Turns) < 60_000 {
		t.Fatalf("only %d turns", len(r.Log.Turns))
	}
	began := time.Now()
	page := pageOf(t, r)
	t.Logf("%d turns, %d bytes, %v", len(r.Log.Turns), len(page), time.Since(began))
	for _, want := range []string{"turns a few pixels apart share a dot", "Of 542 steps the 24 around the knee are drawn.", "more steps are left out", "and 461 more"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	markdownOf(t, r)
}

// A dot stands wherever a turn was, also where turns share dots.
func TestNoOutlierIsLost(t *testing.T) {
	r := made(3, 30)
	s := &r.Log.Turns[len(r.Log.Turns)/2]
	s.FirstToken = s.Due + 100*second
	s.Turn, s.CachedTokens, s.Outcome = 2, 2700, measurement.OK
	ss := steps(&r)
	y := logarithmic(10, 200_000, 7)
	p, thinned := ss[0].waitsOverTime(&r.Results, ss[0].whole(), y, 500)
	if !thinned {
		t.Fatal("nothing was thinned, so this proves nothing")
	}
	high := int(p.top(90_000))
	if !slices.ContainsFunc(p.dots, func(c cloud) bool {
		return slices.ContainsFunc(c.at, func(d dot) bool { return d.y > 12 && d.y < high })
	}) {
		t.Errorf("no dot above %d px: the slowest turn is gone", high)
	}
	n := 0
	for _, c := range p.dots {
		n += len(c.at)
	}
	if n == 0 || n > 500 {
		t.Errorf("%d dots", n)
	}
}

func TestOddRuns(t *testing.T) {
	only := func(edit func(*Run)) Run {
		r := made(1, 1)
		edit(&r)
		return r
	}
	for _, c := range []struct {
		name string
		run  Run
		want string
	}{
		{"nothing at all", Run{}, "The run has no step."},
		{"an empty log", Run{Log: &measurement.Log{}}, "No knee was found."},
		{"one step", made(1, 1), "1 calls/s"},
		{"no samples", only(func(r *Run) { r.Log.Samples = nil }), "The log has no samples of the engine."},
		{"all failed", only(func(r *Run) {
			for i := range r.Log.Turns {
				k := &r.Log.Turns[i]
				k.FirstToken, k.LastToken, k.Outcome, k.Detail = measurement.Never, measurement.Never, measurement.Connect, "refused"
			}
			s := &r.Results.Steps[0]
			s.TTFTP50, s.TTFTP95, s.TTFTP95CI, s.CacheHitRate = nil, nil, [2]*float64{}, nil
			s.Flags, s.Verdict, s.ErrorKinds = []string{measurement.FlagCensored, measurement.FlagErrors}, measurement.Fail, map[measurement.Outcome]int{measurement.Connect: 9}
		}), "100.0 % no token"},
		{"cut before the window", only(func(r *Run) {
			r.Log.Steps[0].WindowStart, r.Log.Steps[0].WindowEnd, r.Log.Steps[0].DrainEnd = measurement.Never, measurement.Never, measurement.Never
			r.Results.Steps[0].Flags = []string{measurement.FlagIncomplete}
		}), "No step has a P95 TTFT, so there is no curve."},
		{"cut within the window", only(func(r *Run) { r.Log.Steps[0].WindowEnd, r.Log.Steps[0].DrainEnd = measurement.Never, measurement.Never }), "TTFT of every turn"},
		{"no turns in a step", only(func(r *Run) { r.Log.Turns = nil }), "1 calls/s"},
		{"no objective", only(func(r *Run) { r.Results.Config.SLO = nil }), "no objective"},
		{"closed loop", only(func(r *Run) {
			r.Results.Config.Arrivals, r.Results.Arrivals.Process = "closed", "closed"
			r.Results.Knees.SLO = measurement.Knee{Status: measurement.AboveRange, Rate: ptr(1.)}
		}), "1 calls at once, the highest that passes"},
		{"below the range", only(func(r *Run) { r.Results.Knees.SLO = measurement.Knee{Status: measurement.BelowRange} }), "The knee lies below every load tried"},
		{"nobody told of cached tokens", only(func(r *Run) {
			for i := range r.Log.Turns {
				r.Log.Turns[i].CachedTokens = measurement.Unknown
			}
		}), "cached tokens unknown"},
		{"loads that are none", only(func(r *Run) { r.Results.Steps[0].Rate = 0 }), "no curve"},
		{"another objective", only(func(r *Run) {
			o := measurement.Objective{Metric: "itl", Quantile: .95, LimitMS: 40}
			r.Results.Config.SLO = append(r.Results.Config.SLO, o)
			r.Results.Steps[0].Objectives = append(r.Results.Steps[0].Objectives, measurement.ObjectiveResult{Objective: o, ValueMS: ptr(12.)})
		}), "P95 ITL over the load"},
		{"another tool's results", only(func(r *Run) {
			r.Log, r.Results.Tool = nil, "SGLang bench_serving"
			for i := range r.Results.Steps {
				r.Results.Steps[i].ScheduleLagP99, r.Results.Steps[i].Dialed, r.Results.Steps[i].Retries = nil, 0, 0
			}
		}), "The files tell nothing of it."},
		{"another tool's, and TTFT", only(func(r *Run) { r.Log, r.Results.Tool = nil, "GuideLLM" }), "as the tool counts it"},
		{"results alone", only(func(r *Run) { r.Log = nil }), "This report was made from results alone."},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := pageOf(t, c.run)
			if err := wellFormed(page); err != nil {
				t.Errorf("not well formed: %v", err)
			}
			if text := skeleton(page); !strings.Contains(text, c.want) {
				t.Errorf("the page does not say %q:\n%s", c.want, text)
			}
			if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Error("the page holds a figure that is none")
			}
			markdownOf(t, c.run)
		})
	}
}

// Whatever results say, a page is written, small and well formed.
func FuzzResults(f *testing.F) {
	for _, r := range []Run{{}, made(1, 1), made(1, 1, 2)} {
		b, err := json.Marshal(r.Results)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"steps":[{"rate_calls_per_s":1e-320,"ttft_p95_ms":1e300,"ttft_p50_ms":-1,"flags":null,"by_turn":[{"turn":-4}]},{"rate_calls_per_s":1e300,"ttft_p95_ms":1e-310}],"knees":{"slo":{"status":"found","rate_calls_per_s":-1,"estimate_calls_per_s":1e308}},"config":{"slo":[{"metric":"ttft","quantile":2,"limit_ms":1e-300}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Run
		if json.Unmarshal(b, &r.Results) != nil {
			return
		}
		if err := wellFormed(pageOf(t, r)); err != nil {
			t.Errorf("not well formed: %v", err)
		}
		markdownOf(t, r)
	})
}

func TestOccupancy(t *testing.T) {
	o := newOccupancy(4)
	o.add(0, 1)      // the whole time
	o.add(.125, .75) // half of the first quarter, two whole ones
	o.add(.8, .9)    // two fifths of the last
	o.add(.5, .5)    // nothing
	o.add(-1, .25)   // the first quarter
	want := []float64{2.5, 2, 2, 1.4}
	for i, got := range o.means() {
		if got < want[i]-1e-9 || got > want[i]+1e-9 {
			t.Errorf("quarter %d: %v, want %v", i, got, want[i])
		}
	}
}

func BenchmarkHTML(b *testing.B) {
	r := made(3, 1, 2, 30)
	b.ReportMetric(float64(len(r.Log.Turns)), "turns")
	for b.Loop() {
		if err := r.HTML(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// A load that was measured twice is stood for by one step, here as in the text of kneeanalyze knee: no figure of the other stands
// beside it unlabelled, and both say the same of how sure it is.
func TestOneLoadTwoWindows(t *testing.T) {
	r := made(1, .5, 1, 2, 1)
	steps := r.Results.Steps
	short, long := &steps[1], &steps[3]
	short.WindowS, long.WindowS = 90, 300
	short.TTFTP95, long.TTFTP95 = ptr(281.), ptr(240.)
	short.LiveCallsMean, short.LiveCallsMax, long.LiveCallsMean, long.LiveCallsMax = ptr(3.44), ptr(12), ptr(3.5), ptr(10)
	for _, s := range []*measurement.StepResult{short, long} {
		s.Verdict, s.LateTurns, s.NEff = measurement.Pass, ptr(s.MeasuredTurns/25), ptr(float64(s.MeasuredTurns)/2)
		for i := range s.Objectives {
			s.Objectives[i].ValueMS = s.TTFTP95
		}
	}
	text := skeleton(pageOf(t, r))
	for _, want := range []string{"P95 TTFT at 1 240 ms ✓ passes; the longest of 2 steps", "Live calls at 1 3.5 mean; at most 10"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%.1500s", want, text)
		}
	}
	if strings.Contains(text, "P95 TTFT at 1 281") || strings.Contains(text, "Live calls at 1 3.44") {
		t.Error("the figures of the shorter step stand for the load")
	}
	var b bytes.Buffer
	analysis.Summary(&b, r.Results)
	said := strings.Join(strings.Fields(b.String()), " ")
	sure := analysis.HowSure(r.Results)
	if !strings.Contains(sure, "its 2 steps together") || !strings.Contains(said, sure) || !strings.Contains(text, sure[1:]) || !strings.Contains(html.UnescapeString(markdownOf(t, r)), sure[1:]) {
		t.Errorf("%q is not what text, page and Markdown say of how sure it is", sure)
	}
	if !strings.Contains(said, "At 1 calls/s 3.5 calls are live on average, 10 at most.") {
		t.Errorf("the text says otherwise: %s", said)
	}
}

func TestFiguresBesideALimit(t *testing.T) {
	for _, c := range []struct {
		v, limit float64
		want     string
	}{{300.3, 300, "300.3"}, {299.97, 300, "299.97"}, {300, 300, "300"}, {281.4, 300, "281"}, {12345678, 300, "12345678"}} {
		if got := against(c.v, c.limit); got != c.want {
			t.Errorf("%v beside %v is %s, want %s", c.v, c.limit, got, c.want)
		}
	}
}

// A column that holds nothing in any row is left out, and no other.
func TestWithoutUnknown(t *testing.T) {
	all := table{Head: []column{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}}
	all.add("", none, "1", none, none)
	all.add("", none, none, "2", none)
	got := all.withoutUnknown()
	if len(got.Head) != 2 || got.Head[0].Name != "b" || got.Head[1].Name != "c" || got.Rows[1].Cells[0].Text != none || got.Rows[1].Cells[1].Text != "2" {
		t.Errorf("%+v", got)
	}
	if empty := (table{Head: []column{{Name: "a"}}}).withoutUnknown(); len(empty.Head) != 1 {
		t.Errorf("without rows: %+v", empty)
	}
}

func TestACardOfNothingIsLeftOut(t *testing.T) {
	const card = "<h2>Of whom</h2>"
	r := made(1, 1)
	if page := pageOf(t, r); !strings.Contains(string(page), card) {
		t.Error("the engine of a run is left out")
	}
	r.Log, r.Results.Engine = nil, measurement.Engine{}
	if page := pageOf(t, r); strings.Contains(string(page), card) {
		t.Error("of an engine of which nothing is known there is a card, with nothing in it")
	}
}
