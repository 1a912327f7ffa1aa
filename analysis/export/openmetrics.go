// Package export writes a finished run in the forms that other programs read.
package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// OpenMetrics writes a run as the metrics that kneeload would have shown while it ran, a sample every interval of the run's
// own wall time, for promtool tsdb create-blocks-from openmetrics: dashboards then show the run as if it had been scraped.
// start is the wall time of the run's 0; zero leaves it to the log, which also knows the pauses of a run that was gone on with. A gap between tokens is counted when its step ends, unless the log kept every gap;
// then when its turn ends. Figures of steps are those of r.
func OpenMetrics(w io.Writer, log measurement.Log, r measurement.Results, start time.Time, interval time.Duration) error {
	if interval < time.Millisecond {
		return fmt.Errorf("an interval of %v between samples: at least 1 ms", interval)
	}
	e := &exporter{w: bufio.NewWriterSize(w, 1<<16), start: start, interval: interval, log: log, r: r, steps: steps(log)}
	if e.label = r.Label; e.label == "" {
		e.label = log.Header.Label
	}
	e.histograms()
	e.counters()
	e.gauges()
	e.rolling()
	fmt.Fprintln(e.w, "# EOF")
	return e.w.Flush()
}

type exporter struct {
	w        *bufio.Writer
	start    time.Time
	interval time.Duration
	log      measurement.Log
	r        measurement.Results
	label    string
	steps    []step
}

// step is a step with its turns, in the order in which they became known.
type step struct {
	measurement.Step
	turns  []measurement.Turn
	begins []time.Duration // of its calls, in order
	end    time.Duration   // of the step, or of the last that is known of it
}

// known is when a turn became known: its end, or for one never sent the instant it was due.
func known(t *measurement.Turn) time.Duration {
	if t.End >= 0 {
		return t.End
	}
	return t.Due
}

func steps(log measurement.Log) []step {
	ss := make([]step, len(log.Steps))
	at := map[int]*step{}
	for i, s := range log.Steps {
		ss[i] = step{Step: s, end: max(s.Start, s.WindowEnd, s.DrainEnd)}
		at[s.Step] = &ss[i]
	}
	for _, t := range log.Turns {
		if s := at[t.Step]; s != nil {
			s.turns = append(s.turns, t)
			s.end = max(s.end, known(&t))
		}
	}
	for i := range ss {
		for j := range ss[i].turns {
			if t := &ss[i].turns[j]; t.Turn == log.Header.Config.FirstTurn() && t.Outcome != measurement.Shed {
				ss[i].begins = append(ss[i].begins, max(t.Due, t.Held))
			}
		}
		slices.Sort(ss[i].begins)
		slices.SortStableFunc(ss[i].turns, func(a, b measurement.Turn) int { return cmp.Compare(known(&a), known(&b)) })
	}
	return ss
}

// class is the turn's.
func (s *step) class(t *measurement.Turn) string {
	switch {
	case t.Turn == 1:
		return names.First
	case s.InWindow(t.Due):
		return names.Measured
	}
	return names.Unmeasured
}

var classes = []string{names.First, names.Measured, names.Unmeasured}

// ticks calls at for every sample's instant of a step, with how many of its turns are known by then. The last instant is the
// step's end.
func (e *exporter) ticks(s *step, at func(at time.Duration, known int)) {
	n := 0
	for t := s.Start; ; t += e.interval {
		t = min(t, s.end)
		for n < len(s.turns) && known(&s.turns[n]) <= t {
			n++
		}
		at(t, n)
		if t == s.end {
			return
		}
	}
}

// head begins a family.
func (e *exporter) head(name, kind string) {
	help := names.Help(name)
	if kind == "counter" {
		name = strings.TrimSuffix(name, "_total")
	}
	fmt.Fprintf(e.w, "# TYPE %s %s\n# HELP %s %s\n", name, kind, name, help)
}

// sample writes one; labels come in pairs.
func (e *exporter) sample(at time.Duration, value float64, name string, labels ...string) {
	b := append(e.w.AvailableBuffer(), name...)
	b = append(b, `{job="kneeload",instance="backfill",label="`...) // as a scrape would name them: dashboards ask by these
	b = appendEscaped(b, e.label)
	for i := 0; i+1 < len(labels); i += 2 {
		b = append(b, `",`...)
		b = append(b, labels[i]...)
		b = append(b, `="`...)
		b = appendEscaped(b, labels[i+1])
	}
	b = append(b, `"} `...)
	b = strconv.AppendFloat(b, value, 'g', -1, 64)
	b = append(b, ' ')
	ms := e.wall(at).UnixMilli()
	b = strconv.AppendInt(b, ms/1000, 10)
	b = fmt.Appendf(b, ".%03d\n", ms%1000)
	_, _ = e.w.Write(b) // the error sticks until Flush
}

