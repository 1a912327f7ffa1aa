package analysis

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/measurement"
)

// split makes of a log those of n shards, every n-th call each; n is a power of two, so that averages split without rest. The
// log's own most calls live are counted as shards must have theirs counted anew.
func split(t *testing.T, log *measurement.Log, n int) []measurement.Log {
	t.Helper()
	shards := make([]measurement.Log, n)
	for i := range shards {
		l := &shards[i]
		l.Header = log.Header
		l.Header.Shard = string(rune('0'+i)) + "/" + string(rune('0'+n))
		for _, turn := range log.Turns {
			if turn.Call%n == i {
				l.Turns = append(l.Turns, turn)
			}
		}
		part := func(total int) int { return (total + i) / n } // these add up to the total
		for _, s := range log.Steps {
			s.LiveMean, s.LiveTurnsMean, s.LiveMax = s.LiveMean/float64(n), s.LiveTurnsMean/float64(n), 1
			s.ArrivedCalls, s.HeldCalls, s.Residue = part(s.ArrivedCalls), part(s.HeldCalls), part(s.Residue)
			s.InFlightStart, s.InFlightEnd = part(s.InFlightStart), part(s.InFlightEnd)
			s.DrainEnd -= time.Duration(i) * second
			var itl []measurement.Histogram
			for _, h := range s.ITL {
				whole, err := measurement.DecodeHistogram(h)
				if err != nil {
					t.Fatal(err)
				}
				mine := measurement.NewHistogram()
				for _, bar := range whole.Distribution() {
					if c := part(int(bar.Count)); c > 0 {
						if err := mine.RecordValues(bar.To, int64(c)); err != nil {
							t.Fatal(err)
						}
					}
				}
				enc, err := measurement.EncodeHistogram(h.Turn, mine)
				if err != nil {
					t.Fatal(err)
				}
				itl = append(itl, enc)
			}
			s.ITL = itl
			l.Steps = append(l.Steps, s)
		}
	}
	for i := range log.Steps {
		log.Steps[i].LiveMax = liveMax(log.Steps[i], stepOf(log.Turns, log.Steps[i].Step))
	}
	return shards
}

func TestMergeIsTheWholeRun(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		whole := pool("whole", .85, .3, .5, .8, 1.1)
		unsent := failed(whole.Turns[40], measurement.NotSent)
		unsent.Call, unsent.Sent, unsent.End = 999, measurement.Never, measurement.Never
		whole.Turns = append(whole.Turns, unsent)
		for i := 0; i < len(whole.Turns); i += 50 {
			whole.Turns[i] = failed(whole.Turns[i], measurement.HTTP5xx)
		}
		whole.Steps[3].WindowEnd, whole.Steps[3].DrainEnd, whole.Steps[3].ITL = measurement.Never, measurement.Never, nil // cut
		shards := split(t, &whole, n)
		shards[n-1].Warnings = []string{"b.turns.jsonl:9: torn"}
		whole.Warnings = shards[n-1].Warnings
		for i := range shards {
			shards[i].Samples = []measurement.EngineSample{{Step: i}}
			shards[i].Steps[3].DrainEnd = measurement.Never
		}
		slices.Reverse(shards) // in any order
		merged, err := Merge(shards)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Analyze(whole), Analyze(merged)); d != "" {
			t.Errorf("%d shards (-one process +merged):\n%s", n, d)
		}
		if merged.Header.Shard != "" || len(merged.Turns) != len(whole.Turns) || len(merged.Samples) != n || merged.Samples[0].Step != 0 {
			t.Errorf("%d shards: shard %q, %d turns of %d, samples %v", n, merged.Header.Shard, len(merged.Turns), len(whole.Turns), merged.Samples)
		}
		if !slices.IsSortedFunc(merged.Turns, byEnd) {
			t.Errorf("%d shards: turns out of order", n)
		}
		if s := merged.Steps[0]; s.ArrivedCalls != whole.Steps[0].ArrivedCalls || s.DrainEnd != whole.Steps[0].DrainEnd {
			t.Errorf("%d shards: %d calls arrived, drained at %v; want %d, %v", n, s.ArrivedCalls, s.DrainEnd, whole.Steps[0].ArrivedCalls, whole.Steps[0].DrainEnd)
		}
	}
}

