package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// calls are n calls of two turns due a second apart in the window of aStep(0, 1, 0); the second turn's TTFT is ttft(i).
func calls(n int, ttft func(i int) time.Duration) []measurement.Turn {
	var out []measurement.Turn
	for i := range n {
		due := 30*second + time.Duration(i)*second/2
		out = append(out, aTurn(0, i, 1, due, 900*time.Millisecond), aTurn(0, i, 2, due+7*second, ttft(i)))
	}
	return out
}

func constant(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func calm() measurement.Step {
	s := aStep(0, 1.1, 0)
	s.ArrivedCalls, s.LiveTurnsMean, s.LiveMean, s.LiveMax, s.InFlightStart, s.InFlightEnd = 100, 3.42, 14, 20, 3, 3
	return s
}

func near(t *testing.T, name string, got *float64, want float64) {
	t.Helper()
	switch {
	case got == nil && !math.IsNaN(want):
		t.Errorf("%s: got none, want %v", name, want)
	case got != nil && !(math.Abs(*got-want) <= 1e-9+1e-3*math.Abs(want)):
		t.Errorf("%s: got %v, want %v", name, *got, want)
	}
}

func TestAnalyzeStepFigures(t *testing.T) {
	s := calm()
	hist := measurement.NewHistogram()
	for i := range 100 {
		measurement.RecordGap(hist, time.Duration(i+1)*time.Millisecond)
	}
	h, err := measurement.EncodeHistogram(2, hist)
	if err != nil {
		t.Fatal(err)
	}
	s.ITL = []measurement.Histogram{h}
	turns := calls(100, func(i int) time.Duration { return time.Duration(100+i) * time.Millisecond })
	early := aTurn(0, 900, 2, 29*second, 9*second) // due in the warm-up
	other := aTurn(1, 901, 2, 40*second, 9*second) // of another step
	unsent := measurement.Turn{Call: 902, Turn: 3, Due: 50 * second, Held: measurement.Never, Sent: measurement.Never, FirstToken: measurement.Never,
		LastToken: measurement.Never, End: measurement.Never, PromptTokens: measurement.Unknown, CompletionTokens: measurement.Unknown,
		CachedTokens: measurement.Unknown, Outcome: measurement.NotSent}
	r := AnalyzeStep(testConfig(), s, append(turns, early, other, unsent), nil)

	if r.MeasuredTurns != 100 || r.NotSentTurns != 1 || r.Errors != 0 || r.ErrorKinds != nil {
		t.Errorf("counts: %d measured, %d not sent, %d errors, %v", r.MeasuredTurns, r.NotSentTurns, r.Errors, r.ErrorKinds)
	}
	near(t, "P50", r.TTFTP50, 149.5)
	near(t, "P95, type 7", r.TTFTP95, 100+.95*99)
	near(t, "P99", r.TTFTP99, 100+.99*99)
	near(t, "P95 from sent", r.TTFTSentP95, 100+.95*99-.1)
	near(t, "warm P50", r.WarmTTFTP50, 900)
	near(t, "TPOT", r.TPOTP50, 20)
	near(t, "ITL P50", r.ITLP50, 50)
	near(t, "ITL P95", r.ITLP95, 95)
	near(t, "came", r.ArrivedRate, 100./90)
	near(t, "turns/s", r.ThroughputTurns, 100./90)
	near(t, "tokens/s", r.OutputTokens, 10000./90)
	near(t, "hit rate", r.CacheHitRate, 18000./18300)
	near(t, "errors", r.ErrorRate, 0)
	near(t, "slope", r.InFlightSlope, 0)
	if len(r.Objectives) != 1 || r.Objectives[0].Objective != testConfig().SLO[0] {
		t.Fatalf("objectives: %+v", r.Objectives)
	}
	near(t, "the objective's own value", r.Objectives[0].ValueMS, 100+.95*99)
	near(t, "saturation", r.SaturationRatio, 1)
	near(t, "lag", r.ScheduleLagP99, .1)
	near(t, "live calls", r.LiveCallsMean, 14)
	near(t, "concurrency", r.AchievedConcurrency, (100*.901+100*(.1495+1.98+.001))/90)
	if r.ITLBasis != "token" || r.Verdict != measurement.Pass || len(r.Flags) != 0 {
		t.Errorf("basis %q, verdict %s, flags %v; want token, pass, none", r.ITLBasis, r.Verdict, r.Flags)
	}
	if len(r.ByTurn) != 2 || r.ByTurn[0].Turn != 1 || r.ByTurn[1].Turns != 100 {
		t.Fatalf("by turn: %+v", r.ByTurn)
	}
	near(t, "cold hit rate", r.ByTurn[0].CacheHitRate, 0)
	near(t, "turn 2 ITL", r.ByTurn[1].ITLP95, 95)
	near(t, "turn 2 prompt", r.ByTurn[1].PromptP50, 18300)
}

func TestVerdicts(t *testing.T) {
	config := testConfig()
	fast := calls(100, constant(200*time.Millisecond))
	slow := calls(100, constant(400*time.Millisecond))
	for _, c := range []struct {
		why   string
		step  func(*measurement.Step)
		turns []measurement.Turn
		edit  func([]measurement.Turn) []measurement.Turn
		want  measurement.Verdict
		flags string
		p95   bool // there is one
	}{
		{"within", nil, fast, nil, measurement.Pass, "", true},
		{"over", nil, slow, nil, measurement.Fail, "", true},
		{"exactly at the limit is within", nil, calls(100, constant(300*time.Millisecond)), nil, measurement.Pass, "", true},
		{"one failed turn of 200, on which P99 lands", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			ts[1] = failed(ts[1], measurement.HTTP5xx)
			return ts
		}, measurement.Pass, "censored", true},
		{"P99 lands on turns without a token, P95 does not", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 2 {
				ts[2*i+1] = failed(ts[2*i+1], measurement.TTFTTimeout)
			}
			return ts
		}, measurement.Pass, "censored", true},
		{"2 % of turns failed, each with a token", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 4 {
				ts[2*i+1].Outcome = measurement.Stall
			}
			return ts
		}, measurement.Fail, "errors", true},
		{"P95 lands on turns without a token", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 6 {
				ts[2*i+1] = failed(ts[2*i+1], measurement.TTFTTimeout)
			}
			return ts
		}, measurement.Fail, "censored errors", false},
		{"a failed warm turn is an error too", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 4 {
				ts[2*i] = failed(ts[2*i], measurement.Connect)
			}
			return ts
		}, measurement.Fail, "errors", true},
		{"a whole answer without a content event is neither slow nor failed", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 50 {
				ts[2*i+1].FirstToken, ts[2*i+1].LastToken = measurement.Never, measurement.Never
			}
			return ts
		}, measurement.Pass, "", true},
		{"calls waited for the cap", func(s *measurement.Step) { s.HeldCalls = 1 }, fast, nil, measurement.Undecided, "cap_bound", true},
		{"calls waited for the cap, and it failed", func(s *measurement.Step) { s.HeldCalls = 1 }, slow, nil, measurement.Fail, "cap_bound", true},
		{"the generator was late, and but for that it would have passed", nil, slow, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].Sent = ts[i].Due + 150*time.Millisecond
			}
			return ts
		}, measurement.Undecided, "client_limited", true},
		{"the generator was late, and the server slow all the same", nil, slow, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].Sent = ts[i].Due + 50*time.Millisecond
			}
			return ts
		}, measurement.Fail, "client_limited", true},
		{"a miss that the generator explains beside errors that it does not", nil, slow, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].Sent = ts[i].Due + 150*time.Millisecond
			}
			for i := range 4 {
				ts[2*i+1].Outcome = measurement.Stall
			}
			return ts
		}, measurement.Fail, "client_limited errors", true},
		{"fewer calls came than were asked", func(s *measurement.Step) { s.ArrivedCalls = 88 }, fast, nil, measurement.Pass, "off_rate", true},
		{"more calls came than were asked, and it failed", func(s *measurement.Step) { s.ArrivedCalls = 110 }, slow, nil, measurement.Fail, "off_rate", true},
		{"a tenth less came", func(s *measurement.Step) { s.ArrivedCalls = 90 }, fast, nil, measurement.Pass, "", true},
		{"a call that the cap never let go is no error of the server's", func(s *measurement.Step) { s.HeldCalls = 5 }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 5 {
				shed := failed(ts[2*i], measurement.Shed)
				shed.Sent, shed.Call = measurement.Never, 500+i
				ts = append(ts, shed)
			}
			return ts
		}, measurement.Undecided, "cap_bound", true},
		{"this side was out of files", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 20 {
				ts[2*i+1] = failed(ts[2*i+1], measurement.Connect)
				ts[2*i+1].Local = true
			}
			return ts
		}, measurement.Undecided, "client_limited", true},
		{"the generator was late", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].Sent = ts[i].Due + 7*time.Millisecond
			}
			return ts
		}, measurement.Undecided, "client_limited", true},
		{"late by no more than 2 % of the limit", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].Sent = ts[i].Due + 6*time.Millisecond
			}
			return ts
		}, measurement.Pass, "", true},
		{"turns piled up", func(s *measurement.Step) { s.InFlightEnd = 30 }, fast, nil, measurement.Undecided, "unstable", true},
		{"a few more turns in flight is chance", func(s *measurement.Step) { s.InFlightStart, s.InFlightEnd = 30, 43 }, fast, nil, measurement.Pass, "", true},
		{"first turns were warm", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 5 {
				ts[2*i].CachedTokens = 18000
			}
			return ts
		}, measurement.Undecided, "contaminated", true},
		{"three warm first turns are forgiven", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 3 {
				ts[2*i].CachedTokens = 18000
			}
			return ts
		}, measurement.Pass, "", true},
		{"unknown cached tokens accuse nobody", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].CachedTokens = measurement.Unknown
			}
			return ts
		}, measurement.Pass, "", true},
		{"more cached tokens than prompt, on an idle server, tell no hit rate", func(s *measurement.Step) { s.LiveMax = 1 }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				if ts[i].Turn > 1 {
					ts[i].CachedTokens = ts[i].PromptTokens + 1
				}
			}
			return ts
		}, measurement.Pass, "", true},
		{"answers come whole, in one read", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 81 {
				ts[2*i+1].LastToken = ts[2*i+1].FirstToken + 900*time.Microsecond
			}
			return ts
		}, measurement.Pass, "buffered", true},
		{"not so many of them", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 79 {
				ts[2*i+1].LastToken = ts[2*i+1].FirstToken
			}
			return ts
		}, measurement.Pass, "", true},
		{"answers of four tokens have few gaps", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].LastToken, ts[i].Events, ts[i].CompletionTokens = ts[i].FirstToken, 4, 4
			}
			return ts
		}, measurement.Pass, "", true},
		{"four whole answers prove nothing", nil, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].LastToken = ts[i].FirstToken
			}
			return ts[:8]
		}, measurement.Pass, "short", true},
		{"nothing cached, and nobody there to evict it", func(s *measurement.Step) { s.LiveMax = 2 }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].CachedTokens = 0
			}
			return ts
		}, measurement.Pass, "cold_cache", true},
		{"nothing cached among three calls", func(s *measurement.Step) { s.LiveMax = 3 }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].CachedTokens = 0
			}
			return ts
		}, measurement.Pass, "", true},
		{"two calls, and nobody says what is cached", func(s *measurement.Step) { s.LiveMax = 2 }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i].CachedTokens = measurement.Unknown
			}
			return ts
		}, measurement.Pass, "", true},
		{"few turns", nil, fast, func(ts []measurement.Turn) []measurement.Turn { return ts[:40] }, measurement.Pass, "short", true},
		{"no turns", nil, nil, nil, measurement.Undecided, "short", false},
		{"cut in the window", func(s *measurement.Step) { s.WindowEnd, s.DrainEnd = measurement.Never, measurement.Never }, fast, nil, measurement.Undecided, "incomplete", true},
		{"cut, though it was failing already", func(s *measurement.Step) { s.WindowEnd, s.DrainEnd = measurement.Never, measurement.Never }, slow, nil, measurement.Undecided, "incomplete", true},
		{"cut, with nothing but errors", func(s *measurement.Step) { s.WindowEnd, s.DrainEnd = measurement.Never, measurement.Never }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range ts {
				ts[i] = failed(ts[i], measurement.Connect)
			}
			return ts
		}, measurement.Undecided, "censored incomplete errors", false},
		{"turns that this side canceled tell nothing", func(s *measurement.Step) { s.DrainEnd = measurement.Never }, fast, func(ts []measurement.Turn) []measurement.Turn {
			for i := range 30 {
				ts[2*i+1] = failed(ts[2*i+1], measurement.Canceled)
			}
			return ts
		}, measurement.Undecided, "incomplete", true},
		{"cut before the window began", func(s *measurement.Step) { s.WindowStart, s.WindowEnd = measurement.Never, measurement.Never }, fast, nil, measurement.Undecided, "short incomplete", false},
	} {
		s, turns := calm(), slices.Clone(c.turns)
		if c.step != nil {
			c.step(&s)
		}
		if c.edit != nil {
			turns = c.edit(turns)
		}
		r := AnalyzeStep(config, s, turns, nil)
		if got := strings.Join(r.Flags, " "); r.Verdict != c.want || got != c.flags || (r.TTFTP95 != nil) != c.p95 {
			t.Errorf("%s: verdict %s, flags %q, P95 %v; want %s, %q, P95 known %v", c.why, r.Verdict, got, value(r.TTFTP95), c.want, c.flags, c.p95)
		}
	}
}

