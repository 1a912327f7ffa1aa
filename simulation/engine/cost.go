package engine

import (
	"math"
	"time"
)

// batch is what one step computes: some prefill, or one token for each of some sequences.
type batch struct {
	prefill []span
	decodes int // sequences that each get a token
	context int // the sum of their lengths, the new token included
	recent  int // the same, of each only what the window holds
}

// span is a run of one sequence's tokens that a prefill step computes.
type span struct {
	offset, n int  // n tokens behind the first offset
	last      bool // a token is sampled at its end
}

// Overheads: what a step costs beside its kernels' work.
const (
	kernelLaunch    = 3 * time.Microsecond // the floor of one kernel
	kernelsPerLayer = 10
	prefillStep     = 2 * time.Millisecond   // scheduling and input preparation, which prefill does not hide
	decodeStep      = 400 * time.Microsecond // the gap between overlapped steps that replay a CUDA graph
	perSequence     = 5 * time.Microsecond   // sampling, detokenizing, bookkeeping
)

// stepCost is how long a step takes: a roofline whose roofs are measured. It is a pure function, and no less for more tokens,
// sequences or context.
//
//	linear layers   max(2 * weights * m / (FLOPS * GEMM(m)), weight bytes / (Bandwidth * Stream(m)))
//	output          the same for the sampled tokens alone
//	prefill         4 * heads * head_dim * layers * sum of the visible lengths / measured rate, or reading the KV if that is longer
//	decode          KV bytes in sight / (Bandwidth * measured part)
//
// The terms add up, as a layer waits for the one before. Attention behind a long cached prefix has not been measured; it takes the
// rate measured without one.
func stepCost(s *Shape, g *GPU, b *batch) time.Duration {
	tokens, sampled := b.decodes, b.decodes
	var t time.Duration
	for _, p := range b.prefill {
		tokens += p.n
		if p.last {
			sampled++
		}
		t += prefillAttention(s, g, p) + perSequence
	}
	t += linear(g, s.BodyParams(), tokens) + linear(g, s.HeadParams(), sampled)
	if len(b.prefill) > 0 {
		t += prefillStep + time.Duration((s.Full.Layers+s.Window.Layers)*kernelsPerLayer)*kernelLaunch
	}
	if b.decodes > 0 {
		t += decodeAttention(s, g, b) + decodeStep + time.Duration(b.decodes)*perSequence
	}
	return t
}

// linear is the product of m rows with a matrix of so many weights.
func linear(g *GPU, weights int64, m int) time.Duration {
	if m == 0 {
		return 0
	}
	compute := 2 * float64(weights) * float64(m) / (g.FLOPS * g.GEMM.at(m))
	stream := bytesPerWeight * float64(weights) / (g.Bandwidth * g.Stream.at(m))
	return seconds(max(compute, stream))
}

func prefillAttention(s *Shape, g *GPU, p span) time.Duration {
	rate := g.PrefillAttention.Wide
	if s.Full.HeadDim <= 128 {
		rate = g.PrefillAttention.Narrow
	}
	end := p.offset + p.n
	full := attention(s, s.Full, pairs(end)-pairs(p.offset), rate)
	read := float64(s.FullBytes()) * float64(end) / (g.Bandwidth * g.DecodeAttention.Full)
	t := seconds(max(full, read))
	if s.WindowTokens == 0 {
		return t
	}
	w := s.WindowTokens
	windowed := attention(s, s.Window, windowPairs(end, w)-windowPairs(p.offset, w), g.PrefillAttention.Window)
	read = float64(s.WindowBytes()) * float64(min(p.offset, w)+p.n) / (g.Bandwidth * g.DecodeAttention.Window)
	return t + seconds(max(windowed, read))
}

func decodeAttention(s *Shape, g *GPU, b *batch) time.Duration {
	full := float64(s.FullBytes()) * float64(b.context) / (g.Bandwidth * g.DecodeAttention.Full)
	window := float64(s.WindowBytes()) * float64(b.recent) / (g.Bandwidth * g.DecodeAttention.Window)
	return seconds(full) + seconds(window)
}

// attention is the time of 4 FLOPs (a product for the scores, one for the values) per pair of tokens, head and dimension.
func attention(s *Shape, a Attention, pairs, rate float64) float64 {
	return 4 * float64(a.Layers) * float64(s.QueryHeads) * float64(a.HeadDim) * pairs / rate
}

// pairs counts which tokens see which in a causal sequence of n: 1 + 2 + ... + n.
func pairs(n int) float64 { return float64(n) * float64(n+1) / 2 }

// windowPairs is pairs where each token sees at most w, itself included.
func windowPairs(n, w int) float64 {
	return pairs(min(n, w)) + float64(max(0, n-w)*w)
}

// at interpolates by a power law, so that m/at(m) rises with m as long as no segment is steeper than m itself.
func (c Curve) at(m int) float64 {
	if m <= c[0].M {
		return c[0].Fraction
	}
	for i := 1; i < len(c); i++ {
		if m <= c[i].M {
			a, b := c[i-1], c[i]
			exponent := math.Log(b.Fraction/a.Fraction) / math.Log(float64(b.M)/float64(a.M))
			return a.Fraction * math.Pow(float64(m)/float64(a.M), exponent)
		}
	}
	return c[len(c)-1].Fraction
}

// seconds rounds each term by itself, so that the terms add up exactly, in any order.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
