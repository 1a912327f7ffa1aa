// Package page is a web page that shows a run while it happens: what is measured, the knee so far, the steps, and live charts on one
// time axis. It needs no other server, no asset and no JavaScript; where there is JavaScript the page follows by server-sent events.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// The states of a run, as SetState takes them.
const (
	Starting    = "starting"
	Running     = "running"
	Draining    = "draining"
	Done        = "done"
	Interrupted = "interrupted"
	Failed      = "failed"
)

// Config says what the page is of.
type Config struct {
	Clock      clock.Clock             // the run's; a new wall clock when nil
	Started    time.Time               // wall time at the clock's instant 0; not shown when zero
	Label      string                  // of the run
	Title      string                  // of the page; "kneeload" when empty
	Objectives []measurement.Objective // as SetRun's when nil
	Window     time.Duration           // that the rolling figures are of; 30 s when 0
	Steady     bool                    // one load without an end whose rate may be turned: no knee, no steps, but totals since the start
	Version    string                  // of the tool
	Links      []Link                  // at the page's foot
}

// Link leads from the page to another.
type Link struct {
	Text string
	Href string // may be relative to the page
}

// Page is told what happens in a run, as a generator's observer is, and serves it. Its methods may be called by any goroutine; none waits
// for a client. What it keeps is bounded, however long the run. Records handed to it must not change afterwards.
type Page struct {
	cfg    Config
	policy string // the header that allows this page's own style and script, and nothing else

	tick    time.Duration // between events
	stall   time.Duration // a client that takes none of what it is sent for so long is dropped
	clients atomic.Int32
	version atomic.Int64 // grows with what must be seen at once

	flight flight

	mu      sync.Mutex
	run     measurement.Header
	state   string
	ended   time.Duration // when the state became final; Never before
	steps   []step
	begun   int // the number of the newest step; -1 before
	dropped int // of steps
	marks   []mark
	results measurement.Results
	ring    ring
	totals  totals
	scrapes []scraped
	moments []moment // advance's buffer

	drawing sync.Mutex
	frame   *frame // the last one drawn; drawing guards it
}

const (
	maxSteps   = 100 // rows of the table; older ones leave
	maxMarks   = 400 // changes of the rate
	maxClients = 64  // streams at once
	maxSources = 8   // of samples
)

// step is a row of the table.
type step struct {
	number      int
	rate        float64
	start       time.Duration
	windowStart time.Duration
	end         time.Duration // Never while it runs
	turns       int           // measured ones so far
	drains      bool          // a turn has been due after its window: no more calls arrive
	result      *measurement.StepResult
}

// totals are what has been counted since the start.
type totals struct {
	ended          int // turns that were sent and have ended, drains included
	outcomes       map[measurement.Outcome]int
	later, held    int // turns 2.. that count for the objective, and those that held it
	all, failed    int // turns of every number that count for errors
	prompt, cached int // tokens of turns 2.., where both are known
}

// scraped is what became of the looks at a source's own metrics.
type scraped struct {
	source       string
	read, failed int
	lately       uint8 // of the last eight looks, a bit for each that failed, the newest lowest
}

// mark is an instant at which λ asked became rate; 0 when a step has ended.
type mark struct {
	at   time.Duration
	step int
	rate float64
}

// flight is what InFlight told, until it is taken. It has a lock of its own, so that telling waits for nothing that takes time.
type flight struct {
	sync.Mutex
	last moment
	log  []moment // since it was last taken, one a second
}

// moment is what was in progress as of an instant.
type moment struct {
	at           time.Duration
	calls, turns int
	begun        int // calls begun since the moment before
}

const maxMoments = 1024 // more than the seconds between two turns' ends, or else the first of them are lost

//go:embed style.css
var style string

//go:embed live.js
var script string

