package names

import (
	"slices"
	"strconv"
	"time"
)

// TTFTBounds are the upper ends, in seconds, of the buckets of TTFT, TTFTSent and E2E. Each limit stands among them, so that
// the bucket of a limit counts exactly the turns that held it.
func TTFTBounds(limits ...float64) []float64 {
	return with(limits, .025, .05, .075, .1, .15, .2, .25, .3, .35, .4, .5, .6, .8, 1, 1.5, 2, 3, 5, 10, 30, 60)
}

// ITLBounds are those of ITL and TPOT, in seconds.
func ITLBounds(limits ...float64) []float64 {
	return with(limits, .001, .002, .004, .006, .008, .01, .0125, .015, .02, .025, .03, .035, .04, .06, .08, .1, .15, .2, .4, .8, 1.6, 3.2, 6.4)
}

// LagBounds are those of Lag, in seconds.
func LagBounds() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// TokenBounds are those of Cached, in tokens.
func TokenBounds() []float64 {
	return []float64{0, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000, 20000, 24000, 32000, 64000, 128000}
}

// CallBounds are those of Calls.
func CallBounds() []float64 {
	return []float64{0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 150, 200, 300, 400, 600, 800, 1000}
}

func with(limits []float64, bounds ...float64) []float64 {
	bounds = append(bounds, limits...)
	slices.Sort(bounds)
	return slices.Compact(bounds)
}

// Within is the longest time of at most limitMS: what is within an objective's limit, and where the bucket of the limit ends.
func Within(limitMS float64) time.Duration {
	n := int64(limitMS*1e6) + 1
	for float64(n)/1e6 > limitMS {
		n--
	}
	return time.Duration(n)
}

// Seconds is a limit given in milliseconds, without what a division would add: 4.1 ms is .0041 s.
func Seconds(ms float64) float64 {
	s, err := strconv.ParseFloat(strconv.FormatFloat(ms, 'f', -1, 64)+"e-3", 64)
	if err != nil {
		return ms / 1e3
	}
	return s
}
