package kv

import (
	"testing"
)

// The Gemmas in BF16: 48 layers, of which 40 have a window of 1,024 tokens.
var (
	gemma3 = Layout{FullBytes: 65_536, WindowBytes: 327_680, WindowTokens: 1024, FullLayers: 8, WindowLayers: 40}
	gemma4 = Layout{FullBytes: 16_384, WindowBytes: 327_680, WindowTokens: 1024, FullLayers: 8, WindowLayers: 40}
)

// keeps reports whether a store keeps calls warm: they are had in turn, two turns each, and then each of them comes back,
// and is found but for less than a page.
func keeps(t testing.TB, c Config, prompts [][]Token) bool {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts {
		serve(t, s, p[:len(p)-160], c.StepTokens, nil)
		serve(t, s, p, c.StepTokens, nil)
	}
	for _, p := range prompts {
		if s.Find(p[:len(p)-1]).Length < len(p)-65 { // a page of 64 may lack its last token
			return false
		}
	}
	return true
}

// The pools are what is left of a GPU's memory at utilisations of .88 to .90 after 23.9 GB of weights and 2 GB of activations and
// graphs. A call of 18,420 tokens takes 1.54 GB with Gemma 3 12B and .64 GB with Gemma 4 12B, if it keeps one window.
func TestWarmCalls(t *testing.T) {
	prompts := make([][]Token, 82)
	for i := range prompts {
		c := call{id: i, prompt: make([]Token, 0, 18_420)}
		c.say(18_420)
		prompts[i] = c.prompt
	}
	const l40s, l40sHigh, h100, h100High = 16.6e9, 17.6e9, 49.4e9, 51.1e9
	for _, row := range []struct {
		name   string
		layout Layout
		scheme Scheme
		ratio  float64
		pool   float64
		want   int
	}{
		{"L40S", gemma3, Ideal, 0, l40s, 10}, {"L40S", gemma3, Ideal, 0, l40sHigh, 11},
		{"L40S", gemma4, Ideal, 0, l40s, 26}, {"L40S", gemma4, Ideal, 0, l40sHigh, 27},
		{"L40S", gemma3, SGLang, .8, l40s, 2}, {"L40S", gemma3, SGLang, .8, l40sHigh, 2},
		{"L40S", gemma4, SGLang, .8, l40s, 3}, {"L40S", gemma4, SGLang, 0, l40sHigh, 3},
		{"L40S", gemma3, SGLang, .2, l40s, 6}, {"L40S", gemma3, SGLang, .2, l40sHigh, 7},
		{"L40S", gemma4, SGLang, .2, l40s, 11}, {"L40S", gemma4, SGLang, .2, l40sHigh, 11},
		{"L40S", gemma3, Unified, 0, l40s, 2}, {"L40S", gemma3, Unified, 0, l40sHigh, 2},
		{"L40S", gemma4, Unified, 0, l40s, 2}, {"L40S", gemma4, Unified, 0, l40sHigh, 2},
		{"H100", gemma3, Ideal, 0, h100, 32}, {"H100", gemma3, Ideal, 0, h100High, 33},
		{"H100", gemma4, Ideal, 0, h100, 77}, {"H100", gemma4, Ideal, 0, h100High, 80},
		{"H100", gemma3, SGLang, .8, h100, 8}, {"H100", gemma3, SGLang, .8, h100High, 8},
		{"H100", gemma4, SGLang, .8, h100, 9}, {"H100", gemma4, SGLang, .8, h100High, 9},
		{"H100", gemma3, SGLang, .2, h100, 20}, {"H100", gemma3, SGLang, .2, h100High, 21},
		{"H100", gemma4, SGLang, .2, h100, 32}, {"H100", gemma4, SGLang, .2, h100High, 33},
		// Each turn leaves nine or ten blocks of its five window groups behind, beside the 600 to 1,500 pages of a call, and while a
		// prompt is computed two steps of it are held in all groups: 1,600 pages on an L40S, 5,400 on an H100.
		{"L40S", gemma3, VLLM, 0, l40s, 9}, {"L40S", gemma3, VLLM, 0, l40sHigh, 10},
		{"L40S", gemma4, VLLM, 0, l40s, 22}, {"L40S", gemma4, VLLM, 0, l40sHigh, 24},
		{"H100", gemma3, VLLM, 0, h100, 27}, {"H100", gemma3, VLLM, 0, h100High, 29},
		{"H100", gemma4, VLLM, 0, h100, 65}, {"H100", gemma4, VLLM, 0, h100High, 68},
	} {
		c := Config{Layout: row.layout, Scheme: row.scheme, WindowRatio: row.ratio, Pool: int64(row.pool), StepTokens: 8192, Ahead: true}
		if row.scheme == VLLM && row.name == "L40S" {
			c.StepTokens = 2048
		}
		model := map[Layout]string{gemma3: "Gemma 3", gemma4: "Gemma 4"}[row.layout]
		if most, more := keeps(t, c, prompts[:row.want]), keeps(t, c, prompts[:row.want+1]); !most || more {
			t.Errorf("%s, %s, %s %v, %.1f GB: %d calls are warm: %v, one more: %v; want true, false", row.name, model, row.scheme,
				row.ratio, row.pool/1e9, row.want, most, more)
		}
	}
}

