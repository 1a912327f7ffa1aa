package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"kneefinder/analysis/importer"
	"kneefinder/cmd/internal/cli"
)

type lint struct {
	Files []string `arg:"" name:"file" help:"Result files of any tool, or turn logs and results."`
	Fail  bool     `help:"Exit with 3 when a check is doubtful."`
}

// Help is what lint --help says beyond its flags.
func (*lint) Help() string {
	return "Checks whether the figures of a file agree with each other, load by load: token counts, what ITL and TPOT are, Little's law, the offered rate, failures among the answers. " +
		"A doubtful check says what the figures mean then; it need not be a fault.\n\nExample:\n  kneeanalyze lint results/sglang_conc16.jsonl"
}

func (l *lint) Run(ctx context.Context, std cli.Streams) error {
	files, err := foreignFiles(l.Files)
	if err != nil {
		return err
	}
	doubtful := 0
	for i, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		checks, found, err := importer.Lint(f)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(std.Out)
		}
		fmt.Fprintf(std.Out, "%s: %s\n", f.Name, found.Kind)
		n := printChecks(std.Out, checks)
		untold := 0
		for _, c := range checks {
			if c.Outcome == importer.Untold {
				untold++
			}
		}
		fmt.Fprintf(std.Out, "of %d checks %d are doubtful and %d cannot be made\n", len(checks), n, untold)
		doubtful += n
	}
	if l.Fail && doubtful > 0 {
		return cli.NotMet("%d checks are doubtful", doubtful)
	}
	return nil
}

// printChecks writes a table for each load and returns how many checks are doubtful.
func printChecks(w io.Writer, checks []importer.Check) (doubtful int) {
	load := ""
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		if at := c.Load + " (" + c.At + ")"; at != load {
			load = at
			fmt.Fprintf(t, "%s\n", load)
		}
		figures := c.Figures
		switch c.Outcome {
		case importer.Untold:
			figures = cmp.Or(figures, "not in the file")
		case importer.Doubtful:
			doubtful++
			figures += ": " + c.Says
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", c.Outcome, c.Name, figures)
	}
	_ = t.Flush()
	return doubtful
}
