package measurement

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	oneTo20 := make([]float64, 20)
	for i := range oneTo20 {
		oneTo20[i] = float64(i + 1)
	}
	for _, c := range []struct {
		why  string
		in   []float64
		p    float64
		want float64
	}{
		{"P95 of 1..20, type 7", oneTo20, .95, 19.05},
		{"one value is every quantile", []float64{7}, .95, 7},
		{"ends", []float64{1, 2, 3}, 1, 3},
		{"start", []float64{1, 2, 3}, 0, 1},
		{"lands between a number and never", []float64{1, 2, inf}, .75, inf},
		{"lands on a number, never beyond it", []float64{1, 2, inf}, .5, 2},
		{"lands among never", []float64{1, inf, inf}, .95, inf},
	} {
		if got := Quantile(c.in, c.p); math.Abs(got-c.want) > 1e-12 && got != c.want {
			t.Errorf("%s: got %v, want %v", c.why, got, c.want)
		}
	}
	if got := Quantile(nil, .5); !math.IsNaN(got) {
		t.Errorf("no values: got %v, want NaN", got)
	}
}

func TestTurnDefinitions(t *testing.T) {
	ms := time.Millisecond
	turn := Turn{Due: 100 * ms, Held: Never, Sent: 101 * ms, FirstToken: 301 * ms, LastToken: 501 * ms, CompletionTokens: 11}
	check := func(name string, got time.Duration, ok bool, want time.Duration) {
		t.Helper()
		if !ok || got != want {
			t.Errorf("%s: got %v, %v, want %v", name, got, ok, want)
		}
	}
	d, ok := turn.TTFT()
	check("TTFT from due", d, ok, 201*ms)
	d, ok = turn.TTFTSent()
	check("TTFT from sent", d, ok, 200*ms)
	d, ok = turn.TPOT()
	check("TPOT, one token in the first event", d, ok, 20*ms)
	turn.FirstEventTokens = 6
	d, ok = turn.TPOT()
	check("TPOT, six tokens in the first event", d, ok, 40*ms)
	turn.CompletionTokens = 6
	if _, ok := turn.TPOT(); ok {
		t.Error("TPOT of an answer in one event: got a number, want none")
	}
	d, ok = turn.Lag()
	check("lag", d, ok, 1*ms)
	if _, ok := turn.QueueWait(); ok {
		t.Error("a queue wait of a turn of which nobody knows when it was admitted")
	}
	turn.Admitted = 151 * ms
	d, ok = turn.QueueWait()
	check("queue wait", d, ok, 50*ms)
	d, ok = turn.TTFTAdmitted()
	check("TTFT from admission", d, ok, 150*ms)
	turn.Outcome = OK
	d, ok = turn.E2E()
	check("end to end, from due to the last token", d, ok, 401*ms)
	turn.Held = 100*ms + 500*time.Microsecond
	d, ok = turn.Lag()
	check("lag of a held call is counted from its release", d, ok, 500*time.Microsecond)
	turn.FirstToken = Never
	if _, ok := turn.TTFT(); ok {
		t.Error("TTFT without a token: got a number, want none")
	}
}

func genTurn(t *rapid.T) Turn {
	instant := rapid.OneOf(rapid.Just(int64(Never)), rapid.Int64Range(0, 1e15))
	n := rapid.IntRange(-1, 1e6)
	d := func(name string) time.Duration { return time.Duration(instant.Draw(t, name)) }
	turn := Turn{Call: n.Draw(t, "call"), Turn: 2, Step: 1, Due: d("due"), Held: d("held"), Sent: d("sent"), WroteRequest: d("wrote"),
		Admitted: max(0, d("admitted")), Headers: d("headers"), FirstEvent: d("event"), FirstToken: d("first"), LastToken: d("last"), End: d("end"),
		PromptTokens: n.Draw(t, "prompt"), CompletionTokens: n.Draw(t, "completion"), CachedTokens: n.Draw(t, "cached"),
		Dialed: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "dialed")), Retries: rapid.IntRange(0, 1).Draw(t, "retries"),
		FirstEventTokens: 1, Reused: rapid.Bool().Draw(t, "reused"), Local: rapid.Bool().Draw(t, "local"), Outcome: OK, Detail: rapid.String().Draw(t, "detail")}
	for range rapid.IntRange(0, 4).Draw(t, "gaps") {
		turn.Gaps = append(turn.Gaps, time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "gap")))
	}
	if turn.Gaps != nil {
		turn.Events = len(turn.Gaps) + 1
	}
	return turn
}

func TestLogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want Log
		want.Header = Header{Schema: LogSchema, Label: "x", Tool: "test", Nonce: "00ff", Seed: 7}
		var buf bytes.Buffer
		w := NewLogWriter(&buf, true)
		w.Header(want.Header)
		s := Step{Step: 0, Rate: .25, Start: 5, WindowStart: 10, WindowEnd: Never, DrainEnd: Never}
		w.StepBegin(s)
		for range rapid.IntRange(0, 3).Draw(t, "turns") {
			turn := genTurn(t)
			w.Turn(turn)
			want.Turns = append(want.Turns, turn)
		}
		s.WindowEnd, s.DrainEnd, s.LiveMean, s.ArrivedCalls = 20, 30, 1.5, 3
		w.StepEnd(s)
		want.Steps = []Step{s}
		w.Sample(EngineSample{At: 3, Step: 0, Values: map[string]float64{"a": 1}})
		want.Samples = []EngineSample{{At: 3, Values: map[string]float64{"a": 1}}}
		w.Flush()
		got, err := ReadLog(&buf, "x")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("read back (-want +got):\n%s", d)
		}
	})
}

// A log that is read and written again says the same of gaps, whether it kept them or not.
func TestGapsSurviveRewriting(t *testing.T) {
	turn := Turn{Turn: 2, Outcome: OK, FirstToken: 5, LastToken: 35, Gaps: []time.Duration{10, 20}, Events: 3}
	write := func(turn Turn, raw bool) string {
		var buf bytes.Buffer
		w := NewLogWriter(&buf, raw)
		w.Header(Header{})
		w.Turn(turn)
		w.Flush()
		return buf.String()
	}
	for _, raw := range []bool{true, false} {
		once := write(turn, raw)
		log, err := ReadLog(strings.NewReader(once), "x")
		if err != nil {
			t.Fatal(err)
		}
		if again := write(log.Turns[0], raw); again != once {
			t.Errorf("raw %v: written\n%sand again\n%s", raw, once, again)
		}
	}
}

