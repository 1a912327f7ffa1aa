package engine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/simulation/engine/kv"
	"kneefinder/simulation/internal/scenario"
)

// TestScenarios runs testdata/*.txt: commands, a line "----", what they print. The commands are
//
//	engine [kind=] [model=] [gpu=] [chunk=] [pool=] ...             a new engine
//	submit AT ID max=N [priority=N] [handoff] PART...               a PART is name*length, words of its own; id+ is prompt and reply of
//	                                                                an earlier request
//	abort AT ID
//	advance AT                      prints what the sink is told
//	run                             advances until nothing happens
//	steps                           the same, and prints each step and what it computes instead
//	stats NAME...                   prints some of Stats
//	flush
func TestScenarios(t *testing.T) {
	scenario.Run(t, func(t *testing.T) scenario.Player {
		p := &player{t: t, prompts: map[string][]Token{}}
		return func(command []string, out *strings.Builder) {
			p.out = out
			p.play(command)
		}
	})
}

type player struct {
	t       *testing.T
	e       *Engine
	prompts map[string][]Token // by id
	out     *strings.Builder
}

func (p *player) play(words []string) {
	args := words[1:]
	switch words[0] {
	case "engine":
		p.engine(args)
	case "submit":
		id, max := number(p.t, args[1]), number(p.t, strings.TrimPrefix(args[2], "max="))
		parts, priority, handoff := args[3:], 0, false
		for len(parts) > 0 {
			if value, ok := strings.CutPrefix(parts[0], "priority="); ok {
				priority = number(p.t, value)
			} else if parts[0] == "handoff" {
				handoff = true
			} else {
				break
			}
			parts = parts[1:]
		}
		prompt := p.prompt(parts)
		p.prompts[args[1]] = appendReply(prompt, prompt, max)
		p.e.Submit(instant(p.t, args[0]), Request{ID: uint64(id), Call: id, Prompt: prompt, MaxTokens: max, Priority: priority, Handoff: handoff})
	case "abort":
		p.e.Abort(instant(p.t, args[0]), uint64(number(p.t, args[1])))
	case "advance":
		p.e.AdvanceTo(instant(p.t, args[0]), &printer{out: p.out})
	case "run":
		sink := &printer{out: p.out}
		for at, ok := p.e.Next(); ok; at, ok = p.e.Next() {
			p.e.AdvanceTo(at, sink)
		}
	case "steps":
		for at, ok := p.e.Next(); ok; at, ok = p.e.Next() {
			p.e.AdvanceTo(at, stepPrinter{out: p.out})
		}
	case "stats":
		p.stats(args)
	case "flush":
		fmt.Fprintln(p.out, p.e.FlushCache())
	default:
		p.t.Fatalf("unknown command %q", words)
	}
}

func (p *player) engine(args []string) {
	c := preset(p.t, "demo", "demo")
	c.GPU.Bandwidth, c.GPU.BF16 = 550e9, 66e12 // slower than the preset: instants are easier to tell apart
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "model":
			c.Model = preset(p.t, value, "demo").Model
		case "gpu":
			c.GPU = preset(p.t, "demo", value).GPU
		case "chunk":
			c.Recipe.ChunkedPrefill = number(p.t, value)
		case "running":
			c.Recipe.MaxRunning = number(p.t, value)
		case "kind":
			c.Recipe.Kind = Kind(value)
		case "budget":
			c.Recipe.BatchedTokens = number(p.t, value)
		case "pool":
			c.Recipe.KVTokens = number(p.t, value)
		case "long":
			c.Recipe.LongPrefill = number(p.t, value)
		case "mixed":
			c.Recipe.MixedChunk = true
		case "sync":
			c.Recipe.SyncScheduling = true
		case "order":
			c.Recipe.Order = Order(value)
		case "scheme":
			c.Recipe.KVScheme = kv.Scheme(value)
		case "ratio":
			c.Recipe.WindowRatio = float64(number(p.t, value)) / 100
		case "page":
			c.Recipe.PageTokens = number(p.t, value)
		case "eviction":
			c.Recipe.Eviction = kv.Eviction(value)
		case "noprefix":
			c.Recipe.NoPrefix = true
		case "host":
			c.Recipe.HostBytes = int64(number(p.t, value)) * (c.Model.FullBytes() + c.Model.WindowBytes())
		case "draft":
			c.Recipe.Speculate = Speculate{Tokens: number(p.t, value), Acceptance: .7, DraftCost: .1}
		case "context":
			c.Recipe.ContextLimit = number(p.t, value)
		default:
			p.t.Fatalf("unknown option %q", arg)
		}
	}
	e, err := New(c)
	if err != nil {
		fmt.Fprintln(p.out, err)
		return
	}
	p.e = e
}

