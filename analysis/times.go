package analysis

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/measurement"
)

// times are a step's distributions; ttft are TTFTs, ascending. Failed turns enter as they do in TTFT: one that was never admitted waited
// without end.
func times(measured some, ttft []float64, itl *hdrhistogram.Histogram) *measurement.Times {
	t := measurement.Times{
		TTFT:         spread(ttft),
		QueueWait:    spread(ascending(waitsOf(measured, (*measurement.Turn).QueueWait))),
		TTFTAdmitted: spread(ascending(waitsOf(measured, (*measurement.Turn).TTFTAdmitted))),
		TPOT:         spread(ascending(timesOf(measured, tpot))),
		E2E:          spread(ascending(timesOf(measured, (*measurement.Turn).E2E))),
	}
	if itl != nil {
		t.ITL = measurement.Spread{N: int(itl.TotalCount()), Mean: figure(itl.Mean() / float64(time.Millisecond)), P50: figure(gapQuantile(itl, .5)),
			P90: figure(gapQuantile(itl, .9)), P95: figure(gapQuantile(itl, .95)), P99: figure(gapQuantile(itl, .99))}
	}
	return &t
}

// spread is the distribution of ascending milliseconds, +Inf of turns without any.
func spread(v []float64) measurement.Spread {
	return measurement.Spread{N: len(v), Mean: mean(v), P50: quantile(v, .5), P90: quantile(v, .9), P95: quantile(v, .95), P99: quantile(v, .99)}
}

// settled is the part of a window after which a queue's slope is looked at: before it the queue may be filling up to where it stays.
const settled = .2

// simulated is what only the samples of an engine model tell.
func (w *sampled) simulated(r *measurement.EngineResult) {
	d := w.counted(w.engine, measurement.SamplePrefillSteps, measurement.SampleDecodeSteps, measurement.SampleMixedSteps,
		measurement.SamplePromptsStepped, measurement.SampleDecodesStepped, measurement.SampleComputed)
	prefills, decodes, mixed, prompts, sequences, computed := d.by[0], d.by[1], d.by[2], d.by[3], d.by[4], d.by[5]
	if math.IsNaN(prefills) {
		return
	}
	steps := prefills + decodes
	r.Packing = &measurement.Packing{Steps: steps, BatchMean: figure((prompts + sequences) / steps), PrefillMean: figure(prompts / steps),
		DecodeMean: figure(sequences / steps), QueryMean: figure((computed + sequences) / steps), PrefillShare: figure(prefills / steps),
		MixedShare: figure(mixed / steps), BatchMost: most(w.upTo(measurement.SampleMostBatch))}
	r.KVPeak = most(w.upTo(measurement.SampleKVPeak))
	r.WindowUsage, r.WindowCached = mean(w.gauge(measurement.SampleWindowUsage)), mean(w.gauge(measurement.SampleWindowCached))
	r.QueuedSlope = figure(w.slope(measurement.SampleQueued))
	for i := 0; ; i++ {
		name := func(of string) string { return measurement.OfReplica(i, of) }
		d := w.counted(w.engine, name(measurement.SampleCached), name(measurement.SamplePrompt))
		usage := w.gauge(name(measurement.SampleKVUsage))
		if math.IsNaN(d.by[1]) && len(usage) == 0 {
			return
		}
		r.Replicas = append(r.Replicas, measurement.ReplicaResult{Replica: i, PromptTokens: figure(d.by[1]), CacheHitRate: figure(d.by[0] / d.by[1]),
			KVUsageMean: mean(usage), RunningMean: mean(w.gauge(name(measurement.SampleRunning)))})
	}
}

// upTo are the values in the window and the first behind it, which tells of the window's last moments.
func (w *sampled) upTo(name string) []float64 {
	var out []float64
	for _, s := range w.engine {
		if v, ok := s.Values[name]; ok && s.At > w.from {
			out = append(out, v)
		}
		if s.At >= w.to {
			break
		}
	}
	return out
}

// slope is by how much a gauge rises a second, by least squares over the window after its first part; NaN of fewer than three samples.
func (w *sampled) slope(name string) float64 {
	from := w.from + time.Duration(settled*float64(w.to-w.from))
	var n, x, y, xx, xy float64
	for _, s := range w.engine {
		if v, ok := s.Values[name]; ok && w.covers(s.At) && s.At >= from {
			at := (s.At - from).Seconds()
			n, x, y, xx, xy = n+1, x+at, y+v, xx+at*at, xy+at*v
		}
	}
	if n < 3 {
		return math.NaN()
	}
	return (n*xy - x*y) / (n*xx - x*x)
}
