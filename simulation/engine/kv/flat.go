package kv

import "iter"

// FlatLRU is the simplest prefix cache of blocks: one list of block ids in the order of their last use, whatever they belong to. The
// leading run of a request's blocks that are there is its hit; all of its blocks are there from its arrival on, used from the first
// to the last, so that the first of them is the first to go. Published hit rates of traces are often computed so. Not for concurrent
// use.
type FlatLRU struct {
	capacity int
	at       map[uint64]int32
	items    []flatItem // 0 is both ends of the list, the least recently used first
}

type flatItem struct {
	id         uint64
	prev, next int32
}

// NewFlatLRU returns an empty cache of that many blocks; 0 is no limit.
func NewFlatLRU(blocks int) *FlatLRU {
	return &FlatLRU{capacity: blocks, at: map[uint64]int32{}, items: make([]flatItem, 1)}
}

// Request is the arrival of a request of those blocks. It returns the length of its hit, in blocks.
func (f *FlatLRU) Request(blocks []uint64) (hit int) {
	for hit < len(blocks) {
		if _, there := f.at[blocks[hit]]; !there {
			break
		}
		hit++
	}
	for _, id := range blocks {
		f.use(id)
	}
	return hit
}

func (f *FlatLRU) use(id uint64) {
	i, there := f.at[id]
	switch {
	case there:
		f.unlink(i)
	case f.capacity > 0 && len(f.at) == f.capacity: // the oldest makes way
		i = f.items[0].next
		f.unlink(i)
		delete(f.at, f.items[i].id)
	default:
		i = int32(len(f.items))
		f.items = append(f.items, flatItem{})
	}
	f.at[id] = i
	last := f.items[0].prev
	f.items[i] = flatItem{id: id, prev: last}
	f.items[last].next, f.items[0].prev = i, i
}

func (f *FlatLRU) unlink(i int32) {
	it := f.items[i]
	f.items[it.prev].next, f.items[it.next].prev = it.next, it.prev
}

// Blocks is a request of a trace: its prompt, and the ids of the blocks that it begins with. Equal ids are equal content behind equal
// blocks.
type Blocks struct {
	Tokens int
	IDs    []uint64
}

// Hits is what was found of requests.
type Hits struct {
	Blocks, HitBlocks int
	Tokens, HitTokens int
}

// BlockRate is HitBlocks / Blocks, 0 without any.
func (h Hits) BlockRate() float64 { return rate(h.HitBlocks, h.Blocks) }

// TokenRate is HitTokens / Tokens, 0 without any.
func (h Hits) TokenRate() float64 { return rate(h.HitTokens, h.Tokens) }

func rate(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func (h *Hits) add(r Blocks, hit, blockTokens int) {
	h.Blocks += len(r.IDs)
	h.HitBlocks += hit
	h.Tokens += r.Tokens
	h.HitTokens += min(hit*blockTokens, r.Tokens) // the last block may be part of one
}

// Replayed is what caches of one capacity find of a trace.
type Replayed struct {
	Capacity int  // blocks; 0 is no limit
	Flat     Hits // of a FlatLRU
	Radix    Hits // of the store Ideal, one request after the other: leaves go first, and blocks are there when they are computed
}

// Replay has caches of several capacities, in blocks of blockTokens tokens, serve the requests of a trace in their order. A request
// that is larger than a capacity finds nothing there in the radix store and leaves nothing.
func Replay(requests iter.Seq[Blocks], blockTokens int, capacities ...int) []Replayed {
	out := make([]Replayed, len(capacities))
	flat, radix := make([]*FlatLRU, len(capacities)), make([]*shared, len(capacities))
	for i, c := range capacities {
		out[i].Capacity = c
		flat[i] = NewFlatLRU(c)
		if c == 0 {
			c = 1 << 40
		}
		radix[i] = newShared(Config{Layout: Layout{FullBytes: 1}, Pool: int64(c), Scheme: Ideal, Eviction: LRU})
	}
	names := map[uint64]Token{} // a block is one token of the tree
	for r := range requests {
		path := make([]Token, len(r.IDs))
		for i, id := range r.IDs {
			t, known := names[id]
			if !known {
				t = Token(len(names))
				names[id] = t
			}
			path[i] = t
		}
		for i := range out {
			out[i].Flat.add(r, flat[i].Request(r.IDs), blockTokens)
			out[i].Radix.add(r, radix[i].pass(path), blockTokens)
		}
	}
	return out
}

// pass is a sequence that comes and goes alone. It returns what was found of it.
func (s *shared) pass(tokens []Token) (hit int) {
	m := s.Find(tokens)
	if !s.Fits(m, s.Growth(m.Length, len(tokens))) {
		return 0
	}
	var q Sequence
	s.Open(&q, m, tokens)
	s.MakeRoom(s.Growth(m.Length, len(tokens)))
	s.Grow(&q, len(tokens))
	s.Close(&q, tokens)
	return m.Length
}
