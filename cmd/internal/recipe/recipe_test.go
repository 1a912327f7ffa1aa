package recipe

import (
	"strings"
	"testing"
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
