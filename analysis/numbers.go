package analysis

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// mostDigits are enough to tell any two figures apart that were measured as different.
const mostDigits = 12

// Digits writes a figure with so many significant digits, without an exponent: all of a longer whole part, and as many zeros before
// a small one as it takes.
func Digits(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'g', digits, 64)
	if !strings.ContainsRune(s, 'e') {
		return s
	}
	if math.Abs(v) >= 1 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	short, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// Apart writes figures that a sentence compares, all with the same number of significant digits: as few as show which of any two is
// less, and at least so many. Figures that differ are never written alike, unless they do so only beyond the twelfth digit.
func Apart(digits int, figures ...float64) []string {
	out := make([]string, len(figures))
	for ; ; digits++ {
		as := make([]float64, len(figures))
		for i, v := range figures {
			out[i] = Digits(v, digits)
			as[i], _ = strconv.ParseFloat(out[i], 64)
		}
		if digits >= mostDigits || sameOrder(figures, as) {
			return out
		}
	}
}

// sameOrder reports whether any two of a compare as the two of b do.
func sameOrder(a, b []float64) bool {
	for i := range a {
		for j := range i {
			if cmp.Compare(a[i], a[j]) != cmp.Compare(b[i], b[j]) {
				return false
			}
		}
	}
	return true
}

// sig writes a figure with three significant digits.
func sig(v float64) string { return Digits(v, 3) }

// maybe is sig of a figure that may be absent.
func maybe(v *float64) string {
	if v == nil {
		return "-"
	}
	return sig(*v)
}

// maybePlain writes a figure that somebody gave, whole, or "-" for one that is absent.
func maybePlain(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

// among writes the figures of an interval so that they compare rightly with others that the sentence names: it returns what writes
// each of them.
func among(digits int, figures ...*float64) func(*float64) string {
	var known []float64
	for _, v := range figures {
		if v != nil {
			known = append(known, *v)
		}
	}
	texts := Apart(digits, known...)
	return func(v *float64) string {
		if v == nil {
			return "-"
		}
		for i, k := range known {
			if k == *v {
				return texts[i]
			}
		}
		return Digits(*v, digits)
	}
}

// percentage writes a share of 1 with two significant digits, or all of a longer whole part.
func percentage(share float64) string { return Digits(100*share, 2) + " %" }
