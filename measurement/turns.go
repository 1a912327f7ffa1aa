package measurement

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"time"
)

// Turns are many turns in the order they were added, packed into about fifty bytes each, a fifth of what a Turn takes. What was added
// comes out as it went in, but for the gaps between its tokens: of them the longest is kept, as GapMax. The zero value holds none.
// Any number of goroutines may read it while none adds.
type Turns struct {
	plain  []Turn   // held as they are, see TurnsOf; then there is nothing else
	blocks [][]byte // of blockTurns records each: where each begins, in two bytes, then the records, then slack
	open   []byte   // the last block, which is not full, with room for slack behind it
	n      int
	runs   []Stretch

	texts []string // outcomes and details; a record has their index
	index map[string]int64
}

// blockTurns is how many turns stand in a block: so few that their offsets fit in two bytes however long they are.
const blockTurns = 256

// TurnsOf are turns that stay where they are: what is read of them are the elements of the slice, gaps included, and none can be added.
func TurnsOf(turns []Turn) *Turns { return &Turns{plain: turns, n: len(turns)} }

// Len is how many there are.
func (ts *Turns) Len() int { return ts.n }

// Stretch is turns of one step that stand together: from the index From up to and without To.
type Stretch struct{ Step, From, To int }

// Stretches are all turns, step by step as they stand. The slice belongs to ts.
func (ts *Turns) Stretches() []Stretch {
	if ts.plain == nil {
		return ts.runs
	}
	var out []Stretch
	for i := range ts.plain {
		out = stretched(out, ts.plain[i].Step, i)
	}
	return out
}

// stretched adds the turn with index i.
func stretched(runs []Stretch, step, i int) []Stretch {
	if n := len(runs); n > 0 && runs[n-1].Step == step {
		runs[n-1].To = i + 1
		return runs
	}
	return append(runs, Stretch{step, i, i + 1})
}

// The fields of a record. Each is the difference from what it most often is, given those before it, in as few bytes as it needs. A record
// begins with a word that has the sizes of the first, by 3 bits, and then a bit for each of the rare ones that is there.
const (
	fieldMarks = iota // small fields, by bit
	fieldStep
	fieldCall
	fieldTurn
	fieldDue
	fieldSent
	fieldWrote
	fieldAdmitted
	fieldFirst
	fieldHeaders
	fieldEvent
	fieldLast
	fieldEnd
	fieldPrompt
	fieldCompletion
	fieldCached
	fieldEvents
	fieldFirstTokens
	fieldGapMax
	fieldOutcome
	fields
)

const (
	rareHeld = iota
	rareDialed
	rareRetries
	rareDetail
	rares
)

// sizes are those that a field may have, in bytes, and masks the bits of each.
var (
	sizes = [8]int{0, 1, 2, 3, 4, 5, 6, 8}
	masks = [8]uint64{0, 1<<8 - 1, 1<<16 - 1, 1<<24 - 1, 1<<32 - 1, 1<<40 - 1, 1<<48 - 1, 1<<64 - 1}
)

// slack is how many bytes may be read behind a record.
const slack = 8

const (
	markPhase    = 1<<2 - 1
	markLocal    = 1 << 2
	markReused   = 1 << 3
	markAdmitted = 1 << 4 // Admitted is told, and not 0
	bitReplica   = 5      // from here on the bits are of Replica
)

// Add adds a turn. It keeps nothing of what t points to.
func (ts *Turns) Add(t *Turn) {
	if ts.open == nil {
		ts.open = make([]byte, 2*blockTurns, 2*blockTurns+1<<14)
		ts.texts, ts.index = []string{string(OK), ""}, map[string]int64{}
	}
	longest := t.GapMax
	for _, g := range t.Gaps {
		longest = max(longest, g)
	}
	f := [fields]int64{
		fieldMarks: int64(t.Phase)&markPhase | int64(t.Replica)<<bitReplica, fieldStep: int64(t.Step), fieldCall: int64(t.Call - t.Step*CallsPerStep), fieldTurn: int64(t.Turn - LoneTurn),
		fieldDue: int64(t.Due), fieldSent: int64(t.Sent - t.Due), fieldWrote: int64(t.WroteRequest - t.Sent),
		fieldFirst: int64(t.FirstToken - t.Sent), fieldHeaders: int64(t.Headers - t.FirstToken), fieldEvent: int64(t.FirstEvent - t.FirstToken),
		fieldLast: int64(t.LastToken - t.FirstToken), fieldEnd: int64(t.End - t.LastToken),
		fieldPrompt: int64(t.PromptTokens), fieldCompletion: int64(t.CompletionTokens), fieldCached: int64(t.CachedTokens),
		fieldEvents: int64(t.Events - t.CompletionTokens), fieldFirstTokens: int64(t.FirstEventTokens - 1), fieldGapMax: int64(longest),
		fieldOutcome: ts.text(string(t.Outcome)),
	}
	if t.Local {
		f[fieldMarks] |= markLocal
	}
	if t.Reused {
		f[fieldMarks] |= markReused
	}
	if t.Admitted != 0 {
		f[fieldMarks] |= markAdmitted
		f[fieldAdmitted] = int64(t.Admitted - t.Sent)
	}
	ts.runs = stretched(ts.runs, t.Step, ts.n)
	n := ts.n % blockTurns
	at := len(ts.open)
	binary.LittleEndian.PutUint16(ts.open[2*n:], uint16(at))
	b := append(ts.open, 0, 0, 0, 0, 0, 0, 0, 0)
	var head uint64
	for i, v := range f {
		u := uint64(v)<<1 ^ uint64(v>>63)
		size := (bits.Len64(u) + 7) / 8
		if size == 7 {
			size = 8
		}
		head |= uint64(min(size, 7)) << (3 * i)
		b = binary.LittleEndian.AppendUint64(b, u)
		b = b[:len(b)-8+size]
	}
	for i, v := range [rares]int64{rareHeld: int64(t.Held - Never), rareDialed: int64(t.Dialed), rareRetries: int64(t.Retries), rareDetail: ts.text(t.Detail) - 1} {
		if v != 0 {
			head |= 1 << (3*fields + i)
			b = binary.AppendVarint(b, v)
		}
	}
	binary.LittleEndian.PutUint64(b[at:], head)
	ts.open = append(b, make([]byte, slack)...)[:len(b)]
	if ts.n++; n == blockTurns-1 {
		whole := ts.open[:len(b)+slack]
		ts.blocks = append(ts.blocks, append(make([]byte, 0, len(whole)), whole...))
		ts.open = ts.open[:2*blockTurns]
	}
}

