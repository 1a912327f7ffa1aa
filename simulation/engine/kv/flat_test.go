package kv

import (
	"bufio"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFlatLRU(t *testing.T) {
	f := NewFlatLRU(4)
	for _, row := range []struct {
		why  string
		ids  []uint64
		want int
	}{
		{"nothing is there", []uint64{1, 2, 3}, 0},
		{"all blocks are there from the arrival on", []uint64{1, 2, 3}, 3},
		{"a run ends at the first that is missing", []uint64{1, 9, 3}, 1},
		{"2 was used least recently: 9 took the last place, 5 takes that of 2", []uint64{5}, 0},
		{"so the run ends behind 1", []uint64{1, 2}, 1},
		{"a request larger than the cache leaves its end", []uint64{1, 2, 3, 4, 5, 6}, 3},
		{"and finds nothing again, though 3 to 6 are there", []uint64{1, 2, 3, 4, 5, 6}, 0},
	} {
		if got := f.Request(row.ids); got != row.want {
			t.Errorf("%s: %v: got a hit of %d, want %d", row.why, row.ids, got, row.want)
		}
	}
}

func TestFlatLRUIsLikeASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 8).Draw(t, "capacity")
		f := NewFlatLRU(capacity)
		var order []uint64
		for range 20 {
			ids := rapid.SliceOfN(rapid.Uint64Range(0, 12), 0, 12).Draw(t, "ids")
			want := 0
			for want < len(ids) && slices.Contains(order, ids[want]) {
				want++
			}
			for _, id := range ids {
				order = slices.DeleteFunc(order, func(o uint64) bool { return o == id })
				order = append(order, id)
				if capacity > 0 && len(order) > capacity {
					order = order[1:]
				}
			}
			if got := f.Request(ids); got != want {
				t.Fatalf("%v: got a hit of %d, want %d", ids, got, want)
			}
		}
	})
}

// sessions are three in turn, each with two blocks of its own in its first turn and one more in each of two others, the last block
// of each prompt half full.
func sessions(yield func(Blocks) bool) {
	for turn := range 3 {
		for s := range 3 {
			var ids []uint64
			for b := range 2 + turn {
				ids = append(ids, uint64(10*s+b))
			}
			if !yield(Blocks{Tokens: 512*len(ids) - 256, IDs: ids}) {
				return
			}
		}
	}
}

func TestReplay(t *testing.T) {
	const blocks, tokens = 3 * (2 + 3 + 4), 512*27 - 9*256
	hits := func(n int) Hits { return Hits{blocks, n, tokens, 512 * n} }
	got := Replay(sessions, 512, 0, 10, 3)
	for i, want := range []Replayed{
		{0, hits(3*2 + 3*3), hits(3*2 + 3*3)}, // all that was said
		// In the last round the first two sessions write an eleventh block over one of the third: of a flat list over its first, after
		// which nothing is found, of a tree over its last.
		{10, hits(3*2 + 2*3), hits(3*2 + 2*3 + 2)},
		{3, hits(0), hits(0)},
	} {
		if got[i] != want {
			t.Errorf("%d blocks: got %+v, want %+v", want.Capacity, got[i], want)
		}
	}
}

// The published conversation trace of Mooncake (FAST'25): 12,031 requests with ids of blocks of 512 tokens.
func TestConversationTrace(t *testing.T) {
	requests := func(yield func(Blocks) bool) {
		for r, err := range trace(t, "conversation_trace.jsonl") {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(r) {
				return
			}
		}
	}
	out := Replay(requests, 512, 1000, 5000, 10_000, 20_000, 50_000, 0)
	for i, want := range []string{"4.45 4.54", "11.04 11.25", "21.12 21.53", "28.75 29.31", "35.46 36.15", "36.64 37.36"} {
		r := out[i]
		got := fmt.Sprintf("%.2f %.2f", 100*r.Flat.BlockRate(), 100*r.Flat.TokenRate())
		if got != want {
			t.Errorf("%d blocks: got block and token hits of %s %%, want %s", r.Capacity, got, want)
		}
		t.Logf("%6d blocks: flat %s %%, radix %.2f %.2f %%", r.Capacity, got, 100*r.Radix.BlockRate(), 100*r.Radix.TokenRate())
		if last := out[len(out)-1]; r.Radix.HitBlocks < r.Flat.HitBlocks || r.Radix.HitBlocks > last.Flat.HitBlocks {
			t.Errorf("%d blocks: the tree found %d blocks, the flat list %d, and there are %d to find", r.Capacity,
				r.Radix.HitBlocks, r.Flat.HitBlocks, last.Flat.HitBlocks)
		}
	}
}

// trace reads a trace of the shared data, line by line.
func trace(t *testing.T, name string) iter.Seq2[Blocks, error] {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; !exists(filepath.Join(dir, "go.mod")); dir = filepath.Dir(dir) {
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
	path := filepath.Join(dir, "..", "shared", "data", "mooncake", name)
	if !exists(path) {
		t.Skipf("no %s beside the checkout", filepath.Join("shared", "data", "mooncake", name))
	}
	return func(yield func(Blocks, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Blocks{}, err)
			return
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var row struct {
				Tokens int      `json:"input_length"`
				IDs    []uint64 `json:"hash_ids"`
			}
			err := json.Unmarshal(lines.Bytes(), &row)
			if !yield(Blocks{Tokens: row.Tokens, IDs: row.IDs}, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Blocks{}, err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
