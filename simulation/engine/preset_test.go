package engine

import (
	"testing"

	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// preset is a model on a GPU.
func preset(t testing.TB, modelName, gpuName string) Config {
	t.Helper()
	m, ok := model.ByName(modelName)
	if !ok {
		t.Fatalf("no model %q", modelName)
	}
	g, ok := gpu.ByName(gpuName)
	if !ok {
		t.Fatalf("no GPU %q", gpuName)
	}
	return Config{Model: m, GPU: g}
}
