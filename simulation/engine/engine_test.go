package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/kv"
	"kneefinder/simulation/engine/model"
)

// Example drives an engine from one event to the next: a cold turn, and the same conversation continued.
func Example() {
	m, _ := model.ByName("gemma-4-12b")
	g, _ := gpu.ByName("l40s")
	e, err := New(Config{Model: m, GPU: g})
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt := AppendBOS(nil)
	prompt = AppendText(AppendOpen(prompt, "system"), strings.Repeat("be brief and kind ", 4500))
	prompt = AppendOpen(AppendText(AppendOpen(AppendClose(prompt), "user"), "hello"), "assistant")
	e.Submit(0, Request{ID: 1, Call: 1, Turn: 1, Prompt: prompt, MaxTokens: 1})

	prompt = append(prompt, ReplyToken(ReplySeed(prompt), 0))
	prompt = AppendOpen(AppendText(AppendOpen(AppendClose(prompt), "user"), "which day is it"), "assistant")
	e.Submit(5*time.Second, Request{ID: 2, Call: 1, Turn: 2, Prompt: prompt, MaxTokens: 100})

	for at, ok := e.Next(); ok; at, ok = e.Next() {
		e.AdvanceTo(at, exampleSink{})
	}
	// Output:
	// 1 in at 21ms, 0 cached
	// 1 out at 2332ms: length, 1 tokens
	// 2 in at 5021ms, 18013 cached
	// 2 out at 8532ms: length, 100 tokens
}

type exampleSink struct{}

func (exampleSink) Admitted(id uint64, at time.Duration, cached int) {
	fmt.Printf("%d in at %dms, %d cached\n", id, at.Round(time.Millisecond).Milliseconds(), cached)
}
func (exampleSink) Tokens(id uint64, at time.Duration, n int) {}
func (exampleSink) Finished(id uint64, at time.Duration, f Finish) {
	fmt.Printf("%d out at %dms: %s, %d tokens\n", id, at.Round(time.Millisecond).Milliseconds(), f.Reason, f.CompletionTokens)
}

// trace writes down everything it is told.
type trace struct {
	lines  []string
	tokens map[uint64]int
	ends   map[uint64][]Finish
}

func newTrace() *trace { return &trace{tokens: map[uint64]int{}, ends: map[uint64][]Finish{}} }

func (s *trace) Admitted(id uint64, at time.Duration, cached int) {
	s.lines = append(s.lines, fmt.Sprintf("%d admitted %d cached %d", at, id, cached))
}
func (s *trace) Tokens(id uint64, at time.Duration, n int) {
	s.lines = append(s.lines, fmt.Sprintf("%d tokens %d %d", at, id, n))
	s.tokens[id] += n
}
func (s *trace) Finished(id uint64, at time.Duration, f Finish) {
	s.lines = append(s.lines, fmt.Sprintf("%d finished %d %+v", at, id, f))
	s.ends[id] = append(s.ends[id], f)
}

// input is something a driver does at an instant.
type input struct {
	at      time.Duration
	abort   bool
	request Request // or, to abort, its ID
}

func (in input) apply(e *Engine) {
	if in.abort {
		e.Abort(in.at, in.request.ID)
	} else {
		e.Submit(in.at, in.request)
	}
}

