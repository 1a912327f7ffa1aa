package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
)

// found runs a search on the demo's engine in virtual time into out, or goes on with the one that is there.
func found(t *testing.T, out Output) measurement.Results {
	t.Helper()
	w, _, gen, eng := demoSweep(t)
	w.FindKnee, w.Rates = true, Rates{2}
	confirm := Seconds(20 * time.Second)
	w.Confirm = &confirm
	c, err := w.Config()
	if err != nil {
		t.Fatal(err)
	}
	gen.Script = generator.Fit(gen.Script, generator.Lengths{System: c.SystemPromptTokens, User: c.UserTokens},
		measurement.Calibration{Overhead: float64(simulation.Overhead()), TokensPerWord: 1})
	return goOn(t, w, c, gen, eng, out)
}

// A search finds a knee, its steps differ in length, those that must fail end early, and the log alone says so; cut behind any step
// it goes on where it was.
func TestSearchAndResume(t *testing.T) {
	dir := t.TempDir()
	whole := found(t, Output{Label: "x", Out: dir})
	if whole.Knees.SLO.Status != measurement.Found {
		t.Fatalf("%+v", whole.Knees.SLO)
	}
	early, long := 0, 0
	var rates []float64
	for _, s := range whole.Steps {
		rates = append(rates, s.Rate)
		if slices.Contains(s.Flags, measurement.FlagEarlyFail) {
			early++
			if s.Verdict != measurement.Fail {
				t.Errorf("the step at %g ended early and its verdict is %s", s.Rate, s.Verdict)
			}
		}
		if s.WindowS >= 20 {
			long++
		}
	}
	if early == 0 || long < 2 || whole.Steps[0].WindowS >= 20 {
		t.Errorf("%d steps ended early, %d lasted 20 s, the first %v s", early, long, whole.Steps[0].WindowS)
	}
	if _, ok := analysis.Search(2, 20, whole.Steps); ok {
		t.Error("the search was not done")
	}
	text, err := os.ReadFile(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for at := 0; ; ends++ {
		next := bytes.Index(text[at:], []byte(`"type":"step_end"`))
		if next < 0 {
			break
		}
		at += next + 1
		if ends%5 != 3 {
			continue
		}
		cut := t.TempDir()
		if err := os.WriteFile(filepath.Join(cut, "x.turns.jsonl"), text[:at+bytes.IndexByte(text[at:], '\n')+1], 0o666); err != nil {
			t.Fatal(err)
		}
		var again []float64
		for _, s := range found(t, Output{Label: "x", Out: cut}).Steps {
			again = append(again, s.Rate)
		}
		if d := cmp.Diff(rates, again); d != "" {
			t.Errorf("cut behind step %d (-whole +resumed):\n%s", ends, d)
		}
	}
	if ends != len(rates) {
		t.Errorf("%d steps in the log, %d in the results", ends, len(rates))
	}
}

func TestSearchPlan(t *testing.T) {
	w := Workload{Calls: Calls{Preset: "h100", Seed: 1}, FindKnee: true}
	c, err := w.Config()
	if err != nil {
		t.Fatal(err)
	}
	fast, slow, steps := searchPlan(c, .1)
	if !(fast > 20*time.Minute && slow > fast && slow < 3*time.Hour) || steps < 7 || steps > 15 {
		t.Errorf("%v to %v in %d steps", fast, slow, steps)
	}
	var b bytes.Buffer
	if err := WritePlan(&b, c, true, 2); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.08 and 0.16", "doubles the rate from 0.02", "minutes, more when", "At $2.00 an hour: $"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, b.String())
		}
	}
}

func TestSearchRefuses(t *testing.T) {
	some := Seconds(time.Minute)
	itl, err := ParseSLO("itl:p95:40ms")
	if err != nil {
		t.Fatal(err)
	}
	for why, w := range map[string]Workload{
		"closed loop":    {FindKnee: true, Concurrency: Rates{1, 2}},
		"stop":           {FindKnee: true, Rates: Rates{1}, StopAfterFail: true},
		"no start":       {FindKnee: true},
		"only ITL":       {FindKnee: true, Rates: Rates{1}, SLO: &itl},
		"confirm of any": {Rates: Rates{1}, Confirm: &some},
	} {
		if _, err := w.Config(); err == nil || !(strings.Contains(err.Error(), "--find-knee") || strings.Contains(err.Error(), "--confirm")) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
