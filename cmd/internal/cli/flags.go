// Package cli is what the commands share: the flags of a workload, the running of a sweep into files, progress, exit codes.
package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Seconds is a duration flag; a bare number means seconds.
type Seconds time.Duration

// Decode reads "90s", "1m30s" or "90".
func (s *Seconds) Decode(ctx *kong.DecodeContext) error {
	d, err := decodeDuration(ctx, time.Second)
	*s = Seconds(d)
	return err
}

func decodeDuration(ctx *kong.DecodeContext, unit time.Duration) (time.Duration, error) {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return 0, err
	}
	return ParseDuration(text, unit)
}

// ParseDuration reads a Go duration, or a bare number in unit; negative ones are refused.
func ParseDuration(text string, unit time.Duration) (time.Duration, error) {
	plain := text
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		plain = strconv.FormatFloat(f*unit.Seconds(), 'f', -1, 64) + "s"
	}
	d, err := time.ParseDuration(plain)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration from 0 to 290 years, such as 90s, 300ms or 1m30s", text)
	}
	return d, nil
}

// Gap is the range of pauses between turns.
type Gap struct{ Min, Max time.Duration }

// Decode reads "5s-7s", "5-7" or one duration for a constant gap.
func (g *Gap) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("gap", &text); err != nil {
		return err
	}
	lo, hi, two := strings.Cut(text, "-")
	if !two {
		hi = lo
	}
	var err error
	if g.Min, err = ParseDuration(lo, time.Second); err != nil {
		return err
	}
	if g.Max, err = ParseDuration(hi, time.Second); err != nil {
		return err
	}
	if g.Max < g.Min {
		return fmt.Errorf("%q goes from high to low", text)
	}
	return nil
}

// Rates is a list of λ in calls/s, from low to high.
type Rates []float64

// Decode reads "0.2,0.5,1".
func (r *Rates) Decode(ctx *kong.DecodeContext) error {
	list, err := decodeLoads(ctx, "rates", func(v float64) bool { return CheckRate(v) == nil }, "a rate: give calls per second, from 1e-6 to 1e6, such as 0.2,0.5,1")
	*r = list
	return err
}

// Concurrency is a list of numbers of calls at once, from low to high.
type Concurrency []float64

// Decode reads "1,2,4".
func (c *Concurrency) Decode(ctx *kong.DecodeContext) error {
	list, err := decodeLoads(ctx, "numbers", func(v float64) bool { return v >= 1 && v <= 1e6 && v == math.Trunc(v) },
		"a number of calls at once: give whole ones, from 1 to 1e6, such as 1,2,4")
	*c = list
	return err
}

// decodeLoads reads the loads of a sweep, each of which must be one.
func decodeLoads(ctx *kong.DecodeContext, many string, is func(float64) bool, one string) (list []float64, err error) {
	var text string
	if err := ctx.Scan.PopValueInto(many, &text); err != nil {
		return nil, err
	}
	for _, field := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || !is(v) {
			return nil, fmt.Errorf("%q in %q cannot be %s", field, text, one)
		}
		list = append(list, v)
	}
	if !slices.IsSorted(list) {
		return nil, fmt.Errorf("the %s %q are not sorted; give them from low to high, so that each step starts from less load than its own", many, text)
	}
	if len(slices.Compact(slices.Clone(list))) != len(list) {
		return nil, fmt.Errorf("the %s %q name one twice", many, text)
	}
	return list, nil
}

// SLO is the service level that a step must meet.
type SLO []measurement.Objective

// Decode reads "300ms", "300" (ms), or "ttft:p95:300ms,itl:p95:40ms".
func (s *SLO) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("slo", &text); err != nil {
		return err
	}
	var err error
	*s, err = ParseSLO(text)
	return err
}

// ParseSLO reads what Decode reads.
func ParseSLO(text string) (SLO, error) {
	var s SLO
	for _, part := range strings.Split(text, ",") {
		o := measurement.Objective{Metric: "ttft", Quantile: .95}
		fields := strings.Split(strings.TrimSpace(part), ":")
		if len(fields) == 3 {
			p, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(fields[1]), "p"), 64)
			if err != nil || !(p > 0 && p < 100) {
				return nil, fmt.Errorf("%q in %q is no percentile, such as p95", fields[1], text)
			}
			o.Metric, o.Quantile = strings.ToLower(fields[0]), p/100
		}
		if (len(fields) != 1 && len(fields) != 3) || (o.Metric != "ttft" && o.Metric != "itl") {
			return nil, fmt.Errorf("%q is no objective: give a limit for P95 TTFT such as 300ms, or ttft:p95:300ms,itl:p95:40ms", text)
		}
		d, err := ParseDuration(fields[len(fields)-1], time.Millisecond)
		if err != nil {
			return nil, err
		}
		if d == 0 {
			return nil, fmt.Errorf("the limit in %q must be more than 0", text)
		}
		o.LimitMS = float64(d) / float64(time.Millisecond)
		s = append(s, o)
	}
	return s, nil
}

