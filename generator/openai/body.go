package openai

import (
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	"kneefinder/generator/workload"
)

// Words gives the text of drawn segments, block by block: words of UTF-8 that JSON needs no escape for.
type Words interface {
	AppendTextBlock(dst []byte, s workload.Segment, block int) []byte
	TextLen(s workload.Segment) int // bytes of all blocks of s together
}

// body is a request's body, built piece by piece while it is read: thousands of calls are in flight at once with prompts of
// 100 kB each, and none keeps one.
type body struct {
	words  Words
	head   []byte // shared, never changed
	prompt workload.Prompt
	tail   []byte

	mu      sync.Mutex // the transport may close a body that it is still reading
	stage   stage
	message int    // the message whose turn it is
	part    int    // the segment of its drawn words
	block   int    // the block of that segment
	rest    string // of its verbatim text
	piece   []byte // to be read next
	small   []byte // backs piece
}

// stage is what a body reads next.
type stage uint8

const (
	atHead stage = iota
	atMessage
	atContent
	atTail
	atEnd
)

const verbatimPiece = 1 << 10

// length is how many bytes the body has.
func (b *body) length() int64 {
	n := len(b.head) + len(b.tail)
	for i, m := range b.prompt {
		b.small = appendMessage(b.small[:0], i, m.Role)
		n += len(b.small) + len(closeMessage)
		switch c := m.Content; {
		case c.Tokens != nil:
			panic("openai: a prompt of token ids cannot be sent as text")
		case c.Text != "":
			n += escapedLen(c.Text)
		default:
			for i := 0; ; i++ {
				part, ok := c.Part(i)
				if !ok {
					break
				}
				n += b.words.TextLen(part) + min(i, 1) // a space between
			}
		}
	}
	return int64(n)
}

const closeMessage = `"}`

func appendMessage(dst []byte, i int, role string) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"role":"`...)
	dst = appendEscaped(dst, role)
	return append(dst, `","content":"`...)
}

func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n < len(p) {
		if len(b.piece) == 0 && !b.advance() {
			break
		}
		k := copy(p[n:], b.piece)
		b.piece = b.piece[k:]
		n += k
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close ends the body early.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage, b.piece = atEnd, nil
	return nil
}

// advance sets the next piece, which may be empty; it is false at the end.
func (b *body) advance() bool {
	b.small = b.small[:0]
	switch b.stage {
	case atHead:
		b.piece = b.head
		b.next(0)
		return true
	case atMessage:
		m := b.prompt[b.message]
		b.small = appendMessage(b.small, b.message, m.Role)
		b.part, b.block, b.rest = 0, 0, m.Content.Text
		b.stage = atContent
	case atContent:
		s, drawn := b.prompt[b.message].Content.Part(b.part)
		switch {
		case b.rest != "":
			piece := runes(b.rest, verbatimPiece)
			b.small = appendEscaped(b.small, piece)
			b.rest = b.rest[len(piece):]
		case drawn:
			if b.part > 0 && b.block == 0 {
				b.small = append(b.small, ' ')
			}
			b.small = b.words.AppendTextBlock(b.small, s, b.block)
			if b.block++; b.block == s.Blocks() {
				b.part, b.block = b.part+1, 0
			}
		default:
			b.small = append(b.small, closeMessage...)
			b.next(b.message + 1)
		}
	case atTail:
		b.piece = b.tail
		b.stage = atEnd
		return true
	default:
		return false
	}
	b.piece = b.small
	return true
}

// runes is the longest start of s that has at most n bytes and does not end inside a rune.
func runes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for cut := n; cut > n-utf8.UTFMax; cut-- {
		if utf8.RuneStart(s[cut]) {
			return s[:cut]
		}
	}
	return s[:n] // not UTF-8
}

// next goes to a message, or past the last.
func (b *body) next(message int) {
	b.message, b.stage = message, atMessage
	if message == len(b.prompt) {
		b.stage = atTail
	}
}

// appendEscaped appends s as the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	plain := 0 // from here on nothing has been appended
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		n := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, "\ufffd"...)
		}
		i += n
		plain = i
	}
	return append(dst, s[plain:]...)
}

// escapedLen is how many bytes appendEscaped appends.
func escapedLen(s string) int {
	n := len(s)
	for i := 0; i < len(s); {
		c := s[i]
		i++
		switch {
		case c == '"' || c == '\\' || c == '\n':
			n++
		case c < ' ':
			n += 5
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i-1:])
			if r == utf8.RuneError && size == 1 {
				n += len("\ufffd") - 1
			}
			i += size - 1
		}
	}
	return n
}

// appendTail appends what follows the messages.
func appendTail(dst []byte, maxTokens int, options []byte) []byte {
	dst = append(dst, `],"max_tokens":`...)
	dst = strconv.AppendInt(dst, int64(maxTokens), 10)
	return append(dst, options...)
}
