package mockserver

import (
	"os"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds as SGLang has them where nobody asks for others.
var (
	sglangTTFT   = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
	sglangITL    = []float64{.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8}
	sglangE2E    = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400}
	sglangQueue  = inSeconds(0, .001, .005, .01, .05, .1, .2, .5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000)
	sglangTokens = inTokens(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000, 600000, 800000, 1e6, 1.1e6)
	sglangStage  = inSeconds( // .001 * 1.62^k, to the last digit as Python has it
		0.001, 0.0016200000000000001, 0.0026244000000000007, 0.004251528, 0.006887475360000002, 0.011157710083200004,
		0.018075490334784006, 0.029282294342350097, 0.047437316834607154, 0.07684845327206359, 0.12449449430074302, 0.20168108076720373,
		0.3267233508428701, 0.5292918283654495, 0.8574527619520282, 1.389073474362286, 2.2502990284669036, 3.6454844261163837,
		5.905684770308542, 9.567209327899839, 15.49887911119774, 25.10818416014034, 40.67525833942735, 65.89391850987231,
		106.74814798599316, 172.93199973730896, 280.1498395744405, 453.84274011059364, 735.2252389791618, 1191.064887146242,
	)
)

// Gauges of parts that the model does not have. SGLang shows 0 where a server is started without them; is_cuda_graph and
// utilization are 0 in this version whatever happens.
var sglangAlways0 = []string{
	"num_grammar_queue_reqs", "mamba_usage", "mamba_available_tokens", "mamba_evictable_tokens", "mamba_used_tokens",
	"spec_accept_length", "spec_accept_rate", "spec_cap_length", "spec_block_accept_length", "spec_num_steps", "spec_num_draft_tokens",
	"num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs", "num_decode_prealloc_queue_reqs",
	"num_decode_transfer_queue_reqs", "num_decode_host_receive_queue_reqs", "num_decode_deferred_kv_release_reqs",
	"pending_prealloc_token_usage", "prealloc_full_token_usage", "prealloc_swa_token_usage",
	"utilization", "is_cuda_graph", "num_unique_running_routing_keys",
}

