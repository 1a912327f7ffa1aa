package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// config is a config.json being read: it hands out fields and collects what is wrong with them.
type config struct {
	top    map[string]json.RawMessage // the language model's fields
	outer  map[string]json.RawMessage // the whole file's, where the language model is an object in it
	nested string                     // that object's key
	errs   []string
}

const maxConfigBytes = 16 << 20

// parseConfig splits the file into fields.
func parseConfig(r io.Reader) (*config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigBytes {
		return nil, fmt.Errorf("longer than %d bytes: not a config.json", maxConfigBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	var top map[string]json.RawMessage
	if err := d.Decode(&top); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n")), err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("the file ends inside its JSON object")
		}
		return nil, errors.New("must be a JSON object of fields, as Hugging Face's config.json is")
	}
	if top == nil {
		return nil, errors.New("must be a JSON object of fields, as Hugging Face's config.json is")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	c := &config{top: top}
	for _, key := range []string{"text_config", "llm_config", "language_config"} {
		raw, ok := top[key]
		if !ok || string(raw) == "null" {
			continue
		}
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(raw, &inner); err != nil || inner == nil {
			return nil, fmt.Errorf("%s is %s: must be an object", key, short(raw))
		}
		c.top, c.outer, c.nested = inner, top, key
		break
	}
	return c, nil
}

// field is the key as the file's reader finds it.
func (c *config) field(key string) string {
	if _, inside := c.top[key]; c.nested != "" && (inside || c.outer[key] == nil) {
		return c.nested + "." + key
	}
	return key
}

func (c *config) bad(key, rule string, args ...any) {
	raw, ok := c.top[key]
	if !ok {
		raw = c.outer[key]
	}
	c.errs = append(c.errs, fmt.Sprintf("%s is %s: %s", c.field(key), short(raw), fmt.Sprintf(rule, args...)))
}

// missing says that key has to be there, unless it is taken for misspelt.
func (c *config) missing(key, say string) {
	for _, e := range c.errs {
		if strings.HasSuffix(e, " is not a field: is it "+key+"?") {
			return
		}
	}
	e := c.field(key) + " is missing"
	if say != "" {
		e += ": " + say
	}
	c.errs = append(c.errs, e)
}

// refuseMisspelt names keys that are no field, and all but spelt as one that is not there.
func (c *config) refuseMisspelt() {
	for _, key := range sortedKeys(c.top) {
		if len(key) < 6 || slices.Contains(readFields, key) || slices.Contains(otherFields, key) {
			continue
		}
		for _, field := range readFields {
			if !c.mentions(field) && distance(strings.ToLower(key), field) <= 2 {
				c.errs = append(c.errs, fmt.Sprintf("%s is not a field: is it %s?", c.field(key), field))
				break
			}
		}
	}
}

// raw finds the first of keys that is given and not null. Where several are, they must agree.
func (c *config) raw(keys ...string) (string, json.RawMessage) {
	var key string
	var found json.RawMessage
	for _, k := range keys {
		raw, ok := c.top[k]
		if !ok || string(raw) == "null" {
			continue
		}
		if found == nil {
			key, found = k, raw
		} else if string(raw) != string(found) {
			e := fmt.Sprintf("%s is %s: contradicts %s, %s", c.field(k), short(raw), key, short(found))
			if !slices.Contains(c.errs, e) {
				c.errs = append(c.errs, e)
			}
		}
	}
	return key, found
}

// which of keys is given; the first if none is.
func (c *config) which(keys ...string) string {
	for _, k := range keys {
		if raw, ok := c.top[k]; ok && string(raw) != "null" {
			return k
		}
	}
	return keys[0]
}

// mentions reports whether key is there, be it null.
func (c *config) mentions(key string) bool {
	_, ok := c.top[key]
	return ok
}

// has reports whether key is there and not null.
func (c *config) has(key string) bool {
	raw, ok := c.top[key]
	return ok && string(raw) != "null"
}

func (c *config) isList(key string) bool { return bytes.HasPrefix(c.top[key], []byte("[")) }

// int is a whole number that is given under one of keys.
func (c *config) int(keys ...string) (int, bool) {
	key, raw := c.raw(keys...)
	if raw == nil {
		return 0, false
	}
	var v int
	if c.isList(key) {
		c.once(key, "must be a whole number: different ones for each layer are not modelled")
		return 0, false
	}
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be a whole number")
		return 0, false
	}
	return v, true
}

func (c *config) number(key string) (float64, bool) {
	_, raw := c.raw(key)
	if raw == nil {
		return 0, false
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be a number")
		return 0, false
	}
	return v, true
}

func (c *config) bool(keys ...string) (bool, bool) {
	key, raw := c.raw(keys...)
	return c.truth(key, raw)
}

func (c *config) outerBool(key string) (bool, bool) {
	if raw := c.outer[key]; raw != nil && string(raw) != "null" {
		return c.truth(key, raw)
	}
	return false, false
}

