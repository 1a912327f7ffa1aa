package model

import (
	"encoding/json"
	"slices"
	"strings"
)

// refuseUnmodelled refuses what changes the arithmetic and has no place in a Shape. A field is one of these if it is not null, false,
// 0, empty or, where the list says so, 1.
func (c *config) refuseUnmodelled() {
	for _, group := range []struct {
		why  string
		one  bool // 1 is no difference
		keys []string
	}{
		{why: "KV that layers share is not modelled", keys: []string{"num_kv_shared_layers", "use_cla", "cla_share_factor"}},
		{why: "embeddings of each layer are not modelled", keys: []string{"hidden_size_per_layer_input"}},
		{why: "sparse attention is not modelled", keys: []string{"index_topk", "index_n_heads", "sparse_attention_config", "sparse_config"}},
		{why: "attention in chunks is not modelled", keys: []string{"attention_chunk_size"}},
		{why: "linear attention is not modelled", one: true, keys: []string{
			"full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_attn_config", "layer_group_size",
		}},
		{why: "state-space and convolution layers are not modelled", keys: []string{
			"attn_layer_indices", "attn_layer_period", "conv_L_cache", "conv_bias", "hybrid_override_pattern", "layers_block_type",
			"mamba_d_state", "mamba_num_heads", "ssm_cfg", "ssm_state_size", "state_size",
		}},
		{why: "layers of different shapes are not modelled", keys: []string{"block_configs", "swa_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads"}},
		{why: "more than one window size is not modelled", keys: []string{"interleaved_sliding_window"}},
		{why: "gated attention, with its second query projection, is not modelled", keys: []string{"attn_output_gate"}},
		{why: "a residual stream of several parts is not modelled", keys: []string{"altup_num_inputs", "hc_mult", "laurel_rank"}},
		{why: "experts that compute nothing are not modelled", keys: []string{"zero_expert_num"}},
		{why: "cross-attention is not modelled", keys: []string{"is_encoder_decoder", "cross_attention_layers"}},
	} {
		for _, key := range group.keys {
			if raw, ok := c.top[key]; ok && !nothing(raw, group.one) {
				c.bad(key, "%s", group.why)
			}
		}
	}
	if raw, ok := c.outer["is_encoder_decoder"]; ok && !nothing(raw, false) {
		c.errs = append(c.errs, "is_encoder_decoder is "+short(raw)+": cross-attention is not modelled")
	}
	if types, ok := c.top["attn_type_list"]; ok {
		var list []int
		if json.Unmarshal(types, &list) != nil {
			c.bad("attn_type_list", "must be a list of whole numbers")
		}
		for _, t := range list {
			if t != 1 {
				c.bad("attn_type_list", "%d is linear attention, which is not modelled", t)
				break
			}
		}
	}
	for _, key := range sortedKeys(c.top) {
		if c.perLayer(key) {
			c.bad(key, "different values for each layer are not modelled")
		}
	}
}

// perLayer suspects numbers for each layer in a list that is as long as the model is deep, or by its name.
func (c *config) perLayer(key string) bool {
	if !c.isList(key) || slices.Contains(readFields, key) || key == "attn_type_list" || key == "no_rope_layers" {
		return false
	}
	var list []float64
	if json.Unmarshal(c.top[key], &list) != nil || len(list) == 0 {
		return false
	}
	layers, _ := c.int("num_hidden_layers")
	return len(list) == layers && layers >= 8 || strings.HasSuffix(key, "_per_layer")
}

func nothing(raw json.RawMessage, one bool) bool {
	switch string(raw) {
	case "null", "false", "0", "0.0", `""`, "[]", "{}":
		return true
	case "1":
		return one
	}
	return false
}
