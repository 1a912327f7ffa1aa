package page

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"kneefinder/measurement"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// part is one fragment of a page as it stands.
func part(t *testing.T, p *Page, id string) string {
	t.Helper()
	i := slices.Index(fragments[:], id)
	if i < 0 {
		t.Fatalf("no fragment %q", id)
	}
	return p.draw().parts[i]
}

// turn is one that ended well after a TTFT.
func turn(step, number int, now, ttft time.Duration) measurement.Turn {
	t := measurement.NewTurn()
	t.Step, t.Turn, t.Phase, t.Outcome, t.Due, t.FirstToken, t.End = step, number, measurement.Window, measurement.OK, now-ttft, now, now
	return t
}

// observer is generator.Observer.
type observer interface {
	StepBegin(measurement.Step)
	StepEnd(measurement.Step)
	Turn(measurement.Turn)
	InFlight(at time.Duration, calls, turns int)
}

var _ observer = (*Page)(nil)

func TestStepsTable(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.SetRun(header(.5, 4, 5))
	p.SetState(Running)
	for _, i := range []int{0, 4} {
		p.StepBegin(measurement.Step{Step: i, Rate: fillSteps[i].rate})
		c.set(c.Now() + 100*time.Second)
		p.StepEnd(measurement.Step{Step: i, WindowEnd: c.Now()})
		p.StepResult(fillResult(i))
	}
	censored := fillResult(3)
	censored.Step, censored.Rate, censored.Verdict, censored.Flags = 7, 4.5, measurement.Undecided, []string{measurement.FlagCensored}
	censored.TTFTP95, censored.TTFTP99, censored.TTFTP95CI, censored.ITLBasis = nil, nil, [2]*float64{nil, ptr(800.0)}, "chunk"
	p.StepResult(censored) // of a step that the page has not seen begin
	p.StepBegin(measurement.Step{Step: 8, Rate: 5, Start: c.Now(), WindowStart: c.Now() + 30*time.Second})
	p.InFlight(c.Now(), 3, 2)
	c.set(c.Now() + 40*time.Second)
	p.Turn(turn(8, 2, c.Now(), 50*time.Millisecond))
	golden(t, "steps.html", part(t, p, "steps"))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Nothing that comes from elsewhere becomes markup, and no secret of the base URL is shown.
func TestHostileText(t *testing.T) {
	const evil = `"><img src=x onerror=alert(1)></style></script><script>alert(2)</script>&'`
	p := New(Config{Clock: newHandClock(), Label: evil, Title: evil, Version: evil, Links: []Link{{evil, "javascript:alert(3)"}},
		Objectives: []measurement.Objective{{Metric: evil, Quantile: .95, LimitMS: 1}, objective}})
	h := header(1)
	h.Engine = measurement.Engine{Kind: evil, Version: evil, Model: evil, GPU: evil, Fidelity: evil, BaseURL: "https://ada:s3cret@" + "host.example/" + "<v1>?key=s3cret#s3cret"}
	p.SetRun(h)
	p.SetState(Running)
	r := fillResult(4)
	r.Flags = append(r.Flags, evil)
	r.Verdict = measurement.Verdict(evil)
	p.StepResult(r)
	p.Results(measurement.Results{Knees: measurement.Knees{SLO: measurement.Knee{Note: evil}}, Mechanism: measurement.Mechanism{Name: evil, Evidence: []string{evil}, Confidence: evil},
		Warnings: []string{evil}})
	body := get(t, p, "/").Body.String()
	for _, bad := range []string{"<img", "alert(2)</script>", "<script>alert", "s3cret", `href="javascript`, "ada:"} {
		if strings.Contains(body, bad) {
			at := strings.Index(body, bad)
			t.Errorf("the page holds %q: ...%s...", bad, body[max(0, at-80):min(len(body), at+80)])
		}
	}
	if n := strings.Count(body, "&lt;img src=x onerror=alert(1)&gt;"); n < 10 {
		t.Errorf("the text is shown %d times, want it wherever it was told", n)
	}
	if strings.Count(body, "<script") != 1 || strings.Count(body, "<style") != 1 {
		t.Error("the page has other scripts or styles than its own")
	}
	if !strings.Contains(body, "https://host.example/") {
		t.Error("the address is not shown")
	}
}

func TestKneeSentence(t *testing.T) {
	found := measurement.Knee{Status: measurement.Found, Rate: ptr(2.0), Estimate: ptr(2.47), CI95: [2]*float64{ptr(2.0), nil}}
	bare := measurement.Knee{Status: measurement.Found, Rate: ptr(.05)}
	above := measurement.Knee{Status: measurement.AboveRange, Rate: ptr(5.0)}
	below := measurement.Knee{Status: measurement.BelowRange}
	closed := measurement.Config{Arrivals: "closed"}
	for _, c := range []struct {
		config measurement.Config
		knee   measurement.Knee
		final  bool
		want   string
	}{
		{measurement.Config{}, found, false, "The knee so far: 2 calls/s is the highest load that passes; it is estimated at 2.47 (95 % interval 2 or more)."},
		{measurement.Config{}, bare, true, "The knee: 0.05 calls/s is the highest load that passes."},
		{closed, bare, true, "The knee: 0.05 calls at once is the highest load that passes."},
		{measurement.Config{}, above, false, "No knee so far: 5 calls/s still passes, and is the highest load tried."},
		{measurement.Config{}, below, false, "The knee lies below every load tried so far: the lowest already fails."},
		{measurement.Config{}, measurement.Knee{}, false, "No knee yet: it needs a step that passes and one that fails."},
		{measurement.Config{}, measurement.Knee{Status: measurement.NoKnee}, true, "No knee was found."},
	} {
		if got := kneeSentence(c.config, c.knee, c.final); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.knee, got, c.want)
		}
	}
}

