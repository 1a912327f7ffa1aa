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

// mostSamples is how many samples of a step are kept: with more of them every other one is left out, and the next come at twice the
// distance. So a window of any length has thirty to sixty, one in each of equally long parts of it.
const mostSamples = 60

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

// sampler looks at the engine while steps run, from the start of each window on, first once a second. All of it runs in processes of a
// virtual clock, one at a time.
type sampler struct {
	clk     clock.Clock
	eng     machine
	longest time.Duration // that a step can last from its window's start; beyond it nobody may look, or a run that hangs would not be noticed

	step    int
	stop    context.CancelCauseFunc // of the process that looks
	every   time.Duration
	over    bool // the window has ended
	samples []measurement.EngineSample
}

// StepBegin starts a process that looks until the window is over.
func (s *sampler) StepBegin(step measurement.Step) {
	ctx, stop := s.clk.WithCancelCause(context.Background())
	s.step, s.stop, s.every, s.over, s.samples = step.Step, stop, time.Second, false, nil
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
	s.samples = append(s.samples, measurement.EngineSample{At: s.clk.Now(), Step: s.step, Values: valuesOf(s.eng)})
}

// thin leaves out every other sample when they are many.
func (s *sampler) thin() {
	if len(s.samples) <= mostSamples {
		return
	}
	kept := s.samples[:0]
	for i := 0; i < len(s.samples); i += 2 {
		kept = append(kept, s.samples[i])
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
func valuesOf(m machine) map[string]float64 {
	values := figures(m.Stats())
	f, ok := m.(interface{ PerReplica() []fleet.Standing })
	if !ok {
		return values
	}
	peak := 0.
	for i, r := range f.PerReplica() {
		if r.Stats.KVPoolBytes == 0 { // it is down, and has no pool
			r.Stats.KVPeakBytes = 0
		}
		own := figures(r.Stats)
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

// figures are an engine's, by the names that those of a real one have.
func figures(s engine.Stats) map[string]float64 {
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
