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
	routes bool // the engine is a Fleet, which says where requests go
	timer  *time.Timer
	open   map[uint64]*stream // requests that have not finished
	lastID uint64
	book   book
}

func newDriver(now func() time.Duration, eng Engine, b book) *driver {
	d := &driver{now: now, engine: eng, closed: make(chan struct{}), open: map[uint64]*stream{}, book: b}
	_, d.routes = eng.(Fleet)
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
func (d *driver) submit(r engine.Request, named bool, acc account) (s *stream, ok bool) {
	const strangers = 1 << 30
	s = &stream{wake: make(chan struct{}, 1), account: acc}
	s.account.prompt, s.account.most, s.account.waiting = len(r.Prompt), r.MaxTokens, true
	ok = d.step(func(at time.Duration) {
		d.lastID++
		r.ID, s.id = d.lastID, d.lastID
		if !named {
			r.Call, r.Turn = strangers+int(d.lastID), 1
		}
		d.open[s.id] = s
		s.account.arrived = at
		d.engine.Submit(at, r)
		if !d.routes {
			d.book.routed(&s.account, at)
		}
	})
	return s, ok
}

// abort takes a request back, unless it has finished.
func (d *driver) abort(s *stream) {
	d.step(func(at time.Duration) {
		if d.open[s.id] != nil {
			s.account.left = true
			d.engine.Abort(at, s.id)
			d.book.hungUp(&s.account)
		}
	})
}

func (d *driver) flushCache() (flushed, ok bool) {
	ok = d.step(func(at time.Duration) {
		if flushed = d.engine.FlushCache(); flushed {
			for i, s := range replicaStats(d.engine) {
				d.book.rested(i, at, s)
			}
		}
	})
	return flushed, ok
}

// figures is what the server's metrics show now.
func (d *driver) figures() (f figures, ok bool) {
	ok = d.step(func(at time.Duration) { f = d.book.snapshot(at, replicaStats(d.engine)) })
	return f, ok
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

// The driver is the engine's sink, and its watcher. The engine tells of aborted requests until they end, when nobody listens.

func (d *driver) Admitted(id uint64, at time.Duration, cached int) {
	if s := d.open[id]; s != nil {
		s.account.waiting, s.account.scheduled, s.account.cached = false, at, cached
		d.book.admitted(&s.account, at, cached)
	}
}

func (d *driver) Tokens(id uint64, at time.Duration, n int) {
	if s := d.open[id]; s != nil {
		s.account.waiting = false
		s.account.told += n
		d.book.tokens(&s.account, at, n)
		s.tell(func(p *progress) { p.tokens += n })
	}
}

func (d *driver) Finished(id uint64, at time.Duration, f engine.Finish) {
	if s := d.open[id]; s != nil {
		delete(d.open, id)
		d.book.finished(&s.account, at, f)
		s.tell(func(p *progress) { p.done, p.finish = true, f })
	}
}

func (d *driver) Retracted(id uint64, _ time.Duration, generated int) {
	if s := d.open[id]; s != nil {
		s.account.waiting = true
		s.account.retractions++
		s.account.untold++
		d.book.retracted(&s.account, generated)
	}
}

func (d *driver) Stepped(s engine.Step) { d.book.stepped(0, &s) }

func (d *driver) Rested(at time.Duration, s engine.Stats) { d.book.rested(0, at, s) }

// The driver is a fleet's Watcher too.

func (d *driver) Routed(id uint64, at time.Duration, replica int) {
	if s := d.open[id]; s != nil {
		s.account.replica = replica
		d.book.routed(&s.account, at)
	}
}

func (d *driver) ReplicaStepped(replica int, s engine.Step) { d.book.stepped(replica, &s) }

func (d *driver) ReplicaRested(replica int, at time.Duration, s engine.Stats) {
	d.book.rested(replica, at, s)
}

// stream is the mailbox between the engine and the handler of one request: the engine never waits for the handler.
type stream struct {
	id      uint64
	account account       // the driver's lock guards it
	wake    chan struct{} // holds one when progress has changed since it was last empty

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
