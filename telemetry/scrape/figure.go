package scrape

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// values are what a sample holds, by the names of measurement.
type values map[string]float64

// set sets a value that is a number.
func (v values) set(name string, value float64, ok bool) {
	if ok && !math.IsNaN(value) && !math.IsInf(value, 0) {
		v[name] = value
	}
}

// figure is one value and where it may stand on a page: the first that is there counts, so newer and better names come first.
type figure struct {
	value string
	from  []reading
}

// reading makes a number of the series of one name.
type reading struct {
	name  string
	label string   // only series whose label has one of the values in; all when ""
	in    []string //
	must  bool     // without such a series there is no number; else it is 0, since clients show a child of a family with its first count
	below float64  // series from here on are blanks of the exporter, not numbers; 0 for no limit
	fold  func([]series) float64
	times float64 // to have the unit of the figure; 1 when 0
}

// of reads the page.
func (r reading) of(p page) (float64, bool) {
	found, ok := p.series[r.name]
	if !ok {
		return 0, false
	}
	if r.label != "" || r.below > 0 {
		found = slices.DeleteFunc(slices.Clone(found), func(s series) bool {
			return r.label != "" && !slices.Contains(r.in, s.label(r.label)) || r.below > 0 && s.value >= r.below
		})
	}
	if len(found) == 0 {
		return 0, r.label != "" && !r.must
	}
	return r.fold(found) * cmp.Or(r.times, 1), true
}

// first is the first of several readings that a page has.
func first(p page, rs []reading) (float64, bool) {
	for _, r := range rs {
		if v, ok := r.of(p); ok {
			return v, true
		}
	}
	return 0, false
}

func sum(ss []series) float64 {
	total := 0.
	for _, s := range ss {
		total += s.value
	}
	return total
}

func mean(ss []series) float64 { return sum(ss) / float64(len(ss)) }

func highest(ss []series) float64 {
	return slices.MaxFunc(ss, func(a, b series) int { return cmp.Compare(a.value, b.value) }).value
}

// plainly is a reading of a name as it is: its series, which count different things, added up.
func plainly(name string) reading { return reading{name: name, fold: sum} }

// group keeps one series of those for which key is the same: the first in the order of less.
func group(ss []series, key func(series) string, less func(a, b series) int) []series {
	var out []series
	at := map[string]int{}
	for _, s := range ss {
		k := key(s)
		i, ok := at[k]
		switch {
		case !ok:
			at[k] = len(out)
			out = append(out, s)
		case less(s, out[i]) < 0:
			out[i] = s
		}
	}
	return out
}

// rest writes all labels but some, in an order of its own.
func rest(s series, without []string) string {
	var parts []string
	for _, l := range s.labels {
		if !slices.Contains(without, l.GetName()) && l.GetValue() != "" {
			parts = append(parts, l.GetName()+"="+strconv.Quote(l.GetValue()))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// number is a label's value as a number; 0 when it is none.
func number(labels []*dto.LabelPair, name string) int {
	n, _ := strconv.Atoi(series{labels: labels}.label(name))
	return n
}
