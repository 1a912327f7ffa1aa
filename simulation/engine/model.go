package engine

import (
	"maps"
	"slices"
)

// Shape is a dense transformer's architecture: what its memory and time follow from. Weights and KV are BF16.
type Shape struct {
	Name         string
	Hidden       int // width of the residual stream
	FFN          int // inner width of the gated feed-forward network
	Vocabulary   int
	Tied         bool // the output projection is the embedding
	QueryHeads   int
	Full         Attention // layers that attend to everything
	Window       Attention // layers that attend to the last WindowTokens
	WindowTokens int       // 0 when there are none
	ContextLimit int       // tokens of prompt and reply together
}

// Attention is the geometry of one kind of layer. The zero value is no such layers.
type Attention struct {
	Layers  int
	KVHeads int
	HeadDim int
	SharedV bool // no V projection: V is K before its rotation, and still a tensor of its own in the cache
}

const bytesPerWeight = 2 // BF16; also bytes per number in the KV cache

// Params is the number of weights, norms left out.
func (s Shape) Params() int64 {
	n := s.BodyParams() + s.HeadParams()
	if !s.Tied {
		n += s.HeadParams() // the embedding, as large
	}
	return n
}

// BodyParams is what every token is multiplied with.
func (s Shape) BodyParams() int64 { return s.layerParams(s.Full) + s.layerParams(s.Window) }

// HeadParams is the output projection, which only tokens that are sampled from need.
func (s Shape) HeadParams() int64 { return int64(s.Hidden) * int64(s.Vocabulary) }

// WeightBytes is the memory the weights take.
func (s Shape) WeightBytes() int64 { return bytesPerWeight * s.Params() }

// FullBytes is the KV of one token in the layers without a window.
func (s Shape) FullBytes() int64 { return s.Full.kvBytes() }

// WindowBytes is the KV of one token in the layers with a window, as long as it is inside.
func (s Shape) WindowBytes() int64 { return s.Window.kvBytes() }

// SequenceBytes is the KV of a sequence of that many tokens.
func (s Shape) SequenceBytes(tokens int) int64 {
	return s.FullBytes()*int64(tokens) + s.WindowBytes()*int64(min(tokens, s.WindowTokens))
}

func (s Shape) layerParams(a Attention) int64 {
	projections := 2*s.QueryHeads*a.HeadDim + 2*a.KVHeads*a.HeadDim // q and o, k and v
	if a.SharedV {
		projections -= a.KVHeads * a.HeadDim
	}
	return int64(a.Layers) * int64(s.Hidden) * int64(projections+3*s.FFN)
}

func (a Attention) kvBytes() int64 {
	return 2 * bytesPerWeight * int64(a.Layers) * int64(a.KVHeads) * int64(a.HeadDim)
}

// ModelByName returns a preset.
func ModelByName(name string) (Shape, bool) {
	s, ok := models()[name]
	return s, ok
}

// ModelNames lists the presets, sorted.
func ModelNames() []string { return slices.Sorted(maps.Keys(models())) }

// models come from the public config.json of each. Gemma's are the text tower alone. The Gemma 4 window pattern is five to one,
// and its full layers have one KV head of 512 without a V projection.
func models() map[string]Shape {
	return map[string]Shape{
		"gemma-3-12b": {
			Name: "gemma-3-12b", Hidden: 3840, FFN: 15360, Vocabulary: 262208, Tied: true, QueryHeads: 16,
			Full:         Attention{Layers: 8, KVHeads: 8, HeadDim: 256},
			Window:       Attention{Layers: 40, KVHeads: 8, HeadDim: 256},
			WindowTokens: 1024, ContextLimit: 131072,
		},
		"gemma-4-12b": {
			Name: "gemma-4-12b", Hidden: 3840, FFN: 15360, Vocabulary: 262144, Tied: true, QueryHeads: 16,
			Full:         Attention{Layers: 8, KVHeads: 1, HeadDim: 512, SharedV: true},
			Window:       Attention{Layers: 40, KVHeads: 8, HeadDim: 256},
			WindowTokens: 1024, ContextLimit: 262144,
		},
		"llama-3.1-8b": {
			Name: "llama-3.1-8b", Hidden: 4096, FFN: 14336, Vocabulary: 128256, QueryHeads: 32,
			Full:         Attention{Layers: 32, KVHeads: 8, HeadDim: 128},
			ContextLimit: 131072,
		},
		// Imaginary: small enough that a demo on a laptop shows a knee within a minute.
		"demo": {
			Name: "demo", Hidden: 2048, FFN: 8192, Vocabulary: 65536, Tied: true, QueryHeads: 16,
			Full:         Attention{Layers: 16, KVHeads: 8, HeadDim: 128},
			ContextLimit: 32768,
		},
	}
}
