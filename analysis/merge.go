package analysis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"kneefinder/measurement"
)

// sameInstant is how far the windows of shards may lie apart and still be one.
const sameInstant = time.Microsecond

// Merge joins the logs of all shards of one run into the log that one process sending all the calls would have written. The
// logs may come in any order. Counts and time averages of a step are summed; the most calls live at once are counted anew,
// for shards need not have theirs at the same time, from each call's first Sent to its last End; histograms of gaps are added
// up; turns stand step by step in the order they ended, those that never did last.
//
// It refuses logs that are not shards of one run: settings, seed or server differ, a shard is missing or given twice, the steps
// or their windows (by more than a microsecond) are not the same, or two shards hold the same turn.
func Merge(logs []measurement.Log) (measurement.Log, error) {
	shards, err := inOrder(logs)
	if err != nil {
		return measurement.Log{}, err
	}
	first := shards[0]
	for _, s := range shards[1:] {
		if err := sameRun(first, s); err != nil {
			return measurement.Log{}, err
		}
	}
	merged := measurement.Log{Header: first.Header}
	merged.Header.Shard = ""
	for _, s := range shards {
		merged.Turns = append(merged.Turns, s.Turns...)
		merged.Samples = append(merged.Samples, s.Samples...)
		merged.Warnings = append(merged.Warnings, s.Warnings...)
	}
	slices.SortFunc(merged.Turns, byEnd)
	if err := checkTurns(merged.Turns, first.Steps); err != nil {
		return measurement.Log{}, err
	}
	turns := byStep(measurement.TurnsOf(merged.Turns))
	for i := range first.Steps {
		var parts []measurement.Step
		for _, s := range shards {
			parts = append(parts, s.Steps[i])
		}
		step, err := mergeStep(parts, turns[first.Steps[i].Step])
		if err != nil {
			return measurement.Log{}, err
		}
		merged.Steps = append(merged.Steps, step)
	}
	return merged, nil
}

// parseShard reads "i/n".
func parseShard(s string) (i, n int, err error) {
	if _, err := fmt.Sscanf(s, "%d/%d", &i, &n); err != nil || i < 0 || i >= n || s != fmt.Sprintf("%d/%d", i, n) {
		return 0, 0, fmt.Errorf("%q is no shard such as 0/2", s)
	}
	return i, n, nil
}

// inOrder puts the logs in the order of their shards, and says which is missing, given twice or not a shard at all.
func inOrder(logs []measurement.Log) ([]measurement.Log, error) {
	var out []measurement.Log
	var have []bool
	for at, l := range logs {
		if l.Header.Shard == "" {
			return nil, fmt.Errorf("log %d (%s) is a whole run, not a shard of one", at+1, l.Header.Label)
		}
		i, n, err := parseShard(l.Header.Shard)
		if err != nil {
			return nil, fmt.Errorf("log %d (%s): %w", at+1, l.Header.Label, err)
		}
		if at == 0 {
			out, have = make([]measurement.Log, n), make([]bool, n)
		}
		switch {
		case n != len(out):
			return nil, fmt.Errorf("shard %s is one of %d and shard %s one of %d: they are not of one run", logs[0].Header.Shard, len(out), l.Header.Shard, n)
		case have[i]:
			return nil, fmt.Errorf("shard %s is given twice", l.Header.Shard)
		}
		out[i], have[i] = l, true
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is nothing to merge")
	}
	if i := slices.Index(have, false); i >= 0 {
		return nil, fmt.Errorf("shard %d/%d is missing", i, len(have))
	}
	return out, nil
}

// sameRun says in what two shards differ that those of one run cannot.
func sameRun(a, b measurement.Log) error {
	x, y := settings(a.Header), settings(b.Header)
	names := maps.Clone(x)
	maps.Copy(names, y)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if u, v := string(x[name]), string(y[name]); u != v {
			return fmt.Errorf("shards %s and %s are not of one run: %s is %s in one and %s in the other", a.Header.Shard, b.Header.Shard, name, orAbsent(u), orAbsent(v))
		}
	}
	if len(a.Steps) != len(b.Steps) {
		return fmt.Errorf("shard %s has %d steps and shard %s has %d", a.Header.Shard, len(a.Steps), b.Header.Shard, len(b.Steps))
	}
	for i, s := range a.Steps {
		t := b.Steps[i]
		if s.Step != t.Step || s.Rate != t.Rate {
			return fmt.Errorf("shard %s ran step %d at %s where shard %s ran step %d at %s: they do not make one rate", a.Header.Shard, s.Step, rate(s.Rate), b.Header.Shard, t.Step, rate(t.Rate))
		}
		for _, f := range []struct {
			name string
			a, b time.Duration
		}{{"start", s.Start, t.Start}, {"window start", s.WindowStart, t.WindowStart}, {"window end", s.WindowEnd, t.WindowEnd}} {
			if (f.a-f.b).Abs() > sameInstant || f.a < 0 != (f.b < 0) {
				return fmt.Errorf("the %s of step %d is %s in shard %s and %s in shard %s: more than %v apart, so the shards did not run together",
					f.name, s.Step, instant(f.a), a.Header.Shard, instant(f.b), b.Header.Shard, sameInstant)
			}
		}
	}
	return nil
}

