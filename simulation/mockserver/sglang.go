package mockserver

import (
	"strings"
	"time"

	"kneefinder/simulation/engine"
)

const (
	idleLog       = 30 * time.Second // an idle scheduler refreshes its gauges so often
	staleDecode   = 30 * time.Second // a decode rate older than that reads 0
	wholeInterval = 50               // an answer that is no stream is reported every so many tokens, and at its end
	maxLabelSets  = 200              // of custom labels; requests with others count under the set that is empty
)

// sglang keeps the figures of SGLang 0.5: those of its scheduler, which are as old as its last prefill or its last decode report,
// and those of its tokenizer manager, by custom labels.
type sglang struct {
	families families
	interval int      // decode steps between reports
	custom   []string // names of labels
	context  int      // most tokens of a sequence; 0 is no limit
	weights  int64    // bytes
	state    schedulerState
	sets     []*tokenizerState
	bySet    map[string]*tokenizerState
	scales   struct{ ttft, itl, e2e *scale }

	watched    bool // the engine tells of steps
	told       bool // the engine has told of tokens
	resting    bool
	restsSince time.Duration
	rest       engine.Stats // while resting
	lastLog    time.Duration
	lastDecode time.Duration // report
	lastRate   float64       // of it
	steps      int           // decode steps
	generated  int           // in decode steps since the last report
	taken      int           // requests retracted since the last report
}

// schedulerState is what a scrape shows of the scheduler.
type schedulerState struct {
	gauges schedulerGauges
	stats  engine.Stats // as of the scrape, for what is never stale

	prefills, decodes                                  int // steps
	computed, hit, decoded                             int // tokens, retracted ones again
	effective, effectiveHit                            int // each once
	retractedRequests, retractedInput, retractedOutput int
	idle                                               time.Duration
	queue, prefillForward, chunk                       histogram
}

type schedulerGauges struct {
	running, waiting              int
	used, available, evictable    int
	windowUsed, windowFree        int
	windowEvictable               int
	usage, fullUsage, windowUsage float64
	throughput, hitRate, ratio    float64
	context, retracted            int
}

// tokenizerState is the figures of the requests with one set of custom labels.
type tokenizerState struct {
	labels                            []string
	cached, aborted, finished         int
	byStream                          [2]streamState // whole answers, streams
	prompts, uncached, generated, itl histogram
}

type streamState struct {
	requests, prompt, generated int
	ttft, e2e, tpot             histogram
}

func newSGLang(cfg Config, s engine.Stats) *sglang {
	b := &sglang{families: families{}, interval: cfg.DecodeLogInterval, custom: cfg.CustomLabels, context: cfg.ContextLimit,
		weights: cfg.WeightBytes, bySet: map[string]*tokenizerState{}, resting: true, rest: s}
	b.scales.ttft, b.scales.itl, b.scales.e2e = inSeconds(sglangTTFT...), inSeconds(sglangITL...), inSeconds(sglangE2E...)
	for scale, asked := range map[**scale][]float64{&b.scales.ttft: cfg.TTFTBuckets, &b.scales.itl: cfg.ITLBuckets, &b.scales.e2e: cfg.E2EBuckets} {
		if len(asked) > 0 {
			*scale = inSeconds(asked...)
		}
	}
	b.state.queue.scale, b.state.prefillForward.scale, b.state.chunk.scale = sglangQueue, sglangStage, sglangStage
	b.state.gauges.ratio = .7
	b.describe(cfg)
	b.publish(0, s, 0)
	return b
}

// set is the figures of one set of custom labels.
func (b *sglang) set(labels []string) *tokenizerState {
	if len(labels) != len(b.custom) {
		labels = make([]string, len(b.custom))
	}
	key := strings.Join(labels, "\x00")
	t := b.bySet[key]
	if t == nil && len(b.sets) >= maxLabelSets && strings.Trim(key, "\x00") != "" {
		return b.set(nil)
	}
	if t == nil {
		t = &tokenizerState{labels: labels}
		t.prompts.scale, t.uncached.scale, t.generated.scale, t.itl.scale = sglangTokens, sglangTokens, sglangTokens, b.scales.itl
		for i := range t.byStream {
			s := &t.byStream[i]
			s.ttft.scale, s.e2e.scale, s.tpot.scale = b.scales.ttft, b.scales.e2e, b.scales.itl
		}
		b.sets, b.bySet[key] = append(b.sets, t), t
	}
	return t
}

// of is the figures of one request, and of its kind of answer.
func (b *sglang) of(r *account) (*tokenizerState, *streamState) {
	if r.set == nil {
		r.set = b.set(r.labels)
	}
	if r.streamed {
		return r.set, &r.set.byStream[1]
	}
	return r.set, &r.set.byStream[0]
}

func (b *sglang) submitted(r *account) {
	b.settle(r.arrived)
	if b.resting {
		b.resting = false
		b.state.idle += r.arrived - b.restsSince
	}
}

func (b *sglang) admitted(r *account, at time.Duration, cached int) {
	b.state.queue.seconds(at - r.arrived)
}

func (b *sglang) tokens(r *account, at time.Duration, n int) {
	b.told = true
	if r.told == n {
		b.state.prefillForward.seconds(at - r.scheduled)
	}
	if r.streamed || r.told/wholeInterval > (r.told-n)/wholeInterval {
		b.report(r, at)
	}
}

