package mockserver

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/kv"
)

// page is an answer of /metrics.
type page struct {
	t        testing.TB
	families map[string]*dto.MetricFamily
}

func parsePage(t testing.TB, text string) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return page{t, families}
}

func (c *client) scrape() page {
	c.t.Helper()
	status, text := c.do("GET", "/metrics", nil)
	if status != http.StatusOK {
		c.t.Fatalf("/metrics: %d %s", status, text)
	}
	return parsePage(c.t, text)
}

// series is the only series of a family that has all these labels, each as name=value.
func (p page) series(name string, labels ...string) *dto.Metric {
	p.t.Helper()
	var found []*dto.Metric
	for _, m := range p.families[name].GetMetric() {
		has := func(want string) bool {
			return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want })
		}
		if !slices.ContainsFunc(labels, func(want string) bool { return !has(want) }) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		p.t.Fatalf("%s %v: %d series, want 1", name, labels, len(found))
	}
	return found[0]
}

func (p page) value(name string, labels ...string) float64 {
	p.t.Helper()
	m := p.series(name, labels...)
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	p.t.Fatalf("%s is neither a gauge nor a counter", name)
	return 0
}

// want compares gauges and counters; a key is a name, or a name and one label.
func (p page) want(when, prefix string, values map[string]float64) {
	p.t.Helper()
	for key, want := range values {
		fields := strings.Fields(key)
		if got := p.value(prefix+fields[0], fields[1:]...); got != want {
			p.t.Errorf("%s: %s is %v, want %v", when, key, got, want)
		}
	}
}

// wantTimes compares a histogram with the observations it must hold.
func (p page) wantTimes(name string, all []time.Duration, labels ...string) {
	p.t.Helper()
	var values []float64
	sum := time.Duration(0)
	for _, d := range all {
		values, sum = append(values, d.Seconds()), sum+d
	}
	p.wantObservations(name, values, sum.Seconds(), labels...)
}

func (p page) wantCounts(name string, all []int, labels ...string) {
	p.t.Helper()
	var values []float64
	sum := 0
	for _, n := range all {
		values, sum = append(values, float64(n)), sum+n
	}
	p.wantObservations(name, values, float64(sum), labels...)
}

func (p page) wantObservations(name string, all []float64, sum float64, labels ...string) {
	p.t.Helper()
	h := p.series(name, labels...).Histogram
	if h == nil {
		p.t.Fatalf("%s is no histogram", name)
	}
	if int(h.GetSampleCount()) != len(all) || math.Abs(h.GetSampleSum()-sum) > 1e-9*max(1, sum) {
		p.t.Errorf("%s: %d observations, sum %v; want %d, %v", name, h.GetSampleCount(), h.GetSampleSum(), len(all), sum)
	}
	for _, b := range h.Bucket {
		n := 0
		for _, v := range all {
			if v <= b.GetUpperBound() {
				n++
			}
		}
		if int(b.GetCumulativeCount()) != n {
			p.t.Errorf("%s: %d observations up to %v, want %d", name, b.GetCumulativeCount(), b.GetUpperBound(), n)
		}
	}
}

// spoken is what one turn's client asked and heard.
type spoken struct {
	heard
	sent time.Duration
}

func (s spoken) ttft() time.Duration { return s.at[0] - s.sent }

func (s spoken) gaps() (all []time.Duration) {
	for i := 1; i < len(s.at); i++ {
		all = append(all, s.at[i]-s.at[i-1])
	}
	return all
}

// speak is calls at once over the wire, each with turns turns of its own long prompt.
func speak(c *client, calls, turns, opening, tokens int, pause time.Duration) (all []spoken) {
	var mu sync.Mutex
	var speaking sync.WaitGroup
	for call := range calls {
		speaking.Go(func() {
			time.Sleep(time.Duration(call) * 7 * time.Millisecond)
			history := calls2(opening).opened(call)
			for k := 1; k <= turns; k++ {
				sent := time.Since(c.start)
				h := c.chat(context.Background(), turn{call, k}, tokens, history...)
				if h.err != nil || !h.done {
					c.t.Errorf("call %d turn %d: done %t, %v", call, k, h.done, h.err)
					return
				}
				mu.Lock()
				all = append(all, spoken{h, sent})
				mu.Unlock()
				history = append(history, wire.Message{Role: "assistant", Content: wire.Text(h.text())}, user(fmt.Sprintf("and then, %d?", k)))
				time.Sleep(pause)
			}
		})
	}
	speaking.Wait()
	return all
}

func calls2(opening int) calls { return calls{opening: opening} }

