package importer

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/measurement"
)

// HDRLog makes a curve of an HdrHistogram log as we write it (format 1.2 or 1.3): each interval holds histograms under the tags ttft,
// itl, tpot and e2e, in nanoseconds. Such a log knows no load, so rates are those of its intervals in the order in which they
// stand, calls/s. Its percentiles are within a thousandth of what the turns would give; turns that got no token are in none, and
// how many there were it does not say. Steps are judged by slo.
func HDRLog(f File, rates []float64, slo []measurement.Objective) (measurement.Results, error) {
	intervals, err := hdrIntervals(f)
	if err != nil {
		return measurement.Results{}, err
	}
	if len(rates) != len(intervals) {
		return measurement.Results{}, refuse(f.Name, fmt.Sprintf("holds %d intervals, and the loads of %d are given", len(intervals), len(rates)), "name the load of each, in the order of the log")
	}
	var points []point
	for i, in := range intervals {
		if !(rates[i] > 0) || math.IsInf(rates[i], 0) {
			return measurement.Results{}, refuse(in.at, fmt.Sprintf("is said to be of %v calls/s, which is no load above 0", rates[i]), "")
		}
		points = append(points, in.point(rates[i], slo))
	}
	curves, err := curvesOf(points, slo)
	if err != nil {
		return measurement.Results{}, err
	}
	return curves[0], nil
}

// IsHDRLog reports whether a file begins as an HdrHistogram log does.
func IsHDRLog(data []byte) bool {
	head := bytes.TrimSpace(bytes.TrimPrefix(data[:min(len(data), 256)], []byte("\xef\xbb\xbf")))
	for _, magic := range []string{"#[Histogram log", "#[StartTime", `"StartTimestamp"`, "Tag="} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

// hdrInterval is one interval of a log with its histograms by tag.
type hdrInterval struct {
	at     string // file:line
	start  string
	length float64 // s
	by     map[string]*hdrhistogram.Histogram
}

// hdrIntervals reads the lines Tag=x,start,length,max,histogram; those of one start are one interval. Comments and the head are
// passed over.
func hdrIntervals(f File) ([]hdrInterval, error) {
	var out []hdrInterval
	index := map[string]int{}
	tags := map[string]bool{}
	n := 0
	for line := range bytes.Lines(bytes.TrimPrefix(f.Data, []byte("\xef\xbb\xbf"))) {
		n++
		at := fmt.Sprintf("%s:%d", f.Name, n)
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || text[0] == '"' {
			continue
		}
		tag := ""
		if rest, ok := strings.CutPrefix(text, "Tag="); ok {
			tag, text, _ = strings.Cut(rest, ",")
		}
		fields := strings.Split(text, ",")
		if len(fields) != 4 {
			return nil, refuse(at, fmt.Sprintf("is no line of an HdrHistogram log: it has %d fields behind its tag, not 4", len(fields)), "")
		}
		length, err := strconv.ParseFloat(fields[1], 64)
		if err != nil || !(length >= 0) {
			return nil, refuse(at, fmt.Sprintf("has the interval length %.20q, which is no time", fields[1]), "")
		}
		h, err := decodeHDR(fields[3])
		if err != nil {
			return nil, refuse(at, fmt.Sprintf("holds a histogram that cannot be read (%v)", err), "")
		}
		i, known := index[fields[0]]
		if !known {
			i = len(out)
			index[fields[0]] = i
			out = append(out, hdrInterval{at: at, start: fields[0], length: length, by: map[string]*hdrhistogram.Histogram{}})
		}
		if have := out[i].by[tag]; have != nil {
			have.Merge(h)
		} else {
			out[i].by[tag] = h
		}
		tags[tag] = true
	}
	switch {
	case len(out) == 0:
		return nil, refuse(f.Name, "is an HdrHistogram log without a histogram", "")
	case !tags[measurement.TagTTFT]:
		return nil, refuse(f.Name, "is an HdrHistogram log of which no histogram is tagged ttft", "give one as kneeload writes it, in nanoseconds")
	}
	return out, nil
}

// decodeHDR decodes a histogram of a line. The library panics on settings that no histogram can have.
func decodeHDR(text string) (h *hdrhistogram.Histogram, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return hdrhistogram.Decode([]byte(text))
}

// point makes a load of an interval.
func (in hdrInterval) point(rate float64, slo []measurement.Objective) point {
	p := newPoint(HDRHistogramLog, in.at)
	p.setLoad(rate, math.NaN())
	p.ofCalls = true
	name, _, _ := cutAt(in.at)
	base := path.Base(filepath.ToSlash(name))
	p.duration, p.group = in.length, strings.TrimSuffix(base, path.Ext(base))
	for tag, into := range map[string]*spread{measurement.TagTTFT: &p.ttft, measurement.TagITL: &p.itl, measurement.TagTPOT: &p.tpot, measurement.TagE2E: &p.e2e} {
		h := in.by[tag]
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		const nanos = 1e6 // in a millisecond
		into.mean, into.min = h.Mean()/nanos, float64(h.Min())/nanos
		for _, q := range quantiles(slo) {
			into.set(q, float64(h.ValueAtQuantile(100*q))/nanos)
		}
	}
	p.tpot.mean = math.NaN() // of whole answers only: beside the gaps of all it says nothing of how many tokens an event holds
	p.ok = 0
	if h := in.by[measurement.TagTTFT]; h != nil {
		p.ok = float64(h.TotalCount())
	}
	if h := in.by[measurement.TagE2E]; h != nil && in.length > 0 {
		p.throughput = float64(h.TotalCount()) / in.length
	}
	p.note("An HdrHistogram log holds the turns that got a token: those that failed are in no percentile and no error rate. The loads are those that were named for its intervals.")
	return p
}

// quantiles are those that a step holds and those that are judged.
func quantiles(slo []measurement.Objective) []float64 {
	out := []float64{.5, .95, .99}
	for _, o := range slo {
		out = append(out, o.Quantile)
	}
	return out
}
