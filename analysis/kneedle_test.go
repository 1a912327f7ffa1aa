package analysis

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func upTo(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i)
	}
	return x
}

func each(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = f(x[i])
	}
	return y
}

// The curves are those that implementations of Kneedle are tested with; the knees are theirs where the first found, the last
// found and the largest difference agree, else the largest difference.
func TestKneedle(t *testing.T) {
	none := math.NaN()
	ninths := each(upTo(10), func(v float64) float64 { return v / 9 })
	figure2 := each(ninths, func(v float64) float64 { return -1/(v+.1) + 5 })
	tenths := each(upTo(100), func(v float64) float64 { return v / 10 })
	sine := each(tenths, math.Sin)
	concaveInc := []float64{0, 60, 80, 85, 90, 95, 96, 97, 98, 99}
	convexInc := []float64{1, 2, 3, 4, 5, 10, 15, 20, 40, 100}
	convexDec := []float64{100, 40, 20, 15, 10, 5, 4, 3, 2, 1}
	concaveDec := []float64{99, 98, 97, 96, 95, 90, 85, 80, 60, 0}
	growing := []float64{5.0328, 6.9083556, 7.5622222, 8.0419556, 8.3384444, 8.5769778, 8.7379556, 8.8759111, 8.9671111}
	nines := []float64{.9, .99, .999, .9999, .99999}
	tenth := func(v []float64) []float64 { return each(v[:7], func(v float64) float64 { return v / 10 }) }
	flat := []float64{1, .787701317715959, .7437774524158126, .6559297218155198, .5065885797950219, .36749633967789164, .2547584187408492,
		.16251830161054173, .10395314787701318, .06734992679355783, .043923865300146414, .027818448023426062, .01903367496339678,
		.013177159590043924, .010248901903367497, .007320644216691069, .005856515373352855, .004392386530014641}
	hyper := each(upTo(10), func(i float64) float64 { return .1 + i*.85/9 })

	for _, c := range []struct {
		name  string
		x, y  []float64
		shape Shape
		want  float64 // x of the knee
	}{
		{"figure 2 of the paper", ninths, figure2, ConcaveIncreasing, 2. / 9},
		{"figure 2 read the wrong way round", ninths, figure2, ConcaveDecreasing, none},
		{"concave increasing", upTo(10), concaveInc, ConcaveIncreasing, 2},
		{"convex increasing", upTo(10), convexInc, ConvexIncreasing, 7},
		{"convex decreasing", upTo(10), convexDec, ConvexDecreasing, 2},
		{"concave decreasing", upTo(10), concaveDec, ConcaveDecreasing, 7},
		{"concave increasing, truncated", tenth(upTo(10)), tenth(concaveInc), ConcaveIncreasing, .2},
		{"convex increasing, truncated", tenth(upTo(10)), tenth(convexInc), ConvexIncreasing, .4},
		{"convex decreasing, truncated", tenth(upTo(10)), tenth(convexDec), ConvexDecreasing, .2},
		{"concave decreasing, truncated", tenth(upTo(10)), tenth(concaveDec), ConcaveDecreasing, .4},
		{"a maximum between two almost equal points", upTo(18), flat, ConvexDecreasing, 8},
		{"three points are too few", []float64{1, 2, 3}, []float64{.90483742, .81873075, .74081822}, ConvexDecreasing, none},
		{"constant", upTo(10), each(upTo(10), func(float64) float64 { return 1 }), ConvexIncreasing, none},
		{"a straight line, convex", upTo(10), upTo(10), ConvexIncreasing, none},
		{"a straight line, concave", upTo(10), upTo(10), ConcaveIncreasing, none},
		{"a straight line, read as falling", upTo(10), upTo(10), ConvexDecreasing, none},
		{"a sine has several bends: the largest", tenths, sine, ConvexDecreasing, 4.5},
		{"a sine, convex increasing", tenths, sine, ConvexIncreasing, 4.9},
		{"a sine, concave increasing: the larger of 1.4 and 7.7", tenths, sine, ConcaveIncreasing, 1.4},
		{"a sine, concave decreasing: the larger of 1.8 and 8.1", tenths, sine, ConcaveDecreasing, 8.1},
		{"uneven spacing", []float64{7.58664459e-05, 1.11978460e-04, 2.38899123e-04, 4.90114492e-04, 7.82853340e-04, 1.02036258e-03, 1.31875021e-03,
			2.30043176e-03, 4.40276718e-03, 7.70743315e-03, 1.60477105e-02, 3.83262376e-02},
			[]float64{.27655736, .27249274, .2646699, .25457005, .248055, .2457939, .24485397, .24355771, .24200204, .24073301, .23906376, .23606901},
			ConvexDecreasing, .00230043176},
		{"a threshold below zero", []float64{3, 4, 5, 6, 7, 8}, []float64{1.4699, 1.4149, 1.3868, 1.3594, 1.3411, 1.3265}, ConvexDecreasing, 4},
		{"the first 6 points of a curve", upTo(6), growing[:6], ConcaveIncreasing, 1},
		{"its first 7: the knee moves with the range", upTo(7), growing[:7], ConcaveIncreasing, 2},
		{"its first 8", upTo(8), growing[:8], ConcaveIncreasing, 2},
		{"all 9", upTo(9), growing, ConcaveIncreasing, 2},
		{"spacing by nines", nines, []float64{1.9e-5, 4.6e-5, 5e-5, 5e-5, 5e-5}, ConcaveIncreasing, .999},
		{"spacing by nines, read as convex", nines, []float64{1.9e-5, 4.6e-5, 5e-5, 5e-5, 5e-5}, ConvexIncreasing, .99},
		{"twelve clusters", each(upTo(12), func(v float64) float64 { return v + 1 }),
			[]float64{1, 1, .894, .864, .859, .856, .852, .851, .849, .848, .847, .845}, ConvexDecreasing, 4},
		{"a steep start", []float64{0, .1, .2, .35, .45, .55, .675, .775, .875, 1}, []float64{0, .55, .75, .825, .875, .9, .925, .95, .975, 1}, ConcaveIncreasing, .2},
		{"latency over even rates", []float64{.2, .4, .6, .8, 1, 1.2, 1.4, 1.6}, []float64{92, 95, 101, 118, 160, 410, 2900, 9800}, ConvexIncreasing, 1.2},
		{"the same on a log axis bends sooner", []float64{.2, .4, .6, .8, 1, 1.2, 1.4, 1.6},
			each([]float64{92, 95, 101, 118, 160, 410, 2900, 9800}, math.Log), ConvexIncreasing, 1},
		{"latency over uneven rates: both axes must be mirrored", []float64{.2, .5, .8, 1, 1.1, 1.2, 1.25, 1.3}, []float64{100, 105, 120, 170, 240, 420, 700, 1500}, ConvexIncreasing, 1.1},
		{"1/(1-x) up to .95", hyper, each(hyper, func(x float64) float64 { return 1 / (1 - x) }), ConvexIncreasing, .1 + 7*.85/9},
	} {
		i, ok := Kneedle(c.x, c.y, c.shape)
		got := math.NaN()
		if ok {
			got = c.x[i]
		}
		if !(math.Abs(got-c.want) < 1e-9 || math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: knee at %v, want %v", c.name, got, c.want)
		}
	}
}

func TestKneedleDoesNotMindScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfNDistinct(rapid.Float64Range(.01, 10), 5, 12, rapid.ID).Draw(t, "x")
		slices.Sort(x)
		y := rapid.SliceOfN(rapid.Float64Range(1, 1000), len(x), len(x)).Draw(t, "y")
		shape := Shape(rapid.IntRange(0, 3).Draw(t, "shape"))
		a, okA := Kneedle(x, y, shape)
		// Scaled by powers of two, which changes no digit.
		b, okB := Kneedle(each(x, func(v float64) float64 { return 4 * v }), each(y, func(v float64) float64 { return v / 8 }), shape)
		if a != b || okA != okB {
			t.Fatalf("scaled: knee %d, %v, want %d, %v", b, okB, a, okA)
		}
		if okA && (a == 0 || a == len(x)-1) {
			t.Fatalf("knee at an end of the range: %d", a)
		}
	})
}