// drawConfig draws a small engine, so that everything that can happen does.
func drawConfig(t *rapid.T, base Config) Config {
	model := base.Model
	pool := rapid.IntRange(200, 800).Draw(t, "pool")
	if model.WindowTokens > 0 {
		model.WindowTokens = rapid.IntRange(1, 30).Draw(t, "window") // each of its tokens takes as much as 20 others
		pool += rapid.IntRange(0, 4000).Draw(t, "more pool")
	}
	kind := rapid.SampledFrom([]Kind{SGLang, VLLM}).Draw(t, "kind")
	scheme := rapid.SampledFrom(kv.Schemes()).Draw(t, "scheme")
	page, ratio := 1, 0.
	if scheme == kv.VLLM || scheme == kv.VLLMOld || rapid.IntRange(0, 3).Draw(t, "paged") == 0 {
		page = rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "page")
	}
	if scheme == kv.SGLang {
		ratio = rapid.Float64Range(.1, 1).Draw(t, "ratio")
	}
	host := int64(0)
	if rapid.IntRange(0, 3).Draw(t, "host") == 0 {
		host = 1 << rapid.IntRange(20, 26).Draw(t, "host bytes")
	}
	running := rapid.IntRange(1, 8).Draw(t, "running")
	eviction := kv.LRU
	if scheme != kv.VLLM && scheme != kv.VLLMOld {
		eviction = rapid.SampledFrom([]kv.Eviction{kv.LRU, kv.LFU, kv.FIFO, kv.MRU, kv.FILO}).Draw(t, "eviction")
	}
	var speculate Speculate
	if rapid.IntRange(0, 3).Draw(t, "speculates") == 0 {
		speculate = Speculate{Tokens: rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "drafted"),
			Acceptance: rapid.SampledFrom([]float64{0, .5, .9, 1}).Draw(t, "acceptance"), DraftCost: .1}
	}
	chunk := rapid.IntRange(10, 300).Draw(t, "chunk")
	if rapid.IntRange(0, 7).Draw(t, "whole prompts") == 0 {
		chunk = -1
	}
	c := Config{Model: model, GPU: base.GPU, Recipe: Recipe{
		Speculate: speculate, Eviction: eviction,
		NoPrefix: rapid.IntRange(0, 7).Draw(t, "no prefix") == 0, LongPrefill: rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "long"),
		MaxPrefillRequests: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "prompts a step"), MaxPrefillTokens: rapid.SampledFrom([]int{0, 0, 5, 100}).Draw(t, "prefill tokens"),
		Kind: kind, KVScheme: scheme, PageTokens: page, WindowRatio: ratio, HostBytes: host, SyncScheduling: rapid.Bool().Draw(t, "sync"), BatchedTokens: rapid.IntRange(running, 300).Draw(t, "budget"), MixedChunk: rapid.Bool().Draw(t, "mixed"),
		Order:          rapid.SampledFrom([]Order{FCFS, LongestPrefix, Priority}).Draw(t, "order"),
		ChunkedPrefill: chunk,
		MaxRunning:     running,
		KVTokens:       pool,
		ContextLimit:   rapid.IntRange(300, 1000).Draw(t, "context"),
	}}
	if c.Validate() != nil { // no two pages fit the window's pool
		c.Recipe.PageTokens = 1
	}
	return c
}

