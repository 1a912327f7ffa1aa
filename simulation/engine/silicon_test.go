package engine

import (
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/model"
)

// closedLoop is clients, each of which sends its next request when the last has ended. All send the first at once.
type closedLoop struct {
	clients, requests int     // requests in all
	input, reply      int     // tokens, at most
	spread            float64 // lengths are drawn from 1-spread to 1 of these
}

// run returns the mean TTFT, and the mean over requests of the mean time of a token behind the first.
func (l closedLoop) run(t testing.TB, c Config) (ttft, tpot time.Duration) {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(1, 2))
	length := func(most int) int { return most - int(l.spread*float64(most)*draw.Float64()) }
	prompt := make([]Token, l.input)
	s := &loopSink{requests: make([]looped, 0, l.requests)}
	send := func(at time.Duration) {
		if len(s.requests) == l.requests {
			return
		}
		r := Request{ID: uint64(len(s.requests)), Prompt: prompt[:length(l.input)], MaxTokens: length(l.reply)}
		e.Submit(at, r)
		s.requests = append(s.requests, looped{due: at, tokens: r.MaxTokens})
	}
	for range l.clients {
		send(0)
	}
	for at, ok := e.Quiet(); ok; at, ok = e.Quiet() {
		e.AdvanceTo(at, s)
		for range s.ended {
			send(at)
		}
		s.ended = 0
	}
	for i := range s.requests {
		r := &s.requests[i]
		if r.first == 0 || r.last == 0 {
			t.Fatalf("request %d has not ended", i)
		}
		ttft += r.first - r.due
		if r.tokens > 1 {
			tpot += (r.last - r.first) / time.Duration(r.tokens-1)
		}
	}
	n := time.Duration(l.requests)
	return ttft / n, tpot / n
}

// looped is a request of a closedLoop.
type looped struct {
	due, first, last time.Duration
	tokens           int
}

type loopSink struct {
	requests []looped
	ended    int // since the last look
}

func (s *loopSink) Admitted(uint64, time.Duration, int) {}

func (s *loopSink) Tokens(id uint64, at time.Duration, _ int) {
	if r := &s.requests[id]; r.first == 0 {
		r.first = at
	}
}

func (s *loopSink) Burst(ids []uint64, ats []time.Duration) { // of requests that have their first token
	for _, id := range ids {
		s.Tokens(id, ats[0], 1)
	}
}

func (s *loopSink) Finished(id uint64, at time.Duration, f Finish) {
	s.ended++
	if f.Reason == Length {
		s.requests[id].last = at
	}
}

// The loop by hand: one client; two that send at one instant; and two of whom the pool has room for one.
func TestClosedLoop(t *testing.T) {
	vllm := preset(t, "qwen3-32b", "h100")
	vllm.Recipe = Recipe{Kind: VLLM, TP: 2, SyncScheduling: true, NoPrefix: true, BatchedTokens: 1500, MaxRunning: 8}
	sglang := vllm
	sglang.Recipe = Recipe{TP: 2, NoPrefix: true, ChunkedPrefill: 1500}
	one, two := closedLoop{clients: 1, requests: 3, input: 1000, reply: 3}, closedLoop{clients: 2, requests: 2, input: 1000, reply: 2}
	for _, c := range []struct {
		name   string
		config Config
	}{{"vLLM", vllm}, {"SGLang", sglang}} {
		e, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		host := e.HostTime(1000)
		step := func(decodes, context int, parts ...cost.Span) time.Duration {
			return e.kernel.Step(&cost.Batch{Prefill: parts, Decodes: decodes, Context: context})
		}
		check := func(what string, got, want time.Duration) {
			t.Helper()
			if off := got - want; off < -10 || off > 10 {
				t.Errorf("%s, %s: got %v, want %v", c.name, what, got, want)
			}
		}
		whole, first, rest := cost.Span{N: 1000, Last: true}, cost.Span{N: 500}, cost.Span{Offset: 500, N: 500, Last: true}
		ttft, tpot := one.run(t, c.config)
		check("one client, TTFT", ttft, host+step(0, 0, whole))
		check("one client, TPOT", tpot, (step(1, 1001)+step(1, 1002))/2)

		// 1,500 tokens are one prompt and half of the next.
		begun := step(0, 0, whole, first)
		ttft, tpot = two.run(t, c.config)
		if c.name == "vLLM" { // the rest comes beside the first's second token, and the second's alone
			mixed := step(1, 1001, rest)
			check("two clients, TTFT", ttft, host+begun+mixed/2)
			check("two clients, TPOT", tpot, (mixed+step(1, 1001))/2)
		} else { // the rest comes alone, and both second tokens behind it
			check("two clients, TTFT", ttft, host+begun+step(0, 0, rest)/2)
			check("two clients, TPOT", tpot, step(0, 0, rest)/2+step(2, 2002))
		}

		tight := c.config
		tight.Recipe.KVTokens = 1300
		ttft, _ = two.run(t, tight)
		alone := step(0, 0, whole)
		check("a pool for one, TTFT", ttft, host+alone+(step(1, 1001)+alone)/2)
	}
}

