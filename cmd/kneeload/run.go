package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"kneefinder/analysis"
	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/measurement"
)

// steady is a load that lasts until it is stopped.
type steady struct {
	cli.ConfigFile `embed:""`
	endpoint       `embed:""`
	cli.Calls      `embed:""`
	cli.Requests   `embed:""`
	Rate           float64     `help:"Calls/s; without it a --trace is asked at its own speed. In the --config file it can be changed while the load runs: SIGHUP or POST /-/reload reads it again." placeholder:"CALLS/S" group:"steps"`
	Duration       cli.Seconds `help:"How long; by default until the process is told to stop." default:"0s" placeholder:"TIME" group:"steps"`
	Window         cli.Seconds `help:"Of the rolling figures." default:"60s" group:"steps"`
	Label          string      `help:"Name of the load in the metrics." default:"run" group:"steps"`
	SLO            *cli.SLO    `help:"What must hold: a limit for P95 TTFT, or a list such as ttft:p95:300ms,itl:p95:40ms." placeholder:"${default_slo}" group:"steps"`
	MaxCalls       int         `name:"max-concurrent-calls" help:"Calls beyond it are held back." default:"400" group:"steps"`
	Preconnect     bool        `help:"Open the connection for a later turn in the gap before it." default:"true" negatable:"" group:"endpoint"`
	watch          `embed:""`

	begun map[string]any // the configuration file as it was at the start
}

// Help is what run --help says beyond its flags.
func (*steady) Help() string {
	return "The exporter as a service: a constant call rate, and what it feels like, on /metrics and on a live page.\n\nExamples:\n" +
		"  kneeload run --base-url http://127.0.0.1:30000 --rate 0.2\n" +
		"  kneeload run --config run.yaml   # rate: 0.2 in the file; edit it, then kill -HUP\n\n" +
		"Without --web.listen-address it serves 127.0.0.1:9464; :9464 is every address of this machine."
}

// forever is longer than any process lives.
const forever = 100 * 365 * 24 * time.Hour

func (s *steady) Run(ctx context.Context, std cli.Streams) error {
	if time.Duration(s.Duration) < 0 || time.Duration(s.Window) < time.Second {
		return cli.Usage("--duration must not be negative, --window at least 1s")
	}
	w := s.workload()
	if err := cli.CheckRate(s.Rate); err != nil && w.Rates != nil {
		return cli.Usage("--rate: %w", err)
	}
	c, err := w.Config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	s.Rate, c.TraceOnce = c.Rates[0], false
	if _, err := w.Generator(c, 0); err != nil {
		return cli.Usage("%w", err)
	}
	c.Preconnect = s.Preconnect
	c.MinTurns = 0 // nothing waits for a number of them
	if len(s.Listen) == 0 {
		s.Listen = []string{"127.0.0.1:9464"}
	}
	s.begun, _ = cli.Configured(string(s.Config)) // that it can be read has been seen
	clk := clock.NewWall().Fine()
	dial := generator.NewDial(clk, s.Rate)
	nonce, err := s.pickNonce()
	if err != nil {
		return cli.Usage("%w", err)
	}
	say := func(format string, args ...any) { fmt.Fprintf(std.Err, format+"\n", args...) }
	defer s.onHangUp(dial, say)()
	shows, err := s.open(ctx, clk, clk.Started(), shown{label: s.Label, config: c, nonce: nonce, window: time.Duration(s.Window), steady: true,
		reload: func() error { return s.reload(dial, say) }}, std.Err)
	if err != nil {
		return err
	}
	defer func() { shows.close(ctx, err) }()
	to, err := s.connect(ctx, clk, &w, c, nonce, shows.annotate, say)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer to.client.Close()
	header := measurement.Header{Label: s.Label, Tool: "kneeload " + cli.Version, Config: c, Engine: to.engine, Seed: s.Seed,
		Nonce: fmt.Sprintf("%016x", to.nonce), Started: clk.Started().UTC().Format(time.RFC3339Nano)}
	shows.setRun(header)
	err = s.load(ctx, std, to, header, dial, shows)
	return err
}

// workload is the flags of a sweep of one rate. A trace has one of its own.
func (s *steady) workload() cli.Workload {
	w := cli.Workload{Calls: s.Calls, Requests: s.Requests, SLO: s.SLO, MaxConcurrentCalls: &s.MaxCalls}
	if s.Rate != 0 || s.Trace == "" {
		w.Rates = cli.Rates{s.Rate}
	}
	return w
}