// smallEngine is a demo engine with a pool of so many tokens.
func smallEngine(t testing.TB, tokens int) *engine.Engine {
	c, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	c.Recipe.KVTokens = tokens
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What SGLang's metrics say of a load that overflows the pool is what the clients heard, to the last count and bucket.
func TestSGLangFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{ModelName: "m", ContextLimit: 32768, WeightBytes: 1 << 30}, smallEngine(t, 10_000))
		c := serve(t, s)
		all := speak(c, 12, 3, 900, 45, 300*time.Millisecond)
		var ttft, itl, e2e, tpot []time.Duration
		var prompts, uncached, generated []int
		prompt, cached, tokens := 0, 0, 0
		for _, h := range all {
			ttft, itl = append(ttft, h.ttft()), append(itl, h.gaps()...)
			e2e = append(e2e, h.end-h.sent)
			tpot = append(tpot, (h.at[len(h.at)-1]-h.at[0])/time.Duration(len(h.at)-1))
			prompts, uncached = append(prompts, h.usage.PromptTokens), append(uncached, h.usage.PromptTokens-h.cached())
			generated = append(generated, len(h.at))
			prompt, cached, tokens = prompt+h.usage.PromptTokens, cached+h.cached(), tokens+len(h.at)
		}
		stats := s.Stats()
		if stats.EvictedTokens == 0 || cached == 0 || stats.Retractions != 0 {
			t.Fatalf("the load does not show what it is for: %+v", stats)
		}
		p := c.scrape()
		p.want("after all", "sglang:", map[string]float64{
			"prompt_tokens_total is_streaming=true": float64(prompt), "generation_tokens_total": float64(tokens), "num_requests_total": 36,
			"cached_tokens_total cache_source=device": float64(cached), "evicted_tokens_total": float64(stats.EvictedTokens),
			"realtime_tokens_total mode=prefill_compute": float64(prompt - cached), "realtime_tokens_total mode=prefill_cache": float64(cached),
			"realtime_tokens_total mode=decode":         float64(tokens - len(all)), // first tokens come with the prefill
			"prefill_effective_tokens_total mode=input": float64(prompt - cached), "prefill_effective_tokens_total mode=device_hit": float64(cached),
			"cuda_graph_passes_total mode=prefill_none":      float64(stats.PrefillSteps),
			"cuda_graph_passes_total mode=decode_cuda_graph": float64(stats.DecodeSteps),
			"max_total_num_tokens":                           10_000, "num_pages": 10_000, "page_size": 1, "context_len": 32768, "weight_memory_usage_gb": 1,
			"kv_cache_memory_usage_gb":                                      float64(stats.KVPoolBytes) / (1 << 30),
			"http_responses_total endpoint=/v1/chat/completions":            36,
			"http_requests_active endpoint=/metrics":                        1,
			"http_requests_total endpoint=/v1/chat/completions method=POST": 36,
		})
		p.wantTimes("sglang:time_to_first_token_seconds", ttft, "is_streaming=true")
		p.wantTimes("sglang:inter_token_latency_seconds", itl)
		p.wantTimes("sglang:e2e_request_latency_seconds", e2e)
		p.wantTimes("sglang:request_time_per_output_token_seconds", tpot)
		p.wantCounts("sglang:prompt_tokens_histogram", prompts)
		p.wantCounts("sglang:uncached_prompt_tokens_histogram", uncached)
		p.wantCounts("sglang:generation_tokens_histogram", generated)
		// Time in the queue and time in prefill are all there is before the first token.
		queue, prefill := p.series("sglang:queue_time_seconds").Histogram, p.series("sglang:per_stage_req_latency_seconds", "stage=prefill_forward").Histogram
		whole := p.series("sglang:time_to_first_token_seconds").Histogram
		if d := queue.GetSampleSum() + prefill.GetSampleSum() - whole.GetSampleSum(); queue.GetSampleCount() != 36 || math.Abs(d) > 1e-9 {
			t.Errorf("queue %v and prefill %v of %d are not TTFT %v", queue.GetSampleSum(), prefill.GetSampleSum(), queue.GetSampleCount(), whole.GetSampleSum())
		}
		if queue.GetSampleSum() < .1 {
			t.Errorf("nobody waited: %v s in the queue", queue.GetSampleSum())
		}
		time.Sleep(idleLog)
		p = c.scrape()
		p.want("at rest", "sglang:", map[string]float64{
			"num_running_reqs": 0, "num_queue_reqs": 0, "num_used_tokens": 0, "kv_used_tokens": 0, "token_usage": 0, "full_token_usage": 0,
			"gen_throughput": 0, "kv_evictable_tokens": float64(stats.KVCachedTokens), "kv_available_tokens": float64(10_000 - stats.KVCachedTokens),
		})
		if stats.KVCachedTokens < 5000 {
			t.Errorf("%d tokens cached at rest, want most of the pool", stats.KVCachedTokens)
		}
	})
}

