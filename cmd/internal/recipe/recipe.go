// Package recipe is the flags of an engine model, for the commands that simulate one.
package recipe

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"kneefinder/measurement"
	"kneefinder/simulation/anchor"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
	"kneefinder/simulation/engine/model"
	"kneefinder/simulation/fleet"
)

// Recipe is the flags of an engine model. A zero is the default of the engine that is modelled.
type Recipe struct {
	Model              string `help:"Model: ${models}. By default what the preset is for, else gemma-4-12b." placeholder:"NAME" group:"recipe"`
	ModelConfig        string `help:"A model by its Hugging Face config.json, instead of a --model that is known; --model then names it. By default its _name_or_path does, else its folder or file." type:"existingfile" placeholder:"FILE" group:"recipe"`
	GPU                string `name:"gpu" help:"GPU: ${gpus}. By default what the preset is for, else l40s." placeholder:"NAME" group:"recipe"`
	GPUFile            string `name:"gpu-file" help:"A GPU by a file of its figures, instead of --gpu; see docs/engine.md." type:"existingfile" placeholder:"FILE" group:"recipe"`
	AllowForeignAnchor bool   `help:"Use a GPU file that is calibrated with another engine or model than the one simulated." group:"recipe"`
	Engine             string `help:"Whose engine is modelled, with its defaults: sglang or vllm." default:"sglang" aliases:"kind" complete:"sglang,vllm" group:"recipe"`

	TP      int    `name:"tp" help:"GPUs that tensor parallelism divides each layer among; 0: 1." group:"recipe"`
	PP      int    `name:"pp" help:"GPUs that pipeline parallelism divides the layers among; 0: 1." group:"recipe"`
	EP      int    `name:"ep" help:"GPUs that expert parallelism divides the experts among, of those of --tp; 0: 1." group:"recipe"`
	DP      int    `name:"attention-dp" help:"Ranks of data-parallel attention, of the GPUs of --tp; 0: 1." group:"recipe"`
	Weights string `help:"Precision of linear layers: bf16, fp8, int4, mxfp4 and others. By default as the checkpoint is published." complete:"bf16,fp8,int8,int4,fp4,mxfp4" placeholder:"NAME" group:"recipe"`
	KVType  string `name:"kv-cache-dtype" help:"Precision of the KV cache: bf16 or fp8." complete:"bf16,fp8" placeholder:"NAME" group:"recipe"`

	ChunkedPrefill int     `help:"SGLang: tokens of one prefill step; 0: by GPU memory; -1: prompts are not cut." group:"recipe"`
	MixedChunk     bool    `help:"SGLang: decode beside prefill." group:"recipe"`
	MaxPrefills    int     `name:"max-prefill-requests" help:"SGLang: prompts in one prefill step at most; 0: no limit." group:"recipe"`
	LongPrefill    int     `name:"long-prefill-token-threshold" help:"vLLM: tokens of one prompt in a step at most; 0: no limit." group:"recipe"`
	SyncSchedule   bool    `name:"no-async-scheduling" help:"vLLM: put a step together when the one before it has ended." group:"recipe"`
	EnforceEager   bool    `help:"No CUDA graphs." group:"recipe"`
	BatchedTokens  int     `name:"max-num-batched-tokens" help:"vLLM: tokens of one step; 0: by GPU memory." group:"recipe"`
	MaxRunning     int     `help:"Requests in one batch at most; 0: 256, vLLM on large GPUs 1024." group:"recipe"`
	Order          string  `name:"schedule-policy" help:"Who waits first: fcfs, lpm (longest cached prefix) or priority (by the field of that name, which requests to kneemock may have)." complete:"fcfs,lpm,priority" placeholder:"NAME" group:"recipe"`
	MemFraction    float64 `help:"Share of GPU memory for weights and KV; 0: .88, vLLM .9." group:"recipe"`
	KVTokens       int     `name:"kv-tokens" help:"KV pool in tokens, instead of what memory allows." group:"recipe"`
	KVScheme       string  `name:"kv-scheme" help:"How window layers share the KV pool: ideal, sglang (a pool for each kind), vllm (pages of one size), vllm-eager (the same, as older versions kept it), unified (every layer keeps everything). By default as the engine does it for the model." complete:"ideal,sglang,unified,vllm,vllm-eager" placeholder:"NAME" group:"recipe"`
	WindowRatio    float64 `name:"swa-full-tokens-ratio" help:"SGLang: tokens of the window layers' pool for each of the other; 0: .8." group:"recipe"`
	PageSize       int     `help:"Tokens of a KV page; 0: 1, vLLM 16." group:"recipe"`
	Eviction       string  `name:"radix-eviction-policy" help:"Which leaf of the prefix cache goes first: lru, lfu, fifo, mru or filo." complete:"lru,lfu,fifo,mru,filo" placeholder:"NAME" group:"recipe"`
	NoPrefixCache  bool    `help:"Find no prefix again." group:"recipe"`
	HostGB         float64 `name:"host-kv-gb" help:"Host memory that evicted KV goes to, GB." group:"recipe"`
	ContextLength  int     `help:"Context limit; 0: the model's." group:"recipe"`

	SpeculativeTokens     int     `help:"Tokens that a draft proposes in each step." group:"recipe"`
	SpeculativeAcceptance float64 `help:"Probability that a proposed token is right." default:"0.7" group:"recipe"`
	SpeculativeDraftCost  float64 `help:"Time of one proposed token, as a part of a decode step's." default:"0.1" group:"recipe"`
}

