package fleet

import (
	"fmt"
	"math"
	"slices"
	"time"

	"kneefinder/simulation/engine"
)

// Handoff is the way of a prompt's KV from a Prefill replica to a Decode one. Where a bound is reached, requests wait in the station
// before: for a decode replica at the prefill replica, for a prefill replica at the router.
type Handoff struct {
	Link       Link
	PerReplica bool                   // every prefill replica has such a link of its own; else all share one
	KVBytes    func(tokens int) int64 // of a prompt of so many tokens

	// The first token is told when the KV has arrived, as where the decode replica speaks to the client (SGLang); else when the prompt
	// has been computed.
	HoldFirst bool

	MaxRequests int // that a decode replica has, or that are on the way there; 0: no limit
	MaxTokens   int // the same of their tokens, prompts and what they may generate; one request always fits; 0: no limit
	MaxHeld     int // prompts computed at one prefill replica whose KV has not left; 0: no limit
}

// Link carries KV. All that is on its way gets the same part of its bandwidth (processor sharing), however much there is.
type Link struct {
	Name      string
	Bandwidth float64       // bytes a second
	Latency   time.Duration // from the last byte sent until the decode replica has it
}

// LinkByName returns a preset: the bandwidth and latency that the public manual of AMD's Infera simulator (AMD-AGI/Infera) gives to a
// transfer backend, which are nominal and not measured.
func LinkByName(name string) (Link, bool) {
	for _, l := range links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

// LinkNames lists the presets.
func LinkNames() (names []string) {
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

var links = [...]Link{
	{"mooncake", 200e9, 10 * time.Microsecond},
	{"mori", 300e9, 7 * time.Microsecond},
	{"nixl", 400e9, 5 * time.Microsecond},
}

func (h Handoff) validate() error {
	switch {
	case h.KVBytes == nil:
		return fmt.Errorf("handoff: KVBytes must be set: how much KV a prompt has")
	case !(h.Link.Bandwidth > 0) || math.IsInf(h.Link.Bandwidth, 0):
		return fmt.Errorf("handoff: link %q has a bandwidth of %v bytes a second, must be above 0", h.Link.Name, h.Link.Bandwidth)
	case h.Link.Latency < 0:
		return fmt.Errorf("handoff: link %q has a latency of %v, must be at least 0", h.Link.Name, h.Link.Latency)
	case h.MaxRequests < 0 || h.MaxTokens < 0 || h.MaxHeld < 0:
		return fmt.Errorf("handoff: limits are %d requests, %d tokens and %d held, must be above 0, or 0 for none", h.MaxRequests, h.MaxTokens, h.MaxHeld)
	}
	return nil
}

// pack takes a prompt that has been computed off its prefill replica's hands.
func (f *Fleet) pack(j *job, at time.Duration) {
	r := f.replicas[j.at]
	r.held++
	r.handedOff++
	j.phase, j.since, j.found = packed, at, 0
	f.parcels.push(j)
	f.dirty = true
}

// repack puts j back into the queue for a decode replica.
func (f *Fleet) repack(j *job, at time.Duration) {
	j.phase, j.to, j.since = packed, nowhere, at
	f.parcels.push(j)
	f.dirty = true
}

// unload lets the prefill replica forget j's KV.
func (f *Fleet) unload(j *job) {
	f.replicas[j.at].held--
	j.at = nowhere
	f.dirty = f.dirty || f.queue.len() > 0
}

// forward puts KV on its way, in order, as far as decode replicas have places.
func (f *Fleet) forward(at time.Duration) {
	for f.parcels.len() > 0 {
		j := f.parcels.first()
		i, ok := f.route(j, Decode, at)
		if !ok && !f.hopeless(Decode) {
			return
		}
		f.parcels.drop(j)
		if !ok {
			f.unload(j)
			f.end(j, at, engine.Finish{Reason: engine.Failed, Detail: "no decode replica is up, and none will be"})
			continue
		}
		r := f.replicas[i]
		r.load(j, +1)
		r.sent++
		f.figures.moves.wait(at - j.since)
		j.phase, j.to, j.since = travelling, i, at
		f.link(j).start(at, j, f.config.Handoff.KVBytes(len(j.prompt)))
	}
}

func (f *Fleet) link(j *job) *link {
	if f.config.Handoff.PerReplica {
		return &f.links[j.at]
	}
	return &f.links[0]
}

// sent is the end of the first transfer of l.
func (f *Fleet) sent(l *link, at time.Duration) {
	flow := l.finish(at)
	j := flow.job
	f.figures.moves.done(at-j.since, flow.bytes)
	f.unload(j)
	j.phase = arriving
	f.arrivals.list = append(f.arrivals.list, arrival{at + f.config.Handoff.Link.Latency, j})
}

// arrive hands j to its decode replica.
func (f *Fleet) arrive(j *job, at time.Duration) {
	r := f.replicas[j.to]
	j.phase, j.at, j.to = decoding, j.to, nowhere
	if f.config.Handoff.HoldFirst {
		j.told++
		f.sink.Tokens(j.ID, at, 1)
	}
	if f.routes != nil {
		f.routes.Routed(j.ID, at, r.index)
	}
	req := j.Request
	req.Prompt, req.MaxTokens, req.Said, req.Handoff = j.prompt, j.max, j.said(), true
	f.serial++
	j.serial = f.serial
	r.member.Submit(at, req)
	r.look()
}

// recall takes j off its way.
func (f *Fleet) recall(j *job, at time.Duration) {
	if j.phase == travelling {
		f.link(j).cancel(at, j)
	} else {
		f.arrivals.list = slices.DeleteFunc(f.arrivals.list, func(a arrival) bool { return a.job == j })
	}
	f.replicas[j.to].load(j, -1)
	j.to = nowhere
	f.dirty = f.dirty || f.parcels.len() > 0
}

// arrivals is what has left a link, in order: the latency is the same for all.
type arrivals struct{ list []arrival }

type arrival struct {
	at  time.Duration
	job *job
}

func (q *arrivals) next() time.Duration {
	if len(q.list) == 0 {
		return never
	}
	return q.list[0].at
}

func (q *arrivals) pop() *job {
	j := q.list[0].job
	q.list[0].job = nil
	q.list = q.list[1:]
	return j
}

// link shares its bandwidth equally among its flows. Each flow ends when what one flow has got since the link was last idle reaches
// its goal, so that only the lowest goal has to be looked at.
type link struct {
	rate  float64 // bytes a nanosecond
	got   float64 // bytes of each flow since the link was last idle
	since time.Duration
	flows []flow // by (goal, order of start)

	busy  time.Duration
	bytes int64 // of flows that have ended
}

type flow struct {
	job   *job
	bytes int64
	goal  float64
}

func newLinks(h Handoff, replicas []*replica) []link {
	if replicas[0].Role == Whole {
		return nil
	}
	out := make([]link, 1)
	if h.PerReplica {
		out = make([]link, len(replicas))
	}
	for i := range out {
		out[i].rate = h.Link.Bandwidth / 1e9
	}
	return out
}

// advance serves the flows up to the instant at.
func (l *link) advance(at time.Duration) {
	if n := len(l.flows); n > 0 {
		l.got += float64(at-l.since) * l.rate / float64(n)
		l.busy += at - l.since
	} else {
		l.got = 0
	}
	l.since = at
}

// next is when the first of the flows ends, up to the nanosecond.
func (l *link) next() time.Duration {
	if len(l.flows) == 0 {
		return never
	}
	left := (l.flows[0].goal - l.got) * float64(len(l.flows)) / l.rate
	return l.since + time.Duration(math.Ceil(max(0, left)))
}

func (l *link) start(at time.Duration, j *job, bytes int64) {
	l.advance(at)
	n := flow{j, bytes, l.got + float64(bytes)}
	i := len(l.flows)
	for i > 0 && l.flows[i-1].goal > n.goal {
		i--
	}
	l.flows = slices.Insert(l.flows, i, n)
}

// finish takes the first flow off, whose end the instant at is.
func (l *link) finish(at time.Duration) flow {
	l.advance(at)
	done := l.flows[0]
	l.got = max(l.got, done.goal)
	l.flows = slices.Delete(l.flows, 0, 1)
	l.bytes += done.bytes
	return done
}

func (l *link) cancel(at time.Duration, j *job) {
	l.advance(at)
	l.flows = slices.DeleteFunc(l.flows, func(f flow) bool { return f.job == j })
}
