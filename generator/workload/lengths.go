package workload

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lengths is a distribution of lengths in tokens, each at least 1. The zero value is none. It is a value that processes may share.
type Lengths struct {
	Kind   string  // "" (none), "constant", "uniform", "lognormal", "empirical"
	A, B   float64 // constant: the length; uniform: the least and the most; lognormal: the mean, and the standard deviation of the logarithm
	File   string  // empirical: the file and, behind the last colon, its column if one is named; as it was asked for
	Sample []int   // empirical: the lengths of the file, in its order; shared, never changed
}

// The longest length, and the widest spread of a logarithm, that a distribution takes.
const (
	MaxLength   = 100_000_000
	maxLogSigma = 3
)

// Constant is always the same length.
func Constant(tokens int) Lengths { return Lengths{Kind: "constant", A: float64(tokens)} }

// ParseLengths reads "512", "uniform:256:1024", "lognormal:512:0.8" (mean, standard deviation of the logarithm), "empirical:FILE" or
// "empirical:FILE:COLUMN", whose file the caller reads with ReadLengths.
func ParseLengths(text string) (Lengths, error) {
	kind, rest, _ := strings.Cut(text, ":")
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) {
			return -1
		}
		return v
	}
	whole := func(v float64) bool { return v == math.Trunc(v) && v >= 1 && v <= MaxLength }
	a, b, two := strings.Cut(rest, ":")
	switch {
	case rest == "" && whole(number(kind)):
		return Lengths{Kind: "constant", A: number(kind)}, nil
	case kind == "constant" && !two && whole(number(a)):
		return Lengths{Kind: kind, A: number(a)}, nil
	case kind == "uniform" && two && whole(number(a)) && whole(number(b)) && number(a) <= number(b):
		return Lengths{Kind: kind, A: number(a), B: number(b)}, nil
	case kind == "lognormal" && two && number(a) >= 1 && number(a) <= MaxLength && number(b) >= 0 && number(b) <= maxLogSigma:
		return Lengths{Kind: kind, A: number(a), B: number(b)}, nil
	case kind == "empirical" && rest != "":
		return Lengths{Kind: kind, File: rest}, nil
	}
	return Lengths{}, fmt.Errorf("%q is no length in tokens: give a number of 1 or more such as 512, uniform:256:1024 (least, most), lognormal:512:0.8 "+
		"(mean, standard deviation of the logarithm, at most %d), empirical:FILE or empirical:FILE:COLUMN", text, maxLogSigma)
}

// String is what ParseLengths reads.
func (l Lengths) String() string {
	n := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	switch l.Kind {
	case "constant":
		return n(l.A)
	case "uniform", "lognormal":
		return l.Kind + ":" + n(l.A) + ":" + n(l.B)
	case "empirical":
		return l.Kind + ":" + l.File
	}
	return ""
}

// At is the length below which the share u (0 to 1) of the lengths lies. A uniform u so draws from the distribution, and two
// distributions that are given the same u draw alike. Of an empirical one, u picks a line of the file.
func (l Lengths) At(u float64) int {
	switch l.Kind {
	case "constant":
		return int(l.A)
	case "uniform":
		return int(l.A) + min(int(u*(l.B-l.A+1)), int(l.B-l.A))
	case "lognormal":
		// The mean of exp(N(mu, s^2)) is exp(mu + s^2/2).
		mu := math.Log(l.A) - l.B*l.B/2
		z := math.Sqrt2 * math.Erfinv(2*u-1)
		return int(math.Round(min(max(1, math.Exp(mu+l.B*z)), MaxLength)))
	case "empirical":
		return l.Sample[min(int(u*float64(len(l.Sample))), len(l.Sample)-1)]
	}
	return 0
}

// Mean is the mean length.
func (l Lengths) Mean() float64 {
	switch l.Kind {
	case "constant", "lognormal":
		return l.A
	case "uniform":
		return (l.A + l.B) / 2
	case "empirical":
		sum := 0.
		for _, n := range l.Sample {
			sum += float64(n)
		}
		return sum / float64(max(1, len(l.Sample)))
	}
	return 0
}

// Most is the length that 99 in 100 do not exceed.
func (l Lengths) Most() int {
	if l.Kind == "empirical" {
		s := slices.Clone(l.Sample)
		slices.Sort(s)
		return s[min(len(s)-1, len(s)*99/100)]
	}
	return l.At(.99)
}

// ReadLengths reads the lengths of an empirical distribution: a number of tokens on each line, or a column of a CSV file with a head,
// by its name in any case. With no column named, a file of one column may have a head or none. A bad line is named as name:line.
func ReadLengths(r io.Reader, name, column string) ([]int, error) {
	in := csv.NewReader(bufio.NewReader(r))
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord, in.FieldsPerRecord = '#', true, true, 0
	at, head := -1, column != ""
	var out []int
	for first := true; ; first = false {
		row, err := in.Read()
		switch {
		case err == io.EOF && len(out) > 0:
			return out, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%s: holds no lengths", name)
		case err != nil:
			return nil, csvError(name, err)
		}
		if first {
			trimBOM(row)
			if !head && len(row) > 1 {
				return nil, fmt.Errorf("%s: has %d columns: name the one with the lengths, as in empirical:%s:%s", name, len(row), name, strings.TrimSpace(row[0]))
			}
			at = slices.IndexFunc(row, func(c string) bool { return strings.EqualFold(strings.TrimSpace(c), column) })
			switch {
			case head && at < 0:
				return nil, fmt.Errorf("%s: has no column %q; there are %s", name, column, strings.Join(row, ", "))
			case head:
				continue
			}
			at = 0
			if _, ok := asCount(row[0]); !ok && strings.ContainsFunc(row[0], isLetter) {
				continue // a head
			}
		}
		n, ok := asCount(row[at])
		if !ok {
			line, _ := in.FieldPos(at)
			return nil, fmt.Errorf("%s:%d: %q is no length: give whole tokens from 1 to %d", name, line, row[at], MaxLength)
		}
		out = append(out, n)
	}
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' }

// asCount reads a whole number of tokens, which some tools write with a point; ok is false for what is no length.
func asCount(text string) (n int, ok bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || v != math.Trunc(v) || v < 1 || v > MaxLength {
		return 0, false
	}
	return int(v), true
}

// csvError names the line of what is no CSV.
func csvError(name string, err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return fmt.Errorf("%s:%d: %w", name, bad.Line, bad.Err)
	}
	return fmt.Errorf("read %s: %w", name, err)
}

// trimBOM takes the byte order mark off a file's first field.
func trimBOM(row []string) {
	if len(row) > 0 {
		row[0] = strings.TrimPrefix(row[0], "\ufeff")
	}
}
