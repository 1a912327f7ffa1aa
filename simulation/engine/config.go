package engine

import (
	"errors"
	"fmt"
	"math"
)

// Config is a model on a GPU with a recipe.
type Config struct {
	Model  Shape
	GPU    GPU
	Recipe Recipe
}

// Recipe is how the engine is started. The zero value is SGLang's defaults.
type Recipe struct {
	ChunkedPrefill   int     // most tokens a prefill step computes; 0: 2048 below 20 GiB of GPU memory, 4096 below 60, 8192 below 160, else 16384
	MaxRunning       int     // most requests at a time; 0: 256
	MemFraction      float64 // part of GPU memory for weights, activations and KV; 0: .88
	KVTokens         int     // the pool holds one sequence of so many tokens, in hybrid models with its window; 0: what memory leaves
	ContextLimit     int     // tokens of prompt and reply together; 0: the model's
	MaxPrefillTokens int     // bounds a prefill step as ChunkedPrefill does, the lower one wins; 0: 16384
}

// activationReserve is what activations, CUDA graphs and the CUDA context take beside weights and KV.
const activationReserve = 2_000_000_000

// Filled returns c with what the zeros of its recipe and GPU stand for.
func (c Config) Filled() Config {
	c.GPU = c.GPU.filled()
	r := &c.Recipe
	if r.ChunkedPrefill == 0 {
		r.ChunkedPrefill = defaultChunk(c.GPU.Memory)
	}
	if r.MaxRunning == 0 {
		r.MaxRunning = 256
	}
	if r.MemFraction == 0 {
		r.MemFraction = .88
	}
	if r.ContextLimit == 0 {
		r.ContextLimit = c.Model.ContextLimit
	}
	if r.MaxPrefillTokens == 0 {
		r.MaxPrefillTokens = 16384
	}
	return c
}

func defaultChunk(memory int64) int {
	switch {
	case memory < 20<<30:
		return 2048
	case memory < 60<<30:
		return 4096
	case memory < 160<<30:
		return 8192
	}
	return 16384
}

// PoolBytes is the size of the KV pool: the recipe's part of the GPU's memory less weights and what activations need. It is
// negative when the model does not fit.
func (c Config) PoolBytes() int64 {
	c = c.Filled()
	if c.Recipe.KVTokens > 0 {
		return c.Model.SequenceBytes(c.Recipe.KVTokens)
	}
	return c.budget() - c.Model.WeightBytes() - activationReserve
}

func (c Config) budget() int64 { return int64(float64(c.GPU.Memory) * c.Recipe.MemFraction) }

// Validate says which field breaks which rule, the first one it meets.
func (c Config) Validate() error {
	if err := c.Model.validate(); err != nil {
		return err
	}
	if err := c.GPU.validate(); err != nil {
		return err
	}
	c = c.Filled()
	if err := c.Recipe.validate(c.Model); err != nil {
		return err
	}
	if pool, need := c.PoolBytes(), c.Model.SequenceBytes(2); pool < need {
		return fmt.Errorf("recipe does not fit: %s needs %.1f GB for weights and %.1f GB for activations, "+
			"mem_fraction %.2f of %s gives %.1f GB, %.1f GB too little",
			c.Model.Name, gb(c.Model.WeightBytes()), gb(activationReserve), c.Recipe.MemFraction, c.GPU.Name, gb(c.budget()),
			math.Ceil(gb(need-pool)*10)/10)
	}
	return nil
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }

func (r Recipe) validate(m Shape) error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"chunked_prefill", r.ChunkedPrefill}, {"max_running", r.MaxRunning}, {"context_limit", r.ContextLimit},
		{"max_prefill_tokens", r.MaxPrefillTokens},
	} {
		if f.value < 1 {
			return fmt.Errorf("recipe: %s is %d, must be at least 1, or 0 for the default", f.name, f.value)
		}
	}
	if r.KVTokens < 0 || r.KVTokens == 1 {
		return fmt.Errorf("recipe: kv_tokens is %d, must be at least 2, or 0 for what memory leaves", r.KVTokens)
	}
	if r.ContextLimit > m.ContextLimit {
		return fmt.Errorf("recipe: context_limit is %d, must be at most the %d of %s", r.ContextLimit, m.ContextLimit, m.Name)
	}
	if !(r.MemFraction > 0 && r.MemFraction < 1) { // also refuses NaN
		return fmt.Errorf("recipe: mem_fraction is %v, must be between 0 and 1", r.MemFraction)
	}
	return nil
}

func (s Shape) validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"hidden", s.Hidden}, {"ffn", s.FFN}, {"vocabulary", s.Vocabulary}, {"query_heads", s.QueryHeads},
		{"full.layers", s.Full.Layers}, {"full.kv_heads", s.Full.KVHeads}, {"full.head_dim", s.Full.HeadDim},
		{"context_limit", s.ContextLimit},
	} {
		if f.value < 1 {
			return fmt.Errorf("model %q: %s is %d, must be at least 1", s.Name, f.name, f.value)
		}
	}
	w := s.Window
	if s.WindowTokens == 0 && w == (Attention{}) {
		return nil
	}
	if s.WindowTokens < 1 || w.Layers < 1 || w.KVHeads < 1 || w.HeadDim < 1 {
		return fmt.Errorf("model %q: window is %d tokens in %d layers of %d heads of %d, must be all 0 or all at least 1",
			s.Name, s.WindowTokens, w.Layers, w.KVHeads, w.HeadDim)
	}
	return nil
}

func (g GPU) validate() error {
	if g.Memory < 1 {
		return fmt.Errorf("gpu %q: memory is %d, must be above 0", g.Name, g.Memory)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"bandwidth", g.Bandwidth}, {"flops", g.FLOPS}} {
		if !(f.value > 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("gpu %q: %s is %v, must be above 0", g.Name, f.name, f.value)
		}
	}
	g = g.filled()
	for _, f := range []struct {
		name        string
		value, most float64
	}{
		{"prefill_attention.narrow", g.PrefillAttention.Narrow, g.FLOPS}, {"prefill_attention.wide", g.PrefillAttention.Wide, g.FLOPS},
		{"prefill_attention.window", g.PrefillAttention.Window, g.FLOPS},
		{"decode_attention.full", g.DecodeAttention.Full, 1}, {"decode_attention.window", g.DecodeAttention.Window, 1},
	} {
		if !(f.value > 0 && f.value <= f.most) {
			return fmt.Errorf("gpu %q: %s is %v, must be above 0 and at most %v", g.Name, f.name, f.value, f.most)
		}
	}
	if err := g.GEMM.validate(); err != nil {
		return fmt.Errorf("gpu %q: gemm: %w", g.Name, err)
	}
	if err := g.Stream.validate(); err != nil {
		return fmt.Errorf("gpu %q: stream: %w", g.Name, err)
	}
	return nil
}

var errFlat = errors.New("a fraction grows faster than m, so that more rows would take less time")

func (c Curve) validate() error {
	for i, p := range c {
		if !(p.Fraction > 0 && p.Fraction <= 1) || p.M < 1 {
			return fmt.Errorf("point %d is %v, must have m of at least 1 and a fraction above 0 and at most 1", i, p)
		}
		if i == 0 {
			continue
		}
		if p.M <= c[i-1].M {
			return fmt.Errorf("point %d is %v, must have more m than the one before", i, p)
		}
		if p.Fraction/c[i-1].Fraction > float64(p.M)/float64(c[i-1].M) {
			return fmt.Errorf("point %d is %v: %w", i, p, errFlat)
		}
	}
	return nil
}
