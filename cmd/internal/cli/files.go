package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// Files are the files of one label.
type Files struct{ Log, JSON, CSV, PNG string }

// Open makes the files' folder, refuses a label that exists, and opens the turn log.
func (o Output) Open() (Files, *os.File, error) {
	if o.Label == "" || strings.ContainsAny(o.Label, `/\`) || strings.HasPrefix(o.Label, ".") {
		return Files{}, nil, Usage("--label %q: give the run a name that can be a file's, such as L40S", o.Label)
	}
	base := filepath.Join(o.Out, o.Label)
	f := Files{Log: base + ".turns.jsonl", JSON: base + ".json", CSV: base + ".csv", PNG: base + ".png"}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return f, nil, fmt.Errorf("make the folder of the results: %w", err)
	}
	for _, path := range []string{f.Log, f.JSON, f.CSV, f.PNG} {
		_, err := os.Lstat(path)
		if err == nil && !o.Overwrite {
			return f, nil, Usage("%s exists: a run labelled %q is kept there; choose another --label, or replace it with --overwrite", path, o.Label)
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !os.IsNotExist(err) {
			return f, nil, fmt.Errorf("make room for the run: %w", err)
		}
	}
	log, err := os.OpenFile(f.Log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return f, nil, fmt.Errorf("open the turn log: %w", err)
	}
	return f, log, nil
}

// Finish reads the whole log back and writes the curve from it, so that what is shown is what the log says.
func (f Files) Finish() (measurement.Results, error) {
	log, err := measurement.OpenLog(f.Log)
	if err != nil {
		return measurement.Results{}, err
	}
	r := analysis.Analyze(log)
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{f.JSON, func(w io.Writer) error { return measurement.WriteResults(w, r) }},
		{f.CSV, func(w io.Writer) error { return measurement.WriteCSV(w, r) }},
		{f.PNG, func(w io.Writer) error { return analysis.Chart(w, r) }},
	} {
		if err := measurement.ReplaceFile(file.path, file.write); err != nil {
			return r, err
		}
	}
	return r, nil
}

// RemoveLog takes back the turn log of a run that never began, so that its label stays free.
func (f Files) RemoveLog() { _ = os.Remove(f.Log) }