// The 48 layers of the Gemmas are one group of full layers and five with a window. A page is 1 MiB: 64 or 16 tokens of Gemma 4, so
// that 18,000 tokens and one window of 1,024 are 282 and 5*65 pages.
func TestVLLMPages(t *testing.T) {
	for _, row := range []struct {
		name      string
		layout    Layout
		page      int
		tokens    int
		pages     int
		pageBytes int64
		full, win int // tokens of a page
	}{
		{"Gemma 4 12B", gemma4, 0, 18_000, 607, 1 << 20, 64, 16},
		{"Gemma 3 12B", gemma3, 0, 18_000, 1125 + 5*65, 1 << 20, 16, 16},
		{"tiny Gemma 3", Layout{FullBytes: 1024, WindowBytes: 5 * 1024, WindowTokens: 512, FullLayers: 1, WindowLayers: 5}, 32, 3300, 189, 32 << 10, 32, 32},
		{"tiny Gemma 4", Layout{FullBytes: 1024, WindowBytes: 5 * 512, WindowTokens: 512, FullLayers: 1, WindowLayers: 5}, 32, 3300, 149, 32 << 10, 32, 64},
		{"gpt-oss 20B: two groups of 12", Layout{FullBytes: 24_576, WindowBytes: 24_576, WindowTokens: 128, FullLayers: 12, WindowLayers: 12}, 0, 1600, 109, 16 * 24_576, 16, 16},
		{"nine and eight layers are two groups of nine", Layout{FullBytes: 9 * 64, WindowBytes: 8 * 64, WindowTokens: 128, FullLayers: 9, WindowLayers: 8}, 0, 160, 19, 16 * 9 * 64, 16, 16},
		{"no window", Layout{FullBytes: 131_072, FullLayers: 32}, 0, 160, 10, 16 * 131_072, 16, 0},
	} {
		b := newBlocks(Config{Layout: row.layout, Scheme: VLLM, PageTokens: row.page, Pool: 1 << 40})
		if b.full.tokens != row.full || b.window.tokens != row.win || b.pageBytes != row.pageBytes {
			t.Errorf("%s: got pages of %d and %d tokens, %d bytes, want %d, %d, %d", row.name,
				b.full.tokens, b.window.tokens, b.pageBytes, row.full, row.win, row.pageBytes)
		}
		if got := b.Growth(0, row.tokens); got != (Need{A: int64(row.pages)}) {
			t.Errorf("%s: %d tokens take %d pages, want %d", row.name, row.tokens, got.A, row.pages)
		}
	}
}
