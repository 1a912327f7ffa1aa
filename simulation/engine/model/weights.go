package model

import "math"

// Counts is an amount, weights or bytes, by what it belongs to, all layers together.
type Counts struct {
	FullAttention   int64 // projections of layers that attend to everything
	WindowAttention int64 // projections of layers with a window
	Dense           int64 // feed-forward networks of dense layers
	Router          int64 // what picks the experts
	Experts         int64 // every routed expert
	Shared          int64 // what every token passes through beside the routed experts
	Head            int64 // output projection, which only tokens that are sampled from need
	Embedding       int64 // a table that is looked up, not multiplied with; 0 where the head is the embedding
}

// Total is the sum.
func (c Counts) Total() int64 {
	return c.FullAttention + c.WindowAttention + c.Dense + c.Router + c.Experts + c.Shared + c.Head + c.Embedding
}

// Projections is the weights of one attention layer. Tensor parallelism divides the heads' matrices, and replicates the down
// projections. Without MLA those are 0.
type Projections struct {
	Query     int64 // with MLA: up from QRank
	Key       int64 // with MLA: up from KVRank
	Value     int64 // with MLA: up from KVRank; 0 with SharedV
	Out       int64
	QueryDown int64 // to QRank; 0 where queries come straight from the residual stream
	KVDown    int64 // to KVRank and the rotated key
}

// Total is the sum.
func (p Projections) Total() int64 { return p.Query + p.Key + p.Value + p.Out + p.QueryDown + p.KVDown }

// Projections is the weights of one layer of kind a, which is s.Full or s.Window.
func (s Shape) Projections(a Attention) Projections {
	hidden, heads := int64(s.Hidden), int64(s.QueryHeads)
	if m := a.MLA; m != (MLA{}) {
		wide := heads * int64(m.NopeDim+m.RopeDim)
		p := Projections{
			Query:  hidden * wide,
			KVDown: hidden * int64(m.KVRank+m.RopeDim),
			Key:    int64(m.KVRank) * heads * int64(m.NopeDim),
			Value:  int64(m.KVRank) * heads * int64(m.ValueDim),
			Out:    heads * int64(m.ValueDim) * hidden,
		}
		if m.QRank > 0 {
			p.QueryDown, p.Query = hidden*int64(m.QRank), int64(m.QRank)*wide
		}
		return p
	}
	kv := hidden * int64(a.KVHeads) * int64(a.HeadDim)
	q := hidden * heads * int64(a.HeadDim)
	p := Projections{Query: q, Key: kv, Value: kv, Out: q}
	if a.SharedV {
		p.Value = 0
	}
	return p
}

// Counts counts the weights.
func (s Shape) Counts() Counts {
	matrices := int64(3) // gate, up and down
	if s.Ungated {
		matrices = 2
	}
	hidden := int64(s.Hidden)
	network := func(inner int) int64 { return matrices * hidden * int64(inner) }
	moe := int64(s.MoELayers())
	c := Counts{
		FullAttention:   int64(s.Full.Layers) * s.Projections(s.Full).Total(),
		WindowAttention: int64(s.Window.Layers) * s.Projections(s.Window).Total(),
		Dense:           int64(s.DenseLayers()) * network(s.FFN),
		Router:          moe * hidden * int64(s.MoE.Experts),
		Experts:         moe * int64(s.MoE.Experts) * network(s.MoE.FFN),
		Shared:          moe * network(s.MoE.SharedFFN),
		Head:            s.HeadParams(),
	}
	if !s.Tied {
		c.Embedding = c.Head
	}
	return c
}

// Bytes is what each kind takes as it is stored.
func (s Shape) Bytes() Counts {
	c, w := s.Counts(), s.Weights
	return Counts{
		FullAttention:   w.OfAttention().Bytes(c.FullAttention),
		WindowAttention: w.OfAttention().Bytes(c.WindowAttention),
		Dense:           w.Linear.Bytes(c.Dense),
		Router:          BF16.Bytes(c.Router),
		Experts:         w.OfExperts().Bytes(c.Experts),
		Shared:          w.Linear.Bytes(c.Shared),
		Head:            w.Head.Bytes(c.Head),
		Embedding:       w.Head.Bytes(c.Embedding),
	}
}

// Params is the number of weights.
func (s Shape) Params() int64 { return s.Counts().Total() }

// ActiveParams is how many of them a token that is sampled from is multiplied with: the embedding is looked up, and of the routed
// experts only TopK take part.
func (s Shape) ActiveParams() int64 { return s.BodyParams() + s.HeadParams() }

// BodyParams is what every token is multiplied with, sampled from or not.
func (s Shape) BodyParams() int64 {
	c := s.Counts()
	n := c.FullAttention + c.WindowAttention + c.Dense + c.Router + c.Shared
	if s.MoE.Experts > 0 {
		n += c.Experts / int64(s.MoE.Experts) * int64(s.MoE.TopK)
	}
	return n
}

// HeadParams is the output projection, which only tokens that are sampled from need.
func (s Shape) HeadParams() int64 { return int64(s.Hidden) * int64(s.Vocabulary) }

// WeightBytes is the memory the weights take, on all GPUs together and each once.
func (s Shape) WeightBytes() int64 { return s.Bytes().Total() }

// ExpertsHit is how many different experts of one layer a step of that many tokens is expected to read, if each token picks its
// TopK of Experts at random: Experts * (1 - (1 - TopK/Experts)^tokens). Routers that favour some experts hit fewer.
func (e MoE) ExpertsHit(tokens int) float64 {
	if e.Experts == 0 || tokens <= 0 {
		return 0
	}
	if e.TopK >= e.Experts {
		return float64(e.Experts)
	}
	return -float64(e.Experts) * math.Expm1(float64(tokens)*math.Log1p(-float64(e.TopK)/float64(e.Experts)))
}

// StepBytes is the bytes of weights that a step reads: those of the layers if it computes any tokens, of the routed experts as many
// as are hit, and the head's if any token is sampled from. The rows of the embedding that are looked up are left out.
func (s Shape) StepBytes(tokens, sampled int) int64 {
	if tokens <= 0 {
		return 0
	}
	b := s.Bytes()
	n := b.FullAttention + b.WindowAttention + b.Dense + b.Router + b.Shared
	if s.MoE.Experts > 0 {
		n += int64(math.Round(float64(b.Experts) * s.MoE.ExpertsHit(tokens) / float64(s.MoE.Experts)))
	}
	if sampled > 0 {
		n += b.Head
	}
	return n
}