func (p *player) prompt(parts []string) (prompt []Token) {
	for _, part := range parts {
		if id, ok := strings.CutSuffix(part, "+"); ok {
			prompt = append(prompt, p.prompts[id]...)
			continue
		}
		name, length, _ := strings.Cut(part, "*")
		for i := range number(p.t, length) {
			prompt = append(prompt, WordToken(fmt.Sprint(name, i)))
		}
	}
	return prompt
}

// appendReply appends the n tokens that an engine generates for a prompt.
func appendReply(dst, prompt []Token, n int) []Token {
	dst = dst[:len(dst):len(dst)]
	for i := range n {
		dst = append(dst, ReplyToken(ReplySeed(prompt), i))
	}
	return dst
}

func (p *player) stats(names []string) {
	s := p.e.Stats()
	values := map[string]any{
		"running": s.Running, "waiting": s.Waiting, "used": s.KVUsedTokens, "cached": s.KVCachedTokens, "pool": s.KVPoolTokens,
		"prompt": s.PromptTokens, "hits": s.CachedTokens, "computed": s.ComputedTokens, "generated": s.GeneratedTokens,
		"evicted": s.EvictedTokens, "retractions": s.Retractions, "length": s.FinishedLength, "refused": s.FinishedRefused,
		"host": s.HostTokens, "hitrate": fmt.Sprintf("%.3f", s.CacheHitRate()), "usage": fmt.Sprintf("%.3f", s.Usage()), "aborted": s.FinishedAborted, "prefills": s.PrefillSteps, "decodes": s.DecodeSteps, "most": s.MaxRunningSeen,
		"prompts": s.PromptsStepped, "sequences": s.DecodesStepped, "mixed": s.MixedSteps, "batch": s.MaxBatch,
		"peak": fmt.Sprintf("%.3f", float64(s.KVPeakBytes)/float64(s.KVPoolBytes)),
	}
	for _, name := range names {
		v, ok := values[name]
		if !ok {
			p.t.Fatalf("unknown statistic %q", name)
		}
		fmt.Fprintf(p.out, "%s %v\n", name, v)
	}
}

// printer tells what a sink is told, a run of tokens of one request in one line.
type printer struct {
	out   *strings.Builder
	count map[uint64]int
}

func (p *printer) Admitted(id uint64, at time.Duration, cached int) {
	fmt.Fprintf(p.out, "%v %d admitted, %d cached\n", at.Round(time.Microsecond), id, cached)
}

func (p *printer) Tokens(id uint64, at time.Duration, n int) {
	if p.count == nil {
		p.count = map[uint64]int{}
	}
	if p.count[id] += n; p.count[id] == n {
		fmt.Fprintf(p.out, "%v %d first token\n", at.Round(time.Microsecond), id)
	}
}

func (p *printer) Finished(id uint64, at time.Duration, f Finish) {
	fmt.Fprintf(p.out, "%v %d %s: %d tokens, %d cached", at.Round(time.Microsecond), id, f.Reason, f.CompletionTokens, f.CachedTokens)
	if f.Detail != "" {
		fmt.Fprintf(p.out, "; %s", f.Detail)
	}
	fmt.Fprintln(p.out)
}

// stepPrinter tells of every step.
type stepPrinter struct{ out *strings.Builder }

func (stepPrinter) Admitted(uint64, time.Duration, int)    {}
func (stepPrinter) Tokens(uint64, time.Duration, int)      {}
func (stepPrinter) Finished(uint64, time.Duration, Finish) {}
func (stepPrinter) Retracted(uint64, time.Duration, int)   {}
func (stepPrinter) Rested(time.Duration, Stats)            {}

func (p stepPrinter) Stepped(s Step) {
	fmt.Fprintf(p.out, "to %v, %d tokens in use:", s.End.Round(time.Microsecond), s.KVTokens)
	for _, part := range s.Parts {
		what := "decode"
		if part.Prefill {
			what = fmt.Sprintf("prefill %d", part.Query)
		}
		fmt.Fprintf(p.out, " %d %s to %d;", part.ID, what, part.KV)
	}
	fmt.Fprintln(p.out)
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func instant(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