func TestProgress(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	want := func(text, bar string) {
		t.Helper()
		head := part(t, p, "head")
		if !strings.Contains(head, `<p class="progress">`+text+`</p>`) {
			t.Errorf("at %v: got %q, want %q", c.Now(), head, text)
		}
		if bar != "" && !strings.Contains(head, bar) || bar == "" && strings.Contains(head, "<progress") {
			t.Errorf("at %v: got %q, want bar %q", c.Now(), head, bar)
		}
	}
	want("No step has begun.", "")
	h := header(1, 2)
	h.Config.MinTurns = 60 // 20 s at 1 call/s: the step's 90 s rule
	p.SetRun(h)
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 1, WindowStart: 30 * time.Second})
	c.set(10 * time.Second)
	// A step: 30 s warm-up, 90 s window, 3 * (6 + 2) = 24 s for the last calls: 144 s.
	want("Step 1 of the 2 planned, at 1 calls/s, warming up. About 5 min left; rates may be added.", `max="1000" value="34"`)
	c.set(60 * time.Second)
	p.Turn(turn(0, 2, c.Now(), time.Millisecond))
	want("Step 1 of the 2 planned, at 1 calls/s, measuring: 1 measured turn of at least 60. About 4 min left; rates may be added.", `value="208"`)
	p.SetState(Draining)
	want("Step 1 of the 2 planned, at 1 calls/s, measured; calls in progress end. About 4 min left; rates may be added.", `value="208"`)
	p.SetState(Running)
	p.StepEnd(measurement.Step{Step: 0})
	want("Step 1 of the 2 planned, at 1 calls/s, ended. About 2 min left; rates may be added.", `value="500"`)
	p.StepBegin(measurement.Step{Step: 1, Rate: 2, Start: c.Now(), WindowStart: c.Now()})
	p.StepEnd(measurement.Step{Step: 1})
	p.StepBegin(measurement.Step{Step: 2, Rate: 4, Start: c.Now(), WindowStart: c.Now()})
	want("Step 3, beyond the 2 planned, at 4 calls/s, measuring: 0 measured turns of at least 60. About 2 min left; rates may be added.", `value="666"`)
	p.SetState(Done)
	c.set(time.Hour)
	want("Done after 1 min.", `value="1000"`)

	p = New(Config{Clock: c, Steady: true}) // whose rate is turned
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 3, Start: c.Now(), WindowStart: c.Now()})
	c.set(c.Now() + 2*time.Hour)
	p.StepBegin(measurement.Step{Step: 0, Rate: 3.5, Start: time.Hour})
	want("Running for 2 h 0 min, at 3.5 calls/s.", "")
	p.SetState(Draining)
	want("No calls arrive any more; those in progress end. It ran for 2 h 0 min.", "")

	p = New(Config{Clock: c}) // a search
	h = header(1)
	h.Config.FindKnee = true
	p.SetRun(h)
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 1, WindowStart: c.Now()})
	p.StepBegin(measurement.Step{Step: 1, Rate: 8, WindowStart: c.Now()})
	want("Step 2 of a search for the knee, at 8 calls/s, measuring: 0 measured turns of at least 60.", "")
	p.StepBegin(measurement.Step{Step: 1, Rate: 9}) // turned
	if rows := strings.Count(part(t, p, "steps"), `scope="row"`); rows != 2 {
		t.Errorf("a rate that is turned made %d rows of two", rows)
	}
}