func (c *config) truth(key string, raw json.RawMessage) (value, ok bool) {
	if raw == nil {
		return false, false
	}
	if json.Unmarshal(raw, &value) != nil {
		c.once(key, "must be true or false")
		return false, false
	}
	return value, true
}

// flag is false where key is not given.
func (c *config) flag(key string) bool {
	v, _ := c.bool(key)
	return v
}

func (c *config) text(keys ...string) (string, bool) {
	key, raw := c.raw(keys...)
	if raw == nil {
		return "", false
	}
	var v string
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be a string")
		return "", false
	}
	return v, true
}

func (c *config) outerText(key string) (string, bool) {
	var v string
	raw, ok := c.outer[key]
	return v, ok && json.Unmarshal(raw, &v) == nil && v != ""
}

// texts is a list with an entry for each layer.
func (c *config) texts(key string, layers int) ([]string, bool) {
	_, raw := c.raw(key)
	if raw == nil {
		return nil, false
	}
	var v []string
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be a list of strings")
		return nil, false
	}
	if len(v) != layers {
		c.errs = append(c.errs, fmt.Sprintf("%s has %d entries: must have num_hidden_layers, %d", c.field(key), len(v), layers))
		return nil, false
	}
	return v, true
}

func (c *config) ints(key string) ([]int, bool) {
	_, raw := c.raw(key)
	if raw == nil {
		return nil, false
	}
	var v []int
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be a list of whole numbers")
		return nil, false
	}
	return v, true
}

// object is the fields of an object that is given under key.
func (c *config) object(key string) (*config, bool) {
	_, raw := c.raw(key)
	var v map[string]json.RawMessage
	if raw == nil {
		return nil, false
	}
	if json.Unmarshal(raw, &v) != nil {
		c.once(key, "must be an object")
		return nil, false
	}
	return &config{top: v}, true
}

// objects is an object of objects.
func (c *config) objects(key string) map[string]*config {
	o, ok := c.object(key)
	if !ok {
		return nil
	}
	all := make(map[string]*config, len(o.top))
	for k := range o.top {
		if inner, ok := o.object(k); ok {
			all[k] = inner
		}
	}
	for _, e := range o.errs {
		c.errs = append(c.errs, key+"."+e)
	}
	return all
}

// size is a number that a model cannot be without: given, or a default of its family.
func (c *config) size(f family, key string) int {
	v, ok := c.int(key)
	switch {
	case !ok && c.has(key): // told already
	case !ok && f.defaults[key] > 0 && !c.mentions(key):
		return f.defaults[key]
	case !ok:
		c.missing(key, "")
	case v < 1 || v > maxSize:
		c.once(key, fmt.Sprintf("must be from 1 to %d", maxSize))
	}
	return v
}

// once is bad, unless it has been told.
func (c *config) once(key, rule string) {
	n := len(c.errs)
	c.bad(key, "%s", rule)
	if slices.Contains(c.errs[:n], c.errs[n]) {
		c.errs = c.errs[:n]
	}
}

// short is a value as the file has it, cut where it is long.
func short(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	if s := []rune(b.String()); len(s) > 60 {
		return string(s[:57]) + "..."
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// distance counts the letters to insert, drop, change or swap with their neighbour to make b of a.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3 // far enough
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// readFields are the fields that have a meaning here.
var readFields = []string{
	"_sliding_window_pattern", "attention_k_eq_v", "compression_config", "decoder_sparse_step", "dtype",
	"enable_moe_block", "expert_intermediate_size", "first_k_dense_replace", "global_head_dim", "head_dim", "hidden_act",
	"hidden_activation", "hidden_size", "intermediate_size", "kv_lora_rank", "layer_types", "max_position_embeddings",
	"max_window_layers", "mlp_layer_types", "mlp_only_layers", "model_type", "moe_ffn_hidden_size", "moe_intermediate_size", "moe_k",
	"moe_layer_end_index", "moe_layer_freq", "moe_layer_interval", "moe_layer_start_index", "moe_num_experts",
	"moe_num_shared_experts", "moe_topk", "n_routed_experts", "n_shared_experts", "num_attention_heads", "num_dense_layers",
	"num_experts", "num_experts_per_tok", "num_experts_per_token", "num_global_key_value_heads", "num_hidden_layers",
	"num_key_value_heads", "num_kv_shared_layers", "num_local_experts", "num_routed_experts", "num_shared_expert",
	"num_shared_experts", "per_layer_config", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "quantization_config",
	"rope_parameters", "rope_scaling", "shared_expert_intermediate_size", "shared_intermediate_size", "sliding_window",
	"sliding_window_pattern", "tie_word_embeddings", "top_k_experts", "torch_dtype", "use_sliding_window", "v_head_dim", "vocab_size",
}

// otherFields look like one of readFields and are something else.
var otherFields = []string{"index_head_dim", "mtp_layer_types", "o_lora_rank", "qk_head_dim"}
