package gpu

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPresets(t *testing.T) {
	names := Names()
	if len(names) != 18 {
		t.Errorf("got %d presets, want 17 and the demo", len(names))
	}
	for _, name := range names {
		g, ok := ByName(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		if err := g.Validate(); err != nil {
			t.Error(err)
		}
		if g.Source == "" {
			t.Errorf("%s: no source", name)
		}
		if own := name == "l40s" || name == "h100-sxm" || name == "demo"; g.Scaled() == own {
			t.Errorf("%s: efficiencies of %s, scaled %v", name, g.Measured, g.Scaled())
		}
		if again := g.Filled(); cmp.Diff(g, again) != "" {
			t.Errorf("%s: filled twice it is another:\n%s", name, cmp.Diff(g, again))
		}
	}
	for alias, name := range aliases {
		a, ok := ByName(alias)
		if !ok || a.Name != name {
			t.Errorf("%s: got %q, %v, want %s", alias, a.Name, ok, name)
		}
	}
	if _, ok := ByName("h1000"); ok {
		t.Error("h1000 is a GPU")
	}
}

// Published figures that a slip would change by a factor, and the traps that other tools fell into.
func TestPresetFigures(t *testing.T) {
	for _, row := range []struct {
		name      string
		memory    int64
		bandwidth float64
		bf16, fp8 float64
		measured  string
	}{
		{"l40s", 48305799168, 864e9, 362.05e12, 733e12, "l40s"}, // 46,068 MiB usable; FP8 dense, not the sparse 1,466
		{"h100", 80 << 30, 3350e9, 989e12, 1978e12, "h100-sxm"},
		{"h200", 151397597184, 4800e9, 989e12, 1978e12, "h100-sxm"},
		{"a100-80-sxm", 80 << 30, 2039e9, 312e12, 0, "h100-sxm"},
		{"mi300x", 192e9, 5300e9, 1307e12, 2615e12, "h100-sxm"},
		{"l4", 24 << 30, 300e9, 121e12, 242e12, "l40s"},
	} {
		g, _ := ByName(row.name)
		if g.Memory != row.memory || g.Bandwidth != row.bandwidth || g.BF16 != row.bf16 || g.FP8 != row.fp8 || g.Measured != row.measured {
			t.Errorf("%s: got %d B, %g B/s, %g and %g FLOP/s, measured on %s, want %+v", row.name, g.Memory, g.Bandwidth, g.BF16, g.FP8, g.Measured, row)
		}
	}
}

// Collectives of a link twice as fast take as long to begin and half as long to go on.
func TestScaledCollectives(t *testing.T) {
	h100, _ := ByName("h100")
	b200, _ := ByName("b200")
	a, b := h100.Kernels.AllReduce[2], b200.Kernels.AllReduce[2]
	floor := a.Points[0].Time.Seconds()
	if b.Points[0].Time.Seconds() != floor {
		t.Errorf("the shortest takes %v, want the H100's %v", b.Points[0].Time, a.Points[0].Time)
	}
	last := len(a.Points) - 1
	if got, want := b.Points[last].Time.Seconds()-floor, (a.Points[last].Time.Seconds()-floor)/2; math.Abs(got-want) > 1e-8 {
		t.Errorf("the longest takes %v above it, want half of the H100's, %v", got, want)
	}
	l4, _ := ByName("l4")
	if got := l4.Kernels.AllReduce[0].Seconds(1 << 20); got < 50e-6 {
		t.Errorf("1 MiB over PCIe takes %v s, which no PCIe link does", got)
	}
}

func TestExampleFile(t *testing.T) {
	g, err := ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l40s, _ := ByName("l40s")
	product := Product{3 * time.Microsecond, Curve{{128, .22}, {512, .6}, {2048, .65}}, Curve{{1, .85}, {64, .75}}, 0}
	want := GPU{
		Name: "workshop-card", Memory: 48 << 30, Bandwidth: 900e9, BF16: 300e12, FP8: 600e12, ScaleUp: 200e9, ScaleUpGPUs: 4,
		PCIe: 32e9, Watts: 400, Prices: []Price{{"as given", 1.25, "the GPU file"}}, Source: "the vendor's data sheet",
		Reserve: 1.5e9, Measured: "workshop-card",
		Kernels: Kernels{
			BF16: product, FP8: product, Experts: product, Experts4: product,
			Prefill:      []Prefill{{HeadDim: 128, Launch: 6 * time.Microsecond, Fraction: .5, RowKeys: 250}, {HeadDim: 256, Launch: 10 * time.Microsecond, Fraction: .5, RowKeys: 130}},
			Decode:       []Decode{{128, 10 * time.Microsecond, 20, .8}},
			DecodeWindow: []Decode{{128, 10 * time.Microsecond, 20, .8}},
			Pass:         Pass{3 * time.Microsecond, .8},
			AllReduce: []Collective{{2, []Transfer{{1024, 8 * time.Microsecond}, {1 << 20, 75 * time.Microsecond},
				{1 << 27, 6700 * time.Microsecond}}}},
		},
		Overheads: &Overheads{Prefill: 2 * time.Millisecond, Decode: 400 * time.Microsecond, Sequence: 5 * time.Microsecond,
			Launch: 5 * time.Microsecond, Request: 3 * time.Millisecond, PromptToken: time.Microsecond, Graphs: 64},
	}
	g.Kernels.AllGather, g.Kernels.AllToAll = nil, nil // of the H100, as the file gives none
	if d := cmp.Diff(want, g); d != "" {
		t.Error(d)
	}
	// The least that a file can say; kernels and overheads come from what is nearest.
	g, err = FromFile(strings.NewReader(`{"memory_gb": 48, "bandwidth_gb_s": 864, "bf16_tflops": 362}`), "dir/mine.json")
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "mine" || g.Measured != "l40s" || g.Overheads != nil || !slices.Equal(g.Kernels.BF16.Compute, l40s.Kernels.BF16.Compute) {
		t.Errorf("got %s with kernels of %s, want mine with those of l40s", g.Name, g.Measured)
	}
}

func TestFileRefuses(t *testing.T) {
	const most = "bandwidth_gb_s: 864\nbf16_tflops: 362\n"
	const all = "memory_gb: 48\n" + most
	for _, row := range []struct{ text, want string }{
		{"", "x.yaml: the file is empty"},
		{most, "memory_gb is missing: how much a GPU holds cannot be guessed"},
		{all + "memory_bytes: 48000000000\n", "memory_gb and memory_bytes are both given"},
		{"memory_gb: 48\nbf16_tflops: 362\n", "bandwidth_gb_s is missing"},
		{"memory_gb: 48\nbandwidth_gb_s: 864\n", "bf16_tflops is missing"},
		{all + "bandwith: 1\n", "line 4: there is no field bandwith in a GPU file; there are name, memory_gb, memory_bytes, bandwidth_gb_s, bf16_tflops, "},
		{all + "kernels:\n  decode:\n    - {headdim: 128}\n", "line 6: there is no field headdim in decode; there are head_dim, launch_us, sequence_us, fraction"},
		{all + "anchor: {enginge: vllm}\n", "there is no field enginge in Anchor; there are engine, version, model, params, "},
		{all + "overheads: {x: 1}\n", "there is no field x in overheads; there are prefill_us, decode_us, "},
		{all + "kernels: {pass: {x: 1}}\n", "there is no field x in decode; there are head_dim, "},
		{all + "kernels: {x: 1}\n", "there is no field x in kernels; there are bf16, fp8, "},
		{all + "kernels: {bf16: {x: 1}}\n", "there is no field x in product; there are launch_us, compute, "},
		{all + "kernels: {prefill: [{x: 1}]}\n", "there is no field x in prefill; there are head_dim, launch_us, fraction, row_keys, whole"},
		{all + "kernels: {all_reduce: [{x: 1}]}\n", "there is no field x in collective; there are gpus, us"},
		{all + "watts: many\n", "line 4: cannot unmarshal !!str `many` into float64"},
		{all + "watts: -1\n", `gpu "x": watts is -1, must be above 0`},
		{all + "bf16_tflops: 1\n", "already defined"},
		{"memory_gb: -1\n" + most, "memory_gb is -1, must be above 0"},
		{all + "kernels: {bf16: {compute: [[64, 1.2]], stream: [[1, .8]]}}\n", "bf16: compute: point 0 is {64 1.2}, must have m of at least 1"},
		{all + "kernels: {bf16: {compute: [[64, .1], [128, .3]], stream: [[1, .8]]}}\n", "more rows would take less time"},
		{all + "kernels: {bf16: {compute: [[64, .1]], stream: [[1, .8], [2, .9]]}}\n", "more rows would take less time"},
		{all + "kernels: {decode: [{head_dim: 128}]}\n", "decode: entry 0"},
		{all + "kernels: {all_reduce: [{gpus: 2, us: [[10, 5], [20, 4]]}]}\n", "all_reduce: entry 0: point 1"},
		{all + "reserve_gb: 49\n", "reserve is 49000000000, must be from 0 to the memory"},
		{all + "overheads: {graphs: -1}\n", "overheads: graphs is -1, must not be below 0"},
		{all + "---\nname: b\n", "a second document begins"},
		{"memory_gb: .nan\n" + most, "memory_gb is NaN"},
	} {
		_, err := FromFile(strings.NewReader(row.text), "x.yaml")
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want ...%s...", row.text, err, row.want)
		}
	}
	if _, err := ReadFile("testdata/nothing.yaml"); !os.IsNotExist(err) {
		t.Errorf("got %v, want that the file is not there", err)
	}
}

