package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"kneefinder/analysis"
	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/measurement"
)

type sweep struct {
	cli.ConfigFile `embed:""`
	endpoint       `embed:""`
	cli.Workload   `embed:""`
	cli.Output     `embed:""`
	Preconnect     bool    `help:"Open the connection for a later turn in the gap before it, so that its TTFT holds no dial." default:"true" negatable:"" group:"endpoint"`
	DryRun         bool    `help:"Print the plan and stop: rates, minutes, tokens, dollars." group:"steps"`
	GPUPrice       float64 `name:"gpu-price" help:"Price of the endpoint in dollars an hour, such as 1.40, for --dry-run." placeholder:"DOLLARS" group:"steps"`
	Resume         bool    `help:"Go on with the run of this label behind its last complete step." group:"output"`
	Shard          Shard   `help:"Be shard I of N that send one load together, from 0; each has an equal part of the rates and a log of its own, to be joined by kneeanalyze merge." placeholder:"I/N" group:"steps"`
	watch          `embed:""`
	StartAt        Instant `help:"Begin the first step at this wall time (RFC 3339), for shards to keep together." placeholder:"TIME" group:"steps"`
}

// Shard is a part of a load that several processes send.
type Shard struct{ I, N int }

// UnmarshalText reads "0/4".
func (s *Shard) UnmarshalText(b []byte) error {
	i, n, ok := strings.Cut(string(b), "/")
	var err1, err2 error
	s.I, err1 = strconv.Atoi(i)
	s.N, err2 = strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || s.N < 1 || s.I < 0 || s.I >= s.N {
		return fmt.Errorf("%q is no shard; give I/N with I from 0 to N-1, such as 0/4", b)
	}
	return nil
}

// String is what UnmarshalText reads; empty for no shard.
func (s Shard) String() string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.I, s.N)
}

// Instant is a wall time.
type Instant struct{ time.Time }

// UnmarshalText reads RFC 3339.
func (i *Instant) UnmarshalText(b []byte) error {
	t, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return fmt.Errorf("%q is no time such as 2026-01-31T12:00:00Z", b)
	}
	i.Time = t
	return nil
}

// leadTime is how long before a turn its connection is opened.
const leadTime = 500 * time.Millisecond

func (s *sweep) Run(ctx context.Context, std cli.Streams) error {
	c, err := s.Workload.Config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	if _, err := s.Workload.Generator(c, 0); err != nil {
		return cli.Usage("%w", err)
	}
	if s.GPUPrice < 0 {
		return cli.Usage("--gpu-price %g: must be 0 or more dollars an hour", s.GPUPrice)
	}
	c.Preconnect = s.Preconnect
	s.Hint = ", or go on with it by --resume"
	switch {
	case s.DryRun:
		if s.Label != "" {
			if err := s.Output.Check(); err != nil {
				return err
			}
		}
		return cli.WritePlan(std.Out, c, s.Extends(c), s.GPUPrice)
	case s.Shard.N > 1 && c.Arrivals == "closed":
		return cli.Usage("--shard and --concurrency exclude one another: a closed loop cannot be split")
	case s.Shard.N > 1 && c.FindKnee:
		return cli.Usage("--find-knee and --shard exclude one another: shards cannot agree on the next rate")
	case s.Shard.N > 1 && s.StartAt.IsZero():
		return cli.Usage("--shard needs --start-at, the same for all shards, so that they begin together")
	case s.Shard.N == 0 && !s.StartAt.IsZero():
		return cli.Usage("--start-at is for shards: give --shard I/N too")
	case s.Resume && (s.Overwrite || s.Shard.N > 1):
		return cli.Usage("--resume goes neither with --overwrite nor with --shard")
	case s.Shard.N > 1 && time.Until(s.StartAt.Time) < 0:
		return cli.Usage("--start-at %s is past", s.StartAt.Format(time.RFC3339))
	}
	return s.run(ctx, std, c)
}

