package openai

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"kneefinder/generator"
	"kneefinder/measurement"
)

// The causes with which a watch cancels a turn.
var (
	errTTFT    = errors.New("no token within the limit")
	errIdle    = errors.New("silent for longer than the limit")
	errTotal   = errors.New("not finished within the limit")
	errLeft    = errors.New("the rest of the answer was not waited for")
	errReturns = errors.New("the turn is over")
)

// watch cancels a turn that breaks a limit. One timer serves all limits, and a read only notes its instant: when the timer
// fires early, because reads came since, it is set anew.
type watch struct {
	read   atomic.Int64 // the instant of the last read of the stream; Never before the first
	clk    Clock
	limits generator.Limits
	cancel context.CancelCauseFunc
	sent   time.Duration

	mu    sync.Mutex
	timer *time.Timer
	token bool          // a token was read
	leave time.Duration // when to stop waiting for what follows the answer's end; 0 is not yet
	over  bool
}

// start begins the watch of a turn.
func (w *watch) start(clk Clock, limits generator.Limits, sent time.Duration, cancel context.CancelCauseFunc) {
	w.clk, w.limits, w.sent, w.cancel = clk, limits, sent, cancel
	w.read.Store(int64(measurement.Never))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set(sent)
}

// nextEnd is when the turn ends if nothing more comes, and why; cause is nil when it never does.
func (w *watch) nextEnd() (at time.Duration, cause error) {
	if w.leave > 0 {
		return w.leave, errLeft
	}
	sooner := func(on bool, limit, from time.Duration, why error) {
		if on && limit > 0 && (cause == nil || from+limit < at) {
			at, cause = from+limit, why
		}
	}
	sooner(!w.token, w.limits.TTFT, w.sent, errTTFT)
	read := time.Duration(w.read.Load())
	sooner(read >= 0, w.limits.Idle, read, errIdle)
	sooner(true, w.limits.Total, w.sent, errTotal)
	return at, cause
}

// set sets the timer; the caller holds the lock.
func (w *watch) set(now time.Duration) {
	at, cause := w.nextEnd()
	switch {
	case cause == nil || w.over:
	case w.timer == nil:
		w.timer = time.AfterFunc(at-now, w.fire)
	default:
		w.timer.Reset(at - now)
	}
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	at, cause := w.nextEnd()
	if now := w.clk.Now(); cause == nil || now < at {
		w.set(now)
		return
	}
	w.over = true
	w.cancel(cause)
}

// hears notes a read of the stream.
func (w *watch) hears(now time.Duration) {
	if w.read.Swap(int64(now)) < 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.set(now)
	}
}

// hearsToken notes that a token was read.
func (w *watch) hearsToken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = true
}

// leaveAt replaces all limits by one instant.
func (w *watch) leaveAt(now, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave = at
	w.set(now)
}

// stop ends the watch.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
