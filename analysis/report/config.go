package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// settings are what was asked for.
func settings(r *measurement.Results, log *measurement.Log) (out []named) {
	c := r.Config
	add := func(name, v string, setting ...string) { // settings that are unknown are left out
		if v != "" && v != none && !slices.ContainsFunc(setting, func(s string) bool { return !c.Told(s) }) {
			out = append(out, named{name, clip(v, 400)})
		}
	}
	count := func(n int) string {
		if n == 0 {
			return ""
		}
		return thousands(n)
	}
	span := func(s float64) string {
		if s == 0 {
			return ""
		}
		return elapsed(s)
	}
	yes := map[bool]string{true: "yes"}
	var rates []string
	for _, v := range c.Rates[:min(len(c.Rates), 60)] {
		rates = append(rates, digits(v))
	}
	add("preset", c.Preset)
	add("loads asked, "+unit(c), strings.Join(rates, ", "))
	add("arrivals", map[bool]string{true: "poisson", false: c.Arrivals}[c.Arrivals == ""], "arrivals")
	add("objectives", objectives(c.SLO))
	if c.Lone() {
		add("a request", c.Asked())
	} else {
		add("turns a call", count(c.Turns), "turns")
	}
	add("system prompt", count(c.SystemPromptTokens)+" tokens", "system_prompt_tokens")
	add("a user's turn", count(c.UserTokens)+" tokens", "user_tokens")
	add("answer", count(c.OutputTokens)+" tokens"+map[bool]string{true: " on average (" + c.OutputLengths + ")"}[c.OutputLengths != ""]+map[bool]string{true: ", end of text ignored"}[c.IgnoreEOS], "output_tokens")
	add("temperature", digits(c.Temperature), "temperature")
	if !c.Lone() {
		add("pause between turns", digits(c.GapMinSeconds)+" to "+digits(c.GapMaxSeconds)+" s", "gap_min_s")
	}
	add("language of the filler", c.Language)
	add("transcripts", c.Transcripts)
	add("warm-up of a step", span(c.WarmupSeconds))
	add("window of a step", span(c.StepSeconds)+map[bool]string{true: ", at most " + span(c.MaxStepSeconds)}[c.MaxStepSeconds > 0])
	add("measured turns wanted", count(c.MinTurns))
	add("drain", span(c.DrainSeconds))
	add("calls at once, at most", count(c.MaxConcurrentCalls))
	add("connections opened ahead", yes[c.Preconnect])
	add("seed", fmt.Sprint(r.Seed), "seed")
	if log != nil {
		add("nonce of the prompts", log.Header.Nonce)
		add("began", log.Header.Started)
		add("shard", log.Header.Shard)
		for _, e := range log.Epochs[:min(len(log.Epochs), 10)] {
			add("gone on with", fmt.Sprintf("from step %d on, %s", e.FromStep, e.Started))
		}
	}
	add("measured by", r.Tool)
	return slices.DeleteFunc(out, func(n named) bool { return n.Meaning == " tokens" })
}

// engine is what is known of the other side.
func engine(r *measurement.Results) (out []named) {
	e := r.Engine
	add := func(name, v string) {
		if v != "" {
			out = append(out, named{name, clip(v, 200)})
		}
	}
	add("kind", strings.TrimSpace(e.Kind+" "+e.Version))
	add("model", e.Model)
	add("GPU", e.GPU)
	add("shape", analysis.Deployed(e))
	add("KV memory", analysis.KVMemory(*r))
	add("figures are", e.Fidelity)
	add("address", e.BaseURL)
	if e.ConnectMS != nil {
		add("opening a connection", digits(*e.ConnectMS)+" ms")
	}
	if c := e.Calibration; c != nil {
		add("filler", fmt.Sprintf("tokens = %s + %s × words", digits(c.Overhead), digits(c.TokensPerWord)))
		add("cached tokens", strings.ReplaceAll(c.CacheReport, "_", " "))
	}
	return out
}

// secret matches names of settings whose values are for nobody else.
var secret = regexp.MustCompile(`(?i)api_?key|secret|passw|credential|auth_?token|hf_token|private_?key|(^|_)auth($|_)`)

const mostDetails = 200

// details are the server's own settings: those that bear on a knee first, then the others by name. Those that would tell a secret
// are not there.
func details(d map[string]any) (first, rest []named, more int) {
	telling := []string{"fleet", "gpus", "tp", "kv_scheme", "kv_pool_bytes", "model_path", "served_model_name", "context_length", "max_model_len", "dtype", "quantization", "kv_cache_dtype", "tp_size", "dp_size", "pp_size", "tensor_parallel_size",
		"mem_fraction_static", "gpu_memory_utilization", "max_total_num_tokens", "max_total_tokens", "max_running_requests", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size",
		"max_prefill_tokens", "schedule_policy", "schedule_conservativeness", "attention_backend", "page_size", "block_size", "disable_radix_cache", "enable_prefix_caching", "radix_eviction_policy", "enable_cache_report",
		"enable_hierarchical_cache", "disable_cuda_graph", "enable_mixed_chunk", "speculative_algorithm"}
	put := func(to *[]named, name string) {
		if secret.MatchString(name) || d[name] == nil {
			return
		}
		text, ok := d[name].(string)
		if !ok {
			b, err := json.Marshal(masked(d[name]))
			if err != nil {
				return
			}
			text = string(b)
		}
		if text != "" {
			*to = append(*to, named{clip(name, 80), clip(text, 160)})
		}
	}
	for _, name := range telling {
		if _, ok := d[name]; ok {
			put(&first, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if slices.Contains(telling, name) {
			continue
		}
		if len(rest) == mostDetails {
			more++
			continue
		}
		put(&rest, name)
	}
	return first, rest, more
}

// masked is a value without what it nests under secret names.
func masked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if !secret.MatchString(k) {
				out[k] = masked(x)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = masked(x)
		}
		return out
	}
	return v
}
