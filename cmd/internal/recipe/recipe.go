// Package recipe is the flags of an engine model, for the commands that simulate one.
package recipe

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// Recipe is the flags of an engine model.
type Recipe struct {
	Model          string  `help:"Model: ${models}. By default what the preset is for, else gemma-4-12b." placeholder:"NAME" group:"recipe"`
	GPU            string  `name:"gpu" help:"GPU: ${gpus}. By default what the preset is for, else l40s." placeholder:"NAME" group:"recipe"`
	ChunkedPrefill int     `help:"Tokens of one prefill step; 0: by GPU memory, as SGLang does." group:"recipe"`
	MaxRunning     int     `help:"Requests in one batch at most; 0: 256." group:"recipe"`
	MemFraction    float64 `help:"Share of GPU memory for weights and KV; 0: .88." group:"recipe"`
	KVTokens       int     `name:"kv-tokens" help:"KV pool in tokens, instead of what memory allows." group:"recipe"`
	ContextLength  int     `help:"Context limit; 0: the model's." group:"recipe"`
}

// presetRecipes is the model and GPU of each preset.
var presetRecipes = map[string][2]string{"": {"gemma-4-12b", "l40s"}, "l40s": {"gemma-4-12b", "l40s"}, "h100": {"gemma-4-12b", "h100"},
	"tiny": {"demo", "demo"}, "demo": {"demo", "demo"}}

// Engine is the engine that the flags and the preset ask for, checked.
func (r Recipe) Engine(preset string) (engine.Config, error) {
	if r.Model == "" {
		r.Model = presetRecipes[preset][0]
	}
	if r.GPU == "" {
		r.GPU = presetRecipes[preset][1]
	}
	m, ok := engine.ModelByName(r.Model)
	if !ok {
		return engine.Config{}, fmt.Errorf("--model %q is not known; there are %s", r.Model, strings.Join(engine.ModelNames(), ", "))
	}
	g, ok := engine.GPUByName(r.GPU)
	if !ok {
		return engine.Config{}, fmt.Errorf("--gpu %q is not known; there are %s", r.GPU, strings.Join(engine.GPUNames(), ", "))
	}
	c := engine.Config{Model: m, GPU: g, Recipe: engine.Recipe{ChunkedPrefill: r.ChunkedPrefill, MaxRunning: r.MaxRunning,
		MemFraction: r.MemFraction, KVTokens: r.KVTokens, ContextLimit: r.ContextLength}}
	return c, c.Validate()
}

// Vars are the names that the flags' help texts show.
func Vars() kong.Vars {
	return kong.Vars{"models": strings.Join(engine.ModelNames(), ", "), "gpus": strings.Join(engine.GPUNames(), ", ")}
}

// EngineInfo describes an engine model for the files.
func EngineInfo(c engine.Config) measurement.Engine {
	f := c.Filled()
	return measurement.Engine{Kind: "simulated", Model: c.Model.Name, GPU: c.GPU.Name, Fidelity: "uncalibrated", Details: map[string]any{
		"chunked_prefill_size": f.Recipe.ChunkedPrefill, "mem_fraction": f.Recipe.MemFraction, "context_limit": f.Recipe.ContextLimit,
		"max_running_requests": f.Recipe.MaxRunning, "kv_pool_bytes": f.PoolBytes()}}
}
