package generator

import (
	"fmt"
	"math"
	"time"

	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// Config is what a sweep asks of its calls and steps.
type Config struct {
	Script             workload.Script  // with Requests, calls are a single turn each: Turns is 1, and OutputTokens is not asked for
	Process            workload.Process // of call arrivals
	Turns              int              // of a call; the first is the warm turn
	OutputTokens       int              // asked of every turn but the warm one, which asks 1; Script.Output wins over it
	Warmup             time.Duration    // before a step's window, at least a call's lifetime
	StepDuration       time.Duration    // of the window, at least
	MaxStepDuration    time.Duration    // of the window, at most, when MinTurns are slow to come
	Drain              time.Duration    // after the window, at most, for the calls in progress to end
	MinTurns           int              // measured turns that a window waits for
	MaxConcurrentCalls int              // calls beyond it are held back, in the order of their arrival
	Closed             bool             // no arrivals: the rate of a step is how many calls are spoken at once, each followed at once by the next
	Prepare            time.Duration    // how long before a turn the endpoint is told to make ready, if it can; 0 is never
	StartAt            time.Duration    // of the first step; at once when it is past
	Dial               *Dial            // turns a step's rate while it runs; nil: the rate stays
	GiveUp             int              // the endpoint is lost after so many refused connections in a row and no answer between; 0: 8
}

// slots reports whether steps begin and end at instants fixed beforehand, so that shards of one run stay in step.
func (c *Config) slots() bool { return c.Process.Shards > 1 }

// extends reports whether a window stays open until MinTurns have come.
func (c *Config) extends() bool { return c.MinTurns > 0 && !c.slots() }

// firstTurn is the number of a call's first turn.
func (c *Config) firstTurn() int {
	if c.Script.Requests != nil {
		return measurement.LoneTurn
	}
	return 1
}

// window is how long a step's window is planned to be. With slots it is what a server that keeps up needs for a fifth more
// than the minimum of turns, since a shard cannot know how many the others have had.
func (c *Config) window(rate float64) time.Duration {
	if !c.slots() {
		return c.StepDuration
	}
	need := 1.2 * float64(c.MinTurns) / (rate * float64(max(1, c.Turns-1)))
	return max(c.StepDuration, min(c.MaxStepDuration, time.Duration(math.Ceil(1000*need))*time.Millisecond))
}

// Validate names the first field that cannot be, its value and the rule.
func (c *Config) Validate() error {
	lone := c.Script.Requests != nil
	for _, f := range []struct {
		name string
		ok   bool
		got  any
		rule string
	}{
		{"turns", lone || c.Turns >= 2, c.Turns, "at least 2: the first is the discarded warm turn"},
		{"turns", !lone || c.Turns == 1, c.Turns, "1: a request is a call of one turn"},
		{"output tokens", lone || c.OutputTokens >= 1, c.OutputTokens, "at least 1"},
		{"system prompt", lone || c.Script.SystemWords >= 1, c.Script.SystemWords, "at least 1 word"},
		{"user words", lone || c.Script.UserWords >= 1, c.Script.UserWords, "at least 1 word"},
		{"gap", c.Script.GapMin >= 0 && c.Script.GapMax >= c.Script.GapMin, fmt.Sprint(c.Script.GapMin, "-", c.Script.GapMax), "0 or more, from low to high"},
		{"warm-up", c.Warmup >= 0, c.Warmup, "0 or more"},
		{"step duration", c.StepDuration > 0, c.StepDuration, "more than 0"},
		{"maximum step duration", c.MaxStepDuration >= c.StepDuration, c.MaxStepDuration, fmt.Sprintf("at least the step duration, %v", c.StepDuration)},
		{"drain", c.Drain >= 0, c.Drain, "0 or more"},
		{"minimum turns", c.MinTurns >= 0, c.MinTurns, "0 or more"},
		{"maximum concurrent calls", c.MaxConcurrentCalls >= 1, c.MaxConcurrentCalls, "at least 1"},
		{"shards", c.Process.Shards == 0 || c.Process.Shard >= 0 && c.Process.Shard < c.Process.Shards, fmt.Sprintf("%d of %d", c.Process.Shard, c.Process.Shards), "one of 0 to n-1 of n"},
		{"shards", c.Process.Shards <= 1 || !c.Closed, "in a closed loop", "an open one: a closed loop cannot be split"},
		{"lexicon", c.Script.Lexicon != nil, nil, "a language"},
	} {
		if !f.ok {
			return fmt.Errorf("%s: %v: must be %s", f.name, f.got, f.rule)
		}
	}
	return nil
}
