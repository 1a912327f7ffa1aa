// Kneeanalyze finds the knee of a load curve in files, without an endpoint: it reads what kneeload and kneesim wrote and says
// again, or for the first time after a run that was cut, how much load was good enough, and why no more.
//
//	kneeanalyze knee results/L40S.turns.jsonl
//	kneeanalyze knee results/L40S.turns.jsonl -o L40S.png
//	kneeanalyze knee results/L40S.json --json
//	kneeanalyze knee results/L40S.json --replicas-for 2.5
//	kneeanalyze compare results/L40S.json results/H100.json -o compare.png
//	kneeanalyze compare results/L40S.json results/H100.json --price L40S=0.80 --price H100=2.40
//	kneeanalyze compare results/L40S.json results/H100.json --fail-if-regressed 10% --fail-if-knee-below 0.5
//	kneeanalyze merge results/H200-0-of-2.turns.jsonl results/H200-1-of-2.turns.jsonl -o results/H200.turns.jsonl
//	kneeanalyze export results/L40S.turns.jsonl -o L40S.om
//	kneeanalyze export results/L40S.turns.jsonl --format llm-d -o reports/L40S.yaml
//	kneeanalyze import results/sglang_conc16.jsonl results/sglang_conc128.jsonl -o results/sglang.json
//	kneeanalyze lint results/sglang_conc16.jsonl
//	kneeanalyze knee --prometheus http://127.0.0.1:9090 --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z
//
// knee takes turn logs (.turns.jsonl), which it analyses anew, results (.json), which it shows as they are, and the result files of
// other tools, which it knows by what is in them; runs of one tool at several loads make one curve, and import writes them as
// results. --slo judges turn logs and other tools' files by other objectives; results keep theirs. lint checks whether the figures of a file agree with each other. Analysing a
// run's turn log gives the figures of its results. A file named - is standard input. It prints a sentence or two on each knee, what binds there and what speaks
// for it, then the steps as a table with the meaning of their flags, a certificate of the arrivals (whether calls really were
// sent as a Poisson process, and how late), and warnings of what is doubtful. The knees:
//
//   - The SLO knee is the largest rate that meets the objectives below the first that does not: the number to provision by, for there
//     they were seen to hold. The rate beside it is where the limit is crossed as all steps estimate it, with a
//     95 % interval where it has one: there the objectives hold or fail by chance.
//   - The curvature knee is the elbow of P95 TTFT over the load (Kneedle), wherever the limit is. It is one of the loads tried: runs over
//     different loads do not compare by it, and a run that searched for the SLO knee has none.
//   - Saturation is where completions begin to lag behind arrivals.
//
// What binds is named at the first step that fails: kv_eviction (prefixes were gone when their next turns came), routing (turns went to
// replicas without theirs), kv_capacity (running requests fill the KV pool), long_prompts (they take longer than the limit even alone),
// prefill_compute (the engine's time goes into prompts), queueing_behind_cold_prefill (turns waited for another call's first prompt),
// decode (tokens come slower as the batch grows), engine_limit (the engine runs no more requests at once), client (the generator was late,
// or its cap held calls), errors; or it cannot be told. The engine's own metrics in the log make it surer.
//
// A step is undecided when something about it is doubtful and its objectives hold, or would have held but for the generator's
// own lateness: the flags say what. A step that was cut is undecided whatever it shows, and counts for nothing. compare prints
// the knees of several runs side by side, the ratio of each to the first with a 95 % interval, what a GPU and a dollar carry where
// their numbers and prices are given, which settings of their workloads differ, and whether they were measured alike; it
// draws open-loop and closed-loop runs in no common picture. merge joins the logs of the shards of one run
// (kneeload sweep --shard) into the log that one process sending all the calls would have written, and refuses logs that are
// not that; the most calls live at once are counted anew, from each call's first request to its last answer.
//
// Results go to standard output, everything else to standard error. The exit code is 0 when done, 1 when something failed,
// 2 for wrong usage, and 3 when a condition that was asked for (lint --fail, --fail-if-knee-below, --fail-if-regressed)
// does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
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
	Export     exporting      `cmd:"" help:"Write a run in another form: OpenMetrics to back-fill Prometheus, CSV, JSON, an HdrHistogram log, Benchmark Reports for llm-d."`
	Import     importing      `cmd:"" help:"Make results of other tools' files: SGLang, vLLM, GuideLLM, AIPerf, inference-perf, genai-bench, llm-d, HdrHistogram logs, Vegeta, Fortio, CSV."`
	Report     reporting      `cmd:"" help:"Make a page of a run, or Markdown for a pull request."`
	Lint       lint           `cmd:"" help:"Check whether the figures of a file agree with each other."`
	Completion cli.Completion `cmd:"" help:"Print a script that completes command lines in bash, zsh or fish."`

	Version kong.VersionFlag `help:"Print the version."`
}

