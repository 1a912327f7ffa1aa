package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// told adds to a log of twoSteps what the engine says each second: gauges as they are, counters by their growth a second, in the
// calm step and in the failing one.
func (e engineSays) told(l *measurement.Log) {
	for n, said := range []engineSays{{gauges: e.calm, counters: e.calmCounters}, e} {
		for s := range 151 {
			v := map[string]float64{}
			for name, x := range said.gauges {
				v[name] = x
			}
			for name, x := range said.counters {
				v[name] = x * float64(1_000_000*(1+n)+s)
			}
			l.Samples = append(l.Samples, measurement.EngineSample{At: l.Steps[n].Start + time.Duration(s)*second, Step: n, Values: v})
		}
	}
}

// engineSays is what an engine tells of itself in the failing step, and in the calm one before it.
type engineSays struct{ gauges, counters, calm, calmCounters map[string]float64 }

func TestBindingEngine(t *testing.T) {
	type told = map[string]float64
	everyTenth := func(i int, turn *measurement.Turn) {
		if i%10 == 0 {
			wait(turn, 700*time.Millisecond)
		}
	}
	apart := func(l *measurement.Log) { // the first turns are over before anyone waits
		for i := range l.Turns {
			if t := &l.Turns[i]; t.Turn == 1 {
				t.Due, t.Sent, t.FirstToken = t.Due-300*second, t.Sent-300*second, t.FirstToken-300*second
				t.End, t.LastToken = t.FirstToken, t.FirstToken
			}
		}
	}
	// crowd sends eight more turns, of two seconds each, just before every late one: all within the objective.
	crowd := func(l *measurement.Log) {
		apart(l)
		for _, turn := range l.Turns {
			if d, _ := turn.TTFT(); turn.Step == 1 && turn.Turn == 2 && d > 300*time.Millisecond {
				for k := range 8 {
					l.Turns = append(l.Turns, aTurn(1, 1000+10*turn.Call%9000+k, 2, turn.Due-time.Duration(k+1)*time.Millisecond, 100*time.Millisecond))
				}
			}
		}
	}
	full := engineSays{gauges: told{measurement.SampleRunning: 8, measurement.SampleQueued: 3, measurement.SampleKVUsage: .3}, calm: told{measurement.SampleRunning: 2, measurement.SampleQueued: 0, measurement.SampleKVUsage: .1}}
	fullKV := engineSays{gauges: told{measurement.SampleRunning: 8, measurement.SampleQueued: 3, measurement.SampleKVUsage: .97}, calm: full.calm}
	limit := func(v any) func(*measurement.Log) {
		return func(l *measurement.Log) {
			l.Header.Engine.Details = map[string]any{"max_running_requests": v}
		}
	}
	// cold makes first turns come every half second of the failing step's window, each of which takes 480 ms from when it is sent, and of
	// the calm one's few as long.
	cold := func(l *measurement.Log) {
		kept := l.Turns[:0]
		for _, turn := range l.Turns {
			if turn.Turn != 1 {
				kept = append(kept, turn)
			}
		}
		l.Turns = kept
		for n := range 2 {
			l.Steps[n].ArrivedCalls = 18 + 162*n
			for i := range l.Steps[n].ArrivedCalls {
				due := l.Steps[n].WindowStart + time.Duration(i)*90*second/time.Duration(l.Steps[n].ArrivedCalls)
				l.Turns = append(l.Turns, aTurn(n, 2000+i, 1, due, 480*time.Millisecond))
			}
		}
	}
	// silent leaves the failing step alone, in which no first turn gets a token.
	silent := func(l *measurement.Log) {
		l.Steps = l.Steps[1:]
		l.Turns = slices.DeleteFunc(l.Turns, func(t measurement.Turn) bool { return t.Step == 0 })
		for i := range l.Turns {
			if t := &l.Turns[i]; t.Turn == 1 {
				t.FirstToken, t.LastToken, t.Outcome, t.CachedTokens = measurement.Never, measurement.Never, measurement.TTFTTimeout, measurement.Unknown
			}
		}
	}
	// queued leaves the failing step alone, whose first turns get their first token so much later, in a backlog as long from its start; a simulated
	// run tells that they waited.
	queued := func(wait time.Duration, isTold bool) func(*measurement.Log) {
		return func(l *measurement.Log) {
			l.Steps = l.Steps[1:]
			l.Turns = slices.DeleteFunc(l.Turns, func(t measurement.Turn) bool { return t.Step == 0 })
			for _, t := range l.Turns {
				if t.Turn == 1 { // as many before the window, which get theirs in it
					t.Call += 5000
					t.Due, t.Sent, t.FirstToken, t.LastToken, t.End = t.Due-wait, t.Sent-wait, t.FirstToken-wait, t.LastToken-wait, t.End-wait
					if t.Due < l.Steps[0].WindowStart {
						l.Turns = append(l.Turns, t)
					}
				}
			}
			for i := range l.Turns {
				if t := &l.Turns[i]; t.Turn == 1 {
					t.FirstToken, t.LastToken, t.End = t.FirstToken+wait, t.LastToken+wait, t.End+wait
					if isTold {
						t.Admitted = t.Sent + wait
					}
				}
			}
		}
	}
	slow := func(by time.Duration) func(*measurement.Log) { // first turns take so much longer
		return func(l *measurement.Log) {
			for i := range l.Turns {
				if t := &l.Turns[i]; t.Turn == 1 {
					t.FirstToken, t.LastToken, t.End = t.FirstToken+by, t.LastToken+by, t.End+by
				}
			}
		}
	}
	ofThree := func(l *measurement.Log) {
		l.Header.Engine.Details = map[string]any{"fleet": map[string]any{"replicas": 3.}}
	}
	saysThree := engineSays{gauges: told{measurement.SampleEngines: 3}, calm: told{measurement.SampleEngines: 3}}
	busy := func(share float64) engineSays {
		return engineSays{counters: told{measurement.SamplePrefillBusy: share}, calmCounters: told{measurement.SamplePrefillBusy: .08}}
	}
	unknownHits := func(l *measurement.Log) {
		apart(l)
		for i := range l.Turns {
			l.Turns[i].CachedTokens = measurement.Unknown
		}
	}
	evicts := engineSays{counters: told{measurement.SampleEvicted: 500, measurement.SamplePrompt: 1000, measurement.SampleCached: 400}, calmCounters: told{measurement.SampleEvicted: 10, measurement.SamplePrompt: 1000, measurement.SampleCached: 700}}

	for _, c := range []struct {
		why        string
		log        []func(*measurement.Log)
		want       string
		confidence string
		evidence   []string
		not        string
	}{
		{"a batch that stays at 8 while others wait, and room in the pool", []func(*measurement.Log){crowd, full.told}, MechanismLimit, "low",
			[]string{"8 requests ran in 91 of the 91 samples in which others waited, with 30 % of the KV pool in use at most", "100 % of the 10 turns over the limit were sent while at least as many were in flight"}, ""},
		{"the same when 8 is known for its limit", []func(*measurement.Log){crowd, full.told, limit(8.)}, MechanismLimit, "high", []string{"which is the engine's limit"}, ""},
		{"the limit is known and lies higher", []func(*measurement.Log){crowd, full.told, limit(64)}, "", "none", []string{"cannot be told"}, MechanismLimit},
		{"the pool is full, which holds requests back as well", []func(*measurement.Log){crowd, fullKV.told}, "", "none", []string{"cannot be told"}, MechanismLimit},
		{"the limit is known, and only the turns tell how many were in flight", []func(*measurement.Log){crowd, limit(8)}, MechanismLimit, "low", []string{"The engine runs 8 requests at once at most: at 2 calls/s 100 % of the 10"}, ""},
		{"nobody waits for the batch", []func(*measurement.Log){apart, full.told, limit(8)}, "", "none", []string{"cannot be told"}, MechanismLimit},

		{"first turns that take 96 % of the time", []func(*measurement.Log){cold}, MechanismCompute, "low", []string{"At 2 calls/s prefills need about 9", "2 calls/s came, and the first turn of each took 480 ms at 1 calls/s", "The engine did not say"}, ""},
		{"and the engine says so", []func(*measurement.Log){cold, busy(.95).told}, MechanismCompute, "high", []string{"the engine's time went into prefills for 95 %, by its own count, for 8 % at 1 calls/s"}, ""},
		{"and no first turn gets a token", []func(*measurement.Log){cold, busy(.95).told, silent}, MechanismCompute, "high", []string{"2 calls/s came, and the first turn of each got no token at 2 calls/s"}, ""},
		{"which does not tell how long they take", []func(*measurement.Log){cold, silent}, "", "none", []string{"cannot be told"}, MechanismCompute},
		{"but the engine, which has several prefills going, is idle", []func(*measurement.Log){cold, busy(.2).told}, "", "none", nil, MechanismCompute},

		{"first turns that take as long, and wait twenty seconds before", []func(*measurement.Log){cold, queued(20*second, true)}, MechanismCompute, "low", []string{"At 2 calls/s prefills need about 9", "took 480 ms at 2 calls/s, once admitted"}, ""},
		{"of which nobody tells how long they waited", []func(*measurement.Log){cold, queued(20*second, false)}, "", "none", nil, MechanismCompute},
		{"the same work for three engines", []func(*measurement.Log){cold, ofThree}, "", "none", nil, MechanismCompute},
		{"three times as much for three", []func(*measurement.Log){cold, slow(960 * time.Millisecond), ofThree}, MechanismCompute, "low", []string{"need about 97 % of the time of 3 engines: 2 calls/s came, and the first turn of each took 1440 ms"}, ""},
		{"of an endpoint whose metrics tell of three", []func(*measurement.Log){cold, slow(960 * time.Millisecond), saysThree.told}, MechanismCompute, "low", []string{"need about 97 % of the time of 3 engines"}, ""},
		{"which an endpoint does that does not tell that it has three", []func(*measurement.Log){cold, slow(960 * time.Millisecond)}, "", "none", nil, MechanismCompute},

		{"hits of no turn are told, and the server's own fell as it evicted", []func(*measurement.Log){unknownHits, evicts.told}, MechanismEviction, "low",
			[]string{"The engine evicted 500 tokens a second at 2 calls/s, and by its own count its hit rate fell from 70 % at 1 calls/s to 40 %"}, ""},
		{"the same of an endpoint whose metrics tell of three", []func(*measurement.Log){unknownHits, evicts.told, saysThree.told}, MechanismEviction, "low",
			[]string{"had been evicted before their next turn came, or they went to another replica, which the log does not tell"}, ""},
		{"hits of no turn are told, nor of the server", []func(*measurement.Log){unknownHits}, "", "none", []string{"the hit rate is unknown", "holds nothing of the engine's own queue, batch and KV cache"}, ""},
	} {
		log := twoSteps(t, everyTenth, 20*time.Millisecond)
		for _, edit := range c.log {
			edit(&log)
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
		if c.not != "" && m.Name == c.not {
			t.Errorf("%s: %s", c.why, c.not)
		}
	}
}

// Long gaps with a median that holds are no slower batch.
func TestStalledTokens(t *testing.T) {
	p := figure
	b := measurement.StepResult{Rate: 1, ITLP50: p(20), ITLP95: p(22), LiveTurnsMean: p(2)}
	for _, c := range []struct {
		why  string
		s    measurement.StepResult
		want string
		says string
	}{
		{"no growth", measurement.StepResult{Rate: 2, ITLP50: p(30), ITLP95: p(40)}, "", ""},
		{"the median grows too", measurement.StepResult{Rate: 2, ITLP50: p(60), ITLP95: p(90), LiveTurnsMean: p(9)}, MechanismDecode, "as the turns in flight grew from 2 to 9: the batch itself slows down."},
		{"the median doubles, and the long gaps grow fifty times", measurement.StepResult{Rate: 2, ITLP50: p(42), ITLP95: p(1200)}, MechanismPrefill, "P95 of the gaps between tokens grew 54.5 times, from 22 ms at 1 calls/s to 1200 ms at 2, and their median only from 20 ms to 42 ms"},
		{"all gaps grow nearly alike", measurement.StepResult{Rate: 2, ITLP50: p(38), ITLP95: p(48)}, MechanismDecode, "the batch itself slows down"},
		{"the median holds", measurement.StepResult{Rate: 2, ITLP50: p(24), ITLP95: p(300)}, MechanismPrefill, "their median only from 20 ms to 24 ms"},
		{"the engine prefills", measurement.StepResult{Rate: 2, ITLP50: p(90), ITLP95: p(300), Engine: &measurement.EngineResult{PrefillBusy: p(.9)}}, MechanismPrefill, "takes 90 % of its time"},
		{"the engine decodes", measurement.StepResult{Rate: 2, ITLP50: p(90), ITLP95: p(300), Engine: &measurement.EngineResult{PrefillBusy: p(.1), DecodeBusy: p(.9)}}, MechanismDecode, "the engine decodes for 90 % of its time"},
		{"no median at hand", measurement.StepResult{Rate: 2, ITLP95: p(300)}, MechanismDecode, "to 300 ms at 2."},
	} {
		if got := slowDecode(perSecond, c.s, []measurement.StepResult{b}); got.name != c.want || !strings.Contains(got.sentence, c.says) {
			t.Errorf("%s: %q, %q; want %q, %q", c.why, got.name, got.sentence, c.want, c.says)
		}
	}
}
