package analysis

import (
	"strings"
	"testing"

	"kneefinder/measurement"
)

// A long list of loads is folded, and loads that are undecided for one reason stand together.
func TestLists(t *testing.T) {
	if got := listed([]string{"1", "2", "3", "4", "5"}); got != "1, 2, 3, 4, 5" {
		t.Error(got)
	}
	if got := listed([]string{"1", "2", "3", "4", "5", "6", "9"}); got != "1, 2, 3, 4 and 2 more up to 9" {
		t.Error(got)
	}
	var steps []measurement.StepResult
	for i := range 40 {
		s := measurement.StepResult{Rate: float64(i + 1), Verdict: measurement.Undecided, MeasuredTurns: 9, Flags: []string{measurement.FlagClientLimited}}
		if i == 7 {
			s.Flags = []string{measurement.FlagCapBound}
		}
		steps = append(steps, s)
	}
	got := sloKnee(perSecond, steps, slo300).Note
	if !strings.Contains(got, "Undecided, and passed over: 1, 2, 3, 4 and 34 more up to 40 calls/s (") || !strings.Contains(got, ", 8 calls/s (") || strings.Contains(got, "11") {
		t.Errorf("%s", got)
	}
}

// A curve that a search chose has no elbow, and none is hinted at; a step that it ended early says which rate came where that decides.
func TestSearchedCurve(t *testing.T) {
	var steps []measurement.StepResult
	for i, x := range []float64{1, 2, 4, 3, 2.5, 3.5, 3.25} {
		s := measurement.StepResult{Step: i, Rate: x, ArrivedRate: figure(x), MeasuredTurns: 100, TTFTP95: figure(50), Verdict: measurement.Pass, Flags: []string{}}
		if x > 3.2 {
			s.TTFTP95, s.Verdict, s.Flags, s.ArrivedRate = figure(900), measurement.Fail, []string{measurement.FlagEarlyFail}, figure(1.3*x)
		}
		steps = append(steps, s)
	}
	if k := CurvatureKnee(steps); k.Status != measurement.NoKnee || !strings.Contains(k.Note, "none is given") || strings.Contains(k.Note, "bends at") {
		t.Errorf("%+v", k)
	}
	if k := sloKnee(perSecond, steps, slo300); !strings.Contains(k.Note, "The λ that came at 3.25 was 4.23.") {
		t.Errorf("%s", k.Note)
	}
}
