package workload

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func tokensOf(a Ask) int {
	n := 0
	for _, m := range a.Prompt {
		for i := 0; ; i++ {
			s, ok := m.Content.Part(i)
			if !ok {
				break
			}
			n += s.Words
		}
	}
	return n
}

func synthetic(t *testing.T, r Requests) *Script {
	t.Helper()
	if err := r.Prepare(); err != nil {
		t.Fatal(err)
	}
	return &Script{Nonce: 9, Seed: 3, Lexicon: english, Requests: &r}
}

// Prefixes are drawn by their weights, are the same words for whoever has them, and are followed by words of the request's own.
func TestPrefixPool(t *testing.T) {
	s := synthetic(t, Requests{Prompt: Constant(100), Output: Constant(5), PrefixTokens: 300, Prefixes: 8, Zipf: 1.1})
	const n = 40_000
	counts := make([]float64, 8)
	first := map[int]Segment{}
	for call := range n {
		a := s.Ask(call, call)
		parts := a.Prompt[0].Content.Parts
		if len(parts) != 2 || tokensOf(a) != 400 || a.MaxTokens != 5 {
			t.Fatalf("request %d: %+v", call, a)
		}
		k := parts[0].Call
		counts[k]++
		if was, ok := first[k]; ok && was != parts[0] {
			t.Fatalf("prefix %d is not always the same", k)
		}
		first[k] = parts[0]
		if parts[1].Call != call {
			t.Fatalf("request %d has words of another: %+v", call, parts[1])
		}
	}
	sum := 0.
	for k := range counts {
		sum += math.Pow(float64(k+1), -1.1)
	}
	for k, got := range counts {
		p := math.Pow(float64(k+1), -1.1) / sum
		if math.Abs(got-n*p) > 5*math.Sqrt(n*p*(1-p)) {
			t.Errorf("prefix %d was drawn %.0f times of %d, want %.0f", k, got, n, n*p)
		}
	}
	for _, bad := range []Requests{{}, {Prompt: Constant(1), Output: Constant(1), PrefixTokens: 5}, {Prompt: Constant(1), Output: Constant(1), PrefixTokens: -1},
		{Prompt: Constant(1), Output: Constant(1), Zipf: -1}, {Prompt: Constant(1), Output: Constant(1), Zipf: math.NaN()}} {
		if bad.Prepare() == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// A request depends on its number in the run and nothing else; its lengths are of one line where both are columns of one file.
func TestRequestsAreKeyed(t *testing.T) {
	r := Requests{Prompt: Lengths{Kind: "empirical", File: "f:isl", Sample: []int{10, 20, 30, 40}}, Output: Lengths{Kind: "empirical", File: "f:osl", Sample: []int{1, 2, 3, 4}}}
	s := synthetic(t, r)
	r.Output.File = "g:osl"
	apart := synthetic(t, r)
	differ, seen := 0, map[int]int{}
	for call := range 400 {
		a := s.Ask(call, call)
		if tokensOf(a) != 10*a.MaxTokens {
			t.Fatalf("request %d: %d tokens in, %d out: not of one line", call, tokensOf(a), a.MaxTokens)
		}
		seen[a.MaxTokens]++
		if b := apart.Ask(call, call); tokensOf(b) != 10*b.MaxTokens {
			differ++
		}
		if b := s.Ask(call, call%7); !reflect.DeepEqual(a, b) {
			t.Fatalf("request %d depends on more than its number in the run", call)
		}
	}
	if len(seen) != 4 || differ < 200 {
		t.Errorf("lines drawn %v; of two files %d pairs of 400 differ", seen, differ)
	}
	dialogue := Script{Seed: 3, Output: Lengths{Kind: "uniform", A: 5, B: 50}}
	if dialogue.OutputTokens(7, 2, 99) != dialogue.OutputTokens(7, 2, 1) || (&Script{}).OutputTokens(7, 2, 99) != 99 {
		t.Error("the answers of conversations are not keyed by call and turn, or are drawn where nothing says so")
	}
}

// Equal hash ids of one turn of a trace are equal words, a last block the start of the whole one; other turns and steps share nothing.
func TestTraceContent(t *testing.T) {
	tr := readTrace(t, `{"timestamp": 0, "isl": 1100, "osl": 1, "hash_ids": [1, 2, 3]}
{"timestamp": 1, "isl": 1600, "osl": 2, "hash_ids": [1, 2, 3, 4]}`)
	s := &Script{Nonce: 9, Lexicon: english, Requests: &Requests{Trace: tr}}
	text := func(a Ask) string {
		var b []byte
		for i, p := range a.Prompt[0].Content.Parts {
			if i > 0 {
				b = append(b, ' ')
			}
			b = english.AppendText(b, p)
		}
		return string(b)
	}
	a, b, again, step := text(s.Ask(0, 0)), text(s.Ask(1, 1)), text(s.Ask(2, 2)), text(s.Ask(1_000_000, 0))
	if b[:len(a)] != a {
		t.Error("the second request does not begin with the words of the first")
	}
	if len(again) == 0 || again[:200] == a[:200] || step[:200] == a[:200] || again[:200] == step[:200] {
		t.Error("another turn of the trace, or another step, has the same words")
	}
	for _, c := range []struct{ perWord, overhead float64 }{{1, 0}, {1, 9}, {1.4, 11}, {.8, 3}, {2.9, 600}} {
		s.TokensPerWord, s.Overhead = c.perWord, c.overhead
		for n := range 2 {
			want := float64(tr.Row(n).Input)
			if got := float64(tokensOf(s.Ask(n, n)))*c.perWord + c.overhead; math.Abs(got-want) > c.perWord/2+1e-9 {
				t.Errorf("%+v: request %d has %.1f tokens, want %.0f", c, n, got, want)
			}
		}
	}
}

// Rates that change keep their mean; bursts of a switched process make counts vary as they should.
func TestModulatedProcesses(t *testing.T) {
	count := func(text string, rate float64, window, horizon time.Duration) (mean, dispersion float64) {
		p, err := ParseProcess(text)
		if err != nil || p.String() != text {
			t.Fatalf("%s: read as %v, %v", text, p, err)
		}
		a := p.Arrivals(4, 0, rate)
		counts := make([]float64, horizon/window)
		last := time.Duration(0)
		for {
			x, ok := a.Next()
			if !ok || x.At < last {
				t.Fatalf("%s: ends, or goes back", text)
			}
			last = x.At
			if i := int(x.At / window); i < len(counts) {
				counts[i]++
				continue
			}
			break
		}
		sum, squares := 0., 0.
		for _, c := range counts {
			sum, squares = sum+c, squares+c*c
		}
		n := float64(len(counts))
		mean = sum / n
		return mean / window.Seconds(), (squares/n - mean*mean) / mean
	}
	for _, c := range []struct {
		text               string
		window             time.Duration
		dispersion, within float64
	}{
		// A switched Poisson process has counts of variance/mean 1 + 2*p*q*(r1-r0)^2/(rate*s^2)*(s - (1-exp(-s*w))/w), with s the sum
		// of the rates of switching, p and q the shares of time (Cox and Lewis 1966).
		{"onoff:2s:8s", time.Second, 1 + 2*.2*.8*400/(4*.625*.625)*(.625-(1-math.Exp(-.625))), .1},
		{"burst:8:10s:50s", time.Second, 1 + 2*5./36*math.Pow(7*4/(13./6), 2)/(4*.12*.12)*(.12-(1-math.Exp(-.12))), .1},
		{"burst:1:1s:1s", time.Second, 1, .03},
		{"wave:0.5:40s", 40 * time.Second, 1, .1}, // whole periods are Poisson
		{"ramp:1-1:30s", time.Second, 1, .03},
	} {
		rate, dispersion := count(c.text, 4, c.window, 40_000*time.Second)
		if math.Abs(rate-4) > .3 {
			t.Errorf("%s: %.3f arrivals/s, want 4", c.text, rate)
		}
		if c.dispersion > 0 && math.Abs(dispersion/c.dispersion-1) > c.within {
			t.Errorf("%s: counts vary %.3f times as those of a Poisson process, want %.3f", c.text, dispersion, c.dispersion)
		}
	}
	// A ramp from A to B has (A+B)/2 of the rate in its time, and a wave swings by its depth.
	for _, c := range []struct {
		text     string
		from, to time.Duration
		want     float64
	}{{"ramp:0.5-1.5:100s", 0, 50 * time.Second, .75}, {"ramp:0.5-1.5:100s", 50 * time.Second, 100 * time.Second, 1.25}, {"ramp:0.5-1.5:100s", 100 * time.Second, 200 * time.Second, 1.5},
		{"ramp:2-0:100s", 0, 100 * time.Second, 1}, {"wave:0.5:100s", 0, 50 * time.Second, 1 + .5*2/math.Pi}, {"wave:1:100s", 50 * time.Second, 100 * time.Second, 1 - 2/math.Pi}} {
		p, err := ParseProcess(c.text)
		if err != nil {
			t.Fatal(err)
		}
		n := 0.
		for seed := range uint64(200) {
			for a := p.Arrivals(seed, 0, 5); ; {
				x, ok := a.Next()
				if !ok || x.At > c.to {
					break
				}
				if x.At > c.from {
					n++
				}
			}
		}
		want := 200 * 5 * (c.to - c.from).Seconds() * c.want
		if math.Abs(n-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: %.0f arrivals from %v to %v, want %.0f", c.text, n, c.from, c.to, want)
		}
	}
	for _, bad := range []string{"ramp:1:2:3", "ramp:0-0:5s", "ramp:-1-2:5s", "wave:2:5s", "wave:0:5s", "wave:.5:0s", "burst:0.5:1s:1s", "burst:2:1s", "burst:2:1ms:1s", "onoff:1s", "onoff:1s:0s", "trace", "recorded"} {
		if p, err := ParseProcess(bad); err == nil {
			t.Errorf("%q was taken for %v", bad, p)
		}
	}
}

// The shards of a process whose rate is switched are switched together: their union has its bursts.
func TestShardsBurstTogether(t *testing.T) {
	p, _ := ParseProcess("onoff:1s:99s")
	in := map[time.Duration]int{}
	for shard := range 4 {
		p.Shard, p.Shards = shard, 4
		for a := p.Arrivals(4, 0, 4); ; {
			x, _ := a.Next()
			if x.At > 10_000*time.Second {
				break
			}
			in[x.At/(5*time.Second)] |= 1 << shard
		}
	}
	all, some := 0, 0
	for _, shards := range in {
		if shards == 15 {
			all++
		}
		some++
	}
	if some < 50 || float64(all) < .6*float64(some) {
		t.Errorf("all shards were there in %d of %d stretches with a burst", all, some)
	}
}
