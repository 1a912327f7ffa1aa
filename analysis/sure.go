package analysis

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// StandsFor is the step that stands for a load, wherever one figure is said of it: a load measured more than once is stood for by that
// of its steps with the verdict that counts - a fail outweighs a pass, and a pass what is undecided - whose window was longest, and of
// equally long ones by the last. of is how many steps of that load came to their end. The index is -1 where none did.
func StandsFor(steps []measurement.StepResult, load float64) (index, of int) {
	index = -1
	var at []int // only these are copied: each of thousands of steps may ask which stands for its load
	var same []measurement.StepResult
	for i := range steps {
		if s := &steps[i]; s.Rate == load && !incomplete(*s) {
			at, same = append(at, i), append(same, *s)
		}
	}
	v := verdictAt(same, load)
	for n, i := range at {
		s := &same[n]
		of++
		if s.Verdict == v && (index < 0 || s.WindowS >= steps[index].WindowS*(1-1e-9)) {
			index = i
		}
	}
	return index, of
}

// Sureness is how sure it is that a load meets a run's TTFT objective in the long run, by the turns that were measured at that load
// alone.
type Sureness struct {
	Probability float64             // 0..1, that it does
	Decided     measurement.Verdict // what a test at 95 % says, or the one that ended the step early
	MoreCalls   *int                // about so many calls more would decide it; absent when it is decided, or when no number would
	Early       bool                // its step was ended early
	Steps       int                 // whose turns were counted together
}

// SureAt is how sure a load is by its own turns: those of all its steps together where there is one TTFT objective, of several objectives by the
// least sure one in the step that stands for the load. ok is false where the run holds no step of this load that tells.
func SureAt(r measurement.Results, load float64) (s Sureness, ok bool) {
	steps := judged(byRate(r.Steps), r.Config.SLO)
	stands, _ := StandsFor(steps, load)
	if stands < 0 || steps[stands].PassProbability == nil {
		return s, false
	}
	one := steps[stands]
	s = Sureness{Probability: *one.PassProbability, Decided: one.Decided, MoreCalls: one.MoreCalls, Early: slices.Contains(one.Flags, measurement.FlagEarlyFail), Steps: 1}
	if o, is := onlyTTFT(r.Config.SLO); is && one.NEff != nil && one.LateTurns != nil {
		x, n, turns, counted := 0., 0., 0., 0
		for i, t := range steps {
			if t.Rate != load || incomplete(t) || t.NEff == nil || t.LateTurns == nil || t.MeasuredTurns == 0 || t.Verdict == measurement.Undecided && i != stands {
				continue
			}
			x += float64(*t.LateTurns) * *t.NEff / float64(t.MeasuredTurns)
			n, turns, counted = n+*t.NEff, turns+float64(t.MeasuredTurns), counted+1
			s.Early = s.Early || slices.Contains(t.Flags, measurement.FlagEarlyFail) && t.Verdict == measurement.Fail
		}
		if counted > 1 {
			allowed := 1 - o.Quantile
			s.Steps, s.Probability, s.Decided = counted, holdProbability(x, n, allowed), tested(x, n, allowed)
			s.MoreCalls = moreCalls(x, n, allowed, turns/n, r.Config)
		}
	}
	if s.Early {
		s.Decided = measurement.Fail
	}
	if s.Decided != measurement.Undecided {
		s.MoreCalls = nil
	}
	return s, true
}

// moreCalls is about how many more calls would decide a test, of whose turns each independent one is worth so many; nil when no
// number would.
func moreCalls(x, n, allowed, worth float64, c measurement.Config) *int {
	more, ok := moreTurns(x, n, allowed)
	calls := math.Ceil(more * worth / float64(max(c.Turns-1, 1)))
	if !ok || calls > mostCalls {
		return nil
	}
	whole := int(calls)
	return &whole
}

