package measurement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// randomTurn is a turn with every field drawn, as far as a turn can be.
func randomTurn(r *rand.Rand) Turn {
	at := func() time.Duration {
		if r.IntN(6) == 0 {
			return Never
		}
		return time.Duration(r.Int64N(int64(5000 * time.Hour)))
	}
	n := func() int { return r.IntN(40000) - 1 }
	t := Turn{Call: r.IntN(1e9), Turn: r.IntN(9), Step: r.IntN(20), Due: at(), Held: at(), Sent: at(), WroteRequest: at(), Admitted: max(0, at()), Headers: at(), FirstEvent: at(),
		FirstToken: at(), LastToken: at(), End: at(), GapMax: time.Duration(r.Int64N(1e9)), Events: r.IntN(3), FirstEventTokens: r.IntN(3),
		PromptTokens: n(), CompletionTokens: n(), CachedTokens: n(), Reused: r.IntN(2) == 0, Dialed: time.Duration(r.Int64N(3)), Retries: r.IntN(2),
		Local: r.IntN(5) == 0, Outcome: outcomes[r.IntN(len(outcomes))]}
	if r.IntN(3) == 0 {
		t.Detail = []string{"the server answered 500", `with "quotes"`, "ä", "<b>&", ""}[r.IntN(5)]
	}
	if t.Events == 0 {
		t.GapMax = 0
	}
	t.Replica = []int32{0, 1, 12}[r.IntN(3)]
	return t
}

// turnToLine is the line as encoding/json has it, for appendTurn to be held against.
func turnToLine(t Turn, raw bool) turnLine {
	l := turnLine{Type: "turn", Call: t.Call, Turn: t.Turn, Step: t.Step, Due: seconds(t.Due), Sent: seconds(t.Sent),
		Wrote: seconds(t.WroteRequest), Headers: seconds(t.Headers), FirstEvent: seconds(t.FirstEvent),
		FirstToken: seconds(t.FirstToken), LastToken: seconds(t.LastToken), End: seconds(t.End), FirstTokens: t.FirstEventTokens,
		Prompt: known(t.PromptTokens), Completion: known(t.CompletionTokens), Cached: known(t.CachedTokens),
		Reused: t.Reused, Dialed: millis(t.Dialed), Retries: t.Retries, Local: t.Local, Outcome: t.Outcome, Detail: t.Detail}
	if t.Held >= 0 {
		held := seconds(t.Held)
		l.Held = &held
	}
	if t.Admitted > 0 {
		admitted := seconds(t.Admitted)
		l.Admitted = &admitted
	}
	if t.Replica > 0 {
		replica := int(t.Replica) - 1
		l.Replica = &replica
	}
	if d, ok := t.TTFT(); ok {
		ms := millis(d)
		l.TTFT = &ms
	}
	if t.Events > 0 {
		l.ITL = &itlLine{N: t.Events - 1, Sum: millis(t.LastToken - t.FirstToken), Max: millis(t.GapMax)}
		for _, g := range t.Gaps {
			l.ITL.Max = max(l.ITL.Max, millis(g))
			if raw {
				l.Gaps = append(l.Gaps, millis(g))
			}
		}
	}
	return l
}

func known(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

func lineOf(t Turn, raw bool) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(turnToLine(t, raw)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// slowTurn is what encoding/json reads.
func slowTurn(b []byte) (Turn, error) {
	never := seconds(Never)
	l := turnLine{Due: never, Sent: never, Wrote: never, Headers: never, FirstEvent: never, FirstToken: never, LastToken: never, End: never}
	err := json.Unmarshal(b, &l)
	return l.turn(), err
}

func TestScanTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	scanned := 0
	for range 20000 {
		want := randomTurn(r)
		line := lineOf(want, false)
		got, ok := scanTurn(line)
		if !ok {
			if want.Detail != `with "quotes"` && want.Detail != "ä" {
				t.Fatalf("left to encoding/json: %s", line)
			}
			continue
		}
		scanned++
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n(-written +read):\n%s", line, d)
		}
	}
	if scanned < 15000 {
		t.Errorf("only %d of 20000 lines were read by the scanner", scanned)
	}
	kept := NewTurn()
	kept.Outcome, kept.Events, kept.Gaps = OK, 2, []time.Duration{3}
	if _, ok := scanTurn(lineOf(kept, true)); ok {
		t.Error("a line with every gap must be left to encoding/json")
	}
}

func TestAppendTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 20000 {
		turn := randomTurn(r)
		if turn.Events == 2 {
			turn.Gaps = []time.Duration{time.Duration(r.Int64N(1e9)), 0, 25e6}
		}
		for _, raw := range []bool{false, true} {
			if got, want := string(appendTurn(nil, &turn, raw)), string(lineOf(turn, raw)); got != want {
				t.Fatalf("raw %v\n got %s\nwant %s", raw, got, want)
			}
		}
	}
}

// FuzzScanTurn wants the scanner to read a line exactly as encoding/json does, or not at all.
func FuzzScanTurn(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		f.Add(lineOf(randomTurn(r), false))
	}
	f.Add([]byte(`{"type":"turn","call":01,"turn":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := scanTurn(line)
		if !ok {
			return
		}
		want, err := slowTurn(line)
		if err != nil {
			t.Fatalf("the scanner reads %q, encoding/json says %v", line, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%q (-encoding/json +scanner):\n%s", line, d)
		}
	})
}

// writeLog writes a log of n turns in ten steps.
func writeLog(tb testing.TB, n int) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "x.turns.jsonl")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := NewLogWriter(f, false)
	w.Header(Header{Label: "x", Config: Config{Turns: 4, SLO: []Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}}})
	r := rand.New(rand.NewPCG(5, 5))
	const steps = 10
	for s := range steps {
		step := Step{Step: s, Rate: float64(s + 1), Start: time.Duration(s) * 1000 * time.Second}
		step.WindowStart, step.WindowEnd, step.DrainEnd = step.Start, Never, Never
		w.StepBegin(step)
		for i := range n / steps {
			t := NewTurn()
			t.Call, t.Turn, t.Step, t.Outcome = s*CallsPerStep+i/4, 1+i%4, s, OK
			t.Due = step.Start + time.Duration(i)*900*time.Second/time.Duration(n/steps)
			t.Sent = t.Due + time.Duration(r.IntN(300_000))
			t.WroteRequest = t.Sent + 150_123
			t.FirstEvent = t.Sent + time.Duration(40_000_000*(1+r.ExpFloat64()))
			t.Headers, t.FirstToken = t.FirstEvent-1000, t.FirstEvent
			t.LastToken = t.FirstToken + 2_000_123_456
			t.End, t.Events, t.GapMax = t.LastToken+70_001, 100, 25_000_001
			t.PromptTokens, t.CompletionTokens, t.CachedTokens, t.Reused = 18000+r.IntN(400), 100, 17900, true
			w.Turn(t)
		}
		step.WindowEnd, step.DrainEnd = step.Start+900*time.Second, step.Start+950*time.Second
		w.StepEnd(step)
	}
	w.Flush()
	if err := w.Err(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkReadLog reads a log of 100,000 turns.
func BenchmarkReadLog(b *testing.B) {
	const n = 100_000
	path := writeLog(b, n)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		log, err := OpenLog(path)
		if err != nil || len(log.Turns) != n {
			b.Fatal(len(log.Turns), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/n, "ns/turn")
}

// BenchmarkLogTurn writes turns, as every run does while it measures.
func BenchmarkLogTurn(b *testing.B) {
	w := NewLogWriter(discard{}, false)
	t := randomTurn(rand.New(rand.NewPCG(3, 3)))
	t.Detail = ""
	b.ReportAllocs()
	for b.Loop() {
		w.Turn(t)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Example of a turn's line.
func ExampleLogWriter() {
	w := NewLogWriter(os.Stdout, false)
	t := NewTurn()
	t.Call, t.Turn, t.Due, t.Outcome = 7, 2, 1500*time.Millisecond, NotSent
	w.Turn(t)
	w.Flush()
	fmt.Println(w.Err())
	// Output:
	// {"type":"turn","call":7,"turn":2,"step":0,"due_s":1.5,"sent_s":null,"wrote_s":null,"headers_s":null,"first_event_s":null,"first_token_s":null,"last_token_s":null,"end_s":null,"ttft_ms":null,"prompt_tokens":null,"completion_tokens":null,"cached_tokens":null,"outcome":"not_sent"}
	// <nil>
}