// Time stands still once a run has ended.
func TestEndedStandsStill(t *testing.T) {
	p, c := filled(3 * time.Minute)
	p.SetState(Failed)
	before := p.draw()
	c.set(c.Now() + 10*time.Hour)
	if after := p.draw(); after.parts != before.parts {
		t.Error("the page of an ended run goes on changing")
	}
	p.SetState(Running)
	if after := p.draw(); after.parts == before.parts {
		t.Error("a run that goes on does not")
	}
}

// Percentiles are those of the turns of the last 30 s, against a plain filter over all of them.
func TestWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := newHandClock()
	p := New(Config{Clock: c})
	type told struct {
		at          time.Duration
		ttft        float64
		cached, all int
		failed      bool
	}
	var turns []told
	check := func(b *bucket, end time.Duration) {
		t.Helper()
		var ttft []float64
		cached, prompt, failed, all := 0, 0, 0, 0
		for _, x := range turns {
			if x.at <= end-30*time.Second || x.at >= end {
				continue
			}
			all++
			if x.failed {
				failed++
			}
			ttft = append(ttft, x.ttft)
			cached += x.cached
			prompt += x.all
		}
		slices.Sort(ttft)
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"P50", b.p50, measurement.Quantile(ttft, .5)}, {"P95", b.p95, measurement.Quantile(ttft, .95)}, {"P99", b.p99, measurement.Quantile(ttft, .99)},
			{"hit", b.hit, float64(cached) / float64(prompt)}, {"failed", b.failed, float64(failed) / float64(all)},
		} {
			if f.got != f.want && !(math.IsNaN(f.got) && math.IsNaN(f.want)) {
				t.Fatalf("at %v: %s is %v, want %v", end, f.name, f.got, f.want)
			}
		}
	}
	for at := 2 * time.Second; at < 200*time.Second; at += time.Duration(rng.ExpFloat64() * .2 * float64(time.Second)) {
		if at > 90*time.Second && at < 130*time.Second {
			at = 130 * time.Second // silence
		}
		c.set(at)
		x := told{at: at, ttft: float64(rng.IntN(1e6)) / 1000, cached: rng.IntN(100), all: 100, failed: rng.IntN(12) == 0}
		m := turn(0, 2, at, time.Duration(x.ttft*1000)*time.Microsecond)
		x.ttft = float64(m.FirstToken-m.Due) / 1e6
		m.PromptTokens, m.CachedTokens = x.all, x.cached
		if x.failed {
			m.FirstToken, m.Outcome, x.ttft = measurement.Never, measurement.Stall, math.Inf(1)
		}
		turns = append(turns, x)
		p.Turn(m)
	}
	c.set(200 * time.Second)
	p.snapshot()
	if len(p.ring.closed) != 200 {
		t.Fatalf("%d buckets in 200 s", len(p.ring.closed))
	}
	for i := range p.ring.closed {
		check(&p.ring.closed[i], time.Duration(i+1)*time.Second)
	}
}