// Calls is the flags that say what callers do; what is not given comes from the preset.
type Calls struct {
	Preset             string   `help:"A kind of endpoint, with defaults of its own where they differ from those shown here: ${presets}." placeholder:"NAME" group:"workload"`
	SystemPromptTokens *int     `help:"Length of each call's own system prompt." placeholder:"${default_system_prompt_tokens}" group:"workload"`
	UserTokens         *int     `help:"Length of what the caller says each turn." placeholder:"${default_user_tokens}" group:"workload"`
	Turns              *int     `help:"Turns of a call; the first only warms the cache and is not measured." placeholder:"${default_turns}" group:"workload"`
	OutputTokens       *Lengths `help:"Tokens generated each measured turn: a number, uniform:LEAST:MOST, lognormal:MEAN:SIGMA, empirical:FILE or empirical:FILE:COLUMN." placeholder:"${default_output_tokens}" group:"workload"`
	IgnoreEOS          *bool    `name:"ignore-eos" help:"Generate exactly that many (on unless --no-ignore-eos)." negatable:"" group:"workload"`
	Temperature        *float64 `help:"Sampling temperature." placeholder:"${default_temperature}" group:"workload"`
	Gap                *Gap     `help:"Pause between a reply and the next turn, uniform." placeholder:"${default_gap}" group:"workload"`
	Language           *string  `help:"Filler text: hindi or english." placeholder:"${default_language}" complete:"hindi,english" group:"workload"`
	Transcripts        string   `help:"JSON Lines of real calls to speak instead of filler: {\"system\": \"...\", \"turns\": [\"...\", ...]}." type:"existingfile" placeholder:"FILE" group:"workload"`
	Seed               uint64   `help:"Seed of everything drawn: arrivals, gaps, words." default:"1" group:"workload"`
}

// Workload is the flags of a sweep: its calls, its rates and its steps.
type Workload struct {
	Calls    `embed:""`
	Requests `embed:""`

	Rates              Rates       `help:"Call rates λ to try, calls/s, from low to high, such as 0.2,0.5,1; by default the preset's." placeholder:"RATE,..." group:"steps"`
	Concurrency        Concurrency `help:"Instead of rates: calls spoken at once, each followed at once by the next. A closed loop hides queueing; it is for comparing with other tools. Such as 1,2,4." placeholder:"N,..." group:"steps"`
	Arrivals           *string     `help:"How calls arrive: poisson, constant, gamma:CV, ramp:DURATION (up to the rate), ramp:A-B:DURATION (from A to B times the rate), wave:DEPTH:PERIOD, burst:RATIO:ON:OFF (bursts of RATIO times the rate between them, so long and so far apart on average), onoff:ON:OFF, or a file of seconds from a step's start; a --trace arrives at its own instants unless this is given." placeholder:"poisson" complete:"poisson,constant,file" group:"steps"`
	FindKnee           bool        `help:"Search for the knee instead of trying all rates: double from the lowest, bisect, try the bracket again, confirm. Steps that are certain to fail end early." group:"steps"`
	Confirm            *Seconds    `help:"Measured window, at least, of the two steps that confirm what --find-knee found." placeholder:"${default_confirm}" group:"steps"`
	Extend             bool        `help:"Go on below or above the rates (at most 6 more) when the knee is not between them." default:"true" negatable:"" group:"steps"`
	StopAfterFail      bool        `help:"End the sweep with the first rate that fails." group:"steps"`
	SLO                *SLO        `help:"What must hold: a limit for P95 TTFT, or a list such as ttft:p95:300ms,itl:p95:40ms." placeholder:"${default_slo}" group:"steps"`
	Warmup             *Seconds    `help:"Load before a step's window; by default a call's lifetime." placeholder:"${default_warmup}" group:"steps"`
	StepDuration       *Seconds    `help:"Measured window of a step, at least." placeholder:"${default_step_duration}" group:"steps"`
	MinTurns           *int        `help:"Measured turns that a window waits for; the interval of a P95 has no upper end below 73, and near the knee, where turns wait for one another, below many times that." placeholder:"${default_min_turns}" group:"steps"`
	MaxStepDuration    *Seconds    `help:"Measured window of a step, at most, when --min-turns are slow to come." placeholder:"${default_max_step_duration}" group:"steps"`
	Drain              *Seconds    `help:"Longest wait after a window for calls in progress; when it is not given, ten times the SLO if that is more." placeholder:"${default_drain}" group:"steps"`
	MaxConcurrentCalls *int        `help:"Calls beyond it are held back, and the step is flagged." placeholder:"${default_max_concurrent_calls}" group:"steps"`
}

