package analysis

import "kneefinder/measurement"

// Judge is the verdict on a step that stands for itself, from its figures and flags: what Analyze gives a step, of a step that
// was not made of turns.
func Judge(s measurement.StepResult, slo []measurement.Objective) measurement.Verdict {
	s.Verdict = ""
	return judged([]measurement.StepResult{s}, slo)[0].Verdict
}