func TestTurnsMergeInTheOrderTheyEnded(t *testing.T) {
	at := func(step, call, turn int, end time.Duration) measurement.Turn {
		return measurement.Turn{Step: step, Call: call, Turn: turn, End: end}
	}
	want := []measurement.Turn{at(0, 2, 1, 5), at(0, 1, 1, 7), at(0, 1, 2, 7), at(0, 2, 2, 7), at(0, 3, 2, measurement.Never), at(1, 9, 1, 6)}
	got := slices.Clone(want)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, byEnd)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLiveMax(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		s := measurement.Step{WindowStart: 100, WindowEnd: 200}
		var turns []measurement.Turn
		type life struct{ from, to time.Duration }
		var lives []life
		for call := range r.IntN(12) {
			from := time.Duration(r.IntN(260))
			mid := from + 1 + time.Duration(r.IntN(30))
			to := mid + time.Duration(r.IntN(60))
			lives = append(lives, life{from, to})
			turns = append(turns, measurement.Turn{Call: call, Turn: 2, Sent: mid, End: to}, measurement.Turn{Call: call, Turn: 1, Sent: from, End: mid},
				measurement.Turn{Call: call, Turn: 3, Sent: measurement.Never, End: measurement.Never})
		}
		want := 0
		for at := s.WindowStart; at <= s.WindowEnd; at++ {
			live := 0
			for _, l := range lives {
				if l.from <= at && at < l.to {
					live++
				}
			}
			want = max(want, live)
		}
		if got := liveMax(s, stepOf(turns, 0)); got != want {
			t.Fatalf("got %d, counted %d at most in %v", got, want, lives)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, c := range []struct {
		why  string
		edit func([]measurement.Log) []measurement.Log
		want string
	}{
		{"nothing", func([]measurement.Log) []measurement.Log { return nil }, "nothing to merge"},
		{"a whole run", func(l []measurement.Log) []measurement.Log { l[1].Header.Shard = ""; return l }, "log 2 (run) is a whole run, not a shard of one"},
		{"no shard", func(l []measurement.Log) []measurement.Log { l[1].Header.Shard = "2/2"; return l }, `log 2 (run): "2/2" is no shard`},
		{"more than a shard", func(l []measurement.Log) []measurement.Log { l[1].Header.Shard = "1/2x"; return l }, `"1/2x" is no shard`},
		{"shards of two and of three", func(l []measurement.Log) []measurement.Log { l[1].Header.Shard = "1/3"; return l }, "shard 0/2 is one of 2 and shard 1/3 one of 3"},
		{"one twice", func(l []measurement.Log) []measurement.Log { return []measurement.Log{l[0], l[1], l[0]} }, "shard 0/2 is given twice"},
		{"one missing", func(l []measurement.Log) []measurement.Log { return l[:1] }, "shard 1/2 is missing"},
		{"another seed", func(l []measurement.Log) []measurement.Log { l[1].Header.Seed = 2; return l }, "seed is 1 in one and 2 in the other"},
		{"another schema", func(l []measurement.Log) []measurement.Log { l[1].Header.Schema = "x/v2"; return l }, `schema is "kneefinder/turns/v1" in one and "x/v2"`},
		{"another model", func(l []measurement.Log) []measurement.Log { l[1].Header.Engine.Model = "other"; return l }, `engine.model is "gemma-4-12b" in one and "other"`},
		{"other turns", func(l []measurement.Log) []measurement.Log { l[1].Header.Config.Turns = 6; return l }, "turns is 4 in one and 6"},
		{"a setting that one lacks", func(l []measurement.Log) []measurement.Log { l[1].Header.Config.Language = "de"; return l }, `language is absent in one and "de"`},
		{"a step less", func(l []measurement.Log) []measurement.Log { l[1].Steps = l[1].Steps[:1]; return l }, "shard 0/2 has 2 steps and shard 1/2 has 1"},
		{"another number", func(l []measurement.Log) []measurement.Log { l[1].Steps[1].Step = 2; return l }, "shard 0/2 ran step 1 at 0.5 where shard 1/2 ran step 2 at 0.5"},
		{"another rate", func(l []measurement.Log) []measurement.Log { l[1].Steps[1].Rate = .6; return l }, "where shard 1/2 ran step 1 at 0.6"},
		{"windows 2 us apart", func(l []measurement.Log) []measurement.Log {
			l[1].Steps[1].WindowEnd += 2 * time.Microsecond
			return l
		}, "the window end of step 1 is 270 s in shard 0/2 and 270.000002 s in shard 1/2: more than 1µs apart"},
		{"one cut short", func(l []measurement.Log) []measurement.Log { l[1].Steps[1].WindowEnd = measurement.Never; return l }, "absent in shard 1/2"},
		{"both sent everything", func(l []measurement.Log) []measurement.Log { l[1].Turns = l[0].Turns; return l }, "is there twice"},
		{"a turn of no step", func(l []measurement.Log) []measurement.Log { l[1].Turns[0].Step = 7; return l }, "of step 7, which no shard holds"},
		{"a torn histogram", func(l []measurement.Log) []measurement.Log { l[1].Steps[1].ITL[0].Encoded = "torn"; return l }, "step 1: decode histogram"},
		{"windows 1 us apart are one", func(l []measurement.Log) []measurement.Log { l[1].Steps[1].WindowEnd += time.Microsecond; return l }, ""},
		{"each has its own nonce, start and way to the server", func(l []measurement.Log) []measurement.Log {
			l[1].Header.Nonce, l[1].Header.Started, l[1].Header.Engine.BaseURL = "ff", "2026-01-31T12:00:00Z", "http://b"
			return l
		}, ""},
	} {
		log := pool("run", .85, .3, .5)
		_, err := Merge(c.edit(split(t, &log, 2)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}
