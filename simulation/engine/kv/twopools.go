package kv

// twoPools is the store of SGLang for a model with sliding windows: a radix tree over two pools, one of the layers that attend to
// everything and one of the layers with a window, each counted in pages of the same number of tokens. The pool in bytes is divided
// so that the second has WindowRatio times as many tokens as the first (SGLang's swa_full_tokens_ratio).
//
// The tree keeps the full layers' KV of all its nodes, and the window layers' of some; the others are tombstones. A prefix is usable
// when no tombstone lies within its last window. Each pool is evicted for its own need: the full one by leaves, which takes their
// window along, the window one by nodes anywhere, which makes tombstones of those that lie inside; a tombstone at an unlocked end is
// of no use, and goes.
//
// A sequence that is open has its window for itself, beside what the tree keeps: it frees what has slid out, and what it commits
// leaves its last window in the tree. SGLang lets a sequence and the tree share the window of the prompt until it has slid out.
// Needs are pages: of the full pool in A, of the window's in B.
type twoPools struct {
	page      int
	size      int // the window in tokens
	pages     [2]int
	bytes     [2]int64 // of a page
	poolBytes int64
	policy    Eviction
	noPrefix  bool

	root    *leafy
	leaves  order // evictable for the full pool
	windows order // for the window pool

	clock, serials, version uint64

	locked  int // pages of the tree that sequences hold
	cached  int // and that nobody holds
	kept    int // pages of windows in the tree
	private int // pages of sequences outside the tree
	rings   int // pages of sequences' windows
	tokens  int // tokens of sequences outside the tree
	tails   int // tokens of sequences' windows
	evicted int // pages ever evicted from the full pool

	host    *host   // where what is evicted goes; nil: nowhere
	scratch []Token // of toHost
}

// leafy is a node of twoPools.
type leafy struct {
	parent    *leafy
	children  map[uint64]*leafy // by the first page of their keys
	key       []Token
	depth     int // tokens from the root to the end of key
	refs      int
	tombstone bool
	use       use
	index     [2]int // in leaves and windows; -1 outside
}

const (
	ofFull = iota
	ofWindow
)

func newTwoPools(c Config) *twoPools {
	page := max(1, c.PageTokens)
	ratio := c.WindowRatio
	if ratio == 0 {
		ratio = defaultRatio
	}
	tokens := float64(c.Pool) / (float64(c.FullBytes) + ratio*float64(c.WindowBytes))
	p := &twoPools{
		page: page, size: c.WindowTokens, poolBytes: c.Pool, policy: c.Eviction, noPrefix: c.NoPrefix,
		pages: [2]int{int(tokens) / page, int(tokens*ratio) / page},
		bytes: [2]int64{c.FullBytes * int64(page), c.WindowBytes * int64(page)},
		root:  &leafy{index: [2]int{-1, -1}},
	}
	p.leaves = order{slot: ofFull, policy: c.Eviction}
	p.windows = order{slot: ofWindow, policy: c.Eviction}
	return p
}

// defaultRatio is SGLang's default swa_full_tokens_ratio.
const defaultRatio = .8

func (p *twoPools) Version() uint64 { return p.version }

func (p *twoPools) Find(tokens []Token) Match {
	best := Match{leafy: p.root}
	if p.noPrefix {
		return best
	}
	n, since := p.root, 0 // since is where the last tombstone ended
	for rest := tokens; len(rest) >= p.page; {
		child := n.children[firstPage(rest, p.page)]
		if child == nil {
			break
		}
		k := common(child.key, rest)
		k -= k % p.page
		end := child.depth - len(child.key) + k
		if child.tombstone {
			since = end
		} else if since == 0 || end-since >= p.size {
			best = Match{Length: end, leafy: child}
		}
		if k < len(child.key) {
			break
		}
		n, rest = child, rest[k:]
	}
	return best
}

// end is the node that m ends in.
func (p *twoPools) end(m Match) *leafy {
	if m.leafy == nil {
		return p.root
	}
	return m.leafy
}

// pagesFor is the pages of a sequence of that length in the full pool.
func (p *twoPools) pagesFor(length int) int { return (length + p.page - 1) / p.page }

// ring is its pages in the window pool: all that the window can touch.
func (p *twoPools) ring(length int) int {
	return min(p.pagesFor(length), p.pagesFor(p.size-1)+1)
}

func (p *twoPools) Growth(from, to int) Need {
	return Need{A: int64(p.pagesFor(to) - p.pagesFor(from)), B: int64(p.ring(to) - p.ring(from))}
}

func (p *twoPools) Chunk(from, to int, _ *Sequence) Need { return p.Growth(from, to) }

func (p *twoPools) free() Need {
	return Need{A: int64(p.pages[ofFull] - p.locked - p.cached - p.private), B: int64(p.pages[ofWindow] - p.kept - p.rings)}
}

