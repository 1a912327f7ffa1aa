package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// series is one line of a page.
type series struct {
	labels []*dto.LabelPair
	value  float64 // finite
}

// label is the value of a label; "" when there is none.
func (s series) label(name string) string {
	for _, l := range s.labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// page is what was read of a page, by the names of its series.
type page struct {
	series  map[string][]series
	trouble string // what is wrong with the first line that could not be read; "" when all could
}

// maxLine and maxWanted bound what a page costs that is no engine's: the parser's time grows with the square of a line's
// length, and it cannot be stopped.
const (
	maxLine   = 4 << 10
	maxWanted = 20_000 // lines of series that are wanted
)

// readPage reads those series that are wanted, by the names under which they are wanted. Lines are read one by one, so that a
// broken one costs its family and no other; the family because what is left of it would pass for the whole. So does the
// end of a page that broke off. NaN and the infinities are left out.
func readPage(b body, wanted func(name string) (as string, ok bool)) page {
	p := page{series: map[string][]series{}}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	broken := map[string]bool{}
	breaks := func(number int, name, what string) {
		broken[base(name)] = true
		if p.trouble == "" {
			p.trouble = fmt.Sprintf("line %d: %s", number, what)
		}
	}
	var last string // the name of the line before
	text, ended := b.text, !b.openMetrics
	read := 0
	for number := 1; len(text) > 0; number++ {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		text = rest
		line = bytes.TrimSpace(line)
		ended = ended || string(line) == "# EOF"
		name := lineName(line)
		if !whole {
			if name != "" {
				breaks(number, name, "the page ends in the middle of it")
				for as := range p.series { // the name itself may be cut
					if strings.HasPrefix(as, name) {
						broken[base(as)] = true
					}
				}
			}
			b.torn = true
			break
		}
		if name == "" {
			continue
		}
		last = name
		as, ok := wanted(name)
		if !ok {
			continue
		}
		if read++; len(line) > maxLine || read > maxWanted {
			what := fmt.Sprintf("it is longer than %d bytes", maxLine)
			if read > maxWanted {
				what = fmt.Sprintf("there are more than %d series", maxWanted)
			}
			breaks(number, as, what)
			continue
		}
		if b.openMetrics {
			line = withoutTail(line)
		}
		s, err := readLine(&parser, name, line)
		if err != nil {
			breaks(number, as, err.Error())
			continue
		}
		if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
			continue
		}
		p.series[as] = append(p.series[as], s)
	}
	if b.torn || !ended { // the family at the end may have had more
		if as, ok := wanted(last); ok {
			broken[base(as)] = true
		}
		if p.trouble == "" {
			p.trouble = "the page breaks off"
		}
	}
	for as := range p.series {
		if broken[base(as)] {
			delete(p.series, as)
		}
	}
	return p
}

// lineName is the name of a line's series; "" for a comment, a blank line and one that begins otherwise.
func lineName(line []byte) string {
	if len(line) == 0 || line[0] == '#' || line[0] == '{' {
		return ""
	}
	end := bytes.IndexAny(line, "{ \t")
	if end < 0 {
		end = len(line)
	}
	return string(line[:end])
}

// base is the name of a family, whose series of a histogram end otherwise.
func base(name string) string {
	for _, end := range []string{"_bucket", "_count", "_sum"} {
		if b, ok := strings.CutSuffix(name, end); ok {
			return b
		}
	}
	return name
}

// withoutTail cuts what OpenMetrics may put behind a value, which the text format does not know: a time with a fraction, an
// exemplar.
func withoutTail(line []byte) []byte {
	at := bytes.IndexAny(line, "{ \t")
	if at < 0 {
		return line
	}
	if line[at] == '{' {
		quoted := false
		for at++; at < len(line) && (quoted || line[at] != '}'); at++ {
			switch line[at] {
			case '\\':
				at++
			case '"':
				quoted = !quoted
			}
		}
		at++
	}
	if at >= len(line) {
		return line
	}
	value := bytes.TrimLeft(line[at:], " \t")
	end := bytes.IndexAny(value, " \t")
	if end < 0 {
		return line
	}
	return line[:len(line)-len(value)+end]
}

// readLine reads one line, which has the name.
func readLine(parser *expfmt.TextParser, name string, line []byte) (series, error) {
	families, err := parser.TextToMetricFamilies(bytes.NewReader(append(bytes.Clone(line), '\n')))
	if err != nil {
		var at expfmt.ParseError
		if errors.As(err, &at) {
			return series{}, errors.New(at.Msg)
		}
		return series{}, err
	}
	f := families[name]
	if f == nil || len(f.GetMetric()) != 1 || f.GetMetric()[0].GetUntyped() == nil {
		return series{}, errors.New("it is no line of a metric")
	}
	m := f.GetMetric()[0]
	return series{labels: m.GetLabel(), value: m.GetUntyped().GetValue()}, nil
}
