package kv

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// open is a sequence in two stores, one of which grows by one token at a time.
type open struct {
	content     []Token
	prompt      int
	jump, steps Sequence
}

func (o *open) prefilled() bool { return o.jump.Len() >= o.prompt }

// twins are two stores of one config that must stay equal.
type twins struct {
	jump, steps Store
	open        []*open
	probes      [][]Token
	stepTokens  int
}

func anyConfig(t *rapid.T, scheme Scheme) Config {
	c := Config{
		Scheme:      scheme,
		PageTokens:  rapid.SampledFrom([]int{1, 1, 2, 3, 4}).Draw(t, "page"),
		WindowRatio: rapid.SampledFrom([]float64{0, .3, 1}).Draw(t, "ratio"),
		NoPrefix:    rapid.IntRange(0, 9).Draw(t, "no prefix") == 0,
		Ahead:       rapid.Bool().Draw(t, "ahead"),
		Layout:      Layout{FullBytes: rapid.Int64Range(1, 3).Draw(t, "full")},
	}
	c.FullLayers = int(c.FullBytes)
	if c.Scheme != VLLM && c.Scheme != VLLMOld {
		c.Eviction = rapid.SampledFrom(Evictions()).Draw(t, "eviction")
	}
	if rapid.Bool().Draw(t, "hybrid") {
		c.WindowLayers = rapid.IntRange(1, 3).Draw(t, "window layers")
		c.WindowBytes = int64(c.WindowLayers) * rapid.Int64Range(1, 2).Draw(t, "window bytes")
		c.WindowTokens = rapid.IntRange(1, 9).Draw(t, "window")
	}
	c.StepTokens = rapid.SampledFrom([]int{0, 1, 2, 5, 17}).Draw(t, "step tokens")
	c.Pool = rapid.Int64Range(20, 600).Draw(t, "pool")
	if rapid.IntRange(0, 3).Draw(t, "host") == 0 {
		c.HostBytes = rapid.Int64Range(20, 600).Draw(t, "host bytes")
	}
	return c
}

// Whatever is done to a store: bytes add up and stay within the pool, what Fits promises is kept, what was committed is found where
// nothing presses, Version tells of every change, a jump of many tokens is as many steps, and in the end nothing is in use.
func TestStores(t *testing.T) {
	for _, scheme := range Schemes() {
		t.Run(string(scheme), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { useTwins(t, scheme) })
		})
	}
}

func useTwins(t *rapid.T, scheme Scheme) {
	config := anyConfig(t, scheme)
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := New(config)
	w := &twins{jump: a, steps: b, stepTokens: config.StepTokens}
	t.Repeat(map[string]func(*rapid.T){
		"open":    w.start,
		"compute": w.compute,
		"decode":  w.decode,
		"close": func(t *rapid.T) {
			if len(w.open) == 0 {
				t.Skip("nothing is open")
			}
			w.close(t, rapid.IntRange(0, len(w.open)-1).Draw(t, "which"))
		},
		"flush": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
				t.Skip("seldom")
			}
			before, version := w.finds(w.jump), w.jump.Version()
			w.jump.Flush()
			w.steps.Flush()
			w.told(t, before, version)
			if f := w.jump.Figures(); f.CachedBytes != 0 {
				t.Fatalf("after a flush: %+v", f)
			}
		},
		"": w.check,
	})
	for len(w.open) > 0 {
		w.close(t, 0)
	}
	if f := w.jump.Figures(); f.UsedBytes != 0 || f.UsedTokens != 0 || f.WindowUsedTokens != 0 {
		t.Fatalf("nothing is open: %+v", f)
	}
	w.jump.Flush()
	if f := w.jump.Figures(); f.CachedBytes != 0 || f.CachedTokens != 0 || f.WindowCachedTokens != 0 {
		t.Fatalf("nothing is open and nothing cached: %+v", f)
	}
}

