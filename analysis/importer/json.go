package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// node is a JSON value, read leniently: numbers may be the bare literals Infinity, -Infinity and NaN that Python writes. The zero
// node is a value that is not there; what is asked of it is not there either.
type node struct {
	kind byte // 0, or one of "0" number, "s" string, "b" bool, "n" null, "{" object, "[" array
	line int  // where it begins
	num  float64
	str  string
	keys []string
	vals []node         // of objects, in the order of keys, and of arrays
	at   map[string]int // of the keys of a large object
}

const largeObject = 16 // keys from which on an object is looked up by a map

// index is where a key of an object stands; -1 when it has none such.
func (n *node) index(key string) int {
	if n.at == nil {
		return slices.Index(n.keys, key)
	}
	if i, ok := n.at[key]; ok {
		return i
	}
	return -1
}

// put sets the value of a key, and reports whether it had one.
func (n *node) put(key string, v node) (twice bool) {
	if i := n.index(key); i >= 0 {
		n.vals[i] = v
		return true
	}
	n.keys, n.vals = append(n.keys, key), append(n.vals, v)
	switch {
	case n.at != nil:
		n.at[key] = len(n.keys) - 1
	case len(n.keys) == largeObject:
		n.at = make(map[string]int, 2*largeObject)
		for i, k := range n.keys {
			n.at[k] = i
		}
	}
	return false
}

// get follows keys into objects.
func (n node) get(path ...string) node {
	for _, key := range path {
		i := n.index(key)
		if i < 0 {
			return node{}
		}
		n = n.vals[i]
	}
	return n
}

// has reports whether an object holds all of the keys.
func (n node) has(keys ...string) bool {
	for _, key := range keys {
		if n.index(key) < 0 {
			return false
		}
	}
	return true
}

// items are the values of an array.
func (n node) items() []node {
	if n.kind != '[' {
		return nil
	}
	return n.vals
}

// number is a number, or one written as a string ("inf" is one); NaN when it is not there.
func (n node) number() float64 {
	switch n.kind {
	case '0':
		return n.num
	case 's':
		if v, err := strconv.ParseFloat(strings.TrimSpace(n.str), 64); err == nil {
			return v
		}
	}
	return math.NaN()
}

// first is the number under the first of several keys that holds one.
func (n node) first(keys ...string) float64 {
	for _, key := range keys {
		if v := n.get(key).number(); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// text is a string, or a number in its shortest form; "" when it is neither.
func (n node) text() string {
	if n.kind == '0' {
		return strconv.FormatFloat(n.num, 'g', 15, 64)
	}
	return n.str
}

// into decodes a value into a record of ours, as encoding/json would; what is not finite is null.
func (n node) into(record any) error {
	b, err := json.Marshal(n.plain())
	if err != nil {
		return err
	}
	return json.Unmarshal(b, record)
}

// plain is a value as encoding/json has it.
func (n node) plain() any {
	switch n.kind {
	case '0':
		if math.IsNaN(n.num) || math.IsInf(n.num, 0) {
			return nil
		}
		if n.str != "" {
			return json.Number(n.str)
		}
		return n.num
	case 's':
		return n.str
	case 'b':
		return n.num == 1
	case '[':
		out := make([]any, len(n.vals))
		for i, v := range n.vals {
			out[i] = v.plain()
		}
		return out
	case '{':
		out := make(map[string]any, len(n.keys))
		for i, key := range n.keys {
			out[key] = n.vals[i].plain()
		}
		return out
	}
	return nil
}

// infinite are the lines of the numbers below a value that are none: NaN and the infinities.
func (n node) infinite() (lines []int) {
	if n.kind == '0' && !finite(n.num) {
		return []int{n.line}
	}
	for _, v := range n.vals {
		lines = append(lines, v.infinite()...)
	}
	return lines
}

// lineOf is where the value stands that is of another kind than the record wants.
func (n node) lineOf(e *json.UnmarshalTypeError) int {
	at := []node{n}
	for _, name := range strings.Split(e.Field, ".") {
		var next []node
		for _, v := range at {
			for _, x := range append([]node{v}, v.items()...) {
				if x.has(name) {
					next = append(next, x.get(name))
				}
			}
		}
		at = next
	}
	for _, v := range at {
		if v.into(reflect.New(e.Type).Interface()) != nil {
			return v.line
		}
	}
	return n.line
}

func (n node) null() bool { return n.kind == 0 || n.kind == 'n' }

// numbers are those of an array; NaN for what is none.
func (n node) numbers() []float64 {
	out := make([]float64, 0, len(n.items()))
	for _, v := range n.items() {
		out = append(out, v.number())
	}
	return out
}

const maxDepth = 64 // of nesting; no tool's file comes near

// documents reads the JSON values that stand in data one after another: a single one, JSON Lines, or objects joined by newlines.
// A line that is torn costs a warning, not the file; so do two values under one key. What is no JSON from its first byte on is an
// error.
func documents(name string, data []byte) (docs []node, warnings []string, err error) {
	p := parser{name: name, data: data, line: 1}
	for {
		p.space()
		if p.pos == len(p.data) {
			return docs, p.warnings, nil
		}
		began, line := p.pos, p.line
		n, err := p.value(0)
		if err == nil {
			docs = append(docs, n)
			continue
		}
		rest, _, more := bytes.Cut(p.data[began:], []byte("\n"))
		if p.line != line || p.pos > began+len(rest) || len(docs) == 0 && !more { // not a line of its own: nothing after it can be trusted
			return docs, p.warnings, err
		}
		if len(p.warnings) < mostWarnings {
			p.warnings = append(p.warnings, err.Error()+"; the line is left out")
		}
		if p.torn++; p.torn > 10+len(docs) {
			return nil, nil, err
		}
		if !more {
			return docs, p.warnings, nil
		}
		p.pos, p.line = began+len(rest)+1, line+1
	}
}

const mostWarnings = 20 // of torn lines and doubled keys in one file

type parser struct {
	name     string
	data     []byte
	pos      int
	line     int
	torn     int
	names    map[string]string
	warnings []string
}

// shared is one string for all keys of a name: a file of many lines repeats them in each.
func (p *parser) shared(key string) string {
	if s, ok := p.names[key]; ok {
		return s
	}
	if p.names == nil {
		p.names = map[string]string{}
	}
	if len(p.names) < 1<<12 {
		p.names[key] = key
	}
	return key
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.name, p.line, fmt.Sprintf(format, args...))
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case '\n':
			p.line++
		case ' ', '\t', '\r', 0x1e: // the record separator of JSON text sequences
		default:
			return
		}
		p.pos++
	}
}

