package clock

import (
	"context"
	"sync"
	"time"
)

// Wall is real time from the monotonic clock. In a testing/synctest bubble it is the bubble's time.
type Wall struct {
	start time.Time
	fine  *pacer // nil for a plain clock
	wg    sync.WaitGroup
}

// paceBelow is how much of a fine sleep is left to the pacer: more than a timer is ever late on an idle machine.
const paceBelow = 1500 * time.Microsecond

// NewWall returns a clock that starts now.
func NewWall() *Wall { return &Wall{start: time.Now()} }

// NewWallAt returns a clock whose instant 0 is at the wall time start: in the past for a run that is gone on with, in the
// future for one that is to begin together with others. From here on it follows the monotonic clock.
func NewWallAt(start time.Time) *Wall {
	now := time.Now()
	return &Wall{start: now.Add(start.Sub(now))}
}

// Fine makes sleeps end within about a tenth of a millisecond of their instant, at the price of a thread that sleeps in
// the kernel, by short stretches, while a sleep is about to end. It returns w. In a synctest bubble time is exact anyway, and a kernel
// does not know the bubble's time: it must not be used there.
func (w *Wall) Fine() *Wall {
	w.fine = &pacer{}
	return w
}

// Now is the time since NewWall.
func (w *Wall) Now() time.Duration { return time.Since(w.start) }

// Started is the wall time at instant 0.
func (w *Wall) Started() time.Time { return w.start }

// SleepUntil sleeps to the absolute instant, so that lateness does not add up.
func (w *Wall) SleepUntil(ctx context.Context, at time.Duration) error {
	left := at - w.Now()
	if left <= 0 {
		return ctx.Err()
	}
	if w.fine != nil {
		left -= paceBelow
	}
	if left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if w.fine != nil {
		w.fine.wait(at, w.Now)
		return ctx.Err()
	}
	return nil
}

// Go starts a goroutine that Wait waits for.
func (w *Wall) Go(_ string, process func()) { w.wg.Go(process) }

// Wait returns when every process has ended.
func (w *Wall) Wait() { w.wg.Wait() }

// NewEvent returns an event that has not happened.
func (w *Wall) NewEvent() Event { return &wallEvent{clock: w, done: make(chan struct{})} }

// WithCancelCause is context.WithCancelCause.
func (w *Wall) WithCancelCause(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(ctx)
}

type wallEvent struct {
	clock *Wall
	once  sync.Once
	done  chan struct{}
}

func (e *wallEvent) Set() { e.once.Do(func() { close(e.done) }) }

func (e *wallEvent) Wait(ctx context.Context) error {
	select {
	case <-e.done:
		return nil
	default:
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *wallEvent) WaitUntil(ctx context.Context, at time.Duration) bool {
	select {
	case <-e.done:
		return true
	default:
	}
	t := time.NewTimer(at - e.clock.Now())
	defer t.Stop()
	select {
	case <-e.done:
		return true
	case <-t.C:
		return false
	case <-ctx.Done():
		return false
	}
}
