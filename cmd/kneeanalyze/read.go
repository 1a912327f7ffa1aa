package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/analysis/importer"
	"kneefinder/measurement"
)

// readAll reads every file or says, of all that cannot be read, why. Turn logs and results are a curve each; files of other tools
// make as many as they hold together, judged by slo, and stand where the first of them stands. names are the files, a curve each.
func readAll(ctx context.Context, paths []string, slo []measurement.Objective) (rs []measurement.Results, names []string, err error) {
	var errs []error
	var foreign []importer.File
	at := 0 // where the curves of foreign files go
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		r, err := read(path)
		var other notOurs
		switch {
		case errors.As(err, &other):
			if foreign == nil {
				at = len(rs)
			}
			foreign = append(foreign, importer.File{Name: path, Data: other.data})
		case err != nil:
			errs = append(errs, err)
		default:
			rs, names = append(rs, r), append(names, path)
		}
	}
	in, err := importer.Read(foreign, slo)
	if err != nil {
		errs = append(errs, err)
	}
	for _, c := range in.Curves {
		rs, names = slices.Insert(rs, at, c), slices.Insert(names, at, c.Tool)
		at++
	}
	return rs, names, errors.Join(errs...)
}

// notOurs is a file that is neither a turn log nor results, read whole.
type notOurs struct {
	error
	data []byte
}

// read analyses a turn log, or reads results; notOurs is what it gives back of any other file.
func read(path string) (measurement.Results, error) {
	if info, err := os.Stat(path); err != nil {
		return measurement.Results{}, fmt.Errorf("read: %w", err)
	} else if info.IsDir() {
		return measurement.Results{}, fmt.Errorf("%s is a folder: name the files in it", path)
	}
	log, err := measurement.OpenLog(path)
	if err == nil {
		return analysis.Analyze(log), nil
	}
	if !errors.Is(err, measurement.ErrNotLog) {
		return measurement.Results{}, err
	}
	r, err := measurement.ReadResults(path)
	if errors.Is(err, measurement.ErrNotResults) {
		data, readErr := os.ReadFile(path)
		if readErr != nil {
			return r, fmt.Errorf("read: %w", readErr)
		}
		return r, notOurs{err, data}
	}
	return r, err
}

// describe says what a file is that this command does not read.
func describe(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "cannot be opened again"
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "cannot be read"
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	switch {
	case len(line) == 0:
		return "is empty"
	case bytes.HasPrefix(head, []byte("#[Histogram log format")), bytes.HasPrefix(head, []byte("#[StartTime")):
		return "is an HdrHistogram log"
	case bytes.HasPrefix(line, []byte("step,rate_calls_per_s")):
		return "is a curve as CSV; the .json beside it holds the same and more"
	case line[0] == '{' || line[0] == '[':
		return describeJSON(line, head)
	case bytes.ContainsRune(head, 0):
		return "is " + http.DetectContentType(head)
	}
	return fmt.Sprintf("is text that begins %.60q", line)
}

// describeJSON names what a JSON document, or the first of several, holds.
func describeJSON(line, head []byte) string {
	for _, b := range [][]byte{line, head} {
		var keys map[string]json.RawMessage
		if json.NewDecoder(bytes.NewReader(b)).Decode(&keys) != nil {
			continue
		}
		var schema string
		if json.Unmarshal(keys["schema"], &schema) == nil && schema != "" {
			return fmt.Sprintf("is JSON of schema %q", schema)
		}
		var names []string
		for k := range keys {
			names = append(names, k)
		}
		slices.Sort(names)
		if len(names) > 6 {
			names = append(names[:6], "...")
		}
		return fmt.Sprintf("is JSON of another kind (%s)", strings.Join(names, ", "))
	}
	return "is JSON of another kind, or cut short"
}