// The scheduler's gauges are as old as the last prefill or the last decode report; an idle scheduler refreshes them at once where
// they show running requests, else half a minute after the last time.
func TestSGLangStaleGauges(t *testing.T) {
	const prompt, tokens = 10, 100 // of "hi", with the template
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{}, smallEngine(t, 10_000))
		c := serve(t, s)
		rest := map[string]float64{"num_running_reqs": 0, "kv_used_tokens": 0, "kv_evictable_tokens": 0, "kv_available_tokens": 10_000, "new_token_ratio": .7}
		c.scrape().want("before any", "sglang:", rest)
		if got := len(promptTokens([]wire.Message{user("hi")})); got != prompt {
			t.Fatalf("the prompt has %d tokens", got)
		}
		done := make(chan spoken)
		go func() {
			done <- spoken{c.chat(context.Background(), turn{0, 1}, tokens, user("hi")), time.Since(c.start)}
		}()

		await := func(n int) page { // just after token n, counted from 1
			t.Helper()
			for s.Stats().GeneratedTokens < n {
				time.Sleep(100 * time.Microsecond)
			}
			return c.scrape()
		}
		time.Sleep(smallEngine(t, 10_000).HostTime(prompt) / 2)
		c.scrape().want("in the queue", "sglang:", map[string]float64{"num_queue_reqs": 0, "kv_used_tokens": 0})
		prefilled := map[string]float64{"num_running_reqs": 0, "kv_used_tokens": prompt, "kv_available_tokens": 10_000 - prompt, "decode_sum_seq_lens": 0, "gen_throughput": 0}
		await(1).want("after the prefill", "sglang:", prefilled)
		p := await(40)
		p.want("one decode step before the report", "sglang:", prefilled)
		p.want("which is not stale", "sglang:", map[string]float64{"realtime_tokens_total mode=decode": 39, "realtime_tokens_total mode=prefill_compute": prompt})
		if f := p.families["sglang:prompt_tokens_total"]; f != nil {
			t.Errorf("prompt tokens are counted before the request has ended: %v", f)
		}
		p = await(41)
		reported := map[string]float64{"num_running_reqs": 1, "kv_used_tokens": prompt + 40, "decode_sum_seq_lens": prompt + 40, "token_usage": (prompt + 40) / 10_000.}
		p.want("with the report", "sglang:", reported)
		reportedAt := time.Since(c.start).Truncate(100 * time.Microsecond)
		if got, want := p.value("sglang:gen_throughput"), 40/reportedAt.Seconds(); math.Abs(got-want) > .02*want {
			t.Errorf("gen_throughput is %v, want about %v: 40 tokens since the start", got, want)
		}
		await(80).want("until the next", "sglang:", reported)
		reported["kv_used_tokens"], reported["decode_sum_seq_lens"], reported["token_usage"] = prompt+80, prompt+80, (prompt+80)/10_000.
		await(81).want("which comes 40 steps later", "sglang:", reported)
		<-done
		synctest.Wait()
		held := float64(prompt + tokens - 1) // the last token's KV is never computed
		idle := map[string]float64{"num_running_reqs": 0, "kv_used_tokens": 0, "kv_evictable_tokens": held, "kv_available_tokens": 10_000 - held, "gen_throughput": 0}
		c.scrape().want("idle, when the gauges showed a running request", "sglang:", idle)

		ended := c.chat(context.Background(), turn{1, 1}, 3, user("hi")) // ends before any decode report
		p = c.scrape()
		p.want("idle, when the gauges showed none", "sglang:", map[string]float64{"num_running_reqs": 0, "kv_used_tokens": prompt, "cache_hit_rate": (prompt - 1) / float64(prompt)})
		time.Sleep(ended.at[0] + idleLog - time.Since(c.start) - time.Millisecond)
		c.scrape().want("half a minute after the prefill, less a millisecond", "sglang:", map[string]float64{"kv_used_tokens": prompt})
		time.Sleep(2 * time.Millisecond)
		idle["cache_hit_rate"] = (prompt - 1) / float64(prompt)
		c.scrape().want("half a minute after the prefill", "sglang:", idle)

		if status, _ := c.do("POST", "/flush_cache", nil); status != http.StatusOK {
			t.Fatalf("flush: %d", status)
		}
		c.scrape().want("a flush does not refresh", "sglang:", idle)
		time.Sleep(idleLog)
		c.scrape().want("half a minute later", "sglang:", map[string]float64{"kv_evictable_tokens": 0, "kv_available_tokens": 10_000})
		busy := s.Stats().PrefillBusy + s.Stats().DecodeBusy + 2*smallEngine(t, 10_000).HostTime(prompt)
		if got, want := c.scrape().value("sglang:scheduler_idle_seconds_total"), (time.Since(c.start) - busy).Seconds(); math.Abs(got-want) > 1e-9 {
			t.Errorf("idle for %v s, want %v", got, want)
		}
	})
}

