package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"kneefinder/analysis"
	"kneefinder/clock"
	"kneefinder/measurement"
)

// Progress tells a person what a sweep is doing: on a terminal a live line, elsewhere a line when a step begins and one when
// it ends. The nil Progress tells nothing.
type Progress struct {
	w       io.Writer
	live    bool
	Brief   bool // for virtual time: nothing is said of how long a step takes, and of a sweep only the results
	clk     clock.Clock
	skipped int // rates that were done before

	mu     sync.Mutex
	config measurement.Config
	left   []float64 // rates still to come, the running one first
	step   measurement.Step
	turns  int // measured turns ended in the running step
	errors int
	calls  int
	drawn  bool // the live line is on the screen
	stop   chan struct{}
	done   sync.WaitGroup
}

// NewProgress writes to w, live if w is a terminal.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

// skip leaves out the first n rates of the sweep that begins: they are done.
func (p *Progress) skip(n int) {
	if p != nil {
		p.skipped = n
	}
}

func (p *Progress) begin(clk clock.Clock, c measurement.Config) {
	if p == nil {
		return
	}
	p.clk, p.config, p.left = clk, c, append([]float64(nil), c.Rates[min(p.skipped, len(c.Rates)):]...)
	if c.FindKnee { // the search tells each
		p.left = nil
	}
	if !p.live {
		return
	}
	p.stop = make(chan struct{})
	p.done.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
}

func (p *Progress) end() {
	if p == nil || !p.live {
		return
	}
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *Progress) extended(rate float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, rate)
	p.clear()
	fmt.Fprintf(p.w, "the knee is not between the rates so far: going on at %s\n", p.load(rate))
}

// searching tells what a search tries next, with a window of at least so many seconds, and why, behind the rates tried so far.
func (p *Progress) searching(next analysis.Probe, window float64, tried []float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.config.StepSeconds = []float64{next.Rate}, window
	p.config.MaxStepSeconds = max(p.config.MaxStepSeconds, window)
	p.clear()
	about := ""
	if !p.Brief {
		about = fmt.Sprintf(", about %s with warm-up and drain", round(EstimateStep(p.config, next.Rate).Duration))
	}
	fmt.Fprintf(p.w, "%s, %s: %s%s\n", p.load(next.Rate), whyTried(next.Rate, tried), windowText(p.config, next.Rate), about)
}

// whyTried is how a search comes to a rate, behind those tried before.
func whyTried(rate float64, tried []float64) string {
	low, high := 0., math.Inf(1) // the nearest tried
	for _, r := range tried {
		switch {
		case r == rate:
			return "tried again to be sure"
		case r < rate:
			low = max(low, r)
		default:
			high = min(high, r)
		}
	}
	switch {
	case len(tried) == 0:
		return "where the search starts"
	case math.IsInf(high, 1):
		return "doubled until a step fails"
	case low == 0:
		return "halved until a step passes"
	}
	return fmt.Sprintf("between %g and %g", low, high)
}

// windowText says when the window of a step at a rate ends if nothing ends it early. How long it can be at most is said where a
// server that keeps up comes near it, or where no rate is given (0).
func windowText(c measurement.Config, rate float64) string {
	if c.MinTurns == 0 || c.MaxStepSeconds <= c.StepSeconds {
		return "a window of " + span(c.StepSeconds)
	}
	text := fmt.Sprintf("a window until %d turns, at least %s", c.MinTurns, span(c.StepSeconds))
	if need := float64(c.MinTurns) / (rate * float64(c.MeasuredTurns())); need > c.MaxStepSeconds/2 {
		text += " and at most " + span(c.MaxStepSeconds)
	}
	return text
}

// span writes seconds in the shorter of two ways, both of which a flag reads: 90s rather than 1m30s, 5m rather than 300s.
func span(seconds float64) string {
	plain := strconv.FormatFloat(seconds, 'f', -1, 64) + "s"
	text := (time.Duration(seconds * float64(time.Second))).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if len(text) <= len(plain) {
		return text
	}
	return plain
}

