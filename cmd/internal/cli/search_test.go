package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/generator"
	"kneefinder/measurement"
	"kneefinder/simulation"
)

// found runs a search on the demo's engine in virtual time into out, or goes on with the one that is there; progress may be nil.
func found(t *testing.T, out Output, progress *Progress) measurement.Results {
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
		measurement.Calibration{Overhead: float64(simulation.Overhead(&gen.Script)), TokensPerWord: 1})
	return goOn(t, w, c, gen, eng, out, progress)
}

// A search finds a knee, its steps differ in length, those that must fail end early, and the log alone says so; cut behind any step
// it goes on where it was.
func TestSearchAndResume(t *testing.T) {
	dir := t.TempDir()
	whole := found(t, Output{Label: "x", Out: dir}, nil)
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
		for _, s := range found(t, Output{Label: "x", Out: cut}, nil).Steps {
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

// What a search says before each step is true of the step that follows: its rate, why it is tried, and what its window waits for.
func TestSearchTells(t *testing.T) {
	for _, brief := range []bool{true, false} {
		var told bytes.Buffer
		progress := NewProgress(&told)
		progress.Brief = brief
		r := found(t, Output{Label: "x", Out: t.TempDir()}, progress)
		lines := strings.Split(strings.TrimSpace(told.String()), "\n")
		if len(lines) != 2*len(r.Steps) {
			t.Fatalf("%d lines for %d steps:\n%s", len(lines), len(r.Steps), told.String())
		}
		told.Reset()
		said := regexp.MustCompile(`^λ (\S+) calls/s, (.*): a window (?:until (\d+) turns, at least|of) ([\d.]+)s(?: and at most ([\d.]+)s)?(, about \S+ with warm-up and drain)?$`)
		reasons := map[string]int{}
		for i, s := range r.Steps {
			m := said.FindStringSubmatch(lines[2*i])
			if m == nil || (m[6] == "") != brief || !strings.HasPrefix(lines[2*i+1], "λ "+m[1]+" calls/s: P95 TTFT ") {
				t.Fatalf("%q, then %q", lines[2*i], lines[2*i+1])
			}
			number := func(group int) float64 { v, _ := strconv.ParseFloat(m[group], 64); return v }
			if number(1) != s.Rate {
				t.Errorf("%q before the step at %g", lines[2*i], s.Rate)
			}
			most := m[5] != "" && s.WindowS >= number(5)-1e-6
			if !slices.Contains(s.Flags, measurement.FlagEarlyFail) && !most && (s.MeasuredTurns < int(number(3)) || s.WindowS < number(4)-1e-6) {
				t.Errorf("%q before a step of %d turns in %g s", lines[2*i], s.MeasuredTurns, s.WindowS)
			}
			kind, ok := strings.CutPrefix(m[2], "between ")
			if ok {
				var low, high float64
				if n, _ := fmt.Sscanf(kind, "%g and %g", &low, &high); n != 2 || low >= s.Rate || high <= s.Rate {
					t.Errorf("%q: not so", lines[2*i])
				}
				kind = "between"
			}
			reasons[kind]++
		}
		if reasons["where the search starts"] != 1 || reasons["doubled until a step fails"] == 0 || reasons["between"] == 0 || reasons["tried again to be sure"] < 2 || len(reasons) != 4 {
			t.Errorf("the reasons told: %v", reasons)
		}
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
	for _, want := range []string{"0.08 and 0.16", "doubles the rate from 0.02", "27s of warm-up, a window until 60 turns, at least 90s and at most 20m (at least 1m while the rate is doubled, 5m to confirm)", "minutes, more when", "At $2.00 an hour: $"} {
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
		"closed loop":    {FindKnee: true, Concurrency: Concurrency{1, 2}},
		"stop":           {FindKnee: true, Rates: Rates{1}, StopAfterFail: true},
		"no start":       {FindKnee: true},
		"only ITL":       {FindKnee: true, Rates: Rates{1}, SLO: &itl},
		"brief confirm":  {FindKnee: true, Rates: Rates{1}, Confirm: &some},
		"confirm of any": {Rates: Rates{1}, Confirm: &some},
	} {
		if _, err := w.Config(); err == nil || !(strings.Contains(err.Error(), "--find-knee") || strings.Contains(err.Error(), "--confirm")) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
