package engine

import "container/heap"

// cache is a radix tree of computed prefixes. Edges hold slices of the prompts themselves; paths in use are locked by reference
// counts; what is not locked may be evicted, leaves first, the least recently used before others. Use is counted, not timed, so
// that the order is the same in every run.
//
// Layers without a window keep the KV of every token in the tree. Of layers with a sliding window only a tail can be kept, so a
// prefix is usable only where a node's window is resident:
//
//   - a new leaf's window is resident. It is charged to the leaf while no request is attached to it; attaching moves the charge
//     to the request, whose own tail it becomes.
//   - when a leaf gets its first child, or a request moves on from a node with one child, its window is dropped: the tail has
//     moved on.
//   - when a node gets a second child, or a match ends inside a node, the window at that place becomes resident: whoever
//     branches off there has just held it. A system prompt that many calls share is found by the third call at the latest.
//   - evicting a leaf takes its window along. A parent without a window is then of no use to anybody, whatever its length, and
//     follows soon, being as old. Evicting a node that has children takes only its window.
//
// A match that ends inside a node with a resident window counts as a hit although, strictly, the window kept is that of the
// node's end. In a model without windows every node is usable.
type cache struct {
	window int // in tokens; 0 for a model without windows
	root   *node
	oldest evictionHeap

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
	children map[Token]*node // by the first token of their keys
	key      []Token
	depth    int // tokens from the root to the end of key
	refs     int // requests whose path goes through
	resident bool

	lastUse uint64
	serial  uint64 // breaks ties of lastUse
	index   int    // in the eviction heap; -1 outside
}

func (n *node) leaf() bool { return len(n.children) == 0 }

func newCache(window int) *cache {
	return &cache{window: window, root: &node{index: -1}}
}

// match is the usable cached prefix of a sequence: length tokens, ending at or inside node.
type match struct {
	node   *node
	length int
}

// find returns the longest usable cached prefix of seq. It changes nothing.
func (c *cache) find(seq []Token) match {
	best, n := match{node: c.root}, c.root
	for rest := seq; len(rest) > 0; {
		child := n.children[rest[0]]
		if child == nil {
			break
		}
		k := common(child.key, rest)
		if c.window == 0 || child.resident {
			best = match{node: child, length: child.depth - len(child.key) + k}
		}
		if k < len(child.key) {
			break
		}
		n, rest = child, rest[k:]
	}
	return best
}

// unlocked counts the tokens of m that nobody has locked yet: locking m takes them from what can be evicted.
func (c *cache) unlocked(m match) (tokens int) {
	over := m.node.depth - m.length // beyond the match, inside its last node
	for n := m.node; n != nil && n.refs == 0; n = n.parent {
		tokens += len(n.key) - over
		over = 0
	}
	return tokens
}

// lock protects the path of m and returns its end, which is exactly m.length deep.
func (c *cache) lock(m match) *node {
	n := m.node
	if over := n.depth - m.length; over > 0 {
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
		child := n.children[suffix[0]]
		if child == nil {
			n = c.add(n, suffix)
			break
		}
		k := common(child.key, suffix)
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
	if len(c.oldest) == 0 {
		return false
	}
	n := c.oldest[0]
	if !n.leaf() {
		c.change(n, func() { n.resident = false })
		return true
	}
	c.count(n, -1)
	heap.Remove(&c.oldest, n.index)
	c.evicted += len(n.key)
	p := n.parent
	c.change(p, func() {
		delete(p.children, n.key[0])
		if len(p.children) == 1 {
			p.resident = false // no longer a branch
		}
	})
	return true
}

// add makes a leaf below parent.
func (c *cache) add(parent *node, key []Token) *node {
	n := c.make(node{parent: parent, key: key[:len(key):len(key)], depth: parent.depth + len(key), resident: true})
	c.change(parent, func() {
		c.adopt(parent, n)
		parent.resident = len(parent.children) > 1
	})
	c.count(n, +1)
	c.place(n)
	return n
}

// split cuts n after k tokens of its key and returns the upper part; n stays the lower, so that whoever points at its end still
// does.
func (c *cache) split(n *node, k int) *node {
	upper := c.make(node{parent: n.parent, key: n.key[:k:k], depth: n.depth - len(n.key) + k, refs: n.refs,
		resident: n.resident, lastUse: n.lastUse})
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
	n.serial, n.index = c.nodes, -1
	return &n
}

func (c *cache) adopt(parent, child *node) {
	if parent.children == nil {
		parent.children = make(map[Token]*node, 1)
	}
	parent.children[child.key[0]] = child
}

// hold adds delta, 1 or -1, to the references of the path to n.
func (c *cache) hold(n *node, delta int) {
	for ; n != nil; n = n.parent {
		if n.refs+delta < 0 {
			panic("engine: a prefix was unlocked more often than locked")
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
		n.lastUse = c.clock
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
	if n.resident && (n.refs == 0 || !n.leaf()) { // a request pays for the leaf it stands on
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

// evictionHeap orders nodes by last use.
type evictionHeap []*node

func (h evictionHeap) Len() int { return len(h) }

func (h evictionHeap) Less(i, j int) bool {
	if h[i].lastUse != h[j].lastUse {
		return h[i].lastUse < h[j].lastUse
	}
	return h[i].serial < h[j].serial
}

func (h evictionHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *evictionHeap) Push(x any) {
	n := x.(*node)
	n.index = len(*h)
	*h = append(*h, n)
}

// Pop is for container/heap.
func (h *evictionHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	n.index = -1
	return n
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
