package anchor

import (
	"math"
	"time"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// The constants that are fitted. All are costs, so that times are sums of them, but for the roofs.
const (
	request     = iota // ns of a request before its first step
	promptToken        // ns of a prompt token before it
	decodeStep         // ns of every step, on the host
	prefillMore        // ns of a step with prefill, beside those
	sequence           // ns of each sequence in a step
	stream             // ns of a byte of weights that is read for a single row
	streamMore         // the same in addition from manyRows rows on
	kvByte             // ns of a byte of KV that decode reads
	pair               // ns of a FLOP of a prompt's attention
	products           // ns of a FLOP of the matrix products, of the rows up to each of the knots from the one before; then of experts'
)

// manyRows is where products of a few rows have left the kernels for a single one behind.
const manyRows = 4

// knots are the rows at which the products' time is fitted, if steps of so many rows were measured; between two of them it follows a
// power law.
var knots = []int{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}

// room is what a constant that is not there is set to, as a part of the shortest time that it could add to: gpu.GPU has no
// infinite rates.
const room = 1e-3

// theta is values of the constants.
type theta []float64

// space is what the constants mean: of which model under which plan they make times.
type space struct {
	shape   model.Shape
	options cost.Options
	chunk   int
	knots   []int
	experts []int // the knots of experts' products, in rows of one; none without experts
	whole   bool  // prefill's attention computes the rows of a cached prefix too, see gpu.Prefill
	least   theta // what stands for 0
	card    Card
}

// Card is what a GPU file says beside what is fitted.
type Card struct {
	Name     string
	Memory   int64   // bytes
	Watts    float64 // 0: not known
	USDHour  float64 // 0: not known
	Notes    string  // becomes the file's source
	AsPreset string  // the preset that the figures are from, if one
}

// flops of attention of one query and key, all layers on one GPU, as cost counts them.
func (s *space) pairFLOPs() float64 {
	var f float64
	heads := float64(s.shape.QueryHeads) / float64(max(1, s.options.TP)/max(1, s.options.DP))
	for _, a := range []model.Attention{s.shape.Full, s.shape.Window} {
		if m := a.MLA; m != (model.MLA{}) {
			f += float64(a.Layers) * 2 * heads * float64(m.NopeDim+m.RopeDim+m.ValueDim)
			continue
		}
		f += float64(a.Layers) * 4 * heads * float64(a.HeadDim)
	}
	return f
}

// rowFLOPs is what the products of one row take, on one GPU.
func (s *space) rowFLOPs() float64 {
	return 2 * float64(s.shape.BodyParams()) / float64(max(1, s.options.TP))
}

// weightBytes is what a step reads of the weights, on one GPU.
func (s *space) weightBytes() float64 {
	return float64(s.shape.StepBytes(1, 1)) / float64(max(1, s.options.TP))
}

// kvBytes is the KV of one token in all layers.
func (s *space) kvBytes() float64 { return float64(s.shape.FullBytes() + s.shape.WindowBytes()) }

// gpu is the accelerator that has these constants. Peaks are the best rate that is reached anywhere, the kernels' fractions parts of it.
func (s *space) gpu(t theta) gpu.GPU {
	v := make(theta, len(t))
	for i := range t {
		v[i] = max(t[i], s.least[i])
	}
	split := products + len(s.knots)
	atKnots(v[products:split], s.knots)
	atKnots(v[split:], s.experts)
	flop, perByte := v[pair], min(v[stream], v[kvByte])
	for _, f := range v[products:] {
		flop = min(flop, f)
	}
	g := gpu.GPU{
		Name: s.card.Name, Memory: s.card.Memory, Bandwidth: 1e9 / perByte, BF16: 1e9 / flop, PCIe: 32e9, Watts: s.card.Watts, Source: s.card.Notes,
		Measured: s.card.Name,
	}
	if s.card.USDHour > 0 {
		g.Prices = []gpu.Price{{Kind: "as given", USD: s.card.USDHour, Source: "the GPU file"}}
	}
	of := func(v theta, knots []int) (c gpu.Curve) {
		for i, f := range v {
			c = append(c, gpu.Point{M: knots[i], Fraction: flop / f})
		}
		return c
	}
	p := gpu.Product{Compute: of(v[products:split], s.knots), Stream: gpu.Curve{{M: 1, Fraction: perByte / v[stream]}, {M: manyRows, Fraction: perByte / (v[stream] + v[streamMore])}}}
	e := p
	if len(s.experts) > 0 {
		e.Compute = of(v[split:], s.experts)
	}
	d := []gpu.Decode{{HeadDim: 1 << 10, Fraction: perByte / v[kvByte]}}
	g.Kernels = gpu.Kernels{
		BF16: p, FP8: p, Experts: e, Experts4: e,
		Prefill: []gpu.Prefill{{HeadDim: 1 << 10, Fraction: flop / v[pair], Whole: s.whole}},
		Decode:  d, DecodeWindow: d,
		Pass: gpu.Pass{Fraction: 1},
	}
	if s.options.GPUs() > 1 { // what exchanges take is in the products' rates and in the step
		none := []gpu.Collective{{GPUs: 1 << 10, Points: []gpu.Transfer{{Bytes: 1, Time: 1}, {Bytes: 1e15, Time: 1}}}}
		g.Kernels.AllReduce, g.Kernels.AllGather, g.Kernels.AllToAll = none, none, none
		g.ScaleUp = 1e15
	}
	ns := func(v float64) time.Duration { return time.Duration(math.Round(v)) }
	g.Overheads = &gpu.Overheads{
		Prefill: ns(v[decodeStep] + v[prefillMore]), Decode: ns(v[decodeStep]), Sequence: ns(v[sequence]),
		Request: ns(v[request]), PromptToken: ns(v[promptToken]),
	}
	return g
}

// atKnots turns the costs of the rows between knots into those of all rows up to each of them.
func atKnots(v theta, knots []int) {
	sum, before := 0., 0
	for i, m := range knots {
		sum += v[i] * float64(m-before)
		v[i] = sum / float64(m)
		before = m
	}
}

// predict is the times of readings under these constants, in milliseconds.
func (s *space) predict(t theta, seen []Reading) ([]float64, error) {
	return predict(s.shape, s.gpu(t), s.options, s.chunk, seen)
}

// predict is the times of readings on a GPU, in milliseconds.
func predict(m model.Shape, g gpu.GPU, o cost.Options, chunk int, seen []Reading) ([]float64, error) {
	k, err := cost.New(m, g, o)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(seen))
	for i := range seen {
		r := &seen[i]
		if r.Kind != Decode {
			out[i] = lastFirst(k, chunk, r.Requests)
			continue
		}
		b := cost.Batch{Decodes: len(r.Steps.Lengths)}
		var context, recent float64
		for _, l := range r.Steps.Lengths {
			context += l
			recent += min(l, float64(m.WindowTokens))
		}
		b.Context, b.Recent = int(math.Round(context)), int(math.Round(recent))
		out[i] = float64(k.Step(&b)) / 1e6
	}
	return out, nil
}

