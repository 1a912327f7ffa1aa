package cost_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

func preset(t testing.TB, modelName, gpuName string, o cost.Options) (model.Shape, *cost.Kernel) {
	t.Helper()
	s, ok := model.ByName(modelName)
	if !ok {
		t.Fatalf("no model %q", modelName)
	}
	g, ok := gpu.ByName(gpuName)
	if !ok {
		t.Fatalf("no gpu %q", gpuName)
	}
	k, err := cost.New(s, g, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, k
}

// prefill is what the chunks of a prompt take, one after the other.
func prefill(k *cost.Kernel, cached, prompt, chunk int) (t time.Duration) {
	for at := cached; at < prompt; {
		n := min(chunk, prompt-at)
		t += k.Step(&cost.Batch{Prefill: []cost.Span{{Offset: at, N: n, Last: at+n == prompt}}})
		at += n
	}
	return t
}

func decodes(s model.Shape, sequences, length int) *cost.Batch {
	return &cost.Batch{Decodes: sequences, Context: sequences * length, Recent: sequences * min(length, s.WindowTokens)}
}

// Arithmetic of public figures: FLOPs and bytes at the measured fractions of the peaks.
func TestStepReproducesPublicArithmetic(t *testing.T) {
	s, l40s := preset(t, "gemma-4-12b", "l40s", cost.Options{})
	_, h100 := preset(t, "gemma-4-12b", "h100", cost.Options{})
	demoShape, demo := preset(t, "demo", "demo", cost.Options{})
	for _, row := range []struct {
		what      string
		got       time.Duration
		low, high time.Duration
	}{
		{"L40S cold 18,000: 1.97 s linear, .23 full, .09 window", prefill(l40s, 0, 18000, 4096), 1946e6, 2633e6},
		{"H100 cold 18,000: .52 s linear, .12 full (heads of 512), .04 window", prefill(h100, 0, 18000, 8192), 612e6, 782e6},
		{"L40S decode, weights only: 23.8 GB at .8 of 864 GB/s", l40s.Step(decodes(s, 1, 1)), 31050e3, 37950e3},
		{"H100 decode, weights only: 8.4 ms, and 1.9 of launches in a graph", h100.Step(decodes(s, 1, 1)), 9270e3, 11340e3},
		{"L40S decode, 10 warm calls: 6.4 GB more", l40s.Step(decodes(s, 10, 18420)), 39240e3, 47960e3},
		{"H100 decode, 10 warm calls: 6.4 GB more", h100.Step(decodes(s, 10, 18420)), 11480e3, 14030e3},
		{"demo cold 2,700", prefill(demo, 0, 2700, 8192), 45e6, 60e6},
		{"demo warm 150", prefill(demo, 2700, 2850, 8192), 5e6, 10e6},
		{"demo decode, alone", demo.Step(decodes(demoShape, 1, 2700)), 2e6, 4e6},
		{"demo decode, 8 calls", demo.Step(decodes(demoShape, 8, 2700)), 3e6, 6e6},
	} {
		t.Logf("%-60s %v", row.what, row.got)
		if row.got < row.low || row.got > row.high {
			t.Errorf("%s: got %v, want %v to %v", row.what, row.got, row.low, row.high)
		}
	}
}

// A chunk behind a long prefix costs at least its pairs more than the same chunk without one. Chunks cost about as much as the whole:
// products of 2,048 rows reach a little more of the peak than longer ones.
func TestPrefillBehindAPrefix(t *testing.T) {
	for _, name := range []string{"llama-3.1-8b", "gemma-4-12b", "deepseek-v3"} {
		plan := cost.Options{}
		if name == "deepseek-v3" {
			plan.TP = 8
		}
		s, k := preset(t, name, "h200", plan)
		alone, behind := prefill(k, 0, 512, 512), prefill(k, 32000, 32512, 512)
		pairs := 512 * 32000.
		g := k.GPU()
		width := 4 * float64(s.Full.HeadDim)
		if m := s.Full.MLA; m != (model.MLA{}) {
			width = 2 * float64(m.NopeDim+m.RopeDim+m.ValueDim)
		}
		floor := width * float64(s.Full.Layers*s.QueryHeads) * pairs / g.BF16 / float64(k.Options().TP)
		if more := (behind - alone).Seconds(); more < floor || more > 5*floor {
			t.Errorf("%s: behind 32,000 tokens 512 take %v s more, want between the %v s at peak and five times that", name, more, floor)
		}
		again := time.Duration(0) // every chunk reads the weights of the experts
		if s.MoE.Experts > 0 {
			again = time.Duration(7 * float64(s.StepBytes(2048, 1)) / float64(k.Options().TP) / g.Bandwidth * 2e9)
		}
		if whole, chunks := prefill(k, 0, 16384, 16384), prefill(k, 0, 16384, 2048); chunks < whole*9/10 || chunks > whole*13/10+again {
			t.Errorf("%s: in chunks %v, at once %v", name, chunks, whole)
		}
	}
}

// plan draws a plan that is possible.
func plan(t *rapid.T, s model.Shape, g gpu.GPU) cost.Options {
	var o cost.Options
	for {
		power := func(name string) int { return 1 << rapid.IntRange(0, 3).Draw(t, name) }
		o = cost.Options{TP: power("tp"), PP: rapid.IntRange(1, 3).Draw(t, "pp"), EP: power("ep"), DP: power("dp")}
		o.Engine = rapid.SampledFrom([]cost.Engine{cost.SGLang, cost.VLLM}).Draw(t, "engine")
		if rapid.Bool().Draw(t, "drafts") {
			o.Draft = cost.Draft{Tokens: rapid.IntRange(1, 5).Draw(t, "draft"), Cost: rapid.Float64Range(0, .3).Draw(t, "each")}
		}
		if o.Validate(s, g) == nil {
			return o
		}
	}
}

// drawBatch draws a step: prefill, decodes or both.
func drawBatch(t *rapid.T, window int) cost.Batch {
	var b cost.Batch
	kind := rapid.IntRange(0, 2).Draw(t, "kind")
	if kind != 0 {
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			b.Prefill = append(b.Prefill, cost.Span{
				Offset: rapid.IntRange(0, 100_000).Draw(t, "offset"),
				N:      rapid.IntRange(1, 6000).Draw(t, "n"),
				Last:   rapid.Bool().Draw(t, "last"),
			})
		}
	}
	if kind != 1 {
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			n, length := rapid.IntRange(1, 400).Draw(t, "decodes"), rapid.IntRange(1, 50_000).Draw(t, "length")
			for range n {
				b = with(b, length, window)
			}
		}
	}
	return b
}

