package measurement

// Results is the curve of one run: what <label>.json holds. Absent figures are null, never 0.
type Results struct {
	Schema    string       `json:"schema"`
	Label     string       `json:"label"`
	Tool      string       `json:"tool,omitempty"`
	Config    Config       `json:"config"`
	Engine    Engine       `json:"engine"`
	Seed      uint64       `json:"seed"`
	Arrivals  Arrivals     `json:"arrivals"`
	Steps     []StepResult `json:"steps"`
	Knees     Knees        `json:"knees"`
	Mechanism Mechanism    `json:"mechanism"`
	Warnings  []string     `json:"warnings"`
}

// Arrivals certify the load: what was asked, and tests of the instants at which calls were really sent. A test that had too
// little to go by is absent.
type Arrivals struct {
	Process      string       `json:"process"`       // as Config.Arrivals; "poisson" when that is empty
	Calls        int          `json:"calls"`         // sent, whose instants were tested; held ones are left out
	KS           *Test        `json:"ks"`            // Kolmogorov-Smirnov of gap*λ against the unit exponential, λ asked
	AD           *Test        `json:"ad"`            // Anderson-Darling of gap*λ against an exponential of estimated mean
	CV           *float64     `json:"cv"`            // coefficient of variation of gap*λ; 1 for Poisson
	Dispersion   []WindowTest `json:"dispersion"`    // of counts in windows of 1, 10 and 60 s; 1 for Poisson
	Lag1         *Test        `json:"lag1"`          // autocorrelation of successive gaps; 0 for Poisson
	WholeSeconds *Test        `json:"whole_seconds"` // share of arrivals within 1 ms of a whole second of the step
	LagP50       *float64     `json:"schedule_lag_p50_ms"`
	LagP99       *float64     `json:"schedule_lag_p99_ms"`
	LagMax       *float64     `json:"schedule_lag_max_ms"`
	Certified    bool         `json:"certified"` // no test of a Poisson process rejects at p = .001, and at least the KS test was made
}

// Test is a statistic and the probability of one as extreme if the hypothesis holds.
type Test struct {
	Value float64 `json:"value"`
	P     float64 `json:"p"`
}

// WindowTest is a Test over windows of a length.
type WindowTest struct {
	WindowS float64 `json:"window_s"`
	Test
}

// StepResult is one point of the curve.
type StepResult struct {
	Step          int             `json:"step"`
	Rate          float64         `json:"rate_calls_per_s"`    // λ asked
	ArrivedRate   *float64        `json:"arrived_calls_per_s"` // λ that came in the window
	WindowS       float64         `json:"window_s"`
	MeasuredTurns int             `json:"measured_turns"` // turns 2.. due in the window and sent
	NotSentTurns  int             `json:"not_sent_turns"`
	Errors        int             `json:"errors"`     // failed turns due in the window, warm turns included
	ErrorRate     *float64        `json:"error_rate"` // of the turns due in the window and sent (or shed)
	ErrorKinds    map[Outcome]int `json:"error_kinds,omitempty"`

	TTFTMean       *float64    `json:"ttft_mean_ms"` // absent when a turn got no token
	TTFTP50        *float64    `json:"ttft_p50_ms"`
	TTFTP95        *float64    `json:"ttft_p95_ms"`
	TTFTP99        *float64    `json:"ttft_p99_ms"`
	TTFTP95CI      [2]*float64 `json:"ttft_p95_ci_ms"`
	TTFTP95AtLeast *float64    `json:"ttft_p95_at_least_ms"` // when the P95 is censored: the P95 with tokenless turns at the age at which they were given up
	TTFTSentP95    *float64    `json:"ttft_sent_p95_ms"`
	WarmTTFTP50    *float64    `json:"warm_turn_ttft_p50_ms"` // turn 1, the cold prefill
	ITLP50         *float64    `json:"itl_p50_ms"`
	ITLP95         *float64    `json:"itl_p95_ms"`
	ITLP99         *float64    `json:"itl_p99_ms"`
	ITLBasis       string      `json:"itl_basis,omitempty"` // "token" or "chunk"
	TPOTP50        *float64    `json:"tpot_p50_ms"`
	Times          *Times      `json:"times,omitempty"` // where the log tells when turns were admitted, as that of a simulated run does

	ThroughputTurns     *float64 `json:"throughput_turns_s"`
	OutputTokens        *float64 `json:"output_tok_s"`
	CacheHitRate        *float64 `json:"cache_hit_rate"`
	AchievedConcurrency *float64 `json:"achieved_concurrency"` // λ_turn x mean turn time, measured and warm turns in the window
	LiveTurnsMean       *float64 `json:"live_turns_mean"`      // counted independently of the turns' own times
	LiveCallsMean       *float64 `json:"live_calls_mean"`
	LiveCallsMax        *int     `json:"live_calls_max"`
	InFlightSlope       *float64 `json:"in_flight_slope"`  // (in flight at the window's end - at its start)/arrived turns
	SaturationRatio     *float64 `json:"saturation_ratio"` // 1 - InFlightSlope: completions/arrivals
	ScheduleLagP99      *float64 `json:"schedule_lag_p99_ms"`

	// How sure the TTFT objective is, of several the least sure; absent without one. The verdict does not depend on it.
	LateTurns       *int     `json:"late_turns"`        // measured turns over its limit or without a token
	NEff            *float64 `json:"n_eff"`             // how many independent turns the measured ones are worth
	PassProbability *float64 `json:"pass_probability"`  // 0..1, that in the long run no more turns are late than it allows
	Decided         Verdict  `json:"decided,omitempty"` // what a test at 95 % says
	MoreCalls       *int     `json:"more_calls_needed"` // about so many more would decide it; absent when it is, or when no number would

	Objectives []ObjectiveResult `json:"objectives"`
	Retries    int               `json:"retries"`      // requests sent again because a kept connection had been closed
	Dialed     int               `json:"dialed_turns"` // measured turns whose TTFT holds opening a connection
	ByTurn     []TurnResult      `json:"by_turn"`
	Verdict    Verdict           `json:"verdict"`
	Flags      []string          `json:"flags"`
	Engine     *EngineResult     `json:"engine,omitempty"` // absent when nothing was told of the engine or its GPUs
}

