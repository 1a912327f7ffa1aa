package report

import (
	"cmp"
	"math"
	"slices"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// step is one as the report looks at it: its result, and what the log has of it.
type step struct {
	*measurement.StepResult
	log     *measurement.Step   // nil without a log
	turns   []*measurement.Turn // in the order of the log
	samples []measurement.EngineSample
}

// steps are a run's by ascending load, those of one load as they were run.
func steps(r *Run) []step {
	out := make([]step, len(r.Results.Steps))
	at := map[int]int{}
	for i := range r.Results.Steps {
		s := r.Results.Steps[i]
		s.Verdict = measurement.Verdict(clip(string(s.Verdict), 20))
		out[i].StepResult = &s
		at[s.Step] = i
	}
	if r.Log != nil {
		for i := range r.Log.Steps {
			if n, ok := at[r.Log.Steps[i].Step]; ok {
				out[n].log = &r.Log.Steps[i]
			}
		}
		for i := range r.Log.Turns {
			if n, ok := at[r.Log.Turns[i].Step]; ok {
				out[n].turns = append(out[n].turns, &r.Log.Turns[i])
			}
		}
		for _, s := range r.Log.Samples {
			if n, ok := at[s.Step]; ok {
				out[n].samples = append(out[n].samples, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b step) int { return cmp.Compare(a.Rate, b.Rate) })
	return out
}

func incomplete(s *measurement.StepResult) bool {
	return slices.Contains(s.Flags, measurement.FlagIncomplete)
}

// measured reports whether a turn counts in its step's figures.
func (s *step) measured(t *measurement.Turn) bool {
	if t.Turn < 2 || s.log == nil || s.log.WindowStart < 0 || !s.log.InWindow(t.Due) || t.Local {
		return false
	}
	switch t.Outcome {
	case measurement.NotSent, measurement.Canceled, measurement.Shed:
		return false
	}
	return true
}

// around are the steps on the two sides of the knee: the best that passes and the first above it that fails. Either is -1 where
// there is none; where nothing is judged they are the lowest and the highest load.
func around(steps []step, k measurement.Knee) (pass, fail int) {
	pass, fail = -1, -1
	for i := range steps {
		s := &steps[i]
		if incomplete(s.StepResult) {
			continue
		}
		if s.Verdict == measurement.Pass && (k.Rate == nil || s.Rate <= *k.Rate) {
			pass = i
		}
		if s.Verdict == measurement.Fail && fail < 0 && (pass < 0 || s.Rate > steps[pass].Rate) {
			fail = i
		}
	}
	if fail >= 0 && pass > fail { // a step passed again above the first failing one
		fail = -1
		for i := pass + 1; i < len(steps) && fail < 0; i++ {
			if steps[i].Verdict == measurement.Fail && !incomplete(steps[i].StepResult) {
				fail = i
			}
		}
	}
	if pass < 0 && fail < 0 && len(steps) > 0 {
		pass = 0
		if len(steps) > 1 {
			fail = len(steps) - 1
		}
	}
	return pass, fail
}

// sides are the steps that stand for the loads on the two sides of the knee, wherever one figure is said of such a load.
func sides(r *measurement.Results, ss []step) (pass, fail int) {
	stands := func(i int) int {
		if i < 0 {
			return i
		}
		n, _ := analysis.StandsFor(r.Steps, ss[i].Rate)
		if n < 0 {
			return i
		}
		return slices.IndexFunc(ss, func(s step) bool { return s.Step == r.Steps[n].Step })
	}
	pass, fail = around(ss, r.Knees.SLO)
	return stands(pass), stands(fail)
}

// one are the steps that stand for their loads, of steps in the order of these.
func one(r *measurement.Results, ss []step) (out []step) {
	for _, s := range ss {
		if n, of := analysis.StandsFor(r.Steps, s.Rate); of < 2 || r.Steps[n].Step == s.Step {
			out = append(out, s)
		}
	}
	return out
}

// nearest are the indices of at most so many of n steps, those nearest to one, ascending.
func nearest(n, to, most int) []int {
	if to < 0 {
		to = n / 2
	}
	from := min(max(to-most/2, 0), max(n-most, 0))
	var out []int
	for i := from; i < n && len(out) < most; i++ {
		out = append(out, i)
	}
	return out
}

// firstTokens are the waits of measured turns, ascending, in milliseconds, and how many ended without a token.
func (s *step) firstTokens() (ms []float64, tokenless int) {
	for _, t := range s.turns {
		if !s.measured(t) {
			continue
		}
		if d, ok := t.TTFT(); ok {
			ms = append(ms, millis(d))
		} else if t.Outcome.Failed() {
			tokenless++
		}
	}
	slices.Sort(ms)
	return ms, tokenless
}

// reach are the least and the greatest TTFT of all turns, first ones too.
func reach(steps []step) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for i := range steps {
		for _, t := range steps[i].turns {
			if d, ok := t.TTFT(); ok && d > 0 {
				lo, hi = min(lo, millis(d)), max(hi, millis(d))
			}
		}
	}
	return lo, hi
}
