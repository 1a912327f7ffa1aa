package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kneefinder/measurement"
)

// routing is what is known of where the turns of a step went.
type routing struct {
	engines int            // that take requests; 1 unless it is a fleet
	told    bool           // the log tells of turns which replica they went to
	strays  map[int32]bool // by the turn's index: it went to another replica than the turn before it, which had its prefix still
	held    map[int32]int  // by the same: how many tokens that was
}

// blind is a fleet of which nobody knows where turns went.
func (r routing) blind() bool { return r.engines > 1 && !r.told }

// took are the requests that one replica has taken: when, or when they had ended, with the tokens of all up to each.
type took struct {
	at  []time.Duration
	sum []int
}

// touch is a request's tokens on a replica, from when it was admitted or ended.
type touch struct {
	at     time.Duration
	tokens int
}

func tookOf(touches []touch) took {
	slices.SortFunc(touches, func(a, b touch) int { return cmp.Compare(a.at, b.at) })
	t := took{sum: make([]int, 1, len(touches)+1)}
	for i, x := range touches {
		t.at, t.sum = append(t.at, x.at), append(t.sum, t.sum[i]+x.tokens)
	}
	return t
}

// before are the tokens of requests before an instant.
func (t took) before(at time.Duration) int {
	i, _ := slices.BinarySearch(t.at, at)
	return t.sum[i]
}

// routingOf follows the calls of a step from replica to replica. A replica keeps what it used last: it has a prefix still while what it has taken
// since, with the prefix itself, fits its KV pool. Where the pool's size is not told, it is taken to fit.
func routingOf(d deployment, e *measurement.EngineResult, turns some) routing {
	r := routing{engines: d.engines, strays: map[int32]bool{}, held: map[int32]int{}}
	if d.prefill > 0 {
		r.engines = d.prefill
	}
	if e != nil && d.engines == 1 {
		r.engines = max(1, len(e.Replicas))
		if e.Engines != nil {
			r.engines = max(r.engines, int(*e.Engines))
		}
	}
	room := d.kv.calls * d.kv.callTokens
	if room == 0 {
		room = d.kv.tokens
	}
	type since struct{ admitted, ended took }
	var on map[int32]since
	if room > 0 {
		admitted, ended := map[int32][]touch{}, map[int32][]touch{}
		for t := range turns.each {
			if n := max(0, t.PromptTokens) + max(0, t.CompletionTokens); t.Replica > 0 && t.Admitted > 0 {
				admitted[t.Replica] = append(admitted[t.Replica], touch{t.Admitted, n})
				ended[t.Replica] = append(ended[t.Replica], touch{t.End, n})
			}
		}
		on = make(map[int32]since, len(admitted))
		for i := range admitted {
			on[i] = since{tookOf(admitted[i]), tookOf(ended[i])}
		}
	}
	type last struct {
		turn, tokens int
		replica      int32
		end          time.Duration
	}
	calls := map[int]last{}
	for at, t := range turns.numbered {
		if t.Replica == 0 {
			continue
		}
		r.told = true
		if p, ok := calls[t.Call]; ok && p.turn == t.Turn-1 && p.replica != t.Replica {
			home, known := on[p.replica]
			if !known || home.admitted.before(t.Sent)-home.ended.before(p.end) <= room {
				r.strays[at], r.held[at] = true, p.tokens
			}
		}
		calls[t.Call] = last{t.Turn, max(0, t.PromptTokens) + max(0, t.CompletionTokens), t.Replica, t.End}
	}
	return r
}

// misrouted looks for prefixes that are left behind at other replicas by so many turns, at whatever load, that neither lower steps nor the turns
// in time stand against them: most of the tokens that the engines compute are then of such prefixes. It explains the turns over the limit
// by how many of them it is, and by how much of the work.
func misrouted(u unit, s measurement.StepResult, r routing, warm, late, inTime some) finding {
	missed, strays, computed, again := 0, 0, uncached(warm)+uncached(late)+uncached(inTime), 0
	for i, turns := range []some{late, inTime} {
		for at, t := range turns.numbered {
			if !r.strays[at] || !hitKnown(t) || 2*t.CachedTokens >= t.PromptTokens {
				continue
			}
			again += max(0, min(r.held[at], t.PromptTokens)-t.CachedTokens)
			if missed++; i == 0 {
				strays++
			}
		}
	}
	share := float64(again) / max(1, computed)
	of := float64(strays) / float64(max(1, late.len()))
	if strays == 0 || !(of > lateShare) || !(share > .5) {
		return finding{}
	}
	return finding{name: MechanismRouting, explains: of * share, sure: strays >= 10, sentence: fmt.Sprintf(
		"At %s %d of the %d turns over the limit went to another replica than the turn before them, which had their prefix still; %.0f %% of all tokens computed were of such prefixes.",
		u.of(s.Rate), strays, late.len(), 100*share)}
}
