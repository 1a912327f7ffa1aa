package boards

import "kneefinder/telemetry/names"

var (
	p50 = is(names.Quantile, "0.5")
	p95 = is(names.Quantile, "0.95")
	p99 = is(names.Quantile, "0.99")
)

var verdicts = map[string]named{"pass": {"pass", green}, "fail": {"fail", red}, "undecided": {"undecided", orange}}

// stepLimit is the objective at each step, so that the curve can draw it over λ.
func stepLimit() string {
	return figureOf(names.StepRate) + " * 0 + on (label) group_left () " +
		lastOf(names.Label, names.SLO, is(names.Metric, "ttft"), is(names.Quantile, "0.95"))
}

// marks are the events of a run, at the instants of the steps themselves. count_values carries λ into the text.
func (b *builder) marks() {
	start := stepNow(names.StepStart) + " * 1000"
	b.mark("Step begins", blue, "step {{step}}", "{{rate}} calls/s, {{label}}",
		`count_values by (label, step) ("rate", `+stepNow(names.StepRate)+`) * on (label, step) group_left () (`+start+`)`, true)
	b.mark("Window opens", purple, "step {{step}} is measured", "warm-up over, {{label}}",
		stepNow(names.StepWindowStart)+" * 1000", true)
	b.mark("Window closes", purple, "step {{step}} was measured", "arrivals stop, calls in progress end, {{label}}",
		stepNow(names.StepWindowEnd)+" * 1000", true)
	b.mark("Step ends", orange, "step {{step}}: {{verdict}}", "{{label}}",
		`(`+largest("label, step, verdict", run(names.StepVerdict))+` == 1) * on (label, step) group_left () (`+stepNow(names.StepEnd)+` * 1000)`, true)
	b.mark("Run stops early", red, "{{state}}", "{{label}}",
		largest("label, state", run(names.RunState, `state=~"interrupted|failed"`)), false)
}

