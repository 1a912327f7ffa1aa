// Package model describes the shapes of language models: what a checkpoint weighs, what a token of KV takes, and which products a
// token passes through. Presets, Hugging Face's config.json, and arithmetic; nothing here knows a GPU or time.
package model

import (
	"errors"
	"fmt"
)

// Shape is a decoder-only transformer with one or two kinds of attention layers. It is a plain value: copies share nothing, and its
// methods may be called from anywhere at once. They take a valid shape, see Validate.
//
// What is left out of every count: norms, biases, attention sinks, rotary tables, towers for images and sound, and layers that only
// speculative decoding uses.
type Shape struct {
	Name         string
	Architecture string // of Hugging Face's config.json, as Gemma3ForCausalLM; empty where unknown
	Hidden       int    // width of the residual stream
	FFN          int    // inner width of the feed-forward network of dense layers; 0 where every layer is MoE
	Ungated      bool   // feed-forward networks have two matrices instead of three
	Vocabulary   int
	Tied         bool      // the output projection is the embedding
	QueryHeads   int       // of every layer
	Full         Attention // layers that attend to everything
	Window       Attention // layers that attend to the last WindowTokens; no MLA
	WindowTokens int       // 0 when there are none
	MoE          MoE       // the zero value is a dense model
	ContextLimit int       // tokens of prompt and reply together

	Weights Precisions // how the checkpoint is stored; the zero value is BF16
	KV      Precision  // of the numbers in the KV cache; the zero value is BF16
}

// Attention is the geometry of one kind of layer. The zero value is no such layers.
type Attention struct {
	Layers  int
	KVHeads int
	HeadDim int
	SharedV bool // no V projection: V is K before its rotation, and still a tensor of its own in the cache
	MLA     MLA  // multi-head latent attention instead of KVHeads heads of HeadDim; the zero value is none
}

// MLA is multi-head latent attention, DeepSeek's: the cache holds one latent vector of KVRank numbers and a rotated key of RopeDim
// for all heads, which tensor parallelism replicates.
type MLA struct {
	QRank    int // 0: queries are projected straight from the residual stream
	KVRank   int
	RopeDim  int
	NopeDim  int
	ValueDim int
}

// MoE is a mixture of experts.
type MoE struct {
	Experts     int // routed, in each layer
	TopK        int // that a token passes through
	FFN         int // inner width of an expert
	SharedFFN   int // inner width of all that every token passes through beside them; 0: none
	DenseLayers int // layers that have a dense network of Shape.FFN instead; where they stand does not matter here
}

// Layers is the number of layers of both kinds.
func (s Shape) Layers() int { return s.Full.Layers + s.Window.Layers }

// MoELayers is how many of the layers are a mixture of experts.
func (s Shape) MoELayers() int {
	if s.MoE.Experts == 0 {
		return 0
	}
	return s.Layers() - s.MoE.DenseLayers
}

// DenseLayers is how many of the layers are not.
func (s Shape) DenseLayers() int { return s.Layers() - s.MoELayers() }