// A model with windows shows both kinds of KV: what nobody holds can become either.
func TestSGLangWindows(t *testing.T) {
	cfg, err := engine.Preset("gemma-3-12b", "h100")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Recipe.KVTokens, cfg.Recipe.KVScheme = 20_000, kv.Ideal
	eng, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{DecodeLogInterval: 1}, eng)
		c := serve(t, s)
		go c.chat(context.Background(), turn{0, 1}, 20, calls2(3000).opened(0)...)
		for s.Stats().GeneratedTokens < 5 {
			time.Sleep(time.Millisecond)
		}
		p := c.scrape()
		used, window := p.value("sglang:kv_used_tokens"), p.value("sglang:swa_used_tokens")
		if used < 3000 || window != float64(cfg.Model.WindowTokens) {
			t.Errorf("%v tokens in use, %v of them in windows; want over 3000 and %d", used, window, cfg.Model.WindowTokens)
		}
		full := used / (used + p.value("sglang:kv_available_tokens") + p.value("sglang:kv_evictable_tokens"))
		swa := window / (window + p.value("sglang:swa_available_tokens") + p.value("sglang:swa_evictable_tokens"))
		p.want("while it decodes", "sglang:", map[string]float64{"full_token_usage": full, "swa_token_usage": swa, "token_usage": max(full, swa)})
		if full == swa || swa == 0 {
			t.Errorf("usage is %v and %v", full, swa)
		}
		room := p.value("sglang:swa_available_tokens") * float64(cfg.Model.WindowBytes())
		if got := p.value("sglang:kv_available_tokens") * float64(cfg.Model.FullBytes()); math.Abs(got-room) > float64(cfg.Model.WindowBytes()+cfg.Model.FullBytes()) {
			t.Errorf("room for %v bytes of one kind and %v of the other", got, room)
		}
		time.Sleep(time.Second)
		p = c.scrape()
		p.want("at rest", "sglang:", map[string]float64{"kv_used_tokens": 0, "swa_used_tokens": 0, "swa_evictable_tokens": float64(cfg.Model.WindowTokens)})
	})
}

// With --decode-log-interval 1 nothing is stale.
func TestDecodeLogInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{DecodeLogInterval: 1}, smallEngine(t, 10_000))
		c := serve(t, s)
		go c.chat(context.Background(), turn{0, 1}, 20, user("hi"))
		for n := 2; n < 20; n++ {
			for s.Stats().GeneratedTokens < n {
				time.Sleep(100 * time.Microsecond)
			}
			c.scrape().want(fmt.Sprintf("token %d", n), "sglang:", map[string]float64{"num_running_reqs": 1, "kv_used_tokens": float64(10 + n - 1)})
		}
		time.Sleep(time.Second)
	})
}

// An answer that is no stream is reported every 50 tokens and at its end: interval / new tokens, for each of them.
func TestSGLangWholeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := record(&lockstep{step: tick})
		c := serve(t, New(Config{}, eng))
		status, _ := c.do("POST", "/v1/chat/completions", `{"model":"kneemock","max_tokens":120,"messages":[{"role":"user","content":"hi"}]}`)
		if status != http.StatusOK {
			t.Fatal(status)
		}
		p := c.scrape()
		p.wantTimes("sglang:time_to_first_token_seconds", []time.Duration{50 * tick}, "is_streaming=false")
		p.wantTimes("sglang:e2e_request_latency_seconds", []time.Duration{120 * tick}, "is_streaming=false")
		p.wantTimes("sglang:inter_token_latency_seconds", slices.Repeat([]time.Duration{tick}, 70))
	})
	synctest.Test(t, func(t *testing.T) { // several tokens in one step of a stream
		c := serve(t, New(Config{}, &lockstep{step: tick, perStep: 4}))
		c.chat(context.Background(), turn{}, 10, user("hi"))
		p := c.scrape()
		p.wantTimes("sglang:time_to_first_token_seconds", []time.Duration{tick})
		p.wantTimes("sglang:inter_token_latency_seconds", slices.Concat(slices.Repeat([]time.Duration{tick / 4}, 4), slices.Repeat([]time.Duration{tick / 2}, 2)))
	})
	synctest.Test(t, func(t *testing.T) { // which vLLM counts as one output each
		c := serve(t, New(Config{Kind: VLLM}, &lockstep{step: tick, perStep: 4}))
		c.chat(context.Background(), turn{}, 10, user("hi"))
		p := c.scrape()
		p.wantTimes("vllm:inter_token_latency_seconds", []time.Duration{tick, tick})
		p.wantCounts("vllm:iteration_tokens_total", []int{10 + 4, 4, 2})
	})
}