func (s *sweep) run(ctx context.Context, std cli.Streams, c measurement.Config) (err error) {
	header := measurement.Header{Label: s.Label, Tool: "kneeload " + cli.Version, Config: c, Seed: s.Seed}
	if s.Shard.N > 1 {
		header.Shard = s.Shard.String()
		s.Label = fmt.Sprintf("%s-%d-of-%d", s.Label, s.Shard.I, s.Shard.N)
	}
	begun, err := s.begin(header)
	if err != nil {
		return err
	}
	defer func() { begun.close() }()
	say := func(format string, args ...any) { fmt.Fprintf(std.Err, format+"\n", args...) }
	nonce, err := s.pickNonce()
	if err != nil {
		return cli.Usage("%w", err)
	}
	shows, err := s.open(ctx, begun.clock, begun.clock.Started(), shown{label: s.Label, config: c, nonce: nonce}, std.Err)
	if err != nil {
		return err
	}
	defer func() { shows.close(ctx, err) }()
	to, err := s.connect(ctx, begun.clock, &s.Workload, c, nonce, shows.annotate, say)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer to.client.Close()
	header.Engine, header.Nonce, header.Started = to.engine, fmt.Sprintf("%016x", to.nonce), begun.started
	if s.Resume {
		header.Started = begun.past.Header.Started
		if err := sameServer(begun.past.Header.Engine, to.engine); err != nil {
			return err
		}
		begun.epoch.Nonce = header.Nonce
		say("going on after %d complete steps", begun.epoch.FromStep)
	} else if begun.files, begun.log, err = s.Output.Open(); err != nil {
		return err
	}
	gen := to.gen
	gen.Process.Shard, gen.Process.Shards = s.Shard.I, s.Shard.N
	gen.MaxConcurrentCalls = max(1, gen.MaxConcurrentCalls/max(1, s.Shard.N))
	if s.Preconnect {
		gen.Prepare = leadTime
	}
	run := cli.Sweep{Flags: &s.Workload, Generator: gen, Endpoint: to.to, Clock: begun.clock, Files: begun.files, Log: begun.log, RawITL: s.RawITL,
		Progress: cli.NewProgress(std.Err), Header: header, Past: begun.past, Epoch: begun.epoch, Watch: shows,
		Look: func(ctx context.Context, tell func(measurement.EngineSample)) (func(), error) {
			return shows.look(ctx, to, tell)
		}}
	shows.setRun(header)
	shows.setState("running")
	r, err := run.Run(ctx)
	begun.clock.Wait()
	files := begun.files
	if len(r.Steps) > 0 {
		analysis.Summary(std.Out, r)
		fmt.Fprintf(std.Out, "Files: %s\n", files.Written())
	}
	if header.Shard != "" {
		fmt.Fprintf(std.Out, "This is shard %s alone: join all of them with kneeanalyze merge.\n", header.Shard)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("interrupted; what was measured so far is in %s (kneeanalyze knee %s, or go on with --resume)", files.Log, files.Log)
	case errors.Is(err, generator.ErrLost):
		return fmt.Errorf("%w: it refused connections; what was measured before is in %s (kneeanalyze knee %s, or go on with --resume)", err, files.Log, files.Log)
	}
	return err
}

// interrupted says of an error that comes of being told to stop before any load was sent just that.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before any load was sent")
	}
	return err
}

// beginning is what a run starts from.
type beginning struct {
	files   cli.Files
	log     *os.File
	clock   *clock.Wall
	started string // RFC 3339
	past    measurement.Log
	epoch   *measurement.Epoch // nil for a new run
}

func (b *beginning) close() {
	if b.log != nil {
		b.log.Close()
	}
}

// sameServer refuses to put the answers of two servers into one curve.
func sameServer(was, is measurement.Engine) error {
	for _, f := range [][3]string{{"base URL", was.BaseURL, is.BaseURL}, {"kind", was.Kind, is.Kind}, {"version", was.Version, is.Version}, {"model", was.Model, is.Model}} {
		if f[1] != f[2] {
			return cli.Usage("--resume: the run was against a server with the %s %q, this one has %q; one curve is of one server", f[0], f[1], f[2])
		}
	}
	return nil
}

// begin opens the log of the run that is gone on with; for a new run it only looks whether there is room.
func (s *sweep) begin(header measurement.Header) (b beginning, err error) {
	if s.Resume {
		if b.files, b.log, b.past, err = s.Output.Reopen(); err != nil {
			return b, err
		}
		if err := cli.SameRun(b.past.Header, header); err != nil {
			b.log.Close()
			return b, err
		}
		at := b.past.End() + time.Second
		b.clock = clock.NewWallAt(time.Now().Add(-at)).Fine()
		b.epoch = &measurement.Epoch{FromStep: len(b.past.Complete()), At: at, Started: time.Now().UTC().Format(time.RFC3339Nano)}
		return b, nil
	}
	if err := s.Output.Check(); err != nil {
		return b, err
	}
	b.clock = clock.NewWall()
	if !s.StartAt.IsZero() {
		b.clock = clock.NewWallAt(s.StartAt.Time)
	}
	b.clock.Fine()
	b.started = b.clock.Started().UTC().Format(time.RFC3339Nano)
	return b, nil
}
