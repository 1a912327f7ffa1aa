package report

import (
	"strings"
	"testing"

	"kneefinder/measurement"
)

// A report of single requests says what they ask, and nothing of prompts and pauses that they do not have; a trace's arrivals are not
// said to be too few.
func TestSingleRequests(t *testing.T) {
	c := measurement.Config{LoadOf: measurement.Requests, Turns: 1, PromptTokens: 512, PromptLengths: "512", OutputTokens: 64, IgnoreEOS: true, Rates: []float64{1}}
	if got, want := load(c), "Requests arrive as a Poisson process: prompts of 512 tokens, answers of 64 tokens."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	said := map[string]string{}
	for _, s := range settings(&measurement.Results{Config: c}, nil) {
		said[s.Name] = s.Meaning
	}
	for name, want := range map[string]string{"a request": "prompts of 512 tokens, answers of 64 tokens", "system prompt": "", "a user's turn": "", "turns a call": "", "pause between turns": ""} {
		if said[name] != want {
			t.Errorf("%s: %q, want %q", name, said[name], want)
		}
	}
	c.Trace, c.TraceRequests, c.Arrivals = "t.jsonl", 7, "trace"
	if got := load(c); !strings.HasPrefix(got, "Requests arrive as in the trace: the 7 requests of t.jsonl, ") {
		t.Errorf("got %q", got)
	}
	cv := 2.
	if got := certificate(measurement.Arrivals{Process: "trace", Calls: 700, CV: &cv}); strings.Contains(got, "too few") || !strings.Contains(got, "not tested against a Poisson process") {
		t.Errorf("got %q", got)
	}
}
