package generator

import (
	"context"
	"sync"

	"kneefinder/clock"
)

// Dial is the rate of a step that lasts until it is stopped, to be turned while it runs. Its methods may be called by any
// goroutine.
type Dial struct {
	clk clock.Clock

	mu     sync.Mutex
	rate   float64
	turned clock.Event // set when the rate is turned
}

// NewDial is a dial at a rate of calls/s.
func NewDial(clk clock.Clock, rate float64) *Dial {
	return &Dial{clk: clk, rate: rate, turned: clk.NewEvent()}
}

// Turn sets another rate: the next call arrives as if calls had always come at it.
func (d *Dial) Turn(rate float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rate == d.rate {
		return
	}
	d.rate = rate
	d.turned.Set()
	d.turned = d.clk.NewEvent()
}

// Rate is the rate now.
func (d *Dial) Rate() float64 {
	rate, _ := d.at()
	return rate
}

func (d *Dial) at() (rate float64, turned clock.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rate, d.turned
}

// turned starts calls at the dial's rate until ctx ends. A rate that is turned takes effect at once, also when the next call
// of the old one was far off; a call of the old one that the cap holds back still comes first.
func (s *step) turned(ctx, callCtx context.Context) {
	begin, first := s.rec.Start, 0
	for n := 0; ctx.Err() == nil; n++ {
		rate, turned := s.c.Dial.at()
		s.turn(rate)
		rateCtx, cut := s.clk.WithCancelCause(ctx)
		s.clk.Go("the dial", func() {
			if turned.Wait(rateCtx) == nil {
				s.turn(s.c.Dial.Rate())
			}
			cut(nil)
		})
		process := s.c.Process
		process.Begin = first // a trace goes on where it was
		first += s.arrive(ctx, rateCtx, callCtx, segment{begin: begin, first: first, arrivals: process.Arrivals(s.c.Script.Seed, n, rate)})
		_ = turned.Wait(ctx) // where arrivals have an end
		cut(nil)
		begin = s.clk.Now()
	}
}

// turn tells of another rate.
func (s *step) turn(rate float64) {
	s.mu.Lock()
	news := rate != s.rec.Rate
	s.rec.Rate = rate
	rec := s.rec
	s.mu.Unlock()
	if news {
		s.tell.StepBegin(rec)
	}
}
