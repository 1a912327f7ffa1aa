package engine

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func preset(t testing.TB, model, gpu string) Config {
	t.Helper()
	m, ok := ModelByName(model)
	if !ok {
		t.Fatalf("no model %q", model)
	}
	g, ok := GPUByName(gpu)
	if !ok {
		t.Fatalf("no gpu %q", gpu)
	}
	return Config{Model: m, GPU: g}
}

// coldPrefill is what chunks of a prompt take one after the other.
func coldPrefill(c Config, cached, prompt int) (t time.Duration) {
	c = c.Filled()
	for at := cached; at < prompt; {
		n := min(c.Recipe.ChunkedPrefill, prompt-at)
		t += stepCost(&c.Model, &c.GPU, &batch{prefill: []span{{offset: at, n: n, last: at+n == prompt}}})
		at += n
	}
	return t
}

func decodeStepOf(c Config, sequences, length int) time.Duration {
	return stepCost(&c.Model, &c.GPU, &batch{decodes: sequences, context: sequences * length,
		recent: sequences * min(length, c.Model.WindowTokens)})
}

func TestStepCostReproducesPublicArithmetic(t *testing.T) {
	gemmaL40S, gemmaH100 := preset(t, "gemma-4-12b", "l40s"), preset(t, "gemma-4-12b", "h100")
	demo := preset(t, "demo", "demo")
	for _, row := range []struct {
		what      string
		got       time.Duration
		low, high time.Duration
	}{
		{"L40S cold 18,000: 1.97 s linear, .23 full, .09 window", coldPrefill(gemmaL40S, 0, 18000), 2061e6, 2519e6},
		{"H100 cold 18,000: .52 s linear, .06 full, .03 window", coldPrefill(gemmaH100, 0, 18000), 549e6, 671e6},
		{"L40S decode, weights only: 23.8 GB at .8 of 864 GB/s", decodeStepOf(gemmaL40S, 1, 1), 31050e3, 37950e3},
		{"H100 decode, weights only: 23.8 GB at .85 of 3350 GB/s", decodeStepOf(gemmaH100, 1, 1), 7560e3, 9240e3},
		{"L40S decode, 10 warm calls: 6.4 GB more", decodeStepOf(gemmaL40S, 10, 18420), 39240e3, 47960e3},
		{"H100 decode, 10 warm calls: 6.4 GB more", decodeStepOf(gemmaH100, 10, 18420), 9540e3, 11660e3},
		{"demo cold 2,700", coldPrefill(demo, 0, 2700), 45e6, 60e6},
		{"demo warm 150", coldPrefill(demo, 2700, 2850), 5e6, 10e6},
		{"demo decode, alone", decodeStepOf(demo, 1, 2700), 2e6, 4e6},
		{"demo decode, 8 calls", decodeStepOf(demo, 8, 2700), 3e6, 6e6},
	} {
		t.Logf("%-60s %v", row.what, row.got)
		if row.got < row.low || row.got > row.high {
			t.Errorf("%s: got %v, want %v to %v", row.what, row.got, row.low, row.high)
		}
	}
}

// drawBatch draws a step of either kind.
func drawBatch(t *rapid.T) batch {
	var b batch
	if rapid.Bool().Draw(t, "prefill") {
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			b.prefill = append(b.prefill, span{
				offset: rapid.IntRange(0, 100_000).Draw(t, "offset"),
				n:      rapid.IntRange(1, 16384).Draw(t, "n"),
				last:   rapid.Bool().Draw(t, "last"),
			})
		}
		return b
	}
	for range rapid.IntRange(1, 200).Draw(t, "decodes") {
		b = b.with(rapid.IntRange(1, 100_000).Draw(t, "length"), 1024)
	}
	return b
}

// with returns b with one more sequence of that length to decode.
func (b batch) with(length, window int) batch {
	b.decodes++
	b.context += length
	b.recent += min(length, window)
	return b
}

