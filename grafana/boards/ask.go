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

// figureOf is a gauge of an ended step. Shards of one load do not share one: the largest is shown.
func figureOf(name string, matchers ...string) string {
	return largest(names.Label+", "+names.Step, run(name, matchers...))
}

// limit is the objective of a metric at P95.
func limitOf(metric string) series {
	return series{
		expr:   largest(names.Label, run(names.SLO, is(names.Metric, metric), is(names.Quantile, "0.95"))),
		legend: "P95 limit", limit: true,
	}
}

var later = names.TurnClass + `!="` + names.First + `"` // turns 2.., warm-up and drain too
