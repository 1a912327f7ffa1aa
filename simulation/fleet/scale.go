package fleet

import (
	"fmt"
	"math"
	"time"
)

// Signal is what an Autoscaler holds near its target.
type Signal string

// The signals, each divided by the replicas that are up or starting.
const (
	Outstanding Signal = "outstanding" // requests that have not ended, those at the router too
	Waiting     Signal = "queue"       // requests in queues, the replicas' and the router's
	Utilisation Signal = "utilisation" // part of the time since the last decision in which a step ran; it ends with its step
)

// Autoscaler starts and drains the replicas of a role, as a horizontal pod autoscaler does. It decides at the multiples of Every.
type Autoscaler struct {
	Role      Role
	Signal    Signal        // empty is Outstanding
	Target    float64       // of the signal, for one replica
	Every     time.Duration // between decisions
	Min, Max  int           // replicas that are up or starting
	Tolerance float64       // it leaves a signal alone that is off the target by at most this part
	CoolDown  time.Duration // since it last added or took replicas, before it takes any
}

// Load is what an Autoscaler decides on.
type Load struct {
	Replicas int     // up or starting
	Signal   float64 // the sum over all replicas
	Since    time.Duration
}

// Decide returns how many replicas there should be: as many as bring the signal for one to the target, rounded up.
func (a Autoscaler) Decide(l Load) int {
	want := l.Replicas
	if n := float64(l.Replicas); l.Replicas == 0 || math.Abs(l.Signal/n/a.Target-1) > a.Tolerance {
		want = int(math.Ceil(min(l.Signal/a.Target, 1e9)))
	}
	want = max(a.Min, min(want, a.Max))
	if want < l.Replicas && l.Since < a.CoolDown {
		return l.Replicas
	}
	return want
}

func (a Autoscaler) validate(replicas int) error {
	switch {
	case a.Signal != "" && a.Signal != Outstanding && a.Signal != Waiting && a.Signal != Utilisation:
		return fmt.Errorf("signal is %q, must be %s, %s or %s", a.Signal, Outstanding, Waiting, Utilisation)
	case !(a.Target > 0) || math.IsInf(a.Target, 0):
		return fmt.Errorf("target is %v, must be above 0", a.Target)
	case a.Every <= 0:
		return fmt.Errorf("it decides every %v, must be above 0", a.Every)
	case a.Min < 0 || a.Max < max(1, a.Min) || a.Max > replicas:
		return fmt.Errorf("from %d to %d replicas, must be from at least 0 to at most the %d there are of role %q", a.Min, a.Max, replicas, a.Role)
	case a.Min == 0 && a.Signal != "" && a.Signal != Outstanding:
		return fmt.Errorf("min is 0 with signal %s, which wakes nobody: must be at least 1, or the signal %s", a.Signal, Outstanding)
	case !(a.Tolerance >= 0) || a.CoolDown < 0:
		return fmt.Errorf("tolerance is %v and cool-down %v, must be at least 0", a.Tolerance, a.CoolDown)
	}
	return nil
}

// scaler is an Autoscaler at work.
type scaler struct {
	Autoscaler
	changed      time.Duration // when it last added or took a replica
	busy         []time.Duration
	added, taken int
}

// tick is when autoscaler i decides next. One that has nothing to decide, as nothing is in the fleet and its replicas are as few as may be,
// does not.
func (f *Fleet) tick(i int) time.Duration {
	s := &f.scalers[i]
	if len(f.open) == f.inputs.jobs { // none past the router's door
		n, spare := f.count(s.Role)
		if n == s.Min || n < s.Min && !spare {
			return never
		}
	}
	return f.now - f.now%s.Every + s.Every
}

// count is how many replicas of a role are up or starting, and whether another could be.
func (f *Fleet) count(role Role) (n int, spare bool) {
	for _, r := range f.replicas {
		if r.Role == role {
			switch r.state {
			case Up, Starting:
				n++
			case Off, Draining:
				spare = true
			}
		}
	}
	return n, spare
}

// due reports whether any autoscaler decides at the instant at.
func (f *Fleet) due(at time.Duration) bool {
	for i := range f.scalers {
		if f.tick(i) == at {
			return true
		}
	}
	return false
}

// scale has every autoscaler decide whose instant at is.
func (f *Fleet) scale(at time.Duration) {
	for i := range f.scalers {
		s := &f.scalers[i]
		if at%s.Every != 0 {
			continue
		}
		n, _ := f.count(s.Role)
		want := s.Decide(Load{Replicas: n, Signal: f.signal(s), Since: at - s.changed})
		for ; n < want; n++ {
			r := f.another(s.Role)
			if r == nil {
				break
			}
			f.start(r, at)
			s.added++
			s.changed = at
		}
		for ; n > want; n-- {
			f.drain(f.last(s.Role), at)
			s.taken++
			s.changed = at
		}
	}
}

// signal is the sum of an autoscaler's signal over its role.
func (f *Fleet) signal(s *scaler) float64 {
	sum := 0.
	for i, r := range f.replicas {
		if r.Role != s.Role {
			continue
		}
		switch s.Signal {
		case Waiting:
			if r.member != nil {
				sum += float64(r.member.Stats().Waiting)
			}
		case Utilisation:
			all := r.stats()
			busy := all.PrefillBusy + all.DecodeBusy
			sum += min(1, float64(busy-s.busy[i])/float64(s.Every)) // a step longer than Every counts where it ends
			s.busy[i] = busy
		default:
			sum += float64(r.now.requests)
		}
	}
	if s.Signal == Utilisation {
		return sum
	}
	if s.Role == Decode {
		return sum + float64(f.parcels.len())
	}
	return sum + float64(f.queue.len())
}

// another is the replica to start: one that drains, else the first that is off; nil when there is none.
func (f *Fleet) another(role Role) (found *replica) {
	for _, r := range f.replicas {
		if r.Role == role && r.state == Draining {
			return r
		}
		if r.Role == role && r.state == Off && found == nil {
			found = r
		}
	}
	return found
}

// last is the replica to drain: the last that starts, else the last that is up.
func (f *Fleet) last(role Role) (found *replica) {
	for _, r := range f.replicas {
		if r.Role == role && (r.state == Starting || r.state == Up && (found == nil || found.state == Up)) {
			found = r
		}
	}
	return found
}