// with returns b with one more sequence of that length to decode.
func with(b cost.Batch, length, window int) cost.Batch {
	b.Decodes++
	b.Context += length
	b.Recent += min(length, window)
	return b
}

// forPresets checks every model on GPUs of every kind.
func forPresets(t *testing.T, check func(*rapid.T, model.Shape, gpu.GPU)) {
	for _, m := range model.Names() {
		t.Run(m, func(t *testing.T) {
			s, _ := model.ByName(m)
			rapid.Check(t, func(t *rapid.T) {
				g, _ := gpu.ByName(rapid.SampledFrom(gpu.Names()).Draw(t, "gpu"))
				check(t, s, g)
			})
		})
	}
}

// No step is faster than its FLOPs at the peak of the widest use of the GPU, nor than its bytes at peak bandwidth, on any preset and
// under any plan: of the GPUs of a plan one stage's work at a time.
func TestNoStepBeatsPhysics(t *testing.T) {
	forPresets(t, func(t *rapid.T, s model.Shape, g gpu.GPU) {
		o := plan(t, s, g)
		k, err := cost.New(s, g, o)
		if err != nil {
			t.Fatal(err)
		}
		b := drawBatch(t, s.WindowTokens)
		verify := 1 + o.Draft.Tokens
		linear, attention, bytes := 0., 0., 0.
		tokens, sampled := b.Decodes*verify, b.Decodes*verify
		full, window := 4*float64(s.Full.Layers*s.QueryHeads*s.Full.HeadDim), 4*float64(s.Window.Layers*s.QueryHeads*s.Window.HeadDim)
		if m := s.Full.MLA; m != (model.MLA{}) {
			full = 2 * float64(s.Full.Layers*s.QueryHeads*(m.NopeDim+m.RopeDim+m.ValueDim))
		}
		for _, p := range b.Prefill {
			tokens += p.N
			if p.Last {
				sampled++
			}
			for i := p.Offset; i < p.Offset+p.N; i++ { // token by token, unlike the code
				attention += full*float64(i+1) + window*float64(min(i+1, s.WindowTokens))
			}
		}
		linear = 2 * (float64(s.BodyParams())*float64(tokens) + float64(s.HeadParams())*float64(sampled))
		bytes = float64(s.StepBytes(tokens, sampled)) + float64(s.FullBytes())*float64(b.Context) + float64(s.WindowBytes())*float64(b.Recent)
		gpus := float64(max(1, o.TP))
		got := k.Step(&b).Seconds() * (1 + 1e-9)
		peak := max(g.BF16, g.FP8, g.FP4)
		if s.Weights == (model.Precisions{}) {
			peak = g.BF16
		}
		if atPeak := (linear/peak + attention/g.BF16) / gpus; got < atPeak {
			t.Errorf("%s, %+v: got %v s, but the FLOPs take %v s at peak", g.Name, o, got, atPeak)
		}
		if atPeak := bytes / g.Bandwidth / gpus; got < atPeak {
			t.Errorf("%s, %+v: got %v s, but %.3g bytes take %v s at peak", g.Name, o, got, bytes, atPeak)
		}
	})
}

