package analysis

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// loneTurns is a log of one step of single requests, one each second, of which edit says what each is.
func loneTurns(edit func(i int, t *measurement.Turn)) measurement.Log {
	log := measurement.Log{Header: measurement.Header{Label: "lone", Config: testConfig()}, Steps: []measurement.Step{aStep(0, 1, 0)}}
	c := &log.Header.Config
	c.LoadOf, c.Turns = measurement.Requests, 1
	for i := range 90 {
		t := aTurn(0, i, measurement.LoneTurn, 30*second+time.Duration(i)*second, 100*time.Millisecond)
		t.LastToken, t.End, t.CachedTokens = t.FirstToken, t.FirstToken, 0
		edit(i, &t)
		log.Turns = append(log.Turns, t)
	}
	return log
}

// takes gives a request a prompt of so many tokens and a wait for its first token.
func takes(t *measurement.Turn, tokens int, wait time.Duration) {
	t.PromptTokens, t.FirstToken = tokens, t.Sent+wait
	t.LastToken, t.End = t.FirstToken, t.FirstToken
}

// A server that has nothing else to do and takes longer than the limit for long prompts is told from one that is asked for too much.
func TestLongPrompts(t *testing.T) {
	long := func(i int, turn *measurement.Turn) { // a millisecond for 10 tokens: those of 4,000 and 5,000 miss 300 ms
		takes(turn, 1000*(1+i%5), time.Duration(100*(1+i%5))*time.Millisecond)
	}
	for _, c := range []struct {
		why        string
		edit       func(int, *measurement.Turn)
		config     func(*measurement.Config)
		name       string
		confidence string
		evidence   string
	}{
		{"each alone", long, nil, MechanismPrompt, "high", "Even alone, requests with 4,000 tokens or more to compute take longer than the limit, 450 ms in the median of the 36 that had the server to themselves; " +
			"they are 40 % of the requests at 1 requests/s; 5 % may be late: no load is low enough"},
		{"each while others are answered", func(i int, turn *measurement.Turn) {
			long(i, turn)
			turn.LastToken, turn.End = turn.FirstToken+3*second, turn.FirstToken+3*second
		}, nil, MechanismPrompt, "high", "450 ms in the median of the 36 that had no other prompt beside them; they"},
		{"five at once, and when the engine took each is known", func(i int, turn *measurement.Turn) {
			turn.Due -= time.Duration(i%5) * second
			turn.Sent -= time.Duration(i%5) * second
			turn.Admitted = turn.Sent + time.Duration(i%5)*400*time.Millisecond
			takes(turn, 1000*(1+i%5), turn.Admitted-turn.Sent+time.Duration(100*(1+i%5))*time.Millisecond)
		}, nil, MechanismPrompt, "low", "Counted from when the engine took them, requests with 4,000 tokens or more to compute took longer than the limit, 450 ms in the median of 36"},
		{"every one", func(_ int, turn *measurement.Turn) { takes(turn, 9000, second/2) }, nil, MechanismPrompt, "high", "Even alone, all requests take longer than the limit, 500 ms in the median of the 90 that"},
		{"some, whatever their length", func(i int, turn *measurement.Turn) {
			takes(turn, 1000*(1+i%5), time.Duration(100+300*(i/5%2))*time.Millisecond)
		}, nil, "", "none", "what binds cannot be told"},
		{"turns that lost their prefix are long for that alone", func(i int, turn *measurement.Turn) {
			if takes(turn, 9000, 100*time.Millisecond); i%4 > 0 {
				turn.CachedTokens = 8900
			} else {
				takes(turn, 9000, second/2)
			}
		}, func(c *measurement.Config) { c.LoadOf, c.Turns = "", 4 }, MechanismEviction, "high", "had lost more than half of their prefix"},
	} {
		log := loneTurns(c.edit)
		if c.config != nil {
			c.config(&log.Header.Config)
		}
		m := Analyze(log).Mechanism
		if m.Name != c.name || m.Confidence != c.confidence || !strings.Contains(strings.Join(m.Evidence, "\n"), c.evidence) {
			t.Errorf("%s: %q, confidence %s; want %q, %s with %q in\n%s", c.why, m.Name, m.Confidence, c.name, c.confidence, c.evidence, strings.Join(m.Evidence, "\n"))
		}
	}

	r := Analyze(loneTurns(long))
	if _, err := ReplicasFor(r, 5); err == nil || !strings.Contains(err.Error(), "prompts take longer than the limit even alone, so no number of endpoints is enough") {
		t.Errorf("replicas: %v", err)
	}
}

// Prefixes of requests that share none were not evicted, whatever is missed.
func TestNoPrefixToLose(t *testing.T) {
	log := loneTurns(func(i int, turn *measurement.Turn) { takes(turn, 1000, time.Duration(100+300*(i%2))*time.Millisecond) })
	if m := Analyze(log).Mechanism; m.Name == MechanismEviction || strings.Contains(strings.Join(m.Evidence, " "), "evicted") {
		t.Errorf("%+v", m)
	}
}