// measured is a row of the measured points.
type measured struct {
	model, gpu   string
	kind         Kind
	fp8          bool
	tp, clients  int
	input, reply int
	ttft, tpot   float64 // ms
	inferenceX   bool
	counted      bool // its source names how many clients there were
	id           string
}

var siliconModels = map[string]string{"Qwen/Qwen3-32B": "qwen3-32b", "openai/gpt-oss-120b": "gpt-oss-120b"}

// readMeasured reads the rows of vLLM and SGLang that serve both phases on the same GPUs.
func readMeasured(t *testing.T, path string) (rows []measured) {
	f, err := os.Open(path)
	if err != nil {
		t.Skip("the measured points are not here")
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range lines[0] {
		column[name] = i
	}
	for _, line := range lines[1:] {
		get := func(name string) string { return line[column[name]] }
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(get(name), 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", get("id"), name, err)
			}
			return v
		}
		kind := Kind(get("backend"))
		if get("mode") != "agg" || kind != VLLM && kind != SGLang {
			continue
		}
		source := get("silicon_data_source")
		rows = append(rows, measured{
			model: siliconModels[get("model_path")], gpu: strings.ReplaceAll(get("system"), "_", "-"), kind: kind, fp8: get("gemm_quant_mode") == "fp8",
			tp: int(number("tp_size")), clients: int(number("batch_size")), input: int(number("isl")), reply: int(number("osl")),
			ttft: number("silicon_ttft_ms"), tpot: number("silicon_tpot_ms"), inferenceX: strings.Contains(source, "GPT-OSS"),
			counted: strings.Contains(source, "silicon_concurrency"), id: get("id"),
		})
	}
	return rows
}

func (m measured) String() string {
	return fmt.Sprintf("%-7s %-13s %-9s tp%d %5d/%-5d c%-4d", m.kind, m.model, m.gpu, m.tp, m.input, m.reply, m.clients)
}

// setup is the run of a row, as far as is known of it.
//
// InferenceX (benchmarks/gptoss_fp4_h200.sh and utils/bench_serving there) sends ten requests a client to a vLLM with a budget of
// 8,192 tokens, graphs up to 2,048, no prefix cache, no more requests at a time than clients, and Marlin's kernels; lengths are drawn
// from .8 to 1 of those that it names. Its prompts are the text of runs of token ids, which takes 3.5 us a token to turn into ids
// again: so long tokenizers 0.23 takes with gpt-oss's vocabulary (o200k) on one core of an AMD EPYC, 3.0 with Qwen's, and 1.6 to 2.4
// for prose.
//
// The other rows are NVIDIA's. The scripts of Dynamo, and of aiconfigurator, which has the numbers of clients that are here, send
// chats of equal length, which Qwen3's template makes eight tokens longer; Dynamo's ten a client, behind a warm-up. vLLM 0.12 does
// not schedule ahead.
func (m measured) setup(t *testing.T) (closedLoop, Config) {
	t.Helper()
	c := preset(t, m.model, m.gpu)
	if m.fp8 {
		c.Model.Weights.Linear = model.FP8
	}
	c.Recipe = Recipe{Kind: m.kind, TP: m.tp, NoPrefix: true}
	l := closedLoop{clients: m.clients, requests: 10 * m.clients, input: m.input, reply: m.reply}
	if !m.inferenceX {
		l.input += 8
		c.Recipe.SyncScheduling = m.kind == VLLM
		return l, c
	}
	l.spread = .2
	c.Recipe.MaxRunning, c.Recipe.BatchedTokens = m.clients, 8192
	k, err := c.Filled().kernel()
	if err != nil {
		t.Fatal(err)
	}
	over := k.Overheads()
	over.PromptToken, over.Graphs = 3500*time.Nanosecond, 2048
	c.GPU.Overheads = &over
	return l, c
}

