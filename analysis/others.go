package analysis

import (
	"fmt"
	"math"
	"slices"

	"kneefinder/measurement"
)

// The methods of the knees beside the three.
const (
	MethodThroughput = "max_throughput" // where most is completed
	MethodDouble     = "inflation_2x"   // where P95 TTFT is twice that of the two lowest loads
	MethodTreble     = "inflation_3x"   // or three times
	MethodPower      = "power"          // where completions per mean TTFT are most (Kleinrock 1979)
)

// otherKnees are what others call the knee, each by its Method; those that the steps do not tell are left out. Their rates are
// loads tried, their estimates interpolated between such; that of MethodThroughput is the most that was completed, in calls.
func otherKnees(u unit, c measurement.Config, steps []measurement.StepResult) []measurement.Knee {
	steps = slices.DeleteFunc(byRate(whole(steps)), func(s measurement.StepResult) bool { return s.MeasuredTurns == 0 })
	var out []measurement.Knee
	for _, k := range []measurement.Knee{throughputKnee(u, c, steps), inflationKnee(u, steps, 2, MethodDouble), inflationKnee(u, steps, 3, MethodTreble), powerKnee(u, steps)} {
		if k.Status != measurement.NoKnee {
			out = append(out, k)
		}
	}
	return out
}

// throughputKnee is where most turns are completed. While every load completes what arrives the most is not known yet.
func throughputKnee(u unit, c measurement.Config, steps []measurement.StepResult) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: MethodThroughput}
	steps = slices.DeleteFunc(slices.Clone(steps), func(s measurement.StepResult) bool { // what the cap lets through is its own figure
		return !u.closed() && slices.Contains(s.Flags, measurement.FlagCapBound)
	})
	done := newCurve(steps, func(s *measurement.StepResult) float64 { return value(s.ThroughputTurns) })
	if len(done.x) < 2 || c.Turns < 1 {
		return k
	}
	top := 0
	for i, y := range done.y {
		if y > done.y[top] {
			top = i
		}
	}
	perCall := float64(c.MeasuredTurns())
	k.Rate = &done.x[top]
	most := fmt.Sprintf("%s measured %s/s are completed at %s", sig(done.y[top]), u.answers(), u.of(done.x[top]))
	keeps := u.closed()
	for _, s := range steps {
		keeps = keeps || s.Rate == done.x[top] && value(s.SaturationRatio) >= saturated
	}
	if top == len(done.x)-1 && keeps {
		k.Status, k.Note = measurement.AboveRange, most+", the highest load tried, which keeps up: the most is not known."
		return k
	}
	k.Status, k.Note = measurement.Found, most+", the most of all loads."
	if i, _ := StandsFor(steps, done.x[top]); i >= 0 && steps[i].ArrivedRate != nil && !u.closed() {
		k.Note = fmt.Sprintf("%s, of which %s came: the most of all loads.", most, sig(*steps[i].ArrivedRate))
	}
	if !u.closed() {
		k.Estimate = figure(done.y[top] / perCall)
	}
	return k
}

// inflationKnee is where the isotonic curve of P95 TTFT first goes over so many times the geometric mean of its two lowest loads.
func inflationKnee(u unit, steps []measurement.StepResult, times float64, method string) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: method}
	c := newCurve(steps, func(s *measurement.StepResult) float64 {
		if s.TTFTP95 != nil {
			return *s.TTFTP95
		}
		return math.Inf(1)
	})
	if len(c.x) < 3 || math.IsInf(c.y[1], 1) || math.IsInf(c.y[0], 1) || c.y[0] <= 0 || c.y[1] <= 0 {
		return k
	}
	base := math.Sqrt(c.y[0] * c.y[1])
	x, i := c.rising().crossing(times*base, math.Log)
	switch i {
	case 0:
		return k // the two lowest lie far apart: there is no base
	case len(c.x):
		k.Status, k.Rate = measurement.AboveRange, &c.x[i-1]
		k.Note = fmt.Sprintf("P95 TTFT stays under %g times %s, that of the two lowest loads, up to %s.", times, ms(base), u.of(c.x[i-1]))
	default:
		k.Status, k.Rate, k.Estimate = measurement.Found, &c.x[i-1], figure(x)
		k.Note = fmt.Sprintf("P95 TTFT is %g times %s, that of the two lowest loads, between %s and %s.", times, ms(base), rate(c.x[i-1]), u.of(c.x[i]))
	}
	return k
}

// powerKnee is where completions per second over mean TTFT are most.
func powerKnee(u unit, steps []measurement.StepResult) measurement.Knee {
	k := measurement.Knee{Status: measurement.NoKnee, Method: MethodPower}
	c := newCurve(steps, func(s *measurement.StepResult) float64 { return value(s.ThroughputTurns) / value(s.TTFTMean) })
	if len(c.x) < 3 {
		return k
	}
	top := 0
	for i, y := range c.y {
		if y > c.y[top] {
			top = i
		}
	}
	switch {
	case math.IsInf(c.y[top], 0):
	case top == 0:
		k.Status, k.Note = measurement.BelowRange, fmt.Sprintf("Completions per mean TTFT fall from the lowest load, %s, on.", u.of(c.x[0]))
	case top == len(c.x)-1:
		k.Status, k.Rate, k.Note = measurement.AboveRange, &c.x[top], fmt.Sprintf("Completions per mean TTFT still rise at %s, the highest load that tells a mean.", u.of(c.x[top]))
	default:
		k.Status, k.Rate, k.Note = measurement.Found, &c.x[top], fmt.Sprintf("Completions per mean TTFT are most at %s.", u.of(c.x[top]))
	}
	return k
}

// othersSentence says the knees beside the three in a line; "" when there are none.
func othersSentence(u unit, knees []measurement.Knee) string {
	var out string
	add := func(s string) {
		if out != "" {
			out += "; "
		}
		out += s
	}
	for _, k := range knees {
		where := ""
		switch {
		case k.Status == measurement.Found && k.Estimate != nil:
			where = "at " + sig(*k.Estimate)
		case k.Status == measurement.Found:
			where = "at " + rate(*k.Rate)
		case k.Status == measurement.AboveRange:
			where = "above " + rate(*k.Rate)
		default:
			where = "below the lowest load"
		}
		switch k.Method {
		case MethodThroughput:
			if k.Status == measurement.Found && k.Estimate != nil {
				add(fmt.Sprintf("throughput peaks at %s asked, of which %s are completed", u.of(*k.Rate), sig(*k.Estimate)))
			} else {
				add("throughput peaks " + where)
			}
		case MethodDouble:
			add("P95 TTFT doubles " + where)
		case MethodTreble:
			add("trebles " + where)
		case MethodPower:
			add("completions per mean TTFT (Kleinrock's power) peak " + where)
		}
	}
	if out != "" {
		out += "."
	}
	return out
}
