package model

import "fmt"

// FullBytes is the KV of one token in all layers without a window, before it is divided among GPUs.
func (s Shape) FullBytes() int64 { return s.Full.bytes(s.KV, 1, 1) }

// WindowBytes is the KV of one token in all layers with a window, as long as it is inside.
func (s Shape) WindowBytes() int64 { return s.Window.bytes(s.KV, 1, 1) }

// SequenceBytes is the KV of a sequence of that many tokens, of which layers with a window hold only the last WindowTokens.
func (s Shape) SequenceBytes(tokens int) int64 {
	return s.FullBytes()*int64(tokens) + s.WindowBytes()*int64(min(tokens, s.WindowTokens))
}

// KVOn is FullBytes and WindowBytes on one of tp*pp GPUs, the fullest: tensor parallelism divides KV heads, with at least one on
// every GPU; the latent of MLA it replicates. Pipeline parallelism divides layers, rounded up for either kind. A GPU that runs the
// whole attention of its own sequences, as with data-parallel attention, has tp 1.
func (s Shape) KVOn(tp, pp int) (full, window int64) {
	return s.Full.bytes(s.KV, tp, pp), s.Window.bytes(s.KV, tp, pp)
}

// KVHeadsOn is how many KV heads each of tp GPUs holds; 1, the latent, with MLA.
func (a Attention) KVHeadsOn(tp int) int {
	if a.MLA != (MLA{}) {
		return 1
	}
	return (a.KVHeads + tp - 1) / tp
}

// bytes is the KV of one token on one GPU.
func (a Attention) bytes(p Precision, tp, pp int) int64 {
	layers := int64((a.Layers + pp - 1) / pp)
	if a.MLA != (MLA{}) {
		return p.Bytes(layers * int64(a.MLA.KVRank+a.MLA.RopeDim))
	}
	return p.Bytes(2 * layers * int64(a.KVHeadsOn(tp)) * int64(a.HeadDim))
}

// CheckTP returns nil where the model can be divided among tp GPUs as the engines do it, or the rule that forbids it: query heads
// divide evenly, and KV heads either divide evenly or are copied evenly.
func (s Shape) CheckTP(tp int) error {
	if tp < 1 {
		return fmt.Errorf("tensor parallelism %d: must be at least 1", tp)
	}
	if s.QueryHeads%tp != 0 {
		return fmt.Errorf("tensor parallelism %d: must divide the %d query heads of %s", tp, s.QueryHeads, s.Name)
	}
	for _, a := range []Attention{s.Full, s.Window} {
		if a.KVHeads > 0 && a.KVHeads%tp != 0 && tp%a.KVHeads != 0 {
			return fmt.Errorf("tensor parallelism %d: must divide the %d KV heads of %s or be a multiple of them", tp, a.KVHeads, s.Name)
		}
	}
	return nil
}
