package engine

import "time"

// Stats is what an engine's own metrics would show: gauges as of now, and counters since New.
type Stats struct {
	Running int // requests past admission
	Waiting int // requests in the queue

	KVPoolBytes    int64 // the whole pool
	KVUsedBytes    int64 // held by running requests, prefixes they share counted once
	KVCachedBytes  int64 // held by the cache alone: evictable
	KVPoolTokens   int   // the longest single sequence that the pool can hold
	KVUsedTokens   int   // tokens whose KV (of layers without a window) is in use
	KVCachedTokens int   // the same, evictable
	KVFreeTokens   int   // the same, as many as what nobody holds has room for

	// The same of layers with a window; 0 without such layers. What nobody holds can become either kind of KV.
	WindowUsedTokens, WindowCachedTokens, WindowFreeTokens int

	DecodeBatch   int     // sequences in the last decode step
	GenThroughput float64 // tokens a second of the last decode step

	PromptTokens    int // of admitted requests, each counted once
	CachedTokens    int // of them, found in the cache at first admission
	ComputedTokens  int // prefilled; more than PromptTokens - CachedTokens when retractions recompute
	GeneratedTokens int
	EvictedTokens   int
	HostTokens      int // gauge: in the host tier
	Retractions     int

	FinishedLength  int
	FinishedRefused int
	FinishedAborted int

	PrefillSteps, DecodeSteps int
	PrefillBusy, DecodeBusy   time.Duration // of finished steps
	MaxRunningSeen            int

	// How full steps were: a step's batch is the prompts it computes, whole or in part, and the sequences that it decodes.
	PromptsStepped int // prompts of finished steps, a prompt in five parts counted five times
	DecodesStepped int // sequences that finished steps decoded, a token of each, or with speculation several
	MixedSteps     int // of PrefillSteps, those that decoded too

	// Peaks since New or ResetPeaks, with the step in progress.
	MaxBatch         int
	KVPeakBytes      int64 // of KVUsedBytes
	KVPeakTokens     int   // of KVUsedTokens
	WindowPeakTokens int   // of WindowUsedTokens
}

// ResetPeaks begins the peaks of Stats anew with what is now.
func (e *Engine) ResetPeaks() {
	e.stats.MaxBatch, e.stats.KVPeakBytes, e.stats.KVPeakTokens, e.stats.WindowPeakTokens = 0, 0, 0, 0
	e.peaks()
}

// peaks notes what the step in progress holds. From one step's start to the next memory is only given back.
func (e *Engine) peaks() {
	if e.step.kind != idle {
		e.stats.MaxBatch = max(e.stats.MaxBatch, len(e.step.batch.Prefill)+e.step.batch.Decodes)
	}
	f := e.store.Figures()
	e.stats.KVPeakBytes = max(e.stats.KVPeakBytes, f.UsedBytes)
	e.stats.KVPeakTokens, e.stats.WindowPeakTokens = max(e.stats.KVPeakTokens, f.UsedTokens), max(e.stats.WindowPeakTokens, f.WindowUsedTokens)
}

// Usage is the part of the pool that running requests hold, from 0 to 1.
func (s Stats) Usage() float64 { return float64(s.KVUsedBytes) / float64(max(1, s.KVPoolBytes)) }

// CacheHitRate is CachedTokens / PromptTokens, 0 without any.
func (s Stats) CacheHitRate() float64 {
	if s.PromptTokens == 0 {
		return 0
	}
	return float64(s.CachedTokens) / float64(s.PromptTokens)
}

// Stats returns the gauges and counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), e.waiting.len()
	f := e.store.Figures()
	s.KVPoolBytes, s.KVUsedBytes, s.KVCachedBytes = f.PoolBytes, f.UsedBytes, f.CachedBytes
	s.KVPoolTokens = e.store.Longest()
	s.KVUsedTokens, s.KVCachedTokens, s.KVFreeTokens = f.UsedTokens, f.CachedTokens, f.FreeTokens
	s.WindowUsedTokens, s.WindowCachedTokens, s.WindowFreeTokens = f.WindowUsedTokens, f.WindowCachedTokens, f.WindowFreeTokens
	s.EvictedTokens, s.HostTokens = f.EvictedTokens, f.HostTokens
	return s
}
