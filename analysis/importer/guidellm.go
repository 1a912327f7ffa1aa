package importer

import (
	"fmt"
	"math"

	"kneefinder/measurement"
)

func isGuideLLM(n node) bool {
	list := n.get("benchmarks")
	return list.kind == '[' && (len(list.vals) == 0 || list.vals[0].has("metrics"))
}

var guidellmPercentiles = map[string]float64{"p001": .001, "p01": .01, "p05": .05, "p10": .1, "p25": .25, "p50": .5, "p75": .75, "p90": .9, "p95": .95, "p99": .99, "p999": .999}

// guideLLM reads a report: a benchmark a load. Profiles that mix closed and open loads (sweep: one request at a time, all at
// once, then rates) give a curve for each kind.
func guideLLM(f File, n node, at string) ([]point, error) {
	if len(n.get("benchmarks").vals) == 0 {
		return nil, refuse(at, "is a GuideLLM report without a benchmark", "give the report of a run that came to its end")
	}
	spec := n.get("config", "spec")
	if spec.kind == 0 {
		spec = n.get("args")
	}
	profile := spec.get("profile", "kind").text()
	if profile == "" {
		profile = spec.get("profile").text()
	}
	model := orText(spec.get("backend", "model").text(), orText(spec.get("model").text(), n.get("args", "model").text()))
	concluded := guidellmConclusion(n)
	var points []point
	for _, b := range n.get("benchmarks").vals {
		p := newPoint(GuideLLM, fmt.Sprintf("%s:%d", f.Name, b.line))
		p.engine.Model = model
		p.group = dataName(spec.get("data"))
		p.asked(find(spec.get("data"), "prompt_tokens", 0).number(), find(spec.get("data"), "output_tokens", 0).number())
		strategy := b.get("config", "strategy")
		if strategy.kind == 0 {
			strategy = b.get("args", "strategy")
		}
		kind := orText(strategy.get("type_").text(), orText(strategy.get("kind").text(), strategy.get("type").text()))
		guidellmFigures(&p, b)
		guidellmRows(&p, b, kind)
		switch kind {
		case "constant", "poisson", "async":
			p.arrivals = kind
			if kind == "async" {
				p.arrivals = "unknown"
			}
			p.setLoad(strategy.first("rate"), strategy.first("max_concurrency"))
		case "concurrent":
			p.setLoad(math.NaN(), strategy.first("streams", "max_concurrency", "rate"))
		case "synchronous":
			p.setLoad(math.NaN(), 1)
		default:
			limit := strategy.first("max_concurrency", "streams")
			if kind == "throughput" || !p.setLoad(strategy.first("rate"), limit) {
				p.load = math.NaN()
				p.own = append(p.own, fmt.Sprintf("%s: a benchmark of GuideLLM's strategy %q sends as much as it can, which is no load that a curve could have: left out. Its throughput was %s requests/s.", p.at, kind, short(p.throughput)))
			}
		}
		if kind == "poisson" {
			p.note("GuideLLM seeds every worker alike, so that with several workers gaps repeat and arrivals come in bunches: a P95 at a rate is too high, and the knee stands too far left.")
		}
		p.note("GuideLLM counts TTFT from when a request was sent, by the wall clock, not from when it was due; what it calls ITL is a mean a request and stands here as TPOT.")
		if profile == "knee" {
			p.note("GuideLLM's knee profile looks for the bend of throughput over concurrency; the knees here are those of TTFT." + concluded)
		}
		points = append(points, p)
	}
	return points, nil
}

// guidellmConclusion is the knee that the report itself tells, as a sentence; "" when it tells none.
func guidellmConclusion(n node) string {
	for _, c := range n.get("conclusions").items() {
		if knee := find(c, "knee", 0).number(); finite(knee) {
			return fmt.Sprintf(" It found one at %s requests at once.", short(knee))
		}
	}
	return ""
}

// dataName is what the requests were made of, as far as it can be said in a few characters.
func dataName(n node) string {
	if n.kind == '[' && len(n.vals) > 0 {
		n = n.vals[0]
	}
	if n.kind != '{' {
		return fmt.Sprintf("%.60s", n.text())
	}
	name := n.get("kind").text()
	for _, key := range []string{"prompt_tokens", "output_tokens"} {
		if t := n.get(key).text(); t != "" {
			name += " " + map[string]string{"prompt_tokens": "in ", "output_tokens": "out "}[key] + t
		}
	}
	return fmt.Sprintf("%.60s", name)
}