// wall is the wall time of an instant.
func (e *exporter) wall(at time.Duration) time.Time {
	if e.start.IsZero() {
		t, _ := e.log.Wall(at)
		return t
	}
	return e.start.Add(at)
}

func appendEscaped(b []byte, s string) []byte {
	for _, r := range strings.ToValidUTF8(s, "?") {
		switch r {
		case '\\', '"':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, string(r)...)
		}
	}
	return b
}

// limits are the objectives' on a metric, in seconds.
func (e *exporter) limits(metric string) (limits []float64) {
	for _, o := range e.r.Config.SLO {
		if o.Metric == metric {
			limits = append(limits, names.Seconds(o.LimitMS))
		}
	}
	return limits
}

// tally is a histogram that grows.
type tally struct {
	counts []float64 // by bucket, the last is +Inf
	sum    float64
}

func (h *tally) add(bounds []float64, v, n float64) {
	if h.counts == nil {
		h.counts = make([]float64, len(bounds)+1)
	}
	i, _ := slices.BinarySearchFunc(bounds, v, func(bound, v float64) int {
		if v <= bound || math.Round(v*1e9) <= math.Round(bound*1e9) { // the same nanosecond, whatever two divisions made of it
			return 1
		}
		return -1
	})
	h.counts[i] += n
	h.sum += v * n
}

func (e *exporter) histograms() {
	seconds := func(d time.Duration, ok bool) (float64, bool) { return d.Seconds(), ok }
	ttft := names.TTFTBounds(e.limits("ttft")...)
	itl := names.ITLBounds(e.limits("itl")...)
	for _, f := range []struct {
		name   string
		bounds []float64
		value  func(t *measurement.Turn) (float64, bool)
	}{
		{names.TTFT, ttft, func(t *measurement.Turn) (float64, bool) { return seconds(t.TTFT()) }},
		{names.TTFTSent, ttft, func(t *measurement.Turn) (float64, bool) { return seconds(t.TTFTSent()) }},
		{names.TPOT, itl, func(t *measurement.Turn) (float64, bool) { return seconds(t.TPOT()) }},
		{names.E2E, ttft, func(t *measurement.Turn) (float64, bool) {
			return seconds(t.End-t.Due, t.Outcome == measurement.OK)
		}},
		{names.Lag, names.LagBounds(), func(t *measurement.Turn) (float64, bool) { return seconds(t.Lag()) }},
		{names.Cached, names.TokenBounds(), func(t *measurement.Turn) (float64, bool) {
			return float64(t.CachedTokens), t.CachedTokens >= 0 && t.Sent >= 0
		}},
	} {
		e.head(f.name, "histogram")
		for i := range e.steps {
			s := &e.steps[i]
			e.perClass(s, f.name, f.bounds, func(h *tally, t *measurement.Turn) {
				if v, ok := f.value(t); ok {
					h.add(f.bounds, v, 1)
				}
			}, nil)
		}
	}
	e.head(names.ITL, "histogram")
	for i := range e.steps {
		s := &e.steps[i]
		kept := slices.ContainsFunc(s.turns, func(t measurement.Turn) bool { return len(t.Gaps) > 1 && t.Gaps[0]+t.Gaps[1] > 0 })
		e.perClass(s, names.ITL, itl, func(h *tally, t *measurement.Turn) {
			if kept {
				for _, g := range t.Gaps {
					h.add(itl, g.Seconds(), 1)
				}
			}
		}, func(h *tally) {
			if kept {
				return
			}
			for _, packed := range s.ITL {
				d, err := measurement.DecodeHistogram(packed)
				if err != nil {
					continue // the results tell of it
				}
				for _, bar := range d.Distribution() {
					if bar.Count > 0 {
						h.add(itl, time.Duration(bar.To).Seconds(), float64(bar.Count))
					}
				}
			}
		})
	}
}

// perClass writes one histogram of one step: add counts a turn that has become known, last adds what is known of the measured
// turns only when the step has ended.
func (e *exporter) perClass(s *step, name string, bounds []float64, add func(*tally, *measurement.Turn), last func(*tally)) {
	number := strconv.Itoa(s.Step.Step)
	for _, class := range classes {
		h := tally{counts: make([]float64, len(bounds)+1)}
		done := 0
		e.ticks(s, func(at time.Duration, n int) {
			for ; done < n; done++ {
				if t := &s.turns[done]; s.class(t) == class {
					add(&h, t)
				}
			}
			if last != nil && at == s.end && class == names.Measured {
				last(&h)
			}
			total := 0.
			for i, c := range h.counts {
				total += c
				le := "+Inf"
				if i < len(bounds) {
					le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
					if !strings.ContainsAny(le, ".e") {
						le += ".0"
					}
				}
				e.sample(at, total, name+"_bucket", names.Step, number, names.TurnClass, class, "le", le)
			}
			e.sample(at, h.sum, name+"_sum", names.Step, number, names.TurnClass, class)
			e.sample(at, total, name+"_count", names.Step, number, names.TurnClass, class)
		})
	}
}

