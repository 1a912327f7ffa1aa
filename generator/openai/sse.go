package openai

import (
	"bytes"
	"errors"
)

// maxEvent bounds the bytes of one event, so that a server that never ends a line cannot take all memory.
const maxEvent = 64 << 20

var errEventTooLong = errors.New("an event is longer than 64 MiB")

// kind says where an event's bytes stood in the stream.
type kind uint8

const (
	kindData  kind = iota // data lines, without a name or named "message"
	kindNamed             // data lines of an event with any other name
	kindError             // an event named "error", or llama.cpp's error: field
	kindBare              // a line of JSON outside any event: not the protocol, but servers report errors so
)

// event is one server-sent event. data is valid until the scanner is called again, or the bytes that it was given change.
type event struct {
	kind kind
	data []byte
}

// scanner cuts a byte stream into server-sent events. How the bytes are split over calls does not change the events.
// The zero value is ready.
type scanner struct {
	line    []byte // the start of a line whose end has not come
	data    []byte // the data lines of the event that is being read, joined by LF
	kept    []byte // backs data when that must outlive the bytes given, or has several lines
	hasData bool
	isKept  bool
	kind    kind
	cr      bool // the last line ended in CR: an LF that follows belongs to it
	started bool // the first line has been read
}

// next takes bytes from p until an event is complete; rest is what it left. ok is false when p was used up first.
func (s *scanner) next(p []byte) (ev event, rest []byte, ok bool, err error) {
	if ev, rest, ok = s.whole(p); ok {
		return ev, rest, true, nil
	}
	for len(p) > 0 {
		if s.cr {
			s.cr = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := lineEnd(p)
		if len(s.line)+len(s.data)+end > maxEvent {
			return event{}, nil, false, errEventTooLong
		}
		if end == len(p) {
			s.keep()
			s.line = append(s.line, p...)
			return event{}, nil, false, nil
		}
		line := p[:end]
		s.cr = p[end] == '\r'
		p = p[end+1:]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line, s.line = s.line, s.line[:0]
		}
		if ev, ok = s.take(line); ok {
			s.keep() // an error's line may come between the lines of an event
			return ev, p, true, nil
		}
	}
	s.keep()
	return event{}, nil, false, nil
}

var dataStart = []byte("data: ")

// whole is next for what most events are: one line of data, and all of it in p. It writes nothing to s, which the other CPU
// may have used last.
func (s *scanner) whole(p []byte) (ev event, rest []byte, ok bool) {
	if !bytes.HasPrefix(p, dataStart) || !s.started || s.cr || s.hasData || s.kind != kindData || len(s.line) > 0 {
		return event{}, nil, false
	}
	end := lineEnd(p)
	if end+1 >= len(p) || p[end] != '\n' || p[end+1] != '\n' {
		return event{}, nil, false
	}
	return event{kindData, p[len(dataStart):end]}, p[end+2:], true
}

// keep copies data out of the bytes given.
func (s *scanner) keep() {
	if s.hasData && !s.isKept {
		s.kept = append(s.kept[:0], s.data...)
		s.data, s.isKept = s.kept, true
	}
}

// last gives the events that the end of the stream completes; it is called until ok is false. The standard drops an event
// without its blank line, but servers that close right after their last line mean it.
func (s *scanner) last() (ev event, ok bool) {
	if len(s.line) > 0 {
		line := s.line
		s.line = s.line[:0]
		if ev, ok = s.take(line); ok {
			return ev, true
		}
	}
	return s.dispatch()
}

// reset makes the scanner ready for another stream. It lets go of what one huge event needed.
func (s *scanner) reset() {
	line, kept := s.line[:0], s.kept[:0]
	if cap(line) > maxKept {
		line = nil
	}
	if cap(kept) > maxKept {
		kept = nil
	}
	*s = scanner{line: line, kept: kept}
}

// lineEnd is the index of the first LF or CR in p, or len(p).
func lineEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		end = len(p)
	}
	if cr := bytes.IndexByte(p[:end], '\r'); cr >= 0 {
		return cr
	}
	return end
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// take reads one whole line.
func (s *scanner) take(line []byte) (ev event, ok bool) {
	if !s.started {
		s.started = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	if len(line) == 0 {
		return s.dispatch()
	}
	if line[0] == '{' || line[0] == '[' {
		return event{kindBare, line}, true
	}
	name, value, _ := bytes.Cut(line, colon)
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if s.hasData {
			s.keep()
			s.kept = append(append(s.kept, '\n'), value...)
			value = s.kept
		}
		s.data, s.hasData = value, true
	case "event":
		switch string(value) {
		case "", "message":
			s.kind = kindData
		case "error":
			s.kind = kindError
		default:
			s.kind = kindNamed
		}
	case "error":
		return event{kindError, value}, true
	}
	return event{}, false // a comment (no name), id, retry, or a field nobody knows
}

var colon = []byte(":")

// dispatch ends the event that is being read. An event without data is none, unless its name alone says what happened.
func (s *scanner) dispatch() (ev event, ok bool) {
	ev = event{s.kind, s.data}
	if !s.hasData {
		ev.data = nil
	}
	ok = s.hasData || s.kind == kindError
	s.data, s.hasData, s.isKept, s.kind = nil, false, false, kindData
	return ev, ok
}