// presetRecipes is the model and GPU of each preset.
var presetRecipes = map[string][2]string{"": {"gemma-4-12b", "l40s"}, "l40s": {"gemma-4-12b", "l40s"}, "h100": {"gemma-4-12b", "h100"},
	"tiny": {"demo", "demo"}, "demo": {"demo", "demo"}}

// Config is the engine that the flags and the preset ask for, checked.
func (r Recipe) Config(preset string) (engine.Config, error) {
	if _, known := presetRecipes[preset]; !known {
		return engine.Config{}, fmt.Errorf("--preset %q is not known; there are %s", preset, strings.Join(slices.Sorted(maps.Keys(presetRecipes))[1:], ", "))
	}
	if err := r.foreign(); err != nil {
		return engine.Config{}, err
	}
	m, err := r.shape(preset)
	if err != nil {
		return engine.Config{}, err
	}
	g, err := r.gpu(preset)
	if err != nil {
		return engine.Config{}, err
	}
	c := engine.Config{Model: m, GPU: g, Recipe: engine.Recipe{
		Kind: engine.Kind(r.Engine), Order: engine.Order(r.Order),
		MaxRunning: r.MaxRunning, ContextLimit: r.ContextLength, BatchedTokens: r.BatchedTokens,
		ChunkedPrefill: r.ChunkedPrefill, MixedChunk: r.MixedChunk, MaxPrefillRequests: r.MaxPrefills,
		LongPrefill: r.LongPrefill, SyncScheduling: r.SyncSchedule, Eager: r.EnforceEager,
		MemFraction: r.MemFraction, KVTokens: r.KVTokens, KVScheme: kv.Scheme(r.KVScheme), PageTokens: r.PageSize, WindowRatio: r.WindowRatio,
		Eviction: kv.Eviction(r.Eviction), NoPrefix: r.NoPrefixCache, HostBytes: int64(r.HostGB * 1e9),
		TP: r.TP, PP: r.PP, EP: r.EP, DP: r.DP,
	}}
	if r.SpeculativeTokens != 0 {
		c.Recipe.Speculate = engine.Speculate{Tokens: r.SpeculativeTokens, Acceptance: r.SpeculativeAcceptance, DraftCost: r.SpeculativeDraftCost}
	}
	if err := anchor.Foreign(c); err != nil && !r.AllowForeignAnchor {
		return c, fmt.Errorf("%w; --allow-foreign-anchor uses it all the same", err)
	}
	return c, fits(c)
}

// fits is c.Validate, and says of a recipe that has no room in memory which flags make it.
func fits(c engine.Config) error {
	err := c.Validate()
	if !errors.Is(err, engine.ErrMemory) {
		return err
	}
	var ways []string
	try := func(flag string, change func(*engine.Config)) bool {
		with := c
		change(&with)
		e, err := engine.New(with)
		if err == nil {
			ways = append(ways, fmt.Sprintf("%s (room for %d tokens)", flag, e.Stats().KVPoolTokens))
		}
		return err == nil
	}
	for n := max(1, c.Recipe.TP) + 1; n <= mostTP; n++ {
		if try(fmt.Sprintf("--tp %d", n), func(c *engine.Config) { c.Recipe.TP = n }) {
			break
		}
	}
	for _, p := range []model.Precision{model.FP8, model.INT4} {
		if try("--weights "+string(p), func(c *engine.Config) { c.Model.Weights = model.Precisions{Linear: p, Experts: p} }) {
			break
		}
	}
	for _, part := range []float64{.95, .98} {
		if part > c.Filled().Recipe.MemFraction && try(fmt.Sprintf("--mem-fraction %g", part), func(c *engine.Config) { c.Recipe.MemFraction = part }) {
			break
		}
	}
	if len(ways) == 0 {
		return fmt.Errorf("%w; neither --tp up to %d, --weights nor --mem-fraction alone makes room: combine them, or take a larger --gpu", err, mostTP)
	}
	return fmt.Errorf("%w; it fits with %s", err, strings.Join(ways, ", or with "))
}

// mostTP is the most GPUs that tensor parallelism is tried on.
const mostTP = 16

