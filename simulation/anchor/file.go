package anchor

import (
	"encoding/json"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"kneefinder/simulation/engine/gpu"
)

// figure is a number in a GPU file, of five digits.
type figure float64

// MarshalJSON writes the shortest form of the number rounded.
func (f figure) MarshalJSON() ([]byte, error) {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', 5, 64), 64)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func micros(d time.Duration) figure { return figure(float64(d) / 1e3) }

// WriteGPU writes a fitted GPU in the form that gpu.FromFile reads, with the digits that a fit may claim.
func WriteGPU(w io.Writer, g gpu.GPU) error {
	type point [2]figure
	type product struct {
		Launch  figure  `json:"launch_us"`
		Compute []point `json:"compute"`
		Stream  []point `json:"stream"`
	}
	type attention struct {
		HeadDim  int    `json:"head_dim"`
		Fraction figure `json:"fraction"`
		Whole    bool   `json:"whole,omitempty"`
	}
	type collective struct {
		GPUs int     `json:"gpus"`
		US   []point `json:"us"`
	}
	type kernels struct {
		BF16    product     `json:"bf16"`
		Experts *product    `json:"experts,omitempty"`
		Prefill []attention `json:"prefill"`
		Decode  []attention `json:"decode"`
		Pass    struct {
			Fraction figure `json:"fraction"`
		} `json:"pass"`
		AllReduce []collective `json:"all_reduce,omitempty"`
		AllGather []collective `json:"all_gather,omitempty"`
		AllToAll  []collective `json:"all_to_all,omitempty"`
	}
	type overheads struct {
		Prefill     figure `json:"prefill_us"`
		Decode      figure `json:"decode_us"`
		Sequence    figure `json:"sequence_us"`
		Request     figure `json:"request_us"`
		PromptToken figure `json:"prompt_token_us"`
	}
	type form struct {
		Name      string      `json:"name"`
		Memory    int64       `json:"memory_bytes"`
		Bandwidth figure      `json:"bandwidth_gb_s"`
		BF16      figure      `json:"bf16_tflops"`
		ScaleUp   figure      `json:"scale_up_gb_s,omitempty"`
		Watts     float64     `json:"watts,omitempty"`
		Price     float64     `json:"usd_per_hour,omitempty"`
		Source    string      `json:"source,omitempty"`
		Kernels   kernels     `json:"kernels"`
		Overheads overheads   `json:"overheads"`
		Anchor    *gpu.Anchor `json:"anchor"`
	}
	f := form{Name: g.Name, Memory: g.Memory, Bandwidth: figure(g.Bandwidth / 1e9), BF16: figure(g.BF16 / 1e12), ScaleUp: figure(g.ScaleUp / 1e9), Watts: g.Watts, Source: g.Source, Anchor: g.Anchor}
	if len(g.Prices) > 0 {
		f.Price = g.Prices[0].USD
	}
	curve := func(c gpu.Curve) (out []point) {
		for _, p := range c {
			out = append(out, point{figure(p.M), figure(math.Min(1, p.Fraction))})
		}
		return out
	}
	k := &g.Kernels
	f.Kernels.BF16 = product{micros(k.BF16.Launch), curve(k.BF16.Compute), curve(k.BF16.Stream)}
	if !slices.Equal(k.Experts.Compute, k.BF16.Compute) {
		f.Kernels.Experts = &product{micros(k.Experts.Launch), curve(k.Experts.Compute), curve(k.Experts.Stream)}
	}
	for _, c := range []struct {
		to   *[]collective
		from []gpu.Collective
	}{{&f.Kernels.AllReduce, k.AllReduce}, {&f.Kernels.AllGather, k.AllGather}, {&f.Kernels.AllToAll, k.AllToAll}} {
		for _, e := range c.from {
			if g.ScaleUp == 0 {
				break // on one GPU there are none, and a file read leaves those of another there
			}
			out := collective{GPUs: e.GPUs}
			for _, p := range e.Points {
				out.US = append(out.US, point{figure(p.Bytes), micros(p.Time)})
			}
			*c.to = append(*c.to, out)
		}
	}
	for _, p := range k.Prefill {
		f.Kernels.Prefill = append(f.Kernels.Prefill, attention{p.HeadDim, figure(p.Fraction), p.Whole})
	}
	for _, d := range k.Decode {
		f.Kernels.Decode = append(f.Kernels.Decode, attention{HeadDim: d.HeadDim, Fraction: figure(d.Fraction)})
	}
	f.Kernels.Pass.Fraction = figure(k.Pass.Fraction)
	if o := g.Overheads; o != nil {
		f.Overheads = overheads{micros(o.Prefill), micros(o.Decode), micros(o.Sequence), micros(o.Request), micros(o.PromptToken)}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(pairs.ReplaceAll(text, []byte("[$1, $2]")), '\n'))
	return err
}

// pairs are points of curves, which belong on one line.
var pairs = regexp.MustCompile(`\[\s+([-+.\de]+),\s+([-+.\de]+)\s+\]`)
