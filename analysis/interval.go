package analysis

import (
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
)

// quantileInterval is a 95 % interval for the p-quantile of x, which stands in the order the turns were sent; s is x ascending. It takes order
// statistics, so it assumes no distribution; turns near the knee resemble their neighbours, so n turns count for
// n_eff = n/v of them, v = 1 + 2Σρ_k over the autocorrelations of x and of the indicator x > quantile, whichever is more.
// lo is NaN and hi +Inf where the ranks leave the sample: too few turns to bound that side.
func quantileInterval(x, s []float64, p float64) (lo, hi float64) {
	lo, hi = math.NaN(), math.Inf(1)
	n := float64(len(x))
	if len(x) < 2 {
		return lo, hi
	}
	half := 1.96 * math.Sqrt(p*(1-p)/(n/inflation(x, s, p)))
	if r := int(math.Floor(n * (p - half))); r >= 1 {
		lo = s[r-1]
	}
	if r := int(math.Ceil(n * (p + half))); r <= len(s) {
		hi = s[r-1]
	}
	return lo, hi
}

// inflation is how many of these turns are worth one independent turn, at least 1. A turn that never got a token counts as
// the slowest that did. s is x ascending.
func inflation(x, s []float64, p float64) float64 {
	limit := s[min(int(p*float64(len(s))), len(s)-1)]
	slowest := 0.
	for _, v := range x {
		if !math.IsInf(v, 1) {
			slowest = max(slowest, v)
		}
	}
	series := make([]float64, len(x)) // one after the other: a step may have a million turns
	for i, v := range x {
		series[i] = min(v, slowest)
	}
	ofWaits := varianceInflation(series)
	for i, v := range x {
		series[i] = 0
		if v > limit || math.IsInf(v, 1) {
			series[i] = 1
		}
	}
	return max(ofWaits, varianceInflation(series))
}

// varianceInflation is max(1, 1 + 2Σρ_k), summed until ρ_k <= .05 and over at most a quarter of the series. It takes the mean from d.
func varianceInflation(d []float64) float64 {
	mean := 0.
	for _, v := range d {
		mean += v / float64(len(d))
	}
	variance := 0.
	for i := range d {
		d[i] -= mean
		variance += d[i] * d[i]
	}
	if variance == 0 {
		return 1
	}
	var all []float64 // products of every lag, once a series resembles itself for so long that one at a time is too slow
	sum := 1.
	for k := 1; k <= len(d)/4; k++ {
		c := 0.
		if k <= directLags {
			for i := k; i < len(d); i++ {
				c += d[i] * d[i-k]
			}
		} else {
			if all == nil {
				all = lagProducts(d)
			}
			c = all[k]
		}
		if c/variance <= .05 {
			break
		}
		sum += 2 * c / variance
	}
	return max(1, sum)
}

const directLags = 128

// lagProducts is Σ_i d[i]·d[i-k] for each lag k up to a quarter of the series, by way of its power spectrum.
func lagProducts(d []float64) []float64 {
	n := 1
	for n < len(d)+len(d)/4+1 {
		n *= 2
	}
	transform := fourier.NewFFT(n)
	spectrum := transform.Coefficients(nil, append(d[:len(d):len(d)], make([]float64, n-len(d))...))
	for i, v := range spectrum {
		spectrum[i] = complex(real(v)*real(v)+imag(v)*imag(v), 0)
	}
	out := transform.Sequence(nil, spectrum)[:len(d)/4+1]
	for k := range out {
		out[k] /= float64(n) // there and back
	}
	return out
}
