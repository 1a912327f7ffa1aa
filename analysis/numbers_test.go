package analysis

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestDigits(t *testing.T) {
	for _, c := range []struct {
		v      float64
		digits int
		want   string
	}{
		{.0266312, 3, "0.0266"}, {2.32e6, 3, "2320000"}, {1234567, 3, "1234567"}, {.000011, 2, "0.000011"}, {0, 3, "0"}, {12, 3, "12"}, {-.00001234, 3, "-0.0000123"},
		{999.6, 3, "1000"}, {99.96, 3, "100"}, {.1489, 3, "0.149"}, {.1489, 4, "0.1489"}, {math.Inf(1), 3, "+Inf"},
	} {
		if got := Digits(c.v, c.digits); got != c.want {
			t.Errorf("Digits(%v, %d) = %s, want %s", c.v, c.digits, got, c.want)
		}
	}
}

func TestApart(t *testing.T) {
	for _, c := range []struct {
		digits int
		of     []float64
		want   []string
	}{
		{3, []float64{.149, .1489}, []string{"0.149", "0.1489"}},
		{3, []float64{300.4, 300}, []string{"300.4", "300"}},
		{3, []float64{1, 1}, []string{"1", "1"}},
		{3, []float64{.02, .0266, .0254}, []string{"0.02", "0.0266", "0.0254"}},
		{2, []float64{math.Inf(1), 3}, []string{"+Inf", "3"}},
		{3, []float64{1, 1 + 1e-15}, []string{"1", "1"}}, // nobody measured that
	} {
		if got := Apart(c.digits, c.of...); !slices.Equal(got, c.want) {
			t.Errorf("Apart(%d, %v) = %v, want %v", c.digits, c.of, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a := math.Exp(20*r.Float64() - 10)
		b := a * (1 + math.Pow(10, -1-7*r.Float64()))
		got := Apart(3, a, b)
		x, _ := strconv.ParseFloat(got[0], 64)
		y, _ := strconv.ParseFloat(got[1], 64)
		if !(x < y) || strings.ContainsRune(got[0]+got[1], 'e') {
			t.Fatalf("%v and %v are written %v", a, b, got)
		}
	}
}
