package analysis

import (
	"math"
	"math/rand/v2"
	"time"

	"kneefinder/measurement"
)

const second = time.Second

// aTurn is an ordinary turn: due, sent a tenth of a millisecond later, answered after ttft with 100 tokens 20 ms apart.
func aTurn(step, call, turn int, due, ttft time.Duration) measurement.Turn {
	sent := due + 100*time.Microsecond
	t := measurement.Turn{Call: step*measurement.CallsPerStep + call, Turn: turn, Step: step, Due: due, Held: measurement.Never, Sent: sent,
		WroteRequest: sent, Headers: sent, FirstEvent: due + ttft, FirstToken: due + ttft, LastToken: due + ttft + 99*20*time.Millisecond,
		Events: 100, PromptTokens: 18000 + 150*turn, CompletionTokens: 100, CachedTokens: 18000, Outcome: measurement.OK}
	if turn == 1 {
		t.LastToken, t.Events, t.CompletionTokens, t.CachedTokens = t.FirstToken, 1, 1, 0
	}
	t.End = t.LastToken + time.Millisecond
	return t
}

// failed makes a turn one that failed without a token a second after it was due.
func failed(t measurement.Turn, outcome measurement.Outcome) measurement.Turn {
	t.FirstToken, t.LastToken, t.FirstEvent, t.Headers = measurement.Never, measurement.Never, measurement.Never, measurement.Never
	t.Outcome, t.End, t.Events = outcome, t.Due+second, 0
	t.PromptTokens, t.CompletionTokens, t.CachedTokens = measurement.Unknown, measurement.Unknown, measurement.Unknown
	return t
}

func testConfig() measurement.Config {
	return measurement.Config{SystemPromptTokens: 18000, Turns: 4, OutputTokens: 100, GapMinSeconds: 5, GapMaxSeconds: 7, MinTurns: 60,
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}}
}

// aStep is a step with a window of 90 s from second 30 of it on.
func aStep(n int, lambda float64, start time.Duration) measurement.Step {
	return measurement.Step{Step: n, Rate: lambda, Start: start, WindowStart: start + 30*second, WindowEnd: start + 120*second, DrainEnd: start + 150*second}
}

// pool is a run against an imaginary server of capacity calls/s: waits grow as 1/(1-load), warm prefixes are lost past
// capacity, and past it turns pile up. It is smooth and a little noisy, which is all that charts and knees need. Calls arrive
// at constant gaps.
func pool(label string, capacity float64, rates ...float64) measurement.Log {
	r := rand.New(rand.NewPCG(7, 7))
	log := measurement.Log{Header: measurement.Header{Schema: measurement.LogSchema, Label: label, Tool: "kneesim test", Config: testConfig(),
		Engine: measurement.Engine{Kind: "simulated", Model: "gemma-4-12b", GPU: label, Fidelity: "uncalibrated"}, Seed: 1}}
	log.Header.Config.Rates, log.Header.Config.Arrivals = rates, "constant"
	start := time.Duration(0)
	for i, lambda := range rates {
		s := aStep(i, lambda, start)
		hist := measurement.NewHistogram()
		load := lambda / capacity
		slow := 1 / math.Max(1-load, .02)
		calls := int(lambda*120) + 1
		busy := 0.
		for c := range calls {
			due := start + time.Duration(float64(c)/lambda*1e9)
			for turn := 1; turn <= 4; turn++ {
				ttft := time.Duration((60 + 15*slow*r.ExpFloat64()) * float64(time.Millisecond))
				if load > 1 {
					ttft += time.Duration((load - 1) * float64(due-start) * .4)
				}
				t := aTurn(i, c, turn, due, ttft)
				if turn > 1 && r.Float64() < (load-.85)*1.5 {
					t.CachedTokens = 0
				}
				log.Turns = append(log.Turns, t)
				busy += max(0, (min(t.End, s.WindowEnd) - max(t.Sent, s.WindowStart)).Seconds())
				if s.InWindow(t.Due) {
					if turn == 1 {
						s.ArrivedCalls++
					} else {
						for range 99 {
							measurement.RecordGap(hist, time.Duration(20*(1+load)*float64(time.Millisecond)))
						}
					}
				}
				due = t.End + time.Duration((5+2*r.Float64())*1e9)
			}
		}
		s.LiveTurnsMean, s.LiveMean, s.LiveMax = busy/90, 25*lambda, int(40*lambda)+2
		s.InFlightStart = int(3 * lambda)
		s.InFlightEnd = s.InFlightStart
		if load > 1 {
			s.InFlightEnd += int((load - 1) * lambda * 4 * 60)
		}
		h, err := measurement.EncodeHistogram(2, hist)
		if err != nil {
			panic(err)
		}
		s.ITL = []measurement.Histogram{h}
		log.Steps = append(log.Steps, s)
		start = s.DrainEnd
	}
	return log
}
