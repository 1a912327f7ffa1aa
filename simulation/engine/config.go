package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
	"kneefinder/simulation/engine/model"
)

// Config is a model on a GPU, or on several, with a recipe.
type Config struct {
	Model  model.Shape
	GPU    gpu.GPU
	Recipe Recipe
}

// Kind is whose engine is modelled: it says what the zeros of a recipe stand for.
type Kind string

// The kinds.
const (
	SGLang Kind = "sglang" // 0.5
	VLLM   Kind = "vllm"   // 1, as of 0.32
)

// Recipe is how the engine is started. The zero value is SGLang's defaults.
type Recipe struct {
	Kind      Kind      // empty: SGLang
	Scheduler Scheduler // empty: the kind's
	Order     Order     // empty: FCFS

	MaxRunning    int // most requests at a time; 0: 256, and 1024 with VLLM from 70 GiB of GPU memory on
	ContextLimit  int // tokens of prompt and reply together; 0: the model's
	BatchedTokens int // OneBudget: tokens of one step; 0: 2048, 8192 from 70 GiB of GPU memory on, 16384 from 160
	LongPrefill   int // OneBudget: most tokens of one prompt in a step; 0: no such limit

	// OneBudget: a step is put together when the one before it ends. Else, as vLLM does since 0.14, when that one begins, so that
	// what arrives meanwhile misses it.
	SyncScheduling bool

	ChunkedPrefill     int  // PrefillFirst: most tokens a prefill step computes; 0: 2048 below 20 GiB of GPU memory, 4096 below 60, 8192 below 160, else 16384; -1: prompts are not cut
	MaxPrefillTokens   int  // PrefillFirst: bounds a prefill step as ChunkedPrefill does, the lower one wins; 0: 16384
	MaxPrefillRequests int  // PrefillFirst: most prompts in a prefill step; 0: no such limit
	MixedChunk         bool // PrefillFirst: running requests decode beside a prefill

	MemFraction float64     // part of GPU memory for weights, activations and KV; 0: .88, and .9 with VLLM
	KVTokens    int         // the pool holds one sequence of so many tokens, in hybrid models with its window (with VLLM less what a step holds besides); 0: what memory leaves
	KVScheme    kv.Scheme   // empty: the kind's for this model
	PageTokens  int         // 0: 1, and 16 with VLLM
	WindowRatio float64     // of the pools of kv.SGLang; 0: .8
	Eviction    kv.Eviction // empty: kv.LRU
	NoPrefix    bool        // no prefix cache
	HostBytes   int64       // KV that leaves the GPU goes to so much host memory first

	TP, PP, EP, DP int  // how the model is spread over GPUs, see cost.Options; 0: 1
	Eager          bool // no CUDA graphs
	Speculate      Speculate
}

// Speculate is speculative decoding: a draft proposes Tokens tokens, which the model verifies in one step and takes up to the first wrong
// one.
type Speculate struct {
	Tokens     int     // 0: none
	Acceptance float64 // probability that a drafted token is right, each by itself
	DraftCost  float64 // time of one drafted token, as a part of a decode step's
}

// ahead reports whether steps are put together while the one before runs.
func (r Recipe) ahead() bool { return r.Scheduler == OneBudget && !r.SyncScheduling }

// Filled returns c with what the zeros of its recipe and GPU stand for.
func (c Config) Filled() Config {
	c.GPU = c.GPU.Filled()
	r := &c.Recipe
	set := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	if r.Kind == "" {
		r.Kind = SGLang
	}
	vllm, large := r.Kind == VLLM, c.GPU.Memory >= 70<<30
	if r.Scheduler == "" {
		r.Scheduler = PrefillFirst
		if vllm {
			r.Scheduler = OneBudget
		}
	}
	if r.Order == "" {
		r.Order = FCFS
	}
	if vllm && large {
		set(&r.MaxRunning, 1024)
	}
	set(&r.MaxRunning, 256)
	set(&r.ContextLimit, c.Model.ContextLimit)
	if c.GPU.Memory >= 160<<30 {
		set(&r.BatchedTokens, 16384)
	} else if large {
		set(&r.BatchedTokens, 8192)
	}
	set(&r.BatchedTokens, max(2048, r.MaxRunning))
	set(&r.ChunkedPrefill, defaultChunk(c.GPU.Memory))
	set(&r.MaxPrefillTokens, 16384)
	if r.MemFraction == 0 {
		r.MemFraction = .88
		if vllm {
			r.MemFraction = .9
		}
	}
	if r.KVScheme == "" {
		r.KVScheme = r.Kind.scheme(c.Model)
	}
	if r.Eviction == "" {
		r.Eviction = kv.LRU
	}
	if r.WindowRatio == 0 {
		r.WindowRatio = .8
	}
	for _, n := range []*int{&r.TP, &r.PP, &r.EP, &r.DP} {
		set(n, 1)
	}
	return c
}

