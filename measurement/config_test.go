package measurement

import "testing"

func TestAsked(t *testing.T) {
	lone := Config{LoadOf: Requests, Turns: 1, PromptTokens: 512, PromptLengths: "512", OutputTokens: 64}
	prefixed := Config{LoadOf: Requests, Turns: 1, PromptTokens: 2560, PromptLengths: "lognormal:512:0.8", OutputTokens: 64, OutputLengths: "uniform:28:100", PrefixTokens: 2048, Prefixes: 8, PrefixZipf: 1.1}
	one := prefixed
	one.Prefixes, one.PrefixZipf = 1, 0
	traced := Config{LoadOf: Requests, Turns: 1, PromptTokens: 1400, OutputTokens: 11, Trace: "t.jsonl", TraceRequests: 4, TraceBlock: 512}
	once := traced
	once.TraceOnce, once.TraceBlock = true, 0
	for _, c := range []struct {
		c    Config
		want string
	}{
		{Config{Turns: 4}, ""},
		{Config{LoadOf: Requests}, ""},
		{Config{LoadOf: Requests, Turns: 1, Unknown: []string{"prompt_tokens", "output_tokens"}}, ""},
		{Config{LoadOf: Requests, Turns: 1, OutputTokens: 64, Unknown: []string{"prompt_tokens"}}, "answers of 64 tokens"},
		{Config{LoadOf: Requests, Turns: 1, PromptTokens: 512, Unknown: []string{"output_tokens"}}, "prompts of 512 tokens"},
		{lone, "prompts of 512 tokens, answers of 64 tokens"},
		{prefixed, "prompts of 2560 tokens on average: one of 8 shared prefixes (Zipf 1.1) of 2048, then lognormal:512:0.8 of their own, answers of 64 tokens on average (uniform:28:100)"},
		{one, "prompts of 2560 tokens on average: the same prefix of 2048, then lognormal:512:0.8 of their own, answers of 64 tokens on average (uniform:28:100)"},
		{traced, "the 4 requests of t.jsonl, prompts of 1400 tokens on average, answers of 11 tokens on average, a hash id for each 512 tokens, again and again"},
		{once, "the 4 requests of t.jsonl, prompts of 1400 tokens on average, answers of 11 tokens on average"},
	} {
		if got := c.c.Asked(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if lone.FirstTurn() != LoneTurn || lone.MeasuredTurns() != 1 || (&Config{Turns: 4}).FirstTurn() != 1 || (&Config{Turns: 4}).MeasuredTurns() != 3 {
		t.Error("the turns of calls are counted wrongly")
	}
}
