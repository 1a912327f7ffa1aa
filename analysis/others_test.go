package analysis

import (
	"math"
	"strings"
	"testing"

	"kneefinder/measurement"
)

func TestOtherKnees(t *testing.T) {
	even := points([3]float64{.2, 92, 1}, [3]float64{.4, 95, 1}, [3]float64{.6, 101, 1}, [3]float64{.8, 118, 1}, [3]float64{1, 160, 1}, [3]float64{1.2, 410, .97}, [3]float64{1.4, 2900, .85}, [3]float64{1.6, 9800, .7})
	for i, v := range [][2]float64{{.6, 60}, {1.2, 61}, {1.8, 65}, {2.4, 75}, {3, 100}, {3.5, 200}, {3.6, 1500}, {3.4, 5000}} {
		even[i].ThroughputTurns, even[i].TTFTMean = figure(v[0]), figure(v[1])
	}
	c := measurement.Config{Turns: 4}
	none := math.NaN()
	find := func(ks []measurement.Knee, method string) measurement.Knee {
		for _, k := range ks {
			if k.Method == method {
				return k
			}
		}
		return measurement.Knee{Status: measurement.NoKnee}
	}
	all := otherKnees(perSecond, c, even)
	checkKnee(t, "throughput", find(all, MethodThroughput), measurement.Found, 1.4, 1.2, "3.6 measured turns/s are completed at 1.4")
	checkKnee(t, "twice the lowest two", find(all, MethodDouble), measurement.Found, 1, 1.03312, "")
	checkKnee(t, "three times", find(all, MethodTreble), measurement.Found, 1, 1.11929, "")
	checkKnee(t, "power: turns per mean TTFT", find(all, MethodPower), measurement.Found, .8, none, "")
	if s := othersSentence(perSecond, all); s != "throughput peaks at 1.4 calls/s asked, of which 1.2 are completed; P95 TTFT doubles at 1.03; trebles at 1.12; completions per mean TTFT (Kleinrock's power) peak at 0.8." {
		t.Error(s)
	}
	low := otherKnees(perSecond, c, even[:4])
	checkKnee(t, "throughput still grows", find(low, MethodThroughput), measurement.AboveRange, .8, none, "not known")
	checkKnee(t, "not yet twice", find(low, MethodDouble), measurement.AboveRange, .8, none, "stays under 2 times")
	checkKnee(t, "power still rises", find(low, MethodPower), measurement.AboveRange, .8, none, "still rise")
	high := otherKnees(perSecond, c, even[4:])
	checkKnee(t, "power falls from the start", find(high, MethodPower), measurement.BelowRange, none, none, "fall from the lowest")
	if all := otherKnees(perSecond, c, even[:1]); len(all) != 0 {
		t.Errorf("one step: %+v", all)
	}
	if loop := otherKnees(atOnce, c, even); find(loop, MethodThroughput).Estimate != nil {
		t.Error("a closed loop: calls per second as calls at once")
	}
}

func TestCurvatureSaysWhatIsOdd(t *testing.T) {
	for _, c := range []struct {
		why, want string
		steps     []measurement.StepResult
	}{
		{"concave", "saturated from the first step", points([3]float64{1, 100}, [3]float64{2, 700}, [3]float64{3, 900}, [3]float64{4, 980}, [3]float64{5, 1000})},
		{"falling", "cold cache", points([3]float64{1, 900}, [3]float64{2, 100}, [3]float64{3, 110}, [3]float64{4, 200}, [3]float64{5, 1500})},
		{"few points", "needs at least 5 rates; there are 2", points([3]float64{1, 100}, [3]float64{2, 700})},
	} {
		if k := CurvatureKnee(c.steps); !strings.Contains(k.Note, c.want) {
			t.Errorf("%s: %q does not say %q", c.why, k.Note, c.want)
		}
	}
	if k := CurvatureKnee(points([3]float64{1, 100}, [3]float64{2, 103}, [3]float64{3, 110}, [3]float64{4, 200}, [3]float64{5, 1500})); strings.Contains(k.Note, "cold cache") || strings.Contains(k.Note, "saturated from") {
		t.Errorf("an ordinary curve: %q", k.Note)
	}
}

