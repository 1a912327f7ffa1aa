package scrape

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kneefinder/measurement"
)

// exact compares figures; the last bit may come from the order of a sum.
var exact = cmpopts.EquateApprox(1e-15, 0)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func engineOf(text string) (values, string) {
	p := readPage(body{text: []byte(text)}, wantsEngine())
	return readEngine(p), p.trouble
}

func gpusOf(text string) values { return readGPUs(readPage(body{text: []byte(text)}, wantsGPU())) }

// The pages of real servers, to the last figure.
func TestRealPages(t *testing.T) {
	for name, want := range map[string]values{
		"sglang-0.5.23.prom": {
			measurement.SampleRunning: 0, measurement.SampleQueued: 0, measurement.SampleKVUsage: 0, measurement.SampleKVUsed: 0,
			measurement.SampleKVCached: 36476, measurement.SampleKVFree: 3524, measurement.SampleKVPool: 40000,
			measurement.SampleEvicted: 327170, measurement.SamplePrompt: 817867, measurement.SampleCached: 457370,
			measurement.SampleGenerated: 3405, measurement.SampleTTFTSum: 197.79803591797827, measurement.SampleTTFTCount: 255,
			measurement.SampleITLSum: 280.95647443700364, measurement.SampleITLCount: 3150,
			measurement.SampleQueueSum: 71.7351213870079, measurement.SampleQueueCount: 255,
		},
		"vllm-0.32.prom": {
			measurement.SampleRunning: 0, measurement.SampleQueued: 0, measurement.SampleKVUsage: 0, measurement.SampleKVUsed: 0,
			measurement.SampleKVPool: 40000, measurement.SampleRetractions: 0, measurement.SamplePrompt: 1015120,
			measurement.SampleCached: 776224, measurement.SampleGenerated: 4218, measurement.SampleTTFTSum: 25.357386350631714,
			measurement.SampleTTFTCount: 318, measurement.SampleITLSum: 15.170964414008267, measurement.SampleITLCount: 3900,
			measurement.SampleQueueSum: 0.9381935640049051, measurement.SampleQueueCount: 318,
		},
	} {
		got, trouble := engineOf(string(fixture(t, name)))
		if d := cmp.Diff(want, got); d != "" || trouble != "" {
			t.Errorf("%s: trouble %q, want none; figures (-want +got):\n%s", name, trouble, d)
		}
	}
}