// says is the sureness of a load in words, with the load unless it is "".
func (s Sureness) says(u unit, load string) string {
	var more []string
	if s.Steps > 1 {
		more = append(more, fmt.Sprintf("its %d steps together", s.Steps))
	}
	switch {
	case s.Early:
		more = append(more, "ended early, as a fail")
	case s.Decided != measurement.Undecided:
	case s.MoreCalls != nil:
		more = append(more, fmt.Sprintf("the stricter binomial test leaves it undecided: about %s more would decide it", count(twoDigits(*s.MoreCalls), strings.TrimSuffix(u.calls(), "s"))))
	default:
		more = append(more, "the stricter binomial test leaves it undecided: it is too near to the limit")
	}
	out := percent(s.Probability)
	if load != "" {
		out += " at " + load
	}
	if len(more) > 0 {
		out += " (" + strings.Join(more, "; ") + ")"
	}
	return out
}

// HowSure says how likely the TTFT objective holds at the two loads around the SLO knee, by each load's own turns and by the curve
// through those of all loads, and what would decide it; "" when neither is known.
func HowSure(r measurement.Results) string {
	var own, curved []string
	l, noFit := fitOf(r)
	u := unitOf(r.Config)
	lastPass, firstFail := bracket(judged(byRate(r.Steps), r.Config.SLO))
	for _, load := range []float64{lastPass, firstFail} {
		if s, ok := SureAt(r, load); ok {
			own = append(own, s.says(u, u.of(load)))
		}
		if noFit == "" && load > 0 {
			curved = append(curved, percent(l.holds(math.Log(load)))+" at "+u.of(load))
		}
	}
	var out []string
	if len(own) > 0 {
		out = append(out, "by the turns measured at each load alone, the TTFT objective holds in the long run with a probability of "+strings.Join(own, ", ")+".")
	}
	if len(curved) > 0 {
		by := "By the logistic curve through the late turns of all loads it is "
		if len(own) == 0 {
			by = "by the logistic curve through the late turns of all loads, the TTFT objective holds in the long run with a probability of "
		}
		out = append(out, by+strings.Join(curved, ", ")+".")
	}
	if l.contradicts {
		out = append(out, "Believe these rather than the logistic curve through the late turns of all loads, which contradicts them.")
	}
	if s := rhythmic(r); s != "" && len(out) > 0 {
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// rhythmic says of a fleet how far such a probability reaches, and how to see more; "" of one engine, and of a fleet whose router has no rhythm.
func rhythmic(r measurement.Results) string {
	d := deploymentOf(r.Engine)
	if !d.rhythm {
		return ""
	}
	of := "these replicas"
	if d.alike {
		of = count(d.engines, "replica")
	}
	return fmt.Sprintf("This holds for the arrivals of this run and for %s only; with others, more replicas or a lower load may fail where these pass: try %s.", of, d.others(r.Seed))
}

// others are the runs that show how much hangs on the arrivals and on the number of replicas.
func (d deployment) others(seed uint64) string {
	out := fmt.Sprintf("--seed %d", seed+1)
	if n := d.neighbours(); n != "" {
		out += ", and " + n
	}
	return out
}

// HoldsAt says how likely a load meets a run's TTFT objective in the long run: by the logistic curve through the late turns of all
// loads, and by the load's own turns where it was measured. It is an error, which says why, where neither can be told.
func HoldsAt(r measurement.Results, load float64) (string, error) {
	u := unitOf(r.Config)
	at := u.of(load)
	if !(load > 0) || math.IsInf(load, 0) {
		return "", fmt.Errorf("%s: how likely the objective holds at %v cannot be told: give a load above 0", r.Label, load)
	}
	l, why := fitOf(r)
	s, measured := SureAt(r, load)
	switch {
	case why != "" && !measured:
		return "", fmt.Errorf("%s: how likely the TTFT objective holds at %s cannot be told: %s, and no turns measured at this load tell it either", r.Label, at, why)
	case why != "":
		return fmt.Sprintf("By the turns measured at this load alone, the TTFT objective holds in the long run with a probability of %s at %s. What the other loads say of it cannot be told: %s.", s.says(u, ""), at, why), nil
	}
	out := fmt.Sprintf("By the logistic curve through the late turns of all loads, the TTFT objective holds in the long run with a probability of %s at %s", percent(l.holds(math.Log(load))), at)
	if measured {
		return out + "; by the turns measured there alone, " + s.says(u, "") + ".", nil
	}
	return out + ", where nothing was measured.", nil
}
