package analysis

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kneefinder/measurement"
)

func TestSearchStepByStep(t *testing.T) {
	const p, f, u = measurement.Pass, measurement.Fail, measurement.Undecided
	type ran struct {
		rate, window float64
		v            measurement.Verdict
	}
	for _, c := range []struct {
		why  string
		done []ran
		want Probe
		ok   bool
	}{
		{"nothing yet: the start", nil, Probe{Rate: 1, Rough: true}, true},
		{"it passes: double", []ran{{1, 60, p}}, Probe{Rate: 2, Rough: true}, true},
		{"it fails: halve", []ran{{1, 60, f}}, Probe{Rate: .5, Rough: true}, true},
		{"undecided is no pass", []ran{{1, 60, u}}, Probe{Rate: .5, Rough: true}, true},
		{"a bracket: its geometric middle", []ran{{1, 60, p}, {2, 60, f}}, Probe{Rate: 1.41, Rough: true}, true},
		{"and again", []ran{{1, 60, p}, {2, 60, f}, {1.41, 90, p}}, Probe{Rate: 1.68}, true},
		{"a fifth apart or less: the passing end for long", []ran{{1, 60, p}, {1.1, 60, f}}, Probe{Rate: 1, Confirm: true}, true},
		{"then the failing one", []ran{{1, 60, p}, {1.1, 60, f}, {1, 300, p}}, Probe{Rate: 1.1, Confirm: true}, true},
		{"then the passing one again", []ran{{1, 60, p}, {1.1, 60, f}, {1, 300, p}, {1.1, 300, f}}, Probe{Rate: 1, Confirm: true}, true},
		{"and that is all", []ran{{1, 60, p}, {1.1, 60, f}, {1, 300, p}, {1.1, 300, f}, {1, 300, p}}, Probe{}, false},
		{"long steps from the start: what they say stands", []ran{{1, 300, p}, {1.1, 300, f}, {1.1, 300, f}, {1, 300, p}}, Probe{}, false},
		{"the passing end fails for long: the next below it is the end", []ran{{1, 60, p}, {2, 60, f}, {1.41, 90, p}, {1.68, 90, f}, {1.54, 90, p}, {1.54, 300, f}}, Probe{Rate: 1.41, Confirm: true}, true},
		{"and where that is far below, on between them by long steps", []ran{{1, 60, p}, {1.6, 60, f}, {1.5, 90, p}, {1.5, 300, f}}, Probe{Rate: 1.22, Confirm: true}, true},
		{"the failing end passes for long: on above it", []ran{{1, 60, p}, {2, 60, f}, {1.1, 60, f}, {1, 300, p}, {1.1, 300, p}}, Probe{Rate: 1.48, Confirm: true}, true},
		{"of two long steps a fail outweighs", []ran{{1, 60, p}, {1.1, 60, f}, {1, 300, p}, {1.1, 300, f}, {1, 300, f}}, Probe{Rate: .5, Rough: true}, true},
	} {
		var steps []measurement.StepResult
		for i, d := range c.done {
			steps = append(steps, measurement.StepResult{Step: i, Rate: d.rate, WindowS: d.window, Verdict: d.v})
		}
		got, ok := Search(1, 300, steps)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.why, got, ok, c.want, c.ok)
		}
	}
	// Where the steps estimate the knee the next one is near it, and keeps off the ends of the bracket.
	at := func(knee float64) Probe {
		steps := judged(sharesOf(knee, 6, 1000, 1, 2, 4), slo300)
		for i := range steps {
			steps[i].Step, steps[i].WindowS = i, 60
			steps[i].Objectives = []measurement.ObjectiveResult{{Objective: slo300[0], ValueMS: steps[i].TTFTP95}}
		}
		got, ok := Search(1, 300, steps)
		if !ok || got.Confirm || !got.Rough {
			t.Errorf("a knee at %v between 2 and 4: %+v, %v", knee, got, ok)
		}
		return got
	}
	for knee, want := range map[float64][2]float64{2.5: {2.4, 2.6}, 3.2: {3.1, 3.3}, 2.05: {2.29, 2.31}, 3.95: {3.47, 3.49}} {
		if got := at(knee); !(got.Rate >= want[0] && got.Rate <= want[1]) {
			t.Errorf("a knee at %v between 2 and 4: next %v, want %v to %v", knee, got.Rate, want[0], want[1])
		}
	}
	all := func(v measurement.Verdict) int {
		return len(searched(t, 1, func(Probe) measurement.Verdict { return v }))
	}
	if n, m := all(p), all(f); n != 21 || m != 7 {
		t.Errorf("where all passes %d steps, where all fails %d; want 21 and 7", n, m)
	}
	slow := measurement.StepResult{Rate: 1, WindowS: 60, Verdict: u, Flags: []string{measurement.FlagClientLimited}, Objectives: []measurement.ObjectiveResult{{Objective: slo300[0], ValueMS: figure(120)}}}
	if got, ok := Search(1, 300, []measurement.StepResult{slow}); !ok || got.Rate != 2 {
		t.Errorf("the generator was late and the objective holds all the same: %+v, %v; want to go on above", got, ok)
	}
	slow.Flags = append(slow.Flags, measurement.FlagUnstable)
	if got, ok := Search(1, 300, []measurement.StepResult{slow}); !ok || got.Rate != .5 {
		t.Errorf("turns piled up: %+v, %v; want to go on below", got, ok)
	}
	slow.Flags, slow.WindowS = slow.Flags[:1], 300
	never := []measurement.StepResult{slow, {Rate: 1.1, WindowS: 60, Verdict: f}}
	for range mostProbes {
		got, ok := Search(1, 300, never)
		if !ok {
			break
		}
		next := slow
		if next.Rate = got.Rate; got.Rate > 1 {
			next.Verdict = f
		}
		never = append(never, next)
	}
	if n := len(never); n != 8 {
		t.Errorf("a passing end that is never decided: %d steps, want 8", n)
	}
	cut := []measurement.StepResult{{Rate: 1, Verdict: p, Flags: []string{measurement.FlagIncomplete}}}
	if got, ok := Search(1, 300, cut); !ok || got != (Probe{Rate: 1, Rough: true}) {
		t.Errorf("a step that was cut: %+v, %v; want it again", got, ok)
	}
}

