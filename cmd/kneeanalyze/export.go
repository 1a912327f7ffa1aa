package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"kneefinder/analysis"
	"kneefinder/analysis/export"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type exporting struct {
	File     string      `arg:"" help:"Turn log (.turns.jsonl)."`
	Format   string      `enum:"openmetrics,csv,json,hlog" default:"openmetrics" help:"openmetrics: what Prometheus would have scraped; csv, json: the curve; hlog: an HdrHistogram log of the measured turns."`
	Interval cli.Seconds `default:"1s" help:"Between the samples of openmetrics; that of your scrapes, so that rates over a few of them have data."`
	StartAt  string      `placeholder:"TIME" help:"Wall time (RFC 3339) of the run's start, for openmetrics; by default the log's own, which a simulated run has not."`
	Output   string      `short:"o" placeholder:"FILE" help:"Write this file instead of standard output."`
}

// Help is what export --help says beyond its flags.
func (*exporting) Help() string {
	return "Back-fill a finished run into Prometheus, and the dashboards show it as if it had been scraped:\n\n" +
		"  kneeanalyze export results/L40S.turns.jsonl -o L40S.om\n  promtool tsdb create-blocks-from openmetrics L40S.om DATA"
}

func (x *exporting) Run(ctx context.Context, std cli.Streams) error {
	log, err := measurement.OpenLog(x.File)
	if err != nil {
		return err
	}
	r := analysis.Analyze(log)
	write := map[string]func(io.Writer) error{
		"csv":  func(w io.Writer) error { return measurement.WriteCSV(w, r) },
		"json": func(w io.Writer) error { return measurement.WriteResults(w, r) },
		"hlog": func(w io.Writer) error { return measurement.WriteHLog(w, log) },
	}[x.Format]
	if write == nil {
		began := x.StartAt
		if began == "" {
			began = log.Header.Started
		}
		start, err := time.Parse(time.RFC3339Nano, began)
		switch {
		case began == "":
			return cli.Usage("%s tells no wall time, as simulated runs do not: say when it is to have begun with --start-at 2026-01-31T12:00:00Z", x.File)
		case err != nil:
			return cli.Usage("--start-at: %q is no time such as 2026-01-31T12:00:00Z", began)
		case time.Duration(x.Interval) < time.Millisecond:
			return cli.Usage("--interval %v: at least 1ms", time.Duration(x.Interval))
		}
		write = func(w io.Writer) error {
			return export.OpenMetrics(w, log, r, start, time.Duration(x.Interval))
		}
	}
	if x.Output == "" {
		return write(std.Out)
	}
	if err := measurement.ReplaceFile(x.Output, write); err != nil {
		return err
	}
	fmt.Fprintln(std.Err, "wrote "+x.Output)
	return nil
}
