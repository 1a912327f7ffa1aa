package importer

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kneefinder/measurement"
)

// The flat files of SGLang bench_serving, vLLM bench serve and InferenceX: one object a run, a key a figure.

func isSGLang(n node) bool {
	if !n.has("completed", "duration") || !n.has("mean_ttft_ms") && !n.has("median_ttft_ms") {
		return false
	}
	return n.has("mean_e2e_latency_ms") || n.has("median_e2e_latency_ms") || n.has("total_output_tokens_retokenized") || n.has("sharegpt_output_len") ||
		n.has("random_range_ratio") || n.has("accept_length")
}

func isVLLM(n node) bool {
	return n.has("completed", "duration") && (n.has("mean_ttft_ms") || n.has("median_ttft_ms") || n.has("request_throughput", "num_prompts"))
}

func isInferenceX(n node) bool {
	return (n.has("median_ttft") || n.has("mean_ttft")) && (n.has("conc") || n.has("max_concurrency") || n.has("request_rate"))
}

var servingKey = regexp.MustCompile(`^(mean|median|min|p[0-9]+(?:\.[0-9]+)?)_(ttft|tpot|itl|e2el|e2e_latency|e2e|client_queue_time)(_ms)?$`)

// servingKnown are keys that do not tell one deployment from another.
var servingKnown = []string{"date", "endpoint_type", "backend", "model_id", "tokenizer_id", "model", "tag", "label", "dataset_name", "request_rate", "image", "conc", "framework", "run_url", "created_at"}

func serving(_ File, n node, at string) ([]point, error) {
	kind := VLLM
	switch {
	case isSGLang(n):
		kind = SGLang
	case !isVLLM(n):
		kind = InferenceX
	}
	p := newPoint(kind, at)
	queue := noSpread()
	for i, key := range n.keys {
		m := servingKey.FindStringSubmatch(key)
		if m == nil {
			continue
		}
		v := n.vals[i].number()
		if m[3] == "" {
			v *= 1000 // seconds
		}
		into := map[string]*spread{"ttft": &p.ttft, "tpot": &p.tpot, "itl": &p.itl, "client_queue_time": &queue}[m[2]]
		if into == nil {
			into = &p.e2e
		}
		into.put(m[1], v)
	}
	if waits := n.get("queue_times").numbers(); !queue.told() && len(waits) > 0 && float64(len(waits)) == n.first("num_prompts") { // kept whether or not they are summed up
		slices.Sort(waits)
		for _, q := range []float64{.95, .99} {
			queue.set(q, 1000*measurement.Quantile(waits, q))
		}
	}
	p.lagP95, p.lagP99 = value(queue.at(.95)), value(queue.at(.99))
	p.ok, p.issued, p.failed = n.first("completed"), n.first("num_prompts"), n.first("failed")
	if math.IsNaN(p.failed) {
		p.failed = max(0, p.issued-p.ok)
	}
	p.duration, p.throughput, p.outputRate = n.first("duration"), n.first("request_throughput"), n.first("output_throughput")
	p.inputSum, p.outputSum = n.first("total_input_tokens"), n.first("total_output_tokens")
	p.inputLen, p.outputLen = p.inputSum/p.ok, p.outputSum/p.ok
	p.config.IgnoreEOS = n.get("ignore_eos").num == 1
	p.engine = measurement.Engine{Kind: engineOf(n.get("backend").text()), Model: n.get("model_id").text(), GPU: n.get("gpu").text()}
	if info := n.get("server_info"); info.kind == '{' { // what SGLang's own server says of itself
		p.engine.Model = orText(p.engine.Model, orText(info.get("served_model_name").text(), info.get("model_path").text()))
		p.engine.Version = info.get("version").text()
	}
	if kind == InferenceX {
		p.engine.Kind, p.engine.GPU, p.engine.Model = n.get("framework").text(), n.get("hw").text(), orText(p.engine.Model, n.get("model").text())
		p.inputLen, p.outputLen = known(p.inputLen, n.first("isl")), known(p.outputLen, n.first("osl"))
	}
	p.group = servingGroup(n, kind)
	p.asked(n.first("random_input_len", "isl", "input_len"), n.first("random_output_len", "osl", "output_len"))
	servingRows(&p, n)
	if math.IsNaN(p.failed) {
		p.note(fmt.Sprintf("%s counts no failed requests, so errors are unknown.", kind))
	}

	rate, limit := n.first("request_rate"), n.first("max_concurrency", "conc", "concurrency")
	if kind == SGLang {
		limit = n.first("max_concurrency") // its "concurrency" is computed from the answers
	}
	if !p.setLoad(rate, limit) {
		if rate <= 0 || math.IsNaN(rate) {
			return nil, refuse(at, fmt.Sprintf("is a run of %s that names no load: request_rate and max_concurrency are missing", kind), "give the file as the tool wrote it")
		}
		p.own = append(p.own, fmt.Sprintf("%s: everything was sent at once (request_rate inf, no max_concurrency), which is no load that a curve could have: left out. Its throughput, %s requests/s, is about what the server can do at most.", at, short(p.throughput)))
		return []point{p}, nil
	}
	if p.axis == concurrencyAxis { // all stand in the queue from the beginning on: nothing is late there
		p.lagP95, p.lagP99 = math.NaN(), math.NaN()
	}
	if p.axis == rateAxis {
		p.arrivals = "poisson"
		if b := n.first("burstiness"); finite(b) && b > 0 && b != 1 {
			p.arrivals = "gamma:" + short(1/math.Sqrt(b))
		}
		drained(&p)
	}
	switch kind {
	case SGLang:
		p.note("SGLang bench_serving starts its clock when a request gets a place under max_concurrency; it sleeps anew after each send, so the rate is never more than asked, and it tells no percentile of what its own lateness was.")
	case VLLM, InferenceX:
		p.note("vLLM bench serve starts its clock after the wait for a place under max_concurrency; a chat stream's first event counts as the first token even if it holds no text, which makes TTFT too short.")
	}
	if math.IsNaN(p.cacheHit) {
		p.note("The file has no report of cached tokens: whether prefixes were reused cannot be told.")
	}
	return []point{p}, nil
}

