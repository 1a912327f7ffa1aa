package kv

import (
	"fmt"
	"slices"
)

// New returns an empty store, or says why the config cannot be.
func New(c Config) (Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Eviction == "" {
		c.Eviction = LRU
	}
	var s Store
	switch {
	case c.Scheme == VLLM || c.Scheme == VLLMOld:
		s = newBlocks(c)
	case c.Scheme == SGLang && c.WindowBytes > 0:
		s = newTwoPools(c)
	default:
		s = newShared(c)
	}
	if c.HostBytes > 0 && !c.NoPrefix {
		s = newTiered(c, s)
	}
	return s, nil
}

// Schemes are the names of all schemes.
func Schemes() []Scheme { return []Scheme{Ideal, SGLang, Unified, VLLM, VLLMOld} }

// Evictions are the names of all policies.
func Evictions() []Eviction { return []Eviction{LRU, LFU, FIFO, MRU, FILO} }

// validate names what is wrong, and the rule.
func (c Config) validate() error {
	hashed := c.Scheme == VLLM || c.Scheme == VLLMOld
	switch {
	case !slices.Contains(Schemes(), c.Scheme):
		return fmt.Errorf("kv: scheme is %q, must be one of %q", c.Scheme, Schemes())
	case c.Pool < 1:
		return fmt.Errorf("kv: pool is %d bytes, must be at least 1", c.Pool)
	case c.FullBytes < 1:
		return fmt.Errorf("kv: full bytes is %d, must be at least 1: without layers that attend to everything, count the others as such", c.FullBytes)
	case c.WindowBytes < 0 || c.WindowTokens < 0 || (c.WindowBytes == 0) != (c.WindowTokens == 0):
		return fmt.Errorf("kv: window bytes is %d and window tokens %d, must be both positive or both 0", c.WindowBytes, c.WindowTokens)
	case hashed && c.WindowBytes > 0 && (c.FullLayers < 1 || c.WindowLayers < 1):
		return fmt.Errorf("kv: full layers is %d and window layers %d, must both be at least 1 with scheme %q, which groups them",
			c.FullLayers, c.WindowLayers, c.Scheme)
	case c.FullLayers < 0 || c.WindowLayers < 0:
		return fmt.Errorf("kv: full layers is %d and window layers %d, must not be negative", c.FullLayers, c.WindowLayers)
	case c.PageTokens < 0:
		return fmt.Errorf("kv: page tokens is %d, must be at least 1, or 0 for the default", c.PageTokens)
	case !(c.WindowRatio >= 0 && c.WindowRatio <= 1):
		return fmt.Errorf("kv: window ratio is %v, must be above 0 and at most 1, or 0 for the default of %v", c.WindowRatio, defaultRatio)
	case c.Eviction != "" && !slices.Contains(Evictions(), c.Eviction):
		return fmt.Errorf("kv: eviction is %q, must be one of %q", c.Eviction, Evictions())
	case hashed && c.Eviction != "" && c.Eviction != LRU:
		return fmt.Errorf("kv: eviction is %q, must be %q with scheme %q, which has one queue", c.Eviction, LRU, c.Scheme)
	case c.StepTokens < 0:
		return fmt.Errorf("kv: step tokens is %d, must not be negative", c.StepTokens)
	case c.HostBytes < 0:
		return fmt.Errorf("kv: host bytes is %d, must not be negative", c.HostBytes)
	}
	return nil
}
