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

// sglang keeps the figures of SGLang 0.5: those of its schedulers, one for each replica, which are as old as its last prefill or its
// last decode report, and those of its tokenizer manager, by custom labels.
type sglang struct {
	families   families
	custom     []string // names of labels
	context    int      // most tokens of a sequence; 0 is no limit
	weights    int64    // bytes
	schedulers []*scheduler
	sets       []*tokenizerState
	bySet      map[string]*tokenizerState
	scales     struct{ ttft, itl, e2e *scale }
}

// scheduler is that of one replica.
type scheduler struct {
	state    schedulerState
	interval int // decode steps between reports

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

func newSGLang(cfg Config, replicas []engine.Stats) *sglang {
	b := &sglang{families: families{}, custom: cfg.CustomLabels, context: cfg.ContextLimit, weights: cfg.WeightBytes,
		bySet: map[string]*tokenizerState{}}
	b.scales.ttft, b.scales.itl, b.scales.e2e = inSeconds(sglangTTFT...), inSeconds(sglangITL...), inSeconds(sglangE2E...)
	for scale, asked := range map[**scale][]float64{&b.scales.ttft: cfg.TTFTBuckets, &b.scales.itl: cfg.ITLBuckets, &b.scales.e2e: cfg.E2EBuckets} {
		if len(asked) > 0 {
			*scale = inSeconds(asked...)
		}
	}
	for _, s := range replicas {
		c := &scheduler{interval: cfg.DecodeLogInterval, resting: true, rest: s}
		c.state.queue.scale, c.state.prefillForward.scale, c.state.chunk.scale = sglangQueue, sglangStage, sglangStage
		c.state.gauges.ratio = .7
		c.publish(0, s, 0)
		b.schedulers = append(b.schedulers, c)
	}
	b.describe(cfg)
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

func (b *sglang) routed(r *account, at time.Duration) {
	c := b.schedulers[r.replica]
	c.settle(at)
	if c.resting {
		c.resting = false
		c.state.idle += at - c.restsSince
	}
}

func (b *sglang) admitted(r *account, at time.Duration, cached int) {
	b.schedulers[r.replica].state.queue.seconds(at - r.arrived)
}

func (b *sglang) tokens(r *account, at time.Duration, n int) {
	c := b.schedulers[r.replica]
	c.told = true
	if r.told == n {
		c.state.prefillForward.seconds(at - r.scheduled)
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
	c := b.schedulers[r.replica]
	c.state.retractedRequests++
	c.state.retractedInput += r.prompt
	c.state.retractedOutput += generated
	c.taken++
}

func (b *sglang) hungUp(*account) { b.set(nil).aborted++ }

// finished counts a request that has ended. One that was aborted in the queue is not in these figures, one that the engine refuses
// or loses neither.
func (b *sglang) finished(r *account, at time.Duration, f engine.Finish) {
	if f.Reason == engine.Refused || f.Reason == engine.Failed || f.Reason == engine.Aborted && r.waiting {
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

func (b *sglang) stepped(replica int, s *engine.Step) { b.schedulers[replica].stepped(s) }

func (b *sglang) rested(replica int, at time.Duration, s engine.Stats) {
	b.schedulers[replica].rested(at, s)
}

func (c *scheduler) stepped(s *engine.Step) {
	c.watched = true
	if s.Prefill {
		c.prefilled(s)
		return
	}
	c.state.decodes++
	c.state.decoded += s.Running
	c.generated += s.Running
	c.steps++
	if c.steps%c.interval != 0 {
		return
	}
	c.lastRate = float64(c.generated) / (s.End - c.lastDecode).Seconds()
	c.lastDecode, c.generated = s.End, 0
	c.state.gauges.throughput = c.lastRate
	c.state.gauges.context = s.Context
	c.publish(s.End, s.Stats, s.Running)
}

func (c *scheduler) prefilled(s *engine.Step) {
	input, hit := s.Input-s.InputAgain, s.Hit-s.HitAgain
	c.state.prefills++
	c.state.computed += s.Input
	c.state.hit += s.Hit
	c.state.effective += input
	c.state.effectiveHit += hit
	if s.Chunked {
		c.state.chunk.seconds(s.End - s.Start)
	}
	if s.End-c.lastDecode > staleDecode {
		c.lastRate = 0
	}
	c.state.gauges.throughput = c.lastRate
	c.state.gauges.hitRate = share(hit, input+hit)
	c.state.gauges.ratio = s.Ratio
	c.publish(s.End, s.Stats, s.Running)
}

// publish refreshes the gauges of queue and pool.
func (c *scheduler) publish(at time.Duration, s engine.Stats, running int) {
	c.lastLog = at
	g := &c.state.gauges
	g.running, g.waiting = running, s.Waiting
	g.used, g.available, g.evictable = s.KVUsedTokens, s.KVFreeTokens, s.KVCachedTokens
	g.windowUsed, g.windowFree, g.windowEvictable = s.WindowUsedTokens, s.WindowFreeTokens, s.WindowCachedTokens
	g.fullUsage = share(g.used, g.used+g.available+g.evictable)
	g.windowUsage = share(g.windowUsed, g.windowUsed+g.windowFree+g.windowEvictable)
	g.usage = max(g.fullUsage, g.windowUsage)
	g.retracted, c.taken = c.taken, 0
}

func (c *scheduler) rested(at time.Duration, s engine.Stats) {
	c.settle(at)
	c.rest = s
	if !c.resting && s.Waiting == 0 {
		c.resting, c.restsSince = true, at
	}
}

// settle does what an idle scheduler has done until the instant at: it refreshes its gauges at once where they still show running
// requests, and every idleLog.
func (c *scheduler) settle(at time.Duration) {
	if !c.resting {
		return
	}
	due := max(c.restsSince, c.lastLog+idleLog)
	if c.state.gauges.running != 0 {
		due = c.restsSince
	}
	if at < due {
		return
	}
	c.state.gauges.throughput = 0
	c.publish(at-(at-due)%idleLog, c.rest, 0)
}

func (b *sglang) snapshot(at time.Duration, replicas []engine.Stats) figures {
	shot := &sglangShot{book: b, schedulers: make([]schedulerState, len(b.schedulers)), sets: make([]tokenizerState, len(b.sets))}
	for i, c := range b.schedulers {
		s := replicas[i]
		c.settle(at)
		if c.told && !c.watched {
			c.publish(at, s, s.Running)
		}
		shot.schedulers[i] = c.state
		shot.schedulers[i].stats = s
		if s.KVPoolBytes == 0 { // it is down: what it showed last is gone with it
			shot.schedulers[i].gauges = schedulerGauges{}
		}
		if c.resting {
			shot.schedulers[i].idle += at - c.restsSince
		}
	}
	for i, t := range b.sets {
		shot.sets[i] = *t
	}
	return shot
}
