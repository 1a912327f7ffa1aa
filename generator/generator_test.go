package generator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"kneefinder/clock"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed answers every turn after a fixed time per turn index, on any clock.
type fixed struct {
	clk     clock.Clock
	ttft    func(req Request) time.Duration
	outcome func(req Request) measurement.Outcome
	perWord float64
}

func (f fixed) Do(ctx context.Context, req Request) Reply {
	t := measurement.NewTurn()
	t.Sent, t.Outcome = f.clk.Now(), measurement.OK
	if f.outcome != nil {
		t.Outcome = f.outcome(req)
	}
	if t.Outcome != measurement.OK {
		t.End = f.clk.Now()
		return Reply{Turn: t}
	}
	if f.clk.SleepUntil(ctx, f.clk.Now()+f.ttft(req)) != nil {
		t.Outcome, t.End = measurement.Canceled, f.clk.Now()
		if context.Cause(ctx) == ErrDrained {
			t.Outcome = measurement.TotalTimeout
		}
		return Reply{Turn: t}
	}
	t.FirstToken, t.LastToken, t.End = f.clk.Now(), f.clk.Now(), f.clk.Now()
	words := 0
	for _, m := range req.Prompt {
		words += m.Content.Segment.Words
	}
	t.PromptTokens, t.CachedTokens, t.CompletionTokens = 11+int(math.Round(f.perWord*float64(words))), 3, req.MaxTokens
	return Reply{Turn: t, Content: workload.Content{Text: "yes"}}
}

type notes struct {
	mu    sync.Mutex
	steps []measurement.Step
	turns []measurement.Turn
	peak  int
}

func (n *notes) StepBegin(measurement.Step) {}
func (n *notes) StepEnd(s measurement.Step) { n.mu.Lock(); n.steps = append(n.steps, s); n.mu.Unlock() }
func (n *notes) Turn(t measurement.Turn)    { n.mu.Lock(); n.turns = append(n.turns, t); n.mu.Unlock() }
func (n *notes) InFlight(_ time.Duration, calls, _ int) {
	n.mu.Lock()
	n.peak = max(n.peak, calls)
	n.mu.Unlock()
}

func testConfig() Config {
	l, _ := workload.LexiconByName("english")
	return Config{Script: workload.Script{Seed: 1, Nonce: 2, Lexicon: l, SystemWords: 50, UserWords: 5, GapMin: time.Second, GapMax: 2 * time.Second},
		Turns: 4, OutputTokens: 8, Warmup: 10 * time.Second, StepDuration: 60 * time.Second, MaxStepDuration: 20 * time.Minute,
		Drain: time.Minute, MinTurns: 60, MaxConcurrentCalls: 400}
}

func runVirtual(t *testing.T, c Config, rate float64, f fixed) (measurement.Step, *notes, error) {
	t.Helper()
	v := clock.NewVirtual()
	f.clk = v
	var n notes
	var s measurement.Step
	var err error
	v.Run(t.Context(), func() { s, err = RunStep(t.Context(), v, f, &n, c, 0, rate) })
	if err == nil {
		checkPhases(t, s, n.turns)
	}
	return s, &n, err
}

// checkPhases wants every turn to have been told the phase that the finished step says it was due in.
func checkPhases(t *testing.T, s measurement.Step, turns []measurement.Turn) {
	t.Helper()
	for _, turn := range turns {
		want := measurement.Window
		switch {
		case turn.Due < s.WindowStart:
			want = measurement.Warmup
		case turn.Due > s.WindowEnd:
			want = measurement.Drain
		}
		if turn.Phase != want {
			t.Errorf("call %d turn %d (%s) due %v was told as %q, but the window of its step is %v-%v", turn.Call, turn.Turn, turn.Outcome, turn.Due, turn.Phase, s.WindowStart, s.WindowEnd)
		}
	}
}

func steady(d time.Duration) fixed {
	return fixed{ttft: func(Request) time.Duration { return d }}
}