// drawRequest draws a prompt that shares a prefix with others: a few families, each a sequence that grows.
func drawRequest(t *rapid.T, id uint64, earlier []input) Request {
	r := Request{
		ID: id, Call: rapid.IntRange(0, 5).Draw(t, "call"), Turn: rapid.IntRange(1, 3).Draw(t, "turn"),
		MaxTokens: rapid.IntRange(0, 120).Draw(t, "max"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		Handoff: rapid.IntRange(0, 9).Draw(t, "handoff") == 0,
	}
	family := rapid.IntRange(0, 3).Draw(t, "family")
	for i := range rapid.IntRange(0, 250).Draw(t, "shared") {
		r.Prompt = append(r.Prompt, Token(1000*family+i))
	}
	if len(earlier) > 0 && rapid.Bool().Draw(t, "continues") {
		before := earlier[rapid.IntRange(0, len(earlier)-1).Draw(t, "earlier")].request
		r.Prompt = appendReply(before.Prompt, before.Prompt, min(before.MaxTokens, 50))
	}
	for i := range rapid.IntRange(0, 30).Draw(t, "own") {
		r.Prompt = append(r.Prompt, Token(100_000+1000*int(id)+i))
	}
	return r
}

// However a driver slices time, and on whichever side of AdvanceTo it submits what comes at that very instant, the same
// happens at the same instants. Meanwhile nothing that is counted is miscounted, and in the end all is told and all is free.
func TestTimeSlicesDoNotMatter(t *testing.T) {
	for _, names := range [][2]string{{"demo", "demo"}, {"gemma-4-12b", "l40s"}} {
		base := preset(t, names[0], names[1])
		t.Run(names[0], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				config := drawConfig(t, base)
				e := mustNew(t, config)
				var inputs []input
				told := newTrace()
				var now time.Duration
				for id := range uint64(rapid.IntRange(1, 25).Draw(t, "inputs")) {
					// The next input comes with what the engine does next, or some time after.
					for range rapid.IntRange(0, 6).Draw(t, "events") {
						if next, ok := e.Next(); ok {
							now = next
							e.AdvanceTo(now, told)
							e.mustCheck(t)
						}
					}
					at := now
					if next, ok := e.Next(); ok && rapid.Bool().Draw(t, "coincides") {
						at = next
					} else if rapid.Bool().Draw(t, "later") {
						at += time.Duration(rapid.IntRange(0, 30).Draw(t, "ms")) * time.Millisecond
					}
					in := input{at: at}
					if len(inputs) > 0 && rapid.IntRange(0, 4).Draw(t, "abort") == 0 {
						in.abort, in.request.ID = true, uint64(rapid.IntRange(0, int(id)).Draw(t, "id"))
					} else {
						in.request = drawRequest(t, id, inputs)
					}
					in.apply(e) // before AdvanceTo of its instant
					inputs, now = append(inputs, in), at
					for next, ok := e.Next(); ok && next < at; next, ok = e.Next() {
						e.AdvanceTo(next, told)
					}
				}
				for next, ok := e.Next(); ok; next, ok = e.Next() {
					e.AdvanceTo(next, told)
					e.mustCheck(t)
				}
				mustBeComplete(t, e, inputs, told)
				want := append(told.lines, fmt.Sprintf("%+v", e.Stats()))

				mustEqual(t, "inputs after AdvanceTo of their instants", want, replay(t, config, func(e *Engine, s Sink) {
					for _, in := range inputs {
						e.AdvanceTo(in.at, s)
						in.apply(e)
					}
				}))
				mustEqual(t, "inputs before AdvanceTo of their instants", want, replay(t, config, func(e *Engine, s Sink) {
					for _, in := range inputs {
						in.apply(e)
						e.AdvanceTo(in.at, s)
					}
				}))
				mustEqual(t, "everything known from the start", want, replay(t, config, func(e *Engine, s Sink) {
					for _, in := range inputs {
						in.apply(e)
					}
				}))
				mustEqual(t, "step by step", want, replay(t, config, func(e *Engine, s Sink) {
					e.stepwise = true
					for _, in := range inputs {
						in.apply(e)
					}
				}))
				mustEqual(t, "bursts", want, replay(t, config, func(e *Engine, s Sink) {
					for _, in := range inputs {
						in.apply(e)
					}
					e.AdvanceTo(time.Hour, bursts{s})
				}))
				mustEqual(t, "from one quiet instant to the next", want, replay(t, config, func(e *Engine, s Sink) {
					for _, in := range inputs {
						for at, ok := e.Quiet(); ok && at < in.at; at, ok = e.Quiet() {
							e.AdvanceTo(at, s)
						}
						in.apply(e)
					}
				}))
				mustEqual(t, "a timer that fires late and often", want, replay(t, config, func(e *Engine, s Sink) {
					last := time.Duration(0)
					for _, in := range inputs {
						for at := last; at < in.at; at += 7 * time.Millisecond {
							e.AdvanceTo(at, s)
						}
						in.apply(e)
						last = in.at
					}
				}))
			})
		})
	}
}

// bursts tells a sink of bursts as its documentation says what they stand for.
type bursts struct{ Sink }

func (b bursts) Burst(ids []uint64, ats []time.Duration) {
	for _, at := range ats {
		for _, id := range ids {
			b.Tokens(id, at, 1)
		}
	}
}