func TestObjectives(t *testing.T) {
	turns := calls(100, func(i int) time.Duration { return time.Duration(100+i) * time.Millisecond })
	for _, c := range []struct {
		why  string
		slo  []measurement.Objective
		want measurement.Verdict
	}{
		{"none is asked: nothing to miss", nil, measurement.Pass},
		{"P90 of TTFT, which no figure shows", []measurement.Objective{{Metric: "ttft", Quantile: .9, LimitMS: 189}}, measurement.Fail},
		{"P90 of TTFT, kept", []measurement.Objective{{Metric: "ttft", Quantile: .9, LimitMS: 190}}, measurement.Pass},
		{"the second of two is missed", []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}, {Metric: "ttft", Quantile: .5, LimitMS: 100}}, measurement.Fail},
		{"ITL without a histogram cannot be told", []measurement.Objective{{Metric: "itl", Quantile: .95, LimitMS: 40}}, measurement.Undecided},
		{"but TTFT may fail already", []measurement.Objective{{Metric: "itl", Quantile: .95, LimitMS: 40}, {Metric: "ttft", Quantile: .95, LimitMS: 30}}, measurement.Fail},
	} {
		config := testConfig()
		config.SLO = c.slo
		if got := AnalyzeStep(config, calm(), turns, nil).Verdict; got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}

