package anchor

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/mat"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

func slow(t *testing.T) (engine.Config, Data) {
	t.Helper()
	cfg := cpu(t, engine.SGLang)
	p, err := Default(Limits{Context: 32768, Pool: 40000, Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, virtual(t, cfg, p, english(t))
}

// A data file and a GPU file give what went into them, and the fit of the file read again is the same.
func TestFiles(t *testing.T) {
	cfg, d := slow(t)
	var first, second bytes.Buffer
	if err := Write(&first, d); err != nil {
		t.Fatal(err)
	}
	text := first.String()
	again, err := Read(&first, "data.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, again); diff != "" {
		t.Errorf("data (-written +read):\n%s", diff)
	}
	if lines := strings.Count(text, "\n"); lines < len(d.Seen) || lines > len(d.Seen)+20 {
		t.Errorf("%d lines for %d readings", lines, len(d.Seen))
	}
	r, err := Fit(d, cfg.Model, Card{Name: "mine", Memory: 64e9, Watts: 90, USDHour: .5, Notes: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	first.Reset()
	if err := WriteGPU(&first, r.GPU); err != nil {
		t.Fatal(err)
	}
	text = first.String()
	g, err := gpu.FromFile(&first, "gpu.json")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := WriteGPU(&second, g); err != nil || second.String() != text {
		t.Errorf("the GPU file written, read and written: %v\n%s\n%s", err, text, second.String())
	}
	if *g.Anchor != *r.GPU.Anchor || g.Name != "mine" || g.Scaled() {
		t.Errorf("read %+v of %s, measured on %s, want %+v", g.Anchor, g.Name, g.Measured, r.GPU.Anchor)
	}
	a, err := predict(cfg.Model, r.GPU, cost.Options{}, 2048, d.Seen)
	if err != nil {
		t.Fatal(err)
	}
	b, err := predict(cfg.Model, g, cost.Options{}, 2048, d.Seen)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if math.Abs(a[i]/b[i]-1) > 1e-3 {
			t.Errorf("%s %s: fitted %v ms, by the file %v", d.Seen[i].Kind, d.Seen[i].Point, a[i], b[i])
		}
	}
	refit, err := Fit(again, cfg.Model, Card{Name: "mine", Memory: 64e9, Watts: 90, USDHour: .5, Notes: "a test"})
	if err != nil || *refit.GPU.Overheads != *r.GPU.Overheads || refit.GPU.BF16 != r.GPU.BF16 {
		t.Errorf("a second fit of the same data differs: %v", err)
	}
}

// Data that contradict themselves are refused, by name.
func TestRefused(t *testing.T) {
	cfg, good := slow(t)
	first := func(d *Data, k Kind) *Reading {
		return &d.Seen[slices.IndexFunc(d.Seen, func(r Reading) bool { return r.Kind == k })]
	}
	n := func(v int) *int { return &v }
	for want, spoil := range map[string]func(d *Data){
		"cached tokens are not told":                        func(d *Data) { first(d, Warm).Requests[0].Cached = nil },
		"is the prefix cache on, and large enough?":         func(d *Data) { first(d, Warm).Requests[0].Cached = n(3) },
		"although nobody had sent them":                     func(d *Data) { r := &first(d, Cold).Requests[0]; r.Prompt, r.Cached = 900, n(600) },
		"must be fewer, as at least one is always computed": func(d *Data) { r := &first(d, Cold).Requests[0]; r.Cached = n(r.Prompt) },
		"the token must come later":                         func(d *Data) { first(d, Cold).Requests[0].First = 0 },
		"prompt_tokens is 0":                                func(d *Data) { first(d, Cold).Requests[0].Prompt = 0 },
		"of more than 0 ms":                                 func(d *Data) { first(d, Decode).Steps.MS = math.NaN() },
		"a sequence has 0 tokens":                           func(d *Data) { first(d, Decode).Steps.Lengths[0] = 0 },
		"must have steps, and no requests":                  func(d *Data) { first(d, Decode).Steps = nil },
		"the kind must be cold, warm, decode or together":   func(d *Data) { first(d, Cold).Kind = "hot" },
		"setup.chunk is 0":                                  func(d *Data) { d.Setup.Chunk = 0 },
		"setup.engine is \"trt\"":                           func(d *Data) { d.Setup.Engine = "trt" },
		"setup.tp is -1":                                    func(d *Data) { d.Setup.TP = -1 },
		"cache_report is \"\"":                              func(d *Data) { d.Cache = "" },
		"is it the right model's config.json?":              func(d *Data) { first(d, Cold).Requests[0].Prompt = 50000 },
		"at least 3 are needed, the longest 4 times":        func(d *Data) { d.Seen = slices.DeleteFunc(d.Seen, func(r Reading) bool { return r.Kind == Cold }) },
		"at least two numbers of sequences are needed": func(d *Data) {
			d.Seen = slices.DeleteFunc(d.Seen, func(r Reading) bool { return r.Kind == Decode && len(r.Steps.Lengths) > 1 })
		},
		"plan: dp is 3, must divide tp": func(d *Data) { d.Setup.TP, d.Setup.DP = 2, 3 },
	} {
		var b bytes.Buffer
		if err := Write(&b, good); err != nil {
			t.Fatal(err)
		}
		d, err := Read(&b, "x")
		if err != nil {
			t.Fatal(err)
		}
		spoil(&d)
		if _, err := Fit(d, cfg.Model, Card{Name: "x", Memory: 64e9}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for text, want := range map[string]string{
		"":                                    "the file ends before its data do",
		`{"schema": "kneefinder/results/v1"}`: `schema is "kneefinder/results/v1", must be`,
		`{"shema": 1}`:                        `unknown field "shema"`,
		`{"schema": "` + Schema + `"`:         "the file ends before its data do",
	} {
		if _, err := Read(strings.NewReader(text), "f.json"); err == nil || !strings.HasPrefix(err.Error(), "f.json: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		limits          Limits
		longest, widest int
		refused         string
	}{
		{Limits{}, 8192, 16, ""},
		{Limits{Context: 32768, Pool: 40000}, 8192, 16, ""},
		{Limits{Context: 2048}, 1888, 16, ""},
		{Limits{Pool: 4000}, 3000, 16, ""},
		{Limits{Pool: 600}, 450, 4, ""},
		{Limits{Context: 300}, 0, 0, "too short a ladder"},
		{Limits{Pool: 100}, 0, 0, "too short a ladder"},
		{Limits{Longest: -1}, 0, 0, "longest prompt is -1"},
		{Limits{Batch: 1}, 0, 0, "at least two numbers"},
	} {
		p, err := Default(c.limits)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v, want %q", c.limits, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c.limits, err)
			continue
		}
		if got := slices.Max(p.Lengths); got != c.longest || slices.Max(p.Batches) != c.widest {
			t.Errorf("%+v: up to %d tokens and %d sequences, want %d and %d", c.limits, got, slices.Max(p.Batches), c.longest, c.widest)
		}
		for _, b := range p.Batches {
			for _, d := range p.Depths {
				if d := p.depth(d, b); d < 1 || c.limits.Pool > 0 && b*(d+p.Output) > c.limits.Pool {
					t.Errorf("%+v: %d sequences of %d tokens", c.limits, b, d)
				}
			}
		}
		if n := p.Requests(); n < 50 || n > 600 {
			t.Errorf("%+v: %d requests", c.limits, n)
		}
	}
}

// nnls meets the conditions of Karush, Kuhn and Tucker, which only the minimum does.
func TestNNLS(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	bound := 0
	for range 300 {
		rows, n := 3+random.IntN(12), 1+random.IntN(8)
		a, b := mat.NewDense(rows+n, n, nil), make([]float64, rows+n)
		for i := range rows {
			for j := range n {
				a.Set(i, j, random.NormFloat64())
			}
			b[i] = random.NormFloat64()
		}
		for j := range n {
			a.Set(rows+j, j, .01)
		}
		x := nnls(a, b)
		for j := range n {
			slope := 0.
			for i := range b {
				r := b[i]
				for k := range n {
					r -= a.At(i, k) * x[k]
				}
				slope += a.At(i, j) * r
			}
			if x[j] < 0 || slope > 1e-6 || x[j] > 0 && slope < -1e-6 {
				t.Fatalf("x[%d] is %v and the sum falls by %v with it", j, x[j], slope)
			}
			if x[j] == 0 {
				bound++
			}
		}
	}
	if bound == 0 {
		t.Error("no bound was ever met")
	}
}

func TestForeignAndDoubts(t *testing.T) {
	cfg := cpu(t, engine.SGLang)
	if err := Foreign(cfg); err != nil || Doubts(cfg, Load{Prompt: 1e6}) != nil {
		t.Errorf("an uncalibrated GPU: %v", err)
	}
	m := cfg.Model
	cfg.GPU.Anchor = &gpu.Anchor{Engine: "sglang", Model: "tiny", Params: m.Params(), KVBytes: m.FullBytes(), TP: 1, PP: 1, EP: 1, DP: 1,
		Chunk: 2048, Prompt: 8192, Cached: 6000, Batch: 16, Context: 2080}
	if err := Foreign(cfg); err != nil {
		t.Error(err)
	}
	if d := Doubts(cfg, Load{Prompt: 8000, Sequence: 8192, Batch: 16}); d != nil {
		t.Errorf("doubts %q within what was measured", d)
	}
	d := Doubts(cfg, Load{Prompt: 8193, Sequence: 9000, Batch: 40})
	for i, want := range []string{"prompts of tokens up to 8193, measured up to 8192", "sequences of tokens up to 9000", "requests at a time up to 40, measured up to 16"} {
		if i >= len(d) || !strings.Contains(d[i], want) {
			t.Errorf("doubts %q, want %q", d, want)
		}
	}
	other, _ := model.ByName("llama-3.1-8b")
	for want, change := range map[string]func(*engine.Config){
		"calibrated with sglang":         func(c *engine.Config) { c.Recipe.Kind = engine.VLLM },
		"calibrated with the model tiny": func(c *engine.Config) { c.Model = other },
		"calibrated with tp 1":           func(c *engine.Config) { c.Recipe.TP = 2 },
		"without speculative decoding":   func(c *engine.Config) { c.Recipe.Speculate.Tokens = 3 },
	} {
		c := cfg
		change(&c)
		if err := Foreign(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if d := Doubts(c, Load{}); len(d) == 0 || !strings.Contains(d[0], want) {
			t.Errorf("doubts %q, want %q", d, want)
		}
	}
	c := cfg
	c.Recipe.ChunkedPrefill = 8192
	if d := Doubts(c, Load{}); len(d) != 1 || !strings.Contains(d[0], "steps of prompt tokens up to 8192, measured up to 2048") {
		t.Errorf("doubts %q of a larger chunk", d)
	}
}