// defaultChunk is SGLang's chunked_prefill_size by GPU memory.
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

// scheme is how an engine of that kind keeps the model's KV. SGLang 0.5.23 has no memory of windows for Gemma 2 and 3: each of their
// layers keeps every token.
func (k Kind) scheme(m model.Shape) kv.Scheme {
	switch {
	case k == VLLM:
		return kv.VLLM
	case m.WindowTokens == 0:
		return kv.Unified
	case strings.HasPrefix(m.Name, "gemma-2") || strings.HasPrefix(m.Name, "gemma-3") ||
		strings.HasPrefix(m.Architecture, "Gemma2") || strings.HasPrefix(m.Architecture, "Gemma3"):
		return kv.Unified
	}
	return kv.SGLang
}

// GPUs is how many the recipe takes.
func (c Config) GPUs() int { return c.options().GPUs() }

// options is the recipe's plan.
func (c Config) options() cost.Options {
	r := c.Filled().Recipe
	o := cost.Options{Engine: cost.Engine(r.Kind), TP: r.TP, PP: r.PP, EP: r.EP, DP: r.DP, Eager: r.Eager, MaxTokens: r.BatchedTokens,
		Draft: cost.Draft{Tokens: r.Speculate.Tokens, Cost: r.Speculate.DraftCost}}
	if r.Scheduler == PrefillFirst {
		o.MaxTokens = r.MaxPrefillTokens
		if r.ChunkedPrefill > 0 {
			o.MaxTokens = min(o.MaxTokens, r.ChunkedPrefill)
		}
	}
	return o
}

// kernel compiles the step times.
func (c Config) kernel() (*cost.Kernel, error) { return cost.New(c.Model, c.GPU, c.options()) }

// store is the KV memory of one of the GPUs; the others' are alike. With data-parallel attention it is that of all ranks together, as if
// requests were spread over them evenly.
func (c Config) store(m cost.Memory) kv.Config {
	r := c.Recipe
	return kv.Config{Layout: layout(m), Pool: c.pool(m), Scheme: r.KVScheme, PageTokens: r.PageTokens, WindowRatio: r.WindowRatio,
		Eviction: r.Eviction, NoPrefix: r.NoPrefix, HostBytes: r.HostBytes, StepTokens: c.stepTokens(), Ahead: r.ahead()}
}

// stepTokens is the most tokens of one prompt that a step computes; 0 where prompts are not cut.
func (c Config) stepTokens() int {
	r := c.Recipe
	switch {
	case r.Scheduler == OneBudget && r.LongPrefill > 0:
		return min(r.BatchedTokens, r.LongPrefill)
	case r.Scheduler == PrefillFirst && r.ChunkedPrefill < 0:
		return 0
	}
	return c.options().MaxTokens
}

// layout is what KV takes on one of the GPUs.
func layout(m cost.Memory) kv.Layout {
	if m.FullLayers == 0 { // every layer has a window: what keeps all of it is the safe side
		return kv.Layout{FullBytes: m.WindowBytes, FullLayers: m.WindowLayers}
	}
	return kv.Layout{FullBytes: m.FullBytes, WindowBytes: m.WindowBytes, WindowTokens: m.WindowTokens, FullLayers: m.FullLayers, WindowLayers: m.WindowLayers}
}

// PoolBytes is the size of the KV pool of one GPU: the recipe's part of its memory less weights and what activations need. It is
// negative when the model does not fit, and 0 when the recipe's plan is impossible.
func (c Config) PoolBytes() int64 {
	c = c.Filled()
	k, err := c.kernel()
	if err != nil {
		return 0
	}
	return c.pool(k.Memory())
}

func (c Config) pool(m cost.Memory) int64 {
	if n := c.Recipe.KVTokens; n > 0 {
		l, window := layout(m), min(n, m.WindowTokens)
		switch c.Recipe.KVScheme {
		case kv.Unified:
			window = n
		case kv.SGLang: // its pool of window layers is so large whatever the window is
			window = int(math.Ceil(c.Recipe.WindowRatio * float64(n)))
		}
		return l.FullBytes*int64(n) + l.WindowBytes*int64(window)
	}
	return (c.budget() - m.Weights - m.Reserve) * int64(m.Ranks)
}

func (c Config) budget() int64 { return int64(float64(c.GPU.Memory) * c.Recipe.MemFraction) }

// ErrMemory is what errors.Is finds in the error of a recipe whose weights, activations and shortest sequence have no room in its GPUs' memory.
var ErrMemory = errors.New("recipe does not fit")