// What came is what was begun, also while nobody looks and no turn ends.
func TestCame(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.StepBegin(measurement.Step{Step: 0, Rate: 2})
	calls := 0
	for at := 250 * time.Millisecond; at < 60*time.Second; at += 500 * time.Millisecond {
		c.set(at)
		calls++
		p.InFlight(at, calls, 1)
		p.InFlight(at+time.Millisecond, calls, 0)
	}
	c.set(60 * time.Second)
	s := p.snapshot()
	for i, b := range s.buckets {
		end := time.Duration(i+1) * time.Second
		if want := float64(2 * (i + 1)); i < 60 && b.calls != want {
			t.Errorf("at %v %v calls are in flight, want %v", end, b.calls, want)
		}
		if end < 5*time.Second != math.IsNaN(b.came) || end >= 5*time.Second && math.Abs(b.came-2) > .04 {
			t.Errorf("at %v came is %v, want 2, and nothing in the first 5 s", end, b.came)
		}
	}
	p.InFlight(50*time.Second, 1, 1) // told late
	if got := p.snapshot().last; got.calls != float64(calls) || got.turns != 0 {
		t.Errorf("an older count was taken: %v calls", got.calls)
	}
	p.StepEnd(measurement.Step{Step: 0, WindowEnd: 40 * time.Second})
	s = p.snapshot()
	if last := s.buckets[39]; math.IsNaN(last.came) {
		t.Error("what came before the window's end is gone")
	}
	if last := s.buckets[40]; !math.IsNaN(last.came) || s.asked != 0 {
		t.Errorf("in the drain came is %v, asked %v; want neither", last.came, s.asked)
	}
}

func TestJoined(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	a := bucket{p50: 1, p95: 9, p99: nan, hit: .5, failed: nan, came: 2, begun: 3, calls: 4, turns: 2}
	b := bucket{p50: 2, p95: 5, p99: inf, hit: nan, failed: .1, came: 3, begun: 4, calls: 6, turns: 2}
	for i := range a.signal {
		a.signal[i], b.signal[i] = nan, nan
	}
	a.signal[queued], b.signal[queued], b.signal[gpuPower] = 2, 4, 300
	c := joined(a, b)
	if c.p50 != 2 || c.p95 != 9 || c.p99 != inf || c.hit != .5 || c.failed != .1 || c.came != 3 || c.begun != 7 || c.calls != 5 || c.signal[queued] != 3 ||
		c.signal[gpuPower] != 300 || !math.IsNaN(c.signal[evicted]) {
		t.Errorf("got %+v", c)
	}
}

func TestSamples(t *testing.T) {
	for _, c := range []struct {
		values       map[string]float64
		used, cached float64
		ok           bool
	}{
		{map[string]float64{measurement.SampleKVPool: 100, measurement.SampleKVUsed: 20, measurement.SampleKVCached: 30}, .2, .3, true},
		{map[string]float64{measurement.SampleKVUsed: 20, measurement.SampleKVCached: 30, measurement.SampleKVFree: 50}, .2, .3, true},
		{map[string]float64{measurement.SampleKVPool: 100, measurement.SampleKVCached: 30, measurement.SampleKVFree: 50}, .2, .3, true},
		{map[string]float64{measurement.SampleKVUsage: .4}, .4, math.NaN(), true},
		{map[string]float64{measurement.SampleKVUsed: 20}, math.NaN(), math.NaN(), false},
		{map[string]float64{measurement.SampleKVPool: 0, measurement.SampleKVUsed: 0}, math.NaN(), math.NaN(), false},
	} {
		used, cached, ok := kvShares(c.values)
		if ok != c.ok || math.Abs(known(used, -1)-known(c.used, -1)) > 1e-12 || math.Abs(known(cached, -1)-known(c.cached, -1)) > 1e-12 {
			t.Errorf("%v: got %v %v %v, want %v %v %v", c.values, used, cached, ok, c.used, c.cached, c.ok)
		}
	}
	c := newHandClock()
	p := New(Config{Clock: c})
	if charts := part(t, p, "charts"); strings.Contains(charts, "The engine") || strings.Contains(charts, "GPUs") {
		t.Error("charts of samples without a sample")
	}
	for i, total := range []float64{1000, 1500, 100, 400} { // the server begins anew after the second
		c.set(time.Duration(i) * 2 * time.Second)
		p.Sample(measurement.EngineSample{Values: map[string]float64{measurement.SampleEvicted: total, measurement.SampleQueued: math.NaN()}})
	}
	c.set(8 * time.Second)
	s := p.snapshot()
	got, _ := s.signal(evicted)
	for i, want := range map[int]float64{2: 250, 6: 150} {
		if got[i] != want {
			t.Errorf("evictions in second %d are %v a second, want %v: all %v", i, got[i], want, got)
		}
	}
	if !math.IsNaN(got[0]) || !math.IsNaN(got[4]) {
		t.Errorf("a first count, and one after a restart, have no rate: %v", got)
	}
	charts := part(t, p, "charts")
	if !strings.Contains(charts, "Evictions") || strings.Contains(charts, "Engine requests") || strings.Contains(charts, "GPUs") {
		t.Error("a chart stands where there are figures, and only there")
	}
}