func mustNew(t rapid.TB, c Config) *Engine {
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// replay returns all that an engine tells and, last, its statistics.
func replay(t *rapid.T, c Config, drive func(*Engine, Sink)) []string {
	e, told := mustNew(t, c), newTrace()
	drive(e, told)
	e.AdvanceTo(time.Hour, told)
	return append(told.lines, fmt.Sprintf("%+v", e.Stats()))
}

func mustEqual(t *rapid.T, what string, want, got []string) {
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Fatalf("%s: event %d: got %q, want %q", what, i, g, w)
		}
	}
}

// mustBeComplete: every request ended, once, with the tokens it was told of; and only the cache holds memory.
func mustBeComplete(t *rapid.T, e *Engine, inputs []input, told *trace) {
	all := 0
	for _, in := range inputs {
		if in.abort {
			continue
		}
		id := in.request.ID
		tokens, ends := told.tokens[id], told.ends[id]
		all += tokens
		if len(ends) != 1 {
			t.Fatalf("request %d finished %d times", id, len(ends))
		}
		if in.request.Handoff {
			tokens++ // told elsewhere
		}
		if ends[0].CompletionTokens != tokens {
			t.Fatalf("request %d was told %d tokens, but %+v", id, tokens, ends[0])
		}
		if ends[0].Reason == Length && tokens != in.request.MaxTokens {
			t.Fatalf("request %d ended with %d tokens of %d", id, tokens, in.request.MaxTokens)
		}
	}
	s := e.Stats()
	if s.Running != 0 || s.Waiting != 0 || s.KVUsedBytes != 0 || s.WindowUsedTokens != 0 || e.aborts != 0 {
		t.Fatalf("when all have ended: %+v, aborts %d", s, e.aborts)
	}
	if s.CachedTokens > s.PromptTokens || s.GeneratedTokens != all {
		t.Fatalf("told %d tokens: %+v", all, s)
	}
	if s.Retractions == 0 && s.CachedTokens+s.ComputedTokens > s.PromptTokens {
		t.Fatalf("more cached and computed than prompt tokens, and nothing was retracted: %+v", s)
	}
}

// More tokens than an int can add to the prompt's are refused like any other that do not fit.
func TestRefusesWhatDoesNotAddUp(t *testing.T) {
	for _, kind := range []Kind{SGLang, VLLM} {
		c := preset(t, "demo", "demo")
		c.Recipe.Kind, c.Recipe.KVTokens = kind, 1000
		e, told := mustNew(t, c), newTrace()
		e.Submit(0, Request{ID: 1, Prompt: make([]Token, 10), MaxTokens: math.MaxInt})
		e.AdvanceTo(time.Second, told)
		if ends := told.ends[1]; len(ends) != 1 || ends[0].Reason != Refused || !strings.Contains(ends[0].Detail, "exceed the context limit") {
			t.Errorf("%s: got %+v", kind, ends)
		}
	}
}

// mustCheck looks at what must hold between two events.
func (e *Engine) mustCheck(t rapid.TB) {
	f := e.store.Figures()
	if free := f.PoolBytes - f.UsedBytes - f.CachedBytes; free < 0 || f.UsedBytes < 0 || f.CachedBytes < 0 {
		t.Fatalf("of %d bytes %d are used and %d cached", f.PoolBytes, f.UsedBytes, f.CachedBytes)
	}
	if len(e.running) > e.config.Recipe.MaxRunning {
		t.Fatalf("%d requests run, at most %d may", len(e.running), e.config.Recipe.MaxRunning)
	}
	for _, r := range e.running {
		if r.held.Len() < r.held.Committed() || r.held.Len() > len(r.Prompt)+r.MaxTokens {
			t.Fatalf("request %d holds %d tokens, of which %d are committed; it has %d and writes %d", r.ID, r.held.Len(), r.held.Committed(),
				len(r.Prompt), r.MaxTokens)
		}
	}
}