// Output is the flags that say where the files of a run go.
type Output struct {
	Label     string `help:"Name of the run and of its files." placeholder:"NAME" group:"output"`
	Out       string `help:"Folder of the files." default:"results" complete:"dir" group:"output"`
	Overwrite bool   `help:"Replace the files of a run with the same label." group:"output"`
	RawITL    bool   `name:"raw-itl" help:"Keep every gap between tokens in the turn log." group:"output"`

	Hint string `kong:"-"` // what else can be done about a label that exists
}

// presets is what --preset sets; the empty name is what every other one starts from.
var presets = map[string]measurement.Config{
	"": {SystemPromptTokens: 18000, UserTokens: 40, Turns: 4, OutputTokens: 100, IgnoreEOS: true, GapMinSeconds: 5, GapMaxSeconds: 7,
		StepSeconds: 90, MaxStepSeconds: 1200, DrainSeconds: 60, MinTurns: 60, MaxConcurrentCalls: 400, Language: "hindi",
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
	"l40s": {Rates: []float64{.005, .01, .015, .02, .03, .05, .1, .2, .35, .6}},
	"h100": {Rates: []float64{.02, .035, .06, .1, .15, .25, .45, .8, 1.3, 2}},
	"tiny": {Rates: []float64{.1, .25, .4, .55, .7, .85, 1, 1.25, 1.5}, SystemPromptTokens: 2700, UserTokens: 130, Turns: 6, OutputTokens: 16,
		GapMinSeconds: 1, GapMaxSeconds: 3, StepSeconds: 60, Language: "english", SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 600}}},
	"demo": {Rates: []float64{2, 3, 4, 5, 7}, SystemPromptTokens: 2700, UserTokens: 60, Turns: 4, OutputTokens: 16,
		GapMinSeconds: .4, GapMaxSeconds: .8, StepSeconds: 8, MaxStepSeconds: 20, DrainSeconds: 5, MaxConcurrentCalls: 100, Language: "english",
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
}

// confirmSeconds is the least window of the steps that confirm a knee, unless other steps have a longer one.
const confirmSeconds = 300

// PresetNames lists the presets for help texts.
const PresetNames = "l40s, h100, tiny (an engine on a CPU), demo"

