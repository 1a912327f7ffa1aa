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
	"kneefinder/measurement"
)

// readAll reads every file or says, of all that cannot be read, why.
func readAll(ctx context.Context, paths []string) ([]measurement.Results, error) {
	var rs []measurement.Results
	var errs []error
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := read(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rs = append(rs, r)
	}
	return rs, errors.Join(errs...)
}

// read analyses a turn log, or reads results.
func read(path string) (measurement.Results, error) {
	if info, err := os.Stat(path); err != nil {
		return measurement.Results{}, fmt.Errorf("read: %w", err)
	} else if info.IsDir() {
		return measurement.Results{}, fmt.Errorf("%s is a folder: name a turn log (.turns.jsonl) or results (.json) in it", path)
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
		return r, fmt.Errorf("%s is neither a turn log nor results: it %s", path, describe(path))
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
