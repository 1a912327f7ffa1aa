package kv

import (
	"slices"
	"testing"
)

// Four prompts of ten tokens in a pool of forty-five: a and b are used again, b twice; then a fifth needs the place of one.
func TestEvictionPolicies(t *testing.T) {
	prompts := map[string][]Token{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		for i := range 10 {
			prompts[name] = append(prompts[name], Token(name[0])<<8+Token(i))
		}
	}
	for _, row := range []struct {
		policy Eviction
		gone   string
		why    string
	}{
		{LRU, "c", "is the one that has not been used for longest"},
		{LFU, "c", "was used once, as d, and earlier"},
		{FIFO, "a", "came first"},
		{MRU, "b", "was used last"},
		{FILO, "d", "came last"},
	} {
		c := Config{Eviction: row.policy, Pool: 45, Layout: Layout{FullBytes: 1}}
		hybrid := c
		hybrid.WindowBytes, hybrid.WindowTokens, hybrid.WindowRatio = 1, 16, 4 // a window pool that is never short
		hybrid.Pool *= 1 + 4
		for kind, s := range map[string]Store{"one pool": newShared(c), "two pools": newTwoPools(hybrid)} {
			for _, name := range []string{"a", "b", "c", "d", "b", "a", "b", "e"} {
				serve(t, s, append(slices.Clone(prompts[name]), 1)[:10], 10, nil)
			}
			var gone string
			for _, name := range []string{"a", "b", "c", "d"} {
				if s.Find(prompts[name]).Length < 10 {
					gone += name
				}
			}
			if gone != row.gone {
				t.Errorf("%s, %s: %q went, want %q, which %s", row.policy, kind, gone, row.gone, row.why)
			}
		}
	}
}

