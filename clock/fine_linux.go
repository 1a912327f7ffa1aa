package clock

import (
	"syscall"
	"time"
)

// nap sleeps in the kernel: a goroutine's timer is up to a millisecond late when the process is idle, because the scheduler
// waits for network and timers with a millisecond's resolution.
func nap(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}