func FuzzFromFile(f *testing.F) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add(`{"memory_gb": 48, "bandwidth_gb_s": 864, "bf16_tflops": 362}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := FromFile(strings.NewReader(text), "x.yaml")
		if err != nil {
			return
		}
		if err := g.Validate(); err != nil {
			t.Errorf("what was read is not valid: %v", err)
		}
	})
}

func TestCurve(t *testing.T) {
	c := Curve{{16, .1}, {64, .2}, {256, .2}}
	for _, row := range []struct {
		m, want float64
		why     string
	}{
		{1, .1, "flat below the first point"},
		{16, .1, "a point"},
		{32, .1 * math.Sqrt2, "half way in log m, half way in log fraction"},
		{64, .2, "a point"},
		{128, .2, "a flat segment"},
		{1 << 20, .2, "flat beyond the last point"},
	} {
		if got := c.At(row.m); math.Abs(got-row.want) > 1e-12 {
			t.Errorf("at(%v), %s: got %v, want %v", row.m, row.why, got, row.want)
		}
	}
}

// An exchange takes no less time for more bytes, on any preset.
func TestCollectivesAreMonotone(t *testing.T) {
	for _, name := range Names() {
		g, _ := ByName(name)
		k := g.Kernels
		rapid.Check(t, func(t *rapid.T) {
			list := rapid.SampledFrom([][]Collective{k.AllReduce, k.AllGather, k.AllToAll}).Draw(t, "kind")
			c := rapid.SampledFrom(list).Draw(t, "among")
			a := rapid.Float64Range(1, 1e10).Draw(t, "bytes")
			b := a * rapid.Float64Range(1, 100).Draw(t, "times")
			if c.Seconds(a) > c.Seconds(b) {
				t.Errorf("%s: %v bytes take %v s, %v bytes %v", name, a, c.Seconds(a), b, c.Seconds(b))
			}
		})
	}
}

func TestFileWithoutMeasure(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"memory_gb: .nan\nbandwidth_gb_s: 1\nbf16_tflops: 1\n", "g.yaml: memory_gb is NaN, must be above 0 and at most 1e6"},
		{"memory_gb: 1e300\nbandwidth_gb_s: 1\nbf16_tflops: 1\n", "g.yaml: memory_gb is 1e+300, must be above 0 and at most 1e6"},
		{"memory_gb: 1\nbandwidth_gb_s: 1e300\nbf16_tflops: 1\n", "g.yaml: bandwidth_gb_s is 1e+300, must be above 0 and at most 1e+09"},
		{"memory_gb: 1\nbandwidth_gb_s: 1\nbf16_tflops: -.inf\n", "g.yaml: bf16_tflops is -Inf, must be above 0 and at most 1e+09"},
	} {
		if _, err := FromFile(strings.NewReader(c.text), "g.yaml"); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