// In a tree of pages a match is whole pages, and what does not fill a page is no one's afterwards.
func TestPages(t *testing.T) {
	s, err := New(Config{Scheme: Unified, PageTokens: 4, Pool: 40, Layout: Layout{FullBytes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s, tokensOf("abcdefghij"), 3, nil)
	if f := s.Figures(); f.CachedTokens != 8 || f.UsedBytes != 0 {
		t.Errorf("ten tokens leave two pages of four: got %+v", f)
	}
	for _, row := range []struct {
		prompt string
		want   int
		why    string
	}{
		{"abcdefghijk", 8, "the third page was not full"},
		{"abcdefgX", 4, "the second page differs"},
		{"abcX", 0, "the first page differs"},
		{"abc", 0, "less than a page"},
	} {
		if got := s.Find(tokensOf(row.prompt)).Length; got != row.want {
			t.Errorf("%s: got a hit of %d, want %d: %s", row.prompt, got, row.want, row.why)
		}
	}
	if got, want := s.Growth(3, 5), (Need{A: 4}); got != want {
		t.Errorf("from 3 to 5 tokens: got %+v, want a page of four", got)
	}
	serve(t, s, tokensOf("abcXefgh"), 8, nil) // begins with the same token, and is another first page
	if got := s.Find(tokensOf("abcXefgh")).Length; got != 8 {
		t.Errorf("got a hit of %d beside another page that begins alike, want 8", got)
	}
}

// The window pool presses, not the full one: what is inside becomes a tombstone, and is found again once somebody has computed its
// window anew.
func TestTombstones(t *testing.T) {
	// 100 tokens of full layers, 12 of those with a window of 4.
	s, err := New(Config{Scheme: SGLang, WindowRatio: .12, Pool: 1012,
		Layout: Layout{FullBytes: 10, WindowBytes: 1, WindowTokens: 4, FullLayers: 1, WindowLayers: 1}})
	if err != nil {
		t.Fatal(err)
	}
	find := func(why, prompt string, want int) {
		t.Helper()
		if got := s.Find(tokensOf(prompt)).Length; got != want {
			t.Errorf("%s: %s: got a hit of %d, want %d", why, prompt, got, want)
		}
	}
	serve(t, s, tokensOf("abcdefgh"), 8, nil)
	find("the last window is there", "abcdefghX", 8)
	find("and no other", "abcdefX", 0)
	serve(t, s, tokensOf("abcdefghijkl"), 8, nil)
	find("two windows of four fit", "abcdefghX", 8)
	find("two windows of four fit", "abcdefghijklX", 12)
	serve(t, s, tokensOf("ABCDEFGH"), 8, nil)
	find("the third takes the place of the older", "abcdefghX", 0)
	if full := s.Figures().CachedTokens; full != 20 {
		t.Errorf("got %d tokens of the full layers cached, want all 20", full)
	}
	find("but the end of that call is still usable", "abcdefghijklX", 12)
	serve(t, s, tokensOf("abcdefgh"), 8, nil)
	find("whoever computes it anew leaves its window", "abcdefghX", 8)
}

// Nothing is found again, and nothing stays.
func TestNoPrefix(t *testing.T) {
	for _, scheme := range Schemes() {
		s, err := New(Config{Scheme: scheme, NoPrefix: true, Pool: 1 << 20, Layout: gemma4Tiny})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := serve(t, s, tokensOf("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"), 8, tokensOf("xyz")); got != 0 {
				t.Errorf("%s: got a hit of %d, want none", scheme, got)
			}
		}
		if f := s.Figures(); f.UsedBytes != 0 || f.CachedBytes != 0 {
			t.Errorf("%s: got %+v, want nothing held", scheme, f)
		}
	}
}

var gemma4Tiny = Layout{FullBytes: 1024, WindowBytes: 5 * 512, WindowTokens: 512, FullLayers: 1, WindowLayers: 5}

// vLLM: a prompt that many calls share is found by the third of them, as the second shows where it ends; in the model without
// windows by the second.
func TestSharedPrompt(t *testing.T) {
	for _, row := range []struct {
		layout Layout
		want   []int
	}{
		{gemma4Tiny, []int{0, 0, 1984, 1984}},
		{Layout{FullBytes: 1024, FullLayers: 1}, []int{0, 1984, 1984, 1984}},
	} {
		s, err := New(Config{Scheme: VLLM, PageTokens: 32, Pool: 1 << 30, Layout: row.layout})
		if err != nil {
			t.Fatal(err)
		}
		system := call{id: 1000}
		system.say(2000)
		for i, want := range row.want {
			c := call{id: i, prompt: slices.Clone(system.prompt)}
			c.say(1000)
			if got := serve(t, s, c.prompt, 2048, nil); got != want {
				t.Errorf("window of %d, call %d: got a hit of %d, want %d", row.layout.WindowTokens, i+1, got, want)
			}
		}
	}
}

// Gemma 4 26B-A4B in vLLM has pages of 32 tokens in full layers and 16 in window layers. Of a prompt's window exactly what a hit at
// its end needs is kept, so that whoever leaves it inside of the last 32 tokens finds nothing (vllm-project/vllm#57610).
func TestVLLMDivergingInTheLastPage(t *testing.T) {
	layout := Layout{FullBytes: 20_480, WindowBytes: 204_800, WindowTokens: 1024, FullLayers: 5, WindowLayers: 25}
	for _, row := range []struct {
		shared, want int
		scheme       Scheme
	}{
		{4099, 4096, VLLM},
		{4096, 4096, VLLM},
		{4090, 0, VLLM},
		{4090, 4064, VLLMOld}, // which keeps everything
	} {
		s, err := New(Config{Scheme: row.scheme, Pool: 1 << 32, Layout: layout})
		if err != nil {
			t.Fatal(err)
		}
		c := call{id: 1}
		c.say(4100)
		serve(t, s, c.prompt, 2048, nil)
		other := append(slices.Clone(c.prompt[:row.shared]), make([]Token, 40)...)
		if got := s.Find(other).Length; got != row.want {
			t.Errorf("%s: of %d tokens shared: got a hit of %d, want %d", row.scheme, row.shared, got, row.want)
		}
	}
}