// More of anything never takes less time.
func TestStepIsMonotone(t *testing.T) {
	forPresets(t, func(t *rapid.T, s model.Shape, g gpu.GPU) {
		k, err := cost.New(s, g, plan(t, s, g))
		if err != nil {
			t.Fatal(err)
		}
		b := drawBatch(t, s.WindowTokens)
		more := b
		more.Prefill = slices.Clone(b.Prefill)
		switch rapid.IntRange(0, 4).Draw(t, "more of") {
		case 0:
			more = with(more, rapid.IntRange(1, 100_000).Draw(t, "of length"), s.WindowTokens)
		case 1:
			if b.Decodes == 0 {
				return
			}
			more.Context += rapid.IntRange(0, 10_000).Draw(t, "context")
			more.Recent += rapid.IntRange(0, b.Decodes).Draw(t, "recent")
		case 2:
			more.Prefill = append(more.Prefill, cost.Span{Offset: rapid.IntRange(0, 1000).Draw(t, "o"), N: rapid.IntRange(1, 1000).Draw(t, "n"), Last: true})
		case 3:
			more.Loaded += 1 << 30
		case 4:
			if len(b.Prefill) == 0 {
				return
			}
			p := &more.Prefill[rapid.IntRange(0, len(b.Prefill)-1).Draw(t, "part")]
			p.N += rapid.IntRange(0, 100).Draw(t, "tokens")
			p.Offset += rapid.IntRange(0, 100).Draw(t, "offset")
			p.Last = true
		}
		less, got := k.Step(&b), k.Step(&more)
		if got < less {
			t.Errorf("%s, %+v: %+v takes %v, but the smaller %+v takes %v", g.Name, k.Options(), more, got, b, less)
		}
	})
}

