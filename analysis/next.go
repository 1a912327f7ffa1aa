package analysis

import (
	"math"
	"slices"
	"strconv"

	"kneefinder/measurement"
)

// MaxExtensions is how many rates a sweep may add by itself.
const MaxExtensions = 6

// NextRate says at which rate to go on when the asked rates have not bracketed the knee: below the lowest when that failed,
// above the highest when that passed, in steps of the grid's own ratio there, 1.5 to 2. extensions is how many rates may be
// added in all, at most MaxExtensions; those already among steps (below or above everything asked) count. ok is false when the
// knee is bracketed, when the end in question was not measured or is undecided, or when the extensions are spent.
func NextRate(asked []float64, steps []measurement.StepResult, extensions int) (next float64, ok bool) {
	if len(asked) == 0 || len(steps) == 0 {
		return 0, false
	}
	asked = sorted(asked)
	low, high := asked[0], asked[len(asked)-1]
	grid := slices.Clone(asked)
	used := 0
	for _, s := range steps {
		if s.Rate < low || s.Rate > high {
			grid = append(grid, s.Rate)
			used++
		}
	}
	if used >= min(extensions, MaxExtensions) {
		return 0, false
	}
	slices.Sort(grid)
	grid = slices.Compact(grid)
	n := len(grid)
	down, up := 2., 2.
	if n > 1 {
		down = min(max(grid[1]/grid[0], 1.5), 2)
		up = min(max(grid[n-1]/grid[n-2], 1.5), 2)
	}
	switch {
	case verdictAt(steps, grid[0]) == measurement.Fail:
		return neat(grid[0] / down), true
	case verdictAt(steps, grid[n-1]) == measurement.Pass:
		return neat(grid[n-1] * up), true
	}
	return 0, false
}

// verdictAt joins the verdicts of all steps at one rate: a fail outweighs a pass, a pass an undecided; "" when none was run.
func verdictAt(steps []measurement.StepResult, rate float64) measurement.Verdict {
	var v measurement.Verdict
	for i := range steps {
		s := &steps[i]
		switch {
		case s.Rate != rate || v == measurement.Fail:
		case s.Verdict == measurement.Fail, v == "", s.Verdict == measurement.Pass:
			v = s.Verdict
		}
	}
	return v
}

// neat rounds to three digits, which is what a person would have asked for.
func neat(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil || math.IsInf(r, 0) {
		return v
	}
	return r
}
