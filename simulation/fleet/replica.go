package fleet

import (
	"fmt"
	"time"

	"kneefinder/simulation/engine"
)

// State is what a replica is up to.
type State string

// The states.
const (
	Up       State = "up"
	Starting State = "starting" // takes nothing until it is up
	Draining State = "draining" // takes nothing, and is off when all it has has ended
	Off      State = "off"
	Down     State = "failed"
)

// replica is a Replica and what the fleet knows of it.
type replica struct {
	Replica
	index  int
	member Member
	state  State
	until  time.Duration // when the state changes by itself

	next, calm time.Duration // of the member: Next and Quiet

	now, seen load // as it is, and as of the router's last snapshot
	held      int  // prompts computed here whose KV has not left
	fresh     []fresh

	relay relays
	sink  engine.Sink // the one of them in use

	step    engine.Step // the last, for an engine.Watcher
	resting bool

	sent, ended, failed, handedOff int
	counts                         Counts
	gone                           engine.Stats // of engines that it had before
	paid, paidSince                time.Duration
}

// attach puts an engine into its place.
func (r *replica) attach(m Member) {
	r.member, r.resting = m, true
	r.look()
}

// detach lets the engine of r go, with all that it has cached.
func (f *Fleet) detach(r *replica, at time.Duration) {
	addStats(&r.gone, r.member.Stats(), true)
	r.member, r.next, r.calm, r.fresh = nil, never, never, nil
	f.rest(r, at, r.gone)
}

// look asks the member what comes next, after anything that may have changed it.
func (r *replica) look() {
	var ok bool
	if r.next, ok = r.member.Next(); !ok {
		r.next = never
	}
	if r.calm, ok = r.member.Quiet(); !ok {
		r.calm = never
	}
}

// weigh is the tokens of j that count at r.
func (r *replica) weigh(j *job) int {
	if r.Role == Prefill {
		return len(j.prompt) - j.found
	}
	return len(j.prompt) - j.found + j.max
}

// load counts j in (sign 1) or out.
func (r *replica) load(j *job, sign int) {
	r.now.requests += sign
	r.now.tokens += sign * r.weigh(j)
}

// fail loses a replica, and with it its cache, for a while.
func (f *Fleet) fail(r *replica, at, lasts time.Duration) {
	if r.state == Off || r.state == Down {
		return // there is nothing to fail
	}
	if r.state == Draining {
		f.leaving--
	}
	lost := f.onBoard(r.index)
	if r.member != nil {
		f.detach(r, at)
	}
	r.state, r.until = Down, never
	if lasts > 0 {
		r.until = at + lasts
	}
	f.dirty = true
	for _, j := range lost {
		f.lose(j, r, at)
	}
}

// lose finds out what becomes of a request that r had a part in when it failed.
func (f *Fleet) lose(j *job, r *replica, at time.Duration) {
	switch j.phase {
	case whole, prefilling, decoding:
		r.load(j, -1)
	case packed:
		f.parcels.drop(j)
		f.unload(j)
	case travelling:
		f.recall(j, at)
		if j.at != r.index { // the KV is still where it was
			f.repack(j, at)
			return
		}
		f.unload(j)
	case arriving:
		f.recall(j, at)
	}
	switch {
	case j.aborting:
		f.end(j, at, engine.Finish{Reason: engine.Aborted})
	case f.config.Retry == Resume, f.config.Retry == Fresh && j.told == 0:
		f.figures.retried++
		f.again(j)
	default:
		r.failed++
		f.end(j, at, engine.Finish{Reason: engine.Failed, Detail: fmt.Sprintf("replica %d failed", r.index)})
	}
}

// again puts j into the router's queue, the tokens it has told behind its prompt.
func (f *Fleet) again(j *job) {
	if j.told > 0 {
		seed := engine.ReplySeed(j.Prompt[:len(j.Prompt)-j.Said])
		j.prompt = append(make([]engine.Token, 0, len(j.Prompt)+j.told), j.Prompt...)
		for n := range j.told {
			j.prompt = append(j.prompt, engine.ReplyToken(seed, j.Said+n))
		}
		j.max = j.MaxTokens - j.told
	}
	j.Handoff = false // what had come with it is gone
	j.phase, j.at, j.to, j.found, j.fresh = queued, nowhere, nowhere, 0, false
	f.queue.push(j)
	f.dirty = true
}

// start begins the start-up of a replica, or keeps one that was about to leave.
func (f *Fleet) start(r *replica, at time.Duration) {
	switch r.state {
	case Draining:
		f.leaving--
		r.state = Up
		f.dirty = true
		return
	case Up, Starting:
		return
	case Off:
		r.paidSince = at
	}
	r.state, r.until = Starting, at+f.config.StartUp
	if f.config.StartUp == 0 {
		f.comeUp(r, at)
	}
}

// comeUp makes a replica take requests.
func (f *Fleet) comeUp(r *replica, _ time.Duration) {
	r.state, r.until = Up, never
	if r.member == nil {
		m, err := r.New()
		if err != nil {
			panic(fmt.Sprintf("fleet: replica %d could be made before, and cannot now: %v", r.index, err))
		}
		r.attach(m)
	}
	f.dirty = true
}

// drain lets a replica end what it has, and no more.
func (f *Fleet) drain(r *replica, at time.Duration) {
	switch r.state {
	case Up:
		r.state = Draining
		f.leaving++
		f.dirty = true // those that wait may have nobody to wait for any more
	case Starting:
		f.leave(r, at)
	}
}

// switchOff ends the replicas that have drained.
func (f *Fleet) switchOff(at time.Duration) {
	for i := 0; f.leaving > 0 && i < len(f.replicas); i++ {
		if r := f.replicas[i]; r.state == Draining && r.now.requests == 0 && r.held == 0 {
			f.leaving--
			f.leave(r, at)
		}
	}
}

func (f *Fleet) leave(r *replica, at time.Duration) {
	if r.member != nil {
		f.detach(r, at)
	}
	r.state, r.until = Off, never
	r.paid += at - r.paidSince
	f.dirty = f.dirty || f.queue.len()+f.parcels.len() > 0
}

// hopeless reports whether no replica of a role is up or will be.
func (f *Fleet) hopeless(role Role) bool {
	off := false
	for _, r := range f.replicas {
		if r.Role != role {
			continue
		}
		if r.state == Up || r.until < never {
			return false
		}
		off = off || r.state == Off || r.state == Draining
	}
	for _, e := range f.events {
		if e.Kind == Start && f.replicas[e.Replica].Role == role {
			return false
		}
	}
	for i := range f.scalers {
		if f.scalers[i].Role == role && off {
			return false
		}
	}
	return true
}