// A day of load takes the memory of its first hour.
func TestDay(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.SetRun(header(2))
	p.SetState(Running)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var first uint64
	for s := range 24 * 3600 {
		at := time.Duration(s) * time.Second
		c.set(at)
		if s%300 == 0 {
			p.StepEnd(measurement.Step{Step: s/300 - 1})
			p.StepBegin(measurement.Step{Step: s / 300, Rate: 2, Start: at, WindowStart: at})
			p.StepResult(measurement.StepResult{Step: s / 300, Rate: 2, Flags: []string{measurement.FlagShort}})
		}
		p.InFlight(at, s%7, s%3)
		if s%50 < 40 {
			p.Turn(turn(s/300, 2, at, time.Duration(s%400)*time.Millisecond))
		}
		p.Sample(measurement.EngineSample{At: at, Values: map[string]float64{measurement.SampleQueued: 1, measurement.SampleGPUPower: 300}})
		if s == 3600*9 { // by then every row and mark is taken
			p.draw()
			first = heap()
		}
	}
	p.draw()
	if last := heap(); last > first+200_000 {
		t.Errorf("the heap grew from %d to %d bytes", first, last)
	}
	s := p.snapshot()
	if n := len(s.buckets); n > maxBuckets || n < maxBuckets/2 || cap(p.ring.closed) != maxBuckets || len(s.steps) != maxSteps || len(s.marks) != maxMarks {
		t.Errorf("kept %d buckets of %v, %d steps, %d marks", n, s.width, len(s.steps), len(s.marks))
	}
	if at := s.origin + time.Duration(len(s.buckets)-1)*s.width; s.now-at > s.width || at > s.now {
		t.Errorf("the closed buckets reach to %v of %v", at, s.now)
	}
	if got := len(part(t, p, "charts")) + len(part(t, p, "steps")); got > 300_000 {
		t.Errorf("a day's page takes %d bytes", got)
	}
	// Nobody is told anything for a week: the page only wakes up.
	c.set(8 * 24 * time.Hour)
	p.snapshot()
}

// A flood of turns between two looks is bounded as well.
func TestFlood(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	for i := range 3 * maxMoments {
		p.InFlight(time.Duration(i)*time.Second, i, i)
	}
	if n := len(p.flight.log); n != maxMoments {
		t.Errorf("%d moments are kept, want %d", n, maxMoments)
	}
	c.set(time.Hour)
	for range 3 * maxRecent {
		p.Turn(turn(0, 2, c.Now(), time.Millisecond))
	}
	if s := p.snapshot(); s.last.p95 != 1 || s.totals.ended != 3*maxRecent {
		t.Errorf("P95 %v of %d turns", s.last.p95, s.totals.ended)
	}
}

