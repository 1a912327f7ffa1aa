package model

import (
	"fmt"
	"slices"
	"strings"
)

// experts reads a mixture of experts, if there is one.
func (c *config) experts(f family, s *Shape, layers int) {
	expertsKeys := []string{"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"}
	n, _ := c.int(expertsKeys...)
	if on, ok := c.bool("enable_moe_block"); ok && !on {
		return
	}
	topKeys := []string{"num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k"}
	k, routed := c.int(topKeys...)
	if n == 0 {
		for _, key := range expertsKeys {
			if c.mentions(key) { // null or 0: a dense model of a family that has both
				return
			}
		}
		if routed && k > 0 {
			c.missing("num_experts", "as "+c.which(topKeys...)+" is given")
		}
		return
	}
	switch {
	case !routed:
		c.missing("num_experts_per_tok", "as there are experts")
	case k < 1 || k > n:
		c.bad(c.which(topKeys...), "must be from 1 to the number of experts, %d", n)
	}
	e := MoE{Experts: n, TopK: k}
	expertKeys := []string{"moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"}
	if v, ok := c.int(expertKeys...); ok {
		e.FFN = v
		if v < 1 {
			c.bad(c.which(expertKeys...), "must be at least 1")
		}
	} else if f.expertIsFFN || c.mentions("num_local_experts") {
		e.FFN = c.size(f, "intermediate_size")
	} else {
		c.missing("moe_intermediate_size", "the inner width of one expert")
	}
	before := len(c.errs)
	moe := c.moeLayers(layers)
	if len(c.errs) > before {
		return
	}
	for _, m := range moe {
		if !m {
			e.DenseLayers++
		}
	}
	if e.DenseLayers == layers {
		var given []string
		for _, key := range layerFields {
			if c.has(key) {
				given = append(given, key)
			}
		}
		c.bad(c.which(expertsKeys...), "no layer is left for them: see %s", strings.Join(given, ", "))
		return
	}
	if v, ok := c.int("shared_expert_intermediate_size", "shared_intermediate_size"); ok {
		e.SharedFFN = v
	} else if v, ok := c.int("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"); ok {
		if v > 1<<10 {
			c.bad(c.which("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"), "must be at most %d", 1<<10)
			return
		}
		e.SharedFFN = v * e.FFN
	} else if on, _ := c.bool("enable_moe_block"); on {
		e.SharedFFN = c.size(f, "intermediate_size") // Gemma 4's dense network runs beside the experts
	}
	if e.SharedFFN < 0 || e.SharedFFN > maxSize {
		c.errs = append(c.errs, fmt.Sprintf("shared experts are %d wide: must be from 0 to %d", e.SharedFFN, maxSize))
	}
	s.MoE = e
}

// layerFields are what moeLayers reads.
var layerFields = []string{
	"mlp_layer_types", "mlp_only_layers", "decoder_sparse_step", "first_k_dense_replace", "num_dense_layers", "moe_layer_freq",
	"moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index",
}

// moeLayers says which layers have experts: each of the keys that families have for it takes layers away.
func (c *config) moeLayers(layers int) []bool {
	moe := make([]bool, layers)
	types, explicit := c.texts("mlp_layer_types", layers)
	for i := range moe {
		moe[i] = !explicit || types[i] == "sparse"
		if explicit && types[i] != "sparse" && types[i] != "dense" {
			c.bad("mlp_layer_types", "%q of layer %d is not modelled: only dense and sparse are", types[i], i)
			return moe
		}
	}
	without := func(key string, dense func(int) bool) {
		for i := range moe {
			if explicit && moe[i] && dense(i) {
				c.bad(key, "layer %d is sparse in mlp_layer_types", i)
				return
			}
			moe[i] = moe[i] && !dense(i)
		}
	}
	if only, ok := c.ints("mlp_only_layers"); ok {
		for _, i := range only {
			if i < 0 || i >= layers {
				c.bad("mlp_only_layers", "must be numbers of layers, from 0 to %d", layers-1)
				break
			}
		}
		without("mlp_only_layers", func(i int) bool { return slices.Contains(only, i) })
	}
	if step, ok := c.int("decoder_sparse_step"); ok && c.atLeast1("decoder_sparse_step", step) {
		without("decoder_sparse_step", func(i int) bool { return (i+1)%step != 0 })
	}
	if k, ok := c.int("first_k_dense_replace", "num_dense_layers"); ok {
		if k < 0 || k > layers {
			c.bad(c.which("first_k_dense_replace", "num_dense_layers"), "must be from 0 to num_hidden_layers, %d", layers)
		}
		without(c.which("first_k_dense_replace", "num_dense_layers"), func(i int) bool { return i < k })
	}
	if c.isList("moe_layer_freq") {
		list, _ := c.ints("moe_layer_freq")
		if len(list) != layers {
			c.errs = append(c.errs, fmt.Sprintf("%s has %d entries: must have num_hidden_layers, %d", c.field("moe_layer_freq"), len(list), layers))
			return moe
		}
		without("moe_layer_freq", func(i int) bool { return list[i] == 0 })
	} else if step, ok := c.int("moe_layer_freq"); ok && c.atLeast1("moe_layer_freq", step) {
		without("moe_layer_freq", func(i int) bool { return i%step != 0 })
	}
	if step, ok := c.int("moe_layer_interval"); ok && c.atLeast1("moe_layer_interval", step) {
		without("moe_layer_interval", func(i int) bool { return (i+1)%step != 0 })
	}
	if first, ok := c.int("moe_layer_start_index"); ok {
		without("moe_layer_start_index", func(i int) bool { return i < first })
	}
	if last, ok := c.int("moe_layer_end_index"); ok && last >= 0 {
		without("moe_layer_end_index", func(i int) bool { return i > last })
	}
	return moe
}

func (c *config) atLeast1(key string, v int) bool {
	if v < 1 {
		c.bad(key, "must be at least 1")
	}
	return v >= 1
}