// Every name of every engine, old and new, alone on its page.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		why, page string
		want      values
	}{
		{"SGLang: nothing but the model's name for a label", `sglang:num_running_reqs{name="m"} 3`, values{measurement.SampleRunning: 3}},
		{"SGLang: queue", `sglang:num_queue_reqs{model_name="m"} 4`, values{measurement.SampleQueued: 4}},
		{"SGLang: usage", `sglang:token_usage{model_name="m"} 0.25`, values{measurement.SampleKVUsage: .25}},
		{"SGLang: used tokens, old name", `sglang:num_used_tokens{model_name="m"} 99`, values{measurement.SampleKVUsed: 99}},
		{"SGLang: used tokens, both names", "sglang:num_used_tokens 99\nsglang:kv_used_tokens 98", values{measurement.SampleKVUsed: 98}},
		{"SGLang: available and evictable", "sglang:kv_available_tokens 7\nsglang:kv_evictable_tokens 8", values{measurement.SampleKVFree: 7, measurement.SampleKVCached: 8}},
		{"SGLang: pool", `sglang:max_total_num_tokens 40000`, values{measurement.SampleKVPool: 40000}},
		{"SGLang: evictions have no model_name", `sglang:evicted_tokens_total{cache_type="RadixCache"} 12`, values{measurement.SampleEvicted: 12}},
		{"SGLang: retractions", `sglang:num_retracted_requests_total{tp_rank="0"} 2`, values{measurement.SampleRetractions: 2}},
		{"SGLang: the gauge of retracted requests is no count", `sglang:num_retracted_reqs{tp_rank="0"} 2`, values{}},
		{"SGLang: TTFT, streamed and not", "sglang:time_to_first_token_seconds_sum{is_streaming=\"true\"} 1.5\nsglang:time_to_first_token_seconds_sum{is_streaming=\"false\"} 2\n" +
			"sglang:time_to_first_token_seconds_count{is_streaming=\"true\"} 3\nsglang:time_to_first_token_seconds_count{is_streaming=\"false\"} 1",
			values{measurement.SampleTTFTSum: 3.5, measurement.SampleTTFTCount: 4}},
		{"SGLang: TTFT of each priority and label of its own is a part of all", "sglang:time_to_first_token_seconds_count{priority=\"1\"} 3\nsglang:time_to_first_token_seconds_count{priority=\"\"} 1",
			values{measurement.SampleTTFTCount: 4}},
		{"SGLang: ITL", "sglang:inter_token_latency_seconds_sum 3\nsglang:inter_token_latency_seconds_count 100", values{measurement.SampleITLSum: 3, measurement.SampleITLCount: 100}},
		{"SGLang: ITL, old name", "sglang:time_per_output_token_seconds_sum 3\nsglang:time_per_output_token_seconds_count 100", values{measurement.SampleITLSum: 3, measurement.SampleITLCount: 100}},
		{"SGLang: queue time", "sglang:queue_time_seconds_sum 3\nsglang:queue_time_seconds_count 6", values{measurement.SampleQueueSum: 3, measurement.SampleQueueCount: 6}},
		{"SGLang: the gauge of queue latency is no sum", "sglang:avg_request_queue_latency 3", values{}},
		{"SGLang: hits at their best", "sglang:prefill_effective_tokens_total{mode=\"input\"} 10\nsglang:prefill_effective_tokens_total{mode=\"device_hit\"} 20\nsglang:prefill_effective_tokens_total{mode=\"host_hit\"} 5\n" +
			"sglang:prefill_effective_tokens_total{mode=\"storage_hit\"} 1\nsglang:realtime_tokens_total{mode=\"prefill_compute\"} 99\nsglang:prompt_tokens_total 7\nsglang:cached_tokens_total 6",
			values{measurement.SamplePrompt: 36, measurement.SampleCached: 26}},
		{"SGLang: hits in real time; decoded tokens are not generated ones", "sglang:realtime_tokens_total{mode=\"prefill_compute\"} 10\nsglang:realtime_tokens_total{mode=\"prefill_cache\"} 30\nsglang:realtime_tokens_total{mode=\"decode\"} 500\nsglang:prompt_tokens_total 7\nsglang:cached_tokens_total 6",
			values{measurement.SamplePrompt: 40, measurement.SampleCached: 30}},
		{"SGLang: nothing was cached so far", `sglang:realtime_tokens_total{mode="prefill_compute"} 10`, values{measurement.SamplePrompt: 10, measurement.SampleCached: 0}},
		{"SGLang: hits of ended requests, by where they were", "sglang:prompt_tokens_total 70\nsglang:cached_tokens_total{cache_source=\"device\"} 20\nsglang:cached_tokens_total{cache_source=\"host\"} 3",
			values{measurement.SamplePrompt: 70, measurement.SampleCached: 23}},
		{"SGLang: and with their total", "sglang:prompt_tokens_total 70\nsglang:cached_tokens_total{cache_source=\"device\"} 20\nsglang:cached_tokens_total{cache_source=\"total\"} 23\nsglang:cached_tokens_total{cache_source=\"host\"} 3",
			values{measurement.SamplePrompt: 70, measurement.SampleCached: 23}},
		{"SGLang: no count of cached tokens", `sglang:prompt_tokens_total{model_name="m"} 70`, values{measurement.SamplePrompt: 70}},
		{"SGLang: the ratio of the last batch is no hit rate", "sglang:cache_hit_rate 0.9\nsglang:generation_tokens_total 5", values{measurement.SampleGenerated: 5}},
		{"SGLang: with priorities the total is the empty one", "sglang:num_queue_reqs{priority=\"\"} 5\nsglang:num_queue_reqs{priority=\"0\"} 3\nsglang:num_queue_reqs{priority=\"1\"} 2", values{measurement.SampleQueued: 5}},
		{"SGLang: no total of the priorities", "sglang:num_queue_reqs{priority=\"0\"} 3\nsglang:num_queue_reqs{priority=\"1\"} 2", values{measurement.SampleQueued: 5}},
		{"SGLang: ranks of a tensor-parallel group say the same", "sglang:num_running_reqs{tp_rank=\"1\"} 6\nsglang:num_running_reqs{tp_rank=\"0\"} 7\nsglang:num_running_reqs{tp_rank=\"10\"} 8", values{measurement.SampleRunning: 7}},
		{"SGLang: so do a pipeline's stages, experts and processes", "sglang:max_total_num_tokens{pp_rank=\"1\",tp_rank=\"0\",moe_ep_rank=\"0\",pid=\"9\"} 30\nsglang:max_total_num_tokens{pp_rank=\"0\",tp_rank=\"0\",moe_ep_rank=\"1\",pid=\"8\"} 32\nsglang:max_total_num_tokens{pp_rank=\"0\",tp_rank=\"0\",moe_ep_rank=\"0\",pid=\"7\"} 31",
			values{measurement.SampleKVPool: 31}},
		{"SGLang: data-parallel ranks each have requests of their own", "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 6\nsglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 7\nsglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.2\nsglang:token_usage{dp_rank=\"1\",tp_rank=\"1\"} 0.4",
			values{measurement.SampleEngines: 2, measurement.SampleRunning: 13, measurement.SampleKVUsage: .3}},
		{"SGLang: evictions of two ranks are the same ones", "sglang:evicted_tokens_total{tp_rank=\"0\"} 6\nsglang:evicted_tokens_total{tp_rank=\"1\"} 6", values{measurement.SampleEvicted: 6}},

		{"vLLM: running and waiting of two engines", "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\nvllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4",
			values{measurement.SampleEngines: 2, measurement.SampleRunning: 3, measurement.SampleQueued: 7}},
		{"vLLM: usage is from 0 to 1, and a mean of the engines", "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.7", values{measurement.SampleKVUsage: .6}},
		{"vLLM: usage, old name", `vllm:gpu_cache_usage_perc{model_name="m"} 0.5`, values{measurement.SampleKVUsage: .5}},
		{"vLLM: the pool in tokens", "vllm:kv_cache_usage_perc 0.5\nvllm:cache_config_info{kv_cache_size_tokens=\"4000\",block_size=\"16\",num_gpu_blocks=\"9\"} 1", values{measurement.SampleKVUsage: .5, measurement.SampleKVPool: 4000, measurement.SampleKVUsed: 2000}},
		{"vLLM: the pool in blocks", `vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1`, values{measurement.SampleKVPool: 1600}},
		{"vLLM: the pool untold", `vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1`, values{}},
		{"vLLM: preemptions are retractions", `vllm:num_preemptions_total 9`, values{measurement.SampleRetractions: 9}},
		{"vLLM: generated, TTFT", "vllm:generation_tokens_total 9\nvllm:time_to_first_token_seconds_sum 2\nvllm:time_to_first_token_seconds_count 4", values{measurement.SampleGenerated: 9, measurement.SampleTTFTSum: 2, measurement.SampleTTFTCount: 4}},
		{"vLLM: ITL", "vllm:inter_token_latency_seconds_sum 2\nvllm:inter_token_latency_seconds_count 40", values{measurement.SampleITLSum: 2, measurement.SampleITLCount: 40}},
		{"vLLM: ITL, old name", "vllm:time_per_output_token_seconds_sum 2\nvllm:time_per_output_token_seconds_count 40", values{measurement.SampleITLSum: 2, measurement.SampleITLCount: 40}},
		{"vLLM: queue time", "vllm:request_queue_time_seconds_sum 2\nvllm:request_queue_time_seconds_count 40", values{measurement.SampleQueueSum: 2, measurement.SampleQueueCount: 40}},
		{"vLLM: queue time, old name", "vllm:time_in_queue_requests_sum 2\nvllm:time_in_queue_requests_count 40", values{measurement.SampleQueueSum: 2, measurement.SampleQueueCount: 40}},
		{"vLLM: hits by source, not those of the prefix cache, counted again and again", "vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 10\nvllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 30\nvllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"} 2\n" +
			"vllm:prefix_cache_queries_total 900\nvllm:prefix_cache_hits_total 880", values{measurement.SamplePrompt: 42, measurement.SampleCached: 32}},
		{"vLLM: hits of prompts", "vllm:prompt_tokens_total 42\nvllm:prompt_tokens_cached_total 32\nvllm:prefix_cache_queries_total 900\nvllm:prefix_cache_hits_total 880", values{measurement.SamplePrompt: 42, measurement.SampleCached: 32}},
		{"vLLM: hits of the prefix cache over its queries", "vllm:prompt_tokens_total 42\nvllm:prefix_cache_queries_total 900\nvllm:prefix_cache_hits_total 880", values{measurement.SamplePrompt: 900, measurement.SampleCached: 880}},
		{"vLLM: the same, old name", "vllm:gpu_prefix_cache_queries_total 900\nvllm:gpu_prefix_cache_hits_total 880", values{measurement.SamplePrompt: 900, measurement.SampleCached: 880}},
		{"vLLM: no hits", "vllm:prompt_tokens_total 42", values{measurement.SamplePrompt: 42}},

		{"llama.cpp", "llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\nllamacpp:tokens_predicted_total 100\nllamacpp:tokens_predicted_seconds_total 4\nllamacpp:prompt_tokens_total 7",
			values{measurement.SampleRunning: 2, measurement.SampleQueued: 3, measurement.SampleGenerated: 100, measurement.SampleITLSum: 4, measurement.SampleITLCount: 100}},
		{"llama.cpp, with the KV gauges that it had", "llamacpp:kv_cache_usage_ratio 0.5\nllamacpp:kv_cache_tokens 2048", values{measurement.SampleKVUsage: .5, measurement.SampleKVUsed: 2048}},
		{"TGI", "tgi_queue_size 3\ntgi_batch_current_size 4\ntgi_request_generated_tokens_sum 50\ntgi_request_queue_duration_sum 0.5\ntgi_request_queue_duration_count 10\ntgi_request_input_length_sum 900",
			values{measurement.SampleQueued: 3, measurement.SampleRunning: 4, measurement.SampleGenerated: 50, measurement.SampleQueueSum: .5, measurement.SampleQueueCount: 10, measurement.SamplePrompt: 900}},

		{"not a number", "sglang:num_running_reqs NaN\nsglang:num_queue_reqs +Inf\nsglang:token_usage -Inf\nsglang:kv_used_tokens 1", values{measurement.SampleKVUsed: 1}},
		{"a sum beyond numbers", "vllm:num_requests_running{engine=\"0\"} 1e308\nvllm:num_requests_running{engine=\"1\"} 1e308\nvllm:num_requests_waiting 1", values{measurement.SampleEngines: 2, measurement.SampleQueued: 1}},
		{"somebody else's page", "http_requests_total 3\ngo_goroutines 4", values{}},
	} {
		got, trouble := engineOf(c.page + "\n")
		if d := cmp.Diff(c.want, got, exact); d != "" || trouble != "" {
			t.Errorf("%s: trouble %q, want none; figures (-want +got):\n%s", c.why, trouble, d)
		}
	}
}