// settings are what must be the same in the headers of all shards of a run, by the names they have in the file.
func settings(h measurement.Header) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, part := range []any{h.Config, struct {
		Schema  string `json:"schema"`
		Seed    uint64 `json:"seed"`
		Kind    string `json:"engine.kind"`
		Version string `json:"engine.version"`
		Model   string `json:"engine.model"`
	}{h.Schema, h.Seed, h.Engine.Kind, h.Engine.Version, h.Engine.Model}} {
		b, err := json.Marshal(part)
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			panic(err) // these are JSON by their making
		}
	}
	return out
}

func orAbsent(s string) string {
	if s == "" {
		return "absent"
	}
	return s
}

func instant(d time.Duration) string {
	if d < 0 {
		return "absent"
	}
	return fmt.Sprintf("%.9g s", d.Seconds())
}

// byEnd orders turns by step, then as one process would have logged them.
func byEnd(a, b measurement.Turn) int {
	never := func(t measurement.Turn) int {
		if t.End < 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(never(a), never(b)), cmp.Compare(a.End, b.End), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Turn, b.Turn))
}

// checkTurns says of the first turn that cannot be what is wrong with it: two shards hold it, or no step does.
func checkTurns(turns []measurement.Turn, steps []measurement.Step) error {
	type key struct{ call, turn int }
	seen := map[key]bool{}
	known := map[int]bool{}
	for _, s := range steps {
		known[s.Step] = true
	}
	for _, t := range turns {
		k := key{t.Call, t.Turn}
		switch {
		case seen[k]:
			return fmt.Errorf("turn %d of call %d is there twice: the shards did not send calls of their own", t.Turn, t.Call)
		case !known[t.Step]:
			return fmt.Errorf("turn %d of call %d is of step %d, which no shard holds", t.Turn, t.Call, t.Step)
		}
		seen[k] = true
	}
	return nil
}

// mergeStep joins one step of all shards; turns are those of all of them.
func mergeStep(parts []measurement.Step, turns some) (measurement.Step, error) {
	out := parts[0]
	var itl []measurement.Histogram
	for i, p := range parts {
		itl = append(itl, p.ITL...)
		if i == 0 {
			continue
		}
		out.ArrivedCalls += p.ArrivedCalls
		out.HeldCalls += p.HeldCalls
		out.InFlightStart += p.InFlightStart
		out.InFlightEnd += p.InFlightEnd
		out.Residue += p.Residue
		out.LiveMean += p.LiveMean
		out.LiveTurnsMean += p.LiveTurnsMean
		if p.DrainEnd < 0 || out.DrainEnd < 0 {
			out.DrainEnd = measurement.Never
		} else {
			out.DrainEnd = max(out.DrainEnd, p.DrainEnd)
		}
	}
	if out.WindowEnd >= 0 {
		out.LiveMax = liveMax(out, turns)
	}
	_, byTurn, err := mergeITL(itl)
	if err != nil {
		return out, fmt.Errorf("step %d: %w", out.Step, err)
	}
	out.ITL = nil
	for _, turn := range slices.Sorted(maps.Keys(byTurn)) {
		h, err := measurement.EncodeHistogram(turn, byTurn[turn])
		if err != nil {
			return out, fmt.Errorf("step %d: %w", out.Step, err)
		}
		out.ITL = append(out.ITL, h)
	}
	return out, nil
}

// liveMax is the most calls that were live at once in the window, each from its first Sent to its last End. At one instant
// calls end before others begin.
func liveMax(s measurement.Step, turns some) int {
	type life struct{ from, to time.Duration }
	calls := map[int]life{}
	for t := range turns.each {
		if t.Sent < 0 || t.End < 0 {
			continue
		}
		l, ok := calls[t.Call]
		if !ok {
			l = life{t.Sent, t.End}
		}
		calls[t.Call] = life{min(l.from, t.Sent), max(l.to, t.End)}
	}
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, l := range calls {
		if l.to > s.WindowStart && l.from <= s.WindowEnd {
			changes = append(changes, change{l.from, 1}, change{l.to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	live, most := 0, 0
	for _, c := range changes {
		live += c.by
		if c.at <= s.WindowEnd {
			most = max(most, live)
		}
	}
	return most
}