// How many calls of 18,420 tokens stay warm, by filling an engine and coming back to each; one more, and each evicts the next.
func TestWarmCalls(t *testing.T) {
	const length = 18420
	for _, row := range []struct {
		model, gpu string
		kind       Kind
		scheme     kv.Scheme // empty: the kind's
		want       int
	}{
		{"gemma-3-12b", "l40s", SGLang, kv.Ideal, 11},
		{"gemma-3-12b", "h100", SGLang, kv.Ideal, 32},
		{"gemma-4-12b", "l40s", SGLang, kv.Ideal, 26},
		{"gemma-4-12b", "h100", SGLang, kv.Ideal, 77},
		{"gemma-3-12b", "l40s", SGLang, "", 2}, // SGLang has no memory of windows for it
		{"gemma-3-12b", "h100", SGLang, "", 6},
		{"gemma-4-12b", "l40s", SGLang, "", 3}, // a pool of windows that few need
		{"gemma-4-12b", "h100", SGLang, "", 9},
		{"gemma-3-12b", "l40s", VLLM, "", 10}, // a step holds all that it writes in the layers with a window, and two are under way
		{"gemma-3-12b", "h100", VLLM, "", 30},
		{"gemma-4-12b", "l40s", VLLM, "", 25},
		{"gemma-4-12b", "h100", VLLM, "", 72},
	} {
		c := preset(t, row.model, row.gpu)
		c.Recipe.Kind, c.Recipe.KVScheme = row.kind, row.scheme
		if got := warmCalls(t, c, row.want, length); got != row.want {
			t.Errorf("%s on %s, %s %s: %d of %d calls stay warm", row.model, row.gpu, row.kind, row.scheme, got, row.want)
		}
		if got := warmCalls(t, c, row.want+1, length); got > row.want/2 {
			t.Errorf("%s on %s, %s %s: %d of %d calls stay warm, want next to none", row.model, row.gpu, row.kind, row.scheme, got, row.want+1)
		}
	}
}

// warmCalls sends first turns of that many calls, one after the other, then second turns, and counts hits.
func warmCalls(t *testing.T, c Config, calls, length int) (hits int) {
	e := mustNew(t, c)
	at, id := time.Duration(0), uint64(0)
	send := func(prompt []Token) int {
		at, id = at+time.Minute, id+1
		e.Submit(at, Request{ID: id, Prompt: prompt, MaxTokens: 1})
		before := e.Stats().CachedTokens
		e.AdvanceTo(at+time.Minute-1, nil)
		return e.Stats().CachedTokens - before
	}
	prompts := make([][]Token, calls)
	for i := range prompts {
		for n := range length {
			prompts[i] = append(prompts[i], Token(i*length+n))
		}
		send(prompts[i])
	}
	for _, prompt := range prompts {
		if cached := send(append(prompt, 1, 2, 3)); cached > length-2*64 { // whole pages
			hits++
		}
	}
	return hits
}

func TestDemoHasRoomForAbout40000Tokens(t *testing.T) {
	s := mustNew(t, preset(t, "demo", "demo")).Stats()
	if s.KVPoolTokens < 38_000 || s.KVPoolTokens > 43_000 {
		t.Errorf("got %d tokens, want 38,000 to 43,000", s.KVPoolTokens)
	}
}