func (w *twins) start(t *rapid.T) {
	o := &open{content: rapid.SliceOfN(rapid.Uint32Range(0, 1), 2, 40).Draw(t, "content")}
	if len(w.probes) > 0 && rapid.Bool().Draw(t, "as before") {
		old := rapid.SampledFrom(w.probes).Draw(t, "which")
		o.content = append(slices.Clone(old[:rapid.IntRange(1, len(old)).Draw(t, "length")]), o.content...)
	}
	o.prompt = rapid.IntRange(1, len(o.content)).Draw(t, "prompt")
	asked := o.content[:o.prompt-1]
	m, n := w.jump.Find(asked), w.steps.Find(asked)
	if m.Length != n.Length || m.Length > len(asked) {
		t.Fatalf("found %d tokens of %d, and %d in steps", m.Length, len(asked), n.Length)
	}
	need := w.jump.Chunk(m.Length, len(o.content), nil)
	fits := w.jump.Fits(m, need)
	if fits != w.steps.Fits(n, need) {
		t.Fatalf("fits: %v", fits)
	}
	if len(w.open) == 0 && fits != (len(o.content) <= w.jump.Longest()) && m.Length == 0 {
		t.Fatalf("a sequence of %d tokens fits into an idle store: %v; the longest is %d", len(o.content), fits, w.jump.Longest())
	}
	if !fits {
		t.Skip("does not fit")
	}
	before, version := w.finds(w.jump), w.jump.Version()
	w.jump.Open(&o.jump, m, o.content[:o.prompt])
	w.steps.Open(&o.steps, n, o.content[:o.prompt])
	if o.jump.Len() != m.Length || o.jump.Committed() > m.Length {
		t.Fatalf("opened on %d: %d tokens, %d committed", m.Length, o.jump.Len(), o.jump.Committed())
	}
	w.told(t, before, version)
	w.open = append(w.open, o)
	w.probes = append(w.probes, o.content)
	if !w.jump.Fits(Match{}, need) {
		t.Fatalf("what fitted does not any more")
	}
	if rapid.Bool().Draw(t, "make room") && !(w.jump.MakeRoom(need) && w.steps.MakeRoom(need)) {
		t.Fatalf("what fits has no room")
	}
}

func (w *twins) compute(t *rapid.T) {
	var todo []*open
	for _, o := range w.open {
		if !o.prefilled() {
			todo = append(todo, o)
		}
	}
	if len(todo) == 0 {
		t.Skip("nothing to prefill")
	}
	o := rapid.SampledFrom(todo).Draw(t, "which")
	most := o.prompt
	if w.stepTokens > 0 {
		most = min(most, o.jump.Len()+w.stepTokens)
	}
	to := rapid.IntRange(o.jump.Len()+1, most).Draw(t, "to")
	if !w.room(w.jump.Chunk(o.jump.Len(), to, &o.jump)) {
		t.Skip("no room")
	}
	w.jump.GrowChunk(&o.jump, to)
	w.steps.GrowChunk(&o.steps, to)
	before, version := w.finds(w.jump), w.jump.Version()
	w.jump.Commit(&o.jump, o.content[o.jump.Committed():to])
	w.steps.Commit(&o.steps, slices.Clone(o.content[o.steps.Committed():to]))
	w.told(t, before, version)
}

// room makes room in both, if there can be.
func (w *twins) room(need Need) bool {
	return w.jump.Fits(Match{}, need) && w.jump.MakeRoom(need) && w.steps.MakeRoom(need)
}