func TestReplicasFor(t *testing.T) {
	with := func(status measurement.KneeStatus, rate, estimate, lo, hi float64) measurement.Results {
		return measurement.Results{Label: "x", Config: measurement.Config{SLO: slo300}, Knees: measurement.Knees{SLO: measurement.Knee{Status: status, Rate: figure(rate), Estimate: figure(estimate), CI95: [2]*float64{figure(lo), figure(hi)}, Note: "No step passed or failed."}}}
	}
	none := math.NaN()
	loop := with(measurement.Found, 8, 9, 8, 10)
	loop.Config.Arrivals = closed
	bursts := with(measurement.Found, 4, 4.5, 3, 5)
	bursts.Config.Arrivals = "burst"
	requests := with(measurement.Found, 4, 4.5, 3, 5)
	requests.Config.LoadOf = measurement.Requests
	for _, c := range []struct {
		why    string
		r      measurement.Results
		demand float64
		want   string // of the answer or of the refusal
		ok     bool
	}{
		{"between", with(measurement.Found, .8, .9, .6, 1.3), 2.5, "2.5 calls/s need 4 endpoints, each like the one measured, for P95 TTFT at most 300 ms: 0.8 calls/s is the largest load that passes, where the objectives were seen to hold, so provision by it. By the estimate of where the limit is crossed, 0.9, 3 would do, where they hold or fail by chance; by the ends of its 95 % interval, 0.6 to 1.3, 2 to 5. The interval reaches below the load that passed: only 5 are surely enough", true},
		{"a whole number of times", with(measurement.Found, .5, .5, .5, .5), 2.5, "The estimate of where the limit is crossed lies no higher, so the objectives hold there or fail by chance; by both ends of its 95 % interval, 0.5 to 0.5, 5.", true},
		{"one", with(measurement.Found, 4, 4.5, 3, 5), 2.5, "need 1 endpoint, like the one measured, for", true},
		{"no upper end", with(measurement.Found, .8, .9, .6, none), 2.5, "by the lower end of its 95 % interval, 0.6 or more, at most 5, and how few would do is not known.", true},
		{"no lower end", with(measurement.Found, .8, .9, none, 1.3), 2.5, "by the upper end of its 95 % interval, up to 1.3, at least 2, and how many are surely enough is not known.", true},
		{"no estimate: by the rate that passed", with(measurement.Found, .8, none, none, none), 2.5, "There is no estimate of where the limit is crossed", true},
		{"a hair more than one carries", with(measurement.Found, .1489, .2, .1489, .3), .149, "0.149 calls/s need 2 endpoints, each like the one measured, for P95 TTFT at most 300 ms: 0.1489 calls/s is", true},
		{"no more than one carries", with(measurement.Found, .149, .2, .149, .3), .149, "0.149 calls/s need 1 endpoint, like the one measured, for P95 TTFT at most 300 ms: 0.149 calls/s is", true},
		{"above the range", with(measurement.AboveRange, .8, none, none, none), 2.5, "the SLO knee lies above 0.8 calls/s, the highest load tried, so 4 endpoints, each like the one measured, are enough", false},
		{"above the range, and one is enough", with(measurement.AboveRange, 4, none, none, none), 2.5, "so 1 endpoint, like the one measured, is enough", false},
		{"below the range", with(measurement.BelowRange, none, none, none, none), 2.5, "sweep lower rates", false},
		{"no knee", with(measurement.NoKnee, none, none, none, none), 2.5, "there is no SLO knee", false},
		{"calls, each its own", with(measurement.Found, 4, 4.5, 3, 5), 2.5, " Each endpoint is taken to get calls of its own, which arrive at random (Poisson) and stay with it.", true},
		{"a router may deal in turn", with(measurement.Found, .8, .9, .6, 1.3), 2.5, " A router that deals calls out in turn, and brings each back to where it was, may do with fewer: ", true},
		{"bursts", bursts, 2.5, " Each endpoint is taken to get calls of its own, which arrive like those that were measured and stay with it.", true},
		{"requests, of other tools", requests, 2.5, " Each endpoint is taken to get requests of its own", true},
		{"a closed loop", loop, 2.5, "closed loop", false},
		{"nothing asked", with(measurement.Found, .8, .9, .6, 1.3), 0, "more than 0", false},
	} {
		got, err := ReplicasFor(c.r, c.demand)
		said := got.String
		if err != nil {
			said = err.Error
		}
		if (err == nil) != c.ok || !strings.Contains(said(), c.want) {
			t.Errorf("%s: %q, want %q", c.why, said(), c.want)
		}
	}
}
