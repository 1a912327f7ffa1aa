package model

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// precisions reads how the checkpoint is stored.
func (c *config) precisions(s *Shape, layers int) {
	c.dtype()
	key := "quantization_config"
	q, ok := c.object(key)
	if !ok && c.outer != nil {
		q, ok = (&config{top: c.outer}).object(key)
	}
	if !ok {
		if q, ok = c.object("compression_config"); !ok {
			return
		}
		key = "compression_config"
	}
	p := q.quantization()
	if len(q.errs) == 0 {
		s.Weights = q.stored(*s, p, layers)
	}
	for _, e := range q.errs {
		c.errs = append(c.errs, key+"."+e)
	}
}

// dtype refuses numbers that are not known. float32 is halved by engines.
func (c *config) dtype() {
	key := "dtype" // stands before the old name where both are given
	t, ok := c.text(key)
	if !ok {
		if t, ok = c.text("torch_dtype"); ok {
			key = "torch_dtype"
		}
	}
	if !ok {
		if t, ok = c.outerText(key); !ok {
			t, _ = c.outerText("torch_dtype")
		}
	}
	switch strings.TrimPrefix(t, "torch.") {
	case "", "auto", "bfloat16", "float16", "float32", "half", "float":
	default:
		c.errs = append(c.errs, fmt.Sprintf("%s is %q: must be bfloat16, float16 or float32 (quantization_config says what is smaller)", key, t))
	}
}

// quantization is how the layers that are quantized at all are stored.
func (c *config) quantization() Precision {
	method, ok := c.text("quant_method")
	if !ok {
		if !c.has("quant_algo") {
			c.missing("quant_method", "")
			return ""
		}
		method = "modelopt"
	}
	switch method {
	case "fp8", "fbgemm_fp8":
		return FP8
	case "mxfp4":
		return MXFP4
	case "mxfp8":
		return MXFP8
	case "gptq", "awq", "auto-round", "auto_round", "gptq_marlin", "awq_marlin":
		bits, ok := c.int("bits", "w_bit")
		if !ok {
			c.missing("bits", "4 or 8")
			return ""
		}
		if d, ok := c.object("dynamic"); ok && len(d.top) > 0 {
			c.bad("dynamic", "modules that are stored differently are not modelled")
		}
		return c.integer(c.which("bits", "w_bit"), bits)
	case "bitsandbytes":
		switch {
		case c.flag("load_in_8bit"):
			return INT8
		case c.flag("load_in_4bit"):
			return FP4
		}
		c.missing("load_in_4bit", "this or load_in_8bit must be true")
	case "compressed-tensors":
		return c.compressed()
	case "modelopt", "modelopt_fp4", "modelopt_fp8":
		algo, ok := c.text("quant_algo")
		switch {
		case !ok:
			c.missing("quant_algo", "")
		case algo == "FP8" || strings.HasPrefix(algo, "FP8_"):
			return FP8
		case algo == "MXFP8":
			return MXFP8
		case strings.Contains(algo, "NVFP4"):
			return NVFP4
		case strings.HasPrefix(algo, "W4A16") || strings.HasPrefix(algo, "W4A8"):
			return INT4
		case strings.HasPrefix(algo, "W8A"):
			return INT8
		default:
			c.bad("quant_algo", "must be FP8, MXFP8, NVFP4, W4A16, W4A8 or W8A8: mixtures are not modelled")
		}
	default:
		c.bad("quant_method", "must be awq, bitsandbytes, compressed-tensors, fp8, gptq, modelopt, mxfp4 or mxfp8")
	}
	return ""
}

func (c *config) integer(key string, bits int) Precision {
	switch bits {
	case 4:
		return INT4
	case 8:
		return INT8
	}
	c.bad(key, "must be 4 or 8")
	return ""
}

