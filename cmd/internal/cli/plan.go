package cli

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// Estimate is what one step is expected to take of an endpoint that keeps up.
type Estimate struct {
	Rate         float64
	Duration     time.Duration // warm-up, window and drain
	Calls        float64
	PromptTokens float64 // as sent; most of them are cache hits when all is well
	OutputTokens float64
}

// EstimateStep predicts a step at one rate.
func EstimateStep(c measurement.Config, rate float64) Estimate {
	lifetime := float64(c.MeasuredTurns()) * ((c.GapMinSeconds+c.GapMaxSeconds)/2 + .02*float64(c.OutputTokens))
	perSecond := rate
	if c.Arrivals == "closed" {
		perSecond = rate / lifetime
	}
	window := max(c.StepSeconds, min(c.MaxStepSeconds, float64(c.MinTurns)/(perSecond*float64(c.MeasuredTurns()))))
	e := Estimate{Rate: rate, Calls: perSecond * (c.WarmupSeconds + window)}
	e.Duration = time.Duration((c.WarmupSeconds + window + min(lifetime, c.DrainSeconds)) * float64(time.Second))
	if c.Lone() {
		if c.TraceOnce {
			e.Calls = float64(c.TraceRequests)
		}
		e.PromptTokens, e.OutputTokens = e.Calls*float64(c.PromptTokens), e.Calls*float64(c.OutputTokens)
		return e
	}
	for turn := range c.Turns {
		e.PromptTokens += e.Calls * float64(c.SystemPromptTokens+c.UserTokens+turn*(c.UserTokens+c.OutputTokens))
	}
	e.OutputTokens = e.Calls * float64(1+(c.Turns-1)*c.OutputTokens)
	return e
}

// WritePlan prints what a sweep would do, without doing it.
func WritePlan(w io.Writer, c measurement.Config, extend bool, gpuPrice float64) error {
	if c.FindKnee {
		return writeSearch(w, c, gpuPrice)
	}
	calls := "calls"
	if c.Lone() {
		calls = measurement.Requests
	}
	unit := "λ " + calls + "/s"
	if c.Arrivals == "closed" {
		unit = calls + " at once"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, unit+"\tminutes\t"+calls+"\tprompt tokens\toutput tokens\t")
	var sum Estimate
	for _, rate := range c.Rates {
		e := EstimateStep(c, rate)
		fmt.Fprintf(t, "%g\t%.1f\t%.0f\t%.0f\t%.0f\t\n", rate, e.Duration.Minutes(), e.Calls, e.PromptTokens, e.OutputTokens)
		sum.Duration += e.Duration
		sum.Calls += e.Calls
		sum.PromptTokens += e.PromptTokens
		sum.OutputTokens += e.OutputTokens
	}
	fmt.Fprintf(t, "all\t%.1f\t%.0f\t%.0f\t%.0f\t\n", sum.Duration.Minutes(), sum.Calls, sum.PromptTokens, sum.OutputTokens)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nEach step: %s of warm-up, %s, then the calls in progress end (at most %s).\n", span(c.WarmupSeconds), windowText(c, 0), span(c.DrainSeconds))
	writeCall(w, c)
	if extend {
		fmt.Fprintf(w, "Should the knee not lie between these rates, up to %d more are tried below or above them (--no-extend forbids).\n", analysis.MaxExtensions)
	}
	if gpuPrice > 0 {
		fmt.Fprintf(w, "At $%.2f an hour: about $%.2f.\n", gpuPrice, gpuPrice*sum.Duration.Hours())
	}
	return nil
}

func writeCall(w io.Writer, c measurement.Config) {
	if c.Lone() {
		fmt.Fprintf(w, "Single requests, each measured: %s. It passes while %s.\n", c.Asked(), SLOText(c.SLO))
		writeArrivals(w, c)
		return
	}
	fmt.Fprintf(w, "A call: %d turns, a system prompt of %d tokens of its own, %s tokens out, pauses of %g-%g s. It passes while %s.\n",
		c.Turns, c.SystemPromptTokens, outText(c), c.GapMinSeconds, c.GapMaxSeconds, SLOText(c.SLO))
}

