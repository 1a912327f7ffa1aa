package measurement

import (
	"fmt"
	"time"
)

// EngineSample is what the other side said of itself at one instant: of the engine, or of its GPUs. A figure that was not told
// is absent.
type EngineSample struct {
	At     time.Duration
	Step   int
	Values map[string]float64 // by the names below
}

// Values of an engine. Those that end in _total are counted since the server began; the others are as of the sample.
const (
	SampleEngines     = "engines" // data-parallel ones, whose figures these are the sums of; absent where there is one, or nobody tells
	SampleRunning     = "running_requests"
	SampleQueued      = "queued_requests"
	SampleKVUsage     = "kv_usage_ratio"   // of the pool, in use by running requests; of two pools the fuller one's
	SampleKVUsed      = "kv_used_tokens"   // the same in tokens
	SampleKVCached    = "kv_cached_tokens" // held by the prefix cache alone: evictable
	SampleKVFree      = "kv_free_tokens"   // neither
	SampleKVPool      = "kv_pool_tokens"   // the whole pool
	SampleEvicted     = "evicted_tokens_total"
	SampleRetractions = "retractions_total" // requests pushed out of the batch, to be computed again; vLLM calls them preemptions
	SamplePrompt      = "prompt_tokens_total"
	SampleCached      = "cached_tokens_total" // of the prompt tokens, found in the cache
	SampleGenerated   = "generated_tokens_total"
	SampleTTFTSum     = "ttft_seconds_sum_total" // of the server's own TTFT histogram
	SampleTTFTCount   = "ttft_seconds_count_total"
	SampleITLSum      = "itl_seconds_sum_total"
	SampleITLCount    = "itl_seconds_count_total"
	SampleQueueSum    = "queue_seconds_sum_total" // time from arrival to admission
	SampleQueueCount  = "queue_seconds_count_total"
	SamplePrefillBusy = "prefill_busy_seconds_total"
	SampleDecodeBusy  = "decode_busy_seconds_total"
	SampleMaxRunning  = "max_running_requests" // the engine's limit, or the most it has had

	// Of an engine model alone: how full its steps were.
	SampleComputed       = "computed_tokens_total" // prompt tokens that went through the model, again after a retraction
	SamplePrefillSteps   = "prefill_steps_total"   // that computed prompts, and perhaps decoded beside them
	SampleDecodeSteps    = "decode_steps_total"    // that only decoded
	SampleMixedSteps     = "mixed_steps_total"     // of the prefill steps, those that decoded too
	SamplePromptsStepped = "prompts_stepped_total" // prompts of steps, summed; one in five parts counts five times
	SampleDecodesStepped = "decodes_stepped_total" // sequences that steps decoded, summed
	SampleMostBatch      = "max_batch_requests"    // the most in one step since the step of the run began to be sampled, and so the next
	SampleKVPeak         = "kv_peak_ratio"         // of the pool, in use by running requests
	SampleWindowUsage    = "kv_window_usage_ratio" // of the pool of layers with a window, where they have one of their own; the other figures are of the other
	SampleWindowCached   = "kv_window_cached_ratio"

	SampleGPUUtil      = "gpu_utilization_ratio"
	SampleGPUTensor    = "gpu_tensor_active_ratio"
	SampleGPUDRAM      = "gpu_dram_active_ratio"
	SampleGPUMemory    = "gpu_memory_used_bytes"   // of all GPUs
	SampleGPUMemoryAll = "gpu_memory_total_bytes"  // of all GPUs
	SampleGPUPower     = "gpu_power_watts"         // of all GPUs
	SampleGPUEnergy    = "gpu_energy_joules_total" // of all GPUs, since their driver was loaded
	SampleGPUClock     = "gpu_sm_clock_hertz"      // mean
	SampleGPUTemp      = "gpu_temperature_celsius"
	SampleGPUs         = "gpus" // how many the GPU figures are of
)

// OfReplica is the name of a value of one engine of several behind a router, by its index.
func OfReplica(replica int, name string) string { return fmt.Sprintf("replica_%d_%s", replica, name) }
