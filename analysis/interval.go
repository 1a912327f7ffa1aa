package analysis

import "math"

// quantileInterval is a 95 % interval for the p-quantile of x, which stands in the order the turns were sent. It takes order
// statistics, so it assumes no distribution; turns near the knee resemble their neighbours, so n turns count for
// n_eff = n/v of them, v = 1 + 2Σρ_k over the autocorrelations of x and of the indicator x > quantile, whichever is more.
// lo is NaN and hi +Inf where the ranks leave the sample: too few turns to bound that side.
func quantileInterval(x []float64, p float64) (lo, hi float64) {
	lo, hi = math.NaN(), math.Inf(1)
	n := float64(len(x))
	if len(x) < 2 {
		return lo, hi
	}
	half := 1.96 * math.Sqrt(p*(1-p)/(n/inflation(x, p)))
	s := sorted(x)
	if r := int(math.Floor(n * (p - half))); r >= 1 {
		lo = s[r-1]
	}
	if r := int(math.Ceil(n * (p + half))); r <= len(s) {
		hi = s[r-1]
	}
	return lo, hi
}

// inflation is how many of these turns are worth one independent turn, at least 1. A turn that never got a token counts as
// the slowest that did.
func inflation(x []float64, p float64) float64 {
	s := sorted(x)
	limit := s[min(int(p*float64(len(s))), len(s)-1)]
	slowest := 0.
	for _, v := range x {
		if !math.IsInf(v, 1) {
			slowest = max(slowest, v)
		}
	}
	capped, over := make([]float64, len(x)), make([]float64, len(x))
	for i, v := range x {
		capped[i] = min(v, slowest)
		if v > limit || math.IsInf(v, 1) {
			over[i] = 1
		}
	}
	return max(varianceInflation(capped), varianceInflation(over))
}

// varianceInflation is max(1, 1 + 2Σρ_k), summed until ρ_k <= .05 and over at most a quarter of the series.
func varianceInflation(x []float64) float64 {
	mean := 0.
	for _, v := range x {
		mean += v / float64(len(x))
	}
	variance := 0.
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	if variance == 0 {
		return 1
	}
	sum := 1.
	for k := 1; k <= len(x)/4; k++ {
		c := 0.
		for i := k; i < len(x); i++ {
			c += (x[i] - mean) * (x[i-k] - mean)
		}
		if c/variance <= .05 {
			break
		}
		sum += 2 * c / variance
	}
	return max(1, sum)
}
