package measurement

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drawn is a turn of any values: most as runs have them, some of them absurd.
func drawn(r *rand.Rand) Turn {
	t := NewTurn()
	at := func() time.Duration {
		switch r.IntN(8) {
		case 0:
			return Never
		case 1:
			return time.Duration(r.Uint64())
		}
		return time.Duration(r.Int64N(int64(100 * time.Hour)))
	}
	n := func() int {
		switch r.IntN(8) {
		case 0:
			return Unknown
		case 1:
			return int(r.Uint64())
		}
		return r.IntN(50_000)
	}
	t.Step = r.IntN(3)
	t.Call, t.Turn = t.Step*CallsPerStep+n(), n()
	for _, d := range []*time.Duration{&t.Due, &t.Held, &t.Sent, &t.WroteRequest, &t.Admitted, &t.Headers, &t.FirstEvent, &t.FirstToken, &t.LastToken, &t.End,
		&t.GapMax, &t.Dialed} {
		*d = at()
	}
	for _, d := range []*int{&t.Events, &t.FirstEventTokens, &t.PromptTokens, &t.CompletionTokens, &t.CachedTokens, &t.Retries} {
		*d = n()
	}
	t.Phase, t.Local, t.Reused = Phase(r.IntN(4)), r.IntN(2) == 0, r.IntN(2) == 0
	t.Replica = []int32{0, 0, 1, 7, 1000, math.MaxInt32, math.MinInt32}[r.IntN(7)]
	t.Outcome, t.Detail = outcomes[r.IntN(len(outcomes))], []string{"", "", "", "refused", "reset"}[r.IntN(5)]
	return t
}

// Packed turns come out as they went in, whatever they hold.
func TestTurnsComeOutAsTheyWentIn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var turns Turns
	var want []Turn
	for i := range 3*blockTurns + 7 {
		x := drawn(r)
		switch i {
		case 0:
			x = Turn{}
		case 1:
			x = NewTurn()
		case 2:
			x.Admitted = x.Sent
		case 3:
			x.Due, x.Sent, x.FirstToken = math.MaxInt64, math.MinInt64, math.MaxInt64
		case 4:
			x.Outcome, x.Detail = "of another version", "ok"
		}
		want = append(want, x)
		turns.Add(&x)
	}
	if turns.Len() != len(want) {
		t.Fatalf("%d turns, want %d", turns.Len(), len(want))
	}
	i := 0
	for got := range turns.All() {
		if d := cmp.Diff(*got, want[i]); d != "" {
			t.Fatalf("turn %d (-got +want):\n%s", i, d)
		}
		i++
	}
	for range 1000 {
		i := r.IntN(len(want))
		var room Turn
		if d := cmp.Diff(*turns.At(i, &room), want[i]); d != "" {
			t.Fatalf("turn %d alone (-got +want):\n%s", i, d)
		}
	}
	plain := TurnsOf(want)
	if plain.Len() != len(want) || plain.At(5, nil) != &want[5] {
		t.Error("turns that stay where they are were moved")
	}
}

// Of the gaps between tokens the longest is kept.
func TestTurnsKeepTheLongestGap(t *testing.T) {
	x := NewTurn()
	x.Gaps = []time.Duration{3, 9, 4}
	var turns Turns
	turns.Add(&x)
	for got := range turns.All() {
		if got.Gaps != nil || got.GapMax != 9 {
			t.Errorf("gaps %v, the longest %v, want none and 9", got.Gaps, got.GapMax)
		}
	}
}

// usual is a turn as a run against a server has them.
func usual(r *rand.Rand, i int) Turn {
	x := NewTurn()
	x.Step, x.Call, x.Turn, x.Outcome = 3, 3*CallsPerStep+i/4, 1+i%4, OK
	x.Due = time.Duration(i)*90*time.Millisecond + time.Duration(r.IntN(1e6))
	x.Sent = x.Due + time.Duration(r.IntN(1e5))
	x.WroteRequest = x.Sent + time.Duration(r.IntN(1e5))
	x.Headers = x.Sent + time.Duration(r.IntN(1e8))
	x.FirstEvent = x.Headers + time.Duration(r.IntN(1e6))
	x.FirstToken = x.FirstEvent + time.Duration(r.IntN(1e6))
	x.LastToken = x.FirstToken + time.Duration(r.IntN(5e9))
	x.End = x.LastToken + time.Duration(r.IntN(1e5))
	x.Events, x.GapMax, x.PromptTokens, x.CompletionTokens, x.CachedTokens, x.Reused = 99, time.Duration(r.IntN(1e8)), 18000+r.IntN(400), 100, 17900, true
	return x
}

// Turns as runs have them take under 60 bytes each, and make no garbage that the collector would look into.
func TestTurnsAreSmall(t *testing.T) {
	const n = 100_000
	var before, after runtime.MemStats
	r := rand.New(rand.NewPCG(1, 2))
	runtime.GC()
	runtime.ReadMemStats(&before)
	var turns Turns
	for i := range n {
		x := usual(r, i)
		turns.Add(&x)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.1f bytes a turn", each)
	if each > 60 {
		t.Errorf("%.1f bytes a turn, want under 60", each)
	}
	if objects := after.HeapObjects - before.HeapObjects; objects > n/100 {
		t.Errorf("%d objects hold %d turns", objects, n)
	}
	runtime.KeepAlive(turns)
}

func BenchmarkTurns(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var list []Turn
	for i := range 1000 {
		list = append(list, usual(r, i))
	}
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		var turns Turns
		for i := range b.N {
			turns.Add(&list[i%len(list)])
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		var turns Turns
		for i := range list {
			turns.Add(&list[i])
		}
		var room Turn
		for i := range b.N {
			if turns.At(i%len(list), &room).Step != 3 {
				b.Fatal("another step")
			}
		}
	})
}

// A log read to be packed is the log: also where a run was gone on with, where a turn failed, and where lines are not as LogWriter writes
// them.
func TestPackedLogIsTheLog(t *testing.T) {
	var gone bytes.Buffer
	w := NewLogWriter(&gone, true)
	w.Header(Header{Label: "x"})
	for i := range 1000 {
		w.Turn(Turn{Step: i / 400, Call: i, Outcome: OK, Sent: 5, FirstToken: 7, LastToken: 16, Gaps: []time.Duration{9}, Events: 2})
		if i == 700 {
			w.Resume(Epoch{FromStep: 1, At: 20})
		}
	}
	w.Turn(Turn{Step: 2, Outcome: Connect, Detail: "refused"})
	w.Sample(EngineSample{At: 2, Values: map[string]float64{"a": 1}})
	w.Flush()
	for name, text := range map[string]string{"plain": aLog(600), "gone on with, with gaps": gone.String(), "on one line": strings.ReplaceAll(aLog(5), "\n", " "),
		"torn": aLog(3) + `{"type":"turn`} {
		want, err := ReadLog(strings.NewReader(text), "x")
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range want.Turns {
			if turn := &want.Turns[i]; turn.Gaps != nil {
				turn.GapMax, turn.Gaps = slices.Max(turn.Gaps), nil
			}
		}
		got, err := ReadPacked(strings.NewReader(text), "x")
		if err != nil || got.Turns != nil || got.End() != want.End() {
			t.Errorf("%s: %d turns beside the packed ones, end %v, want none and %v (%v)", name, len(got.Turns), got.End(), want.End(), err)
		}
		for turn := range got.Held().All() {
			got.Turns = append(got.Turns, *turn)
		}
		got.Packed = nil
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-read +packed):\n%s", name, d)
		}
	}
}
