package openai

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"kneefinder/measurement"
)

// maxDepth is how deep JSON may nest, as in encoding/json.
const maxDepth = 10000

var errNotJSON = errors.New("an event is not JSON")

// usage counts what a server has told so far; Unknown is what it has not.
type usage struct{ prompt, completion, cached int }

var noUsage = usage{measurement.Unknown, measurement.Unknown, measurement.Unknown}

// update takes over what v knows.
func (u *usage) update(v usage) {
	if v.prompt >= 0 {
		u.prompt = v.prompt
	}
	if v.completion >= 0 {
		u.completion = v.completion
	}
	if v.cached >= 0 {
		u.cached = v.cached
	}
}

// delta is what one event adds to an answer.
type delta struct {
	token  bool   // choice 0 got content, reasoning or a tool call
	whole  bool   // the token stands in a message, not in a delta: a whole answer, perhaps one already streamed
	finish []byte // choice 0's finish_reason as it stands in the event; nil when there is none
	failed bool   // the event reports an error
	usage  usage
}

// walker reads one event's JSON in one pass, checking all of it and allocating nothing. It accepts what encoding/json
// accepts, and NaN, Infinity and -Infinity, which Python servers write.
//
// out collects the content of choice 0, unescaped, over the events of a stream.
type walker struct {
	out []byte

	delta
	b     []byte
	i     int // the next byte of b
	depth int
	bad   bool   // b is not JSON; i is at its end
	key   []byte // of the member that member stands before

	hasChoices, objectError, hasMessage, hasCode, hasDetail bool
}

// parse reads an event. When it is not JSON, out is unchanged and the delta worthless.
func (w *walker) parse(data []byte) error {
	kept := len(w.out)
	*w = walker{out: w.out, b: data, delta: delta{usage: noUsage}}
	switch w.peek() {
	case '{':
		w.chunk()
	case '[': // some gateways wrap the chunk
		w.open()
		for n := 0; w.element(n); n++ {
			if w.peek() == '{' {
				w.chunk()
			} else {
				w.skip()
			}
		}
	default:
		w.skip()
	}
	if w.peek(); w.bad || w.i < len(w.b) {
		w.out = w.out[:kept]
		return errNotJSON
	}
	return nil
}

func (w *walker) chunk() {
	w.hasChoices, w.objectError, w.hasMessage, w.hasCode, w.hasDetail = false, false, false, false, false
	w.open()
	for n := 0; w.member(n); n++ {
		switch string(w.key) {
		case "choices":
			w.choices()
		case "usage":
			w.usageValue(&w.usage)
		case "error":
			w.errorValue()
		case "object", "type":
			if w.peek() == '"' {
				w.objectError = string(w.text()) == "error" || w.objectError
			} else {
				w.skip()
			}
		case "message":
			w.hasMessage = w.filled()
		case "code":
			w.hasCode = w.peek() != 'n'
			w.skip()
		case "detail", "errors":
			w.hasDetail = w.filled() || w.hasDetail
		default:
			w.skip()
		}
	}
	if w.objectError || !w.hasChoices && (w.hasDetail || w.hasMessage && w.hasCode) {
		w.failed = true
	}
}

func (w *walker) choices() {
	if w.peek() != '[' {
		w.skip()
		return
	}
	w.hasChoices = true
	w.open()
	for n := 0; w.element(n); n++ {
		if w.peek() == '{' {
			w.choice(n)
		} else {
			w.skip()
		}
	}
}

// choice reads the choice at a position, which is its index unless it says otherwise.
func (w *walker) choice(index int) {
	start := len(w.out)
	var token, whole, hasDelta bool
	var finish []byte
	u := noUsage
	w.open()
	for n := 0; w.member(n); n++ {
		switch string(w.key) {
		case "index":
			if i, ok := w.count(); ok {
				index = i
			}
		case "delta":
			if w.peek() != '{' {
				w.skip()
				break
			}
			w.out = w.out[:start]
			token, whole, hasDelta = w.message(), false, true
		case "message":
			if w.peek() != '{' || hasDelta {
				w.skip()
				break
			}
			w.out = w.out[:start]
			token = w.message()
			whole = token
		case "finish_reason":
			finish = nil
			if w.peek() == '"' {
				if t := w.text(); len(t) > 0 {
					finish = t
				}
			} else {
				w.skip()
			}
		case "usage": // where Moonshot puts it
			w.usageValue(&u)
		case "error":
			w.errorValue()
		default:
			w.skip()
		}
	}
	if index != 0 {
		w.out = w.out[:start]
		return
	}
	w.token = w.token || token
	w.whole = w.whole || whole
	if finish != nil {
		w.finish = finish
	}
	w.usage.update(u)
}

