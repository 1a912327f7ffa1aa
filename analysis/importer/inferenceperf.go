package importer

import (
	"fmt"
	"math"
	"strings"

	"kneefinder/measurement"
)

// inferencePerf reads stage_N_lifecycle_metrics.json, in seconds. A stage tells neither model nor engine: those of one folder are
// one ladder.
func inferencePerf(f File, n node, at string) ([]point, error) {
	load, ok := n.get("load_summary"), n.get("successes")
	if !ok.has("latency") {
		return nil, refuse(at, "is what the server's own metrics say of a stage of inference-perf, over a time that holds more than the stage", "give stage_N_lifecycle_metrics.json")
	}
	p := newPoint(InferencePerf, at)
	p.group = folder(f.Name)
	rate, limit := load.first("requested_rate"), load.first("concurrency", "concurrency_level")
	if finite(limit) { // a stage of so many at once writes a rate too
		rate = math.NaN()
	}
	if !p.setLoad(rate, limit) {
		return nil, refuse(at, "is inference-perf's summary of all stages together, which stand at different loads", "give the stage_N_lifecycle_metrics.json beside it, one a load")
	}
	dist := func(m node, unit float64) spread {
		s := noSpread()
		for i, key := range m.keys {
			s.put(key, m.vals[i].number()*unit)
		}
		return s
	}
	lat := ok.get("latency")
	p.ttft, p.e2e = dist(lat.get("time_to_first_token"), 1000), dist(lat.get("request_latency"), 1000)
	p.tpot, p.itl = dist(lat.get("time_per_output_token"), 1000), dist(lat.get("inter_token_latency"), 1000)
	p.ok, p.failed, p.issued = ok.first("count"), n.get("failures").first("count"), load.first("count")
	p.duration = n.first("benchmark_time_seconds")
	p.throughput, p.outputRate = ok.get("throughput").first("requests_per_sec"), ok.get("throughput").first("output_tokens_per_sec")
	p.duration = known(p.duration, p.ok/p.throughput)
	p.offered = load.first("achieved_rate")
	p.inputLen, p.outputLen = meanOf(ok, "prompt_len", "prompt_tokens"), meanOf(ok, "output_len", "output_tokens")
	if t := ok.get("prompt_tokens"); t.has("cached") {
		total := func(n node) float64 { return known(n.number(), known(n.first("sum"), n.first("mean"))) }
		if hit := total(t.get("cached")) / total(t.get("total")); hit > 0 { // it writes 0 where the server reports nothing, too
			p.cacheHit = hit
		}
	}
	delay := dist(load.get("schedule_delay"), 1000)
	p.lagP95, p.lagP99 = value(delay.at(.95)), value(delay.at(.99))
	if p.axis == rateAxis && p.load > 0 {
		p.saturation = p.offered / p.load
	}
	p.note("inference-perf counts TTFT from when a request was sent; how late that was stands apart, as schedule lag: a request that waited for a place in the client waited that much longer. Saturation is read from sends per request asked, for what the client cannot send it does not complete either.")
	p.note("Whether its arrivals were Poisson the stages do not tell; below a few requests/s its Poisson arrivals fall on whole seconds.")
	if math.IsNaN(p.cacheHit) {
		p.note("The file has no report of cached tokens, or a 0 that stands for none too: whether prefixes were reused cannot be told.")
	}
	return []point{p}, nil
}

func meanOf(n node, keys ...string) float64 {
	for _, key := range keys {
		m := n.get(key)
		if v := known(m.first("mean"), m.get("total").first("mean")); finite(v) {
			return v
		}
	}
	return math.NaN()
}

// The signs of a client's own limit on requests in flight.
const (
	capSent   = .98 // of what was asked is sent, under which a step is behind
	capGrowth = 1.3 // the schedule lag grows by at least this from one load to the next
	capFlat   = .3  // while TTFT changes by less than this share
)

// clientCap looks for the plateau that a client's limit of requests in flight makes beyond saturation: TTFT from send on stays
// where it is while requests are sent later and later. It flags those points, which come in ascending load, and returns what is to
// be said of them.
func clientCap(points []point) (evidence []string) {
	behind := func(p *point) bool { return p.axis == rateAxis && p.saturation < capSent && p.lagP95 > 0 }
	capped := map[int]bool{}
	for i := 1; i < len(points); i++ {
		a, b := &points[i-1], &points[i]
		ta, tb := value(a.ttft.at(.95)), value(b.ttft.at(.95))
		if behind(a) && behind(b) && b.lagP95 > capGrowth*a.lagP95 && math.Abs(tb-ta) < capFlat*ta && b.lagP95 > tb {
			capped[i-1], capped[i] = true, true
		}
	}
	var lags, waits, held []string
	for i := range points {
		if !capped[i] {
			continue
		}
		p := &points[i]
		p.flags = append(p.flags, measurement.FlagCapBound)
		lags, waits = append(lags, short(p.lagP95/1000)), append(waits, short(value(p.ttft.at(.95))/1000))
		if l := p.offered * p.e2e.mean / 1000; finite(l) {
			held = append(held, short(math.Round(l)))
		}
	}
	if len(lags) == 0 {
		return nil
	}
	s := fmt.Sprintf("Client cap: beyond saturation P95 TTFT from send on stays about where it is (%s s) while the P95 of the schedule lag grows (%s s): the client lets only so many requests be in flight and holds the others back", strings.Join(waits, ", "), strings.Join(lags, ", "))
	if len(held) > 0 {
		s += fmt.Sprintf(" (sends per second times the mean latency make about %s)", strings.Join(held, ", "))
	}
	return []string{s + ". What a caller waits there is lag and TTFT together, and it does not level off."}
}