// Config is what the flags and their preset ask for, checked.
func (w *Workload) Config() (measurement.Config, error) {
	c := presets[""]
	c.Preset = w.Preset
	p, ok := presets[w.Preset]
	if !ok {
		return c, fmt.Errorf("--preset %q: there are %s", w.Preset, PresetNames)
	}
	overlay(&c, p)
	set(&c.SystemPromptTokens, w.SystemPromptTokens)
	set(&c.UserTokens, w.UserTokens)
	set(&c.Turns, w.Turns)
	if err := w.refuse(); err != nil {
		return c, err
	}
	if w.OutputTokens != nil {
		c.OutputTokens = int(math.Round(w.OutputTokens.Mean()))
		if !w.OutputTokens.constant() {
			c.OutputLengths = w.OutputTokens.told()
		}
	}
	set(&c.IgnoreEOS, w.IgnoreEOS)
	set(&c.Temperature, w.Temperature)
	if !(c.Temperature >= 0) {
		return c, fmt.Errorf("--temperature %g: must be 0 or more", c.Temperature)
	}
	set(&c.Language, w.Language)
	set(&c.MinTurns, w.MinTurns)
	set(&c.MaxConcurrentCalls, w.MaxConcurrentCalls)
	if w.Rates != nil {
		c.Rates = w.Rates
	}
	if w.Gap != nil {
		c.GapMinSeconds, c.GapMaxSeconds = w.Gap.Min.Seconds(), w.Gap.Max.Seconds()
	}
	if w.SLO != nil {
		c.SLO = *w.SLO
	}
	for field, flag := range map[*float64]*Seconds{&c.StepSeconds: w.StepDuration, &c.MaxStepSeconds: w.MaxStepDuration, &c.DrainSeconds: w.Drain, &c.WarmupSeconds: w.Warmup} {
		if flag != nil {
			*field = time.Duration(*flag).Seconds()
		}
	}
	if w.asked() {
		if err := w.single(&c); err != nil {
			return c, err
		}
	}
	if w.MaxStepDuration == nil {
		c.MaxStepSeconds = max(c.MaxStepSeconds, c.StepSeconds)
	}
	if w.Warmup == nil { // a call's lifetime: its gaps, and replies at 50 tokens/s
		c.WarmupSeconds = float64(c.MeasuredTurns()) * (c.GapMaxSeconds + .02*float64(w.longestAnswer(c)))
		if c.PrefixTokens > 0 && w.Concurrency == nil && len(c.Rates) > 0 { // and until the prefixes have been seen
			c.WarmupSeconds += min(60, math.Ceil(3*float64(c.Prefixes)/c.Rates[0]))
		}
		if c.TraceOnce { // all of it is measured
			c.WarmupSeconds = 0
		}
	}
	if w.Drain == nil {
		for _, o := range c.SLO {
			c.DrainSeconds = max(c.DrainSeconds, 10*o.LimitMS/1000)
		}
	}
	if w.Concurrency != nil {
		if w.Rates != nil || w.arrivals() != "" && w.arrivals() != "poisson" {
			return c, fmt.Errorf("--concurrency is a closed loop: it takes neither --rates nor --arrivals")
		}
		c.Rates, c.Arrivals = w.Concurrency, "closed"
	} else if w.arrivals() != "" && w.arrivals() != "poisson" {
		c.Arrivals = w.arrivals()
	}
	if c.Arrivals != "" && recorded(c.Arrivals) {
		if w.Rates != nil {
			return c, fmt.Errorf("--arrivals %s has a rate of its own: leave --rates out", c.Arrivals)
		}
		rate, err := meanRate(c.Arrivals)
		if err != nil {
			return c, fmt.Errorf("--arrivals: %w", err)
		}
		c.Rates = []float64{rate}
	}
	if w.FindKnee {
		if c.Arrivals == "closed" || recorded(c.Arrivals) {
			return c, fmt.Errorf("--find-knee chooses the rates: it goes with neither --concurrency nor a file of --arrivals")
		}
		if w.StopAfterFail {
			return c, fmt.Errorf("--find-knee needs a rate that fails to know where the knee is: leave --stop-after-fail out")
		}
		if !slices.ContainsFunc(c.SLO, func(o measurement.Objective) bool { return o.Metric == "ttft" }) {
			return c, fmt.Errorf("--find-knee looks for where a TTFT objective fails: give --slo one")
		}
		if len(c.Rates) == 0 {
			return c, fmt.Errorf("--find-knee needs a rate to start from: give --rates 0.1 (calls/s) or --preset (%s)", PresetNames)
		}
		c.FindKnee, c.ConfirmSeconds, c.Rates = true, max(confirmSeconds, c.StepSeconds), c.Rates[:1]
		if w.Confirm != nil {
			c.ConfirmSeconds = time.Duration(*w.Confirm).Seconds()
		}
		if c.ConfirmSeconds < c.StepSeconds {
			return c, fmt.Errorf("--confirm %s is shorter than the window of every other step, %s: give it more, or --step-duration less", span(c.ConfirmSeconds), span(c.StepSeconds))
		}
	} else if w.Confirm != nil {
		return c, fmt.Errorf("--confirm is of --find-knee, which is missing")
	}
	c.Transcripts = filepath.Base(w.Transcripts)
	if w.Transcripts == "" {
		c.Transcripts = ""
	}
	if len(c.Rates) == 0 && c.Lone() {
		return c, fmt.Errorf("no rates: single requests need --rates of their own, such as 1,2,4 (requests/s, low to high), or --concurrency")
	}
	if len(c.Rates) == 0 {
		return c, fmt.Errorf("no rates: give --rates such as 0.2,0.5,1 (calls/s, low to high) or --preset (%s)", PresetNames)
	}
	return c, nil
}

// arrivals is how calls were asked to arrive; "" when nothing was asked.
func (w *Workload) arrivals() string {
	if w.Arrivals == nil {
		return ""
	}
	return *w.Arrivals
}

