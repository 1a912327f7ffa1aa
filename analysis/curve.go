package analysis

import (
	"cmp"
	"math"
	"slices"

	"kneefinder/measurement"
)

// curve is one figure over the load: points in ascending λ, each weighing as much as the turns behind it.
type curve struct{ x, y, w []float64 }

// newCurve takes y of each step; steps where it is NaN are left out, steps of one rate become one point, their weighted mean.
func newCurve(steps []measurement.StepResult, y func(*measurement.StepResult) float64) curve {
	var c curve
	for _, s := range byRate(steps) {
		v, w := y(&s), max(float64(s.MeasuredTurns), 1)
		if math.IsNaN(v) {
			continue
		}
		if n := len(c.x); n > 0 && c.x[n-1] == s.Rate {
			c.y[n-1] = (c.y[n-1]*c.w[n-1] + v*w) / (c.w[n-1] + w)
			c.w[n-1] += w
			continue
		}
		c.x, c.y, c.w = append(c.x, s.Rate), append(c.y, v), append(c.w, w)
	}
	return c
}

// byRate returns the steps in ascending λ; steps of one rate keep their order.
func byRate(steps []measurement.StepResult) []measurement.StepResult {
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b measurement.StepResult) int { return cmp.Compare(a.Rate, b.Rate) })
	return steps
}

// rising is the curve that never falls and lies nearest to this one in weighted least squares: pool adjacent violators
// (Ayer et al. 1955). A block that holds +Inf is +Inf.
func (c curve) rising() curve {
	type block struct {
		y, w float64
		n    int
	}
	var blocks []block
	for i, y := range c.y {
		b := block{y, c.w[i], 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].y >= b.y {
			a := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			b = block{(a.y*a.w + b.y*b.w) / (a.w + b.w), a.w + b.w, a.n + b.n}
		}
		blocks = append(blocks, b)
	}
	out := curve{x: c.x, w: c.w}
	for _, b := range blocks {
		for range b.n {
			out.y = append(out.y, b.y)
		}
	}
	return out
}

// falling is the same for a curve that never rises.
func (c curve) falling() curve {
	return c.negated().rising().negated()
}

func (c curve) negated() curve {
	y := make([]float64, len(c.y))
	for i, v := range c.y {
		y[i] = -v
	}
	return curve{c.x, y, c.w}
}

// crossing finds where a rising curve first goes over limit: between the points i-1 and i, at x, interpolated on the given
// scale of y (math.Log or linear). i is 0 when the first point is over already, and len(c.x) when none is. x is NaN when
// either of these holds, for nothing is extrapolated, and when the point over the limit is infinite.
func (c curve) crossing(limit float64, scale func(float64) float64) (x float64, i int) {
	i = slices.IndexFunc(c.y, func(y float64) bool { return y > limit })
	if i < 0 {
		return math.NaN(), len(c.x)
	}
	if i == 0 || math.IsInf(c.y[i], 1) {
		return math.NaN(), i
	}
	a, b := scale(c.y[i-1]), scale(c.y[i])
	return c.x[i-1] + (c.x[i]-c.x[i-1])*(scale(limit)-a)/(b-a), i
}

func linear(y float64) float64 { return y }
