package kv

import (
	"math"
	"sort"
)

// blocks is the store of VLLM and VLLMOld: vLLM's block pool. Layers stand in groups of equally many; a group's page holds some tokens
// of all its layers, and the pages of all groups are equally large. Block hashes are chained, so that a block is found only behind
// all that precedes it, and only where every group of its kind has its page. Pages whose content is known are entries; the others are
// counted.
//
// A page is written once: whoever computes what is known already has pages of its own, and a hit takes those that came first. A hit
// is a multiple of the larger page, and so is what is known of a sequence.
//
// Window layers hold what the window reaches, but a step that computes a part of a prompt holds all pages that its first token sees
// and all that it writes: only what has been computed is let go of, and with scheduling ahead only when the step behind it has been,
// too. A sequence is charged for all blocks that its window can touch, whoever shares them: sharing lasts no longer than it takes to
// write a window.
//
// What nobody holds goes page by page from the head of one queue. Pages of unknown content are free at once, the others join it at
// the end when they are let go of, group by group, those of windows first, the last of a sequence first: so that no full page leaves
// before one that lies behind it.
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
	reach     int // blocks that a window can touch, with scheduling ahead also that of the token before
	most      int // blocks of a window that a sequence can hold while a step computes its prompt
	align     int // a hit is a multiple of so many tokens
	ahead     bool
	dense     bool
	noPrefix  bool

	host    *host // where what is evicted goes; nil: nowhere
	hashes  chains
	entries []entry // 0 is both ends of the queue
	unused  []int32 // entries to use again
	spare   [][]int32
	left    []int32 // window pages that the commit in progress finds left behind, from its first block on
	clock   uint64
	grown   bool // since the clock has ticked
	opened  uint64
	version uint64

	private int // full blocks that one sequence has for itself
	rings   int // window blocks charged to sequences
	least   int // those that their lengths alone need
	tails   int // window tokens of sequences
	tokens  int // tokens of sequences outside known blocks
	copies  int // entries that another one is found in the place of
	cached  int // pages in the queue
	evicted int // pages of full layers ever evicted
}

// group is all groups of one kind.
type group struct {
	count  int               // groups: pages of a block
	tokens int               // of a page
	index  []map[chain]int32 // of each group: the first entry of a hash
	held   int               // pages that are known and that sequences hold
	free   int               // pages in the queue
}

// there reports whether all groups have a page of a block.
func (g *group) there(c chain) bool {
	for _, index := range g.index {
		if _, there := index[c]; !there {
			return false
		}
	}
	return true
}

// entry is a page whose content is known.
type entry struct {
	hash, before chain // of all tokens up to its end, and to the end of the page before
	parent       int32 // the entry of the page before, while that has its hash
	again        int32 // the next of the same hash in the same group
	refs         int32
	prev, next   int32 // in the queue
	of           int32 // which group of its kind
	window       bool
	found        bool // it is the one that the index finds of its hash
	key          place
}

// place orders what joined the queue: by steps, in one step by what let go, and within that so that no order of growing matters.
type place struct {
	clock  uint64
	after  release
	opened uint64
	rank   int
}

// release is what lets go of a page: the scheduler looks at those that have ended before it begins another step.
type release int

const (
	ended release = iota
	computed
	decoded
)

func (p place) before(o place) bool {
	switch {
	case p.clock != o.clock:
		return p.clock < o.clock
	case p.after != o.after:
		return p.after < o.after
	case p.opened != o.opened:
		return p.opened < o.opened
	}
	return p.rank < o.rank
}

func newBlocks(c Config) *blocks {
	full, window, layers := pagesOf(c)
	b := &blocks{
		poolBytes: c.Pool, full: full, window: window, size: c.WindowTokens,
		pageBytes: int64(full.tokens) * c.FullBytes / int64(max(1, c.FullLayers)) * int64(layers),
		align:     full.tokens, ahead: c.Ahead, dense: c.Scheme == VLLMOld, noPrefix: c.NoPrefix,
		entries: make([]entry, 1),
	}
	for _, g := range []*group{&b.full, &b.window} {
		for range g.count {
			g.index = append(g.index, map[chain]int32{})
		}
	}
	unit := full.tokens
	if window.count > 0 {
		b.align, unit = max(full.tokens, window.tokens), min(full.tokens, window.tokens)
		b.last = (c.WindowTokens - 1 + window.tokens - 1) / window.tokens
		b.reach = b.last + 1
		if c.Ahead {
			b.reach = (c.WindowTokens+window.tokens-1)/window.tokens + 1
		}
		b.most = mostBlocks(c, window.tokens)
		if w := int64(window.tokens) * c.WindowBytes / int64(max(1, c.WindowLayers)) * int64(layers); w > b.pageBytes {
			b.pageBytes = w
		}
	}
	b.hashes.unit = unit
	b.pages = int(c.Pool / b.pageBytes)
	return b
}

