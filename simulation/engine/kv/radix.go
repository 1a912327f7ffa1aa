package kv

import (
	"container/heap"
	"slices"
)

// cache is a radix tree of computed prefixes. Edges hold slices of the prompts themselves; paths in use are locked by reference
// counts; what is not locked may be evicted, leaves first, the least recently used before others. Use is counted, not timed, so
// that the order is the same in every run.
//
// Layers without a window keep the KV of every token in the tree. Of layers with a sliding window only a tail can be kept, so a
// prefix is usable only where a node's window is resident:
//
//   - a new leaf's window is resident. It is charged to the leaf while no sequence is attached to it; attaching moves the charge
//     to the sequence, whose own tail it becomes.
//   - when a leaf gets its first child, or a sequence moves on from a node with one child, its window is dropped: the tail has
//     moved on.
//   - when a node gets a second child, or a match ends inside a node, the window at that place becomes resident: whoever
//     branches off there has just held it. A system prompt that many calls share is found by the third call at the latest.
//   - evicting a leaf takes its window along. A parent without a window is then of no use to anybody, whatever its length, and
//     follows soon, being as old. Evicting a node that has children takes only its window.
//
// A match that ends inside a node with a resident window counts as a hit although, strictly, the window kept is that of the
// node's end. In a model without windows every node is usable.
type cache struct {
	window int // in tokens, whole pages; 0 for a model without windows
	page   int // tokens; keys are whole pages
	root   *node
	oldest evictionHeap

	host    *host   // where evicted leaves go; nil: nowhere
	scratch []Token // of evict

	clock   uint64 // counts uses
	nodes   uint64 // counts nodes ever made
	version uint64 // changes when a lookup could give another answer

	tokens  int // in the tree
	locked  int // of them in locked nodes
	charged int // window tokens charged to nodes
	evicted int // tokens ever evicted
}

// node is an edge and its end.
type node struct {
	parent   *node
	children map[uint64]*node // by the first page of their keys
	key      []Token
	depth    int // tokens from the root to the end of key
	refs     int // sequences whose path goes through
	resident bool

	use   use
	index int // in the eviction heap; -1 outside
}

func (n *node) leaf() bool { return len(n.children) == 0 }

func newCache(window, page int, policy Eviction) *cache {
	return &cache{window: window, page: page, oldest: evictionHeap{policy: policy}, root: &node{index: -1}}
}

// find returns the longest usable cached prefix of seq. It changes nothing.
func (c *cache) find(seq []Token) Match {
	best, n := Match{node: c.root}, c.root
	for rest := seq; len(rest) >= c.page; {
		child := n.children[firstPage(rest, c.page)]
		if child == nil {
			break
		}
		k := c.common(child.key, rest)
		if c.window == 0 || child.resident {
			best = Match{node: child, Length: child.depth - len(child.key) + k}
		}
		if k < len(child.key) {
			break
		}
		n, rest = child, rest[k:]
	}
	return best
}

// unlocked counts the tokens of m that nobody has locked yet: locking m takes them from what can be evicted.
func (c *cache) unlocked(m Match) (tokens int) {
	if m.node == nil { // no prefix
		return 0
	}
	over := m.node.depth - m.Length // beyond the match, inside its last node
	for n := m.node; n != nil && n.refs == 0; n = n.parent {
		tokens += len(n.key) - over
		over = 0
	}
	return tokens
}

// lock protects the path of m and returns its end, which is exactly m.Length deep.
func (c *cache) lock(m Match) *node {
	n := m.node
	if n == nil {
		n = c.root
	}
	if over := n.depth - m.Length; over > 0 {
		n = c.split(n, len(n.key)-over)
	}
	c.hold(n, +1)
	c.touch(n)
	return n
}

// unlock undoes one lock of the path to n.
func (c *cache) unlock(n *node) { c.hold(n, -1) }

// insert adds suffix behind from, moves one lock from there to the new end, and returns that end.
func (c *cache) insert(from *node, suffix []Token) *node {
	n := from
	for len(suffix) > 0 {
		child := n.children[firstPage(suffix, c.page)]
		if child == nil {
			n = c.add(n, suffix)
			break
		}
		k := c.common(child.key, suffix)
		if k < len(child.key) {
			child = c.split(child, k)
		}
		n, suffix = child, suffix[k:]
	}
	c.hold(n, +1)
	c.hold(from, -1)
	if n.leaf() && !n.resident { // computed anew
		c.change(n, func() { n.resident = true })
	}
	if n != from && from.resident && len(from.children) == 1 { // the tail has moved on
		c.change(from, func() { from.resident = false })
	}
	c.touch(n)
	return n
}

// evict drops the least recently used leaf, or the window of a node inside; false when all is locked.
func (c *cache) evict() bool {
	if len(c.oldest.nodes) == 0 {
		return false
	}
	n := c.oldest.nodes[0]
	if !n.leaf() {
		c.change(n, func() { n.resident = false })
		return true
	}
	if c.host != nil {
		window := n.depth
		if n.resident {
			window = max(0, n.depth-c.window)
		}
		c.scratch = n.appendPath(c.scratch[:0])
		c.host.write(c.scratch, n.depth-len(n.key), window)
	}
	c.count(n, -1)
	heap.Remove(&c.oldest, n.index)
	c.evicted += len(n.key)
	p := n.parent
	c.change(p, func() {
		delete(p.children, firstPage(n.key, c.page))
		if len(p.children) == 1 {
			p.resident = false // no longer a branch
		}
	})
	return true
}

