package kv

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// golden is a sequence of steps that a KVCacheManager has been driven with, and what is open in a store that is driven alike.
type golden struct {
	store  Store
	shared int               // first tokens that all calls have in common
	texts  map[int][]Token   // by call
	open   map[int]*Sequence // likewise: one turn of a call at a time
	prompt map[int]int       // its tokens
	parts  []int             // calls that compute a part of their prompt in this step
	asked  int
	wrong  []string
}

func (g *golden) text(call int) []Token {
	all := g.texts[call]
	if all == nil {
		all = make([]Token, 4096)
		for i := range all {
			if all[i] = Token(i); i >= g.shared {
				all[i] = Token((call+1)<<16 | i)
			}
		}
		g.texts[call] = all
	}
	return all
}

// do does what a word of a step says.
func (g *golden) do(t *testing.T, word string) {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		return n
	}
	if name, ended := strings.CutSuffix(word, "."); ended {
		call := number(name)
		q := g.open[call]
		g.store.Close(q, g.text(call)[q.Committed():q.Len()])
		delete(g.open, call)
		return
	}
	word, hit, admitted := strings.Cut(word, "=")
	name, part, _ := strings.Cut(word, "+")
	if admitted {
		call, length, _ := strings.Cut(name, ":")
		g.admit(t, number(call), number(length), number(hit), word)
		name = call
	}
	g.compute(t, number(name), number(part), word)
}

func (g *golden) admit(t *testing.T, call, prompt, hit int, word string) {
	t.Helper()
	all := g.text(call)
	m := g.store.Find(all[:prompt-1])
	g.asked++
	if m.Length != hit {
		g.wrong = append(g.wrong, fmt.Sprintf("%s: found %d tokens, want %d", word, m.Length, hit))
	}
	g.open[call], g.prompt[call] = new(Sequence), prompt
	g.store.Open(g.open[call], m, all[:prompt])
}

func (g *golden) compute(t *testing.T, call, n int, word string) {
	t.Helper()
	q := g.open[call]
	from, prompt := q.Len(), g.prompt[call]
	if from >= prompt {
		if !g.store.MakeRoom(g.store.Growth(from, from+n)) {
			t.Fatalf("%s: no room", word)
		}
		g.store.Grow(q, from+n)
		return
	}
	to := min(from+n, prompt) // a wrong hit leaves another part to compute
	if !g.store.MakeRoom(g.store.Chunk(from, to, q)) {
		t.Fatalf("%s: no room", word)
	}
	g.store.GrowChunk(q, to)
	g.parts = append(g.parts, call)
}

// step does what a line says: who computes, then what has been computed, then who ends.
func (g *golden) step(t *testing.T, words []string) {
	t.Helper()
	i := 0
	for ; i < len(words) && !strings.HasSuffix(words[i], "."); i++ {
		g.do(t, words[i])
	}
	for _, call := range g.parts {
		q := g.open[call]
		g.store.Commit(q, g.text(call)[q.Committed():q.Len()])
	}
	g.parts = g.parts[:0]
	for ; i < len(words); i++ {
		g.do(t, words[i])
	}
}

// newGolden is the store of a line "run SHAPE BLOCKS [ahead] [shared TOKENS]".
func newGolden(t *testing.T, words []string) *golden {
	t.Helper()
	g := &golden{texts: map[int][]Token{}, open: map[int]*Sequence{}, prompt: map[int]int{}}
	c := Config{Scheme: VLLM, PageTokens: 32, StepTokens: 2048,
		Layout: Layout{FullBytes: 1024, WindowBytes: 5 * 1024, WindowTokens: 512, FullLayers: 1, WindowLayers: 5}}
	if words[1] == "gemma4" {
		c.WindowBytes /= 2
	}
	blocks, err := strconv.Atoi(words[2])
	for i := 3; i < len(words) && err == nil; i++ {
		switch words[i] {
		case "ahead":
			c.Ahead = true
		case "shared":
			i++
			g.shared, err = strconv.Atoi(words[i])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Pool = int64(blocks-1) * 32 << 10
	if g.store, err = New(c); err != nil {
		t.Fatal(err)
	}
	return g
}

// vLLM 0.32's KVCacheManager, driven with these sequences, finds the same of every prompt: 700 admissions of calls of six turns in
// pools that hold most of them, half of them or next to none.
func TestFindsWhatVLLMFinds(t *testing.T) {
	f, err := os.Open("testdata/vllm.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var g *golden
	name, asked := "", 0
	done := func() {
		if g == nil {
			return
		}
		asked += g.asked
		if len(g.wrong) > 0 {
			t.Errorf("%s: %d of %d admissions found something else, first %s", name, len(g.wrong), g.asked, g.wrong[0])
		}
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		times := 1
		switch {
		case words[0] == "#" || len(words) == 0:
			continue
		case words[0] == "run":
			done()
			g, name = newGolden(t, words), lines.Text()
			continue
		case strings.HasSuffix(words[0], "*"):
			if times, err = strconv.Atoi(strings.TrimSuffix(words[0], "*")); err != nil {
				t.Fatal(err)
			}
			words = words[1:]
		}
		for range times {
			g.step(t, words)
		}
	}
	done()
	if asked < 700 {
		t.Errorf("got %d admissions, want 700 and more", asked)
	}
}
