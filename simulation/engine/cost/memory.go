package cost

import "kneefinder/simulation/engine/model"

// Memory is what a model takes on one GPU of a plan, the fullest.
type Memory struct {
	Weights int64 // as they are stored, those of experts of four bits in whole tiles
	Reserve int64 // activations, CUDA graphs and context, buffers of collectives

	FullBytes, WindowBytes   int64 // KV of one token in all layers of either kind
	FullLayers, WindowLayers int   // on this GPU
	WindowTokens             int
	Ranks                    int // groups of attention, each with sequences and a pool of its own
}

// Fixed parts of Reserve.
const (
	leastReserve  = 2_000_000_000 // what engines set aside at least: context, workspaces, graphs, activations
	contextBytes  = 1_000_000_000 // of it, without activations
	exchangeBytes = 360 << 20     // NCCL's buffers: 342 to 392 MB in ai-dynamo/aiconfigurator@095f58a5 systems/*.yaml
)

// Memory is what the model takes on each GPU. Pipeline stages divide layers, rounded up.
func (k *Kernel) Memory() Memory {
	s, o := &k.shape, k.options
	group := o.TP / o.DP
	m := Memory{
		FullLayers: stage(s.Full.Layers, o.PP), WindowLayers: stage(s.Window.Layers, o.PP),
		WindowTokens: s.WindowTokens, Ranks: o.DP,
	}
	m.FullBytes, m.WindowBytes = s.KVOn(group, o.PP)

	w, tp := s.Weights, int64(o.TP)
	b := s.Bytes()
	var attention int64
	for _, a := range []model.Attention{s.Full, s.Window} {
		if a.Layers > 0 {
			attention += int64(a.Layers) * w.Linear.Bytes(k.projectionWeights(a, group))
		}
	}
	experts := b.Experts
	if s.MoE.Experts > 0 {
		width := s.MoE.FFN * o.EP / o.TP
		hidden, wide := k.tiles(width)
		experts = int64(float64(experts) * (hidden / float64(s.Hidden)) * (wide / float64(width)))
	}
	layers := attention + (b.Dense+b.Shared+experts)/tp + b.Router
	m.Weights = (layers + int64(o.PP) - 1) / int64(o.PP)
	if o.PP == 1 {
		m.Weights += (b.Head + b.Embedding) / tp
	} else {
		m.Weights += max(b.Head, b.Embedding) / tp // first or last stage
	}

	if m.Reserve = k.gpu.Reserve; m.Reserve > 0 {
		return m
	}
	inner := s.FFN
	if s.MoE.Experts > 0 {
		inner = max(inner, s.MoE.TopK*s.MoE.FFN)
	}
	activations := 2 * int64(o.MaxTokens) * int64(4*s.Hidden+3*inner/o.TP)
	activations += 4 * 256 * int64(s.Vocabulary) / tp // logits
	m.Reserve = max(leastReserve, contextBytes+activations)
	if o.GPUs() > 1 {
		m.Reserve += exchangeBytes
	}
	return m
}

func stage(layers, stages int) int { return (layers + stages - 1) / stages }

// projectionWeights is the weights of one attention layer on one of a group of GPUs.
func (k *Kernel) projectionWeights(a model.Attention, group int) int64 {
	p, n := k.shape.Projections(a), int64(group)
	if a.KVHeads == 0 { // MLA: down projections are on every GPU
		return p.QueryDown + p.KVDown + (p.Query+p.Key+p.Value+p.Out)/n
	}
	copies := int64(a.KVHeadsOn(group)) * n / int64(a.KVHeads) // of KV heads, where there are fewer than GPUs
	return (p.Query+p.Out)/n + (p.Key+p.Value)*copies/n
}
