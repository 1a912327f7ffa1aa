package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Lengths is a distribution of lengths in tokens.
type Lengths struct{ workload.Lengths }

// Decode reads what workload.ParseLengths reads, and the file that it names.
func (l *Lengths) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("tokens", &text); err != nil {
		return err
	}
	var err error
	if l.Lengths, err = workload.ParseLengths(text); err != nil || l.Kind != "empirical" {
		return err
	}
	path, column := l.File, ""
	if _, err := os.Stat(path); err != nil {
		path, column = workload.CutColumn(l.File)
	}
	l.Sample, err = readFile(path, func(r io.Reader, name string) ([]int, error) { return workload.ReadLengths(r, name, column) })
	return err
}

// told is the distribution as files name it: without the folders of its own file.
func (l Lengths) told() string {
	l.File = filepath.Base(l.File)
	return l.String()
}

// constant reports whether all lengths are one.
func (l Lengths) constant() bool { return l.Kind == "constant" }

// Requests is the flags of calls that are single requests, each measured, instead of conversations.
type Requests struct {
	PromptTokens *Lengths `help:"Ask single requests instead of calls of several turns, with prompts so long: a number, uniform:LEAST:MOST, lognormal:MEAN:SIGMA, empirical:FILE or empirical:FILE:COLUMN. Prompts and outputs from two columns of one file are drawn line by line." placeholder:"LENGTHS" group:"workload"`
	PrefixTokens *int     `help:"Length of a prefix that requests share; --prompt-tokens come behind it." placeholder:"N" group:"workload"`
	Prefixes     *int     `help:"How many such prefixes there are (1 unless given)." placeholder:"N" group:"workload"`
	PrefixZipf   *float64 `help:"Draw the k-th of them with a weight of k^-S instead of uniformly." placeholder:"S" group:"workload"`
	Trace        string   `help:"Ask the requests of this file: CSV (arrival, isl, osl), or JSON such as Mooncake's traces (timestamp, input_length, output_length, hash_ids). Times are milliseconds, but those named timestamp_s seconds. Without --rates it is asked once, at its own speed; with --rates its instants are stretched to each of them, again and again until the step ends; with --arrivals only its lengths count." type:"existingfile" placeholder:"FILE" group:"workload"`
	TraceSpeed   *float64 `help:"Ask it so many times as fast as it was recorded." placeholder:"TIMES" group:"workload"`
	TraceBlock   *int     `help:"Tokens of a prompt that one of its hash ids stands for (512 unless given)." placeholder:"N" group:"workload"`

	trace *workload.Trace // Trace, read
}

// asked reports whether calls are single requests.
func (r *Requests) asked() bool { return r.PromptTokens != nil || r.Trace != "" }

// read reads the trace, once.
func (r *Requests) read() (*workload.Trace, error) {
	if r.trace != nil || r.Trace == "" {
		return r.trace, nil
	}
	block := 0
	if r.TraceBlock != nil {
		if block = *r.TraceBlock; block < 1 {
			return nil, fmt.Errorf("--trace-block %d: give the tokens of a block, 1 or more", block)
		}
	}
	t, err := readFile(r.Trace, func(f io.Reader, name string) (*workload.Trace, error) { return workload.ReadTrace(f, name, block) })
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	r.trace = t
	return t, nil
}

// notes are what is odd about the trace.
func (r *Requests) notes() []string {
	if r.trace == nil {
		return nil
	}
	return r.trace.Notes
}

// refuse says which flags do not go together.
func (w *Workload) refuse() error {
	type flag struct {
		name  string
		given bool
	}
	given := func(flags ...flag) string {
		for _, f := range flags {
			if f.given {
				return f.name
			}
		}
		return ""
	}
	prefix := []flag{{"--prefixes", w.Prefixes != nil}, {"--prefix-zipf", w.PrefixZipf != nil}}
	trace := []flag{{"--trace-speed", w.TraceSpeed != nil}, {"--trace-block", w.TraceBlock != nil}}
	switch {
	case !w.asked():
		if name := given(append(prefix, flag{"--prefix-tokens", w.PrefixTokens != nil})...); name != "" {
			return fmt.Errorf("%s is of single requests: give --prompt-tokens too", name)
		}
	case w.PromptTokens != nil && w.Trace != "":
		return fmt.Errorf("--prompt-tokens and --trace exclude one another: a trace has its own lengths")
	case w.Trace != "":
		if name := given(append(prefix, flag{"--prefix-tokens", w.PrefixTokens != nil}, flag{"--output-tokens", w.OutputTokens != nil})...); name != "" {
			return fmt.Errorf("%s and --trace exclude one another: the trace says what its requests ask", name)
		}
	default:
		if name := given(prefix...); name != "" && w.PrefixTokens == nil {
			return fmt.Errorf("%s: give --prefix-tokens too, the length of the prefixes", name)
		}
	}
	if name := given(trace...); name != "" && w.Trace == "" {
		return fmt.Errorf("%s is of --trace, which is missing", name)
	}
	if name := given(flag{"--system-prompt-tokens", w.SystemPromptTokens != nil}, flag{"--user-tokens", w.UserTokens != nil}, flag{"--turns", w.Turns != nil},
		flag{"--gap", w.Gap != nil}, flag{"--transcripts", w.Transcripts != ""}); name != "" && w.asked() {
		return fmt.Errorf("%s is of calls of several turns: --prompt-tokens and --trace ask single requests", name)
	}
	if w.TraceSpeed != nil {
		if name := given(flag{"--rates", w.Rates != nil}, flag{"--concurrency", w.Concurrency != nil}, flag{"--arrivals", w.Arrivals != nil}); name != "" {
			return fmt.Errorf("--trace-speed and %s exclude one another: both say when requests come", name)
		}
		if v := *w.TraceSpeed; !(v > 0 && v <= 1e6) {
			return fmt.Errorf("--trace-speed %g: give how many times as fast as it was recorded, more than 0", v)
		}
	}
	return nil
}