// Defaults is what the help texts show as the defaults of a workload's flags: what config, the command's own way from flags to what
// is run, makes of flags that leave everything to it.
func Defaults(config func(Workload) (measurement.Config, error)) kong.Vars {
	c, err := config(Workload{FindKnee: true, Rates: Rates{1}})
	if err != nil {
		panic(err) // the defaults are ours
	}
	vars := kong.Vars{"gap": span(c.GapMinSeconds) + "-" + span(c.GapMaxSeconds), "language": c.Language, "temperature": fmt.Sprint(c.Temperature),
		"slo": fmt.Sprintf("%gms", c.SLO[0].LimitMS)}
	for name, n := range map[string]int{"system_prompt_tokens": c.SystemPromptTokens, "user_tokens": c.UserTokens, "turns": c.Turns,
		"output_tokens": c.OutputTokens, "min_turns": c.MinTurns, "max_concurrent_calls": c.MaxConcurrentCalls} {
		vars[name] = strconv.Itoa(n)
	}
	for name, s := range map[string]float64{"warmup": c.WarmupSeconds, "step_duration": c.StepSeconds, "max_step_duration": c.MaxStepSeconds,
		"drain": c.DrainSeconds, "confirm": c.ConfirmSeconds} {
		vars[name] = span(s)
	}
	defaults := kong.Vars{}
	for name, text := range vars {
		defaults["default_"+name] = text
	}
	return defaults
}

func set[T any](field *T, flag *T) {
	if flag != nil {
		*field = *flag
	}
}

// overlay sets in c what the preset p sets.
func overlay(c *measurement.Config, p measurement.Config) {
	c.Rates = p.Rates
	ints := [][2]*int{{&c.SystemPromptTokens, &p.SystemPromptTokens}, {&c.UserTokens, &p.UserTokens}, {&c.Turns, &p.Turns}, {&c.OutputTokens, &p.OutputTokens},
		{&c.MinTurns, &p.MinTurns}, {&c.MaxConcurrentCalls, &p.MaxConcurrentCalls}}
	for _, f := range ints {
		if *f[1] != 0 {
			*f[0] = *f[1]
		}
	}
	floats := [][2]*float64{{&c.GapMinSeconds, &p.GapMinSeconds}, {&c.GapMaxSeconds, &p.GapMaxSeconds}, {&c.StepSeconds, &p.StepSeconds},
		{&c.MaxStepSeconds, &p.MaxStepSeconds}, {&c.DrainSeconds, &p.DrainSeconds}}
	for _, f := range floats {
		if *f[1] != 0 {
			*f[0] = *f[1]
		}
	}
	if p.Language != "" {
		c.Language = p.Language
	}
	if p.SLO != nil {
		c.SLO = p.SLO
	}
}

// Generator turns the flags and their checked Config into the generator's own, with prompts still to be fitted to the
// server's tokens. It reads the files that the flags name.
func (w *Workload) Generator(c measurement.Config, nonce uint64) (generator.Config, error) {
	g, err := Generator(c, w.Seed, nonce)
	if err != nil {
		return g, err
	}
	if w.Transcripts != "" {
		g.Script.Transcripts, err = readFile(w.Transcripts, workload.ReadTranscripts)
		if err != nil {
			return g, err
		}
	}
	if w.OutputTokens != nil && !w.OutputTokens.constant() {
		g.Script.Output = w.OutputTokens.Lengths
	}
	if c.Lone() {
		if g.Script.Requests, err = w.requests(c); err != nil {
			return g, err
		}
	}
	switch c.Arrivals {
	case "", "closed":
		return g, nil
	case arrivalsOfTrace:
		g.Process = workload.Process{Kind: arrivalsOfTrace, Trace: g.Script.Requests.Trace, Once: c.TraceOnce}
		return g, nil
	}
	g.Process, err = workload.ParseProcess(c.Arrivals)
	if err != nil && recorded(c.Arrivals) {
		g.Process.Kind = "recorded"
		g.Process.Recorded, err = readFile(c.Arrivals, workload.ReadInstants)
	}
	if err == nil && g.Process.Warms() && g.Process.Over > g.Warmup {
		err = fmt.Errorf("%s is longer than the warm-up of %v, so that the window would begin below the rate it is to measure", c.Arrivals, g.Warmup)
	}
	if err != nil {
		return g, fmt.Errorf("--arrivals: %w", err)
	}
	return g, nil
}