const description = `Find the knee of a load curve in files, without an endpoint. A file named - is standard input.

Examples:
  kneeanalyze knee results/L40S.turns.jsonl -o L40S.png
  kneeanalyze compare results/L40S.json results/H100.json -o compare.png
  kneeanalyze merge results/H200-0-of-2.turns.jsonl results/H200-1-of-2.turns.jsonl -o results/H200.turns.jsonl
  kneeanalyze export results/L40S.turns.jsonl -o L40S.om
  kneeanalyze import results/sglang_conc16.jsonl results/sglang_conc128.jsonl -o results/sglang.json
  kneeanalyze lint results/sglang_conc16.jsonl`

func main() {
	// The turns of a long log are one large block that lives to the end; collecting often keeps what is beside it small.
	debug.SetGCPercent(5)
	cli.MainAtOnce(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c commands
	return cli.Run(ctx, &c, "kneeanalyze", description, negatives(args), stdout, stderr)
}

var negative = regexp.MustCompile(`^-[.0-9]`)

// negatives joins a flag and the number below 0 behind it, which would else be taken for another flag: what is wrong with the number is
// said by who knows what it is for.
func negatives(args []string) []string {
	var out []string
	for _, a := range args {
		if n := len(out); n > 0 && negative.MatchString(a) && strings.HasPrefix(out[n-1], "--") && len(out[n-1]) > 2 && !strings.Contains(out[n-1], "=") {
			out[n-1] += "=" + a
			continue
		}
		out = append(out, a)
	}
	return out
}

type knee struct {
	Files   []string `arg:"" optional:"" name:"file" help:"Turn logs (.turns.jsonl), results (.json) or other tools' result files."`
	Picture string   `short:"o" name:"output" placeholder:"FILE" help:"Also draw the curve and its knees into this file, a PNG or SVG by its name; for one curve."`
	JSON    bool     `name:"json" help:"Print the results as JSON instead of text, one document a curve."`

	judging   `embed:""`
	questions `embed:""`
	Below     below `embed:""`
	server    `embed:""`
}

// Help is what knee --help says beyond its flags.
func (*knee) Help() string {
	return "A turn log is analysed anew; results are shown as they are; other tools' files are known by what is in them (kneeanalyze import --help names the tools).\n\nExamples:\n" +
		"  kneeanalyze knee results/L40S.turns.jsonl\n  kneeanalyze knee results/L40S.turns.jsonl -o L40S.png\n  kneeanalyze knee results/L40S.json --json\n" +
		"  kneeanalyze knee results/L40S.json --fail-if-knee-below 0.5\n" +
		"  kneeanalyze knee results/sglang_conc16.jsonl results/sglang_conc128.jsonl --slo ttft:p99:5s\n" +
		"  kneeanalyze knee --prometheus http://127.0.0.1:9090 --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z"
}

func (k *knee) Run(ctx context.Context, std cli.Streams) error {
	if err := errors.Join(checkPicture(k.Picture), keep(k.Picture, k.Files...)); err != nil {
		return err
	}
	if err := errors.Join(k.check(k.JSON), k.Below.check()); err != nil {
		return err
	}
	rs, err := k.read(ctx)
	if err != nil {
		return err
	}
	if k.Picture != "" && len(rs) > 1 {
		return cli.Usage("-o draws one curve and %d are given: use kneeanalyze compare for one picture of several", len(rs))
	}
	var untold []error // of one run, which keeps nothing back of the others
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
		untold = append(untold, k.answer(std, r))
	}
	chart := analysis.Chart
	if isSVG(k.Picture) {
		chart = analysis.ChartSVG
	}
	if err := draw(k.Picture, std, func(w io.Writer) error { return chart(w, rs[0]) }); err != nil {
		return err
	}
	if err := errors.Join(untold...); err != nil {
		return err
	}
	return failed(k.Below.unmet(rs))
}

// read reads the files, or the server.
func (k *knee) read(ctx context.Context) ([]measurement.Results, error) {
	switch {
	case k.Prometheus != "" && len(k.Files) > 0:
		return nil, cli.Usage("--prometheus reads a server, and files are given too: give one or the other")
	case k.Prometheus != "":
		rs, err := k.curves(ctx, k.objectives())
		return rs, errors.Join(err, k.heeded(rs, k.Prometheus))
	case k.From+k.To+k.Label != "":
		return nil, cli.Usage("--from, --to and --label are of --prometheus URL, which is missing")
	case len(k.Files) == 0:
		return nil, cli.Usage("expected \"<file> ...\" or --prometheus URL (see kneeanalyze knee --help)")
	}
	rs, _, err := readAll(ctx, k.Files, k.judging)
	return rs, err
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