// Every row count and batch size in turn: the tables are filled in any order, and rise.
func TestEveryRowCount(t *testing.T) {
	s, k := preset(t, "gpt-oss-120b", "h200", cost.Options{Engine: cost.VLLM, TP: 2})
	_, backwards := preset(t, "gpt-oss-120b", "h200", cost.Options{Engine: cost.VLLM, TP: 2})
	const most = 20_000
	times := make([]time.Duration, most)
	for n := most - 1; n > 0; n-- {
		times[n] = backwards.Step(&cost.Batch{Prefill: []cost.Span{{N: n, Last: true}}})
	}
	before := time.Duration(0)
	for n := 1; n < most; n++ {
		got := k.Step(&cost.Batch{Prefill: []cost.Span{{N: n, Last: true}}})
		if got < before || got != times[n] {
			t.Fatalf("%d tokens take %v, %d took %v; asked in another order %v", n, got, n-1, before, times[n])
		}
		before = got
	}
	before = 0
	for n := 1; n < 2000; n++ {
		got := k.Step(decodes(s, n, 1000))
		if got < before {
			t.Fatalf("%d sequences take %v, %d took %v", n, got, n-1, before)
		}
		before = got
	}
}

func TestOverheads(t *testing.T) {
	s, _ := model.ByName("llama-3.1-8b")
	g, _ := gpu.ByName("l40s")
	step := func(o cost.Options, over *gpu.Overheads, b *cost.Batch) time.Duration {
		g := g
		g.Overheads = over
		k, err := cost.New(s, g, o)
		if err != nil {
			t.Fatal(err)
		}
		return k.Step(b)
	}
	none := &gpu.Overheads{Graphs: 1 << 20}
	decode, fill := decodes(s, 10, 100), &cost.Batch{Prefill: []cost.Span{{N: 100}}}
	ms := time.Millisecond
	for _, row := range []struct {
		what string
		over gpu.Overheads
		b    *cost.Batch
		more time.Duration
	}{
		{"a decode step", gpu.Overheads{Decode: 3 * ms, Graphs: 64}, decode, 3 * ms},
		{"a prefill step", gpu.Overheads{Prefill: 5 * ms, Graphs: 64}, fill, 5 * ms},
		{"each of ten sequences", gpu.Overheads{Sequence: ms, Graphs: 64}, decode, 10 * ms},
	} {
		if got := step(cost.Options{}, &row.over, row.b) - step(cost.Options{}, none, row.b); got < row.more-2 || got > row.more+2 {
			t.Errorf("%s: got %v more, want %v", row.what, got, row.more)
		}
	}
	slow := &gpu.Overheads{Launch: 10 * ms, Graphs: 10}
	if got, want := step(cost.Options{}, slow, decode), step(cost.Options{}, none, decode); got != want {
		t.Errorf("a batch of 10 replays a graph: got %v, want %v", got, want)
	}
	if got := step(cost.Options{}, slow, decodes(s, 11, 100)); got < 32*5*10*ms {
		t.Errorf("a batch of 11 is launched kernel by kernel: got %v, want at least 5 launches of 10 ms in each of 32 layers", got)
	}
	if got := step(cost.Options{Eager: true}, slow, decode); got < 32*5*10*ms {
		t.Errorf("without graphs: got %v, want at least 5 launches of 10 ms in each of 32 layers", got)
	}
	if got, want := step(cost.Options{}, none, &cost.Batch{Decodes: 1, Context: 1, Loaded: 32e9})-step(cost.Options{}, none, decodes(s, 1, 1)), time.Second; got < want-5 || got > want+5 {
		t.Errorf("32 GB from the host over 32 GB/s: got %v, want %v", got, want)
	}
	if got := step(cost.Options{}, none, &cost.Batch{}); got != 0 {
		t.Errorf("an empty step takes %v", got)
	}
}

// Speculation: verifying costs rows, not weights, and drafting what it is said to cost.
func TestSpeculation(t *testing.T) {
	s, plain := preset(t, "llama-3.1-8b", "h100", cost.Options{})
	_, verify := preset(t, "llama-3.1-8b", "h100", cost.Options{Draft: cost.Draft{Tokens: 3}})
	_, draft := preset(t, "llama-3.1-8b", "h100", cost.Options{Draft: cost.Draft{Tokens: 3, Cost: .1}})
	b := decodes(s, 8, 2000)
	a, v, d := plain.Step(b), verify.Step(b), draft.Step(b)
	if v < a || v > a*12/10 {
		t.Errorf("verifying 4 tokens of 8 sequences takes %v, want at most a fifth more than the %v of one", v, a)
	}
	if more := float64(d-v) / float64(a); more < .15 || more > .3 {
		t.Errorf("three drafts at a tenth of a step each take %.2f of a step, want about .3 without attention and overheads", more)
	}
}

