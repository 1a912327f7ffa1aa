package page

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// What is in no rolling figure, and that they begin anew with each step, but not when the rate of one is turned.
func TestRollingOfAStep(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c, Objectives: []measurement.Objective{objective}})
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 2})
	calls := func(n int) {
		for range n {
			c.set(c.Now() + time.Second)
			p.InFlight(c.Now(), 1, 0)
			p.InFlight(c.Now(), 0, 0)
		}
	}
	calls(10)
	p.Turn(turn(0, 2, c.Now(), 20*time.Millisecond))
	tiles := part(t, p, "tiles")
	for _, want := range []string{"came 1, last 10 s", "within 300 ms, last 10 s", `0.0</span> <span class="unit">%`, "0 turns in flight"} {
		if !strings.Contains(tiles, want) {
			t.Errorf("the tiles lack %q: %s", want, tiles)
		}
	}
	cut := turn(0, 2, c.Now(), 0)
	cut.FirstToken, cut.Outcome, cut.Phase = measurement.Never, measurement.TotalTimeout, measurement.Drain
	p.Turn(cut)
	for _, phase := range []measurement.Phase{measurement.Window, measurement.Drain} {
		unsent := measurement.NewTurn()
		unsent.Turn, unsent.Phase, unsent.Outcome = 3, phase, measurement.NotSent
		p.Turn(unsent)
	}
	canceled := cut
	canceled.Phase, canceled.Outcome = measurement.Window, measurement.Canceled
	p.Turn(canceled)
	if b := p.snapshot().last; b.p95 != 20 || b.failed != 0 {
		t.Errorf("with a drain's turns: P95 %v, failed %v; want 20, 0", b.p95, b.failed)
	}
	p.InFlight(c.Now(), 1, 1)
	c.set(c.Now() + time.Millisecond)
	if tiles := part(t, p, "tiles"); !strings.Contains(tiles, "1 turn in flight") {
		t.Errorf("one turn: %s", tiles)
	}
	p.InFlight(c.Now(), 0, 0)
	p.StepBegin(measurement.Step{Step: 0, Rate: 3}) // turned
	if b := p.snapshot().last; b.p95 != 20 || math.Abs(b.came-1.1) > .11 {
		t.Errorf("after a turn of the rate: P95 %v, came %v; want 20, and what came before", b.p95, b.came)
	}
	p.StepEnd(measurement.Step{Step: 0, WindowEnd: c.Now()})
	p.StepBegin(measurement.Step{Step: 1, Rate: 4})
	if b := p.snapshot().last; !math.IsNaN(b.p95) || !math.IsNaN(b.failed) || !math.IsNaN(b.came) || !math.IsNaN(b.hit) {
		t.Errorf("in a new step: %+v, want nothing that rolls", b)
	}
	calls(6)
	if b := p.snapshot().last; math.Abs(b.came-1) > .2 {
		t.Errorf("6 calls in the 6 s of a step are %v a second", b.came)
	}
}

// A turn that was due after the window tells that no more calls arrive: what came is then not said to fall.
func TestDrainIsSeen(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.SetRun(header(1, 2))
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 1})
	for range 20 {
		c.set(c.Now() + time.Second)
		p.InFlight(c.Now(), 1, 0)
		p.InFlight(c.Now(), 0, 0)
	}
	due := c.Now()
	c.set(due + 3*time.Second)
	u := turn(0, 3, c.Now(), 3*time.Second)
	u.Phase = measurement.Drain
	p.Turn(u)
	s := p.snapshot()
	for i, b := range s.buckets {
		if end := time.Duration(i+1) * time.Second; math.IsNaN(b.came) != (end < leastCame || end > due) {
			t.Errorf("at %v came is %v", end, b.came)
		}
	}
	for id, want := range map[string]string{"tiles": "no more calls arrive", "head": "at 1 calls/s, measured; calls in progress end.", "steps": "draining"} {
		if text := part(t, p, id); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q: %s", id, want, text)
		}
	}
	p.StepEnd(measurement.Step{Step: 0, WindowEnd: due})
	p.StepBegin(measurement.Step{Step: 1, Rate: 2})
	if text := part(t, p, "tiles"); !strings.Contains(text, ">2</span>") {
		t.Errorf("in the next step: %s", text)
	}
}

