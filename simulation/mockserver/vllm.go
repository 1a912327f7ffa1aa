package mockserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kneefinder/simulation/engine"
)

// vllms is the figures of several engines, as with --data-parallel-size: each counts the requests that the router has sent there.
type vllms []*vllm

func newVLLMs(cfg Config, replicas []engine.Stats) (b vllms) {
	for i, s := range replicas {
		b = append(b, newVLLM(cfg, s, i))
	}
	return b
}

func (b vllms) routed(*account, time.Duration) {}

func (b vllms) admitted(r *account, at time.Duration, cached int) {
	b[r.replica].admitted(r, at, cached)
}

func (b vllms) tokens(r *account, at time.Duration, n int) { b[r.replica].tokens(r, at, n) }

func (b vllms) retracted(*account, int) {}

func (b vllms) hungUp(*account) {}

func (b vllms) finished(r *account, at time.Duration, f engine.Finish) {
	b[r.replica].finished(r, at, f)
}

func (b vllms) stepped(replica int, s *engine.Step) { b[replica].stepped(s) }

func (b vllms) rested(replica int, _ time.Duration, s engine.Stats) { b[replica].publish(s) }

func (b vllms) snapshot(_ time.Duration, replicas []engine.Stats) figures {
	shots := make(vllmShots, len(b))
	for i, e := range b {
		shots[i] = e.snapshot(replicas[i])
	}
	return shots
}

// vllmShots is the figures of all engines at one instant.
type vllmShots []vllmShot

func (f vllmShots) write(out chan<- prometheus.Metric) {
	for i := range f {
		f[i].write(out)
	}
	s := sheet{f[0].book.families, out}
	for _, reason := range vllmRejections {
		s.counter("vllm:admission_rejections_total", 0, reason)
	}
}

// vllm keeps the figures of vLLM 0.32: gauges as of the last step, and what its frontend counts of each step's outputs. A request
// whose client has gone is forgotten at once: vLLM counts neither its later tokens nor its end.
type vllm struct {
	families    families
	cacheConfig []string // values of cache_config_info's labels
	state       vllmState
	watched     bool // the engine tells of steps
	told        bool // the engine has told of tokens

	// What the step in progress has found in the cache, and what the last outputs were; both count with the step's end.
	queries, hits int
	outputs       struct {
		at                  time.Duration
		any                 bool
		computed, generated int // tokens
	}
}

// vllmState is what a scrape shows.
type vllmState struct {
	running, waiting int
	usage            float64

	queries, hits, preemptions          int
	prompt, computed, cached, generated int
	length                              int // requests that have generated all they were asked for

	prompts, generations, iteration, mostGenerated, n, asked histogram
	ttft, itl, tpot, e2e, queue, inference, prefill, decode  histogram
	preempted, uncached                                      histogram
}

