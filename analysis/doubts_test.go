package analysis

import (
	"slices"
	"strings"
	"testing"

	"kneefinder/measurement"
)

func TestDoubts(t *testing.T) {
	step := func(rate float64, edit func(*measurement.StepResult)) measurement.StepResult {
		s := measurement.StepResult{Rate: rate, MeasuredTurns: 100, LiveCallsMax: new(2), CacheHitRate: figure(.98)}
		if edit != nil {
			edit(&s)
		}
		return s
	}
	flag := func(name string) func(*measurement.StepResult) {
		return func(s *measurement.StepResult) { s.Flags, s.CacheHitRate = []string{name}, figure(.012) }
	}
	short := func(n int) func(*measurement.StepResult) {
		return func(s *measurement.StepResult) {
			s.ErrorKinds = map[measurement.Outcome]int{measurement.ShortOutput: n}
		}
	}
	dials := func(n int) func(*measurement.StepResult) {
		return func(s *measurement.StepResult) { s.Dialed = n }
	}
	for _, c := range []struct {
		why   string
		edit  func(*measurement.Log, *measurement.Results)
		steps []measurement.StepResult
		want  string // "" for none
	}{
		{"nothing", nil, []measurement.StepResult{step(1, nil)}, ""},
		{"no steps", nil, nil, ""},
		{"buffered twice at one rate and once at another", nil, []measurement.StepResult{step(2, flag(measurement.FlagBuffered)), step(1, nil), step(.5, flag(measurement.FlagBuffered)), step(2, flag(measurement.FlagBuffered))},
			"At 0.5, 2 calls/s answers came whole, in one read, so there is no gap between tokens to measure"},
		{"cold at the lowest rate", nil, []measurement.StepResult{step(2, nil), step(1, flag(measurement.FlagColdCache))}, "At 1 calls/s only 1 % of the prompts was cached although no more than 2 calls were live at once"},
		{"cold at a higher rate may be eviction", nil, []measurement.StepResult{step(1, nil), step(2, flag(measurement.FlagColdCache))}, ""},
		{"far away", func(_ *measurement.Log, r *measurement.Results) { r.Engine.ConnectMS = figure(31) }, nil, "takes 31 ms, more than a tenth of the TTFT limit of 300 ms"},
		{"near enough", func(_ *measurement.Log, r *measurement.Results) { r.Engine.ConnectMS = figure(30) }, nil, ""},
		{"far away, and TTFT has no limit", func(_ *measurement.Log, r *measurement.Results) {
			r.Engine.ConnectMS, r.Config.SLO = figure(31), nil
		}, nil, ""},
		{"dialing", nil, []measurement.StepResult{step(1, dials(2)), step(2, dials(3)), step(3, dials(4))}, "At 2, 3 calls/s TTFT of 7 turns holds opening a connection: --preconnect leaves it out."},
		{"dialing all the same", func(_ *measurement.Log, r *measurement.Results) { r.Config.Preconnect = true }, []measurement.StepResult{step(2, dials(3))}, "in spite of --preconnect"},
		{"one of few", nil, []measurement.StepResult{step(1, func(s *measurement.StepResult) { s.Dialed, s.MeasuredTurns = 1, 47 })}, "TTFT of 1 turn holds"},
		{"short answers", nil, []measurement.StepResult{step(1, short(1)), step(2, short(2))}, "At 2 calls/s the answers of 2 turns were shorter than the 100 tokens asked"},
		{"in a closed loop", func(_ *measurement.Log, r *measurement.Results) { r.Config.Arrivals = closed }, []measurement.StepResult{step(8, dials(3))}, "At 8 calls at once TTFT of 3 turns"},
		{"a shard", func(l *measurement.Log, _ *measurement.Results) { l.Header.Shard = "0/3" }, nil, "This is shard 0/3 of a run"},
	} {
		log, r := measurement.Log{}, measurement.Results{Config: testConfig(), Steps: c.steps}
		if c.edit != nil {
			c.edit(&log, &r)
		}
		got := doubts(log, r)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
	log := pool("warned", .85, .3, .5)
	log.Header.Engine.ConnectMS = figure(400)
	if r := Analyze(log); !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "Opening a connection") }) {
		t.Errorf("not among the warnings: %q", r.Warnings)
	}
}