// The window is the one that the caller asks for, in the figures and in the labels.
func TestWindowLength(t *testing.T) {
	for _, w := range []time.Duration{0, 10 * time.Second, time.Minute} {
		c := newHandClock()
		p := New(Config{Clock: c, Window: w})
		want := w
		if w == 0 {
			want = 30 * time.Second
		}
		p.StepBegin(measurement.Step{Step: 0, Rate: 1})
		p.SetState(Running)
		for at := time.Second; at <= 2*time.Minute; at += time.Second {
			c.set(at)
			p.Turn(turn(0, 2, at, at/1000))
		}
		oldest := (2*time.Minute - want + time.Second).Seconds()
		if got := p.snapshot().last.p50; math.Abs(got-(oldest+120)/2) > 1e-9 {
			t.Errorf("a window of %v: P50 %v, want %v", w, got, (oldest+120)/2)
		}
		if text := part(t, p, "charts"); !strings.Contains(text, "of the last "+elapsed(want)+" of a step") {
			t.Errorf("a window of %v is not named", w)
		}
	}
}

// When a run is done nothing on the page is of now.
func TestNothingRollsWhenDone(t *testing.T) {
	p, c := filled(9*time.Minute + 50*time.Second)
	p.StepEnd(measurement.Step{Step: 4, WindowEnd: c.Now()})
	r := fillResult(4)
	p.StepResult(r)
	p.SetState(Done)
	p.Sample(measurement.EngineSample{Values: map[string]float64{measurement.SampleEvicted: 1e9}})
	tiles, charts := part(t, p, "tiles"), part(t, p, "charts")
	for _, want := range []string{`<dt>λ asked</dt><dd><span class="value">4</span> <span class="unit">calls/s</span><span class="sub">came 4.5, last step`, `1490</span> <span class="unit">ms`,
		"over 300 ms, last step", "mean, last step", "measured and not"} {
		if !strings.Contains(tiles, want) {
			t.Errorf("the tiles lack %q: %s", want, tiles)
		}
	}
	if strings.Contains(tiles, "last 30 s") || strings.Contains(tiles, "in flight") {
		t.Errorf("something rolls: %s", tiles)
	}
	if strings.Contains(charts, "<b>") || strings.Contains(charts, "free above them:") {
		t.Error("a legend holds a figure of now")
	}
	p = New(Config{Clock: newHandClock()})
	p.SetState(Failed)
	if tiles := part(t, p, "tiles"); strings.Count(tiles, "no step was measured") != 5 || strings.Contains(tiles, "calls/s") {
		t.Errorf("of a run without a step: %s", tiles)
	}
}

func TestEvictionsOverWholeSeconds(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.SetState(Running)
	for _, x := range []struct {
		at    time.Duration
		total float64
	}{{0, 0}, {time.Second, 6000}, {2 * time.Second, 12000}, {2*time.Second + 40*time.Millisecond, 12001}, {3 * time.Second, 18000}} {
		c.set(x.at)
		p.Sample(measurement.EngineSample{Values: map[string]float64{measurement.SampleEvicted: x.total}})
	}
	c.set(3*time.Second + 100*time.Millisecond)
	s := p.snapshot()
	got, _ := s.signal(evicted)
	for i := 1; i < len(got); i++ {
		if got[i] != 6000 {
			t.Errorf("evictions are %v a second, want 6000 in each but the first", got)
		}
	}
}

// Whatever is drawn lies within its scale.
func TestScaleHoldsAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20000 {
		var a, b []float64
		most := 0.
		for range 1 + rng.IntN(5) {
			v := math.Exp(rng.NormFloat64() * 4)
			if rng.IntN(3) == 0 {
				v = math.Round(v*10) / 10
			}
			a, b, most = append(a, v), append(b, v/2), max(most, v)
		}
		s := scaleOf(rng.IntN(2) == 0, 0, []float64{70, 90, 170}[rng.IntN(3)], b, a)
		if s.hi < most*(1-1e-9) || s.lo > most {
			t.Fatalf("%v: the scale goes from %v to %v", a, s.lo, s.hi)
		}
		if top := s.ticks[len(s.ticks)-1].at; !s.log && math.Abs(top-1) > 1e-9 {
			t.Fatalf("%v: the highest name stands at %v of the scale", a, top)
		}
	}
}

func TestTimeAxisEndsWithTheRun(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c})
	p.StepBegin(measurement.Step{Step: 0, Rate: 1})
	c.set(32 * time.Second)
	p.SetState(Done)
	charts := part(t, p, "charts")
	if !strings.Contains(charts, ">0:30<") || strings.Contains(charts, ">0:40<") {
		t.Errorf("the axis of a run of 32 s: %s", charts)
	}
}

