// Package fleet is several engines behind a router, with the verbs of one engine: Submit, Abort, Next, AdvanceTo. It has no clock,
// lock or goroutine either.
//
// # Instants
//
// What a fleet does at an instant depends on nothing but what was submitted with which stamps, however a driver slices time and
// whether it submits before or after AdvanceTo of that instant:
//
//   - what happens inside at one instant happens in this order: the replicas' own events by index, transfers that end, KV that
//     arrives, the events of the config in its order, replicas that come up by index, autoscalers in their order;
//   - then, when all that is done and before anything later, the router takes what was stamped with the instant: requests and aborts
//     by (Call, Turn, ID), after them requests that wait for a replica, after them KV that waits for one. So it decides on all that
//     has happened up to and including the instant, and a replica gets the request with that stamp.
//
// As more may be stamped with an instant as long as it has not passed, Next gives the nanosecond behind it for the router.
//
// A fleet of one replica tells its sink, byte by byte, what the replica alone would.
//
// # Not modelled
//
// The router takes no time, and knows at once which replicas are up. KV travels when all of the prompt has been computed, not layer by
// layer before, and all of it, also what the decode replica has cached. A link has no other traffic. Two links do not meet at a decode
// replica.
package fleet

import (
	"fmt"
	"math"
	"time"

	"kneefinder/simulation/engine"
)

// Member is one engine of a fleet: *engine.Engine, or what behaves like one.
type Member interface {
	Submit(at time.Duration, r engine.Request)
	Abort(at time.Duration, id uint64)
	Next() (at time.Duration, ok bool)
	Quiet() (at time.Duration, ok bool) // the next instant at which anything but one more token of a running request can happen
	AdvanceTo(at time.Duration, s engine.Sink)
	Stats() engine.Stats
	FlushCache() bool
	Cached(prompt []engine.Token) int // tokens of a prompt that it would find in its prefix cache now
}

var _ Member = (*engine.Engine)(nil)

// Role is what a replica does of a request.
type Role string

// The roles. Either all replicas are Whole, or there are both Prefill and Decode and no others.
const (
	Whole   Role = ""        // all of it
	Prefill Role = "prefill" // its prompt and first token
	Decode  Role = "decode"  // what follows
)

// Replica is one place for an engine.
type Replica struct {
	// New makes its engine: at the start, and again, with an empty cache, whenever the replica comes up later. It makes the same
	// each time: an error the first time is New's, a later one panics.
	New func() (Member, error)

	Role   Role
	Weight float64 // capacity beside the others': the router gives twice as much to a 2 as to a 1; 0 is 1
	Off    bool    // at the start; an Event or an Autoscaler may start it
}

// Replicas is n replicas with an engine of the same config each.
func Replicas(n int, c engine.Config) []Replica {
	out := make([]Replica, n)
	for i := range out {
		out[i].New = func() (Member, error) { return engine.New(c) }
	}
	return out
}

// Config is a fleet. Default has what the zero value lacks.
type Config struct {
	Replicas []Replica
	Router   Router
	Handoff  Handoff // between Prefill and Decode replicas
	Events   []Event
	Retry    Retry
	StartUp  time.Duration // from the decision to start a replica until it takes requests
	Scale    []Autoscaler  // at most one a role
}

// Retry is what becomes of the requests of a replica that fails.
type Retry string

// The kinds of retry.
const (
	NoRetry Retry = ""       // all end as engine.Failed
	Fresh   Retry = "fresh"  // those that have told no token go to the router again, the others end as engine.Failed
	Resume  Retry = "resume" // all go to the router again; the next replica computes the prompt and the tokens told, and goes on behind them
)

// Default is a fleet without replicas whose router has the usual figures.
func Default() Config {
	return Config{Router: Router{Policy: RoundRobin, BlockTokens: 512, OverlapWeight: 1}}
}

const never = time.Duration(math.MaxInt64)

