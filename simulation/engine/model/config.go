package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// ReadConfig reads a Hugging Face config.json. See FromConfig.
func ReadConfig(path string) (Shape, error) {
	f, err := os.Open(path)
	if err != nil {
		return Shape{}, err
	}
	defer f.Close()
	return FromConfig(f, path)
}

// FromConfig reads the config.json that a checkpoint on Hugging Face brings, of any decoder-only transformer; path names it in
// errors. The model is named by the file; of one called config.json by its _name_or_path where that is NAME or ORGANISATION/NAME, else by the
// folder it lies in.
//
// Fields are read by their keys. What a family of models leaves out and transformers fills in is filled in the same way (the family
// is model_type); families that are not known have to say it. Keys without meaning for shape and storage are ignored. A field that
// is missing, misspelt or contradicts another is an error, and so is one that changes the arithmetic in a way that is not modelled,
// such as linear attention. The error names each with its value and the rule.
//
// Of a model with towers for images or sound the language model is read. Weights are as stored: quantization_config, else BF16 (an
// engine halves float32). KV is BF16: what an engine stores is its own setting. A window that no sequence outgrows is none.
func FromConfig(r io.Reader, path string) (Shape, error) {
	c, err := parseConfig(r)
	if err != nil {
		return Shape{}, fmt.Errorf("%s: %w", path, err)
	}
	s := c.shape()
	s.Name, s.Architecture = c.name(path), c.architecture()
	if len(c.errs) == 0 {
		// The rules of c are told in the file's own words. This holds what they leave open.
		err := s.Validate()
		if err == nil {
			return s, nil
		}
		c.errs = strings.Split(err.Error(), "\n")
	}
	for i, e := range c.errs {
		c.errs[i] = path + ": " + e
	}
	return Shape{}, errors.New(strings.Join(c.errs, "\n"))
}

// publishedName is a checkpoint as Hugging Face names it, and no path of whoever wrote the file.
var publishedName = regexp.MustCompile(`^(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$`)

func (c *config) name(path string) string {
	base := strings.TrimSuffix(filepath.Base(path), ".json")
	if base != "config" {
		return base
	}
	for _, fields := range []map[string]json.RawMessage{c.outer, c.top} {
		var of string
		if json.Unmarshal(fields["_name_or_path"], &of) == nil && publishedName.MatchString(of) {
			return of[strings.LastIndexByte(of, '/')+1:]
		}
	}
	if dir := filepath.Base(filepath.Dir(path)); dir != "." && dir != string(filepath.Separator) && dir != ".." {
		return dir
	}
	if t, ok := c.text("model_type"); ok {
		return t
	}
	return base
}

// architecture is the class of the whole model; empty where the file does not say.
func (c *config) architecture() string {
	for _, fields := range []map[string]json.RawMessage{c.outer, c.top} {
		var classes []string
		if json.Unmarshal(fields["architectures"], &classes) == nil && len(classes) > 0 {
			return classes[0]
		}
	}
	return ""
}

// shape is the whole reading; what is wrong lands in c.errs.
func (c *config) shape() Shape {
	f := c.family()
	c.refuseMisspelt()
	c.refuseUnmodelled()
	s := Shape{
		Hidden:       c.size(f, "hidden_size"),
		Vocabulary:   c.size(f, "vocab_size"),
		QueryHeads:   c.size(f, "num_attention_heads"),
		ContextLimit: c.contextLimit(f),
		Tied:         c.tied(f),
		Ungated:      c.ungated(f),
	}
	layers := c.size(f, "num_hidden_layers")
	if layers > maxLayers {
		c.bad("num_hidden_layers", "must be at most %d", maxLayers)
	}
	if len(c.errs) > 0 {
		return s // the rest would only repeat it
	}
	windowed, window := c.windows(f, layers, s.ContextLimit)
	c.attention(f, &s, windowed, window)
	c.experts(f, &s, layers)
	if s.DenseLayers() > 0 {
		s.FFN = c.size(f, "intermediate_size")
	}
	c.precisions(&s, layers)
	return s
}

