package clock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// script exercises every verb of a clock; what it notes must be the same on every kind of clock.
func script(clk Clock, note func(format string, args ...any)) {
	ctx := context.Background()
	e := clk.NewEvent()
	clk.Go("setter", func() {
		clk.SleepUntil(ctx, 30*ms)
		note("%v setter sets", clk.Now())
		e.Set()
		e.Set()
	})
	done := clk.NewEvent()
	clk.Go("waiter", func() {
		ok := e.WaitUntil(ctx, 20*ms)
		note("%v before the event: %v", clk.Now(), ok)
		ok = e.WaitUntil(ctx, 100*ms)
		note("%v the event: %v", clk.Now(), ok)
		note("%v again: %v, %v", clk.Now(), e.WaitUntil(ctx, 200*ms), e.Wait(ctx))
		done.Set()
	})
	if err := done.Wait(ctx); err != nil {
		note("wait: %v", err)
	}
	cctx, cancel := clk.WithCancelCause(ctx)
	clk.Go("canceler", func() {
		clk.SleepUntil(ctx, 50*ms)
		cancel(errors.New("enough"))
	})
	err := clk.SleepUntil(cctx, time.Hour)
	note("%v sleep cut: %v because %v", clk.Now(), err, context.Cause(cctx))
	note("%v event never set: %v", clk.Now(), clk.NewEvent().Wait(cctx))
	note("%v the past: %v", clk.Now(), clk.SleepUntil(ctx, 1))
}

func TestWallAndVirtualAgree(t *testing.T) {
	var virtual, wall []string
	v := NewVirtual()
	v.Run(t.Context(), func() {
		script(v, func(f string, a ...any) { virtual = append(virtual, fmt.Sprintf(f, a...)) })
	})
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		w := NewWall()
		script(w, func(f string, a ...any) { mu.Lock(); wall = append(wall, fmt.Sprintf(f, a...)); mu.Unlock() })
		w.Wait()
	})
	if !reflect.DeepEqual(virtual, wall) {
		t.Errorf("virtual:\n%s\nwall:\n%s", strings.Join(virtual, "\n"), strings.Join(wall, "\n"))
	}
	if want := "50ms sleep cut: context canceled because enough"; len(virtual) < 5 || virtual[4] != want {
		t.Errorf("got %q, want %q", virtual, want)
	}
}

// Many processes sleep at random: each wakes at its instant, in order, and twice the same.
func TestVirtualIsDeterministic(t *testing.T) {
	run := func() (trace []string) {
		v := NewVirtual()
		v.Run(t.Context(), func() {
			for i := range 200 {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				v.Go("p", func() {
					for range 20 {
						at := v.Now() + time.Duration(rng.IntN(5))*ms
						v.SleepUntil(t.Context(), at)
						if v.Now() != at {
							t.Errorf("woke at %v, want %v", v.Now(), at)
						}
						trace = append(trace, fmt.Sprint(i, at))
					}
				})
			}
		})
		return trace
	}
	a, b := run(), run()
	if len(a) != 4000 || !reflect.DeepEqual(a, b) {
		t.Errorf("two runs of %d and %d wakes differ", len(a), len(b))
	}
}

type ticker struct {
	at    time.Duration
	ticks int
	event Event
}

func (s *ticker) Next() (time.Duration, bool) { return s.at, s.ticks > 0 }
func (s *ticker) AdvanceTo(at time.Duration) {
	for s.ticks > 0 && s.at <= at {
		s.ticks--
		s.at += 7 * ms
		if s.ticks == 0 {
			s.event.Set()
		}
	}
}

func TestVirtualSource(t *testing.T) {
	s := &ticker{at: 7 * ms, ticks: 3}
	v := NewVirtual(s)
	s.event = v.NewEvent()
	v.Run(t.Context(), func() {
		v.SleepUntil(t.Context(), 8*ms)
		if s.ticks != 2 {
			t.Errorf("at 8ms: %d ticks left, want 2", s.ticks)
		}
		s.event.Wait(t.Context())
		if v.Now() != 21*ms {
			t.Errorf("the source's event came at %v, want 21ms", v.Now())
		}
	})
}