func (p *twoPools) Fits(m Match, need Need) bool {
	end := p.end(m)
	taken, over := 0, end.depth-m.Length
	for n := end; n != nil && n.refs == 0; n = n.parent {
		taken += len(n.key) - over
		over = 0
	}
	return need.A+int64(taken/p.page) <= int64(p.pages[ofFull]-p.locked-p.private) &&
		need.B+int64(p.ring(m.Length)) <= int64(p.pages[ofWindow]-p.rings)
}

func (p *twoPools) AtOnce(need Need) bool {
	free := p.free()
	return need.A == 0 || need.B == 0 || need.A <= free.A && need.B <= free.B
}

func (p *twoPools) MakeRoom(need Need) bool {
	for p.free().A < need.A {
		if len(p.leaves.nodes) == 0 {
			return false
		}
		p.removeLeaf(p.leaves.nodes[0])
	}
	for p.free().B < need.B {
		if len(p.windows.nodes) == 0 {
			return false
		}
		n := p.windows.nodes[0]
		if len(n.children) > 0 || n.refs > 0 {
			p.bury(n)
		} else {
			p.removeLeaf(n)
		}
	}
	return true
}

// toHost writes what n has: its window, and with full its full layers' part.
func (p *twoPools) toHost(n *leafy, full bool) {
	if p.host == nil {
		return
	}
	from, window := n.depth, n.depth
	if full {
		from -= len(n.key)
	}
	if !n.tombstone {
		window -= len(n.key)
	}
	p.scratch = n.appendPath(p.scratch[:0])
	p.host.write(p.scratch, from, window)
}

// appendPath appends the tokens from the root to the end of n.
func (n *leafy) appendPath(dst []Token) []Token {
	if n.parent != nil {
		dst = n.parent.appendPath(dst)
	}
	return append(dst, n.key...)
}

// bury makes a tombstone of n.
func (p *twoPools) bury(n *leafy) {
	p.toHost(n, false)
	p.count(n, -1)
	n.tombstone = true
	p.count(n, +1)
	p.place(n)
	p.version++
}

// removeLeaf drops n, and the tombstones that have become ends.
func (p *twoPools) removeLeaf(n *leafy) {
	for {
		parent := n.parent
		p.toHost(n, true)
		p.count(n, -1)
		p.evicted += len(n.key) / p.page
		delete(parent.children, firstPage(n.key, p.page))
		n.parent = nil
		p.place(n)
		p.place(parent)
		p.version++
		if n = parent; n.parent == nil || len(n.children) > 0 || n.refs > 0 || !n.tombstone {
			return
		}
	}
}

// count adds n to the totals, or with sign -1 takes it out.
func (p *twoPools) count(n *leafy, sign int) {
	pages := sign * (len(n.key) / p.page)
	if n.refs > 0 {
		p.locked += pages
	} else {
		p.cached += pages
	}
	if !n.tombstone {
		p.kept += pages
	}
}

// place puts n where it can be evicted from, or takes it out.
func (p *twoPools) place(n *leafy) {
	inTree := n.parent != nil
	p.leaves.set(n, inTree && n.refs == 0 && len(n.children) == 0)
	p.windows.set(n, inTree && !n.tombstone)
}

func (p *twoPools) Open(q *Sequence, m Match, _ []Token) {
	n := p.end(m)
	if over := n.depth - m.Length; over > 0 {
		n = p.split(n, len(n.key)-over)
	}
	p.hold(n, +1)
	p.touch(n)
	*q = Sequence{leafy: n, length: m.Length, committed: m.Length}
	p.rings += p.ring(q.length)
	p.tails += min(q.length, p.size)
	p.MakeRoom(Need{})
}

func (p *twoPools) Grow(q *Sequence, to int) {
	p.tokens += to - q.length
	p.private += p.pagesFor(to) - p.pagesFor(q.length)
	p.rings += p.ring(to) - p.ring(q.length)
	p.tails += min(to, p.size) - min(q.length, p.size)
	q.length = to
}

func (p *twoPools) GrowChunk(q *Sequence, to int) { p.Grow(q, to) }

func (p *twoPools) Commit(q *Sequence, more []Token) {
	if p.noPrefix {
		return
	}
	whole := q.length - q.length%p.page
	own := q.length - q.committed
	suffix := more[len(more)-own:][:whole-q.committed]
	p.private -= len(suffix) / p.page
	p.tokens -= len(suffix)
	n := q.leafy
	for len(suffix) > 0 {
		child := n.children[firstPage(suffix, p.page)]
		if child == nil {
			child = p.add(n, suffix)
		}
		k := common(child.key, suffix)
		k -= k % p.page
		if k < len(child.key) {
			child = p.split(child, k)
		}
		n, suffix = child, suffix[k:]
	}
	p.hold(n, +1)
	p.hold(q.leafy, -1)
	q.leafy, q.committed = n, whole
	p.keepWindow(n)
	p.touch(n)
	p.MakeRoom(Need{})
}