// attention splits the layers into the two kinds and reads the geometry of either.
func (c *config) attention(f family, s *Shape, windowed []bool, window int) {
	n := 0
	for _, w := range windowed {
		if w {
			n++
		}
	}
	if _, mla := c.int("kv_lora_rank"); mla {
		if n > 0 {
			c.bad("sliding_window", "latent attention (kv_lora_rank) with a window is not modelled")
		}
		s.Full = Attention{Layers: len(windowed), MLA: c.latent(f)}
		return
	}
	base := Attention{KVHeads: c.kvHeads(f, s.QueryHeads), HeadDim: c.headDim(f, s)}
	if v, ok := c.int("v_head_dim"); ok && v != base.HeadDim {
		c.bad("v_head_dim", "values of another width than keys (head_dim %d) are modelled only with kv_lora_rank", base.HeadDim)
	}
	full := base
	if d, ok := c.int("global_head_dim"); ok && c.atLeast1("global_head_dim", d) {
		full.HeadDim = d
	} else if f.globalHeadDim > 0 && !c.has("per_layer_config") {
		full.HeadDim = f.globalHeadDim
	}
	if c.flag("attention_k_eq_v") {
		full.SharedV = true
		// transformers reads it beside attention_k_eq_v alone.
		if h, ok := c.int("num_global_key_value_heads"); ok {
			full.KVHeads = h
			c.divides("num_global_key_value_heads", h, "num_attention_heads", s.QueryHeads)
		}
	}
	c.overrides(windowed, &full, &base, s.QueryHeads)
	if n > 0 {
		s.Window, s.WindowTokens = base, window
		s.Window.Layers = n
	}
	if full.Layers = len(windowed) - n; full.Layers > 0 {
		s.Full = full
	}
}

func (c *config) latent(f family) MLA {
	m := MLA{
		KVRank:   c.size(f, "kv_lora_rank"),
		RopeDim:  c.size(f, "qk_rope_head_dim"),
		NopeDim:  c.size(f, "qk_nope_head_dim"),
		ValueDim: c.size(f, "v_head_dim"),
	}
	switch q, ok := c.int("q_lora_rank"); {
	case ok && q > 0:
		m.QRank = q
	case !c.mentions("q_lora_rank"):
		c.missing("q_lora_rank", "null where queries are not compressed")
	}
	return m
}

func (c *config) kvHeads(f family, queryHeads int) int {
	h, ok := c.int("num_key_value_heads")
	if !ok {
		if d := f.defaults["num_key_value_heads"]; d > 0 && !c.mentions("num_key_value_heads") {
			h = d
		} else if f.multiHead || c.mentions("num_key_value_heads") { // null
			return queryHeads
		} else {
			c.missing("num_key_value_heads", "as large as num_attention_heads where every head has its own keys and values")
			return 0
		}
	}
	c.divides("num_key_value_heads", h, "num_attention_heads", queryHeads)
	return h
}

func (c *config) divides(key string, v int, of string, n int) {
	if v < 1 {
		c.bad(key, "must be at least 1")
	} else if n > 0 && n%v != 0 {
		c.bad(key, "must divide %s, %d", of, n)
	}
}

func (c *config) headDim(f family, s *Shape) int {
	if d, ok := c.int("head_dim"); ok {
		c.atLeast1("head_dim", d)
		return d
	}
	if f.headDim > 0 && !c.mentions("head_dim") {
		return f.headDim
	}
	if s.Hidden%s.QueryHeads != 0 {
		c.bad("hidden_size", "must be a multiple of num_attention_heads, %d, where head_dim is not given", s.QueryHeads)
		return 0
	}
	return s.Hidden / s.QueryHeads
}

