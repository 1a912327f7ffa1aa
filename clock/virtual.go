package clock

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math"
	"sort"
	"strings"
	"time"
)

// Source is a model that lives in virtual time: the clock asks when something next happens inside and lets it work up to
// there. AdvanceTo may Set events.
type Source interface {
	Next() (at time.Duration, ok bool)
	AdvanceTo(at time.Duration)
}

// Virtual is time that jumps to what happens next: the earlier of the earliest sleeper and the earliest of its sources.
// Processes are coroutines; one runs at a time, in the order in which they became ready, so that the same input gives the
// same run to the last bit. At one instant sources work before sleepers wake. A Virtual and its events belong to the
// processes that Run runs; nothing else may call them meanwhile.
type Virtual struct {
	now      time.Duration
	sources  []Source
	ready    []*process
	sleepers sleepers
	waiting  map[*process]struct{} // blocked on an event or asleep; for cancellation and for the message of a deadlock
	current  *process
	order    uint64
	canceled bool // a context of ours has ended since the waiters were last looked at
}

type process struct {
	name   string
	born   uint64
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	ctx    context.Context
	event  *virtualEvent
	at     time.Duration // math.MaxInt64 when it waits for no instant
	seq    uint64        // tells this sleep from an earlier one of the same process
	index  int           // in sleepers, -1 when not there
	reason wakeReason
}

// stopped unwinds a process that will never be woken.
type stopped struct{}

type wakeReason int

const (
	byTime wakeReason = iota
	byEvent
	byCancel
)

// NewVirtual returns a clock at instant 0.
func NewVirtual(sources ...Source) *Virtual {
	return &Virtual{sources: sources, waiting: map[*process]struct{}{}}
}

// Now is the current instant.
func (v *Virtual) Now() time.Duration { return v.now }

// Go makes a process ready; it first runs when the ones ready before it have waited or ended.
func (v *Virtual) Go(name string, f func()) {
	v.order++
	p := &process{name: name, born: v.order, index: -1}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer func() {
			if r := recover(); r != nil && r != any(stopped{}) {
				panic(r)
			}
		}()
		f()
	})
	v.ready = append(v.ready, p)
}

// Run runs main and every process that comes of it to the end. When ctx ends, by whatever means, waits with contexts derived
// from it end too, at the next jump. Run panics, naming the processes, when all of them wait and nothing is to come.
func (v *Virtual) Run(ctx context.Context, main func()) {
	ended := false
	v.Go("main", main)
	for {
		for len(v.ready) > 0 {
			p := v.ready[0]
			v.ready = v.ready[1:]
			v.current = p
			_, alive := p.next()
			v.current = nil
			if alive && p.event == nil && p.index < 0 {
				panic("clock: process " + p.name + " yielded without waiting")
			}
			if v.canceled {
				v.wakeCanceled()
			}
		}
		if !ended && ctx.Err() != nil {
			ended = true
			v.wakeCanceled()
			continue
		}
		if len(v.waiting) == 0 {
			return
		}
		at := time.Duration(math.MaxInt64)
		if len(v.sleepers) > 0 {
			at = v.sleepers[0].at
		}
		for _, s := range v.sources {
			if next, ok := s.Next(); ok && next < at {
				at = next
			}
		}
		if at == math.MaxInt64 {
			names := v.names()
			for p := range v.waiting {
				p.stop()
			}
			panic("clock: nothing is to come, and these processes wait: " + names)
		}
		v.now = max(v.now, at)
		for _, s := range v.sources {
			s.AdvanceTo(v.now)
		}
		for len(v.sleepers) > 0 && v.sleepers[0].at <= v.now {
			v.wake(v.sleepers[0], byTime)
		}
	}
}

func (v *Virtual) names() string {
	var names []string
	for p := range v.waiting {
		names = append(names, p.name)
	}
	sort.Strings(names)
	if n := len(names); n > 10 {
		names = append(names[:10], fmt.Sprintf("and %d more", n-10))
	}
	return strings.Join(names, ", ")
}

// wait parks the running process until the instant, the event or the end of ctx.
func (v *Virtual) wait(ctx context.Context, event *virtualEvent, at time.Duration) wakeReason {
	p := v.current
	if p == nil {
		panic("clock: a wait outside the processes of Run")
	}
	if ctx.Err() != nil {
		return byCancel
	}
	p.ctx, p.event, p.at = ctx, event, at
	v.waiting[p] = struct{}{}
	if event != nil {
		event.waiters = append(event.waiters, p)
	}
	if at != math.MaxInt64 {
		v.order++
		p.seq = v.order
		heap.Push(&v.sleepers, p)
	}
	if !p.yield(struct{}{}) {
		panic(stopped{})
	}
	return p.reason
}

func (v *Virtual) wake(p *process, why wakeReason) {
	if p.index >= 0 {
		heap.Remove(&v.sleepers, p.index)
	}
	if p.event != nil && why != byEvent {
		p.event.forget(p)
	}
	delete(v.waiting, p)
	p.event, p.ctx, p.reason = nil, nil, why
	v.ready = append(v.ready, p)
}

func (v *Virtual) wakeCanceled() {
	v.canceled = false
	var ended []*process
	for p := range v.waiting {
		if p.ctx.Err() != nil {
			ended = append(ended, p)
		}
	}
	sort.Slice(ended, func(i, j int) bool { return ended[i].born < ended[j].born })
	for _, p := range ended {
		v.wake(p, byCancel)
	}
}

// SleepUntil parks the process; see Clock.
func (v *Virtual) SleepUntil(ctx context.Context, at time.Duration) error {
	if at <= v.now {
		return ctx.Err()
	}
	if v.wait(ctx, nil, at) == byCancel {
		return ctx.Err()
	}
	return nil
}

// NewEvent returns an event that has not happened.
func (v *Virtual) NewEvent() Event { return &virtualEvent{clock: v} }

// WithCancelCause derives a context whose cancel function also wakes the processes that wait with it, or with a context
// derived from it, at the current instant.
func (v *Virtual) WithCancelCause(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) {
		cancel(cause)
		v.canceled = true
	}
}

type virtualEvent struct {
	clock   *Virtual
	set     bool
	waiters []*process
}

func (e *virtualEvent) Set() {
	if e.set {
		return
	}
	e.set = true
	for _, p := range e.waiters {
		e.clock.wake(p, byEvent)
	}
	e.waiters = nil
}

func (e *virtualEvent) forget(p *process) {
	for i, w := range e.waiters {
		if w == p {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			return
		}
	}
}

func (e *virtualEvent) Wait(ctx context.Context) error {
	if e.set {
		return nil
	}
	if e.clock.wait(ctx, e, math.MaxInt64) == byCancel {
		return ctx.Err()
	}
	return nil
}

func (e *virtualEvent) WaitUntil(ctx context.Context, at time.Duration) bool {
	if e.set || at <= e.clock.now {
		return e.set
	}
	return e.clock.wait(ctx, e, at) == byEvent
}

// sleepers is a heap by (instant, order of falling asleep).
type sleepers []*process

func (s sleepers) Len() int { return len(s) }
func (s sleepers) Less(i, j int) bool {
	if s[i].at != s[j].at {
		return s[i].at < s[j].at
	}
	return s[i].seq < s[j].seq
}
func (s sleepers) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
func (s *sleepers) Push(x any) {
	p := x.(*process)
	p.index = len(*s)
	*s = append(*s, p)
}
func (s *sleepers) Pop() any {
	old := *s
	p := old[len(old)-1]
	*s = old[:len(old)-1]
	p.index = -1
	return p
}