// writeArrivals says how requests come, if not as a Poisson process.
func writeArrivals(w io.Writer, c measurement.Config) {
	switch {
	case c.TraceOnce:
		fmt.Fprintf(w, "They come at the trace's own instants, %g requests/s.\n", c.Rates[0])
	case c.Arrivals == arrivalsOfTrace:
		fmt.Fprintln(w, "They come at the trace's instants, stretched to each rate, from its first request on in each step.")
	case c.Arrivals != "" && c.Arrivals != "closed":
		fmt.Fprintf(w, "They arrive as %s.\n", c.Arrivals)
	}
}

// searchDoublings is up to how many doublings from the start a plan looks for the knee.
const searchDoublings = 8

// fewestLate is how many late turns in a row are certain to fail a step.
const fewestLate = 8

// searchPlan is what a search takes when the knee is at a rate and every step tells which side it is on: with steps that fail at once,
// and with none that does.
func searchPlan(c measurement.Config, knee float64) (fast, slow time.Duration, steps int) {
	var done []measurement.StepResult
	for {
		p, ok := analysis.Search(c.Rates[0], c.ConfirmSeconds, done)
		if !ok {
			return fast, slow, len(done)
		}
		step := c
		step.StepSeconds = probeWindow(c, p)
		step.MaxStepSeconds = max(c.MaxStepSeconds, step.StepSeconds)
		whole := EstimateStep(step, p.Rate).Duration
		r := measurement.StepResult{Rate: p.Rate, Verdict: measurement.Pass, WindowS: step.StepSeconds}
		slow += whole
		if p.Rate > knee {
			r.Verdict = measurement.Fail
			step.StepSeconds, step.MinTurns = 0, fewestLate
			whole = min(whole, EstimateStep(step, p.Rate).Duration)
		}
		fast += whole
		done = append(done, r)
	}
}

// writeSearch prints what a search for the knee would take.
func writeSearch(w io.Writer, c measurement.Config, gpuPrice float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "if the knee is between, calls/s\tsteps\tminutes\t")
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	low, knee := 0., c.Rates[0]
	for range searchDoublings {
		fast, slow, steps := searchPlan(c, (low+knee)/2)
		least, most = min(least, fast), max(most, slow)
		fmt.Fprintf(t, "%g and %g\t%d\t%.0f to %.0f\t\n", low, knee, steps, fast.Minutes(), slow.Minutes())
		low, knee = knee, 2*knee
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nThe search doubles the rate from %g calls/s until a step fails, bisects to a tenth, tries the bracket again and confirms the knee twice: %.0f to %.0f minutes, more when steps contradict one another.\n",
		c.Rates[0], least.Minutes(), most.Minutes())
	rough := probeWindow(c, analysis.Probe{Rough: true})
	fmt.Fprintf(w, "Each step: %s of warm-up, %s (at least %s while the rate is doubled, %s to confirm), then the calls in progress end (at most %s). One that is certain to fail ends at once.\n",
		span(c.WarmupSeconds), windowText(c, 0), span(rough), span(c.ConfirmSeconds), span(c.DrainSeconds))
	writeCall(w, c)
	if gpuPrice > 0 {
		fmt.Fprintf(w, "At $%.2f an hour: $%.2f to $%.2f.\n", gpuPrice, gpuPrice*least.Hours(), gpuPrice*most.Hours())
	}
	return nil
}

// SLOText writes objectives as a person reads them.
func SLOText(slo []measurement.Objective) string {
	s := ""
	for i, o := range slo {
		if i > 0 {
			s += " and "
		}
		name := "TTFT"
		if o.Metric == "itl" {
			name = "ITL"
		}
		s += fmt.Sprintf("P%g %s <= %g ms", o.Quantile*100, name, o.LimitMS)
	}
	return s + " and errors < 2 %"
}

// outText is how many tokens a turn answers.
func outText(c measurement.Config) string {
	if c.OutputLengths == "" {
		return fmt.Sprint(c.OutputTokens)
	}
	return fmt.Sprintf("%d (%s)", c.OutputTokens, c.OutputLengths)
}
