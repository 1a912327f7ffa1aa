package boards

// The families of SGLang and vLLM that the boards read, as the servers spell them. Chains below put the newest name first; older
// ones follow, so that a board shows data of releases of several years. Each was seen on a real server's page, or stands in
// testdata/names.txt with the release that has it.
const (
	sglangTTFT       = "sglang:time_to_first_token_seconds" // from the creation of the request in the tokenizer manager
	sglangITL        = "sglang:inter_token_latency_seconds"
	sglangITLOld     = "sglang:time_per_output_token_seconds" // the same until mid 2025
	sglangQueueTime  = "sglang:queue_time_seconds"
	sglangRunning    = "sglang:num_running_reqs"
	sglangQueued     = "sglang:num_queue_reqs"
	sglangKVFree     = "sglang:kv_available_tokens"
	sglangKVCached   = "sglang:kv_evictable_tokens"
	sglangKVUsed     = "sglang:kv_used_tokens"
	sglangUsage      = "sglang:token_usage"
	sglangEvicted    = "sglang:evicted_tokens_total" // carries no model_name
	sglangRetracted  = "sglang:num_retracted_requests_total"
	sglangRetractNow = "sglang:num_retracted_reqs"
	sglangEffective  = "sglang:prefill_effective_tokens_total"
	sglangRealtime   = "sglang:realtime_tokens_total" // its mode "decode" is not the number of output tokens
	sglangCached     = "sglang:cached_tokens_total"   // moves when a request ends
	sglangPrompt     = "sglang:prompt_tokens_total"   // the same
	sglangGenerated  = "sglang:generation_tokens_total"
	sglangHit        = "sglang:cache_hit_rate" // of the last prefill batch only
	vllmTTFT         = "vllm:time_to_first_token_seconds"
	vllmITL          = "vllm:inter_token_latency_seconds" // one observation a streamed event
	vllmITLOld       = "vllm:time_per_output_token_seconds"
	vllmQueueTime    = "vllm:request_queue_time_seconds"
	vllmRunning      = "vllm:num_requests_running"
	vllmQueued       = "vllm:num_requests_waiting"
	vllmUsage        = "vllm:kv_cache_usage_perc" // 0 to 1, whatever it is called
	vllmUsageOld     = "vllm:gpu_cache_usage_perc"
	vllmPreempted    = "vllm:num_preemptions_total"
	vllmBySource     = "vllm:prompt_tokens_by_source_total"
	vllmCached       = "vllm:prompt_tokens_cached_total"
	vllmPrompt       = "vllm:prompt_tokens_total"
	vllmHits         = "vllm:prefix_cache_hits_total" // counts a waiting request again at each step until mid 2026
	vllmQueries      = "vllm:prefix_cache_queries_total"
	vllmGenerated    = "vllm:generation_tokens_total"
)

const byInstance = "instance"

// whole leaves out the parts of a gauge that SGLang splits by priority: the total is the series without one.
const whole = `priority=""`

func serverRate(name string, matchers ...string) string {
	return sum(byInstance, rate(server(name, matchers...)))
}

func share(part, whole string) string { return part + " / " + whole }

// serverPercentile reads the first of the histograms that the engine has.
func serverPercentile(q string, histograms ...string) string {
	var buckets []string
	for _, name := range histograms {
		buckets = append(buckets, sum(byInstance+", le", rate(server(name+"_bucket"))))
	}
	return "histogram_quantile(" + q + ", " + either(buckets...) + ")"
}

func serverMean(histograms ...string) string {
	var means []string
	for _, name := range histograms {
		means = append(means, share(serverRate(name+"_sum"), serverRate(name+"_count")))
	}
	return either(means...)
}

// serverHit is the share of prompt tokens that the engine found in its prefix cache. The counters that move as batches are
// formed come first, those that move as requests end behind them, the gauge of the last batch last.
func serverHit() string {
	return either(
		share(serverRate(sglangEffective, `mode=~".*_hit"`), serverRate(sglangEffective)),
		share(serverRate(sglangRealtime, `mode="prefill_cache"`), serverRate(sglangRealtime, `mode=~"prefill_.*"`)),
		share(serverRate(sglangCached, `cache_source!="total"`), serverRate(sglangPrompt)),
		"avg by ("+byInstance+") ("+server(sglangHit)+")",
		share(serverRate(vllmBySource, `source!="local_compute"`), serverRate(vllmBySource)),
		share(serverRate(vllmCached), serverRate(vllmPrompt)),
		share(serverRate(vllmHits), serverRate(vllmQueries)),
	)
}

// kvPool is the whole pool of SGLang, in tokens.
func kvPool() string {
	return "(" + sum(byInstance, server(sglangKVUsed)) + " + " + sum(byInstance, server(sglangKVCached)) + " + " +
		sum(byInstance, server(sglangKVFree)) + ")"
}

// The families of the GPU exporters: NVIDIA's DCGM exporter, nvidia_gpu_exporter, AMD's device metrics exporter.
const (
	dcgmPower    = "DCGM_FI_DEV_POWER_USAGE" // W
	dcgmUtil     = "DCGM_FI_DEV_GPU_UTIL"    // percent
	dcgmTensor   = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
	dcgmDRAM     = "DCGM_FI_PROF_DRAM_ACTIVE"
	dcgmUsed     = "DCGM_FI_DEV_FB_USED" // MiB
	dcgmFree     = "DCGM_FI_DEV_FB_FREE"
	dcgmReserved = "DCGM_FI_DEV_FB_RESERVED"
	dcgmClock    = "DCGM_FI_DEV_SM_CLOCK" // MHz
	dcgmTemp     = "DCGM_FI_DEV_GPU_TEMP"

	smiPower  = "nvidia_smi_power_draw_watts"
	smiUtil   = "nvidia_smi_utilization_gpu_ratio"
	smiMemory = "nvidia_smi_utilization_memory_ratio"
	smiUsed   = "nvidia_smi_memory_used_bytes"
	smiTotal  = "nvidia_smi_memory_total_bytes"
	smiClock  = "nvidia_smi_clocks_current_sm_clock_hz"
	smiTemp   = "nvidia_smi_temperature_gpu"

	amdPower    = "gpu_package_power"         // W, MI3xx
	amdPowerOld = "gpu_average_package_power" // W, MI2xx
	amdUtil     = "gpu_gfx_activity"          // percent
	amdMemory   = "gpu_umc_activity"          // percent
	amdUsed     = "gpu_used_vram"             // MB
	amdTotal    = "gpu_total_vram"
	amdClock    = "gpu_clock" // MHz
	amdTemp     = "gpu_junction_temperature"
	amdTempOld  = "gpu_edge_temperature"
)

// byGPU holds the labels by which the three exporters tell GPUs apart; each has one of the last three.
const byGPU = "instance, gpu, uuid, gpu_id"

const gpuLegend = "{{instance}} {{gpu}}{{uuid}}{{gpu_id}}"

// dcgm is a field of DCGM: one that the GPU does not have can read as a number near 2^63.
func dcgm(name string) string { return sum(byGPU, device(name)+" < 1e12") }

func perGPU(name string, matchers ...string) string { return sum(byGPU, device(name, matchers...)) }

func gpuPower() string {
	return either(dcgm(dcgmPower), perGPU(smiPower), perGPU(amdPower), perGPU(amdPowerOld))
}
