package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/measurement"
)

type sweep struct {
	cli.ConfigFile `embed:""`
	endpoint       `embed:""`
	cli.Workload   `embed:""`
	cli.Output     `embed:""`
	DryRun         bool    `help:"Print the plan and stop: rates, minutes, tokens, dollars." group:"steps"`
	GPUPrice       float64 `name:"gpu-price" help:"Price of the endpoint in dollars an hour, for --dry-run." placeholder:"1.40" group:"steps"`
}

func (s *sweep) Run(ctx context.Context, std cli.Streams) error {
	c, err := s.Workload.Config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	if _, err := cli.Generator(c, s.Seed, 0); err != nil {
		return cli.Usage("%w", err)
	}
	if s.DryRun {
		return cli.WritePlan(std.Out, c, s.GPUPrice)
	}
	return s.run(ctx, std, c)
}

func (s *sweep) run(ctx context.Context, std cli.Streams, c measurement.Config) error {
	files, log, err := s.Output.Open()
	if err != nil {
		return err
	}
	defer log.Close()
	say := func(format string, args ...any) { fmt.Fprintf(std.Err, format+"\n", args...) }
	to, err := s.connect(ctx, c, s.Seed, say)
	if err != nil {
		files.RemoveLog()
		return err
	}
	defer to.client.Close()
	run := cli.Sweep{Flags: &s.Workload, Generator: to.gen, Endpoint: to.client, Clock: to.clock, Files: files, Log: log, RawITL: s.RawITL,
		Progress: cli.NewProgress(std.Err),
		Header: measurement.Header{Label: s.Label, Tool: "kneeload " + cli.Version, Started: to.clock.Started().UTC().Format(time.RFC3339),
			Config: c, Engine: to.engine, Seed: s.Seed, Nonce: fmt.Sprintf("%016x", to.nonce)}}
	r, err := run.Run(ctx)
	to.clock.Wait()
	if len(r.Steps) > 0 {
		analysis.Summary(std.Out, r)
		fmt.Fprintf(std.Out, "Files: %s, %s, %s, %s\n", files.Log, files.JSON, files.CSV, files.PNG)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; what was measured so far is in %s (kneeanalyze knee %s)", files.Log, files.Log)
	case errors.Is(err, generator.ErrLost):
		return fmt.Errorf("%w: it refused connections; what was measured before is in %s (kneeanalyze knee %s)", err, files.Log, files.Log)
	}
	return err
}
