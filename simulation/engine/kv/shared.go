package kv

// shared is the store of Ideal and Unified: one pool, in bytes, that running sequences and cached prefixes share. A token costs full
// bytes in the layers that attend to everything. In sliding-window layers only the last window tokens of a sequence are kept: that
// tail is charged to each sequence that is open, and in the tree to nodes whose window is resident (see cache). The split between
// the two kinds of layers is the ideal one: neither has a part of the pool for itself. Its needs are bytes, in A.
type shared struct {
	pool         int64
	full, window int64 // bytes of a token in the layers without and with a window
	size         int   // the window in tokens, all pages that it can touch
	page         int   // tokens
	noPrefix     bool

	cache   *cache
	private int // tokens that sequences hold outside the tree
	tails   int // window tokens charged to sequences
}

func newShared(c Config) *shared {
	if c.Scheme == Unified { // no layer forgets
		c.FullBytes += c.WindowBytes
		c.WindowBytes, c.WindowTokens = 0, 0
	}
	page := max(1, c.PageTokens)
	size := c.WindowTokens
	if size > 0 {
		size = (size-1+page-1)/page*page + page
	}
	return &shared{
		pool: c.Pool, full: c.FullBytes, window: c.WindowBytes, size: size, page: page, noPrefix: c.NoPrefix,
		cache: newCache(size, page, c.Eviction),
	}
}

func (s *shared) Find(tokens []Token) Match {
	if s.noPrefix {
		return Match{}
	}
	return s.cache.find(tokens)
}

func (s *shared) Version() uint64 { return s.cache.version }

func (s *shared) Growth(from, to int) Need {
	return Need{A: s.full*int64(s.whole(to)-s.whole(from)) + s.window*int64(s.tail(to)-s.tail(from))}
}

func (s *shared) Chunk(from, to int, _ *Sequence) Need { return s.Growth(from, to) }

// whole is a number of tokens rounded up to pages.
func (s *shared) whole(tokens int) int { return (tokens + s.page - 1) / s.page * s.page }

// tail is the window tokens of a sequence of that length.
func (s *shared) tail(length int) int { return min(s.whole(length), s.size) }

func (s *shared) Fits(m Match, need Need) bool {
	tail := s.window * int64(s.tail(m.Length)) // charged to whoever opens m, beside what the tree keeps
	return need.A+tail <= s.free()+s.evictable()-s.full*int64(s.cache.unlocked(m))
}

func (s *shared) AtOnce(Need) bool { return true }

func (s *shared) MakeRoom(need Need) bool {
	for s.free() < need.A {
		if !s.cache.evict() {
			return false
		}
	}
	return true
}

func (s *shared) Open(q *Sequence, m Match, _ []Token) {
	*q = Sequence{node: s.cache.lock(m), length: m.Length, committed: m.Length}
	s.tails += s.tail(q.length)
	s.MakeRoom(Need{}) // a place inside of a node may have become resident
}

func (s *shared) Grow(q *Sequence, to int) {
	s.private += s.whole(to) - s.whole(q.length)
	s.tails += s.tail(to) - s.tail(q.length)
	q.length = to
}

func (s *shared) GrowChunk(q *Sequence, to int) { s.Grow(q, to) }

// Commit moves what q holds by itself into the tree. Where the tree has it already, q's own is given back; where that makes a place
// resident that was not, something else may have to go.
func (s *shared) Commit(q *Sequence, more []Token) {
	if s.noPrefix {
		return
	}
	own := q.length - q.committed
	pages := own - own%s.page
	s.private -= pages
	q.node = s.cache.insert(q.node, more[len(more)-own:][:pages])
	q.committed += pages
	s.MakeRoom(Need{})
}

func (s *shared) Close(q *Sequence, more []Token) {
	if q.length-q.committed >= s.page {
		s.Commit(q, more)
	}
	s.private -= s.whole(q.length) - q.committed
	s.cache.unlock(q.node)
	s.tails -= s.tail(q.length)
	*q = Sequence{}
}

func (s *shared) Flush() {
	before := s.cache.evicted
	for s.cache.evict() {
	}
	s.cache.evicted = before
	s.cache.version++
}

// used is held by sequences: locked prefixes, tokens of their own, window tails.
func (s *shared) used() int64 {
	return s.full*int64(s.cache.locked+s.private) + s.window*int64(s.tails)
}

// evictable is held by the cache alone.
func (s *shared) evictable() int64 {
	return s.full*int64(s.cache.tokens-s.cache.locked) + s.window*int64(s.cache.charged)
}

// free is held by nobody.
func (s *shared) free() int64 { return s.pool - s.used() - s.evictable() }

func (s *shared) Figures() Figures {
	free := s.free()
	f := Figures{
		PoolBytes: s.pool, UsedBytes: s.used(), CachedBytes: s.evictable(),
		UsedTokens: s.cache.locked + s.private, CachedTokens: s.cache.tokens - s.cache.locked, FreeTokens: int(free / s.full),
		EvictedTokens: s.cache.evicted,
	}
	if s.window > 0 {
		f.WindowUsedTokens, f.WindowCachedTokens, f.WindowFreeTokens = s.tails, s.cache.charged, int(free/s.window)
	}
	return f
}

func (s *shared) Longest() int {
	beyond := (s.pool - s.window*int64(s.size)) / s.full
	if beyond < int64(s.size) {
		beyond = s.pool / (s.full + s.window)
	}
	return int(beyond) / s.page * s.page
}
