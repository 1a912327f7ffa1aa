package kv_test

import (
	"fmt"

	"kneefinder/simulation/engine/kv"
)

func Example() {
	store, err := kv.New(kv.Config{
		Layout: kv.Layout{FullBytes: 16_384, WindowBytes: 327_680, WindowTokens: 1024, FullLayers: 8, WindowLayers: 40}, // Gemma 4 12B
		Pool:   17 << 30,
		Scheme: kv.VLLM,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt := make([]kv.Token, 18_000)
	for turn := range 2 {
		m := store.Find(prompt[:len(prompt)-1]) // one token is left to compute
		need := store.Growth(m.Length, len(prompt))
		fmt.Printf("turn %d: %d tokens cached, %d pages to come, room: %v\n", turn+1, m.Length, need.A, store.Fits(m, need))
		var s kv.Sequence
		store.Open(&s, m, prompt)
		store.MakeRoom(need)
		store.Grow(&s, len(prompt))
		store.Close(&s, prompt[s.Committed():])
	}
	// Output:
	// turn 1: 0 tokens cached, 607 pages to come, room: true
	// turn 2: 17984 tokens cached, 1 pages to come, room: true
}
