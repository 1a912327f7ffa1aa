package scrape

import (
	"cmp"
	"strconv"
	"strings"

	"kneefinder/measurement"
)

// dialect is how an engine names its metrics.
type dialect struct {
	prefix  string // of all of its own
	rank    string // the label that tells engines on one page apart, in the family of the first figure
	figures []figure
	hits    []hit // best first
	more    func(p page, v values)
}

// hit is where a hit rate's two counters stand. They must come from one place: counters that move at different moments, or of
// which one counts a request again, do not make a ratio.
type hit struct{ prompt, cached reading }

// dialects are the engines that are understood. They are told apart by the families on the page.
func dialects() []dialect {
	return []dialect{sglang(), vllm(), llamaCPP(), tgi()}
}

// sglang is SGLang's. Its schedulers' families have a set of series for each rank that writes metrics: see byRank. Families of
// the tokenizer manager (prompt_tokens, generation_tokens, TTFT, ITL) count each request in one series, whatever its labels.
//
// Since Python's client shows a series with its first count, retractions and evictions are missing until there is one.
// Not used, on purpose: cache_hit_rate, which is of the last batch; realtime_tokens_total{mode="decode"}, which misses the first
// token of each answer; max_running_requests_under_SLO, which is no limit of the engine.
func sglang() dialect {
	ranks := func(name string) reading {
		return reading{name: name, fold: func(ss []series) float64 { return sum(byRank(ss)) }}
	}
	ratio := func(name string) reading {
		return reading{name: name, fold: func(ss []series) float64 { return mean(byRank(ss)) }}
	}
	modes := func(name string, in ...string) reading {
		r := ranks(name)
		r.label, r.in = "mode", in
		return r
	}
	// Cached tokens are told by where they were found; some releases add a total of all places.
	ofAll := plainly("sglang:cached_tokens_total")
	ofAll.label, ofAll.in, ofAll.must = "cache_source", []string{"total"}, true
	return dialect{prefix: "sglang:", rank: "dp_rank", figures: []figure{
		{measurement.SampleRunning, []reading{ranks("sglang:num_running_reqs")}},
		{measurement.SampleQueued, []reading{ranks("sglang:num_queue_reqs")}},
		{measurement.SampleKVUsage, []reading{ratio("sglang:token_usage")}}, // of what is neither free nor evictable
		{measurement.SampleKVUsed, []reading{ranks("sglang:kv_used_tokens"), ranks("sglang:num_used_tokens")}},
		{measurement.SampleKVCached, []reading{ranks("sglang:kv_evictable_tokens")}},
		{measurement.SampleKVFree, []reading{ranks("sglang:kv_available_tokens")}},
		{measurement.SampleKVPool, []reading{ranks("sglang:max_total_num_tokens")}},
		{measurement.SampleEvicted, []reading{ranks("sglang:evicted_tokens_total")}}, // without model_name
		{measurement.SampleRetractions, []reading{ranks("sglang:num_retracted_requests_total")}},
		{measurement.SampleGenerated, []reading{plainly("sglang:generation_tokens_total")}},
		{measurement.SampleTTFTSum, []reading{plainly("sglang:time_to_first_token_seconds_sum")}},
		{measurement.SampleTTFTCount, []reading{plainly("sglang:time_to_first_token_seconds_count")}},
		{measurement.SampleITLSum, []reading{plainly("sglang:inter_token_latency_seconds_sum"), plainly("sglang:time_per_output_token_seconds_sum")}},
		{measurement.SampleITLCount, []reading{plainly("sglang:inter_token_latency_seconds_count"), plainly("sglang:time_per_output_token_seconds_count")}},
		{measurement.SampleQueueSum, []reading{ranks("sglang:queue_time_seconds_sum")}},
		{measurement.SampleQueueCount, []reading{ranks("sglang:queue_time_seconds_count")}},
	}, hits: []hit{
		// As prefills run, and without those that a retraction makes run again.
		{modes("sglang:prefill_effective_tokens_total", "input", "device_hit", "host_hit", "storage_hit"),
			modes("sglang:prefill_effective_tokens_total", "device_hit", "host_hit", "storage_hit")},
		// As prefills run.
		{modes("sglang:realtime_tokens_total", "prefill_compute", "prefill_cache"), modes("sglang:realtime_tokens_total", "prefill_cache")},
		// When a request ends.
		{plainly("sglang:prompt_tokens_total"), ofAll},
		{plainly("sglang:prompt_tokens_total"), plainly("sglang:cached_tokens_total")},
		{prompt: plainly("sglang:prompt_tokens_total")},
	}}
}

