//go:build coverage

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// TestCoverage looks many times for the knee of the engine model, which a run hundreds of times as long tells, and counts how
// often its interval holds it. That takes minutes: make coverage builds and runs it. KNEE_COVERAGE says how many times.
func TestCoverage(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("KNEE_COVERAGE"))
	if err != nil || runs < 1 {
		runs = 60
	}
	dir := t.TempDir()
	sweep := func(label string, args ...string) (measurement.Results, float64) {
		t.Helper()
		args = append([]string{"simulate", "--preset", "h100", "--out", dir, "--overwrite", "--label", label}, args...)
		if err := run(t.Context(), args, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		log, err := measurement.OpenLog(filepath.Join(dir, label+".turns.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return analysis.Analyze(log), log.End().Minutes()
	}
	long, _ := sweep("long", "--rates", "0.05,0.06,0.07,0.08,0.09,0.1,0.12", "--no-extend", "--min-turns", "40000", "--seed", "1000")
	truth := *long.Knees.SLO.Estimate
	t.Logf("the knee of the long run: %.4f calls/s, 95 %% interval %.4f to %.4f", truth, *long.Knees.SLO.CI95[0], *long.Knees.SLO.CI95[1])
	for _, way := range []struct {
		name string
		args []string
	}{
		{"10 steps of 300 s", []string{"--rates", "0.03,0.06,0.09,0.12,0.15,0.18,0.21,0.24,0.27,0.3", "--step-duration", "300", "--min-turns", "60"}},
		{"10 steps of 600 turns", []string{"--rates", "0.03,0.06,0.09,0.12,0.15,0.18,0.21,0.24,0.27,0.3"}},
		{"--find-knee, 600 turns", []string{"--find-knee", "--rates", "0.03"}},
	} {
		found, held, bounded, minutes := 0, 0, 0, 0.
		var widths []float64
		squares, fitSquares, fits := 0., 0., 0
		for i := range runs {
			r, took := sweep("x", append(way.args, "--seed", strconv.Itoa(i+1))...)
			minutes += took
			k := r.Knees.SLO
			if k.Status != measurement.Found || k.Estimate == nil {
				continue
			}
			found++
			squares += (*k.Estimate/truth - 1) * (*k.Estimate/truth - 1)
			if k.Logistic != nil {
				fits++
				fitSquares += (*k.Logistic.Estimate/truth - 1) * (*k.Logistic.Estimate/truth - 1)
			}
			lo, hi := k.CI95[0], k.CI95[1]
			if (lo == nil || *lo <= truth) && (hi == nil || *hi >= truth) {
				held++
			}
			if lo != nil && hi != nil {
				bounded++
				widths = append(widths, (*hi-*lo)/truth)
			}
		}
		slices.Sort(widths)
		share := func(n int) float64 { return 100 * float64(n) / float64(runs) }
		row := fmt.Sprintf("| engine model, H100 | %s | %d | %.0f %% | %.0f %% | %.0f %% | %.0f %% | %.1f %% | %.1f %% | %.1f |", way.name, runs, share(found), share(held), share(bounded),
			100*measurement.Quantile(widths, .5), 100*math.Sqrt(squares/float64(found)), 100*math.Sqrt(fitSquares/float64(fits)), minutes/float64(runs))
		t.Log(row)
		if strings.HasSuffix(way.name, "600 turns") && share(held) < 90 {
			t.Errorf("the interval holds the knee in %.0f %% of the runs, want 90 %%", share(held))
		}
	}
}
