package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

func TestLexicons(t *testing.T) {
	for _, name := range []string{"hindi", "english"} {
		l, err := LexiconByName(name)
		if err != nil {
			t.Fatal(err)
		}
		words := slices.Clone(l.Words[:])
		slices.Sort(words)
		if n := len(slices.Compact(words)); n != BlockWords {
			t.Errorf("%s has %d different words, want %d", name, n, BlockWords)
		}
		for _, w := range l.Words {
			if w == "" || strings.ContainsAny(w, " \"\\\n<>&") {
				t.Errorf("%s: word %q would need escaping or splits", name, w)
			}
		}
	}
	if _, err := LexiconByName("klingon"); err == nil {
		t.Error("an unknown language was accepted")
	}
}

func TestSegmentText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom([]*Lexicon{hindi, english}).Draw(t, "lexicon")
		s := Segment{Nonce: rapid.Uint64().Draw(t, "nonce"), Call: rapid.IntRange(-5, 1e6).Draw(t, "call"), Part: rapid.IntRange(0, 9).Draw(t, "part"),
			Words: rapid.IntRange(0, 500).Draw(t, "words")}
		text := string(l.AppendText(nil, s))
		if got := len(strings.Fields(text)); got != s.Words {
			t.Fatalf("%d words, want %d", got, s.Words)
		}
		if got := l.TextLen(s); got != len(text) {
			t.Fatalf("TextLen %d, want %d", got, len(text))
		}
		if strings.Join(strings.Fields(text), " ") != text {
			t.Fatalf("the words are not single spaced: %q", text)
		}
		if s.Words > 1 {
			shorter := s
			shorter.Words--
			if !strings.HasPrefix(text, string(l.AppendText(nil, shorter))) {
				t.Fatal("a shorter segment is not the beginning of a longer one")
			}
		}
	})
}

// No two calls, parts or runs share a prefix of as many as eight words.
func TestSegmentsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for nonce := range uint64(3) {
		for call := range 20_000 {
			for part := range 2 {
				s := Segment{Nonce: nonce, Call: call, Part: part, Words: 8}
				who := fmt.Sprint(nonce, call, part)
				text := string(english.AppendText(nil, s))
				if other, ok := seen[text]; ok {
					t.Fatalf("%s and %s begin alike: %q", who, other, text)
				}
				seen[text] = who
			}
		}
	}
}

// Every full block holds every word once, so that its cost in tokens is a constant.
func TestBlocksAreBalanced(t *testing.T) {
	s := Segment{Nonce: 1, Call: 2, Words: 10 * BlockWords}
	for b := range s.Blocks() {
		got := s.AppendBlock(nil, b)
		slices.Sort(got)
		if len(slices.Compact(got)) != BlockWords {
			t.Errorf("block %d: %v is no permutation", b, got)
		}
	}
}

func TestGaps(t *testing.T) {
	s := Script{Seed: 1, Lexicon: english, GapMin: 5 * time.Second, GapMax: 7 * time.Second}
	var gaps []float64
	for call := range 5000 {
		gaps = append(gaps, s.Gap(call, 2).Seconds())
	}
	slices.Sort(gaps)
	uniform := make([]float64, 5000)
	for i := range uniform {
		uniform[i] = 5 + 2*(float64(i)+.5)/5000
	}
	if d := stat.KolmogorovSmirnov(gaps, nil, uniform, nil); d > 1.628/math.Sqrt(5000) {
		t.Errorf("gaps are not uniform in 5-7 s: KS distance %.4f", d)
	}
	again := s
	if s.Gap(3, 2) != again.Gap(3, 2) || s.Gap(3, 2) == s.Gap(3, 3) || s.Gap(3, 2) == s.Gap(4, 2) {
		t.Error("gaps are not keyed by call and turn")
	}
	s.GapMax = s.GapMin
	if s.Gap(1, 1) != 5*time.Second {
		t.Error("a constant gap is not constant")
	}
}

func poissonGaps(seed uint64, rate float64, n int) []float64 {
	p := Process{}.Arrivals(seed, 0, rate)
	gaps := make([]float64, n)
	last := time.Duration(0)
	for i := range gaps {
		a, _ := p.Next()
		gaps[i] = (a.At - last).Seconds()
		last = a.At
	}
	return gaps
}