// overrides applies per_layer_config, in which transformers writes what differs from the rest of the file, by the layer's index.
func (c *config) overrides(windowed []bool, full, window *Attention, queryHeads int) {
	layers := c.objects("per_layer_config")
	if len(layers) == 0 {
		return
	}
	byLayer := make(map[int]*config, len(layers))
	for _, key := range sortedKeys(layers) {
		i, err := strconv.Atoi(key) // zeros may stand before it
		if err != nil || i < 0 || i >= len(windowed) || byLayer[i] != nil {
			c.errs = append(c.errs, fmt.Sprintf("per_layer_config.%s: must be the number of a layer, from 0 to %d, once", key, len(windowed)-1))
			return
		}
		byLayer[i] = layers[key]
	}
	type geometry struct{ kvHeads, headDim int }
	var seen [2]map[geometry]int
	for i := range seen {
		seen[i] = map[geometry]int{}
	}
	kind := func(i int) (int, *Attention) {
		if windowed[i] {
			return 1, window
		}
		return 0, full
	}
	for i := range windowed {
		n, a := kind(i)
		g := geometry{a.KVHeads, a.HeadDim}
		if l, ok := byLayer[i]; ok {
			for _, key := range sortedKeys(l.top) {
				switch key {
				case "head_dim":
					g.headDim, _ = l.int(key)
				case "num_key_value_heads":
					g.kvHeads, _ = l.int(key)
					l.divides(key, g.kvHeads, "num_attention_heads", queryHeads)
				default:
					l.bad(key, "of the keys of per_layer_config only head_dim and num_key_value_heads are modelled")
				}
			}
			for _, e := range l.errs {
				c.errs = append(c.errs, fmt.Sprintf("per_layer_config.%d.%s", i, e))
			}
		}
		seen[n][g]++
	}
	for n, a := range []*Attention{full, window} {
		if len(seen[n]) > 1 {
			c.bad("per_layer_config", "layers of one kind (with or without a window) must have the same heads")
		}
		for g := range seen[n] {
			a.KVHeads, a.HeadDim = g.kvHeads, g.headDim
			if g.headDim < 1 || g.kvHeads < 1 {
				c.bad("per_layer_config", "head_dim and num_key_value_heads must be at least 1")
			}
		}
	}
}

func (c *config) tied(f family) bool {
	inner, in := c.bool("tie_word_embeddings")
	outer, out := c.outerBool("tie_word_embeddings")
	switch {
	case in && out && inner != outer:
		c.errs = append(c.errs, fmt.Sprintf("tie_word_embeddings is %v, and %v in %s: must agree", outer, inner, c.nested))
		return inner
	case in:
		return inner
	case out:
		return outer
	case !f.known:
		c.missing("tie_word_embeddings", "true or false: "+c.familyName()+" is not a family whose default is known")
	default:
	}
	return f.tied
}

func (c *config) ungated(f family) bool {
	if f.known {
		return f.ungated
	}
	act, ok := c.text("hidden_act", "hidden_activation")
	switch act {
	case "silu", "swish", "swiglu":
	case "":
		if !ok {
			c.missing("hidden_act", "silu, if the feed-forward network is gated: "+c.familyName()+" is not a family that is known")
		}
	default:
		c.bad(c.which("hidden_act", "hidden_activation"),
			"whether the feed-forward network is gated is known of silu alone, and %s is not a family that is known", c.familyName())
	}
	return false
}

// contextLimit is max_position_embeddings, longer where the positions are stretched: engines take factor times the original length.
func (c *config) contextLimit(f family) int {
	n := c.size(f, "max_position_embeddings")
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		rope, ok := c.object(key)
		if !ok {
			continue
		}
		kind, _ := rope.text("rope_type", "type")
		factor, ok := rope.number("factor")
		for _, e := range rope.errs {
			c.errs = append(c.errs, key+"."+e)
		}
		if !ok || factor <= 0 {
			continue
		}
		limit := 0.0
		switch kind {
		case "yarn", "deepseek_yarn":
			if original, ok := rope.int("original_max_position_embeddings"); ok {
				limit = float64(original) * factor
			} else {
				limit = float64(n) * factor
			}
		case "linear", "dynamic":
			if !f.stretched {
				limit = float64(n) * factor
			}
		}
		if limit > maxSize {
			c.bad(key, "stretches the context to %.0f tokens: must be at most %d", limit, maxSize)
			break
		}
		n = max(n, int(limit))
		break
	}
	return n
}
