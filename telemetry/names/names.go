// Package names is the metrics contract: every metric that kneeload exports, and the labels. It imports nothing, so that
// dashboards, rules and exporters share it without linking a metrics library.
//
// All names begin with kneeload_ and end with their base unit; counters end with _total. Labels come from small closed sets:
// the label of the run, the number of a step, the class of a turn, an outcome. Never a call, a URL, an error text.
package names

// Labels.
const (
	Label     = "label"      // of the run
	Step      = "step"       // its number, from 0
	TurnClass = "turn_class" // one of the classes below
	Outcome   = "outcome"    // "ok", or one of the closed set of failures
	Quantile  = "q"          // "0.5", "0.95", "0.99"; lint keeps "quantile" for summaries
	Metric    = "metric"     // of an objective: "ttft" or "itl"
	Verdict   = "verdict"    // "pass", "fail", "undecided"
	Flag      = "flag"       // a step's flag, such as "client_limited"
	Knee      = "knee"       // "slo", "curvature", "saturation"
	Status    = "status"     // of a knee: "found", "above_range", "below_range", "none"
	State     = "state"      // of the run: "starting", "running", "draining", "done", "interrupted", "failed"
	Test      = "test"       // of the arrivals: "ks", "ad", "lag1", "whole_seconds", "dispersion_1s", "dispersion_10s", "dispersion_60s"
	Source    = "source"     // of samples: "engine" or "gpu"
	Signal    = "signal"     // of exported telemetry: "spans" or "metrics"
)

// Classes of turns.
const (
	First      = "first"      // turn 1 of a call, which only warms the cache
	Measured   = "measured"   // turns 2.. due in a step's window: what the results count
	Unmeasured = "unmeasured" // turns 2.. due in warm-up or drain
)

// Histograms, {label, step, turn_class} unless said. Bounds hold the objective's limit as an edge. Turns that got no token
// are in none of the time histograms: they are counted by TurnsTotal.
const (
	TTFT     = "kneeload_ttft_seconds"      // first token - due; exemplars carry trace_id
	TTFTSent = "kneeload_ttft_sent_seconds" // first token - sent
	ITL      = "kneeload_itl_seconds"       // gaps between token events
	TPOT     = "kneeload_tpot_seconds"      // (last token - first token)/(tokens after the first event), a turn
	E2E      = "kneeload_e2e_seconds"       // end - due, of turns that ended well
	Lag      = "kneeload_schedule_lag_seconds"
	Cached   = "kneeload_cached_prompt_tokens"    // of a turn, where the server told
	Calls    = "kneeload_calls_in_flight_sampled" // {label, step}: calls in progress, sampled once a second
	NativeT  = "kneeload_ttft_native_seconds"     // as TTFT, as a native histogram, when asked for
	NativeI  = "kneeload_itl_native_seconds"      // as ITL, the same
	NativeP  = "kneeload_cached_prompt_tokens_native"
	NativeC  = "kneeload_calls_in_flight_sampled_native" // {label, step}
)

// Counters.
const (
	CallsTotal        = "kneeload_calls_total"                     // {label, step}: calls that began
	TurnsTotal        = "kneeload_turns_total"                     // {label, step, turn_class, outcome}
	TurnsInSLOTotal   = "kneeload_turns_within_slo_total"          // {label, step, turn_class}: ok, and TTFT within the objective
	PromptTokens      = "kneeload_prompt_tokens_total"             // {label, step, turn_class}
	KnownPromptTokens = "kneeload_cache_known_prompt_tokens_total" // {label, step, turn_class}: of turns whose cached tokens are known
	CachedTokens      = "kneeload_cache_hit_prompt_tokens_total"   // {label, step, turn_class}: found in the server's prefix cache
	OutputTokens      = "kneeload_output_tokens_total"             // {label, step, turn_class}
	TokenEvents       = "kneeload_token_events_total"              // {label, step, turn_class}
	Retries           = "kneeload_request_retries_total"           // {label, step}: kept connections that turned out to be closed
	Dials             = "kneeload_dials_total"                     // {label, step}: turns that waited for a connection to open
	DroppedTotal      = "kneeload_telemetry_dropped_total"         // {signal}: spans, metrics that could not be exported
	ScrapesTotal      = "kneeload_target_scrapes_total"            // {source, outcome}: scrapes of the engine's and the GPU's metrics: "ok" or "failed"
)

