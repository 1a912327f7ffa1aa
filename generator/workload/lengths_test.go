package workload

import (
	"math"
	"strings"
	"testing"
)

// Every distribution has the mean that it names, and lognormal the spread of its logarithm.
func TestLengthsMoments(t *testing.T) {
	for _, c := range []struct {
		text             string
		mean, sd, mostly float64 // sd of the logarithm, where it is not 0
		least, most      int
	}{
		{"512", 512, 0, 512, 512, 512},
		{"uniform:256:1024", 640, 0, 1016, 256, 1024},
		{"uniform:7:7", 7, 0, 7, 7, 7},
		{"lognormal:512:0.8", 512, .8, 2392, 1, MaxLength}, // 512*exp(-.32 + .8*2.3263)
		{"lognormal:20000:0", 20000, 0, 20000, 20000, 20000},
	} {
		l, err := ParseLengths(c.text)
		if err != nil || l.String() != c.text {
			t.Fatalf("%s: read as %v, %v", c.text, l, err)
		}
		const n = 100_000
		var sum, logs, squares float64
		least, most := MaxLength, 0
		for i := range n {
			v := l.At(Uniform(7, "test", i))
			sum += float64(v)
			logs += math.Log(float64(v))
			squares += math.Log(float64(v)) * math.Log(float64(v))
			least, most = min(least, v), max(most, v)
		}
		if mean := sum / n; math.Abs(mean/c.mean-1) > .015 || math.Abs(l.Mean()-c.mean) > 1e-9 {
			t.Errorf("%s: the mean is %.1f drawn, %.1f told, want %v", c.text, mean, l.Mean(), c.mean)
		}
		if sd := math.Sqrt(max(0, squares/n-logs*logs/n/n)); c.sd > 0 && math.Abs(sd-c.sd) > .01 {
			t.Errorf("%s: the logarithm deviates by %.3f, want %v", c.text, sd, c.sd)
		}
		if least < c.least || most > c.most {
			t.Errorf("%s: lengths from %d to %d", c.text, least, most)
		}
		if math.Abs(float64(l.Most())/c.mostly-1) > .01 {
			t.Errorf("%s: 99 in 100 are at most %d, want %.0f", c.text, l.Most(), c.mostly)
		}
	}
	for _, bad := range []string{"", "0", "-5", "1.5", "x", "512:3", "uniform", "uniform:5", "uniform:9:5", "uniform:0:5", "uniform:1:2:3", "lognormal:512", "lognormal:0:1", "lognormal:5:9", "lognormal:5:-1",
		"lognormal:NaN:1", "empirical", "empirical:", "normal:5:2", "1e300"} {
		if l, err := ParseLengths(bad); err == nil {
			t.Errorf("%q was taken for %v", bad, l)
		}
	}
}

func TestReadLengths(t *testing.T) {
	for _, c := range []struct {
		text, column string
		want         []int
	}{
		{"5\n7\n5\n", "", []int{5, 7, 5}},
		{"# comment\n12\n", "", []int{12}},
		{"tokens\n3\n4.0\n", "", []int{3, 4}},
		{"\ufeffisl,osl\r\n3,40\r\n4,50\r\n", "OSL", []int{40, 50}},
	} {
		got, err := ReadLengths(strings.NewReader(c.text), "f", c.column)
		if err != nil || len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(c.want)-1] {
			t.Errorf("%q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct{ text, column, want string }{
		{"", "", "f: holds no lengths"},
		{"isl\n", "", "f: holds no lengths"},
		{"5\n0\n", "", `f:2: "0" is no length`},
		{"5\n-3\n", "", `f:2: "-3"`},
		{"5\n1.5\n", "", `f:2: "1.5"`},
		{"5\nx\n", "", `f:2: "x"`},
		{"a,b\n1,2\n", "", "name the one with the lengths"},
		{"a,b\n1,2\n", "c", `has no column "c"; there are a, b`},
		{"a,b\n1\n", "a", "f:2: wrong number of fields"},
	} {
		if got, err := ReadLengths(strings.NewReader(c.text), "f", c.column); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// What is read are lengths, whatever the bytes.
func FuzzReadLengths(f *testing.F) {
	f.Add("5\n7\n", "")
	f.Add("isl,osl\n5,7\n", "osl")
	f.Add("\"a\n,\n", "a")
	f.Fuzz(func(t *testing.T, text, column string) {
		got, err := ReadLengths(strings.NewReader(text), "f", column)
		if err == nil && len(got) == 0 {
			t.Error("no lengths and no error")
		}
		for _, n := range got {
			if n < 1 || n > MaxLength {
				t.Errorf("a length of %d", n)
			}
		}
	})
}
