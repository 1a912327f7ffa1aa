// Kneeanalyze finds the knee of a load curve in files, without an endpoint: it reads what kneeload and kneesim wrote and says
// again, or for the first time after a run that was cut, how much load was good enough, and why no more.
//
//	kneeanalyze knee results/L40S.turns.jsonl
//	kneeanalyze knee results/L40S.turns.jsonl -o L40S.png
//	kneeanalyze knee results/L40S.json --json
//	kneeanalyze compare results/L40S.json results/H100.json -o compare.png
//	kneeanalyze merge results/H200-0-of-2.turns.jsonl results/H200-1-of-2.turns.jsonl -o results/H200.turns.jsonl
//	kneeanalyze export results/L40S.turns.jsonl -o L40S.om
//	kneeanalyze import sglang_conc16.jsonl sglang_conc128.jsonl -o results/sglang.json
//	kneeanalyze lint sglang_conc16.jsonl
//
// knee takes turn logs (.turns.jsonl), which it analyses anew, results (.json), which it shows as they are, and the result files of
// other tools, which it knows by what is in them; runs of one tool at several loads make one curve, and import writes them as
// results. lint checks whether the figures of a file agree with each other. Analysing a
// run's turn log gives the figures of its results. It prints a sentence or two on each knee, what binds there and what speaks
// for it, then the steps as a table with the meaning of their flags, a certificate of the arrivals (whether calls really were
// sent as a Poisson process, and how late), and warnings of what is doubtful. The knees:
//
//   - The SLO knee is the largest rate that meets the objectives below the first that does not: the number to provision against.
//     The interpolated rate beside it, at most the first rate that fails, is where the curve itself crosses the limit, with a
//     95 % interval where it has one.
//   - The curvature knee is the elbow of P95 TTFT over the load (Kneedle), wherever the limit is.
//   - Saturation is where completions begin to lag behind arrivals.
//
// A step is undecided when something about it is doubtful and its objectives hold, or would have held but for the generator's
// own lateness: the flags say what. A step that was cut is undecided whatever it shows, and counts for nothing. compare prints
// the knees of several runs side by side, which settings of their workloads differ, and whether they were measured alike; it
// draws open-loop and closed-loop runs in no common picture. merge joins the logs of the shards of one run
// (kneeload sweep --shard) into the log that one process sending all the calls would have written, and refuses logs that are
// not that; the most calls live at once are counted anew, from each call's first request to its last answer.
//
// Results go to standard output, everything else to standard error. The exit code is 0 when done, 1 when something failed and
// 2 for wrong usage.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type commands struct {
	Knee       knee           `cmd:"" help:"Find the knee in turn logs and results."`
	Compare    compare        `cmd:"" help:"Put the knees of several runs side by side."`
	Merge      merge          `cmd:"" help:"Join the turn logs of the shards of one run."`
	Export     exporting      `cmd:"" help:"Write a run in another form: OpenMetrics to back-fill Prometheus, CSV, JSON, an HdrHistogram log."`
	Import     importing      `cmd:"" help:"Make results of other tools' files: SGLang, vLLM, GuideLLM, AIPerf, inference-perf, genai-bench, llm-d, Vegeta, Fortio, CSV."`
	Lint       lint           `cmd:"" help:"Check whether the figures of a file agree with each other."`
	Completion cli.Completion `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`

	Version kong.VersionFlag `help:"Print the version."`
}

const description = `Find the knee of a load curve in files, without an endpoint.

Examples:
  kneeanalyze knee results/L40S.turns.jsonl -o L40S.png
  kneeanalyze compare results/L40S.json results/H100.json -o compare.png
  kneeanalyze merge results/H200-0-of-2.turns.jsonl results/H200-1-of-2.turns.jsonl -o results/H200.turns.jsonl
  kneeanalyze export results/L40S.turns.jsonl -o L40S.om`

func main() { cli.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneeanalyze", description, args, stdout, stderr)
}

