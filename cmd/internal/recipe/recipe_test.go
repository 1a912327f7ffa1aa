package recipe

import (
	"strings"
	"testing"

	"kneefinder/simulation/engine"
)

// A model of a file has its own name, that of --model, which must not be one that stands for another model.
func TestNameOfAFile(t *testing.T) {
	const file = "../../../simulation/engine/model/testdata/published/qwen3-8b.json"
	for _, c := range []struct{ model, want, refused string }{
		{"", "qwen3-8b", ""},
		{"mine", "mine", ""},
		{"llama-3.1-8b", "", "--model llama-3.1-8b is a model that is known here, and --model-config another"},
	} {
		got, err := Recipe{Model: c.model, ModelConfig: file, GPU: "h100", Engine: "vllm"}.Config("")
		if c.refused == "" && (err != nil || got.Model.Name != c.want) || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("--model %q: %q, %v", c.model, got.Model.Name, err)
		}
	}
}

// A recipe without room in memory names the flags that make it, and they do.
func TestWaysToFit(t *testing.T) {
	for _, c := range []struct {
		r     Recipe
		wants []string
	}{
		{Recipe{Model: "llama-3.1-70b", GPU: "h100"}, []string{"68.6 GB too little; it fits with --tp 2 (room for ", "--weights int4"}},
		{Recipe{Model: "gemma-4-12b", GPU: "l40s", MemFraction: .4}, []string{"--tp 2 (", "--weights fp8 (", "--mem-fraction 0.95 (room for "}},
		{Recipe{Model: "deepseek-v3", GPU: "l40s"}, []string{"neither --tp up to 16, --weights nor --mem-fraction alone makes room"}},
	} {
		_, err := c.r.Config("")
		if err == nil {
			t.Fatalf("%+v fits", c.r)
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v; want %q", c.r, err, want)
			}
		}
		if strings.Contains(err.Error(), "--tp 2 ") {
			c.r.TP = 2
			if _, err := c.r.Config(""); err != nil {
				t.Errorf("it does not fit with --tp 2: %v", err)
			}
		}
	}
	_, err := Fleet{ReplicaGPUs: []string{"h100", "demo"}, KVLink: "nixl"}.New(mustConfig(t, Recipe{GPU: "h100"}), 1)
	if err == nil || !strings.Contains(err.Error(), "--replica-gpus: demo: recipe does not fit") || !strings.Contains(err.Error(), "it fits with --tp 8") {
		t.Errorf("a fleet: %v", err)
	}
	if _, err := (Recipe{Model: "gemma-4-12b", GPU: "h100", KVTokens: -5}).Config(""); err == nil || strings.Contains(err.Error(), "it fits") {
		t.Errorf("another mistake: %v", err)
	}
}

func mustConfig(t *testing.T, r Recipe) engine.Config {
	t.Helper()
	c, err := r.Config("")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
