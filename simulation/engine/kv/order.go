package kv

import "container/heap"

// use is what an eviction policy looks at.
type use struct {
	last   uint64 // when it was last used, counted in uses
	made   uint64
	hits   uint64
	serial uint64 // breaks ties
}

// before reports whether what was used as a, ending at depth, goes before what was used as b. Of what was used at once, what is
// nearer to the root goes first.
func (e Eviction) before(a, b use, depthA, depthB int) bool {
	x, y := a.last, b.last
	switch e {
	case LFU:
		if a.hits != b.hits {
			return a.hits < b.hits
		}
	case FIFO:
		x, y = a.made, b.made
	case MRU:
		x, y = b.last, a.last
	case FILO:
		x, y = b.made, a.made
	}
	if x != y {
		return x < y
	}
	if depthA != depthB {
		return depthA < depthB
	}
	return a.serial < b.serial
}

// order is a heap of nodes of twoPools, the next to evict first.
type order struct {
	nodes  []*leafy
	slot   int
	policy Eviction
}

// set puts n in, or takes it out.
func (o *order) set(n *leafy, in bool) {
	switch at := n.index[o.slot]; {
	case in && at < 0:
		heap.Push(o, n)
	case !in && at >= 0:
		heap.Remove(o, at)
	}
}

// fix moves n, if it is in, after its use has changed.
func (o *order) fix(n *leafy) {
	if at := n.index[o.slot]; at >= 0 {
		heap.Fix(o, at)
	}
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (o *order) Len() int { return len(o.nodes) }

func (o *order) Less(i, j int) bool {
	a, b := o.nodes[i], o.nodes[j]
	return o.policy.before(a.use, b.use, a.depth, b.depth)
}

func (o *order) Swap(i, j int) {
	o.nodes[i], o.nodes[j] = o.nodes[j], o.nodes[i]
	o.nodes[i].index[o.slot], o.nodes[j].index[o.slot] = i, j
}

func (o *order) Push(x any) {
	n := x.(*leafy)
	n.index[o.slot] = len(o.nodes)
	o.nodes = append(o.nodes, n)
}

func (o *order) Pop() any {
	last := len(o.nodes) - 1
	n := o.nodes[last]
	o.nodes[last] = nil
	o.nodes = o.nodes[:last]
	n.index[o.slot] = -1
	return n
}

// firstPage is what a node's children are told apart by: the first token, or a hash of the first page.
func firstPage(tokens []Token, page int) uint64 {
	if page == 1 {
		return uint64(tokens[0])
	}
	return uint64(chain(0).next(tokens[:page]))
}
