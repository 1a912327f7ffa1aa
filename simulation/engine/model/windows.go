package model

import "slices"

// windows says which layers have a sliding window, and how long it is.
func (c *config) windows(f family, layers, context int) ([]bool, int) {
	windowed := make([]bool, layers)
	window, given := c.int("sliding_window")
	if given && window < 0 {
		c.bad("sliding_window", "must be at least 1, or null")
	}
	off := window < 1
	if use, ok := c.bool("use_sliding_window"); ok && !use || !ok && f.optIn {
		off = true
	}
	if types, ok := c.texts("layer_types", layers); ok {
		for i, t := range types {
			switch t {
			case "sliding_attention":
				windowed[i] = true
			case "full_attention", "attention":
			default:
				c.bad("layer_types", "%q of layer %d is not modelled: only full_attention and sliding_attention are", t, i)
				return windowed, 0
			}
		}
		if slices.Contains(windowed, true) && off {
			if use, ok := c.bool("use_sliding_window"); ok && !use {
				c.bad("use_sliding_window", "layer_types has sliding_attention")
			} else if given || c.mentions("sliding_window") {
				c.bad("sliding_window", "layer_types has sliding_attention: must be its length in tokens")
			} else if !f.optIn {
				c.missing("sliding_window", "the length in tokens, as layer_types has sliding_attention")
			} else {
				c.missing("use_sliding_window", "true, as layer_types has sliding_attention")
			}
		}
		if every, ok := c.int("sliding_window_pattern", "_sliding_window_pattern"); ok && every > 0 && !off {
			for i, w := range windowed {
				if last := f.lastFull && i == layers-1; !last && w != ((i+1)%every != 0) {
					c.bad("layer_types", "layer %d contradicts sliding_window_pattern, %d, which makes every %dth layer full", i, every, every)
					break
				}
			}
		}
		return c.outgrown(windowed, window, context)
	}
	if !given && !c.mentions("sliding_window") && f.every > 0 {
		c.missing("sliding_window", "null where no layer has one")
		return windowed, 0
	}
	if off {
		return windowed, 0
	}
	every, ok := c.int("sliding_window_pattern", "_sliding_window_pattern")
	first, behind := c.int("max_window_layers")
	switch {
	case ok && every < 1:
		c.bad(c.which("sliding_window_pattern", "_sliding_window_pattern"), "must be at least 1")
		return windowed, 0
	case ok:
	case behind:
		for i := range windowed {
			windowed[i] = i >= first
		}
		return c.outgrown(windowed, window, context)
	case f.every > 0:
		every = f.every
	case f.allWindow:
		every = layers + 1
	default:
		c.bad("sliding_window", "nothing says which layers have it: add layer_types (or null, for none)")
		return windowed, 0
	}
	for i := range windowed {
		windowed[i] = (i+1)%every != 0 && !(f.lastFull && i == layers-1)
	}
	return c.outgrown(windowed, window, context)
}

// outgrown makes windows full that no sequence is longer than.
func (c *config) outgrown(windowed []bool, window, context int) ([]bool, int) {
	if !slices.Contains(windowed, true) || window >= context {
		return make([]bool, len(windowed)), 0
	}
	return windowed, window
}
