package importer

import (
	"math"

	"kneefinder/measurement"
)

// genAIBench reads a scenario at one concurrency, in seconds.
func genAIBench(_ File, n node, at string) ([]point, error) {
	a := n.get("aggregated_metrics")
	p := newPoint(GenAIBench, at)
	dist := func(name string) spread {
		s, m := noSpread(), a.get("stats", name)
		for i, key := range m.keys {
			if key != "sum" && key != "stddev" {
				s.put(key, m.vals[i].number()*1000)
			}
		}
		return s
	}
	p.ttft, p.tpot, p.e2e = dist("ttft"), dist("tpot"), dist("e2e_latency")
	p.ok, p.failed, p.issued = a.first("num_completed_requests"), a.first("num_error_requests"), a.first("num_requests")
	p.throughput = known(a.first("requests_per_second"), a.first("requests_per_minute")/60)
	p.duration = known(a.first("run_duration"), p.ok/p.throughput)
	p.outputRate = a.first("mean_output_throughput_tokens_per_s")
	stats := a.get("stats")
	p.inputLen, p.outputLen = stats.get("num_input_tokens").first("mean"), stats.get("num_output_tokens").first("mean")
	p.inputSum, p.outputSum = stats.get("num_input_tokens").first("sum"), stats.get("num_output_tokens").first("sum")
	p.group, p.engine.Model = a.get("scenario").text(), a.get("model").text()
	if !p.setLoad(math.NaN(), a.first("num_concurrency")) {
		return nil, refuse(at, "is a run of genai-bench that names no concurrency", "give the file as the tool wrote it")
	}
	if rows := n.get("individual_request_metrics").items(); len(rows) > 0 && float64(len(rows)) == p.issued {
		for i, r := range rows {
			t := request(i, 0, r.first("ttft"), r.first("e2e_latency"), nil)
			if !r.get("error_code").null() {
				t = failed(t, r.get("error_code").text())
			}
			if c := r.first("num_output_tokens"); c > 0 {
				t.CompletionTokens = int(min(c, 1e9))
			}
			if c := r.first("num_input_tokens"); c > 0 {
				t.PromptTokens = int(min(c, 1e9))
			}
			if t.Outcome == measurement.OK && t.FirstToken < 0 {
				t.End = t.Due
			}
			p.turns = append(p.turns, t)
		}
	}
	p.note("genai-bench keeps so many users busy, each sending when its last answer has come: a server that slows down slows its own load. It has no gaps between tokens, only a mean a request, and no report of cached tokens.")
	return []point{p}, nil
}
