package mockserver

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kneefinder/simulation/engine"
)

// maxEdges is how many upper bounds a histogram has at most. A fixed number makes a copy of one cheap.
const maxEdges = 47

// scale is the upper bounds of a histogram's buckets, rising, without the one of infinity.
type scale struct {
	shown []float64
	edges []int64 // the same in the unit in which values are held
	unit  float64 // of them in 1 of what is shown
}

// inSeconds is a scale of times, held as time.Duration.
func inSeconds(bounds ...float64) *scale { return newScale(float64(time.Second), bounds) }

// inTokens is a scale of counts.
func inTokens(bounds ...float64) *scale { return newScale(1, bounds) }

func newScale(unit float64, bounds []float64) *scale {
	s := &scale{shown: bounds, unit: unit}
	for _, b := range bounds {
		s.edges = append(s.edges, int64(math.Round(b*unit)))
	}
	return s
}

// upTo is 1, 2, 5, 10, 20 and so on up to limit.
func upTo(limit int) (bounds []float64) {
	for decade := 1; ; decade *= 10 {
		for _, digit := range []int{1, 2, 5} {
			if digit*decade > limit || len(bounds) == maxEdges {
				return bounds
			}
			bounds = append(bounds, float64(digit*decade))
		}
	}
}

// checkBounds says what is wrong with the bounds that somebody has asked for.
func checkBounds(name string, bounds []float64) error {
	if len(bounds) > maxEdges {
		return fmt.Errorf("%s has %d bounds, must have at most %d", name, len(bounds), maxEdges)
	}
	last := 0.
	for _, b := range bounds {
		if !(b > last) || b > 1e9 { // also refuses NaN
			return fmt.Errorf("%s has %v after %v, must rise from above 0 to at most 1e9 seconds", name, b, last)
		}
		last = b
	}
	return nil
}

// histogram counts observations, exactly. It belongs to whoever holds the driver's lock; a copy is a snapshot.
type histogram struct {
	*scale
	counts [maxEdges + 1]uint64 // by bucket; the one behind the last bound has what is beyond
	sum    int64
}

// observe counts n observations of value each.
func (h *histogram) observe(value int64, n int) {
	i := 0
	for i < len(h.edges) && value > h.edges[i] {
		i++
	}
	h.counts[i] += uint64(n)
	h.sum += value * int64(n)
}

// seconds counts one observation of a time.
func (h *histogram) seconds(d time.Duration) { h.observe(int64(d), 1) }

func (h *histogram) count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// families is the description of every family of one kind of server, by name.
type families map[string]*prometheus.Desc

// add describes families that have the labels base, with the values they have in every series, and then more labels; help goes
// name, text, name, text.
func (f families) add(base prometheus.Labels, more []string, help ...string) {
	for i := 0; i < len(help); i += 2 {
		f[help[i]] = prometheus.NewDesc(help[i], help[i+1], more, base)
	}
}

// sheet is one answer to a scrape in the making.
type sheet struct {
	families families
	out      chan<- prometheus.Metric
}

func (s sheet) desc(name string) *prometheus.Desc {
	d, ok := s.families[name]
	if !ok {
		panic(fmt.Sprintf("mockserver: metric %s is not described", name))
	}
	return d
}

func (s sheet) counter(name string, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.desc(name), prometheus.CounterValue, value, labels...)
}

func (s sheet) gauge(name string, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.desc(name), prometheus.GaugeValue, value, labels...)
}

func (s sheet) histogram(name string, h *histogram, labels ...string) {
	buckets, below := make(map[float64]uint64, len(h.shown)), uint64(0)
	for i, bound := range h.shown {
		below += h.counts[i]
		buckets[bound] = below
	}
	s.out <- prometheus.MustNewConstHistogram(s.desc(name), h.count(), float64(h.sum)/h.unit, buckets, labels...)
}

// account is what a server's metrics remember of a request until it has ended. The driver's lock guards it.
type account struct {
	streamed bool
	prompt   int      // tokens
	most     int      // tokens asked for
	labels   []string // values of the custom labels; empty or as many as there are
	set      *tokenizerState
	replica  int // that it was last sent to

	arrived, scheduled, first, last time.Duration // instants of the engine; last is when tokens were last reported
	waiting                         bool          // in the queue
	left                            bool          // the client has gone
	cached                          int
	told, reported                  int // tokens generated, and reported
	retractions, untold             int // of them not yet told of
}

// book keeps the figures of one kind of server. The driver calls it under its lock, with instants that never go back.
type book interface {
	routed(r *account, at time.Duration) // a replica has got it
	admitted(r *account, at time.Duration, cached int)
	tokens(r *account, at time.Duration, n int)
	retracted(r *account, generated int)
	hungUp(r *account)
	finished(r *account, at time.Duration, f engine.Finish)
	stepped(replica int, s *engine.Step)
	rested(replica int, at time.Duration, s engine.Stats) // also when something else than requests has changed an engine at rest

	// snapshot copies the figures as they are at the instant at. What it returns needs no lock.
	snapshot(at time.Duration, replicas []engine.Stats) figures
}

// figures writes itself into an answer.
type figures interface {
	write(chan<- prometheus.Metric)
}

// share is a / b, 0 when b is.
func share(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
