package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"kneefinder/measurement"
)

const (
	second = time.Second
	ms     = time.Millisecond
)

func ptr[T any](v T) *T { return &v }

// a turn of a made-up run: answered after ttft, its prefix found or not.
func aTurn(step, call, turn int, due, ttft time.Duration, cached bool) measurement.Turn {
	t := measurement.NewTurn()
	t.Call, t.Turn, t.Step, t.Due, t.Sent = step*measurement.CallsPerStep+call, turn, step, due, due+100*time.Microsecond
	t.WroteRequest, t.Headers, t.FirstEvent, t.FirstToken = t.Sent, t.Sent, due+ttft, due+ttft
	t.LastToken, t.End, t.Events, t.PromptTokens, t.CompletionTokens = due+ttft+300*ms, due+ttft+301*ms, 16, 2800+100*turn, 16
	t.CachedTokens, t.Reused, t.Outcome = 0, turn > 1, measurement.OK
	if cached {
		t.CachedTokens = 2700
	}
	return t
}

// made is a run of these loads for minutes each: below 2 calls/s waits are short; from there on, halfway through the window, prefixes
// are lost and waits grow. Its results are what the turns say, as far as the report shows it.
func made(minutes float64, loads ...float64) Run {
	r := rand.New(rand.NewPCG(1, 2))
	config := measurement.Config{Preset: "tiny", Rates: loads, SystemPromptTokens: 2700, UserTokens: 100, Turns: 3, OutputTokens: 16, GapMinSeconds: 1, GapMaxSeconds: 3, StepSeconds: 60 * minutes,
		WarmupSeconds: 10, DrainSeconds: 20, MinTurns: 60, MaxConcurrentCalls: 400, SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}}
	head := measurement.Header{Schema: measurement.LogSchema, Label: "made", Tool: "kneeload test", Started: "2026-01-02T03:04:05.6Z", Seed: 7, Nonce: "ab", Config: config,
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5.23", Model: "tiny", GPU: "L40S", Fidelity: "measured", BaseURL: "http://127.0.0.1:30000", ConnectMS: ptr(.1),
			Details: map[string]any{"chunked_prefill_size": 4096., "mem_fraction_static": .88, "api_key": "sesame", "nested": map[string]any{"hf_token": "sesame", "a": 1.}}}}
	log := &measurement.Log{Header: head}
	res := measurement.Results{Schema: measurement.ResultsSchema, Label: head.Label, Tool: head.Tool, Config: config, Engine: head.Engine, Seed: 7, Warnings: []string{}}
	start, window := time.Duration(0), time.Duration(minutes*60)*second
	for n, load := range loads {
		s := measurement.Step{Step: n, Rate: load, Start: start, WindowStart: start + 10*second, WindowEnd: start + 10*second + window, DrainEnd: start + 30*second + window, LiveMean: 6 * load, LiveMax: int(9 * load)}
		flip, evicted := s.WindowStart+window/2, 0.
		var waits []float64
		out := measurement.StepResult{Step: n, Rate: load, WindowS: window.Seconds(), Flags: []string{}, LiveCallsMean: ptr(s.LiveMean), LiveCallsMax: ptr(s.LiveMax)}
		cached, prompt := 0., 0.
		for at, call := s.Start, 0; at < s.WindowEnd; call++ {
			at += time.Duration(r.ExpFloat64() / load * 1e9)
			due := at
			for turn := 1; turn <= 3; turn++ {
				lost := load >= 2 && due > flip
				ttft := time.Duration((30 + 20*r.Float64()) * 1e6)
				if lost || turn == 1 {
					ttft = time.Duration((400 + 500*r.Float64()) * 1e6)
				}
				t := aTurn(n, call, turn, due, ttft, turn > 1 && !lost)
				if lost && call%40 == 0 && turn == 3 {
					t.FirstToken, t.LastToken, t.CachedTokens, t.End = measurement.Never, measurement.Never, measurement.Unknown, due+5*second
					t.Outcome, t.Detail = measurement.TTFTTimeout, "no token within 5 s"
				}
				log.Turns = append(log.Turns, t)
				due = t.End + time.Duration((1+2*r.Float64())*1e9)
				if !s.InWindow(t.Due) {
					continue
				}
				if t.Outcome.Failed() {
					if out.ErrorKinds == nil {
						out.ErrorKinds = map[measurement.Outcome]int{}
					}
					out.ErrorKinds[t.Outcome]++
					out.Errors++
				}
				if turn > 1 {
					out.MeasuredTurns++
					wait := math.Inf(1)
					if d, ok := t.TTFT(); ok {
						wait = millis(d)
						cached += float64(t.CachedTokens)
						prompt += float64(t.PromptTokens)
					}
					waits = append(waits, wait)
				}
			}
		}
		slices.Sort(waits)
		out.TTFTP50, out.TTFTP95 = ptr(measurement.Quantile(waits, .5)), ptr(measurement.Quantile(waits, .95))
		out.TTFTP95CI = [2]*float64{ptr(*out.TTFTP95 * .9), ptr(*out.TTFTP95 * 1.2)}
		out.CacheHitRate, out.ErrorRate, out.ArrivedRate = ptr(cached/prompt), ptr(float64(out.Errors)/float64(out.MeasuredTurns)), ptr(load)
		out.Objectives = []measurement.ObjectiveResult{{Objective: config.SLO[0], ValueMS: out.TTFTP95}}
		out.Verdict, out.PassProbability, out.Decided, out.MoreCalls = measurement.Pass, ptr(.9), measurement.Undecided, ptr(1234)
		if *out.TTFTP95 > 300 {
			out.Verdict, out.Flags, out.PassProbability, out.Decided = measurement.Fail, []string{measurement.FlagUnstable}, ptr(0.), measurement.Fail
		}
		for turn := 1; turn <= 3; turn++ {
			out.ByTurn = append(out.ByTurn, measurement.TurnResult{Turn: turn, Turns: out.MeasuredTurns / 2, TTFTP50: out.TTFTP50, TTFTP95: out.TTFTP95, CacheHitRate: out.CacheHitRate})
		}
		out.Engine = &measurement.EngineResult{Samples: 9, RunningMean: ptr(load), QueuedMean: ptr(load / 10)}
		res.Steps = append(res.Steps, out)
		for at := s.Start; at < s.DrainEnd; at += 5 * second {
			if at > flip && load >= 2 {
				evicted += 5000
			}
			log.Samples = append(log.Samples, measurement.EngineSample{At: at, Step: n, Values: map[string]float64{measurement.SampleRunning: load, measurement.SampleQueued: 1,
				measurement.SampleKVUsed: 4000 * load, measurement.SampleKVCached: 50000, measurement.SampleKVFree: 9000, measurement.SampleEvicted: evicted}},
				measurement.EngineSample{At: at + second, Step: n, Values: map[string]float64{measurement.SampleGPUUtil: .5, measurement.SampleGPUPower: 300}})
		}
		log.Steps = append(log.Steps, s)
		start = s.DrainEnd + 5*second
	}
	none := measurement.Knee{Status: measurement.NoKnee, Note: "An elbow needs at least 5 rates."}
	res.Knees = measurement.Knees{SLO: none, Curvature: none, Saturation: none}
	if slices.Contains(loads, 1) && slices.Contains(loads, 2) {
		res.Knees.SLO = measurement.Knee{Status: measurement.Found, Rate: ptr(1.), Estimate: ptr(1.6), CI95: [2]*float64{ptr(1.2), ptr(1.9)}, Note: "At 2 calls/s P95 TTFT is over the limit.",
			Logistic: &measurement.Fit{Estimate: ptr(1.5), CI95: [2]*float64{ptr(1.1), nil}}}
		res.Knees.Others = []measurement.Knee{{Status: measurement.Found, Method: "power", Rate: ptr(1.)}}
		res.Mechanism = measurement.Mechanism{Name: "kv_eviction", Confidence: "high", Evidence: []string{"The cache hit rate fell from 96 % at 1 calls/s to 50 % at 2."}}
	}
	res.Warnings = append(res.Warnings, fmt.Sprintf("This run was made up: %d turns.", len(log.Turns)))
	res.Arrivals = measurement.Arrivals{Process: "poisson", Calls: 100, KS: &measurement.Test{Value: .08, P: .4}, AD: &measurement.Test{Value: 3.1, P: .0004}, CV: ptr(1.02),
		Dispersion: []measurement.WindowTest{{WindowS: 10, Test: measurement.Test{Value: 1.3, P: .02}}}, LagP50: ptr(.1), LagP99: ptr(.1), LagMax: ptr(.1)}
	return Run{Results: res, Log: log, Source: "made.turns.jsonl"}
}