var (
	vllmTTFT        = inSeconds(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
	vllmITL         = inSeconds(.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
	vllmLatency     = inSeconds(.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
	vllmIteration   = inTokens(1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
	vllmN           = inTokens(1, 2, 5, 10, 20)
	vllmPreemptions = inTokens(1, 2, 3, 4, 5, 10, 20)
)

// Reasons, states, sources that vLLM shows from the start.
var (
	vllmFinishes   = []string{"stop", "length", "abort", "error", "repetition"}
	vllmElsewhere  = []string{"host", "p2p", "disk", "external_unspecified"}
	vllmRejections = []string{"max_num_queued_reqs", "max_num_queued_tokens"}
)

// cacheConfig is the labels of cache_config_info: what the model has, and what vLLM says of what the model has not. The model's
// blocks are of one token.
func cacheConfig(cfg Config, s engine.Stats) (names, values []string) {
	tokens := strconv.Itoa(s.KVPoolTokens)
	concurrency := "None"
	if cfg.ContextLimit > 0 {
		concurrency = strconv.FormatFloat(share(s.KVPoolTokens, cfg.ContextLimit), 'g', -1, 64)
	}
	for _, l := range [][2]string{
		{"_block_size_resolved", "True"}, {"block_size", "1"}, {"cache_dtype", "auto"}, {"cache_hit_alignment_tokens", "None"},
		{"effective_attention_block_size", "1"}, {"enable_mamba_shared_prefix_checkpoint", "False"}, {"enable_prefix_caching", "True"},
		{"gpu_memory_utilization", strconv.FormatFloat(cfg.MemFraction, 'g', -1, 64)}, {"hash_block_size", "None"},
		{"is_attention_free", "False"}, {"kv_cache_dtype_skip_layers", "[]"}, {"kv_cache_layout", "None"},
		{"kv_cache_max_concurrency", concurrency}, {"kv_cache_memory_bytes", strconv.FormatInt(s.KVPoolBytes, 10)},
		{"kv_cache_size_tokens", tokens}, {"kv_offloading_backend", "native"}, {"kv_offloading_size", "None"},
		{"kv_sharing_fast_prefill", "False"}, {"mamba_block_size", "None"}, {"mamba_cache_dtype", "auto"}, {"mamba_cache_mode", "none"},
		{"mamba_page_size_padded", "None"}, {"mamba_ssm_cache_dtype", "float32"}, {"num_cpu_blocks", "None"}, {"num_gpu_blocks", tokens},
		{"num_gpu_blocks_override", "None"}, {"prefix_cache_retention_interval", "0"}, {"prefix_caching_hash_algo", "sha256"},
		{"prefix_match_unit", "None"}, {"replayssm_buffer_len", "16"}, {"skip_page_size_padded", "None"}, {"sliding_window", "None"},
		{"swa_bounded_replay", "True"}, {"use_kda_recoverssm", "False"}, {"use_replayssm", "False"}, {"user_specified_block_size", "False"},
	} {
		names, values = append(names, l[0]), append(values, l[1])
	}
	return names, values
}

func newVLLM(cfg Config, s engine.Stats, index int) *vllm {
	b := &vllm{families: families{}}
	tokens := inTokens(upTo(max(cfg.ContextLimit, 1))...)
	if cfg.ContextLimit == 0 {
		tokens = inTokens(upTo(1 << 30)...)
	}
	v := &b.state
	for _, h := range []*histogram{&v.prompts, &v.generations, &v.mostGenerated, &v.asked, &v.uncached} {
		h.scale = tokens
	}
	for _, h := range []*histogram{&v.e2e, &v.queue, &v.inference, &v.prefill, &v.decode} {
		h.scale = vllmLatency
	}
	v.iteration.scale, v.n.scale, v.preempted.scale = vllmIteration, vllmN, vllmPreemptions
	v.ttft.scale, v.itl.scale, v.tpot.scale = vllmTTFT, vllmITL, vllmITL
	b.describe(cfg, s, strconv.Itoa(index))
	return b
}

func (b *vllm) describe(cfg Config, s engine.Stats, index string) {
	base := prometheus.Labels{"model_name": cfg.ModelName, "engine": index}
	f := b.families
	f.add(base, nil,
		"vllm:num_requests_running", "Requests past the queue.",
		"vllm:num_requests_waiting", "Requests in the queue.",
		"vllm:kv_cache_usage_perc", "Part of the KV pool that running requests hold; what could be evicted counts as free.",
		"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, of requests as they are first scheduled.",
		"vllm:prefix_cache_hits_total", "Of them, tokens found.",
		"vllm:external_prefix_cache_queries_total", "Always 0 here.",
		"vllm:external_prefix_cache_hits_total", "Always 0 here.",
		"vllm:mm_cache_queries_total", "Always 0 here.",
		"vllm:mm_cache_hits_total", "Always 0 here.",
		"vllm:num_preemptions_total", "Preemptions, counted with the next token of the request.",
		"vllm:prompt_tokens_total", "Prompt tokens, counted with the first token.",
		"vllm:prompt_tokens_cached_total", "Of them, found in the cache.",
		"vllm:generation_tokens_total", "Generated tokens.",
		"vllm:request_prompt_tokens", "Prompt tokens of a request that has ended.",
		"vllm:request_generation_tokens", "Generated tokens of a request that has ended.",
		"vllm:iteration_tokens_total", "Tokens of a step that had outputs: prompts it has finished computing, and generated ones.",
		"vllm:request_max_num_generation_tokens", "Generated tokens of the longest answer to a request that has ended.",
		"vllm:request_params_n", "Answers that a request asked for.",
		"vllm:request_params_max_tokens", "Tokens that a request asked for.",
		"vllm:time_to_first_token_seconds", "Time from arrival to the first token, the queue included.",
		"vllm:inter_token_latency_seconds", "Time between two outputs of a request.",
		"vllm:request_time_per_output_token_seconds", "(last token - first token) / (tokens - 1) of a request.",
		"vllm:e2e_request_latency_seconds", "Time from arrival to the end.",
		"vllm:request_queue_time_seconds", "Time from arrival to the first step.",
		"vllm:request_inference_time_seconds", "Time from the first step to the last token.",
		"vllm:request_prefill_time_seconds", "Time from the first step to the first token.",
		"vllm:request_decode_time_seconds", "Time from the first token to the last.",
		"vllm:request_num_preemptions", "Preemptions of a request.",
		"vllm:request_prefill_kv_computed_tokens", "Prompt tokens of a request that the cache did not have.",
	)
	f.add(base, []string{"reason"}, "vllm:num_requests_waiting_by_reason", "Requests in the queue: capacity; nothing is ever deferred here.")
	f.add(base, []string{"sleep_state"}, "vllm:engine_sleep_state", "Always awake here.")
	f.add(base, []string{"source"},
		"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from, counted with the first token.",
		"vllm:prompt_tokens_cached_by_source_total", "Prompt tokens found, by tier, of requests as they are first scheduled.",
	)
	f.add(base, []string{"finished_reason"}, "vllm:request_success_total", "Requests that have ended.")
	f.add(prometheus.Labels{"model_name": cfg.ModelName}, []string{"reason"}, "vllm:admission_rejections_total", "Always 0 here.")
	names, values := cacheConfig(cfg, s)
	f.add(prometheus.Labels{"engine": index}, names, "vllm:cache_config_info", "How the KV pool is set up.")
	b.cacheConfig = values
}

func (b *vllm) admitted(r *account, at time.Duration, cached int) {
	b.queries += r.prompt
	b.hits += cached
}

func (b *vllm) tokens(r *account, at time.Duration, n int) {
	if at != b.outputs.at {
		b.flush()
		b.outputs.at = at
	}
	b.outputs.any, b.told = true, true
	if r.left {
		return
	}
	v := &b.state
	v.preemptions += r.untold
	r.untold = 0
	v.generated += n
	b.outputs.generated += n
	if r.reported == 0 {
		v.prompt += r.prompt
		v.computed += r.prompt - r.cached
		v.cached += r.cached
		b.outputs.computed += r.prompt - r.cached
		v.ttft.seconds(at - r.arrived)
		r.first = at
	} else {
		v.itl.seconds(at - r.last)
	}
	r.reported, r.last = r.told, at
}

// flush counts the outputs of one step.
func (b *vllm) flush() {
	if b.outputs.any {
		b.state.iteration.observe(int64(b.outputs.computed+b.outputs.generated), 1)
	}
	b.outputs.any, b.outputs.computed, b.outputs.generated = false, 0, 0
}

func (b *vllm) finished(r *account, at time.Duration, f engine.Finish) {
	if r.left || f.Reason != engine.Length {
		return
	}
	v := &b.state
	v.length++
	v.e2e.seconds(at - r.arrived)
	v.queue.seconds(r.scheduled - r.arrived)
	v.prefill.seconds(r.first - r.scheduled)
	v.decode.seconds(r.last - r.first)
	v.inference.seconds(r.last - r.scheduled)
	v.tpot.seconds((r.last - r.first) / time.Duration(max(1, r.told-1)))
	v.preempted.observe(int64(r.retractions), 1)
	v.uncached.observe(int64(r.prompt-r.cached), 1)
	v.prompts.observe(int64(r.prompt), 1)
	v.generations.observe(int64(r.told), 1)
	v.mostGenerated.observe(int64(r.told), 1)
	v.asked.observe(int64(r.most), 1)
	v.n.observe(1, 1)
}

func (b *vllm) stepped(s *engine.Step) {
	b.watched = true
	b.publish(s.Stats)
}

func (b *vllm) publish(s engine.Stats) {
	b.state.running, b.state.waiting, b.state.usage = s.Running, s.Waiting, s.Usage()
	b.state.queries += b.queries
	b.state.hits += b.hits
	b.queries, b.hits = 0, 0
}

func (b *vllm) snapshot(s engine.Stats) vllmShot {
	b.flush() // all tokens of an instant are told before anybody can ask
	if b.told && !b.watched {
		b.publish(s)
	}
	return vllmShot{b, b.state}
}

// vllmShot is the figures of one instant. Of the book it reads only what never changes.
type vllmShot struct {
	book *vllm
	vllmState
}

func (f *vllmShot) write(out chan<- prometheus.Metric) {
	s := sheet{f.book.families, out}
	s.gauge("vllm:num_requests_running", float64(f.running))
	s.gauge("vllm:num_requests_waiting", float64(f.waiting))
	s.gauge("vllm:num_requests_waiting_by_reason", float64(f.waiting), "capacity")
	s.gauge("vllm:num_requests_waiting_by_reason", 0, "deferred")
	s.gauge("vllm:kv_cache_usage_perc", f.usage)
	s.gauge("vllm:engine_sleep_state", 1, "awake")
	s.gauge("vllm:engine_sleep_state", 0, "weights_offloaded")
	s.gauge("vllm:engine_sleep_state", 0, "discard_all")
	s.gauge("vllm:cache_config_info", 1, f.book.cacheConfig...)
	for name, value := range map[string]int{
		"prefix_cache_queries": f.queries, "prefix_cache_hits": f.hits, "num_preemptions": f.preemptions,
		"external_prefix_cache_queries": 0, "external_prefix_cache_hits": 0, "mm_cache_queries": 0, "mm_cache_hits": 0,
		"prompt_tokens": f.prompt, "prompt_tokens_cached": f.cached, "generation_tokens": f.generated,
	} {
		s.counter("vllm:"+name+"_total", float64(value))
	}
	s.counter("vllm:prompt_tokens_by_source_total", float64(f.computed), "local_compute")
	s.counter("vllm:prompt_tokens_by_source_total", float64(f.cached), "local_cache_hit")
	s.counter("vllm:prompt_tokens_by_source_total", 0, "external_kv_transfer")
	s.counter("vllm:prompt_tokens_cached_by_source_total", float64(f.hits), "device")
	for _, source := range vllmElsewhere {
		s.counter("vllm:prompt_tokens_cached_by_source_total", 0, source)
	}
	for _, reason := range vllmFinishes {
		n := 0
		if reason == "length" {
			n = f.length
		}
		s.counter("vllm:request_success_total", float64(n), reason)
	}
	for name, h := range map[string]*histogram{
		"request_prompt_tokens": &f.prompts, "request_generation_tokens": &f.generations, "iteration_tokens_total": &f.iteration,
		"request_max_num_generation_tokens": &f.mostGenerated, "request_params_n": &f.n, "request_params_max_tokens": &f.asked,
		"time_to_first_token_seconds": &f.ttft, "inter_token_latency_seconds": &f.itl, "request_time_per_output_token_seconds": &f.tpot,
		"e2e_request_latency_seconds": &f.e2e, "request_queue_time_seconds": &f.queue, "request_inference_time_seconds": &f.inference,
		"request_prefill_time_seconds": &f.prefill, "request_decode_time_seconds": &f.decode, "request_num_preemptions": &f.preempted,
		"request_prefill_kv_computed_tokens": &f.uncached,
	} {
		s.histogram("vllm:"+name, h)
	}
}