func TestScales(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		log         bool
		top, height float64
		ys          []float64
		want        string
		why         string
	}{
		{false, 0, 90, []float64{nan}, "0 0.5 1", "nothing to show"},
		{false, 100, 90, []float64{3}, "0 50 100", "shares go to 100"},
		{false, 0, 90, []float64{.07, inf}, "0 0.05 0.1", "what has no figure makes no scale"},
		{false, 0, 90, []float64{5, 5.5}, "0 2 4 6", "what came may be more than was asked"},
		{false, 0, 170, []float64{1000}, "0 500 1000", ""},
		{true, 0, 170, []float64{100, 300}, "0 100 200 300", "a small range stays linear"},
		{true, 0, 170, []float64{21, 1900}, "20 50 100 200 500 1000 2000", "all there is room for"},
		{true, 0, 170, []float64{21, 2500}, "20 100 500 2000", "a ladder's ends hold the figures"},
		{true, 0, 90, []float64{1, 900000}, "1 1000 1M", "fewer where there is no room"},
	} {
		s := scaleOf(c.log, c.top, c.height, c.ys)
		var names []string
		for _, k := range s.ticks {
			names = append(names, k.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%v: got %q, want %q (%s)", c.ys, got, c.want, c.why)
		}
		for _, y := range c.ys {
			if h := s.y(y); !math.IsNaN(y) && (h < 0 || h > c.height) {
				t.Errorf("%v: %v lies at %v of %v", c.ys, y, h, c.height)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for v, want := range map[float64]string{0: "0", .00512: "0.00512", 1: "1", 29.64: "29.6", 99.96: "100", 100: "100", 1438.4: "1438", math.Inf(1): "no token"} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
	if got := digits(math.NaN()); got != none {
		t.Errorf("digits(NaN) = %q", got)
	}
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 59 * time.Second: "59 s", 2 * time.Minute: "2 min", 200 * time.Second: "3 min 20 s",
		125 * time.Minute: "2 h 5 min", 50 * time.Hour: "2 days 2 h"} {
		if got := elapsed(d); got != want {
			t.Errorf("elapsed(%v) = %q, want %q", d, got, want)
		}
	}
	for to, want := range map[float64]string{60: "0:00 0:10 0:20 0:30 0:40 0:50 1:00", 3600: "0:00 h 0:10 h 0:20 h 0:30 h 0:40 h 0:50 h 1:00 h",
		90000: "0:00 h 4:00 h 8:00 h 12:00 h 16:00 h 20:00 h 24:00 h"} {
		var names []string
		for _, k := range timeTicks(0, to) {
			names = append(names, k.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("an axis of %v s: got %q, want %q", to, got, want)
		}
	}
}

// The parts of a chart that a script could trip over: NaN and infinities never reach the markup.
func TestNoNaNInMarkup(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second, 121 * time.Second, 9 * time.Minute} {
		p, _ := filled(at)
		r := fillResult(4)
		r.TTFTP95, r.TTFTP95CI, r.Flags = nil, [2]*float64{}, []string{measurement.FlagCensored}
		p.StepResult(r)
		for i, text := range p.draw().parts {
			for _, bad := range []string{"NaN", "Inf", "%!"} {
				if strings.Contains(text, bad) {
					t.Errorf("after %v %s holds %q", at, fragments[i], bad)
				}
			}
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	p, c := filled(9 * time.Minute)
	for i := range maxSteps { // all rows, all buckets, all turns
		r := fillResult(i % len(fillSteps))
		r.Step = i
		p.StepResult(r)
	}
	for p.snapshot(); len(p.ring.closed) < maxBuckets-1; p.snapshot() {
		c.set(c.Now() + time.Second)
		for i := range 100 {
			p.Turn(turn(0, 2, c.Now(), time.Duration(i)*time.Millisecond))
		}
	}
	if p.ring.n < maxRecent {
		b.Fatal("too few turns")
	}
	bytes := 0
	for b.Loop() {
		bytes = 0
		for _, text := range p.draw().parts {
			bytes += len(text)
		}
	}
	b.ReportMetric(float64(bytes), "bytes/page")
}

func BenchmarkTurn(b *testing.B) {
	p, c := filled(time.Minute)
	t := turn(0, 2, c.Now(), time.Millisecond)
	for i := 0; b.Loop(); i++ {
		c.set(time.Minute + time.Duration(i)*10*time.Millisecond)
		p.Turn(t)
	}
}

func BenchmarkInFlight(b *testing.B) {
	p := New(Config{Clock: newHandClock()})
	for i := 0; b.Loop(); i++ {
		p.InFlight(time.Duration(i)*time.Microsecond, i&7, i&3)
	}
}

func Example() {
	p := New(Config{Label: "L40S"})
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: .05})
	title, _, _ := strings.Cut(p.draw().title, " -")
	fmt.Println(title)
	// Output: L40S: running
}

// A closed loop is asked for calls at once: they share no scale with calls a second.
func TestClosedLoop(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	h := header(4)
	h.Config.Arrivals = "closed"
	p.SetRun(h)
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 4})
	p.StepResult(fillResult(0))
	c.set(time.Minute)
	f := p.draw()
	all := strings.Join(f.parts[:], "\n")
	if strings.Contains(all, "λ") || !strings.Contains(all, "calls at once") || strings.Contains(part(t, p, "charts"), "</svg>came") {
		t.Error("the page speaks of a rate of arrivals that nobody asked for")
	}
}
