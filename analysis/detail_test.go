package analysis

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// A step is saturated by either of two signs, and the verdict says by which.
func TestOverload(t *testing.T) {
	num := func(v float64) *float64 { return &v }
	queue := func(slope, most float64) *measurement.EngineResult {
		return &measurement.EngineResult{QueuedSlope: num(slope), QueuedMax: num(most)}
	}
	twice := queue(.5, 40)
	twice.Replicas = make([]measurement.ReplicaResult, 2)
	run := measurement.Results{Engine: measurement.Engine{Details: map[string]any{"max_running_requests": 30}}}
	two := measurement.Results{Engine: measurement.Engine{Details: map[string]any{"max_running_requests": 60}}}
	loop := measurement.Results{Config: measurement.Config{Arrivals: "closed"}}
	for _, c := range []struct {
		why       string
		run       measurement.Results
		ratio     *float64
		engine    *measurement.EngineResult
		known, is bool
		says      string
	}{
		{"all is completed", run, num(1), queue(-.1, 5), true, false, "of the turns that came all were completed; the queue did not grow"},
		{"a little less than all", run, num(.96), queue(.001, 5), true, false, "96 % were completed; the queue did not grow"},
		{"under 95 %", run, num(.94), queue(.2, 20), true, true, "94 % were completed; the queue grew by 0.2 requests a second"},
		{"a queue that grew by 40 in the last 80 s of 100, where 30 run", run, num(.97), queue(.5, 45), true, true, "the queue grew by 0.5 requests a second, to 45 at most, and 30 can run at once"},
		{"as many, where 60 run on two", two, num(.97), twice, true, false, "97 % were completed"},
		{"as many, where 30 run on two together, as a fleet's header counts", run, num(.97), twice, true, true, "30 can run at once"},
		{"a steep line through a queue that was never that long", run, num(.97), queue(.5, 29), true, false, "97 %"},
		{"nothing known of the queue", run, num(.5), nil, true, true, "50 % were completed"},
		{"a cap held calls back", run, nil, queue(.1, 9), false, false, "a cap held calls back"},
		{"a closed loop", loop, num(.5), nil, false, false, "in a closed loop"},
	} {
		s := measurement.StepResult{Rate: 1, WindowS: 100, SaturationRatio: c.ratio, Engine: c.engine}
		got := OverloadOf(c.run, s)
		if got.Known != c.known || got.Saturated != c.is || !strings.Contains(got.Why, c.says) {
			t.Errorf("%s: got %+v, want %v, %v and %q", c.why, got, c.known, c.is, c.says)
		}
	}
}

// Turns that tell when they were admitted give distributions; one that never got a token has no time, and no mean is taken over it.
func TestTimes(t *testing.T) {
	step := measurement.Step{WindowEnd: 100 * second, DrainEnd: 110 * second, ArrivedCalls: 20}
	var turns []measurement.Turn
	for i := range 20 {
		turn := aTurn(0, i, 2, time.Duration(i)*second, 200*time.Millisecond)
		turn.Admitted = turn.Sent + time.Duration(i+1)*time.Millisecond
		turns = append(turns, turn)
	}
	r := AnalyzeStep(measurement.Config{}, step, turns, nil)
	x := r.Times
	if x == nil || x.QueueWait.N != 20 || *x.QueueWait.Mean != 10.5 || *x.QueueWait.P50 != 10.5 || *x.TTFT.Mean != 200 || *x.TTFT.P90 != 200 || *x.E2E.P99 != 2180 || *x.TPOT.P95 != 20 {
		t.Fatalf("%+v", x)
	}
	if sum := .1 + *x.QueueWait.Mean + *x.TTFTAdmitted.Mean; sum < 200-1e-9 || sum > 200+1e-9 {
		t.Errorf("sent late, waiting and computing take %v ms, TTFT is 200", sum)
	}
	turns[7] = failed(turns[7], measurement.TTFTTimeout)
	turns[8] = failed(turns[8], measurement.TTFTTimeout)
	turns[8].Admitted = 0
	x = AnalyzeStep(measurement.Config{}, step, turns, nil).Times
	if x.TTFT.Mean != nil || x.TTFT.P99 != nil || *x.TTFT.P50 != 200 || x.QueueWait.N != 20 || x.QueueWait.Mean != nil || x.E2E.N != 18 || x.E2E.Mean == nil {
		t.Errorf("two without a token, one of them never admitted: %+v", x)
	}
	for i := range turns {
		turns[i].Admitted = 0
	}
	if x := AnalyzeStep(measurement.Config{}, step, turns, nil).Times; x != nil {
		t.Errorf("nobody knows when turns were admitted: %+v", x)
	}
}

