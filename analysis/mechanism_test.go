package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// twoSteps is a run of a calm step at 1 call/s and one at 2 calls/s whose second turns edit changes; every first turn is
// prefilled in 50 ms.
func twoSteps(t *testing.T, edit func(i int, turn *measurement.Turn), gap time.Duration) measurement.Log {
	t.Helper()
	log := measurement.Log{Header: measurement.Header{Label: "two", Config: testConfig()}}
	for n, g := range []time.Duration{20 * time.Millisecond, gap} {
		start := time.Duration(n) * 200 * second
		s := aStep(n, float64(n+1), start)
		hist := measurement.NewHistogram()
		measurement.RecordGap(hist, g)
		h, err := measurement.EncodeHistogram(2, hist)
		if err != nil {
			t.Fatal(err)
		}
		s.ITL, s.LiveTurnsMean, s.InFlightStart, s.InFlightEnd = []measurement.Histogram{h}, 2.5, 50, 50
		for i := range 100 {
			due := start + 30*second + time.Duration(i)*800*time.Millisecond
			turn := aTurn(n, i, 2, due, 150*time.Millisecond)
			if n == 1 {
				edit(i, &turn)
			}
			log.Turns = append(log.Turns, aTurn(n, i, 1, due-7*second, 50*time.Millisecond), turn)
		}
		log.Steps = append(log.Steps, s)
	}
	return log
}

// wait moves a turn's tokens so that its TTFT is d.
func wait(turn *measurement.Turn, d time.Duration) {
	*turn = aTurn(turn.Step, turn.Call%measurement.CallsPerStep, turn.Turn, turn.Due, d)
}

