// Package gpu describes accelerators: peaks from their data sheets, and what measured kernels and engines on them really reach.
// Presets, a file format, nothing that knows a model.
package gpu

import (
	"fmt"
	"math"
	"time"
)

// GPU is one accelerator.
type GPU struct {
	Name string

	// Peaks, from the data sheet. Compute is dense, FLOP/s; links are one direction, bytes/s.
	Memory      int64   // bytes that the driver reports; where that is not known, the vendor's decimal figure
	Bandwidth   float64 // of its memory, bytes/s
	BF16        float64
	FP8         float64 // 0: none, FP8 weights are computed in BF16
	FP4         float64 // 0: none, FP4 weights are computed in the next wider there is
	ScaleUp     float64 // to its peers by NVLink or the like; 0: by PCIe
	ScaleUpGPUs int     // that ScaleUp joins; 0 without
	PCIe        float64 // to the host
	Watts       float64 // board power; 0: not known
	Prices      []Price
	Source      string // where these figures come from
	Reserve     int64  // of Memory that an engine needs beside weights and KV, bytes; 0: what its engine sets aside

	// Kernels is which part of the peaks is reached. Zero parts are filled from the GPU measured nearest, by Filled.
	Kernels  Kernels
	Measured string // on which GPU Kernels were measured: its own name, or another's, whose fractions stand in

	Anchor    *Anchor    // what Kernels and Overheads are fitted to; nil: not to one engine
	Overheads *Overheads // nil: those of the engine that is chosen, on a server with data-centre GPUs
}

// Price is one offer of one hour of one GPU.
type Price struct {
	Kind   string // spot, on demand, or a cost of owning
	USD    float64
	Source string
}

// Scaled reports whether the efficiencies were measured on another GPU.
func (g GPU) Scaled() bool { return g.Measured != g.Name }

// Overheads are what a step costs beside its kernels' work, and a request beside its steps.
type Overheads struct {
	Prefill     time.Duration // of a step with prefill: scheduling and input preparation that the GPU waits for
	Decode      time.Duration // the same of a step of decodes alone
	Sequence    time.Duration // of each sequence in a step: sampling, bookkeeping
	Launch      time.Duration // in which the host launches one kernel where no CUDA graph does: such a step takes at least all its launches
	Request     time.Duration // of a request before its first step, on the host
	PromptToken time.Duration // of each prompt token before the first step: tokenizing
	Graphs      int           // most sequences of a decode step that replays a CUDA graph; 0: none, every step is launched kernel by kernel
}

// Kernels is what kernels reach of the peaks. Each kind is a fixed part, which hardly depends on the GPU, and a part that scales
// with the peaks.
type Kernels struct {
	BF16 Product // matrix products with BF16 weights
	FP8  Product // with weights and activations of FP8

	// Grouped products of a mixture of experts, all of a layer's together; M is rows an expert.
	Experts  Product // of 8 or 16 bits a weight
	Experts4 Product // of 4 bits a weight, activations of 16

	Prefill      []Prefill // attention of prompts, by head width, ascending
	Decode       []Decode  // attention of single tokens, by head width, ascending
	DecodeWindow []Decode  // the same in layers with a window

	AllReduce, AllGather, AllToAll []Collective // by GPUs, ascending

	Pass Pass // norms, activations, rotations: kernels that only read and write
}

// Product is a product of m rows with a matrix: Launch + max(FLOPs / (peak * Compute(m)), weight bytes / (Bandwidth * Stream(m))).
type Product struct {
	Launch  time.Duration
	Compute Curve
	Stream  Curve
	Narrow  float64 // of experts: with an inner width of w on one GPU, w/(w+Narrow) of Compute is reached
}

// Prefill is attention of many tokens of one sequence:
//
//	Launch + 4 * heads * head width * (pairs + RowKeys * rows) / (BF16 * Fraction)
//
// where pairs counts which of the rows sees which key. A row costs as much as RowKeys further keys: loading it, its softmax, and
// the half-empty tiles on the diagonal.
type Prefill struct {
	HeadDim  int
	Launch   time.Duration
	Fraction float64
	RowKeys  float64
	Whole    bool // rows of a cached prefix, or of chunks before, are computed again each time, as SGLang's torch_native backend does
}

