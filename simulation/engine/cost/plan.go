package cost

import (
	"fmt"
	"time"

	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// Engine is whose overheads a step has.
type Engine string

// The engines.
const (
	SGLang Engine = "sglang"
	VLLM   Engine = "vllm"
)

// Options is how a model is spread over GPUs and run there. The zero value is SGLang on one GPU.
type Options struct {
	Engine Engine // empty: SGLang

	TP int // GPUs that share each layer; 0: 1
	PP int // stages, each with a part of the layers on TP GPUs of its own, that a step passes one after the other; 0: 1
	EP int // groups among the TP GPUs that hold different experts; 0: 1, every expert is divided by TP
	DP int // groups among the TP GPUs that compute attention for different sequences; 0: 1

	Draft Draft // speculation; the zero value is none
	Eager bool  // no CUDA graphs

	MaxTokens int // most tokens of one step, for the memory of activations; 0: 8192
}

// Draft is speculative decoding: each step verifies Tokens drafted tokens for each sequence, and one more comes out for sure.
type Draft struct {
	Tokens int     // 0: none
	Cost   float64 // of drafting one token, as a part of a step of the whole model that computes one token a sequence
}

// GPUs is how many the plan takes.
func (o Options) GPUs() int { o = o.filled(); return o.TP * o.PP }

func (o Options) filled() Options {
	for _, n := range []*int{&o.TP, &o.PP, &o.EP, &o.DP} {
		if *n == 0 {
			*n = 1
		}
	}
	if o.Engine == "" {
		o.Engine = SGLang
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 8192
	}
	return o
}

// Validate returns nil, or which part of the plan is impossible for s on g, and why.
func (o Options) Validate(s model.Shape, g gpu.GPU) error {
	o = o.filled()
	for _, f := range []struct {
		name  string
		value int
	}{{"tp", o.TP}, {"pp", o.PP}, {"ep", o.EP}, {"dp", o.DP}, {"max tokens", o.MaxTokens}} {
		if f.value < 1 {
			return fmt.Errorf("plan: %s is %d, must be at least 1, or 0 for the default", f.name, f.value)
		}
	}
	if o.Engine != SGLang && o.Engine != VLLM {
		return fmt.Errorf("plan: engine is %q, must be %s or %s", o.Engine, SGLang, VLLM)
	}
	if o.TP%o.DP != 0 {
		return fmt.Errorf("plan: dp is %d, must divide tp, %d: attention's groups are parts of it", o.DP, o.TP)
	}
	if err := s.CheckTP(o.TP / o.DP); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if s.DenseLayers() > 0 && s.FFN%o.TP != 0 {
		return fmt.Errorf("plan: tp is %d, must divide the inner width of %s, %d", o.TP, s.Name, s.FFN)
	}
	if o.PP > s.Layers() {
		return fmt.Errorf("plan: pp is %d, must be at most the %d layers of %s", o.PP, s.Layers(), s.Name)
	}
	switch {
	case o.EP == 1:
	case s.MoE.Experts == 0:
		return fmt.Errorf("plan: ep is %d, but %s has no experts: leave it away", o.EP, s.Name)
	case o.TP%o.EP != 0:
		return fmt.Errorf("plan: ep is %d, must divide tp, %d: the groups are parts of it", o.EP, o.TP)
	case s.MoE.Experts%o.EP != 0:
		return fmt.Errorf("plan: ep is %d, must divide the %d experts of %s", o.EP, s.MoE.Experts, s.Name)
	}
	if s.MoE.Experts > 0 && s.MoE.FFN%(o.TP/o.EP) != 0 {
		return fmt.Errorf("plan: tp/ep is %d, must divide the inner width of the experts of %s, %d", o.TP/o.EP, s.Name, s.MoE.FFN)
	}
	if g.ScaleUpGPUs > 0 && o.TP > g.ScaleUpGPUs {
		return fmt.Errorf("plan: tp is %d, but only %d of %s are joined: spread further by pp", o.TP, g.ScaleUpGPUs, g.Name)
	}
	if o.TP > 8 && g.ScaleUpGPUs <= 8 {
		return fmt.Errorf("plan: tp is %d, but a server has 8 of %s: spread further by pp", o.TP, g.Name)
	}
	if d := o.Draft; d.Tokens < 0 || !(d.Cost >= 0) || d.Tokens > 64 {
		return fmt.Errorf("plan: speculation drafts %d tokens at %v of a step each, must be 0 to 64 tokens at 0 or more", d.Tokens, d.Cost)
	}
	return nil
}

// overheads is what g says, or what the engine needs beside its kernels on the hosts of data-centre GPUs.
func (o Options) overheads(g gpu.GPU) gpu.Overheads {
	if g.Overheads != nil {
		v := *g.Overheads
		if o.Eager {
			v.Graphs = 0
		}
		return v
	}
	v := gpu.Overheads{
		// Assumed, as no public measurement has them apart: vLLM's issues tell of 0.5 to 2 ms of scheduling and more of input
		// preparation in steps that nothing hides; SGLang's and vLLM's decode steps hide most of it behind the GPU.
		Prefill:     2 * time.Millisecond,
		Decode:      400 * time.Microsecond,
		Sequence:    5 * time.Microsecond,
		Launch:      5 * time.Microsecond,
		Request:     3 * time.Millisecond,
		PromptToken: 1 * time.Microsecond,
		Graphs:      sglangGraphs(g.Memory, o.TP),
	}
	if o.Engine == VLLM {
		v.Graphs = 512
	}
	if o.Eager {
		v.Graphs = 0
	}
	return v
}

// sglangGraphs is SGLang's default for cuda_graph_max_bs.
func sglangGraphs(memory int64, tp int) int {
	few, many := 512, 512
	switch {
	case memory < 20<<30:
		few, many = 8, 8
	case memory < 35<<30:
		few, many = 24, 80
	case memory < 60<<30:
		few, many = 32, 160
	case memory < 90<<30:
		few, many = 256, 512
	}
	if tp < 4 {
		return few
	}
	return many
}
