package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kneefinder/cmd/internal/cli"
)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("results", 0o755); err != nil {
		t.Fatal(err)
	}
	writeRun(t, "results", "L40S", 1)
	for _, c := range []struct {
		args string
		file string // "" is standard output
		want []string
	}{
		{"results/L40S.turns.jsonl -o L40S.html", "L40S.html", []string{"<!doctype html>", "L40S.turns.jsonl", "is the highest load tried", "TTFT of every turn"}},
		{"results/L40S.json -o L40S.htm", "L40S.htm", []string{"<!doctype html>", "This report was made from results alone."}},
		{"results/L40S.turns.jsonl", "", []string{"<!doctype html>"}},
		{"results/L40S.turns.jsonl -o L40S.md", "L40S.md", []string{"### L40S", "| λ asked, calls/s |"}},
		{"results/L40S.turns.jsonl --format markdown", "", []string{"### L40S"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := run(context.Background(), append([]string{"report"}, strings.Fields(c.args)...), &stdout, &stderr); err != nil {
			t.Errorf("report %s: %v", c.args, err)
			continue
		}
		got := stdout.String()
		if c.file != "" {
			if b, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || got != "" || stderr.String() != "wrote "+c.file+"\n" {
				t.Errorf("report %s: %v; on stdout %.40q, on stderr %q", c.args, err, got, stderr.String())
			} else {
				got = string(b)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("report %s does not say %q", c.args, want)
			}
		}
	}
	for _, c := range []struct {
		args, want string
		usage      bool
	}{
		{"results/L40S.turns.jsonl -o L40S.png", "give a name that ends in .html or .md", true},
		{"results/L40S.turns.jsonl --format html -o results/L40S.turns.jsonl", "is the file that is read", true},
		{"results/L40S.turns.jsonl results/L40S.json -o x.html", "these files make 2", true},
		{"results/none.turns.jsonl", "no such file", false},
		{"results", "is a folder", false},
	} {
		var stdout, stderr bytes.Buffer
		err := run(context.Background(), append([]string{"report"}, strings.Fields(c.args)...), &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), c.want) || (cli.Code(err) == 2) != c.usage {
			t.Errorf("report %s: %v; want %q", c.args, err, c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("report %s wrote %.60q", c.args, stdout.String())
		}
	}
}

// A curve of several files names the first and how many there are beside it.
func TestReportOfFiles(t *testing.T) {
	files, err := filepath.Glob("../../analysis/importer/testdata/ladder/*.json")
	if err != nil || len(files) != 7 {
		t.Fatal(files, err)
	}
	for n, want := range map[int]string{2: "from stage_0_lifecycle_metrics.json and stage_1_lifecycle_metrics.json<", 7: "from stage_0_lifecycle_metrics.json and 6 files more<"} {
		var stdout, stderr bytes.Buffer
		if err := run(context.Background(), append([]string{"report"}, files[:n]...), &stdout, &stderr); err != nil || !strings.Contains(stdout.String(), want) {
			t.Errorf("%d files: %v, %q is not there", n, err, want)
		}
	}
}