// New returns a page of a run that is starting.
func New(cfg Config) *Page {
	if cfg.Clock == nil {
		cfg.Clock = clock.NewWall()
	}
	if cfg.Title == "" {
		cfg.Title = "kneeload"
	}
	if cfg.Window <= 0 {
		cfg.Window = 30 * time.Second
	}
	p := &Page{cfg: cfg, state: Starting, ended: measurement.Never, begun: -1, tick: time.Second, stall: 10 * time.Second}
	p.flight.last.at = measurement.Never
	p.totals.outcomes = map[measurement.Outcome]int{}
	p.ring.init(cfg.Clock.Now(), cfg.Window)
	p.policy = "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
	return p
}

// hash allows one inline text in a Content-Security-Policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// SetRun tells what was asked for, and of whom.
func (p *Page) SetRun(h measurement.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	p.run = h
}

// SetState tells the state of the run, one of the constants. After a final one time stands still on the page.
func (p *Page) SetState(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	now := p.advance()
	final := state == Done || state == Interrupted || state == Failed
	switch {
	case final && p.ended < 0:
		p.ended = now
	case !final:
		p.ended = measurement.Never
	}
	p.state = state
}

// StepBegin is generator.Observer's: a step begins, or, with the same number, its rate is turned.
func (p *Page) StepBegin(s measurement.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	now := p.advance()
	p.mark(mark{at: now, step: s.Step, rate: s.Rate})
	if p.ring.asked = s.Rate; p.begun != s.Step {
		p.begun = s.Step
		p.ring.begin(now)
	}
	if row := p.row(s.Step); row != nil {
		row.rate, row.end = s.Rate, measurement.Never
		return
	}
	p.add(step{number: s.Step, rate: s.Rate, start: s.Start, windowStart: s.WindowStart, end: measurement.Never})
}

// StepEnd is generator.Observer's: the last call of a step has ended.
func (p *Page) StepEnd(s measurement.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	now := p.advance()
	stopped := now // arrivals end with the window; the rest was the drain
	if s.WindowEnd >= 0 {
		stopped = min(s.WindowEnd, now)
	}
	p.mark(mark{at: stopped, step: s.Step})
	p.ring.stopped(stopped)
	if row := p.row(s.Step); row != nil {
		row.end = now
	}
}

// Turn is generator.Observer's: a turn has ended, or will never be sent.
func (p *Page) Turn(t measurement.Turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.advance()
	p.totals.outcomes[t.Outcome]++
	if t.Outcome != measurement.NotSent && t.Outcome != measurement.Shed {
		p.totals.ended++
	}
	row := p.row(t.Step)
	if t.Phase == measurement.Drain && row != nil && row.end < 0 && !row.drains { // nothing else tells that the window has ended
		row.drains = true
		p.ring.stopped(min(t.Due, now))
	}
	if !t.Rolls() {
		return
	}
	p.ring.turn(now, &t, p.limit())
	p.totals.add(&p.ring.recent[(p.ring.n-1)%maxRecent])
	if t.Turn > 1 && t.Phase == measurement.Window && row != nil {
		row.turns++
	}
}

func (s *totals) add(e *ended) {
	s.all++
	if e.failed {
		s.failed++
	}
	if !e.later {
		return
	}
	s.later++
	if e.held {
		s.held++
	}
	s.prompt += e.prompt
	s.cached += e.cached
}

// limit is the one of the first objective of TTFT, in ms; +Inf without one. mu is held.
func (p *Page) limit() float64 {
	if o, ok := firstTTFT(p.objectives()); ok {
		return o.LimitMS
	}
	return math.Inf(1)
}

// objectives are what must hold; mu is held.
func (p *Page) objectives() []measurement.Objective {
	if p.cfg.Objectives != nil {
		return p.cfg.Objectives
	}
	return p.run.Config.SLO
}

func firstTTFT(of []measurement.Objective) (o measurement.Objective, ok bool) {
	i := slices.IndexFunc(of, func(o measurement.Objective) bool { return o.Metric == "ttft" })
	if i < 0 {
		return o, false
	}
	return of[i], true
}

