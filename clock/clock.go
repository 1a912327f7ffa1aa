// Package clock tells time and awaits it: wall time, and virtual time that jumps to what happens next.
//
// Code that waits takes a Clock and runs in processes started with Go. On Wall a process is a goroutine; on Virtual one
// process runs at a time, in a fixed order, and time moves only when all of them wait.
package clock

import (
	"context"
	"time"
)

// Clock is time since a start. Its methods may be called by every process of the clock.
type Clock interface {
	// Now is the time since the start, monotonic.
	Now() time.Duration
	// SleepUntil returns at the instant at, at once if it is past; or, with ctx's error, when ctx ends first.
	SleepUntil(ctx context.Context, at time.Duration) error
	// Go starts a process; the name stands in messages when it waits for ever.
	Go(name string, process func())
	// NewEvent returns an event that has not happened.
	NewEvent() Event
	// WithCancelCause derives a context whose end the clock's own waits notice, as context.WithCancelCause does.
	WithCancelCause(ctx context.Context) (context.Context, context.CancelCauseFunc)
}

// Event happens once, by Set; every wait, before or after, then returns.
type Event interface {
	// Set makes the event happen; again is nothing.
	Set()
	// Wait returns when the event has happened; or, with ctx's error, when ctx ends first.
	Wait(ctx context.Context) error
	// WaitUntil returns true when the event has happened, and false at the instant at or when ctx ends, whichever is first.
	WaitUntil(ctx context.Context, at time.Duration) bool
}
