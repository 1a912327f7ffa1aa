package analysis

import (
	"bytes"
	"encoding/csv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kneefinder/measurement"
)

type told = map[string]float64

// sampleAt is what was told so many seconds after the start of calm's log.
func sampleAt(seconds float64, v told) measurement.EngineSample {
	return measurement.EngineSample{At: time.Duration(seconds * float64(second)), Values: v}
}

// everySecond tells the same gauges each second of a step from 0 to 150 s whose window is from 30 to 120 s, with counters that
// grow from their start as the seconds do.
func everySecond(gauges, perSecond told) []measurement.EngineSample {
	var out []measurement.EngineSample
	for s := range 151 {
		v := told{}
		for name, x := range gauges {
			v[name] = x
		}
		for name, x := range perSecond {
			v[name] = x * (1000 + float64(s))
		}
		out = append(out, sampleAt(float64(s), v))
	}
	return out
}

func TestEngineOf(t *testing.T) {
	p := figure
	counter := func(at ...float64) []measurement.EngineSample { // pairs of second and evicted tokens
		var out []measurement.EngineSample
		for i := 0; i < len(at); i += 2 {
			out = append(out, sampleAt(at[i], told{measurement.SampleEvicted: at[i+1]}))
		}
		return out
	}
	without := func(from, to int) []measurement.EngineSample { // evictions that appear in the course of the step
		ss := everySecond(told{measurement.SampleRunning: 1}, nil)
		for i := from; i < to; i++ {
			ss[i].Values[measurement.SampleEvicted] = float64(i)
		}
		return ss
	}
	ttft := func(requests float64) []measurement.EngineSample { // seconds 29.5 to 120.5, mean 100 ms
		return []measurement.EngineSample{
			sampleAt(29.5, told{measurement.SampleTTFTSum: 7, measurement.SampleTTFTCount: 70}),
			sampleAt(120.5, told{measurement.SampleTTFTSum: 7 + requests/10, measurement.SampleTTFTCount: 70 + requests}),
		}
	}
	var turns []measurement.Turn // 20 a window, TTFT 150 ms from due, 149.9 from sent; and as many before and behind
	for i := range 60 {
		turns = append(turns, aTurn(0, i, 1+i%4, time.Duration(float64(i)*4.55*float64(second))-61*second, 150*time.Millisecond))
	}
	other := aTurn(1, 0, 2, 60*second, 9*second)
	cold := failed(aTurn(0, 99, 2, 70*second, second), measurement.TTFTTimeout)
	turns = append(turns, other, cold)

	for _, c := range []struct {
		why     string
		step    measurement.Step
		samples []measurement.EngineSample
		want    *measurement.EngineResult
		back    []string
	}{
		{"nothing was told", aStep(0, 1, 0), nil, nil, nil},
		{"nothing was told in this step", aStep(0, 1, 0), []measurement.EngineSample{{At: 60 * second, Step: 1, Values: told{measurement.SampleRunning: 1}},
			sampleAt(-1, told{measurement.SampleRunning: 1}), sampleAt(151, told{measurement.SampleRunning: 1}), sampleAt(60, nil)}, nil, nil},
		{"gauges are those of the window alone", aStep(0, 1, 0), []measurement.EngineSample{
			sampleAt(29, told{measurement.SampleRunning: 100, measurement.SampleQueued: 100, measurement.SampleKVUsage: 1, measurement.SampleKVFree: 0}),
			sampleAt(30, told{measurement.SampleRunning: 1, measurement.SampleQueued: 2, measurement.SampleKVUsage: .2, measurement.SampleKVUsed: 10, measurement.SampleKVCached: 20, measurement.SampleKVFree: 30, measurement.SampleKVPool: 60}),
			sampleAt(120, told{measurement.SampleRunning: 3, measurement.SampleQueued: 6, measurement.SampleKVUsage: .4, measurement.SampleKVUsed: 30, measurement.SampleKVCached: 20, measurement.SampleKVFree: 10, measurement.SampleKVPool: 60}),
			sampleAt(121, told{measurement.SampleRunning: 100, measurement.SampleQueued: 100, measurement.SampleKVUsage: 1, measurement.SampleKVFree: 0}),
		}, &measurement.EngineResult{Samples: 2, RunningMean: p(2), QueuedMean: p(4), QueuedMax: p(6), KVUsageMean: p(.3), KVUsageMax: p(.4),
			KVUsed: p(20), KVCached: p(20), KVFree: p(20), KVFreeMin: p(10), KVPool: p(60)}, nil},
		{"a gauge of which a sample has nothing is the mean of the others", aStep(0, 1, 0), []measurement.EngineSample{sampleAt(40, told{measurement.SampleRunning: 4}), sampleAt(50, told{measurement.SampleQueued: 0})},
			&measurement.EngineResult{Samples: 2, RunningMean: p(4), QueuedMean: p(0), QueuedMax: p(0)}, nil},
		{"counters", aStep(0, 1, 0), everySecond(nil, told{measurement.SampleEvicted: 5, measurement.SampleRetractions: 1, measurement.SamplePrompt: 10, measurement.SampleCached: 4,
			measurement.SampleITLSum: .02, measurement.SampleITLCount: 2, measurement.SampleQueueSum: 3, measurement.SampleQueueCount: 2, measurement.SamplePrefillBusy: .25, measurement.SampleDecodeBusy: .5}),
			&measurement.EngineResult{Samples: 91, EvictedRate: p(5), Retractions: p(90), CacheHitRate: p(.4), ITLMean: p(10), QueueMean: p(1500), PrefillBusy: p(.25), DecodeBusy: p(.5)}, nil},
		{"the last before and the first behind, in any order", aStep(0, 1, 0), counter(125, 1090, 20, 1000, 140, 9999, 10, 0, 60, 1050, 130, 5000), &measurement.EngineResult{Samples: 1, EvictedRate: p(90. / 105)}, nil},
		{"none before and none behind", aStep(0, 1, 0), counter(40, 100, 100, 160), &measurement.EngineResult{Samples: 2, EvictedRate: p(1)}, nil},
		{"all before", aStep(0, 1, 0), counter(10, 100, 20, 160), &measurement.EngineResult{}, nil},
		{"one is no difference", aStep(0, 1, 0), counter(40, 100), &measurement.EngineResult{Samples: 1}, nil},
		{"a restart", aStep(0, 1, 0), counter(25, 1000, 60, 1050, 70, 20, 125, 2000), &measurement.EngineResult{Samples: 2}, []string{measurement.SampleEvicted}},
		{"a restart before the window, which is none of its business", aStep(0, 1, 0), counter(10, 1000, 25, 0, 125, 100), &measurement.EngineResult{EvictedRate: p(1)}, nil},
		{"less in the end", aStep(0, 1, 0), counter(25, 1000, 125, 999), &measurement.EngineResult{}, []string{measurement.SampleEvicted}},
		{"two readers of one server, a little out of order", aStep(0, 1, 0), counter(25, 1000, 60, 1050, 60.01, 1049, 125, 1100), &measurement.EngineResult{Samples: 2, EvictedRate: p(1)}, nil},
		{"one of two counters restarts: their ratio is unknown", aStep(0, 1, 0), []measurement.EngineSample{sampleAt(25, told{measurement.SamplePrompt: 100, measurement.SampleCached: 50}), sampleAt(125, told{measurement.SamplePrompt: 200, measurement.SampleCached: 10})},
			&measurement.EngineResult{}, []string{measurement.SampleCached}},
		{"a step that was cut", measurement.Step{Start: 0, WindowStart: 30 * second, WindowEnd: measurement.Never, DrainEnd: measurement.Never}, counter(30, 0, 80, 100), &measurement.EngineResult{Samples: 2, EvictedRate: p(2)}, nil},
		{"a counter that appears began at 0", aStep(0, 1, 0), without(60, 151), &measurement.EngineResult{Samples: 91, RunningMean: p(1), EvictedRate: p(120. / 90)}, nil},
		{"unless it may have been there before", aStep(0, 1, 0), without(1, 151), &measurement.EngineResult{Samples: 91, RunningMean: p(1), EvictedRate: p(1)}, nil},
		{"or comes and goes", aStep(0, 1, 0), without(60, 100), &measurement.EngineResult{Samples: 91, RunningMean: p(1), EvictedRate: p(1)}, nil},
		{"TTFT of both sides", aStep(0, 1, 0), ttft(20), &measurement.EngineResult{TTFTMean: p(100), TTFTRequests: p(20), TTFTClientMinus: p(49.9)}, nil},
		{"TTFT of a server that counted two more at the edges", aStep(0, 1, 0), ttft(22), &measurement.EngineResult{TTFTMean: p(100), TTFTRequests: p(22), TTFTClientMinus: p(49.9)}, nil},
		{"TTFT of a server that others use too", aStep(0, 1, 0), ttft(30), &measurement.EngineResult{TTFTMean: p(100), TTFTRequests: p(30)}, nil},
		{"TTFT of a server that saw few of ours", aStep(0, 1, 0), ttft(10), &measurement.EngineResult{TTFTMean: p(100), TTFTRequests: p(10)}, nil},
		{"TTFT of nothing", aStep(0, 1, 0), ttft(0), &measurement.EngineResult{TTFTRequests: p(0)}, nil},
		{"GPUs, whose energy tells more of their power than samples do", aStep(0, 1, 0), everySecond(told{measurement.SampleGPUs: 2, measurement.SampleGPUUtil: .9, measurement.SampleGPUTensor: .3, measurement.SampleGPUDRAM: .6,
			measurement.SampleGPUMemory: 100, measurement.SampleGPUPower: 500, measurement.SampleGPUClock: 2e9, measurement.SampleGPUTemp: 70}, told{measurement.SampleGPUEnergy: 450}),
			&measurement.EngineResult{GPUSamples: 91, GPUs: p(2), GPUUtil: p(.9), GPUTensor: p(.3), GPUDRAM: p(.6), GPUMemory: p(100), GPUPower: p(450), GPUClock: p(2e9), GPUTempMost: p(70)}, nil},
		{"GPUs without energy", aStep(0, 1, 0), everySecond(told{measurement.SampleGPUPower: 500}, nil), &measurement.EngineResult{GPUSamples: 91, GPUPower: p(500)}, nil},
	} {
		before := slices.Clone(c.samples)
		got, back := engineOf(c.step, stepOf(turns, c.step.Step), c.samples)
		if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-9, 0)); d != "" || !slices.Equal(back, c.back) {
			t.Errorf("%s: back %v, want %v (-want +got):\n%s", c.why, back, c.back, d)
		}
		if d := cmp.Diff(before, c.samples); d != "" {
			t.Errorf("%s: the samples were changed:\n%s", c.why, d)
		}
		rand.Shuffle(len(c.samples), func(i, j int) { c.samples[i], c.samples[j] = c.samples[j], c.samples[i] })
		if d := cmp.Diff(got, EngineOf(c.step, turns, c.samples)); d != "" {
			t.Errorf("%s: in another order (-in order +shuffled):\n%s", c.why, d)
		}
	}
}

