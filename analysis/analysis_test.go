package analysis

import (
	"bytes"
	"errors"
	"flag"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"kneefinder/measurement"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// runs are what pictures and texts are made of: ordinary, censored with an undecided step, all passing, alone without cache
// figures, a closed loop, nothing at all, cut after a step that fails below one that passes, and failing by another objective.
func runs() []measurement.Results {
	l40s := pool("L40S", .85, .05, .1, .2, .3, .5, .7, .8, .9, 1.1, 1.5)
	h100 := pool("H100", 1.9, .02, .05, .1, .2, .5, 1, 1.5, 2, 2.5)
	h100.Header.Config.OutputTokens = 200
	censored := pool("censored", .6, .3, .4, .5, .55, .6, .7)
	for i := range censored.Turns {
		if censored.Turns[i].Step == 5 && i%5 == 0 {
			censored.Turns[i] = failed(censored.Turns[i], measurement.TTFTTimeout)
		}
	}
	censored.Steps[1].HeldCalls = 3
	passing := pool("passing", 9, .3, .4, .5, .55, .6, .7)
	one := pool("one", 9, .5)
	for i := range one.Turns {
		one.Turns[i].CachedTokens = measurement.Unknown
	}
	loop := pool("loop", 20, 1, 2, 4, 8, 12, 16, 24)
	loop.Header.Config.Arrivals = closed
	for i := range loop.Steps {
		s := &loop.Steps[i]
		s.LiveMean, s.LiveMax, s.InFlightEnd = s.Rate-.1, int(s.Rate), s.InFlightStart
	}
	empty := measurement.Log{Header: measurement.Header{Label: "empty", Config: testConfig()}, Warnings: []string{"empty.turns.jsonl:7: the last line is torn"}}
	cut := pool("cut", 1.05, .4, .6, .7, .8, .9, 1.1)
	for i := range cut.Turns {
		if t := &cut.Turns[i]; t.Step == 2 && t.Turn > 1 {
			t.FirstToken += 400 * time.Millisecond
		}
	}
	cut.Steps[5].WindowEnd, cut.Steps[5].DrainEnd, cut.Steps[5].ITL = measurement.Never, measurement.Never, nil
	cut.Steps[3].ArrivedCalls -= 12
	decode := pool("decode", 1, .2, .3, .4, .5, .6, .7, .8)
	decode.Header.Config.SLO = append(decode.Header.Config.SLO, measurement.Objective{Metric: "itl", Quantile: .95, LimitMS: 30})
	var rs []measurement.Results
	for _, l := range []measurement.Log{l40s, h100, censored, passing, one, loop, empty, cut, decode} {
		rs = append(rs, Analyze(l))
	}
	return rs
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got, -update rewrites it):\n%s", path, d)
	}
}

func TestSummary(t *testing.T) {
	var b bytes.Buffer
	rs := runs()
	for _, r := range rs {
		Summary(&b, r)
		b.WriteString("\n")
	}
	CompareSummary(&b, rs[:5])
	b.WriteString("\n")
	CompareSummary(&b, []measurement.Results{rs[0], rs[5], rs[6]})
	b.WriteString("\n")
	longer := rs[7]
	longer.Label, longer.Config.StepSeconds, longer.Config.MinTurns = "longer", 300, 250
	CompareSummary(&b, []measurement.Results{rs[0], rs[1], longer})
	golden(t, "summary.txt", b.Bytes())
	if s := b.String(); strings.Contains(s, "- ms") || strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Error("an empty figure is printed")
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > tableWidth {
			t.Errorf("%d characters wide, want %d at most: %s", n, tableWidth, line)
		}
	}
}