// No step is faster than its FLOPs at peak, nor than its bytes at peak bandwidth, on any preset.
func TestNoStepBeatsPhysics(t *testing.T) {
	forPresets(t, func(t *rapid.T, c Config) {
		s, g, b := &c.Model, &c.GPU, drawBatch(t)
		flops, bytes := 0., float64(bytesPerWeight*s.BodyParams())
		tokens, sampled := b.decodes, b.decodes
		for _, p := range b.prefill {
			tokens += p.n
			if p.last {
				sampled++
			}
			for i := p.offset; i < p.offset+p.n; i++ { // token by token, unlike the code
				flops += 4 * float64(s.QueryHeads) * float64(s.Full.Layers*s.Full.HeadDim*(i+1)+
					s.Window.Layers*s.Window.HeadDim*min(i+1, s.WindowTokens))
			}
		}
		flops += 2 * (float64(s.BodyParams())*float64(tokens) + float64(s.HeadParams())*float64(sampled))
		if sampled > 0 {
			bytes += float64(bytesPerWeight * s.HeadParams())
		}
		bytes += float64(s.FullBytes())*float64(b.context) + float64(s.WindowBytes())*float64(b.recent)
		got := stepCost(s, g, &b).Seconds()
		if atPeak := flops / g.FLOPS; got < atPeak {
			t.Errorf("got %v s, but %.3g FLOPs take %v s at peak", got, flops, atPeak)
		}
		if atPeak := bytes / g.Bandwidth; got < atPeak {
			t.Errorf("got %v s, but %.3g bytes take %v s at peak", got, bytes, atPeak)
		}
	})
}

// More of anything never takes less time.
func TestCostIsMonotone(t *testing.T) {
	forPresets(t, func(t *rapid.T, c Config) {
		b := drawBatch(t)
		more := b
		switch {
		case len(b.prefill) == 0:
			if rapid.Bool().Draw(t, "one more") {
				more = b.with(rapid.IntRange(1, 100_000).Draw(t, "of length"), 1024)
			} else {
				more.context += rapid.IntRange(0, 10_000).Draw(t, "more context")
				more.recent += rapid.IntRange(0, b.decodes).Draw(t, "more recent")
			}
		case rapid.Bool().Draw(t, "one more"):
			more.prefill = append(b.prefill[:len(b.prefill):len(b.prefill)], span{offset: 10, n: 10, last: true})
		default:
			more.prefill = append([]span(nil), b.prefill...)
			p := &more.prefill[rapid.IntRange(0, len(b.prefill)-1).Draw(t, "part")]
			p.n += rapid.IntRange(0, 100).Draw(t, "more tokens")
			p.offset += rapid.IntRange(0, 100).Draw(t, "more offset")
			p.last = true
		}
		less, got := stepCost(&c.Model, &c.GPU, &b), stepCost(&c.Model, &c.GPU, &more)
		if got < less {
			t.Errorf("%+v takes %v, but the smaller %+v takes %v", more, got, b, less)
		}
	})
}

func forPresets(t *testing.T, check func(*rapid.T, Config)) {
	for _, model := range ModelNames() {
		for _, gpu := range GPUNames() {
			t.Run(model+" on "+gpu, func(t *testing.T) {
				c := preset(t, model, gpu)
				rapid.Check(t, func(t *rapid.T) { check(t, c) })
			})
		}
	}
}

func TestCurve(t *testing.T) {
	c := Curve{{16, .1}, {64, .2}, {256, .2}}
	for _, row := range []struct {
		m    int
		want float64
		why  string
	}{
		{1, .1, "flat below the first point"},
		{16, .1, "a point"},
		{32, .1 * math.Sqrt2, "half way in log m, half way in log fraction"},
		{64, .2, "a point"},
		{128, .2, "a flat segment"},
		{1 << 20, .2, "flat beyond the last point"},
	} {
		if got := c.at(row.m); math.Abs(got-row.want) > 1e-12 {
			t.Errorf("at(%d), %s: got %v, want %v", row.m, row.why, got, row.want)
		}
	}
}

func BenchmarkStepCost(b *testing.B) {
	c := preset(b, "gemma-4-12b", "l40s")
	step := batch{decodes: 30, context: 30 * 18420, recent: 30 * 1024}
	b.ReportAllocs()
	for b.Loop() {
		stepCost(&c.Model, &c.GPU, &step)
	}
}
