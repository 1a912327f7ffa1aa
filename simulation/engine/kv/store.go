// Package kv models the KV memory of one engine: its pools, their pages, and the prefix cache that lives in what running requests
// do not hold. Nothing here knows time, steps or queues.
package kv

// Token is the id of one token. Equal ids are equal content.
type Token = uint32

// Layout is what KV takes on one GPU, all its layers together.
type Layout struct {
	FullBytes    int64 // of a token in the layers that attend to everything
	WindowBytes  int64 // of a token in the layers with a sliding window; 0 without such layers
	WindowTokens int   // the window; 0 without such layers
	FullLayers   int
	WindowLayers int
}

// Scheme is how an engine divides the pool among the kinds of layers, and finds prefixes.
type Scheme string

// The schemes.
const (
	Ideal   Scheme = "ideal"      // radix tree; window layers keep a window, and both kinds of layers share one pool
	SGLang  Scheme = "sglang"     // radix tree; a pool for either kind of layers, the window's WindowRatio times as many tokens as the other
	Unified Scheme = "unified"    // radix tree; every layer is charged for every token: no hybrid memory
	VLLM    Scheme = "vllm"       // block hashes; groups of layers with pages of one size in one pool
	VLLMOld Scheme = "vllm-eager" // VLLM with window blocks freed eagerly and recycled tail first, as in vllm-project/vllm#48435
)

// Eviction is which of what nobody holds goes first.
type Eviction string

// The eviction policies, each among leaves only.
const (
	LRU  Eviction = "lru"
	LFU  Eviction = "lfu"
	FIFO Eviction = "fifo"
	MRU  Eviction = "mru"
	FILO Eviction = "filo"
)

// Config is a pool.
type Config struct {
	Layout
	Pool        int64 // bytes
	Scheme      Scheme
	PageTokens  int      // tokens of a page of the layers that attend to everything; 0: 1; VLLM: 16 of the layers with more bytes a token
	WindowRatio float64  // of SGLang; 0: .8
	Eviction    Eviction // empty: LRU
	NoPrefix    bool     // nothing is found again
	HostBytes   int64    // a second tier, in the host's memory, that what is evicted goes to; 0: none

	StepTokens int  // of VLLM: the most tokens of a prompt that one step computes; 0: any number
	Ahead      bool // of VLLM: a step is put together while the one before it runs, and finds held what that one sees
}

// Need is an amount of memory, in units that only its store knows. Needs add up.
type Need struct{ A, B int64 }

// Plus is the sum.
func (n Need) Plus(o Need) Need { return Need{n.A + o.A, n.B + o.B} }

// Match is the usable cached prefix of a sequence, as of the store's Version. The zero value is no prefix.
type Match struct {
	Length int // tokens
	Host   int // the last of them, whose KV is in the host tier: Open takes room for it on the GPU, and it has to be loaded

	near  int    // tokens that are not in the host tier
	node  *node  // radix: the end; Length may lie inside of it
	leafy *leafy // two pools: likewise

	entry    int32 // block hashes: the last full block; 0 is none
	junction int   // tokens that full layers know beyond Length; 0 when there are none
}

// Store is the KV memory of one engine. New makes one. It belongs to one engine: no two calls may overlap.
//
// Tokens that it was told of must not change: slices that begin at the same place have the same content, as far as both go.
//
// A sequence is opened on a match, grows, is committed when what it holds has been computed, and is closed; what it had committed
// or is closed with stays as cache until something else needs the place.
type Store interface {
	// Find returns the longest prefix of tokens that is there to be used. It changes nothing.
	Find(tokens []Token) Match
	// Version changes when Find could give another answer.
	Version() uint64

	// Growth is what one sequence takes more when it grows from one length to another, token by token.
	Growth(from, to int) Need
	// Chunk is what it takes more when one step computes all of it, a part of a prompt: more than Growth where a window's blocks
	// are held until the step has been. Parts that are longer than a step take what the most expensive of their steps does. s is
	// the sequence, or nil before it is open.
	Chunk(from, to int, s *Sequence) Need
	// Fits reports whether need has room beside all that is held, if m were opened: everything that nobody holds can be evicted.
	Fits(m Match, need Need) bool
	// AtOnce reports whether MakeRoom of need and Grow, of sequences that go on by many tokens each, end as they do token by token.
	// They do not always where two pools are both short, which evict from one tree, or where a host tier stands behind.
	AtOnce(need Need) bool
	// MakeRoom evicts until need is free. Where that cannot be it returns false; what it has evicted is gone.
	MakeRoom(need Need) bool

	// Open starts s on m, which Find must have returned at this Version: the prefix is held, and becomes the most recently used. tokens
	// is the whole prompt, of which Find was asked for all but the last, which is always computed.
	Open(s *Sequence, m Match, tokens []Token)
	// Grow charges s up to the length to. MakeRoom of its Growth must have succeeded just before.
	Grow(s *Sequence, to int)
	// GrowChunk does it for a part of a prompt that one step computes: MakeRoom of its Chunk must have succeeded. Commit gives back
	// what Chunk is more than Growth.
	GrowChunk(s *Sequence, to int)
	// Commit makes all that s holds findable: more is its content from s.Committed() to s.Len(). The store keeps parts of more (never of a
	// whole prompt for the sake of a few tokens behind it), and does not change it.
	Commit(s *Sequence, more []Token)
	// Close commits more likewise, and gives all back.
	Close(s *Sequence, more []Token)

	// Flush drops what nobody holds.
	Flush()
	// Figures is what is where now.
	Figures() Figures
	// Longest is the length of the longest single sequence that the empty store can hold.
	Longest() int
}

// Sequence is what one running request holds. The zero value is not open.
type Sequence struct {
	length    int // tokens of KV
	committed int // of them, findable

	node  *node  // radix: the end of what is committed
	leafy *leafy // two pools: likewise

	blocks   []int32 // block hashes: the full blocks that are committed
	window   []int32 // those of the window from block number first on; 0 is one that nobody finds
	first    int
	low      int   // the first block of the window that it is charged for, of
	ring     int   // so many
	begun    int   // its length before the last part of its prompt
	hash     chain // of all that is committed
	serial   uint64
	prompt   int // tokens of the prompt before its last, and
	junction int // tokens that others know: where a prefix may end
}

// Len is the number of tokens whose KV s holds.
func (s *Sequence) Len() int { return s.length }

// Committed is the number of tokens of s that are findable: what it was opened on, and what Commit was told of, in whole pages.
func (s *Sequence) Committed() int { return s.committed }

// Figures is what is where. What is used and cached is at most the pool, the rest is free; tokens are of one kind of layers each.
type Figures struct {
	PoolBytes, UsedBytes, CachedBytes int64 // the pool; held by sequences, what they share once; held by the cache alone

	UsedTokens, CachedTokens, FreeTokens                   int // of the layers that attend to everything
	WindowUsedTokens, WindowCachedTokens, WindowFreeTokens int // of those with a window; 0 without

	EvictedTokens int // ever, out of the GPU
	HostTokens    int // in the host tier
}