// TestCharts draws every kind of run; KNEE_PICTURES names a folder to keep the pictures in, to look at them.
func TestCharts(t *testing.T) {
	rs := runs()
	look := func(name string, draw func(io.Writer) error) {
		t.Helper()
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if dir := os.Getenv("KNEE_PICTURES"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".png"), b.Bytes(), 0o666); err != nil {
				t.Error(err)
			}
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Errorf("%s: not a PNG: %v", name, err)
		} else if size := img.Bounds().Size(); size.X != 1425 || size.Y != 1050 {
			t.Errorf("%s: %v pixels, want 1425x1050", name, size)
		}
	}
	for i, r := range rs {
		if os.Getenv("KNEE_PICTURES") == "" && (i == 1 || i == 3) {
			continue // nothing in it that the others do not show; drawing is slow
		}
		look(r.Label, func(w io.Writer) error { return Chart(w, r) })
	}
	look("compare-cut", func(w io.Writer) error { return ChartCompare(w, []measurement.Results{rs[2], rs[7], rs[8]}) })
	if os.Getenv("KNEE_PICTURES") != "" {
		look("compare", func(w io.Writer) error { return ChartCompare(w, rs[1:4]) })
	}
	look("compare-all", func(w io.Writer) error { return ChartCompare(w, slices.Concat(rs[:5], rs[6:])) })
	var a, b bytes.Buffer
	if err := errors.Join(Chart(&a, rs[0]), Chart(&b, rs[0])); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("drawn twice: two pictures, or %v", err)
	}
	if err := ChartCompare(io.Discard, nil); err == nil {
		t.Error("a comparison of nothing: no error")
	}
	if err := ChartCompare(io.Discard, rs[4:6]); err == nil || !strings.Contains(err.Error(), "do not share an axis") {
		t.Errorf("an open loop and a closed one in one picture: %v", err)
	}
}

func TestChartTellsWriteErrors(t *testing.T) {
	if err := Chart(broken{}, Analyze(pool("x", 1, .5))); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestTheLogHoldsEverything checks that analysing a log read back from its file gives the very figures of the log in memory.
func TestTheLogHoldsEverything(t *testing.T) {
	log := pool("L40S", .85, .3, .5, .8, 1.1)
	log.Steps[3].WindowEnd, log.Steps[3].DrainEnd = measurement.Never, measurement.Never // cut
	log.Steps[3].ITL = nil
	for i := 0; i < len(log.Turns); i += 50 {
		log.Turns[i] = failed(log.Turns[i], measurement.HTTP5xx)
	}
	var b bytes.Buffer
	w := measurement.NewLogWriter(&b, false)
	w.Header(log.Header)
	for _, s := range log.Steps {
		begun := s
		begun.WindowEnd, begun.DrainEnd, begun.ITL = measurement.Never, measurement.Never, nil
		w.StepBegin(begun)
		for _, turn := range log.Turns {
			if turn.Step == s.Step {
				w.Turn(turn)
			}
		}
		if s.WindowEnd >= 0 {
			w.StepEnd(s)
		}
	}
	w.Flush()
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	back, err := measurement.ReadLog(&b, "L40S.turns.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Analyze(log), Analyze(back)); d != "" {
		t.Errorf("read back (-in memory +from the log):\n%s", d)
	}
}

func TestResultsAreWritable(t *testing.T) {
	for _, r := range runs() {
		var b bytes.Buffer
		if err := measurement.WriteResults(&b, r); err != nil {
			t.Errorf("%s: %v", r.Label, err)
		}
		if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, `"flags": null`) || strings.Contains(s, `"steps": null`) {
			t.Errorf("%s: a NaN, or null where a list should be", r.Label)
		}
	}
}

func TestLiveStepsAreTheResults(t *testing.T) {
	log := pool("L40S", .85, .3, .5, .8, 1.1)
	r := Analyze(log)
	for i, s := range log.Steps {
		if d := cmp.Diff(r.Steps[i], AnalyzeStep(log.Header.Config, s, log.Turns, nil)); d != "" {
			t.Errorf("step %d, alone and in the whole:\n%s", i, d)
		}
	}
}

func BenchmarkAnalyzeStep(b *testing.B) {
	log := pool("H100", 12, 10)
	for b.Loop() {
		if r := AnalyzeStep(log.Header.Config, log.Steps[0], log.Turns, nil); r.TTFTP95 == nil || math.IsNaN(*r.TTFTP95) {
			b.Fatal("no P95")
		}
	}
}
