package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// Files are the files of one label.
type Files struct{ Log, JSON, CSV, PNG, HLog string }

// longestLabel is how many bytes of a file's name the label may take; file systems allow 255 for all of it, and a temporary name is longer.
const longestLabel = 200

// files names the files of the label, or says why it cannot.
func (o Output) files() (Files, error) {
	switch {
	case o.Label == "" || strings.ContainsAny(o.Label, `/\`) || strings.HasPrefix(o.Label, ".") || strings.ContainsFunc(o.Label, unicode.IsControl) || !utf8.ValidString(o.Label):
		return Files{}, Usage("--label: give the run a name that can be a file's, such as L40S; %q cannot", o.Label)
	case len(o.Label) > longestLabel:
		return Files{}, Usage("--label: give the run a name that can be a file's, of at most %d bytes; %.20q... has %d", longestLabel, o.Label, len(o.Label))
	}
	base := filepath.Join(o.Out, o.Label)
	return Files{Log: base + ".turns.jsonl", JSON: base + ".json", CSV: base + ".csv", PNG: base + ".png", HLog: base + ".hlog"}, nil
}

// Check refuses a label that cannot be a file's, or one that exists and is not to be replaced.
func (o Output) Check() error {
	f, err := o.files()
	if err != nil {
		return err
	}
	for _, path := range f.all() {
		_, err := os.Lstat(path)
		if err == nil && !o.Overwrite {
			return Usage("%s exists: a run labelled %q is kept there; choose another --label, or replace it with --overwrite%s", path, o.Label, o.Hint)
		}
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("look for an earlier run: %w", err)
		}
	}
	return nil
}

func (f Files) all() []string { return []string{f.Log, f.JSON, f.CSV, f.PNG, f.HLog} }

// Written names the files that are there.
func (f Files) Written() string {
	var there []string
	for _, path := range f.all() {
		if _, err := os.Stat(path); err == nil {
			there = append(there, path)
		}
	}
	return strings.Join(there, ", ")
}

// Open makes the files' folder, makes room as far as Check allows it, and opens the turn log, which is this process's alone
// until it is closed. An earlier run is gone from here on: open only when there is something to write.
func (o Output) Open() (Files, *os.File, error) {
	if err := o.Check(); err != nil {
		return Files{}, nil, err
	}
	f, err := o.files()
	if err != nil {
		return f, nil, err
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return f, nil, fmt.Errorf("make the folder of the results: %w", err)
	}
	log, err := o.openLocked(f.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return f, nil, err
	}
	err = log.Truncate(0)
	for _, path := range f.all()[1:] {
		if e := os.Remove(path); err == nil && !os.IsNotExist(e) {
			err = e
		}
	}
	if err != nil {
		log.Close()
		return f, nil, fmt.Errorf("make room for the run: %w", err)
	}
	return f, log, nil
}

// openLocked opens a turn log for this process alone.
func (o Output) openLocked(path string, how int) (*os.File, error) {
	log, err := os.OpenFile(path, how, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open the turn log: %w", err)
	}
	if err := lock(log); err != nil {
		log.Close()
		return nil, fmt.Errorf("%s is being written: a run labelled %q is in progress", path, o.Label)
	}
	return log, nil
}

// Reopen reads the log of a run that was cut, with its turns packed, and opens it for more. What is in it stays as it is; a torn last line is closed.
func (o Output) Reopen() (Files, *os.File, measurement.Log, error) {
	f, err := o.files()
	if err != nil {
		return f, nil, measurement.Log{}, err
	}
	if _, err := os.Stat(f.Log); errors.Is(err, os.ErrNotExist) {
		return f, nil, measurement.Log{}, Usage("--resume: there is no %s to go on with", f.Log)
	}
	log, err := o.openLocked(f.Log, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return f, nil, measurement.Log{}, err
	}
	past, err := measurement.OpenPacked(f.Log)
	if err != nil {
		log.Close()
		return f, nil, past, err
	}
	last := make([]byte, 1)
	size, err := log.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = log.ReadAt(last, size-1)
	}
	if err == nil && last[0] != '\n' {
		_, err = log.Write([]byte("\n"))
	}
	if err != nil {
		log.Close()
		return f, nil, past, fmt.Errorf("go on with %s: %w", f.Log, err)
	}
	return f, log, past, nil
}

// SameRun says in which field a run differs from the one it is to go on with.
func SameRun(past, now measurement.Header) error {
	a, b := fields(past), fields(now)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if x, y := fmt.Sprint(a[name]), fmt.Sprint(b[name]); x != y {
			return Usage("--resume: the run was started with %s %s, now it is %s; go on with the same flags, or choose another --label", name, x, y)
		}
	}
	return nil
}

// fields are what makes a run that run, by name.
func fields(h measurement.Header) map[string]any {
	m := map[string]any{}
	b, err := json.Marshal(h.Config)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		panic(err) // a Config of ours is JSON
	}
	m["seed"], m["shard"] = h.Seed, h.Shard
	return m
}

// Finish reads the whole log back and writes the curve from it, so that what is shown is what the log says.
func (f Files) Finish() (measurement.Results, error) {
	log, err := measurement.OpenPacked(f.Log)
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
		{f.HLog, func(w io.Writer) error { return measurement.WriteHLog(w, log) }},
	} {
		if err := measurement.ReplaceFile(file.path, file.write); err != nil {
			return r, err
		}
	}
	return r, nil
}
