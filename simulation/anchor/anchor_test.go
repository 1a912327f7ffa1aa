package anchor

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// tiny is the model of testdata on a GPU that is not a preset's.
func tiny(t testing.TB) model.Shape {
	t.Helper()
	m, err := model.ReadConfig("testdata/tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// setup is how cfg's engine is started.
func setup(cfg engine.Config) Setup {
	r := cfg.Filled().Recipe
	s := Setup{Engine: r.Kind, Chunk: r.BatchedTokens, TP: r.TP, PP: r.PP, EP: r.EP, DP: r.DP}
	if r.Scheduler == engine.PrefillFirst {
		s.Chunk = min(r.ChunkedPrefill, r.MaxPrefillTokens)
	}
	return s
}

// virtual measures an engine model in virtual time.
func virtual(t testing.TB, cfg engine.Config, p Plan, words *workload.Lexicon) Data {
	t.Helper()
	eng, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	clk, to := simulation.NewRun(eng, words, generator.Limits{})
	var d Data
	clk.Run(t.Context(), func() {
		d, err = Measure(t.Context(), Target{Clock: clk, To: to, Lexicon: words, Nonce: 7}, setup(cfg), Server{}, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func english(t testing.TB) *workload.Lexicon {
	t.Helper()
	l, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func preset(t testing.TB, m, g string, kind engine.Kind) engine.Config {
	t.Helper()
	c, err := engine.Preset(m, g)
	if err != nil {
		t.Fatal(err)
	}
	c.Recipe.Kind = kind
	return c
}

// worst compares step times of the fitted GPU with those of the truth on batches within what was measured, held-out ones too, and
// returns the largest relative difference.
func worst(t *testing.T, cfg engine.Config, fitted gpu.GPU, d Data) (most float64, at string) {
	t.Helper()
	o := cost.Options{Engine: cost.Engine(d.Setup.Engine), TP: cfg.Recipe.TP}
	check := func(what string, r Reading) {
		t.Helper()
		a, err := predict(cfg.Model, cfg.GPU, o, d.Setup.Chunk, []Reading{r})
		if err != nil {
			t.Fatal(err)
		}
		b, err := predict(cfg.Model, fitted, o, d.Setup.Chunk, []Reading{r})
		if err != nil {
			t.Fatal(err)
		}
		e := math.Abs(b[0]/a[0] - 1)
		t.Logf("%-28s %8.2f ms, fitted %8.2f ms, %+.1f %%", what, a[0], b[0], 100*(b[0]/a[0]-1))
		if e > most {
			most, at = e, what
		}
	}
	n := func(v int) *int { return &v }
	for _, l := range []int{48, 100, 180, 400, 700, 1500, 3100, 5000, 7000} {
		check("cold "+itoa(l), Reading{Kind: Cold, Requests: []Request{{Prompt: l, Cached: n(0)}}})
	}
	for _, c := range [][2]int{{40, 1000}, {100, 3000}, {200, 5000}, {800, 4000}} {
		check("warm "+itoa(c[0])+" behind "+itoa(c[1]), Reading{Kind: Warm, Requests: []Request{{Prompt: c[0] + c[1], Cached: n(c[1])}}})
	}
	for _, b := range []int{1, 3, 6, 12, 16} {
		for _, l := range []float64{100, 1000, 1900} {
			s := Steps{N: 1, MS: 1}
			for range b {
				s.Lengths = append(s.Lengths, l)
			}
			check("decode "+itoa(b)+" of "+itoa(int(l)), Reading{Kind: Decode, Steps: &s})
		}
	}
	return most, at
}

func itoa(n int) string { return strconv.Itoa(n) }

// A fit to readings of the engine model gives its step times again, at lengths and batches that were not measured too.
func TestFitFindsTheModelAgain(t *testing.T) {
	two := preset(t, "llama-3.1-8b", "h100", engine.SGLang)
	two.Recipe.TP = 2
	for _, c := range []struct {
		name  string
		cfg   engine.Config
		limit float64
	}{
		{"llama on l40s, sglang", preset(t, "llama-3.1-8b", "l40s", engine.SGLang), .05},
		{"llama on l40s, vllm", preset(t, "llama-3.1-8b", "l40s", engine.VLLM), .05},
		{"gemma 4 on h100, sglang", preset(t, "gemma-4-12b", "h100", engine.SGLang), .05},
		{"demo, sglang", preset(t, "demo", "demo", engine.SGLang), .05},
		{"experts on h100, sglang", preset(t, "qwen3-30b-a3b", "h100", engine.SGLang), .05},
		{"llama on two h100, sglang", two, .05},
	} {
		if raceEnabled && c.cfg.Recipe.Kind == engine.SGLang {
			continue // a fit is one goroutine, and slow under the race detector
		}
		t.Run(c.name, func(t *testing.T) {
			p, err := Default(Limits{Context: c.cfg.Model.ContextLimit})
			if err != nil {
				t.Fatal(err)
			}
			p.Repeats = 1
			d := virtual(t, c.cfg, p, english(t))
			r, err := Fit(d, c.cfg.Model, Card{Name: "fitted", Memory: 48e9})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			r.Report(&b)
			t.Log("\n" + b.String())
			b.Reset()
			if err := WriteGPU(&b, r.GPU); err != nil {
				t.Fatal(err)
			}
			read, err := gpu.FromFile(strings.NewReader(b.String()), "file.json")
			if err != nil {
				t.Fatalf("%v\n%s", err, b.String())
			}
			if most, at := worst(t, c.cfg, read, d); most > c.limit {
				t.Errorf("%s: %.1f %% off, want at most %.0f %%", at, 100*most, 100*c.limit)
			}
		})
	}
}

// cpu is an engine on a CPU as slow ones are: each step costs milliseconds, and rows are all that counts then.
func cpu(t testing.TB, kind engine.Kind) engine.Config {
	t.Helper()
	p := gpu.Product{Compute: gpu.Curve{{M: 16, Fraction: .5}, {M: 512, Fraction: 1}}, Stream: gpu.Curve{{M: 1, Fraction: .9}}}
	g := gpu.GPU{Name: "cpu", Memory: 64e9, Bandwidth: 20e9, BF16: 60e9, PCIe: 32e9, Measured: "cpu",
		Kernels: gpu.Kernels{
			BF16: p, FP8: p, Experts: p, Experts4: p, Prefill: []gpu.Prefill{{HeadDim: 64, Launch: 200 * time.Microsecond, Fraction: .5, RowKeys: 100}},
			Decode: []gpu.Decode{{HeadDim: 64, Launch: 100 * time.Microsecond, Sequence: 20 * time.Microsecond, Fraction: .1}},
			Pass:   gpu.Pass{Launch: 30 * time.Microsecond, Fraction: .8},
		},
		Overheads: &gpu.Overheads{Prefill: 5 * time.Millisecond, Decode: 3 * time.Millisecond, Sequence: 150 * time.Microsecond, Request: 12 * time.Millisecond, PromptToken: 2 * time.Microsecond},
	}
	return engine.Config{Model: tiny(t), GPU: g, Recipe: engine.Recipe{Kind: kind, KVTokens: 40000, ContextLimit: 32768, ChunkedPrefill: 2048, BatchedTokens: 2048}}
}

func TestFitFindsASlowEngineAgain(t *testing.T) {
	for _, kind := range []engine.Kind{engine.SGLang, engine.VLLM} {
		if raceEnabled && kind == engine.VLLM {
			continue
		}
		cfg := cpu(t, kind)
		p, err := Default(Limits{Context: 32768, Pool: 40000, Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		d := virtual(t, cfg, p, english(t))
		r, err := Fit(d, cfg.Model, Card{Name: "fitted", Memory: 64e9})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		r.Report(&b)
		t.Log("\n" + b.String())
		if most, at := worst(t, cfg, r.GPU, d); most > .03 {
			t.Errorf("%s, %s: %.1f %% off, want at most 3 %%", kind, at, 100*most)
		}
		if got, want := r.GPU.Overheads.Request, cfg.GPU.Overheads.Request; math.Abs(float64(got-want)) > .1*float64(want) {
			t.Errorf("%s: a request costs %v, want about %v", kind, got, want)
		}
	}
}

// Readings of the engine model are predicted to the microsecond by the constants that made them: what is fitted is what the engine does.
func TestPredictionsAreTheEngine(t *testing.T) {
	for _, kind := range []engine.Kind{engine.SGLang, engine.VLLM} {
		cfg := cpu(t, kind)
		p, err := Default(Limits{Context: 32768, Pool: 40000, Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		d := virtual(t, cfg, p, english(t))
		times, err := predict(cfg.Model, cfg.GPU, cost.Options{Engine: cost.Engine(kind)}, 2048, d.Seen)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[Kind]int{}
		for i := range d.Seen {
			r := &d.Seen[i]
			kinds[r.Kind]++
			if off := math.Abs(times[i] - r.took()); off > .001+1e-4*r.took() {
				t.Errorf("%s, %s %s: predicted %.4f ms, the engine takes %.4f", kind, r.Kind, r.Point, times[i], r.took())
			}
		}
		for _, k := range []Kind{Cold, Warm, Together, Decode} {
			if kinds[k] < 4 {
				t.Errorf("%s: %d readings of %s", kind, kinds[k], k)
			}
		}
	}
}

// noisy is d with times that are off by a few percent, and some by much.
func noisy(d Data, seed uint64) Data {
	random := rand.New(rand.NewPCG(seed, 1))
	off := func() float64 {
		f := math.Exp(.04 * random.NormFloat64())
		if random.IntN(12) == 0 {
			f *= 1 + random.ExpFloat64()
		}
		return f
	}
	out := d
	out.Seen = nil
	for _, r := range d.Seen {
		if r.Steps != nil {
			s := *r.Steps
			s.MS *= off()
			r.Steps = &s
		}
		r.Requests = slices.Clone(r.Requests)
		f := off()
		for i := range r.Requests {
			r.Requests[i].First *= f
		}
		out.Seen = append(out.Seen, r)
	}
	return out
}

// Under noise as a busy machine makes it, the constants still give the true step times within a tenth.
func TestFitUnderNoise(t *testing.T) {
	cfg := cpu(t, engine.VLLM)
	p, err := Default(Limits{Context: 32768, Pool: 40000})
	if err != nil {
		t.Fatal(err)
	}
	d := virtual(t, cfg, p, english(t))
	seeds := uint64(4)
	if raceEnabled {
		seeds = 1
	}
	for seed := range seeds {
		r, err := Fit(noisy(d, seed), cfg.Model, Card{Name: "fitted", Memory: 64e9})
		if err != nil {
			t.Fatal(err)
		}
		if most, at := worst(t, cfg, r.GPU, d); most > .1 {
			t.Errorf("seed %d, %s: %.1f %% off, want at most 10 %%", seed, at, 100*most)
		}
	}
}
