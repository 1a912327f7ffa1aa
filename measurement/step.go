package measurement

import (
	"fmt"
	"slices"
	"time"
)

// Header is the first record of a run: what was asked for, and of whom.
type Header struct {
	Schema  string `json:"schema"` // LogSchema
	Label   string `json:"label"`
	Tool    string `json:"tool"`              // "kneeload" or "kneesim", with the version
	Started string `json:"started,omitempty"` // RFC 3339 wall time; absent in a simulated run
	Config  Config `json:"config"`
	Engine  Engine `json:"engine"`
	Seed    uint64 `json:"seed"`
	Nonce   string `json:"nonce"` // keeps this run's prompts apart from every other run's
	Shard   string `json:"shard,omitempty"`
}

// LogSchema and ResultsSchema name the file formats.
const (
	LogSchema     = "kneefinder/turns/v1"
	ResultsSchema = "kneefinder/results/v1"
)

// Config is what the caller asked for, as it is written into every file. Durations are seconds.
type Config struct {
	Preset             string      `json:"preset,omitempty"`
	Rates              []float64   `json:"rates_calls_per_s"`
	SystemPromptTokens int         `json:"system_prompt_tokens"`
	UserTokens         int         `json:"user_tokens"`
	Turns              int         `json:"turns"`
	OutputTokens       int         `json:"output_tokens"`
	IgnoreEOS          bool        `json:"ignore_eos"`
	Temperature        float64     `json:"temperature"`
	GapMinSeconds      float64     `json:"gap_min_s"`
	GapMaxSeconds      float64     `json:"gap_max_s"`
	WarmupSeconds      float64     `json:"warmup_s"`
	StepSeconds        float64     `json:"step_duration_s"`
	MaxStepSeconds     float64     `json:"max_step_duration_s"`
	DrainSeconds       float64     `json:"drain_s"`
	MinTurns           int         `json:"min_turns"`
	FindKnee           bool        `json:"find_knee,omitempty"` // the rates after the first were found by search
	ConfirmSeconds     float64     `json:"confirm_s,omitempty"` // the window of the steps that confirm what the search found
	MaxConcurrentCalls int         `json:"max_concurrent_calls"`
	Language           string      `json:"language,omitempty"`
	SLO                []Objective `json:"slo"`
	Transcripts        string      `json:"transcripts,omitempty"`    // the file whose calls were spoken instead of filler
	Preconnect         bool        `json:"preconnect,omitempty"`     // a connection was opened in the gap before each later turn
	Arrivals           string      `json:"arrivals,omitempty"`       // "poisson" when empty; "constant", "gamma:2", "ramp:30s", "burst:8:10s:50s", "trace", a file of instants, or "closed": then the rates are calls at once
	LoadOf             string      `json:"load_of,omitempty"`        // what a load counts: calls when empty, or Requests
	OutputLengths      string      `json:"output_lengths,omitempty"` // the distribution of OutputTokens, which is its mean; one length when empty
	PromptTokens       int         `json:"prompt_tokens,omitempty"`  // of calls of one turn: the mean of their whole prompts
	PromptLengths      string      `json:"prompt_lengths,omitempty"` // of calls of one turn: the distribution of what is their own, behind the prefix
	PrefixTokens       int         `json:"prefix_tokens,omitempty"`  // of calls of one turn: how long the prefixes are that they share
	Prefixes           int         `json:"prefixes,omitempty"`       // how many there are
	PrefixZipf         float64     `json:"prefix_zipf,omitempty"`    // how unevenly they are drawn; 0 is uniformly
	Trace              string      `json:"trace,omitempty"`          // the file whose requests were asked; "trace" as Arrivals when at its own instants, or those at another speed
	TraceRequests      int         `json:"trace_requests,omitempty"` // how many it has
	TraceOnce          bool        `json:"trace_once,omitempty"`     // it was asked once, from its first to its last, instead of until the end of each step
	TraceBlock         int         `json:"trace_block,omitempty"`    // tokens of a prompt that one of its hash ids stands for; absent when it has none
	Unknown            []string    `json:"unknown,omitempty"`        // of a run that another tool measured: the settings, by their names here, that its files do not tell
}

// Requests are what the loads of runs count whose calls are a single turn each: of other tools, and of our own with LoneTurn.
const Requests = "requests"

// LoneTurn is the number of the turn of a call that is a single request. It is measured, for it has no warm turn before it.
const LoneTurn = 2

// Lone reports whether calls were single requests.
func (c *Config) Lone() bool { return c.LoadOf == Requests && c.Turns == 1 }

// FirstTurn is the number of a call's first turn.
func (c *Config) FirstTurn() int {
	if c.Lone() {
		return LoneTurn
	}
	return 1
}

// MeasuredTurns is how many turns of a call are measured, at least 1.
func (c *Config) MeasuredTurns() int { return max(1, c.Turns-1) }