func TestChunkBasis(t *testing.T) {
	turns := calls(100, constant(200*time.Millisecond))
	for i := range turns {
		turns[i].Events = 50
	}
	s := calm()
	hist := measurement.NewHistogram()
	measurement.RecordGap(hist, 40*time.Millisecond)
	h, err := measurement.EncodeHistogram(2, hist)
	if err != nil {
		t.Fatal(err)
	}
	s.ITL = []measurement.Histogram{h}
	if r := AnalyzeStep(testConfig(), s, turns, nil); r.ITLBasis != "chunk" {
		t.Errorf("two tokens an event: basis %q, want chunk", r.ITLBasis)
	}
}

func TestBufferedStreamHasNoITL(t *testing.T) {
	turns := calls(100, constant(200*time.Millisecond))
	for i := range turns {
		turns[i].LastToken = turns[i].FirstToken
		turns[i].Retries = 1
	}
	turns[1].Dialed, turns[4].Dialed = time.Millisecond, time.Millisecond // a measured turn and a first one
	s := calm()
	hist := measurement.NewHistogram()
	measurement.RecordGap(hist, time.Microsecond)
	h, err := measurement.EncodeHistogram(2, hist)
	if err != nil {
		t.Fatal(err)
	}
	s.ITL = []measurement.Histogram{h}
	config := testConfig()
	config.SLO = append(config.SLO, measurement.Objective{Metric: "itl", Quantile: .9, LimitMS: 40})
	r := AnalyzeStep(config, s, turns, nil)
	if r.ITLP50 != nil || r.ITLP95 != nil || r.ITLP99 != nil || r.ITLBasis != "" || r.ByTurn[1].ITLP50 != nil || r.Objectives[1].ValueMS != nil {
		t.Errorf("ITL of answers that came whole: %v %v %v %q %v %v", r.ITLP50, r.ITLP95, r.ITLP99, r.ITLBasis, r.ByTurn[1].ITLP50, r.Objectives[1].ValueMS)
	}
	if r.Verdict != measurement.Undecided {
		t.Errorf("an ITL objective that cannot be told: %s, want undecided", r.Verdict)
	}
	if r.Retries != 200 || r.Dialed != 1 {
		t.Errorf("%d retries, %d dialed; want 200 of all turns, 1 of the measured", r.Retries, r.Dialed)
	}
}

