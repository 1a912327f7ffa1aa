package analysis

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// requestsLog is a log of single requests that arrive as a Poisson process, at loads of which each is measured.
func requestsLog(arrivals string) measurement.Log {
	rng := rand.New(rand.NewPCG(3, 4))
	log := sent(ladderRates, 200*second, rng.ExpFloat64, nil)
	c := &log.Header.Config
	c.LoadOf, c.Turns, c.SystemPromptTokens, c.GapMinSeconds, c.GapMaxSeconds = measurement.Requests, 1, 0, 0, 0
	c.PromptTokens, c.PromptLengths, c.Arrivals = 512, "512", arrivals
	for i := range log.Turns {
		t := &log.Turns[i]
		t.Turn = measurement.LoneTurn
		for j := range log.Steps {
			if s := &log.Steps[j]; t.Step == s.Step && s.InWindow(t.Due) {
				s.ArrivedCalls++
			}
		}
	}
	return log
}

// Single requests are all measured, and their arrivals are certified as those of calls are; a process whose rate changes, and the
// instants of a trace, are not held to a Poisson process.
func TestSingleRequests(t *testing.T) {
	r := Analyze(requestsLog(""))
	measured := 0
	for _, s := range r.Steps {
		measured += s.MeasuredTurns
		if s.WarmTTFTP50 != nil || s.ArrivedRate == nil || s.ThroughputTurns == nil || *s.ThroughputTurns < .9**s.ArrivedRate {
			t.Errorf("%+v", s)
		}
	}
	if measured < 1000 || !r.Arrivals.Certified || r.Arrivals.Calls < measured {
		t.Errorf("%d measured; %+v", measured, r.Arrivals)
	}
	var out bytes.Buffer
	Summary(&out, r)
	for _, bad := range []string{"calls/s", "system prompt", "longer than was asked"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the summary speaks of %q:\n%s", bad, out.String())
		}
	}
	for process, tested := range map[string]bool{"constant": true, "gamma:2": true, "ramp:30s": true, "ramp:0.5-1.5:90s": false, "wave:0.5:10m0s": false, "burst:8:10s:50s": false, "onoff:2s:8s": false, "trace": false, "a/file.txt": false} {
		a := Analyze(requestsLog(process)).Arrivals
		words := certificate(perSecond, a)
		if (a.KS != nil) != tested || a.Certified || a.CV == nil || strings.Contains(words, "as asked; tested against Poisson") != tested || strings.Contains(words, "not tested against Poisson") == tested {
			t.Errorf("%s: %+v\n%s", process, a, words)
		}
	}
}