// Decode is attention of one token for each of many sequences: Launch + sequences * Sequence + KV bytes / (Bandwidth * Fraction).
type Decode struct {
	HeadDim  int
	Launch   time.Duration
	Sequence time.Duration
	Fraction float64
}

// Pass is a kernel that reads and writes once: Launch + bytes / (Bandwidth * Fraction).
type Pass struct {
	Launch   time.Duration
	Fraction float64
}

// Collective is a measured exchange among GPUs, by the bytes that one of them holds: before an all-reduce or all-to-all, after an
// all-gather.
type Collective struct {
	GPUs   int
	Points []Transfer // by bytes, ascending, in no less time
}

// Transfer is one measurement.
type Transfer struct {
	Bytes float64
	Time  time.Duration
}

// Curve is a measured function of m, the rows of a product: points in rising m. Between two points it follows a power law, beyond
// the ends it is flat.
type Curve []Point

// Point is one measurement.
type Point struct {
	M        int
	Fraction float64 // of the peak, above 0 and at most 1
}

// At is the fraction at m.
func (c Curve) At(m float64) float64 {
	if m <= float64(c[0].M) {
		return c[0].Fraction
	}
	for i := 1; i < len(c); i++ {
		if m <= float64(c[i].M) {
			a, b := c[i-1], c[i]
			exponent := math.Log(b.Fraction/a.Fraction) / math.Log(float64(b.M)/float64(a.M))
			return a.Fraction * math.Pow(m/float64(a.M), exponent)
		}
	}
	return c[len(c)-1].Fraction
}

// Seconds is the time of an exchange of so many bytes: between two measurements it follows a power law, beyond the last it grows
// with the bytes, before the first it is the first's.
func (c Collective) Seconds(bytes float64) float64 {
	p := c.Points
	if bytes <= p[0].Bytes {
		return p[0].Time.Seconds()
	}
	for i := 1; i < len(p); i++ {
		if bytes <= p[i].Bytes {
			a, b := p[i-1], p[i]
			exponent := math.Log(b.Time.Seconds()/a.Time.Seconds()) / math.Log(b.Bytes/a.Bytes)
			return a.Time.Seconds() * math.Pow(bytes/a.Bytes, exponent)
		}
	}
	last := p[len(p)-1]
	return last.Time.Seconds() * bytes / last.Bytes
}

// Filled returns g with what its zeros stand for: each kind of kernel that it says nothing of is as on the GPU measured nearest,
// fractions as they are and fixed parts too. The nearest is the one whose ratio of compute to bandwidth is closer, as that is where
// a product turns from one roof to the other; collectives come from the one with the same kind of link.
func (g GPU) Filled() GPU {
	own, ok := measured[g.Name]
	name := g.Name
	if !ok {
		name = nearest(g)
		own = measured[name]
	}
	k := &g.Kernels
	if len(k.BF16.Stream) > 0 { // who gives one kind of product means it for all that he does not give
		for _, p := range []*Product{&k.FP8, &k.Experts, &k.Experts4} {
			if len(p.Stream) == 0 && len(p.Compute) == 0 {
				*p = k.BF16
			}
		}
	}
	taken := false
	for _, f := range []struct{ to, from *Product }{
		{&k.BF16, &own.BF16}, {&k.FP8, &own.FP8}, {&k.Experts, &own.Experts}, {&k.Experts4, &own.Experts4},
	} {
		if len(f.to.Compute) == 0 && len(f.to.Stream) == 0 {
			*f.to, taken = *f.from, true
		}
		if len(f.to.Compute) == 0 {
			f.to.Compute, taken = f.from.Compute, true
		}
		if len(f.to.Stream) == 0 {
			f.to.Stream, taken = f.from.Stream, true
		}
	}
	if len(k.Prefill) == 0 {
		k.Prefill, taken = own.Prefill, true
	}
	if len(k.DecodeWindow) == 0 {
		k.DecodeWindow = k.Decode
	}
	if len(k.Decode) == 0 {
		k.Decode, taken = own.Decode, true
	}
	if len(k.DecodeWindow) == 0 {
		k.DecodeWindow = own.DecodeWindow
	}
	if k.Pass == (Pass{}) {
		k.Pass = Pass{Launch: 3 * time.Microsecond, Fraction: .8}
	}
	if len(k.AllReduce) == 0 {
		k.AllReduce, k.AllGather, k.AllToAll = exchanges(g)
	}
	if g.PCIe == 0 {
		g.PCIe = 32e9
	}
	if g.Measured == "" {
		g.Measured = g.Name
		if taken {
			g.Measured = name
		}
	}
	return g
}

