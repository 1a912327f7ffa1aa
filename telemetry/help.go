package telemetry

import (
	"strings"

	"kneefinder/telemetry/names"
)

// help says of each metric what counts, and when.
var help = map[string]string{
	names.TTFT:     "Time from when a turn was due to its first token; counted when the turn has ended. Turns without a token are in kneeload_turns_total alone.",
	names.TTFTSent: "Time from when a turn was sent to its first token, without the load generator's own lateness; counted when the turn has ended.",
	names.ITL:      "Gaps between the token events of a turn; counted when the turn has ended.",
	names.TPOT:     "Time from a turn's first token to its last, divided by the tokens after the first event; one value a turn, where the server told the tokens.",
	names.E2E:      "Time from when a turn was due to its end, of turns that ended well.",
	names.Lag:      "How late the load generator sent a turn: from when it could have, due or let in by the cap, to when it did; of every turn sent.",
	names.Cached:   "Prompt tokens of a turn that the server found in its prefix cache, of turns for which it told.",
	names.Calls:    "Calls in progress, sampled once a second while a step runs.",
	names.NativeT:  "As kneeload_ttft_seconds, as a native histogram.",
	names.NativeI:  "As kneeload_itl_seconds, as a native histogram.",
	names.NativeP:  "As kneeload_cached_prompt_tokens, as a native histogram.",
	names.NativeC:  "As kneeload_calls_in_flight_sampled, as a native histogram.",

	names.CallsTotal:        "Calls that began; within a fifth of a second of it.",
	names.TurnsTotal:        "Turns by outcome, counted when they have ended; not_sent and shed when it is known that they will never be sent.",
	names.TurnsInSLOTotal:   "Turns that ended well and whose TTFT is within the first objective's limit.",
	names.PromptTokens:      "Prompt tokens of turns, where the server told; counted when the turn has ended.",
	names.KnownPromptTokens: "Prompt tokens of turns whose cached tokens are known too: what a hit rate divides by.",
	names.CachedTokens:      "Of kneeload_cache_known_prompt_tokens_total, those that the server found in its prefix cache.",
	names.OutputTokens:      "Tokens that the server generated, as it told; counted when the turn has ended.",
	names.TokenEvents:       "Events of a stream that carried content; one may hold several tokens. Counted when the turn has ended.",
	names.Retries:           "Requests sent again because a kept connection turned out to be closed.",
	names.Dials:             "Turns that waited for a connection to open.",
	names.DroppedTotal:      "Spans, and points of metrics, that could not be sent by OTLP.",
	names.ScrapesTotal:      "Scrapes of the engine's and the GPU's own metrics.",

	names.OfferedRate:   "Calls a second asked (λ) now; 0 while no step runs.",
	names.ArrivedRate:   "Calls a second that began in the rolling window, or since the step began where that is shorter; absent in the first second of a step.",
	names.CurrentStep:   "Number of the step that runs; absent while none does.",
	names.CallsInFlight: "Calls that have begun and not ended.",
	names.TurnsInFlight: "Turns that have begun and not ended.",
	names.WindowTTFT:    "Exact percentile of TTFT over turns 2.. of the newest step that ended in the rolling window, at most the newest 16,384; not of those due in a drain. +Inf where it lands on turns without a token, absent where there are no turns.",
	names.WindowITL:     "Exact percentile of the gaps between token events over turns 2.. of the newest step that ended in the rolling window, at most the newest 65,536 gaps; not of turns due in a drain.",
	names.WindowHit:     "Share of the prompt tokens that the server found in its prefix cache, over turns 2.. of the newest step that ended in the rolling window and for which it told; not of turns due in a drain.",
	names.WindowErrors:  "Share of the turns of the newest step that ended in the rolling window, first ones included, that failed; turns that were due in a drain, never sent or canceled by this side are in neither.",
	names.WindowTurns:   "Turns 2.. of the newest step that ended in the rolling window; not those due in a drain.",
	names.WindowSeconds: "How long the rolling window is, here and on the live page; it begins anew with each step.",
	names.SLO:           "Limit of an objective: the percentile of the metric must not exceed it.",
	names.RunInfo:       "What runs, against what; always 1.",
	names.RunState:      "1 for the state that the run is in, 0 for the others.",
	names.BuildInfo:     "What this program was built from; always 1.",

	names.StepRate:        "Calls a second asked (λ) in the step; after a turn of the rate, the newest.",
	names.StepStart:       "Wall time at which the step began.",
	names.StepWindowStart: "Wall time at which the step's measured window began, or will.",
	names.StepWindowEnd:   "Wall time at which the step's measured window ended.",
	names.StepEnd:         "Wall time at which the step's drain ended.",
	names.StepArrived:     "Calls a second that came in the step's window.",
	names.StepTTFT:        "Exact percentile of TTFT over the step's measured turns, as in the results file; absent where it lands on turns without a token.",
	names.StepTTFTLow:     "Lower end of the 95 % interval of the step's P95 TTFT.",
	names.StepTTFTHigh:    "Upper end of the 95 % interval of the step's P95 TTFT; absent where unbounded.",
	names.StepTTFTSent:    "As kneeload_step_ttft_seconds, from when a turn was sent.",
	names.StepITL:         "Exact percentile of the gaps between token events of the step's measured turns, as in the results file.",
	names.StepTPOT:        "Exact percentile of the time per output token of the step's measured turns, as in the results file.",
	names.StepHit:         "Share of the prompt tokens of the step's measured turns that the server found in its prefix cache, where it told.",
	names.StepErrors:      "Share of the turns due in the step's window that failed, first turns included.",
	names.StepTurns:       "Turns 2.. due in the step's window and sent.",
	names.StepLive:        "Mean over the step's window of calls in progress.",
	names.StepThroughput:  "Turns a second that ended well in the step's window.",
	names.StepOutput:      "Tokens a second that were generated in the step's window.",
	names.StepSaturation:  "Completions over arrivals in the step's window: below 1, turns pile up.",
	names.StepLag:         "P99 of the load generator's own lateness in the step.",
	names.StepVerdict:     "1 for the step's verdict, 0 for the others.",
	names.StepFlag:        "1 for each flag that doubts the step's figures or fails it.",
	names.StepServerTTFT:  "The server's own mean TTFT over the step's window.",
	names.StepTTFTMinus:   "Mean of the step's TTFT from when turns were sent, less the server's own mean: network, HTTP, gateway.",
	names.KneeRate:        "The knee, where one is found, as far as the run has come: the largest rate that passes below the first that fails (slo), the elbow (curvature), or the last rate at which completions keep up with arrivals (saturation).",
	names.KneeEstimate:    "The knee, where one is found, interpolated between the rates tried.",
	names.KneeLow:         "Lower end of the 95 % interval of the knee's estimate.",
	names.KneeHigh:        "Upper end of the 95 % interval of the knee's estimate.",
	names.KneeStatus:      "1 for what became of the search for the knee so far, 0 for the others.",
	names.ArrivalsTestP:   "Probability of arrivals as extreme as those sent if the process is as asked.",
	names.ArrivalsCV:      "Coefficient of variation of the gaps between arrivals times λ; 1 for Poisson.",
	names.ArrivalsCalls:   "Calls whose instants of arrival were tested.",
	names.ArrivalsOK:      "1 when no test of the arrivals rejects, else 0.",

	genDuration:  "Time from when a request was sent to its end.",
	genFirst:     "Time from when a request was sent to its first chunk.",
	genPerChunk:  "Time between the chunks of an answer, after the first.",
	genInput:     "Tokens of prompts.",
	genOutput:    "Tokens of answers.",
	genCacheRead: "Tokens of prompts that were read from the server's cache.",
}

// unit is that of a name, as OpenTelemetry writes it. The exporter adds no ending that a name has already.
func unit(name string) string {
	base := strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasPrefix(name, "gen_ai.") && strings.HasSuffix(base, "_tokens"):
		return "{token}"
	case strings.HasPrefix(name, "gen_ai."), strings.HasSuffix(base, "_seconds"):
		return "s"
	case strings.HasSuffix(base, "_ratio"):
		return "1"
	}
	return ""
}
