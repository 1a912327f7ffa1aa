package boards

import "kneefinder/telemetry/names"

// Families of client_golang's own collectors, and those that Prometheus adds to each target.
const (
	goRoutines  = "go_goroutines"
	goGC        = "go_gc_duration_seconds" // a summary of pauses
	goHeap      = "go_memstats_heap_alloc_bytes"
	processCPU  = "process_cpu_seconds_total"
	processRSS  = "process_resident_memory_bytes"
	processFDs  = "process_open_fds"
	processMax  = "process_max_fds"
	scrapeTime  = "scrape_duration_seconds"
	scrapeUp    = "up"
	scrapeCount = "scrape_samples_scraped"
)

const perProcess = "{{instance}}"

func generator() *builder {
	b := start("generator.json", "kneefinder-generator", "The generator",
		"Is it the generator that is slow? Its lateness, its machine, its connections, its telemetry, and whether the calls came as asked.")
	b.newest()
	b.marks()

	b.row("Is the load what was asked?")
	b.add(12, 9, graph{
		title: "Schedule lag", unit: "s", interval: calmly,
		about: "How late turns were sent, after they were due, for want of the generator itself. A step whose P99 is over 5 ms, or 2 % of the TTFT limit if that is more, is client_limited and cannot pass: use a bigger machine, or shards.",
		series: []series{
			{expr: percentile("0.5", names.Lag), legend: "P50"},
			{expr: percentile("0.99", names.Lag), legend: "P99"},
			{expr: largest("label", run(names.StepLag)), legend: "P99 of an ended step, the largest so far"},
		},
	})
	b.add(6, 9, grid{
		title:  "Tests of the arrivals",
		about:  "p of each test: the probability of arrivals as extreme if the process is as asked. Kolmogorov-Smirnov and Anderson-Darling of the gaps, their autocorrelation, arrivals on whole seconds, dispersion of counts in windows. Below .001 rejects.",
		labels: []string{names.Test},
		series: []series{{expr: "min by (label, test) (" + last(run(names.ArrivalsTestP)) + ")", legend: "p"}},
	})
	b.add(6, 9, figure{
		title: "Arrivals", unit: "none",
		about: "Calls tested; the coefficient of variation of their gaps, 1 for Poisson; whether the certificate holds.",
		series: []series{
			{expr: sum(names.Label, last(run(names.ArrivalsCalls))), legend: "calls tested"},
			{expr: lastOf("label", names.ArrivalsCV), legend: "variation of gaps"},
			{expr: certified(), legend: "load", names: map[string]named{"1": {"certified", green}, "0": {"not certified", red}}},
		},
	})

	b.row("The process")
	b.add(8, 8, graph{
		title: "CPU", unit: "none",
		about:  "Cores in use. Near the number of cores, the generator is about to be late.",
		series: []series{{expr: sum(byInstance, rate(process(processCPU))), legend: perProcess}},
	})
	b.add(8, 8, graph{
		title: "Garbage collection", unit: "s",
		about: "The longest of the last pauses; on the right the share of time in pauses.",
		series: []series{
			{expr: largest(byInstance, process(goGC, `quantile=~"1|1.0"`)), legend: "longest pause, " + perProcess},
			{expr: sum(byInstance, rate(process(goGC+"_sum"))), legend: "share of time, " + perProcess, unit: "percentunit"},
		},
	})
	b.add(8, 8, graph{
		title: "Memory", unit: "bytes",
		about: "Resident memory and Go's heap. Both stay level over hours: what a run keeps does not grow with its turns.",
		series: []series{
			{expr: sum(byInstance, process(processRSS)), legend: "resident, " + perProcess},
			{expr: sum(byInstance, process(goHeap)), legend: "heap, " + perProcess},
		},
	})
	b.add(8, 8, graph{
		title: "Goroutines", unit: "short",
		about:  "A few for each call in progress.",
		series: []series{{expr: sum(byInstance, process(goRoutines)), legend: perProcess}},
	})
	b.add(8, 8, graph{
		title: "File descriptors", unit: "short",
		about: "Open ones, about one a turn in progress and one an idle connection, and the limit.",
		series: []series{
			{expr: sum(byInstance, process(processFDs)), legend: "open, " + perProcess},
			{expr: sum(byInstance, process(processMax)), legend: "limit, " + perProcess, limit: true},
		},
	})
	b.add(8, 8, graph{
		title: "Token events", unit: "events/s",
		about:  "What the generator reads from the wire: the work that it does.",
		series: []series{{expr: total(names.TokenEvents), legend: "events"}},
	})

	b.row("Wire and telemetry")
	b.add(8, 8, graph{
		title: "Connections", unit: "1/s",
		about: "Dials: turns whose TTFT holds opening a connection. Retries: requests sent again because a kept connection turned out to be closed.",
		series: []series{
			{expr: total(names.Dials), legend: "dials"},
			{expr: total(names.Retries), legend: "retries"},
		},
	})
	b.add(8, 8, graph{
		title: "Scrapes of the engine and the GPU", unit: "scrapes/s",
		about:  "Scrapes by kneeload itself of the other side, by how they went.",
		series: []series{{expr: sum("source, outcome", rate(process(names.ScrapesTotal))), legend: "{{source}}: {{outcome}}"}},
	})
	b.add(8, 8, graph{
		title: "Telemetry lost", unit: "1/s",
		about:  "Spans and metrics that could not be exported: the collector is down or too slow. The load does not wait for it.",
		series: []series{{expr: sum("signal", rate(process(names.DroppedTotal))), legend: "{{signal}}"}},
	})
	b.add(8, 8, graph{
		title: "Prometheus's view", unit: "s",
		about: "How long a scrape of kneeload takes; on the right whether the last one succeeded, and the samples it brought: these depend on the steps made, not on the calls.",
		series: []series{
			{expr: largest(byInstance, process(scrapeTime)), legend: "scrape, " + perProcess},
			{expr: largest(byInstance, process(scrapeUp)), legend: "up, " + perProcess, unit: "short"},
			{expr: largest(byInstance, process(scrapeCount)), legend: "samples, " + perProcess, unit: "short"},
		},
	})
	b.add(16, 8, grid{
		title:  "What runs",
		about:  "The run as it describes itself: who sends, to what.",
		labels: []string{"tool", "model", "engine", "engine_version", "gpu", "fidelity", "arrivals"},
		series: []series{{expr: lastOf("label, tool, model, engine, engine_version, gpu, fidelity, arrivals", names.RunInfo), legend: "is", hidden: true}},
	})
	b.add(8, 6, grid{
		title:  "Build",
		about:  "The kneeload that sends.",
		labels: []string{"version", "revision", "goversion"},
		series: []series{{expr: largest("version, revision, goversion", last(process(names.BuildInfo))), legend: "is", hidden: true}},
	})
	b.add(16, 6, figure{
		title: "Where the run is", unit: "none",
		about: "The last step begun, counted from 0, and the length of the rolling window.",
		series: []series{
			{expr: lastOf("label", names.CurrentStep), legend: "step"},
			{expr: lastOf("label", names.WindowSeconds), legend: "rolling window", unit: "s"},
		},
	})
	return b
}
