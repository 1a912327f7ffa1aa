package kv

import "sort"

// blocks is the store of VLLM and VLLMOld: vLLM's block pool, counted instead of numbered. Layers stand in groups of equally many;
// a group's page holds some tokens of all its layers, and the pages of all groups are equally large. Block hashes are chained, so
// that a block is found only behind all that precedes it. Groups of one kind hold the same blocks, and are counted together: a
// block is as many pages.
//
// A full block is held by every sequence that it is a part of, and shared. A block of the layers with a window is held while the
// window reaches it. A sequence is charged for all blocks that its window can touch, whoever shares them: sharing lasts no longer
// than it takes to write a window.
//
// What nobody holds goes page by page from the head of one queue. Blocks join it at the end when they are let go of, the last of a
// sequence first, so that a block never leaves before one that lies behind it.
//
// VLLM keeps of a window only what a hit can need (prefix_cache_retention_interval 0, the default since 0.29,
// vllm-project/vllm#43447 and #52216): the last window before the end of the prompt, and before the place where a prompt left what
// the full layers knew. VLLMOld keeps every block that a window has left behind (vllm-project/vllm#48435), so that junk flushes
// the queue: a prompt of Gemma 3 or 4 leaves five groups' blocks for one group's.
//
// Needs are pages, in A.
type blocks struct {
	pages     int
	pageBytes int64
	poolBytes int64
	full      group
	window    group
	size      int // the window in tokens
	last      int // blocks of a window that a hit needs behind it
	align     int // a hit is a multiple of so many tokens
	dense     bool
	noPrefix  bool

	host    *host // where what is evicted goes; nil: nowhere
	hashes  chains
	entries []entry // 0 is both ends of the queue
	unused  []int32 // entries to use again
	spare   [][]int32
	clock   uint64
	opened  uint64
	version uint64

	private int // full blocks that one sequence has for itself
	rings   int // window blocks charged to sequences
	tails   int // window tokens of sequences
	tokens  int // tokens of sequences outside shared blocks
	cached  int // pages in the queue
	evicted int // blocks of full layers ever evicted
}

// group is all groups of one kind.
type group struct {
	count  int // groups: pages of a block
	tokens int // of a page
	index  map[chain]int32
	held   int // blocks that sequences hold
	free   int // blocks in the queue that can be found
}

// entry is a block whose content is known.
type entry struct {
	hash       chain
	parent     int32 // the full block before
	refs       int32
	prev, next int32 // in the queue
	pages      int32 // not yet evicted
	window     bool
	key        place
}

// place orders what joined the queue: by events, and within one so that no order of growing matters.
type place struct {
	clock  uint64
	opened uint64
	rank   int
}

func (p place) before(o place) bool {
	if p.clock != o.clock {
		return p.clock < o.clock
	}
	if p.opened != o.opened {
		return p.opened < o.opened
	}
	return p.rank < o.rank
}

func newBlocks(c Config) *blocks {
	full, window, layers := pagesOf(c)
	b := &blocks{
		poolBytes: c.Pool, full: full, window: window, size: c.WindowTokens,
		pageBytes: int64(full.tokens) * c.FullBytes / int64(max(1, c.FullLayers)) * int64(layers),
		align:     full.tokens, dense: c.Scheme == VLLMOld, noPrefix: c.NoPrefix,
		entries: make([]entry, 1),
	}
	b.full.index, b.window.index = map[chain]int32{}, map[chain]int32{}
	unit := full.tokens
	if window.count > 0 {
		b.align, unit = max(full.tokens, window.tokens), min(full.tokens, window.tokens)
		b.last = (c.WindowTokens - 1 + window.tokens - 1) / window.tokens
		if w := int64(window.tokens) * c.WindowBytes / int64(max(1, c.WindowLayers)) * int64(layers); w > b.pageBytes {
			b.pageBytes = w
		}
	}
	b.hashes.unit = unit
	b.pages = int(c.Pool / b.pageBytes)
	return b
}

