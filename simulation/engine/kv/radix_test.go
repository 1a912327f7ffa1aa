package kv

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive is the same cache, obviously right and slow: a flat list of the prefixes that end a node. Sequences are strings.
type naive struct {
	ends  map[string]*end
	clock uint64
	made  uint64
}

type end struct{ refs, lastUse, serial uint64 }

// match is the longest prefix of seq that some stored prefix begins with.
func (n *naive) match(seq string) string {
	best := ""
	for p := range n.ends {
		if k := commonPrefix(p, seq); len(k) > len(best) {
			best = k
		}
	}
	return best
}

// see makes prefix an end, as old as the end that it divides, and all ends on its way used now.
func (n *naive) see(prefix string, divides bool) {
	n.clock++
	if n.ends[prefix] == nil && prefix != "" {
		n.made++
		e := &end{serial: n.made, lastUse: n.clock}
		if divides {
			for p, other := range n.ends {
				if strings.HasPrefix(p, prefix) {
					e.refs = max(e.refs, other.refs) // who uses what is below also uses this
				}
			}
		}
		n.ends[prefix] = e
	}
	for p, e := range n.ends {
		if strings.HasPrefix(prefix, p) {
			e.lastUse = n.clock
		}
	}
}

func (n *naive) hold(prefix string, delta int) {
	for p, e := range n.ends {
		if strings.HasPrefix(prefix, p) {
			e.refs += uint64(delta)
		}
	}
}

func (n *naive) insert(seq string) {
	if at := n.match(seq); at != seq && n.ends[at] == nil && at != "" {
		n.see(at, true)
	}
	n.see(seq, n.match(seq) == seq)
}

func (n *naive) evict() bool {
	oldest := ""
	for p, e := range n.ends {
		leaf := true
		for q := range n.ends {
			leaf = leaf && (q == p || !strings.HasPrefix(q, p))
		}
		if !leaf || e.refs > 0 {
			continue
		}
		if o := n.ends[oldest]; o == nil || e.lastUse < o.lastUse || e.lastUse == o.lastUse && e.serial < o.serial {
			oldest = p
		}
	}
	delete(n.ends, oldest)
	return oldest != ""
}

func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

func tokensOf(s string) (t []Token) {
	for _, b := range []byte(s) {
		t = append(t, Token(b))
	}
	return t
}

// ends lists the prefixes at which the tree's nodes end.
func (c *cache) ends() (all []string) {
	var walk func(n *node, prefix string)
	walk = func(n *node, prefix string) {
		for _, t := range n.key {
			prefix += string(rune(t))
		}
		if n != c.root {
			all = append(all, prefix)
		}
		for _, child := range n.children {
			walk(child, prefix)
		}
	}
	walk(c.root, "")
	slices.Sort(all)
	return all
}

// The tree and the list have the same nodes, find the same and evict the same, whatever is done to them.
func TestCacheIsLikeANaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, n := newCache(0, 1, LRU), &naive{ends: map[string]*end{}}
		type lock struct {
			node   *node
			prefix string
		}
		var locks []lock
		seq := rapid.StringMatching(`[ab]{1,12}`)
		t.Repeat(map[string]func(*rapid.T){
			"lock": func(t *rapid.T) {
				s := seq.Draw(t, "s")
				m := c.find(tokensOf(s))
				prefix := n.match(s)
				if m.Length != len(prefix) {
					t.Fatalf("find(%s): got %d tokens, want %q", s, m.Length, prefix)
				}
				n.see(prefix, true)
				n.hold(prefix, +1)
				want := c.unlocked(m)
				before := c.locked
				locks = append(locks, lock{c.lock(m), prefix})
				if got := c.locked - before; got != want {
					t.Fatalf("lock(%s) locks %d tokens more, foretold %d", prefix, got, want)
				}
			},
			"insert": func(t *rapid.T) { // what an admitted request has computed
				if len(locks) == 0 {
					t.Skip("nothing is locked")
				}
				l := &locks[rapid.IntRange(0, len(locks)-1).Draw(t, "lock")]
				suffix := seq.Draw(t, "suffix")
				n.insert(l.prefix + suffix)
				n.hold(l.prefix+suffix, +1)
				n.hold(l.prefix, -1)
				l.node, l.prefix = c.insert(l.node, tokensOf(suffix)), l.prefix+suffix
			},
			"unlock": func(t *rapid.T) {
				if len(locks) == 0 {
					t.Skip("nothing is locked")
				}
				i := rapid.IntRange(0, len(locks)-1).Draw(t, "lock")
				c.unlock(locks[i].node)
				n.hold(locks[i].prefix, -1)
				locks = slices.Delete(locks, i, i+1)
			},
			"evict": func(t *rapid.T) {
				if got, want := c.evict(), n.evict(); got != want {
					t.Fatalf("evict: got %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				if got, want := c.ends(), slices.Sorted(maps.Keys(n.ends)); !slices.Equal(got, want) {
					t.Fatalf("got nodes %q, want %q", got, want)
				}
				if err := c.check(); err != nil {
					t.Fatal(err)
				}
				for _, l := range locks {
					if l.node.depth != len(l.prefix) {
						t.Fatalf("the lock of %q is %d deep", l.prefix, l.node.depth)
					}
				}
			},
		})
	})
}