// What vLLM's metrics say of a load that overflows the pool is what the clients heard.
func TestVLLMFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Kind: VLLM, ContextLimit: 32768}, smallEngine(t, 10_000))
		c := serve(t, s)
		all := speak(c, 12, 3, 900, 45, 300*time.Millisecond)
		var ttft, itl, e2e, decode, tpot []time.Duration
		var prompts, uncached []int
		prompt, cached, tokens := 0, 0, 0
		for _, h := range all {
			ttft, itl = append(ttft, h.ttft()), append(itl, h.gaps()...)
			last := h.at[len(h.at)-1]
			e2e, decode = append(e2e, h.end-h.sent), append(decode, last-h.at[0])
			tpot = append(tpot, (last-h.at[0])/44)
			prompts, uncached = append(prompts, h.usage.PromptTokens), append(uncached, h.usage.PromptTokens-h.cached())
			prompt, cached, tokens = prompt+h.usage.PromptTokens, cached+h.cached(), tokens+len(h.at)
		}
		p := c.scrape()
		p.want("after all", "", map[string]float64{
			"vllm:prompt_tokens_total": float64(prompt), "vllm:prompt_tokens_cached_total": float64(cached), "vllm:generation_tokens_total": float64(tokens),
			"vllm:prefix_cache_queries_total": float64(prompt), "vllm:prefix_cache_hits_total": float64(cached), "vllm:num_preemptions_total": 0,
			"vllm:prompt_tokens_by_source_total source=local_compute":     float64(prompt - cached),
			"vllm:prompt_tokens_by_source_total source=local_cache_hit":   float64(cached),
			"vllm:prompt_tokens_cached_by_source_total source=device":     float64(cached),
			"vllm:request_success_total finished_reason=length":           36,
			"vllm:request_success_total finished_reason=abort":            0,
			"vllm:num_requests_running":                                   0,
			"vllm:num_requests_waiting":                                   0,
			"vllm:kv_cache_usage_perc":                                    0, // what is cached counts as free
			"vllm:cache_config_info num_gpu_blocks=10000 block_size=1":    1,
			"http_requests_total handler=/v1/chat/completions status=2xx": 36,
		})
		p.wantTimes("vllm:time_to_first_token_seconds", ttft)
		p.wantTimes("vllm:inter_token_latency_seconds", itl)
		p.wantTimes("vllm:e2e_request_latency_seconds", e2e)
		p.wantTimes("vllm:request_decode_time_seconds", decode)
		p.wantTimes("vllm:request_time_per_output_token_seconds", tpot)
		p.wantTimes("http_request_duration_seconds", e2e, "handler=/v1/chat/completions")
		p.wantCounts("vllm:request_prompt_tokens", prompts)
		p.wantCounts("vllm:request_prefill_kv_computed_tokens", uncached)
		p.wantCounts("vllm:request_generation_tokens", slices.Repeat([]int{45}, 36))
		p.wantCounts("vllm:request_params_max_tokens", slices.Repeat([]int{45}, 36))
		p.wantCounts("vllm:request_num_preemptions", make([]int, 36))
		sum := func(name string) float64 { return p.series("vllm:" + name).Histogram.GetSampleSum() }
		queue, prefill, inference := sum("request_queue_time_seconds"), sum("request_prefill_time_seconds"), sum("request_inference_time_seconds")
		if d := queue + prefill - sum("time_to_first_token_seconds"); math.Abs(d) > 1e-9 || queue < .1 {
			t.Errorf("queue %v and prefill %v s are not TTFT %v", queue, prefill, sum("time_to_first_token_seconds"))
		}
		if d := prefill + sum("request_decode_time_seconds") - inference; math.Abs(d) > 1e-9 {
			t.Errorf("prefill and decode are not inference %v", inference)
		}
		// Every step that had outputs is in the histogram of iterations; prefill chunks that end no prompt are not.
		if got, want := sum("iteration_tokens_total"), float64(prompt-cached+tokens); got != want {
			t.Errorf("iterations of %v tokens, want %v", got, want)
		}
		for name := range p.families {
			if strings.Contains(name, "evict") {
				t.Errorf("vLLM has no %s", name)
			}
		}
	})
}

// vLLM's gauges are as of the last step.
func TestVLLMGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Kind: VLLM}, smallEngine(t, 10_000))
		c := serve(t, s)
		go c.chat(context.Background(), turn{0, 1}, 20, user("hi"))
		time.Sleep(smallEngine(t, 10_000).HostTime(len(promptTokens([]wire.Message{user("hi")}))) + time.Nanosecond)
		c.scrape().want("in its first step", "vllm:", map[string]float64{"num_requests_running": 0, "num_requests_waiting": 0, "prefix_cache_queries_total": 0})
		for n := 1; n < 20; n++ {
			for s.Stats().GeneratedTokens < n {
				time.Sleep(100 * time.Microsecond)
			}
			c.scrape().want(fmt.Sprintf("token %d", n), "vllm:", map[string]float64{"num_requests_running": 1, "num_requests_waiting": 0,
				"kv_cache_usage_perc": float64(10+n-1) / 10_000, "generation_tokens_total": float64(n), "prompt_tokens_total": 10, "prefix_cache_queries_total": 10})
		}
		time.Sleep(time.Second)
		c.scrape().want("at rest", "vllm:", map[string]float64{"num_requests_running": 0, "kv_cache_usage_perc": 0})
	})
}