// engineOf is the engine behind the name of a client's backend, which says first of all how it asks; "" of one that any engine answers.
func engineOf(backend string) string {
	for _, suffix := range []string{"-chat", "-oai", "-native"} {
		backend = strings.TrimSuffix(backend, suffix)
	}
	if strings.HasPrefix(backend, "openai") {
		return ""
	}
	return backend
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// put takes a figure by the name of its statistic: mean, median, min or pNN.
func (s *spread) put(name string, ms float64) {
	switch name {
	case "mean", "avg":
		s.mean = ms
	case "min":
		s.min = ms
	case "median":
		s.set(.5, ms)
	case "max", "std":
	default:
		if p, err := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64); err == nil && p > 0 && p < 100 {
			s.set(p/100, ms)
		}
	}
}

// servingGroup tells apart what was measured: datasets, their lengths, and what a user has written beside the figures.
func servingGroup(n node, kind Kind) string {
	var parts []string
	for _, key := range []string{"label", "tag", "dataset_name", "random_input_len", "random_output_len", "isl", "osl", "tp", "precision"} {
		if t := n.get(key).text(); t != "" {
			parts = append(parts, groupName(key)+t)
		}
	}
	if kind == VLLM {
		for i, key := range n.keys {
			v := n.vals[i]
			if v.kind != 's' || v.str == "" || slices.Contains(servingKnown, key) || strings.Contains(key, "date") || strings.Contains(key, "time") || strings.HasSuffix(key, "_id") {
				continue
			}
			if _, err := strconv.ParseFloat(v.str, 64); err == nil && (strings.Contains(key, "conc") || strings.Contains(key, "rate") || strings.Contains(key, "num_prompts")) {
				continue
			}
			parts = append(parts, groupName(key)+v.str)
		}
	}
	return strings.Join(parts, " ")
}

// groupName is what stands before a value in the name of a curve; names speak for themselves.
func groupName(key string) string {
	switch key {
	case "random_input_len", "isl", "input_len":
		return "in "
	case "random_output_len", "osl", "output_len":
		return "out "
	case "tp":
		return "tp "
	case "prefill_replicas", "decode_replicas":
		return strings.ReplaceAll(key, "_", " ") + " "
	}
	return ""
}

// drained says when a run's answers per second are fewer than what was sent only because its end was waited for.
func drained(p *point) {
	sends := known(p.issued, p.ok) / p.load
	drain := p.duration - sends
	answered := (p.ok + known(p.failed, 0)) / p.duration
	whole := known(p.e2e.mean, p.ttft.mean+p.tpot.mean*(p.outputLen-1)) / 1000
	switch {
	case !(whole > 0) || !(drain > 0) || p.ok == 0:
	case answered >= .95*p.load:
		p.saturation = min(1, answered/p.load)
	case drain <= 3*whole:
		p.flags = append(p.flags, measurement.FlagShort)
		p.doubt("the sends took %s s and the wait for the last answers %s s, so answers per second (%s) say nothing of saturation at %s requests/s: measure longer.",
			short(sends), short(drain), short(answered), short(p.load))
	default:
		p.doubt("%s s after the last send answers were still coming, %s times as long as one takes: the server did not keep up with %s requests/s.", short(drain), short(drain/whole), short(p.load))
		p.saturation = answered / p.load
	}
}

// servingRows reads single requests, where the run was told to keep them.
func servingRows(p *point, n node) {
	ttfts, errs := n.get("ttfts").numbers(), n.get("errors").items()
	if len(ttfts) == 0 {
		return
	}
	starts, lats, itls := n.get("start_times").numbers(), n.get("latencies").numbers(), n.get("itls").items()
	in, out, cached := n.get("input_lens").numbers(), n.get("output_lens").numbers(), n.get("cached_tokens").numbers()
	p.timed = len(starts) == len(ttfts)
	origin := math.Inf(1)
	for _, s := range starts {
		if s < origin {
			origin = s
		}
	}
	fails, hit, prompt := 0., 0., 0.
	for i, ttft := range ttfts {
		start, end := 0., math.NaN()
		if p.timed {
			start = starts[i] - origin
		}
		if i < len(lats) {
			end = lats[i]
		}
		var gaps []float64
		if i < len(itls) {
			gaps = itls[i].numbers()
		}
		t := request(i, start, ttft, end, gaps)
		switch {
		case i < len(errs) && errs[i].text() != "":
			t = failed(t, errs[i].text())
		case len(errs) == 0 && ttft == 0:
			t = failed(t, "")
		}
		if t.Outcome != measurement.OK {
			fails++
		}
		if i < len(out) && finite(out[i]) && out[i] > 0 {
			t.CompletionTokens = int(min(out[i], 1e9))
		}
		if i < len(in) && finite(in[i]) && in[i] > 0 {
			t.PromptTokens = int(min(in[i], 1e9))
			prompt += in[i]
		}
		if i < len(cached) && finite(cached[i]) && cached[i] >= 0 {
			t.CachedTokens = int(min(cached[i], 1e9))
			hit += cached[i]
		}
		p.turns = append(p.turns, t)
	}
	if math.IsNaN(p.failed) {
		p.failed = fails
	}
	if len(cached) > 0 {
		p.cacheHit = hit / prompt
	}
}
