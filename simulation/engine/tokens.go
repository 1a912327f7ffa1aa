package engine

import "strings"

// The template's constant ids. Words hash to ids from firstWord on.
const (
	bos       Token = 2
	system    Token = 3
	user      Token = 4
	assistant Token = 5
	open      Token = 105
	shut      Token = 106
	newline   Token = 107
	firstWord Token = 256
)

// WordToken is the id of a word: FNV-1a of its bytes, moved off the template's constants.
func WordToken(word string) Token {
	h := Token(2166136261)
	for i := range len(word) {
		h = (h ^ Token(word[i])) * 16777619
	}
	if h < firstWord {
		h += firstWord
	}
	return h
}

// AppendText appends one token for each word: words are what white space separates.
func AppendText(dst []Token, text string) []Token {
	for word := range strings.FieldsSeq(text) {
		dst = append(dst, WordToken(word))
	}
	return dst
}

// AppendBOS appends what begins a prompt.
func AppendBOS(dst []Token) []Token { return append(dst, bos) }

// AppendOpen appends what opens a message of a role: three tokens, constants for the roles system, user and assistant.
func AppendOpen(dst []Token, role string) []Token {
	id := WordToken(role)
	switch role {
	case "system":
		id = system
	case "user":
		id = user
	case "assistant":
		id = assistant
	}
	return append(dst, open, id, newline)
}

// AppendClose appends what closes a message: two tokens.
func AppendClose(dst []Token) []Token { return append(dst, shut, newline) }

// ReplySeed is a hash of a prompt's content: of its length, its first 64 and its last 64 tokens, so that it costs the same for
// any length. Prompts that differ only between get the same reply, which no cache can tell: they differ before it.
func ReplySeed(prompt []Token) uint64 {
	const ends = 64
	h := mix(uint64(len(prompt)))
	for _, t := range prompt[:min(len(prompt), ends)] {
		h = mix(h ^ uint64(t))
	}
	for _, t := range prompt[max(0, len(prompt)-ends):] {
		h = mix(h ^ uint64(t))
	}
	return h
}

// ReplyWord is word number n, from 0, of the reply to a prompt with that seed.
func ReplyWord(seed uint64, n int) string { return lexicon[replyIndex(seed, n)] }

// ReplyToken is WordToken(ReplyWord(seed, n)).
func ReplyToken(seed uint64, n int) Token { return lexiconTokens[replyIndex(seed, n)] }

func replyIndex(seed uint64, n int) int {
	return int(mix(seed+uint64(n)*0x9e3779b97f4a7c15) % uint64(len(lexicon)))
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// lexicon is what replies are made of: short words, so that a reply looks like one.
var lexicon = [...]string{
	"a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "back", "be", "because", "before", "between",
	"but", "by", "call", "can", "change", "check", "come", "could", "day", "do", "down", "each", "even", "find", "first", "for",
	"from", "get", "give", "go", "good", "great", "hand", "have", "hear", "help", "here", "home", "hour", "how", "if", "in",
	"into", "is", "it", "just", "keep", "kind", "know", "last", "leave", "let", "life", "like", "line", "little", "long", "look",
	"made", "make", "many", "may", "mean", "minute", "month", "more", "most", "much", "must", "name", "need", "never", "new", "next",
	"no", "not", "note", "now", "number", "of", "off", "on", "once", "one", "only", "open", "or", "other", "our", "out",
	"over", "own", "part", "people", "place", "please", "plan", "point", "put", "read", "right", "said", "same", "say", "see", "set",
	"she", "show", "small", "so", "some", "still", "such", "sure", "take", "tell", "than", "thanks", "that", "the", "their", "them",
}

var lexiconTokens = func() (ids [len(lexicon)]Token) {
	for i, word := range lexicon {
		ids[i] = WordToken(word)
	}
	return ids
}()
