package main

import (
	"fmt"
	"strings"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// serve is the command's flags. Zeros leave a choice to the engine.
type serve struct {
	Model  string `default:"gemma-4-12b" help:"The model: ${models}."`
	GPU    string `default:"l40s" name:"gpu" help:"The GPU: ${gpus}."`
	Listen string `default:"127.0.0.1:30000" placeholder:"HOST:PORT" help:"The address to serve on; port 0 takes a free one."`
	Kind   string `default:"sglang" help:"The server to imitate where they differ: sglang or vllm."`

	KVTokens       int     `name:"kv-tokens" placeholder:"N" help:"Size of the KV pool in tokens (default: what the GPU's memory leaves)."`
	ChunkedPrefill int     `placeholder:"N" help:"Prompt tokens computed in one step (default: SGLang's for the GPU's memory)."`
	MemFraction    float64 `placeholder:"F" help:"Part of the GPU's memory for weights and KV pool (default: 0.88)."`
	ContextLength  int     `placeholder:"N" help:"Tokens of prompt and answer together (default: the model's)."`

	ServedModelName string `placeholder:"NAME" help:"The model name that requests must give (default: the model's)."`
	NoCacheReport   bool   `help:"Leave cached tokens out of usage, as servers started without a cache report do."`
}

// engine builds what the flags describe.
func (s *serve) engine() (*engine.Engine, mockserver.Config, error) {
	none := mockserver.Config{}
	model, ok := engine.ModelByName(s.Model)
	if !ok {
		return nil, none, fmt.Errorf("--model: %q is not known; there are %s", s.Model, list(engine.ModelNames()))
	}
	gpu, ok := engine.GPUByName(s.GPU)
	if !ok {
		return nil, none, fmt.Errorf("--gpu: %q is not known; there are %s", s.GPU, list(engine.GPUNames()))
	}
	kind := mockserver.Kind(s.Kind)
	if kind != mockserver.SGLang && kind != mockserver.VLLM {
		return nil, none, fmt.Errorf("--kind: %q is neither %s nor %s", s.Kind, mockserver.SGLang, mockserver.VLLM)
	}
	c := engine.Config{Model: model, GPU: gpu, Recipe: engine.Recipe{
		ChunkedPrefill: s.ChunkedPrefill, MemFraction: s.MemFraction, KVTokens: s.KVTokens, ContextLimit: s.ContextLength,
	}}
	e, err := engine.New(c)
	if err != nil {
		return nil, none, err
	}
	c = c.Filled()
	name := s.ServedModelName
	if name == "" {
		name = s.Model
	}
	return e, mockserver.Config{
		Kind: kind, ModelName: name, ContextLimit: c.Recipe.ContextLimit, NoCacheReport: s.NoCacheReport, Version: version(),
		ModelPath: s.Model, GPU: gpu.Name, ChunkedPrefill: c.Recipe.ChunkedPrefill, MemFraction: c.Recipe.MemFraction,
	}, nil
}

func list(names []string) string { return strings.Join(names, ", ") }
