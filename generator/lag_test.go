package generator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"kneefinder/clock"
	"kneefinder/measurement"
)

// BenchmarkScheduleLag sends a thousand tiny calls a second to an endpoint that answers at once, and shows how late they went
// out: with a goroutine's timers, and with a fine clock.
func BenchmarkScheduleLag(b *testing.B) {
	for _, c := range []struct {
		name  string
		clock func() *clock.Wall
	}{{"timer", clock.NewWall}, {"fine", func() *clock.Wall { return clock.NewWall().Fine() }}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := testConfig()
			cfg.Turns, cfg.Warmup, cfg.StepDuration, cfg.MaxStepDuration, cfg.MinTurns = 2, 0, 3*time.Second, 3*time.Second, 0
			cfg.Script.GapMin, cfg.Script.GapMax, cfg.Script.SystemWords, cfg.MaxConcurrentCalls = 100*time.Millisecond, 200*time.Millisecond, 5, 1e6
			for range b.N {
				w := c.clock()
				f := steady(0)
				f.clk = w
				l := &lags{}
				if _, err := RunStep(context.Background(), w, f, l, cfg, 0, 1000); err != nil {
					b.Fatal(err)
				}
				w.Wait()
				slices.Sort(l.ms)
				for name, p := range map[string]float64{"ms-P50": .5, "ms-P99": .99, "ms-max": 1} {
					b.ReportMetric(measurement.Quantile(l.ms, p), name)
				}
				b.ReportMetric(float64(len(l.ms)), "turns")
			}
		})
	}
}

type lags struct {
	notes
	mu sync.Mutex
	ms []float64
}

func (l *lags) Turn(t measurement.Turn) {
	if d, ok := t.Lag(); ok {
		l.mu.Lock()
		l.ms = append(l.ms, float64(d)/1e6)
		l.mu.Unlock()
	}
}
