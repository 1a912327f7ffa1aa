package measurement

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// hlogRun is a run of three steps of which the last was cut, with turns of every kind.
func hlogRun(t *testing.T) Log {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	log := Log{Header: Header{Label: "x", Started: "2026-01-02T03:04:05.25Z"}}
	for n := range 3 {
		s := Step{Step: n, Start: time.Duration(n) * 100 * time.Second}
		s.WindowStart, s.WindowEnd, s.DrainEnd = s.Start+10*time.Second, s.Start+70*time.Second, s.Start+80*time.Second
		itl := NewHistogram()
		for c := range 200 {
			due := s.Start + time.Duration(c)*400*time.Millisecond
			for k := 1; k <= 3; k++ {
				x := NewTurn()
				x.Step, x.Call, x.Turn, x.Due, x.Sent, x.Outcome = n, n*CallsPerStep+c, k, due, due+time.Millisecond, OK
				x.FirstToken = due + time.Duration(float64(50*time.Millisecond)*(1+r.ExpFloat64()))
				x.LastToken = x.FirstToken + 200*time.Millisecond
				x.End, x.CompletionTokens, x.PromptTokens, x.CachedTokens = x.LastToken+time.Millisecond, 11, 3000, r.IntN(3000)
				if c%20 == 0 && k == 3 {
					x.Outcome, x.FirstToken, x.LastToken, x.CachedTokens = HTTP5xx, Never, Never, Unknown
				}
				if k > 1 && s.InWindow(x.Due) && x.Outcome == OK {
					RecordGap(itl, 20*time.Millisecond)
				}
				log.Turns = append(log.Turns, x)
				due = x.End + time.Second
			}
		}
		h, err := EncodeHistogram(2, itl)
		if err != nil {
			t.Fatal(err)
		}
		s.ITL = []Histogram{h}
		if n == 2 {
			s.WindowEnd = Never
		}
		log.Steps = append(log.Steps, s)
	}
	return log
}

func TestHLog(t *testing.T) {
	log := hlogRun(t)
	var b bytes.Buffer
	if err := WriteHLog(&b, log); err != nil {
		t.Fatal(err)
	}
	got := map[string][]*hdrhistogram.Histogram{}
	reader := hdrhistogram.NewHistogramLogReader(bytes.NewReader(b.Bytes()))
	for {
		h, err := reader.NextIntervalHistogram()
		if err != nil {
			t.Fatal(err)
		}
		if h == nil {
			break
		}
		got[h.Tag()] = append(got[h.Tag()], h)
	}
	for n, s := range log.Complete() {
		tokens, ended, known := int64(0), int64(0), int64(0)
		live := int64(0)
		for _, x := range log.Turns {
			if x.Step != n {
				continue
			}
			if x.Turn == 1 && x.Due <= s.WindowStart {
				live++
			}
			if x.Turn < 2 || !s.InWindow(x.Due) {
				continue
			}
			if _, ok := x.TTFT(); ok {
				tokens++
			}
			if x.Outcome == OK {
				ended++
			}
			if x.CachedTokens >= 0 {
				known++
			}
		}
		for tag, want := range map[string]int64{TagTTFT: tokens, TagTTFTSent: tokens, TagITL: ended, TagTPOT: ended, TagE2E: ended, TagCached: known, TagCalls: 61} {
			if len(got[tag]) != 2 {
				t.Fatalf("%s: %d intervals, want 2: the step that was cut has none", tag, len(got[tag]))
			}
			if n := got[tag][n].TotalCount(); n != want || n == 0 {
				t.Errorf("step %d: %s counts %d, want %d", s.Step, tag, n, want)
			}
		}
		if v := got[TagTPOT][n].ValueAtPercentile(50); v < 19_900_000 || v > 20_100_000 {
			t.Errorf("tpot %d ns, want 20 ms", v)
		}
		if v := got[TagCalls][n].Max(); v < 4 || v > 9 { // a call every .4 s lives about 2.9 s
			t.Errorf("at most %d calls in flight, want about 7", v)
		}
	}
}

