package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"kneefinder/analysis"
	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/measurement"
)

type validate struct {
	cli.ConfigFile `embed:""`
	endpoint       `embed:""`
	cli.Calls      `embed:""`
}

func (v *validate) Run(ctx context.Context, std cli.Streams) error {
	w := cli.Workload{Calls: v.Calls, Rates: cli.Rates{1}} // no rate is needed to speak one call
	c, err := w.Config()
	if err != nil {
		return cli.Usage("%w", err)
	}
	nonce, err := v.pickNonce()
	if err != nil {
		return cli.Usage("%w", err)
	}
	to, err := v.connect(ctx, clock.NewWall(), &w, c, nonce, nil, func(format string, args ...any) { fmt.Fprintf(std.Err, format+"\n", args...) })
	if err != nil {
		return err
	}
	defer to.client.Close()
	return check(ctx, std.Out, to, c)
}

// check speaks one call, shows each turn, and says whether the second found the first's prefix in the cache.
func check(ctx context.Context, out io.Writer, to *connected, c measurement.Config) error {
	fmt.Fprintln(out, "turn  TTFT ms  prompt  cached  generated  outcome")
	var turns []measurement.Turn
	generator.Talk(ctx, to.clock, to.to, to.gen, 0, func(t measurement.Turn) {
		if t.Outcome == measurement.NotSent {
			return
		}
		turns = append(turns, t)
		ttft := "-"
		if d, ok := t.TTFTSent(); ok {
			ttft = fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
		}
		fmt.Fprintf(out, "%4d  %7s  %6s  %6s  %9s  %s\n", t.Turn, ttft, number(t.PromptTokens), number(t.CachedTokens), number(t.CompletionTokens), t.Outcome)
	})
	to.clock.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted")
	}
	return judge(out, turns, c)
}

// judge says in one sentence what the call proved, as an error when it did not prove that the prefix is reused.
func judge(out io.Writer, turns []measurement.Turn, c measurement.Config) error {
	if last := turns[len(turns)-1]; last.Outcome != measurement.OK {
		return fmt.Errorf("turn %d failed (%s): %s", last.Turn, last.Outcome, last.Detail)
	}
	if len(turns) < 2 {
		return fmt.Errorf("the call ended after %d turn", len(turns))
	}
	cold, warm := turns[0], turns[1]
	want := c.SystemPromptTokens + c.UserTokens
	if off := float64(cold.PromptTokens-want) / float64(want); off > .01 || off < -.01 {
		return fmt.Errorf("the first prompt has %d tokens, %.1f %% off the %d asked for: the server's count does not follow the length of the text", cold.PromptTokens, 100*off, want)
	}
	if warm.CachedTokens == measurement.Unknown {
		coldTTFT, _ := cold.TTFTSent()
		warmTTFT, _ := warm.TTFTSent()
		return fmt.Errorf("cannot tell whether turn 2 reused the warm prefix: the server reports no cached tokens.\n"+
			"Start SGLang with --enable-cache-report, vLLM with --enable-prompt-tokens-details.\n"+
			"TTFT alone says: cold turn 1 %.1f ms, turn 2 %.1f ms (%.0f %%), which %s a prefix cache",
			ms(coldTTFT), ms(warmTTFT), 100*ms(warmTTFT)/max(.001, ms(coldTTFT)), map[bool]string{true: "looks like", false: "does not look like"}[warmTTFT < coldTTFT/2])
	}
	for i := range turns {
		if turns[i].CachedTokens > turns[i].PromptTokens {
			return fmt.Errorf("turn %d: the server reports %d cached tokens of a prompt of %d: its counts cannot be right", turns[i].Turn, turns[i].CachedTokens, turns[i].PromptTokens)
		}
		if c.OutputLengths == "" && turns[i].CompletionTokens > max(1, c.OutputTokens) || i == 0 && turns[i].CompletionTokens > 1 {
			return fmt.Errorf("turn %d: %d tokens came although fewer were asked for: the server does not heed max_tokens", turns[i].Turn, turns[i].CompletionTokens)
		}
	}
	for i, t := range turns[1:] {
		before := turns[i].PromptTokens
		if t.PromptTokens < before {
			return fmt.Errorf("turn %d has %d prompt tokens, fewer than turn %d with %d, although its history is longer: the server's counts cannot be right", t.Turn, t.PromptTokens, turns[i].Turn, before)
		}
		if share := float64(t.CachedTokens) / float64(before); share < .9 {
			return fmt.Errorf("turn %d found only %d of the %d tokens of turn %d in the prefix cache (%.0f %%).\n"+
				"Is the cache on (SGLang: no --disable-radix-cache; vLLM: --enable-prefix-caching), does one replica get all turns of a call, and does the KV pool hold %d tokens?",
				t.Turn, t.CachedTokens, before, turns[i].Turn, 100*share, t.PromptTokens)
		}
	}
	if cold.CachedTokens > max(64, cold.PromptTokens/10) { // a chat template may be shared
		return fmt.Errorf("turn 1 should be cold, but %d of its %d tokens were cached: something else has sent this prompt (a repeated --nonce?)", cold.CachedTokens, cold.PromptTokens)
	}
	if buffered(turns[1:]) {
		fmt.Fprintln(out, "warning: answers came whole, in one read: something on the way buffers the stream (nginx: proxy_buffering off), and gaps between tokens mean nothing")
	}
	fmt.Fprintln(out, "OK: turn-2 reused the warm prefix")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func number(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// buffered reports whether the answers of one call came in one read.
func buffered(turns []measurement.Turn) bool {
	var answers []*measurement.Turn
	for i := range turns {
		answers = append(answers, &turns[i])
	}
	return analysis.Buffered(answers, 1)
}
