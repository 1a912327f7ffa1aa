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
	Retractions     int

	FinishedLength  int
	FinishedRefused int
	FinishedAborted int

	PrefillSteps, DecodeSteps int
	PrefillBusy, DecodeBusy   time.Duration // of finished steps
	MaxRunningSeen            int
}

// Usage is the part of the pool that running requests hold, from 0 to 1.
func (s Stats) Usage() float64 { return float64(s.KVUsedBytes) / float64(s.KVPoolBytes) }

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
	s.Running = e.admitted()
	s.Waiting = e.waiting.len()
	s.KVPoolBytes = e.memory.pool
	s.KVUsedBytes = e.memory.used(e.cache)
	s.KVCachedBytes = e.memory.evictable(e.cache)
	s.KVPoolTokens = e.memory.capacity()
	s.KVUsedTokens = e.cache.locked + e.memory.private
	s.KVCachedTokens = e.cache.tokens - e.cache.locked
	free := e.memory.free(e.cache)
	s.KVFreeTokens = int(free / e.memory.full)
	if e.memory.window > 0 {
		s.WindowUsedTokens, s.WindowCachedTokens = e.memory.tails, e.cache.charged
		s.WindowFreeTokens = int(free / e.memory.window)
	}
	s.EvictedTokens += e.cache.evicted
	return s
}
