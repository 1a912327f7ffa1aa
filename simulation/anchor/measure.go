package anchor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Target is what is measured, and by which clock.
type Target struct {
	Clock   clock.Clock
	To      generator.Endpoint
	Lexicon *workload.Lexicon
	Nonce   uint64                           // keeps these prompts apart from any other's
	Pause   time.Duration                    // between two readings, in which the server comes to rest
	Say     func(format string, args ...any) // is told what goes on; nil: nobody is
}

// Measure sends what the plan says, one reading after another, and returns what came. Nobody else may use the server meanwhile. It
// runs in a process of the target's clock.
func Measure(ctx context.Context, t Target, setup Setup, server Server, p Plan) (Data, error) {
	if err := p.Validate(); err != nil {
		return Data{}, fmt.Errorf("plan: %w", err)
	}
	m := &meter{Target: t, ctx: ctx, plan: p, data: Data{Schema: Schema, Server: server, Setup: setup}}
	if m.Say == nil {
		m.Say = func(string, ...any) {}
	}
	script := workload.Script{Nonce: t.Nonce, Lexicon: t.Lexicon, Requests: &workload.Requests{}}
	_, cal, err := generator.Calibrate(ctx, t.To, script, generator.Lengths{System: min(1024, slices.Max(p.Lengths))})
	if err != nil {
		return Data{}, err
	}
	m.cal, m.data.Cache = cal, cal.CacheReport
	for _, measure := range []func() error{m.rouse, m.cold, m.together, m.warm, m.decode} {
		if err := measure(); err != nil {
			return Data{}, err
		}
	}
	return m.data, m.data.Validate()
}

// meter measures.
type meter struct {
	Target
	ctx  context.Context
	plan Plan
	cal  measurement.Calibration
	data Data
	call int // of the last request
	text int // of the last prompt that nobody else shares
}

// ask is one request to be sent.
type ask struct {
	parts []workload.Segment
	most  int
	after time.Duration // the first one
}

// words is a new text of about so many tokens beside the template, or with it.
func (m *meter) words(tokens int, template bool) workload.Segment {
	m.text++
	want := float64(tokens)
	if template {
		want -= m.cal.Overhead
	}
	return workload.Segment{Nonce: m.Nonce, Call: m.text, Words: workload.Words(want, m.cal.TokensPerWord)}
}

// send sends requests, each when it is due, and returns when all have been answered; one that fails is an error.
func (m *meter) send(asks ...ask) ([]measurement.Turn, error) {
	if err := m.Clock.SleepUntil(m.ctx, m.Clock.Now()+m.Pause); err != nil {
		return nil, err
	}
	turns, begin := make([]measurement.Turn, len(asks)), m.Clock.Now()
	done := make([]clock.Event, len(asks))
	for i, a := range asks {
		m.call++
		content := workload.Content{Segment: a.parts[0]}
		if len(a.parts) > 1 {
			content = workload.Content{Parts: a.parts}
		}
		r := generator.Request{Call: m.call, Turn: 1, MaxTokens: a.most, Last: true, Prompt: workload.Prompt{{Role: "user", Content: content}}}
		done[i] = m.Clock.NewEvent()
		m.Clock.Go("request", func() {
			defer done[i].Set()
			if a.after == 0 || m.Clock.SleepUntil(m.ctx, begin+a.after) == nil {
				turns[i] = m.To.Do(m.ctx, r).Turn
			}
		})
	}
	for i := range done {
		_ = done[i].Wait(context.WithoutCancel(m.ctx)) // the endpoint heeds ctx
	}
	if err := m.ctx.Err(); err != nil {
		return nil, err
	}
	for i := range turns {
		t := &turns[i]
		switch {
		case t.Outcome != measurement.OK:
			return nil, fmt.Errorf("a request of %d prompts sent at once, to generate %d tokens, failed: %s: %s", len(asks), asks[i].most, t.Outcome, t.Detail)
		case t.PromptTokens < 1:
			return nil, fmt.Errorf("the server reports no usage.prompt_tokens, so nobody knows what it computed: have it answer stream_options.include_usage")
		case t.CompletionTokens != measurement.Unknown && t.CompletionTokens > asks[i].most:
			return nil, fmt.Errorf("%d tokens came although %d were asked for: the server does not heed max_tokens", t.CompletionTokens, asks[i].most)
		}
	}
	return turns, nil
}