// note says what is odd about the workload.
func (p *Progress) note(texts []string) {
	if p == nil {
		return
	}
	for _, text := range texts {
		fmt.Fprintln(p.w, "note: "+text)
	}
}

// StepBegin announces a step.
func (p *Progress) StepBegin(s measurement.Step) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.turns, p.errors = s, 0, 0
	if !p.live && !p.Brief && !p.config.FindKnee { // a search has said it
		fmt.Fprintf(p.w, "%s: about %s; %s in all to come\n", p.load(s.Rate), round(EstimateStep(p.config, s.Rate).Duration), round(p.toCome()))
	}
}

// Turn counts.
func (p *Progress) Turn(t measurement.Turn) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.Turn > 1 && p.step.InWindow(t.Due) && t.Outcome != measurement.NotSent {
		p.turns++
	}
	if t.Outcome.Failed() {
		p.errors++
	}
}

// InFlight notes the calls in progress.
func (p *Progress) InFlight(_ time.Duration, calls, _ int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.calls = calls
	p.mu.Unlock()
}

// StepEnd closes a step; its result follows.
func (p *Progress) StepEnd(measurement.Step) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) > 0 {
		p.left = p.left[1:]
	}
}

func (p *Progress) result(r measurement.StepResult) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	flags := ""
	if len(r.Flags) > 0 {
		flags = " (" + strings.Join(r.Flags, ", ") + ")"
	}
	fmt.Fprintf(p.w, "%s: P95 TTFT %s, hit rate %s, errors %s, %s %s: %s%s\n", p.load(r.Rate), text(r.TTFTP95, "%.0f ms"),
		text(r.CacheHitRate, "%.2f"), text(r.ErrorRate, "%.3f"), p.atOnce(), text(r.LiveCallsMean, "%.1f"), r.Verdict, flags)
}

// atOnce names what goes on at once.
func (p *Progress) atOnce() string {
	if p.config.Lone() {
		return "in flight"
	}
	return "live calls"
}

func text(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// load writes what a step asks.
func (p *Progress) load(rate float64) string {
	calls := "calls"
	if p.config.Lone() {
		calls = measurement.Requests
	}
	if p.config.Arrivals == "closed" {
		return fmt.Sprintf("%g %s at once", rate, calls)
	}
	return fmt.Sprintf("λ %.5g %s/s", rate, calls)
}

// draw renews the live line.
func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clk == nil || len(p.left) == 0 {
		return
	}
	e := EstimateStep(p.config, p.step.Rate)
	elapsed := p.clk.Now() - p.step.Start
	turns, calls := "turns", "calls"
	if p.config.Lone() {
		turns, calls = measurement.Requests, "in flight"
	}
	phase := "warming up"
	if elapsed > p.step.WindowStart-p.step.Start {
		phase = fmt.Sprintf("%d %s", p.turns, turns)
		if p.config.MinTurns > 0 {
			phase = fmt.Sprintf("%d of at least %d %s", p.turns, p.config.MinTurns, turns)
		}
	}
	line := fmt.Sprintf("%s %s: %s, %d %s, %d errors; about %s left", meter(elapsed, e.Duration), p.load(p.step.Rate), phase, p.calls, calls, p.errors,
		round(max(0, p.toCome()-min(elapsed, e.Duration))))
	if p.config.FindKnee {
		line += " of this step"
	}
	if width, _, err := term.GetSize(int(p.w.(*os.File).Fd())); err == nil && width > 10 && len([]rune(line)) >= width {
		line = string([]rune(line)[:width-1])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.drawn = true
}

// meter draws how much of a step has passed.
func meter(elapsed, whole time.Duration) string {
	const width = 12
	n := int(max(0, min(width, width*elapsed/max(1, whole))))
	return "[" + strings.Repeat("#", n) + strings.Repeat("-", width-n) + "]"
}

// clear wipes the live line; mu is held.
func (p *Progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *Progress) toCome() time.Duration {
	var sum time.Duration
	for _, rate := range p.left {
		sum += EstimateStep(p.config, rate).Duration
	}
	return sum
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
