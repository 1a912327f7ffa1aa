// Package report is a run as a document: one HTML file that needs nothing else, and Markdown for a pull request.
//
// A report is a pure function of the run: the same run gives the same bytes.
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// Run is what a report tells of. A report only reads it, so that goroutines may share it.
type Run struct {
	Results measurement.Results
	Log     *measurement.Log // from which the results were made; nil leaves out what it alone knows, and the report says so
	Source  string           // name of the file, for the report's foot; may be empty
}

// What a page holds at most, so that its size is bounded whatever the log.
const (
	mostStories   = 24 // steps whose course and distribution are drawn
	mostSentences = 40 // of warnings, and of evidence
	mostRunes     = 700
)

//go:embed page.html
var source string

//go:embed style.css
var style string

var page = template.Must(template.New("report").Parse(source))

// document is what the template fills in.
type document struct {
	Style, Policy                    any
	Title, Label, Who, Where, Load   string
	Fidelity                         string
	Measured, Foreign                bool
	Sentence, Binds, Sure, Note      string
	Evidence, Warnings               []string
	MoreWarnings                     int
	Notes                            []string
	Tiles                            []tile
	Curve, Ridge, Turns, Gaps        template.HTML
	Knees, Others, Steps             table
	ByTurn, Tests                    table
	Client, Engine, Failures         table
	Meanings                         []named
	Chunks, Logged, Thinned, Sampled bool
	Beside, Stories                  []chapter
	Missing                          string
	Left                             string
	Certificate                      string
	Lag                              string
	Settings, EngineFacts            []named
	Details, MoreDetails             []named
	DetailsLeft                      int
	Source, Tool                     string
}

// chapter is the course of one step.
type chapter struct {
	Name, Verdict, Mark, Why string
	HTML                     template.HTML
}

// HTML writes the run as one HTML document with its style and pictures inside: it links nothing, runs no script, and its policy
// forbids both. It stays under about a megabyte: turns that share a place share a dot, and of many steps those around the knee are
// drawn; where that is so the page says it.
func (r Run) HTML(w io.Writer) error {
	d := r.document()
	var b bytes.Buffer
	if err := page.Execute(&b, d); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// policy lets the page's own style stand and nothing else.
func policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}

func (r *Run) document() document {
	res := &r.Results
	ss := steps(r)
	pass, fail := sides(res, ss)
	middle := max(pass, fail)
	chosen := nearest(len(ss), middle, mostStories)
	drawn := make([]step, 0, len(chosen))
	for _, i := range chosen {
		drawn = append(drawn, ss[i])
	}
	d := document{
		Style: template.CSS(style), Policy: policy(), Label: clip(res.Label, 120), Who: who(res), Fidelity: fidelity(res), Measured: res.Engine.Fidelity == "measured",
		Load: load(res.Config), Sentence: headline(res), Binds: binds(res.Mechanism), Note: clip(res.Knees.SLO.Note, mostRunes),
		Tiles: tiles(res, ss, pass, fail), Knees: kneeTable(res), Others: otherKnees(res), Steps: stepTable(res), Meanings: flagMeanings(res),
		Chunks:      slices.ContainsFunc(res.Steps, func(s measurement.StepResult) bool { return s.ITLBasis == "chunk" }),
		Certificate: certificate(res.Arrivals), Tests: arrivalTests(res.Arrivals), Gaps: template.HTML(gaps(r.Log)),
		Curve: template.HTML(curve(res, ss)), Ridge: template.HTML(ridge(res, drawn)), Turns: template.HTML(byTurn(res, ss, pass, fail)), ByTurn: byTurnTable(res, drawn),
		Foreign: foreign(res), Client: client(res, ss[:min(len(ss), mostRows)]), Engine: engineTable(res, drawn), Failures: failures(ss),
		Settings: settings(res, r.Log), EngineFacts: engine(res), Source: clip(r.Source, 120), Tool: clip(res.Tool, 80),
	}
	d.Details, d.MoreDetails, d.DetailsLeft = details(res.Engine.Details)
	d.Sure = howSure(res)
	if d.Label == "" {
		d.Label = "A run without a label"
	}
	d.Title = d.Label + " - knee report"
	if r.Log != nil {
		d.Where = clip(r.Log.Header.Started, 40)
		if len(d.Where) > 19 && d.Where[10] == 'T' {
			d.Where = d.Where[:10] + " " + d.Where[11:16] + map[bool]string{true: " UTC"}[strings.HasSuffix(d.Where, "Z")]
		}
	}
	d.Evidence = sentences(res.Mechanism.Evidence)
	d.Warnings = sentences(res.Warnings)
	d.MoreWarnings = len(res.Warnings) - len(d.Warnings)
	for _, k := range []struct {
		name string
		knee measurement.Knee
	}{{"Curvature knee", res.Knees.Curvature}, {"Saturation", res.Knees.Saturation}} {
		if k.knee.Note != "" {
			d.Notes = append(d.Notes, k.name+": "+clip(k.knee.Note, mostRunes))
		}
	}
	a := res.Arrivals
	if a.LagP50 != nil && a.LagP99 != nil && a.LagMax != nil {
		d.Lag = fmt.Sprintf("Turns were sent %s ms after they were due at the median, %s ms at P99, %s ms at most.", digits(*a.LagP50), digits(*a.LagP99), digits(*a.LagMax))
	}
	r.tell(&d, ss, chosen, pass, fail)
	return d
}

