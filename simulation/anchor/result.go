package anchor

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"kneefinder/simulation/engine/gpu"
)

// result describes the best fit.
func (f *fitter) result(d Data) (Result, error) {
	r := Result{Notes: slices.Clone(d.Skips)}
	r.GPU = f.gpu(f.best)
	for i := range f.weight {
		f.weight[i] = 1
	}
	times, err := f.predict(f.best, f.points)
	if err != nil {
		return r, err
	}
	var all []float64
	for _, k := range []Kind{Cold, Warm, Together, Decode} {
		res := Residual{Kind: k}
		var sizes, signed []float64
		for i := range f.points {
			if f.points[i].Kind != k {
				continue
			}
			e := times[i]/f.took[i] - 1
			sizes, signed = append(sizes, math.Abs(e)), append(signed, e)
			if res.Worst == "" || math.Abs(e) > res.Max {
				res.Max, res.Worst = math.Abs(e), f.points[i].Point
			}
		}
		if res.Points = len(sizes); res.Points == 0 {
			continue
		}
		res.Median, res.Bias = median(sizes), median(signed)
		all = append(all, sizes...)
		r.Residuals = append(r.Residuals, res)
	}
	f.constants(&r)
	r.GPU.Anchor = f.anchor(d, all)
	return r, nil
}

// constants lists what was fitted, and says of what is not there where it went.
func (f *fitter) constants(r *Result) {
	names := []struct{ name, unit, gone string }{
		request:     {"a request, before its first step", "ms", "in that of a step with prefill"},
		promptToken: {"a prompt token, before the first step", "µs", "in the products' rate"},
		decodeStep:  {"a step, on the host", "ms", "in reading the weights"},
		prefillMore: {"a step with prefill, in addition", "ms", "in that of a request"},
		sequence:    {"a sequence in a step", "µs", "in the step and in the products' rate"},
		stream:      {"weights are read at", "GB/s", "in the host's time of a step: no step was seen to wait for them, so a wider batch than measured may be told too slow"},
		streamMore:  {fmt.Sprintf("and from %d rows on at", manyRows), "GB/s", "the same"},
		kvByte:      {"KV is read by decode at", "GB/s", "in the host's time of a step: contexts as long as measured made no difference"},
		pair:        {"a prompt's attention is computed at", "TFLOP/s", "in the products' rate: prompts as long as measured made no difference"},
	}
	g := f.gpu(f.best)
	for j, n := range names {
		c := Constant{Name: n.name, Unit: n.unit}
		switch v := f.best[j]; {
		case v <= f.least[j] || v == 0 || j == streamMore && f.best[stream] <= f.least[stream]:
			c.Note = "not told apart; " + n.gone
		case n.unit == "ms":
			c.Value = v / 1e6
		case n.unit == "µs":
			c.Value = v / 1e3
		case j == streamMore:
			c.Value = 1 / (max(f.best[stream], f.least[stream]) + v)
		case n.unit == "GB/s":
			c.Value = 1 / v
		default:
			c.Value = 1e-3 / v
		}
		r.Constants = append(r.Constants, c)
	}
	rows := func(c gpu.Curve, at int, name string) {
		for i, p := range c {
			k := Constant{Name: fmt.Sprintf(name, p.M), Unit: "TFLOP/s", Value: g.BF16 * p.Fraction / 1e12}
			if slices.Max(f.best[at:at+i+1]) <= f.least[at] {
				k.Value, k.Note = 0, "not told apart; in the other constants"
			}
			r.Constants = append(r.Constants, k)
		}
	}
	rows(g.Kernels.BF16.Compute, products, "%d rows are multiplied at")
	if len(f.experts) > 0 {
		rows(g.Kernels.Experts.Compute, products+len(f.knots), "%d rows of each expert at")
	}
}

// anchor says what was measured.
func (f *fitter) anchor(d Data, sizes []float64) *gpu.Anchor {
	o := f.options
	a := &gpu.Anchor{
		Engine: string(d.Setup.Engine), Version: version(d), Model: f.shape.Name, Params: f.shape.Params(), KVBytes: f.shape.FullBytes() + f.shape.WindowBytes(),
		TP: max(1, o.TP), PP: max(1, o.PP), EP: max(1, o.EP), DP: max(1, o.DP), Chunk: f.chunk, Points: len(f.points),
		Error: percent(median(sizes)), Worst: percent(slices.Max(sizes)),
	}
	for i := range f.points {
		p := &f.points[i]
		for j := range p.Requests {
			q := &p.Requests[j]
			a.Prompt = max(a.Prompt, q.Prompt)
			if p.Kind == Warm {
				a.Cached = max(a.Cached, q.cached())
			}
		}
		if p.Kind == Decode {
			a.Batch = max(a.Batch, len(p.Steps.Lengths))
			a.Context = max(a.Context, int(math.Round(slices.Max(p.Steps.Lengths))))
		}
	}
	return a
}

// version is the engine's, and who imitates it where somebody does.
func version(d Data) string {
	s := &d.Server
	if s.Kind == "" || s.Kind == string(d.Setup.Engine) {
		return s.Version
	}
	return strings.TrimSpace("by " + s.Kind + " " + s.Version)
}

func percent(v float64) float64 { return math.Round(v*1e4) / 100 }

// Report writes the fit as tables.
func (r *Result) Report(w io.Writer) {
	a := r.GPU.Anchor
	who := strings.TrimSpace(a.Engine + " " + a.Version)
	fmt.Fprintf(w, "Calibrated: %s with %s, prompts up to %d tokens, %d sequences at a time, each up to %d tokens.\n\n", who, a.Model, a.Prompt, a.Batch, a.Context)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Constants {
		if c.Note != "" {
			fmt.Fprintf(t, "%s\t-\t%s\n", c.Name, c.Note)
			continue
		}
		fmt.Fprintf(t, "%s\t%.3g\t%s\n", c.Name, c.Value, c.Unit)
	}
	t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "predicted less measured\tpoints\tmedian size %\tlargest %\tat\tmedian %")
	for _, s := range r.Residuals {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%s\t%+.1f\n", s.Kind, s.Points, 100*s.Median, 100*s.Max, s.Worst, 100*s.Bias)
	}
	t.Flush()
	if p := r.GPU.Kernels.Prefill; len(p) > 0 && p[0].Whole {
		fmt.Fprintln(w, "\nThe attention of a prompt computes the rows of its cached part again: the readings are much nearer so.")
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "Not measured: %s.\n", n)
	}
}
