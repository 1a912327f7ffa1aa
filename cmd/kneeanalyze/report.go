package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"kneefinder/analysis/report"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type reporting struct {
	Files  []string `arg:"" name:"file" help:"A turn log (.turns.jsonl), results (.json), or other tools' result files that make one curve."`
	Output string   `short:"o" placeholder:"FILE" help:"Write this file instead of standard output."`
	Format string   `enum:"html,markdown," default:"" placeholder:"html|markdown" help:"html: a page that needs nothing else; markdown: for a pull request. By default what the name of -o ends in, html without one."`

	judging `embed:""`
}

// Help is what report --help says beyond its flags.
func (*reporting) Help() string {
	return "The page is one file without a script or a link: it can be mailed, attached and printed. A turn log gives all of it; results alone leave out how TTFT is distributed and what happened within a step.\n\nExamples:\n" +
		"  kneeanalyze report results/L40S.turns.jsonl -o L40S.html\n  kneeanalyze report results/L40S.turns.jsonl --format markdown"
}

func (p *reporting) Run(ctx context.Context, std cli.Streams) error {
	ext := strings.ToLower(filepath.Ext(p.Output))
	format := p.Format
	switch {
	case format != "":
	case slices.Contains([]string{".md", ".markdown"}, ext):
		format = "markdown"
	case slices.Contains([]string{"", ".html", ".htm"}, ext):
		format = "html"
	default:
		return cli.Usage("-o %s: a report is HTML or Markdown; give a name that ends in .html or .md, or say --format", p.Output)
	}
	if err := keep(p.Output, p.Files...); err != nil {
		return err
	}
	run, err := p.read(ctx)
	if err != nil {
		return err
	}
	write := run.HTML
	if format == "markdown" {
		write = run.Markdown
	}
	if p.Output == "" {
		return write(std.Out)
	}
	if err := measurement.ReplaceFile(p.Output, write); err != nil {
		return err
	}
	_, err = io.WriteString(std.Err, "wrote "+p.Output+"\n")
	return err
}

// read reads a turn log whole, and of other files the one curve that they make.
func (p *reporting) read(ctx context.Context) (report.Run, error) {
	ins, opened := openEach(p.Files)
	if opened == nil && len(ins) == 1 {
		if log, err := ins[0].log(); err == nil {
			log = p.anew(log)
			r, err := analyzed(ins[0], log)
			return report.Run{Source: filepath.Base(ins[0].name), Log: &log, Results: r}, err
		}
	}
	rs, _, err := readEach(ctx, ins, p.judging, opened)
	if err == nil {
		err = p.heeded(rs, strings.Join(p.Files, ", "))
	}
	if err != nil {
		return report.Run{}, err
	}
	if len(rs) != 1 {
		return report.Run{}, cli.Usage("a report is of one curve, and these files make %d: report them one by one, or use kneeanalyze compare", len(rs))
	}
	return report.Run{Source: source(ins), Results: rs[0]}, nil
}

// source names the files that a curve is from: one, or the first of them and how many there are beside it.
func source(ins []input) string {
	first := filepath.Base(ins[0].name)
	switch n := len(ins) - 1; n {
	case 0:
		return first
	case 1:
		return first + " and " + filepath.Base(ins[1].name)
	default:
		return fmt.Sprintf("%s and %d files more", first, n)
	}
}