func TestOnlyOpenLoopsHaveARateToMiss(t *testing.T) {
	s := calm()
	s.Rate = 20
	turns := calls(100, constant(200*time.Millisecond))
	config := testConfig()
	config.Arrivals = closed
	if r := AnalyzeStep(config, s, turns, nil); slices.Contains(r.Flags, measurement.FlagOffRate) {
		t.Errorf("a closed loop: flags %v", r.Flags)
	}
	log := measurement.Log{Header: measurement.Header{Config: testConfig(), Shard: "0/2"}, Steps: []measurement.Step{s}, Turns: turns}
	if r := Analyze(log); slices.Contains(r.Steps[0].Flags, measurement.FlagOffRate) {
		t.Errorf("a shard, whose calls are a part of them: flags %v", r.Steps[0].Flags)
	}
	log.Header.Shard = ""
	if r := Analyze(log); !slices.Contains(r.Steps[0].Flags, measurement.FlagOffRate) {
		t.Errorf("a whole run: flags %v, want off_rate", r.Steps[0].Flags)
	}
}

func TestEveryFlagHasAMeaning(t *testing.T) {
	for _, f := range []string{measurement.FlagClientLimited, measurement.FlagCapBound, measurement.FlagUnstable, measurement.FlagContaminated, measurement.FlagCensored, measurement.FlagShort,
		measurement.FlagIncomplete, measurement.FlagErrors, measurement.FlagBuffered, measurement.FlagColdCache, measurement.FlagOffRate} {
		if measurement.FlagMeaning(f) == "" {
			t.Errorf("%s has none", f)
		}
	}
}