func TestLegendOrder(t *testing.T) {
	p, _ := filled(time.Minute)
	_, charts, _ := strings.Cut(part(t, p, "charts"), "Time to first token")
	charts, _, _ = strings.Cut(charts, "Cache hit rate")
	a, b, c := strings.Index(charts, "</svg>P50"), strings.Index(charts, "</svg>P95"), strings.Index(charts, "</svg>P99")
	if a < 0 || b < a || c < b {
		t.Errorf("P50, P95, P99 stand at %d, %d, %d", a, b, c)
	}
	if thick, dot := strings.LastIndex(charts, `<path class="line c1 thick" d=`), strings.LastIndex(charts, `<path class="line c2 dot" d=`); thick < dot {
		t.Error("the P95 does not lie on top")
	}
}

// A steady load has no knee and no steps; it has totals.
func TestSteady(t *testing.T) {
	c := newHandClock()
	p := New(Config{Clock: c, Steady: true, Objectives: []measurement.Objective{objective}, Label: "steady"})
	p.SetState(Running)
	p.StepBegin(measurement.Step{Step: 0, Rate: 1.5})
	for i := range 100 {
		c.set(time.Duration(i+1) * time.Second)
		u := turn(0, 2, c.Now(), 100*time.Millisecond)
		switch {
		case i < 20:
			u = turn(0, 2, c.Now(), 400*time.Millisecond)
		case i == 50:
			u.FirstToken, u.Outcome = measurement.Never, measurement.HTTP5xx
		}
		p.Turn(u)
	}
	unsent := measurement.NewTurn()
	unsent.Turn, unsent.Outcome = 3, measurement.NotSent
	p.Turn(unsent)
	body := get(t, p, "/").Body.String()
	for _, bad := range []string{"knee so far", "No knee", "The knee", "The curve", `id="steps"`, `id="knee"`, ">step 1<"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page of a steady load holds %q", bad)
		}
	}
	for _, want := range []string{"Running for 1 min 40 s, at 1.5 calls/s.", "79.0 % of turns 2.. came within 300 ms since the start (asked: 95 %).",
		"100.0 % of turns 2.. came within 300 ms in the last 30 s (asked: 95 %).", `ended well</th><td>99</td><td>98.0 %</td>`, `the server failed</th><td>1</td>`,
		`never due: an earlier turn of the call failed</th><td>1</td>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	p.StepEnd(measurement.Step{Step: 0, WindowEnd: c.Now()})
	p.SetState(Done)
	if tiles := part(t, p, "tiles"); strings.Contains(tiles, "last 30 s") || !strings.Contains(tiles, `79.0</span> <span class="unit">%</span><span class="sub">✕ turns 2.., since the start`) {
		t.Errorf("after the end: %s", tiles)
	}
}

// Each flag of any step is a doubt, once, with its loads, unless a warning says it.
func TestDoubts(t *testing.T) {
	p := New(Config{Clock: newHandClock()})
	p.SetRun(header(1, 2, 3))
	p.SetState(Running)
	for i, f := range flagged {
		if measurement.FlagMeaning(f) == "" {
			t.Errorf("%s means nothing", f)
		}
		for _, n := range []int{0, 1, 20} {
			r := fillResult(0)
			r.Step, r.Rate, r.Flags = 10*i+n, float64(i+1)+float64(n)/2, []string{f}
			if n < 20 {
				p.StepResult(r)
			}
		}
	}
	p.Results(measurement.Results{Warnings: []string{"The λ that came differs from the λ asked by more than a tenth: 1 for 2."}})
	knee := part(t, p, "knee")
	for _, want := range []string{"<li>At 1 and 1.5 calls/s the generator itself was late (client_limited).</li>", "calls waited for --max-concurrent-calls (cap_bound).", "(unstable)", "(contaminated)",
		"(censored)", "(short)", "(early_fail)", "by more than a tenth: 1 for 2."} {
		if strings.Count(knee, want) != 1 {
			t.Errorf("the doubts hold %q %d times: %s", want, strings.Count(knee, want), knee)
		}
	}
	if strings.Contains(knee, "(off_rate)") {
		t.Error("what a warning says is said twice")
	}
}

// A knee below all steps is doubted when this side was late in each that failed, and only then.
func TestLateGenerator(t *testing.T) {
	for _, c := range []struct {
		flags [2][]string
		want  bool
	}{{[2][]string{{measurement.FlagClientLimited}, {measurement.FlagClientLimited, measurement.FlagShort}}, true}, {[2][]string{{measurement.FlagClientLimited}, nil}, false}, {[2][]string{}, false}} {
		p := New(Config{Clock: newHandClock()})
		for i, flags := range c.flags {
			r := fillResult(3)
			r.Step, r.Flags = i, flags
			p.StepResult(r)
		}
		p.Results(measurement.Results{Knees: measurement.Knees{SLO: measurement.Knee{Status: measurement.BelowRange}}})
		p.SetState(Done)
		knee := part(t, p, "knee")
		if !strings.Contains(knee, "The knee lies below every load tried") || strings.Contains(knee, "the miss may be its own") != c.want {
			t.Errorf("%v: %s", c.flags, knee)
		}
	}
}

func TestSaturationSentence(t *testing.T) {
	v := ptr[float64]
	for _, c := range []struct {
		knee measurement.Knee
		want string
	}{
		{measurement.Knee{Status: measurement.Found, Rate: v(2), Estimate: v(2.41)}, "Completions keep up with arrivals up to 2 calls/s (interpolated: ~2.41)."},
		{measurement.Knee{Status: measurement.Found, Rate: v(2)}, "Completions keep up with arrivals up to 2 calls/s."},
		{measurement.Knee{Status: measurement.BelowRange}, "Completions do not keep up with arrivals at the lowest load tried."},
		{measurement.Knee{Status: measurement.AboveRange, Rate: v(5)}, ""},
		{measurement.Knee{Status: measurement.NoKnee}, ""},
	} {
		if got := saturationSentence(measurement.Config{}, c.knee); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.knee, got, c.want)
		}
	}
}

func TestArrivalsSentence(t *testing.T) {
	test := func(p float64) *measurement.Test { return &measurement.Test{P: p} }
	for _, c := range []struct {
		a    measurement.Arrivals
		want string
	}{
		{measurement.Arrivals{}, ""},
		{measurement.Arrivals{Calls: 3}, "Arrivals: not certified, 3 calls are too few to test."},
		{measurement.Arrivals{Calls: 312, Process: "poisson", KS: test(.4), AD: test(.3), Lag1: test(.123456), Certified: true},
			"Arrivals: certified Poisson. Of 312 calls no test rejects it; how a gap follows on the one before is the least likely, with a probability of 0.123."},
		{measurement.Arrivals{Calls: 312, Process: "poisson", KS: test(1e-9), AD: test(.3)},
			"Arrivals: not certified as Poisson. Of 312 calls their distribution (Kolmogorov-Smirnov) would be so with a probability of under 0.001."},
		{measurement.Arrivals{Calls: 312, Process: "gamma:2", KS: test(1e-9)}, "Arrivals: gamma:2, as asked, so not certified as Poisson (312 calls)."},
		{measurement.Arrivals{Calls: 312, Process: "closed", KS: test(1e-9)}, "Arrivals: a closed loop, no Poisson process (312 calls)."},
	} {
		if got := arrivalsSentence(c.a); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.a, got, c.want)
		}
	}
	p := New(Config{Clock: newHandClock()})
	p.Results(measurement.Results{Arrivals: measurement.Arrivals{Calls: 3}})
	if strings.Contains(part(t, p, "knee"), "Arrivals") {
		t.Error("arrivals are judged before the run's end")
	}
	p.SetState(Done)
	if !strings.Contains(part(t, p, "knee"), "Arrivals: not certified, 3 calls") {
		t.Error("arrivals are not judged after the run's end")
	}
}

// Which metrics pages are read, and which cannot be.
func TestScrapes(t *testing.T) {
	p := New(Config{Clock: newHandClock()})
	want := func(texts ...string) {
		t.Helper()
		head := part(t, p, "head")
		for _, text := range texts {
			if !strings.Contains(head, text) {
				t.Errorf("the head lacks %q: %s", text, head)
			}
		}
	}
	if strings.Contains(part(t, p, "head"), "metrics:") {
		t.Error("pages are named that nobody looks at")
	}
	for range 20 {
		p.Scrape("engine", true)
		p.Scrape("gpu", false)
	}
	want("the engine&#39;s metrics: read<", "the GPUs&#39; metrics: cannot be read (20 of 20 looks failed)")
	p.Scrape("gpu", true)
	p.Scrape("engine", false)
	want("the engine&#39;s metrics: 1 of the last 8 looks failed", "the GPUs&#39; metrics: 7 of the last 8 looks failed")
	for range 8 {
		p.Scrape("engine", true)
	}
	want("the engine&#39;s metrics: read<")
	p.SetState(Done)
	want("the engine&#39;s metrics: read in 28 of 29 looks")
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "A moment", 4 * time.Second: "A moment", 6 * time.Second: "About 10 s", 70 * time.Second: "About 1 min 10 s", 200 * time.Second: "About 3 min"} {
		if got := about(d); got != want {
			t.Errorf("about(%v) = %q, want %q", d, got, want)
		}
	}
}