// least is how many bytes each GPU reads in a step at least: the weights once, and the KV of all sequences that decode. How many do
// follows from the measurement itself: a client has one request at a time, and gets tokens in so much of its time.
func (m measured) least(t *testing.T, c Config) (weights, kv float64) {
	t.Helper()
	k, err := c.Filled().kernel()
	if err != nil {
		t.Fatal(err)
	}
	memory, b := k.Memory(), c.Model.Bytes()
	decoding := m.tpot * float64(m.reply-1)
	sequences := float64(m.clients) * decoding / (decoding + m.ttft)
	weights = float64(b.FullAttention + b.WindowAttention + b.Dense + b.Shared + b.Head)
	if e := c.Model.MoE; e.Experts > 0 {
		weights += float64(b.Experts) * float64(e.TopK) / float64(e.Experts)
	}
	length := float64(m.input) + float64(m.reply)/2
	if m.inferenceX {
		length *= .8
	}
	token := float64(memory.FullBytes)*length + float64(memory.WindowBytes)*min(length, float64(memory.WindowTokens))
	return weights / float64(m.tp), sequences * token
}

// proof says why a row cannot be what it says: its tokens came faster than memory can be read. With KV of half the size they would need
// all of the GPU's peaks, one kernel being behind the other.
func (m measured) proof(t *testing.T, c Config) string {
	weights, kv := m.least(t, c)
	step := (weights + kv) / c.GPU.Bandwidth * 1e3
	half := (weights + kv/2) / c.GPU.Bandwidth * float64(m.reply-1)
	prompts := float64(m.clients) * 2 * float64(c.Model.BodyParams()) * float64(m.input) / float64(m.tp) / c.GPU.FP8
	took := (m.ttft + m.tpot*float64(m.reply-1)) / 1e3
	counted := "its source names the number of clients"
	if !m.counted {
		counted = "its source does not name the number of clients, which is its batch here"
	}
	return fmt.Sprintf("a token of each client is published to come %.2f times as fast as memory can be read: %.1f GB of weights and %.1f GB of KV a step "+
		"and GPU take %.1f ms at %.0f GB/s, not %.1f; with KV of eight bits, reading and the prompts' products at the FP8 peak take %.0f %% of its time; %s",
		step/m.tpot, weights/1e9, kv/1e9, step, c.GPU.Bandwidth/1e9, m.tpot, 100*(half+prompts)/took, counted)
}

// beyond names the rows whose tokens came faster than the memory of their GPUs can be read. They are shown with the proof, count among
// all rows, and are left out of the medians by prompt length.
var beyond = []string{
	"qwen3_32b_qwen3_32b_h100_sxm_vllm_agg_4000x1000_c_tp1_0_epnone_4",
	"qwen3_32b_qwen3_32b_h100_sxm_vllm_agg_4000x1000_c_tp2_0_epnone_3",
}

// miss is how far a prediction is from a measurement, signed, as a part of it.
type miss struct{ ttft, tpot float64 }