// text is the index of an outcome or a detail. What nearly all turns have is the first two.
func (ts *Turns) text(s string) int64 {
	switch s {
	case string(OK):
		return 0
	case "":
		return 1
	}
	i, ok := ts.index[s]
	if !ok {
		i = int64(len(ts.texts))
		ts.texts, ts.index[s] = append(ts.texts, s), i
	}
	return i
}

// At is the turn with that index. It stands in room, which the caller has, unless turns are held as they are.
func (ts *Turns) At(i int, room *Turn) *Turn {
	if ts.plain != nil {
		return &ts.plain[i]
	}
	b := ts.open
	if n := i / blockTurns; n < len(ts.blocks) {
		b = ts.blocks[n]
	}
	i %= blockTurns
	b = b[binary.LittleEndian.Uint16(b[2*i:]):cap(b)]
	head := binary.LittleEndian.Uint64(b)
	p := 8
	var f [fields]int64
	rest := head
	for i := range f {
		u := binary.LittleEndian.Uint64(b[p:]) & masks[rest&7]
		p += sizes[rest&7]
		rest >>= 3
		f[i] = int64(u>>1) ^ -int64(u&1)
	}
	var rare [rares]int64
	if rest != 0 {
		for i := range rare {
			if rest&(1<<i) != 0 {
				v, n := binary.Varint(b[p:])
				rare[i], p = v, p+n
			}
		}
	}
	marks, step := f[fieldMarks], int(f[fieldStep])
	t := room // field by field: a turn at once would be made twice
	t.Call, t.Turn, t.Step = int(f[fieldCall])+step*CallsPerStep, int(f[fieldTurn])+LoneTurn, step
	t.Due = time.Duration(f[fieldDue])
	t.Held = time.Duration(rare[rareHeld]) + Never
	t.Sent = t.Due + time.Duration(f[fieldSent])
	t.WroteRequest = t.Sent + time.Duration(f[fieldWrote])
	t.Admitted = 0
	if marks&markAdmitted != 0 {
		t.Admitted = t.Sent + time.Duration(f[fieldAdmitted])
	}
	t.FirstToken = t.Sent + time.Duration(f[fieldFirst])
	t.Headers = t.FirstToken + time.Duration(f[fieldHeaders])
	t.FirstEvent = t.FirstToken + time.Duration(f[fieldEvent])
	t.LastToken = t.FirstToken + time.Duration(f[fieldLast])
	t.End = t.LastToken + time.Duration(f[fieldEnd])
	t.Gaps, t.GapMax = nil, time.Duration(f[fieldGapMax])
	t.PromptTokens, t.CompletionTokens, t.CachedTokens = int(f[fieldPrompt]), int(f[fieldCompletion]), int(f[fieldCached])
	t.Events, t.FirstEventTokens = t.CompletionTokens+int(f[fieldEvents]), int(f[fieldFirstTokens])+1
	t.Phase, t.Local, t.Reused = Phase(marks&markPhase), marks&markLocal != 0, marks&markReused != 0
	t.Replica = int32(marks >> bitReplica)
	t.Dialed, t.Retries = time.Duration(rare[rareDialed]), int(rare[rareRetries])
	t.Outcome, t.Detail = Outcome(ts.texts[f[fieldOutcome]]), ts.texts[rare[rareDetail]+1]
	return t
}

// All are the turns in order. One that is yielded holds until the next is.
func (ts *Turns) All() iter.Seq[*Turn] {
	return func(yield func(*Turn) bool) {
		var room Turn
		for i := range ts.n {
			if !yield(ts.At(i, &room)) {
				return
			}
		}
	}
}
