package simulation

import (
	"slices"
	"testing"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// A server makes other numbers of tokens of the same texts. What a replayed turn lacks of the length recorded, the caller says more in
// the next; a length that was not recorded changes nothing.
func TestReplayAsksPromptsAsLongAsRecorded(t *testing.T) {
	lexicon, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	lengths := func(recorded ...int) (got []int) {
		eng, err := engine.New(config(t, 8))
		if err != nil {
			t.Fatal(err)
		}
		var turns []measurement.Turn
		for i, n := range recorded {
			turn := measurement.NewTurn()
			turn.Turn, turn.Sent, turn.PromptTokens = i+1, time.Duration(i)*time.Second, n
			turns = append(turns, turn)
		}
		script := workload.Script{Lexicon: lexicon, SystemWords: 300, UserWords: 40}
		clk, endpoint := NewRun(eng, lexicon, generator.Limits{})
		clk.Run(t.Context(), func() {
			for _, turn := range Replay(t.Context(), clk, endpoint, script, 16, turns) {
				got = append(got, turn.PromptTokens)
			}
		})
		return got
	}
	const unknown = measurement.Unknown
	plain := lengths(unknown, unknown, unknown, unknown)
	if len(plain) != 4 || plain[1]-plain[0] < 40 {
		t.Fatalf("got prompts of %v tokens", plain)
	}
	a, b, c, d := plain[0], plain[1], plain[2], plain[3]
	for _, row := range []struct {
		why            string
		recorded, want []int
	}{
		{"the lengths of the model", plain, plain},
		{"eight more each turn: each has those of the one before", []int{a + 2, b + 10, c + 18, d + 26}, []int{a, b + 2, c + 10, d + 18}},
		{"fewer", []int{a - 5, b - 7, unknown, unknown}, []int{a, b - 5, c - 7, d - 7}},
		{"so few that the caller says one word", []int{1, unknown, unknown, unknown}, []int{a, b - 39, c - 39, d - 39}},
	} {
		if got := lengths(row.recorded...); !slices.Equal(got, row.want) {
			t.Errorf("%s: recorded %v, asked %v, want %v", row.why, row.recorded, got, row.want)
		}
	}
}