// lastFirst is when the last of some requests of one token each has it, in milliseconds, on an engine that does nothing else. Both
// schedulers do the same with them: first come, first served, as many tokens in a step as it may have.
func lastFirst(k *cost.Kernel, chunk int, requests []Request) float64 {
	type waiting struct {
		ready           time.Duration
		at, prompt, own int // computed so far, and in this step
	}
	host := k.Overheads()
	var queue []waiting
	for i := range requests {
		r := &requests[i]
		ready := time.Duration(r.Sent*1e6) + max(1, host.Request+time.Duration(r.Prompt)*host.PromptToken)
		queue = append(queue, waiting{ready: ready, at: r.cached(), prompt: r.Prompt})
	}
	for i := range queue { // in order of readiness: few, nearly so
		for j := i; j > 0 && queue[j].ready < queue[j-1].ready; j-- {
			queue[j], queue[j-1] = queue[j-1], queue[j]
		}
	}
	now := time.Duration(0)
	for len(queue) > 0 {
		now = max(now, queue[0].ready)
		var b cost.Batch
		left := chunk
		for i := range queue {
			q := &queue[i]
			if q.ready > now || left == 0 {
				break
			}
			q.own = min(left, q.prompt-q.at)
			left -= q.own
			b.Prefill = append(b.Prefill, cost.Span{Offset: q.at, N: q.own, Last: q.at+q.own == q.prompt})
		}
		now += k.Step(&b)
		for i := range b.Prefill {
			queue[i].at += queue[i].own
		}
		for len(queue) > 0 && queue[0].at == queue[0].prompt {
			queue = queue[1:]
		}
	}
	return float64(now) / 1e6
}
