package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/measurement"
)

func TestSureAt(t *testing.T) {
	r := measurement.Results{Label: "x", Config: measurement.Config{Turns: 4, SLO: slo300}, Steps: sharesOf(2.5, 6, 200, 1, 1.5, 2, 3, 4)}
	for i := range r.Steps {
		s := &r.Steps[i]
		x, n := float64(*s.LateTurns)**s.NEff/float64(s.MeasuredTurns), *s.NEff
		p := holdProbability(x, n, .05)
		s.PassProbability, s.Decided = &p, tested(x, n, .05)
	}
	alone, ok := SureAt(r, 2)
	if !ok || alone.Steps != 1 || alone.Probability != *r.Steps[2].PassProbability {
		t.Fatalf("one step: %+v, %v", alone, ok)
	}
	twice := r
	twice.Steps = append(slices.Clone(r.Steps), r.Steps[2])
	both, _ := SureAt(twice, 2)
	x, n := 2*float64(*r.Steps[2].LateTurns)**r.Steps[2].NEff/float64(r.Steps[2].MeasuredTurns), 2**r.Steps[2].NEff
	if both.Steps != 2 || math.Abs(both.Probability-holdProbability(x, n, .05)) > 1e-12 || !(both.Probability > alone.Probability) {
		t.Errorf("twice the same turns: %+v; want those of both together, surer than %v", both, alone.Probability)
	}
	if said := HowSure(twice); !strings.Contains(said, "(its 2 steps together") || !strings.Contains(said, "by the turns measured at each load alone") || !strings.Contains(said, "By the logistic curve through the late turns of all loads") {
		t.Errorf("%q does not tell the two ways apart", said)
	}
	early := r
	early.Steps = slices.Clone(r.Steps)
	early.Steps[3].Flags, early.Steps[3].Verdict, early.Steps[3].Decided = []string{measurement.FlagEarlyFail}, measurement.Fail, measurement.Undecided
	seven := 7
	early.Steps[3].MoreCalls = &seven
	if said := HowSure(early); !strings.Contains(said, "at 3 calls/s (ended early, as a fail)") || strings.Contains(said, "7 calls more") {
		t.Errorf("a step that was ended as certain to fail: %q", said)
	}
	undecided := early
	undecided.Steps = slices.Clone(early.Steps)
	undecided.Steps[3].Flags = nil
	undecided.Config.LoadOf = measurement.Requests
	if said := HowSure(undecided); !strings.Contains(said, "about 7 requests more would decide it") {
		t.Errorf("a load of requests: %q", said)
	}
	if _, ok := SureAt(r, 7); ok {
		t.Error("a load that was not measured is sure")
	}
}

// What a fleet's router deals in turn hangs on how many replicas there are, and on the arrivals; the one of one engine says nothing of that.
func TestHowSureOfAFleet(t *testing.T) {
	r := measurement.Results{Label: "x", Seed: 1, Config: measurement.Config{Turns: 4, SLO: slo300}, Steps: sharesOf(2.5, 6, 200, 1, 1.5, 2, 3, 4)}
	for _, c := range []struct{ why, details, want string }{
		{"one engine", `{"kind":"vllm"}`, ""},
		{"one replica", `{"fleet":{"replicas":1,"router":"round_robin","affinity_s":60}}`, ""},
		{"at random", `{"fleet":{"replicas":35,"router":"random"}}`, ""},
		{"in turn", `{"fleet":{"replicas":35,"router":"round_robin"}}`, "This holds for the arrivals of this run and for 35 replicas only; with others, more replicas or a lower load may fail where these pass: try --seed 2, and 31 and 39 replicas."},
		{"home again", `{"fleet":{"replicas":4,"router":"random","affinity_s":60}}`, "try --seed 2, and 3 and 5 replicas."},
		{"mixed", `{"fleet":{"replicas":2,"router":"round_robin","replica_gpus":["l40s","h100"]}}`, "for these replicas only; with others, more replicas or a lower load may fail where these pass: try --seed 2."},
	} {
		r.Engine = simulatedOn(t, "l40s", c.details)
		if said := HowSure(r); !strings.Contains(said, c.want) || strings.Contains(said, "This holds for the arrivals") != (c.want != "") {
			t.Errorf("%s: %q, want %q", c.why, said, c.want)
		}
	}
}

func TestHoldsAt(t *testing.T) {
	r := measurement.Results{Label: "x", Config: measurement.Config{Turns: 4, SLO: slo300}, Steps: sharesOf(2.5, 6, 200, 1, 1.5, 2, 3, 4)}
	half := .5
	r.Steps[2].PassProbability, r.Steps[2].Decided = &half, measurement.Undecided
	bare := r
	bare.Steps = slices.Clone(r.Steps)
	for i := range bare.Steps {
		bare.Steps[i].LateTurns, bare.Steps[i].NEff = nil, nil
	}
	two := r
	two.Config.SLO = append(slices.Clone(slo300), measurement.Objective{Metric: "ttft", Quantile: .5, LimitMS: 9000})
	for _, c := range []struct {
		why  string
		r    measurement.Results
		load float64
		want string
		ok   bool
	}{
		{"between loads", r, 2.2, "By the logistic curve through the late turns of all loads, the TTFT objective holds in the long run with a probability of 9", true},
		{"between loads nothing was measured", r, 2.2, "where nothing was measured", true},
		{"at a load", r, 2, "; by the turns measured there alone, ", true},
		{"far below", r, .00001, "over 99 % at 0.00001 calls/s", true},
		{"no turns, only figures", bare, 1, "the file holds no turns, only figures of them", false},
		{"no turns, but what its step says", bare, 2, "What the other loads say of it cannot be told: the file holds no turns", true},
		{"two objectives", two, 1, "not one TTFT objective but none or several", false},
		{"no load", r, -1, "give a load above 0", false},
	} {
		said, err := HoldsAt(c.r, c.load)
		if err != nil {
			said = err.Error()
		}
		if (err == nil) != c.ok || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", c.why, said, c.want)
		}
	}
}

func TestTenThousandStepsStandForThemselvesInTime(t *testing.T) {
	r := measurement.Results{Label: "x", Config: measurement.Config{SLO: slo300}}
	for i := range 10_000 {
		r.Steps = append(r.Steps, measurement.StepResult{Step: i, Rate: .01 * float64(i+1), WindowS: 1, Verdict: measurement.Pass})
	}
	r.Steps = append(r.Steps, r.Steps[4], r.Steps[7])
	if again := repeated(perSecond, r.Steps); !strings.HasPrefix(again, "0.05, 0.08 calls/s were measured more than once.") {
		t.Errorf("repeated: %q", again)
	}
	start := time.Now()
	for _, s := range r.Steps[:1000] {
		StandsFor(r.Steps, s.Rate)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%v for a thousand loads: the steps are copied for each", took)
	}
}
