package analysis

import (
	"math"
	"math/bits"
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
	z := make([]complex128, n)
	for i, v := range d {
		z[i] = complex(v, 0)
	}
	turn := make([]complex128, n/2)
	for i := range turn {
		sin, cos := math.Sincos(-2 * math.Pi * float64(i) / float64(n))
		turn[i] = complex(cos, sin)
	}
	fourier(z, turn)
	for i, v := range z {
		z[i] = complex(real(v)*real(v)+imag(v)*imag(v), 0)
	}
	fourier(z, turn) // the spectrum is real and even: its transform back is the one forth over n
	out := make([]float64, len(d)/4+1)
	for k := range out {
		out[k] = real(z[k]) / float64(n)
	}
	return out
}

// fourier replaces z, whose length n is a power of two, by its discrete Fourier transform; turn are the first n/2 powers of exp(-2πi/n).
func fourier(z, turn []complex128) {
	n := len(z)
	shift := 64 - bits.TrailingZeros(uint(n))
	for i := range z {
		if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
			z[i], z[j] = z[j], z[i]
		}
	}
	for half := 1; half < n; half *= 2 {
		for i := 0; i < n; i += 2 * half {
			for j := range half {
				a, b := z[i+j], z[i+j+half]*turn[j*(n/(2*half))]
				z[i+j], z[i+j+half] = a+b, a-b
			}
		}
	}
}
