package report

import (
	"fmt"
	"math"
	"slices"
)

// tick is a place on a scale, as a share of it, and its name.
type tick struct {
	at   float64
	name string
}

// scale maps figures to shares of a length.
type scale struct {
	lo, hi float64
	log    bool
	ticks  []tick
}

// at is the place of a figure, 0 to 1; what lies beyond an end stands at it, +Inf at the upper one. NaN stays NaN.
func (s *scale) at(v float64) float64 {
	if math.IsNaN(v) {
		return v
	}
	at := (v - s.lo) / (s.hi - s.lo)
	if s.log {
		at = 0
		if v > s.lo {
			at = math.Log(v/s.lo) / math.Log(s.hi/s.lo)
		}
	}
	if math.IsInf(v, 1) || at > 1 {
		return 1
	}
	return max(at, 0)
}

// linear is a scale from 0 with about so many ticks.
func linear(hi float64, ticks int) scale {
	if !(hi > least && hi < greatest) {
		hi = 1
	}
	step := ladderUp(hi / float64(ticks))
	s := scale{hi: step * math.Ceil(hi/step-1e-9)}
	for v := 0.; v <= s.hi+step/2; v += step {
		s.ticks = append(s.ticks, tick{v / s.hi, short(v)})
	}
	return s
}

// logarithmic is a scale over positive figures with at most so many ticks, on the ladder 1, 2, 5.
func logarithmic(lo, hi float64, ticks int) scale {
	if !(lo > least && hi >= lo && hi < greatest) {
		lo, hi = 1, 1000
	}
	s := scale{lo: ladderDown(lo), hi: ladderUp(hi), log: true}
	if s.hi/s.lo < 9 {
		s.lo, s.hi = ladderDown(lo/1.6), ladderUp(hi*1.6)
	}
	s.name(ticks)
	return s
}

// name sets the ticks of a logarithmic scale.
func (s *scale) name(most int) {
	steps := ladder(s.lo, s.hi)
	tens := slices.DeleteFunc(slices.Clone(steps), func(v float64) bool { return math.Abs(math.Log10(v)-math.Round(math.Log10(v))) > 1e-6 })
	if len(steps) > most && len(tens) > 1 {
		steps = tens
	}
	for skip := 2; len(steps) > most && skip < 100; skip++ {
		var few []float64
		for i := 0; i < len(tens); i += skip {
			few = append(few, tens[i])
		}
		steps = few
	}
	s.ticks = nil
	for _, v := range steps {
		s.ticks = append(s.ticks, tick{s.at(v), short(v)})
	}
}

// across is a scale of loads: linear ones begin at 0.
func across(loads []float64) scale {
	lo, hi := span(loads)
	if lo < hi && hi/lo >= 8 {
		s := scale{lo: lo / 1.2, hi: hi * 1.2, log: true}
		for _, v := range ladder(ladderUp(s.lo), s.hi) {
			s.ticks = append(s.ticks, tick{s.at(v), digits(v)})
		}
		if len(s.ticks) > 9 {
			s.name(9)
		}
		return s
	}
	if math.IsInf(lo, 0) {
		hi = 1
	}
	step := ladderUp(hi * 1.08 / 6)
	s := scale{hi: hi * 1.08}
	for v := 0.; v <= s.hi; v += step {
		s.ticks = append(s.ticks, tick{v / s.hi, digits(v)})
	}
	return s
}

// Figures beyond these are none that anybody measured.
const least, greatest = 1e-12, 1e15

// span are the least and the greatest of the positive figures; +Inf and -Inf of none.
func span(values ...[]float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, vs := range values {
		for _, v := range vs {
			if v > least && v < greatest {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	return lo, hi
}

func ladderUp(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v*(1-1e-9) {
			return m * p
		}
	}
	return 10 * p
}

func ladderDown(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*p <= v*(1+1e-9) {
			return m * p
		}
	}
	return p
}

func ladder(lo, hi float64) (out []float64) {
	for v := ladderUp(lo); v <= hi*(1+1e-9); v = ladderUp(v * 1.01) {
		out = append(out, v)
	}
	return out
}

// clockTicks are whole numbers of seconds, minutes or hours from 0 to a length in seconds.
func clockTicks(length float64) (out []tick) {
	step := 86400.
	for _, s := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200} {
		if length/s <= 6 {
			step = s
			break
		}
	}
	for length/step > 6 {
		step *= 2
	}
	for v := 0.; v <= length; v += step {
		s := int(v)
		name := fmt.Sprintf("%d:%02d", s/60, s%60)
		if length >= 3600 {
			name = fmt.Sprintf("%d:%02d h", s/3600, s/60%60)
		}
		out = append(out, tick{v / length, name})
	}
	return out
}
