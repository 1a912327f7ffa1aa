package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type merge struct {
	Files     []string `arg:"" name:"file" help:"The turn logs (.turns.jsonl) of all shards of one run, in any order."`
	Output    string   `short:"o" required:"" placeholder:"LOG" help:"The turn log to write (.turns.jsonl)."`
	Overwrite bool     `help:"Replace LOG if it is there."`
}

// Help is what merge --help says beyond its flags.
func (*merge) Help() string {
	return "The shards must have run together: the same settings and seed, and windows no more than a microsecond apart.\n\nExample:\n" +
		"  kneeanalyze merge results/H200-0-of-2.turns.jsonl results/H200-1-of-2.turns.jsonl -o results/H200.turns.jsonl"
}

func (m *merge) Run(ctx context.Context, std cli.Streams) error {
	if !strings.HasSuffix(m.Output, ".turns.jsonl") {
		return cli.Usage("-o %s: a turn log is written; give a name that ends in .turns.jsonl", m.Output)
	}
	if err := keep(m.Output, m.Files...); err != nil {
		return err
	}
	if _, err := os.Stat(m.Output); err == nil && !m.Overwrite {
		return cli.Usage("%s is there already: choose another name, or --overwrite", m.Output)
	}
	logs, err := openAll(ctx, m.Files)
	if err != nil {
		return err
	}
	log, err := analysis.Merge(logs)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	for _, w := range log.Warnings {
		fmt.Fprintln(std.Err, w)
	}
	if err := measurement.ReplaceFile(m.Output, func(w io.Writer) error { return writeLog(w, log) }); err != nil {
		return err
	}
	fmt.Fprintf(std.Err, "wrote %s: %d shards, %d steps, %d turns\n", m.Output, len(logs), len(log.Steps), len(log.Turns))
	return nil
}

// openAll reads every turn log or says, of all that cannot be read, why.
func openAll(ctx context.Context, paths []string) ([]measurement.Log, error) {
	ins, err := openEach(paths)
	errs := []error{err}
	var logs []measurement.Log
	for _, in := range ins {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		log, err := openLog(in)
		errs, logs = append(errs, err), append(logs, log)
	}
	return logs, errors.Join(errs...)
}

// writeLog writes a whole log, step by step.
func writeLog(out io.Writer, log measurement.Log) error {
	raw := slices.ContainsFunc(log.Turns, func(t measurement.Turn) bool { return len(t.Gaps) > 0 })
	w := measurement.NewLogWriter(out, raw)
	w.Header(log.Header)
	for _, s := range log.Steps {
		w.StepBegin(measurement.Step{Step: s.Step, Rate: s.Rate, Start: s.Start, WindowStart: s.WindowStart, WindowEnd: measurement.Never, DrainEnd: measurement.Never})
		for _, t := range log.Turns {
			if t.Step == s.Step {
				w.Turn(t)
			}
		}
		w.StepEnd(s)
	}
	for _, x := range log.Samples {
		w.Sample(x)
	}
	w.Flush()
	return w.Err()
}
