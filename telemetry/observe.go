package telemetry

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// State is what a run is doing.
type State string

// The states of a run.
const (
	Starting    State = "starting"
	Running     State = "running"
	Draining    State = "draining"
	Done        State = "done"
	Interrupted State = "interrupted"
	Failed      State = "failed"
)

var states = []State{Starting, Running, Draining, Done, Interrupted, Failed}

// SetState says what the run is doing now.
func (t *Telemetry) SetState(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = s
}

// SetRun says what is asked, and of whom. It may be called again, when more is known of the other side.
func (t *Telemetry) SetRun(h measurement.Header) {
	objectives := h.Config.SLO
	if len(objectives) == 0 {
		objectives = t.cfg.Objectives
	}
	figures := append(t.limits(objectives), t.runInfo(h))
	t.mu.Lock()
	t.header, t.run = h, figures
	t.mu.Unlock()
	if t.spans != nil {
		t.spans.setRun(h)
	}
}

// StepBegin is told when a step begins, and again when the rate of a running one is turned.
func (t *Telemetry) StepBegin(rec measurement.Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.current.rec.Step == rec.Step {
		t.current.rec.Rate = rec.Rate
		return
	}
	t.settle(rec.Start + settles)
	t.flights = flights{}
	t.current = t.step(rec.Step)
	t.window.begin(rec.Start)
	if t.current == nil {
		return
	}
	t.current.rec, t.current.began = rec, true
}

// StepEnd is told when a step, its drain included, has ended.
func (t *Telemetry) StepEnd(rec measurement.Step) {
	t.mu.Lock()
	t.settle(max(rec.DrainEnd, t.flights.now().at))
	if s := t.step(rec.Step); s != nil {
		s.rec, s.began = rec, true
		s.rec.ITL = nil // nothing here reads it
		s.changes++
		if t.current == s {
			t.current = nil
		}
	}
	t.mu.Unlock()
	if t.spans != nil {
		t.spans.endAll()
	}
}

// Turn is told when a turn has ended, or will never be sent.
func (t *Telemetry) Turn(u measurement.Turn) {
	var e exemplar
	if t.spans != nil {
		e = t.spans.turn(&u)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.window.add(&u)
	if t.genai != nil {
		t.genai.add(&u)
	}
	if s := t.step(u.Step); s != nil {
		t.turn(s, &u, e)
	}
}

// InFlight is told how many calls and turns are in progress from an instant on.
func (t *Telemetry) InFlight(at time.Duration, calls, turns int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flights.tell(flight{at: at, calls: calls, turns: turns})
	t.settle(at - settles)
}

// settle counts the calls that began up to an instant. mu is held.
func (t *Telemetry) settle(upTo time.Duration) {
	t.flights.settle(upTo, func(at time.Duration) {
		t.window.calls.push(at)
		if t.current != nil {
			t.current.calls++
		}
	})
}

// sample counts how many calls are in progress now.
func (t *Telemetry) sample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.live.add(int64(t.flights.now().calls))
	}
}

// StepResult shows the figures of an ended step, to the last bit but for the division of milliseconds by 1,000. A result for
// a step that already has one replaces it.
func (t *Telemetry) StepResult(r measurement.StepResult) {
	figures := t.stepFigures(&r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.step(r.Step); s != nil && !slices.Equal(s.figures, figures) {
		s.changes++
		s.figures = figures
		if !s.began {
			s.rec.Rate = r.Rate
		}
	}
}

// ServerTTFT shows what the server's own metrics said of a step's window: its mean TTFT, and the mean of ttft_sent less that;
// seconds.
func (t *Telemetry) ServerTTFT(step int, mean, sentMinusMean float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.step(step); s != nil {
		s.changes++
		s.server = []figure{{names.StepServerTTFT, s.attrs, mean}, {names.StepTTFTMinus, s.attrs, sentMinusMean}}
	}
}

// Results shows the knees and the certificate of the arrivals, and the figures of the steps. Results may come after each step;
// the last ones stand.
func (t *Telemetry) Results(r measurement.Results) {
	for _, s := range r.Steps {
		t.StepResult(s)
	}
	figures := t.runFigures(&r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results = figures
}

// scrape is whose metrics were scraped, and how that ended.
type scrape struct {
	source string
	ok     bool
}

// CountScrape counts a scrape of somebody else's metrics; source is "engine" or "gpu".
func (t *Telemetry) CountScrape(source string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for outcome, k := range map[string]scrape{"ok": {source, true}, "failed": {source, false}} {
		if t.scrapes[k] == nil { // both begin at 0: no increase is seen of a counter that is born at 1
			t.scrapes[k] = &count{attrs: t.attrs(names.Source, source, names.Outcome, outcome)}
		}
	}
	t.scrapes[scrape{source, ok}].n++
}

// customLabels is what a server that takes them puts on its own metrics.
type customLabels struct {
	RunID string `json:"run_id"`
	Step  string `json:"step"`
	Phase string `json:"phase"`
}

// Annotate adds to a request's headers: traceparent, where calls are traced, with the ids that the turn's span will have; and
// x-custom-labels, where asked for.
func (t *Telemetry) Annotate(h http.Header, step, call, turn int, phase measurement.Phase) {
	if t.spans != nil {
		h.Set("Traceparent", t.spans.traceparent(call, turn))
	}
	if t.cfg.CustomLabels {
		b, err := json.Marshal(customLabels{t.cfg.RunID, strconv.Itoa(step), phase.String()})
		if err != nil {
			panic(err) // three strings always encode
		}
		h.Set("X-Custom-Labels", string(b))
	}
}