// modifiedKS is Stephens' statistic for an exponential with estimated mean: reject at 5 % above 1.094 (Stephens 1986).
func modifiedKS(gaps []float64) float64 {
	x := slices.Clone(gaps)
	slices.Sort(x)
	mean, n := stat.Mean(x, nil), float64(len(x))
	var d float64
	for i, v := range x {
		f := 1 - math.Exp(-v/mean)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return (d - .2/n) * (math.Sqrt(n) + .26 + .5/math.Sqrt(n))
}

// modifiedAD is the Anderson-Darling statistic likewise: reject at 5 % above 1.321.
func modifiedAD(gaps []float64) float64 {
	x := slices.Clone(gaps)
	slices.Sort(x)
	mean, n := stat.Mean(x, nil), float64(len(x))
	var sum float64
	for i := range x {
		lo := math.Log(-math.Expm1(-x[i] / mean))
		hi := -x[len(x)-1-i] / mean
		sum += float64(2*i+1) * (lo + hi)
	}
	a := -n - sum/n
	return a * (1 + .6/n)
}

func TestStatisticsOnKnownGaps(t *testing.T) {
	gaps := []float64{.12, .95, .33, 2.10, .05, .71, 1.44, .28, .62, 3.05, .17, .88, .41, 1.02, .09, .54, 1.77, .23, .66, .37}
	if got := modifiedKS(gaps); math.Abs(got-.313561) > 1e-5 {
		t.Errorf("D* %.6f, want .313561", got)
	}
	if got := modifiedAD(gaps); math.Abs(got-.133439) > 1e-5 {
		t.Errorf("A* %.6f, want .133439", got)
	}
}

// Over 200 seeds a 5 % test of Poisson arrivals rejects about 5 %: between 2 and 9 %.
func TestArrivalsArePoisson(t *testing.T) {
	const seeds, n, rate = 200, 300, .5
	rejected := map[string]int{}
	for seed := range uint64(seeds) {
		gaps := poissonGaps(seed, rate, n)
		if modifiedKS(gaps) > 1.094 {
			rejected["KS"]++
		}
		if modifiedAD(gaps) > 1.321 {
			rejected["AD"]++
		}
		// counts in equal windows: (k-1)*dispersion is chi-squared with k-1 degrees
		total := 0.
		for _, g := range gaps {
			total += g
		}
		const k = 20
		counts := make([]float64, k)
		at := 0.
		for _, g := range gaps[:n-1] { // given the last arrival, the others are uniform before it
			at += g
			counts[min(k-1, int(at/total*k))]++
		}
		dispersion := stat.Variance(counts, nil) / stat.Mean(counts, nil) * (k - 1)
		if dispersion < 8.907 || dispersion > 32.852 { // chi-squared, 19 degrees, 2.5 % each side
			rejected["dispersion"]++
		}
		if r := stat.Correlation(gaps[1:], gaps[:n-1], nil); math.Abs(r) > 1.96/math.Sqrt(n) {
			rejected["lag-1"]++
		}
	}
	for _, test := range []string{"KS", "AD", "dispersion", "lag-1"} {
		if share := float64(rejected[test]) / seeds; share < .02 || share > .09 {
			t.Errorf("%s rejects %.1f %% of %d seeds at 5 %%, want 2 to 9 %%", test, 100*share, seeds)
		}
	}
}

// A long run: no drift of the rate, no lattice of whole seconds, dispersion 1 at 1, 10 and 60 s.
func TestArrivalsInTheLongRun(t *testing.T) {
	const n, rate = 100_000, 2.
	p := Process{}.Arrivals(7, 3, rate)
	var at []float64
	whole := 0
	for range n {
		a, _ := p.Next()
		at = append(at, a.At.Seconds())
		if a.At%time.Second == 0 {
			whole++
		}
	}
	if whole > 0 {
		t.Errorf("%d arrivals on whole seconds", whole)
	}
	if got := n / at[n-1]; math.Abs(got-rate) > 3*rate/math.Sqrt(n) {
		t.Errorf("rate %.4f, want %v within 3 sigma", got, rate)
	}
	for _, w := range []float64{1, 10, 60} {
		counts := make([]float64, int(at[n-1]/w))
		for _, a := range at {
			if i := int(a / w); i < len(counts) {
				counts[i]++
			}
		}
		iod := stat.Variance(counts, nil) / stat.Mean(counts, nil)
		if sigma := math.Sqrt(2 / float64(len(counts))); math.Abs(iod-1) > 3.5*sigma {
			t.Errorf("dispersion at %v s: %.3f, want 1 within 3.5 sigma (%.3f)", w, iod, sigma)
		}
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	a := Rand(1, "arrivals", 0).Uint64()
	for name, b := range map[string]uint64{
		"purpose": Rand(1, "gap", 0).Uint64(), "seed": Rand(2, "arrivals", 0).Uint64(), "key": Rand(1, "arrivals", 1).Uint64(),
		"more keys": Rand(1, "arrivals", 0, 0).Uint64(), "no keys": Rand(1, "arrivals").Uint64(),
	} {
		if a == b {
			t.Errorf("another %s draws the same", name)
		}
	}
	if a != Rand(1, "arrivals", 0).Uint64() {
		t.Error("the same stream draws differently")
	}
}

func TestScript(t *testing.T) {
	s := &Script{Nonce: 1, Lexicon: english, SystemWords: 100, UserWords: 10}
	p1 := s.Open(4)
	p2 := s.Next(p1, 4, 1, Content{Text: "thrown away"})
	p3 := s.Next(p2, 4, 2, Content{Text: "kept verbatim"})
	if len(p1) != 2 || len(p2) != 4 || len(p3) != 6 {
		t.Fatalf("prompts of %d, %d, %d messages, want 2, 4, 6", len(p1), len(p2), len(p3))
	}
	if p2[2].Content.Text != english.Greeting || p3[4].Content.Text != "kept verbatim" {
		t.Errorf("history holds %q and %q, want the greeting and the reply", p2[2].Content.Text, p3[4].Content.Text)
	}
	if p3[0].Content.Segment != p1[0].Content.Segment || p3[5].Content.Segment.Part != 3 {
		t.Error("the system prompt changed, or the user repeats")
	}
}

func BenchmarkDrawWords(b *testing.B) {
	var buf [BlockWords]uint8
	s := Segment{Nonce: 1, Words: 1 << 40}
	for i := range b.N / BlockWords {
		s.AppendBlock(buf[:0], i)
	}
}

func ExampleLexicon_AppendText() {
	l, _ := LexiconByName("english")
	fmt.Println(string(l.AppendText(nil, Segment{Nonce: 1, Call: 7, Words: 6})))
	// Output: moment Monday request address today network
}
