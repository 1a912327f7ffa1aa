package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type compare struct {
	Files     []string `arg:"" name:"file" help:"Two or more turn logs (.turns.jsonl) or results (.json), or other tools' result files."`
	Picture   string   `short:"o" name:"output" placeholder:"FILE" help:"Also draw the curves over one another into this file, a PNG or SVG by its name."`
	Price     perRun   `placeholder:"LABEL=DOLLARS" help:"What the run of this label costs, dollars an hour for all its GPUs together: says what a dollar carries, and at which price of another run a dollar carries the same there. For each run once."`
	GPUs      perRun   `name:"gpus" placeholder:"LABEL=N" help:"How many GPUs the run of this label used, a whole number: says what one carries. For each run once."`
	JSON      bool     `name:"json" help:"Print the comparison as JSON instead of text."`
	judging   `embed:""`
	Below     below  `embed:""`
	Regressed string `name:"fail-if-regressed" placeholder:"PERCENT" help:"Exit with 3 when a run's SLO knee is more than this (as 10%) under the first's: when the upper end of its ratio's 95 % interval is, or the ratio itself where that has no upper end."`
	Strict    bool   `help:"With --fail-if-regressed: let the ratio itself decide, whatever its interval."`
}

// Help is what compare --help says beyond its flags.
func (*compare) Help() string {
	return "The first run is the one that the others are measured against. The interval of a ratio of knees comes from the intervals of both, taken as independent.\n\n" +
		"Conditions, for a pipeline: the exit code is 3, and one sentence says why, when one does not hold. A knee that cannot be told meets none.\n\nExamples:\n" +
		"  kneeanalyze compare results/L40S.json results/H100.json -o compare.png\n" +
		"  kneeanalyze compare results/L40S.json results/H100.json --price L40S=0.80 --price H100=2.40 --gpus L40S=1 --gpus H100=1\n" +
		"  kneeanalyze compare results/L40S.json results/H100.json --fail-if-regressed 10% --fail-if-knee-below 0.5"
}

func (c *compare) Run(ctx context.Context, std cli.Streams) error {
	if err := errors.Join(checkPicture(c.Picture), keep(c.Picture, c.Files...)); err != nil {
		return err
	}
	if err := c.Below.check(); err != nil {
		return err
	}
	share, err := c.share()
	if err != nil {
		return err
	}
	rs, names, err := readAll(ctx, c.Files, c.judging)
	if err != nil {
		return err
	}
	if len(rs) < 2 {
		return cli.Usage("compare needs at least two curves; there is one")
	}
	costs, err := c.costs(rs, names)
	if err != nil {
		return err
	}
	comparison, err := analysis.Compare(rs, costs)
	if err != nil {
		return cli.Usage("%w", err)
	}
	var picture bytes.Buffer // drawn before anything is printed: runs that share no axis are refused
	if c.Picture != "" {
		chart := analysis.ChartCompare
		if isSVG(c.Picture) {
			chart = analysis.ChartCompareSVG
		}
		if err := chart(&picture, rs); err != nil {
			return err
		}
	}
	if c.JSON {
		e := json.NewEncoder(std.Out)
		e.SetIndent("", "  ")
		if err := e.Encode(comparison); err != nil {
			return err
		}
	} else {
		comparison.Summary(std.Out)
	}
	if err := draw(c.Picture, std, func(w io.Writer) error {
		_, err := picture.WriteTo(w)
		return err
	}); err != nil {
		return err
	}
	var unmet []string
	if c.Regressed != "" {
		unmet = comparison.Regressed(share, c.Strict)
	}
	return failed(append(unmet, c.Below.unmet(rs[1:])...))
}