// tell adds the courses of the steps, those beside the knee first.
func (r *Run) tell(d *document, ss []step, chosen []int, pass, fail int) {
	if len(chosen) < len(ss) {
		d.Left = fmt.Sprintf("Of %d steps the %d around the knee are drawn.", len(ss), len(chosen))
	}
	if r.Log == nil && foreign(&r.Results) {
		d.Missing = "This report was made from results alone, figures of each load: without the single requests there is no distribution of TTFT, no course of a step and no test of the arrivals."
		return
	}
	if r.Log == nil {
		d.Missing = "This report was made from results alone. The turn log (.turns.jsonl) also has the distribution of TTFT, the course of each step, the instants of the calls and the samples of the engine."
		return
	}
	d.Logged = true
	d.Sampled = len(r.Log.Samples) > 0
	limit, limited := limitMS(r.Results.Config.SLO)
	scaled := func(of ...step) scale {
		lo, hi := reach(of)
		if limited {
			lo, hi = min(lo, limit.LimitMS), max(hi, limit.LimitMS)
		}
		return logarithmic(lo, hi, 7)
	}
	var beside []step
	for _, i := range []int{pass, fail} {
		if i >= 0 {
			beside = append(beside, ss[i])
		}
	}
	near, all := scaled(beside...), scaled(ss...)
	dots := max(mostDots/max(len(chosen), 6), 500)
	for _, i := range chosen {
		s := &ss[i]
		if s.log == nil {
			continue
		}
		c := chapter{Name: at(r.Results.Config, s.Rate), Verdict: clip(string(s.Verdict), 20), Mark: sign(s.Verdict)}
		y := all
		if i == pass || i == fail {
			y = near
		}
		out, thinned := story(&r.Results, s, y, dots)
		c.HTML = template.HTML(out)
		d.Thinned = d.Thinned || thinned
		switch i {
		case pass, fail:
			c.Why = "the first load above the knee that " + map[bool]string{true: "fails", false: "is " + c.Verdict}[s.Verdict == measurement.Fail]
			if i == pass {
				c.Why = "the highest load below the knee that " + map[bool]string{true: "passes", false: "is " + c.Verdict}[s.Verdict == measurement.Pass]
			}
			d.Beside = append(d.Beside, c)
		default:
			c.Why = fmt.Sprintf("P95 TTFT %s", p95Cell(s.StepResult))
			if s.TTFTP95 != nil || s.TTFTP95AtLeast != nil {
				c.Why += " ms"
			}
			if s.CacheHitRate != nil {
				c.Why += ", hit rate " + share(s.CacheHitRate) + " %"
			}
			d.Stories = append(d.Stories, c)
		}
	}
}

// sentences are as many as a page holds, each no longer than a page bears.
func sentences(of []string) (out []string) {
	for _, s := range of[:min(len(of), mostSentences)] {
		out = append(out, clip(s, mostRunes))
	}
	return out
}
