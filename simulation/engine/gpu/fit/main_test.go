package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What was planted comes out again.
func TestSolve(t *testing.T) {
	type row struct{ x, y, took float64 }
	var rows []row
	draw := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		x, y := draw.Float64()*100, draw.Float64()*1000
		rows = append(rows, row{x, y, 3 + .5*x + .02*y})
	}
	got := solve(rows, func(r row) []float64 { return []float64{1, r.x, r.y} }, func(r row) float64 { return r.took })
	for i, want := range []float64{3, .5, .02} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("coefficient %d: got %v, want %v", i, got[i], want)
		}
	}
}

// A fitted product gives back the curves that its rows were made of.
func TestFitProduct(t *testing.T) {
	p := peaks{1e15, 2e15, 1e12, 50e6}
	var rows []product
	for _, m := range []float64{1, 16, 128, 1024, 8192} {
		for _, weights := range []float64{2e5, 4e5, 6e5, 4e7, 8e7, 16e7} {
			r := product{m: m, compute: 2 * weights * m / p.bf16, stream: 2 * weights / p.bandwidth, bytes: 2 * weights}
			r.took = 4e-6 + math.Max(r.compute/.6, r.stream/.85)
			rows = append(rows, r)
		}
	}
	const want = "Product{Launch: 4000 * time.Nanosecond, Compute: Curve{{1024, .600}, {8192, .600}}, Stream: Curve{{1, .850}, {128, .850}}}"
	if got := fitProduct("planted", rows, p, false); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
