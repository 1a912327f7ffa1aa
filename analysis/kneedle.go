package analysis

import (
	"math"
	"slices"
)

// Shape says how a curve bends.
type Shape int

// The four shapes: latency over load is ConvexIncreasing, throughput over load ConcaveIncreasing.
const (
	ConcaveIncreasing Shape = iota
	ConvexIncreasing
	ConvexDecreasing
	ConcaveDecreasing
)

// Kneedle finds the knee of y over ascending x and returns its index: the largest local maximum of the difference curve inside
// the range (Satopää, Albrecht, Irwin, Raghavan 2011, "Finding a Kneedle in a Haystack", offline, without the smoothing
// spline). Both axes are scaled to 0..1 and both are mirrored where the shape asks for it, so that uneven spacing in x does no
// harm. Of the local maxima the paper takes the first; on a latency curve, which is walked from high load to low, that is the
// unsafe end, so the largest is taken here: it is the point farthest below the chord, of several the one at the lowest load.
// ok is false for fewer than five points, for a flat or straight curve, and for one that bends the other way.
func Kneedle(x, y []float64, shape Shape) (knee int, ok bool) {
	if len(x) < 5 {
		return 0, false
	}
	knee, height := kneedle(x, y, shape)
	return knee, height > 0
}

// kneedle is Kneedle for any number of points, with the height of the difference curve at the knee, 0..1; 0 is no knee.
func kneedle(x, y []float64, shape Shape) (knee int, height float64) {
	const straight = 1e-9 // what rounding leaves of a straight line
	n := len(x)
	if n < 3 || n != len(y) {
		return 0, 0
	}
	x0, xSpan := x[0], x[n-1]-x[0]
	y0, ySpan := slices.Min(y), slices.Max(y)-slices.Min(y)
	if xSpan <= 0 || ySpan <= 0 || math.IsInf(ySpan, 0) || math.IsNaN(ySpan) {
		return 0, 0
	}
	d := make([]float64, n)
	for i := range x {
		xn, yn := (x[i]-x0)/xSpan, (y[i]-y0)/ySpan
		switch shape {
		case ConcaveIncreasing:
			d[i] = yn - xn
		case ConvexIncreasing:
			d[i] = xn - yn
		case ConvexDecreasing:
			d[i] = 1 - yn - xn
		case ConcaveDecreasing:
			d[i] = yn - (1 - xn)
		}
	}
	tie := straight // points as high as each other: the later one in the paper's walk, which goes down in x where x is mirrored
	if shape == ConcaveIncreasing || shape == ConvexDecreasing {
		tie = -straight
	}
	for i := 1; i < n-1; i++ {
		if d[i] >= d[i-1]-straight && d[i] >= d[i+1]-straight && d[i] > straight && (height == 0 || d[i] > height+tie) {
			knee, height = i, d[i]
		}
	}
	return knee, height
}
