// Package workload draws what callers do: when they call, what they say, how long they pause; all of it from one seed.
package workload

// Segment is a run of filler words. The same segment always has the same words; segments that differ in Nonce, Call or Part
// share none but by chance (the first eight words alone carry more than 40 bits of Nonce, Call and Part).
type Segment struct {
	Nonce uint64 // the run
	Call  int    // the call in the run; of words that requests share: the prefix, or the turn of the trace
	Part  int    // the part of the call: 0 is the system prompt, k the user's words of turn k; of a trace's block: its hash id
	Words int    // how many; 0 is no segment
}

// Content is what one message says: drawn words, or a server's own reply kept verbatim. Exactly one field is set.
type Content struct {
	Segment Segment
	Parts   []Segment // one after another, a space between; none of them empty; never changed once set
	Text    string    // verbatim, from a server that speaks text
	Tokens  []uint32  // verbatim, from an engine in this process; never changed once set
}

// Part is the i-th segment of drawn words, from 0; ok is false behind the last.
func (c *Content) Part(i int) (s Segment, ok bool) {
	switch {
	case c.Parts != nil && i < len(c.Parts):
		return c.Parts[i], true
	case c.Parts == nil && i == 0:
		return c.Segment, c.Segment.Words > 0
	}
	return Segment{}, false
}

// Message is one entry of a chat.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content Content
}

// Prompt is a chat so far: the history and the last user message. It grows by append and is never changed in place.
type Prompt []Message