// compressed reads the scheme of compressed-tensors; several groups must store weights alike.
func (c *config) compressed() Precision {
	groups := c.objects("config_groups")
	if len(groups) == 0 {
		c.missing("config_groups", "at least one")
		return ""
	}
	var p Precision
	for _, name := range sortedKeys(groups) {
		var targets []string
		if _, raw := groups[name].raw("targets"); raw != nil && (json.Unmarshal(raw, &targets) != nil || !slices.Equal(targets, []string{"Linear"})) {
			c.errs = append(c.errs, fmt.Sprintf("config_groups.%s.targets is %s: must be [\"Linear\"], all linear layers", name, short(raw)))
			return ""
		}
		w, ok := groups[name].object("weights")
		if !ok {
			continue // activations alone
		}
		bits, _ := w.int("num_bits")
		kind, _ := w.text("type")
		group, _ := w.int("group_size")
		var q Precision
		switch {
		case kind == "int" && bits == 4:
			q = INT4
		case kind == "int" && bits == 8:
			q = INT8
		case kind == "float" && bits == 8 && group == 32:
			q = MXFP8
		case kind == "float" && bits == 8:
			q = FP8
		case kind == "float" && bits == 4 && group == 16:
			q = NVFP4
		case kind == "float" && bits == 4 && group == 32:
			q = MXFP4
		default:
			c.errs = append(c.errs, fmt.Sprintf("config_groups.%s.weights is %s of %d bits: must be int or float of 4 or 8 bits, float of 4 bits in groups of 16 or 32",
				name, strconv.Quote(kind), bits))
			return ""
		}
		if p != "" && q != p {
			c.errs = append(c.errs, fmt.Sprintf("config_groups.%s stores weights as %s, another group as %s: mixtures are not modelled", name, q, p))
			return ""
		}
		p = q
	}
	if p == "" {
		c.bad("config_groups", "no group has weights")
	}
	return p
}

var (
	layerNumber = regexp.MustCompile(`layers\\?\.(\d+)`)
	wholeLayer  = regexp.MustCompile(`layers\\?\.(\d+|\*)(\\?\.?\*)?$`)
)

// stored spreads p over the parts of the model that the quantization does not leave out. Parts are left out by lists of modules:
// names, patterns with *, or regular expressions after re:. What matters is which part a name means, and in how many layers.
func (c *config) stored(s Shape, p Precision, layers int) Precisions {
	const attention, dense, experts = 0, 1, 2
	names := [3]string{"attention", "the dense and shared feed-forward networks", "the experts"}
	var everywhere [3]bool
	var some [3]map[int]bool
	for i := range some {
		some[i] = map[int]bool{}
	}
	head := c.flag("lm_head")
	for _, key := range []string{"ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "llm_int8_skip_modules"} {
		_, raw := c.raw(key)
		if raw == nil {
			continue
		}
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			c.bad(key, "must be a list of module names")
			continue
		}
		for _, module := range list {
			leaves := func(parts ...int) {
				for _, part := range parts {
					m := layerNumber.FindStringSubmatch(module)
					if m == nil {
						everywhere[part] = true
					} else if n, err := strconv.Atoi(m[1]); err == nil && n < layers { // later ones only speculate
						some[part][n] = true
					}
				}
			}
			switch has := func(part string) bool { return strings.Contains(module, part) }; {
			case has("vis") || has("audio") || has("projector") || has("mtp") || has("lm_head") || has("embed") || has("norm"):
			case has("attn") || has("attention"):
				if !has("_proj") || has("o_proj") || has("out_proj") {
					leaves(attention)
				}
			case has("shared_expert_gate"), has("router"), strings.HasSuffix(strings.TrimSuffix(module, "$"), "gate"):
			case has("_proj") && !has("down"): // told by the down projection beside it
			case has("shared_expert"):
				leaves(dense)
			case has("expert"):
				leaves(experts)
			case (has("mlp") || has("feed_forward")) && has("_proj"):
				leaves(dense)
			case has("mlp") || has("feed_forward"):
				leaves(dense, experts)
			case wholeLayer.MatchString(module):
				leaves(attention, dense, experts)
			}
		}
	}
	exists := [3]bool{true, s.DenseLayers() > 0 || s.MoE.SharedFFN > 0, s.MoELayers() > 0}
	total := [3]int{layers, layers, s.MoELayers()}
	if s.MoE.SharedFFN == 0 {
		total[dense] = s.DenseLayers()
	}
	var of [3]Precision
	for part := range of {
		if of[part] = p; everywhere[part] || len(some[part]) >= total[part] {
			of[part] = BF16
		} else if n := len(some[part]); n > 0 && exists[part] {
			c.errs = append(c.errs, fmt.Sprintf("%s leaves out %s of %d of %d layers: only all or none is modelled",
				c.which("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "llm_int8_skip_modules"), names[part], n, total[part]))
			return Precisions{}
		}
	}
	if method, _ := c.text("quant_method"); method == "mxfp4" && s.MoELayers() > 0 {
		of[attention], of[dense] = BF16, BF16 // transformers' mxfp4 is of experts alone
	}
	w := Precisions{Linear: of[dense]}
	if !exists[dense] {
		w.Linear = of[attention]
	}
	if of[attention] != w.Linear {
		w.Attention = of[attention]
	}
	if exists[experts] && of[experts] != w.Linear {
		w.Experts = of[experts]
	}
	if head {
		w.Head = p
	}
	if w.Linear == BF16 {
		w.Linear = ""
	}
	return w
}
