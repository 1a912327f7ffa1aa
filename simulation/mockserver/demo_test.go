package mockserver

import (
	"testing"

	"kneefinder/simulation/engine"
)

// demoEngine is the smallest preset: its pool holds about 40,000 tokens.
func demoEngine(t testing.TB) Engine {
	model, _ := engine.ModelByName("demo")
	gpu, _ := engine.GPUByName("demo")
	e, err := engine.New(engine.Config{Model: model, GPU: gpu})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
