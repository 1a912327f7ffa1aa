package analysis

import (
	"testing"

	"kneefinder/measurement"
)

// Only a step that had an interval to bound had too few turns for it: of other tools' figures nothing of the kind is known.
func TestUnbounded(t *testing.T) {
	for _, c := range []struct {
		name string
		s    measurement.StepResult
		want bool
	}{
		{"bounded", measurement.StepResult{TTFTP95: figure(90), TTFTP95CI: [2]*float64{figure(70), figure(110)}, NEff: figure(60)}, false},
		{"open above", measurement.StepResult{TTFTP95: figure(90), TTFTP95CI: [2]*float64{figure(70), nil}}, true},
		{"open on both sides, of few turns", measurement.StepResult{TTFTP95: figure(90), NEff: figure(4)}, true},
		{"another tool's", measurement.StepResult{TTFTP95: figure(90), MeasuredTurns: 11002}, false},
		{"censored", measurement.StepResult{NEff: figure(60)}, false},
	} {
		if got := unbounded(c.s); got != c.want {
			t.Errorf("%s: %v; want %v", c.name, got, c.want)
		}
	}
}