func TestValidateNamesFieldValueAndRule(t *testing.T) {
	for _, row := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) {}, ""},
		{func(c *Config) { c.Recipe.ChunkedPrefill = -1 }, ""},
		{func(c *Config) { c.Recipe.ChunkedPrefill = -2 },
			"recipe: chunked_prefill is -2, must be at least 1, 0 for the default, or -1 for prompts in one piece"},
		{func(c *Config) { c.Recipe.MaxRunning = -2 }, "recipe: max_running is -2, must be at least 1, or 0 for the default"},
		{func(c *Config) { c.Recipe.MemFraction = 1.2 }, "recipe: mem_fraction is 1.2, must be between 0 and 1"},
		{func(c *Config) { c.Recipe.KVTokens = -5 }, "recipe: kv_tokens is -5, must be at least 2, or 0 for what memory leaves"},
		{func(c *Config) { c.Recipe.ContextLimit = 1 << 20 },
			"recipe: context_limit is 1048576, must be at most the 262144 of gemma-4-12b"},
		{func(c *Config) { c.Recipe.MemFraction = .5 },
			"recipe does not fit: gemma-4-12b needs 23.8 GB for weights and 2.0 GB for activations on the GPU, " +
				"mem_fraction 0.50 of l40s gives 24.2 GB, 1.7 GB too little"},
		{func(c *Config) { c.Recipe.MemFraction, c.Recipe.KVTokens = .5, 1000 }, ""},
		{func(c *Config) { c.Model.Hidden = 0 }, "model gemma-4-12b: Hidden is 0: must be from 1 to 16777216"},
		{func(c *Config) { c.Model.WindowTokens = 0 },
			"model gemma-4-12b: WindowTokens is 0: must be from 1 to 16777216"},
		{func(c *Config) { c.Recipe.Kind = "tgi" }, `recipe: engine is "tgi", must be sglang or vllm`},
		{func(c *Config) { c.Recipe.Order = "sjf" }, `recipe: schedule_policy is "sjf", must be fcfs, lpm or priority`},
		{func(c *Config) { c.Recipe.Kind, c.Recipe.BatchedTokens = VLLM, 100 },
			"recipe: max_num_batched_tokens is 100, must be at least the 256 of max_running: each running request takes one a step"},
		{func(c *Config) { c.Recipe.TP = 3 }, "plan: tensor parallelism 3: must divide the 16 query heads of gemma-4-12b"},
		{func(c *Config) { c.Recipe.Speculate = Speculate{Tokens: 4, Acceptance: 1.5} },
			"recipe: speculation is {Tokens:4 Acceptance:1.5 DraftCost:0}, must have 0 to 64 tokens, an acceptance from 0 to 1 and a draft cost from 0 to 10"},
	} {
		c := preset(t, "gemma-4-12b", "l40s")
		row.change(&c)
		got := ""
		if _, err := New(c); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
}

// The estimate of what running requests will still write falls while they decode, rises with a retraction, and starts anew when
// all is done, whether or not the next request is known by then.
func TestNewTokenRatio(t *testing.T) {
	config := preset(t, "demo", "demo")
	config.Recipe.KVTokens = 2000
	submit := func(e *Engine, at time.Duration, id uint64, max int) {
		prompt := make([]Token, 100)
		for i := range prompt {
			prompt[i] = Token(1000*int(id) + i)
		}
		e.Submit(at, Request{ID: id, Prompt: prompt, MaxTokens: max})
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	e := mustNew(t, config)
	submit(e, 0, 1, 1000)
	for e.Stats().DecodeSteps < 60 {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
	}
	near("after a tenth of the steps", e.ratio, .7-.1*(.7-.098))

	at, _ := e.Next()
	submit(e, at, 2, 1000)
	for e.Stats().Retractions == 0 {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
	}
	left := e.running[0].generated
	near("after a retraction", e.ratio, float64(left+20)/1000)

	for e.Stats().FinishedLength < 2 {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
	}
	near("when all is done", e.ratio, .7)

	submit(e, time.Minute, 3, 700)
	for e.Stats().DecodeSteps < 2500 && len(e.running) != 1 {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
	}
	for len(e.running) > 0 {
		at, _ = e.Next()
		if e.running[0].generated == 699 {
			submit(e, at, 4, 1) // comes as the last token does
		}
		e.AdvanceTo(at, nil)
	}
	near("when the next one waits already", e.ratio, .7)
}

func TestSameIDTwicePanics(t *testing.T) {
	e := mustNew(t, preset(t, "demo", "demo"))
	e.Submit(0, Request{ID: 7, Prompt: []Token{1}, MaxTokens: 1})
	defer func() {
		if recover() == nil {
			t.Error("got no panic")
		}
	}()
	e.Submit(1, Request{ID: 7, Prompt: []Token{1}, MaxTokens: 1})
}
