package main

import (
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// TestValidateBuffered has one call whose later answers came in one read, or not.
func TestValidateBuffered(t *testing.T) {
	turn := func(i, tokens int, spread time.Duration) measurement.Turn {
		m := measurement.NewTurn()
		m.Turn, m.Outcome, m.PromptTokens, m.CachedTokens, m.CompletionTokens, m.Events = i, measurement.OK, 1000+20*i, 1000+20*i-20, tokens, tokens
		if i == 1 {
			m.PromptTokens, m.CachedTokens = 1000, 0
		}
		m.Sent, m.FirstToken, m.LastToken, m.End = 0, time.Second, time.Second+spread, time.Second+spread
		return m
	}
	const whole, spread = 100 * time.Microsecond, 300 * time.Millisecond
	for _, c := range []struct {
		why     string
		tokens  int
		spreads []time.Duration // of the turns from the second on
		want    bool
	}{
		{"all whole", 16, []time.Duration{whole, whole, whole}, true},
		{"four of five whole, as in a step", 16, []time.Duration{whole, whole, spread, whole, whole}, true},
		{"two of three whole", 16, []time.Duration{whole, spread, whole}, false},
		{"none whole", 16, []time.Duration{spread, spread, spread}, false},
		{"answers of few tokens", 4, []time.Duration{whole, whole, whole}, false},
		{"a millisecond is no read", 16, []time.Duration{time.Millisecond, time.Millisecond}, false},
	} {
		turns := []measurement.Turn{turn(1, 1, 0)}
		for i, d := range c.spreads {
			turns = append(turns, turn(i+2, c.tokens, d))
		}
		var out strings.Builder
		if err := judge(&out, turns, measurement.Config{SystemPromptTokens: 980, UserTokens: 20, OutputTokens: 16}); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if got := strings.Contains(out.String(), "answers came whole"); got != c.want {
			t.Errorf("%s: warned: %v, want %v\n%s", c.why, got, c.want, out.String())
		}
	}
}