func (b *sglang) describe(cfg Config) {
	tokenizer := prometheus.Labels{"model_name": cfg.ModelName, "engine_type": "unified"}
	scheduler := prometheus.Labels{"model_name": cfg.ModelName, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
	cache := prometheus.Labels{"cache_type": "UnifiedRadixCache", "tp_rank": "0", "pp_rank": "0"}
	process := prometheus.Labels{"pid": strconv.Itoa(os.Getpid())}
	for name, value := range scheduler {
		process[name] = value
	}
	custom := func(more ...string) []string { return append(slices.Clone(b.custom), more...) }
	ranked := func(more ...string) []string { return b.ranked("dp_rank", more...) }
	f := b.families
	f.add(scheduler, ranked(),
		"sglang:num_running_reqs", "Requests that decode; of a prefill, those that it makes wait.",
		"sglang:num_queue_reqs", "Requests in the queue.",
		"sglang:token_usage", "Part of the KV pool that running requests hold; what could be evicted is not in it. The larger of both kinds of layers.",
		"sglang:full_token_usage", "The same of layers without a window.",
		"sglang:swa_token_usage", "The same of layers with a window.",
		"sglang:num_used_tokens", "Tokens of KV that running requests hold.",
		"sglang:kv_used_tokens", "Tokens of KV that running requests hold.",
		"sglang:kv_available_tokens", "Tokens of KV for which there is room.",
		"sglang:kv_evictable_tokens", "Tokens of KV that the prefix cache alone holds.",
		"sglang:swa_used_tokens", "Tokens of window KV that running requests hold.",
		"sglang:swa_available_tokens", "Tokens of window KV for which there is room.",
		"sglang:swa_evictable_tokens", "Tokens of window KV that the prefix cache alone holds.",
		"sglang:gen_throughput", "Tokens a second between the last two decode reports.",
		"sglang:cache_hit_rate", "Part of the last prefill's prompt tokens that the cache had.",
		"sglang:decode_sum_seq_lens", "Sum of the lengths of decoding sequences.",
		"sglang:new_token_ratio", "Part of their remaining tokens that running requests are expected to write.",
		"sglang:max_total_num_tokens", "Size of the KV pool in tokens.",
		"sglang:page_size", "Tokens in a page of the KV pool.",
		"sglang:num_pages", "Pages of the KV pool.",
		"sglang:context_len", "Most tokens of a sequence.",
		"sglang:weight_memory_usage_gb", "Memory of the model's weights.",
		"sglang:kv_cache_memory_usage_gb", "Memory of the KV pool.",
		"sglang:num_retracted_requests_total", "Requests taken back to the queue.",
		"sglang:num_retracted_input_tokens_total", "Their prompt tokens.",
		"sglang:num_retracted_output_tokens_total", "Their generated tokens.",
		"sglang:queue_time_seconds", "Time from arrival to the first step.",
		"sglang:scheduler_idle_seconds_total", "Time without anything to do.",
	)
	for _, name := range sglangAlways0 {
		f.add(scheduler, ranked(), "sglang:"+name, "Always 0 here.")
	}
	f.add(process, ranked(),
		"sglang:num_retracted_reqs", "Requests retracted between the last two reports.",
		"sglang:num_paused_reqs", "Always 0 here.",
	)
	f.add(scheduler, ranked("mode"),
		"sglang:realtime_tokens_total", "Tokens as steps compute or find them: prefill_compute, prefill_cache, decode.",
		"sglang:prefill_effective_tokens_total", "Prompt tokens, each once: input, and hits by tier.",
		"sglang:cuda_graph_passes_total", "Steps by whether they replay a CUDA graph.",
	)
	f.add(scheduler, ranked("stage"), "sglang:per_stage_req_latency_seconds", "Time of a request's stages.")
	f.add(cache, []string{"dp_rank"}, "sglang:evicted_tokens_total", "Tokens evicted from the prefix cache.")
	f.add(tokenizer, custom("is_streaming"),
		"sglang:prompt_tokens_total", "Prompt tokens of requests that have ended.",
		"sglang:generation_tokens_total", "Generated tokens of requests that have ended.",
		"sglang:num_requests_total", "Requests that have ended.",
		"sglang:time_to_first_token_seconds", "Time from arrival to the first token, the queue included.",
		"sglang:e2e_request_latency_seconds", "Time from arrival to the end.",
		"sglang:request_time_per_output_token_seconds", "(end - first token) / (tokens - 1) of a request.",
	)
	f.add(tokenizer, custom("cache_source"), "sglang:cached_tokens_total", "Prompt tokens found in the cache, of requests that have ended.")
	f.add(tokenizer, custom(),
		"sglang:num_aborted_requests_total", "Requests whose client went away.",
		"sglang:prompt_tokens_histogram", "Prompt tokens of a request.",
		"sglang:uncached_prompt_tokens_histogram", "Prompt tokens of a request that the cache did not have.",
		"sglang:generation_tokens_histogram", "Generated tokens of a request.",
		"sglang:inter_token_latency_seconds", "Time since the request's last report by new tokens, counted for each of them.",
	)
}

// ranked is the labels of a scheduler, or their values: where there are several replicas its rank comes first, as with
// --dp-size.
func (b *sglang) ranked(rank string, more ...string) []string {
	if len(b.schedulers) == 1 {
		return more
	}
	return append([]string{rank}, more...)
}

// sglangShot is the figures of one instant. Of the book it reads only what never changes.
type sglangShot struct {
	book       *sglang
	schedulers []schedulerState
	sets       []tokenizerState
}

func (f *sglangShot) write(out chan<- prometheus.Metric) {
	s := sheet{f.book.families, out}
	for i := range f.schedulers {
		f.schedulers[i].write(s, f.book, strconv.Itoa(i))
	}
	for i := range f.sets {
		f.sets[i].write(s)
	}
}

// write shows one replica's scheduler.
func (f *schedulerState) write(s sheet, b *sglang, rank string) {
	labels := func(more ...string) []string { return b.ranked(rank, more...) }
	g := &f.gauges
	for name, value := range map[string]float64{
		"num_running_reqs": float64(g.running), "num_queue_reqs": float64(g.waiting),
		"token_usage": g.usage, "full_token_usage": g.fullUsage, "swa_token_usage": g.windowUsage,
		"num_used_tokens": float64(g.used), "kv_used_tokens": float64(g.used),
		"kv_available_tokens": float64(g.available), "kv_evictable_tokens": float64(g.evictable),
		"swa_used_tokens": float64(g.windowUsed), "swa_available_tokens": float64(g.windowFree), "swa_evictable_tokens": float64(g.windowEvictable),
		"gen_throughput": g.throughput, "cache_hit_rate": g.hitRate, "decode_sum_seq_lens": float64(g.context), "new_token_ratio": g.ratio,
		"num_retracted_reqs": float64(g.retracted), "num_paused_reqs": 0,
		"max_total_num_tokens": float64(f.stats.KVPoolTokens), "num_pages": float64(f.stats.KVPoolTokens), "page_size": 1,
		"kv_cache_memory_usage_gb": float64(f.stats.KVPoolBytes) / (1 << 30),
	} {
		s.gauge("sglang:"+name, value, labels()...)
	}
	for _, name := range sglangAlways0 {
		s.gauge("sglang:"+name, 0, labels()...)
	}
	if c := b.context; c > 0 {
		s.gauge("sglang:context_len", float64(c), labels()...)
	}
	if w := b.weights; w > 0 {
		s.gauge("sglang:weight_memory_usage_gb", float64(w)/(1<<30), labels()...)
	}
	s.counter("sglang:realtime_tokens_total", float64(f.computed), labels("prefill_compute")...)
	s.counter("sglang:realtime_tokens_total", float64(f.hit), labels("prefill_cache")...)
	s.counter("sglang:realtime_tokens_total", float64(f.decoded), labels("decode")...)
	s.counter("sglang:prefill_effective_tokens_total", float64(f.effective), labels("input")...)
	s.counter("sglang:prefill_effective_tokens_total", float64(f.effectiveHit), labels("device_hit")...)
	s.counter("sglang:prefill_effective_tokens_total", 0, labels("host_hit")...)
	s.counter("sglang:prefill_effective_tokens_total", 0, labels("storage_hit")...)
	s.counter("sglang:cuda_graph_passes_total", float64(f.prefills), labels("prefill_none")...)
	s.counter("sglang:cuda_graph_passes_total", float64(f.decodes), labels("decode_cuda_graph")...)
	s.counter("sglang:evicted_tokens_total", float64(f.stats.EvictedTokens), rank)
	s.counter("sglang:scheduler_idle_seconds_total", f.idle.Seconds(), labels()...)
	if f.retractedRequests > 0 {
		s.counter("sglang:num_retracted_requests_total", float64(f.retractedRequests), labels()...)
		s.counter("sglang:num_retracted_input_tokens_total", float64(f.retractedInput), labels()...)
		s.counter("sglang:num_retracted_output_tokens_total", float64(f.retractedOutput), labels()...)
	}
	s.histogram("sglang:queue_time_seconds", &f.queue, labels()...)
	s.histogram("sglang:per_stage_req_latency_seconds", &f.prefillForward, labels("prefill_forward")...)
	s.histogram("sglang:per_stage_req_latency_seconds", &f.chunk, labels("chunked_prefill")...)
}

// write shows what has been touched, as SGLang does.
func (t *tokenizerState) write(s sheet) {
	labels := func(more ...string) []string { return append(slices.Clone(t.labels), more...) }
	for i := range t.byStream {
		b, streamed := &t.byStream[i], labels(strconv.FormatBool(i == 1))
		if b.ttft.count() > 0 {
			s.histogram("sglang:time_to_first_token_seconds", &b.ttft, streamed...)
		}
		if b.requests == 0 {
			continue
		}
		s.counter("sglang:prompt_tokens_total", float64(b.prompt), streamed...)
		s.counter("sglang:generation_tokens_total", float64(b.generated), streamed...)
		s.counter("sglang:num_requests_total", float64(b.requests), streamed...)
		s.histogram("sglang:e2e_request_latency_seconds", &b.e2e, streamed...)
		if b.tpot.count() > 0 {
			s.histogram("sglang:request_time_per_output_token_seconds", &b.tpot, streamed...)
		}
	}
	if t.cached > 0 {
		s.counter("sglang:cached_tokens_total", float64(t.cached), labels("device")...)
	}
	if t.aborted > 0 {
		s.counter("sglang:num_aborted_requests_total", float64(t.aborted), t.labels...)
	}
	if t.itl.count() > 0 {
		s.histogram("sglang:inter_token_latency_seconds", &t.itl, t.labels...)
	}
	if t.finished > 0 {
		s.histogram("sglang:prompt_tokens_histogram", &t.prompts, t.labels...)
		s.histogram("sglang:uncached_prompt_tokens_histogram", &t.uncached, t.labels...)
		s.histogram("sglang:generation_tokens_histogram", &t.generated, t.labels...)
	}
}