// SGLang counts an abort at once, and the request as one that has ended unless it still was in the queue. vLLM forgets it.
func TestAbortedFigures(t *testing.T) {
	load := func(t *testing.T, kind Kind) page {
		s := New(Config{Kind: kind, ContextLimit: 32768}, smallEngine(t, 2_000))
		c := serve(t, s)
		hangUp := func(call, words, tokens int, after time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if h := c.chat(ctx, turn{call, 1}, tokens, calls2(words).opened(call)...); h.err == nil {
				t.Errorf("call %d was not cut", call)
			}
		}
		go hangUp(0, 700, 900, 500*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		hangUp(1, 1500, 20, 100*time.Millisecond) // has no room beside the first
		time.Sleep(time.Second)
		return c.scrape()
	}
	synctest.Test(t, func(t *testing.T) {
		p := load(t, SGLang)
		p.want("", "sglang:", map[string]float64{"num_aborted_requests_total": 2, "num_requests_total": 1, "num_running_reqs": 0, "kv_used_tokens": 0})
		got := p.value("sglang:generation_tokens_total")
		if got < 50 || got > 400 || p.value("sglang:realtime_tokens_total", "mode=decode") != got-1 {
			t.Errorf("%v tokens generated for a call cut after half a second", got)
		}
		if n := p.series("sglang:inter_token_latency_seconds").Histogram.GetSampleCount(); float64(n) != got-1 {
			t.Errorf("%d gaps between %v tokens", n, got)
		}
		if p.families["sglang:request_time_per_output_token_seconds"] != nil {
			t.Error("an aborted request has a time per token")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := load(t, VLLM)
		p.want("", "vllm:", map[string]float64{"request_success_total finished_reason=abort": 0, "request_success_total finished_reason=length": 0,
			"num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage_perc": 0})
		if n := p.series("vllm:e2e_request_latency_seconds").Histogram.GetSampleCount(); n != 0 {
			t.Errorf("%d requests have ended", n)
		}
		if n := p.series("vllm:time_to_first_token_seconds").Histogram.GetSampleCount(); n != 1 {
			t.Errorf("%d first tokens", n)
		}
	})
}

// Two requests that write more than the pool holds: one is taken back to the queue.
func TestRetractedFigures(t *testing.T) {
	load := func(t *testing.T, kind Kind) (page, engine.Stats) {
		s := New(Config{Kind: kind, ContextLimit: 32768}, smallEngine(t, 2_000))
		c := serve(t, s)
		go c.chat(t.Context(), turn{0, 1}, 1000, calls2(90).opened(0)...)
		time.Sleep(200 * time.Millisecond)
		if h := c.chat(t.Context(), turn{1, 1}, 1000, calls2(90).opened(1)...); h.err != nil || len(h.at) != 1000 {
			t.Errorf("%d tokens, %v", len(h.at), h.err)
		}
		if s.Stats().Retractions == 0 {
			t.Fatalf("nothing was retracted: %+v", s.Stats())
		}
		return c.scrape(), s.Stats()
	}
	synctest.Test(t, func(t *testing.T) {
		p, stats := load(t, SGLang)
		n := float64(stats.Retractions)
		prompt := p.value("sglang:prompt_tokens_total") / 2
		p.want("", "sglang:", map[string]float64{"num_retracted_requests_total": n, "num_retracted_input_tokens_total": n * prompt, "num_requests_total": 2,
			"generation_tokens_total": 2000, "realtime_tokens_total mode=prefill_compute": float64(stats.ComputedTokens),
			"prefill_effective_tokens_total mode=input": float64(stats.PromptTokens - stats.CachedTokens)})
		if out := p.value("sglang:num_retracted_output_tokens_total"); out < 500 || out > 1000*n {
			t.Errorf("%v tokens had been generated by what was retracted", out)
		}
		again := p.value("sglang:realtime_tokens_total", "mode=prefill_cache")
		if got := again + p.value("sglang:realtime_tokens_total", "mode=prefill_compute"); got <= 2*prompt {
			t.Errorf("%v tokens prefilled, want more than the %v of the prompts", got, 2*prompt)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, stats := load(t, VLLM)
		n := float64(stats.Retractions)
		p.want("", "vllm:", map[string]float64{"num_preemptions_total": n, "prompt_tokens_total": float64(stats.PromptTokens), "generation_tokens_total": 2000,
			"prefix_cache_queries_total": float64(stats.PromptTokens), "prefix_cache_hits_total": float64(stats.CachedTokens)})
		p.wantCounts("vllm:request_num_preemptions", []int{0, int(n)})
	})
}

// speakLabelled is one turn of 2 tokens with the header x-custom-labels.
func (c *client) speakLabelled(header string) {
	c.t.Helper()
	req, err := http.NewRequest("POST", c.url+"/v1/chat/completions", bytes.NewReader(marshal(wire.ChatRequest{
		Model: c.model, Messages: []wire.Message{user("hi")}, MaxTokens: 2, Stream: true})))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("x-custom-labels", header)
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%d, %v", resp.StatusCode, err)
	}
}

// The header x-custom-labels splits the figures of requests, so that the server's own TTFT can be seen by step.
func TestCustomLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(Config{CustomLabels: []string{"run_id", "step"}}, &lockstep{step: tick}))
		for header, n := range map[string]int{
			`{"run_id":"r","step":"1"}`:                     1,
			`{"run_id":"r","step":2,"user":"dropped"}`:      2,
			`{"step":["no"],"run_id":"x"}`:                  1,
			`{"step":"\u0000","run_id":"x"}`:                1,
			`{"step":"` + strings.Repeat("long", 30) + `"}`: 1,
			`not JSON`: 1,
			``:         1,
		} {
			for range n {
				c.speakLabelled(header)
			}
		}
		p := c.scrape()
		p.want("by step", "sglang:", map[string]float64{"num_requests_total run_id=r step=1": 1, "num_requests_total run_id=r step=2": 2,
			"num_requests_total run_id=x step=": 2, "num_requests_total run_id= step=": 3})
		p.wantTimes("sglang:time_to_first_token_seconds", []time.Duration{tick, tick}, "step=2", "is_streaming=true")
		if got := labelNames(p.families["sglang:queue_time_seconds"]); slices.Contains(got, "step") {
			t.Errorf("the scheduler's figures have custom labels: %v", got)
		}
		for i := range 300 {
			c.speakLabelled(fmt.Sprintf(`{"step":"%d"}`, i))
		}
		p = c.scrape()
		if n := len(p.families["sglang:num_requests_total"].Metric); n != maxLabelSets {
			t.Errorf("%d sets of labels, want %d at most", n, maxLabelSets)
		}
		if got := p.value("sglang:num_requests_total", "run_id=", "step="); got != 3+300-(maxLabelSets-4) {
			t.Errorf("%v requests without a set of their own", got)
		}
	})
}

