package cost

import (
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// product is a matrix on one GPU. Nanoseconds.
type product struct {
	launch  float64
	compute float64 // of one row at peak
	stream  float64 // of reading the weights at peak
	perRow  float64 // of one row beside it: quantizing its activations
	kind    *gpu.Product
}

// of is its time for m rows.
func (p *product) of(m float64) float64 {
	return p.launch + m*p.perRow + max(m*p.compute/p.kind.Compute.At(m), p.stream/p.kind.Stream.At(m))
}

// layer is some number of equal layers.
type layer struct {
	count     float64
	attention []product // computed for the rows of one group of attention
	network   []product // computed for all rows
	experts   product   // of all of them on a GPU; compute is of one row of one expert
	moe       bool
	passes    float64 // launches, ns
	perRow    float64 // bytes that passes read and write for a row, ns
	reduce    int     // all-reduces
}

// lay lists the products of the model's layers on the GPU that has most to do.
func (k *Kernel) lay() {
	s, g, o := &k.shape, &k.gpu, &k.options
	group := o.TP / o.DP // GPUs that share attention
	pass := &g.Kernels.Pass
	hidden := float64(s.Hidden)
	matrices := 3. // gate, up and down
	if s.Ungated {
		matrices = 2
	}
	dense := func(inner float64) []product {
		inner /= float64(o.TP)
		return []product{
			k.product(s.Weights.Linear, hidden*inner*(matrices-1), hidden),
			k.product(s.Weights.Linear, hidden*inner, inner),
		}
	}
	bytes := func(numbers float64) float64 { return 2 * numbers / (g.Bandwidth * pass.Fraction) * 1e9 }
	add := func(a model.Attention, count int, moe bool) {
		if count == 0 {
			return
		}
		l := layer{count: float64(count), moe: moe}
		var width float64 // of what is rotated, written to the cache and read back
		l.attention, width = k.projections(a, group)
		passes := 3. // two norms, rotation with the write to the cache
		l.perRow = bytes(2*4*hidden + 2*width)
		if moe {
			e := s.MoE
			l.network = append(l.network, k.product(model.BF16, hidden*float64(e.Experts), hidden))
			l.experts = k.expert(matrices, float64(e.Experts)/float64(o.EP), e.FFN*o.EP/o.TP)
			if e.SharedFFN > 0 {
				l.network = append(l.network, dense(float64(e.SharedFFN))...)
				passes++
			}
		} else {
			l.network = append(l.network, dense(float64(s.FFN))...)
			l.perRow += bytes(matrices * float64(s.FFN) / float64(o.TP))
			passes++
		}
		l.passes = passes * float64(pass.Launch)
		if group > 1 {
			l.reduce++
		}
		if o.TP > 1 && o.DP == 1 {
			l.reduce++
		}
		k.layer = append(k.layer, l)
		kernels := len(l.attention) + len(l.network) + int(passes) + l.reduce + 1
		if moe {
			kernels += 6
		}
		k.launches += kernels * count
		k.breaks += 2 * count
	}
	// How many layers of either kind are a mixture of experts does not matter to the time, only how many in all.
	full, window := s.Full.Layers, s.Window.Layers
	denseFull := min(full, s.DenseLayers())
	denseWindow := s.DenseLayers() - denseFull
	add(s.Full, denseFull, false)
	add(s.Full, full-denseFull, true)
	add(s.Window, denseWindow, false)
	add(s.Window, window-denseWindow, true)

	vocabulary := float64(s.Vocabulary)
	k.output = k.product(s.Weights.Head, hidden*vocabulary/float64(o.TP), hidden)
	k.logits = bytes(2 * 3 * vocabulary) // in four bytes: written, read for the maximum, read for the choice
	k.passes = 4 * float64(pass.Launch)
}

// projections lists the products of one attention layer, divided among a group of GPUs, and how many numbers a row has between
// them.
func (k *Kernel) projections(a model.Attention, group int) (list []product, width float64) {
	s := &k.shape
	p := s.Projections(a)
	n, w := float64(group), s.Weights.OfAttention()
	hidden := float64(s.Hidden)
	if m := a.MLA; m != (model.MLA{}) {
		heads := float64(s.QueryHeads) / n
		if p.QueryDown > 0 {
			list = append(list, k.product(w, float64(p.QueryDown+p.KVDown), hidden), k.product(w, float64(p.Query)/n, float64(m.QRank)))
		} else {
			list = append(list, k.product(w, float64(p.KVDown), hidden), k.product(w, float64(p.Query)/n, hidden))
		}
		list = append(list, k.product(w, float64(p.Key+p.Value)/n, float64(m.KVRank)), k.product(w, float64(p.Out)/n, heads*float64(m.ValueDim)))
		return list, heads*float64(m.NopeDim+m.RopeDim+m.ValueDim) + float64(m.KVRank+m.RopeDim)
	}
	q := float64(s.QueryHeads*a.HeadDim) / n
	kv := float64(a.KVHeadsOn(group) * a.HeadDim) // at least a head on every GPU
	both := 2.
	if a.SharedV {
		both = 1
	}
	return []product{k.product(w, hidden*(q+both*kv), hidden), k.product(w, hidden*q, q)}, q + 2*kv
}

// product is a matrix of so many weights with rows of inner numbers.
func (k *Kernel) product(p model.Precision, weights, inner float64) product {
	g := &k.gpu
	kind, peak := &g.Kernels.BF16, g.BF16
	if f := k.peak(p); f > g.BF16 {
		kind, peak = &g.Kernels.FP8, f
	}
	r := product{
		launch: float64(kind.Launch), kind: kind,
		compute: 2 * weights / peak * 1e9,
		stream:  p.Bits() / 8 * weights / g.Bandwidth * 1e9,
	}
	if kind == &g.Kernels.FP8 { // activations are read in BF16 and written in FP8
		r.perRow = 3 * inner / (g.Bandwidth * g.Kernels.Pass.Fraction) * 1e9
	}
	return r
}

// expert is the experts of one layer on one GPU, each of so many matrices, and so wide inside.
func (k *Kernel) expert(matrices, experts float64, width int) product {
	g := &k.gpu
	p, kind := k.shape.Weights.OfExperts(), &g.Kernels.Experts
	if p.Bits() < 8 {
		kind = &g.Kernels.Experts4
	}
	hidden, wide := k.tiles(width)
	one := matrices * hidden * wide
	return product{
		launch: float64(kind.Launch), kind: kind,
		compute: 2 * one / max(k.peak(p), g.BF16) * (1 + kind.Narrow/wide) * 1e9,
		stream:  p.Bits() / 8 * one * experts / g.Bandwidth * 1e9,
	}
}

// tiles is how large the matrices of an expert are that is so wide on one GPU: kernels of four bits a weight want whole tiles, so the
// hidden size is filled up to a multiple of 256 and the width to one of 128, by zeros that are stored, read and computed like the
// rest. vLLM does so for Marlin (mxfp4_round_up_hidden_size_and_intermediate_size), SGLang with the width; for Blackwell's kernels the width
// is filled up to 256. It matters to gpt-oss, whose 2,880 are a multiple of neither.
func (k *Kernel) tiles(width int) (hidden, wide float64) {
	if k.shape.Weights.OfExperts().Bits() >= 8 {
		return float64(k.shape.Hidden), float64(width)
	}
	fill := func(n, tile int) float64 { return float64((n + tile - 1) / tile * tile) }
	return fill(k.shape.Hidden, 256), fill(width, 128)
}

// peak is the rate at which a product with weights of a precision is computed. Four bits need a GPU that computes in four, or are
// widened to 16; INT4 always is; MXFP4 takes activations of 8 bits where a GPU computes in four.
func (k *Kernel) peak(p model.Precision) float64 {
	g := &k.gpu
	switch p {
	case model.FP8, model.INT8, model.MXFP8:
		return max(g.FP8, g.BF16)
	case model.FP4, model.NVFP4:
		if g.FP4 > 0 {
			return g.FP4
		}
	case model.MXFP4:
		if g.FP4 > 0 {
			return g.FP8
		}
	}
	return g.BF16
}

// layers is the time of all layers for m rows.
func (k *Kernel) layers(m int) (t float64) {
	s, o := &k.shape, &k.options
	all := float64(m)
	mine := float64((m + o.DP - 1) / o.DP) // of one group of attention
	bytes := 2 * all * float64(s.Hidden)
	reduce := 0.
	if o.TP > 1 {
		reduce = k.exchange(k.gpu.Kernels.AllReduce, o.TP, bytes)
	}
	for i := range k.layer {
		l := &k.layer[i]
		one := l.passes + mine*l.perRow
		for j := range l.attention {
			one += l.attention[j].of(mine)
		}
		for j := range l.network {
			one += l.network[j].of(all)
		}
		if l.moe {
			one += k.routed(l, m)
		}
		switch {
		case o.DP == 1:
			one += float64(l.reduce) * reduce
		default:
			if o.TP > o.DP {
				one += k.exchange(k.gpu.Kernels.AllReduce, o.TP/o.DP, bytes/float64(o.DP))
			}
			if l.moe && o.EP > 1 { // tokens go to their experts, and come back
				one += 2 * k.exchange(k.gpu.Kernels.AllToAll, o.TP, bytes/float64(o.DP)*float64(s.MoE.TopK))
			} else { // gathered before, scattered and reduced behind
				one += 2 * k.exchange(k.gpu.Kernels.AllGather, o.TP, bytes)
			}
		}
		t += l.count * one
	}
	if o.TP > 1 {
		t += reduce // of the embedding
	}
	if o.PP > 1 {
		t += float64(o.PP-1) * (float64(k.gpu.Kernels.Pass.Launch) + bytes/k.link()*1e9)
	}
	return t
}

// routed is the experts of one layer.
func (k *Kernel) routed(l *layer, m int) float64 {
	e := &k.shape.MoE
	hit := e.ExpertsHit(m)
	pairs := float64(m * e.TopK)
	rows := pairs / hit // of each that is hit
	p := &l.experts
	compute := pairs / float64(k.options.EP) * p.compute / p.kind.Compute.At(rows)
	return p.launch + max(compute, p.stream*hit/float64(e.Experts)/p.kind.Stream.At(rows))
}

// outputs is the time of the output projection, and of choosing a token, for m rows.
func (k *Kernel) outputs(m int) float64 {
	t := k.passes + k.output.of(float64(m)) + float64(m)*k.logits
	if k.options.TP > 1 {
		t += k.exchange(k.gpu.Kernels.AllGather, k.options.TP, 2*float64(m)*float64(k.shape.Vocabulary))
	}
	return t
}

// exchange is the time of a collective among n GPUs, at least what the link takes. Between two measured numbers of GPUs it is that
// of the larger.
func (k *Kernel) exchange(list []gpu.Collective, n int, bytes float64) float64 {
	if n < 2 || len(list) == 0 {
		return 0
	}
	c := list[len(list)-1]
	for _, e := range list {
		if e.GPUs >= n {
			c = e
			break
		}
	}
	return max(c.Seconds(bytes), bytes*float64(n-1)/float64(n)/k.link()) * 1e9
}

// link is the bandwidth to other GPUs, one way.
func (k *Kernel) link() float64 {
	if k.gpu.ScaleUp > 0 {
		return k.gpu.ScaleUp
	}
	return k.gpu.PCIe
}

// attend works out attention on the GPU that has most to do.
func (k *Kernel) attend() {
	s, g, o := &k.shape, &k.gpu, &k.options
	group := o.TP / o.DP
	heads := float64(s.QueryHeads) / float64(group)
	dp := float64(o.DP)
	kind := func(a model.Attention, list []gpu.Decode, window int) attention {
		layers := float64(a.Layers)
		if layers == 0 {
			return attention{}
		}
		dim := a.HeadDim
		prefill := 4 * heads * float64(dim) // FLOPs of one query and key
		decode := prefill
		if m := a.MLA; m != (model.MLA{}) {
			prefill = 2 * heads * float64(m.NopeDim+m.RopeDim+m.ValueDim)
			decode = 2 * heads * float64(2*m.KVRank+m.RopeDim)
			dim = m.NopeDim + m.RopeDim
		}
		p := prefillFor(g.Kernels.Prefill, dim)
		d := decodeFor(list, dim)
		full, windowed := s.KVOn(group, 1)
		bytes := float64(full)
		if window > 0 {
			bytes = float64(windowed)
		}
		rate := g.BF16 * p.Fraction
		r := attention{window: window, whole: p.Whole}
		r.perPair = layers * prefill / rate * 1e9
		r.perRow = r.perPair * p.RowKeys
		r.readKey = bytes / (g.Bandwidth * d.Fraction) * 1e9
		r.perKey = max(r.readKey, layers*decode*float64(k.verify)/rate*1e9) / dp
		k.prefillLaunch += layers * float64(p.Launch)
		k.decodeLaunch += layers * float64(d.Launch)
		k.sequence += layers * float64(d.Sequence) / dp
		return r
	}
	k.full = kind(s.Full, g.Kernels.Decode, 0)
	k.window = kind(s.Window, g.Kernels.DecodeWindow, s.WindowTokens)
}

// prefillFor is the entry for heads of a width: the narrowest that is as wide, or the widest.
func prefillFor(list []gpu.Prefill, dim int) gpu.Prefill {
	for _, p := range list {
		if p.HeadDim >= dim {
			return p
		}
	}
	return list[len(list)-1]
}

func decodeFor(list []gpu.Decode, dim int) gpu.Decode {
	for _, d := range list {
		if d.HeadDim >= dim {
			return d
		}
	}
	return list[len(list)-1]
}
