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
	Files  []string  `arg:"" name:"file" help:"Result files of other tools; runs at several loads make one curve."`
	Rates  []float64 `placeholder:"2,3,4" help:"For an HdrHistogram log, which knows no load: that of each of its intervals in their order, calls/s."`
	Output string    `short:"o" placeholder:"JSON" help:"Write this file instead of standard output; several curves go into files with -1, -2, ... before the ending."`

	judging `embed:""`
}

// Help is what import --help says beyond its flags.
func (*importing) Help() string {
	return "Read are, by what is in them: " + readable + ".\n\nExamples:\n" +
		"  kneeanalyze import results/sglang_conc16.jsonl results/sglang_conc128.jsonl -o results/sglang.json\n  kneeanalyze import results/sglang_conc16.jsonl results/sglang_conc128.jsonl --slo ttft:p99:5s\n" +
		"  kneeanalyze import results/L40S.hlog --rates 0.25,0.5,0.75,1,1.25,1.5"
}

const readable = "SGLang bench_serving, vLLM bench serve, InferenceX, GuideLLM, AIPerf (json, jsonl, csv, sweep), inference-perf stages, genai-bench, " +
	"llm-d Benchmark Reports, HdrHistogram logs (with --rates), Vegeta, Fortio, and CSV whose columns name load and percentile with their units (rate_calls_per_s,ttft_p95_ms)"

func (x *importing) Run(ctx context.Context, std cli.Streams) error {
	if err := keep(x.Output, x.Files...); err != nil {
		return err
	}
	rs, err := x.read(ctx)
	if err != nil {
		return err
	}
	if x.Output == "" {
		for _, r := range rs {
			if err := measurement.WriteResults(std.Out, r); err != nil {
				return err
			}
			fmt.Fprintf(std.Err, "printed %s, %s, as JSON; -o FILE writes it to a file\n", r.Label, steps(len(r.Steps)))
		}
		return nil
	}
	path := func(i int) string {
		if len(rs) == 1 {
			return x.Output
		}
		ext := filepath.Ext(x.Output)
		return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(x.Output, ext), i+1, ext)
	}
	for i := range rs {
		if err := keep(path(i), x.Files...); err != nil {
			return err
		}
	}
	for i, r := range rs {
		path := path(i)
		if err := measurement.ReplaceFile(path, func(w io.Writer) error { return measurement.WriteResults(w, r) }); err != nil {
			return err
		}
		fmt.Fprintf(std.Err, "wrote %s: %s, %s\n", path, r.Label, steps(len(r.Steps)))
	}
	return nil
}

// steps counts them.
func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// read reads the files; with rates, the one HdrHistogram log whose intervals they are of.
func (x *importing) read(ctx context.Context) ([]measurement.Results, error) {
	if x.Rates == nil {
		rs, _, err := readAll(ctx, x.Files, x.judging)
		return rs, err
	}
	if len(x.Files) > 1 {
		return nil, cli.Usage("--rates is for one HdrHistogram log, and %d files are given", len(x.Files))
	}
	files, err := foreignFiles(x.Files)
	if err != nil {
		return nil, err
	}
	if !importer.IsHDRLog(files[0].Data) {
		return nil, cli.Usage("--rates is for an HdrHistogram log, which %s is not", files[0].Name)
	}
	r, err := importer.HDRLog(files[0], x.Rates, x.objectives())
	return []measurement.Results{r}, err
}

// foreignFiles reads files whole.
func foreignFiles(paths []string) ([]importer.File, error) {
	ins, err := openEach(paths)
	errs := []error{err}
	var out []importer.File
	for _, in := range ins {
		data, err := in.whole()
		errs = append(errs, err)
		out = append(out, importer.File{Name: in.name, Data: data})
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