// nearest is the measured GPU with the closest ratio of compute to bandwidth.
func nearest(g GPU) string {
	best, least := "", math.Inf(1)
	for _, p := range presets() {
		if _, ok := measured[p.Name]; !ok {
			continue
		}
		if d := math.Abs(math.Log(g.BF16 / g.Bandwidth * p.Bandwidth / p.BF16)); d < least || best == "" {
			best, least = p.Name, d
		}
	}
	return best
}

// exchanges is collectives measured on a link of the same kind: the H100's NVLink or the L40S's PCIe. What lies above the shortest
// time is scaled by the links' bandwidths.
func exchanges(g GPU) (reduce, gather, toAll []Collective) {
	from, ratio := "l40s", 32e9/max(g.PCIe, 1)
	if g.PCIe == 0 {
		ratio = 1
	}
	if g.ScaleUp > 0 {
		from, ratio = "h100-sxm", 450e9/g.ScaleUp
	}
	m := measured[from]
	return scaled(m.AllReduce, ratio), scaled(m.AllGather, ratio), scaled(m.AllToAll, ratio)
}

func scaled(list []Collective, ratio float64) []Collective {
	if ratio == 1 {
		return list
	}
	var out []Collective
	for _, c := range list {
		n := Collective{GPUs: c.GPUs}
		floor := c.Points[0].Time
		for _, p := range c.Points {
			n.Points = append(n.Points, Transfer{p.Bytes, floor + time.Duration(float64(p.Time-floor)*ratio)})
		}
		out = append(out, n)
	}
	return out
}

// Validate returns nil, or which field breaks which rule, the first one it meets. It checks g as Filled returns it.
func (g GPU) Validate() error {
	g = g.Filled()
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) } // false for NaN
	if g.Memory < 1 {
		return fmt.Errorf("gpu %q: memory is %d, must be above 0", g.Name, g.Memory)
	}
	if g.Reserve < 0 || g.Reserve > g.Memory {
		return fmt.Errorf("gpu %q: reserve is %d, must be from 0 to the memory, %d", g.Name, g.Reserve, g.Memory)
	}
	for _, f := range []struct {
		name     string
		value    float64
		optional bool
	}{
		{"bandwidth", g.Bandwidth, false}, {"bf16", g.BF16, false}, {"fp8", g.FP8, true}, {"fp4", g.FP4, true},
		{"scale-up", g.ScaleUp, true}, {"pcie", g.PCIe, false}, {"watts", g.Watts, true},
	} {
		if !positive(f.value) && !(f.optional && f.value == 0) {
			return fmt.Errorf("gpu %q: %s is %v, must be above 0", g.Name, f.name, f.value)
		}
	}
	if err := g.Kernels.validate(); err != nil {
		return fmt.Errorf("gpu %q: kernels: %w", g.Name, err)
	}
	if o := g.Overheads; o != nil {
		for _, f := range []struct {
			name  string
			value time.Duration
		}{
			{"prefill", o.Prefill}, {"decode", o.Decode}, {"sequence", o.Sequence}, {"launch", o.Launch}, {"request", o.Request},
			{"prompt token", o.PromptToken}, {"graphs", time.Duration(o.Graphs)},
		} {
			if f.value < 0 {
				return fmt.Errorf("gpu %q: overheads: %s is %d, must not be below 0", g.Name, f.name, f.value)
			}
		}
	}
	return nil
}

