package workload

import (
	"bytes"
	"fmt"
	"testing"
)

// Reading a trace of 10,000 requests of 24 blocks each.
func BenchmarkReadTrace(b *testing.B) {
	var text bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": 12000, "output_length": 342, "hash_ids": [0`, 300*i)
		for k := range 23 {
			fmt.Fprintf(&text, ", %d", 23*i+k)
		}
		text.WriteString("]}\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadTrace(bytes.NewReader(text.Bytes()), "t", 0); err != nil {
			b.Fatal(err)
		}
	}
}

// What a request costs before its words are drawn.
func BenchmarkAsk(b *testing.B) {
	r := &Requests{Prompt: Lengths{Kind: "lognormal", A: 512, B: .8}, Output: Constant(512), PrefixTokens: 2048, Prefixes: 1000, Zipf: 1.1}
	if err := r.Prepare(); err != nil {
		b.Fatal(err)
	}
	s := &Script{Nonce: 1, Seed: 1, Lexicon: english, Requests: r}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Ask(i, i)
	}
}