// Where parallelism helps and where it cannot.
func TestPlans(t *testing.T) {
	s, one := preset(t, "llama-3.1-8b", "h100", cost.Options{})
	_, four := preset(t, "llama-3.1-8b", "h100", cost.Options{TP: 4})
	big := &cost.Batch{Prefill: []cost.Span{{N: 8192, Last: true}}}
	if a, b := one.Step(big), four.Step(big); b > a/2 || b < a/4 {
		t.Errorf("prefill on four GPUs takes %v, want a quarter to half of the %v on one", b, a)
	}
	if a, b := one.Step(decodes(s, 1, 1)), four.Step(decodes(s, 1, 1)); b < a/4 || b > a {
		t.Errorf("a decode step on four GPUs takes %v, want more than a quarter of the %v on one", b, a)
	}
	_, nvlink := preset(t, "llama-3.1-70b", "h100", cost.Options{TP: 4})
	_, pcie := preset(t, "llama-3.1-70b", "l40s", cost.Options{TP: 4})
	fast, slow := nvlink.Step(big), pcie.Step(big)
	if slow < 5*fast {
		t.Errorf("prefill over PCIe takes %v, over NVLink %v: collectives are not there", slow, fast)
	}
	// Latent attention is replicated by TP; groups of attention share the sequences instead.
	m, tp := preset(t, "deepseek-v3", "h200", cost.Options{TP: 8, EP: 8})
	_, dp := preset(t, "deepseek-v3", "h200", cost.Options{TP: 8, EP: 8, DP: 8})
	if a, b := tp.Step(decodes(m, 256, 16000)), dp.Step(decodes(m, 256, 16000)); b >= a {
		t.Errorf("with attention in 8 groups a long decode step takes %v, want less than the %v with one", b, a)
	}
	if a, b := tp.Memory(), dp.Memory(); a.FullBytes != b.FullBytes || b.Ranks != 8 || a.Ranks != 1 {
		t.Errorf("KV of a token is %d in 1 group and %d in %d, want the same latent in 8", a.FullBytes, b.FullBytes, b.Ranks)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, row := range []struct {
		model, gpu string
		o          cost.Options
		want       string
	}{
		{"llama-3.1-8b", "h100", cost.Options{TP: 3}, "tensor parallelism 3: must divide the 32 query heads"},
		{"llama-3.1-8b", "h100", cost.Options{TP: -1}, "tp is -1, must be at least 1"},
		{"llama-3.1-8b", "h100", cost.Options{TP: 16}, "tp is 16, but only 8 of h100-sxm are joined"},
		{"llama-3.1-8b", "l40s", cost.Options{TP: 16}, "tp is 16, but a server has 8 of l40s"},
		{"llama-3.1-8b", "h100", cost.Options{PP: 33}, "pp is 33, must be at most the 32 layers"},
		{"llama-3.1-8b", "h100", cost.Options{EP: 2, TP: 2}, "ep is 2, but llama-3.1-8b has no experts"},
		{"gpt-oss-120b", "h100", cost.Options{EP: 4, TP: 2}, "ep is 4, must divide tp, 2"},
		{"llama-3.1-8b", "h100", cost.Options{DP: 4, TP: 2}, "dp is 4, must divide tp, 2"},
		{"llama-3.1-8b", "h100", cost.Options{Engine: "tgi"}, `engine is "tgi", must be sglang or vllm`},
		{"llama-3.1-8b", "h100", cost.Options{Draft: cost.Draft{Tokens: -1}}, "speculation drafts -1 tokens"},
		{"llama-3.1-8b", "h100", cost.Options{Draft: cost.Draft{Tokens: 1, Cost: math.NaN()}}, "at NaN of a step"},
	} {
		s, _ := model.ByName(row.model)
		g, _ := gpu.ByName(row.gpu)
		_, err := cost.New(s, g, row.o)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: got %v, want ...%s...", row.o, err, row.want)
		}
	}
}