// appendPath appends the tokens from the root to the end of n.
func (n *node) appendPath(dst []Token) []Token {
	if n.parent != nil {
		dst = n.parent.appendPath(dst)
	}
	return append(dst, n.key...)
}

// add makes a leaf below parent.
func (c *cache) add(parent *node, key []Token) *node {
	n := c.make(node{parent: parent, key: own(key, parent.depth), depth: parent.depth + len(key), resident: true})
	c.change(parent, func() {
		c.adopt(parent, n)
		parent.resident = len(parent.children) > 1
	})
	c.count(n, +1)
	c.place(n)
	return n
}

// own returns key as a node may keep it: a short tail of a long sequence is copied, so that it does not keep the whole alive.
func own(key []Token, depth int) []Token {
	if 4*len(key) < depth {
		return slices.Clone(key)
	}
	return key[:len(key):len(key)]
}

// split cuts n after k tokens of its key and returns the upper part; n stays the lower, so that whoever points at its end still
// does.
func (c *cache) split(n *node, k int) *node {
	upper := c.make(node{parent: n.parent, key: n.key[:k:k], depth: n.depth - len(n.key) + k, refs: n.refs,
		resident: n.resident, use: n.use})
	c.adopt(n.parent, upper)
	c.change(n, func() { n.key, n.parent = n.key[k:], upper })
	c.adopt(upper, n)
	c.count(upper, +1)
	c.place(upper)
	return upper
}

// make returns a node that is not counted yet.
func (c *cache) make(n node) *node {
	c.nodes++
	n.use.serial, n.index = c.nodes, -1
	if n.use.made == 0 {
		n.use.made = c.nodes
	}
	return &n
}

func (c *cache) adopt(parent, child *node) {
	if parent.children == nil {
		parent.children = make(map[uint64]*node, 1)
	}
	parent.children[firstPage(child.key, c.page)] = child
}

// hold adds delta, 1 or -1, to the references of the path to n.
func (c *cache) hold(n *node, delta int) {
	for ; n != nil; n = n.parent {
		if n.refs+delta < 0 {
			panic("kv: a prefix was unlocked more often than locked")
		}
		if n.refs > 0 && n.refs+delta > 0 {
			n.refs += delta // and nothing that is counted changes
			continue
		}
		c.count(n, -1)
		n.refs += delta
		c.count(n, +1)
		c.place(n)
	}
}

// touch makes the path to n the most recently used.
func (c *cache) touch(n *node) {
	c.clock++
	for ; n != nil; n = n.parent {
		n.use.last = c.clock
		n.use.hits++
		if n.index >= 0 {
			heap.Fix(&c.oldest, n.index)
		}
	}
}

// change does something to n that changes how it is counted, whether it can be evicted, or what a lookup finds.
func (c *cache) change(n *node, do func()) {
	c.count(n, -1)
	do()
	c.count(n, +1)
	c.place(n)
	c.version++
}

// count adds n to the totals, or with sign -1 takes it out.
func (c *cache) count(n *node, sign int) {
	c.tokens += sign * len(n.key)
	if n.refs > 0 {
		c.locked += sign * len(n.key)
	}
	if n.resident && (n.refs == 0 || !n.leaf()) { // a sequence pays for the leaf it stands on
		c.charged += sign * min(n.depth, c.window)
	}
}

// place puts n among the evictable, or takes it out.
func (c *cache) place(n *node) {
	evictable := n.leaf() && n.refs == 0 && n.parent != nil || !n.leaf() && n.resident && min(n.depth, c.window) > 0
	switch {
	case evictable && n.index < 0:
		heap.Push(&c.oldest, n)
	case !evictable && n.index >= 0:
		heap.Remove(&c.oldest, n.index)
	}
}

// evictionHeap has the next to evict first.
type evictionHeap struct {
	nodes  []*node
	policy Eviction
}

func (h *evictionHeap) Len() int { return len(h.nodes) }

func (h *evictionHeap) Less(i, j int) bool {
	return h.policy.before(h.nodes[i].use, h.nodes[j].use, 0, 0)
}

func (h *evictionHeap) Swap(i, j int) {
	h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i]
	h.nodes[i].index, h.nodes[j].index = i, j
}

// Push is for container/heap.
func (h *evictionHeap) Push(x any) {
	n := x.(*node)
	n.index = len(h.nodes)
	h.nodes = append(h.nodes, n)
}

// Pop is for container/heap.
func (h *evictionHeap) Pop() any {
	last := len(h.nodes) - 1
	n := h.nodes[last]
	h.nodes[last] = nil
	h.nodes = h.nodes[:last]
	n.index = -1
	return n
}

// common is the length of the common prefix, in whole pages.
func (c *cache) common(a, b []Token) int {
	k := common(a, b)
	return k - k%c.page
}

// common returns the length of the common prefix. Turns of a call share their prompts' backing arrays, which needs no look at
// the tokens.
func common(a, b []Token) int {
	n := min(len(a), len(b))
	if n == 0 || &a[0] == &b[0] {
		return n
	}
	const block = 64
	i := 0
	for i+block <= n && *(*[block]Token)(a[i:]) == *(*[block]Token)(b[i:]) { // compiles to a memory comparison
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