// Bounds are as asked.
func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(Config{TTFTBuckets: []float64{.009, .01, .3}, ITLBuckets: []float64{1}, E2EBuckets: []float64{2}}, &lockstep{step: tick}))
		c.chat(context.Background(), turn{}, 3, user("hi"))
		p := c.scrape()
		for name, want := range map[string]string{"time_to_first_token": "0.009 0.01 0.3", "inter_token_latency": "1", "e2e_request_latency": "2",
			"request_time_per_output_token": "1"} {
			if got := edges(p.families["sglang:"+name+"_seconds"]); got != want {
				t.Errorf("%s: bounds %s, want %s", name, got, want)
			}
		}
		p.wantTimes("sglang:time_to_first_token_seconds", []time.Duration{tick}) // on the edge of .01
	})
}

func TestValidate(t *testing.T) {
	many := make([]float64, maxEdges+1)
	for i := range many {
		many[i] = float64(i + 1)
	}
	for _, test := range []struct {
		cfg  Config
		want string // "" is none
	}{
		{Config{}, ""},
		{Config{Kind: VLLM}, ""},
		{Config{TTFTBuckets: many[:maxEdges], CustomLabels: []string{"run_id", "step", "phase"}, DecodeLogInterval: 1}, ""},
		{Config{Kind: "tgi"}, `kind "tgi" is neither "sglang" nor "vllm"`},
		{Config{ModelName: "\xff"}, `model name "\xff" is not UTF-8`},
		{Config{DecodeLogInterval: -1}, "decode_log_interval is -1"},
		{Config{TTFTBuckets: []float64{.1, .1}}, "bucket_time_to_first_token has 0.1 after 0.1"},
		{Config{ITLBuckets: []float64{0}}, "bucket_inter_token_latency has 0 after 0"},
		{Config{E2EBuckets: []float64{math.NaN()}}, "bucket_e2e_request_latency has NaN"},
		{Config{E2EBuckets: []float64{math.Inf(1)}}, "bucket_e2e_request_latency has +Inf"},
		{Config{TTFTBuckets: many}, "has 48 bounds, must have at most 47"},
		{Config{CustomLabels: []string{"a-b"}}, `custom label "a-b" is no label's name`},
		{Config{CustomLabels: []string{"__x"}}, `custom label "__x" is no label's name`},
		{Config{CustomLabels: []string{"step", "step"}}, `custom label "step" is there already`},
		{Config{CustomLabels: []string{"model_name"}}, `custom label "model_name" is there already`},
		{Config{CustomLabels: strings.Split("a b c d e f g h i j k", " ")}, "there are 11 custom labels"},
		{Config{Kind: VLLM, CustomLabels: []string{"step"}}, `kind "vllm" has none`},
		{Config{Kind: VLLM, TTFTBuckets: []float64{1}}, `kind "vllm" has none`},
	} {
		err := test.cfg.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %s", test.cfg, err, test.want)
		}
	}
}

