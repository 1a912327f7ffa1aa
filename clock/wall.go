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

// timed is how long of a fine sleep a timer may cover. The runtime waits for timers in epoll_wait, whose kernel timer may be late
// by a thousandth of the time-out (select_estimate_accuracy, at most 100 ms): a wait of half a minute would end 30 ms late. So
// twice that is kept back each time, and slept for in turn.
func timed(left time.Duration) time.Duration { return left - max(paceBelow, left/500) }

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
	if w.fine == nil {
		return w.sleep(ctx, at-w.Now())
	}
	for {
		left := at - w.Now()
		if left <= 0 {
			return ctx.Err()
		}
		d := timed(left)
		if d <= 0 {
			w.fine.wait(at, w.Now)
			return ctx.Err()
		}
		if err := w.sleep(ctx, d); err != nil {
			return err
		}
	}
}

// sleep is one timer's.
func (w *Wall) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
