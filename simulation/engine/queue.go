package engine

import (
	"cmp"
	"slices"
	"time"

	"kneefinder/simulation/engine/kv"
)

// request is a Request on its way through the engine.
type request struct {
	Request
	stamp   time.Duration // when the host has prepared it: steps that start then or later see it
	refusal string        // why it can never run; empty when it can
	aborted bool
	abortAt time.Duration

	seq       []Token // what prefill computes: the prompt, after a retraction also what had been generated
	admitted  bool
	cached    int // prompt tokens found in the cache at first admission
	generated int // tokens told, to the sink or elsewhere

	held kv.Sequence // its KV
	now  int         // tokens that the step in progress computes of it
	told int         // tokens that the step in progress generates

	found   kv.Match // the last lookup in the cache,
	foundAt uint64   // and one more than the version it was made at
}

// prefilled reports whether all of seq is computed, or will be at the end of the step.
func (r *request) prefilled() bool { return r.held.Len() >= len(r.seq) }

// remaining is the number of tokens still to generate.
func (r *request) remaining() int { return r.MaxTokens - r.generated }

// content is r's tokens from number from up to, not including, number to: of the prompt, and of the reply behind it.
func (r *request) content(from, to int) []Token {
	prompt := len(r.Prompt)
	if to <= prompt {
		return r.Prompt[from:to]
	}
	if to <= len(r.seq) {
		return r.seq[from:to]
	}
	out := make([]Token, 0, to-from)
	if from < prompt {
		out = append(out, r.Prompt[from:]...)
		from = prompt
	}
	return r.reply(out, from-prompt, to-prompt)
}

// reply appends the generated tokens from number from up to, not including, number to.
func (r *request) reply(dst []Token, from, to int) []Token {
	seed := ReplySeed(r.Prompt[:len(r.Prompt)-r.Said])
	for n := from; n < to; n++ {
		dst = append(dst, ReplyToken(seed, r.Said+n))
	}
	return dst
}

// before orders requests by (stamp, Call, Turn, ID).
func before(a, b *request) int {
	return cmp.Or(
		cmp.Compare(a.stamp, b.stamp),
		cmp.Compare(a.Call, b.Call),
		cmp.Compare(a.Turn, b.Turn),
		cmp.Compare(a.ID, b.ID),
	)
}

// queue holds the waiting requests: retracted ones, then the others, each in order of arrival.
type queue struct {
	retracted, fresh []*request
	line             []*request // of candidates
}

func (q *queue) len() int { return len(q.retracted) + len(q.fresh) }

func (q *queue) push(r *request)    { q.fresh = insertInOrder(q.fresh, r) }
func (q *queue) putBack(r *request) { q.retracted = insertInOrder(q.retracted, r) }

// first returns the request that came first, retracted ones before others, or nil.
func (q *queue) first() *request {
	if len(q.retracted) > 0 {
		return q.retracted[0]
	}
	if len(q.fresh) > 0 {
		return q.fresh[0]
	}
	return nil
}

// unseen returns the stamp of the first request that a step which starts at the instant at does not see yet.
func (q *queue) unseen(at time.Duration) (stamp time.Duration, ok bool) {
	i := q.arrived(at)
	if i == len(q.fresh) {
		return 0, false
	}
	return q.fresh[i].stamp, true
}

// seen reports whether a step that starts at the instant at sees any.
func (q *queue) seen(at time.Duration) bool {
	return len(q.retracted) > 0 || len(q.fresh) > 0 && q.fresh[0].stamp <= at
}

// arrived counts the fresh requests that such a step sees.
func (q *queue) arrived(at time.Duration) int {
	if n := len(q.fresh); n == 0 || q.fresh[n-1].stamp <= at {
		return n
	}
	n, _ := slices.BinarySearchFunc(q.fresh, at, func(r *request, at time.Duration) int {
		if r.stamp <= at {
			return -1
		}
		return 1
	})
	return n
}

// remove takes out r, which is cheap at the front.
func (q *queue) remove(r *request) {
	if i := slices.Index(q.retracted, r); i >= 0 {
		q.retracted = slices.Delete(q.retracted, i, i+1)
		return
	}
	if q.fresh[0] == r {
		q.fresh[0] = nil
		q.fresh = q.fresh[1:] // append moves what is left to a new array now and then
		return
	}
	i := slices.Index(q.fresh, r)
	q.fresh = slices.Delete(q.fresh, i, i+1)
}

// take takes out every request that is selected, and returns them in order.
func (q *queue) take(selected func(*request) bool) (out []*request) {
	drop := func(r *request) bool {
		if selected(r) {
			out = append(out, r)
			return true
		}
		return false
	}
	q.retracted = slices.DeleteFunc(q.retracted, drop)
	q.fresh = slices.DeleteFunc(q.fresh, drop)
	return out
}

// insertInOrder is fast where r comes last, as arrivals do.
func insertInOrder(s []*request, r *request) []*request {
	i := len(s)
	if i > 0 && before(r, s[i-1]) < 0 {
		i, _ = slices.BinarySearchFunc(s, r, before)
	}
	return slices.Insert(s, i, r)
}

// Order is in which order waiting requests are looked at.
type Order string

// The orders. Retracted requests come before all others in each of them.
const (
	FCFS          Order = "fcfs"     // first come, first served
	LongestPrefix Order = "lpm"      // longest cached prefix first, while no more than lpmMost wait, as SGLang does; else FCFS
	Priority      Order = "priority" // highest Priority first
)

// lpmMost is the queue beyond which SGLang does not look for prefixes.
const lpmMost = 128

// candidates returns the requests that the step in the making may admit, in order. The slice holds until the next call.
func (e *Engine) candidates() []*request {
	q := &e.waiting
	fresh := q.fresh[:q.arrived(e.step.sees)]
	if len(q.retracted) == 0 && e.inOrder(len(fresh)) {
		return fresh
	}
	q.line = append(append(q.line[:0], q.retracted...), fresh...)
	line := q.line[len(q.retracted):]
	switch {
	case e.inOrder(len(fresh)):
	case e.config.Recipe.Order == Priority:
		slices.SortStableFunc(line, func(a, b *request) int { return cmp.Compare(b.Priority, a.Priority) })
	default:
		for _, r := range line {
			e.lookup(r)
		}
		slices.SortStableFunc(line, func(a, b *request) int { return cmp.Compare(b.found.Length, a.found.Length) })
	}
	return q.line
}

// inOrder reports whether so many fresh requests are served as they came.
func (e *Engine) inOrder(n int) bool {
	o := e.config.Recipe.Order
	return n < 2 || o == FCFS || o == LongestPrefix && n > lpmMost
}