// The pools of Gemma 12B that public arithmetic gives for .88 to .90 of the memory: 16.6 to 17.6 GB and 49.4 to 51.1 GB.
func TestGemmaPools(t *testing.T) {
	for _, row := range []struct {
		gpu       string
		chunk     int
		low, high float64
	}{{"l40s", 4096, 16.5e9, 17.7e9}, {"h100", 8192, 49.3e9, 51.2e9}} {
		for _, name := range []string{"gemma-3-12b", "gemma-4-12b"} {
			_, k := preset(t, name, row.gpu, cost.Options{MaxTokens: row.chunk})
			m := k.Memory()
			for _, fraction := range []float64{.88, .90} {
				pool := fraction*float64(k.GPU().Memory) - float64(m.Weights+m.Reserve)
				t.Logf("%s on %s at %.2f: %.2f GB", name, row.gpu, fraction, pool/1e9)
				if fraction == .88 && (pool < row.low || pool > row.high) {
					t.Errorf("%s on %s at %.2f: got a pool of %.2f GB, want %.1f to %.1f", name, row.gpu, fraction, pool/1e9, row.low/1e9, row.high/1e9)
				}
			}
		}
	}
}

// What the GPUs of a plan hold together is the model at least once, and no GPU holds more than all of it.
func TestMemoryOfPlans(t *testing.T) {
	forPresets(t, func(t *rapid.T, s model.Shape, g gpu.GPU) {
		o := plan(t, s, g)
		k, err := cost.New(s, g, o)
		if err != nil {
			t.Fatal(err)
		}
		m := k.Memory()
		all := s.WeightBytes()
		most := all + all/100
		if s.MoE.Experts > 0 && s.Weights.OfExperts().Bits() < 8 { // gpt-oss in tiles: 2,880 become 3,072 and, undivided, 2,944
			most = all + all/10
		}
		if m.Weights > most || m.Weights*int64(o.GPUs()) < all-int64(o.GPUs()) {
			t.Errorf("%+v: a GPU holds %d B of weights, of %d on %d GPUs", o, m.Weights, all, o.GPUs())
		}
		kv := m.FullBytes*int64(o.GPUs()/o.DP) + m.WindowBytes*int64(o.GPUs()/o.DP)
		if kv < s.FullBytes()+s.WindowBytes() {
			t.Errorf("%+v: the GPUs of a group hold %d B of KV a token, want at least the %d of all layers", o, kv, s.FullBytes()+s.WindowBytes())
		}
		if m.FullLayers*o.PP < s.Full.Layers || m.WindowLayers*o.PP < s.Window.Layers || m.Reserve < 1e9 {
			t.Errorf("%+v: got %+v", o, m)
		}
	})
	_, k := preset(t, "llama-3.1-8b", "h100", cost.Options{})
	if m := k.Memory(); m.Weights != 16060514304 && m.Weights != 16059990016 {
		t.Errorf("Llama 3.1 8B weighs %d B, want its 8.03 B parameters in BF16", m.Weights)
	}
}