func TestMechanism(t *testing.T) {
	fewLate := func(i int, turn *measurement.Turn) {
		if i%10 == 0 {
			wait(turn, 500*time.Millisecond)
		}
	}
	for _, c := range []struct {
		why        string
		edit       func(int, *measurement.Turn)
		gap        time.Duration
		log        func(*measurement.Log)
		want       string
		confidence string
		evidence   []string
	}{
		{"nothing fails", func(int, *measurement.Turn) {}, 20 * time.Millisecond, nil, "", "none", []string{"No step failed"}},
		{"late turns and no sign of why", fewLate, 20 * time.Millisecond, func(l *measurement.Log) {
			for i := range l.Turns { // the first turns are over before anyone waits
				if t := &l.Turns[i]; t.Turn == 1 {
					t.Due, t.Sent, t.FirstToken = t.Due-300*second, t.Sent-300*second, t.FirstToken-300*second
				}
			}
		}, "", "none", []string{"cannot be told"}},
		{"late turns lost their prefixes", func(i int, turn *measurement.Turn) {
			if i%5 == 0 {
				wait(turn, 900*time.Millisecond)
				turn.CachedTokens = 0
			}
		}, 20 * time.Millisecond, nil, "kv_eviction", "high", []string{"fell from 98 % at 1 calls/s to 79 % at 2", "20 of 20 turns over the limit missed"}},
		{"late turns wait behind cold prefills", func(i int, turn *measurement.Turn) {
			if i%10 == 0 {
				wait(turn, 700*time.Millisecond)
			}
		}, 20 * time.Millisecond, func(l *measurement.Log) {
			for i := range l.Turns { // of one call in ten the first turn is prefilled while another's later turn waits
				if t := &l.Turns[i]; t.Turn == 1 && t.Step == 1 {
					if n := t.Call % measurement.CallsPerStep; n%10 == 5 {
						due := l.Turns[i-10+1].Due // the turn of five calls before
						*t = aTurn(1, n, 1, due+100*time.Millisecond, 500*time.Millisecond)
					} else {
						*t = aTurn(1, n, 1, 200*second, time.Millisecond)
					}
				}
			}
		}, "queueing_behind_cold_prefill", "high", []string{"100 % of the 10 turns over the limit waited", "0 % of the 90 in time"}},
		{"tokens slow down", fewLate, 50 * time.Millisecond, func(l *measurement.Log) {
			for i := range l.Turns {
				if t := &l.Turns[i]; t.Turn == 1 {
					t.Due, t.Sent, t.FirstToken = t.Due-300*second, t.Sent-300*second, t.FirstToken-300*second
				}
			}
		}, "decode", "low", []string{"grew 2.5 times"}},
		{"tokens slow down, and only they are too slow", func(i int, turn *measurement.Turn) {
			if i == 0 {
				wait(turn, 500*time.Millisecond)
			}
		}, 50 * time.Millisecond, func(l *measurement.Log) {
			l.Header.Config.SLO = append(l.Header.Config.SLO, measurement.Objective{Metric: "itl", Quantile: .95, LimitMS: 40})
		}, "decode", "low", []string{"grew 2.5 times"}},
		{"the cap binds before anything fails", func(int, *measurement.Turn) {}, 20 * time.Millisecond, func(l *measurement.Log) { l.Steps[1].HeldCalls = 7 },
			"client", "high", []string{"--max-concurrent-calls"}},
		{"the generator was late, beside evictions", func(i int, turn *measurement.Turn) {
			wait(turn, 900*time.Millisecond)
			turn.Sent = turn.Due + 50*time.Millisecond
			if i%2 == 0 {
				turn.CachedTokens = 0
			}
		}, 20 * time.Millisecond, nil, "kv_eviction", "low", []string{"the generator sent its turns at 2 calls/s late (P99 50 ms), which does not explain the miss: counted from sent, P95 TTFT is 850 ms", "hit rate fell"}},
		{"the generator was late, and that is all", func(_ int, turn *measurement.Turn) {
			wait(turn, 400*time.Millisecond)
			turn.Sent = turn.Due + 150*time.Millisecond
		}, 20 * time.Millisecond, nil, "client", "high", []string{"the generator sent its turns late (P99 150 ms), so the step measures the generator"}},
		{"the cap held calls, and the server was slow all the same", func(_ int, turn *measurement.Turn) {
			wait(turn, 900*time.Millisecond)
			turn.CachedTokens = 0
		}, 20 * time.Millisecond, func(l *measurement.Log) { l.Steps[1].HeldCalls = 7 }, "kv_eviction", "high", []string{"were held back by --max-concurrent-calls 0 (one lasts 9.88 s, so that about 20 are there at once), which does not explain the miss"}},
		{"the cap never let calls go, which is all that failed", func(int, *measurement.Turn) {}, 20 * time.Millisecond, func(l *measurement.Log) {
			l.Steps[1].HeldCalls = 10
			for i := range 10 {
				shed := failed(aTurn(1, 500+i, 1, 240*second, second), measurement.Shed)
				shed.Sent = measurement.Never
				l.Turns = append(l.Turns, shed)
			}
		}, "client", "high", []string{"were held back by --max-concurrent-calls 0"}},
		{"the failing step was cut", func(_ int, turn *measurement.Turn) { wait(turn, 900*time.Millisecond) }, 20 * time.Millisecond, func(l *measurement.Log) {
			l.Steps[1].WindowEnd, l.Steps[1].DrainEnd = measurement.Never, measurement.Never
		}, "", "none", []string{"No step failed"}},
	} {
		log := twoSteps(t, c.edit, c.gap)
		if c.log != nil {
			c.log(&log)
		}
		m := Analyze(log).Mechanism
		all := strings.Join(m.Evidence, "\n")
		if m.Name != c.want || m.Confidence != c.confidence {
			t.Errorf("%s: %q, confidence %s; want %q, %s; evidence:\n%s", c.why, m.Name, m.Confidence, c.want, c.confidence, all)
		}
		for _, e := range c.evidence {
			if !strings.Contains(all, e) {
				t.Errorf("%s: no evidence of %q in:\n%s", c.why, e, all)
			}
		}
	}
}

// Turns that miss their prefix on replicas that evict nothing were sent to the wrong ones.
func TestMisrouted(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	of := func(n int, t measurement.Turn) some {
		return ofStep(measurement.TurnsOf(slices.Repeat([]measurement.Turn{t}, n)), 0)
	}
	late, inTime := of(20, measurement.Turn{PromptTokens: 1000, CachedTokens: 10}), of(100, measurement.Turn{PromptTokens: 1000, CachedTokens: 990})
	u := unitOf(measurement.Config{})
	for _, c := range []struct {
		replicas int
		evicted  float64
		want     string
	}{{2, 0, MechanismRouting}, {2, 5, MechanismEviction}, {1, 0, MechanismEviction}} {
		s := measurement.StepResult{Rate: 1, CacheHitRate: p(.8), Engine: &measurement.EngineResult{EvictedRate: p(c.evicted), Replicas: make([]measurement.ReplicaResult, c.replicas)}}
		if f := fewEvictions(u, s, nil, late, inTime, routing{}); f.name != c.want {
			t.Errorf("%d replicas, %v tokens evicted a second: %q, want %q", c.replicas, c.evicted, f.name, c.want)
		}
		if f := eviction(u, s, []measurement.StepResult{{Rate: .5, CacheHitRate: p(.99)}}, late, routing{}); f.name != c.want {
			t.Errorf("%d replicas, %v tokens evicted a second, over all: %q, want %q", c.replicas, c.evicted, f.name, c.want)
		}
	}
}
