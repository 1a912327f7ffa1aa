package measurement

import (
	"bytes"
	"math"
	"time"
)

// scanTurn reads a turn line as LogWriter writes it, several times faster than encoding/json. It is false for anything else -
// other lines, other orders of keys, escapes, exponents - which is then left to encoding/json; where it is true, both read
// the same.
func scanTurn(line []byte) (t Turn, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"type":"turn","call":`))
	if !ok {
		return t, false
	}
	s := scanner{b: rest, ok: true}
	t = Turn{Held: Never, PromptTokens: Unknown, CompletionTokens: Unknown, CachedTokens: Unknown}
	t.Call = s.whole()
	t.Turn = s.int(`,"turn":`)
	t.Step = s.int(`,"step":`)
	t.Due = s.instant(`,"due_s":`)
	if s.next(`,"held_s":`) {
		t.Held = s.at()
	}
	t.Sent = s.instant(`,"sent_s":`)
	t.WroteRequest = s.instant(`,"wrote_s":`)
	if s.next(`,"admitted_s":`) {
		t.Admitted = s.at()
	}
	if s.next(`,"replica":`) {
		index := s.whole()
		s.ok = s.ok && index >= 0 && index < math.MaxInt32
		t.Replica = int32(index) + 1
	}
	t.Headers = s.instant(`,"headers_s":`)
	t.FirstEvent = s.instant(`,"first_event_s":`)
	t.FirstToken = s.instant(`,"first_token_s":`)
	t.LastToken = s.instant(`,"last_token_s":`)
	t.End = s.instant(`,"end_s":`)
	s.must(`,"ttft_ms":`)
	if !s.next("null") {
		s.decimal(6) // told by the instants
	}
	if s.next(`,"itl":{"n":`) {
		t.Events = s.whole() + 1
		s.must(`,"sum_ms":`)
		s.decimal(6)
		s.must(`,"max_ms":`)
		t.GapMax = s.decimal(6)
		s.must("}")
	}
	if s.peek(`,"gaps_ms":`) {
		return t, false
	}
	if s.next(`,"first_tokens":`) {
		t.FirstEventTokens = s.whole()
	}
	t.PromptTokens = s.count(`,"prompt_tokens":`)
	t.CompletionTokens = s.count(`,"completion_tokens":`)
	t.CachedTokens = s.count(`,"cached_tokens":`)
	t.Reused = s.next(`,"reused":true`)
	if s.next(`,"dialed_ms":`) {
		t.Dialed = s.decimal(6)
	}
	if s.next(`,"retries":`) {
		t.Retries = s.whole()
	}
	t.Local = s.next(`,"local":true`)
	s.must(`,"outcome":"`)
	t.Outcome = s.outcome()
	if s.next(`,"detail":"`) {
		t.Detail = s.text()
	}
	s.must("}")
	return t, s.ok && len(bytes.TrimSpace(s.b)) == 0
}

// scanner walks over a line; ok becomes false, for good, at the first thing that is not as expected.
type scanner struct {
	b  []byte
	ok bool
}

func (s *scanner) peek(lit string) bool {
	return len(s.b) >= len(lit) && string(s.b[:len(lit)]) == lit
}

func (s *scanner) next(lit string) bool {
	if !s.peek(lit) {
		return false
	}
	s.b = s.b[len(lit):]
	return true
}

func (s *scanner) must(lit string) {
	if !s.next(lit) {
		s.ok = false
	}
}

// whole reads an integer as JSON writes one, of at most fifteen digits.
func (s *scanner) whole() int {
	minus := s.next("-")
	v, n := 0, 0
	for n < len(s.b) && s.b[n]-'0' <= 9 {
		v = v*10 + int(s.b[n]-'0')
		n++
	}
	if n == 0 || n > 15 || n > 1 && s.b[0] == '0' || n < len(s.b) && (s.b[n] == '.' || s.b[n] == 'e' || s.b[n] == 'E') {
		s.ok = false
	}
	s.b = s.b[n:]
	if minus {
		return -v
	}
	return v
}

func (s *scanner) int(key string) int {
	s.must(key)
	return s.whole()
}

// count reads a count, or null for Unknown.
func (s *scanner) count(key string) int {
	s.must(key)
	if s.next("null") {
		return Unknown
	}
	return s.whole()
}

// decimal reads a number as an integer scaled by 10^places; it must have no more decimals than that.
func (s *scanner) decimal(places int) time.Duration {
	minus := s.next("-")
	v := int64(0)
	digits, decimals := 0, -1
	n := 0
scan:
	for ; n < len(s.b); n++ {
		switch c := s.b[n]; {
		case c-'0' <= 9:
			v = v*10 + int64(c-'0')
			digits++
			if decimals >= 0 {
				decimals++
			}
		case c == '.' && decimals < 0 && digits > 0:
			decimals = 0
		case c == 'e' || c == 'E' || c == '.':
			s.ok = false
			break scan
		default:
			break scan
		}
	}
	if digits == 0 || digits > 18 || decimals == 0 || decimals > places || len(s.b) > 1 && s.b[0] == '0' && s.b[1]-'0' <= 9 {
		s.ok = false
	}
	for d := max(decimals, 0); d < places && d >= 0; d++ {
		if v > 1<<60/10 {
			s.ok = false
			break
		}
		v *= 10
	}
	s.b = s.b[n:]
	if minus {
		v = -v
	}
	return time.Duration(v)
}

// instant reads seconds since the start of the run, or null for Never.
func (s *scanner) instant(key string) time.Duration {
	s.must(key)
	if s.next("null") {
		return Never
	}
	return s.at()
}

// at reads seconds since the start of the run, which are never negative.
func (s *scanner) at() time.Duration {
	s.ok = s.ok && !s.peek("-")
	return s.decimal(9)
}

// text reads the rest of a string without escapes, and its closing quote.
func (s *scanner) text() string {
	for i, c := range s.b {
		switch {
		case c == '"':
			text := string(s.b[:i])
			s.b = s.b[i+1:]
			return text
		case c == '\\' || c < ' ' || c >= 0x80:
			s.ok = false
			return ""
		}
	}
	s.ok = false
	return ""
}

// outcomes are all there are, so that a million turns share one string each.
var outcomes = [...]Outcome{OK, Connect, TLS, HTTP4xx, HTTP429, HTTP5xx, StreamError, Truncated, NotStream, TTFTTimeout, TotalTimeout, Stall,
	Canceled, Shed, ShortOutput, NotSent}

func (s *scanner) outcome() Outcome {
	for _, o := range outcomes {
		if s.peek(string(o)) && len(s.b) > len(o) && s.b[len(o)] == '"' {
			s.b = s.b[len(o)+1:]
			return o
		}
	}
	s.ok = false
	return ""
}
