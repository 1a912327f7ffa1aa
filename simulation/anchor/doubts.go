package anchor

import (
	"fmt"

	"kneefinder/simulation/engine"
)

// Load is what a simulated run asked of its engine.
type Load struct {
	Prompt   int // tokens of the longest prompt; 0: not known
	Sequence int // of the longest prompt and its reply; 0: not known
	Batch    int // most requests that ran at a time; 0: not known
}

// Foreign says why the constants of c's GPU are none of c's engine: they were fitted to another engine, model or plan. It is nil where
// they were fitted to this one, or to none.
func Foreign(c engine.Config) error {
	a := c.GPU.Anchor
	if a == nil {
		return nil
	}
	r := c.Filled().Recipe
	m := &c.Model
	switch {
	case a.Engine != string(r.Kind):
		return fmt.Errorf("the GPU %s is calibrated with %s, and its overheads are that engine's: %s needs a calibration of its own (kneesim anchor)", c.GPU.Name, a.Engine, r.Kind)
	case a.Params != m.Params() || a.KVBytes != m.FullBytes()+m.WindowBytes():
		return fmt.Errorf("the GPU %s is calibrated with the model %s (%d weights, %d bytes of KV a token), and its rates are those of that model's kernels: %s (%d weights, %d bytes) needs a calibration of its own (kneesim anchor)",
			c.GPU.Name, a.Model, a.Params, a.KVBytes, m.Name, m.Params(), m.FullBytes()+m.WindowBytes())
	case a.TP != r.TP || a.PP != r.PP || a.EP != r.EP || a.DP != r.DP:
		return fmt.Errorf("the GPU %s is calibrated with tp %d, pp %d, ep %d and attention dp %d, here they are %d, %d, %d and %d: another plan needs a calibration of its own (kneesim anchor)",
			c.GPU.Name, a.TP, a.PP, a.EP, a.DP, r.TP, r.PP, r.EP, r.DP)
	case r.Speculate.Tokens > 0:
		return fmt.Errorf("the GPU %s is calibrated without speculative decoding", c.GPU.Name)
	}
	return nil
}

// Doubts says where a run on a calibrated GPU left what its constants were fitted to; each is one sentence. There are none where the
// GPU is not calibrated: all of its times are a model's then.
func Doubts(c engine.Config, l Load) (out []string) {
	a := c.GPU.Anchor
	if a == nil {
		return nil
	}
	if err := Foreign(c); err != nil {
		out = append(out, fmt.Sprintf("%v.", err))
	}
	r := c.Filled().Recipe
	chunk := r.BatchedTokens
	if r.Scheduler == engine.PrefillFirst {
		chunk = r.MaxPrefillTokens
		if r.ChunkedPrefill > 0 {
			chunk = min(chunk, r.ChunkedPrefill)
		}
	}
	beyond := func(what string, value, measured int) {
		if value > measured {
			out = append(out, fmt.Sprintf("Extrapolated: %s up to %d, measured up to %d.", what, value, measured))
		}
	}
	beyond("steps of prompt tokens", chunk, min(a.Chunk, max(a.Prompt, 1)))
	beyond("prompts of tokens", l.Prompt, a.Prompt)
	beyond("sequences of tokens", l.Sequence, max(a.Context, a.Prompt))
	beyond("requests at a time", l.Batch, a.Batch)
	if a.Cached == 0 && !r.NoPrefix {
		out = append(out, "Warm requests were not measured: their times follow from those of cold ones.")
	}
	return out
}