// A run that is killed at any instant leaves a log whose complete lines all read.
func TestTornLog(t *testing.T) {
	var buf bytes.Buffer
	w := NewLogWriter(&buf, false)
	w.Header(Header{Label: "x"})
	w.Turn(Turn{Call: 1, Turn: 2, Outcome: OK})
	w.Turn(Turn{Call: 2, Turn: 2, Outcome: Connect, Detail: "refused"})
	w.Flush()
	whole := buf.String()
	lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
	for cut := len(lines[0]); cut < len(whole); cut++ {
		got, err := ReadLog(strings.NewReader(whole[:cut]), "x")
		if err != nil {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		complete := strings.Count(whole[:cut], "\n") - 1
		rest := whole[strings.LastIndex(whole[:cut], "\n")+1 : cut]
		for _, line := range lines[1:] {
			if rest != "" && rest == strings.TrimSuffix(line, "\n") {
				complete++ // only the line feed is missing
			}
		}
		if len(got.Turns) != complete {
			t.Errorf("cut at byte %d: got %d turns, want %d", cut, len(got.Turns), complete)
		}
		if torn := rest != "" && len(got.Turns)+1 == strings.Count(whole[:cut], "\n"); torn && len(got.Warnings) != 1 {
			t.Errorf("cut at byte %d: got warnings %q, want one of a torn line", cut, got.Warnings)
		}
	}
}

// A run that was gone on with counts from its last complete step on as the second part tells it.
func TestResumedLog(t *testing.T) {
	var buf bytes.Buffer
	w := NewLogWriter(&buf, false)
	w.Header(Header{Label: "x", Nonce: "1"})
	step := func(n int, end bool) Step {
		s := Step{Step: n, Rate: float64(n), Start: time.Duration(n), WindowEnd: Never, DrainEnd: Never}
		w.StepBegin(s)
		if end {
			s.WindowEnd, s.DrainEnd = s.Start+5, s.Start+6
			w.StepEnd(s)
		}
		return s
	}
	step(0, true)
	w.Turn(Turn{Step: 0, Call: 1, Outcome: OK, End: 3})
	step(1, false)
	w.Turn(Turn{Step: 1, Call: 2, Outcome: OK, End: 9})
	w.Sample(EngineSample{At: 2, Step: 0, Values: map[string]float64{"a": 1}})
	w.Sample(EngineSample{At: 8, Step: 1, Values: map[string]float64{"a": 2}})
	w.Flush()
	cut, err := ReadLog(bytes.NewReader(buf.Bytes()), "x")
	if err != nil || len(cut.Complete()) != 1 || cut.End() != 9 {
		t.Fatalf("cut: %d complete steps, end %v, %v", len(cut.Complete()), cut.End(), err)
	}
	buf.WriteString(`{"type":"tur` + "\n") // the torn line, closed by whoever goes on
	w.Resume(Epoch{FromStep: 1, At: 20, Nonce: "2"})
	w.Turn(Turn{Step: 1, Call: 7, Outcome: OK, End: 30})
	w.Sample(EngineSample{At: 25, Step: 1, Values: map[string]float64{"a": 3}})
	step(1, true)
	w.Flush()
	log, err := ReadLog(&buf, "x")
	if err != nil || len(log.Warnings) != 1 || len(log.Epochs) != 1 || log.Epochs[0].Nonce != "2" {
		t.Fatalf("%+v, %v", log, err)
	}
	if len(log.Turns) != 2 || log.Turns[1].Call != 7 || len(log.Complete()) != 2 {
		t.Errorf("turns %+v: want those of step 0 and of the second step 1", log.Turns)
	}
	if len(log.Samples) != 2 || log.Samples[0].At != 2 || log.Samples[1].At != 25 {
		t.Errorf("samples %+v: want those of step 0 and of the second step 1", log.Samples)
	}
}

func TestNotALog(t *testing.T) {
	for _, in := range []string{"", "{}", "hello\n", `{"type":"turn"}` + "\n", `{"schema":"kneefinder/results/v1"}`} {
		if _, err := ReadLog(strings.NewReader(in), "f"); err == nil || !strings.Contains(err.Error(), "not a turn log") {
			t.Errorf("reading %q: got %v, want a refusal", in, err)
		}
	}
	header := `{"type":"header","schema":"kneefinder/turns/v1"}` + "\n"
	if _, err := ReadLog(strings.NewReader(header+header), "f"); err == nil || !strings.Contains(err.Error(), "f:2: a second header") {
		t.Errorf("two logs in one file: %v", err)
	}
	log, err := ReadLog(strings.NewReader(`{"type":"header","schema":"kneefinder/turns/v1"}`+"\n{broken\n"+`{"type":"turn","call":3,"turn":2,"outcome":"ok"}`+"\n"), "f")
	if err != nil || len(log.Turns) != 1 || len(log.Warnings) != 1 || !strings.Contains(log.Warnings[0], "f:2") {
		t.Errorf("a broken middle line: got %d turns, warnings %q, err %v; want 1 turn and a warning naming f:2", len(log.Turns), log.Warnings, err)
	}
}

func TestHistogramRoundTrip(t *testing.T) {
	h := NewHistogram()
	for i := range 1000 {
		RecordGap(h, time.Duration(i)*time.Millisecond)
	}
	RecordGap(h, 0)
	RecordGap(h, 2*time.Hour)
	if h.TotalCount() != 1002 {
		t.Fatalf("recorded %d gaps, want 1002: none may be dropped", h.TotalCount())
	}
	enc, err := EncodeHistogram(2, h)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeHistogram(enc)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := back.ValueAtQuantile(95), h.ValueAtQuantile(95); got != want || back.TotalCount() != h.TotalCount() {
		t.Errorf("P95 after a round trip: got %d of %d, want %d of %d", got, back.TotalCount(), want, h.TotalCount())
	}
}

func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "x.json")
	r := Results{Label: "a", Steps: []StepResult{{Rate: .5, Verdict: Pass, Flags: []string{}}}}
	if err := ReplaceFile(path, func(w io.Writer) error { return WriteResults(w, r) }); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	for _, want := range []string{`"ttft_p95_ms": null`, `"ci95_calls_per_s": [`, `"warnings": []`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("results hold no %s:\n%s", want, b)
		}
	}
	got, err := ReadResults(path)
	if err != nil || got.Label != "a" {
		t.Fatalf("read back: %v, %v", got.Label, err)
	}
	var csv bytes.Buffer
	if err := WriteCSV(&csv, r); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(csv.String(), "\n"); !strings.HasPrefix(lines[1], "0,0.5,,0,") {
		t.Errorf("CSV row: got %q", lines[1])
	}
}
