package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
	"kneefinder/simulation"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// mostSamples is how many samples of a step are kept: with more of them one of every two is left out, and the next come at twice the
// distance. So a window of any length has sixty to a hundred and twenty, one in each of equally long parts of it, but for one of a few
// milliseconds.
const mostSamples = 120

// firstPart is how long the part of a window is of which the first samples are: 2^-12 s, so that parts of whole seconds come of doubling it.
const firstPart = time.Second >> 12

// within is where in the n-th part of a window its sample is taken, from 0 to 1 and at the start of the first: multiples of the golden
// ratio, which are spread evenly however many there are and keep step with no load that comes in periods (Weyl 1916; additive recurrence).
func within(n int) float64 {
	_, part := math.Modf(float64(n) * (math.Sqrt(5) - 1) / 2)
	return part
}

// machine is what answers: one engine, or a fleet.
type machine interface {
	simulation.Engine
	Stats() engine.Stats
	ResetPeaks()
}

// sampler looks at the engine while steps run, from the start of each window on, at first many times a second. All of it runs in processes of a
// virtual clock, one at a time.
type sampler struct {
	clk     clock.Clock
	eng     machine
	split   bool          // layers with a window have a pool of their own
	longest time.Duration // that a step can last from its window's start; beyond it nobody may look, or a run that hangs would not be noticed

	step    int
	stop    context.CancelCauseFunc // of the process that looks
	every   time.Duration
	pairs   int  // of samples of which one was left out
	over    bool // the window has ended
	samples []measurement.EngineSample
}

// StepBegin starts a process that looks until the window is over.
func (s *sampler) StepBegin(step measurement.Step) {
	ctx, stop := s.clk.WithCancelCause(context.Background())
	s.step, s.stop, s.every, s.pairs, s.over, s.samples = step.Step, stop, firstPart, 0, false, nil
	s.clk.Go(fmt.Sprint("the samples of step ", step.Step), func() {
		n := 0
		for part := step.WindowStart; !s.over && part <= step.WindowStart+s.longest; part += s.every {
			if s.clk.SleepUntil(ctx, part+time.Duration(within(n)*float64(s.every))) != nil {
				return
			}
			s.look()
			if n == 0 {
				s.eng.ResetPeaks()
			}
			n++
			s.thin()
		}
	})
}

// look takes a sample.
func (s *sampler) look() {
	s.samples = append(s.samples, measurement.EngineSample{At: s.clk.Now(), Step: s.step, Values: valuesOf(s.eng, s.split)})
}

// thin leaves out one of every two samples when they are many, sometimes the earlier and sometimes the later: what is left may stand anywhere
// in a part twice as long. The first stays, as counting begins with it.
func (s *sampler) thin() {
	if len(s.samples) <= mostSamples {
		return
	}
	kept := s.samples[:1]
	for i := 1; i+1 < len(s.samples); i += 2 {
		s.pairs++
		kept = append(kept, s.samples[i+int(2*within(s.pairs))])
	}
	s.samples, s.every = kept, 2*s.every
}

// take ends a step's samples: those of its window, the first behind it, and one of the end, when nothing is in progress.
func (s *sampler) take(step measurement.Step) []measurement.EngineSample {
	s.stop(nil)
	end := slices.IndexFunc(s.samples, func(x measurement.EngineSample) bool { return x.At >= step.WindowEnd })
	if step.WindowEnd >= 0 && end >= 0 {
		s.samples = s.samples[:end+1]
	}
	if n := len(s.samples); n == 0 || s.samples[n-1].At < s.clk.Now() {
		s.look()
	}
	return s.samples
}

// Turn notices that the window is over.
func (s *sampler) Turn(t measurement.Turn) { s.over = s.over || t.Phase == measurement.Drain }

// The rest of what a cli.Watcher is told is nothing to a sampler.

func (s *sampler) StepEnd(measurement.Step)          {}
func (s *sampler) InFlight(time.Duration, int, int)  {}
func (s *sampler) StepResult(measurement.StepResult) {}
func (s *sampler) Results(measurement.Results)       {}

