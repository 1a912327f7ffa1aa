package names

import (
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	for limit, want := range map[float64]time.Duration{300: 300 * time.Millisecond, 4.1: 4100 * time.Microsecond, .0000004: 0, 1.0000009: time.Millisecond, 0: 0, 86400000: 24 * time.Hour} {
		got := Within(limit)
		if got != want || float64(got)/1e6 > limit || float64(got+1)/1e6 <= limit {
			t.Errorf("%v ms: %v, want %v", limit, got, want)
		}
	}
}
