package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EventKind is what befalls a replica.
type EventKind string

// The kinds of events.
const (
	Fail  EventKind = "fail"  // its requests and its cache are gone, see Config.Retry
	Drain EventKind = "drain" // it takes nothing more, and is off when what it has has ended; its cache is gone then
	Start EventKind = "start" // it is up, with an empty cache, Config.StartUp later; one that drains goes on at once
)

// Event is something that befalls a replica at an instant, whatever it is doing.
type Event struct {
	At      time.Duration
	Kind    EventKind
	Replica int
	For     time.Duration // of Fail: until it is up again, start-up included; 0 is until an event starts it
}

// String is what ParseEvent reads.
func (e Event) String() string {
	s := fmt.Sprintf("%s %d at %v", e.Kind, e.Replica, e.At)
	if e.For > 0 {
		s += fmt.Sprintf(" for %v", e.For)
	}
	return s
}

// ParseEvent reads an event: "fail 2 at 100s for 30s", "drain 0 at 1m", "start 3 at 90s".
func ParseEvent(text string) (Event, error) {
	bad := func(why string) (Event, error) {
		return Event{}, fmt.Errorf("event %q: %s; write it as %q, %q or %q", text, why, "fail 2 at 100s for 30s", "drain 2 at 100s", "start 2 at 100s")
	}
	w := strings.Fields(text)
	if len(w) != 4 && len(w) != 6 || w[2] != "at" || len(w) == 6 && w[4] != "for" {
		return bad("it is no event")
	}
	e := Event{Kind: EventKind(w[0])}
	var err error
	if e.Replica, err = strconv.Atoi(w[1]); err != nil {
		return bad(fmt.Sprintf("replica %q is no number", w[1]))
	}
	if e.At, err = time.ParseDuration(w[3]); err != nil {
		return bad(fmt.Sprintf("instant %q is no time", w[3]))
	}
	if len(w) == 6 {
		if e.For, err = time.ParseDuration(w[5]); err != nil || e.For <= 0 {
			return bad(fmt.Sprintf("%q is no time above 0", w[5]))
		}
	}
	if err := e.validate(e.Replica + 1); err != nil {
		return bad(err.Error())
	}
	return e, nil
}

func (e Event) validate(replicas int) error {
	switch {
	case e.Kind != Fail && e.Kind != Drain && e.Kind != Start:
		return fmt.Errorf("kind is %q, must be %s, %s or %s", e.Kind, Fail, Drain, Start)
	case e.Replica < 0 || e.Replica >= replicas:
		return fmt.Errorf("replica is %d, must be from 0 to %d", e.Replica, replicas-1)
	case e.At < 0:
		return fmt.Errorf("at is %v, must be at least 0", e.At)
	case e.For < 0 || e.For > 0 && e.Kind != Fail:
		return fmt.Errorf("for is %v, must be above 0, and with %s alone", e.For, Fail)
	}
	return nil
}

func sorted(events []Event) []Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

func (f *Fleet) happen(e Event) {
	r := f.replicas[e.Replica]
	if _, changes := (condition{r.state, r.until}).after(e, f.config.StartUp); !changes {
		f.figures.idle = append(f.figures.idle, e)
	}
	switch e.Kind {
	case Fail:
		f.fail(r, e.At, e.For)
	case Drain:
		f.drain(r, e.At)
	case Start:
		f.start(r, e.At)
	}
}
