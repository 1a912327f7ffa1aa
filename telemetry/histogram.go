package telemetry

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// bounds are the upper ends of buckets: as they are shown, and as the largest raw value that still belongs to each.
type bounds struct {
	shown []float64
	raw   []int64
	unit  float64                        // raw values in one of those shown
	hdr   func() *hdrhistogram.Histogram // of raw values; nil where no native histogram is wanted
}

// layout is the bounds of every histogram.
type layout struct {
	ttft, sent, itl, tpot, lag, tokens, calls *bounds
}

func newLayout(objectives []measurement.Objective, native bool) layout {
	limits := func(metric string) (seconds []float64) {
		for _, o := range objectives {
			if o.Metric == metric {
				seconds = append(seconds, names.Seconds(o.LimitMS))
			}
		}
		return seconds
	}
	l := layout{
		ttft:   newBounds(names.TTFTBounds(limits("ttft")...), 1e9),
		sent:   newBounds(names.TTFTBounds(limits("ttft")...), 1e9),
		itl:    newBounds(names.ITLBounds(limits("itl")...), 1e9),
		tpot:   newBounds(names.ITLBounds(limits("itl")...), 1e9),
		lag:    newBounds(names.LagBounds(), 1e9),
		tokens: newBounds(names.TokenBounds(), 1),
		calls:  newBounds(names.CallBounds(), 1),
	}
	for _, o := range objectives {
		switch o.Metric {
		case "ttft":
			l.ttft.move(o.LimitMS)
			l.sent.move(o.LimitMS)
		case "itl":
			l.itl.move(o.LimitMS)
			l.tpot.move(o.LimitMS)
		}
	}
	if native {
		counts := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, 10_000_000, 3) }
		l.ttft.hdr, l.itl.hdr, l.tokens.hdr, l.calls.hdr = measurement.NewHistogram, measurement.NewHistogram, counts, counts
	}
	return l
}

func newBounds(shown []float64, unit float64) *bounds {
	b := &bounds{shown: shown, unit: unit}
	for _, s := range shown {
		b.raw = append(b.raw, int64(math.Round(s*unit)))
	}
	return b
}

// move puts the edge of a limit where the limit is: at the longest time within it, which is how a percentile is judged.
func (b *bounds) move(limitMS float64) {
	for i, s := range b.shown {
		if s == names.Seconds(limitMS) {
			b.raw[i] = int64(names.Within(limitMS))
		}
	}
}

// bucket is the index of the bucket that v belongs to; len(b.raw) for what exceeds all.
func (b *bounds) bucket(v int64) int {
	lo, hi := 0, len(b.raw)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); b.raw[mid] < v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// histogram counts raw values: nanoseconds, tokens or calls.
type histogram struct {
	bounds    *bounds
	counts    []uint64
	n         uint64
	sum       int64
	exemplars []exemplar // by bucket, the newest; nil where none has come

	hdr    *hdrhistogram.Histogram // nil unless native histograms are asked for
	folded uint64                  // how many values there were when hdr was folded into expo
	expo   exponential
}

// exemplar is a turn whose spans are sent.
type exemplar struct {
	value int64
	at    time.Duration
	trace trace.TraceID
	span  trace.SpanID
}

func newHistogram(b *bounds) histogram {
	return histogram{bounds: b, counts: make([]uint64, len(b.raw)+1)}
}

// add counts v and returns its bucket.
func (h *histogram) add(v int64) int {
	i := h.bounds.bucket(v)
	h.counts[i]++
	h.n++
	h.sum += v
	if h.bounds.hdr != nil {
		h.record(v)
	}
	return i
}

func (h *histogram) addTime(d time.Duration, ok bool) int {
	if !ok {
		return -1
	}
	return h.add(int64(d))
}

// remember keeps the exemplar of a bucket.
func (h *histogram) remember(bucket int, e exemplar) {
	if h.exemplars == nil {
		h.exemplars = make([]exemplar, len(h.counts))
	}
	h.exemplars[bucket] = e
}

// point is the histogram as it is exported; nothing of it is shared.
func (h *histogram) point(attrs attribute.Set, s *snapshot) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{
		Attributes: attrs, StartTime: s.start, Time: s.time,
		Count: h.n, Sum: float64(h.sum) / h.bounds.unit, Bounds: h.bounds.shown, BucketCounts: append([]uint64(nil), h.counts...),
	}
	for _, e := range h.exemplars {
		if e.trace.IsValid() {
			p.Exemplars = append(p.Exemplars, metricdata.Exemplar[float64]{
				Value: float64(e.value) / h.bounds.unit, Time: s.start.Add(e.at), TraceID: append([]byte(nil), e.trace[:]...), SpanID: append([]byte(nil), e.span[:]...),
			})
		}
	}
	return p
}