// decode grows all that is prefilled by a few tokens, at once here and by one at a time there.
func (w *twins) decode(t *rapid.T) {
	var all []*open
	n := rapid.IntRange(1, 12).Draw(t, "tokens")
	var need Need
	for _, o := range w.open {
		if o.prefilled() && o.jump.Len() < len(o.content) {
			if o.jump.begun < o.jump.Len()-1 { // no run begins with the first token behind a prompt
				n = 1
			}
			all = append(all, o)
			n = min(n, len(o.content)-o.jump.Len())
		}
	}
	for _, o := range all {
		need = need.Plus(w.jump.Growth(o.jump.Len(), o.jump.Len()+n))
	}
	if len(all) == 0 || !w.jump.Fits(Match{}, need) {
		t.Skip("nothing to decode")
	}
	if !w.jump.AtOnce(need) {
		t.Skip("not at once")
	}
	before, version := w.finds(w.jump), w.jump.Version()
	if !w.jump.MakeRoom(need) {
		t.Fatal("what fits has no room")
	}
	for _, o := range all {
		w.jump.Grow(&o.jump, o.jump.Len()+n)
	}
	w.told(t, before, version)
	for range n {
		var one Need
		for _, o := range all {
			one = one.Plus(w.steps.Growth(o.steps.Len(), o.steps.Len()+1))
		}
		if !w.steps.MakeRoom(one) {
			t.Fatal("what has room at once has none in steps")
		}
		for _, o := range all {
			w.steps.Grow(&o.steps, o.steps.Len()+1)
		}
	}
}

func (w *twins) close(t *rapid.T, i int) {
	o := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	length := o.jump.Len()
	before, version := w.finds(w.jump), w.jump.Version()
	w.jump.Close(&o.jump, o.content[o.jump.Committed():length])
	w.steps.Close(&o.steps, slices.Clone(o.content[o.steps.Committed():length]))
	w.told(t, before, version)
	if o.jump.Len() != 0 {
		t.Fatalf("a closed sequence holds %d tokens", o.jump.Len())
	}
}

// slowFind is Find of blocks by looking at every block and every length.
func (b *blocks) slowFind(tokens []Token) int {
	if b.noPrefix {
		return 0
	}
	var c chain
	var full, window []bool // whether the block that ends behind each token is there
	for i := 0; i+b.hashes.unit <= len(tokens); i += b.hashes.unit {
		c = c.next(tokens[i : i+b.hashes.unit])
		f, w := b.full.there(c), b.window.there(c)
		for range b.hashes.unit {
			full, window = append(full, f), append(window, w)
		}
	}
	usable := func(length int) bool {
		for end := length; end > 0; end -= b.full.tokens {
			if !full[end-1] {
				return false
			}
		}
		if b.window.count == 0 {
			return true
		}
		for end, n := length, 0; end > 0 && n < b.last; end, n = end-b.window.tokens, n+1 {
			if !window[end-1] {
				return false
			}
		}
		return true
	}
	for length := len(full) / b.align * b.align; length > 0; length -= b.align {
		if usable(length) {
			return length
		}
	}
	return 0
}

func (w *twins) finds(s Store) (lengths []int) {
	for _, p := range w.probes {
		lengths = append(lengths, s.Find(p).Length)
	}
	return lengths
}

func (w *twins) told(t *rapid.T, before []int, version uint64) {
	if now := w.finds(w.jump); !slices.Equal(now[:len(before)], before) && w.jump.Version() == version {
		t.Fatalf("Find gave %v, now gives %v, and the version is still %d", before, now, version)
	}
}

// counts wants what b counts to be what sequences and entries add up to.
func (w *twins) counts(t *rapid.T, b *blocks) {
	rings, private, refs := 0, 0, 0
	for _, o := range w.open {
		q := &o.jump
		rings += q.ring
		private += b.fullBlocks(q.length) - len(q.blocks)/b.full.count
		for _, id := range slices.Concat(q.blocks, q.window) {
			if id != 0 {
				refs++
			}
		}
		if q.ring < b.ring(q.length) || len(q.window) > q.ring*b.window.count {
			t.Fatalf("charged for %d window blocks at %d tokens, with pages of %d", q.ring, q.length, len(q.window)/b.window.count)
		}
	}
	held, queued := 0, 0
	for _, e := range b.entries[1:] {
		refs -= int(e.refs)
		switch {
		case e.refs > 0:
			held++
		case e.hash != 0:
			queued++
		}
	}
	if rings != b.rings || b.least > b.rings || private != b.private || held != b.full.held+b.window.held || queued != b.cached || refs != 0 || b.free() < 0 {
		t.Fatalf("counted %d window blocks, %d of a sequence's own, %d pages held, %d cached, %d references too few, %d free:\n%+v", b.rings, b.private,
			b.full.held+b.window.held, b.cached, refs, b.free(), b.Figures())
	}
}

