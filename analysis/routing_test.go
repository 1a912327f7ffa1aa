package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

// at is a turn of one call on a replica, for a second from an instant, of 1,000 tokens.
func at(call, turn int, replica int32, from time.Duration) measurement.Turn {
	t := measurement.NewTurn()
	t.Call, t.Turn, t.Replica = call, turn, replica
	t.Due, t.Sent, t.Admitted, t.FirstToken, t.LastToken, t.End = from, from, from, from+second/2, from+second, from+second
	t.PromptTokens, t.CompletionTokens, t.CachedTokens, t.Outcome = 900, 100, 0, measurement.OK
	return t
}

// A prefix is left behind when its turn goes elsewhere while it is there still: what its replica took since then fits the pool beside it.
func TestStrays(t *testing.T) {
	first, other, later := at(1, 1, 1, 10*second), at(2, 1, 1, 12*second), at(1, 2, 2, 20*second)
	stays := later
	stays.Replica = 1
	elsewhere := other
	elsewhere.Replica = 3
	unknown := func(t measurement.Turn) measurement.Turn { t.Replica = 0; return t }
	after := at(2, 1, 1, 21*second)
	beside := at(3, 1, 1, 9*second) // ends with the first
	for _, c := range []struct {
		why   string
		pool  int
		turns []measurement.Turn
		want  bool
		told  bool
	}{
		{"it goes elsewhere", 2000, []measurement.Turn{first, later}, true, true},
		{"it stays", 2000, []measurement.Turn{first, stays}, false, true},
		{"what came between fits too", 2000, []measurement.Turn{first, other, later}, true, true},
		{"what came between took its room", 1999, []measurement.Turn{first, other, later}, false, true},
		{"what came between came to another replica", 1999, []measurement.Turn{first, elsewhere, later}, true, true},
		{"what came after took nothing from it", 1999, []measurement.Turn{first, later, after}, true, true},
		{"what was over before took nothing from it", 1999, []measurement.Turn{beside, first, later}, true, true},
		{"how large the pool is nobody knows", 0, []measurement.Turn{first, other, later}, true, true},
		{"where the first went nobody knows", 2000, []measurement.Turn{unknown(first), later}, false, true},
		{"where they went nobody knows", 2000, []measurement.Turn{unknown(first), unknown(later)}, false, false},
	} {
		went := routingOf(deployment{engines: 3, kv: memoryOf{tokens: c.pool}}, nil, ofStep(measurement.TurnsOf(c.turns), 0))
		i := slices.IndexFunc(c.turns, func(t measurement.Turn) bool { return t.Call == 1 && t.Turn == 2 })
		if got := went.strays[int32(i)]; got != c.want || went.told != c.told || went.blind() == c.told || len(went.strays) > 1 {
			t.Errorf("%s: left behind %v (of %v), told %v, want %v and %v", c.why, got, went.strays, went.told, c.want, c.told)
		}
	}
	if went := routingOf(deployment{engines: 1}, nil, ofStep(measurement.TurnsOf([]measurement.Turn{unknown(first)}), 0)); went.blind() {
		t.Error("one engine has nothing to tell")
	}
	if went := routingOf(deployment{engines: 5, prefill: 2}, nil, some{of: measurement.TurnsOf(nil)}); went.engines != 2 {
		t.Errorf("%d engines prefill, want 2", went.engines)
	}
}

