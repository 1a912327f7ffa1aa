package telemetry

import (
	"cmp"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"kneefinder/measurement"
)

// Metrics of the semantic conventions for generative AI, v0.1.0. They are of the whole run.
const (
	genDuration  = "gen_ai.client.inference.duration"
	genFirst     = "gen_ai.client.inference.time_to_first_chunk"
	genPerChunk  = "gen_ai.client.inference.time_per_output_chunk"
	genInput     = "gen_ai.client.inference.usage.input_tokens"
	genOutput    = "gen_ai.client.inference.usage.output_tokens"
	genCacheRead = "gen_ai.client.inference.usage.cache_read.input_tokens"
)

// genBounds are the boundaries that the conventions advise.
var genBounds = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}

type genai struct {
	bounds                   *bounds
	duration                 map[measurement.Outcome]*histogram
	first, perChunk          histogram
	input, output, cacheRead int64
}

func newGenAI() *genai {
	b := newBounds(genBounds, 1e9)
	return &genai{bounds: b, duration: map[measurement.Outcome]*histogram{}, first: newHistogram(b), perChunk: newHistogram(b)}
}

func (g *genai) add(u *measurement.Turn) {
	if u.Sent < 0 {
		return
	}
	if u.End >= 0 {
		h := g.duration[u.Outcome]
		if h == nil {
			h = new(histogram)
			*h = newHistogram(g.bounds)
			g.duration[u.Outcome] = h
		}
		h.add(int64(u.End - u.Sent))
	}
	g.first.addTime(firstChunk(u))
	for _, gap := range u.Gaps {
		g.perChunk.add(int64(gap))
	}
	g.input += int64(max(u.PromptTokens, 0))
	g.output += int64(max(u.CompletionTokens, 0))
	g.cacheRead += int64(max(u.CachedTokens, 0))
}

// firstChunk is from sending to the first event of any kind.
func firstChunk(u *measurement.Turn) (d time.Duration, ok bool) {
	return u.FirstEvent - u.Sent, u.FirstEvent >= 0 && u.Sent >= 0
}

// provider names the other side; its protocol when it would not say what it is.
func provider(e *measurement.Engine) string { return cmp.Or(e.Kind, "openai") }

// common are the attributes of all.
func common(h *measurement.Header) []attribute.KeyValue {
	kvs := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", provider(&h.Engine))}
	if h.Engine.Model != "" {
		kvs = append(kvs, attribute.String("gen_ai.request.model", h.Engine.Model))
	}
	return kvs
}

func (g *genai) produce(s *snapshot, h *measurement.Header) {
	kvs := common(h)
	all := attribute.NewSet(kvs...)
	for outcome, d := range g.duration {
		attrs := all
		if outcome.Failed() {
			attrs = attribute.NewSet(append(kvs[:len(kvs):len(kvs)], attribute.String("error.type", string(outcome)))...)
		}
		s.histogram(genDuration, "", attrs, d)
	}
	s.histogram(genFirst, "", all, &g.first)
	s.histogram(genPerChunk, "", all, &g.perChunk)
	s.count(genInput, all, g.input)
	s.count(genOutput, all, g.output)
	s.count(genCacheRead, all, g.cacheRead)
}