// Validate returns nil, or what is wrong: each field with its value and the rule it breaks.
func (s Shape) Validate() error {
	var errs []error
	rule := func(ok bool, field string, value any, must string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("model %s: %s is %v: %s", s.Name, field, value, fmt.Sprintf(must, args...)))
		}
	}
	positive := func(field string, v int) bool {
		ok := v >= 1 && v <= maxSize
		rule(ok, field, v, "must be from 1 to %d", maxSize)
		return ok
	}
	none := func(field string, v int, why string) { rule(v == 0, field, v, "must be 0 %s", why) }

	positive("Hidden", s.Hidden)
	positive("Vocabulary", s.Vocabulary)
	positive("ContextLimit", s.ContextLimit)
	heads := positive("QueryHeads", s.QueryHeads)
	rule(s.Full.Layers >= 0 && s.Full.Layers <= maxLayers, "Full.Layers", s.Full.Layers, "must be from 0 to %d", maxLayers)
	rule(s.Window.Layers >= 0 && s.Window.Layers <= maxLayers, "Window.Layers", s.Window.Layers, "must be from 0 to %d", maxLayers)
	rule(s.Layers() >= 1, "Full.Layers + Window.Layers", s.Layers(), "must be at least 1")

	attention := func(name string, a Attention) {
		if a.Layers == 0 {
			rule(a == Attention{}, name, fmt.Sprintf("%+v", a), "must be all zero without layers")
			return
		}
		if m := a.MLA; m != (MLA{}) {
			none(name+".KVHeads", a.KVHeads, "with MLA, which has a latent instead")
			none(name+".HeadDim", a.HeadDim, "with MLA, which has widths of its own")
			rule(!a.SharedV, name+".SharedV", a.SharedV, "must be false with MLA")
			positive(name+".MLA.KVRank", m.KVRank)
			positive(name+".MLA.NopeDim", m.NopeDim)
			positive(name+".MLA.ValueDim", m.ValueDim)
			rule(m.RopeDim >= 0 && m.RopeDim <= maxSize, name+".MLA.RopeDim", m.RopeDim, "must be from 0 to %d", maxSize)
			rule(m.QRank >= 0 && m.QRank <= maxSize, name+".MLA.QRank", m.QRank, "must be from 0 to %d", maxSize)
			return
		}
		if positive(name+".KVHeads", a.KVHeads) && heads {
			rule(s.QueryHeads%a.KVHeads == 0, name+".KVHeads", a.KVHeads, "must divide QueryHeads, %d", s.QueryHeads)
		}
		positive(name+".HeadDim", a.HeadDim)
	}
	attention("Full", s.Full)
	attention("Window", s.Window)
	rule(s.Window.MLA == MLA{}, "Window.MLA", fmt.Sprintf("%+v", s.Window.MLA), "must be zero: latent attention has no window here")
	if s.Window.Layers > 0 {
		positive("WindowTokens", s.WindowTokens)
	} else {
		none("WindowTokens", s.WindowTokens, "without window layers")
	}

	if e := s.MoE; e != (MoE{}) {
		if positive("MoE.Experts", e.Experts) {
			rule(e.TopK >= 1 && e.TopK <= e.Experts, "MoE.TopK", e.TopK, "must be from 1 to MoE.Experts, %d", e.Experts)
		}
		positive("MoE.FFN", e.FFN)
		rule(e.SharedFFN >= 0 && e.SharedFFN <= maxSize, "MoE.SharedFFN", e.SharedFFN, "must be from 0 to %d", maxSize)
		rule(e.DenseLayers >= 0 && e.DenseLayers < max(1, s.Layers()), "MoE.DenseLayers", e.DenseLayers,
			"must be at least 0 and under the number of layers, %d", s.Layers())
	}
	if s.DenseLayers() > 0 {
		positive("FFN", s.FFN)
	} else {
		none("FFN", s.FFN, "where every layer is a mixture of experts")
	}

	if len(errs) == 0 {
		for _, p := range s.products() {
			rule(p.weights <= maxWeights, p.field, fmt.Sprintf("%.0f", p.weights), "must be at most %.0g", float64(maxWeights))
		}
	}

	precision := func(field string, p Precision) {
		rule(p.known(), field, p, "must be one of %v", precisions)
	}
	precision("Weights.Linear", s.Weights.Linear)
	precision("Weights.Attention", s.Weights.Attention)
	precision("Weights.Experts", s.Weights.Experts)
	precision("Weights.Head", s.Weights.Head)
	precision("KV", s.KV)
	return errors.Join(errs...)
}

// Bounds that no model comes near. They keep sums inside an int64, so that a wrong file is refused and not miscounted.
const (
	maxSize    = 1 << 24
	maxLayers  = 1 << 12
	maxWeights = 1e15
)

// product is the size of one term of Counts, or a bound of it.
type product struct {
	field   string
	weights float64
}

// products bounds every term of Counts without overflow.
func (s Shape) products() []product {
	times := func(factors ...int) float64 {
		n := 1.0
		for _, f := range factors {
			n *= float64(f)
		}
		return n
	}
	m := s.Full.MLA
	return []product{
		{"Vocabulary * Hidden", times(s.Vocabulary, s.Hidden)},
		{"the weights of full attention", times(s.Full.Layers, s.Hidden, s.QueryHeads, s.Full.HeadDim)},
		{"the weights of window attention", times(s.Window.Layers, s.Hidden, s.QueryHeads, s.Window.HeadDim)},
		{"the weights of latent attention", times(s.Full.Layers, s.Hidden+m.QRank+m.KVRank, s.QueryHeads+1, m.KVRank+m.RopeDim+m.NopeDim+m.ValueDim)},
		{"the weights of dense networks", times(s.Layers(), s.Hidden, s.FFN)},
		{"the weights of experts", times(s.Layers(), s.Hidden, s.MoE.Experts, s.MoE.FFN)},
		{"the weights of shared experts", times(s.Layers(), s.Hidden, s.MoE.SharedFFN)},
	}
}