// report is what the tokenizer manager counts when it hears of new tokens.
func (b *sglang) report(r *account, at time.Duration) {
	t, s := b.of(r)
	n := r.told - r.reported
	switch {
	case n == 0:
		return
	case r.reported > 0:
		t.itl.observe(int64(at-r.last)/int64(n), n)
		t.itl.sum += int64(at-r.last) % int64(n) // what the division has lost
	case r.left: // its first token comes with its end
		return
	default:
		r.first = at
		s.ttft.seconds(at - r.arrived)
	}
	r.reported, r.last = r.told, at
}

func (b *sglang) retracted(r *account, generated int) {
	b.state.retractedRequests++
	b.state.retractedInput += r.prompt
	b.state.retractedOutput += generated
	b.taken++
}

func (b *sglang) hungUp(*account) { b.set(nil).aborted++ }

// finished counts a request that has ended. One that was aborted in the queue is not in these figures, one that the engine refuses
// neither.
func (b *sglang) finished(r *account, at time.Duration, f engine.Finish) {
	if f.Reason == engine.Refused || f.Reason == engine.Aborted && r.waiting {
		return
	}
	b.report(r, at)
	t, s := b.of(r)
	t.finished++
	s.requests++
	s.prompt += r.prompt
	s.generated += f.CompletionTokens
	t.cached += f.CachedTokens
	s.e2e.seconds(at - r.arrived)
	if f.Reason == engine.Length && f.CompletionTokens > 1 && at > r.first {
		s.tpot.seconds((at - r.first) / time.Duration(f.CompletionTokens-1))
	}
	t.prompts.observe(int64(r.prompt), 1)
	t.uncached.observe(int64(r.prompt-f.CachedTokens), 1)
	t.generated.observe(int64(f.CompletionTokens), 1)
}

func (b *sglang) stepped(s *engine.Step) {
	b.watched = true
	if s.Prefill {
		b.prefilled(s)
		return
	}
	b.state.decodes++
	b.state.decoded += s.Running
	b.generated += s.Running
	b.steps++
	if b.steps%b.interval != 0 {
		return
	}
	b.lastRate = float64(b.generated) / (s.End - b.lastDecode).Seconds()
	b.lastDecode, b.generated = s.End, 0
	b.state.gauges.throughput = b.lastRate
	b.state.gauges.context = s.Context
	b.publish(s.End, s.Stats, s.Running)
}

func (b *sglang) prefilled(s *engine.Step) {
	input, hit := s.Input-s.InputAgain, s.Hit-s.HitAgain
	b.state.prefills++
	b.state.computed += s.Input
	b.state.hit += s.Hit
	b.state.effective += input
	b.state.effectiveHit += hit
	if s.Chunked {
		b.state.chunk.seconds(s.End - s.Start)
	}
	if s.End-b.lastDecode > staleDecode {
		b.lastRate = 0
	}
	b.state.gauges.throughput = b.lastRate
	b.state.gauges.hitRate = share(hit, input+hit)
	b.state.gauges.ratio = s.Ratio
	b.publish(s.End, s.Stats, s.Running)
}

// publish refreshes the gauges of queue and pool.
func (b *sglang) publish(at time.Duration, s engine.Stats, running int) {
	b.lastLog = at
	g := &b.state.gauges
	g.running, g.waiting = running, s.Waiting
	g.used, g.available, g.evictable = s.KVUsedTokens, s.KVFreeTokens, s.KVCachedTokens
	g.windowUsed, g.windowFree, g.windowEvictable = s.WindowUsedTokens, s.WindowFreeTokens, s.WindowCachedTokens
	g.fullUsage = share(g.used, g.used+g.available+g.evictable)
	g.windowUsage = share(g.windowUsed, g.windowUsed+g.windowFree+g.windowEvictable)
	g.usage = max(g.fullUsage, g.windowUsage)
	g.retracted, b.taken = b.taken, 0
}

func (b *sglang) rested(at time.Duration, s engine.Stats) {
	b.settle(at)
	b.rest = s
	if !b.resting && s.Waiting == 0 {
		b.resting, b.restsSince = true, at
	}
}

// settle does what an idle scheduler has done until the instant at: it refreshes its gauges at once where they still show running
// requests, and every idleLog.
func (b *sglang) settle(at time.Duration) {
	if !b.resting {
		return
	}
	due := max(b.restsSince, b.lastLog+idleLog)
	if b.state.gauges.running != 0 {
		due = b.restsSince
	}
	if at < due {
		return
	}
	b.state.gauges.throughput = 0
	b.publish(at-(at-due)%idleLog, b.rest, 0)
}

func (b *sglang) snapshot(at time.Duration, s engine.Stats) figures {
	b.settle(at)
	if b.told && !b.watched {
		b.publish(at, s, s.Running)
	}
	shot := &sglangShot{book: b, schedulerState: b.state, sets: make([]tokenizerState, len(b.sets))}
	shot.stats = s
	if b.resting {
		shot.idle += at - b.restsSince
	}
	for i, t := range b.sets {
		shot.sets[i] = *t
	}
	return shot
}
