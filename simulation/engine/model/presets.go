package model

import (
	"maps"
	"slices"
)

// ByName returns a preset.
func ByName(name string) (Shape, bool) {
	s, ok := presets()[name]
	return s, ok
}

// Names lists the presets, sorted.
func Names() []string { return slices.Sorted(maps.Keys(presets())) }

// presets come from the public config.json of each, precisions too: they are as the checkpoint under that name is published.
// Gemma's are the text tower alone. Gemma's window pattern is five to one; Gemma 4's full layers have heads of 512, fewer of them,
// and no V projection. In gemma-4-26b-a4b a dense network of 2112 runs beside the experts of every layer.
func presets() map[string]Shape {
	llama := func(name string, hidden, ffn, layers, heads int) Shape {
		return Shape{
			Name: name, Architecture: "LlamaForCausalLM", Hidden: hidden, FFN: ffn, Vocabulary: 128256, QueryHeads: heads,
			Full:         Attention{Layers: layers, KVHeads: 8, HeadDim: 128},
			ContextLimit: 131072,
		}
	}
	qwen := func(name string, hidden, ffn, layers, heads, kvHeads int, moe MoE) Shape {
		architecture := "Qwen3ForCausalLM"
		if moe.Experts > 0 {
			architecture = "Qwen3MoeForCausalLM"
		}
		return Shape{
			Name: name, Architecture: architecture, Hidden: hidden, FFN: ffn, Vocabulary: 151936, QueryHeads: heads,
			Full:         Attention{Layers: layers, KVHeads: kvHeads, HeadDim: 128},
			MoE:          moe,
			ContextLimit: 40960,
		}
	}
	gptOSS := func(name string, layers, experts int) Shape {
		half := Attention{Layers: layers / 2, KVHeads: 8, HeadDim: 64} // alternating
		return Shape{
			Name: name, Architecture: "GptOssForCausalLM", Hidden: 2880, Vocabulary: 201088, QueryHeads: 64,
			Full: half, Window: half, WindowTokens: 128,
			MoE:          MoE{Experts: experts, TopK: 4, FFN: 2880},
			ContextLimit: 131072,
			Weights:      Precisions{Experts: MXFP4},
		}
	}
	gemma4 := func(name, architecture string, hidden, ffn, heads int, full, window Attention, moe MoE) Shape {
		return Shape{
			Name: name, Architecture: architecture, Hidden: hidden, FFN: ffn, Vocabulary: 262144, Tied: true, QueryHeads: heads,
			Full: full, Window: window, WindowTokens: 1024,
			MoE:          moe,
			ContextLimit: 262144,
		}
	}
	all := []Shape{
		llama("llama-3.1-8b", 4096, 14336, 32, 32),
		llama("llama-3.1-70b", 8192, 28672, 80, 64),
		qwen("qwen3-8b", 4096, 12288, 36, 32, 8, MoE{}),
		qwen("qwen3-14b", 5120, 17408, 40, 40, 8, MoE{}),
		qwen("qwen3-32b", 5120, 25600, 64, 64, 8, MoE{}),
		qwen("qwen3-30b-a3b", 2048, 0, 48, 32, 4, MoE{Experts: 128, TopK: 8, FFN: 768}),
		qwen("qwen3-235b-a22b", 4096, 0, 94, 64, 4, MoE{Experts: 128, TopK: 8, FFN: 1536}),
		{
			Name: "deepseek-v3", Architecture: "DeepseekV3ForCausalLM", Hidden: 7168, FFN: 18432, Vocabulary: 129280, QueryHeads: 128,
			Full:         Attention{Layers: 61, MLA: MLA{QRank: 1536, KVRank: 512, RopeDim: 64, NopeDim: 128, ValueDim: 128}},
			MoE:          MoE{Experts: 256, TopK: 8, FFN: 2048, SharedFFN: 2048, DenseLayers: 3},
			ContextLimit: 163840,
			Weights:      Precisions{Linear: FP8},
		},
		gptOSS("gpt-oss-20b", 24, 32),
		gptOSS("gpt-oss-120b", 36, 128),
		{
			Name: "mixtral-8x7b", Architecture: "MixtralForCausalLM", Hidden: 4096, Vocabulary: 32000, QueryHeads: 32,
			Full:         Attention{Layers: 32, KVHeads: 8, HeadDim: 128},
			MoE:          MoE{Experts: 8, TopK: 2, FFN: 14336},
			ContextLimit: 32768,
		},
		{
			Name: "gemma-3-12b", Architecture: "Gemma3ForConditionalGeneration", Hidden: 3840, FFN: 15360, Vocabulary: 262208, Tied: true, QueryHeads: 16,
			Full:         Attention{Layers: 8, KVHeads: 8, HeadDim: 256},
			Window:       Attention{Layers: 40, KVHeads: 8, HeadDim: 256},
			WindowTokens: 1024, ContextLimit: 131072,
		},
		gemma4("gemma-4-12b", "Gemma4UnifiedForConditionalGeneration", 3840, 15360, 16,
			Attention{Layers: 8, KVHeads: 1, HeadDim: 512, SharedV: true},
			Attention{Layers: 40, KVHeads: 8, HeadDim: 256}, MoE{}),
		gemma4("gemma-4-26b-a4b", "Gemma4ForConditionalGeneration", 2816, 0, 16,
			Attention{Layers: 5, KVHeads: 2, HeadDim: 512, SharedV: true},
			Attention{Layers: 25, KVHeads: 8, HeadDim: 256}, MoE{Experts: 128, TopK: 8, FFN: 704, SharedFFN: 2112}),
		gemma4("gemma-4-31b", "Gemma4ForConditionalGeneration", 5376, 21504, 32,
			Attention{Layers: 10, KVHeads: 4, HeadDim: 512, SharedV: true},
			Attention{Layers: 50, KVHeads: 16, HeadDim: 256}, MoE{}),
		// Imaginary: small enough that a demo on a laptop shows a knee within a minute.
		{
			Name: "demo", Hidden: 2048, FFN: 8192, Vocabulary: 65536, Tied: true, QueryHeads: 16,
			Full:         Attention{Layers: 16, KVHeads: 8, HeadDim: 128},
			ContextLimit: 32768,
		},
	}
	byName := make(map[string]Shape, len(all))
	for _, s := range all {
		byName[s.Name] = s
	}
	return byName
}
