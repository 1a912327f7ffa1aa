package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func preset(t testing.TB, name string) Shape {
	t.Helper()
	s, ok := ByName(name)
	if !ok {
		t.Fatalf("no preset %s", name)
	}
	return s
}

// TestPresets holds each preset to the parameter counts and KV bytes that its public configuration gives: what publishers print
// (8.03 B, 70.55 B, ... 116.8 B, 671.03 B) to the last digit.
func TestPresets(t *testing.T) {
	for _, want := range []struct {
		name           string
		params, active int64
		full, window   int64 // BF16 bytes of KV a token
	}{
		{"demo", 1140850688, 1140850688, 65536, 0},
		{"deepseek-v3", 671025397760, 36624596992, 70272, 0},
		{"gemma-3-12b", 11765268480, 11765268480, 65536, 327680},
		{"gemma-4-12b", 11906580480, 11906580480, 16384, 327680},
		{"gemma-4-26b-a4b", 25232441344, 3821830144, 20480, 204800},
		{"gemma-4-31b", 30696013824, 30696013824, 81920, 819200},
		{"gpt-oss-120b", 116788838400, 5131100160, 36864, 36864},
		{"gpt-oss-20b", 20907786240, 3607142400, 24576, 24576},
		{"llama-3.1-70b", 70552387584, 69501714432, 327680, 0},
		{"llama-3.1-8b", 8029995008, 7504658432, 131072, 0},
		{"mixtral-8x7b", 46702526464, 12748587008, 131072, 0},
		{"qwen3-14b", 14767882240, 13989969920, 163840, 0},
		{"qwen3-235b-a22b", 235092836352, 21567635456, 192512, 0},
		{"qwen3-30b-a3b", 30531911680, 3041656832, 98304, 0},
		{"qwen3-32b", 32761446400, 31983534080, 262144, 0},
		{"qwen3-8b", 8190427136, 7568097280, 147456, 0},
	} {
		s := preset(t, want.name)
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		if s.Name != want.name || s.Params() != want.params || s.ActiveParams() != want.active {
			t.Errorf("%s: %s has %d weights, %d active, want %d, %d", want.name, s.Name, s.Params(), s.ActiveParams(), want.params, want.active)
		}
		if s.FullBytes() != want.full || s.WindowBytes() != want.window {
			t.Errorf("%s: KV bytes %d and %d, want %d and %d", want.name, s.FullBytes(), s.WindowBytes(), want.full, want.window)
		}
	}
	if n := len(Names()); n != 16 {
		t.Errorf("%d presets, want 16: the table above is not whole", n)
	}
	if s, ok := ByName("gpt-5"); ok {
		t.Errorf("ByName of a name that is none: %+v", s)
	}
}