// rouse lets the server do once what it does slowly the first time.
func (m *meter) rouse() error {
	for _, n := range []int{slices.Max(m.plan.Lengths), 64} {
		a := ask{parts: []workload.Segment{m.words(n, true)}, most: 8}
		if _, err := m.send(a); err != nil {
			return err
		}
	}
	_, err := m.send(ask{parts: []workload.Segment{m.words(64, true)}, most: 8}, ask{parts: []workload.Segment{m.words(64, true)}, most: 8})
	return err
}

// cold measures the ladder of prompt lengths.
func (m *meter) cold() error {
	for _, n := range m.plan.Lengths {
		var took []float64
		for range m.plan.Repeats {
			turns, err := m.send(ask{parts: []workload.Segment{m.words(n, true)}, most: 1})
			if err != nil {
				return err
			}
			ms, err := m.note(Cold, fmt.Sprint(n), turns)
			if err != nil {
				return err
			}
			took = append(took, ms)
		}
		m.Say("cold, %5d tokens: %.1f ms", n, median(took))
	}
	return nil
}

// together measures cold requests that are sent at once, and one shortly after another: the first of these goes alone, and what comes
// while it is computed waits for its step to end, but has been prepared by then.
func (m *meter) together() error {
	var alone []float64
	for _, b := range append([]int{1}, m.plan.Groups...) {
		for _, gap := range []float64{0, .25} { // of the time of a request alone
			var took []float64
			if b == 1 && gap > 0 {
				continue
			}
			for range m.plan.Repeats {
				var asks []ask
				for i := range b {
					a := ask{parts: []workload.Segment{m.words(m.plan.Share, true)}, most: 1}
					if gap > 0 {
						a.after = time.Duration(float64(i) * gap * median(alone) * 1e6)
					}
					asks = append(asks, a)
				}
				turns, err := m.send(asks...)
				if err != nil {
					return err
				}
				kind, point := Together, fmt.Sprintf("%d of %d", b, m.plan.Share)
				if b == 1 {
					kind, point = Cold, fmt.Sprint(m.plan.Share)
				} else if gap > 0 {
					point += " in turn"
				}
				ms, err := m.note(kind, point, turns)
				if err != nil {
					return err
				}
				took = append(took, ms)
			}
			switch {
			case b == 1:
				alone = took
			case gap > 0:
				m.Say("%d cold requests of %d tokens, one every %.1f ms: %.1f ms until the last token", b, m.plan.Share, gap*median(alone), median(took))
			default:
				m.Say("%d cold requests of %d tokens at once: %.1f ms until the last token", b, m.plan.Share, median(took))
			}
		}
	}
	return nil
}

// warm measures requests behind a cached prefix.
func (m *meter) warm() error {
	switch m.data.Cache {
	case measurement.CacheNotReported:
		return m.skip("warm requests: the server reports no cached tokens, so a warm fit is not possible; start SGLang with --enable-cache-report, vLLM with --enable-prompt-tokens-details")
	case measurement.CacheMissed:
		return m.skip("warm requests: a prompt sent twice is not found in the prefix cache, so a warm fit is not possible; is the cache on, and does one replica get both?")
	}
	for _, n := range m.plan.Contexts {
		prefix := m.words(n, true)
		if _, err := m.send(ask{parts: []workload.Segment{prefix}, most: 1}); err != nil {
			return err
		}
		for _, part := range m.plan.Parts {
			var took []float64
			for range m.plan.Repeats {
				turns, err := m.send(ask{parts: []workload.Segment{prefix, m.words(part, false)}, most: 1})
				if err != nil {
					return err
				}
				if t := &turns[0]; 2*t.CachedTokens < t.PromptTokens {
					if err := m.skip(fmt.Sprintf("%d tokens behind %d: only %d tokens were found in the prefix cache", part, n, max(0, t.CachedTokens))); err != nil {
						return err
					}
					break
				}
				ms, err := m.note(Warm, fmt.Sprintf("%d behind %d", part, n), turns)
				if err != nil {
					return err
				}
				took = append(took, ms)
			}
			if len(took) == 0 {
				continue
			}
			m.Say("warm, %d tokens behind %d: %.1f ms", part, n, median(took))
		}
	}
	return nil
}

func (m *meter) skip(why string) error {
	m.data.Skips = append(m.data.Skips, why)
	m.Say("not measured: %s", why)
	return nil
}

