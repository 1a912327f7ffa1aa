package workload

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
)

func gapsOf(p Process, n int, rate float64) []float64 {
	a := p.Arrivals(5, 1, rate)
	var gaps []float64
	last := time.Duration(0)
	for range n {
		x, _ := a.Next()
		gaps = append(gaps, (x.At - last).Seconds())
		last = x.At
	}
	return gaps
}

func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		text string
		cv   float64
	}{{"poisson", 1}, {"constant", 0}, {"gamma:0.5", .5}, {"gamma:2", 2}, {"gamma:1", 1}} {
		p, err := ParseProcess(c.text)
		if err != nil || p.String() != c.text {
			t.Fatalf("%s: read as %v, %v", c.text, p, err)
		}
		gaps := gapsOf(p, 50_000, 4)
		mean, sd := stat.MeanStdDev(gaps[1:], nil)
		if math.Abs(mean*4-1) > .03 || math.Abs(sd/mean-c.cv) > .06*max(c.cv, .01) {
			t.Errorf("%s: rate %.3f, CV %.3f, want 4 and %v", c.text, 1/mean, sd/mean, c.cv)
		}
	}
	for _, bad := range []string{"", "uniform", "gamma", "gamma:0", "gamma:x", "ramp", "ramp:0s", "ramp:-5s", "poisson:3"} {
		if _, err := ParseProcess(bad); err == nil {
			t.Errorf("%q was taken for a process", bad)
		}
	}
}

// On a ramp of T the expected number of arrivals by t is rate*t^2/(2T), then rate*(t - T/2).
func TestRamp(t *testing.T) {
	p := Process{Kind: "ramp", Over: 40 * time.Second}
	const runs, rate = 400, 5.
	var at10, at40, at60 float64
	for seed := range uint64(runs) {
		a := p.Arrivals(seed, 0, rate)
		for {
			x, _ := a.Next()
			if x.At > 60*time.Second {
				break
			}
			at60++
			if x.At <= 40*time.Second {
				at40++
			}
			if x.At <= 10*time.Second {
				at10++
			}
		}
	}
	for _, c := range []struct{ got, want float64 }{{at10, rate * 100 / 80}, {at40, rate * 20}, {at60, rate * 40}} {
		if mean := c.got / runs; math.Abs(mean-c.want) > 4*math.Sqrt(c.want/runs) {
			t.Errorf("%.2f arrivals on average, want %.2f", mean, c.want)
		}
	}
}

// The union of shards is Poisson with the whole rate, and no two of them share a call's number.
func TestShards(t *testing.T) {
	const shards, rate, horizon = 4, 2., 30_000.
	var all []float64
	numbers := map[int]bool{}
	for i := range shards {
		a := Process{Shard: i, Shards: shards}.Arrivals(9, 2, rate)
		for {
			x, _ := a.Next()
			if x.At.Seconds() > horizon {
				break
			}
			if numbers[x.N] || x.N%shards != i {
				t.Fatalf("shard %d numbers a call %d", i, x.N)
			}
			numbers[x.N] = true
			all = append(all, x.At.Seconds())
		}
	}
	slices.Sort(all)
	if got := float64(len(all)) / horizon; math.Abs(got-rate) > 4*math.Sqrt(rate/horizon) {
		t.Errorf("the union's rate is %.3f, want %v", got, rate)
	}
	gaps := make([]float64, len(all)-1)
	for i := range gaps {
		gaps[i] = all[i+1] - all[i]
	}
	if d := modifiedKS(gaps[:3000]); d > 1.308 {
		t.Errorf("the union is not Poisson: D* %.3f", d)
	}
	if r := stat.Correlation(gaps[1:], gaps[:len(gaps)-1], nil); math.Abs(r) > .015 {
		t.Errorf("the union's gaps are correlated: %.4f", r)
	}
}

func TestReadInstants(t *testing.T) {
	got, err := ReadInstants(strings.NewReader("# seconds\n0.5\n\n0.5\n2.000000001\n"), "f")
	if err != nil || len(got) != 3 || got[2] != (Arrival{At: 2*time.Second + 1, N: 2}) {
		t.Errorf("got %v, %v", got, err)
	}
	for in, want := range map[string]string{"": "no instants", "1\n0.5\n": "f:2", "x\n": "f:1", "-1\n": "f:1", "NaN": "f:1"} {
		if _, err := ReadInstants(strings.NewReader(in), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
	a := Process{Kind: "recorded", Recorded: got}.Arrivals(1, 0, 1)
	for range 3 {
		a.Next()
	}
	if _, ok := a.Next(); ok {
		t.Error("recorded arrivals go on behind their end")
	}
}

func TestTranscripts(t *testing.T) {
	ts, err := ReadTranscripts(strings.NewReader(`{"system": "You are.", "turns": ["a", "b"]}`+"\n"+`{"system": "They are.", "turns": ["c", "d", "e"]}`), "f")
	if err != nil || len(ts) != 2 {
		t.Fatal(err)
	}
	s := &Script{Nonce: 1, Lexicon: english, Transcripts: ts}
	if s.Turns(0, 4) != 2 || s.Turns(1, 4) != 3 || s.Turns(3, 2) != 2 {
		t.Error("a call's turns are not its transcript's, or not bounded")
	}
	p, again := s.Open(1), s.Open(3)
	if !strings.HasSuffix(p[0].Content.Text, ".\n\nThey are.") || p[0].Content.Text == again[0].Content.Text {
		t.Errorf("system prompts %q and %q: want the same transcript behind different words", p[0].Content.Text, again[0].Content.Text)
	}
	p = s.Next(s.Next(p, 1, 1, Content{}), 1, 2, Content{Text: "said"})
	if p[3].Content.Text != "d" || p[4].Content.Text != "said" || p[5].Content.Text != "e" {
		t.Errorf("history %+v", p)
	}
	for in, want := range map[string]string{"": "no transcripts", `{"system":"x","turns":["a"]}`: "1 turns", `{"system":"x","turn":["a"]}`: "transcript 1", "{": "transcript 1"} {
		if _, err := ReadTranscripts(strings.NewReader(in), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}