func (k Kernels) validate() error {
	for _, p := range []struct {
		name string
		Product
	}{{"bf16", k.BF16}, {"fp8", k.FP8}, {"experts", k.Experts}, {"experts4", k.Experts4}} {
		if p.Launch < 0 || !(p.Narrow >= 0) || math.IsInf(p.Narrow, 1) {
			return fmt.Errorf("%s: launch is %v and narrow %v, must not be below 0", p.name, p.Launch, p.Narrow)
		}
		if err := p.Compute.validate(true); err != nil {
			return fmt.Errorf("%s: compute: %w", p.name, err)
		}
		if err := p.Stream.validate(false); err != nil {
			return fmt.Errorf("%s: stream: %w", p.name, err)
		}
	}
	for i, p := range k.Prefill {
		if !fraction(p.Fraction) || p.Launch < 0 || !(p.RowKeys >= 0) || p.HeadDim < 1 {
			return fmt.Errorf("prefill: entry %d is %+v, must have a head width of at least 1, a fraction above 0 and at most 1, and nothing below 0", i, p)
		}
		if i > 0 && p.HeadDim <= k.Prefill[i-1].HeadDim {
			return fmt.Errorf("prefill: entry %d is for heads of %d, must be wider than the one before", i, p.HeadDim)
		}
	}
	for _, list := range [][]Decode{k.Decode, k.DecodeWindow} {
		for i, d := range list {
			if !fraction(d.Fraction) || d.Launch < 0 || d.Sequence < 0 || d.HeadDim < 1 {
				return fmt.Errorf("decode: entry %d is %+v, must have a head width of at least 1, a fraction above 0 and at most 1, and nothing below 0", i, d)
			}
			if i > 0 && d.HeadDim <= list[i-1].HeadDim {
				return fmt.Errorf("decode: entry %d is for heads of %d, must be wider than the one before", i, d.HeadDim)
			}
		}
	}
	if !fraction(k.Pass.Fraction) || k.Pass.Launch < 0 {
		return fmt.Errorf("pass is %+v, must have a fraction above 0 and at most 1, and no launch below 0", k.Pass)
	}
	for _, c := range []struct {
		name string
		list []Collective
	}{{"all_reduce", k.AllReduce}, {"all_gather", k.AllGather}, {"all_to_all", k.AllToAll}} {
		for i, e := range c.list {
			if e.GPUs < 2 || i > 0 && e.GPUs <= c.list[i-1].GPUs {
				return fmt.Errorf("%s: entry %d is among %d GPUs, must be 2 or more, and more than the one before", c.name, i, e.GPUs)
			}
			if len(e.Points) == 0 {
				return fmt.Errorf("%s: entry %d has no points", c.name, i)
			}
			for j, p := range e.Points {
				if !(p.Bytes > 0) || p.Time <= 0 || j > 0 && (p.Bytes <= e.Points[j-1].Bytes || p.Time < e.Points[j-1].Time) {
					return fmt.Errorf("%s: entry %d: point %d is %v, must be above 0, more bytes than the one before, and in no less time", c.name, i, j, p)
				}
			}
		}
	}
	return nil
}

func fraction(f float64) bool { return f > 0 && f <= 1 }

// validate says why more rows would take less time: compute's fraction may not grow faster than m, and stream's may not grow at all.
func (c Curve) validate(grows bool) error {
	for i, p := range c {
		if !fraction(p.Fraction) || p.M < 1 {
			return fmt.Errorf("point %d is %v, must have m of at least 1 and a fraction above 0 and at most 1", i, p)
		}
		if i == 0 {
			continue
		}
		before := c[i-1]
		if p.M <= before.M {
			return fmt.Errorf("point %d is %v, must have more m than the one before", i, p)
		}
		if grows && p.Fraction/before.Fraction > float64(p.M)/float64(before.M)*(1+1e-9) {
			return fmt.Errorf("point %d is %v: its fraction grows faster than m, so that more rows would take less time", i, p)
		}
		if !grows && p.Fraction > before.Fraction {
			return fmt.Errorf("point %d is %v: its fraction is above the one before, so that more rows would take less time", i, p)
		}
	}
	return nil
}
