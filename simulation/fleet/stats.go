package fleet

import (
	"reflect"
	"slices"
	"time"

	"kneefinder/simulation/engine"
)

// Counts is what a replica's cache has done for the requests admitted there; blocks are the router's.
type Counts struct {
	Requests     int
	Hits         int // of them, with at least one block
	Blocks       int // of their prompts, the last perhaps not full
	BlocksReused int // of them, found
	Tokens       int // of their prompts
	TokensReused int
}

func (c *Counts) add(o Counts) {
	c.Requests += o.Requests
	c.Hits += o.Hits
	c.Blocks += o.Blocks
	c.BlocksReused += o.BlocksReused
	c.Tokens += o.Tokens
	c.TokensReused += o.TokensReused
}

// HitRate is the part of the requests that found at least one block; 0 without any.
func (c Counts) HitRate() float64 { return part(c.Hits, c.Requests) }

// BlockReuse is the part of the blocks that were found; 0 without any.
func (c Counts) BlockReuse() float64 { return part(c.BlocksReused, c.Blocks) }

func part(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func (r *replica) admitted(j *job, cached, block int) {
	c := Counts{Requests: 1, Blocks: (len(j.prompt) + block - 1) / block, BlocksReused: cached / block, Tokens: len(j.prompt), TokensReused: cached}
	if c.BlocksReused > 0 {
		c.Hits = 1
	}
	r.counts.add(c)
}

// Standing is one replica as it is.
type Standing struct {
	Role  Role
	State State
	Stats engine.Stats // counters of all engines it has had, gauges of the one it has
	Counts

	Outstanding int // requests sent there that have not ended
	Held        int // prompts computed there whose KV has not left
	Sent        int // ever, or, of a decode replica, whose KV was
	Ended       int // there
	Failed      int // with it
	HandedOff   int // prompts computed there that go on elsewhere
}

// PerReplica returns every replica as it is, by index.
func (f *Fleet) PerReplica() []Standing {
	out := make([]Standing, len(f.replicas))
	for i, r := range f.replicas {
		out[i] = Standing{Role: r.Role, State: r.state, Stats: r.stats(), Counts: r.counts, Outstanding: r.now.requests, Held: r.held,
			Sent: r.sent, Ended: r.ended, Failed: r.failed, HandedOff: r.handedOff}
	}
	return out
}

// Report is the figures of a fleet since New.
type Report struct {
	Ended     int // requests, by how:
	Finished  int
	Refused   int
	Aborted   int
	Failed    int
	Retried   int // times that a request was sent again after a failure
	Evictions int // tokens

	Counts                            // of all replicas
	HitRateLow, HitRateHigh   float64 // of a replica that has admitted any; far apart with a high HitRate: a hot spot
	ReuseLow, ReuseHigh       float64 // the same of BlockReuse
	RequestsLow, RequestsHigh int     // admitted by one replica that is no decode replica

	Transfers Transfers
	Paid      time.Duration // replica-seconds: of every replica the time in which it was not off; a failed one is paid for
	Started   int           // by autoscalers
	Drained   int           // by autoscalers

	Idle    []Event // that changed nothing, as an autoscaler had been there before; in the order they came
	Pending []Event // that have not come yet
}

// Transfers is what the links between prefill and decode replicas have carried.
type Transfers struct {
	Count     int
	Bytes     int64
	Wait      time.Duration // the sum over all, from the end of the prompt until a decode replica had a place
	WaitMax   time.Duration
	Travel    time.Duration // the sum over all, on the link, without latency
	TravelMax time.Duration
	Busy      time.Duration // of the links, the mean
	Underway  int           // now
	Waiting   int           // for a decode replica now
}

// figures is what no replica counts.
type figures struct {
	finished, refused, aborted, failed, retried int
	idle                                        []Event
	moves                                       Transfers
}

func (c *figures) ended(why engine.Reason) {
	switch why {
	case engine.Refused:
		c.refused++
	case engine.Aborted:
		c.aborted++
	case engine.Failed:
		c.failed++
	default:
		c.finished++
	}
}

func (t *Transfers) wait(d time.Duration) {
	t.Wait += d
	t.WaitMax = max(t.WaitMax, d)
}

func (t *Transfers) done(d time.Duration, bytes int64) {
	t.Count++
	t.Bytes += bytes
	t.Travel += d
	t.TravelMax = max(t.TravelMax, d)
}

// Report returns the figures as of the instant at, which must not have been passed.
func (f *Fleet) Report(at time.Duration) Report {
	c := &f.figures
	out := Report{Ended: c.finished + c.refused + c.aborted + c.failed, Finished: c.finished, Refused: c.refused, Aborted: c.aborted,
		Failed: c.failed, Retried: c.retried, Transfers: c.moves, Idle: slices.Clone(c.idle), Pending: slices.Clone(f.events)}
	first := true
	for _, r := range f.replicas {
		out.Counts.add(r.counts)
		out.Evictions += r.stats().EvictedTokens
		out.Paid += r.paid
		if r.state != Off {
			out.Paid += at - r.paidSince
		}
		if r.Role == Decode {
			continue
		}
		if first || r.counts.Requests < out.RequestsLow {
			out.RequestsLow = r.counts.Requests
		}
		out.RequestsHigh = max(out.RequestsHigh, r.counts.Requests)
		first = false
	}
	first = true
	for _, r := range f.replicas {
		if r.counts.Requests == 0 {
			continue
		}
		rate, reuse := r.counts.HitRate(), r.counts.BlockReuse()
		if first {
			out.HitRateLow, out.ReuseLow = rate, reuse
		}
		first = false
		out.HitRateLow, out.HitRateHigh = min(out.HitRateLow, rate), max(out.HitRateHigh, rate)
		out.ReuseLow, out.ReuseHigh = min(out.ReuseLow, reuse), max(out.ReuseHigh, reuse)
	}
	for i := range f.links {
		l := &f.links[i]
		busy := l.busy
		if len(l.flows) > 0 {
			busy += at - l.since
		}
		out.Transfers.Busy += busy
		out.Transfers.Underway += len(l.flows)
	}
	if f.config.Handoff.PerReplica && len(f.links) > 0 {
		n := 0
		for _, r := range f.replicas {
			if r.Role == Prefill {
				n++
			}
		}
		out.Transfers.Busy /= time.Duration(n)
	}
	out.Transfers.Waiting = f.parcels.len()
	for i := range f.scalers {
		out.Started += f.scalers[i].added
		out.Drained += f.scalers[i].taken
	}
	return out
}

// Stats returns the sums of the replicas' gauges and counters; what waits for a replica at the router counts as waiting. The largest
// number of running requests, and the other peaks, are those of any replica.
func (f *Fleet) Stats() engine.Stats { return f.sum(nil, engine.Stats{}) }

// sum is Stats with what is given in place of the engine of one replica.
func (f *Fleet) sum(given *replica, s engine.Stats) (sum engine.Stats) {
	for _, r := range f.replicas {
		addStats(&sum, r.gone, true)
		switch {
		case r == given:
			addStats(&sum, s, false)
		case r.member != nil && r.state != Off:
			addStats(&sum, r.member.Stats(), false)
		}
	}
	sum.Waiting += f.inputs.jobs + f.queue.len()
	return sum
}

// stats is the sum of all engines that r has had.
func (r *replica) stats() engine.Stats {
	s := r.gone
	if r.member != nil {
		addStats(&s, r.member.Stats(), false)
	}
	return s
}

// gauges are the fields of engine.Stats that are as of now; of engines that are gone they do not count. All others are counters.
var gauges = []string{"Running", "Waiting", "KVPoolBytes", "KVUsedBytes", "KVCachedBytes", "KVPoolTokens", "KVUsedTokens", "KVCachedTokens",
	"KVFreeTokens", "WindowUsedTokens", "WindowCachedTokens", "WindowFreeTokens", "DecodeBatch", "GenThroughput", "HostTokens"}

// peaks are the fields of which a fleet's is the largest of any replica.
var peaks = []string{"MaxRunningSeen", "MaxBatch", "KVPeakBytes", "KVPeakTokens", "WindowPeakTokens"}

// ResetPeaks begins the replicas' peaks anew with what is now.
func (f *Fleet) ResetPeaks() {
	for _, r := range f.replicas {
		r.gone.MaxBatch, r.gone.KVPeakBytes, r.gone.KVPeakTokens, r.gone.WindowPeakTokens = 0, 0, 0, 0
		if m, ok := r.member.(interface{ ResetPeaks() }); ok {
			m.ResetPeaks()
		}
	}
}

// statsFields says of every field whether it is a gauge, and whether it is a peak.
var statsFields = func() (out []struct{ gauge, peak bool }) {
	t := reflect.TypeFor[engine.Stats]()
	for i := range t.NumField() {
		name := t.Field(i).Name
		out = append(out, struct{ gauge, peak bool }{slices.Contains(gauges, name), slices.Contains(peaks, name)})
	}
	return out
}()

// addStats adds s, or its counters alone, to sum.
func addStats(sum *engine.Stats, s engine.Stats, counters bool) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(&s).Elem()
	for i, kind := range statsFields {
		switch a, b := to.Field(i), from.Field(i); {
		case counters && kind.gauge:
		case kind.peak:
			a.SetInt(max(a.Int(), b.Int()))
		case a.CanFloat():
			a.SetFloat(a.Float() + b.Float())
		default:
			a.SetInt(a.Int() + b.Int())
		}
	}
}
