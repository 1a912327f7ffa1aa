package kv

import "testing"

// A pool for two or three calls of 4,000 tokens, and a host tier for four or more: of five calls in turn all are found, most of each
// in the host tier; without one nothing is.
func TestHostTier(t *testing.T) {
	layout := Layout{FullBytes: 1024, WindowBytes: 5 * 1024, WindowTokens: 512, FullLayers: 1, WindowLayers: 5}
	const calls, tokens, rounds = 5, 4000, 4
	for _, scheme := range Schemes() {
		c := Config{Scheme: scheme, Layout: layout, Pool: 20 << 20, WindowRatio: .5}
		if scheme == Unified || scheme == VLLMOld { // which charge every layer, or keep every block
			c.Pool = 60 << 20
		}
		run := func(host int64) (prompts, cached, loaded int) {
			c.HostBytes = host
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			var live [calls]call
			for round := range rounds {
				for i := range live {
					v := &live[i]
					if round == 0 {
						*v = call{id: i, prompt: make([]Token, 0, 2*tokens)}
						v.say(tokens)
					}
					if round > 1 {
						m := s.Find(v.prompt[:len(v.prompt)-1])
						prompts += len(v.prompt)
						cached += m.Length
						loaded += m.Host
						if m.Host > m.Length || m.Host < 0 {
							t.Fatalf("%s: %d tokens found, %d of them in the host tier", scheme, m.Length, m.Host)
						}
					}
					before := s.Figures()
					serve(t, s, v.prompt, 2048, nil)
					if now := s.Figures(); now.UsedBytes != 0 || now.CachedBytes > now.PoolBytes {
						t.Fatalf("%s: %+v, before %+v", scheme, now, before)
					}
					v.say(100)
				}
			}
			return prompts, cached, loaded
		}
		if _, cached, loaded := run(0); cached != 0 || loaded != 0 {
			t.Errorf("%s: found %d tokens without a host tier, want none", scheme, cached)
		}
		prompts, cached, loaded := run(200 << 20)
		t.Logf("%s: %d of %d, %d from the host", scheme, cached, prompts, loaded)
		if cached < prompts*95/100 || loaded < cached/2 {
			t.Errorf("%s: found %d of %d tokens, %d of them in the host tier; want nearly all", scheme, cached, prompts, loaded)
		}
	}
}