// TestHLogInJava reads a log with the HistogramLogProcessor of the format's own authors.
func TestHLogInJava(t *testing.T) {
	const jar = "/usr/share/java/hdrhistogram.jar"
	java, err := exec.LookPath("java")
	if _, jarErr := os.Stat(jar); err != nil || jarErr != nil {
		t.Skip("needs java and " + jar + " (apt-get install libhdrhistogram-java)")
	}
	log := hlogRun(t)
	path := filepath.Join(t.TempDir(), "x.hlog")
	if err := ReplaceFile(path, func(w io.Writer) error { return WriteHLog(w, log) }); err != nil {
		t.Fatal(err)
	}
	want, err := stepHistograms(log.Steps[0], turnsOf(log, 0), false)
	if err != nil {
		t.Fatal(err)
	}
	more, err := stepHistograms(log.Steps[1], turnsOf(log, 1), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range want {
		h.Merge(more[i])
		out, err := exec.CommandContext(t.Context(), java, "-cp", jar, "org.HdrHistogram.HistogramLogProcessor", "-i", path, "-tag", h.Tag(), "-outputValueUnitRatio", "1", "-csv").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		counted, compared := int64(0), 0
		for _, line := range strings.Split(string(out), "\n") {
			f := strings.Split(strings.TrimSpace(line), ",")
			if len(f) < 3 {
				continue
			}
			value, err1 := strconv.ParseFloat(f[0], 64)
			p, err2 := strconv.ParseFloat(f[1], 64)
			n, err3 := strconv.ParseInt(f[2], 10, 64)
			if err1 != nil || err2 != nil || err3 != nil {
				continue
			}
			counted = max(counted, n)
			compared++
			upTo := int64(0)
			for _, bar := range h.Distribution() {
				if float64(bar.To) <= value {
					upTo += bar.Count
				}
			}
			if upTo != n || n < int64(p*float64(h.TotalCount())) {
				t.Errorf("%s P%g: Java reads %.0f and %d values up to it, the histogram holds %d", h.Tag(), 100*p, value, n, upTo)
			}
		}
		if counted != h.TotalCount() || compared < 2 {
			t.Errorf("%s: Java counts %d of %d values, %d percentiles compared:\n%s", h.Tag(), counted, h.TotalCount(), compared, out)
		}
	}
}

func turnsOf(log Log, step int) iter.Seq[*Turn] {
	return func(yield func(*Turn) bool) {
		for i := range log.Turns {
			if log.Turns[i].Step == step && !yield(&log.Turns[i]) {
				return
			}
		}
	}
}

// A histogram log does not depend on how turns are held, nor on steps whose turns stand mixed.
func TestHLogOfPackedTurns(t *testing.T) {
	log := hlogRun(t)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(log.Turns), func(i, j int) { log.Turns[i], log.Turns[j] = log.Turns[j], log.Turns[i] })
	var plain, fromPacked bytes.Buffer
	err := WriteHLog(&plain, log)
	log.Packed = &Turns{}
	for i := range log.Turns {
		log.Packed.Add(&log.Turns[i])
	}
	log.Turns = nil
	if err := errors.Join(err, WriteHLog(&fromPacked, log)); err != nil || plain.String() != fromPacked.String() {
		t.Errorf("packed turns make another log (%v)", err)
	}
}

// Calls in flight, counted by looking at every call at every second.
func TestCallsInFlight(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	for range 200 {
		s := Step{WindowStart: 3 * time.Second, WindowEnd: 3*time.Second + time.Duration(r.IntN(10_000))*time.Millisecond}
		log := Log{}
		type life struct{ begin, end time.Duration }
		var lives []life
		lone := r.IntN(2) == 0
		for call := range 20 {
			x := NewTurn()
			x.Call, x.Turn, x.Outcome = call, 1, OK
			x.Due = time.Duration(r.IntN(30)) * 500 * time.Millisecond
			x.End = x.Due + time.Duration(r.IntN(10))*500*time.Millisecond
			if r.IntN(4) == 0 {
				x.Held = x.Due + 250*time.Millisecond
				x.End += 250 * time.Millisecond
			}
			l := life{max(x.Due, x.Held), x.End}
			if lone {
				x.Turn = LoneTurn
			}
			log.Turns = append(log.Turns, x)
			if !lone {
				x.Turn, x.Due, x.End = 2, x.End+time.Second, x.End+3*time.Second
				l.end = x.End
				log.Turns = append(log.Turns, x)
			}
			if r.IntN(8) == 0 {
				log.Turns = append(log.Turns, Turn{Call: 1000 + call, Turn: 1, Due: 0, End: 9 * time.Second, Held: Never, Outcome: Shed})
			}
			lives = append(lives, l)
		}
		i := 0
		got := callsInFlight(s, turnsOf(log, 0), lone)
		for at := s.WindowStart; at <= s.WindowEnd; at += time.Second {
			want := 0
			for _, l := range lives {
				if l.begin <= at && at < l.end {
					want++
				}
			}
			if i >= len(got) || got[i] != want {
				t.Fatalf("at %v: got %v, want %d there of %v", at, got, want, lives)
			}
			i++
		}
		if i != len(got) {
			t.Fatalf("%d seconds counted, want %d", len(got), i)
		}
	}
}