// share is the part of the first knee by which others may be lower.
func (c *compare) share() (float64, error) {
	if c.Regressed == "" {
		if c.Strict {
			return 0, cli.Usage("--strict is of --fail-if-regressed, which is missing")
		}
		return 0, nil
	}
	digits, ok := strings.CutSuffix(strings.TrimSpace(c.Regressed), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || !(v >= 0 && v < 100) {
		return 0, cli.Usage("--fail-if-regressed %s: give a percentage such as 10%%", c.Regressed)
	}
	return v / 100, nil
}

// costs are those told by label, given to the runs before labels that occur twice are told apart.
func (c *compare) costs(rs []measurement.Results, names []string) (analysis.Costs, error) {
	var labels []string
	for _, r := range rs {
		labels = append(labels, r.Label)
	}
	tellApart(rs, names)
	of := func(flag string, told map[string]float64) (map[string]float64, error) {
		out := map[string]float64{}
		for _, label := range slices.Sorted(maps.Keys(told)) {
			if !slices.Contains(labels, label) {
				return nil, cli.Usage("%s %s=%g: no run has the label %q; the labels are %s", flag, label, told[label], label, strings.Join(labels, ", "))
			}
			for i, l := range labels {
				if l == label {
					out[rs[i].Label] = told[label]
				}
			}
		}
		return out, nil
	}
	price, err := of("--price", c.Price)
	if err != nil {
		return analysis.Costs{}, err
	}
	gpus, err := of("--gpus", c.GPUs)
	return analysis.Costs{Price: price, GPUs: gpus}, err
}

// perRun are figures told run by run, as LABEL=FIGURE.
type perRun map[string]float64

// Decode takes one of them; it satisfies kong.MapperValue.
func (p *perRun) Decode(ctx *kong.DecodeContext) error {
	var told string
	if err := ctx.Scan.PopValueInto("LABEL=FIGURE", &told); err != nil {
		return err
	}
	at := strings.LastIndex(told, "=") // a label may hold one
	if at <= 0 {
		return fmt.Errorf("%q: give the label of a run, = and a figure, as in L40S=2", told)
	}
	v, err := strconv.ParseFloat(told[at+1:], 64)
	if err != nil {
		return fmt.Errorf("%q: %q is no number", told, told[at+1:])
	}
	if _, twice := (*p)[told[:at]]; twice {
		return fmt.Errorf("%q: the label %q is there twice", told, told[:at])
	}
	if *p == nil {
		*p = perRun{}
	}
	(*p)[told[:at]] = v
	return nil
}

// tellApart adds the file to labels that occur twice, and a number to those that are of one file.
func tellApart(rs []measurement.Results, paths []string) {
	add := func(more func(i, nth int) string) {
		seen, nth := map[string]int{}, map[string]int{}
		for _, r := range rs {
			seen[r.Label]++
		}
		for i := range rs {
			label := rs[i].Label
			if seen[label] > 1 {
				nth[label]++
				rs[i].Label += more(i, nth[label])
			}
		}
	}
	add(func(i, _ int) string { return " (" + paths[i] + ")" })
	add(func(_, nth int) string { return fmt.Sprintf(" #%d", nth) })
}

// below is a condition on SLO knees.
type below struct {
	Least *float64 `name:"fail-if-knee-below" placeholder:"RATE" help:"Exit with 3 when the SLO knee, as estimated where it is, is below this many calls/s (calls at once of a closed loop), or cannot be told; of compare, that of any run but the first."`
}

func (b below) check() error {
	if b.Least != nil && !(*b.Least > 0 && !math.IsInf(*b.Least, 0)) {
		return cli.Usage("--fail-if-knee-below %v: give a load above 0", *b.Least)
	}
	return nil
}

// unmet says of each run that is below, or may be, that it is.
func (b below) unmet(rs []measurement.Results) (out []string) {
	if b.Least == nil {
		return nil
	}
	for _, r := range rs {
		if why := analysis.KneeBelow(r, *b.Least); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// failed is one sentence of all conditions that do not hold; nil when all do.
func failed(unmet []string) error {
	if len(unmet) == 0 {
		return nil
	}
	return cli.NotMet("%s", strings.Join(unmet, "; "))
}

func isSVG(path string) bool { return strings.EqualFold(filepath.Ext(path), ".svg") }

func checkPicture(path string) error {
	if path != "" && !isSVG(path) && !strings.EqualFold(filepath.Ext(path), ".png") {
		return cli.Usage("-o %s: the picture is a PNG or an SVG; give a name that ends in .png or .svg", path)
	}
	return nil
}