// Gauges of what happens now, {label}.
const (
	OfferedRate   = "kneeload_offered_calls_per_second" // λ asked
	ArrivedRate   = "kneeload_arrived_calls_per_second" // calls that began in the rolling window, a second
	CurrentStep   = "kneeload_current_step"
	CallsInFlight = "kneeload_calls_in_flight"
	TurnsInFlight = "kneeload_turns_in_flight"
	WindowTTFT    = "kneeload_window_ttft_seconds"    // {label, q}: exact, of turns 2.. that ended in the rolling window
	WindowITL     = "kneeload_window_itl_seconds"     // {label, q}
	WindowHit     = "kneeload_window_cache_hit_ratio" // {label}
	WindowErrors  = "kneeload_window_error_ratio"     // {label}
	WindowTurns   = "kneeload_window_turns"           // {label}: turns 2.. in it
	WindowSeconds = "kneeload_window_seconds"         // {label}: how long it is
	SLO           = "kneeload_slo_seconds"            // {label, metric, q}: the limit
	RunInfo       = "kneeload_run_info"               // {label, tool, model, engine, engine_version, gpu, fidelity, arrivals}: 1
	RunState      = "kneeload_run_state"              // {label, state}: 1 for the state the run is in, 0 for the others
	BuildInfo     = "kneeload_build_info"             // {version, revision, goversion, ...}: 1
)

// Gauges of ended steps, {label, step}: the figures of the results file, to the last bit but for the unit.
const (
	StepRate        = "kneeload_step_rate_calls_per_second"   // λ asked; known as soon as the step begins
	StepStart       = "kneeload_step_start_timestamp_seconds" // of wall time; known as soon as the step begins
	StepWindowStart = "kneeload_step_window_start_timestamp_seconds"
	StepWindowEnd   = "kneeload_step_window_end_timestamp_seconds"
	StepEnd         = "kneeload_step_end_timestamp_seconds" // its drain ended
	StepArrived     = "kneeload_step_arrived_calls_per_second"
	StepTTFT        = "kneeload_step_ttft_seconds"         // {label, step, q}
	StepTTFTLow     = "kneeload_step_ttft_p95_low_seconds" // ends of its 95 % interval, where bounded
	StepTTFTHigh    = "kneeload_step_ttft_p95_high_seconds"
	StepTTFTSent    = "kneeload_step_ttft_sent_seconds" // {label, step, q}
	StepITL         = "kneeload_step_itl_seconds"       // {label, step, q}
	StepTPOT        = "kneeload_step_tpot_seconds"      // {label, step, q}
	StepHit         = "kneeload_step_cache_hit_ratio"
	StepErrors      = "kneeload_step_error_ratio"
	StepTurns       = "kneeload_step_measured_turns"
	StepLive        = "kneeload_step_live_calls" // mean over the window
	StepThroughput  = "kneeload_step_turns_per_second"
	StepOutput      = "kneeload_step_output_tokens_per_second"
	StepSaturation  = "kneeload_step_saturation_ratio"
	StepLag         = "kneeload_step_schedule_lag_p99_seconds"
	StepVerdict     = "kneeload_step_verdict"                        // {label, step, verdict}: 1 for the verdict, 0 for the others
	StepFlag        = "kneeload_step_flag"                           // {label, step, flag}: 1 for each flag it has
	StepServerTTFT  = "kneeload_step_server_ttft_mean_seconds"       // the server's own mean over the window, where scraped
	StepTTFTMinus   = "kneeload_step_ttft_minus_server_mean_seconds" // mean of ttft_sent less the server's mean
	KneeRate        = "kneeload_knee_calls_per_second"               // {label, knee}; absent while there is none
	KneeEstimate    = "kneeload_knee_estimate_calls_per_second"
	KneeLow         = "kneeload_knee_ci95_low_calls_per_second"
	KneeHigh        = "kneeload_knee_ci95_high_calls_per_second"
	KneeStatus      = "kneeload_knee_status"           // {label, knee, status}: 1 for the status it has, 0 for the others
	ArrivalsTestP   = "kneeload_arrivals_test_p"       // {label, test}: probability of arrivals as extreme if the process is as asked
	ArrivalsCV      = "kneeload_arrivals_gap_cv_ratio" // coefficient of variation of gap*λ: 1 for Poisson
	ArrivalsCalls   = "kneeload_arrivals_tested_calls"
	ArrivalsOK      = "kneeload_arrivals_certified" // 1 when no test rejects
)
