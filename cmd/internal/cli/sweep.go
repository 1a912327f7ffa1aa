package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"kneefinder/analysis"
	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/measurement"
)

// Sweep is one sweep, wired: who is asked, on which clock, and where it is written.
type Sweep struct {
	Flags     *Workload
	Header    measurement.Header // its Config is what is run
	Generator generator.Config
	Endpoint  generator.Endpoint
	Clock     clock.Clock
	Files     Files
	Log       io.Writer
	RawITL    bool
	Progress  *Progress
	Sample    func(measurement.Step) []measurement.EngineSample // of each step, when it has ended; nil for none

	Watch Watcher // is told what happens; nil for nobody
	// Look reads the other side's metrics, in the background, until ctx ends, and then wait returns; nil for none.
	Look func(ctx context.Context, tell func(measurement.EngineSample)) (wait func(), err error)

	Past  measurement.Log    // what was measured before, if this goes on with a run
	Epoch *measurement.Epoch // how it goes on; nil for a new run
}

// Watcher shows a run while it happens.
type Watcher interface {
	generator.Observer
	StepResult(measurement.StepResult) // of each step that has ended
	Results(measurement.Results)       // what is known of the knee after each step, and in the end
}

// Run runs the sweep in a process of the clock and returns its curve as read back from the log. The files are complete,
// whatever the error: what was measured before it counts.
func (s *Sweep) Run(ctx context.Context) (measurement.Results, error) {
	log := measurement.NewLogWriter(s.Log, s.RawITL)
	done := s.Past.Complete()
	if s.Epoch == nil {
		log.Header(s.Header)
	} else {
		log.Resume(*s.Epoch)
	}
	keep := &collector{clk: s.Clock, log: log, header: s.Header, sample: s.Sample, progress: s.Progress}
	for _, step := range done {
		keep.steps = append(keep.steps, analysis.AnalyzeTurns(s.Header.Config, step, s.Past.Held(), s.Past.Samples))
	}
	s.Progress.skip(len(done))
	s.Progress.note(s.Flags.notes())
	s.Progress.begin(s.Clock, s.Header.Config)
	ctx, cancel := s.Clock.WithCancelCause(ctx)
	defer cancel(nil)
	keep.broken = func(err error) { cancel(err) } // what is not kept need not be measured
	tell := generator.Observers{keep, s.Progress}
	if s.Watch != nil {
		keep.watch = s.Watch
		tell = append(tell, s.Watch)
		for _, r := range keep.steps {
			s.Watch.StepResult(r)
		}
		if len(done) > 0 {
			s.Watch.Results(analysis.SoFar(s.Header, keep.results()))
		}
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	ended := func() {}
	if s.Look != nil {
		wait, err := s.Look(looking, keep.look)
		if err != nil {
			return measurement.Results{}, err
		}
		ended = wait
	}
	err := generator.Sweep(ctx, s.Clock, s.Endpoint, tell, s.Generator, done, s.plan(keep))
	stop()
	ended()
	s.Progress.end()
	log.Flush()
	if logErr := log.Err(); logErr != nil {
		err = fmt.Errorf("write the turn log: %w; the run was stopped", logErr)
	}
	r, fileErr := s.Files.Finish()
	if s.Watch != nil && fileErr == nil {
		s.Watch.Results(r)
	}
	return r, errors.Join(err, fileErr)
}

// plan runs the rates asked for and then those that analysis wants, to have both sides of the knee.
func (s *Sweep) plan(keep *collector) generator.Plan {
	rates := s.Header.Config.Rates
	if s.Header.Config.FindKnee {
		return s.search(keep)
	}
	return func(done []measurement.Step) (none generator.StepPlan, ok bool) {
		steps := keep.results()
		if n := len(steps); s.Flags.StopAfterFail && s.Header.Shard == "" && n > 0 && steps[n-1].Verdict == measurement.Fail {
			return none, false
		}
		if len(done) < len(rates) {
			return generator.StepPlan{Rate: rates[len(done)]}, true
		}
		if !s.Flags.Extends(s.Header.Config) || s.Generator.Closed || s.Header.Shard != "" { // shards must do the same without asking one another
			return none, false
		}
		next, ok := analysis.NextRate(rates, steps, analysis.MaxExtensions)
		if ok {
			s.Progress.extended(next)
		}
		return generator.StepPlan{Rate: next}, ok
	}
}

// search runs the steps that analysis wants until the knee is found.
func (s *Sweep) search(keep *collector) generator.Plan {
	c := s.Header.Config
	return func(done []measurement.Step) (generator.StepPlan, bool) {
		p, ok := analysis.Search(c.Rates[0], c.ConfirmSeconds, keep.results())
		if !ok {
			return generator.StepPlan{}, false
		}
		next := generator.StepPlan{Rate: p.Rate, Doomed: analysis.FailsEarly(c.SLO)}
		window := probeWindow(c, p)
		next.StepDuration = time.Duration(window * float64(time.Second))
		var tried []float64
		for _, step := range done {
			tried = append(tried, step.Rate)
		}
		s.Progress.searching(p, window, tried)
		return next, true
	}
}

// probeWindow is the least window of a search's step, in seconds.
func probeWindow(c measurement.Config, p analysis.Probe) float64 {
	const rough = 60
	switch {
	case p.Confirm:
		return c.ConfirmSeconds
	case p.Rough:
		return min(rough, c.StepSeconds)
	}
	return c.StepSeconds
}

// collector writes the log, and analyses each step when it ends.
type collector struct {
	clk      clock.Clock
	log      *measurement.LogWriter
	header   measurement.Header
	sample   func(measurement.Step) []measurement.EngineSample
	progress *Progress
	watch    Watcher     // nil for nobody
	broken   func(error) // told when the log cannot be written

	mu      sync.Mutex
	turns   measurement.Turns          // of the running step
	samples []measurement.EngineSample // of the running step
	flushed time.Duration
	steps   []measurement.StepResult
}

func (c *collector) StepBegin(s measurement.Step) {
	c.log.StepBegin(s)
	c.checkLog()
	c.mu.Lock()
	c.turns, c.samples = measurement.Turns{}, nil
	c.mu.Unlock()
}

func (c *collector) Turn(t measurement.Turn) {
	c.log.Turn(t)
	c.mu.Lock()
	c.turns.Add(&t) // without the gaps between its tokens, which the step's histograms have
	now := c.clk.Now()
	flush := now-c.flushed > time.Second
	if flush {
		c.flushed = now
	}
	c.mu.Unlock()
	if flush {
		c.log.Flush()
		c.checkLog()
	}
}

func (c *collector) checkLog() {
	if err := c.log.Err(); err != nil {
		c.broken(err)
	}
}

func (c *collector) StepEnd(s measurement.Step) {
	c.log.StepEnd(s)
	c.checkLog()
	if c.sample != nil {
		for _, x := range c.sample(s) {
			c.look(x)
		}
	}
	c.mu.Lock()
	r := analysis.OfShard(c.header.Shard, analysis.AnalyzeTurns(c.header.Config, s, &c.turns, c.samples))
	c.steps = append(c.steps, r)
	c.turns, c.samples = measurement.Turns{}, nil
	c.mu.Unlock()
	c.progress.result(r)
	if c.watch != nil {
		c.watch.StepResult(r)
		c.watch.Results(analysis.SoFar(c.header, c.results()))
	}
}

// look keeps a sample of the other side.
func (c *collector) look(x measurement.EngineSample) {
	c.log.Sample(x)
	c.mu.Lock()
	c.samples = append(c.samples, x)
	c.mu.Unlock()
}

func (c *collector) InFlight(time.Duration, int, int) {}

func (c *collector) results() []measurement.StepResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]measurement.StepResult(nil), c.steps...)
}