// searched runs a search to its end; judge says what a step of a probe finds.
func searched(t *testing.T, start float64, judge func(Probe) measurement.Verdict) []measurement.StepResult {
	t.Helper()
	var steps []measurement.StepResult
	for {
		p, ok := Search(start, 300, steps)
		if !ok {
			return steps
		}
		window := 90.
		if p.Confirm {
			window = 300
		}
		steps = append(steps, measurement.StepResult{Step: len(steps), Rate: p.Rate, WindowS: window, Verdict: judge(p)})
		if len(steps) > mostProbes {
			t.Fatalf("no end after %d steps", len(steps))
		}
	}
}

func TestSearchFindsEveryKnee(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		start := math.Exp(6*r.Float64() - 4)
		knee := start * math.Exp(7*r.Float64()-3)
		steps := searched(t, start, func(p Probe) measurement.Verdict {
			if p.Rate <= knee {
				return measurement.Pass
			}
			return measurement.Fail
		})
		lo, hi := bracket(byRate(steps))
		if !(lo <= knee && knee < hi) || hi/lo > 1.21 {
			t.Fatalf("start %v, knee %v: bracket %v to %v", start, knee, lo, hi)
		}
		confirmed, again := 0, 0
		for _, s := range steps {
			if s.Rate == lo && s.WindowS >= 300 {
				confirmed++
			}
			if s.Rate == hi {
				again++
			}
		}
		if confirmed != 2 || again < 2 {
			t.Fatalf("start %v, knee %v: %v was confirmed %d times, %v tried %d times", start, knee, lo, confirmed, hi, again)
		}
	}
}

