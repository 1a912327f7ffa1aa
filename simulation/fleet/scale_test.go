package fleet

import (
	"testing"
	"time"

	"kneefinder/simulation/engine"
)

func TestDecide(t *testing.T) {
	a := Autoscaler{Target: 4, Every: time.Second, Min: 1, Max: 6, Tolerance: .1, CoolDown: time.Minute}
	for _, test := range []struct {
		why  string
		l    Load
		want int
	}{
		{"on target", Load{Replicas: 2, Signal: 8}, 2},
		{"a little above, tolerated", Load{Replicas: 2, Signal: 8.7}, 2},
		{"above", Load{Replicas: 2, Signal: 9}, 3},
		{"far above, at most Max", Load{Replicas: 2, Signal: 1000}, 6},
		{"below, before the cool-down", Load{Replicas: 3, Signal: 2, Since: time.Second}, 3},
		{"below", Load{Replicas: 3, Signal: 2, Since: time.Minute}, 1},
		{"nothing to do, at least Min", Load{Replicas: 3, Since: time.Hour}, 1},
		{"none up", Load{Replicas: 0, Signal: 5}, 2},
		{"none up and none wanted", Load{}, 1},
		{"more than Max", Load{Replicas: 9, Signal: 36, Since: time.Hour}, 6},
	} {
		if got := a.Decide(test.l); got != test.want {
			t.Errorf("%s: %+v: got %d, want %d", test.why, test.l, got, test.want)
		}
	}
}

// A step in the load: an autoscaler that starts replicas at once, late or not at all; what each costs in waiting and replica-seconds.
func TestAutoscalerTransient(t *testing.T) {
	run := func(signal Signal, target float64, startUp time.Duration, limit int) (wait float64, paid time.Duration, most, least int) {
		c := config(stations(6, station{servers: 2, prompt: perToken(time.Millisecond)}))
		for i := range c.Replicas {
			c.Replicas[i].Off = i > 0
		}
		c.Router.Policy, c.Router.MaxRequests = LeastLoaded, 4
		c.StartUp = startUp
		c.Scale = []Autoscaler{{Signal: signal, Target: target, Every: time.Second, Min: 1, Max: limit, CoolDown: 10 * time.Second}}
		f, w := make1(t, c), &waits{arrived: map[uint64]time.Duration{}}
		at, id := time.Duration(0), uint64(0)
		least = 6
		for _, phase := range []struct{ until, gap time.Duration }{{30 * time.Second, time.Second}, {90 * time.Second, 120 * time.Millisecond}, {200 * time.Second, time.Second}} {
			for ; at < phase.until; at += phase.gap {
				f.AdvanceTo(at, w)
				id++
				w.arrived[id] = at
				f.Submit(at, engine.Request{ID: id, Call: int(id), Prompt: words(0, 500), MaxTokens: 1})
				n, _ := f.count(Whole)
				most = max(most, n)
				if at > 150*time.Second {
					least = min(least, n)
				}
			}
		}
		for at, ok := f.Next(); ok; at, ok = f.Next() {
			f.AdvanceTo(at, w)
		}
		if len(w.arrived) > 0 {
			t.Fatalf("%d requests were never admitted", len(w.arrived))
		}
		return w.sum / float64(w.n), f.Report(200 * time.Second).Paid, most, least
	}
	// A replica does 4 requests a second, 8.3 come: 3 replicas are enough, one is not.
	fixed, fixedPaid, most, _ := run(Outstanding, 1e6, 0, 6)
	if most != 1 || fixedPaid != 200*time.Second {
		t.Errorf("without need: %d replicas, paid %v", most, fixedPaid)
	}
	now, nowPaid, most, least := run(Outstanding, 2, 0, 6)
	if most < 3 || most > 6 || least != 1 {
		t.Errorf("between %d and %d replicas", least, most)
	}
	late, latePaid, _, _ := run(Outstanding, 2, 20*time.Second, 6)
	t.Logf("waits: one replica %.3f s (%v), scaled at once %.3f s (%v), after 20 s %.3f s (%v)", fixed, fixedPaid, now, nowPaid, late, latePaid)
	if !(now < late/5 && late < fixed/2) {
		t.Errorf("waits %.3f s scaled at once, %.3f late, %.3f not at all", now, late, fixed)
	}
	if !(nowPaid > fixedPaid && nowPaid < 6*fixedPaid && latePaid > fixedPaid) {
		t.Errorf("paid %v, %v, %v", fixedPaid, nowPaid, latePaid)
	}
	wait, paid, most, least := run(Waiting, 2, time.Second, 6)
	t.Logf("by queue: waits %.3f s, paid %v, between %d and %d replicas", wait, paid, least, most)
	if wait > fixed/3 || most < 2 || least != 1 {
		t.Errorf("by queue: waits %.3f s, between %d and %d replicas", wait, least, most)
	}
}

// Utilisation of real engines: a steady load that keeps one about busy brings another.
func TestUtilisation(t *testing.T) {
	c := config(Replicas(4, preset(t, "demo", "demo")))
	for i := range c.Replicas {
		c.Replicas[i].Off = i > 0
	}
	c.Router.Policy = LeastLoaded
	c.Scale = []Autoscaler{{Signal: Utilisation, Target: .5, Every: time.Second, Min: 1, Max: 4, CoolDown: 5 * time.Second}}
	f := make1(t, c)
	var arrivals []arrivalOf
	for id := range 200 {
		arrivals = append(arrivals, arrivalOf{time.Duration(id) * 100 * time.Millisecond, engine.Request{ID: uint64(id), Call: id, Prompt: words(id, 1500), MaxTokens: 40}})
	}
	drive(f, nil, arrivals)
	r := f.Report(arrivals[199].at)
	t.Logf("started %d, drained %d, paid %v", r.Started, r.Drained, r.Paid)
	if r.Finished != 200 || r.Started < 1 || r.Drained != r.Started {
		t.Errorf("%+v", r)
	}
	if n, _ := f.count(Whole); n != 1 {
		t.Errorf("%d replicas are left", n)
	}
}