func knee() *builder {
	b := start("knee.json", "kneefinder-knee", "The knee",
		"How many calls a second does this endpoint carry, how sure is that, and what did it look like on the way there? The answer, the curve and the steps are those of the newest run of the label in the time range, "+
			"as last seen, whether or not it still runs; a range that ends before that run began shows the one before it. The panels under As it happens show all runs of the range.")
	b.newest()
	b.marks()

	b.row("The answer")
	b.add(5, 5, figure{
		title: "SLO knee", unit: "calls/s",
		about: "The highest rate tried that still holds the objective, below the first that does not; estimated: where a logistic curve through the late turns of all rates reaches what the objective allows, or, without one, where P95 TTFT crosses the limit between the rates tried. Empty while there is none. Of the newest run of the label in the time range, as last seen; until its first step begins, that is the run before it.",
		series: []series{
			{expr: kneeOf(names.KneeRate, is(names.Knee, "slo")), legend: "tried"},
			{expr: kneeOf(names.KneeEstimate, is(names.Knee, "slo")), legend: "estimated"},
		},
	})
	b.add(5, 5, figure{
		title: "95 % interval of the SLO knee", unit: "calls/s",
		about: "Ends of the interval of the estimated knee. An end that is missing is unbounded: a longer step, or another rate, bounds it. While the run goes on, one that was bounded and is no more keeps its last value.",
		series: []series{
			{expr: kneeOf(names.KneeLow, is(names.Knee, "slo")), legend: "from"},
			{expr: kneeOf(names.KneeHigh, is(names.Knee, "slo")), legend: "to"},
		},
	})
	b.add(5, 5, figure{
		title: "Where it bends, whatever the objective", unit: "calls/s",
		about:  "Curvature: the elbow of P95 TTFT over λ. Saturation: the last rate at which completions still keep up with arrivals. slo: as on the left. One that was not found is not shown.",
		series: []series{{expr: kneeOf(names.KneeRate), legend: "{{knee}}"}},
	})
	b.add(4, 5, figure{
		title: "What became of each knee", unit: "none", name: true,
		about:  "found; above_range: still good at the highest rate tried; below_range: already bad at the lowest; none: too little to tell.",
		series: []series{{expr: lastOf("label, knee, status", names.KneeStatus) + " == 1", legend: "{{knee}}: {{status}}"}},
	})
	b.add(2, 5, figure{
		title: "Run", unit: "none", name: true,
		about:  "The state that the run was last seen in. A process that is gone and still reads running was killed, or ended without --web.linger before a scrape saw its end.",
		series: []series{{expr: lastOf("label, state", names.RunState) + " == 1", legend: "{{state}}"}},
	})
	b.add(3, 5, figure{
		title: "Arrivals", unit: "none",
		about: "Whether the calls came as they were asked to: certified when no test of the instants at which calls were really sent rejects at p = .001. The tests stand on the generator's board.",
		series: []series{{expr: certified(), legend: "load",
			names: map[string]named{"1": {"certified", green}, "0": {"not certified", red}}}},
	})

	b.row("The curve")
	x := "λ asked"
	b.add(11, 13, curve{
		title: "P95 TTFT over the rate of calls", unit: "s", xUnit: "calls/s",
		about: "Each point is an ended step: exact percentiles of its measured turns, from raw values. Low and high are the ends of the 95 % interval of P95, where bounded. The dashed line is the objective. The same figures stand in the table. Steps of older runs of the label are not among them.",
		series: []series{
			{expr: figureOf(names.StepRate), legend: x},
			{expr: figureOf(names.StepTTFT, p95), legend: "P95 TTFT"},
			{expr: figureOf(names.StepTTFTLow), legend: "P95 low"},
			{expr: figureOf(names.StepTTFTHigh), legend: "P95 high"},
			{expr: figureOf(names.StepTTFT, p50), legend: "P50 TTFT"},
			{expr: stepLimit(), legend: "P95 limit", limit: true},
			{expr: figureOf(names.StepHit), legend: "hit rate", unit: "percentunit"},
		},
	})
	b.add(13, 13, grid{
		title:  "The steps",
		about:  "One row for each step of the newest run; the one in progress has its λ only. λ came: calls that arrived in the window. An empty P95 landed on turns without a token; an empty end of its interval is unbounded. Undecided: too little was measured to say either.",
		labels: []string{"verdict"},
		texts:  map[string]map[string]named{"verdict": verdicts},
		series: []series{
			{expr: figureOf(names.StepRate), legend: x, unit: "calls/s"},
			{expr: figureOf(names.StepArrived), legend: "λ came", unit: "calls/s"},
			{expr: figureOf(names.StepTurns), legend: "turns"},
			{expr: figureOf(names.StepTTFT, p50), legend: "P50 TTFT", unit: "s"},
			{expr: figureOf(names.StepTTFT, p95), legend: "P95 TTFT", unit: "s"},
			{expr: figureOf(names.StepTTFTLow), legend: "low", unit: "s"},
			{expr: figureOf(names.StepTTFTHigh), legend: "high", unit: "s"},
			{expr: figureOf(names.StepTTFT, p99), legend: "P99 TTFT", unit: "s"},
			{expr: figureOf(names.StepHit), legend: "hit rate", unit: "percentunit"},
			{expr: figureOf(names.StepErrors), legend: "errors", unit: "percentunit"},
			{expr: lastOf("label, step, verdict", names.StepVerdict) + " == 1", legend: "is", hidden: true},
		},
	})
	b.add(16, 9, grid{
		title: "The steps, continued",
		about: "Live calls: the mean over the window. Completed: completions over arrivals of the window. TTFT sent is without the generator's own lateness. ITL: gaps between token events; TPOT: a turn's time a token.",
		series: []series{
			{expr: figureOf(names.StepRate), legend: x, unit: "calls/s"},
			{expr: figureOf(names.StepLive), legend: "live calls"},
			{expr: figureOf(names.StepThroughput), legend: "turns/s"},
			{expr: figureOf(names.StepOutput), legend: "output tokens/s"},
			{expr: figureOf(names.StepSaturation), legend: "completed", unit: "percentunit"},
			{expr: figureOf(names.StepTTFTSent, p95), legend: "P95 TTFT sent", unit: "s"},
			{expr: figureOf(names.StepITL, p50), legend: "P50 ITL", unit: "s"},
			{expr: figureOf(names.StepITL, p95), legend: "P95 ITL", unit: "s"},
			{expr: figureOf(names.StepTPOT, p50), legend: "P50 TPOT", unit: "s"},
		},
	})
	b.add(8, 9, grid{
		title:  "Flags",
		about:  "What to doubt in a step: client_limited, cap_bound, unstable and contaminated keep it from passing; the others question a figure. Empty when there is nothing to doubt.",
		labels: []string{"step", "flag"},
		series: []series{{expr: lastOf("label, step, flag", names.StepFlag) + " == 1", legend: "is", hidden: true}},
	})

	b.row("As it happens")
	b.add(12, 9, graph{
		title: "Time to first token", unit: "s",
		about: "Exact percentiles of the later turns that ended in the rolling window, and the objective. How many turns they are of is the panel beside.",
		series: []series{
			{expr: largest("label", run(names.WindowTTFT, p50)), legend: "P50"},
			{expr: largest("label", run(names.WindowTTFT, p95)), legend: "P95"},
			{expr: largest("label", run(names.WindowTTFT, p99)), legend: "P99"},
			limitOf("ttft"),
		},
	})
	b.add(12, 9, graph{
		title: "Load", unit: "calls/s", stairs: true,
		about: "λ asked and the rate of calls that came in the rolling window; on the right, calls in progress, turns of them waiting for or speaking an answer, and the turns in the window.",
		series: []series{
			{expr: now(names.OfferedRate), legend: "λ asked"},
			{expr: now(names.ArrivedRate), legend: "λ came"},
			{expr: now(names.CallsInFlight), legend: "calls in progress", unit: "short"},
			{expr: now(names.TurnsInFlight), legend: "turns in progress", unit: "short"},
			{expr: now(names.WindowTurns), legend: "turns in the window", unit: "short"},
		},
	})
	b.add(12, 9, heat{
		title: "Time to first token, all turns", unit: "s",
		about:  "How many measured turns fell into each bucket; the objective is a bucket's edge. Points are turns whose trace can be opened, where spans are exported.",
		series: []series{{expr: sum("le", increase(run(names.TTFT+"_bucket", is(names.TurnClass, names.Measured)))), legend: "{{le}}", exemplars: true}},
	})
	b.add(12, 9, graph{
		title: "Cache hits, errors, objective held", unit: "percentunit", top: new(1.0),
		about: "Of the rolling window: the share of prompt tokens found in the prefix cache (turns whose cached tokens are known), and failed turns. Held: measured turns that ended well within the objective, of all measured turns.",
		series: []series{
			{expr: largest("label", run(names.WindowHit)), legend: "hit rate"},
			{expr: largest("label", run(names.WindowErrors)), legend: "errors"},
			{expr: share(total(names.TurnsInSLOTotal, is(names.TurnClass, names.Measured)), total(names.TurnsTotal, is(names.TurnClass, names.Measured))), legend: "objective held"},
		},
	})
	b.add(12, 9, graph{
		title: "Gaps between tokens", unit: "s",
		about: "Exact percentiles of the gaps between token events of the rolling window, and P95 of a turn's mean time a token.",
		series: []series{
			{expr: largest("label", run(names.WindowITL, p50)), legend: "P50 ITL"},
			{expr: largest("label", run(names.WindowITL, p95)), legend: "P95 ITL"},
			{expr: percentile("0.95", names.TPOT), legend: "P95 TPOT"},
		},
	})
	b.add(12, 9, graph{
		title: "Turns by outcome", unit: "turns/s",
		about: "Turns that ended, a second, by how; calls that began, a second; on the right P95 of whole turns, of those that ended well.",
		series: []series{
			{expr: sum("label, outcome", rate(run(names.TurnsTotal))), legend: "{{outcome}}"},
			{expr: total(names.CallsTotal), legend: "calls begun"},
			{expr: percentile("0.95", names.E2E), legend: "P95 of a turn", unit: "s"},
		},
	})
	return b
}
