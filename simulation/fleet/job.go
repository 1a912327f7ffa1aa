package fleet

import (
	"cmp"
	"slices"
	"time"

	"kneefinder/simulation/engine"
)

// phase is where a request is.
type phase int

const (
	coming     phase = iota // not yet at the router
	queued                  // at the router
	whole                   // at a replica that does all of it
	prefilling              // at a prefill replica
	packed                  // its KV waits at the prefill replica
	travelling              // its KV is on a link
	arriving                // the last byte is on its way
	decoding                // at a decode replica
)

const nowhere = -1

// job is a request on its way through the fleet.
type job struct {
	engine.Request        // as the driver gave it
	serial         uint64 // rises with every sending to a replica
	stamp          time.Duration

	phase  phase
	at     int           // the replica that has it, or its KV
	to     int           // the replica that its KV goes to
	since  time.Duration // when its KV was ready, then when it left
	prompt []engine.Token
	max    int // tokens to generate behind prompt

	told     int // tokens
	admitted bool
	cached   int  // prompt tokens found at first admission
	left     bool // Abort has been called,
	aborting bool // and its instant has come
	found    int  // prompt tokens found at the replica that has it
	fresh    bool // the prompt is being computed there: what was not found is not in its cache yet
}

// said is how many tokens at the end of prompt have been generated before, here or elsewhere.
func (j *job) said() int { return j.Said + len(j.prompt) - len(j.Prompt) }

// newJob returns a zero job.
func (f *Fleet) newJob() *job {
	n := len(f.free)
	if n == 0 {
		return new(job)
	}
	j := f.free[n-1]
	f.free = f.free[:n-1]
	return j
}

// end tells of the end of j and forgets it.
func (f *Fleet) end(j *job, at time.Duration, how engine.Finish) {
	how.CompletionTokens, how.CachedTokens = j.told, j.cached
	f.figures.ended(how.Reason)
	delete(f.open, j.ID)
	id := j.ID
	*j = job{} // lets go of the prompt
	f.free = append(f.free, j)
	f.sink.Finished(id, at, how)
}

// onBoard lists the requests that a replica has, or whose KV it has, in the order in which they were sent.
func (f *Fleet) onBoard(index int) (out []*job) {
	for _, j := range f.open {
		if j.phase > queued && j.at == index || j.to == index {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *job) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// input is something the driver has asked for at an instant. It keeps the request's key: the job may have been another's by then.
type input struct {
	at         time.Duration
	abort      bool
	call, turn int
	id         uint64
	job        *job
}

func (in input) before(b input) int {
	if in.abort != b.abort && in.at == b.at {
		if b.abort {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(in.at, b.at), cmp.Compare(in.call, b.call), cmp.Compare(in.turn, b.turn), cmp.Compare(in.id, b.id))
}

// inputs holds them by (instant, requests before aborts, Call, Turn, ID).
type inputs struct {
	list []input
	jobs int // of them that are requests
}

func (q *inputs) add(at time.Duration, abort bool, j *job) {
	in := input{at: at, abort: abort, call: j.Call, turn: j.Turn, id: j.ID, job: j}
	i := len(q.list)
	if i > 0 && in.before(q.list[i-1]) < 0 {
		i, _ = slices.BinarySearchFunc(q.list, in, input.before)
	}
	q.list = slices.Insert(q.list, i, in)
	if !in.abort {
		q.jobs++
	}
}

// ready reports whether the next input is of the instant at and of that kind.
func (q *inputs) ready(at time.Duration, abort bool) bool {
	return len(q.list) > 0 && q.list[0].at == at && q.list[0].abort == abort
}

func (q *inputs) pop() input {
	in := q.list[0]
	q.list[0].job = nil
	q.list = q.list[1:] // append moves what is left to a new array now and then
	if !in.abort {
		q.jobs--
	}
	return in
}

// fifo is requests in the order in which they came.
type fifo struct{ list []*job }

func (q *fifo) len() int    { return len(q.list) }
func (q *fifo) push(j *job) { q.list = append(q.list, j) }
func (q *fifo) first() *job { return q.list[0] }
func (q *fifo) drop(j *job) {
	i := slices.Index(q.list, j)
	if i == 0 {
		q.list[0] = nil
		q.list = q.list[1:]
		return
	}
	q.list = slices.Delete(q.list, i, i+1)
}
