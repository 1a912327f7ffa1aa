package engine

import (
	"maps"
	"slices"
)

// GPU is what one accelerator can do, and which part of it kernels really get.
type GPU struct {
	Name      string
	Memory    int64   // bytes that the driver reports
	Bandwidth float64 // of its memory, bytes a second, peak
	FLOPS     float64 // dense BF16, a second, peak

	GEMM   Curve // part of FLOPS that a matrix product of m rows reaches; empty: the L40S's
	Stream Curve // part of Bandwidth at which a product of m rows reads weights; empty: the L40S's

	PrefillAttention PrefillAttention // zero: half of FLOPS
	DecodeAttention  DecodeAttention  // zero: the L40S's
}

// PrefillAttention is the rate of prefill attention kernels, FLOPS.
type PrefillAttention struct {
	Narrow float64 // heads of up to 128
	Wide   float64 // wider heads
	Window float64 // layers with a sliding window
}

// DecodeAttention is the part of Bandwidth at which decode attention kernels read the KV cache.
type DecodeAttention struct {
	Full, Window float64
}

// Curve is a measured function of m, the rows of a step: points in rising m. Between two points it follows a power law, beyond
// the ends it is flat.
type Curve []Point

// Point is one measurement.
type Point struct {
	M        int
	Fraction float64 // of the peak, at most 1
}

// GPUByName returns a preset.
func GPUByName(name string) (GPU, bool) {
	if name == "h100-sxm" {
		name = "h100"
	}
	g, ok := gpus()[name]
	if !ok {
		return GPU{}, false
	}
	return g.filled(), true
}

// GPUNames lists the presets, sorted.
func GPUNames() []string { return slices.Sorted(maps.Keys(gpus())) }

// gpus: peaks from vendors' data sheets (dense), fractions from the public kernel tables of ai-dynamo/aiconfigurator (measured
// with vLLM 0.24). The L40S tables have no heads of 512; its rate for heads of 256 stands in.
func gpus() map[string]GPU {
	return map[string]GPU{
		"l40s": {
			Name: "l40s", Memory: 46068 << 20, Bandwidth: 864e9, FLOPS: 362.05e12,
			GEMM: Curve{
				{64, .12}, {256, .38}, {512, .60}, {1024, .64}, {2048, .61}, {8192, .53}, {32768, .58},
			},
			Stream:           Curve{{1, .86}, {16, .79}},
			PrefillAttention: PrefillAttention{Narrow: 186e12, Wide: 200e12, Window: 141e12},
			DecodeAttention:  DecodeAttention{Full: .75, Window: .71},
		},
		"h100": {
			Name: "h100", Memory: 80 << 30, Bandwidth: 3350e9, FLOPS: 989e12,
			GEMM: Curve{
				{64, .15}, {256, .53}, {512, .80}, {1024, .81}, {2048, .86}, {8192, .76}, {32768, .77},
			},
			Stream:           Curve{{1, .86}, {16, .82}},
			PrefillAttention: PrefillAttention{Narrow: 664e12, Wide: 787e12, Window: 436e12},
			DecodeAttention:  DecodeAttention{Full: .93, Window: .68},
		},
		// Imaginary: a small card on which the demo model has room for about 40,000 tokens.
		"demo": {
			Name: "demo", Memory: 8e9, Bandwidth: 1100e9, FLOPS: 220e12,
			GEMM: Curve{{64, .20}, {256, .50}, {1024, .60}},
		},
	}
}

// filled puts the generic fractions where g has none.
func (g GPU) filled() GPU {
	generic := gpus()["l40s"]
	if len(g.GEMM) == 0 {
		g.GEMM = generic.GEMM
	}
	if len(g.Stream) == 0 {
		g.Stream = generic.Stream
	}
	if g.PrefillAttention == (PrefillAttention{}) {
		g.PrefillAttention = PrefillAttention{Narrow: g.FLOPS / 2, Wide: g.FLOPS / 2, Window: g.FLOPS / 2}
	}
	if g.DecodeAttention == (DecodeAttention{}) {
		g.DecodeAttention = generic.DecodeAttention
	}
	return g
}
