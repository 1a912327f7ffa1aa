package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kneefinder/analysis/export"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type exporting struct {
	File     string      `arg:"" help:"Turn log (.turns.jsonl)."`
	Format   string      `enum:"openmetrics,csv,json,hlog,llm-d" default:"openmetrics" help:"openmetrics: what Prometheus would have scraped; csv, json: the curve; hlog: an HdrHistogram log of the measured turns; llm-d: Benchmark Reports v0.2, one a step, in YAML or by the name of -o in JSON."`
	Interval cli.Seconds `default:"1s" help:"Between the samples of openmetrics; that of your scrapes, so that rates over a few of them have data."`
	StartAt  string      `placeholder:"TIME" help:"Wall time (RFC 3339) of the run's start, for openmetrics; by default the log's own, which a simulated run has not."`
	Output   string      `short:"o" placeholder:"FILE" help:"Write this file instead of standard output; reports for llm-d go into a file a step, with -0, -1, ... before the ending."`
}

// Help is what export --help says beyond its flags.
func (*exporting) Help() string {
	return "Back-fill a finished run into Prometheus, and the dashboards show it as if it had been scraped:\n\n" +
		"  kneeanalyze export results/L40S.turns.jsonl -o L40S.om\n  promtool tsdb create-blocks-from openmetrics L40S.om DATA\n\n" +
		"Reports for llm-d are of one load each; kneeanalyze import reads them together as one curve:\n\n" +
		"  kneeanalyze export results/L40S.turns.jsonl --format llm-d -o reports/L40S.yaml"
}

func (x *exporting) Run(ctx context.Context, std cli.Streams) error {
	if err := keep(x.Output, x.File); err != nil {
		return err
	}
	in, err := open(x.File)
	if err != nil {
		return err
	}
	log, err := openLog(in)
	if err != nil {
		return err
	}
	r, err := analyzed(in, log)
	if err != nil {
		return err
	}
	if x.Format == "llm-d" {
		return x.reports(std, export.BenchmarkReports(log, r))
	}
	write := map[string]func(io.Writer) error{
		"csv":  func(w io.Writer) error { return measurement.WriteCSV(w, r) },
		"json": func(w io.Writer) error { return measurement.WriteResults(w, r) },
		"hlog": func(w io.Writer) error { return measurement.WriteHLog(w, log) },
	}[x.Format]
	if write == nil {
		var start time.Time // the log's own
		var err error
		if x.StartAt != "" {
			start, err = time.Parse(time.RFC3339Nano, x.StartAt)
		}
		_, told := log.Wall(0)
		switch {
		case x.StartAt == "" && !told:
			return cli.Usage("%s tells no wall time, as simulated runs do not: say when it is to have begun with --start-at 2026-01-31T12:00:00Z", x.File)
		case err != nil:
			return cli.Usage("--start-at: %q is no time such as 2026-01-31T12:00:00Z", x.StartAt)
		case time.Duration(x.Interval) < time.Millisecond:
			return cli.Usage("--interval %v: at least 1ms", time.Duration(x.Interval))
		}
		write = func(w io.Writer) error {
			told := &sized{to: w, progress: std.Err, next: sizeStep}
			err := export.OpenMetrics(told, log, r, start, time.Duration(x.Interval))
			if err == nil {
				told.sum(time.Duration(x.Interval), log.End())
			}
			return err
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

// sized tells how much has been written of what may be long, every so often.
type sized struct {
	to       io.Writer
	progress io.Writer
	n, next  int64
}

// sizeStep is the bytes between two lines of progress.
const sizeStep = 256_000_000

// Write passes on.
func (s *sized) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	if s.n += int64(n); s.n >= s.next {
		fmt.Fprintf(s.progress, "%.0f MB written\n", float64(s.next)/1e6)
		s.next += sizeStep
	}
	return n, err
}

// sum says how large all of it is, and what makes it so.
func (s *sized) sum(every, over time.Duration) {
	size := fmt.Sprintf("%.1f MB", float64(s.n)/1e6)
	if s.n >= 1e9 {
		size = fmt.Sprintf("%.2f GB", float64(s.n)/1e9)
	}
	hint := ""
	if s.n >= sizeStep {
		hint = "; a longer --interval, that of your scrapes, makes it smaller"
	}
	fmt.Fprintf(s.progress, "%s of samples, one every %v over %v%s\n", size, every, over.Round(time.Second), hint)
}

// reports writes a report a step: into files, or one behind the other.
func (x *exporting) reports(std cli.Streams, all []export.BenchmarkReport) error {
	if len(all) == 0 {
		return fmt.Errorf("%s holds no complete step to report", x.File)
	}
	ext := filepath.Ext(x.Output)
	asJSON := strings.EqualFold(ext, ".json")
	if x.Output != "" && !asJSON && !slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(ext)) {
		return cli.Usage("-o %s: a Benchmark Report is YAML or JSON; give a name that ends in .yaml or .json", x.Output)
	}
	path := func(b export.BenchmarkReport) string {
		return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(x.Output, ext), b.Step, ext)
	}
	for _, b := range all {
		if err := keep(path(b), x.File); err != nil {
			return err
		}
	}
	for i, b := range all {
		write := b.YAML
		if asJSON {
			write = b.JSON
		}
		if x.Output == "" {
			if i > 0 {
				fmt.Fprintln(std.Out, "---")
			}
			if err := write(std.Out); err != nil {
				return err
			}
			continue
		}
		if err := measurement.ReplaceFile(path(b), write); err != nil {
			return err
		}
		fmt.Fprintln(std.Err, "wrote "+path(b))
	}
	return nil
}