func (w *twins) check(t *rapid.T) {
	f := w.jump.Figures()
	if g := w.steps.Figures(); f != g {
		t.Fatalf("jumped and stepped differ:\n%+v\n%+v", f, g)
	}
	if a, b := w.finds(w.jump), w.finds(w.steps); !slices.Equal(a, b) {
		t.Fatalf("jumped finds %v, stepped %v", a, b)
	}
	if b, ok := inside(w.jump).(*blocks); ok {
		w.counts(t, b)
		for _, p := range w.probes {
			if got, want := b.Find(p).Length, b.slowFind(p); got != want {
				t.Fatalf("found %d tokens of %v, want %d", got, p, want)
			}
		}
	}
	if f.UsedBytes < 0 || f.CachedBytes < 0 || f.UsedBytes+f.CachedBytes > f.PoolBytes {
		t.Fatalf("bytes: %+v", f)
	}
	if h, ok := w.jump.(*tiered); ok && (h.host.used > h.host.bytes || h.host.used < 0) {
		t.Fatalf("the host tier holds %d bytes of %d", h.host.used, h.host.bytes)
	}
	if min(f.UsedTokens, f.CachedTokens, f.FreeTokens, f.WindowUsedTokens, f.WindowCachedTokens, f.WindowFreeTokens, f.EvictedTokens, f.HostTokens) < 0 {
		t.Fatalf("negative: %+v", f)
	}
}

// Where nothing presses, all that was committed in whole pages is found: by whoever goes on behind it.
func TestFoundAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyConfig(t, rapid.SampledFrom(Schemes()).Draw(t, "scheme"))
		c.NoPrefix, c.Pool = false, 1<<30
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		page := c.PageTokens
		if b, hashed := inside(s).(*blocks); hashed {
			page = b.align
		}
		prompt := rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 60).Draw(t, "prompt")
		chunk := rapid.IntRange(1, 60).Draw(t, "chunk")
		serve(t, s, prompt, chunk, nil)
		more := append(slices.Clone(prompt), 2, 2, 2)
		want := len(prompt) / page * page
		if c.Scheme == VLLM && c.WindowTokens > 1 {
			want = (len(prompt) - 1) / page * page // what is kept is the window before the last token of the prompt
		}
		if got := s.Find(more).Length; got != want {
			t.Fatalf("got %d tokens, want %d", got, want)
		}
		if got := s.Figures(); got.EvictedTokens > 0 {
			t.Fatalf("evicted: %+v", got)
		}
	})
}

// inside is the store before the host tier.
func inside(s Store) Store {
	if t, ok := s.(*tiered); ok {
		return t.Store
	}
	return s
}

// A hash that two sequences have computed is found as the pages of one of them, which go group by group: those of a group that are left
// need room when they are held again.
func TestFitsLooksAtEveryGroup(t *testing.T) {
	s, err := New(Config{Scheme: VLLM, PageTokens: 1, Pool: 60, Layout: Layout{FullBytes: 3, FullLayers: 3, WindowBytes: 1, WindowLayers: 1, WindowTokens: 1}})
	if err != nil {
		t.Fatal(err)
	}
	text := []Token{1, 2, 3, 4, 5}
	var first, second, third Sequence
	for _, q := range []*Sequence{&first, &second} {
		s.Open(q, Match{}, text)
	}
	for _, q := range []*Sequence{&first, &second} {
		if !s.MakeRoom(s.Chunk(0, 4, q)) {
			t.Fatal("no room")
		}
		s.GrowChunk(q, 4)
		s.Commit(q, text[:4])
	}
	s.Close(&first, nil)
	b := s.(*blocks)
	s.MakeRoom(Need{A: int64(b.free() + 4)}) // the pages of one group
	m := s.Find(text[:4])
	room := int64(b.pages-b.used()) - int64(2*4+b.ring(4)) // beside what the hit takes of the two other groups
	if m.Length != 4 || !s.Fits(m, Need{A: room}) || s.Fits(m, Need{A: room + 1}) {
		t.Fatalf("found %d tokens; %d pages fit: %v, one more: %v; want 4, true, false", m.Length, room, s.Fits(m, Need{A: room}), s.Fits(m, Need{A: room + 1}))
	}
	if s.Open(&third, m, text); !s.MakeRoom(Need{A: room}) {
		t.Error("what fits has no room")
	}
}