// InFlight is generator.Observer's: so many calls and turns are in progress. Of two that are told in another order than they happened the
// later one stands.
func (p *Page) InFlight(at time.Duration, calls, turns int) {
	f := &p.flight
	f.Lock()
	defer f.Unlock()
	if at < f.last.at {
		return
	}
	begun := max(calls-f.last.calls, 0)
	f.last = moment{at: at, calls: calls, turns: turns}
	if n := len(f.log); n > 0 && f.log[n-1].at/time.Second == at/time.Second {
		begun += f.log[n-1].begun
		f.log = f.log[:n-1]
	} else if n == maxMoments {
		f.log = slices.Delete(f.log, 0, 1)
	}
	f.log = append(f.log, moment{at: at, calls: calls, turns: turns, begun: begun})
}

// take hands over what was told since the last take, in the given buffer.
func (f *flight) take(into []moment) []moment {
	f.Lock()
	defer f.Unlock()
	into = append(into[:0], f.log...)
	f.log = f.log[:0]
	return into
}

// StepResult tells the figures of an ended step; a step that is not known yet, of a run that is gone on with, is added.
func (p *Page) StepResult(r measurement.StepResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	p.advance()
	p.result(r)
}

// Results tells the knees so far, what binds and what is doubtful, and the figures of its steps.
func (p *Page) Results(r measurement.Results) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.version.Add(1)
	p.advance()
	for _, s := range r.Steps {
		p.result(s)
	}
	p.results = r
}

// Scrape tells of a look at somebody else's metrics, and whether they could be read; source is "engine" or "gpu".
func (p *Page) Scrape(source string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.scrapes, func(s scraped) bool { return s.source == source })
	if i < 0 {
		if len(p.scrapes) == maxSources {
			return
		}
		i = len(p.scrapes)
		p.scrapes = append(p.scrapes, scraped{source: source})
	}
	s := &p.scrapes[i]
	s.lately <<= 1
	if ok {
		s.read++
		return
	}
	s.failed++
	s.lately |= 1
}

// Sample tells figures of the engine or of its GPUs. Charts of them appear with the first. After the run's end it does nothing.
func (p *Page) Sample(s measurement.EngineSample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended >= 0 {
		return
	}
	now := p.advance()
	p.ring.sample(now, &s)
}

// advance closes the buckets that have ended and says what time it is on the page; mu is held.
func (p *Page) advance() time.Duration {
	now := p.cfg.Clock.Now()
	if p.ended >= 0 {
		now = min(now, p.ended)
	}
	p.moments = p.flight.take(p.moments)
	for _, m := range p.moments {
		p.ring.advance(min(m.at, now))
		p.ring.calls, p.ring.turns = m.calls, m.turns
		p.ring.open.begun += m.begun
	}
	p.ring.advance(now)
	return now
}

func (p *Page) row(number int) *step {
	for i := len(p.steps) - 1; i >= 0; i-- { // the newest is asked for most
		if p.steps[i].number == number {
			return &p.steps[i]
		}
	}
	return nil
}

func (p *Page) add(s step) *step {
	if len(p.steps) == maxSteps {
		p.steps = slices.Delete(p.steps, 0, 1)
		p.dropped++
	}
	p.steps = append(p.steps, s)
	return &p.steps[len(p.steps)-1]
}

func (p *Page) mark(m mark) {
	if len(p.marks) == maxMarks {
		p.marks = slices.Delete(p.marks, 0, 1)
	}
	p.marks = append(p.marks, m)
}

func (p *Page) result(r measurement.StepResult) {
	row := p.row(r.Step)
	if row == nil {
		row = p.add(step{number: r.Step, start: measurement.Never, windowStart: measurement.Never, end: 0})
	}
	row.rate, row.result = r.Rate, &r
	if row.end < 0 {
		row.end = p.cfg.Clock.Now()
	}
}
