package workload

import (
	"fmt"
	"slices"
)

// BlockWords is how many words a lexicon has. Filler is drawn in blocks, each a permutation of the whole lexicon, so that
// every block costs a tokenizer that splits at spaces the same number of tokens, whatever the order.
const BlockWords = 64

// Lexicon is a language's filler words.
type Lexicon struct {
	Name     string
	Words    [BlockWords]string
	Greeting string // the fixed first reply of a call
	blockLen int    // bytes of one block, a space after each word
}

// The filler of a telephone agent, in two languages; written for this project.
var (
	english = newLexicon("english", "Hello, this is your service line, how may I help you today?", [BlockWords]string{
		"account", "balance", "please", "confirm", "number", "today", "address", "delivery", "payment", "receipt", "order", "ticket",
		"customer", "service", "agent", "moment", "request", "update", "detail", "policy", "amount", "refund", "branch", "office",
		"monthly", "charge", "before", "after", "Monday", "morning", "evening", "support", "problem", "solution", "phone", "message",
		"mobile", "network", "speed", "plan", "offer", "renew", "cancel", "change", "person", "family", "house", "street",
		"city", "market", "train", "travel", "doctor", "clinic", "health", "report", "water", "power", "meter", "reading",
		"simple", "quickly", "exactly", "always",
	})
	hindi = newLexicon("hindi", "नमस्ते, यह आपकी सेवा लाइन है, मैं आपकी क्या सहायता कर सकती हूँ?", [BlockWords]string{
		"खाता", "राशि", "कृपया", "पुष्टि", "संख्या", "आज", "पता", "वितरण", "भुगतान", "रसीद", "आदेश", "टिकट",
		"ग्राहक", "सेवा", "प्रतिनिधि", "क्षण", "अनुरोध", "सुधार", "विवरण", "नीति", "शेष", "वापसी", "शाखा", "कार्यालय",
		"मासिक", "शुल्क", "पहले", "बाद", "सोमवार", "सुबह", "शाम", "सहायता", "समस्या", "समाधान", "फोन", "संदेश",
		"मोबाइल", "नेटवर्क", "गति", "योजना", "प्रस्ताव", "नवीनीकरण", "रद्द", "बदलाव", "व्यक्ति", "परिवार", "घर", "सड़क",
		"शहर", "बाज़ार", "रेल", "यात्रा", "डॉक्टर", "अस्पताल", "स्वास्थ्य", "रिपोर्ट", "पानी", "बिजली", "मीटर", "पठन",
		"सरल", "जल्दी", "ठीक", "हमेशा",
	})
)

func newLexicon(name, greeting string, words [BlockWords]string) *Lexicon {
	l := &Lexicon{Name: name, Greeting: greeting, Words: words}
	for _, w := range words {
		l.blockLen += len(w) + 1
	}
	return l
}

// LexiconByName returns "hindi" or "english".
func LexiconByName(name string) (*Lexicon, error) {
	for _, l := range []*Lexicon{hindi, english} {
		if l.Name == name {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no filler language %q; there are hindi and english", name)
}

// Blocks is how many blocks a segment has; the last may be shorter than BlockWords.
func (s Segment) Blocks() int { return (s.Words + BlockWords - 1) / BlockWords }

// AppendBlock appends the lexicon indexes of the words of block b, in order.
//
// The order is three permutations of a fixed stock, one after another, each behind an exclusive or: 48 bits of the key choose them.
// So a word costs about a nanosecond, and needs none of those before it.
func (s Segment) AppendBlock(dst []uint8, b int) []uint8 {
	key := mix(mix(mix(mix(s.Nonce)+uint64(s.Call))+uint64(s.Part)) + uint64(b))
	first, second, third := &stock[key&255], &stock[key>>8&255], &stock[key>>16&255]
	m1, m2, m3, m4 := uint8(key>>24), uint8(key>>30), uint8(key>>36), uint8(key>>42)&63
	at := len(dst)
	dst = slices.Grow(dst, BlockWords)[:at+max(0, min(s.Words-b*BlockWords, BlockWords))]
	for i, out := 0, dst[at:]; i < len(out); i++ {
		out[i] = third[(second[(first[(uint8(i)^m1)&63]^m2)&63]^m3)&63] ^ m4
	}
	return dst
}

// stock is permutations of the words of a lexicon, drawn once and for all (Fisher and Yates).
var stock = func() (all [256][BlockWords]uint8) {
	key := uint64(0)
	for k := range all {
		for i := range all[k] {
			key = mix(key)
			j := int(key >> 32 * uint64(i+1) >> 32)
			all[k][i] = all[k][j]
			all[k][j] = uint8(i)
		}
	}
	return all
}()

// AppendText appends the segment's words, a space between them.
func (l *Lexicon) AppendText(dst []byte, s Segment) []byte {
	for b := range s.Blocks() {
		dst = l.AppendTextBlock(dst, s, b)
	}
	return dst
}

// AppendTextBlock appends the words of block b, a space before each word but the segment's first: the blocks of a segment in
// order are its text.
func (l *Lexicon) AppendTextBlock(dst []byte, s Segment, b int) []byte {
	var index [BlockWords]uint8
	for i, w := range s.AppendBlock(index[:0], b) {
		if b+i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, l.Words[w]...)
	}
	return dst
}

// TextLen is the number of bytes that AppendText appends, without building them.
func (l *Lexicon) TextLen(s Segment) int {
	if s.Words <= 0 {
		return 0
	}
	full := s.Words / BlockWords
	n := full*l.blockLen - 1
	if s.Words%BlockWords > 0 {
		var index [BlockWords]uint8
		for _, w := range s.AppendBlock(index[:0], full) {
			n += len(l.Words[w]) + 1
		}
	}
	return n
}
