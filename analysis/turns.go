package analysis

import (
	"slices"

	"kneefinder/measurement"
)

// some are turns among many, in an order of their own: what is kept of one is its index, for a log holds millions.
type some struct {
	of *measurement.Turns
	at []int32
}

// all are turns as they stand.
func all(turns *measurement.Turns) some {
	at := make([]int32, turns.Len())
	for i := range at {
		at[i] = int32(i)
	}
	return some{turns, at}
}

func (s some) len() int { return len(s.at) }

// each yields them in order. One holds until the next is yielded.
func (s some) each(yield func(*measurement.Turn) bool) {
	s.numbered(func(_ int32, t *measurement.Turn) bool { return yield(t) })
}

// numbered yields them with their indices.
func (s some) numbered(yield func(at int32, t *measurement.Turn) bool) {
	var room measurement.Turn
	for _, at := range s.at {
		if !yield(at, s.of.At(int(at), &room)) {
			return
		}
	}
}

// add adds the turns with the indices of a stretch.
func (s *some) add(x measurement.Stretch) {
	s.at = slices.Grow(s.at, x.To-x.From)
	for i := x.From; i < x.To; i++ {
		s.at = append(s.at, int32(i))
	}
}

// ofStep are the turns of a step, as they stand.
func ofStep(turns *measurement.Turns, step int) some {
	s := some{of: turns}
	for _, x := range turns.Stretches() {
		if x.Step == step {
			s.add(x)
		}
	}
	return s
}

// byStep sorts turns into their steps, keeping their order.
func byStep(turns *measurement.Turns) map[int]some {
	m := map[int]some{}
	for _, x := range turns.Stretches() {
		s := m[x.Step]
		s.of = turns
		s.add(x)
		m[x.Step] = s
	}
	return m
}
