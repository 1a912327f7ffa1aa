package generator

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/clock"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
)

// asking keeps what it was asked, by call.
type asking struct {
	fixed
	asked map[int]Request
}

func (a asking) Do(ctx context.Context, req Request) Reply {
	a.asked[req.Call] = req
	return a.fixed.Do(ctx, req)
}

func requestsConfig(t *testing.T, r workload.Requests) Config {
	t.Helper()
	if err := r.Prepare(); err != nil {
		t.Fatal(err)
	}
	c := testConfig()
	c.Script.Requests, c.Turns, c.OutputTokens, c.Script.SystemWords, c.Script.UserWords = &r, 1, 0, 0, 0
	return c
}

// tinyTrace is three requests in three seconds.
func tinyTrace(t *testing.T) *workload.Trace {
	t.Helper()
	tr, err := workload.ReadTrace(strings.NewReader("arrival,isl,osl\n0,100,1\n1000,200,2\n3000,300,3\n"), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func sweepRequests(t *testing.T, c Config, done []measurement.Step, rates ...float64) (*notes, map[int]Request) {
	t.Helper()
	v := clock.NewVirtual()
	a := asking{fixed: steady(150 * time.Millisecond), asked: map[int]Request{}}
	a.clk = v
	var n notes
	v.Run(t.Context(), func() {
		if err := Sweep(t.Context(), v, a, &n, c, done, Rates(rates)); err != nil {
			t.Error(err)
		}
	})
	return &n, a.asked
}

// Single requests are measured, each of them; a window waits for its minimum of them, and nothing is warm.
func TestRequestsAreMeasured(t *testing.T) {
	c := requestsConfig(t, workload.Requests{Prompt: workload.Constant(50), Output: workload.Constant(4)})
	c.MinTurns = 500
	n, asked := sweepRequests(t, c, nil, 3)
	s := n.steps[0]
	measured := 0
	for _, turn := range n.turns {
		if turn.Turn != measurement.LoneTurn || turn.CompletionTokens != 4 || !asked[turn.Call].Last {
			t.Fatalf("turn %+v", turn)
		}
		if s.InWindow(turn.Due) {
			measured++
		}
	}
	if measured != 500 || s.ArrivedCalls != 500 || math.Abs(s.LiveMean-3*.15) > .1 || s.LiveMean != s.LiveTurnsMean {
		t.Errorf("%d measured, %d arrived, %v live and %v turns on average; want 500, 500, .45 and the same", measured, s.ArrivedCalls, s.LiveMean, s.LiveTurnsMean)
	}
}

// A trace comes at its own instants or stretched to a rate, until the window ends or once; each step begins with its first request.
func TestTraceInSteps(t *testing.T) {
	tr := tinyTrace(t)
	c := requestsConfig(t, workload.Requests{Trace: tr})
	c.Process = workload.Process{Kind: "trace", Trace: tr}
	c.Warmup, c.MinTurns, c.StepDuration = 0, 0, 9*time.Second
	n, asked := sweepRequests(t, c, nil, tr.Rate(), 2*tr.Rate())
	var due [2][]float64
	for _, turn := range n.turns {
		due[turn.Step] = append(due[turn.Step], math.Round(1e3*(turn.Due-n.steps[turn.Step].Start).Seconds())/1e3)
		number := turn.Call % measurement.CallsPerStep
		if want := []int{1, 2, 3}[number%3]; asked[turn.Call].MaxTokens != want {
			t.Errorf("request %d asks %d tokens, want %d", turn.Call, asked[turn.Call].MaxTokens, want)
		}
	}
	for i := range due {
		slices.Sort(due[i])
	}
	if want := []float64{0, 1, 3, 4.5, 5.5, 7.5, 9}; !reflect.DeepEqual(due[0][:len(want)-1], want[:len(want)-1]) {
		t.Errorf("at its own speed requests were due at %v, want %v", due[0], want)
	}
	if want := []float64{0, .5, 1.5, 2.25, 2.75, 3.75, 4.5, 5, 6, 6.75, 7.25, 8.25}; !reflect.DeepEqual(due[1][:len(want)], want) {
		t.Errorf("at twice its speed requests were due at %v, want %v", due[1], want)
	}
	c.Process.Once = true
	c.MinTurns = 0
	if n, _ = sweepRequests(t, c, nil, tr.Rate()); len(n.turns) != 3 || n.steps[0].WindowEnd != 9*time.Second {
		t.Errorf("once, %d requests came in a window to %v, want 3 to 9s", len(n.turns), n.steps[0].WindowEnd)
	}
	c.Closed, c.Process = true, workload.Process{}
	n, asked = sweepRequests(t, c, nil, 2)
	if len(n.turns) < 100 || n.steps[0].LiveMax != 2 || asked[4].MaxTokens != 2 {
		t.Errorf("in a closed loop %d requests came, %d at once, the fifth of %d tokens; want more than 100, 2, 2", len(n.turns), n.steps[0].LiveMax, asked[4].MaxTokens)
	}
}

// The shards of a trace ask together what one process asks, and a sweep that goes on asks what the whole one does.
func TestRequestsShiftNothing(t *testing.T) {
	tr := tinyTrace(t)
	traced := requestsConfig(t, workload.Requests{Trace: tr})
	traced.Process = workload.Process{Kind: "trace", Trace: tr}
	traced.Warmup, traced.MinTurns, traced.StepDuration = 0, 0, 20*time.Second
	drawn := requestsConfig(t, workload.Requests{Prompt: workload.Lengths{Kind: "lognormal", A: 50, B: 1}, Output: workload.Lengths{Kind: "uniform", A: 1, B: 99}, PrefixTokens: 30, Prefixes: 5, Zipf: 1})
	say := func(asked map[int]Request) (out []string) {
		for call, r := range asked {
			out = append(out, fmt.Sprint(call, r.Prompt, r.MaxTokens))
		}
		slices.Sort(out)
		return out
	}
	for name, c := range map[string]Config{"trace": traced, "drawn": drawn} {
		_, whole := sweepRequests(t, c, nil, 1, 2)
		_, rest := sweepRequests(t, c, make([]measurement.Step, 1), 1, 2)
		for call, r := range rest {
			if fmt.Sprint(whole[call].Prompt, whole[call].MaxTokens) != fmt.Sprint(r.Prompt, r.MaxTokens) {
				t.Errorf("%s: request %d of the sweep that goes on is another", name, call)
			}
		}
		if len(rest) == 0 {
			t.Errorf("%s: nothing was asked", name)
		}
	}
	_, whole := sweepRequests(t, traced, nil, 2)
	union := map[int]Request{}
	for i := range 3 {
		c := traced
		c.Process.Shard, c.Process.Shards = i, 3
		_, part := sweepRequests(t, c, nil, 2)
		for call, r := range part {
			if _, twice := union[call]; twice {
				t.Errorf("two shards ask request %d", call)
			}
			union[call] = r
		}
	}
	if a, b := say(whole), say(union); !reflect.DeepEqual(a, b) {
		t.Errorf("one process asks %d requests, the shards %d or others", len(a), len(b))
	}
}

// A rate that is turned stretches what is left of a trace.
func TestTraceOnADial(t *testing.T) {
	tr := tinyTrace(t)
	c := requestsConfig(t, workload.Requests{Trace: tr})
	c.Process = workload.Process{Kind: "trace", Trace: tr}
	c.Warmup, c.MinTurns, c.StepDuration = 0, 0, 9*time.Second
	v := clock.NewVirtual()
	a := asking{fixed: steady(time.Millisecond), asked: map[int]Request{}}
	a.clk = v
	c.Dial = NewDial(v, tr.Rate())
	var n notes
	v.Run(t.Context(), func() {
		v.Go("turning", func() {
			_ = v.SleepUntil(t.Context(), 3500*time.Millisecond)
			c.Dial.Turn(2 * tr.Rate())
		})
		if _, err := RunStep(t.Context(), v, a, &n, c, 0, tr.Rate()); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, turn := range n.turns {
		got = append(got, fmt.Sprintf("%.2f: %d", turn.Due.Seconds(), a.asked[turn.Call].MaxTokens))
	}
	want := []string{"0.00: 1", "1.00: 2", "3.00: 3", "4.25: 1", "4.75: 2", "5.75: 3", "6.50: 1", "7.00: 2"}
	if len(got) < len(want) || !reflect.DeepEqual(got[:len(want)], want) {
		t.Errorf("due, and tokens asked: %v, want %v", got, want)
	}
}

// The lengths of prompts hold on whatever a server counts a word.
func TestCalibrateRequests(t *testing.T) {
	c := requestsConfig(t, workload.Requests{Prompt: workload.Constant(700), Output: workload.Constant(1), PrefixTokens: 300, Prefixes: 2})
	v := clock.NewVirtual()
	f := steady(time.Millisecond)
	f.clk, f.perWord = v, 1.5
	v.Run(t.Context(), func() {
		script, cal, err := Calibrate(t.Context(), f, c.Script, Lengths{System: 1000})
		if err != nil || math.Abs(cal.TokensPerWord-1.5) > .01 || math.Abs(cal.Overhead-11) > 1 {
			t.Fatalf("calibrated to %+v, %v; want 1.5 tokens a word and 11", cal, err)
		}
		words := 0
		ask := script.Ask(3, 3)
		for i := 0; ; i++ {
			s, ok := ask.Prompt[0].Content.Part(i)
			if !ok {
				break
			}
			words += s.Words
		}
		if tokens := 1.5*float64(words) + 11; math.Abs(tokens-1000) > 1.5 {
			t.Errorf("a prompt has %.1f tokens, want 1000", tokens)
		}
	})
}

// A cap that holds requests back for longer than the window does not make the window end before they begin: what is in flight on
// average stays under the cap, and adds up from the requests' own times.
func TestHeldRequestsAddUp(t *testing.T) {
	c := requestsConfig(t, workload.Requests{Prompt: workload.Constant(50), Output: workload.Constant(4)})
	c.MaxConcurrentCalls, c.MinTurns, c.Warmup, c.StepDuration = 3, 400, 5*time.Second, 10*time.Second
	n, _ := sweepRequests(t, c, nil, 40) // 20 a second are served
	s := n.steps[0]
	var busy time.Duration
	measured := 0
	for _, turn := range n.turns {
		if turn.Sent >= 0 {
			busy += max(0, min(turn.End, s.WindowEnd)-max(turn.Sent, s.WindowStart))
			if s.InWindow(turn.Due) {
				measured++
			}
		}
	}
	mean := busy.Seconds() / (s.WindowEnd - s.WindowStart).Seconds()
	if s.LiveTurnsMean > 3 || math.Abs(s.LiveTurnsMean-mean) > 1e-6 || measured < 400 {
		t.Errorf("%v turns in flight were counted, their times add up to %v, %d measured; want the same, 3 at most, and 400", s.LiveTurnsMean, mean, measured)
	}
}