// TestPresetsWithSources compares every preset with the researched table, where it is at hand.
func TestPresetsWithSources(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "specs", "models_gpus.json"))
	if err != nil {
		t.Skip("without the researched table: TestPresets has its sums")
	}
	var table struct {
		Models []struct {
			ID       string `json:"id"`
			Params   int64  `json:"params_total_computed"`
			Active   int64  `json:"params_active_per_token_computed"`
			BF16     int64  `json:"weight_bytes_bf16_computed"`
			Native   int64  `json:"weight_bytes_native"`
			Full     int64  `json:"kv_bytes_per_token_unbounded_bf16"`
			Window   int64  `json:"kv_bytes_per_token_within_window_bf16"`
			WindowN  int    `json:"window_tokens"`
			Layers   int    `json:"num_layers"`
			Context  int    `json:"max_position_embeddings"`
			Vocab    int    `json:"vocab_size"`
			Tied     bool   `json:"tie_word_embeddings"`
			Heads    int    `json:"num_attention_heads"`
			Hidden   int    `json:"hidden_size"`
			WeightAs string `json:"native_weight_dtype"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Models) != 15 {
		t.Fatalf("%d models, want 15", len(table.Models))
	}
	for _, m := range table.Models {
		s := preset(t, m.ID)
		if got, want := [2]int64{s.Params(), s.ActiveParams()}, [2]int64{m.Params, m.Active}; got != want {
			t.Errorf("%s: weights, active %v, want %v", m.ID, got, want)
		}
		if got, want := [2]int64{s.FullBytes(), s.WindowBytes()}, [2]int64{m.Full, m.Window}; got != want {
			t.Errorf("%s: KV bytes %v, want %v", m.ID, got, want)
		}
		got := [...]int{s.WindowTokens, s.Layers(), s.ContextLimit, s.Vocabulary, s.QueryHeads, s.Hidden}
		if want := [...]int{m.WindowN, m.Layers, m.Context, m.Vocab, m.Heads, m.Hidden}; got != want || s.Tied != m.Tied {
			t.Errorf("%s: window, layers, context, vocabulary, heads, width %v, tied %v, want %v, %v", m.ID, got, s.Tied, want, m.Tied)
		}
		stored := s.WeightBytes()
		switch {
		case m.WeightAs == "bf16":
			if stored != m.BF16 {
				t.Errorf("%s: %d bytes of weights, want %d", m.ID, stored, m.BF16)
			}
			if s.Weights != (Precisions{}) {
				t.Errorf("%s: stored as %+v, want BF16", m.ID, s.Weights)
			}
		case m.Native > 0: // the checkpoint's files, biases and norms too
			if off := float64(stored)/float64(m.Native) - 1; math.Abs(off) > .01 {
				t.Errorf("%s: %d bytes of weights, the checkpoint has %d: %.1f %% off", m.ID, stored, m.Native, 100*off)
			}
		case strings.HasPrefix(m.WeightAs, "fp8"):
			if stored < m.Params || stored > m.Params*102/100 {
				t.Errorf("%s: %d bytes of FP8 weights for %d", m.ID, stored, m.Params)
			}
		default:
			t.Errorf("%s: stored as %q: no rule", m.ID, m.WeightAs)
		}
	}
}

// TestWeightBytes compares with the sizes of checkpoints: 13.8 GB and 65.25 GB for gpt-oss.
func TestWeightBytes(t *testing.T) {
	for name, want := range map[string]float64{"gpt-oss-20b": 13.8e9, "gpt-oss-120b": 65.25e9, "deepseek-v3": 673e9, "llama-3.1-8b": 16.06e9} {
		if got := float64(preset(t, name).WeightBytes()); math.Abs(got/want-1) > .005 {
			t.Errorf("%s: %.4g bytes, want %.4g", name, got, want)
		}
	}
}

func TestPrecision(t *testing.T) {
	for p, want := range map[Precision]struct {
		bits  float64
		of320 int64 // bytes of 320 numbers
	}{
		"": {16, 640}, BF16: {16, 640}, FP8: {8, 320}, INT8: {8, 320}, FP4: {4, 160}, INT4: {4, 160},
		MXFP4: {4.25, 170}, MXFP8: {8.25, 330}, NVFP4: {4.5, 180}, "fp5": {0, 0},
	} {
		if p.Bits() != want.bits || p.Bytes(320) != want.of320 {
			t.Errorf("%q: %v bits, %d bytes of 320, want %+v", p, p.Bits(), p.Bytes(320), want)
		}
	}
	if got := INT4.Bytes(3); got != 2 {
		t.Errorf("three numbers of 4 bits take %d bytes, want 2", got)
	}
	if got := BF16.Bytes(maxWeights); got != 2*maxWeights {
		t.Errorf("BF16 of %g numbers is %d bytes", maxWeights, got)
	}
}

// TestProjectionsOfMLA writes DeepSeek V3's out: q 7168 to 1536 to 128 heads of 192, kv 7168 to 576, 512 to 128 heads of 128 and 128.
func TestProjectionsOfMLA(t *testing.T) {
	s := preset(t, "deepseek-v3")
	got := s.Projections(s.Full)
	want := Projections{
		QueryDown: 7168 * 1536, Query: 1536 * 128 * 192,
		KVDown: 7168 * 576, Key: 512 * 128 * 128, Value: 512 * 128 * 128,
		Out: 128 * 128 * 7168,
	}
	if got != want || got.Total() != 187105280 {
		t.Errorf("got %+v, %d together, want %+v, 187105280", got, got.Total(), want)
	}
	s.Full.MLA.QRank = 0
	if got := s.Projections(s.Full); got.QueryDown != 0 || got.Query != 7168*128*192 {
		t.Errorf("queries that are not compressed: %+v", got)
	}
}

func TestKV(t *testing.T) {
	gemma := preset(t, "gemma-4-12b")
	for _, c := range []struct {
		tokens int
		want   int64
		why    string
	}{
		{0, 0, "nothing"},
		{100, 100 * (16384 + 327680), "inside the window both kinds hold all"},
		{1024, 1024 * (16384 + 327680), "the window full"},
		{18000, 18000*16384 + 1024*327680, "0.630 GB at 18,000 tokens"},
	} {
		if got := gemma.SequenceBytes(c.tokens); got != c.want {
			t.Errorf("%d tokens: %d bytes, want %d: %s", c.tokens, got, c.want, c.why)
		}
	}
	fp8 := gemma
	fp8.KV = FP8
	if got, want := fp8.SequenceBytes(18000), gemma.SequenceBytes(18000)/2; got != want {
		t.Errorf("FP8: %d bytes, want half, %d", got, want)
	}

	llama, deepseek := preset(t, "llama-3.1-8b"), preset(t, "deepseek-v3")
	for _, c := range []struct {
		shape        Shape
		tp, pp       int
		full, window int64
		why          string
	}{
		{llama, 1, 1, 131072, 0, "all"},
		{llama, 4, 1, 32768, 0, "2 of 8 heads"},
		{llama, 8, 1, 16384, 0, "1 of 8 heads"},
		{llama, 16, 1, 16384, 0, "at least one head each, so that two GPUs hold the same"},
		{llama, 2, 2, 32768, 0, "half of the heads in half of the layers"},
		{llama, 1, 3, 131072 / 32 * 11, 0, "the stage with 11 of 32 layers"},
		{deepseek, 8, 1, 70272, 0, "the latent is on every GPU"},
		{deepseek, 1, 2, 70272 / 61 * 31, 0, "the stage with 31 of 61 layers"},
		{gemma, 4, 1, 16384, 81920, "one head of 512 on each, two of eight with a window"},
	} {
		if full, window := c.shape.KVOn(c.tp, c.pp); full != c.full || window != c.window {
			t.Errorf("%s on tp %d, pp %d: %d and %d bytes, want %d and %d: %s", c.shape.Name, c.tp, c.pp, full, window, c.full, c.window, c.why)
		}
	}
}

func TestCheckTP(t *testing.T) {
	for _, c := range []struct {
		model string
		tp    int
		want  string // "" fits
	}{
		{"llama-3.1-8b", 1, ""},
		{"llama-3.1-8b", 8, ""},
		{"llama-3.1-8b", 16, ""},
		{"llama-3.1-8b", 0, "tensor parallelism 0: must be at least 1"},
		{"llama-3.1-8b", 3, "tensor parallelism 3: must divide the 32 query heads of llama-3.1-8b"},
		{"deepseek-v3", 16, ""},
		{"gemma-4-31b", 8, ""},
	} {
		got := ""
		if err := preset(t, c.model).CheckTP(c.tp); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, tp %d: %q, want %q", c.model, c.tp, got, c.want)
		}
	}
	odd := preset(t, "llama-3.1-8b")
	odd.QueryHeads, odd.Full.KVHeads = 36, 6
	if err := odd.CheckTP(4); err == nil || !strings.Contains(err.Error(), "must divide the 6 KV heads") {
		t.Errorf("6 KV heads on 4 GPUs: %v", err)
	}
}

func TestExpertsHit(t *testing.T) {
	e := MoE{Experts: 128, TopK: 8}
	for _, c := range []struct {
		tokens int
		want   float64
	}{{0, 0}, {1, 8}, {2, 128 * (1 - .9375*.9375)}, {16, 128 * (1 - math.Pow(.9375, 16))}, {10000, 128}} {
		if got := e.ExpertsHit(c.tokens); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d tokens hit %v experts, want %v", c.tokens, got, c.want)
		}
	}
	if got := (MoE{Experts: 4, TopK: 4}).ExpertsHit(1); got != 4 {
		t.Errorf("a token that passes through all 4 experts hits %v", got)
	}
	if got := (MoE{}).ExpertsHit(5); got != 0 {
		t.Errorf("no experts, %v hit", got)
	}
}

func TestStepBytes(t *testing.T) {
	llama := preset(t, "llama-3.1-8b")
	body := 2 * llama.BodyParams()
	for _, c := range []struct {
		tokens, sampled int
		want            int64
	}{{0, 0, 0}, {1, 0, body}, {2048, 0, body}, {2048, 1, body + 2*llama.HeadParams()}} {
		if got := llama.StepBytes(c.tokens, c.sampled); got != c.want {
			t.Errorf("%+v: %d bytes", c, got)
		}
	}
	// One token of a mixture reads what is active; many read nearly all but the embedding.
	moe := preset(t, "qwen3-30b-a3b")
	if got, want := moe.StepBytes(1, 1), 2*moe.ActiveParams(); got != want {
		t.Errorf("one token reads %d bytes, want %d", got, want)
	}
	if got, want := moe.StepBytes(4096, 1), moe.WeightBytes()-2*moe.HeadParams(); got != want {
		t.Errorf("4,096 tokens read %d bytes, want %d", got, want)
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	s := preset(t, "deepseek-v3")
	var sink int64
	if n := testing.AllocsPerRun(100, func() {
		full, _ := s.KVOn(8, 1)
		sink += full + s.StepBytes(64, 64) + s.SequenceBytes(1000) + s.ActiveParams()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if sink == 0 {
		t.Error("nothing was computed")
	}
}

// TestValidate breaks a valid shape in one way at a time.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		of    string
		broke func(*Shape)
		want  string // in the error
	}{
		{"demo", func(s *Shape) { s.Hidden = 0 }, "model demo: Hidden is 0: must be from 1 to 16777216"},
		{"demo", func(s *Shape) { s.Vocabulary = -1 }, "Vocabulary is -1: must be from 1"},
		{"demo", func(s *Shape) { s.FFN = 0 }, "FFN is 0: must be from 1"},
		{"demo", func(s *Shape) { s.ContextLimit = 0 }, "ContextLimit is 0"},
		{"demo", func(s *Shape) { s.QueryHeads = 0 }, "QueryHeads is 0"},
		{"demo", func(s *Shape) { s.Full.KVHeads = 7 }, "Full.KVHeads is 7: must divide QueryHeads, 16"},
		{"demo", func(s *Shape) { s.Full.HeadDim = 0 }, "Full.HeadDim is 0"},
		{"demo", func(s *Shape) { s.Full = Attention{} }, "Full.Layers + Window.Layers is 0: must be at least 1"},
		{"demo", func(s *Shape) { s.Full.Layers = 0 }, "Full is {Layers:0 KVHeads:8"},
		{"demo", func(s *Shape) { s.Full.Layers = -1 }, "Full.Layers is -1: must be from 0 to 4096"},
		{"demo", func(s *Shape) { s.WindowTokens = 5 }, "WindowTokens is 5: must be 0 without window layers"},
		{"gemma-3-12b", func(s *Shape) { s.WindowTokens = 0 }, "WindowTokens is 0: must be from 1"},
		{"gemma-3-12b", func(s *Shape) { s.Window.MLA.KVRank = 8 }, "latent attention has no window here"},
		{"deepseek-v3", func(s *Shape) { s.Full.KVHeads = 128 }, "Full.KVHeads is 128: must be 0 with MLA"},
		{"deepseek-v3", func(s *Shape) { s.Full.SharedV = true }, "Full.SharedV is true: must be false with MLA"},
		{"deepseek-v3", func(s *Shape) { s.Full.MLA.KVRank = 0 }, "Full.MLA.KVRank is 0"},
		{"deepseek-v3", func(s *Shape) { s.Full.MLA.QRank = -1 }, "Full.MLA.QRank is -1: must be from 0"},
		{"deepseek-v3", func(s *Shape) { s.MoE.TopK = 257 }, "MoE.TopK is 257: must be from 1 to MoE.Experts, 256"},
		{"deepseek-v3", func(s *Shape) { s.MoE.DenseLayers = 61 }, "MoE.DenseLayers is 61: must be at least 0 and under the number of layers, 61"},
		{"deepseek-v3", func(s *Shape) { s.MoE.FFN = 0 }, "MoE.FFN is 0"},
		{"deepseek-v3", func(s *Shape) { s.MoE.SharedFFN = -1 }, "MoE.SharedFFN is -1"},
		{"mixtral-8x7b", func(s *Shape) { s.FFN = 14336 }, "FFN is 14336: must be 0 where every layer is a mixture of experts"},
		{"demo", func(s *Shape) { s.Weights.Linear = "fp5" }, "Weights.Linear is fp5: must be one of [bf16 fp8"},
		{"demo", func(s *Shape) { s.KV = "q4" }, "KV is q4: must be one of"},
		{"demo", func(s *Shape) { s.Hidden, s.Vocabulary = maxSize, maxSize; s.FFN = maxSize; s.Full.Layers = maxLayers }, "the weights of dense networks is"},
	} {
		s := preset(t, c.of)
		c.broke(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.of, err, c.want)
		}
	}
}

// shapes draws valid ones of every kind.
func shapes() *rapid.Generator[Shape] {
	return rapid.Custom(func(t *rapid.T) Shape {
		n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		kvHeads := n("kv heads", 1, 8)
		s := Shape{
			Name: "drawn", Hidden: n("hidden", 1, 4096), Vocabulary: n("vocabulary", 1, 1<<17), QueryHeads: kvHeads * n("group", 1, 8),
			Tied: rapid.Bool().Draw(t, "tied"), Ungated: rapid.Bool().Draw(t, "ungated"), ContextLimit: n("context", 1, 1<<20),
			KV: rapid.SampledFrom(precisions[:]).Draw(t, "kv"),
			Weights: Precisions{
				Linear:    rapid.SampledFrom(precisions[:]).Draw(t, "linear"),
				Attention: rapid.SampledFrom(append(precisions[:], "")).Draw(t, "attention"),
				Experts:   rapid.SampledFrom(append(precisions[:], "")).Draw(t, "experts"),
				Head:      rapid.SampledFrom(append(precisions[:], "")).Draw(t, "head"),
			},
		}
		s.Full = Attention{Layers: n("full", 1, 64), KVHeads: kvHeads, HeadDim: n("head dim", 1, 256), SharedV: rapid.Bool().Draw(t, "shared v")}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			s.Window = Attention{Layers: n("window", 1, 64), KVHeads: kvHeads, HeadDim: n("window head dim", 1, 256)}
			s.WindowTokens = n("window tokens", 1, 4096)
		case 2:
			s.Full = Attention{Layers: s.Full.Layers, MLA: MLA{
				QRank: n("q rank", 0, 512), KVRank: n("kv rank", 1, 512), RopeDim: n("rope", 0, 64), NopeDim: n("nope", 1, 128), ValueDim: n("value", 1, 128),
			}}
		}
		if rapid.Bool().Draw(t, "moe") {
			s.MoE = MoE{Experts: n("experts", 1, 256), FFN: n("expert ffn", 1, 2048), SharedFFN: n("shared ffn", 0, 2048), DenseLayers: n("dense", 0, s.Layers()-1)}
			s.MoE.TopK = n("top k", 1, s.MoE.Experts)
		}
		if s.DenseLayers() > 0 {
			s.FFN = n("ffn", 1, 8192)
		}
		return s
	})
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if c := s.Counts(); c.Total() != s.Params() || s.ActiveParams() > s.Params() || s.BodyParams()+s.HeadParams() != s.ActiveParams() {
			t.Fatalf("%d weights, %d active, %d of them in the body: %+v", s.Params(), s.ActiveParams(), s.BodyParams(), c)
		}
		if s.WeightBytes() > BF16.Bytes(s.Params()) {
			t.Fatalf("%d bytes of weights, more than as BF16", s.WeightBytes())
		}

		// KV: never less for more tokens, never more by a token than one of either kind, and no less than full layers alone.
		tokens := rapid.IntRange(0, 1<<20).Draw(t, "tokens")
		step := s.SequenceBytes(tokens+1) - s.SequenceBytes(tokens)
		if step < s.FullBytes() || step > s.FullBytes()+s.WindowBytes() {
			t.Fatalf("token %d takes %d bytes, full layers %d, window layers %d", tokens+1, step, s.FullBytes(), s.WindowBytes())
		}
		// Dividing never costs a GPU more, and all of them together hold all of it.
		tp, pp := rapid.IntRange(1, 16).Draw(t, "tp"), rapid.IntRange(1, 8).Draw(t, "pp")
		full, window := s.KVOn(tp, pp)
		if full > s.FullBytes() || window > s.WindowBytes() || full*int64(tp*pp) < s.FullBytes() || window*int64(tp*pp) < s.WindowBytes() {
			t.Fatalf("on one of %d x %d GPUs %d and %d bytes, of %d and %d", tp, pp, full, window, s.FullBytes(), s.WindowBytes())
		}

		// Weights that a step reads: no less for more tokens, between what one token needs and all there is.
		m := rapid.IntRange(1, 1<<14).Draw(t, "batch")
		a, b := s.StepBytes(m, 1), s.StepBytes(m+1, 1)
		if one := s.StepBytes(1, 1); a < one || b < a || b > s.WeightBytes()-s.Bytes().Embedding {
			t.Fatalf("a step of %d tokens reads %d bytes, of %d %d, of one %d, of all %d", m, a, m+1, b, one, s.WeightBytes())
		}
		if hit := s.MoE.ExpertsHit(m); hit > float64(s.MoE.Experts) || s.MoE.Experts > 0 && hit < float64(s.MoE.TopK)*(1-1e-9) {
			t.Fatalf("%d tokens hit %v experts of %d", m, hit, s.MoE.Experts)
		}
	})
}