// mostBlocks is how many blocks of so many tokens a window and the parts of a prompt that are under way can touch.
func mostBlocks(c Config, tokens int) int {
	if c.StepTokens == 0 {
		return math.MaxInt32
	}
	under := c.StepTokens
	if c.Ahead {
		under *= 2
	}
	return (c.WindowTokens-1+under+tokens-1)/tokens + 1
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
		m.entry = b.full.index[0][b.at(chain, m.Length)]
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
		return !b.full.there(c[(i+1)*per-1])
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
			if !b.window.there(b.at(c, i*b.window.tokens)) {
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
	return min((length+b.window.tokens-1)/b.window.tokens, b.reach)
}

// oldest is the first block that the window of a sequence of that length touches.
func (b *blocks) oldest(length int) int { return max(0, length-b.size+1) / max(1, b.window.tokens) }

func (b *blocks) fullBlocks(length int) int { return (length + b.full.tokens - 1) / b.full.tokens }

func (b *blocks) Growth(from, to int) Need {
	return Need{A: int64(b.full.count*(b.fullBlocks(to)-b.fullBlocks(from)) + b.window.count*(b.ring(to)-b.ring(from)))}
}

func (b *blocks) Chunk(from, to int, q *Sequence) Need {
	low, ring := b.oldest(from), b.ring(from)
	if q != nil {
		low, ring = q.low, q.ring
	}
	return Need{A: int64(b.full.count*(b.fullBlocks(to)-b.fullBlocks(from)) + b.window.count*(b.wide(low, to)-ring))}
}

// wide is the window blocks charged to a sequence of that length that holds them from number low on.
func (b *blocks) wide(low, length int) int {
	if b.window.count == 0 {
		return 0
	}
	return max(b.ring(length), min((length+b.window.tokens-1)/b.window.tokens-low, b.most))
}

// used is pages that sequences hold.
func (b *blocks) used() int { return b.full.held + b.full.count*b.private + b.window.count*b.rings }

func (b *blocks) free() int { return b.pages - b.used() - b.cached }

func (b *blocks) Fits(m Match, need Need) bool {
	take := b.window.count * b.ring(m.Length)
	for _, index := range b.full.index { // of a hash that several pages have, each group may find another one's
		for id := index[b.entries[m.entry].hash]; id != 0; id = b.parent(id) {
			if b.entries[id].refs == 0 {
				take++
			} else if b.copies == 0 { // whoever holds it holds what is before it
				break
			}
		}
	}
	return need.A+int64(take) <= int64(b.pages-b.used())
}

// parent is the entry that is found for the page before that of id; 0 before the first.
func (b *blocks) parent(id int32) int32 {
	e := &b.entries[id]
	if e.before == 0 {
		return 0
	}
	if p := &b.entries[e.parent]; p.found && p.hash == e.before && p.of == e.of && !p.window {
		return e.parent
	}
	return b.groupOf(e).index[e.of][e.before]
}

// AtOnce is false where something may have to go although the first tokens give room back: what parts of prompts held.
func (b *blocks) AtOnce(need Need) bool { return need.A <= int64(b.free()) || b.rings == b.least }

func (b *blocks) MakeRoom(need Need) bool {
	for int64(b.free()) < need.A {
		if !b.evict() {
			return false
		}
	}
	return true
}

// evict takes the first page of the queue.
func (b *blocks) evict() bool {
	id := b.entries[0].next
	if id == 0 {
		return false
	}
	e := &b.entries[id]
	g := b.groupOf(e)
	if b.host != nil && e.again == 0 && e.found && g.there(e.hash) {
		b.host.put(e.hash, e.window)
	}
	b.forget(id)
	b.unlink(id)
	b.cached--
	g.free--
	if !e.window {
		b.evicted++
	}
	*e = entry{}
	b.unused = append(b.unused, id)
	return true
}

func (b *blocks) groupOf(e *entry) *group {
	if e.window {
		return &b.window
	}
	return &b.full
}

// forget takes an entry out of the index.
func (b *blocks) forget(id int32) {
	e := &b.entries[id]
	index := b.groupOf(e).index[e.of]
	switch {
	case !e.found:
		b.copies--
		before := index[e.hash]
		for b.entries[before].again != id {
			before = b.entries[before].again
		}
		b.entries[before].again = e.again
	case e.again != 0:
		b.copies--
		index[e.hash] = e.again
		b.entries[e.again].found = true
	default:
		delete(index, e.hash)
		b.version++
	}
}

func (b *blocks) Open(q *Sequence, m Match, tokens []Token) {
	b.opened++
	b.grown = true
	*q = Sequence{length: m.Length, committed: m.Length, serial: b.opened, prompt: len(tokens) - 1, junction: m.junction}
	if n := len(b.spare); n > 1 {
		q.blocks, q.window = b.spare[n-1][:0], b.spare[n-2][:0]
		b.spare = b.spare[:n-2]
	}
	if m.Length > 0 {
		chain := b.hashes.of(tokens[:m.Length])
		q.hash = b.at(chain, m.Length)
		b.holdFull(q, m)
		if b.window.count > 0 {
			end := m.Length / b.window.tokens
			q.first = max(b.oldest(m.Length), end-b.last)
			for i := q.first; i < end; i++ {
				for _, index := range b.window.index {
					id := index[b.at(chain, (i+1)*b.window.tokens)]
					q.window = append(q.window, id)
					b.hold(id)
				}
			}
		}
	}
	q.begun, q.low, q.ring = q.length, b.oldest(q.length), b.ring(q.length)
	b.rings += q.ring
	b.least += q.ring
	b.tails += min(q.length, b.size)
	b.MakeRoom(Need{})
}

// holdFull holds the full pages that m found.
func (b *blocks) holdFull(q *Sequence, m Match) {
	n := m.Length / b.full.tokens
	for range n * b.full.count {
		q.blocks = append(q.blocks, 0)
	}
	for of, index := range b.full.index {
		id := index[q.hash]
		for i := n - 1; i >= 0; i-- {
			q.blocks[i*b.full.count+of] = id
			b.hold(id)
			before := b.parent(id)
			b.entries[id].parent = before
			id = before
		}
	}
}

// hold adds a reference, and takes what had none out of the queue.
func (b *blocks) hold(id int32) {
	e := &b.entries[id]
	if e.refs == 0 {
		g := b.groupOf(e)
		b.unlink(id)
		b.cached--
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
	b.groupOf(e).held--
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
	b.cached++
}

func (b *blocks) unlink(id int32) {
	e := &b.entries[id]
	b.entries[e.prev].next, b.entries[e.next].prev = e.next, e.prev
}

func (b *blocks) Grow(q *Sequence, to int) {
	low, ring := b.oldest(to-1), b.ring(to)
	if b.ahead { // the step before is under way
		low = b.oldest(to - 2)
		if to == q.length+1 {
			low = b.oldest(q.begun)
		}
		ring = max(ring, min(q.ring, b.wide(low, to)))
	}
	b.extend(q, to)
	q.begun = to - 1
	b.settle(q, max(q.low, low), ring, decoded)
	b.MakeRoom(Need{})
}

func (b *blocks) GrowChunk(q *Sequence, to int) {
	q.begun = q.length
	b.extend(q, to)
	b.settle(q, q.low, b.wide(q.low, to), computed)
}

// extend makes q longer in the full layers.
func (b *blocks) extend(q *Sequence, to int) {
	b.grown = true
	b.tokens += to - q.length
	b.private += b.fullBlocks(to) - b.fullBlocks(q.length)
	b.least += b.ring(to) - b.ring(q.length)
	b.tails += min(to, b.size) - min(q.length, b.size)
	q.length = to
}

// settle charges q for so many window blocks, and lets go of those before number low. Their pages stay with q where the charge does,
// for what it writes next, so that what can be found needs pages of its own.
func (b *blocks) settle(q *Sequence, low, ring int, why release) {
	b.rings += ring - q.ring
	q.low, q.ring = low, ring
	n := min(low-q.first, len(q.window)/max(1, b.window.count))
	if n <= 0 {
		return
	}
	b.slide(q, q.window[:n*b.window.count], q.first, why)
	q.window = q.window[:copy(q.window, q.window[n*b.window.count:])]
	q.first += n
}

// far is more than any number of a block.
const far = 1 << 32

// slide lets go of window pages from one block on. Of a part of a prompt the groups go in turn, the last block of each first; of
// tokens that come one by one the blocks do.
func (b *blocks) slide(q *Sequence, pages []int32, first int, why release) {
	w := b.window.count
	for k := range pages {
		i, of := len(pages)/w-1-k%(len(pages)/w), k/(len(pages)/w)
		rank := (of+1)*far - i - first
		if why == decoded {
			i, of = k/w, k%w
			rank = (i+first)*w + of
		}
		if id := pages[i*w+of]; id != 0 {
			b.drop(id, place{b.clock, why, q.serial, rank})
		}
	}
}

// tick begins another step's releases.
func (b *blocks) tick() {
	if b.grown {
		b.clock, b.grown = b.clock+1, false
	}
}

func (b *blocks) Commit(q *Sequence, more []Token) {
	b.tick()
	low := b.oldest(q.length)
	if b.ahead {
		low = b.oldest(q.begun)
	}
	low = max(q.low, low)
	b.settle(q, low, b.wide(low, q.length), computed)
	b.commit(q, more, low)
	b.MakeRoom(Need{})
}

// commit makes what q has computed findable, up to what a hit can end behind. Window blocks before number low are not held any more.
func (b *blocks) commit(q *Sequence, more []Token, low int) {
	if b.noPrefix {
		return
	}
	own := q.length - q.committed
	more = more[len(more)-own:]
	more = more[:own-q.length%b.align]
	b.left = b.left[:0]
	first := q.committed / max(1, b.window.tokens)
	for unit := b.hashes.unit; len(more) > 0; more = more[unit:] {
		q.hash = q.hash.next(more[:unit])
		q.committed += unit
		if b.window.count > 0 && q.committed%b.window.tokens == 0 {
			b.keepWindow(q, low)
		}
		if q.committed%b.full.tokens == 0 {
			b.keepFull(q)
		}
	}
	if len(b.left) > 0 {
		b.slide(q, b.left, first, computed)
	}
}

// keepFull makes the full block that ends at q.committed findable.
func (b *blocks) keepFull(q *Sequence) {
	for of := range b.full.count {
		id := b.make(q.hash, false, of)
		e := &b.entries[id]
		if n := len(q.blocks); n >= b.full.count {
			e.parent = q.blocks[n-b.full.count]
			e.before = b.entries[e.parent].hash
		}
		q.blocks = append(q.blocks, id)
	}
	b.private--
	b.tokens -= b.full.tokens
}

// keepWindow does it with a block of the window layers, if it is one to keep.
func (b *blocks) keepWindow(q *Sequence, low int) {
	i := q.committed/b.window.tokens - 1
	keep := b.dense || b.reachable(i, q.prompt) || b.reachable(i, q.junction)
	if len(q.window) == 0 && i >= low {
		q.first = i
	}
	for of := range b.window.count {
		id := int32(0)
		if keep {
			id = b.make(q.hash, true, of)
		}
		if i >= low {
			q.window = append(q.window, id)
		} else {
			b.left = append(b.left, id)
		}
	}
}

// reachable reports whether window block i is needed by a hit of that many tokens, or a little less.
func (b *blocks) reachable(i, boundary int) bool {
	end := boundary / b.align * b.align / b.window.tokens
	return end-b.last <= i && i < end
}

// make is a new entry, held by one sequence.
func (b *blocks) make(h chain, window bool, of int) int32 {
	if len(b.unused) == 0 {
		b.entries = append(b.entries, entry{})
		b.unused = append(b.unused, int32(len(b.entries)-1))
	}
	id := b.unused[len(b.unused)-1]
	b.unused = b.unused[:len(b.unused)-1]
	b.entries[id] = entry{hash: h, window: window, of: int32(of), refs: 1}
	g := b.groupOf(&b.entries[id])
	g.held++
	first, there := g.index[of][h]
	if !there {
		g.index[of][h] = id
		b.entries[id].found = true
		b.version++
		return id
	}
	b.copies++
	for b.entries[first].again != 0 {
		first = b.entries[first].again
	}
	b.entries[first].again = id
	return id
}

func (b *blocks) Close(q *Sequence, more []Token) {
	b.tick()
	b.commit(q, more, q.low)
	b.private -= b.fullBlocks(q.length) - len(q.blocks)/b.full.count
	b.tokens -= q.length - len(q.blocks)/b.full.count*b.full.tokens
	b.rings -= q.ring
	b.least -= b.ring(q.length)
	b.tails -= min(q.length, b.size)
	if len(q.window) > 0 {
		b.slide(q, q.window, q.first, ended)
	}
	for of := range b.full.count {
		for i := len(q.blocks)/b.full.count - 1; i >= 0; i-- {
			b.drop(q.blocks[i*b.full.count+of], place{b.clock, ended, q.serial, (b.window.count+of+1)*far - i})
		}
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
		UsedTokens: b.full.held/b.full.count*b.full.tokens + b.tokens, CachedTokens: b.full.free / b.full.count * b.full.tokens,
		FreeTokens: free / b.full.count * b.full.tokens, EvictedTokens: b.evicted / b.full.count * b.full.tokens,
	}
	if b.window.count > 0 {
		f.WindowUsedTokens, f.WindowCachedTokens = b.tails, b.window.free/b.window.count*b.window.tokens
		f.WindowFreeTokens = free / b.window.count * b.window.tokens
	}
	return f
}

func (b *blocks) Longest() int {
	most := b.pages / b.full.count * b.full.tokens
	return sort.Search(most, func(length int) bool { return b.Chunk(0, length+1, nil).A > int64(b.pages) })
}