// ttftLimit is the first objective's on TTFT, in time; the end of time without one.
func (e *exporter) ttftLimit() time.Duration {
	for _, o := range e.r.Config.SLO {
		if o.Metric == "ttft" {
			return names.Within(o.LimitMS)
		}
	}
	return math.MaxInt64
}

func (e *exporter) counters() {
	limit, first := e.ttftLimit(), e.log.Header.Config.FirstTurn()
	count := func(ok bool, n int) float64 {
		if ok {
			return float64(n)
		}
		return 0
	}
	for _, f := range []struct {
		name  string
		value func(t *measurement.Turn) float64
	}{
		{names.TurnsInSLOTotal, func(t *measurement.Turn) float64 {
			d, ok := t.TTFT()
			return count(ok && t.Outcome == measurement.OK && d <= limit, 1)
		}},
		{names.PromptTokens, func(t *measurement.Turn) float64 { return count(t.PromptTokens >= 0, t.PromptTokens) }},
		{names.KnownPromptTokens, func(t *measurement.Turn) float64 {
			return count(t.PromptTokens >= 0 && t.CachedTokens >= 0, t.PromptTokens)
		}},
		{names.CachedTokens, func(t *measurement.Turn) float64 {
			return count(t.PromptTokens >= 0 && t.CachedTokens >= 0, t.CachedTokens)
		}},
		{names.OutputTokens, func(t *measurement.Turn) float64 {
			return count(t.CompletionTokens >= 0, t.CompletionTokens)
		}},
		{names.TokenEvents, func(t *measurement.Turn) float64 { return float64(t.Events) }},
	} {
		e.head(f.name, "counter")
		for i := range e.steps {
			s := &e.steps[i]
			for _, class := range classes {
				sum, done := 0., 0
				e.ticks(s, func(at time.Duration, n int) {
					for ; done < n; done++ {
						if t := &s.turns[done]; s.class(t) == class {
							sum += f.value(t)
						}
					}
					e.sample(at, sum, f.name, names.Step, strconv.Itoa(s.Step.Step), names.TurnClass, class)
				})
			}
		}
	}
	e.outcomes()
	for _, f := range []struct {
		name  string
		value func(t *measurement.Turn) float64
	}{
		{names.CallsTotal, func(t *measurement.Turn) float64 { return count(t.Turn == first && t.Outcome != measurement.Shed, 1) }},
		{names.Retries, func(t *measurement.Turn) float64 { return float64(t.Retries) }},
		{names.Dials, func(t *measurement.Turn) float64 { return count(t.Dialed > 0, 1) }},
	} {
		e.head(f.name, "counter")
		for i := range e.steps {
			s := &e.steps[i]
			sum, done := 0., 0
			e.ticks(s, func(at time.Duration, n int) {
				for ; done < n; done++ {
					sum += f.value(&s.turns[done])
				}
				e.sample(at, sum, f.name, names.Step, strconv.Itoa(s.Step.Step))
			})
		}
	}
}

// outcomes writes the turns by class and outcome, a series for each pair that occurs in the step.
func (e *exporter) outcomes() {
	e.head(names.TurnsTotal, "counter")
	for i := range e.steps {
		s := &e.steps[i]
		type kind struct {
			class   string
			outcome measurement.Outcome
		}
		seen := map[kind]bool{}
		for j := range s.turns {
			seen[kind{s.class(&s.turns[j]), s.turns[j].Outcome}] = true
		}
		var kinds []kind
		for k := range seen {
			kinds = append(kinds, k)
		}
		slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.outcome, b.outcome)) })
		for _, k := range kinds {
			sum, done := 0., 0
			e.ticks(s, func(at time.Duration, n int) {
				for ; done < n; done++ {
					if t := &s.turns[done]; s.class(t) == k.class && t.Outcome == k.outcome {
						sum++
					}
				}
				e.sample(at, sum, names.TurnsTotal, names.Step, strconv.Itoa(s.Step.Step), names.TurnClass, k.class, names.Outcome, string(k.outcome))
			})
		}
	}
}