// foreign refuses a flag of the engine that is not modelled, which would change nothing.
func (r Recipe) foreign() error {
	for _, f := range []struct {
		given bool
		name  string
		of    engine.Kind
		like  string // the flag that does the same there
	}{
		{r.ChunkedPrefill != 0, "chunked-prefill", engine.SGLang, "max-num-batched-tokens"},
		{r.MixedChunk, "mixed-chunk", engine.SGLang, ""},
		{r.MaxPrefills != 0, "max-prefill-requests", engine.SGLang, ""},
		{r.WindowRatio != 0 && kv.Scheme(r.KVScheme) != kv.SGLang, "swa-full-tokens-ratio", engine.SGLang, ""},
		{r.BatchedTokens != 0, "max-num-batched-tokens", engine.VLLM, "chunked-prefill"},
		{r.LongPrefill != 0, "long-prefill-token-threshold", engine.VLLM, ""},
		{r.SyncSchedule, "no-async-scheduling", engine.VLLM, ""},
	} {
		if other := engine.Kind(r.Engine); !f.given || other == f.of || other != engine.SGLang && other != engine.VLLM {
			continue
		}
		err := fmt.Errorf("--%s is of %s, and --engine is %s: leave it away", f.name, f.of, r.Engine)
		if f.like != "" {
			err = fmt.Errorf("%w, or give --%s", err, f.like)
		}
		return err
	}
	return nil
}

func (r Recipe) shape(preset string) (m model.Shape, err error) {
	switch {
	case r.ModelConfig != "":
		if _, known := model.ByName(r.Model); known {
			return m, fmt.Errorf("--model %s is a model that is known here, and --model-config another: give one, or --model with a name of its own for that of the file", r.Model)
		}
		if m, err = model.ReadConfig(r.ModelConfig); err != nil {
			return m, err
		}
		m.Name = cmp.Or(r.Model, m.Name)
	default:
		if r.Model == "" {
			r.Model = presetRecipes[preset][0]
		}
		var ok bool
		if m, ok = model.ByName(r.Model); !ok {
			return m, fmt.Errorf("--model %q is not known; there are %s, and any other by its config.json with --model-config", r.Model, strings.Join(model.Names(), ", "))
		}
	}
	if r.Weights != "" {
		m.Weights = model.Precisions{Linear: model.Precision(r.Weights), Experts: model.Precision(r.Weights)}
	}
	if r.KVType != "" {
		m.KV = model.Precision(r.KVType)
	}
	return m, nil
}

func (r Recipe) gpu(preset string) (g gpu.GPU, err error) {
	switch {
	case r.GPUFile != "" && r.GPU != "":
		return g, fmt.Errorf("--gpu and --gpu-file both name a GPU: give one")
	case r.GPUFile != "":
		return gpu.ReadFile(r.GPUFile)
	}
	if r.GPU == "" {
		r.GPU = presetRecipes[preset][1]
	}
	g, ok := gpu.ByName(r.GPU)
	if !ok {
		return g, fmt.Errorf("--gpu %q is not known; there are %s, and any other by its figures with --gpu-file", r.GPU, strings.Join(gpu.Names(), ", "))
	}
	return g, nil
}

// Vars are the names that the flags' help texts show.
func Vars() kong.Vars {
	return kong.Vars{"models": strings.Join(model.Names(), ", "), "gpus": strings.Join(gpu.Names(), ", "),
		"kvlinks": strings.Join(fleet.LinkNames(), ", ")}
}

// EngineInfo describes an engine model, and the fleet of it, for the files.
func EngineInfo(c engine.Config, of Fleet) measurement.Engine {
	f := c.Filled()
	r := f.Recipe
	details := map[string]any{
		"kind": r.Kind, "scheduler": r.Scheduler, "schedule_policy": r.Order, "mem_fraction": r.MemFraction, "context_limit": r.ContextLimit,
		"max_running_requests": r.MaxRunning, "kv_pool_bytes": f.PoolBytes(), "kv_scheme": r.KVScheme, "prefix_cache": !r.NoPrefix,
	}
	if r.Scheduler == engine.PrefillFirst {
		details["chunked_prefill_size"] = r.ChunkedPrefill
	} else {
		details["max_num_batched_tokens"] = r.BatchedTokens
	}
	if n := f.GPUs(); n > 1 {
		details["gpus"], details["tp"], details["pp"], details["ep"], details["attention_dp"] = n, r.TP, r.PP, r.EP, r.DP
	}
	name := c.GPU.Name
	if !of.none() {
		details["fleet"] = of.details()
		details["max_running_requests"] = r.MaxRunning * of.size() // of all, as the requests that run are counted
		if len(of.ReplicaGPUs) > 0 {
			name = of.gpuNames()
		}
	}
	if f.GPU.Scaled() {
		details["efficiencies_of"] = f.GPU.Measured
	}
	fidelity := "uncalibrated"
	if a := f.GPU.Anchor; a != nil {
		fidelity = "anchored"
		if anchor.Foreign(c) != nil {
			fidelity = "foreign anchor"
		}
		details["anchored_to"] = map[string]any{"engine": a.Engine, "version": a.Version, "model": a.Model, "longest_prompt": a.Prompt, "widest_batch": a.Batch, "median_error_percent": a.Error}
	}
	return measurement.Engine{Kind: "simulated", Model: c.Model.Name, GPU: name, Fidelity: fidelity, Details: details}
}
