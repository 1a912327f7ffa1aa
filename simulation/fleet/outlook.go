package fleet

import (
	"fmt"
	"slices"
	"time"
)

// condition is a state that a replica may be in.
type condition struct {
	state State
	until time.Duration // when it is up by itself
}

// after is what an event makes of it, and whether that is anything else: a replica that has failed is not failed again.
func (c condition) after(e Event, startUp time.Duration) (next []condition, changes bool) {
	if c.until < e.At {
		c = condition{Up, never}
	}
	down := condition{Down, never}
	if e.For > 0 {
		down.until = e.At + e.For
	}
	switch {
	case e.Kind == Fail && c.state != Off && c.state != Down:
		return []condition{down}, true
	case e.Kind == Drain && c.state == Up: // it is off at once where it has nothing
		return []condition{{Draining, never}, {Off, never}}, true
	case e.Kind == Drain && c.state == Starting:
		return []condition{{Off, never}}, true
	case e.Kind == Start && c.state == Draining:
		return []condition{{Up, never}}, true
	case e.Kind == Start && (c.state == Off || c.state == Down):
		return []condition{{Starting, e.At + startUp}}, true
	}
	return []condition{c}, false
}

// pointless names the first event that changes nothing, whatever else happens. Events of replicas that an autoscaler starts and drains are
// not looked at: what they find shows only when it runs.
func (c Config) pointless() error {
	may := map[int][]condition{}
	for i, r := range c.Replicas {
		may[i] = []condition{{Up, never}}
		if r.Off {
			may[i] = []condition{{Off, never}}
		}
	}
	last := map[int]Event{}
	for _, e := range sorted(c.Events) {
		if slices.ContainsFunc(c.Scale, func(a Autoscaler) bool { return a.Role == c.Replicas[e.Replica].Role }) {
			continue
		}
		var next []condition
		changes := false
		for _, s := range may[e.Replica] {
			n, changed := s.after(e, c.StartUp)
			next, changes = append(next, n...), changes || changed
		}
		if !changes {
			is := map[State]string{Up: "up", Starting: "starting already", Draining: "draining already", Off: "off", Down: "down"}[next[0].state]
			since := ""
			if before, ok := last[e.Replica]; ok {
				since = fmt.Sprintf(", by %q", before)
			}
			return fmt.Errorf("event %q changes nothing: replica %d is %s then%s", e, e.Replica, is, since)
		}
		may[e.Replica], last[e.Replica] = next, e
	}
	return nil
}
