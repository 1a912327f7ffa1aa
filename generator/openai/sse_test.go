package openai

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// scan gives the events of a stream that arrives in pieces.
func scan(s *scanner, pieces ...[]byte) (events []string, err error) {
	say := func(ev event) {
		events = append(events, fmt.Sprintf("%s %s", [...]string{"data", "named", "error", "bare"}[ev.kind], ev.data))
	}
	for _, p := range pieces {
		p = bytes.Clone(p) // a read buffer is used again
		for rest := p; len(rest) > 0; {
			ev, after, ok, err := s.next(rest)
			if err != nil {
				return events, err
			}
			if !ok {
				break
			}
			say(ev)
			rest = after
		}
		for i := range p {
			p[i] = '?'
		}
	}
	for {
		ev, ok := s.last()
		if !ok {
			return events, nil
		}
		say(ev)
	}
}

func TestScanner(t *testing.T) {
	for _, test := range []struct {
		name, stream string
		want         []string
	}{
		{"line feeds", "data: a\n\ndata: b\n\n", []string{"data a", "data b"}},
		{"carriage returns", "data: a\r\rdata: b\r\r", []string{"data a", "data b"}},
		{"both", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"data a", "data b"}},
		{"each its own", "data: a\r\n\ndata: b\n\rdata: c\r\r\n", []string{"data a", "data b", "data c"}},
		{"no space after the colon", "data:a\n\n", []string{"data a"}},
		{"only one space goes", "data:  a \n\n", []string{"data  a "}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"data a"}},
		{"a mark inside is content", "data: \xef\xbb\xbfa\n\n", []string{"data \xef\xbb\xbfa"}},
		{"a mark later is a field nobody knows", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"data a"}},
		{"comments are nothing", ": ping\n\n:\n\n:ping\ndata: a\n: in between\n\n", []string{"data a"}},
		{"several data lines", "data: {\ndata:\ndata: }\n\n", []string{"data {\n\n}"}},
		{"other fields", "id: 7\nretry: 10\nfoo: bar\ndata: a\nid\n\n", []string{"data a"}},
		{"no data, no event", "event: ping\n\nid: 3\n\n\n\ndata: a\n\n", []string{"data a"}},
		{"empty data", "data:\n\ndata\n\n", []string{"data ", "data "}},
		{"names", "event: message\ndata: a\n\nevent: ping\ndata: b\n\ndata: c\n\n", []string{"data a", "named b", "data c"}},
		{"the name may follow", "data: a\nevent: error\n\n", []string{"error a"}},
		{"an error without data", "event: error\n\n", []string{"error "}},
		{"an error field", "error: {\"code\":500}\n\n", []string{`error {"code":500}`}},
		{"JSON outside an event", "{\"error\":1}\n\n", []string{`bare {"error":1}`}},
		{"no blank line at the end", "data: a\n\ndata: b\n", []string{"data a", "data b"}},
		{"no line end at the end", "data: a\n\ndata: b", []string{"data a", "data b"}},
		{"two events at the end", "data: a\n{}", []string{"bare {}", "data a"}},
		{"not UTF-8", "data: \xff\xfe\n\n", []string{"data \xff\xfe"}},
		{"a field in capitals is another", "DATA: a\n\n", nil},
		{"a space before the field is another", " data: a\n\n", nil},
		{"nothing", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			stream := []byte(test.stream)
			for cut := range len(stream) + 1 {
				got, err := scan(new(scanner), stream[:cut], stream[cut:])
				if err != nil || !slices.Equal(got, test.want) {
					t.Fatalf("cut at %d: got %q, %v, want %q", cut, got, err, test.want)
				}
			}
			got, err := scan(new(scanner), slices.Collect(slices.Chunk(stream, 1))...)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("byte by byte: got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestScannerLargeEvents(t *testing.T) {
	var s scanner
	stream := []byte("data: " + strings.Repeat("x", 5<<20) + "\n\ndata: y\n\n")
	got, err := scan(&s, slices.Collect(slices.Chunk(stream, 4096))...)
	if err != nil || len(got) != 2 || len(got[0]) != len("data ")+5<<20 || got[1] != "data y" {
		t.Errorf("an event of 5 MB: got %d events, %v", len(got), err)
	}
	s.reset()
	if cap(s.line) > maxKept || cap(s.data) > maxKept {
		t.Errorf("after reset the scanner keeps %d and %d bytes", cap(s.line), cap(s.data))
	}

	for _, test := range []struct{ name, unit string }{{"one line", "xxxxxxxx"}, {"many lines", "data: xx\n"}} {
		s.reset()
		part := []byte(strings.Repeat(test.unit, 1<<17))
		err = nil
		for n := 0; n <= maxEvent*5 && err == nil; n += len(part) {
			for rest := part; len(rest) > 0 && err == nil; {
				var ok bool
				if _, rest, ok, err = s.next(rest); !ok {
					break
				}
			}
		}
		if err != errEventTooLong {
			t.Errorf("%s without end: got %v, want %v", test.name, err, errEventTooLong)
		}
		s = scanner{}
	}
}

// FuzzSSE checks that the events do not depend on how the bytes arrive.
func FuzzSSE(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\r\n\r\n: c\revent: error\rdata\r\r"), uint64(1))
	f.Add([]byte("\xef\xbb\xbfdata:{\"choices\":[]}\n\n{}\nerror: x\nid: 1\n\ndata: [DONE]"), uint64(2))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		want, _ := scan(new(scanner), stream)
		r := rand.New(rand.NewPCG(seed, 0))
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := 1 + r.IntN(min(len(rest), 1+r.IntN(40)))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got, _ := scan(new(scanner), pieces...); !slices.Equal(got, want) {
			t.Errorf("in %d pieces: got %q, want %q", len(pieces), got, want)
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	stream := bytes.Repeat([]byte("data: "+tokenEvent+"\n\n"), 50)
	for _, size := range []int{1 << 10, readSize} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var s scanner
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				for r := bytes.NewReader(stream); r.Len() > 0; {
					at := len(stream) - r.Len()
					n := min(size, r.Len())
					r.Seek(int64(n), io.SeekCurrent)
					for rest := stream[at : at+n]; len(rest) > 0; {
						var ok bool
						if _, rest, ok, _ = s.next(rest); !ok {
							break
						}
						events++
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}
