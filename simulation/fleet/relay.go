package fleet

import (
	"time"

	"kneefinder/simulation/engine"
)

// Watcher is a sink that is told of steps by replica. To a sink that is an engine.Watcher and no Watcher a fleet tells every step as
// if one engine had done it: Stats, Running, Context and KVTokens are the sums, and it rests when all replicas do.
type Watcher interface {
	engine.Sink
	RouteWatcher
	Retracted(id uint64, at time.Duration, generated int) // as of an engine.Watcher
	ReplicaStepped(replica int, s engine.Step)
	ReplicaRested(replica int, at time.Duration, s engine.Stats)
}

// RouteWatcher is a sink that is told which replica a request is sent to, of its steps or not.
type RouteWatcher interface {
	// Routed is before the replica has the request, perhaps not for the first time.
	Routed(id uint64, at time.Duration, replica int)
}

// retractions is what both kinds of watchers have.
type retractions interface {
	Retracted(id uint64, at time.Duration, generated int)
}

// relay is the sink of one replica.
type relay struct {
	f *Fleet
	r *replica
}

// burstRelay takes bursts too, watchRelay steps.
type burstRelay struct{ relay }
type watchRelay struct{ relay }

// relays are the sinks of a replica, one for each kind of what its tokens go to.
type relays struct{ plain, burst, watch engine.Sink }

func newRelay(f *Fleet, r *replica) relays {
	s := relay{f, r}
	return relays{plain: s, burst: burstRelay{s}, watch: watchRelay{s}}
}

// listen finds out what the sink is.
func (f *Fleet) listen() {
	f.replicaSteps, _ = f.sink.(Watcher)
	f.routes, _ = f.sink.(RouteWatcher)
	f.steps, f.bursts = nil, nil
	if f.replicaSteps == nil {
		f.steps, _ = f.sink.(engine.Watcher)
	}
	watch := f.replicaSteps != nil || f.steps != nil
	if !watch { // steps come in order, and so does all else then
		f.bursts, _ = f.sink.(engine.BurstSink)
	}
	for _, r := range f.replicas {
		switch {
		case watch:
			r.sink = r.relay.watch
		case f.bursts != nil:
			r.sink = r.relay.burst
		default:
			r.sink = r.relay.plain
		}
	}
}

// Admitted is for the replica.
func (s relay) Admitted(id uint64, at time.Duration, cached int) {
	j := s.f.open[id]
	if j.phase != decoding {
		s.r.load(j, -1)
		j.found, j.fresh = cached, true
		s.r.load(j, +1)
		s.r.admitted(j, cached, s.f.router.BlockTokens)
	}
	if j.admitted {
		return
	}
	j.admitted, j.cached = true, cached
	s.f.sink.Admitted(id, at, cached)
}

// Tokens is for the replica.
func (s relay) Tokens(id uint64, at time.Duration, n int) {
	j := s.f.open[id]
	if j.fresh { // the first one here: the prompt has been computed
		s.learn(j, j.found)
	}
	if j.phase == prefilling && j.max > 1 && s.f.config.Handoff.HoldFirst {
		return
	}
	j.told += n
	s.f.sink.Tokens(id, at, n)
}

// Burst is for the replica.
func (s burstRelay) Burst(ids []uint64, ats []time.Duration) {
	for _, id := range ids {
		j := s.f.open[id]
		if j.fresh {
			s.learn(j, j.found)
		}
		j.told += len(ats)
	}
	s.f.bursts.Burst(ids, ats)
}

// learn notes that the cache has more than the first had tokens of j, which the router does not know yet: see fresh.
func (s relay) learn(j *job, had int) {
	if s.f.router.Staleness > 0 && s.f.router.Policy == KV {
		s.r.fresh = append(s.r.fresh, fresh{j.prompt, had})
	}
	j.fresh = false
}

// Finished is for the replica.
func (s relay) Finished(id uint64, at time.Duration, how engine.Finish) {
	f, j := s.f, s.f.open[id]
	s.r.load(j, -1)
	if how.Reason == engine.Length {
		s.learn(j, len(j.prompt))
	}
	if f.queue.len()+f.parcels.len() > 0 {
		f.dirty = true
	}
	if j.phase == prefilling && how.Reason == engine.Length && j.max > 1 {
		if !j.aborting {
			f.pack(j, at)
			return
		}
		how = engine.Finish{Reason: engine.Aborted}
	}
	s.r.ended++
	f.end(j, at, how)
}

// Retracted is for the replica.
func (s watchRelay) Retracted(id uint64, at time.Duration, generated int) {
	s.f.sink.(retractions).Retracted(id, at, generated)
}

// Stepped is for the replica.
func (s watchRelay) Stepped(step engine.Step) {
	if s.f.replicaSteps != nil {
		s.f.replicaSteps.ReplicaStepped(s.r.index, step)
		return
	}
	s.r.step, s.r.resting = step, false
	s.r.step.Parts = nil // the engine's
	for _, r := range s.f.replicas {
		if r != s.r && !r.resting {
			step.Running += r.step.Running
			step.Context += r.step.Context
			step.KVTokens += r.step.KVTokens
		}
	}
	step.Stats = s.f.sum(s.r, step.Stats)
	s.f.steps.Stepped(step)
}

// Rested is for the replica.
func (s watchRelay) Rested(at time.Duration, stats engine.Stats) { s.f.rest(s.r, at, stats) }

// rest tells a watcher that nothing runs at r.
func (f *Fleet) rest(r *replica, at time.Duration, stats engine.Stats) {
	r.resting = true
	switch {
	case f.replicaSteps != nil:
		f.replicaSteps.ReplicaRested(r.index, at, stats)
	case f.steps != nil:
		for _, other := range f.replicas {
			if !other.resting {
				return
			}
		}
		if r.member == nil { // it is gone, and counted already
			r = nil
		}
		f.steps.Rested(at, f.sum(r, stats))
	}
}

type discard struct{}

func (discard) Admitted(uint64, time.Duration, int)           {}
func (discard) Tokens(uint64, time.Duration, int)             {}
func (discard) Finished(uint64, time.Duration, engine.Finish) {}
func (discard) Burst([]uint64, []time.Duration)               {}