// pagesOf divides layers into groups as vLLM does: as many layers in each as the rarer kind has, or as the other has when that is
// less than a quarter more. The page of the group with fewer bytes a token holds more tokens. One block size divides the other.
func pagesOf(c Config) (full, window group, layers int) {
	f, w := max(1, c.FullLayers), c.WindowLayers
	tokens := c.PageTokens
	if c.WindowBytes == 0 {
		if tokens == 0 {
			tokens = basePage
		}
		return group{count: 1, tokens: tokens}, group{}, f
	}
	w = max(1, w)
	layers = min(f, w)
	if most := max(f, w); 4*most < 5*layers {
		layers = most
	}
	full.count, window.count = (f+layers-1)/layers, (w+layers-1)/layers
	perFull, perWindow := c.FullBytes*int64(w), c.WindowBytes*int64(f) // of one layer, times f*w
	switch {
	case tokens > 0:
		full.tokens = tokens
		window.tokens = int(int64(tokens) * perFull / perWindow)
	case perFull >= perWindow:
		full.tokens, window.tokens = basePage, int(basePage*perFull/perWindow)
	default:
		full.tokens, window.tokens = int(basePage*perWindow/perFull), basePage
	}
	window.tokens = max(1, window.tokens)
	if big, small := &full.tokens, &window.tokens; *big >= *small {
		for *big%*small != 0 {
			*small--
		}
	} else {
		*small -= *small % *big
	}
	return full, window, layers
}

// basePage is vLLM's default block size.
const basePage = 16

func (b *blocks) Version() uint64 { return b.version }

func (b *blocks) Find(tokens []Token) Match {
	if b.noPrefix {
		return Match{}
	}
	chain := b.hashes.of(tokens)
	n := b.fullRun(chain)
	if n == 0 {
		return Match{}
	}
	length := n * b.full.tokens
	length -= length % b.align
	m := Match{Length: b.windowed(chain, length)}
	if m.Length < length {
		m.junction = length
	}
	if m.Length > 0 {
		m.entry = b.full.index[b.at(chain, m.Length)]
	}
	return m
}

// at is the hash of all that precedes a place.
func (b *blocks) at(c []chain, tokens int) chain { return c[tokens/b.hashes.unit-1] }

// fullRun is how many leading blocks of the full layers are there. None is there without those before it.
func (b *blocks) fullRun(c []chain) int {
	per := b.full.tokens / b.hashes.unit
	n := len(c) / per
	if n == 0 {
		return 0
	}
	return sort.Search(n, func(i int) bool {
		_, there := b.full.index[c[(i+1)*per-1]]
		return !there
	})
}

// windowed is the longest length, at most that one, whose last window is there.
func (b *blocks) windowed(c []chain, length int) int {
	if b.window.count == 0 {
		return length
	}
next:
	for length > 0 {
		end := length / b.window.tokens
		for i := end; i > max(0, end-b.last); i-- {
			if _, there := b.window.index[b.at(c, i*b.window.tokens)]; !there {
				length = min(length-b.align, (i-1)*b.window.tokens)
				length -= length % b.align
				continue next
			}
		}
		return length
	}
	return 0
}

// ring is the window blocks charged to a sequence of that length.
func (b *blocks) ring(length int) int {
	if b.window.count == 0 {
		return 0
	}
	return min((length+b.window.tokens-1)/b.window.tokens, b.last+1)
}

// oldest is the first block that the window of a sequence of that length touches.
func (b *blocks) oldest(length int) int { return max(0, length-b.size+1) / b.window.tokens }

func (b *blocks) fullBlocks(length int) int { return (length + b.full.tokens - 1) / b.full.tokens }

func (b *blocks) charge(length int) int64 {
	return int64(b.full.count*b.fullBlocks(length) + b.window.count*b.ring(length))
}

func (b *blocks) Growth(from, to int) Need { return Need{A: b.charge(to) - b.charge(from)} }

// used is pages that sequences hold.
func (b *blocks) used() int { return b.full.count*(b.full.held+b.private) + b.window.count*b.rings }

func (b *blocks) free() int { return b.pages - b.used() - b.cached }

func (b *blocks) Fits(m Match, need Need) bool {
	take := b.window.count * b.ring(m.Length)
	for id := m.entry; id != 0 && b.entries[id].refs == 0; id = b.entries[id].parent {
		take += b.full.count
	}
	return need.A+int64(take) <= int64(b.pages-b.used())
}

func (b *blocks) AtOnce(Need) bool { return true }

func (b *blocks) MakeRoom(need Need) bool {
	for int64(b.free()) < need.A {
		if !b.evict() {
			return false
		}
	}
	return true
}

// evict takes the first page of the queue. What has lost one page of a block cannot be found again.
func (b *blocks) evict() bool {
	id := b.entries[0].next
	if id == 0 {
		return false
	}
	e := &b.entries[id]
	g := b.groupOf(e)
	if int(e.pages) == g.count {
		if b.host != nil {
			b.host.put(e.hash, e.window)
		}
		b.forget(id)
		if !e.window {
			b.evicted++
		}
	}
	e.pages--
	b.cached--
	if e.pages == 0 {
		b.unlink(id)
		b.unused = append(b.unused, id)
	}
	return true
}

