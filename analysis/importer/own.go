package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// Own reads the results of runs of ours that stand in a file, one after another as it may be, and the line of each. ours is false of any
// other file, and then nothing else is told. It may be called by many goroutines at once.
func Own(f File) (rs []measurement.Results, lines []int, ours bool, err error) {
	if !bytes.Contains(f.Data[:min(len(f.Data), 1<<16)], []byte(measurement.ResultsSchema)) {
		return nil, nil, false, nil
	}
	data, err := plainText(f)
	if err != nil {
		return nil, nil, false, nil
	}
	docs, warnings, err := documents(f.Name, data)
	if err != nil || len(docs) == 0 {
		return nil, nil, false, nil
	}
	if len(docs) == 1 && len(docs[0].items()) > 0 {
		docs = docs[0].items()
	}
	if docs[0].get("schema").text() != measurement.ResultsSchema {
		return nil, nil, false, nil
	}
	c, err := ownResults(f, docs)
	for _, doc := range docs {
		lines = append(lines, doc.line)
	}
	return withWarnings(c, warnings).own, lines, true, err
}

// ownResults reads results of ours.
func ownResults(f File, docs []node) (contents, error) {
	c := contents{kind: OwnResults}
	for _, doc := range docs {
		if at := fmt.Sprintf("%s:%d", f.Name, doc.line); doc.get("schema").text() != measurement.ResultsSchema {
			return c, refuse(at, "is something else than the results before it", "give it in a file of its own")
		}
		r, err := ownRun(f, doc)
		if err != nil {
			return c, err
		}
		c.own = append(c.own, r)
	}
	return c, nil
}

// ownRun reads the results of one run. Figures that are no numbers are absent, and said to be.
func ownRun(f File, doc node) (r measurement.Results, err error) {
	at := func(line int) string { return fmt.Sprintf("%s:%d", f.Name, line) }
	if err := doc.into(&r); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return r, refuse(at(doc.lineOf(kind)), fmt.Sprintf("has a %s (%s) that is of another kind", kind.Field, kind.Value), "give the results as they were written")
		}
		return r, refuse(at(doc.line), fmt.Sprintf("is no results file that can be read (%v)", err), "")
	}
	steps := doc.get("steps")
	if len(r.Steps) == 0 {
		return r, refuse(at(max(doc.line, steps.line)), "has no steps", "nothing was measured there; give the results of a run that came to the end of a step, or its turn log (.turns.jsonl)")
	}
	for i := range r.Steps {
		if err := r.Steps[i].Check(); err != nil {
			return r, refuse(at(steps.vals[i].line), fmt.Sprintf("is a step whose %v", err), "give the results as they were written, or the turn log of the run (.turns.jsonl)")
		}
	}
	if lines := doc.infinite(); len(lines) > 0 {
		also := ""
		if n := len(lines) - 1; n > 0 {
			also = fmt.Sprintf(", and so do %d more", n)
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: a figure stands there that is no number (NaN or infinite)%s: it is taken as absent.", at(lines[0]), also))
	}
	if knees := doc.get("knees"); knees.null() {
		r.Knees = analysis.SoFar(measurement.Header{Config: r.Config}, r.Steps).Knees
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the results tell no knees: they are read from the steps.", at(doc.line)))
	} else if k := r.Knees.SLO.Rate; k != nil && !slices.ContainsFunc(r.Steps, func(s measurement.StepResult) bool { return s.Rate == *k }) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the SLO knee stands at %s, where none of the steps was run: knees and steps do not belong together. The turn log (.turns.jsonl) tells both.", at(knees.line), short(*k)))
	}
	return r, nil
}

func ownLog(f File) (contents, error) {
	log, err := measurement.ReadLog(bytes.NewReader(f.Data), f.Name)
	if err != nil {
		if errors.Is(err, measurement.ErrNotLog) {
			return contents{}, refuse(f.Name, "begins as a turn log and is none that can be read", "give the log as it was written")
		}
		return contents{}, err
	}
	r := analysis.Analyze(log)
	if err := r.Check(); err != nil {
		return contents{}, refuse(f.Name, err.Error(), "give the log of a run that came to the end of a step")
	}
	return contents{kind: OwnLog, own: []measurement.Results{r}, log: &log}, nil
}

// ofOwnTurns takes what the checks need of a step's measured turns. That all are accounted for is asked of the calls too, which
// the generator counts as they arrive.
func (p *point) ofOwnTurns(s measurement.Step, turns []measurement.Turn) {
	var ttft, tpot, e2e, output mean
	least, firsts := math.Inf(1), 0.
	p.ok, p.failed = 0, 0
	for i := range turns {
		t := &turns[i]
		switch {
		case t.Step != s.Step || !s.InWindow(t.Due) || t.Outcome == measurement.NotSent || t.Outcome == measurement.Canceled:
			continue
		case t.Turn == 1:
			firsts++
			continue
		case t.Outcome != measurement.OK:
			p.failed++
			continue
		}
		p.ok++
		if d, ok := t.TTFT(); ok {
			ttft.add(d.Seconds() * 1000)
			least = min(least, d.Seconds()*1000)
		}
		if d, ok := t.TPOT(); ok {
			tpot.add(d.Seconds() * 1000)
		}
		e2e.add((t.End - t.Due).Seconds() * 1000)
		if t.CompletionTokens >= 0 {
			output.add(float64(t.CompletionTokens))
		}
	}
	p.ttft.mean, p.tpot.mean, p.e2e.mean, p.outputLen = ttft.of(), tpot.of(), e2e.of(), output.of()
	if !math.IsInf(least, 1) {
		p.ttft.min = least
	}
	var gaps mean
	for _, packed := range s.ITL {
		if h, err := measurement.DecodeHistogram(packed); err == nil {
			gaps.sum, gaps.n = gaps.sum+h.Mean()*float64(h.TotalCount())/1e6, gaps.n+float64(h.TotalCount())
		}
	}
	p.itl.mean = gaps.of()
	p.issued, p.well = p.ok+p.failed, p.ok
	if firsts > 0 { // else every call is a single turn
		p.issued += float64(s.ArrivedCalls)
		p.ok += firsts
	}
}

// mean is one in the making; NaN of nothing.
type mean struct{ sum, n float64 }

func (m *mean) add(v float64) { m.sum, m.n = m.sum+v, m.n+1 }
func (m *mean) of() float64   { return m.sum / m.n }