// engineLog is twoSteps with samples in both steps: gauges and counters of the calm one and of the one that fails.
func engineLog(t *testing.T, edit func(int, *measurement.Turn), calm, failing, calmCounts, failingCounts told) measurement.Log {
	log := twoSteps(t, edit, 20*time.Millisecond)
	for step, ss := range [][]measurement.EngineSample{everySecond(calm, calmCounts), everySecond(failing, failingCounts)} {
		for _, s := range ss {
			s.Step, s.At = step, s.At+log.Steps[step].Start
			log.Samples = append(log.Samples, s)
		}
	}
	return log
}

// What the engine says of itself is evidence beside what this side saw, and never decides.
func TestEngineSigns(t *testing.T) {
	slow := func(i int, turn *measurement.Turn) { wait(turn, 900*time.Millisecond) }
	pool := func(free, queued float64) told {
		return told{measurement.SampleKVPool: 1000, measurement.SampleKVFree: free, measurement.SampleQueued: queued}
	}
	counts := func(evicted, cached, retractions float64) told {
		return told{measurement.SampleEvicted: evicted, measurement.SamplePrompt: 100, measurement.SampleCached: cached, measurement.SampleRetractions: retractions}
	}
	for _, c := range []struct {
		why           string
		calm, failing told
		calmCounts    told
		failingCounts told
		want          []string
	}{
		{"nothing is told", nil, nil, nil, nil, nil},
		{"all is calm", pool(500, 0), pool(400, .5), counts(0, 75, 0), counts(0, 75, 0), nil},
		{"evictions that cost hits", pool(500, 0), pool(400, 0), counts(2, 75, 0), counts(60, 20, 0),
			[]string{"At 2 calls/s the server evicted 60 tokens a second from its cache, 2 at 1 calls/s; by its own count, first turns included, its hit rate fell from 75 % at 1 calls/s to 20 %."}},
		{"many evictions", pool(500, 0), pool(400, 0), counts(999.4, 75, 0), counts(38649, 20, 0),
			[]string{"At 2 calls/s the server evicted 38,600 tokens a second from its cache, 999 at 1 calls/s; by its own count, first turns included, its hit rate fell from 75 % at 1 calls/s to 20 %."}},
		{"evictions that cost none", pool(500, 0), pool(400, 0), counts(2, 75, 0), counts(60, 73, 0), nil},
		{"evictions of a server that tells no hits", pool(500, 0), pool(400, 0), told{measurement.SampleEvicted: 0}, told{measurement.SampleEvicted: 60},
			[]string{"At 2 calls/s the server evicted 60 tokens a second from its cache, 0 at 1 calls/s."}},
		{"a pool that filled", pool(500, 0), pool(10, 0), nil, nil, []string{"At 2 calls/s 1.0 % of the KV pool was free on average, 50 % at 1 calls/s: a new prefix takes the room of another."}},
		{"a pool that is full at any load", pool(10, 0), pool(5, 0), nil, nil, nil},
		{"a queue that grew", pool(500, .25), pool(400, 12), nil, nil, []string{"The server's queue grew from 0.2 requests on average at 1 calls/s to 12.0, 12 at most, at 2."}},
		{"a queue that did not", pool(500, 7), pool(400, 12), nil, nil, nil},
		{"a queue with nothing to hold it against", nil, pool(400, 12), nil, nil, []string{"At 2 calls/s 12.0 requests waited in the server's queue on average, 12 at most."}},
		{"retractions", pool(500, 0), pool(400, 0), counts(0, 75, 0), counts(0, 75, .1), []string{"At 2 calls/s the server pushed requests out of its batch 9 times, to compute them again: the KV that running requests need did not fit."}},
	} {
		bare := Analyze(twoSteps(t, slow, 20*time.Millisecond)).Mechanism
		m := Analyze(engineLog(t, slow, c.calm, c.failing, c.calmCounts, c.failingCounts)).Mechanism
		if m.Name != bare.Name || m.Confidence != bare.Confidence {
			t.Errorf("%s: %s, confidence %s, without samples %s, %s", c.why, m.Name, m.Confidence, bare.Name, bare.Confidence)
		}
		if d := cmp.Diff(append(slices.Clone(bare.Evidence), c.want...), m.Evidence); d != "" {
			t.Errorf("%s: evidence (-want +got):\n%s", c.why, d)
		}
	}
}

