package cost_test

import (
	"encoding/csv"
	"fmt"
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
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// loop is a closed loop of clients, each of which sends its next request when the last has ended. One process takes requests in,
// one after the other.
type loop struct {
	kernel       *cost.Kernel
	clients      int
	requests     int // in all
	input, reply int // tokens, at most
	spread       float64
	budget       int // most tokens a step computes
	prefillFirst bool
	ahead        bool // a step is put together when the one before begins, so that what comes meanwhile misses it
	pool         int  // tokens of KV; what is admitted is charged for all that it will hold
}

type client struct {
	input, reply int
	due          time.Duration // of its request
	here         time.Duration // when the engine has it
	first        time.Duration // when its first token came; 0 before
	done         int           // prompt tokens computed
	out          int           // tokens of its reply
	admitted     bool
	left         bool
}

// run returns the mean TTFT, and the mean over requests of the mean time of an output token behind the first.
func (l *loop) run() (ttft, tpot float64) {
	draw := rand.New(rand.NewPCG(1, 2))
	length := func(most int) int { return most - int(l.spread*float64(most)*draw.Float64()) }
	clients := make([]client, l.clients)
	over := l.kernel.Overheads()
	var free time.Duration // when the host can take the next request in
	sent := 0
	send := func(c *client, at time.Duration) {
		if sent == l.requests {
			c.left = true
			return
		}
		sent++
		*c = client{input: length(l.input), reply: length(l.reply), due: at}
		free = max(free, at) + time.Duration(c.input)*over.PromptToken
		c.here = free + over.Request
	}
	for i := range clients {
		send(&clients[i], 0)
	}
	var now, began time.Duration
	held := 0
	var order, parts []*client
	for ended := 0; ended < l.requests; {
		var b cost.Batch
		left := l.budget
		decode := func() {
			for i := range clients {
				if c := &clients[i]; c.first > 0 && !c.left && left > 0 {
					b.Decodes++
					b.Context += c.input + c.out
					b.Recent += min(c.input+c.out, 128)
					left--
				}
			}
		}
		if !l.prefillFirst {
			decode()
		}
		order, parts = order[:0], parts[:0]
		earliest := time.Duration(math.MaxInt64)
		for i := range clients {
			if c := &clients[i]; c.first == 0 && !c.left {
				earliest = min(earliest, c.here)
				if c.here <= now && (!l.ahead || c.here <= began) {
					order = append(order, c)
				}
			}
		}
		slices.SortStableFunc(order, func(a, b *client) int { return int(a.here - b.here) })
		for _, c := range order {
			n := min(left, c.input-c.done)
			if n == 0 {
				break
			}
			if !c.admitted {
				if held += c.input + c.reply; held > l.pool && held > c.input+c.reply {
					held -= c.input + c.reply
					break
				}
				c.admitted = true
			}
			b.Prefill = append(b.Prefill, cost.Span{Offset: c.done, N: n, Last: c.done+n == c.input})
			c.done += n
			left -= n
			parts = append(parts, c)
		}
		if l.prefillFirst && len(parts) == 0 {
			decode()
		}
		if len(parts) == 0 && b.Decodes == 0 {
			now = max(now, earliest)
			began = now
			continue
		}
		began = now
		steps := 1
		if earliest == math.MaxInt64 && len(parts) == 0 { // nothing comes before a reply ends
			steps = l.reply
			for i := range clients {
				if c := &clients[i]; !c.left {
					steps = min(steps, c.reply-c.out)
				}
			}
		}
		for range steps {
			now += l.kernel.Step(&b)
			b.Context += b.Decodes
		}
		for i := range clients {
			if c := &clients[i]; b.Decodes > 0 && c.first > 0 && !c.left {
				c.out += steps
			}
		}
		for _, c := range parts {
			if c.done == c.input {
				c.first, c.out = now, 1
			}
		}
		for i := range clients {
			c := &clients[i]
			if c.left || c.first == 0 || c.out < c.reply {
				continue
			}
			ttft += float64(c.first - c.due)
			tpot += float64(now-c.first) / float64(c.reply-1)
			ended++
			held -= c.input + c.reply
			send(c, now)
		}
	}
	return ttft / float64(l.requests), tpot / float64(l.requests)
}

var siliconModels = map[string]string{"Qwen/Qwen3-32B": "qwen3-32b", "openai/gpt-oss-120b": "gpt-oss-120b"}

// The loop by hand: one client, and two that send at one instant.
func TestClosedLoop(t *testing.T) {
	s, k := preset(t, "qwen3-32b", "h100", cost.Options{Engine: cost.VLLM, TP: 2})
	step := func(b cost.Batch) float64 { return float64(k.Step(&b)) }
	host := float64(k.Overheads().Request + 1000*k.Overheads().PromptToken)
	whole := cost.Span{N: 1000, Last: true}
	first := step(cost.Batch{Prefill: []cost.Span{whole}})
	second, third := step(*decodes(s, 1, 1001)), step(*decodes(s, 1, 1002))
	one := loop{kernel: k, clients: 1, requests: 3, input: 1000, reply: 3, budget: 8192, pool: 1 << 30}
	ttft, tpot := one.run()
	if want := host + first; math.Abs(ttft-want) > 10 {
		t.Errorf("one client: got a TTFT of %v ns, want %v", ttft, want)
	}
	if want := (second + third) / 2; math.Abs(tpot-want) > 10 {
		t.Errorf("one client: got a TPOT of %v ns, want %v", tpot, want)
	}
	// The second prompt is taken in a millisecond behind the first, and so finds the first step begun. A step mixes its prefill with
	// the first's decode, or comes before it.
	for _, prefillFirst := range []bool{true, false} {
		two := loop{kernel: k, clients: 2, requests: 2, input: 1000, reply: 2, budget: 8192, pool: 1 << 30, prefillFirst: prefillFirst}
		mixed := cost.Batch{Prefill: []cost.Span{whole}, Decodes: 1, Context: 1001, Recent: 128}
		rest := (step(mixed) + step(*decodes(s, 1, 1001))) / 2
		if prefillFirst {
			mixed = cost.Batch{Prefill: []cost.Span{whole}}
			rest = (step(mixed) + 2*step(cost.Batch{Decodes: 2, Context: 2002, Recent: 256})) / 2
		}
		ttft, tpot := two.run()
		if want := host + (first+first+step(mixed))/2; math.Abs(ttft-want) > 10 {
			t.Errorf("two clients, prefill first %v: got a TTFT of %v ns, want %v", prefillFirst, ttft, want)
		}
		if math.Abs(tpot-rest) > 10 {
			t.Errorf("two clients, prefill first %v: got a TPOT of %v ns, want %v", prefillFirst, tpot, rest)
		}
	}
	// A pool for one: the second waits until the first has ended.
	tight := loop{kernel: k, clients: 2, requests: 2, input: 1000, reply: 2, budget: 8192, pool: 1500}
	ttft, _ = tight.run()
	if want := host + (first+first+step(*decodes(s, 1, 1001))+first)/2; math.Abs(ttft-want) > 10 {
		t.Errorf("a pool for one: got a TTFT of %v ns, want %v", ttft, want)
	}
}

// TestSilicon prints how far TTFT and TPOT are from measured ones, and holds the medians. Nothing is fitted to them: kernels come
// from tables of their own, overheads from what is assumed of hosts.
//
// What is known of the runs: InferenceX sends ten requests a client, all at once at first, of lengths from .8 to 1 of those it names,
// to a vLLM with a budget of 8,192 tokens and Marlin's kernels. Of the others only clients and lengths are known; they are taken
// alike, with full lengths. As their budget matters most where a step would take many prompts, vLLM's are run once more with the one
// that aiconfigurator's own rule for benchmarks gives (rule_plugin/benchmark/vllm.rule): clients + input + 1,500.
func TestSilicon(t *testing.T) {
	path := filepath.Join("..", "..", "..", "..", "shared", "data", "silicon", "measured_points.csv")
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
	type row struct {
		keys       []string
		ttft, tpot float64 // error, signed
	}
	var rows []row
	for _, line := range lines[1:] {
		get := func(name string) string { return line[column[name]] }
		number := func(name string) int { n, _ := strconv.Atoi(get(name)); return n }
		engine := cost.Engine(get("backend"))
		if get("mode") != "agg" || engine != cost.VLLM && engine != cost.SGLang {
			continue
		}
		s, ok := model.ByName(siliconModels[get("model_path")])
		if !ok {
			t.Fatalf("no model %q", get("model_path"))
		}
		if get("gemm_quant_mode") == "fp8" {
			s.Weights.Linear = model.FP8
		}
		g, _ := gpu.ByName(strings.ReplaceAll(get("system"), "_", "-"))
		tp := number("tp_size")
		k, err := cost.New(s, g, cost.Options{Engine: engine, TP: tp})
		if err != nil {
			t.Fatal(err)
		}
		clients := number("batch_size")
		m, fraction := k.Memory(), .88
		if engine == cost.VLLM {
			fraction = .9
		}
		pool := int(fraction*float64(k.GPU().Memory)-float64(m.Weights+m.Reserve)) / int(m.FullBytes+m.WindowBytes)
		l := loop{kernel: k, pool: pool, clients: clients, requests: 10 * clients, input: number("isl"), reply: number("osl"), budget: 8192,
			prefillFirst: engine == cost.SGLang}
		if strings.Contains(get("silicon_data_source"), "GPT-OSS") {
			l.spread = .2  // InferenceX draws lengths from .8 to 1 of those that it names
			l.ahead = true // vLLM schedules asynchronously by default since 0.14
		}
		runs := []string{""}
		if engine == cost.VLLM && l.spread == 0 {
			runs = append(runs, "by rule: ")
		}
		wantTTFT, _ := strconv.ParseFloat(get("silicon_ttft_ms"), 64)
		wantTPOT, _ := strconv.ParseFloat(get("silicon_tpot_ms"), 64)
		for _, run := range runs {
			if run != "" {
				l.budget = clients + l.input + 1500
			}
			ttft, tpot := l.run()
			r := row{nil, ttft/1e6/wantTTFT - 1, tpot/1e6/wantTPOT - 1}
			for _, key := range []string{"all", "input " + get("isl"), string(engine), string(engine) + " " + s.Name, string(engine) + " tp " + get("tp_size"),
				string(engine) + " input " + get("isl"), fmt.Sprintf("%s %s clients %d", engine, s.Name, clients)} {
				r.keys = append(r.keys, run+key)
			}
			rows = append(rows, r)
			t.Logf("%-8s %-7s %-13s %-9s tp%d %5d/%-5d c%-4d TTFT %8.1f measured %8.1f %+6.0f %%   TPOT %7.2f measured %7.2f %+6.0f %%", run, engine, s.Name,
				g.Name, tp, l.input, l.reply, clients, ttft/1e6, wantTTFT, 100*r.ttft, tpot/1e6, wantTPOT, 100*r.tpot)
		}
	}
	groups := map[string][]row{}
	var names []string
	for _, r := range rows {
		for _, k := range r.keys {
			if groups[k] == nil {
				names = append(names, k)
			}
			groups[k] = append(groups[k], r)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		g := groups[n]
		var a, b, c, d []float64
		for _, r := range g {
			a, b = append(a, math.Abs(r.ttft)), append(b, r.ttft)
			c, d = append(c, math.Abs(r.tpot)), append(d, r.tpot)
		}
		t.Logf("%-36s %4d rows  TTFT median %4.0f %% P90 %4.0f %% signed %+4.0f %%   TPOT median %4.0f %% P90 %4.0f %% signed %+4.0f %%", n, len(g),
			100*rank(a, .5), 100*rank(a, .9), 100*rank(b, .5), 100*rank(c, .5), 100*rank(c, .9), 100*rank(d, .5))
		if n == "all" && (len(g) != 252 || rank(a, .5) > .35 || rank(c, .5) > .25) {
			t.Errorf("%d rows: median error of TTFT %.2f and of TPOT %.2f, want at most .35 and .25 of 252", len(g), rank(a, .5), rank(c, .5))
		}
	}
}

func rank(v []float64, p float64) float64 {
	slices.Sort(v)
	return v[int(p*float64(len(v)-1))]
}
