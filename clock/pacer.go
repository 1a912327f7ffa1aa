package clock

import (
	"container/heap"
	"sync"
	"time"
)

// pacer ends the last stretch of fine sleeps. While anybody waits, one goroutine sleeps in the kernel from deadline to
// deadline; one thread does for all, where a thread for each would make the scheduler hand processors around. The zero value
// works.
type pacer struct {
	mu      sync.Mutex
	waiting deadlines
	awake   bool // the goroutine runs
}

// slice bounds one sleep in the kernel, since a deadline may come in that is before the one slept for.
const slice = 150 * time.Microsecond

type deadline struct {
	at   time.Duration
	done chan struct{} // one value, sent when at is past; owned by who waits
}

// wait returns when now has reached at.
func (p *pacer) wait(at time.Duration, now func() time.Duration) {
	done := make(chan struct{}, 1)
	p.mu.Lock()
	heap.Push(&p.waiting, deadline{at, done})
	if !p.awake {
		p.awake = true
		go p.run(now)
	}
	p.mu.Unlock()
	<-done
}

func (p *pacer) run(now func() time.Duration) {
	for {
		p.mu.Lock()
		t := now()
		for len(p.waiting) > 0 && p.waiting[0].at <= t {
			heap.Pop(&p.waiting).(deadline).done <- struct{}{}
		}
		if len(p.waiting) == 0 {
			p.awake = false
			p.mu.Unlock()
			return
		}
		left := p.waiting[0].at - t
		p.mu.Unlock()
		nap(min(left, slice))
	}
}

// deadlines is a heap by instant.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}