// A restart is told of in the warnings, once a step.
func TestRestartIsWarnedOf(t *testing.T) {
	log := engineLog(t, func(int, *measurement.Turn) {}, nil, nil, told{measurement.SamplePrompt: 100, measurement.SampleEvicted: 1}, nil)
	for i := 60; i < 151; i++ {
		log.Samples[i].Values = told{measurement.SamplePrompt: float64(i), measurement.SampleEvicted: 0}
	}
	want := "step 0 (1 calls/s): the server's counters went back (evicted_tokens_total): it was restarted, or another one answers there, and what they count over the window is left out"
	var got []string
	for _, w := range Analyze(log).Warnings {
		if strings.Contains(w, "went back") {
			got = append(got, w)
		}
	}
	if !slices.Equal(got, []string{want}) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

// The table has a row for each step of which something is known and a column for each figure that is.
func TestEngineTable(t *testing.T) {
	log := engineLog(t, func(int, *measurement.Turn) {}, told{measurement.SampleRunning: 1.5, measurement.SampleQueued: 0, measurement.SampleKVUsage: .5, measurement.SampleKVFree: 20000, measurement.SampleKVPool: 40000},
		told{measurement.SampleRunning: 12, measurement.SampleQueued: 3, measurement.SampleKVUsage: .9, measurement.SampleKVFree: 100, measurement.SampleKVPool: 40000},
		told{measurement.SampleEvicted: 1}, told{measurement.SampleEvicted: 2040})
	var b bytes.Buffer
	engineTable(&b, perSecond, Analyze(log).Steps)
	want := `What the server said of itself, over the same windows and of all its requests:
  λ asked  running  queued        KV used  KV free   evicted
  calls/s     mean    mean  most        %        %  tokens/s
        1      1.5     0.0     0     50.0     50.0         1
        2     12.0     3.0     3     90.0      0.2      2040

`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Reset()
	unknown := Analyze(log).Steps // of the pool only parts are told: they have no share
	for i := range unknown {
		unknown[i].Engine.KVPool = nil
	}
	unknown[0].Engine.KVFree = figure(2.32e6)
	engineTable(&b, perSecond, unknown)
	for _, want := range []string{"  tokens  tokens/s\n", " 2.32M "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	engineTable(&b, perSecond, Analyze(twoSteps(t, func(int, *measurement.Turn) {}, 20*time.Millisecond)).Steps)
	if b.Len() > 0 {
		t.Errorf("a table of nothing:\n%s", b.String())
	}
}

// The figures live, of one step, are those of the whole log.
func TestLiveEngineFiguresAreTheResults(t *testing.T) {
	log := engineLog(t, func(int, *measurement.Turn) {}, told{measurement.SampleRunning: 1}, told{measurement.SampleRunning: 2}, told{measurement.SamplePrompt: 4, measurement.SampleCached: 3}, told{measurement.SampleEvicted: 7})
	r := Analyze(log)
	for i, s := range log.Steps {
		var turns []measurement.Turn
		for _, turn := range log.Turns {
			if turn.Step == s.Step {
				turns = append(turns, turn)
			}
		}
		alone := AnalyzeStep(log.Header.Config, s, turns, log.Samples[i*151:(i+1)*151])
		if d := cmp.Diff(r.Steps[i], alone); d != "" || alone.Engine == nil {
			t.Errorf("step %d, alone and in the whole:\n%s", i, d)
		}
	}
}

// The CSV has the engine's figures at its end, and empty cells where there are none.
func TestEngineColumns(t *testing.T) {
	log := engineLog(t, func(int, *measurement.Turn) {}, nil, told{measurement.SampleRunning: 2}, nil, told{measurement.SampleEvicted: 7})
	r := Analyze(log)
	var b bytes.Buffer
	if err := measurement.WriteCSV(&b, r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Index(rows[0], "engine_running_mean")
	if first < 0 || rows[0][first-1] != "flags" {
		t.Fatalf("columns %v: the engine's do not follow the flags", rows[0])
	}
	behind := slices.Index(rows[0], "ttft_mean_ms") // the engine's end here
	if got := strings.Join(rows[1][first:behind], ""); got != "" {
		t.Errorf("a step without samples has %q", got)
	}
	if at := slices.Index(rows[0], "engine_evicted_tok_s"); rows[2][first] != "2" || rows[2][at] != "7" || rows[2][first+1] != "" {
		t.Errorf("running %q, evicted %q, queued %q; want 2, 7 and nothing", rows[2][first], rows[2][at], rows[2][first+1])
	}
}