type knee struct {
	Files []string `arg:"" name:"file" help:"Turn logs (.turns.jsonl), results (.json) or other tools' result files."`
	PNG   string   `short:"o" name:"output" placeholder:"PNG" help:"Also draw the curve and its knees into this file; for one FILE."`
	JSON  bool     `name:"json" help:"Print the results as JSON instead of text, one document a curve."`
	SLO   cli.SLO  `help:"What the files of other tools are judged by; runs of ours keep their own objectives." default:"300ms" placeholder:"300ms"`
}

// Help is what knee --help says beyond its flags.
func (*knee) Help() string {
	return "A turn log is analysed anew; results are shown as they are.\n\nExamples:\n" +
		"  kneeanalyze knee results/L40S.turns.jsonl\n  kneeanalyze knee results/L40S.turns.jsonl -o L40S.png\n  kneeanalyze knee results/L40S.json --json"
}

func (k *knee) Run(ctx context.Context, std cli.Streams) error {
	if err := checkPNG(k.PNG); err != nil {
		return err
	}
	rs, _, err := readAll(ctx, k.Files, k.SLO)
	if err != nil {
		return err
	}
	if k.PNG != "" && len(rs) > 1 {
		return cli.Usage("-o draws one curve and %d are given: use kneeanalyze compare for one picture of several", len(rs))
	}
	for i, r := range rs {
		if k.JSON {
			if err := measurement.WriteResults(std.Out, r); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(std.Out)
		}
		analysis.Summary(std.Out, r)
	}
	return draw(k.PNG, std, func(w io.Writer) error { return analysis.Chart(w, rs[0]) })
}

type compare struct {
	Files []string `arg:"" name:"file" help:"Two or more turn logs (.turns.jsonl) or results (.json), or other tools' result files."`
	PNG   string   `short:"o" name:"output" placeholder:"PNG" help:"Also draw the curves over one another into this file."`
	SLO   cli.SLO  `help:"What the files of other tools are judged by; runs of ours keep their own objectives." default:"300ms" placeholder:"300ms"`
}

// Help is what compare --help says beyond its flags.
func (*compare) Help() string {
	return "The first run is the one that the others are measured against.\n\nExample:\n  kneeanalyze compare results/L40S.json results/H100.json -o compare.png"
}

func (c *compare) Run(ctx context.Context, std cli.Streams) error {
	if err := checkPNG(c.PNG); err != nil {
		return err
	}
	rs, names, err := readAll(ctx, c.Files, c.SLO)
	if err != nil {
		return err
	}
	if len(rs) < 2 {
		return cli.Usage("compare needs at least two curves; there is one")
	}
	tellApart(rs, names)
	var picture bytes.Buffer // drawn before anything is printed: runs that share no axis are refused
	if c.PNG != "" {
		if err := analysis.ChartCompare(&picture, rs); err != nil {
			return err
		}
	}
	analysis.CompareSummary(std.Out, rs)
	return draw(c.PNG, std, func(w io.Writer) error {
		_, err := picture.WriteTo(w)
		return err
	})
}

// tellApart adds the file to labels that occur twice.
func tellApart(rs []measurement.Results, paths []string) {
	seen := map[string]int{}
	for _, r := range rs {
		seen[r.Label]++
	}
	for i := range rs {
		if seen[rs[i].Label] > 1 {
			rs[i].Label += " (" + paths[i] + ")"
		}
	}
}

func checkPNG(path string) error {
	if path != "" && !strings.EqualFold(filepath.Ext(path), ".png") {
		return cli.Usage("-o %s: the picture is a PNG; give a name that ends in .png", path)
	}
	return nil
}

// draw writes the picture, if one is wanted, and says so.
func draw(path string, std cli.Streams, chart func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	if err := measurement.ReplaceFile(path, chart); err != nil {
		return err
	}
	fmt.Fprintf(std.Err, "drew %s\n", path)
	return nil
}
