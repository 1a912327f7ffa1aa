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

// What goes on at once are calls, or requests in flight.
func TestProgressOfRequests(t *testing.T) {
	for want, c := range map[string]measurement.Config{"λ 4 calls/s: P95 TTFT -, hit rate -, errors -, live calls -: ": {Turns: 4},
		"λ 4 requests/s: P95 TTFT -, hit rate -, errors -, in flight -: ": {Turns: 1, LoadOf: measurement.Requests}} {
		var told strings.Builder
		p := NewProgress(&told)
		p.config = c
		if p.result(measurement.StepResult{Rate: 4}); !strings.HasPrefix(told.String(), want) {
			t.Errorf("%q, want %q", told.String(), want)
		}
	}
}

// A window is told by all that ends it, whatever the clock.
func TestWindowText(t *testing.T) {
	for _, c := range []struct {
		why        string
		turns      int
		step, most float64
		rate       float64
		want       string
	}{
		{"no turns are waited for", 0, 90, 1200, 1, "a window of 90s"},
		{"none can be: the longest window is the shortest", 60, 300, 300, 1, "a window of 5m"},
		{"turns that come soon", 60, 90, 1200, 1, "a window until 60 turns, at least 90s"},
		{"turns that may not come in time", 60, 90, 1200, .01, "a window until 60 turns, at least 90s and at most 20m"},
		{"any rate", 60, 90, 1200, 0, "a window until 60 turns, at least 90s and at most 20m"},
		{"virtual time", 600, 300, 1e6, .0283, "a window until 600 turns, at least 5m"},
	} {
		if got := windowText(measurement.Config{MinTurns: c.turns, StepSeconds: c.step, MaxStepSeconds: c.most, Turns: 4}, c.rate); got != c.want {
			t.Errorf("%s: got %q, want %q", c.why, got, c.want)
		}
	}
	for s, want := range map[float64]string{0: "0s", .4: "0.4s", 27: "27s", 90: "90s", 300: "5m", 3600: "1h", 5400: "1h30m", 3601: "3601s", 1e6: "1000000s"} {
		if got := span(s); got != want {
			t.Errorf("%v s: got %q, want %q", s, got, want)
		}
		if d, err := ParseDuration(span(s), time.Second); err != nil || d.Seconds() != s {
			t.Errorf("%q reads as %v, %v", span(s), d, err)
		}
	}
}

func TestWhyTried(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		tried []float64
		want  string
	}{
		{2, nil, "where the search starts"},
		{4, []float64{2}, "doubled until a step fails"},
		{1, []float64{2}, "halved until a step passes"},
		{2.83, []float64{2, 4, 8}, "between 2 and 4"},
		{4, []float64{2, 4, 8}, "tried again to be sure"},
	} {
		if got := whyTried(c.rate, c.tried); got != c.want {
			t.Errorf("%g behind %v: got %q, want %q", c.rate, c.tried, got, c.want)
		}
	}
}