// load sends the load until it is over or ctx ends, which is no failure when the load had no end of its own.
func (s *steady) load(ctx context.Context, std cli.Streams, to *connected, header measurement.Header, dial *generator.Dial, shows *watched) error {
	g := to.gen
	g.Dial, g.Warmup, g.MinTurns, g.GiveUp = dial, 0, 0, int(^uint(0)>>1)
	g.StepDuration = time.Duration(s.Duration)
	if s.Duration == 0 {
		g.StepDuration = forever
	}
	g.MaxStepDuration = g.StepDuration
	if s.Preconnect {
		g.Prepare = leadTime
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	wait, err := shows.look(looking, to, func(measurement.EngineSample) {})
	if err != nil {
		return err
	}
	defer func() { stop(); wait() }()
	fmt.Fprintf(std.Err, "λ %g %s/s", dial.Rate(), cmp.Or(header.Config.LoadOf, "calls"))
	if s.Duration > 0 {
		fmt.Fprintf(std.Err, " for %v", time.Duration(s.Duration))
	}
	fmt.Fprintln(std.Err, "; Ctrl-C ends it")
	shows.setState("running")
	kept := &keeper{watched: shows, keep: s.Duration > 0} // a load without an end keeps nothing
	step, err := generator.RunStep(ctx, to.clock, to.to, kept, g, 0, s.Rate)
	to.clock.Wait()
	switch {
	case len(kept.turns) == maxKept:
		fmt.Fprintf(std.Out, "%d turns, %d failed: too many to keep for a summary; the metrics have counted them\n", kept.n, kept.failed)
	case s.Duration > 0 && (err == nil || ctx.Err() != nil):
		step.Rate = kept.meanRate(step)
		r := analysis.AnalyzeStep(header.Config, step, kept.turns, nil)
		analysis.SteadySummary(std.Out, analysis.SoFar(header, []measurement.StepResult{r}))
	case s.Duration == 0:
		fmt.Fprintf(std.Err, "stopped after %v: %d turns, %d failed\n", (to.clock.Now() - step.Start).Round(time.Second), kept.n, kept.failed)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil && s.Duration == 0 {
		return nil
	}
	return err
}

// onHangUp reloads at each SIGHUP until the function that it returns is called. A SIGHUP never ends the process.
func (s *steady) onHangUp(dial *generator.Dial, say func(format string, args ...any)) (stop func()) {
	hups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hups, syscall.SIGHUP)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-hups:
				if err := s.reload(dial, say); err != nil {
					say("warning: %v", err)
				}
			case <-ended:
				return
			}
		}
	})
	return func() {
		signal.Stop(hups)
		close(ended)
		work.Wait()
	}
}

// maxKept is how many turns of a load that has an end are kept for its summary.
const maxKept = 2_000_000

// keeper counts the turns of a load, and keeps them if it has an end.
type keeper struct {
	*watched
	keep bool

	mu        sync.Mutex
	n, failed int
	turns     []measurement.Turn
	turned    []turning
}

// turning is a rate and since when.
type turning struct {
	at   time.Duration
	rate float64
}

func (k *keeper) StepBegin(s measurement.Step) {
	k.watched.StepBegin(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turned = append(k.turned, turning{k.clk.Now(), s.Rate})
}

// meanRate is the rate asked, over the window of a step in which it was turned.
func (k *keeper) meanRate(s measurement.Step) float64 {
	end := s.WindowEnd
	if end < 0 {
		end = k.clk.Now()
	}
	sum := 0.
	for i, t := range k.turned {
		until := end
		if i+1 < len(k.turned) {
			until = min(end, k.turned[i+1].at)
		}
		sum += t.rate * max(0, until-max(t.at, s.WindowStart)).Seconds()
	}
	if span := (end - max(k.turned[0].at, s.WindowStart)).Seconds(); span > 0 {
		return sum / span
	}
	return s.Rate
}

func (k *keeper) Turn(t measurement.Turn) {
	k.watched.Turn(t)
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.Outcome == measurement.NotSent {
		return
	}
	k.n++
	if t.Outcome.Failed() && t.Outcome != measurement.Canceled {
		k.failed++
	}
	if k.keep && len(k.turns) < maxKept {
		t.Gaps = nil // the step has them
		k.turns = append(k.turns, t)
	}
}

// reload reads the rate from the configuration file again, and says which other changes it passes over.
func (s *steady) reload(dial *generator.Dial, say func(format string, args ...any)) error {
	values, err := cli.Configured(string(s.Config))
	if err != nil {
		return fmt.Errorf("reload: %w; the load stays at %g calls/s", err, dial.Rate())
	}
	if was, ok := yamlNumber(s.begun["rate"]); !ok || was != s.Rate {
		return fmt.Errorf("reload: the rate stands on the command line or in the environment, which win over %s; leave it to the file, and it can be changed", s.Config)
	}
	rate, ok := yamlNumber(values["rate"])
	if err := cli.CheckRate(rate); !ok || err != nil {
		return fmt.Errorf("reload: %s: rate: %v must be a number of calls/s from 1e-6 to 1e6; the load stays at %g", s.Config, values["rate"], dial.Rate())
	}
	for _, key := range slices.Sorted(maps.Keys(merged(s.begun, values))) {
		if key != "rate" && !reflect.DeepEqual(s.begun[key], values[key]) {
			say("warning: reload: %s changes %s, which is read at the start alone: only the rate can be changed while the load runs", s.Config, key)
		}
	}
	if was := dial.Rate(); was != rate {
		dial.Turn(rate)
		say("λ %g calls/s, was %g", rate, was)
	}
	return nil
}

// yamlNumber reads what YAML made of one.
func yamlNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func merged(a, b map[string]any) map[string]any {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}
