package engine

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWordTokenIsFNV(t *testing.T) {
	for word, want := range map[string]Token{"": 0x811c9dc5, "a": 0xe40c292c, "foobar": 0xbf9cf968} { // the published test vectors
		if got := WordToken(word); got != want {
			t.Errorf("%q: got %#x, want %#x", word, got, want)
		}
	}
}

// Words are never taken for the template, and text and its words are the same tokens.
func TestAppendText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		got := AppendText(nil, text)
		words := strings.Fields(text)
		if len(got) != len(words) {
			t.Fatalf("got %d tokens for %d words", len(got), len(words))
		}
		for i, word := range words {
			if got[i] != WordToken(word) {
				t.Errorf("word %q: got %d, want %d", word, got[i], WordToken(word))
			}
			if got[i] < firstWord {
				t.Errorf("word %q: got %d, a template constant", word, got[i])
			}
		}
	})
}

// What a client sends back as text is what the engine generated as tokens.
func TestReplyTextIsReplyTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := ReplySeed(rapid.SliceOf(rapid.Uint32()).Draw(t, "prompt"))
		n := rapid.IntRange(1, 200).Draw(t, "n")
		words := make([]string, n)
		for i := range words {
			words[i] = ReplyWord(seed, i)
		}
		got := AppendText(nil, strings.Join(words, " "))
		for i := range n {
			if got[i] != ReplyToken(seed, i) {
				t.Fatalf("token %d: got %d, want %d", i, got[i], ReplyToken(seed, i))
			}
		}
	})
}

func TestReplySeedSeesBothEnds(t *testing.T) {
	prompt := make([]Token, 1000)
	seed := ReplySeed(prompt)
	for _, i := range []int{0, 63, 936, 999} {
		prompt[i] = 1
		if ReplySeed(prompt) == seed {
			t.Errorf("token %d does not matter", i)
		}
		prompt[i] = 0
	}
	if ReplySeed(prompt[:999]) == seed {
		t.Error("length does not matter")
	}
}

func TestLexicon(t *testing.T) {
	seen := map[Token]string{}
	for _, word := range lexicon {
		if other := seen[WordToken(word)]; other != "" {
			t.Errorf("%q and %q are one token", word, other)
		}
		seen[WordToken(word)] = word
		if word == "" || strings.ContainsAny(word, " \t\n") {
			t.Errorf("%q is not one word", word)
		}
	}
}

func BenchmarkReplySeed(b *testing.B) {
	prompt := make([]Token, 18000)
	b.ReportAllocs()
	for b.Loop() {
		ReplySeed(prompt)
	}
}
