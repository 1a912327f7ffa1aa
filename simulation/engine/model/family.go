package model

import "strings"

// family is what transformers assumes of a model_type where its config.json does not say: facts of its configuration classes.
type family struct {
	known         bool
	tied          bool           // tie_word_embeddings
	ungated       bool           // the feed-forward network has no gate
	headDim       int            // head_dim; 0: hidden_size / num_attention_heads
	globalHeadDim int            // global_head_dim
	every         int            // with a sliding_window, every so many-th layer is full; 0: see allWindow
	lastFull      bool           // the last layer is full whatever the pattern says
	allWindow     bool           // with a sliding_window, all layers have it
	optIn         bool           // a sliding_window counts only if use_sliding_window is true
	multiHead     bool           // num_key_value_heads is num_attention_heads
	expertIsFFN   bool           // intermediate_size is the width of an expert
	stretched     bool           // max_position_embeddings counts the stretching of positions already
	defaults      map[string]int // sizes that published files of this family leave out
}

// families by model_type. Names that begin with one and an underscore belong to it, unless they have an entry: qwen3_vl to qwen3.
func families() map[string]family {
	gemma := family{known: true, tied: true, headDim: 256}
	gemma2, gemma3, gemma4 := gemma, gemma, gemma
	gemma2.every = 2
	gemma3.every, gemma3.stretched = 6, true
	gemma3.defaults = map[string]int{"vocab_size": 262208, "max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4}
	gemma4.every, gemma4.lastFull, gemma4.globalHeadDim = 6, true, 512
	untied := family{known: true}
	multiHead := family{known: true, multiHead: true}
	tied := family{known: true, tied: true}
	ungated := family{known: true, ungated: true, multiHead: true}
	return map[string]family{
		"apertus":          {known: true, ungated: true},
		"arcee":            {known: true, ungated: true},
		"bitnet":           untied,
		"cohere":           tied,
		"cohere2":          {known: true, tied: true, every: 4},
		"deepseek_v2":      untied,
		"deepseek_v3":      untied,
		"dots1":            untied,
		"ernie4_5":         {known: true, tied: true, headDim: 128},
		"ernie4_5_moe":     tied,
		"exaone4":          {known: true, every: 4},
		"flex_olmo":        {known: true, expertIsFFN: true},
		"gemma":            gemma,
		"gemma2":           gemma2,
		"gemma3":           gemma3,
		"gemma4":           gemma4,
		"glm":              {known: true, headDim: 128},
		"glm4":             {known: true, headDim: 128},
		"glm4_moe":         untied,
		"gpt_neox":         ungated,
		"gpt_oss":          {known: true, headDim: 64, every: 2, expertIsFFN: true},
		"granite":          multiHead,
		"granitemoe":       {known: true, multiHead: true, expertIsFFN: true},
		"granitemoeshared": {known: true, multiHead: true, expertIsFFN: true},
		"helium":           {known: true, headDim: 128},
		"hunyuan_v1_dense": untied,
		"hunyuan_v1_moe":   untied,
		"kimi_k2":          untied,
		"llama":            multiHead,
		"minicpm3":         tied,
		"minimax_m2":       {known: true, expertIsFFN: true},
		"ministral":        {known: true, allWindow: true},
		"ministral3":       {known: true, allWindow: true},
		"mistral":          {known: true, allWindow: true},
		"mistral3":         {known: true, allWindow: true},
		"mixtral":          {known: true, allWindow: true, expertIsFFN: true},
		"nemotron":         {known: true, ungated: true},
		"olmo":             multiHead,
		"olmo2":            multiHead,
		"olmo3":            {known: true, every: 4, multiHead: true},
		"olmoe":            {known: true, multiHead: true, expertIsFFN: true},
		"persimmon":        ungated,
		"phi":              ungated,
		"phi3":             {known: true, allWindow: true, multiHead: true},
		"phimoe":           {known: true, allWindow: true, expertIsFFN: true},
		"qwen2":            {known: true, optIn: true},
		"qwen2_moe":        {known: true, optIn: true},
		"qwen3":            {known: true, optIn: true, headDim: 128},
		"qwen3_moe":        {known: true, optIn: true},
		"seed_oss":         {known: true, headDim: 128},
		"smollm3":          {known: true, tied: true, optIn: true},
		"stablelm":         multiHead,
		"starcoder2":       {known: true, tied: true, ungated: true, allWindow: true},
		"vaultgemma":       gemma2,
	}
}

// family of the language model; the zero value where it is not known.
func (c *config) family() family {
	name := c.familyName()
	all := families()
	for {
		if f, ok := all[name]; ok {
			return f
		}
		i := strings.LastIndexByte(name, '_')
		if i < 0 {
			return family{}
		}
		name = name[:i]
	}
}

func (c *config) familyName() string {
	if t, ok := c.text("model_type"); ok {
		return t
	}
	if t, ok := c.outerText("model_type"); ok {
		return t
	}
	return "a file without model_type"
}
