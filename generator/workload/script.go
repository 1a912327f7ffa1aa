package workload

import (
	"encoding/json"
	"fmt"
	"io"
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

	Transcripts []Transcript // what callers say instead of filler; call n speaks the n-th, and again from the first

	Output   Lengths   // tokens asked of each measured turn; none: what the generator's Config says
	Requests *Requests // calls of a single turn instead of conversations; nil: conversations

	TokensPerWord float64 // what a word costs on the server, for the lengths of Requests; 0: 1
	Overhead      float64 // tokens that the server's template adds to a request
}

// OutputTokens is how many tokens are asked of a measured turn; most where no distribution says.
func (s *Script) OutputTokens(call, turn, most int) int {
	if s.Output.Kind == "" {
		return most
	}
	return s.Output.At(Uniform(s.Seed, "output tokens", call, turn))
}

// Transcript is a real call: what the system prompt and the caller said, turn by turn.
type Transcript struct {
	System string   `json:"system"`
	Turns  []string `json:"turns"`
}

// tagWords begin the system prompt of a transcript, so that no two calls share a prefix even where they share a transcript.
const tagWords = 8

// Turns is how many turns a call has, of at most most.
func (s *Script) Turns(call, most int) int {
	if t := s.transcript(call); t != nil {
		return min(most, len(t.Turns))
	}
	return most
}

func (s *Script) transcript(call int) *Transcript {
	if n := len(s.Transcripts); n > 0 {
		return &s.Transcripts[((call%n)+n)%n]
	}
	return nil
}

// ReadTranscripts reads JSON Lines of {"system": "...", "turns": ["...", ...]}. A bad line is named as name:line.
func ReadTranscripts(r io.Reader, name string) ([]Transcript, error) {
	var out []Transcript
	in := json.NewDecoder(r)
	in.DisallowUnknownFields()
	for n := 1; ; n++ {
		var t Transcript
		err := in.Decode(&t)
		switch {
		case err == io.EOF && len(out) > 0:
			return out, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%s: holds no transcripts", name)
		case err != nil:
			return nil, fmt.Errorf(`%s: transcript %d: %w; each is {"system": "...", "turns": ["...", "..."]}`, name, n, err)
		case len(t.Turns) < 2:
			return nil, fmt.Errorf("%s: transcript %d has %d turns; at least 2 are needed, the first only warms the cache", name, n, len(t.Turns))
		}
		out = append(out, t)
	}
}

// Open is the prompt of a call's first turn: its own system prompt, which no other call shares, and the caller's first words.
func (s *Script) Open(call int) Prompt {
	if t := s.transcript(call); t != nil {
		tag := s.Lexicon.AppendText(nil, s.segment(call, 0, tagWords))
		return Prompt{{Role: "system", Content: Content{Text: string(tag) + ".\n\n" + t.System}}, {Role: "user", Content: Content{Text: t.Turns[0]}}}
	}
	return Prompt{
		{Role: "system", Content: Content{Segment: s.segment(call, 0, s.SystemWords)}},
		{Role: "user", Content: Content{Segment: s.segment(call, 1, s.UserWords)}},
	}
}

// Roles are those of the messages of a call's first turn.
func (s *Script) Roles() []string {
	if s.Requests != nil {
		return []string{"user"}
	}
	return []string{"system", "user"}
}

// Next is the prompt of the turn after turn, whose prompt was p: the history holds a fixed greeting as the first turn's
// reply, then the server's own replies verbatim.
func (s *Script) Next(p Prompt, call, turn int, reply Content) Prompt {
	if turn == 1 {
		reply = Content{Text: s.Lexicon.Greeting}
	}
	says := Content{Segment: s.segment(call, turn+1, s.UserWords)}
	if t := s.transcript(call); t != nil {
		says = Content{Text: t.Turns[turn]}
	}
	return append(p[:len(p):len(p)], Message{Role: "assistant", Content: reply}, Message{Role: "user", Content: says})
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