// valuesOf are what a machine says of itself, of a fleet's replicas too.
func valuesOf(m machine, split bool) map[string]float64 {
	values := figures(m.Stats(), split)
	f, ok := m.(interface{ PerReplica() []fleet.Standing })
	if !ok {
		return values
	}
	peak := 0.
	for i, r := range f.PerReplica() {
		if r.Stats.KVPoolBytes == 0 { // it is down, and has no pool
			r.Stats.KVPeakBytes = 0
		}
		own := figures(r.Stats, split)
		if r.Role == fleet.Decode { // its prompts come computed: another replica looked for them
			for _, name := range []string{measurement.SamplePrompt, measurement.SampleCached} {
				values[name] -= own[name]
				own[name] = 0
			}
		}
		for _, name := range []string{measurement.SampleRunning, measurement.SampleKVUsage, measurement.SamplePrompt, measurement.SampleCached} {
			values[measurement.OfReplica(i, name)] = own[name]
		}
		peak = max(peak, own[measurement.SampleKVPeak])
	}
	values[measurement.SampleKVPeak] = peak // of the fullest, not of all pools together
	return values
}

// figures are an engine's, by the names that those of a real one have. Where layers with a window have a pool of their own, as SGLang divides
// memory, parts of the pool are those of the other layers', and the usage is that of the fuller one, as SGLang tells it too.
func figures(s engine.Stats, split bool) map[string]float64 {
	values := gauges(s)
	full, window := s.KVUsedTokens+s.KVCachedTokens+s.KVFreeTokens, s.WindowUsedTokens+s.WindowCachedTokens+s.WindowFreeTokens
	if !split || full == 0 || window == 0 {
		return values
	}
	of := func(tokens, pool int) float64 { return float64(tokens) / float64(pool) }
	pool := float64(s.KVPoolTokens)
	values[measurement.SampleKVUsed], values[measurement.SampleKVCached], values[measurement.SampleKVFree] =
		pool*of(s.KVUsedTokens, full), pool*of(s.KVCachedTokens, full), pool*of(s.KVFreeTokens, full)
	values[measurement.SampleWindowUsage], values[measurement.SampleWindowCached] = of(s.WindowUsedTokens, window), of(s.WindowCachedTokens, window)
	values[measurement.SampleKVUsage] = max(of(s.KVUsedTokens, full), of(s.WindowUsedTokens, window))
	values[measurement.SampleKVPeak] = max(of(s.KVPeakTokens, full), of(s.WindowPeakTokens, window))
	return values
}

// gauges are figures of a pool that all layers share.
func gauges(s engine.Stats) map[string]float64 {
	// Layers with a window keep fewer tokens than the others: parts of the pool are told in tokens of the longest sequence that it
	// holds, so that they add up to it for every model.
	tokens := func(bytes int64) float64 {
		return float64(bytes) * float64(s.KVPoolTokens) / float64(max(1, s.KVPoolBytes))
	}
	return map[string]float64{
		measurement.SampleRunning:     float64(s.Running),
		measurement.SampleQueued:      float64(s.Waiting),
		measurement.SampleKVUsage:     s.Usage(),
		measurement.SampleKVUsed:      tokens(s.KVUsedBytes),
		measurement.SampleKVCached:    tokens(s.KVCachedBytes),
		measurement.SampleKVFree:      tokens(s.KVPoolBytes - s.KVUsedBytes - s.KVCachedBytes),
		measurement.SampleKVPool:      float64(s.KVPoolTokens),
		measurement.SampleEvicted:     float64(s.EvictedTokens),
		measurement.SampleRetractions: float64(s.Retractions),
		measurement.SamplePrompt:      float64(s.PromptTokens),
		measurement.SampleCached:      float64(s.CachedTokens),
		measurement.SampleGenerated:   float64(s.GeneratedTokens),
		measurement.SamplePrefillBusy: s.PrefillBusy.Seconds(),
		measurement.SampleDecodeBusy:  s.DecodeBusy.Seconds(),
		measurement.SampleMaxRunning:  float64(s.MaxRunningSeen),

		measurement.SampleComputed:       float64(s.ComputedTokens),
		measurement.SamplePrefillSteps:   float64(s.PrefillSteps),
		measurement.SampleDecodeSteps:    float64(s.DecodeSteps),
		measurement.SampleMixedSteps:     float64(s.MixedSteps),
		measurement.SamplePromptsStepped: float64(s.PromptsStepped),
		measurement.SampleDecodesStepped: float64(s.DecodesStepped),
		measurement.SampleMostBatch:      float64(s.MaxBatch),
		measurement.SampleKVPeak:         float64(s.KVPeakBytes) / float64(max(1, s.KVPoolBytes)),
	}
}
