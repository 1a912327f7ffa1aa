package engine

// memory is the one KV pool, in bytes, that running requests and cached prefixes share. A token costs full bytes in the layers
// that attend to everything. In sliding-window layers only the last window tokens of a sequence are kept: that tail is charged
// to each request that holds KV, and in the tree to nodes whose window is resident (see cache). The split between the two kinds
// of layers is the ideal one: neither has a part of the pool for itself. vLLM's hybrid manager comes close to this; SGLang's
// fixed ratio of two pools holds fewer warm calls.
type memory struct {
	pool         int64
	full, window int64 // bytes of a token in the layers without and with a window
	size         int   // the window in tokens

	private int // tokens that requests hold outside the tree
	tails   int // window tokens charged to requests
}

func newMemory(c Config) memory {
	return memory{pool: c.PoolBytes(), full: c.Model.FullBytes(), window: c.Model.WindowBytes(), size: c.Model.WindowTokens}
}

// bytes is what a sequence costs more when it grows from one length to another.
func (m *memory) bytes(from, to int) int64 {
	return m.full*int64(to-from) + m.window*int64(min(to, m.size)-min(from, m.size))
}

// hold charges a request for growing from one length to another outside the tree; shrinking gives back.
func (m *memory) hold(from, to int) {
	m.private += to - from
	m.tails += min(to, m.size) - min(from, m.size)
}

// used is in use by requests: locked prefixes, tokens of their own, window tails.
func (m *memory) used(c *cache) int64 {
	return m.full*int64(c.locked+m.private) + m.window*int64(m.tails)
}

// evictable is held by the cache alone.
func (m *memory) evictable(c *cache) int64 {
	return m.full*int64(c.tokens-c.locked) + m.window*int64(c.charged)
}

// free is held by nobody.
func (m *memory) free(c *cache) int64 { return m.pool - m.used(c) - m.evictable(c) }

// makeFree evicts until need bytes are free, and reports whether they are.
func (m *memory) makeFree(c *cache, need int64) bool {
	for m.free(c) < need {
		if !c.evict() {
			return false
		}
	}
	return true
}

// capacity is the longest sequence that the pool can hold.
func (m *memory) capacity() int {
	beyond := (m.pool - m.window*int64(m.size)) / m.full
	if beyond >= int64(m.size) {
		return int(beyond)
	}
	return int(m.pool / (m.full + m.window))
}