// The first token behind a prompt gives back what its last part held: to make room for several at once would evict more.
func TestAtOnceBehindAPrompt(t *testing.T) {
	s, err := New(Config{Scheme: VLLM, PageTokens: 1, Pool: 40, Ahead: true, Layout: Layout{FullBytes: 1, FullLayers: 1, WindowBytes: 1, WindowLayers: 1, WindowTokens: 4}})
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*blocks)
	var q Sequence
	text := []Token{1, 2, 3, 4, 5, 6, 7, 8}
	s.Open(&q, Match{}, text)
	s.GrowChunk(&q, 8)
	s.Commit(&q, text)
	s.Grow(&q, 9)
	if free := int64(b.free()); !s.AtOnce(Need{A: free}) || s.AtOnce(Need{A: free + 1}) {
		t.Errorf("at 9 tokens what is free can be taken at once: %v, more: %v; want true, false", s.AtOnce(Need{A: free}), s.AtOnce(Need{A: free + 1}))
	}
	if s.Grow(&q, 10); !s.AtOnce(Need{A: int64(b.free() + 1)}) {
		t.Error("at 10 tokens all has been given back, and more cannot be taken at once")
	}
}

// Where a window begins within a page, the token before it, which a step that is under way sees, may lie in another page. All tokens at once
// end as one by one do.
func TestWindowOfTheStepBefore(t *testing.T) {
	var got []Figures
	for _, to := range [][]int{{5, 6, 7}, {5, 7}} {
		s, err := New(Config{Scheme: VLLM, PageTokens: 2, Pool: 20, Ahead: true, Layout: Layout{FullBytes: 1, FullLayers: 1, WindowBytes: 1, WindowLayers: 1, WindowTokens: 1}})
		if err != nil {
			t.Fatal(err)
		}
		var q Sequence
		text := []Token{1, 2, 3, 4}
		s.Open(&q, Match{}, text)
		s.GrowChunk(&q, 4)
		s.Commit(&q, text)
		for _, n := range to {
			s.Grow(&q, n)
		}
		got = append(got, s.Figures())
	}
	if got[0] != got[1] {
		t.Errorf("step by step and at once:\n%+v\n%+v", got[0], got[1])
	}
}

func TestConfigs(t *testing.T) {
	good := Config{Scheme: Ideal, Pool: 1000, Layout: Layout{FullBytes: 2, WindowBytes: 1, WindowTokens: 8, FullLayers: 1, WindowLayers: 1}}
	for _, row := range []struct {
		want  string
		spoil func(*Config)
	}{
		{`scheme is "none"`, func(c *Config) { c.Scheme = "none" }},
		{"pool is 0 bytes", func(c *Config) { c.Pool = 0 }},
		{"full bytes is 0", func(c *Config) { c.FullBytes = 0 }},
		{"window bytes is 0 and window tokens 8", func(c *Config) { c.WindowBytes = 0 }},
		{"full layers is 0 and window layers 1", func(c *Config) { c.Scheme, c.FullLayers = VLLM, 0 }},
		{"page tokens is -1", func(c *Config) { c.PageTokens = -1 }},
		{"window ratio is 2", func(c *Config) { c.WindowRatio = 2 }},
		{`eviction is "oldest"`, func(c *Config) { c.Eviction = "oldest" }},
		{`eviction is "mru", must be "lru" with scheme "vllm"`, func(c *Config) { c.Scheme, c.Eviction = VLLM, MRU }},
		{"step tokens is -1", func(c *Config) { c.StepTokens = -1 }},
		{"host bytes is -1", func(c *Config) { c.HostBytes = -1 }},
	} {
		c := good
		row.spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want an error with %q", err, row.want)
		}
	}
}