// Times are the times of a step's measured turns in whole: TTFT is what a turn waited before it was sent, QueueWait and TTFTAdmitted
// together.
type Times struct {
	TTFT         Spread `json:"ttft_ms"`            // from due
	QueueWait    Spread `json:"queue_wait_ms"`      // from sent until admitted
	TTFTAdmitted Spread `json:"ttft_from_admit_ms"` // from admitted
	ITL          Spread `json:"itl_ms"`
	TPOT         Spread `json:"tpot_ms"`
	E2E          Spread `json:"e2e_ms"` // from due to the last token, of turns that ended well
}

// Spread is a distribution in milliseconds. A percentile that lands on turns without a value is absent, and so is the mean when
// there are any.
type Spread struct {
	N    int      `json:"n"` // values; of ITL gaps
	Mean *float64 `json:"mean"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
}

// EngineResult is what the other side said of itself over a step's window. Gauges are means (or the most, or the least) of the
// samples in the window. What is counted since the server began is the difference between the last sample before the window and the
// first behind it, so it covers up to one interval of scraping more at each end; rates are by the time between those two.
type EngineResult struct {
	Samples     int      `json:"samples"`     // of the engine, in the window
	GPUSamples  int      `json:"gpu_samples"` // of its GPUs
	RunningMean *float64 `json:"running_mean"`
	QueuedMean  *float64 `json:"queued_mean"`
	QueuedMax   *float64 `json:"queued_max"`
	KVUsageMean *float64 `json:"kv_usage_mean"` // 0..1: of the pool, in use by running requests
	KVUsageMax  *float64 `json:"kv_usage_max"`
	KVPool      *float64 `json:"kv_pool_tokens"`
	KVUsed      *float64 `json:"kv_used_tokens_mean"`
	KVCached    *float64 `json:"kv_cached_tokens_mean"` // evictable
	KVFree      *float64 `json:"kv_free_tokens_mean"`
	KVFreeMin   *float64 `json:"kv_free_tokens_min"`

	EvictedRate  *float64 `json:"evicted_tok_s"`
	Retractions  *float64 `json:"retractions"`    // how many there were
	CacheHitRate *float64 `json:"cache_hit_rate"` // cached/prompt tokens of all requests, first turns included
	PrefillBusy  *float64 `json:"prefill_busy"`   // 0..1, of the time
	DecodeBusy   *float64 `json:"decode_busy"`

	Packing      *Packing        `json:"packing,omitempty"`               // of an engine model, and so the next three
	KVPeak       *float64        `json:"kv_usage_peak,omitempty"`         // 0..1: the most of the pool that running requests held, at any instant
	WindowUsage  *float64        `json:"kv_window_usage_mean,omitempty"`  // 0..1: of the pool of layers with a window, where they have one of their own
	WindowCached *float64        `json:"kv_window_cached_mean,omitempty"` // 0..1
	QueuedSlope  *float64        `json:"queued_slope_per_s,omitempty"`    // of the requests that wait, after the window's first fifth
	Replicas     []ReplicaResult `json:"replicas,omitempty"`              // of several behind a router
	Engines      *float64        `json:"engines,omitempty"`               // data-parallel ones that an endpoint says it has; absent where it says nothing

	// TTFTClientMinus is the mean of ttft_sent, over the turns whose first token came between the same two samples, less the server's
	// own mean: what network, HTTP and a gateway add. First turns are in it, since the server counts them too. It is a difference
	// of means, over the same requests but for those at the edges; no percentile of one side may be taken from one of the other.
	// Absent when the server counted more than a tenth more or fewer requests than this side saw first tokens: then others use it
	// too, or the log is not all there was.
	TTFTMean        *float64 `json:"ttft_mean_ms"`
	TTFTRequests    *float64 `json:"ttft_requests"` // that the server's mean covers
	TTFTClientMinus *float64 `json:"ttft_client_minus_ms"`
	ITLMean         *float64 `json:"itl_mean_ms"`
	QueueMean       *float64 `json:"queue_mean_ms"` // from arrival to admission

	GPUs        *float64 `json:"gpus"`
	GPUUtil     *float64 `json:"gpu_utilization_mean"` // 0..1, and so the next two
	GPUTensor   *float64 `json:"gpu_tensor_active_mean"`
	GPUDRAM     *float64 `json:"gpu_dram_active_mean"`
	GPUMemory   *float64 `json:"gpu_memory_used_bytes_mean"` // of all GPUs, and so the next
	GPUPower    *float64 `json:"gpu_power_watts_mean"`       // from their energy counters where they have them
	GPUClock    *float64 `json:"gpu_sm_clock_hertz_mean"`
	GPUTempMost *float64 `json:"gpu_temperature_celsius_max"`
}

// Packing is how full an engine's steps were. A step's batch is the prompts that it computes, whole or in part, and the sequences
// of which it generates the next token.
type Packing struct {
	Steps        float64  `json:"steps"`
	BatchMean    *float64 `json:"batch_mean"` // requests a step
	BatchMost    *float64 `json:"batch_max"`
	PrefillMean  *float64 `json:"prefill_requests_mean"`
	DecodeMean   *float64 `json:"decode_requests_mean"`
	QueryMean    *float64 `json:"query_tokens_mean"`  // tokens a step that go through the model: of prompts, and one of each sequence
	PrefillShare *float64 `json:"prefill_step_share"` // 0..1: of the steps, those that compute prompts
	MixedShare   *float64 `json:"mixed_step_share"`   // 0..1: of the steps, those that do both
}

// ReplicaResult is one engine of several behind a router.
type ReplicaResult struct {
	Replica      int      `json:"replica"`
	PromptTokens *float64 `json:"prompt_tokens"` // of requests admitted there
	CacheHitRate *float64 `json:"cache_hit_rate"`
	KVUsageMean  *float64 `json:"kv_usage_mean"`
	RunningMean  *float64 `json:"running_mean"`
}

// ObjectiveResult is one objective and what was measured for it.
type ObjectiveResult struct {
	Objective
	ValueMS *float64 `json:"value_ms"` // absent when it is censored or nothing was measured
}

// TurnResult is the same for one turn index within a step.
type TurnResult struct {
	Turn         int      `json:"turn"`
	Turns        int      `json:"turns"`
	TTFTP50      *float64 `json:"ttft_p50_ms"`
	TTFTP95      *float64 `json:"ttft_p95_ms"`
	ITLP50       *float64 `json:"itl_p50_ms"`
	ITLP95       *float64 `json:"itl_p95_ms"`
	CacheHitRate *float64 `json:"cache_hit_rate"`
	PromptP50    *float64 `json:"prompt_tokens_p50"`
}

// Verdict says whether a step met the objectives.
type Verdict string

// The verdicts. Undecided means that too little was measured to say either.
const (
	Pass      Verdict = "pass"
	Fail      Verdict = "fail"
	Undecided Verdict = "undecided"
)

// The flags of a step. A step with one of the first five cannot pass.
const (
	FlagClientLimited = "client_limited" // the generator itself was late
	FlagCapBound      = "cap_bound"      // calls waited for --max-concurrent-calls
	FlagUnstable      = "unstable"       // turns in flight kept growing through the window
	FlagContaminated  = "contaminated"   // first turns were not cold
	FlagCensored      = "censored"       // a percentile lands on turns that got no token
	FlagShort         = "short"          // fewer measured turns than asked
	FlagIncomplete    = "incomplete"     // the step was cut before its window ended
	FlagErrors        = "errors"         // error rate of 2 % or more
	FlagBuffered      = "buffered"       // answers came whole, in one read: something on the way buffers the stream
	FlagColdCache     = "cold_cache"     // turns 2.. found no warm prefix although few calls were live
	FlagEarlyFail     = "early_fail"     // the step was ended as soon as it was certain to fail
	FlagOffRate       = "off_rate"       // the λ that came differs from the λ asked by more than a tenth
)

// FlagMeaning says in a few words what a flag stands for; "" of a flag that is not known here.
func FlagMeaning(flag string) string {
	switch flag {
	case FlagClientLimited:
		return "the generator itself was late"
	case FlagCapBound:
		return "calls waited for --max-concurrent-calls"
	case FlagUnstable:
		return "turns in flight kept growing"
	case FlagContaminated:
		return "first turns were not cold"
	case FlagCensored:
		return "a percentile lands on turns that got no token"
	case FlagShort:
		return "fewer measured turns than asked"
	case FlagIncomplete:
		return "the step was cut before it ended and counts for nothing"
	case FlagErrors:
		return "2 % of turns or more failed"
	case FlagBuffered:
		return "answers came whole, in one read"
	case FlagColdCache:
		return "later turns found no warm prefix although few calls were live"
	case FlagEarlyFail:
		return "the step was ended as soon as it was certain to fail; so short a time need not bring the λ asked, so it has no off_rate"
	case FlagOffRate:
		return "the λ that came differs from the λ asked by more than a tenth"
	}
	return ""
}

// FlagMeaningOf is FlagMeaning of a run whose loads count what Config.LoadOf says: another tool's flags are not ours.
func FlagMeaningOf(flag, loadOf string) string {
	if loadOf == Requests {
		switch flag {
		case FlagClientLimited:
			return "the tool itself sent late"
		case FlagCapBound:
			return "requests waited for the tool's own cap on requests in flight"
		}
	}
	return FlagMeaning(flag)
}

// KneeStatus says what became of the search for a knee.
type KneeStatus string

// The statuses of a knee.
const (
	Found      KneeStatus = "found"
	AboveRange KneeStatus = "above_range" // still good at the highest rate tried
	BelowRange KneeStatus = "below_range" // already bad at the lowest rate tried
	NoKnee     KneeStatus = "none"
)

// Knee is one answer to "where does it bend"; x is the λ asked, calls/s.
type Knee struct {
	Status   KneeStatus  `json:"status"`
	Rate     *float64    `json:"rate_calls_per_s"`     // the largest passing rate below the first failing one (slo), or the elbow
	Estimate *float64    `json:"estimate_calls_per_s"` // of the SLO knee Logistic's, held near the steps around the limit; without one, and of the others, interpolated between steps
	CI95     [2]*float64 `json:"ci95_calls_per_s"`
	Method   string      `json:"method"`
	Note     string      `json:"note"`
	Logistic *Fit        `json:"logistic,omitempty"` // of the SLO knee: a logistic curve through the late turns of all steps; nil where they tell none
}

// Fit is a knee read off a fitted curve.
type Fit struct {
	Estimate *float64    `json:"estimate_calls_per_s"`
	CI95     [2]*float64 `json:"ci95_calls_per_s"`
}

// Knees are the three kinds of knee, side by side, and others.
type Knees struct {
	SLO        Knee   `json:"slo"`
	Curvature  Knee   `json:"curvature"`
	Saturation Knee   `json:"saturation"`
	Others     []Knee `json:"others,omitempty"` // what else is called a knee, by its Method
}

// Mechanism says what binds at the knee, and why we think so.
type Mechanism struct {
	Name       string   `json:"name"` // "" when it cannot be told
	Evidence   []string `json:"evidence"`
	Confidence string   `json:"confidence"` // "high", "low" or "none"
}