// Of turns that miss their prefix, most decide whether they left it behind or it was evicted, whatever is evicted beside.
func TestLeftBehind(t *testing.T) {
	p := figure
	late := ofStep(measurement.TurnsOf(slices.Repeat([]measurement.Turn{{PromptTokens: 1000, CachedTokens: 10}}, 20)), 0)
	inTime := ofStep(measurement.TurnsOf(slices.Repeat([]measurement.Turn{{PromptTokens: 1000, CachedTokens: 990}}, 100)), 0)
	s := measurement.StepResult{Rate: 1, CacheHitRate: p(.8), Engine: &measurement.EngineResult{EvictedRate: p(5), Replicas: make([]measurement.ReplicaResult, 3)}}
	went := routing{engines: 3, told: true, strays: map[int32]bool{}, held: map[int32]int{}}
	u := unitOf(measurement.Config{})
	below := []measurement.StepResult{{Rate: .5, CacheHitRate: p(.99)}}
	for i := range int32(20) {
		for _, f := range []finding{fewEvictions(u, s, nil, late, inTime, went), eviction(u, s, below, late, went)} {
			want, says := MechanismEviction, "been evicted before"
			if i > 10 {
				want, says = MechanismRouting, "of these went to another replica than the turn before them, which had it still"
			}
			if f.name != want || !f.sure || !strings.Contains(f.sentence, says) {
				t.Errorf("%d of 20 left it behind: %q, sure %v, %q; want %q", i, f.name, f.sure, f.sentence, want)
			}
		}
		went.strays[i], went.held[i] = true, 1000
	}
	blind := routing{engines: 3}
	if f := fewEvictions(u, s, nil, late, inTime, blind); f.name != MechanismEviction || f.sure || !strings.Contains(f.sentence, "or they went to another replica, which the log does not tell") {
		t.Errorf("where turns went nobody knows: %+v", f)
	}

	// Where all miss at every load, nothing stands against them but the work that it makes.
	none := some{of: late.of}
	if f := misrouted(u, s, went, none, late, none); f.name != MechanismRouting || !f.sure || !strings.Contains(f.sentence, "20 of the 20 turns over the limit went to another replica") || !strings.Contains(f.sentence, "100 % of all tokens computed") {
		t.Errorf("all left it behind: %+v", f)
	}
	warm := ofStep(measurement.TurnsOf(slices.Repeat([]measurement.Turn{{Turn: 1, PromptTokens: 1000}}, 21)), 0)
	if f := misrouted(u, s, went, warm, late, none); f.name != "" {
		t.Errorf("first turns are most of the work: %+v", f)
	}
	if f := misrouted(u, s, blind, none, late, none); f.name != "" {
		t.Errorf("where turns went nobody knows: %+v", f)
	}
}

// A cold prefill is waited for on its own replica, and nowhere else.
func TestColdOnTheSameReplica(t *testing.T) {
	var turns []measurement.Turn
	for i := range 40 {
		turns = append(turns, at(100+i, 1, int32(1+i%4), time.Duration(i)*second))
	}
	late, inTime := some{}, some{}
	for i := range 40 {
		turn := at(i, 2, int32(1+i%4), time.Duration(i)*second+second/4)
		if i%2 == 0 { // a replica that prefills nothing then
			turn.Replica = 5
			inTime.at = append(inTime.at, int32(len(turns)))
		} else {
			late.at = append(late.at, int32(len(turns)))
		}
		turns = append(turns, turn)
	}
	find := func() finding {
		held := measurement.TurnsOf(turns)
		late.of, inTime.of = held, held
		all := ofStep(held, 0)
		return coldPrefill(perSecond, measurement.StepResult{Rate: 1}, all, late, inTime, routingOf(deployment{engines: 5}, nil, all))
	}
	if f := find(); f.name != MechanismPrefill || !f.sure || !strings.Contains(f.sentence, "100 % of the 20 turns over the limit waited while another call's first turn was being prefilled on the same replica, 0 % of the 20 in time") {
		t.Errorf("told: %+v", f)
	}
	for i := range turns {
		turns[i].Replica = 0
	}
	if f := find(); f.name != "" { // all overlap something somewhere
		t.Errorf("not told: %+v", f)
	}
	for _, i := range inTime.at {
		wait(&turns[i], second/100)
		turns[i].Due += second / 2
		turns[i].FirstToken += second / 2
	}
	if f := find(); f.name != MechanismPrefill || f.sure || !strings.Contains(f.sentence, "whether on the same replica the log does not tell") {
		t.Errorf("not told, though it shows: %+v", f)
	}
}