// decode measures steps of requests that decode together. Their prompts are sent alone before, which also makes cold readings of them.
func (m *meter) decode() error {
	for _, depth := range m.plan.Depths {
		var texts []workload.Segment
		for range slices.Max(m.plan.Batches) {
			texts = append(texts, m.words(depth, true))
		}
		for _, s := range texts {
			turns, err := m.send(ask{parts: []workload.Segment{s}, most: 1})
			if err != nil {
				return err
			}
			if _, err := m.note(Cold, fmt.Sprint(depth), turns); err != nil {
				return err
			}
		}
		for _, b := range m.plan.Batches {
			if err := m.decodes(texts[:b], m.plan.depth(depth, b)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodes measures steps of one number of sequences of one length.
func (m *meter) decodes(texts []workload.Segment, depth int) error {
	var asks []ask
	for _, s := range texts {
		if most := workload.Words(float64(depth)-m.cal.Overhead, m.cal.TokensPerWord); s.Words > most {
			s.Words = most
		}
		asks = append(asks, ask{parts: []workload.Segment{s}, most: m.plan.Output})
	}
	var took []float64
	for range m.plan.Repeats {
		turns, err := m.send(asks...)
		if err != nil {
			return err
		}
		if s, ok := steps(turns); ok {
			m.data.Seen = append(m.data.Seen, Reading{Kind: Decode, Point: fmt.Sprintf("%d of %d", len(texts), depth), Steps: &s})
			took = append(took, s.MS)
		}
	}
	if len(took) == 0 {
		return m.skip(fmt.Sprintf("decode of %d sequences of %d tokens: they do not overlap for long enough, or the stream comes in too few pieces", len(texts), depth))
	}
	m.Say("decode, %2d sequences of %d tokens: %.2f ms a step", len(texts), depth, median(took))
	return nil
}

// leastSteps is how many steps must be seen to know the time of one.
const leastSteps = 4

// steps is the stretch of turns in which all of them decoded: from the last first token to the first last token.
func steps(turns []measurement.Turn) (s Steps, ok bool) {
	at := make([][]time.Duration, len(turns)) // of the tokens' events
	perEvent := make([]float64, len(turns))
	begin, end, last := time.Duration(0), time.Duration(math.MaxInt64), 0
	for i := range turns {
		t := &turns[i]
		if t.FirstToken == measurement.Never || len(t.Gaps) == 0 {
			return s, false
		}
		at[i] = append(at[i], t.FirstToken)
		for _, g := range t.Gaps {
			at[i] = append(at[i], at[i][len(at[i])-1]+g)
		}
		perEvent[i] = 1
		if first := max(1, t.FirstEventTokens); t.CompletionTokens > first {
			perEvent[i] = float64(t.CompletionTokens-first) / float64(len(t.Gaps))
		}
		if t.FirstToken >= begin {
			begin, last = t.FirstToken, i
		}
		end = min(end, at[i][len(at[i])-1])
	}
	upTo := func(i int, until time.Duration) int { // events of turn i by then
		n, found := slices.BinarySearch(at[i], until)
		if found {
			n++
		}
		return n
	}
	n := upTo(last, end) - 1
	if n < leastSteps {
		return s, false
	}
	tokens := float64(n) * perEvent[last]
	s.N = int(math.Round(tokens))
	s.MS = millis(at[last][n]-begin) / tokens
	for i := range turns {
		length := float64(turns[i].PromptTokens) + float64(upTo(i, begin))*perEvent[i] + (tokens-1)/2
		s.Lengths = append(s.Lengths, math.Round(10*length)/10)
	}
	s.MS = math.Round(1e4*s.MS) / 1e4
	return s, s.MS > 0
}

// note keeps what became of requests of one token each, and returns the time until the last came, in milliseconds.
func (m *meter) note(k Kind, point string, turns []measurement.Turn) (float64, error) {
	begin := slices.MinFunc(turns, func(a, b measurement.Turn) int { return cmp.Compare(a.Sent, b.Sent) }).Sent
	r := Reading{Kind: k, Point: point}
	for i := range turns {
		t := &turns[i]
		first := t.FirstToken
		if first == measurement.Never { // a token that is not text by itself is held back: the end tells when it was there
			first = t.End
		}
		q := Request{Sent: millis(t.Sent - begin), First: millis(first - begin), Prompt: t.PromptTokens}
		switch c := t.CachedTokens; {
		case c != measurement.Unknown:
			q.Cached = &c
		case m.data.Cache == measurement.CacheZeroAsNull:
			q.Cached = new(int)
		}
		r.Requests = append(r.Requests, q)
	}
	if err := r.validate(); err != nil {
		return 0, fmt.Errorf("%s, %s: %w", k, point, err)
	}
	m.data.Seen = append(m.data.Seen, r)
	return r.took(), nil
}

// millis is d in milliseconds, to a tenth of a microsecond.
func millis(d time.Duration) float64 { return math.Round(float64(d)/100) / 1e4 }

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return measurement.Quantile(s, .5)
}