// byRank keeps of a scheduler's series those that together count everything once. The ranks of one tensor-parallel group, the
// stages of a pipeline and expert-parallel ranks work on the same requests and the same pages, so one of them speaks for all: the
// lowest. Data-parallel ranks have requests of their own. With priorities, the series of the empty priority is the total.
func byRank(ss []series) []series {
	var totals []series
	for _, s := range ss {
		if s.label("priority") == "" {
			totals = append(totals, s)
		}
	}
	if totals != nil {
		ss = totals
	}
	same := []string{"tp_rank", "pp_rank", "moe_ep_rank", "pid"}
	return group(ss, func(s series) string { return rest(s, same) }, func(a, b series) int {
		return cmp.Or(
			cmp.Compare(number(a.labels, "pp_rank"), number(b.labels, "pp_rank")),
			cmp.Compare(number(a.labels, "tp_rank"), number(b.labels, "tp_rank")),
			cmp.Compare(number(a.labels, "moe_ep_rank"), number(b.labels, "moe_ep_rank")))
	})
}

// vllm is vLLM's, whose engines (data-parallel ones) are told apart by the label engine and added up. It counts no evictions.
// Its hits of the prefix cache are the last resort: for a long time it counted a request that waited for room anew at every
// scheduling step, just when the cache is full.
func vllm() dialect {
	ratio := func(name string) reading { return reading{name: name, fold: mean} }
	found := plainly("vllm:prompt_tokens_by_source_total")
	found.label, found.in = "source", []string{"local_cache_hit", "external_kv_transfer"}
	return dialect{prefix: "vllm:", rank: "engine", figures: []figure{
		{measurement.SampleRunning, []reading{plainly("vllm:num_requests_running")}},
		{measurement.SampleQueued, []reading{plainly("vllm:num_requests_waiting")}},
		{measurement.SampleKVUsage, []reading{ratio("vllm:kv_cache_usage_perc"), ratio("vllm:gpu_cache_usage_perc")}}, // 0 to 1, whatever the name says
		{measurement.SampleRetractions, []reading{plainly("vllm:num_preemptions_total")}},
		{measurement.SampleGenerated, []reading{plainly("vllm:generation_tokens_total")}},
		{measurement.SampleTTFTSum, []reading{plainly("vllm:time_to_first_token_seconds_sum")}},
		{measurement.SampleTTFTCount, []reading{plainly("vllm:time_to_first_token_seconds_count")}},
		{measurement.SampleITLSum, []reading{plainly("vllm:inter_token_latency_seconds_sum"), plainly("vllm:time_per_output_token_seconds_sum")}},
		{measurement.SampleITLCount, []reading{plainly("vllm:inter_token_latency_seconds_count"), plainly("vllm:time_per_output_token_seconds_count")}},
		{measurement.SampleQueueSum, []reading{plainly("vllm:request_queue_time_seconds_sum"), plainly("vllm:time_in_queue_requests_sum")}},
		{measurement.SampleQueueCount, []reading{plainly("vllm:request_queue_time_seconds_count"), plainly("vllm:time_in_queue_requests_count")}},
	}, hits: []hit{
		{plainly("vllm:prompt_tokens_by_source_total"), found},
		{plainly("vllm:prompt_tokens_total"), plainly("vllm:prompt_tokens_cached_total")},
		{plainly("vllm:prefix_cache_queries_total"), plainly("vllm:prefix_cache_hits_total")},
		{plainly("vllm:gpu_prefix_cache_queries_total"), plainly("vllm:gpu_prefix_cache_hits_total")},
		{prompt: plainly("vllm:prompt_tokens_total")},
	}, more: vllmPool}
}

const vllmConfig = "vllm:cache_config_info"

