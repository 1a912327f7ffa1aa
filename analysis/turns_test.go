package analysis

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kneefinder/measurement"
)

// stepOf are the turns of a step.
func stepOf(turns []measurement.Turn, step int) some {
	return ofStep(measurement.TurnsOf(turns), step)
}

// packed is a log with its turns packed.
func packed(log measurement.Log) measurement.Log {
	log.Packed = &measurement.Turns{}
	for i := range log.Turns {
		log.Packed.Add(&log.Turns[i])
	}
	log.Turns = nil
	return log
}

// What is said of a log does not depend on how its turns are held: of whole runs, of steps that stand mixed, of turns that were sent at one
// instant, refused, shed or canceled, and of a failing step whose mechanism is looked for.
func TestPackedTurnsTellTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for name, log := range map[string]measurement.Log{"fails": pool("L40S", .85, .3, .5, .8, 1.1), "passes": pool("H100", 12, 2, 4), "empty": {},
		"mixed": pool("L40S", .85, .3, .5, .8, 1.1), "broken": pool("L40S", .85, .3, .5, .8, 1.1)} {
		switch name {
		case "mixed":
			r.Shuffle(len(log.Turns), func(i, j int) { log.Turns[i], log.Turns[j] = log.Turns[j], log.Turns[i] })
		case "broken":
			for i := range log.Turns {
				turn := &log.Turns[i]
				switch i % 17 {
				case 1:
					turn.Outcome, turn.FirstToken, turn.LastToken, turn.Detail = measurement.HTTP5xx, measurement.Never, measurement.Never, "no room"
				case 2:
					turn.Outcome, turn.Sent, turn.FirstToken, turn.Local, turn.Detail = measurement.Connect, measurement.Never, measurement.Never, true, "too many files"
				case 3:
					turn.Outcome = measurement.Canceled
				case 4:
					turn.Sent = log.Turns[0].Sent
				case 5:
					turn.Admitted = turn.Sent + 5
				case 6:
					turn.CachedTokens = turn.PromptTokens + 1
				}
			}
			log.Steps[3].WindowEnd = measurement.Never
		}
		if d := cmp.Diff(Analyze(log), Analyze(packed(log))); d != "" {
			t.Errorf("%s (-as they are +packed):\n%s", name, d)
		}
	}
}
