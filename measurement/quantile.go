package measurement

import "math"

// Quantile returns the p-quantile (0..1) of sorted values by linear interpolation between order statistics (type 7, as numpy
// does by default); NaN when there are none. Values may hold +Inf at the end: a quantile that needs one is +Inf.
func Quantile(sorted []float64, p float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	h := p * float64(n-1)
	i := int(math.Floor(h))
	if i >= n-1 {
		return sorted[n-1]
	}
	w := h - float64(i)
	if w == 0 {
		return sorted[i]
	}
	if math.IsInf(sorted[i+1], 1) {
		return math.Inf(1)
	}
	return sorted[i] + w*(sorted[i+1]-sorted[i])
}