// The fixtures hold nothing but names that the exporters document.
func TestGPUs(t *testing.T) {
	for name, want := range map[string]values{
		"dcgm.prom": {
			measurement.SampleGPUs: 2, measurement.SampleGPUUtil: .5, measurement.SampleGPUTensor: .25, measurement.SampleGPUDRAM: .5,
			measurement.SampleGPUMemory: 40004 << 20, measurement.SampleGPUMemoryAll: 91256 << 20, measurement.SampleGPUPower: 322.75,
			measurement.SampleGPUEnergy: 3345678902, measurement.SampleGPUClock: 2.31e9, measurement.SampleGPUTemp: 61,
		},
		"nvidia_gpu_exporter.prom": {
			measurement.SampleGPUs: 1, measurement.SampleGPUUtil: .87, measurement.SampleGPUMemory: 2.147483648e10,
			measurement.SampleGPUMemoryAll: 2.5757220864e10, measurement.SampleGPUPower: 312.5, measurement.SampleGPUClock: 2.52e9,
			measurement.SampleGPUTemp: 66,
		},
		"amd-mi300.prom": {
			measurement.SampleGPUs: 1, measurement.SampleGPUUtil: .92, measurement.SampleGPUDRAM: .4,
			measurement.SampleGPUMemory: 183265 << 20, measurement.SampleGPUMemoryAll: 196592 << 20, measurement.SampleGPUPower: 748,
			measurement.SampleGPUClock: 1.52e9, measurement.SampleGPUTemp: 76,
		},
		"amd-mi250.prom": { // under a prefix of the site's own
			measurement.SampleGPUs: 2, measurement.SampleGPUUtil: .4, measurement.SampleGPUMemory: 1024 << 20,
			measurement.SampleGPUMemoryAll: 131040 << 20, measurement.SampleGPUPower: 410, measurement.SampleGPUTemp: 51,
		},
	} {
		if d := cmp.Diff(want, gpusOf(string(fixture(t, name))), exact); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	for _, c := range []struct {
		why, page string
		want      values
	}{
		{"a GPU that two pods share draws its power once", "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"a\",pod=\"x\"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"a\",pod=\"y\"} 300",
			values{measurement.SampleGPUPower: 300, measurement.SampleGPUs: 1}},
		{"two instances of a GPU have memory of their own and one power", "DCGM_FI_DEV_FB_USED{UUID=\"a\",GPU_I_ID=\"1\"} 10\nDCGM_FI_DEV_FB_USED{UUID=\"a\",GPU_I_ID=\"2\"} 20\nDCGM_FI_DEV_POWER_USAGE{UUID=\"a\",GPU_I_ID=\"1\"} 300\nDCGM_FI_DEV_POWER_USAGE{UUID=\"a\",GPU_I_ID=\"2\"} 300",
			values{measurement.SampleGPUMemory: 30 << 20, measurement.SampleGPUPower: 300, measurement.SampleGPUs: 1}},
		{"GPUs without identity are told apart by machine and number", "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",Hostname=\"a\"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\",Hostname=\"b\"} 200",
			values{measurement.SampleGPUPower: 500, measurement.SampleGPUs: 2}},
		{"blanks of all types are nothing", "DCGM_FI_DEV_FB_USED 2147483632\nDCGM_FI_DEV_GPU_UTIL 9223372036854775794\nDCGM_FI_PROF_DRAM_ACTIVE 140737488355328\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 9223372036854775794\nDCGM_FI_DEV_SM_CLOCK 1000",
			values{measurement.SampleGPUClock: 1e9, measurement.SampleGPUs: 1}},
		{"no reserved memory in older exporters", "DCGM_FI_DEV_FB_USED 1\nDCGM_FI_DEV_FB_FREE 2", values{measurement.SampleGPUMemory: 1 << 20, measurement.SampleGPUMemoryAll: 3 << 20, measurement.SampleGPUs: 1}},
		{"AMD's system clock by its short name", "gpu_clock{clock_type=\"system\"} 1000\ngpu_clock{clock_type=\"memory\"} 1", values{measurement.SampleGPUClock: 1e9, measurement.SampleGPUs: 1}},
		{"no system clock", "gpu_clock{clock_type=\"memory\"} 1\ngpu_package_power 5", values{measurement.SampleGPUPower: 5, measurement.SampleGPUs: 1}},
		{"an engine's page", "sglang:num_running_reqs 3", values{}},
	} {
		if d := cmp.Diff(c.want, gpusOf(c.page+"\n"), exact); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, d)
		}
	}
}