// keepWindow makes the last window before the end of n resident.
func (p *twoPools) keepWindow(n *leafy) {
	start := max(0, n.depth-p.size) / p.page * p.page
	for ; n.parent != nil && n.depth > start; n = n.parent {
		if !n.tombstone {
			continue
		}
		if above := start - (n.depth - len(n.key)); above > 0 {
			p.split(n, above)
		}
		p.count(n, -1)
		n.tombstone = false
		p.count(n, +1)
		p.place(n)
		p.version++
	}
}

func (p *twoPools) Close(q *Sequence, more []Token) {
	p.Commit(q, more)
	p.tokens -= q.length - q.committed
	p.private -= p.pagesFor(q.length) - p.pagesFor(q.committed)
	p.rings -= p.ring(q.length)
	p.tails -= min(q.length, p.size)
	n := q.leafy
	p.hold(n, -1)
	if n.tombstone && n.refs == 0 && len(n.children) == 0 && n.parent != nil {
		p.removeLeaf(n)
	}
	*q = Sequence{}
}

// add makes a leaf below parent, a tombstone until its window is kept.
func (p *twoPools) add(parent *leafy, key []Token) *leafy {
	p.serials++
	n := &leafy{parent: parent, key: own(key, parent.depth), depth: parent.depth + len(key), tombstone: true,
		use: use{serial: p.serials, made: p.clock}, index: [2]int{-1, -1}}
	p.adopt(parent, n)
	p.count(n, +1)
	p.place(n)
	p.place(parent)
	p.version++
	return n
}

// split cuts n after k tokens of its key and returns the upper part; n stays the lower.
func (p *twoPools) split(n *leafy, k int) *leafy {
	p.serials++
	upper := &leafy{parent: n.parent, key: n.key[:k:k], depth: n.depth - len(n.key) + k, refs: n.refs, tombstone: n.tombstone,
		use: n.use, index: [2]int{-1, -1}}
	upper.use.serial = p.serials
	p.count(n, -1)
	p.adopt(n.parent, upper)
	n.key, n.parent = n.key[k:], upper
	p.adopt(upper, n)
	p.count(n, +1)
	p.count(upper, +1)
	p.place(n)
	p.place(upper)
	p.version++
	return upper
}

func (p *twoPools) adopt(parent, child *leafy) {
	if parent.children == nil {
		parent.children = make(map[uint64]*leafy, 1)
	}
	parent.children[firstPage(child.key, p.page)] = child
}

// hold adds delta, 1 or -1, to the references of the path to n.
func (p *twoPools) hold(n *leafy, delta int) {
	for ; n.parent != nil; n = n.parent {
		if n.refs+delta < 0 {
			panic("kv: a prefix was unlocked more often than locked")
		}
		if n.refs > 0 && n.refs+delta > 0 {
			n.refs += delta
			continue
		}
		p.count(n, -1)
		n.refs += delta
		p.count(n, +1)
		p.place(n)
	}
}

// touch makes the path to n the most recently used.
func (p *twoPools) touch(n *leafy) {
	p.clock++
	for ; n.parent != nil; n = n.parent {
		n.use.last = p.clock
		n.use.hits++
		p.leaves.fix(n)
		p.windows.fix(n)
	}
}

func (p *twoPools) Flush() {
	evicted := p.evicted
	for len(p.leaves.nodes) > 0 {
		p.removeLeaf(p.leaves.nodes[0])
	}
	for len(p.windows.nodes) > 0 {
		p.bury(p.windows.nodes[0])
	}
	p.evicted = evicted
}

func (p *twoPools) Figures() Figures {
	free := p.free()
	return Figures{
		PoolBytes:   p.poolBytes,
		UsedBytes:   int64(p.locked+p.private)*p.bytes[ofFull] + int64(p.rings)*p.bytes[ofWindow],
		CachedBytes: int64(p.cached)*p.bytes[ofFull] + int64(p.kept)*p.bytes[ofWindow],
		UsedTokens:  p.locked*p.page + p.tokens, CachedTokens: p.cached * p.page, FreeTokens: int(free.A) * p.page,
		WindowUsedTokens: p.tails, WindowCachedTokens: p.kept * p.page, WindowFreeTokens: int(free.B) * p.page,
		EvictedTokens: p.evicted * p.page,
	}
}

func (p *twoPools) Longest() int {
	if p.ring(p.size+p.page) <= p.pages[ofWindow] {
		return p.pages[ofFull] * p.page
	}
	return min(p.pages[ofFull], p.pages[ofWindow]) * p.page
}
