package analysis

import (
	"slices"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// judgedAs gives steps the verdicts that follow them.
func judgedAs(pairs ...any) []measurement.StepResult {
	var out []measurement.StepResult
	for i := 0; i < len(pairs); i += 2 {
		s := pairs[i].(measurement.StepResult)
		s.Verdict = pairs[i+1].(measurement.Verdict)
		out = append(out, s)
	}
	return out
}

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
		{"cut in its last step", nil, []measurement.StepResult{step(1, nil), step(3, flag(measurement.FlagIncomplete))}, "The run was cut: its last step, λ 3 calls/s, did not end and counts for nothing."},
		{"cut, then gone on with", nil, []measurement.StepResult{step(3, flag(measurement.FlagIncomplete)), step(4, nil)}, "The run was cut: its step of λ 3 calls/s did not end and counts for nothing."},
		{"cut twice", nil, []measurement.StepResult{step(3, flag(measurement.FlagIncomplete)), step(4, flag(measurement.FlagIncomplete))}, "its steps of λ 3 calls/s, λ 4 calls/s did not end and count for nothing."},
		{"a closed loop cut", func(_ *measurement.Log, r *measurement.Results) { r.Config.Arrivals = closed }, []measurement.StepResult{step(8, flag(measurement.FlagIncomplete))}, "its last step, 8 calls at once, did not end"},
		{"a step passes above one that fails", nil, judgedAs(step(5, nil), measurement.Pass, step(4, nil), measurement.Fail, step(6, nil), measurement.Fail, step(3, nil), measurement.Pass),
			"4 calls/s fails but 5 passes: the steps are too short or the server is unsteady; measure longer (--min-turns) around there."},
		{"a simulated engine has no noise", func(_ *measurement.Log, r *measurement.Results) {
			r.Engine.Kind, r.Seed = "simulated", 4
		}, judgedAs(step(5, nil), measurement.Pass, step(4, nil), measurement.Fail), "so it is the arrivals of this seed; measure longer (--min-turns) around there, or try --seed 5."},
		{"a fleet has a rhythm", func(_ *measurement.Log, r *measurement.Results) {
			r.Engine.Kind, r.Engine.Details, r.Seed = "simulated", map[string]any{"fleet": map[string]any{"replicas": 56., "router": "round_robin", "affinity_s": 60.}}, 1
		}, judgedAs(step(2.5, nil), measurement.Pass, step(2, nil), measurement.Fail), "28 s later (56 replicas at 2 calls/s), while they last, and which of their turns it meets is up to both. Try --seed 2, and 50 and 62 replicas."},
		{"a mixed one has no neighbours", func(_ *measurement.Log, r *measurement.Results) {
			r.Engine.Kind, r.Engine.Details = "simulated", map[string]any{"fleet": map[string]any{"replicas": 2., "router": "round_robin", "replica_gpus": []any{"l40s", "h100"}}}
		}, judgedAs(step(2.5, nil), measurement.Pass, step(2, nil), measurement.Fail), "again and again; try --seed 1."},
		{"a random router has none", func(_ *measurement.Log, r *measurement.Results) {
			r.Engine.Kind, r.Engine.Details = "simulated", map[string]any{"fleet": map[string]any{"replicas": 56., "router": "random"}}
		}, judgedAs(step(2.5, nil), measurement.Pass, step(2, nil), measurement.Fail), "so it is the arrivals of this seed; measure longer"},
		{"one rate fails, then passes", nil, judgedAs(step(3, nil), measurement.Pass, step(4, nil), measurement.Fail, step(4, nil), measurement.Pass),
			"At 4 calls/s one step fails and another passes: the steps are too short or the server is unsteady; measure longer (--min-turns) around there."},
		{"one rate passes, then fails", nil, judgedAs(step(3, nil), measurement.Pass, step(4, nil), measurement.Pass, step(4, nil), measurement.Fail),
			"At 4 calls/s one step fails and another passes: the steps are too short or the server is unsteady; measure longer (--min-turns) around there."},
		{"one rate passes, then fails, below one that passes", nil, judgedAs(step(4, nil), measurement.Pass, step(4, nil), measurement.Fail, step(5, nil), measurement.Pass),
			"4 calls/s fails but 4, 5 pass: "},
		{"passes up to a rate, fails from another on, twice each", nil, judgedAs(step(3, nil), measurement.Pass, step(4, nil), measurement.Fail, step(3, nil), measurement.Pass, step(4, nil), measurement.Fail), ""},
		{"several do", nil, judgedAs(step(1, nil), measurement.Fail, step(2, nil), measurement.Fail, step(3, nil), measurement.Pass, step(4, nil), measurement.Undecided, step(5, nil), measurement.Pass),
			"1, 2 calls/s fail but 3, 5 pass: "},
		{"a cut step fails below one that passes", nil, judgedAs(step(4, flag(measurement.FlagIncomplete)), measurement.Fail, step(5, nil), measurement.Pass), "The run was cut"},
		{"another λ came", nil, []measurement.StepResult{step(1, func(s *measurement.StepResult) {
			s.Flags, s.ArrivedRate = []string{measurement.FlagOffRate}, figure(.8)
		})},
			"more than a tenth: 0.8 for 1 calls/s. Few arrivals make it so"},
		{"steps and no turns", func(l *measurement.Log, _ *measurement.Results) { l.Steps = []measurement.Step{{}, {Step: 1}} }, nil, "The log holds no turns, only 2 steps: "},
		{"no turn in a window", func(l *measurement.Log, _ *measurement.Results) {
			l.Steps, l.Turns = []measurement.Step{{WindowStart: 5, WindowEnd: 9}}, []measurement.Turn{{Due: 4, FirstToken: 5}, {Due: 10, FirstToken: 11}, {Step: 1, Due: 7, FirstToken: 8}}
		}, nil, "None of the 3 turns in the log was due in the window of its step"},
		{"a turn in a window", func(l *measurement.Log, _ *measurement.Results) {
			l.Steps, l.Turns = []measurement.Step{{WindowStart: 5, WindowEnd: 9}}, []measurement.Turn{{Due: 9, FirstToken: measurement.Never}}
		}, nil, ""},
		{"answered before it was asked", func(l *measurement.Log, _ *measurement.Results) {
			l.Turns = []measurement.Turn{{Call: 7, Turn: 2, Due: 3e9, Sent: 3e9, FirstToken: 1e9}, {FirstToken: measurement.Never, Due: 5}}
		}, nil, "1 turn got a first token before it was due or sent (the first is turn 2 of call 7, due at 3 s, sent at 3 s, answered at 1 s)"},
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

// A load that stands in several rows of the table is said to be one.
func TestRepeated(t *testing.T) {
	step := func(rate float64, flags ...string) measurement.StepResult {
		return measurement.StepResult{Rate: rate, WindowS: 90, MeasuredTurns: 60, TTFTP95: figure(100), Verdict: measurement.Pass, Flags: flags}
	}
	for _, c := range []struct {
		steps []measurement.StepResult
		want  string
	}{
		{[]measurement.StepResult{step(1), step(2)}, ""},
		{[]measurement.StepResult{step(1), step(1, measurement.FlagIncomplete)}, ""}, // a step that was cut counts for nothing
		{[]measurement.StepResult{step(2), step(1), step(2)}, "2 calls/s was measured more than once. It counts as one load"},
		{[]measurement.StepResult{step(2), step(1), step(2), step(1), step(1)}, "1, 2 calls/s were measured more than once. Each counts as one load"},
	} {
		if got := repeated(perSecond, c.steps); c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

// Settings that were computed differ only where they can be told apart.
func TestDifferencesOfComputed(t *testing.T) {
	a, b := measurement.Results{Config: measurement.Config{WarmupSeconds: 3.3600000000000003, StepSeconds: 90}}, measurement.Results{Config: measurement.Config{WarmupSeconds: 20.1, StepSeconds: 90}}
	if got := differences(a, b, windows); got != "warmup_s is 3.36 against 20.1" {
		t.Errorf("%q", got)
	}
	b.Config.WarmupSeconds = 3.36
	if got := differences(a, b, windows); got != "" {
		t.Errorf("%q of settings that are alike", got)
	}
}
