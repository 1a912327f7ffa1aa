package anchor

import (
	"errors"
	"fmt"
	"slices"
)

// Plan is what is measured. Default makes one.
type Plan struct {
	Lengths  []int // prompt tokens of cold requests
	Contexts []int // cached tokens of warm requests
	Parts    []int // new tokens of warm requests
	Batches  []int // sequences that decode together
	Depths   []int // tokens of each of them
	Output   int   // tokens that each of them generates
	Groups   []int // cold requests that are sent at once, and then shortly after another
	Share    int   // prompt tokens of each of them
	Repeats  int   // of each point
	Pool     int   // tokens of the KV cache; deep batches that it would not hold are made shallower; 0: not known
}

// Limits bound a plan by what the server can hold.
type Limits struct {
	Context int // tokens of prompt and reply together; 0: not known
	Pool    int // tokens of its KV cache; 0: not known
	Longest int // prompt tokens that are asked for at most; 0: 8192
	Batch   int // sequences at a time at most; 0: 16
	Repeats int // 0: 4
}

// Default is a plan of a few minutes at low load, within limits.
func Default(l Limits) (Plan, error) {
	set := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	set(&l.Longest, 8192)
	set(&l.Batch, 16)
	set(&l.Repeats, 4)
	for _, f := range []struct {
		name  string
		value int
	}{{"context limit", l.Context}, {"kv pool", l.Pool}, {"longest prompt", l.Longest}, {"batch", l.Batch}, {"repeats", l.Repeats}} {
		if f.value < 0 {
			return Plan{}, fmt.Errorf("%s is %d, must not be below 0", f.name, f.value)
		}
	}
	p := Plan{Output: 32, Share: 256, Repeats: l.Repeats, Pool: l.Pool}
	longest := l.Longest
	if l.Context > 0 {
		longest = min(longest, l.Context-p.Output-128) // the length of a prompt is met within a block of words
	}
	if l.Pool > 0 {
		longest = min(longest, l.Pool*3/4)
	}
	if longest < 256 {
		return Plan{}, fmt.Errorf("prompts may have %d tokens at most (context limit %d, KV pool %d, asked for %d): too short a ladder to fit anything to, 256 are needed",
			longest, l.Context, l.Pool, l.Longest)
	}
	for n := 32; n < longest; n *= 2 {
		p.Lengths = append(p.Lengths, n)
	}
	p.Lengths = append(p.Lengths, longest)
	if n := len(p.Lengths); p.Lengths[n-1]*4 < p.Lengths[n-2]*5 { // two points that say the same
		p.Lengths = slices.Delete(p.Lengths, n-2, n-1)
	}
	for _, c := range []int{longest / 16, longest / 4, longest * 3 / 4} {
		p.Contexts = append(p.Contexts, max(128, c))
	}
	p.Parts = []int{24, max(8, min(256, longest/32))} // less than what is cached
	p.Depths = []int{64, min(2048, longest/2)}
	room := func(batch, tokens int) bool { return l.Pool == 0 || batch*(tokens+p.Output) <= l.Pool*9/10 }
	for b := 1; b <= l.Batch; b *= 2 {
		if room(b, p.Depths[0]) {
			p.Batches = append(p.Batches, b)
		}
		if b > 1 && b <= 8 && room(b, p.Share) {
			p.Groups = append(p.Groups, b)
		}
	}
	return p, p.Validate()
}

// depth is how long each of so many sequences is, of those that are to have so many tokens.
func (p *Plan) depth(tokens, batch int) int {
	if p.Pool == 0 {
		return tokens
	}
	return min(tokens, p.Pool*9/10/batch-p.Output)
}

// Validate names the first field that cannot be.
func (p *Plan) Validate() error {
	if len(p.Lengths) < 3 {
		return fmt.Errorf("the ladder of prompt lengths is %v, must have at least 3", p.Lengths)
	}
	if len(p.Batches) < 2 || len(p.Depths) < 2 {
		return fmt.Errorf("decode is measured with %v sequences of %v tokens: at least two numbers and two lengths are needed; is the KV pool large enough?", p.Batches, p.Depths)
	}
	for _, list := range [][]int{p.Lengths, p.Contexts, p.Parts, p.Batches, p.Depths, p.Groups, {p.Share, p.Repeats}} {
		if slices.ContainsFunc(list, func(n int) bool { return n < 1 }) {
			return fmt.Errorf("%v: must be at least 1, each", list)
		}
	}
	if p.Output < 8 {
		return errors.New("decode is measured over fewer than 8 tokens: too few for the requests to overlap")
	}
	return nil
}

// Requests is about how many requests a plan sends.
func (p *Plan) Requests() int {
	n := len(p.Lengths)*p.Repeats + len(p.Contexts)*(1+len(p.Parts)*p.Repeats)
	for _, b := range p.Batches {
		n += b * len(p.Depths) * p.Repeats
	}
	n += slices.Max(p.Batches) * len(p.Depths)
	for _, b := range p.Groups {
		n += 2 * b * p.Repeats
	}
	return n + p.Repeats
}
