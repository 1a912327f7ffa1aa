package openai

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest, as in encoding/json.
const maxDepth = 10000

var errNotJSON = errors.New("an event is not JSON")

// The methods here read JSON without knowing what it means.

func (w *walker) fail() {
	w.bad, w.i = true, len(w.b)
}

// peek passes white space and gives the next byte, 0 at the end.
func (w *walker) peek() byte {
	for w.i < len(w.b) {
		switch c := w.b[w.i]; c {
		case ' ', '\n', '\t', '\r':
			w.i++
		default:
			return c
		}
	}
	return 0
}

// open enters the object or array that peek saw.
func (w *walker) open() {
	w.i++
	if w.depth++; w.depth > maxDepth {
		w.fail()
	}
}

// member moves to the value of an object's next member, the n-th, and sets key; after the last it leaves the object.
func (w *walker) member(n int) bool {
	c := w.peek()
	if c == '}' {
		w.i++
		w.depth--
		return false
	}
	if n > 0 {
		if c != ',' {
			w.fail()
			return false
		}
		w.i++
		c = w.peek()
	}
	if c != '"' {
		w.fail()
		return false
	}
	key := w.text()
	if bytes.IndexByte(key, '\\') >= 0 {
		key = appendUnescaped(nil, key)
	}
	w.key = key
	if w.peek() != ':' {
		w.fail()
		return false
	}
	w.i++
	return true
}

// element moves to an array's next element, the n-th; after the last it leaves the array.
func (w *walker) element(n int) bool {
	c := w.peek()
	if c == ']' {
		w.i++
		w.depth--
		return false
	}
	if n > 0 {
		if c != ',' {
			w.fail()
			return false
		}
		w.i++
	}
	if w.peek() == 0 {
		w.fail()
		return false
	}
	return true
}

// skip passes one value.
func (w *walker) skip() {
	switch w.peek() {
	case '"':
		w.text()
	case '{':
		w.open()
		for n := 0; w.member(n); n++ {
			w.skip()
		}
	case '[':
		w.open()
		for n := 0; w.element(n); n++ {
			w.skip()
		}
	case 't':
		w.literal("true")
	case 'f':
		w.literal("false")
	case 'n':
		w.literal("null")
	case 'N':
		w.literal("NaN")
	case 'I':
		w.literal("Infinity")
	default:
		w.number()
	}
}

func (w *walker) literal(s string) {
	if len(w.b)-w.i < len(s) || string(w.b[w.i:w.i+len(s)]) != s {
		w.fail()
		return
	}
	w.i += len(s)
}

func (w *walker) number() {
	b, i := w.b, w.i
	if i < len(b) && b[i] == '-' {
		i++
		if i < len(b) && b[i] == 'I' {
			w.i = i
			w.literal("Infinity")
			return
		}
	}
	whole := i
	i = digits(b, i)
	if i == whole || i > whole+1 && b[whole] == '0' {
		w.fail()
		return
	}
	if i < len(b) && b[i] == '.' {
		fraction := i + 1
		if i = digits(b, fraction); i == fraction {
			w.fail()
			return
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exponent := i
		if i = digits(b, exponent); i == exponent {
			w.fail()
			return
		}
	}
	w.i = i
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// text reads the string that peek saw and gives what stands between its quotes, escapes checked but not resolved.
func (w *walker) text() []byte {
	b, start := w.b, w.i+1
	for i := start; ; {
		i = plain(b, i)
		if i == len(b) || b[i] < ' ' {
			break
		}
		if b[i] == '"' {
			w.i = i + 1
			return b[start:i]
		}
		if i++; i == len(b) { // past the backslash
			break
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i++
			continue
		case 'u':
			if hex4(b[i+1:]) >= 0 {
				i += 5
				continue
			}
		}
		break
	}
	w.fail()
	return nil
}

// plain is the index of the first byte from i that is a quote, a backslash or a control character, or len(b). It looks at
// eight bytes at a time: (x-1)&^x has the top bit of a byte set if that byte of x is 0, (x-0x20)&^x if it is below 0x20;
// borrows can spoil only bytes above the first hit.
func plain(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^ones*'"', x^ones*'\\'
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & tops
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}

// hex4 is the value of four hex digits, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped appends the text of a checked JSON string. Half a surrogate pair and bytes that are not UTF-8 become
// U+FFFD, as in encoding/json.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return appendValid(dst, raw)
		}
		dst = appendValid(dst, raw[:i])
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					low = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); r != unicode.ReplacementChar {
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

func appendValid(dst, s []byte) []byte {
	if utf8.Valid(s) {
		return append(dst, s...)
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[n:]
	}
	return dst
}
