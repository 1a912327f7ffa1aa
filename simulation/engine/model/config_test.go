package model

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFromConfigCounts compares the weights with those that transformers would make, for every family of testdata/configs.py.
func TestFromConfigCounts(t *testing.T) {
	var counts map[string]struct {
		Weights int64   `json:"weights"`
		KV      []int64 `json:"kv_bytes"` // nil: not told
	}
	data, err := os.ReadFile("testdata/counts.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &counts); err != nil {
		t.Fatal(err)
	}
	if len(counts) < 50 {
		t.Fatalf("%d counts: the table is not whole", len(counts))
	}
	for name, want := range counts {
		t.Run(name, func(t *testing.T) {
			s, err := ReadConfig(filepath.Join("testdata", "configs", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Params(); got != want.Weights {
				t.Errorf("%d weights, want %d (%d too many): %+v", got, want.Weights, got-want.Weights, s)
			}
			if got := []int64{s.FullBytes(), s.WindowBytes()}; want.KV != nil && !slices.Equal(got, want.KV) {
				t.Errorf("KV bytes %v, want %v", got, want.KV)
			}
		})
	}
}

// TestFromConfigPublished reads files with the sizes of published checkpoints, in the form in which they are published: each must be
// the preset of that name, in every field.
func TestFromConfigPublished(t *testing.T) {
	for _, name := range Names() {
		if name == "demo" {
			continue // imaginary
		}
		t.Run(name, func(t *testing.T) {
			got, err := ReadConfig(filepath.Join("testdata", "published", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			want, _ := ByName(name)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("preset (-) and file (+) differ:\n%s", diff)
			}
		})
	}
}

// edit is a published file with fields set; null as a value stays null, "-" takes the field away. Keys may be a path: text_config.x.
func edit(t *testing.T, name string, fields map[string]string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]any
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	for path, value := range fields {
		at, key := top, path
		if outer, inner, ok := strings.Cut(path, "."); ok {
			at, key = top[outer].(map[string]any), inner
		}
		if value == "-" {
			delete(at, key)
			continue
		}
		at[key] = json.RawMessage(value)
	}
	data, err = json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFromConfigRefuses sets fields of good files to what contradicts, is missing or is not modelled. Each is told by name, in one
// line, with its value and the rule.
func TestFromConfigRefuses(t *testing.T) {
	const llama, qwenMoE, deepseek, gemma3, gemma4 = "published/llama-3.1-8b", "published/qwen3-30b-a3b", "published/deepseek-v3", "published/gemma-3-12b", "published/gemma-4-31b"
	for _, c := range []struct {
		of     string
		fields map[string]string
		want   string
	}{
		// Contradictions.
		{llama, map[string]string{"num_key_value_heads": "7"}, "num_key_value_heads is 7: must divide num_attention_heads, 32"},
		{llama, map[string]string{"num_key_value_heads": "0"}, "num_key_value_heads is 0: must be at least 1"},
		{llama, map[string]string{"hidden_size": "4097"}, "hidden_size is 4097: must be a multiple of num_attention_heads, 32, where head_dim is not given"},
		{llama, map[string]string{"layer_types": `["full_attention"]`}, "layer_types has 1 entries: must have num_hidden_layers, 32"},
		{qwenMoE, map[string]string{"num_experts_per_tok": "129"}, "num_experts_per_tok is 129: must be from 1 to the number of experts, 128"},
		{qwenMoE, map[string]string{"num_local_experts": "64"}, "num_local_experts is 64: contradicts num_experts, 128"},
		{qwenMoE, map[string]string{"decoder_sparse_step": "49"}, "num_experts is 128: no layer is left for them: see mlp_only_layers, decoder_sparse_step"},
		{qwenMoE, map[string]string{"decoder_sparse_step": "0"}, "decoder_sparse_step is 0: must be at least 1"},
		{qwenMoE, map[string]string{"mlp_only_layers": "[48]"}, "mlp_only_layers is [48]: must be numbers of layers, from 0 to 47"},
		{deepseek, map[string]string{"first_k_dense_replace": "62"}, "first_k_dense_replace is 62: must be from 0 to num_hidden_layers, 61"},
		{deepseek, map[string]string{"moe_layer_freq": "[0,1]"}, "moe_layer_freq has 2 entries: must have num_hidden_layers, 61"},
		{deepseek, map[string]string{"sliding_window": "512", "sliding_window_pattern": "2"}, "sliding_window is 512: latent attention (kv_lora_rank) with a window is not modelled"},
		{gemma3, map[string]string{"tie_word_embeddings": "true", "text_config.tie_word_embeddings": "false"}, "tie_word_embeddings is true, and false in text_config: must agree"},
		{gemma4, map[string]string{"text_config.sliding_window": "null"}, "text_config.sliding_window is null: layer_types has sliding_attention: must be its length in tokens"},
		{gemma4, map[string]string{"text_config.sliding_window": "-"}, "text_config.sliding_window is missing: the length in tokens, as layer_types has sliding_attention"},
		{gemma4, map[string]string{"text_config.sliding_window_pattern": "4"}, "text_config.layer_types is [\"sliding_attention\",\"sliding_attention\",\"sliding_attenti...: layer 3 contradicts sliding_window_pattern, 4, which makes every 4th layer full"},
		{gemma4, map[string]string{"text_config.num_global_key_value_heads": "5"}, "text_config.num_global_key_value_heads is 5: must divide num_attention_heads, 32"},
		{gemma3, map[string]string{"text_config.sliding_window_pattern": "6", "text_config._sliding_window_pattern": "5"}, "text_config._sliding_window_pattern is 5: contradicts sliding_window_pattern, 6"},
		{"configs/qwen2", map[string]string{"use_sliding_window": "false"}, "use_sliding_window is false: layer_types has sliding_attention"},
		{"configs/glm4-moe-lite", map[string]string{"first_k_dense_replace": "3"}, "first_k_dense_replace is 3: layer 1 is sparse in mlp_layer_types"},
		{"configs/gemma4", map[string]string{"per_layer_config": `{"6":{"head_dim":128}}`}, "per_layer_config.6: must be the number of a layer, from 0 to 5, once"},
		{"configs/gemma4", map[string]string{"per_layer_config": `{"1":{"head_dim":128}}`}, `per_layer_config is {"1":{"head_dim":128}}: layers of one kind (with or without a window) must have the same heads`},
		{"configs/gemma4", map[string]string{"per_layer_config": `{"5":{"intermediate_size":9}}`}, "per_layer_config.5.intermediate_size is 9: of the keys of per_layer_config only head_dim and num_key_value_heads are modelled"},

		// Missing or misspelt.
		{llama, map[string]string{"num_hidden_layers": "-"}, "num_hidden_layers is missing"},
		{llama, map[string]string{"hidden_size": "null"}, "hidden_size is missing"},
		{llama, map[string]string{"intermediate_size": "-"}, "intermediate_size is missing"},
		{llama, map[string]string{"max_position_embeddings": "-"}, "max_position_embeddings is missing"},
		{llama, map[string]string{"num_key_value_heads": "-", "num_key_value_head": "8"}, "num_key_value_head is not a field: is it num_key_value_heads?"},
		{llama, map[string]string{"vocab_size": "-", "vocabsize": "128256"}, "vocabsize is not a field: is it vocab_size?"},
		{llama, map[string]string{"head_dmi": "64"}, "head_dmi is not a field: is it head_dim?"},
		{llama, map[string]string{"Hidden_Size": "64", "hidden_size": "-"}, "Hidden_Size is not a field: is it hidden_size?"},
		{gemma3, map[string]string{"text_config.num_attention_heads": "-", "text_config.num_attention_haeds": "16"}, "text_config.num_attention_haeds is not a field: is it num_attention_heads?"},
		{gemma3, map[string]string{"text_config.sliding_window": "-"}, "text_config.sliding_window is missing: null where no layer has one"},
		{"published/qwen3-8b", map[string]string{"num_key_value_heads": "-"}, "num_key_value_heads is missing: as large as num_attention_heads where every head has its own keys and values"},
		{qwenMoE, map[string]string{"moe_intermediate_size": "-"}, "moe_intermediate_size is missing: the inner width of one expert"},
		{qwenMoE, map[string]string{"num_experts_per_tok": "-"}, "num_experts_per_tok is missing: as there are experts"},
		{qwenMoE, map[string]string{"num_experts": "-"}, "num_experts is missing: as num_experts_per_tok is given"},
		{deepseek, map[string]string{"q_lora_rank": "-"}, "q_lora_rank is missing: null where queries are not compressed"},
		{deepseek, map[string]string{"v_head_dim": "-"}, "v_head_dim is missing"},
		{llama, map[string]string{"model_type": `"novel"`, "tie_word_embeddings": "-"}, "tie_word_embeddings is missing: true or false: novel is not a family whose default is known"},
		{llama, map[string]string{"model_type": `"novel"`, "hidden_act": `"relu2"`}, `hidden_act is "relu2": whether the feed-forward network is gated is known of silu alone, and novel is not a family that is known`},
		{llama, map[string]string{"sliding_window": "4096"}, "sliding_window is 4096: nothing says which layers have it: add layer_types (or null, for none)"},

		// Of the wrong kind.
		{llama, map[string]string{"num_hidden_layers": `"32"`}, `num_hidden_layers is "32": must be a whole number`},
		{llama, map[string]string{"num_hidden_layers": "5000"}, "num_hidden_layers is 5000: must be at most 4096"},
		{llama, map[string]string{"hidden_size": "-4096"}, "hidden_size is -4096: must be from 1 to 16777216"},
		{llama, map[string]string{"hidden_size": "4096.5"}, "hidden_size is 4096.5: must be a whole number"},
		{llama, map[string]string{"tie_word_embeddings": `"no"`}, `tie_word_embeddings is "no": must be true or false`},
		{llama, map[string]string{"head_dim": "0"}, "head_dim is 0: must be at least 1"},
		{llama, map[string]string{"torch_dtype": `"int4"`}, `torch_dtype is "int4": must be bfloat16, float16 or float32`},
		{llama, map[string]string{"rope_scaling": `{"rope_type":"yarn","factor":1e9}`}, "rope_scaling is {\"rope_type\":\"yarn\",\"factor\":1e9}: stretches the context to 131072000000000 tokens: must be at most 16777216"},

		// Not modelled.
		{llama, map[string]string{"intermediate_size": "[14336, 7168]"}, "intermediate_size is [14336,7168]: must be a whole number: different ones for each layer are not modelled"},
		{gemma4, map[string]string{"text_config.num_kv_shared_layers": "20"}, "text_config.num_kv_shared_layers is 20: KV that layers share is not modelled"},
		{gemma4, map[string]string{"text_config.hidden_size_per_layer_input": "256"}, "text_config.hidden_size_per_layer_input is 256: embeddings of each layer are not modelled"},
		{deepseek, map[string]string{"index_topk": "2048"}, "index_topk is 2048: sparse attention is not modelled"},
		{qwenMoE, map[string]string{"full_attention_interval": "4"}, "full_attention_interval is 4: linear attention is not modelled"},
		{"configs/gemma3", map[string]string{"layer_types": `["linear_attention","full_attention","full_attention","full_attention","full_attention","full_attention"]`}, `"linear_attention" of layer 0 is not modelled: only full_attention and sliding_attention are`},
		{llama, map[string]string{"attn_layer_period": "8"}, "attn_layer_period is 8: state-space and convolution layers are not modelled"},
		{llama, map[string]string{"attn_type_list": "[1,0]"}, "attn_type_list is [1,0]: 0 is linear attention, which is not modelled"},
		{llama, map[string]string{"attention_chunk_size": "8192"}, "attention_chunk_size is 8192: attention in chunks is not modelled"},
		{llama, map[string]string{"block_configs": `[{}]`}, "block_configs is [{}]: layers of different shapes are not modelled"},
		{llama, map[string]string{"interleaved_sliding_window": "[1024,4096]"}, "interleaved_sliding_window is [1024,4096]: more than one window size is not modelled"},
		{llama, map[string]string{"v_head_dim": "64"}, "v_head_dim is 64: values of another width than keys (head_dim 128) are modelled only with kv_lora_rank"},
		{llama, map[string]string{"num_attention_heads_per_layer": "[32,32]"}, "num_attention_heads_per_layer is [32,32]: different values for each layer are not modelled"},
		{"configs/gemma4-shared-v", map[string]string{"new_widths": "[1,2,3,4,5,6,7,8,9,10,11,12]"}, "new_widths is [1,2,3,4,5,6,7,8,9,10,11,12]: different values for each layer are not modelled"},
		{llama, map[string]string{"is_encoder_decoder": "true"}, "is_encoder_decoder is true: cross-attention is not modelled"},
	} {
		s, err := FromConfig(strings.NewReader(edit(t, c.of, c.fields)), "x/config.json")
		if err == nil {
			t.Errorf("%s with %v: read as %+v, want %q", c.of, c.fields, s, c.want)
			continue
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != 1 || !strings.HasPrefix(lines[0], "x/config.json: ") || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s with %v:\n got %v\nwant %s", c.of, c.fields, err, c.want)
		}
	}
}

// TestFromConfigAccepts sets fields of good files and looks at what comes of it.
func TestFromConfigAccepts(t *testing.T) {
	const llama, gemma4 = "published/llama-3.1-8b", "published/gemma-4-31b"
	for _, c := range []struct {
		of     string
		fields map[string]string
		change func(*Shape) // of the shape without fields
	}{
		{llama, map[string]string{"some_new_key": `{"x":[1]}`}, func(*Shape) {}},
		{llama, map[string]string{"head_dim": "64"}, func(s *Shape) { s.Full.HeadDim = 64 }},
		{llama, map[string]string{"num_key_value_heads": "-"}, func(s *Shape) { s.Full.KVHeads = 32 }},
		{llama, map[string]string{"tie_word_embeddings": "-"}, func(*Shape) {}},
		{llama, map[string]string{"model_type": `"novel"`}, func(*Shape) {}}, // all is said
		{llama, map[string]string{"torch_dtype": `"float32"`}, func(*Shape) {}},
		{llama, map[string]string{"rope_scaling": `{"type":"yarn","factor":4.0,"original_max_position_embeddings":131072}`}, func(s *Shape) { s.ContextLimit = 524288 }},
		{llama, map[string]string{"rope_scaling": `{"type":"linear","factor":2.0}`}, func(s *Shape) { s.ContextLimit = 262144 }},
		{llama, map[string]string{"sliding_window": "131072", "layer_types": "-", "model_type": `"mistral"`}, func(*Shape) {}}, // none outgrows it
		{llama, map[string]string{"sliding_window": "4096", "model_type": `"mistral"`}, func(s *Shape) {
			s.Full, s.Window, s.WindowTokens = Attention{}, s.Full, 4096
		}},
		{llama, map[string]string{"sliding_window": "4096", "use_sliding_window": "true", "max_window_layers": "28", "model_type": `"qwen2"`}, func(s *Shape) {
			s.Window, s.WindowTokens = s.Full, 4096
			s.Full.Layers, s.Window.Layers = 28, 4
		}},
		{llama, map[string]string{"sliding_window": "4096", "max_window_layers": "28", "model_type": `"qwen2"`}, func(*Shape) {}},
		{gemma4, map[string]string{"text_config.attention_k_eq_v": "false"}, func(s *Shape) { s.Full.SharedV, s.Full.KVHeads = false, 16 }},
		{gemma4, map[string]string{"text_config.layer_types": "-"}, func(*Shape) {}},
		{"published/gemma-3-12b", map[string]string{"text_config.tie_word_embeddings": "true"}, func(*Shape) {}},
		{"published/gemma-3-12b", map[string]string{"text_config.sliding_window_pattern": "4"}, func(s *Shape) { s.Full.Layers, s.Window.Layers = 12, 36 }},
		{"published/deepseek-v3", map[string]string{"moe_layer_freq": "2"}, func(s *Shape) { s.MoE.DenseLayers = 32 }}, // of 0 to 60 the even ones from 4 on: 29
		{"published/deepseek-v3", map[string]string{"n_shared_experts": "2"}, func(s *Shape) { s.MoE.SharedFFN = 4096 }},
		{"published/qwen3-30b-a3b", map[string]string{"decoder_sparse_step": "2"}, func(s *Shape) { s.MoE.DenseLayers, s.FFN = 24, 6144 }},
		{"published/qwen3-30b-a3b", map[string]string{"mlp_only_layers": "[0, 5]"}, func(s *Shape) { s.MoE.DenseLayers, s.FFN = 2, 6144 }},
		{"published/qwen3-8b", map[string]string{"num_experts": "0", "num_experts_per_tok": "4"}, func(*Shape) {}}, // a dense one
	} {
		want, err := ReadConfig(filepath.Join("testdata", c.of+".json"))
		if err != nil {
			t.Fatal(err)
		}
		want.Name = "x"
		c.change(&want)
		got, err := FromConfig(strings.NewReader(edit(t, c.of, c.fields)), "x/config.json")
		if err != nil {
			t.Errorf("%s with %v: %v", c.of, c.fields, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %v: want (-), got (+)\n%s", c.of, c.fields, diff)
		}
	}
}

// TestFromConfigStored reads how published quantizations say what they are.
func TestFromConfigStored(t *testing.T) {
	const dense, moe = "published/llama-3.1-8b", "published/qwen3-30b-a3b"
	group := func(kind string, bits, size string) string {
		return `{"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],"weights":{"type":"` + kind + `","num_bits":` + bits + `,"group_size":` + size + `}}}`
	}
	for _, c := range []struct {
		of, quantization string
		want             Precisions
		refused          string // instead
	}{
		{dense, `{"quant_method":"fp8","activation_scheme":"dynamic","modules_to_not_convert":["lm_head","model.layers.0.input_layernorm"]}`, Precisions{Linear: FP8}, ""},
		{moe, `{"quant_method":"fp8","modules_to_not_convert":["lm_head","model.layers.0.mlp.gate","model.layers.0.post_attention_layernorm"]}`, Precisions{Linear: FP8}, ""},
		{dense, `{"quant_method":"fbgemm_fp8"}`, Precisions{Linear: FP8}, ""},
		{dense, `{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{}}`, Precisions{Linear: INT4}, ""},
		{dense, `{"quant_method":"gptq","bits":8,"lm_head":true}`, Precisions{Linear: INT8, Head: INT8}, ""},
		{dense, `{"quant_method":"awq","bits":4,"modules_to_not_convert":["visual"]}`, Precisions{Linear: INT4}, ""},
		{dense, `{"quant_method":"bitsandbytes","load_in_4bit":true,"load_in_8bit":false}`, Precisions{Linear: FP4}, ""},
		{dense, `{"quant_method":"bitsandbytes","load_in_8bit":true}`, Precisions{Linear: INT8}, ""},
		{dense, group("float", "8", "null") + `,"ignore":["lm_head"]}`, Precisions{Linear: FP8}, ""},
		{dense, group("int", "4", "128") + `}`, Precisions{Linear: INT4}, ""},
		{dense, group("int", "8", "null") + `}`, Precisions{Linear: INT8}, ""},
		{dense, group("float", "4", "16") + `}`, Precisions{Linear: NVFP4}, ""},
		{dense, group("float", "4", "32") + `}`, Precisions{Linear: MXFP4}, ""},
		{dense, group("float", "8", "32") + `}`, Precisions{Linear: MXFP8}, ""},
		{dense, `{"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"]}`, Precisions{Linear: NVFP4}, ""},
		{dense, `{"quant_method":"modelopt","quant_algo":"FP8"}`, Precisions{Linear: FP8}, ""},
		{moe, group("int", "4", "32") + `,"ignore":["lm_head","re:.*self_attn.*","re:.*shared_experts.*","re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}`, Precisions{Experts: INT4}, ""},
		{moe, `{"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router","lm_head"]}`, Precisions{Experts: MXFP4}, ""},
		{moe, `{"quant_method":"modelopt","quant_algo":"NVFP4","exclude_modules":["model.layers.*.self_attn*","model.layers.48*"]}`, Precisions{Experts: NVFP4}, ""},
		{moe, `{"quant_method":"fp8","modules_to_not_convert":["re:.*experts.*"]}`, Precisions{Linear: FP8, Experts: BF16}, ""},

		{dense, `{"quant_method":"exl9"}`, Precisions{}, `quantization_config.quant_method is "exl9": must be awq,`},
		{dense, `{}`, Precisions{}, "quantization_config.quant_method is missing"},
		{dense, `{"quant_method":"gptq","bits":3}`, Precisions{}, "quantization_config.bits is 3: must be 4 or 8"},
		{dense, `{"quant_method":"gptq"}`, Precisions{}, "quantization_config.bits is missing: 4 or 8"},
		{dense, `{"quant_method":"gptq","bits":4,"dynamic":{"-:.*down.*":{}}}`, Precisions{}, "quantization_config.dynamic is"},
		{dense, `{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION"}`, Precisions{}, "mixtures are not modelled"},
		{dense, group("float", "4", "64") + `}`, Precisions{}, `config_groups.group_0.weights is "float" of 4 bits`},
		{dense, `{"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["re:.*mlp.*"],"weights":{"type":"int","num_bits":4}}}}`, Precisions{}, `config_groups.a.targets is ["re:.*mlp.*"]: must be ["Linear"]`},
		{dense, `{"quant_method":"compressed-tensors"}`, Precisions{}, "config_groups is missing: at least one"},
		{dense, `{"quant_method":"bitsandbytes"}`, Precisions{}, "load_in_4bit is missing"},
		{dense, `{"quant_method":"fp8","ignored_layers":["model.layers.0.self_attn","model.layers.1.self_attn.o_proj"]}`, Precisions{}, "quantization_config.ignored_layers leaves out attention of 2 of 32 layers: only all or none is modelled"},
		{dense, `{"quant_method":"fp8","ignored_layers":["re:.*self_attn.*"]}`, Precisions{Linear: FP8, Attention: BF16}, ""},
		{"published/deepseek-v3", group("float", "8", "null") + `,"ignore":["lm_head","re:.*\\.self_attn\\.q_proj$","re:.*\\.self_attn\\.o_proj$","re:.*\\.mlp\\.gate$"]}`, Precisions{Linear: FP8, Attention: BF16}, ""},
		{"published/deepseek-v3", `{"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head","model.layers.*.self_attn*","model.layers.*.mlp.shared_experts*","model.layers.*.mlp.down_proj"]}`, Precisions{Experts: NVFP4}, ""},
		{dense, `{"quant_method":"fp8","ignored_layers":"lm_head"}`, Precisions{}, "ignored_layers is \"lm_head\": must be a list of module names"},
		{dense, `"fp8"`, Precisions{}, `quantization_config is "fp8": must be an object`},
	} {
		s, err := FromConfig(strings.NewReader(edit(t, c.of, map[string]string{"quantization_config": c.quantization})), "x/config.json")
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s stored as %s: %+v, %v, want %q", c.of, c.quantization, s.Weights, err, c.refused)
		case c.refused == "" && (err != nil || s.Weights != c.want):
			t.Errorf("%s stored as %s: %+v, %v, want %+v", c.of, c.quantization, s.Weights, err, c.want)
		}
	}
}

func TestFromConfigNotOne(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "the file ends inside its JSON object",
		"{":                         "the file ends inside its JSON object",
		"[1]":                       "must be a JSON object of fields",
		"null":                      "must be a JSON object of fields",
		"{\n\"a\": 1,\n\"b\" 2}":    "line 3: invalid character",
		"{} {}":                     "something follows the JSON object",
		`{"text_config": 5}`:        "text_config is 5: must be an object",
		"hidden_size: 4096\n":       "line 1: invalid character",
		strings.Repeat(" ", 17<<20): "longer than 16777216 bytes: not a config.json",
	} {
		if _, err := FromConfig(strings.NewReader(text), "f"); err == nil || !strings.HasPrefix(err.Error(), "f: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadConfig("testdata/none.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	// All that is wrong is told at once, in a fixed order.
	_, err := FromConfig(strings.NewReader(`{"model_type":"llama"}`), "f")
	want := "f: hidden_size is missing\nf: vocab_size is missing\nf: num_attention_heads is missing\nf: max_position_embeddings is missing\nf: num_hidden_layers is missing"
	if err == nil || err.Error() != want {
		t.Errorf("an empty model: got\n%v\nwant\n%s", err, want)
	}
}

func TestFromConfigName(t *testing.T) {
	for path, want := range map[string]string{
		"models/Llama-3.1-8B/config.json": "Llama-3.1-8B",
		"my-llama.json":                   "my-llama",
		"config.json":                     "llama",
		"/config.json":                    "llama",
		"../config.json":                  "llama",
	} {
		s, err := FromConfig(strings.NewReader(edit(t, "published/llama-3.1-8b", nil)), path)
		if err != nil || s.Name != want {
			t.Errorf("%s: %q, %v, want %q", path, s.Name, err, want)
		}
	}
}

// A config.json names its model where its own name is one that was published, and not a path of whoever wrote it.
func TestNameOrPath(t *testing.T) {
	for name, want := range map[string]string{
		"meta-llama/Llama-3.1-8B": "Llama-3.1-8B",
		"tiny_1.5b":               "tiny_1.5b",
		"":                        "folder",
		"/data/run/ckpt":          "folder",
		"a/b/c":                   "folder",
		"./out":                   "folder",
		"two words":               "folder",
	} {
		text := edit(t, "published/llama-3.1-8b", map[string]string{"_name_or_path": `"` + name + `"`})
		if s, err := FromConfig(strings.NewReader(text), "folder/config.json"); err != nil || s.Name != want {
			t.Errorf("%q: %q, %v, want %q", name, s.Name, err, want)
		}
		if s, err := FromConfig(strings.NewReader(text), "folder/mine.json"); err != nil || s.Name != "mine" {
			t.Errorf("%q in a file of another name: %q, %v", name, s.Name, err)
		}
	}
}

// FuzzFromConfig: whatever the file, an answer is a valid shape whose sums add up, and a refusal names the file in each line.
func FuzzFromConfig(f *testing.F) {
	for _, pattern := range []string{"testdata/published/*.json", "testdata/configs/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(data))
		}
	}
	f.Add(`{"text_config":{"layer_types":[""]},"quantization_config":{"ignore":["layers.9"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := FromConfig(strings.NewReader(text), "f.json")
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.json: ") {
					t.Errorf("a line that names no file: %q", line)
				}
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		if s.Params() < 1 || s.ActiveParams() < 1 || s.ActiveParams() > s.Params() || s.WeightBytes() < 1 || s.FullBytes()+s.WindowBytes() < 1 {
			t.Errorf("%d weights, %d active, %d bytes, KV %d and %d: %+v", s.Params(), s.ActiveParams(), s.WeightBytes(), s.FullBytes(), s.WindowBytes(), s)
		}
	})
}
