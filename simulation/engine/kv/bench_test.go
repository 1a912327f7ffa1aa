package kv

import "testing"

// BenchmarkShort is a request of 512 tokens that nobody shares and 16 of reply, in a pool of 100,000 tokens that is full.
func BenchmarkShort(b *testing.B) {
	for _, scheme := range Schemes() {
		b.Run(string(scheme), func(b *testing.B) {
			s := filled(b, scheme, 100_000)
			const n, reply = 512, 16
			content := make([]Token, 0, 1<<22)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if len(content)+n+reply > cap(content) {
					content = make([]Token, 0, cap(content)) // what was there before may be cached
				}
				start := len(content)
				for t := range n + reply {
					content = append(content, Token(i*(n+reply)+t))
				}
				request(b, s, content[start:start+n+reply:start+n+reply], n)
			}
		})
	}
}

// BenchmarkTurn is a turn of a call of 18,000 tokens and 140 more each time, one of ten that take turns; all are warm.
func BenchmarkTurn(b *testing.B) {
	for _, scheme := range Schemes() {
		b.Run(string(scheme), func(b *testing.B) {
			s := filled(b, scheme, 500_000)
			const calls, first, turn, turns = 10, 18_000, 140, 4
			var live [calls][]Token
			for i := range live {
				live[i] = make([]Token, first+turns*turn)
				for t := range live[i] {
					live[i][t] = Token(i<<20 + t)
				}
				request(b, s, live[i][:first], first)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := first + (i/calls)%turns*turn
				request(b, s, live[i%calls][:n+turn], n)
			}
		})
	}
}

// BenchmarkCold is a prompt of 18,000 tokens that nobody knows, in chunks of 8,192.
func BenchmarkCold(b *testing.B) {
	for _, scheme := range Schemes() {
		b.Run(string(scheme), func(b *testing.B) {
			s := filled(b, scheme, 500_000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				prompt := make([]Token, 18_100)
				for t := range prompt {
					prompt[t] = Token(i*20_000 + t)
				}
				b.StartTimer()
				request(b, s, prompt, 18_000)
			}
		})
	}
}

// filled is a store of Gemma 4 12B for that many tokens in its full layers.
func filled(b *testing.B, scheme Scheme, tokens int64) Store {
	s, err := New(Config{Scheme: scheme, Layout: gemma4, Pool: tokens * (gemma4.FullBytes + gemma4.WindowBytes)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// request is a prompt of the first n tokens of content, and a reply of the others, as an engine has it.
func request(b *testing.B, s Store, content []Token, n int) {
	m := s.Find(content[:n-1])
	if !s.Fits(m, s.Growth(m.Length, len(content))) {
		b.Fatal("does not fit")
	}
	var q Sequence
	s.Open(&q, m, content[:n])
	for q.Len() < n {
		to := min(n, q.Len()+8192)
		grow(b, s, &q, to)
		s.Commit(&q, content[q.Committed():to])
	}
	grow(b, s, &q, len(content))
	s.Close(&q, content[q.Committed():])
}
