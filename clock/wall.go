package clock

import (
	"context"
	"sync"
	"time"
)

// Wall is real time from the monotonic clock. In a testing/synctest bubble it is the bubble's time.
type Wall struct {
	start time.Time
	wg    sync.WaitGroup
}

// NewWall returns a clock that starts now.
func NewWall() *Wall { return &Wall{start: time.Now()} }

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
	t := time.NewTimer(left)
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