// TestSilicon prints how far TTFT and TPOT of this engine are from measured ones, and holds the medians. Nothing is fitted to them:
// kernels come from tables of their own, overheads from what is assumed of hosts, the rest from the scripts of the runs.
//
// The token budget of NVIDIA's vLLM is not told. It is taken to be that of aiconfigurator's rule for such runs
// (rule_plugin/benchmark/vllm.rule), clients + input + 1,500; and they are run once more with vLLM's default.
func TestSilicon(t *testing.T) {
	rows := readMeasured(t, filepath.Join("..", "..", "..", "shared", "data", "silicon", "measured_points.csv"))
	groups := map[string][]miss{}
	judge := func(m measured, l closedLoop, c Config, label string) miss {
		ttft, tpot := l.run(t, c)
		off := miss{ttft.Seconds()*1e3/m.ttft - 1, tpot.Seconds()*1e3/m.tpot - 1}
		t.Logf("%s%v TTFT %8.1f measured %8.1f %+6.0f %%   TPOT %7.2f measured %7.2f %+6.0f %%", label, m,
			ttft.Seconds()*1e3, m.ttft, 100*off.ttft, tpot.Seconds()*1e3, m.tpot, 100*off.tpot)
		return off
	}
	nearest := 0.
	for _, m := range rows {
		l, c := m.setup(t)
		ruled := c
		if m.kind == VLLM && !m.inferenceX {
			ruled.Recipe.BatchedTokens = m.clients + m.input + 1500
		}
		off := judge(m, l, ruled, "")
		byDefault := off
		if m.kind == VLLM && !m.inferenceX {
			byDefault = judge(m, l, c, "default budget: ")
		}
		kind := string(m.kind)
		keys := []string{"all", kind + " " + m.model, kind + " tp " + strconv.Itoa(m.tp), fmt.Sprintf("%s %s clients %3d", kind, m.model, m.clients)}
		weights, kv := m.least(t, c)
		named, least := slices.Contains(beyond, m.id), (weights+kv)/c.GPU.Bandwidth*1e3
		switch {
		case named != (least > m.tpot):
			t.Errorf("%v: a token takes %.2f ms at least, %.2f were measured; named as beyond that: %v", m, least, m.tpot, named)
		case named:
			alike := l // how many clients on one engine are as fast
			for alike.clients > 1 {
				alike.clients--
				alike.requests = 10 * alike.clients
				if _, tpot := alike.run(t, ruled); tpot.Seconds()*1e3 <= m.tpot {
					break
				}
			}
			t.Logf("beyond the GPU: %v: %s; the model is as fast with %d clients on one engine", m, m.proof(t, c), alike.clients)
		default:
			nearest = max(nearest, least/m.tpot)
			keys = append(keys, fmt.Sprintf("input %d", m.input), fmt.Sprintf("%s input %d", kind, m.input))
		}
		for _, key := range keys {
			groups[key] = append(groups[key], off)
			groups["default budget: "+key] = append(groups["default budget: "+key], byDefault)
		}
	}
	t.Logf("of the other rows the nearest to that takes %.2f of its time to read", nearest)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		ttft, tpot := by(g, func(m miss) float64 { return m.ttft }), by(g, func(m miss) float64 { return m.tpot })
		t.Logf("%-45s %3d rows  TTFT median %3.0f %% P90 %3.0f %% signed %+4.0f %%   TPOT median %3.0f %% P90 %3.0f %% signed %+4.0f %%", name, len(g),
			100*ttft.median, 100*ttft.p90, 100*ttft.signed, 100*tpot.median, 100*tpot.p90, 100*tpot.signed)
		switch {
		case name == "all" || name == "default budget: all":
			if len(g) != 252 || ttft.median > .35 || tpot.median > .25 {
				t.Errorf("%s: %d rows, median error of TTFT %.2f and of TPOT %.2f, want at most .35 and .25 of 252", name, len(g), ttft.median, tpot.median)
			}
		case strings.HasPrefix(name, "input "):
			if math.Abs(ttft.signed) >= .15 {
				t.Errorf("%s: median signed error of TTFT %+.2f, want less than .15 either way", name, ttft.signed)
			}
		}
	}
}

// spread is how errors are spread.
type spread struct{ median, p90, signed float64 }

func by(g []miss, of func(miss) float64) spread {
	var abs, signed []float64
	for _, m := range g {
		abs, signed = append(abs, math.Abs(of(m))), append(signed, of(m))
	}
	slices.Sort(abs)
	slices.Sort(signed)
	at := func(v []float64, p float64) float64 { return v[int(p*float64(len(v)-1))] }
	return spread{at(abs, .5), at(abs, .9), at(signed, .5)}
}
