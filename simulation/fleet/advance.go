package fleet

import (
	"time"

	"kneefinder/simulation/engine"
)

// AdvanceTo does everything that happens up to and including the instant at, and tells s, which may be nil. An engine.BurstSink is
// told of tokens out of order where it does not matter: between two instants at which anything but tokens happens anywhere in the
// fleet, the tokens of one replica may all come before those of another. Any other sink is told everything in the order of instants. A
// sink that is an engine.Watcher or a Watcher is told of steps too, and takes no bursts.
func (f *Fleet) AdvanceTo(at time.Duration, s engine.Sink) {
	if s == nil {
		s = discard{}
	}
	f.sink = s
	f.listen()
	for {
		next, settling := f.event(), f.settling()
		for _, r := range f.replicas {
			next = min(next, r.next)
		}
		switch {
		case settling < next && settling < at: // whatever is stamped at itself may still come
			f.settle(settling)
		case settling < next || next > at:
			f.sink = nil
			return
		case !f.stream(at):
			f.instant(next)
		}
	}
}

// stream lets the replicas tell all tokens before the next instant at which anything else can happen, or up to the instant at, one
// replica after the other. It reports whether there were any.
func (f *Fleet) stream(at time.Duration) (any bool) {
	if f.bursts == nil {
		return false
	}
	if quiet, _ := f.Quiet(); quiet <= at {
		at = quiet - 1
	}
	for _, r := range f.replicas {
		if r.next <= at {
			r.member.AdvanceTo(at, r.sink)
			r.look()
			any = true
		}
	}
	return any
}

// event is the next instant of what is neither a replica's nor the router's.
func (f *Fleet) event() time.Duration {
	at := f.arrivals.next()
	for i := range f.links {
		at = min(at, f.links[i].next())
	}
	if len(f.events) > 0 {
		at = min(at, f.events[0].At)
	}
	for _, r := range f.replicas {
		at = min(at, r.until)
	}
	for i := range f.scalers {
		at = min(at, f.tick(i))
	}
	return at
}

// settling is the instant behind whose events the router has something to do.
func (f *Fleet) settling() time.Duration {
	at := never
	if f.dirty {
		at = f.now
	}
	if len(f.inputs.list) > 0 {
		at = min(at, f.inputs.list[0].at)
	}
	return at
}

// instant does all that happens inside at the instant at.
func (f *Fleet) instant(at time.Duration) {
	f.refresh(at - 1)
	ticks := f.due(at)
	f.now = at
	for _, r := range f.replicas {
		if r.next == at {
			r.member.AdvanceTo(at, r.sink)
			r.look()
		}
	}
	for i := range f.links {
		for l := &f.links[i]; l.next() == at; {
			f.sent(l, at)
		}
	}
	for f.arrivals.next() == at {
		f.arrive(f.arrivals.pop(), at)
	}
	for len(f.events) > 0 && f.events[0].At == at {
		e := f.events[0]
		f.events = f.events[1:]
		f.happen(e)
	}
	for _, r := range f.replicas {
		if r.until == at {
			f.comeUp(r, at)
		}
	}
	if ticks {
		f.scale(at)
	}
	f.switchOff(at)
}

// settle does what the router has to do at the instant at, all of whose events have happened.
func (f *Fleet) settle(at time.Duration) {
	f.refresh(at)
	f.now, f.dirty = at, false
	for f.inputs.ready(at, false) {
		j := f.inputs.pop().job
		j.phase = queued
		f.queue.push(j)
	}
	f.dispatch(at)
	for f.inputs.ready(at, true) {
		in := f.inputs.pop()
		if f.open[in.id] == in.job && in.job.left {
			f.abort(in.job, at)
		}
	}
	if f.dirty { // an abort has made a place
		f.dirty = false
		f.dispatch(at)
	}
	f.forward(at)
	if f.dirty { // what has no place to go has left one
		f.dirty = false
		f.dispatch(at)
	}
	f.switchOff(at)
}

// abort ends j, or has its replica end it.
func (f *Fleet) abort(j *job, at time.Duration) {
	j.aborting = true
	switch j.phase {
	case whole, prefilling, decoding:
		r := f.replicas[j.at]
		r.member.Abort(at, j.ID)
		r.look()
		return
	case queued:
		f.queue.drop(j)
	case packed:
		f.parcels.drop(j)
		f.unload(j)
	case travelling:
		f.recall(j, at)
		f.unload(j)
	case arriving:
		f.recall(j, at)
	}
	f.end(j, at, engine.Finish{Reason: engine.Aborted})
}

// dispatch sends requests to replicas, in order, as far as there are places.
func (f *Fleet) dispatch(at time.Duration) {
	for f.queue.len() > 0 {
		j := f.queue.first()
		role := f.front()
		i, ok := f.route(j, role, at)
		if !ok {
			if !f.hopeless(role) {
				return
			}
			f.queue.drop(j)
			f.end(j, at, engine.Finish{Reason: engine.Failed, Detail: "no replica is up, and none will be"})
			continue
		}
		f.queue.drop(j)
		f.send(j, i, at)
	}
}

// front is the role of the replicas that get requests first.
func (f *Fleet) front() Role {
	if f.replicas[0].Role == Whole {
		return Whole
	}
	return Prefill
}

// send gives j to a replica.
func (f *Fleet) send(j *job, i int, at time.Duration) {
	r := f.replicas[i]
	req := j.Request
	req.Prompt, req.MaxTokens, req.Said = j.prompt, j.max, j.said()
	f.serial++
	j.phase, j.at, j.serial = whole, i, f.serial
	if r.Role == Prefill {
		j.phase, req.MaxTokens = prefilling, min(j.max, 1)
	}
	r.load(j, +1)
	r.sent++
	if f.routes != nil {
		f.routes.Routed(j.ID, at, i)
	}
	r.member.Submit(at, req)
	r.look()
}