// single fills in a Config of single requests, all but its times.
func (w *Workload) single(c *measurement.Config) error {
	c.LoadOf, c.Turns, c.SystemPromptTokens, c.UserTokens, c.GapMinSeconds, c.GapMaxSeconds = measurement.Requests, 1, 0, 0, 0, 0
	r, err := w.requests(*c)
	if err != nil {
		return err
	}
	prompt, output := r.Mean()
	c.PromptTokens, c.OutputTokens = int(math.Round(prompt)), int(math.Round(output))
	t := r.Trace
	if t == nil {
		c.PromptLengths = w.PromptTokens.told()
		c.PrefixTokens = r.PrefixTokens
		if r.PrefixTokens > 0 {
			c.Prefixes, c.PrefixZipf = r.Prefixes, r.Zipf
		}
	} else {
		c.Trace, c.TraceRequests = filepath.Base(w.Trace), t.Len()
		if t.Hashed() {
			c.TraceBlock = t.Block
		}
	}
	if w.Rates == nil {
		c.Rates = nil // a preset's are of its calls
	}
	switch {
	case t == nil || w.Concurrency != nil || w.Arrivals != nil:
	case w.Rates != nil:
		if t.Rate() > 0 {
			c.Arrivals = arrivalsOfTrace
		}
	case t.Rate() == 0:
		return fmt.Errorf("--trace %s: its requests have no two instants, which makes no rate: give --rates or --concurrency", w.Trace)
	default:
		speed := 1.
		if w.TraceSpeed != nil {
			speed = *w.TraceSpeed
		}
		c.Arrivals, c.Rates = arrivalsOfTrace, []float64{t.Rate() * speed}
		if err := CheckRate(c.Rates[0]); err != nil {
			return fmt.Errorf("--trace %s: %w", w.Trace, err)
		}
		if c.TraceOnce = w.StepDuration == nil && w.MinTurns == nil && !w.FindKnee; c.TraceOnce {
			// A mean gap behind the last request, so that as many come a second as the rate says.
			c.StepSeconds, c.MinTurns = math.Ceil(1000*t.Period().Seconds()/speed)/1000, 0
		}
	}
	return nil
}

// arrivalsOfTrace is the process of a trace's own instants.
const arrivalsOfTrace = "trace"

// requests are what is asked of single requests, with a Config that knows how much they answer where no flag says it.
func (w *Workload) requests(c measurement.Config) (*workload.Requests, error) {
	t, err := w.read()
	if err != nil {
		return nil, err
	}
	r := &workload.Requests{Trace: t, Prefixes: 1}
	if t == nil {
		r.Prompt, r.Output = w.PromptTokens.Lengths, workload.Constant(c.OutputTokens)
		if w.OutputTokens != nil {
			r.Output = w.OutputTokens.Lengths
		}
		set(&r.PrefixTokens, w.PrefixTokens)
		set(&r.Prefixes, w.Prefixes)
		set(&r.Zipf, w.PrefixZipf)
	}
	return r, r.Prepare()
}

// longestAnswer is one that 99 in 100 answers are not longer than, in tokens.
func (w *Workload) longestAnswer(c measurement.Config) int {
	switch {
	case w.trace != nil:
		return w.trace.MostOutput()
	case w.OutputTokens != nil:
		return w.OutputTokens.Most()
	}
	return c.OutputTokens
}

// requestsOf are the requests that a Config asks, as far as it tells without a file; ok is false when it does not.
func requestsOf(c measurement.Config) (r *workload.Requests, ok bool) {
	prompt, err1 := workload.ParseLengths(c.PromptLengths)
	output, err2 := workload.ParseLengths(c.OutputLengths)
	if c.OutputLengths == "" {
		output, err2 = workload.Constant(c.OutputTokens), nil
	}
	r = &workload.Requests{Prompt: prompt, Output: output, PrefixTokens: c.PrefixTokens, Prefixes: c.Prefixes, Zipf: c.PrefixZipf}
	return r, c.Trace == "" && err1 == nil && err2 == nil && prompt.Kind != "empirical" && output.Kind != "empirical" && r.Prepare() == nil
}
