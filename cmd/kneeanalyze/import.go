package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"kneefinder/analysis/importer"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

type importing struct {
	Files  []string `arg:"" name:"file" help:"Result files of other tools; runs at several loads make one curve."`
	SLO    cli.SLO  `help:"What must hold: a limit for P95 TTFT, or a list such as ttft:p99:300ms." default:"300ms" placeholder:"300ms"`
	Output string   `short:"o" placeholder:"JSON" help:"Write this file instead of standard output; several curves go into files with -1, -2, ... before the ending."`
}

// Help is what import --help says beyond its flags.
func (*importing) Help() string {
	return "Read are, by what is in them: " + readable + ".\n\nExamples:\n" +
		"  kneeanalyze import sglang_conc*.jsonl -o sglang.json\n  kneeanalyze import guidellm/benchmarks.json --slo ttft:p99:500ms"
}

const readable = "SGLang bench_serving, vLLM bench serve, InferenceX, GuideLLM, AIPerf (json, jsonl, csv, sweep), inference-perf stages, genai-bench, " +
	"llm-d Benchmark Reports, Vegeta, Fortio, and CSV whose columns name load and percentile with their units (rate_calls_per_s,ttft_p95_ms)"

func (x *importing) Run(ctx context.Context, std cli.Streams) error {
	rs, _, err := readAll(ctx, x.Files, x.SLO)
	if err != nil {
		return err
	}
	if x.Output == "" {
		for _, r := range rs {
			if err := measurement.WriteResults(std.Out, r); err != nil {
				return err
			}
		}
		return nil
	}
	for i, r := range rs {
		path := x.Output
		if len(rs) > 1 {
			ext := filepath.Ext(path)
			path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), i+1, ext)
		}
		if err := measurement.ReplaceFile(path, func(w io.Writer) error { return measurement.WriteResults(w, r) }); err != nil {
			return err
		}
		fmt.Fprintf(std.Err, "wrote %s: %s, %d steps\n", path, r.Label, len(r.Steps))
	}
	return nil
}

// foreignFiles reads files whole.
func foreignFiles(paths []string) ([]importer.File, error) {
	var out []importer.File
	var errs []error
	for _, path := range paths {
		data, err := readWhole(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, importer.File{Name: path, Data: data})
	}
	return out, errors.Join(errs...)
}
