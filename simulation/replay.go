package simulation

import (
	"context"
	"fmt"
	"sort"

	"kneefinder/clock"
	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Replay sends the turns of a recorded run to another endpoint at the very instants at which they were sent, and returns
// what became of them, in the order of (call, turn). The prompts are drawn again from the script; where the one before was not as
// long as recorded, what the caller says next makes up for it, in words, which are tokens of the model. A turn whose predecessor is
// still being answered waits for it. It must run in a process of clk.
func Replay(ctx context.Context, clk clock.Clock, to generator.Endpoint, script workload.Script, outputTokens int, recorded []measurement.Turn) []measurement.Turn {
	calls := map[int][]measurement.Turn{}
	for _, t := range recorded {
		if t.Sent >= 0 {
			calls[t.Call] = append(calls[t.Call], t)
		}
	}
	var order []int
	for call, turns := range calls {
		sort.Slice(turns, func(i, j int) bool { return turns[i].Turn < turns[j].Turn })
		order = append(order, call)
	}
	sort.Ints(order)
	var out []measurement.Turn
	open := len(order)
	done := clk.NewEvent()
	if open == 0 {
		done.Set()
	}
	for _, call := range order {
		clk.Go(fmt.Sprint("call ", call), func() {
			var prompt workload.Prompt
			if script.Requests == nil {
				prompt = script.Open(call)
			}
			for i, was := range calls[call] {
				if clk.SleepUntil(ctx, was.Sent) != nil {
					break
				}
				req := generator.Request{Step: was.Step, Call: call, Turn: was.Turn, Prompt: prompt, MaxTokens: script.OutputTokens(call, was.Turn, outputTokens), Last: i == len(calls[call])-1}
				if was.Turn == 1 {
					req.MaxTokens = 1
				}
				if script.Requests != nil {
					ask := script.Ask(call, call%measurement.CallsPerStep)
					req.Prompt, req.MaxTokens, req.Last = ask.Prompt, ask.MaxTokens, true
				}
				r := to.Do(ctx, req)
				r.Turn.Step, r.Turn.Call, r.Turn.Turn, r.Turn.Due, r.Turn.Held = was.Step, call, was.Turn, was.Due, was.Held
				out = append(out, r.Turn)
				if !req.Last {
					prompt = script.Next(prompt, call, was.Turn, r.Content)
					if said := &prompt[len(prompt)-1].Content.Segment; said.Words > 0 && was.PromptTokens >= 0 && r.Turn.PromptTokens >= 0 {
						said.Words = max(1, said.Words+was.PromptTokens-r.Turn.PromptTokens)
					}
				}
			}
			if open--; open == 0 {
				done.Set()
			}
		})
	}
	_ = done.Wait(ctx)
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Call < b.Call || a.Call == b.Call && a.Turn < b.Turn
	})
	return out
}