// gpt-oss's experts of 2,880 by 2,880 fill tiles of 256 and 128: 3,072 by 2,944 on one GPU, by 384 on each of eight. All of it is
// stored, read and computed. Of eight bits a weight nothing is filled up.
func TestExpertsComeInTiles(t *testing.T) {
	kernel := func(p model.Precision, tp, width int) (model.Shape, *cost.Kernel) {
		s, _ := model.ByName("gpt-oss-120b")
		s.Weights.Experts, s.MoE.FFN = p, width*tp
		g, _ := gpu.ByName("h200")
		k, err := cost.New(s, g, cost.Options{Engine: cost.VLLM, TP: tp})
		if err != nil {
			t.Fatal(err)
		}
		return s, k
	}
	for _, c := range []struct {
		precision     model.Precision
		tp            int
		hidden, width float64
	}{
		{model.MXFP4, 1, 3072, 2944}, {model.MXFP4, 2, 3072, 1536}, {model.MXFP4, 4, 3072, 768}, {model.MXFP4, 8, 3072, 384},
		{model.FP8, 1, 2880, 2880}, {model.FP8, 8, 2880, 360},
	} {
		s, k := kernel(c.precision, c.tp, 2880/c.tp)
		experts := float64(s.Bytes().Experts)
		want := (float64(s.WeightBytes()) + experts*(c.hidden*c.width*float64(c.tp)/2880/2880-1)) / float64(c.tp)
		if off := float64(k.Memory().Weights)/want - 1; off < -1e-6 || off > .01 { // KV heads and the router are on several GPUs
			t.Errorf("%s, tp %d: a GPU holds %d B of weights, want %.0f", c.precision, c.tp, k.Memory().Weights, want)
		}
	}
	step := func(p model.Precision, width int) time.Duration {
		_, k := kernel(p, 8, width)
		return k.Step(&cost.Batch{Prefill: []cost.Span{{N: 8192, Last: true}}})
	}
	if narrow, whole := step(model.MXFP4, 264), step(model.MXFP4, 384); narrow != whole {
		t.Errorf("experts of 264 take %v a step, in three tiles as those of 384, which take %v", narrow, whole)
	}
	if less, more := step(model.MXFP4, 384), step(model.MXFP4, 392); more < less*11/10 {
		t.Errorf("experts of 392 take %v a step, in four tiles; want more than a tenth above the %v of three", more, less)
	}
	if narrow, whole := step(model.FP8, 264), step(model.FP8, 384); narrow >= whole {
		t.Errorf("experts of eight bits, 264 wide, take %v a step, want less than the %v of 384", narrow, whole)
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	s, k := preset(t, "gemma-4-12b", "l40s", cost.Options{})
	b, p := decodes(s, 30, 18420), &cost.Batch{Prefill: []cost.Span{{Offset: 8000, N: 20000, Last: true}}}
	if n := testing.AllocsPerRun(100, func() { k.Step(b); k.Step(p) }); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func Example() {
	s, _ := model.ByName("llama-3.1-70b")
	g, _ := gpu.ByName("h100")
	k, err := cost.New(s, g, cost.Options{Engine: cost.VLLM, TP: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := cost.Batch{Decodes: 64, Context: 64 * 4000}
	fmt.Println(k.Step(&b) < 40*time.Millisecond, k.Memory().Weights/1e9)
	// Output: true 17
}

func BenchmarkDecodeStep(b *testing.B) {
	s, k := preset(b, "gemma-4-12b", "l40s", cost.Options{})
	step := decodes(s, 30, 18420)
	b.ReportAllocs()
	for b.Loop() {
		step.Context += 30
		k.Step(step)
	}
}

func BenchmarkMixedStep(b *testing.B) {
	s, k := preset(b, "gemma-4-12b", "l40s", cost.Options{})
	step := decodes(s, 30, 18420)
	step.Prefill = []cost.Span{{Offset: 8192, N: 4066}}
	b.ReportAllocs()
	for b.Loop() {
		k.Step(step)
	}
}

func BenchmarkNew(b *testing.B) {
	s, _ := model.ByName("gemma-4-12b")
	g, _ := gpu.ByName("l40s")
	for b.Loop() {
		if _, err := cost.New(s, g, cost.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A step that takes longer than a time.Duration holds takes very long, not less than nothing.
func TestStepsEnd(t *testing.T) {
	m, _ := model.ByName("qwen3-8b")
	k, err := cost.New(m, gpu.GPU{Name: "snail", Memory: 50e9, Bandwidth: 1e-290, BF16: 300e12}, cost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from the table
		for _, b := range []cost.Batch{{Decodes: 1, Context: 10}, {Prefill: []cost.Span{{N: 10, Last: true}}}} {
			if d := k.Step(&b); d < 1000*time.Hour {
				t.Errorf("%+v takes %v", b, d)
			}
		}
	}
}