func TestStepShape(t *testing.T) {
	c := testConfig()
	s, n, err := runVirtual(t, c, 2, steady(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if s.WindowStart != c.Warmup || s.WindowEnd != c.Warmup+c.StepDuration {
		t.Errorf("window %v-%v, want %v-%v", s.WindowStart, s.WindowEnd, c.Warmup, c.Warmup+c.StepDuration)
	}
	if s.Residue != 0 || s.DrainEnd <= s.WindowEnd || s.DrainEnd > s.WindowEnd+10*time.Second {
		t.Errorf("drained at %v with %d calls left, want soon after %v with none", s.DrainEnd, s.Residue, s.WindowEnd)
	}
	byCall := map[int][]measurement.Turn{}
	arrived, inWindow := 0, 0
	var busy time.Duration
	for _, turn := range n.turns {
		byCall[turn.Call] = append(byCall[turn.Call], turn)
		if turn.Turn == 1 && s.InWindow(turn.Due) {
			arrived++
		}
		if s.InWindow(turn.Due) {
			inWindow++
			busy += turn.End - turn.Due
		}
		if d, _ := turn.TTFT(); d != 100*time.Millisecond {
			t.Fatalf("TTFT %v, want exactly 100ms", d)
		}
	}
	if arrived != s.ArrivedCalls {
		t.Errorf("%d arrivals counted, %d logged", s.ArrivedCalls, arrived)
	}
	for call, turns := range byCall {
		if len(turns) != c.Turns {
			t.Fatalf("call %d has %d turns, want %d: calls in progress finish in the drain", call, len(turns), c.Turns)
		}
		for i, turn := range turns {
			if turn.Turn != i+1 {
				t.Fatalf("call %d: turns out of order", call)
			}
			if i > 0 && turn.Due != turns[i-1].End+c.Script.Gap(call, i) {
				t.Errorf("call %d turn %d due at %v, want the end of the last plus its gap", call, turn.Turn, turn.Due)
			}
		}
	}
	// Little's law with its exact edge bound (knee statistics: |L - λW| T <= residual work at the edges).
	span := (s.WindowEnd - s.WindowStart).Seconds()
	if gap := math.Abs(s.LiveTurnsMean*span - busy.Seconds()); gap > float64(s.InFlightStart+s.InFlightEnd)*.1+1e-9 {
		t.Errorf("turns in flight %.4f against %.4f from the turns' own times: beyond the edges", s.LiveTurnsMean, busy.Seconds()/span)
	}
	// The same for calls: those of the window stay, on average, a lifetime.
	var lifetimes, longest time.Duration
	atStart, atEnd := 0, 0
	for _, turns := range byCall {
		begin, end := turns[0].Due, turns[len(turns)-1].End
		if s.InWindow(begin) {
			lifetimes += end - begin
		}
		longest = max(longest, end-begin)
		if begin < s.WindowStart && end > s.WindowStart {
			atStart++
		}
		if begin <= s.WindowEnd && end > s.WindowEnd {
			atEnd++
		}
	}
	edges := float64(atStart+atEnd) * longest.Seconds() / span
	if gap := math.Abs(s.LiveMean - lifetimes.Seconds()/span); gap > edges {
		t.Errorf("live calls %.3f against λW of %.3f: %.3f apart, the window's ends explain %.3f", s.LiveMean, lifetimes.Seconds()/span, gap, edges)
	}
	if s.LiveMean <= 0 || s.LiveMax < int(s.LiveMean) || n.peak < s.LiveMax {
		t.Errorf("live calls mean %.2f max %d peak %d", s.LiveMean, s.LiveMax, n.peak)
	}
}

func TestStepExtendsToMinTurns(t *testing.T) {
	c := testConfig()
	s, n, err := runVirtual(t, c, .05, steady(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for _, turn := range n.turns {
		if turn.Turn > 1 && s.InWindow(turn.Due) {
			measured++
		}
	}
	if measured != c.MinTurns {
		t.Errorf("%d measured turns in a window of %v, want exactly %d: it ends with the last one's due instant", measured, s.WindowEnd-s.WindowStart, c.MinTurns)
	}
	c.MaxStepDuration = 90 * time.Second
	s, _, _ = runVirtual(t, c, .05, steady(time.Millisecond))
	if got := s.WindowEnd - s.WindowStart; got != c.MaxStepDuration {
		t.Errorf("window %v, want the maximum %v", got, c.MaxStepDuration)
	}
}

func TestCapHoldsCallsInOrder(t *testing.T) {
	c := testConfig()
	c.MaxConcurrentCalls = 3
	s, n, err := runVirtual(t, c, 2, steady(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if n.peak != 3 || s.HeldCalls == 0 {
		t.Errorf("peak %d calls, %d held; want the cap of 3 to bind", n.peak, s.HeldCalls)
	}
	last, shed := time.Duration(-1), 0
	for _, turn := range n.turns {
		if turn.Turn == 1 && turn.Outcome == measurement.Shed {
			shed++
			if !s.InWindow(turn.Due) || turn.Sent != measurement.Never {
				t.Errorf("shed call %d due %v sent %v", turn.Call, turn.Due, turn.Sent)
			}
			continue
		}
		if lag, _ := turn.Lag(); lag != 0 {
			t.Errorf("call %d turn %d: lag %v; the cap's wait is not the generator's lateness", turn.Call, turn.Turn, lag)
		}
	}
	for call := 0; ; call++ { // calls begin in the order of their arrival
		var sent time.Duration = -1
		for _, turn := range n.turns {
			if turn.Call == call && turn.Turn == 1 && turn.Outcome == measurement.OK {
				sent = turn.Sent
			}
		}
		if sent < 0 {
			break
		}
		if sent < last {
			t.Errorf("call %d began at %v, before an earlier arrival", call, sent)
		}
		last = sent
	}
	if shed == 0 {
		t.Error("no call was shed although the backlog cannot have cleared")
	}
	total := 0
	for _, turn := range n.turns {
		if turn.Turn == 1 && s.InWindow(turn.Due) {
			total++
		}
	}
	if total != s.ArrivedCalls {
		t.Errorf("%d arrivals counted, %d logged: none may vanish", s.ArrivedCalls, total)
	}
}

func TestDrainIsCut(t *testing.T) {
	c := testConfig()
	c.Drain = 5 * time.Second
	f := fixed{ttft: func(r Request) time.Duration {
		if r.Turn == 3 {
			return time.Hour
		}
		return time.Millisecond
	}}
	s, n, err := runVirtual(t, c, 1, f)
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, turn := range n.turns {
		if turn.Outcome == measurement.TotalTimeout {
			cut++
		}
	}
	if s.Residue == 0 || cut != s.Residue || s.DrainEnd != s.WindowEnd+c.Drain {
		t.Errorf("%d calls left, %d turns timed out, drain ended %v after the window", s.Residue, cut, s.DrainEnd-s.WindowEnd)
	}
}

func TestFailureEndsItsCall(t *testing.T) {
	f := steady(time.Millisecond)
	f.outcome = func(r Request) measurement.Outcome {
		if r.Call%2 == 0 && r.Turn == 2 {
			return measurement.HTTP5xx
		}
		return measurement.OK
	}
	_, n, _ := runVirtual(t, testConfig(), 1, f)
	got := map[measurement.Outcome]int{}
	for _, turn := range n.turns {
		got[turn.Outcome]++
		if turn.Outcome == measurement.NotSent && turn.Turn < 3 {
			t.Errorf("turn %d of call %d was not sent", turn.Turn, turn.Call)
		}
	}
	if got[measurement.HTTP5xx] == 0 || got[measurement.NotSent] != 2*got[measurement.HTTP5xx] {
		t.Errorf("outcomes %v: want two unsent turns for each failure at turn 2", got)
	}
}

func TestLostEndpointEndsTheSweep(t *testing.T) {
	v := clock.NewVirtual()
	dies := 100 * time.Second
	f := steady(time.Millisecond)
	f.clk = v
	f.outcome = func(Request) measurement.Outcome {
		if v.Now() > dies {
			return measurement.Connect
		}
		return measurement.OK
	}
	var n notes
	v.Run(t.Context(), func() {
		err := Sweep(t.Context(), v, f, &n, testConfig(), nil, Rates([]float64{1, 2, 3}))
		if !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
	if len(n.steps) != 2 || n.steps[0].WindowEnd < 0 || n.steps[1].WindowEnd >= 0 {
		t.Errorf("steps %+v: want the first complete and the second cut", n.steps)
	}
	if v.Now() > dies+30*time.Second {
		t.Errorf("noticed only at %v", v.Now())
	}
}

func TestInterruptSavesWhatWasMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clock.NewWall()
		ctx, cancel := context.WithCancel(t.Context())
		f := steady(time.Millisecond)
		f.clk = w
		var n notes
		time.AfterFunc(40*time.Second, cancel)
		err := Sweep(ctx, w, f, &n, testConfig(), nil, Rates([]float64{2, 3}))
		if !errors.Is(err, context.Canceled) || len(n.steps) != 1 || n.steps[0].WindowEnd != measurement.Never || len(n.turns) == 0 {
			t.Errorf("err %v, %d steps, %d turns; want canceled, one open step, and turns", err, len(n.steps), len(n.turns))
		}
		w.Wait()
	})
}

// The same step in virtual time and in real time is the same, turn by turn.
func TestVirtualEqualsWall(t *testing.T) {
	c := testConfig()
	c.MaxConcurrentCalls = 5
	f := fixed{ttft: func(r Request) time.Duration { return time.Duration(1+r.Call%7) * 300 * time.Millisecond }}
	vs, vn, _ := runVirtual(t, c, 1.5, f)
	synctest.Test(t, func(t *testing.T) {
		w := clock.NewWall()
		f.clk = w
		var n notes
		ws, err := RunStep(t.Context(), w, f, &n, c, 0, 1.5)
		if err != nil {
			t.Fatal(err)
		}
		w.Wait()
		ws.LiveMax, vs.LiveMax = 0, 0 // calls that end and begin at one instant may overlap in either order
		if d := cmp.Diff(vs, ws, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
			t.Errorf("step (-virtual +wall):\n%s", d)
		}
		key := func(ts []measurement.Turn) map[string]measurement.Turn {
			m := map[string]measurement.Turn{}
			for _, x := range ts {
				m[fmt.Sprint(x.Call, "/", x.Turn)] = x
			}
			return m
		}
		if d := cmp.Diff(key(vn.turns), key(n.turns)); d != "" {
			t.Errorf("turns (-virtual +wall):\n%s", d)
		}
	})
}

func TestCalibrate(t *testing.T) {
	for _, perWord := range []float64{1, 1.37, 4.2} {
		v := clock.NewVirtual()
		f := steady(time.Millisecond)
		f.clk, f.perWord = v, perWord
		v.Run(t.Context(), func() {
			script, cal, err := Calibrate(t.Context(), f, testConfig().Script, Lengths{System: 18000, User: 40})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(cal.TokensPerWord-perWord) > .01 || math.Abs(cal.Overhead-11) > 1.5 {
				t.Errorf("%v tokens a word: calibrated %+v", perWord, cal)
			}
			got := f.Do(t.Context(), Request{Call: 1, Turn: 1, Prompt: script.Open(1), MaxTokens: 1}).Turn.PromptTokens
			if math.Abs(float64(got)-18040) > 180 {
				t.Errorf("%v tokens a word: a first turn has %d tokens, want 18,040 within 1 %%", perWord, got)
			}
		})
	}
	v := clock.NewVirtual()
	f := steady(time.Millisecond)
	f.clk = v
	f.outcome = func(Request) measurement.Outcome { return measurement.HTTP4xx }
	v.Run(t.Context(), func() {
		if _, _, err := Calibrate(t.Context(), f, testConfig().Script, Lengths{System: 18000, User: 40}); err == nil || !strings.Contains(err.Error(), "http_4xx") {
			t.Errorf("a server that refuses: got %v", err)
		}
	})
}

func TestValidate(t *testing.T) {
	c := testConfig()
	c.Turns = 1
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "turns: 1: must be at least 2") {
		t.Errorf("got %v", err)
	}
}

// A closed loop keeps exactly so many calls in progress; whoever ends is followed at once.
func TestClosedLoop(t *testing.T) {
	c := testConfig()
	c.Closed = true
	s, n, err := runVirtual(t, c, 7, steady(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if n.peak != 7 || s.LiveMax != 7 || math.Abs(s.LiveMean-7) > 1e-6 || s.HeldCalls != 0 {
		t.Errorf("live calls mean %v, max %d, peak %d, held %d; want 7 throughout and none held", s.LiveMean, s.LiveMax, n.peak, s.HeldCalls)
	}
	for _, turn := range n.turns {
		if turn.Outcome != measurement.OK || turn.Held != measurement.Never {
			t.Fatalf("turn %+v", turn)
		}
		if lag, _ := turn.Lag(); lag != 0 {
			t.Fatalf("lag %v", lag)
		}
	}
}

// Shards keep to slots fixed beforehand, whatever each of them sees.
func TestShardsStayInStep(t *testing.T) {
	var steps [3][]measurement.Step
	for i := range steps {
		v := clock.NewVirtual()
		f := steady(time.Duration(i+1) * 100 * time.Millisecond)
		f.clk = v
		c := testConfig()
		c.Process = workload.Process{Shard: i, Shards: len(steps)}
		c.StartAt = 5 * time.Second
		var n notes
		v.Run(t.Context(), func() {
			if err := Sweep(t.Context(), v, f, &n, c, nil, Rates([]float64{.1, 2})); err != nil {
				t.Error(err)
			}
		})
		steps[i] = n.steps
	}
	for i := range steps {
		for j, s := range steps[i] {
			first := steps[0][j]
			if s.Start != first.Start || s.WindowStart != first.WindowStart || s.WindowEnd != first.WindowEnd {
				t.Errorf("shard %d step %d: %v %v-%v, want %v %v-%v", i, j, s.Start, s.WindowStart, s.WindowEnd, first.Start, first.WindowStart, first.WindowEnd)
			}
		}
	}
	if s := steps[0][0]; s.Start != 5*time.Second || s.WindowEnd-s.WindowStart != 240*time.Second {
		t.Errorf("the first step starts at %v with a window of %v, want 5s and the 240s that 72 turns take at .1 calls/s", s.Start, s.WindowEnd-s.WindowStart)
	}
}

// A sweep that goes on behind earlier steps does what the whole one does.
func TestSweepGoesOn(t *testing.T) {
	run := func(done []measurement.Step) []measurement.Turn {
		v := clock.NewVirtual()
		f := steady(50 * time.Millisecond)
		f.clk = v
		var n notes
		v.Run(t.Context(), func() {
			if err := Sweep(t.Context(), v, f, &n, testConfig(), done, Rates([]float64{1, 2, 3})); err != nil {
				t.Error(err)
			}
		})
		return n.turns
	}
	whole, rest := run(nil), run(make([]measurement.Step, 2))
	count := func(turns []measurement.Turn) (n int, ttft time.Duration) {
		for _, x := range turns {
			if x.Step == 2 {
				n++
				d, _ := x.TTFT()
				ttft += d
			}
		}
		return n, ttft
	}
	a, x := count(whole)
	b, y := count(rest)
	if a != b || x != y || len(rest) != b {
		t.Errorf("step 2 of the whole sweep has %d turns, of the one that goes on %d, of %d in all", a, b, len(rest))
	}
}

type preparing struct {
	fixed
	calls *atomic.Int32
}

func (p preparing) Prepare(context.Context) { p.calls.Add(1) }

func TestPrepare(t *testing.T) {
	v := clock.NewVirtual()
	p := preparing{fixed: steady(time.Millisecond), calls: &atomic.Int32{}}
	p.clk = v
	c := testConfig()
	c.Prepare = 300 * time.Millisecond
	var n notes
	v.Run(t.Context(), func() {
		if _, err := RunStep(t.Context(), v, p, &n, c, 0, 1); err != nil {
			t.Error(err)
		}
	})
	later := 0
	for _, turn := range n.turns {
		if turn.Turn > 1 {
			later++
		}
		if lag, _ := turn.Lag(); lag != 0 {
			t.Fatalf("preparing made a turn %v late", lag)
		}
	}
	if got := int(p.calls.Load()); got != later {
		t.Errorf("prepared %d times for %d later turns", got, later)
	}
}
