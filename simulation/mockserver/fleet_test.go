package mockserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// demoFleet is n demo engines behind a router.
func demoFleet(t testing.TB, n int, change func(*fleet.Config)) *fleet.Fleet {
	t.Helper()
	cfg, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	c := fleet.Default()
	c.Replicas = fleet.Replicas(n, cfg)
	if change != nil {
		change(&c)
	}
	f, err := fleet.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// split makes the first replica of a fleet compute prompts for the others.
func split(c *fleet.Config) {
	for i := range c.Replicas {
		c.Replicas[i].Role = fleet.Decode
	}
	c.Replicas[0].Role = fleet.Prefill
	c.Handoff = fleet.Handoff{Link: fleet.Link{Name: "test", Bandwidth: 10e9, Latency: 20 * time.Microsecond}, HoldFirst: true,
		KVBytes: func(tokens int) int64 { return 65536 * int64(tokens) }}
}

// A fleet over HTTP is the fleet driven by hand, to the nanosecond.
func TestFleetExact(t *testing.T) {
	load := calls{turns: 3, gap: 30 * time.Millisecond, tokens: 12, opening: 700}
	for i := range 24 {
		load.at = append(load.at, time.Duration(i/3)*4*time.Millisecond)
	}
	for name, change := range map[string]func(*fleet.Config){
		"in turn":       nil,
		"kv":            func(c *fleet.Config) { c.Router.Policy = fleet.KV },
		"stale":         func(c *fleet.Config) { c.Router.Policy, c.Router.Staleness = fleet.LeastLoaded, 50*time.Millisecond },
		"one at a time": func(c *fleet.Config) { c.Router.Policy, c.Router.MaxRequests = fleet.LeastLoaded, 1 },
		"disaggregated": split,
		"failing": func(c *fleet.Config) {
			c.Events = []fleet.Event{{At: 60 * time.Millisecond, Kind: fleet.Fail, Replica: 1, For: 100 * time.Millisecond}}
			c.Retry = fleet.Resume
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := load.direct(demoFleet(t, 3, change))
			synctest.Test(t, func(t *testing.T) {
				got := load.overWire(serve(t, New(Config{}, demoFleet(t, 3, change))))
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(turn{})); diff != "" {
					t.Errorf("instants of tokens (-direct +over HTTP):\n%s", diff)
				}
			})
			if len(want) != 72 {
				t.Errorf("%d turns", len(want))
			}
		})
	}
}

// SGLang's page shows a scheduler for each replica, and one tokenizer manager for all; sums are what the clients heard.
func TestFleetSGLang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{ModelName: "m", DecodeLogInterval: 1}, demoFleet(t, 3, nil))
		c := serve(t, s)
		var first sync.WaitGroup
		first.Go(func() { speak(c, 7, 1, 900, 200, 0) })
		time.Sleep(400 * time.Millisecond)
		p := c.scrape()
		running := []float64{3, 2, 2} // in turn
		for i, want := range running {
			if got := p.value("sglang:num_running_reqs", fmt.Sprint("dp_rank=", i)); got != want {
				t.Errorf("rank %d: %v running, want %v", i, got, want)
			}
		}
		first.Wait()
		time.Sleep(time.Minute)
		p = c.scrape()
		computed, decoded, queued := 0., 0., uint64(0)
		for i := range running {
			rank := fmt.Sprint("dp_rank=", i)
			computed += p.value("sglang:realtime_tokens_total", rank, "mode=prefill_compute")
			decoded += p.value("sglang:realtime_tokens_total", rank, "mode=decode")
			queued += p.series("sglang:queue_time_seconds", rank).Histogram.GetSampleCount()
			p.want("at rest", "sglang:", map[string]float64{"num_running_reqs " + rank: 0, "evicted_tokens_total " + rank: 0})
			if pool := p.value("sglang:max_total_num_tokens", rank); int(pool)*3 != s.Stats().KVPoolTokens {
				t.Errorf("rank %d has a pool of %v tokens, all of %d", i, pool, s.Stats().KVPoolTokens)
			}
		}
		stats := s.Stats()
		if int(computed) != stats.ComputedTokens || int(decoded) != stats.GeneratedTokens-7 || decoded != 7*199 || queued != 7 {
			t.Errorf("%v tokens computed, %v decoded, %d requests queued; the fleet says %+v", computed, decoded, queued, stats)
		}
		p.want("at rest", "sglang:", map[string]float64{"num_requests_total": 7, "generation_tokens_total": 1400})
	})
}

// vLLM's page shows each engine by itself.
func TestFleetVLLM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Kind: VLLM, ModelName: "m"}, demoFleet(t, 2, nil))
		c := serve(t, s)
		all := speak(c, 5, 2, 900, 20, 10*time.Millisecond)
		p := c.scrape()
		ended, generated, found := 0., 0., 0.
		for _, e := range []string{"engine=0", "engine=1"} {
			n := p.value("vllm:request_success_total", e, "finished_reason=length")
			if n == 0 {
				t.Errorf("%s has ended nothing", e)
			}
			ended += n
			generated += p.value("vllm:generation_tokens_total", e)
			found += p.value("vllm:prefix_cache_hits_total", e)
			if got := p.series("vllm:time_to_first_token_seconds", e).Histogram.GetSampleCount(); got != uint64(n) {
				t.Errorf("%s: %d first tokens of %v requests", e, got, n)
			}
		}
		cached := 0
		for _, h := range all {
			cached += h.cached()
		}
		if ended != 10 || generated != 200 || int(found) != cached {
			t.Errorf("%v ended, %v tokens, %v found of %d", ended, generated, found, cached)
		}
	})
}

// The end of a request whose replica fails is a status as long as nothing has been sent, else an error in the stream; the gauges of
// what is gone go down.
func TestFleetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{DecodeLogInterval: 1}, demoFleet(t, 1, func(c *fleet.Config) {
			c.Events = []fleet.Event{{At: 500 * time.Millisecond, Kind: fleet.Fail, Replica: 0, For: time.Second}}
		}))
		c := serve(t, s)
		var all sync.WaitGroup
		var streaming, waiting heard
		all.Go(func() { streaming = c.chat(context.Background(), turn{1, 1}, 2000, user("go on")) })
		all.Go(func() {
			time.Sleep(499 * time.Millisecond)
			waiting = c.chat(context.Background(), turn{2, 1}, 10, user(strings.Repeat("word ", 3000)))
		})
		all.Wait()
		if len(streaming.words) < 10 || streaming.err == nil || streaming.err.Error() != "in the stream: replica 0 failed" {
			t.Errorf("a stream breaks off after %d tokens with %v", len(streaming.words), streaming.err)
		}
		if waiting.err == nil || waiting.err.Error() != "status 503" {
			t.Errorf("a request without tokens ends with %v", waiting.err)
		}
		p := c.scrape()
		p.want("after the failure", "sglang:", map[string]float64{"num_running_reqs": 0, "num_used_tokens": 0, "kv_evictable_tokens": 0,
			"kv_available_tokens": 0, "max_total_num_tokens": 0})
		// What comes while it is down waits for it.
		h := c.chat(context.Background(), turn{3, 1}, 1, user("hello"))
		if h.err != nil || h.at[0] < 1500*time.Millisecond {
			t.Errorf("a request to a replica that is down: %v at %v", h.err, h.at)
		}
		if status, _ := c.do("POST", "/flush_cache", nil); status != 200 {
			t.Errorf("flush_cache: %d", status)
		}
	})
}