func TestVirtualNamesWhoWaits(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "call 7") {
			t.Errorf("panic %q does not name the waiting process", got)
		}
	}()
	v := NewVirtual()
	v.Run(context.Background(), func() {
		ctx, cancel := context.WithCancel(context.Background())
		v.Go("call 7", func() {
			if v.NewEvent().Wait(ctx) == nil {
				t.Error("an event that nobody set has happened")
			}
		})
		_ = cancel
	})
}

func TestVirtualNoticesAnEndFromOutside(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	v := NewVirtual()
	v.Run(ctx, func() {
		v.Go("sleeper", func() {
			if err := v.SleepUntil(ctx, time.Hour); err == nil {
				t.Error("slept for an hour after the end of ctx")
			}
		})
		v.SleepUntil(context.Background(), ms)
		cancel()
	})
	if v.Now() >= time.Hour {
		t.Errorf("time went on to %v after the end of ctx", v.Now())
	}
}

func TestWallSleepsToAnInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWall()
		for i := 1; i <= 1000; i++ {
			w.SleepUntil(t.Context(), time.Duration(i)*ms)
		}
		if w.Now() != time.Second {
			t.Errorf("a thousand sleeps of 1 ms ended at %v, want 1s", w.Now())
		}
	})
}

// Fine sleeps end at or behind their instant, each of many at once, and leave nothing running.
func TestFineSleeps(t *testing.T) {
	w := NewWall().Fine()
	var mu sync.Mutex
	var late []time.Duration
	for i := range 300 {
		w.Go("sleeper", func() {
			for k := range 10 {
				at := time.Duration(i*37%29)*ms/10 + time.Duration(k)*5*ms
				if err := w.SleepUntil(t.Context(), at); err != nil {
					t.Error(err)
				}
				mu.Lock()
				late = append(late, w.Now()-at)
				mu.Unlock()
			}
		})
	}
	w.Wait()
	if len(late) != 3000 || slices.Min(late) < 0 {
		t.Errorf("%d sleeps, the earliest %v before its instant", len(late), -slices.Min(late))
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*ms, cancel)
	if err := w.SleepUntil(ctx, w.Now()+time.Hour); err == nil {
		t.Error("slept for an hour after the end of ctx")
	}
}

// A timer may be late by a thousandth of what it covers; what is kept back is always more, and a sleep is done in a few.
func TestTimedKeepsBackWhatTheKernelMayBeLate(t *testing.T) {
	for _, whole := range []time.Duration{time.Microsecond, paceBelow, 2 * ms, time.Second, time.Minute, time.Hour, 100 * time.Hour} {
		naps := 0
		for left := whole; timed(left) > 0; naps++ {
			d := timed(left)
			late := min(d/1000, 100*ms)
			if left-d <= late {
				t.Errorf("of %v a timer covers %v, and may end %v too late", left, d, late-(left-d))
			}
			left -= d // a timer that is not late leaves most
		}
		if naps > 8 {
			t.Errorf("%v takes %d timers", whole, naps)
		}
	}
}

// BenchmarkLateness shows how late sleeps of a plain and of a fine clock end on an idle machine.
func BenchmarkLateness(b *testing.B) {
	for name, w := range map[string]*Wall{"timer": NewWall(), "fine": NewWall().Fine()} {
		b.Run(name, func(b *testing.B) {
			var late []float64
			for range b.N {
				at := w.Now() + time.Millisecond
				w.SleepUntil(context.Background(), at)
				late = append(late, float64(w.Now()-at)/1e3)
			}
			slices.Sort(late)
			b.ReportMetric(late[len(late)/2], "µs-late-P50")
			b.ReportMetric(late[len(late)*99/100], "µs-late-P99")
		})
	}
}

func BenchmarkVirtualSwitch(b *testing.B) {
	v := NewVirtual()
	b.ReportAllocs()
	v.Run(context.Background(), func() {
		for range 100 {
			v.Go("p", func() {
				for range b.N / 100 {
					v.SleepUntil(context.Background(), v.Now()+1)
				}
			})
		}
	})
}

func ExampleVirtual() {
	v := NewVirtual()
	v.Run(context.Background(), func() {
		v.SleepUntil(context.Background(), 24*time.Hour)
		fmt.Println("a day later:", v.Now())
	})
	// Output: a day later: 24h0m0s
}