func guidellmFigures(p *point, b node) {
	m := b.get("metrics")
	dist := func(name string, unit float64) spread {
		s, d := noSpread(), m.get(name, "successful")
		if !(d.first("count") > 0) {
			return s // an empty distribution is written as zeros
		}
		s.mean, s.min = d.first("mean")*unit, d.first("min")*unit
		s.set(.5, d.first("median")*unit)
		for key, q := range guidellmPercentiles {
			s.set(q, d.get("percentiles", key).number()*unit)
		}
		return s
	}
	p.ttft, p.e2e = dist("time_to_first_token_ms", 1), dist("request_latency", 1000)
	p.tpot = dist("inter_token_latency_ms", 1)
	made := b.get("scheduler_metrics", "requests_made")
	if made.kind == 0 {
		made = m.get("request_totals")
	}
	if made.kind == 0 {
		made = b.get("run_stats", "requests_made")
	}
	p.ok, p.failed, p.issued = made.first("successful"), made.first("errored"), made.first("total")
	if incomplete := made.first("incomplete"); incomplete > 0 {
		p.doubt("%s requests were cut at the end and are in no percentile: past the knee they are the slow ones, and TTFT looks better than it was.", short(incomplete))
	}
	p.duration = b.first("duration")
	p.throughput = m.get("requests_per_second", "successful").first("mean")
	p.outputRate = m.get("output_tokens_per_second", "successful").first("mean")
	p.inFlight = m.get("request_concurrency", "successful").first("mean")
	p.inputLen, p.outputLen = m.get("prompt_token_count", "successful").first("mean"), m.get("output_token_count", "successful").first("mean")
	delay := dist("request_dispatch_delay", 1000)
	p.lagP95, p.lagP99 = value(delay.at(.95)), value(delay.at(.99))
	theirs := dist("time_per_output_token_ms", 1)
	p.tpotTold = theirs.mean
	if theirs.mean*p.outputLen > .95*p.e2e.mean && theirs.mean*p.outputLen < 1.05*p.e2e.mean && p.outputLen > 1 {
		p.note("GuideLLM's time per output token holds the wait for the first one: it is left aside.")
	}
}

// guidellmRows takes the single requests if the report kept all of them.
func guidellmRows(p *point, b node, strategy string) {
	rows := b.get("requests", "successful").items()
	if len(rows) == 0 || float64(len(rows)) != p.ok {
		return
	}
	origin := math.Inf(1)
	begin := func(t node) float64 {
		if v := t.first("targeted_start"); (strategy == "constant" || strategy == "poisson") && v > 0 {
			return v
		}
		return t.first("request_start", "resolve_start")
	}
	for _, r := range rows {
		if s := begin(r.get("info", "timings")); s < origin {
			origin = s
		}
	}
	if !finite(origin) {
		return // bodies and timings were stripped
	}
	var turns []measurement.Turn
	for i, r := range rows {
		t := r.get("info", "timings")
		due, first := begin(t), t.first("first_token_iteration", "first_request_iteration")
		if !finite(due) {
			return
		}
		turn := request(i, due-origin, first-due, t.first("request_end", "resolve_end")-due, nil)
		if sent := t.first("request_start"); sent >= due {
			turn.Sent = instant(sent - origin)
			p.dueTold = p.dueTold || t.first("targeted_start") == due
		}
		if last := t.first("last_token_iteration"); last >= first {
			turn.LastToken = turn.FirstToken + span(last-first)
		}
		if n := r.get("output_metrics").first("text_tokens", "total_tokens"); n > 0 {
			turn.CompletionTokens = int(min(n, 1e9))
		}
		if n := r.get("input_metrics").first("text_tokens", "total_tokens"); n > 0 {
			turn.PromptTokens = int(min(n, 1e9))
		}
		if n := r.get("input_metrics").first("cached_tokens"); n >= 0 {
			turn.CachedTokens = int(min(n, 1e9))
		}
		if k := r.get("info").first("turn_index"); k > 0 {
			turn.Turn = 1 + int(min(k, 1e6))
		}
		turns = append(turns, turn)
	}
	for i, r := range b.get("requests", "errored").items() {
		due := begin(r.get("info", "timings"))
		if !finite(due) || due < origin {
			due = origin
		}
		turns = append(turns, failed(request(len(rows)+i, due-origin, math.NaN(), math.NaN(), nil), "errored"))
	}
	p.turns, p.timed = turns, true
}