// A pool that running requests fill comes before the slower tokens of its large batch, and what is held back by a cap is said with how many
// calls would go on.
func TestFullKV(t *testing.T) {
	log := twoSteps(t, func(i int, turn *measurement.Turn) {
		if i >= 40 && i < 65 {
			wait(turn, 500*time.Millisecond)
		}
	}, 90*time.Millisecond)
	for i := range log.Turns { // no first turn is prefilled while one of those waits
		if turn := &log.Turns[i]; turn.Step == 1 && turn.Turn == 1 {
			*turn = aTurn(1, turn.Call%measurement.CallsPerStep, 1, turn.Due-400*time.Millisecond, 50*time.Millisecond)
		}
	}
	log.Header.Config.MaxConcurrentCalls = 5
	log.Steps[1].HeldCalls = 3
	for n, s := range log.Steps {
		for i := range 90 {
			full := 0.
			if n == 1 && i >= 31 && i < 53 {
				full = .99
			}
			log.Samples = append(log.Samples, measurement.EngineSample{At: s.WindowStart + time.Duration(i)*second, Step: n, Values: map[string]float64{
				measurement.SampleKVUsage: full, measurement.SampleRunning: 4, measurement.SampleQueued: float64(n), measurement.SampleRetractions: float64(n * i)}})
		}
	}
	m := Analyze(log).Mechanism
	all := strings.Join(m.Evidence, "\n")
	if m.Name != MechanismKV {
		t.Errorf("%q\n%s", m.Name, all)
	}
	for _, want := range []string{"At 2 calls/s running requests held 24 % of the KV pool on average, 99 % at most, and were pushed out of the batch 89 times, to be computed again; 100 % of the 25 turns over the limit waited while it was full",
		"Beside that, calls at 2 calls/s were held back by --max-concurrent-calls 5 (one lasts ", "which does not explain the miss: counted from sent, P95 TTFT is 500 ms."} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Count(all, "pushed") != 1 || strings.Contains(all, "a new prefix takes the room") {
		t.Errorf("told twice:\n%s", all)
	}
	if at := strings.Index(all, "the batch itself slows down"); at < strings.Index(all, "KV pool") {
		t.Errorf("tokens first:\n%s", all)
	}

	for i := range log.Samples {
		log.Samples[i].Values[measurement.SampleKVUsage] = .5
	}
	if m := Analyze(log).Mechanism; m.Name == MechanismKV {
		t.Errorf("half a pool is full: %v", m.Evidence)
	}
}

// Of few replicas each has a row, of many what is usual and who is not; those that decode stand by themselves.
func TestByReplica(t *testing.T) {
	e := &measurement.EngineResult{}
	for i := range 45 {
		r := measurement.ReplicaResult{Replica: i, PromptTokens: figure(1000 + float64(i)), CacheHitRate: figure(.9), RunningMean: figure(2), KVUsageMean: figure(.5)}
		switch i {
		case 7:
			r.CacheHitRate = figure(.1)
		case 30:
			r.PromptTokens = figure(9000)
		}
		e.Replicas = append(e.Replicas, r)
	}
	shown := func(d deployment, e *measurement.EngineResult) string {
		var b bytes.Buffer
		byReplica(&b, d, e)
		return b.String()
	}
	if got, want := shown(deployment{}, e), `  By replica   prompts   hit  running  KV used
                tokens     %     mean        %
  least of 45     1000  10.0      2.0     50.0
  median          1022  90.0      2.0     50.0
  most            9000  90.0      2.0     50.0
  30              9000  90.0      2.0     50.0
  7               1007  10.0      2.0     50.0
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	few := &measurement.EngineResult{Replicas: e.Replicas[6:8]}
	few.Replicas = append(few.Replicas, measurement.ReplicaResult{Replica: 8, PromptTokens: figure(0), RunningMean: figure(3), KVUsageMean: figure(.25)})
	if got, want := shown(deployment{prefill: 2}, few), `  By replica  prompts   hit  running  KV used
               tokens     %     mean        %
  prefill 6      1006  90.0      2.0     50.0
  prefill 7      1007  10.0      2.0     50.0
  decode 8          0     -      3.0     25.0
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i := range e.Replicas {
		e.Replicas[i].RunningMean = figure(float64(i % 4 / 3 * 100 * i))
	}
	if got := shown(deployment{}, e); strings.Count(got, "\n") > 2+3+mostOutliers+1 || !strings.Contains(got, "more as far off") {
		t.Errorf("a wall:\n%s", got)
	}
	if got := shown(deployment{}, &measurement.EngineResult{Replicas: e.Replicas[:1]}); got != "" {
		t.Errorf("of one: %s", got)
	}
}