// Asked is what single requests ask, in a few words; "" for other calls, and where nothing of it is told.
func (c *Config) Asked() string {
	if !c.Lone() {
		return ""
	}
	text := ""
	switch {
	case c.Trace != "":
		text = fmt.Sprintf("the %d requests of %s, prompts of %d tokens on average, answers of %d tokens on average", c.TraceRequests, c.Trace, c.PromptTokens, c.OutputTokens)
		if c.TraceBlock > 0 {
			text += fmt.Sprintf(", a hash id for each %d tokens", c.TraceBlock)
		}
		if !c.TraceOnce {
			text += ", again and again"
		}
		return text
	case c.PrefixTokens == 0 && c.Told("prompt_tokens"):
		text = tokens("prompts", c.PromptTokens, c.PromptLengths)
	case c.PrefixTokens == 0:
	default:
		prefix := "the same prefix"
		if c.Prefixes > 1 {
			prefix = fmt.Sprintf("one of %d shared prefixes", c.Prefixes)
		}
		if c.PrefixZipf > 0 {
			prefix += fmt.Sprintf(" (Zipf %g)", c.PrefixZipf)
		}
		text = fmt.Sprintf("prompts of %d tokens on average: %s of %d, then %s of their own", c.PromptTokens, prefix, c.PrefixTokens, c.PromptLengths)
	}
	if !c.Told("output_tokens") {
		return text
	}
	if text != "" {
		text += ", "
	}
	return text + tokens("answers", c.OutputTokens, c.OutputLengths)
}

// tokens says how long something is; by is its distribution, if it has one.
func tokens(of string, mean int, by string) string {
	if by == "" || by == fmt.Sprint(mean) {
		return fmt.Sprintf("%s of %d tokens", of, mean)
	}
	return fmt.Sprintf("%s of %d tokens on average (%s)", of, mean, by)
}

// Told reports whether a setting, by its name in JSON, is known: what is not is neither 0 nor anything else.
func (c Config) Told(name string) bool { return !slices.Contains(c.Unknown, name) }

// Objective is one service level: the Quantile of Metric must not exceed LimitMS.
type Objective struct {
	Metric   string  `json:"metric"`   // "ttft" or "itl"
	Quantile float64 `json:"quantile"` // .95 for P95
	LimitMS  float64 `json:"limit_ms"`
}

// Engine is what is known of the other side.
type Engine struct {
	Kind        string         `json:"kind,omitempty"` // "sglang", "vllm", "kneemock", "simulated", or "" when it would not say
	Version     string         `json:"version,omitempty"`
	Model       string         `json:"model,omitempty"`
	GPU         string         `json:"gpu,omitempty"`
	Fidelity    string         `json:"fidelity,omitempty"` // "measured" or "uncalibrated"
	BaseURL     string         `json:"base_url,omitempty"` // without user info; absent in a simulated run
	Calibration *Calibration   `json:"calibration,omitempty"`
	ConnectMS   *float64       `json:"connect_ms,omitempty"` // median time to open a TCP connection to it, about one round trip
	Details     map[string]any `json:"details,omitempty"`    // the server's own settings, where it tells them
}

// Calibration says how many words of filler make a token on this server: tokens = Overhead + TokensPerWord*words.
type Calibration struct {
	Overhead      float64 `json:"overhead_tokens"`
	TokensPerWord float64 `json:"tokens_per_word"`
	PromptTokens  int     `json:"prompt_tokens"`          // of all calibration requests together
	CachedTokens  int     `json:"cached_tokens"`          // of all calibration requests together, as far as told
	CacheReport   string  `json:"cache_report,omitempty"` // how the server told of a prompt that was sent twice
}

// How a server reports cached tokens, from a prompt that was sent twice.
const (
	CacheReported    = "reported"     // a number each time
	CacheZeroAsNull  = "zero_as_null" // a number for the hit, null for the miss: null means 0
	CacheNotReported = "not_reported" // never a number: whether prefixes are reused cannot be told
	CacheMissed      = "missed"       // 0 for the hit too: the cache is off, or not shared between requests
)

// Step is one rate's stretch of a run: warm-up, window, drain. It is complete once WindowEnd is set.
type Step struct {
	Step int
	Rate float64 // λ asked, calls/s

	Start       time.Duration // the first arrival may come from here on
	WindowStart time.Duration
	WindowEnd   time.Duration // Never while the step runs or when it was cut short
	DrainEnd    time.Duration

	ArrivedCalls  int         // arrivals due in the window
	HeldCalls     int         // of those, calls that waited for the concurrency cap
	LiveMean      float64     // time average over the window of calls that have begun and not ended, counted as they do (a held call has not begun)
	LiveMax       int         // over the window
	InFlightStart int         // turns in flight when the window began
	InFlightEnd   int         // turns in flight when the window ended
	LiveTurnsMean float64     // time average over the window of turns that have begun and not ended, counted as they do
	EarlyFail     bool        // the window ended as soon as the step was certain to fail
	Residue       int         // calls still open when the drain was cut
	ITL           []Histogram // gaps between token events of measured turns, by turn index
}

// Histogram is a compressed HdrHistogram (V2, base64) of nanoseconds for one turn index.
type Histogram struct {
	Turn    int    `json:"turn"`
	Encoded string `json:"hdr"`
}

// InWindow reports whether a turn due at this instant is part of the measured window.
func (s *Step) InWindow(due time.Duration) bool {
	return due >= s.WindowStart && (s.WindowEnd < 0 || due <= s.WindowEnd)
}
