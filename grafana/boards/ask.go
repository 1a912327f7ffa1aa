package boards

import (
	"strconv"
	"strings"

	"kneefinder/telemetry/names"
)

// run selects the series of the run that the board is about.
func run(name string, matchers ...string) string {
	return pick(name, append([]string{`job=~"$job"`, `instance=~"$instance"`, names.Label + `="$label"`}, matchers...))
}

// process selects what kneeload exports of itself, whatever the run.
func process(name string, matchers ...string) string {
	return pick(name, append([]string{`job=~"$job"`, `instance=~"$instance"`}, matchers...))
}

// server selects the engine's series.
func server(name string, matchers ...string) string {
	return pick(name, append([]string{`job=~"$engine_job"`, `instance=~"$engine_instance"`}, matchers...))
}

// device selects the series of a GPU exporter.
func device(name string, matchers ...string) string {
	return pick(name, append([]string{`job=~"$gpu_job"`, `instance=~"$gpu_instance"`}, matchers...))
}

func pick(name string, matchers []string) string {
	return name + "{" + strings.Join(matchers, ",") + "}"
}

func is(label, value string) string { return label + "=" + strconv.Quote(value) }

func rate(selector string) string { return "rate(" + selector + "[$__rate_interval])" }

func increase(selector string) string { return "increase(" + selector + "[$__rate_interval])" }

func sum(by, expr string) string { return "sum by (" + by + ") (" + expr + ")" }

func largest(by, expr string) string { return "max by (" + by + ") (" + expr + ")" }

// either asks for the first that has data, instance by instance: engines and exporters name the same thing differently, and one
// engine has named it differently over time.
func either(exprs ...string) string { return strings.Join(exprs, " or ") }

// total is the rate at which a counter of the run grows, whatever the step.
func total(name string, matchers ...string) string {
	return sum(names.Label, rate(run(name, matchers...)))
}

// percentile reads a histogram of the run.
func percentile(q, name string, matchers ...string) string {
	return "histogram_quantile(" + q + ", " + sum(names.Label+", le", rate(run(name+"_bucket", matchers...))) + ")"
}

// mean reads the same histogram without its buckets.
func mean(name string, matchers ...string) string {
	return total(name+"_sum", matchers...) + " / " + total(name+"_count", matchers...)
}

// now is a gauge of the run; the shards of a load each hold their part.
func now(name string, matchers ...string) string { return sum(names.Label, run(name, matchers...)) }

// runSeconds is the variable that holds how long before the end of the time range the newest run of the label began, in seconds.
// It is read off the first step's own begin, which Prometheus knows in the range; where it knows none, it is the whole range.
const runSeconds = "run_s"

func runSecondsQuery() string {
	return "floor(clamp_min(time() - max(last_over_time(" + run(names.StepStart, is(names.Step, "0")) + "[$__range])), 1)) or vector($__range_s)"
}

// last is the last sample of each series since the newest run of the label began. An instant at which the process has gone still
// finds it; what an older run of the same label said is behind the window, and never beside it.
func last(selector string) string { return "last_over_time(" + selector + "[${" + runSeconds + "}s])" }

// lastOf is a gauge of the run, as it was last seen.
func lastOf(by, name string, matchers ...string) string {
	return largest(by, last(run(name, matchers...)))
}

// figureOf is a gauge of a step, as it was last seen. Shards of one load do not share one: the largest is shown.
func figureOf(name string, matchers ...string) string {
	return lastOf(names.Label+", "+names.Step, name, matchers...)
}

// stepNow is the same at each instant, for what is drawn over time.
func stepNow(name string, matchers ...string) string {
	return largest(names.Label+", "+names.Step, run(name, matchers...))
}

// kneeOf is a figure of a knee, while the last word on the knee is that it is found: one that was found early in the run can be
// gone again.
func kneeOf(name string, matchers ...string) string {
	return lastOf("label, knee", name, matchers...) + " and on (label, knee) (" +
		lastOf("label, knee", names.KneeStatus, append(matchers[:len(matchers):len(matchers)], is(names.Status, "found"))...) + " == 1)"
}

// certified is whether the arrivals are, of all the shards of a load.
func certified() string { return "min by (label) (" + last(run(names.ArrivalsOK)) + ")" }

// limit is the objective of a metric at P95.
func limitOf(metric string) series {
	return series{
		expr:   largest(names.Label, run(names.SLO, is(names.Metric, metric), is(names.Quantile, "0.95"))),
		legend: "P95 limit", limit: true,
	}
}

var later = names.TurnClass + `!="` + names.First + `"` // turns 2.., warm-up and drain too
