package importer

import (
	"encoding/json"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// Little's law is of a steady state in which what is due is in flight: where a step of ours is flagged not to be one, its figures need not agree.
func TestLintKnowsWhatIsFlagged(t *testing.T) {
	for _, c := range []struct {
		flags   []string
		busy    float64
		outcome Outcome
		says    string
	}{
		{nil, 70, Consistent, ""},
		{nil, 88.4, Doubtful, "requests are missing"},
		{[]string{measurement.FlagOffRate}, 88.4, Doubtful, "requests are missing"},
		{[]string{measurement.FlagCapBound}, 88.4, Untold, "the cap held calls back"},
		{[]string{measurement.FlagOffRate, measurement.FlagUnstable}, 88.4, Untold, "kept growing"},
		{[]string{measurement.FlagIncomplete}, 88.4, Untold, "was cut"},
		{[]string{measurement.FlagCapBound}, 70, Consistent, ""},
	} {
		live, turns := 69.4, 40.
		r := measurement.Results{Schema: "kneefinder/results/v1", Label: "own", Config: measurement.Config{Turns: 4, SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
			Steps: []measurement.StepResult{{Rate: 18, WindowS: 90, MeasuredTurns: 3600, ArrivedRate: &live, ThroughputTurns: &turns, LiveTurnsMean: &live, AchievedConcurrency: &c.busy, Flags: c.flags, Verdict: measurement.Undecided}}}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		checks, _, err := Lint(File{Name: "own.json", Data: data})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, k := range checks {
			if strings.Contains(k.Name, "Little") {
				found = true
				if k.Outcome != c.outcome || !strings.Contains(k.Figures+k.Says, c.says) || !strings.Contains(k.Figures, "69.4 in flight") {
					t.Errorf("%v, %v computed: %+v", c.flags, c.busy, k)
				}
			}
		}
		if !found {
			t.Errorf("%v: no check of Little's law", c.flags)
		}
	}
}

func TestFiguresAreWrittenOut(t *testing.T) {
	for v, want := range map[float64]string{3.2e12: "3200000000000", 12345.6: "12346", .00001234: "0.00001234", 29.2345: "29.23", 0: "0"} {
		if got := short(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
