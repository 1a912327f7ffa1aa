package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/analysis/importer"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// readAll reads every file or says, of all that cannot be read, why; see readEach.
func readAll(ctx context.Context, paths []string, j judging) (rs []measurement.Results, names []string, err error) {
	ins, opened := openEach(paths)
	if rs, names, err = readEach(ctx, ins, j, opened); err != nil {
		return rs, names, err
	}
	return rs, names, j.heeded(rs, strings.Join(paths, ", "))
}

// readEach reads every file or says, of all that cannot be read, why. Turn logs are a curve each, results as many as there are runs in
// them; files of other tools make as many as they hold together, judged by what is asked, and stand where the first of them stands. names
// are the files, a curve each. What could not be opened is failed.
func readEach(ctx context.Context, ins []input, j judging, failed error) (rs []measurement.Results, names []string, err error) {
	errs := []error{failed}
	var foreign []importer.File
	at := 0 // where the curves of foreign files go
	for _, in := range ins {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		log, err := in.packed()
		if err == nil {
			r, err := analyzed(in, j.anew(log))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			rs, names = append(rs, r), append(names, in.name)
			continue
		}
		if !errors.Is(err, measurement.ErrNotLog) {
			errs = append(errs, err)
			continue
		}
		data, err := in.whole()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f := importer.File{Name: in.name, Data: data}
		own, lines, ours, err := importer.Own(f)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ours:
			for i, r := range own {
				name := in.name
				if len(own) > 1 {
					name = fmt.Sprintf("%s:%d", name, lines[i])
				}
				rs, names = append(rs, labelled(r, in.name)), append(names, name)
			}
		default:
			if foreign == nil {
				at = len(rs)
			}
			foreign = append(foreign, f)
		}
	}
	in, err := importer.Read(foreign, j.objectives())
	errs = append(errs, err)
	for _, c := range in.Curves {
		rs, names = slices.Insert(rs, at, c), slices.Insert(names, at, c.Tool)
		at++
	}
	return rs, names, errors.Join(errs...)
}

// analyzed is the curve of a log, or an error where nothing can be read from it.
func analyzed(in input, log measurement.Log) (measurement.Results, error) {
	r := analysis.Analyze(log)
	if err := r.Check(); err != nil {
		return r, fmt.Errorf("%s %w: no load was measured there", in.name, err)
	}
	return labelled(r, in.name), nil
}

// labelled gives a run without a label that of its file.
func labelled(r measurement.Results, path string) measurement.Results {
	if strings.TrimSpace(r.Label) == "" {
		base := filepath.Base(path)
		r.Label = strings.TrimSuffix(strings.TrimSuffix(base, filepath.Ext(base)), ".turns")
	}
	return r
}

// judging is the flag that says what steps are judged by.
type judging struct {
	SLO cli.SLO `help:"What must hold: a limit for P95 TTFT, or a list such as ttft:p99:300ms. Turn logs and the files of other tools are judged by it (by default their own objectives, and 300ms); results (.json) keep theirs." placeholder:"300ms"`
}

// objectives are what the files of other tools are judged by.
func (j judging) objectives() []measurement.Objective {
	if j.SLO == nil {
		return []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}
	}
	return j.SLO
}

// anew is a log whose steps are to be judged by what was asked. A step that ended early was certain to fail by its own objectives
// only: by others it is as short as it is.
func (j judging) anew(log measurement.Log) measurement.Log {
	if j.SLO == nil || slices.Equal(j.SLO, log.Header.Config.SLO) {
		return log
	}
	log.Header.Config.SLO = j.SLO
	log.Steps = slices.Clone(log.Steps)
	for i := range log.Steps {
		log.Steps[i].EarlyFail = false
	}
	return log
}

// heeded refuses objectives by which none of the curves is judged.
func (j judging) heeded(rs []measurement.Results, from string) error {
	judged := func(r measurement.Results) bool { return slices.Equal(r.Config.SLO, j.SLO) }
	if j.SLO == nil || len(rs) == 0 || slices.ContainsFunc(rs, judged) {
		return nil
	}
	return cli.Usage("--slo judges no step here: what %s holds was judged already, and the turns are not in it; give the turn log (.turns.jsonl), or leave --slo out", from)
}

// openLog reads a turn log, or says of any other file what it is and what to give.
func openLog(in input) (measurement.Log, error) {
	log, err := in.log()
	if errors.Is(err, measurement.ErrNotLog) {
		err = fmt.Errorf("%s is no turn log: it %s", in.name, describe(in))
	}
	if err == nil && len(log.Steps) == 0 {
		err = fmt.Errorf("%s has no steps: no load was measured there", in.name)
	}
	return log, err
}

// describe says what a file is that is no turn log.
func describe(in input) string {
	head, err := in.head()
	if err != nil {
		return "cannot be read"
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	switch {
	case len(line) == 0:
		return "is empty"
	case bytes.HasPrefix(head, []byte("#[Histogram log format")), bytes.HasPrefix(head, []byte("#[StartTime")):
		return "is an HdrHistogram log; give the turn log beside it (.turns.jsonl)"
	case bytes.HasPrefix(line, []byte("step,rate_calls_per_s")):
		return "is a curve as CSV, which holds no turns; give the turn log beside it (.turns.jsonl)"
	case line[0] == '{' || line[0] == '[':
		return describeJSON(head)
	case bytes.ContainsRune(head, 0):
		return "is " + http.DetectContentType(head)
	}
	return fmt.Sprintf("is text that begins %.60q", line)
}

// describeJSON names what a JSON document holds, of which only the beginning may be at hand.
func describeJSON(head []byte) string {
	in := json.NewDecoder(bytes.NewReader(head))
	if t, err := in.Token(); err != nil || t == json.Delim('[') {
		return "is a list in JSON"
	}
	var names []string
	for in.More() {
		key, err := in.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			break
		}
		names = append(names, name)
		var v json.RawMessage
		if in.Decode(&v) != nil {
			break
		}
		var schema string
		if name == "schema" && json.Unmarshal(v, &schema) == nil {
			if schema == measurement.ResultsSchema {
				return "holds the results of a run, which has no turns; give the turn log beside it (.turns.jsonl)"
			}
			return fmt.Sprintf("is JSON of schema %q", schema)
		}
	}
	if len(names) == 0 {
		return "is JSON without a key"
	}
	slices.Sort(names)
	if len(names) > 6 {
		names = append(names[:6], "...")
	}
	return fmt.Sprintf("is JSON of another kind (its keys: %s)", strings.Join(names, ", "))
}