// Fleet is several engines behind a router. It belongs to one driver: no two calls may overlap. New makes one.
type Fleet struct {
	config Config
	router router
	now    time.Duration // the last instant at which something happened

	replicas []*replica
	inputs   inputs
	queue    fifo // requests that no replica can take yet
	parcels  fifo // KV that no decode replica can take yet
	links    []link
	arrivals arrivals
	events   []Event // that are still to come, by instant
	scalers  []scaler

	free   []*job // of no use any more
	serial uint64
	open   map[uint64]*job // by the driver's id, every request not finished

	dirty        bool        // at now something has changed that the router must see
	leaving      int         // replicas that drain
	sink         engine.Sink // of the AdvanceTo in progress; what else it is:
	steps        engine.Watcher
	replicaSteps Watcher
	routes       RouteWatcher
	bursts       engine.BurstSink
	figures      figures
}

// New returns an idle fleet, or says what the config lacks.
func New(c Config) (*Fleet, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f := &Fleet{config: c, open: map[uint64]*job{}, events: sorted(c.Events)}
	f.router = newRouter(c.Router, len(c.Replicas))
	for i, place := range c.Replicas {
		if place.Weight == 0 {
			place.Weight = 1
		}
		m, err := place.New()
		if err != nil {
			return nil, fmt.Errorf("replica %d: %w", i, err)
		}
		r := &replica{Replica: place, index: i, state: Up, until: never}
		r.attach(m)
		if place.Off {
			r.state = Off
		}
		r.relay = newRelay(f, r)
		f.replicas = append(f.replicas, r)
	}
	f.links = newLinks(c.Handoff, f.replicas)
	for _, a := range c.Scale {
		f.scalers = append(f.scalers, scaler{Autoscaler: a, busy: make([]time.Duration, len(c.Replicas))})
	}
	return f, nil
}

// Submit hands the router a request that arrives at the instant at. It may be called before or after AdvanceTo(at), but not after
// AdvanceTo of a later instant. A request whose ID is still here is a bug of the driver, and panics.
func (f *Fleet) Submit(at time.Duration, r engine.Request) {
	if f.open[r.ID] != nil {
		panic(fmt.Sprintf("fleet: request %d is here already", r.ID))
	}
	j := f.newJob()
	*j = job{Request: r, stamp: at, prompt: r.Prompt, max: r.MaxTokens, at: nowhere, to: nowhere}
	if r.Handoff {
		j.told = 1 // elsewhere
	}
	f.open[r.ID] = j
	f.inputs.add(at, false, j)
}

// Abort ends a request: one that a replica has when that replica would, see engine.Engine; one at the router or on its way at the
// instant at. A request that ends by itself before is not aborted, and an id that is not here is ignored.
func (f *Fleet) Abort(at time.Duration, id uint64) {
	j := f.open[id]
	if j == nil || j.left {
		return
	}
	j.left = true
	f.inputs.add(max(at, j.stamp), true, j)
}

// Next returns the instant at which something next happens inside; ok is false when nothing will without a Submit.
func (f *Fleet) Next() (at time.Duration, ok bool) {
	at = f.own()
	for _, r := range f.replicas {
		at = min(at, r.next)
	}
	return at, at < never
}

// Quiet returns the next instant at which anything but one more token of a running request can happen; ok is false when nothing
// will without a Submit.
func (f *Fleet) Quiet() (at time.Duration, ok bool) {
	at = f.own()
	for _, r := range f.replicas {
		at = min(at, r.calm)
	}
	return at, at < never
}

// own is the next instant of all that is not a replica's.
func (f *Fleet) own() time.Duration {
	at := f.event()
	if s := f.settling(); s < never {
		at = min(at, s+1)
	}
	return at
}

// FlushCache drops all cached prefixes of all replicas. While requests are in the fleet it does nothing and returns false.
func (f *Fleet) FlushCache() bool {
	if len(f.open) > 0 {
		return false
	}
	for _, r := range f.replicas {
		if r.member != nil {
			r.member.FlushCache()
		}
	}
	return true
}