func (p *parser) value(depth int) (node, error) {
	if depth > maxDepth {
		return node{}, p.errorf("the JSON is nested more than %d deep", maxDepth)
	}
	p.space()
	if p.pos == len(p.data) {
		return node{}, p.errorf("the JSON ends before it is complete")
	}
	n := node{line: p.line}
	switch c := p.data[p.pos]; c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		s, err := p.text()
		n.kind, n.str = 's', s
		return n, err
	default:
		word := p.word()
		switch word {
		case "":
			return n, p.errorf("%q is no JSON", string(rune(c)))
		case "null":
			n.kind = 'n'
		case "true", "false":
			n.kind = 'b'
			if word == "true" {
				n.num = 1
			}
		default:
			v, err := strconv.ParseFloat(word, 64)
			if word == "Infinity" || word == "-Infinity" || word == "NaN" || (err == nil || math.IsInf(v, 0)) && strings.ContainsAny(word[:1], "-0123456789") && !strings.ContainsAny(word, "xXpP_iInN") {
				n.kind, n.num = '0', v
				if math.Abs(v) >= 1<<53 && finite(v) && !strings.ContainsAny(word, ".eE") {
					n.str = word // a float does not hold it
				}
				return n, nil
			}
			return n, p.errorf("%.40q is no JSON", word)
		}
		return n, nil
	}
}

// word takes what may be a literal or a number.
func (p *parser) word() string {
	from := p.pos
	for p.pos < len(p.data) {
		c := p.data[p.pos]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == '_' {
			p.pos++
			continue
		}
		break
	}
	return string(p.data[from:p.pos])
}

func (p *parser) text() (string, error) {
	from, escaped := p.pos, false
	for p.pos++; p.pos < len(p.data); p.pos++ {
		switch p.data[p.pos] {
		case '"':
			p.pos++
			raw := p.data[from+1 : p.pos-1]
			if !escaped {
				return strings.ToValidUTF8(string(raw), "�"), nil
			}
			var s string
			if err := json.Unmarshal(p.data[from:p.pos], &s); err != nil {
				return "", p.errorf("a string cannot be read (%v)", err)
			}
			return s, nil
		case '\\':
			escaped = true
			p.pos++
		case '\n':
			return "", p.errorf("a string does not end on its line")
		}
	}
	p.pos = min(p.pos, len(p.data))
	return "", p.errorf("the JSON ends within a string")
}

func (p *parser) array(depth int) (node, error) {
	n := node{kind: '[', line: p.line}
	p.pos++
	for {
		p.space()
		if p.pos < len(p.data) && p.data[p.pos] == ']' && len(n.vals) == 0 {
			p.pos++
			return n, nil
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return n, err
		}
		n.vals = append(n.vals, v)
		if end, err := p.next(']'); end || err != nil {
			return n, err
		}
	}
}

func (p *parser) object(depth int) (node, error) {
	n := node{kind: '{', line: p.line}
	p.pos++
	for {
		p.space()
		if p.pos < len(p.data) && p.data[p.pos] == '}' && len(n.vals) == 0 {
			p.pos++
			return n, nil
		}
		if p.pos == len(p.data) {
			return n, p.errorf("the JSON ends before it is complete")
		}
		if p.data[p.pos] != '"' {
			return n, p.errorf("a key of an object should stand here, not %.10q", p.data[p.pos:min(len(p.data), p.pos+10)])
		}
		key, err := p.text()
		if err != nil {
			return n, err
		}
		p.space()
		if p.pos == len(p.data) || p.data[p.pos] != ':' {
			return n, p.errorf("a colon is missing after the key %.40q", key)
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return n, err
		}
		if n.put(p.shared(key), v) && len(p.warnings) < mostWarnings {
			p.warnings = append(p.warnings, fmt.Sprintf("%s:%d: the key %.60q stands twice in one object; the second value counts", p.name, v.line, key))
		}
		if end, err := p.next('}'); end || err != nil {
			return n, err
		}
	}
}

// next takes a comma, or the end of an array or object.
func (p *parser) next(end byte) (bool, error) {
	p.space()
	if p.pos == len(p.data) {
		return false, p.errorf("the JSON ends before it is complete")
	}
	c := p.data[p.pos]
	if c != end && c != ',' {
		return false, p.errorf("a comma or %q should stand here, not %.10q", string(rune(end)), p.data[p.pos:min(len(p.data), p.pos+10)])
	}
	p.pos++
	return c == end, nil
}
