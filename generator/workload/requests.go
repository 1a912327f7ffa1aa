package workload

import (
	"fmt"
	"math"
	"sort"
)

// Requests are calls of a single turn, which is measured: what each asks. Either Trace says it, or it is drawn: a prefix that
// requests share, then words of the request's own. It is a value that processes may share, once Prepare has been called.
type Requests struct {
	Prompt Lengths // tokens of a request's own, behind its prefix
	Output Lengths // tokens asked of the server

	PrefixTokens int     // length of the prefixes; 0 is none
	Prefixes     int     // how many there are
	Zipf         float64 // how unevenly they are drawn: the k-th with a weight of k^-Zipf; 0 is uniformly

	Trace *Trace // whose lines are asked in order, and again from the first with other words; nil: Prompt and Output say

	popular []float64 // cumulative weights of the prefixes
}

// MaxPrefixes is how many prefixes a pool can have.
const MaxPrefixes = 1_000_000

// Prepare checks the requests and makes them ready; the error names the value and the rule.
func (r *Requests) Prepare() error {
	if r.Trace != nil {
		return nil
	}
	switch {
	case r.Prompt.Kind == "" || r.Output.Kind == "":
		return fmt.Errorf("requests need a length of their prompts and of their outputs")
	case r.PrefixTokens < 0 || r.PrefixTokens > MaxLength:
		return fmt.Errorf("prefix of %d tokens: must be from 0 to %d", r.PrefixTokens, MaxLength)
	case r.PrefixTokens > 0 && (r.Prefixes < 1 || r.Prefixes > MaxPrefixes):
		return fmt.Errorf("%d prefixes: must be from 1 to %d", r.Prefixes, MaxPrefixes)
	case !(r.Zipf >= 0 && r.Zipf <= 10):
		return fmt.Errorf("prefixes drawn by Zipf %g: must be from 0 (uniformly) to 10", r.Zipf)
	}
	r.popular = nil
	if r.PrefixTokens > 0 && r.Prefixes > 1 {
		sum := 0.
		for k := range r.Prefixes {
			sum += math.Pow(float64(k+1), -r.Zipf)
			r.popular = append(r.popular, sum)
		}
	}
	return nil
}

// prefix is the number of the prefix, from 0, below which the share u of draws lies.
func (r *Requests) prefix(u float64) int {
	n := len(r.popular)
	if n == 0 {
		return 0
	}
	return min(n-1, sort.SearchFloat64s(r.popular, u*r.popular[n-1]))
}

// paired reports whether both lengths are columns of one file, so that a request has both of one line.
func (r *Requests) paired() bool {
	return r.Prompt.Kind == "empirical" && r.Output.Kind == "empirical" && len(r.Prompt.Sample) == len(r.Output.Sample) && fileOf(r.Prompt) == fileOf(r.Output)
}

func fileOf(l Lengths) string {
	file, _ := CutColumn(l.File)
	return file
}

// CutColumn splits FILE:COLUMN; a text without a colon is a file alone.
func CutColumn(text string) (file, column string) {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == ':' {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// lengths are the tokens of a request's own and of its output; call is the call's number in the run.
func (r *Requests) lengths(seed uint64, call int) (own, out int) {
	u := Uniform(seed, "prompt tokens", call)
	v := u
	if !r.paired() {
		v = Uniform(seed, "output tokens", call)
	}
	return r.Prompt.At(u), r.Output.At(v)
}

// Mean are the means of the whole prompt and of the output, in tokens.
func (r *Requests) Mean() (prompt, output float64) {
	if r.Trace != nil {
		return r.Trace.mean()
	}
	return float64(r.PrefixTokens) + r.Prompt.Mean(), r.Output.Mean()
}

// Ask is a single request: its prompt, and how many tokens are asked for.
type Ask struct {
	Prompt    Prompt
	MaxTokens int
}

// Ask is the request of call number call of the run, the n-th of its step, from 0. Requests of one prefix, and those of one turn of
// a trace whose hash ids are equal, begin with the same words; all else is the request's own. Another turn of the trace, and another
// step, has other words for each hash id: no turn finds the one before it in a cache.
func (s *Script) Ask(call, n int) Ask {
	r := s.Requests
	var parts []Segment
	out := 0
	if t := r.Trace; t != nil {
		row := t.at(n)
		out = row.output
		parts = s.blocks(row, call, call-n+n/t.Len())
	} else {
		var own int
		own, out = r.lengths(s.Seed, call)
		before := 0
		if r.PrefixTokens > 0 {
			k := r.prefix(Uniform(s.Seed, "prefix", call))
			before = Words(float64(r.PrefixTokens), s.perWord())
			parts = append(parts, Segment{Nonce: mix(s.Nonce ^ keyOfPrefixes), Call: k, Words: before})
		}
		whole := Words(float64(r.PrefixTokens+own)-s.Overhead, s.perWord())
		parts = append(parts, s.segment(call, 1, max(1, whole-before)))
	}
	return Ask{Prompt: Prompt{{Role: "user", Content: Content{Parts: parts}}}, MaxTokens: out}
}

// Segments of requests that others share have nonces of their own, apart from those of calls.
const (
	keyOfPrefixes = 0x7072656669786573
	keyOfBlocks   = 0x686173685f696473
)

// blocks are the segments of a prompt of a trace: for each hash id a block, then the request's own words if the ids do not cover it.
// What the chat template adds is taken off the end.
func (s *Script) blocks(row traceRow, call, turn int) []Segment {
	left := Words(float64(row.input)-s.Overhead, s.perWord())
	block := Words(float64(s.Requests.Trace.Block), s.perWord())
	parts := make([]Segment, 0, len(row.ids)+1)
	nonce := mix(s.Nonce ^ keyOfBlocks)
	for _, id := range row.ids {
		if left == 0 {
			break
		}
		words := min(left, block)
		parts = append(parts, Segment{Nonce: nonce, Call: turn, Part: int(id), Words: words})
		left -= words
	}
	if left > 0 {
		// Rounding of words to tokens can leave a few: they belong to the last block where the ids cover the prompt.
		if k := len(parts); k > 0 && row.covered(s.Requests.Trace.Block) {
			parts[k-1].Words += left
		} else {
			parts = append(parts, s.segment(call, 1, left))
		}
	}
	return parts
}

// perWord is the tokens of a word; 1 where nothing was fitted.
func (s *Script) perWord() float64 {
	if s.TokensPerWord > 0 {
		return s.TokensPerWord
	}
	return 1
}