// A page is well-formed but for the colons of its names, which are the real servers'.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	for _, kind := range []Kind{SGLang, VLLM} {
		c := serveLoopback(t, New(Config{Kind: kind}, smallEngine(t, 10_000)))
		if h := c.chat(t.Context(), turn{0, 1}, 5, user("hi")); h.err != nil {
			t.Fatal(h.err)
		}
		_, text := c.do("GET", "/metrics", nil)
		cmd := exec.Command(promtool, "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		out, _ := cmd.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !slices.ContainsFunc(promtoolSays, func(of string) bool { return strings.Contains(line, of) }) {
				t.Errorf("%s: %s", kind, line)
			}
		}
		if len(out) == 0 {
			t.Errorf("%s: promtool did not even mind the colons", kind)
		}
	}
}

// What promtool minds in the names of the real servers: families of theirs whose names it would not have chosen.
var promtoolSays = []string{
	"metric names should not contain ':'",
	`vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix`,
	"tokens_histogram metric name should not include type 'histogram'",
	"sglang:kv_cache_memory_usage_gb metric names should not contain abbreviated units",
	"sglang:weight_memory_usage_gb metric names should not contain abbreviated units",
}

// The lock is held for less than a millisecond even with all sets of custom labels.
func TestScrapeHoldsLockShortly(t *testing.T) {
	s := New(Config{CustomLabels: []string{"step"}}, smallEngine(t, 10_000))
	defer s.Close()
	b := s.driver.book.(*sglang)
	for i := range maxLabelSets {
		b.set([]string{fmt.Sprint(i)})
	}
	least := time.Hour
	for range 200 {
		s.driver.step(func(at time.Duration) {
			start := time.Now()
			b.snapshot(at, replicaStats(s.driver.engine))
			least = min(least, time.Since(start))
		})
	}
	t.Logf("%v at least with %d sets of labels", least, len(b.sets))
	if least > time.Millisecond && !raceEnabled {
		t.Errorf("a scrape holds the lock for %v, want under 1ms", least)
	}
}

// Figures of figures: what an observation costs.
func BenchmarkTokenFigures(b *testing.B) {
	for _, kind := range []Kind{SGLang, VLLM} {
		b.Run(string(kind), func(b *testing.B) {
			s := New(Config{Kind: kind}, &lockstep{step: tick})
			defer s.Close()
			a := &account{streamed: true, prompt: 1}
			b.ReportAllocs()
			for i := range b.N {
				a.told++
				s.driver.book.tokens(a, time.Duration(i)*4*time.Millisecond, 1)
			}
		})
	}
}

func BenchmarkScrape(b *testing.B) {
	s := New(Config{}, &lockstep{step: tick})
	c := serveLoopback(b, s)
	c.chat(b.Context(), turn{}, 10, user("hi"))
	for b.Loop() {
		c.do("GET", "/metrics", nil)
	}
}

// What a scrape is answered depends on what it accepts, as with the real servers' Python clients.
func TestNamesByAccept(t *testing.T) {
	const prometheus2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
	const prometheus3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1"
	for _, test := range []struct {
		kind   Kind
		accept string
		want   string
		open   bool
	}{
		{SGLang, "", "\nsglang:num_running_reqs{", false},
		{SGLang, "text/plain", "\nsglang:num_running_reqs{", false},
		{SGLang, prometheus2, "\nsglang_num_running_reqs{", true},
		{SGLang, prometheus3, "\nsglang:num_running_reqs{", true},
		{VLLM, prometheus2, "\nvllm:num_requests_running{", false},
	} {
		s := New(Config{Kind: test.kind}, demoEngine(t))
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", test.accept)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(body, test.want) || strings.HasSuffix(body, "# EOF\n") != test.open ||
			strings.Contains(w.Header().Get("Content-Type"), "openmetrics") != test.open {
			t.Errorf("%s, Accept %q: %d %s, want %q, OpenMetrics %v:\n%.600s", test.kind, test.accept, w.Code, w.Header().Get("Content-Type"), test.want, test.open, body)
		}
		s.Close()
	}
}