// vllmPool finds the size of the KV pool, which vLLM tells in labels.
func vllmPool(p page, v values) {
	pool := 0.
	for _, s := range p.series[vllmConfig] {
		tokens, err := strconv.ParseFloat(s.label("kv_cache_size_tokens"), 64)
		if err != nil {
			tokens = float64(number(s.labels, "num_gpu_blocks") * number(s.labels, "block_size"))
		}
		pool += tokens
	}
	if pool <= 0 {
		return
	}
	v.set(measurement.SampleKVPool, pool, true)
	usage, ok := v[measurement.SampleKVUsage]
	v.set(measurement.SampleKVUsed, usage*pool, ok)
}

// llamaCPP is that of llama.cpp's server. Its prompt_tokens_total counts what was computed, not what was asked, so there is no hit
// rate; the KV gauges went away in 2025.
func llamaCPP() dialect {
	return dialect{prefix: "llamacpp:", figures: []figure{
		{measurement.SampleRunning, []reading{plainly("llamacpp:requests_processing")}},
		{measurement.SampleQueued, []reading{plainly("llamacpp:requests_deferred")}},
		{measurement.SampleKVUsage, []reading{{name: "llamacpp:kv_cache_usage_ratio", fold: mean}}},
		{measurement.SampleKVUsed, []reading{plainly("llamacpp:kv_cache_tokens")}},
		{measurement.SampleGenerated, []reading{plainly("llamacpp:tokens_predicted_total")}},
		// The time that slots spent on tokens, each for itself: so much a token, as its reader feels it.
		{measurement.SampleITLSum, []reading{plainly("llamacpp:tokens_predicted_seconds_total")}},
		{measurement.SampleITLCount, []reading{plainly("llamacpp:tokens_predicted_total")}},
	}}
}

// tgi is that of Hugging Face's text-generation-inference.
func tgi() dialect {
	return dialect{prefix: "tgi_", figures: []figure{
		{measurement.SampleRunning, []reading{plainly("tgi_batch_current_size")}},
		{measurement.SampleQueued, []reading{plainly("tgi_queue_size")}},
		{measurement.SampleGenerated, []reading{plainly("tgi_request_generated_tokens_sum")}},
		{measurement.SampleQueueSum, []reading{plainly("tgi_request_queue_duration_sum")}},
		{measurement.SampleQueueCount, []reading{plainly("tgi_request_queue_duration_count")}},
	}, hits: []hit{{prompt: plainly("tgi_request_input_length_sum")}}}
}

// wantsEngine knows the names that a dialect reads.
func wantsEngine() func(string) (string, bool) {
	names := map[string]bool{vllmConfig: true}
	for _, d := range dialects() {
		for _, f := range d.figures {
			for _, r := range f.from {
				names[r.name] = true
			}
		}
		for _, h := range d.hits {
			names[h.prompt.name], names[h.cached.name] = true, true
		}
	}
	return func(name string) (string, bool) { return name, names[name] && name != "" }
}

// readEngine reads an engine's page: in the dialect of the first of its families that is known; nothing when none is.
func readEngine(p page) values {
	v := values{}
	for _, d := range dialects() {
		if !d.spoken(p) {
			continue
		}
		for _, f := range d.figures {
			value, ok := first(p, f.from)
			v.set(f.value, value, ok)
		}
		for _, h := range d.hits {
			prompt, ok := h.prompt.of(p)
			cached, both := h.cached.of(p)
			if !ok || !both && h.cached.name != "" {
				continue
			}
			v.set(measurement.SamplePrompt, prompt, true)
			v.set(measurement.SampleCached, cached, both)
			break
		}
		if n := d.engines(p); n > 1 {
			v.set(measurement.SampleEngines, float64(n), true)
		}
		if d.more != nil {
			d.more(p, v)
		}
		return v
	}
	return v
}

// engines is how many engines a page tells apart; 0 when it tells none.
func (d dialect) engines(p page) int {
	ranks := map[string]bool{}
	if d.rank != "" {
		for _, s := range p.series[d.figures[0].from[0].name] {
			if rank := s.label(d.rank); rank != "" {
				ranks[rank] = true
			}
		}
	}
	return len(ranks)
}

func (d dialect) spoken(p page) bool {
	for name := range p.series {
		if strings.HasPrefix(name, d.prefix) {
			return true
		}
	}
	return false
}
