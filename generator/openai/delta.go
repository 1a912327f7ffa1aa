package openai

import (
	"hash/maphash"
	"math"
	"strconv"
	"unicode/utf8"

	"kneefinder/measurement"
)

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

	texts            int // strings of content in the event
	textFrom, textTo int // the last of them, in b
	frame            frame
}

// frame is a token event without its text. The events of a stream seldom differ in anything else, and what stands before and
// after the text need not be read again. It is known by its hashes: its bytes would have left the CPU's cache since the
// stream's last event, and to fetch them takes longer than to hash.
type frame struct {
	from, behind  int // bytes before and after the text; 0 when there is no frame
	before, after uint64
	usage         usage
	again         bool // the last event was one too, so that its delta is this one's: it is not written for nothing
}

var frameSeed = maphash.MakeSeed()

// parse reads an event. When it is not JSON, out is unchanged and the delta worthless.
func (w *walker) parse(data []byte) error {
	if w.framed(data) {
		return nil
	}
	kept := len(w.out)
	if err := w.parseAll(data); err != nil {
		return err
	}
	if w.texts == 1 && len(w.out) > kept && w.token && !w.whole && !w.failed && w.finish == nil {
		w.frame = frame{
			from: w.textFrom, before: maphash.Bytes(frameSeed, data[:w.textFrom]),
			behind: len(data) - w.textTo, after: maphash.Bytes(frameSeed, data[w.textTo:]),
			usage: w.usage,
		}
	}
	return nil
}

// framed reads an event that is the frame around some text without escapes, if it is one.
func (w *walker) framed(data []byte) bool {
	f := &w.frame
	from, to := f.from, len(data)-f.behind
	if from == 0 || from >= to {
		return false
	}
	text := data[from:to]
	if maphash.Bytes(frameSeed, data[:from]) != f.before || maphash.Bytes(frameSeed, data[to:]) != f.after {
		return false
	}
	if plain(text, 0) < len(text) || !utf8.Valid(text) {
		return false
	}
	w.out = append(w.out, text...)
	if !f.again {
		f.again = true
		w.delta = delta{token: true, usage: f.usage}
	}
	return true
}

func (w *walker) parseAll(data []byte) error {
	kept := len(w.out)
	*w = walker{out: w.out, b: data, delta: delta{usage: noUsage}, frame: w.frame}
	w.frame.again = false
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
		from := w.i + 1
		t := w.text()
		w.out = appendUnescaped(w.out, t)
		w.texts++
		w.textFrom, w.textTo = from, from+len(t)
		return len(t) > 0
	case '[':
		w.texts = 2 // of no frame
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
