package engine

import (
	"cmp"
	"slices"
	"time"
)

// request is a Request on its way through the engine.
type request struct {
	Request
	stamp   time.Duration
	aborted bool
	abortAt time.Duration

	seq       []Token // what prefill computes: the prompt, after a retraction also what had been generated
	admitted  bool
	cached    int // prompt tokens found in the cache at first admission
	generated int // tokens told to the sink

	node *node // the end of the locked path; its depth is how much of the KV stands in the tree
	kv   int   // tokens whose KV the request holds, in the tree or of its own

	found   match // the last lookup in the cache,
	foundAt uint64
}

// private is the number of tokens whose KV the request alone holds.
func (r *request) private() int { return r.kv - r.node.depth }

// prefilled reports whether all of seq is computed.
func (r *request) prefilled() bool { return r.kv >= len(r.seq) }

// remaining is the number of tokens still to generate.
func (r *request) remaining() int { return r.MaxTokens - r.generated }

// reply appends the generated tokens from number from up to, not including, number to.
func (r *request) reply(dst []Token, from, to int) []Token {
	seed := ReplySeed(r.Prompt)
	for n := from; n < to; n++ {
		dst = append(dst, ReplyToken(seed, n))
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

// queue holds the waiting requests: retracted ones, then the others, each in order.
type queue struct {
	retracted, fresh []*request
}

func (q *queue) len() int { return len(q.retracted) + len(q.fresh) }

func (q *queue) push(r *request)    { q.fresh = insertInOrder(q.fresh, r) }
func (q *queue) putBack(r *request) { q.retracted = insertInOrder(q.retracted, r) }

// first returns the request whose turn it is, or nil.
func (q *queue) first() *request {
	if len(q.retracted) > 0 {
		return q.retracted[0]
	}
	if len(q.fresh) > 0 {
		return q.fresh[0]
	}
	return nil
}

// pop removes what first returns.
func (q *queue) pop() {
	if len(q.retracted) > 0 {
		q.retracted = slices.Delete(q.retracted, 0, 1)
		return
	}
	q.fresh[0] = nil
	q.fresh = q.fresh[1:] // append moves what is left to a new array now and then
}

// remove takes out every request that is selected, and returns them in order.
func (q *queue) remove(selected func(*request) bool) (out []*request) {
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