func (b *blocks) groupOf(e *entry) *group {
	if e.window {
		return &b.window
	}
	return &b.full
}

// forget takes an entry of the queue out of the index.
func (b *blocks) forget(id int32) {
	e := &b.entries[id]
	g := b.groupOf(e)
	delete(g.index, e.hash)
	g.free--
	b.version++
}

func (b *blocks) Open(q *Sequence, m Match, tokens []Token) {
	b.clock++
	b.opened++
	*q = Sequence{length: m.Length, committed: m.Length, serial: b.opened, prompt: len(tokens) - 1, junction: m.junction}
	if n := len(b.spare); n > 1 {
		q.blocks, q.window = b.spare[n-1][:0], b.spare[n-2][:0]
		b.spare = b.spare[:n-2]
	}
	if m.Length > 0 {
		chain := b.hashes.of(tokens[:m.Length])
		q.hash = b.at(chain, m.Length)
		for id := m.entry; id != 0; id = b.entries[id].parent {
			q.blocks = append(q.blocks, id)
			b.hold(id)
		}
		for i, j := 0, len(q.blocks)-1; i < j; i, j = i+1, j-1 {
			q.blocks[i], q.blocks[j] = q.blocks[j], q.blocks[i]
		}
		if b.window.count > 0 {
			end := m.Length / b.window.tokens
			q.first = max(b.oldest(m.Length), end-b.last)
			for i := q.first; i < end; i++ {
				id := b.window.index[b.at(chain, (i+1)*b.window.tokens)]
				q.window = append(q.window, id)
				b.hold(id)
			}
		}
	}
	b.rings += b.ring(q.length)
	b.tails += min(q.length, b.size)
	b.MakeRoom(Need{})
}

// hold adds a reference, and takes what had none out of the queue.
func (b *blocks) hold(id int32) {
	e := &b.entries[id]
	if e.refs == 0 {
		g := b.groupOf(e)
		b.unlink(id)
		b.cached -= g.count
		g.free--
		g.held++
	}
	e.refs++
}

// drop takes a reference away; what has none left joins the queue.
func (b *blocks) drop(id int32, at place) {
	e := &b.entries[id]
	if e.key.before(at) { // of several that let go in one event, whoever was opened last tells
		e.key = at
	}
	if e.refs--; e.refs > 0 {
		return
	}
	g := b.groupOf(e)
	g.held--
	b.enqueue(id)
}

func (b *blocks) enqueue(id int32) {
	e := &b.entries[id]
	g := b.groupOf(e)
	after := b.entries[0].prev
	for after != 0 && e.key.before(b.entries[after].key) {
		after = b.entries[after].prev
	}
	next := b.entries[after].next
	e.prev, e.next = after, next
	b.entries[after].next, b.entries[next].prev = id, id
	g.free++
	b.cached += g.count
}

func (b *blocks) unlink(id int32) {
	e := &b.entries[id]
	b.entries[e.prev].next, b.entries[e.next].prev = e.next, e.prev
}

func (b *blocks) Grow(q *Sequence, to int) {
	b.tokens += to - q.length
	b.private += b.fullBlocks(to) - b.fullBlocks(q.length)
	b.rings += b.ring(to) - b.ring(q.length)
	b.tails += min(to, b.size) - min(q.length, b.size)
	q.length = to
	b.slide(q)
	b.MakeRoom(Need{})
}

// slide lets go of the window blocks that q has left behind. Their pages stay with q, for what it writes next, so that what can be
// found needs pages of its own.
func (b *blocks) slide(q *Sequence) {
	if b.window.count == 0 {
		return
	}
	n := min(b.oldest(q.length)-q.first, len(q.window))
	if n <= 0 {
		return
	}
	for i, id := range q.window[:n] {
		if id != 0 {
			b.drop(id, place{b.clock, q.serial, q.first + i})
		}
	}
	q.window = q.window[:copy(q.window, q.window[n:])]
	q.first += n
}

func (b *blocks) Commit(q *Sequence, more []Token) {
	b.clock++
	b.commit(q, more)
}

