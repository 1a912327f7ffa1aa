// Package cost says how long one step of an engine takes: a roofline whose roofs are measured. It knows a model's shape, a GPU and
// how the one is spread over several of the other; nothing of queues or caches.
package cost

import (
	"time"

	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// Span is a run of one sequence's tokens that a step computes.
type Span struct {
	Offset, N int  // N tokens behind the first Offset
	Last      bool // a token is sampled at its end
}

// Batch is what one step computes: parts of prompts, a token for each of some sequences, or both.
type Batch struct {
	Prefill []Span
	Decodes int   // sequences that each get a token (or, with speculation, a verified draft)
	Context int   // the sum of their lengths, the new token included
	Recent  int   // the same, of each only what the window holds
	Loaded  int64 // bytes of KV that come from the host tier first
}

// Kernel is the cost of steps of one model under one plan. New makes one. It remembers what it has computed, so no two calls of
// Step may overlap.
//
// The terms of a step add up, as a layer waits for the one before:
//
//	products    for each matrix, on each GPU: launch + max(2 * weights * m / (peak * compute(m)), bytes / (bandwidth * stream(m)))
//	experts     the same of those that are hit, Experts*(1 - (1-TopK/Experts)^m) of a layer, with the rows that each gets for m
//	output      the same of the tokens that are sampled from, and reading their logits
//	passes      norms, rotation, activation: bytes / (bandwidth * fraction)
//	collectives measured times of all-reduce and the like
//	prefill     launch + 4 * heads * width * (pairs + rows * rowKeys) / (peak * fraction), or reading the KV if that is longer
//	decode      launch + sequences + KV bytes in sight / (bandwidth * fraction), or 4 * heads * width a key if that is longer
//	host        a constant, one for each sequence, and, where no CUDA graph is replayed, at least the launches
//
// No term falls when tokens, sequences or contexts grow, and none is below what the peaks allow.
type Kernel struct {
	shape     model.Shape
	gpu       gpu.GPU
	options   Options
	overheads gpu.Overheads

	verify int // tokens of a sequence in a decode step: 1, and those of a draft
	layer  []layer
	output product
	logits float64 // ns a sampled token: exchanging and reading them
	passes float64 // launches of output and sampling, ns

	prefillLaunch float64 // ns, all layers
	full, window  attention
	decodeLaunch  float64
	sequence      float64 // ns of one sequence in a decode step, in the kernels
	draft         float64 // of drafting, in steps of one token a sequence

	launches int       // kernels of a step outside a CUDA graph
	breaks   int       // of them, those that piecewise graphs leave
	body     []float64 // of a number of rows, once asked for
	head     []float64 // of a number of sampled tokens
	replay   []float64 // of a number of sequences in a step that replays a graph, all that does not depend on their lengths
	perByte  float64   // ns of loading a byte from the host
}

// attention is one kind of layers, all of them, on the GPU that has most to do. Nanoseconds.
type attention struct {
	perPair, perRow float64 // of prefill
	readKey         float64 // of one key's KV, by prefill
	perKey          float64 // of one key in sight, by decode
	window          int     // 0: none
	whole           bool    // prefill computes the rows before its own too
}

// remembered is how many row counts the tables hold; steps with more are computed anew.
const remembered = 1 << 14

// New returns the cost of steps of s on GPUs g, or why the plan is not possible.
func New(s model.Shape, g gpu.GPU, o Options) (*Kernel, error) {
	g, o = g.Filled(), o.filled()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(s, g); err != nil {
		return nil, err
	}
	over := o.overheads(g)
	k := &Kernel{
		shape: s, gpu: g, options: o, overheads: over,
		verify: 1 + o.Draft.Tokens, draft: float64(o.Draft.Tokens) * o.Draft.Cost,
		body: make([]float64, remembered), head: make([]float64, remembered),
		replay:  make([]float64, min(over.Graphs, remembered/4)+1),
		perByte: 1e9 / g.PCIe,
	}
	k.lay()
	k.attend()
	return k, nil
}

// GPU is the GPU, completed.
func (k *Kernel) GPU() gpu.GPU { return k.gpu }

// Options is the plan, completed.
func (k *Kernel) Options() Options { return k.options }

// Overheads is what a step and a request cost on the host.
func (k *Kernel) Overheads() gpu.Overheads { return k.overheads }

// longest is what a step takes at most, three years: beyond it lies what a time.Duration cannot hold.
const longest = 1e17

// Step is how long a step takes, 0 for an empty one. It allocates nothing.
func (k *Kernel) Step(b *Batch) time.Duration {
	if len(b.Prefill) == 0 && uint(b.Decodes) < uint(len(k.replay)) && b.Loaded == 0 && k.replay[b.Decodes] > 0 {
		return time.Duration(min(k.replay[b.Decodes]+k.read(b), longest))
	}
	return k.step(b)
}

// read is the time of reading the KV of decodes.
func (k *Kernel) read(b *Batch) float64 {
	return float64(b.Context)*k.full.perKey + float64(b.Recent)*k.window.perKey
}

func (k *Kernel) step(b *Batch) time.Duration {
	rows, sampled := b.Decodes*k.verify, b.Decodes*k.verify
	var t float64
	for i := range b.Prefill {
		p := &b.Prefill[i]
		rows += p.N
		if p.Last {
			sampled++
		}
		t += k.full.prefill(p)
		if k.window.window > 0 {
			t += k.window.prefill(p)
		}
	}
	if rows == 0 {
		return 0
	}
	t += k.rowsOf(rows) + k.sampledOf(sampled)
	if b.Decodes > 0 {
		t += k.decodeLaunch + float64(b.Decodes)*k.sequence
		if k.draft > 0 {
			t += k.draft * k.rowsOf(b.Decodes)
		}
	}
	host := float64(k.overheads.Decode) + float64(b.Decodes+len(b.Prefill))*float64(k.overheads.Sequence)
	if len(b.Prefill) > 0 {
		t += k.prefillLaunch
		host += float64(max(0, k.overheads.Prefill-k.overheads.Decode))
	}
	launches := float64(k.eager(b, rows)) * float64(k.overheads.Launch)
	if launches == 0 && len(b.Prefill) == 0 && b.Decodes < len(k.replay) {
		k.replay[b.Decodes] = t + host
	}
	late := max(0, launches-t-k.read(b)) // the GPU waits for the host
	return time.Duration(min(t+host+k.read(b)+late+float64(b.Loaded)*k.perByte, longest))
}

// eager is how many kernels the host launches one by one in a step.
func (k *Kernel) eager(b *Batch, rows int) int {
	if len(b.Prefill) == 0 && b.Decodes <= k.overheads.Graphs {
		return 0
	}
	if k.options.Engine == VLLM && rows <= k.overheads.Graphs {
		return k.breaks
	}
	return k.launches
}

// rowsOf is the part of a step that depends on its rows alone.
func (k *Kernel) rowsOf(m int) float64 {
	if m >= remembered {
		return k.layers(m)
	}
	if k.body[m] == 0 {
		k.body[m] = k.layers(m)
	}
	return k.body[m]
}

// sampledOf is the part that depends on how many tokens are sampled.
func (k *Kernel) sampledOf(m int) float64 {
	if m == 0 {
		return 0
	}
	if m >= remembered {
		return k.outputs(m)
	}
	if k.head[m] == 0 {
		k.head[m] = k.outputs(m)
	}
	return k.head[m]
}

// prefill is the attention of a span.
func (a *attention) prefill(p *Span) float64 {
	from, end := p.Offset, p.Offset+p.N
	keys := end
	if a.window > 0 {
		keys = min(from, a.window) + p.N
	}
	if a.whole {
		from = 0
	}
	seen := pairs(end) - pairs(from)
	if a.window > 0 {
		seen = windowPairs(end, a.window) - windowPairs(from, a.window)
	}
	return max(seen*a.perPair+float64(end-from)*a.perRow, float64(keys)*a.readKey)
}

// pairs counts which tokens see which in a causal sequence of n: 1 + 2 + ... + n.
func pairs(n int) float64 { return float64(n) * float64(n+1) / 2 }

// windowPairs is pairs where each token sees at most w, itself included.
func windowPairs(n, w int) float64 {
	return pairs(min(n, w)) + float64(max(0, n-w))*float64(w)
}