// check recounts everything that the cache counts as it goes.
func (c *cache) check() error {
	fresh := newCache(c.window, 1, LRU)
	inHeap := 0
	var walk func(n *node) error
	walk = func(n *node) error {
		fresh.count(n, +1)
		depth, refs := 0, 0
		if n.parent != nil {
			depth = n.parent.depth
		}
		if n.depth != depth+len(n.key) {
			return fmt.Errorf("node %d: depth %d behind %d with %d tokens", n.use.serial, n.depth, depth, len(n.key))
		}
		for first, child := range n.children {
			refs += child.refs
			if child.parent != n || uint64(child.key[0]) != first {
				return fmt.Errorf("node %d: child %d is misplaced", n.use.serial, child.use.serial)
			}
			if err := walk(child); err != nil {
				return err
			}
		}
		if refs > n.refs {
			return fmt.Errorf("node %d: %d references, its children have %d", n.use.serial, n.refs, refs)
		}
		evictable := n.parent != nil && n.leaf() && n.refs == 0 || !n.leaf() && n.resident && c.window > 0 && n.depth > 0
		if evictable != (n.index >= 0) {
			return fmt.Errorf("node %d: evictable %v, index %d", n.use.serial, evictable, n.index)
		}
		if n.index >= 0 {
			inHeap++
			if c.oldest.nodes[n.index] != n {
				return fmt.Errorf("node %d: not at its index %d", n.use.serial, n.index)
			}
		}
		return nil
	}
	if err := walk(c.root); err != nil {
		return err
	}
	if fresh.tokens != c.tokens || fresh.locked != c.locked || fresh.charged != c.charged || inHeap != len(c.oldest.nodes) {
		return fmt.Errorf("counted %d tokens, %d locked, %d charged, %d evictable; recounted %d, %d, %d, %d",
			c.tokens, c.locked, c.charged, len(c.oldest.nodes), fresh.tokens, fresh.locked, fresh.charged, inHeap)
	}
	return nil
}

// The cases that the list cannot tell: where a window is.
func TestWindowResidency(t *testing.T) {
	const window, evict = 4, ""
	for _, row := range []struct {
		why    string
		before []string // prompts that find, compute and leave; or evict
		prompt string
		want   int
	}{
		{"a leaf's end is resident", []string{"abcdefgh"}, "abcdefghi", 8},
		{"a match inside a leaf counts", []string{"abcdefgh"}, "abcdeX", 5},
		{"behind a leaf that was extended, only the new end", []string{"abcdefgh", "abcdefghijkl"}, "abcdefghX", 0},
		{"the new end", []string{"abcdefgh", "abcdefghijkl"}, "abcdefghijklm", 12},
		{"a branch is resident", []string{"abcdX", "abcdY"}, "abcdZ", 4},
		{"a branch whose second leaf was evicted is none", []string{"abcdX", "abcdY", evict}, "abcdZ", 0},
		{"a tail that was evicted makes the rest useless", []string{"abcd", "abcdefgh", evict}, "abcdX", 0},
		{"until somebody computes it anew", []string{"abcd", "abcdefgh", evict, "abcd"}, "abcdX", 4},
		{"the same prompt again leaves one window, at its end", []string{"abcdefgh", "abcdefgh"}, "abcdefgX", 0},
		{"and that end is usable", []string{"abcdefgh", "abcdefgh"}, "abcdefghX", 8},
	} {
		c := newCache(window, 1, LRU)
		for _, prompt := range row.before {
			if prompt == evict {
				c.evict()
				continue
			}
			seq := tokensOf(prompt)
			n := c.lock(c.find(seq[:len(seq)-1]))
			c.unlock(c.insert(n, seq[n.depth:]))
			if err := c.check(); err != nil {
				t.Errorf("%s: %v", row.why, err)
			}
		}
		if got := c.find(tokensOf(row.prompt)).Length; got != row.want {
			t.Errorf("%s: got a hit of %d, want %d", row.why, got, row.want)
		}
	}
}

// Two requests admitted in one step find the same: the first one's match must not spoil the second's.
func TestTwoMatchesInsideOneLeaf(t *testing.T) {
	c := newCache(4, 1, LRU)
	c.unlock(c.insert(c.lock(Match{node: c.root}), tokensOf("abcdefgh")))
	for _, prompt := range []string{"abcdeX", "abcdeY"} {
		m := c.find(tokensOf(prompt))
		if m.Length != 5 {
			t.Errorf("%s: got a hit of %d, want 5", prompt, m.Length)
		}
		c.lock(m)
	}
}

func TestCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Uint32Range(0, 1), 0, 300).Draw(t, "a")
		b := slices.Clone(a[:rapid.IntRange(0, len(a)).Draw(t, "cut")])
		if len(b) > 0 && rapid.Bool().Draw(t, "differ") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "where")] = 2
		}
		want := 0
		for want < len(b) && a[want] == b[want] {
			want++
		}
		if got := common(a, b); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}