func TestWarnings(t *testing.T) {
	turns := calls(100, constant(200*time.Millisecond))
	s := calm()
	s.LiveTurnsMean = 9
	if _, w := analyzeStep(testConfig(), s, stepOf(turns, 0), nil); len(w) != 1 || !strings.Contains(w[0], "turns in flight were counted") {
		t.Errorf("three times as many turns counted as logged: warnings %q", w)
	}
	s = calm()
	s.ITL = []measurement.Histogram{{Turn: 2, Encoded: "torn"}}
	if r, w := analyzeStep(testConfig(), s, stepOf(turns, 0), nil); len(w) != 1 || r.ITLP95 != nil {
		t.Errorf("a torn histogram: warnings %q, ITL %v", w, r.ITLP95)
	}
}

// A few turns in flight at the end of a short window are chance; turns that fail are not completed; a cap makes arrivals its own.
func TestSaturationRatio(t *testing.T) {
	refused := func(ts []measurement.Turn) {
		for i := range 50 {
			ts[2*i+1] = failed(ts[2*i+1], measurement.HTTP429)
		}
	}
	for _, c := range []struct {
		why        string
		start, end int
		held       int
		edit       func([]measurement.Turn)
		want       float64 // NaN for absent
	}{
		{"steady", 3, 3, 0, nil, 1},
		{"three more at the end than at the start", 0, 3, 0, nil, 1},
		{"fewer at the end", 9, 1, 0, nil, 1},
		{"forty more", 3, 43, 0, nil, .8},
		{"half of the later turns refused", 3, 3, 0, refused, .75},
		{"the cap held calls", 3, 3, 2, nil, math.NaN()},
	} {
		s, turns := calm(), calls(100, constant(200*time.Millisecond))
		s.InFlightStart, s.InFlightEnd, s.HeldCalls = c.start, c.end, c.held
		if c.edit != nil {
			c.edit(turns)
		}
		got := value(AnalyzeStep(testConfig(), s, turns, nil).SaturationRatio)
		if math.Abs(got-c.want) > .011 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%s: ratio %.3f, want %.3f", c.why, got, c.want)
		}
	}
}

// Counts that cannot be right are named, and count in no hit rate; answers longer than asked are named.
func TestImpossibleCounts(t *testing.T) {
	turns := calls(100, constant(200*time.Millisecond))
	turns[1].CachedTokens = 10 * turns[1].PromptTokens
	for i := range 5 {
		turns[2*i+1].CompletionTokens = 500
	}
	log := measurement.Log{Header: measurement.Header{Config: testConfig()}, Steps: []measurement.Step{calm()}, Turns: turns}
	r := Analyze(log)
	warnings := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"1 turns report more cached tokens", "5 of 200 answers are longer"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings lack %q:\n%s", want, warnings)
		}
	}
	if h := value(r.Steps[0].CacheHitRate); h > 1 {
		t.Errorf("hit rate %v", h)
	}
}

// Requests that the server refuses are what binds; they did not wait behind anything.
func TestMechanismNamesErrors(t *testing.T) {
	turns := calls(100, constant(20*time.Millisecond))
	for i := range 50 {
		turns[2*i+1] = failed(turns[2*i+1], measurement.HTTP429)
	}
	log := measurement.Log{Header: measurement.Header{Config: testConfig()}, Steps: []measurement.Step{calm()}, Turns: turns}
	m := Analyze(log).Mechanism
	if m.Name != MechanismErrors || m.Confidence != "high" || !strings.Contains(strings.Join(m.Evidence, " "), "50 of the 50 failures as http_429") {
		t.Errorf("%+v", m)
	}
}