// message reads a delta (or a message) and says whether it holds something that a model produced.
func (w *walker) message() (token bool) {
	start := len(w.out)
	w.open()
	for n := 0; w.member(n); n++ {
		switch string(w.key) {
		case "content":
			w.out = w.out[:start]
			token = w.content() || token
		case "reasoning_content", "reasoning", "reasoning_details", "thinking", "tool_calls", "function_call", "refusal":
			token = w.filled() || token
		default:
			w.skip()
		}
	}
	return token
}

// content reads a string, or a list of parts.
func (w *walker) content() (token bool) {
	switch w.peek() {
	case '"':
		t := w.text()
		w.out = appendUnescaped(w.out, t)
		return len(t) > 0
	case '[':
		w.open()
		for n := 0; w.element(n); n++ {
			switch w.peek() {
			case '"':
				t := w.text()
				w.out = appendUnescaped(w.out, t)
				token = len(t) > 0 || token
			case '{':
				token = w.part() || token
			default:
				w.skip()
			}
		}
		return token
	}
	w.skip()
	return false
}

func (w *walker) part() (token bool) {
	w.open()
	for n := 0; w.member(n); n++ {
		switch {
		case string(w.key) == "text" && w.peek() == '"':
			t := w.text()
			w.out = appendUnescaped(w.out, t)
			token = len(t) > 0 || token
		case string(w.key) == "thinking":
			token = w.filled() || token
		default:
			w.skip()
		}
	}
	return token
}

func (w *walker) usageValue(u *usage) {
	if w.peek() != '{' {
		w.skip()
		return
	}
	v := noUsage
	cached := measurement.Unknown // as told beside prompt_tokens_details
	w.open()
	for n := 0; w.member(n); n++ {
		switch string(w.key) {
		case "prompt_tokens":
			w.countInto(&v.prompt)
		case "completion_tokens":
			w.countInto(&v.completion)
		case "cached_tokens", "prompt_cache_hit_tokens": // Moonshot, DeepSeek
			w.countInto(&cached)
		case "prompt_tokens_details":
			if w.peek() != '{' {
				w.skip()
				break
			}
			w.open()
			for n := 0; w.member(n); n++ {
				if string(w.key) == "cached_tokens" {
					w.countInto(&v.cached)
				} else {
					w.skip()
				}
			}
		default:
			w.skip()
		}
	}
	if v.cached < 0 {
		v.cached = cached
	}
	u.update(v)
}

// errorValue reads the value of an "error" member. Null, false, 0, "", [] and {} say that there is none.
func (w *walker) errorValue() {
	switch w.peek() {
	case '"', '{', '[':
		w.failed = w.filled() || w.failed
	case 't':
		w.skip()
		w.failed = true
	case 'n', 'f':
		w.skip()
	default:
		if code, ok := w.count(); !ok || code != 0 {
			w.failed = true
		}
	}
}

// filled skips a value and says whether it is a string, a list or an object with something in it.
func (w *walker) filled() bool {
	switch w.peek() {
	case '"':
		return len(w.text()) > 0
	case '{':
		w.open()
		n := 0
		for ; w.member(n); n++ {
			w.skip()
		}
		return n > 0
	case '[':
		w.open()
		n := 0
		for ; w.element(n); n++ {
			w.skip()
		}
		return n > 0
	}
	w.skip()
	return false
}

func (w *walker) countInto(n *int) {
	if v, ok := w.count(); ok {
		*n = v
	}
}

// count reads a value; ok is whether it is a whole number that counts something.
func (w *walker) count() (n int, ok bool) {
	c := w.peek()
	start := w.i
	w.skip()
	if w.bad || c < '0' || c > '9' {
		return 0, false
	}
	digits := w.b[start:w.i]
	for _, d := range digits {
		if d < '0' || d > '9' || n > math.MaxInt32 {
			f, err := strconv.ParseFloat(string(digits), 64)
			return int(f), err == nil && f == math.Trunc(f) && f <= math.MaxInt32
		}
		n = n*10 + int(d-'0')
	}
	return n, n <= math.MaxInt32
}

// The rest reads JSON without knowing what it means.

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
