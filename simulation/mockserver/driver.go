package mockserver

import (
	"math"
	"sync"
	"time"

	"kneefinder/simulation/engine"
)

// driver runs an engine on the wall: one mutex, and one timer that is armed for the engine's next instant. A late timer makes
// its tokens late; the instants after it stay where the engine put them.
type driver struct {
	now    func() time.Duration
	closed chan struct{}

	mu     sync.Mutex // guards what follows; never held while waiting for anything but itself
	engine Engine
	timer  *time.Timer
	open   map[uint64]*stream // requests that have not finished
	lastID uint64
}

func newDriver(now func() time.Duration, eng Engine) *driver {
	d := &driver{now: now, engine: eng, closed: make(chan struct{}), open: map[uint64]*stream{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(math.MaxInt64, d.tick)
	d.arm()
	return d
}

// step brings the engine up to now, lets do change it at that instant, and waits for what comes next. It reports whether the
// driver is still open.
func (d *driver) step(do func(at time.Duration)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
		return false
	default:
	}
	at := d.now()
	d.engine.AdvanceTo(at, d)
	if do != nil {
		do(at)
	}
	d.arm()
	return true
}

func (d *driver) tick() { d.step(nil) }

// arm sets the timer for the engine's next instant. An instant that has passed fires at once.
func (d *driver) arm() {
	if next, ok := d.engine.Next(); ok {
		d.timer.Reset(next - d.now())
	} else {
		d.timer.Stop()
	}
}

// submit gives the engine a request, stamped now. It chooses the ID, and for a request without a turn of its own Call and Turn:
// the order of arrival, behind all calls that have a number.
func (d *driver) submit(r engine.Request, named bool) (s *stream, ok bool) {
	const strangers = 1 << 30
	s = &stream{wake: make(chan struct{}, 1)}
	ok = d.step(func(at time.Duration) {
		d.lastID++
		r.ID, s.id = d.lastID, d.lastID
		if !named {
			r.Call, r.Turn = strangers+int(d.lastID), 1
		}
		d.open[s.id] = s
		d.engine.Submit(at, r)
	})
	return s, ok
}

// abort takes a request back, unless it has finished.
func (d *driver) abort(s *stream) {
	d.step(func(at time.Duration) {
		if d.open[s.id] != nil {
			delete(d.open, s.id)
			d.engine.Abort(at, s.id)
		}
	})
}

func (d *driver) flushCache() (flushed, ok bool) {
	ok = d.step(func(time.Duration) { flushed = d.engine.FlushCache() })
	return flushed, ok
}

func (d *driver) stats() engine.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Stats()
}

func (d *driver) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
	default:
		close(d.closed)
		d.timer.Stop() // a tick that waits for the mutex finds the driver closed
	}
}

// The driver is the engine's sink. The engine tells of aborted requests too; they are no longer open.

func (d *driver) Admitted(uint64, time.Duration, int) {}

func (d *driver) Tokens(id uint64, _ time.Duration, n int) {
	if s := d.open[id]; s != nil {
		s.tell(func(p *progress) { p.tokens += n })
	}
}

func (d *driver) Finished(id uint64, _ time.Duration, f engine.Finish) {
	if s := d.open[id]; s != nil {
		delete(d.open, id)
		s.tell(func(p *progress) { p.done, p.finish = true, f })
	}
}

// stream is the mailbox between the engine and the handler of one request: the engine never waits for the handler.
type stream struct {
	id   uint64
	wake chan struct{} // holds one when progress has changed since it was last empty

	mu       sync.Mutex
	progress progress
}

// progress is how far a request has come.
type progress struct {
	tokens int // generated so far
	done   bool
	finish engine.Finish // when done
}

func (s *stream) tell(change func(*progress)) {
	s.mu.Lock()
	change(&s.progress)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) read() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}
