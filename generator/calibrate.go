package generator

import (
	"context"
	"fmt"

	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Lengths is the wanted length of prompts, in the server's own tokens.
type Lengths struct {
	System int // of the first turn's prompt less User: system prompt and chat template together; of single requests, of a whole prompt
	User   int // of the caller's words of each turn
}

// Calibrate asks the endpoint what the filler costs on its tokenizer and returns script with the lengths in words that make
// the wanted ones in tokens. It sends two cold prompts of one token each, the second as long as a first turn will be, so that
// a context that is too short shows here; each turn's own prompt_tokens then tells how well it holds. The filler is drawn in
// blocks that all cost the same, so two points give the line exactly.
func Calibrate(ctx context.Context, to Endpoint, script workload.Script, want Lengths) (workload.Script, measurement.Calibration, error) {
	cal := measurement.Calibration{}
	ask := func(call, systemWords int) (measurement.Turn, error) {
		s := script
		s.SystemWords, s.UserWords, s.Transcripts = systemWords, workload.BlockWords, nil
		prompt := s.Open(call)
		if s.Requests != nil { // their template, and as many words in one message
			both := workload.Segment{Nonce: s.Nonce, Call: call, Words: systemWords + workload.BlockWords}
			prompt = workload.Prompt{{Role: "user", Content: workload.Content{Segment: both}}}
		}
		t := to.Do(ctx, Request{Call: call, Turn: 1, Prompt: prompt, MaxTokens: 1, Last: true}).Turn
		switch {
		case t.Outcome != measurement.OK:
			return t, fmt.Errorf("calibrate the prompt length with %d words: %s: %s", systemWords+workload.BlockWords, t.Outcome, t.Detail)
		case t.PromptTokens < 1:
			return t, fmt.Errorf("calibrate the prompt length: the server reports no usage.prompt_tokens, so lengths cannot be known; have it answer stream_options.include_usage")
		}
		cal.PromptTokens += t.PromptTokens
		cal.CachedTokens += max(0, t.CachedTokens)
		return t, nil
	}
	const small = 2 * workload.BlockWords
	first, err := ask(-1, small)
	if err != nil {
		return script, cal, err
	}
	again, err := ask(-1, small)
	if err != nil {
		return script, cal, err
	}
	cal.CacheReport = cacheReport(first, again)
	// The long prompt has whole blocks, as many as come nearest to the wanted length by the first answer.
	perWord := float64(first.PromptTokens) / (small + workload.BlockWords)
	blocks := max(small/workload.BlockWords+1, workload.Words(float64(want.System), perWord)/workload.BlockWords)
	second, err := ask(-2, blocks*workload.BlockWords)
	if err != nil {
		return script, cal, err
	}
	cal.TokensPerWord = float64(second.PromptTokens-first.PromptTokens) / float64(blocks*workload.BlockWords-small)
	cal.Overhead = float64(first.PromptTokens) - cal.TokensPerWord*(small+workload.BlockWords)
	if cal.TokensPerWord <= 0 {
		return script, cal, fmt.Errorf("calibrate the prompt length: %d words were %d tokens and %d words %d; the server's prompt_tokens cannot be right",
			small+workload.BlockWords, first.PromptTokens, (blocks+1)*workload.BlockWords, second.PromptTokens)
	}
	return Fit(script, want, cal), cal, nil
}

// cacheReport judges from a cold prompt and the same once more.
func cacheReport(cold, again measurement.Turn) string {
	switch {
	case again.CachedTokens == measurement.Unknown:
		return measurement.CacheNotReported
	case again.CachedTokens == 0:
		return measurement.CacheMissed
	case cold.CachedTokens == measurement.Unknown:
		return measurement.CacheZeroAsNull
	}
	return measurement.CacheReported
}

// Fit returns script with the lengths in words that make want under a known calibration.
func Fit(script workload.Script, want Lengths, cal measurement.Calibration) workload.Script {
	script.SystemWords = workload.Words(float64(want.System)-cal.Overhead, cal.TokensPerWord)
	script.UserWords = workload.Words(float64(want.User), cal.TokensPerWord)
	script.TokensPerWord, script.Overhead = cal.TokensPerWord, cal.Overhead
	return script
}