// An engine model's counters give how full its steps were in the window, its peaks, and the slope of its queue behind the first fifth.
func TestPacking(t *testing.T) {
	step := measurement.Step{WindowStart: 10 * second, WindowEnd: 110 * second, DrainEnd: 130 * second}
	var samples []measurement.EngineSample
	for i := range 13 {
		at := float64(10 + 10*i)
		queued := 50. // until the first fifth of the window is over
		if i >= 2 {
			queued = at / 2
		}
		n := float64(i)
		samples = append(samples, measurement.EngineSample{At: time.Duration(at) * second, Values: map[string]float64{
			measurement.SamplePrefillSteps: 10 * n, measurement.SampleDecodeSteps: 90 * n, measurement.SampleMixedSteps: 5 * n,
			measurement.SamplePromptsStepped: 20 * n, measurement.SampleDecodesStepped: 400 * n, measurement.SampleComputed: 5000 * n,
			measurement.SampleMostBatch: 4 + n, measurement.SampleKVPeak: .5 + n/100, measurement.SampleQueued: queued}})
	}
	samples[0].Values[measurement.SampleMostBatch] = 99 // of what was before
	e := EngineOf(step, nil, samples)
	p := e.Packing
	if p == nil || p.Steps != 1000 || *p.BatchMean != 4.2 || *p.PrefillMean != .2 || *p.DecodeMean != 4 || *p.QueryMean != 54 || *p.PrefillShare != .1 || *p.MixedShare != .05 || *p.BatchMost != 14 {
		t.Errorf("%+v", p)
	}
	if *e.KVPeak != .6 || *e.QueuedSlope < .5-1e-9 || *e.QueuedSlope > .5+1e-9 || e.Replicas != nil {
		t.Errorf("KV peak %v, slope %v, %v", *e.KVPeak, *e.QueuedSlope, e.Replicas)
	}
	for i := range samples {
		delete(samples[i].Values, measurement.SampleMixedSteps)
	}
	if e := EngineOf(step, nil, samples); e.Packing != nil || e.KVPeak != nil {
		t.Errorf("a real engine tells nothing of it: %+v", e.Packing)
	}
	var out bytes.Buffer
	Waits(&out, measurement.Results{Steps: []measurement.StepResult{{Rate: 1, Engine: e}}})
	if out.Len() > 0 {
		t.Errorf("no times, but a table:\n%s", out.String())
	}
}

// A load of which nobody can say whether it is saturated says why below the table, once for all that have one reason.
func TestSaturatedUnknown(t *testing.T) {
	var steps []measurement.StepResult
	for i := range 3 {
		steps = append(steps, measurement.StepResult{Rate: float64(i + 1), Times: &measurement.Times{}, Engine: &measurement.EngineResult{QueuedSlope: figure(float64(i))}})
	}
	var out bytes.Buffer
	Waits(&out, measurement.Results{Steps: steps})
	want := "saturated -: it cannot be told: completions cannot be set against arrivals where a cap held calls back (raise --max-concurrent-calls)."
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasSuffix(got, want) || strings.Count(got, "cannot be told") != 1 {
		t.Errorf("got\n%s", out.String())
	}
}
