package anchor

import (
	"math"
	"path/filepath"
	"testing"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// What was measured of a vLLM and a SGLang on a CPU, with a model of two layers, is fitted anew to the files beside it, to a few percent.
func TestTinyEngines(t *testing.T) {
	m, err := model.ReadConfig("testdata/tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"vllm", "sglang"} {
		d, err := ReadFile(filepath.Join("testdata/tiny", engine+".data.json"))
		if err != nil {
			t.Fatal(err)
		}
		was, err := gpu.ReadFile(filepath.Join("testdata/tiny", engine+".gpu.json"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Fit(d, m, Card{Name: "tiny-" + engine, Memory: 32e9})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Residuals {
			if s.Median > .07 {
				t.Errorf("%s: half of %s are off by more than %.1f %%", engine, s.Kind, 100*s.Median)
			}
		}
		o := cost.Options{Engine: cost.Engine(engine)}
		before, err := cost.New(m, was, o)
		if err != nil {
			t.Fatal(err)
		}
		now, err := cost.New(m, r.GPU, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []cost.Batch{
			{Prefill: []cost.Span{{N: 2700, Last: true}}}, {Prefill: []cost.Span{{Offset: 3000, N: 150, Last: true}}},
			{Decodes: 1, Context: 3000}, {Decodes: 12, Context: 36000},
		} {
			if a, b := before.Step(&b).Seconds(), now.Step(&b).Seconds(); math.Abs(a/b-1) > .03 {
				t.Errorf("%s: a step takes %v s by the file and %v s by the fit", engine, a, b)
			}
		}
		if whole := r.GPU.Kernels.Prefill[0].Whole; whole != (engine == "sglang") {
			t.Errorf("%s: whole is %v", engine, whole)
		}
	}
}