// A broken page costs the family that is broken, whose rest would pass for the whole, and no other.
func TestBrokenPages(t *testing.T) {
	two := "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\nvllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4\n"
	for _, c := range []struct {
		why, page   string
		openMetrics bool
		want        values
		trouble     string
	}{
		{"whole", two, false, values{measurement.SampleEngines: 2, measurement.SampleRunning: 3, measurement.SampleQueued: 7}, ""},
		{"comments, blank lines, times and Windows line ends", "# HELP x y\n\n# TYPE vllm:num_requests_running gauge\r\nvllm:num_requests_running{a=\"}\\\"\"} 3 1700000000000\r\n", false, values{measurement.SampleRunning: 3}, ""},
		{"no value", strings.Replace(two, "} 2\n", "}\n", 1), false, values{measurement.SampleQueued: 7}, "line 2: "},
		{"no number", strings.Replace(two, "} 2\n", "} two\n", 1), false, values{measurement.SampleQueued: 7}, "line 2: expected float as value"},
		{"a label without an end", strings.Replace(two, "\"1\"} 2", "\"1 2", 1), false, values{measurement.SampleQueued: 7}, "line 2: "},
		{"broken where nobody looks", "other{ 1\n" + two, false, values{measurement.SampleEngines: 2, measurement.SampleRunning: 3, measurement.SampleQueued: 7}, ""},
		{"half of a histogram is none", "vllm:time_to_first_token_seconds_sum x\nvllm:time_to_first_token_seconds_count 3\nvllm:num_requests_running 1\n", false, values{measurement.SampleRunning: 1}, "line 1: expected float"},
		{"cut within a number", two[:len(two)-2], false, values{measurement.SampleEngines: 2, measurement.SampleRunning: 3}, "line 4: the page ends in the middle of it"},
		{"cut within a name, which may be that of the family before", two[:strings.LastIndex(two, "ing{")], false, values{measurement.SampleEngines: 2, measurement.SampleRunning: 3}, "line 4: the page ends in the middle of it"},
		{"OpenMetrics: times with fractions, exemplars, an end", "vllm:num_requests_running{a=\"} # {\"} 3 1700000000.25\nvllm:prompt_tokens_total 5 # {trace_id=\"a\"} 1 1700000000.5\n# EOF\n", true,
			values{measurement.SampleRunning: 3, measurement.SamplePrompt: 5}, ""},
		{"OpenMetrics without its end", two, true, values{measurement.SampleEngines: 2, measurement.SampleRunning: 3}, "the page breaks off"},
		{"a page of the web", "<!DOCTYPE html>\n<html><body>vllm:num_requests_running 3</body>\n", false, values{}, ""},
		{"nothing", "", false, values{}, ""},
	} {
		p := readPage(body{text: []byte(c.page), openMetrics: c.openMetrics}, wantsEngine())
		if d := cmp.Diff(c.want, readEngine(p)); d != "" || !strings.Contains(p.trouble, c.trouble) || c.trouble == "" && p.trouble != "" {
			t.Errorf("%s: trouble %q, want %q; figures (-want +got):\n%s", c.why, p.trouble, c.trouble, d)
		}
	}
}