// recorded reports whether --arrivals names a file.
func recorded(arrivals string) bool {
	_, err := os.Stat(arrivals)
	return err == nil && arrivals != arrivalsOfTrace
}

// meanRate is that of the instants in a file, in calls/s, to three digits.
func meanRate(path string) (float64, error) {
	all, err := readFile(path, workload.ReadInstants)
	if err != nil {
		return 0, err
	}
	span := all[len(all)-1].At.Seconds()
	if len(all) < 2 || span <= 0 {
		return 0, fmt.Errorf("%s: one instant makes no rate", path)
	}
	return strconv.ParseFloat(strconv.FormatFloat(float64(len(all))/span, 'g', 3, 64), 64)
}

func readFile[T any](path string, read func(io.Reader, string) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	return read(f, path)
}

// Generator turns a checked Config into the generator's own, as far as it does not depend on files.
func Generator(c measurement.Config, seed, nonce uint64) (generator.Config, error) {
	l, err := workload.LexiconByName(c.Language)
	if err != nil {
		return generator.Config{}, fmt.Errorf("--language: %w", err)
	}
	d := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	g := generator.Config{
		Script: workload.Script{Nonce: nonce, Seed: seed, Lexicon: l, SystemWords: max(0, c.SystemPromptTokens), UserWords: max(0, c.UserTokens),
			GapMin: d(c.GapMinSeconds), GapMax: d(c.GapMaxSeconds)},
		Turns: c.Turns, OutputTokens: c.OutputTokens, Warmup: d(c.WarmupSeconds), StepDuration: d(c.StepSeconds),
		MaxStepDuration: d(c.MaxStepSeconds), Drain: d(c.DrainSeconds), MinTurns: c.MinTurns, MaxConcurrentCalls: c.MaxConcurrentCalls,
		Closed: c.Arrivals == "closed"}
	if c.Lone() {
		g.Script.Requests, _ = requestsOf(c)
	} else if out, err := workload.ParseLengths(c.OutputLengths); err == nil && out.Kind != "empirical" {
		g.Script.Output = out
	}
	return g, g.Validate()
}

// Again turns the Config of a log into the generator's own, whose prompts are those of the log. What the log took from a file is
// taken from the one that the same flag names.
func (w *Workload) Again(c measurement.Config, seed, nonce uint64) (generator.Config, error) {
	g, err := Generator(c, seed, nonce)
	if err != nil {
		return g, err
	}
	refuse := func(flag, name string) error {
		return fmt.Errorf("the log's prompts come from %s, which the log does not hold: give %s as the run had it", name, flag)
	}
	_, drawn := requestsOf(c)
	switch {
	case c.Trace != "":
		if w.Trace == "" || filepath.Base(w.Trace) != c.Trace {
			return g, refuse("--trace", c.Trace)
		}
		if w.TraceBlock == nil && c.TraceBlock != 0 {
			w.TraceBlock = &c.TraceBlock
		}
		g.Script.Requests, err = w.requests(c)
		if err == nil && g.Script.Requests.Trace.Len() != c.TraceRequests {
			err = fmt.Errorf("--trace %s has %d requests, that of the log %d: it is another file", w.Trace, g.Script.Requests.Trace.Len(), c.TraceRequests)
		}
	case c.Lone() && !drawn:
		if w.PromptTokens == nil || w.PromptTokens.told() != c.PromptLengths || w.OutputTokens != nil && w.OutputTokens.told() != c.OutputLengths {
			return g, refuse("--prompt-tokens and --output-tokens", c.PromptLengths)
		}
		g.Script.Requests, err = w.requests(c)
	case c.Transcripts != "":
		if w.Transcripts == "" || filepath.Base(w.Transcripts) != c.Transcripts {
			return g, refuse("--transcripts", c.Transcripts)
		}
		g.Script.Transcripts, err = readFile(w.Transcripts, workload.ReadTranscripts)
	case strings.HasPrefix(c.OutputLengths, "empirical"):
		if w.OutputTokens == nil || w.OutputTokens.told() != c.OutputLengths {
			return g, refuse("--output-tokens", c.OutputLengths)
		}
		g.Script.Output = w.OutputTokens.Lengths
	}
	return g, err
}

// Extends reports whether rates may be added to those asked for: not where the arrivals have a rate of their own.
func (w *Workload) Extends(c measurement.Config) bool {
	return w.Extend && c.Arrivals != "closed" && !recorded(c.Arrivals) && (c.Arrivals != arrivalsOfTrace || w.Rates != nil)
}
