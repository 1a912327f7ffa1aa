package engine

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"kneefinder/simulation/engine/kv"
)

// BenchmarkDecode is one decode step of 30 running requests of 18,000 tokens.
func BenchmarkDecode(b *testing.B) {
	c := preset(b, "gemma-4-12b", "h100")
	c.Recipe.KVTokens, c.Recipe.KVScheme = 1<<30, kv.Ideal // a pool that never fills
	e, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 30 {
		prompt := make([]Token, 18000)
		for n := range prompt {
			prompt[n] = Token(i*18000 + n)
		}
		// More tokens than the benchmark takes, in a pool that never fills.
		e.Submit(0, Request{ID: uint64(i), Call: i, Prompt: prompt, MaxTokens: 200_000})
	}
	for e.Stats().DecodeSteps == 0 {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		next, _ := e.Next()
		e.AdvanceTo(next, nil)
		for _, r := range e.running {
			r.generated = 1 // for ever
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*30), "ns/token")
}

// conversations drives an engine with calls of four turns, a gap of six seconds between them, without a generator.
type conversations struct {
	due  turns
	open map[uint64]turn // by request
}

type turn struct {
	at     time.Duration
	call   int
	number int
	prompt []Token
}

func (c *conversations) Admitted(uint64, time.Duration, int) {}
func (c *conversations) Tokens(uint64, time.Duration, int)   {}

// Finished makes the next turn due: what was said, the reply, 40 words more.
func (c *conversations) Finished(id uint64, at time.Duration, _ Finish) {
	t := c.open[id]
	delete(c.open, id)
	if t.number == 4 {
		return
	}
	seed := ReplySeed(t.prompt)
	for n := range replyLength(t.number) {
		t.prompt = append(t.prompt, ReplyToken(seed, n))
	}
	for n := range 40 {
		t.prompt = append(t.prompt, Token(1<<30+t.call*1000+n))
	}
	t.number++
	t.at = at + 6*time.Second
	heap.Push(&c.due, t)
}

func replyLength(turn int) int {
	if turn == 1 {
		return 1
	}
	return 100
}

// simulate plays that many calls, one every so often.
func simulate(e *Engine, calls int, every time.Duration, words []Token) {
	c := &conversations{open: map[uint64]turn{}}
	for call := range calls {
		c.due = append(c.due, turn{at: time.Duration(call) * every, call: call, number: 1}) // a heap already
	}
	for id := uint64(0); ; {
		next, busy := e.Next()
		if len(c.due) > 0 && (!busy || c.due[0].at <= next) {
			t := heap.Pop(&c.due).(turn)
			if t.prompt == nil { // a nonce in front, the same words behind
				t.prompt = append(append(make([]Token, 0, len(words)+600), bos, Token(t.call+1000)), words...)
			}
			e.Submit(t.at, Request{ID: id, Call: t.call, Turn: t.number, Prompt: t.prompt, MaxTokens: replyLength(t.number)})
			c.open[id] = t
			id++
			continue
		}
		if !busy {
			return
		}
		e.AdvanceTo(next, c)
	}
}

type turns []turn

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].call < t[j].call
}
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(x any)   { *t = append(*t, x.(turn)) }
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// BenchmarkConversations simulates 500 calls, 2,000 requests of which three in four are warm. The prompts are the driver's:
// they are most of the bytes allocated.
func BenchmarkConversations(b *testing.B) { benchmarkConversations(b, 2500*time.Millisecond) }

// BenchmarkOverload is the same with twice the calls that the GPU can prefill: a long queue, and the cache full.
func BenchmarkOverload(b *testing.B) { benchmarkConversations(b, 300*time.Millisecond) }

func benchmarkConversations(b *testing.B, every time.Duration) {
	words := make([]Token, 18000)
	for i := range words {
		words[i] = WordToken(ReplyWord(1, i))
	}
	var s Stats
	b.ReportAllocs()
	for b.Loop() {
		c := preset(b, "gemma-4-12b", "h100")
		c.Recipe.KVScheme = kv.Ideal // room for all that are live
		e, err := New(c)
		if err != nil {
			b.Fatal(err)
		}
		simulate(e, 500, every, words)
		s = e.Stats()
	}
	b.ReportMetric(s.CacheHitRate(), "hitrate")
	b.ReportMetric(float64(s.MaxRunningSeen), "running")
	b.ReportMetric(float64(s.FinishedLength), "requests")
}

// BenchmarkPoisson is 10,000 requests of 512 tokens with 512 to generate, 4 a second, nothing shared.
func BenchmarkPoisson(b *testing.B) {
	c := preset(b, "qwen3-14b", "h100")
	c.Recipe.Kind = VLLM
	const requests = 10_000
	b.ReportAllocs()
	for b.Loop() {
		e, err := New(c)
		if err != nil {
			b.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 1))
		at := time.Duration(0)
		told := &burstCounter{}
		for id := range uint64(requests) {
			at += time.Duration(random.ExpFloat64() * float64(250*time.Millisecond))
			e.AdvanceTo(at, told)
			prompt := make([]Token, 512)
			for i := range prompt {
				prompt[i] = Token(mix(id<<10 | uint64(i)))
			}
			e.Submit(at, Request{ID: id, Call: int(id), Prompt: prompt, MaxTokens: 512})
		}
		for at, ok := e.Quiet(); ok; at, ok = e.Quiet() {
			e.AdvanceTo(at, told)
		}
		if told.tokens != requests*512 {
			b.Fatalf("%d tokens were told", told.tokens)
		}
		s := e.Stats()
		b.ReportMetric(float64(s.MaxRunningSeen), "running")
		b.ReportMetric(float64(s.DecodeSteps), "steps")
	}
	b.ReportMetric(float64(b.N)*requests/b.Elapsed().Seconds(), "requests/s")
}

// burstCounter counts tokens, also those of bursts.
type burstCounter struct{ counter }

func (c *burstCounter) Finished(uint64, time.Duration, Finish) {}
func (c *burstCounter) Burst(ids []uint64, ats []time.Duration) {
	c.tokens += len(ids) * len(ats)
}
