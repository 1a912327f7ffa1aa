package workload

import (
	"math"
	"time"
)

// Script is what every call of a run says and how long its caller pauses, as lengths in words. It is a value: processes may
// share it.
type Script struct {
	Nonce       uint64 // keeps the prompts of this run apart from any other's
	Seed        uint64
	Lexicon     *Lexicon
	SystemWords int
	UserWords   int
	GapMin      time.Duration // between the end of a turn and the next turn, uniform
	GapMax      time.Duration
}

// Open is the prompt of a call's first turn: its own system prompt, which no other call shares, and the caller's first words.
func (s *Script) Open(call int) Prompt {
	return Prompt{
		{Role: "system", Content: Content{Segment: s.segment(call, 0, s.SystemWords)}},
		{Role: "user", Content: Content{Segment: s.segment(call, 1, s.UserWords)}},
	}
}

// Next is the prompt of the turn after turn, whose prompt was p: the history holds a fixed greeting as the first turn's
// reply, then the server's own replies verbatim.
func (s *Script) Next(p Prompt, call, turn int, reply Content) Prompt {
	if turn == 1 {
		reply = Content{Text: s.Lexicon.Greeting}
	}
	return append(p[:len(p):len(p)],
		Message{Role: "assistant", Content: reply},
		Message{Role: "user", Content: Content{Segment: s.segment(call, turn+1, s.UserWords)}})
}

// Gap is the pause between the end of turn and the next.
func (s *Script) Gap(call, turn int) time.Duration {
	if s.GapMax <= s.GapMin {
		return s.GapMin
	}
	return s.GapMin + time.Duration(Rand(s.Seed, "gap", call, turn).Int64N(int64(s.GapMax-s.GapMin)))
}

func (s *Script) segment(call, part, words int) Segment {
	return Segment{Nonce: s.Nonce, Call: call, Part: part, Words: words}
}

// Words is how many filler words make a message of so many tokens at so many tokens a word; at least one.
func Words(tokens, tokensPerWord float64) int {
	return max(1, int(math.Round(tokens/tokensPerWord)))
}
