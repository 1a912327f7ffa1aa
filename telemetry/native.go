package telemetry

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// nativeScale makes 32 buckets of each power of two: each is 2.2 % wide, 22 times as wide as a cell of the HdrHistogram that
// it is filled from. Prometheus takes scales from -4 to 8.
const nativeScale = 5

// exponential is an HdrHistogram folded into exponential buckets, of the unit that is shown.
type exponential struct {
	zero   uint64
	offset int32 // of the first count: bucket i holds values in (base^i, base^(i+1)]
	counts []uint64
}

// record puts v into the HdrHistogram; what exceeds its range counts as its largest value.
func (h *histogram) record(v int64) {
	if h.hdr == nil {
		h.hdr = h.bounds.hdr()
	}
	_ = h.hdr.RecordValue(min(max(v, 0), h.hdr.HighestTrackableValue()))
}

// index is the exponential bucket of a value above 0.
func index(v float64) int32 {
	frac, exp := math.Frexp(v) // v = frac*2^exp, frac in [.5, 1)
	if frac == .5 {
		return int32(exp-1)<<nativeScale - 1 // a power of two ends its bucket; its logarithm must not be off by a rounding
	}
	return int32(math.Ceil(math.Ldexp(math.Log2(frac)+float64(exp), nativeScale))) - 1
}

// fold brings expo up to date. A cell counts as a whole in the bucket of its middle.
func (h *histogram) fold() {
	if h.hdr == nil || h.folded == h.n {
		return
	}
	h.folded = h.n
	cells := h.hdr.Distribution()
	first, last := int32(math.MaxInt32), int32(math.MinInt32)
	e := exponential{}
	middle := func(from, to int64) float64 { return (float64(from) + float64(to)) / 2 / h.bounds.unit }
	for _, c := range cells {
		if c.Count == 0 {
			continue
		}
		if c.To <= 0 || c.From == 0 && c.To == 0 {
			e.zero += uint64(c.Count)
			continue
		}
		i := index(middle(c.From, c.To))
		first, last = min(first, i), max(last, i)
	}
	if first <= last {
		e.offset, e.counts = first, make([]uint64, last-first+1)
		for _, c := range cells {
			if c.Count > 0 && c.To > 0 {
				e.counts[index(middle(c.From, c.To))-first] += uint64(c.Count)
			}
		}
	}
	h.expo = e
}

// exponentialPoint is the histogram as a native one. Its counts are not changed again once they are given away: fold makes new
// ones.
func (h *histogram) exponentialPoint(attrs attribute.Set, s *snapshot) metricdata.ExponentialHistogramDataPoint[float64] {
	h.fold()
	return metricdata.ExponentialHistogramDataPoint[float64]{
		Attributes: attrs, StartTime: s.start, Time: s.time, Count: h.n, Sum: float64(h.sum) / h.bounds.unit,
		Scale: nativeScale, ZeroCount: h.expo.zero, PositiveBucket: metricdata.ExponentialBucket{Offset: h.expo.offset, Counts: h.expo.counts},
	}
}
