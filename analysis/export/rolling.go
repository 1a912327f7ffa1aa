package export

import (
	"math"
	"slices"
	"time"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// window is how long the rolling figures reach back, as kneeload's do unless told otherwise.
const window = 30 * time.Second

// moment is what the rolling figures are at an instant.
type moment struct {
	at             time.Duration
	ttft           []float64 // sorted, of turns 2..; +Inf without a token
	turns          int       // of them, ended
	failed, all    int       // of all turns
	cached, prompt int       // of turns 2.. whose cached tokens are known
	arrived        float64   // calls/s
}

// rolling writes what kneeload shows of the turns that ended lately: those of the step in progress that were not due in its drain.
func (e *exporter) rolling() {
	var moments []moment
	e.everyTick(func(at time.Duration, s *step) { moments = append(moments, e.moment(at, s)) })
	put := func(name, help string, value func(m *moment) float64, labels ...string) {
		e.head(name, "gauge")
		for i := range moments {
			if v := value(&moments[i]); !math.IsNaN(v) {
				e.sample(moments[i].at, v, name, labels...)
			}
		}
	}
	e.head(names.WindowTTFT, "gauge")
	for _, q := range []float64{.5, .95, .99} {
		for i := range moments {
			if m := &moments[i]; len(m.ttft) > 0 {
				e.sample(m.at, measurement.Quantile(m.ttft, q), names.WindowTTFT, names.Quantile, quantile(q))
			}
		}
	}
	share := func(a, b int) float64 { return float64(a) / float64(b) } // NaN without any
	put(names.WindowHit, "Share of their prompt tokens found in the prefix cache.", func(m *moment) float64 { return share(m.cached, m.prompt) })
	put(names.WindowErrors, "Share of all turns that ended in it and failed.", func(m *moment) float64 { return share(m.failed, m.all) })
	put(names.WindowTurns, "Turns 2.. that ended in it.", func(m *moment) float64 { return float64(m.turns) })
	put(names.WindowSeconds, "How long it is.", func(*moment) float64 { return window.Seconds() })
	put(names.ArrivedRate, "Calls that began in it, a second.", func(m *moment) float64 { return m.arrived })
}

func (e *exporter) moment(at time.Duration, s *step) moment {
	m := moment{at: at}
	since := max(s.Start, at-window)
	first, _ := slices.BinarySearchFunc(s.turns, since, func(t measurement.Turn, since time.Duration) int {
		if known(&t) < since {
			return -1
		}
		return 1
	})
	for i := first; i < len(s.turns) && known(&s.turns[i]) <= at; i++ {
		t := &s.turns[i]
		if t.Outcome == measurement.NotSent || s.WindowEnd >= 0 && t.Due > s.WindowEnd {
			continue
		}
		m.all++
		if t.Outcome.Failed() {
			m.failed++
		}
		if t.Turn < 2 {
			continue
		}
		m.turns++
		if d, ok := t.TTFT(); ok {
			m.ttft = append(m.ttft, d.Seconds())
		} else if t.Outcome.Failed() {
			m.ttft = append(m.ttft, math.Inf(1))
		}
		if t.CachedTokens >= 0 && t.PromptTokens >= 0 {
			m.cached, m.prompt = m.cached+t.CachedTokens, m.prompt+t.PromptTokens
		}
	}
	from, _ := slices.BinarySearch(s.begins, since)
	to, _ := slices.BinarySearch(s.begins, at+1)
	m.arrived = math.NaN()
	if span := (at - since).Seconds(); span >= 1 && (s.WindowEnd < 0 || at <= s.WindowEnd) {
		m.arrived = float64(to-from) / span
	}
	slices.Sort(m.ttft)
	return m
}