// Whatever a page holds, figures are numbers.
func FuzzPage(f *testing.F) {
	for _, name := range []string{"sglang-0.5.23.prom", "vllm-0.32.prom", "dcgm.prom", "nvidia_gpu_exporter.prom", "amd-mi300.prom", "amd-mi250.prom"} {
		b := fixture(f, name)
		f.Add(b[:min(len(b), 4000)], false)
	}
	f.Add([]byte("vllm:num_requests_running{a=\"b\"} 1 1.5 # {x=\"y\"} 2\n# EOF\n"), true)
	f.Add([]byte("sglang:token_usage 1e309\nvllm:cache_config_info{kv_cache_size_tokens=\"NaN\"} 1\nvllm:kv_cache_usage_perc 1\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, openMetrics bool) {
		b := body{text: text, openMetrics: openMetrics}
		for _, v := range []values{readEngine(readPage(b, wantsEngine())), readGPUs(readPage(b, wantsGPU()))} {
			for name, x := range v {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Errorf("%s is %v", name, x)
				}
			}
		}
	})
}

// A page of 80 kB, which a busy server sends every second.
func BenchmarkPage(b *testing.B) {
	text := fixture(b, "sglang-0.5.23.prom")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if v := readEngine(readPage(body{text: text}, wantsEngine())); len(v) != 17 {
			b.Fatal(v)
		}
	}
}