func TestSearchEndsWhateverStepsSay(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		share := r.Float64()
		steps := searched(t, 1, func(Probe) measurement.Verdict {
			switch v := r.Float64(); {
			case v < share:
				return measurement.Pass
			case v > .95:
				return measurement.Undecided
			}
			return measurement.Fail
		})
		if slices.ContainsFunc(steps, func(s measurement.StepResult) bool { return !(s.Rate > 0) || math.IsInf(s.Rate, 0) }) {
			t.Fatalf("a rate that is none: %+v", steps)
		}
	}
}

func TestFailsEarly(t *testing.T) {
	turn := func(ms float64, o measurement.Outcome) measurement.Turn {
		x := measurement.NewTurn()
		x.Due, x.Outcome, x.End = time.Second, o, 2*time.Second
		if ms >= 0 {
			x.FirstToken = x.Due + time.Duration(ms*float64(time.Millisecond))
		}
		return x
	}
	late, inTime, broken, shed := turn(301, measurement.OK), turn(300, measurement.OK), turn(-1, measurement.TTFTTimeout), turn(-1, measurement.Shed)
	first := func(turns ...measurement.Turn) int {
		doomed := FailsEarly(slo300)
		for i := range 1000 {
			if doomed(turns[i%len(turns)]) {
				return i + 1
			}
		}
		return -1
	}
	mixed := func(each int) []measurement.Turn {
		return append(slices.Repeat([]measurement.Turn{inTime}, each-1), late)
	}
	for _, c := range []struct {
		why   string
		turns []measurement.Turn
		want  int
	}{
		{"all late: eight, for 8 x .9808 > 6.9", []measurement.Turn{late}, 8},
		{"turns without a token are late", []measurement.Turn{broken}, 8},
		{"every second: .9808 - .0529 each pair", mixed(2), 16},
		{"every tenth: .9808 - 9 x .0529 each ten", mixed(10), 140},
		{"every twentieth, as many as allowed: never", mixed(20), -1},
		{"all in time: never", []measurement.Turn{inTime}, -1},
		{"what was never sent says nothing", []measurement.Turn{shed}, -1},
	} {
		if got := first(c.turns...); got != c.want {
			t.Errorf("%s: certain after %d turns, want %d", c.why, got, c.want)
		}
	}
	if FailsEarly([]measurement.Objective{{Metric: "itl", Quantile: .95, LimitMS: 1}})(late) {
		t.Error("no TTFT objective: certain at once")
	}
}

// A step that was ended early fails, with the flag that says so, from its log alone.
func TestEarlyFailIsInTheLog(t *testing.T) {
	q := queues()[0]
	c := q.config(q.limitMS(50_000))
	s, turns, _ := q.step(c, 0, 1, 1.3*q.capacity, 300, true)
	if !s.EarlyFail || s.WindowEnd >= s.WindowStart+300*time.Second {
		t.Fatalf("overload was not ended early: %+v", s)
	}
	r := AnalyzeStep(c, s, turns, nil)
	if r.Verdict != measurement.Fail || !slices.Contains(r.Flags, measurement.FlagEarlyFail) || slices.Contains(r.Flags, measurement.FlagShort) {
		t.Errorf("%s, flags %v; want a fail, marked as ended early", r.Verdict, r.Flags)
	}
	for i := range turns { // the turns that were still open then do not take the verdict back
		if turns[i].Due > s.WindowEnd-20*time.Second {
			turns[i].FirstToken, turns[i].End = turns[i].Due, turns[i].Due
		}
	}
	if r := AnalyzeStep(c, s, turns, nil); r.Verdict != measurement.Fail {
		t.Errorf("%s", r.Verdict)
	}
}
