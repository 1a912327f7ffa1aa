package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// TestShardIsNotOffRate has half of a rate arrive: a doubt of a whole load, and what a shard of two is there to send.
func TestShardIsNotOffRate(t *testing.T) {
	for shard, want := range map[string]bool{"": true, "0/2": false} {
		var told strings.Builder
		h := measurement.Header{Config: measurement.Config{SLO: presets[""].SLO}, Shard: shard}
		c := &collector{log: measurement.NewLogWriter(io.Discard, false), header: h, progress: NewProgress(&told), broken: func(err error) { t.Error(err) }}
		c.StepEnd(measurement.Step{Rate: 4, WindowStart: time.Second, WindowEnd: 11 * time.Second, DrainEnd: 12 * time.Second, ArrivedCalls: 20})
		if got := strings.Contains(told.String(), measurement.FlagOffRate); got != want || !strings.Contains(told.String(), "λ 4 calls/s") {
			t.Errorf("shard %q: off_rate is shown: %v, want %v\n%s", shard, got, want, told.String())
		}
		if got := strings.Contains(strings.Join(c.results()[0].Flags, " "), measurement.FlagOffRate); got != want {
			t.Errorf("shard %q: off_rate is a flag: %v, want %v", shard, got, want)
		}
	}
}
