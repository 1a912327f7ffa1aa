package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

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

// server is the flags that name a Prometheus server and what of it to read.
type server struct {
	Prometheus string `placeholder:"URL" help:"Read a Prometheus server instead of files: the runs of kneeload that it scraped, or else the TTFT histograms of SGLang or vLLM."`
	From       string `placeholder:"TIME" help:"With --prometheus: from when on, as 2026-01-31T12:00:00Z."`
	To         string `placeholder:"TIME" help:"With --prometheus: until when."`
	Label      string `placeholder:"NAME" help:"With --prometheus: of one run only, or of one model of an engine."`
}

// curves reads the server.
func (s *server) curves(ctx context.Context, slo []measurement.Objective) ([]measurement.Results, error) {
	var from, to time.Time
	for _, f := range []struct {
		flag, text string
		at         *time.Time
	}{{"--from", s.From, &from}, {"--to", s.To, &to}} {
		var err error
		if *f.at, err = time.Parse(time.RFC3339, f.text); err != nil {
			return nil, cli.Usage("%s %q is no time such as 2026-01-31T12:00:00Z; --prometheus wants both ends of the time to read", f.flag, f.text)
		}
	}
	if !to.After(from) {
		return nil, cli.Usage("--to %s is not after --from %s", s.To, s.From)
	}
	client := &http.Client{Timeout: 2 * time.Minute}
	return importer.Server{URL: s.Prometheus, From: from, To: to, Label: s.Label, Do: client.Do}.Curves(ctx, slo)
}
