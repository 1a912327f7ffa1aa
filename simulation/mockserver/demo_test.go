package mockserver

import (
	"testing"

	"kneefinder/simulation/engine"
)

// demoEngine is the smallest preset: its pool holds about 40,000 tokens.
func demoEngine(t testing.TB) Engine {
	c, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
