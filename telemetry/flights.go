package telemetry

import "time"

// settles is how much later than a flight's instant it may be told. They are told outside the generator's lock, by many
// goroutines, and overtake each other by microseconds.
const settles = 100 * time.Millisecond

// flight says how many calls and turns were in progress from an instant on.
type flight struct {
	at           time.Duration
	calls, turns int
}

// flights puts what is told out of order into order, to count the calls that begin.
type flights struct {
	pending []flight // in order of their instants; told, not settled
	last    flight   // settled
}

// tell keeps a flight, in order; of one instant, in the order told.
func (f *flights) tell(n flight) {
	i := len(f.pending)
	for i > 0 && f.pending[i-1].at > n.at {
		i--
	}
	f.pending = append(f.pending, flight{})
	copy(f.pending[i+1:], f.pending[i:])
	f.pending[i] = n
}

// settle calls began for each call that began up to the instant.
func (f *flights) settle(upTo time.Duration, began func(at time.Duration)) {
	n := 0
	for ; n < len(f.pending) && f.pending[n].at <= upTo; n++ {
		if f.pending[n].calls > f.last.calls {
			began(f.pending[n].at)
		}
		f.last = f.pending[n]
	}
	f.pending = f.pending[:copy(f.pending, f.pending[n:])]
}

// now is the newest that is known.
func (f *flights) now() flight {
	if n := len(f.pending); n > 0 {
		return f.pending[n-1]
	}
	return f.last
}