// Validate says which field breaks which rule, the first one it meets.
func (c Config) Validate() error {
	_, _, err := c.Filled().parts()
	return err
}

// parts are the step times and the KV memory of a filled config, or which field breaks which rule, the first one it meets.
func (c Config) parts() (*cost.Kernel, kv.Store, error) {
	if err := c.Model.Validate(); err != nil {
		return nil, nil, err
	}
	if err := c.GPU.Validate(); err != nil {
		return nil, nil, err
	}
	if err := c.Recipe.validate(c.Model); err != nil {
		return nil, nil, err
	}
	k, err := c.kernel()
	if err != nil {
		return nil, nil, err
	}
	m := k.Memory()
	if pool, need := c.pool(m), 2*(m.FullBytes+m.WindowBytes); pool < need {
		return nil, nil, fmt.Errorf("%w: %s needs %.1f GB for weights and %.1f GB for activations on %s, "+
			"mem_fraction %.2f of %s gives %.1f GB, %.1f GB too little",
			ErrMemory, c.Model.Name, gb(m.Weights), gb(m.Reserve), perGPU(c.GPUs()), c.Recipe.MemFraction, c.GPU.Name, gb(c.budget()),
			math.Ceil(gb(need-pool)*10)/10)
	}
	store, err := kv.New(c.store(m))
	if err != nil {
		return nil, nil, fmt.Errorf("recipe: %w", err)
	}
	if store.Longest() < 2 {
		return nil, nil, fmt.Errorf("%w: a KV pool of %.3f GB has no room for a sequence of 2 tokens", ErrMemory, gb(c.pool(m)))
	}
	return k, store, nil
}

func perGPU(n int) string {
	if n == 1 {
		return "the GPU"
	}
	return fmt.Sprintf("each of %d GPUs", n)
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }

func (r Recipe) validate(m model.Shape) error {
	if r.Kind != SGLang && r.Kind != VLLM {
		return fmt.Errorf("recipe: engine is %q, must be %s or %s", r.Kind, SGLang, VLLM)
	}
	if policies[r.Scheduler] == nil {
		return fmt.Errorf("recipe: scheduler is %q, must be %s or %s", r.Scheduler, PrefillFirst, OneBudget)
	}
	if r.Order != FCFS && r.Order != LongestPrefix && r.Order != Priority {
		return fmt.Errorf("recipe: schedule_policy is %q, must be %s, %s or %s", r.Order, FCFS, LongestPrefix, Priority)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"max_running", r.MaxRunning}, {"context_limit", r.ContextLimit}, {"max_prefill_tokens", r.MaxPrefillTokens},
		{"max_num_batched_tokens", r.BatchedTokens},
	} {
		if f.value < 1 {
			return fmt.Errorf("recipe: %s is %d, must be at least 1, or 0 for the default", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"page_size", r.PageTokens}, {"long_prefill", r.LongPrefill}, {"max_prefill_requests", r.MaxPrefillRequests}, {"host_bytes", int(r.HostBytes)}} {
		if f.value < 0 {
			return fmt.Errorf("recipe: %s is %d, must not be below 0", f.name, f.value)
		}
	}
	if r.ChunkedPrefill < 1 && r.ChunkedPrefill != -1 {
		return fmt.Errorf("recipe: chunked_prefill is %d, must be at least 1, 0 for the default, or -1 for prompts in one piece", r.ChunkedPrefill)
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
	if r.Scheduler == OneBudget && r.BatchedTokens < r.MaxRunning {
		return fmt.Errorf("recipe: max_num_batched_tokens is %d, must be at least the %d of max_running: each running request takes one a step",
			r.BatchedTokens, r.MaxRunning)
	}
	if s := r.Speculate; s.Tokens < 0 || s.Tokens > 64 || !(s.Acceptance >= 0 && s.Acceptance <= 1) || !(s.DraftCost >= 0 && s.DraftCost <= 10) {
		return fmt.Errorf("recipe: speculation is %+v, must have 0 to 64 tokens, an acceptance from 0 to 1 and a draft cost from 0 to 10", s)
	}
	return nil
}

// Preset is a preset model on a preset GPU with SGLang's defaults.
func Preset(modelName, gpuName string) (Config, error) {
	m, ok := model.ByName(modelName)
	if !ok {
		return Config{}, fmt.Errorf("model %q is not known; there are %s", modelName, strings.Join(model.Names(), ", "))
	}
	g, ok := gpu.ByName(gpuName)
	if !ok {
		return Config{}, fmt.Errorf("gpu %q is not known; there are %s", gpuName, strings.Join(gpu.Names(), ", "))
	}
	return Config{Model: m, GPU: g}, nil
}