func (b *blocks) commit(q *Sequence, more []Token) {
	if b.noPrefix {
		return
	}
	own := q.length - q.committed
	more = more[len(more)-own:]
	for unit := b.hashes.unit; len(more) >= unit; more = more[unit:] {
		q.hash = q.hash.next(more[:unit])
		q.committed += unit
		if b.window.count > 0 && q.committed%b.window.tokens == 0 {
			b.keepWindow(q)
		}
		if q.committed%b.full.tokens == 0 {
			b.keepFull(q)
		}
	}
	b.MakeRoom(Need{})
}

// keepFull makes the full block that ends at q.committed findable, or gives it back where it is known.
func (b *blocks) keepFull(q *Sequence) {
	id, there := b.full.index[q.hash]
	if !there {
		id = b.make(q.hash, false)
		if n := len(q.blocks); n > 0 {
			b.entries[id].parent = q.blocks[n-1]
		}
		b.entries[id].refs = 1
		b.full.held++
	} else {
		b.hold(id)
	}
	b.private--
	b.tokens -= b.full.tokens
	q.blocks = append(q.blocks, id)
}

// keepWindow does it with a block of the window layers, if it is one to keep. What the window has left behind already takes a page
// of its own.
func (b *blocks) keepWindow(q *Sequence) {
	i := q.committed/b.window.tokens - 1
	inside := i >= b.oldest(q.length)
	id := int32(0)
	if b.dense || b.reachable(i, q.prompt) || b.reachable(i, q.junction) {
		known := false
		if id, known = b.window.index[q.hash]; !known {
			id = b.make(q.hash, true)
			b.entries[id].refs = 1
			b.window.held++
		} else {
			b.hold(id)
		}
	}
	switch {
	case !inside && id != 0:
		b.drop(id, place{b.clock, q.serial, i})
		b.MakeRoom(Need{})
	case inside:
		if len(q.window) == 0 {
			q.first = i
		}
		q.window = append(q.window, id)
	}
}

// reachable reports whether window block i is needed by a hit of that many tokens, or a little less.
func (b *blocks) reachable(i, boundary int) bool {
	end := boundary / b.align * b.align / b.window.tokens
	return end-b.last <= i && i < end
}

func (b *blocks) make(h chain, window bool) int32 {
	if len(b.unused) == 0 {
		b.entries = append(b.entries, entry{})
		b.unused = append(b.unused, int32(len(b.entries)-1))
	}
	id := b.unused[len(b.unused)-1]
	b.unused = b.unused[:len(b.unused)-1]
	b.entries[id] = entry{hash: h, window: window}
	g := b.groupOf(&b.entries[id])
	b.entries[id].pages = int32(g.count)
	g.index[h] = id
	b.version++
	return id
}

func (b *blocks) Close(q *Sequence, more []Token) {
	b.clock++
	b.commit(q, more)
	b.private -= b.fullBlocks(q.length) - len(q.blocks)
	b.tokens -= q.length - len(q.blocks)*b.full.tokens
	b.rings -= b.ring(q.length)
	b.tails -= min(q.length, b.size)
	const behind = 1 << 40 // after what has slid out in the same event
	for i := len(q.window) - 1; i >= 0; i-- {
		if id := q.window[i]; id != 0 {
			b.drop(id, place{b.clock, q.serial, behind - q.first - i})
		}
	}
	for i := len(q.blocks) - 1; i >= 0; i-- {
		b.drop(q.blocks[i], place{b.clock, q.serial, 2*behind - i})
	}
	b.spare = append(b.spare, q.window, q.blocks)
	*q = Sequence{}
	b.MakeRoom(Need{})
}

func (b *blocks) Flush() {
	evicted := b.evicted
	for b.evict() {
	}
	b.evicted = evicted
}

func (b *blocks) Figures() Figures {
	free := b.free()
	f := Figures{
		PoolBytes: b.poolBytes, UsedBytes: int64(b.used()) * b.pageBytes, CachedBytes: int64(b.cached) * b.pageBytes,
		UsedTokens: b.full.held*b.full.tokens + b.tokens, CachedTokens: b.full.free * b.full.tokens,
		FreeTokens: free / b.full.count * b.full.tokens, EvictedTokens: b.evicted * b.full.tokens,
	}
	if b.window.count > 0 {
		f.WindowUsedTokens, f.WindowCachedTokens = b.tails, b.window.free*b.window.tokens
		f.WindowFreeTokens = free / b.window.count * b.window.tokens
	}
	return f
}

func (b *blocks) Longest() int {
	most := b.pages / b.full.count * b.full.tokens
	return sort.Search(most, func(length int) bool { return b.charge(length+1) > int64(b.pages) })
}
