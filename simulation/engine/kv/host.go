package kv

// host is a second tier: what is evicted goes there, in units of whole blocks, and the least recently written goes from there. What
// is found there moves back.
type host struct {
	bytes  int64 // all
	full   tier
	window tier // of layers with a window: only what was there when it was evicted
	hashes chains
	size   int // the window in tokens

	items   []hostItem // 0 is both ends of the list, the next to go first
	unused  []int32
	used    int64
	version uint64
}

// tier is the units of one kind of layers.
type tier struct {
	tokens int // of a unit
	bytes  int64
	index  map[chain]int32
}

type hostItem struct {
	hash       chain
	window     bool
	prev, next int32
}

// hostUnit is the fewest tokens that are moved at once where a page is smaller.
const hostUnit = 16

func newHost(bytes int64, full, window tier, unit, size int) *host {
	full.index, window.index = map[chain]int32{}, map[chain]int32{}
	return &host{bytes: bytes, full: full, window: window, hashes: chains{unit: unit}, size: size, items: make([]hostItem, 1)}
}

func (h *host) tier(window bool) *tier {
	if window {
		return &h.window
	}
	return &h.full
}

// write puts the units of a sequence that end behind a place: of full layers behind the first, of the others behind the second. The
// last ones are put first, to go first.
func (h *host) write(tokens []Token, full, window int) {
	u := h.hashes.unit
	h.hashes.short = h.hashes.extend(h.hashes.short[:0], tokens, len(tokens)/u)
	for i := len(h.hashes.short); i > 0; i-- {
		if i*u > window && h.window.bytes > 0 {
			h.put(h.hashes.short[i-1], true)
		}
		if i*u > full {
			h.put(h.hashes.short[i-1], false)
		}
	}
}

// put writes one unit, or makes it the most recently written.
func (h *host) put(c chain, window bool) {
	t := h.tier(window)
	if t.bytes > h.bytes {
		return
	}
	id, known := t.index[c]
	if known {
		h.unlink(id)
	} else {
		if len(h.unused) == 0 {
			h.items = append(h.items, hostItem{})
			h.unused = append(h.unused, int32(len(h.items)-1))
		}
		id = h.unused[len(h.unused)-1]
		h.unused = h.unused[:len(h.unused)-1]
		t.index[c] = id
		h.used += t.bytes
		h.version++
	}
	last := h.items[0].prev
	h.items[id] = hostItem{hash: c, window: window, prev: last}
	h.items[last].next, h.items[0].prev = id, id
	for h.used > h.bytes {
		h.drop(h.items[0].next)
	}
}

func (h *host) unlink(id int32) {
	it := h.items[id]
	h.items[it.prev].next, h.items[it.next].prev = it.next, it.prev
}

func (h *host) drop(id int32) {
	it := h.items[id]
	h.unlink(id)
	t := h.tier(it.window)
	delete(t.index, it.hash)
	h.used -= t.bytes
	h.unused = append(h.unused, id)
	h.version++
}

func (h *host) take(c chain, window bool) {
	if id, there := h.tier(window).index[c]; there {
		h.drop(id)
	}
}

// tiered is a store with a host tier behind it. Opening a match that goes on there loads it: as if it were computed, in no time that
// a store knows.
type tiered struct {
	Store
	host  *host
	knows func(c chain, window bool) bool // beside what the store finds: parts of prefixes
}

// newTiered puts a host tier of c.HostBytes behind a store.
func newTiered(c Config, s Store) Store {
	unit := max(1, c.PageTokens)
	for unit < hostUnit {
		unit *= 2
	}
	of := func(tokens int, bytes int64) tier { return tier{tokens: tokens, bytes: int64(tokens) * bytes} }
	t := &tiered{Store: s, knows: func(chain, bool) bool { return false }}
	switch s := s.(type) {
	case *shared:
		t.host = newHost(c.HostBytes, of(unit, s.full), of(unit, s.window), unit, s.cache.window)
		s.cache.host = t.host
	case *twoPools:
		t.host = newHost(c.HostBytes, of(unit, c.FullBytes), of(unit, c.WindowBytes), unit, s.size)
		s.host = t.host
	case *blocks:
		full := tier{tokens: s.full.tokens, bytes: int64(s.full.count) * s.pageBytes}
		window := tier{tokens: s.window.tokens, bytes: int64(s.window.count) * s.pageBytes}
		t.host = newHost(c.HostBytes, full, window, s.hashes.unit, s.last*s.window.tokens)
		s.host = t.host
		t.knows = func(c chain, window bool) bool {
			g := &s.full
			if window {
				g = &s.window
			}
			return g.there(c)
		}
	}
	return t
}

func (t *tiered) Version() uint64 { return t.Store.Version() + t.host.version }

func (t *tiered) Find(tokens []Token) Match {
	m := t.Store.Find(tokens)
	m.near = m.Length
	h := t.host
	if h.used == 0 {
		return m
	}
	c := h.hashes.of(tokens)
	at := func(tokens int) chain { return c[tokens/h.hashes.unit-1] }
	there := func(tokens int, window bool) bool {
		_, there := h.tier(window).index[at(tokens)]
		return there || t.knows(at(tokens), window)
	}
	hashed := len(c) * h.hashes.unit
	f := h.full.tokens
	end := m.near / f * f
	for end+f <= hashed && there(end+f, false) {
		end += f
	}
	if w := h.window.tokens; h.window.bytes > 0 {
		step := max(f, w)
	shorter:
		for end -= end % step; end > m.near; end -= step {
			for u := end; u > max(m.near, end-h.size); u -= w {
				if !there(u, true) {
					continue shorter
				}
			}
			break
		}
	}
	if end > m.near {
		m.Length, m.Host = end, end-m.near
	}
	return m
}

// AtOnce is false also where blocks that windows leave behind may have to go: the host tier would have them in another order.
func (t *tiered) AtOnce(need Need) bool {
	if b, ok := t.Store.(*blocks); ok {
		return need.A+int64(b.window.held) <= int64(b.free())
	}
	return t.Store.AtOnce(need)
}

// onDevice is the part of m that the store found.
func onDevice(m Match) Match {
	m.Length, m.Host = m.near, 0
	return m
}

func (t *tiered) Fits(m Match, need Need) bool {
	return t.Store.Fits(onDevice(m), need.Plus(t.Growth(m.near, m.Length)))
}

func (t *tiered) Open(s *Sequence, m Match, tokens []Token) {
	t.Store.Open(s, onDevice(m), tokens)
	if m.Host == 0 {
		return
	}
	c := t.host.hashes.of(tokens[:m.Length])
	for _, window := range []bool{false, true} {
		size := t.host.tier(window).tokens
		if size == 0 {
			continue
		}
		for u := (m.near/size + 1) * size; u <= m.Length; u += size {
			t.host.take(c[u/t.host.hashes.unit-1], window)
		}
	}
	if !t.MakeRoom(t.Growth(m.near, m.Length)) {
		panic("kv: a match was opened that does not fit")
	}
	t.Grow(s, m.Length)
	t.Commit(s, tokens[s.Committed():m.Length])
}

func (t *tiered) Flush() {
	t.Store.Flush()
	for t.host.items[0].next != 0 {
		t.host.drop(t.host.items[0].next)
	}
}

func (t *tiered) Figures() Figures {
	f := t.Store.Figures()
	f.HostTokens = len(t.host.full.index) * t.host.full.tokens
	return f
}
