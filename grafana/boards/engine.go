package boards

import "kneefinder/telemetry/names"

func engine() *builder {
	b := start("engine.json", "kneefinder-engine", "Client over engine",
		"Does the engine see what the callers feel? What kneeload measures, over what SGLang or vLLM says of itself. Every query asks for both engines' names, old ones too, and shows those that are there.")
	const one = `{__name__=~"` + sglangRunning + "|" + vllmRunning + `"`
	b.choose("engine_job", "Engine job", "The scrape job of SGLang or vLLM", "label_values("+one+"}, job)", true)
	b.choose("engine_instance", "Engine", "One engine, or all behind a router", "label_values("+one+`,job=~"$engine_job"}, instance)`, true)
	b.newest()
	b.marks()

	b.row("Time to first token")
	b.add(12, 9, graph{
		title: "TTFT, client and server", unit: "s", interval: calmly,
		about: "Client, sent: from the request; client, due: from when the turn was due. All turns, as the server counts them. Between client and server lie the network, accepting and reading the request. " +
			"The server's percentiles are interpolated within its buckets: SGLang's next to 300 ms is .2 to .4 s wide unless --bucket-time-to-first-token says otherwise.",
		series: []series{
			{expr: percentile("0.5", names.TTFTSent), legend: "client P50, sent"},
			{expr: percentile("0.95", names.TTFTSent), legend: "client P95, sent"},
			{expr: percentile("0.95", names.TTFT), legend: "client P95, due"},
			{expr: serverPercentile("0.5", sglangTTFT, vllmTTFT), legend: "server P50, {{instance}}"},
			{expr: serverPercentile("0.95", sglangTTFT, vllmTTFT), legend: "server P95, {{instance}}"},
			limitOf("ttft"),
		},
	})
	b.add(12, 9, graph{
		title: "Mean TTFT, client and server", unit: "s", interval: calmly, signed: true,
		about: "Means need no buckets. The difference is what lies outside the engine; one that grows with the load is a queue before the engine's own clock starts. Server queue: from arrival to admission.",
		series: []series{
			{expr: mean(names.TTFTSent), legend: "client, sent"},
			{expr: serverMean(sglangTTFT, vllmTTFT), legend: "server, {{instance}}"},
			{expr: mean(names.TTFTSent) + " - on () group_left () avg(" + serverMean(sglangTTFT, vllmTTFT) + ")", legend: "client less server"},
			{expr: serverMean(sglangQueueTime, vllmQueueTime), legend: "server queue, {{instance}}"},
		},
	})
	b.add(24, 6, grid{
		title: "Step by step",
		about: "Means over the window of each ended step; client less server compares TTFT sent. Empty where the engine's metrics were not scraped by kneeload itself.",
		series: []series{
			{expr: figureOf(names.StepRate), legend: "λ asked", unit: "calls/s"},
			{expr: figureOf(names.StepServerTTFT), legend: "server mean TTFT", unit: "s"},
			{expr: figureOf(names.StepTTFTMinus), legend: "client less server", unit: "s"},
			{expr: figureOf(names.StepTTFTSent, p95), legend: "client P95 TTFT sent", unit: "s"},
			{expr: figureOf(names.StepHit), legend: "client hit rate", unit: "percentunit"},
		},
	})

	b.row("Between tokens")
	b.add(12, 9, graph{
		title: "ITL, client and server", unit: "s", interval: calmly,
		about: "Client: gaps between token events as they arrive. SGLang observes in its tokenizer manager, once for each token of a batch; vLLM once for each streamed event. They differ where an event carries several tokens.",
		series: []series{
			{expr: percentile("0.5", names.ITL), legend: "client P50"},
			{expr: percentile("0.95", names.ITL), legend: "client P95"},
			{expr: serverPercentile("0.5", sglangITL, sglangITLOld, vllmITL, vllmITLOld), legend: "server P50, {{instance}}"},
			{expr: serverPercentile("0.95", sglangITL, sglangITLOld, vllmITL, vllmITLOld), legend: "server P95, {{instance}}"},
		},
	})
	b.add(12, 9, graph{
		title: "Mean ITL, client and server", unit: "s", interval: calmly,
		about: "The same without buckets.",
		series: []series{
			{expr: mean(names.ITL), legend: "client"},
			{expr: serverMean(sglangITL, sglangITLOld, vllmITL, vllmITLOld), legend: "server, {{instance}}"},
		},
	})

	b.row("Batch and queue")
	b.add(12, 9, graph{
		title: "Running and queued", unit: "short",
		about: "Turns that the client waits for, and requests that the engine runs or queues. SGLang refreshes its gauges at each prefill and every --decode-log-interval decode steps (40 unless set): they can be seconds old.",
		series: []series{
			{expr: now(names.TurnsInFlight), legend: "client: turns in progress"},
			{expr: either(sum(byInstance, server(sglangRunning, whole)), sum(byInstance, server(vllmRunning))), legend: "running, {{instance}}"},
			{expr: either(sum(byInstance, server(sglangQueued, whole)), sum(byInstance, server(vllmQueued))), legend: "queued, {{instance}}"},
		},
	})
	b.add(12, 9, graph{
		title: "Retractions and preemptions", unit: "requests/s",
		about: "Requests pushed out of the batch to be computed again, for want of KV: SGLang calls them retractions, vLLM preemptions. SGLang's counter appears with the first one; how many are out right now is on the right.",
		series: []series{
			{expr: either(serverRate(sglangRetracted), serverRate(vllmPreempted)), legend: "pushed out, {{instance}}"},
			{expr: sum(byInstance, server(sglangRetractNow)), legend: "out now (SGLang), {{instance}}", unit: "short"},
		},
	})

	b.row("KV cache")
	b.add(8, 9, graph{
		title: "KV pool", unit: "percentunit", top: new(1.0),
		about: "Used: held by running requests. Evictable: warm prefixes that nobody uses at the moment, such as those of calls in a pause. Free: neither. vLLM tells only the first: its rest may be either. " +
			"SGLang's token_usage counts evictable as free, so that it stays low while warm prefixes fill the pool; what matters is free at 0 and evictable shrinking.",
		series: []series{
			{expr: either(share(sum(byInstance, server(sglangKVUsed)), kvPool()), "max by (instance) ("+server(sglangUsage)+")",
				"avg by (instance) ("+server(vllmUsage)+")", "avg by (instance) ("+server(vllmUsageOld)+")"), legend: "used, {{instance}}"},
			{expr: share(sum(byInstance, server(sglangKVCached)), kvPool()), legend: "evictable (SGLang), {{instance}}"},
			{expr: share(sum(byInstance, server(sglangKVFree)), kvPool()), legend: "free (SGLang), {{instance}}"},
		},
	})
	b.add(8, 9, graph{
		title: "Warm prefixes lost", unit: "tokens/s",
		about: "Evicted: as SGLang counts; it evicts old prefixes of no use too. Computed again: prompt tokens of later turns that were not in the cache, as the client was told; a warm turn has only its new words there. " +
			"vLLM exports no eviction count: with it, evictions are inferred from this: it grows while calls pause (on the right) and wait for their next turn.",
		series: []series{
			{expr: serverRate(sglangEvicted), legend: "evicted (SGLang), {{instance}}"},
			{expr: total(names.KnownPromptTokens, later) + " - " + total(names.CachedTokens, later), legend: "computed again (client)"},
			{expr: now(names.CallsInFlight) + " - " + now(names.TurnsInFlight), legend: "calls in a pause", unit: "short"},
		},
	})
	b.add(8, 9, graph{
		title: "Cache hit rate, client and server", unit: "percentunit", top: new(1.0), interval: calmly,
		about: "Prompt tokens found in the prefix cache, of all. Client: of turns that told. All turns, later turns (first ones are cold), and the server's own count of everything it served. vLLM's prefix_cache_hits counts waiting requests again and again before mid 2026; it is asked last.",
		series: []series{
			{expr: share(total(names.CachedTokens), total(names.KnownPromptTokens)), legend: "client, all turns"},
			{expr: share(total(names.CachedTokens, later), total(names.KnownPromptTokens, later)), legend: "client, later turns"},
			{expr: serverHit(), legend: "server, {{instance}}"},
		},
	})
	b.add(12, 8, graph{
		title: "Cached tokens of a turn", unit: "short", interval: calmly,
		about: "P50 and P5 of the prompt tokens of a later turn found in the cache, where the server told. P5 at 0 while P50 is high: some calls have lost their whole prefix.",
		series: []series{
			{expr: percentile("0.5", names.Cached, later), legend: "P50"},
			{expr: percentile("0.05", names.Cached, later), legend: "P5"},
		},
	})
	b.add(12, 8, graph{
		title: "Tokens", unit: "tokens/s",
		about: "Prompt tokens sent and output tokens received by the client; output tokens and computed prompt tokens of the server. SGLang counts output tokens when a request ends, so that its line comes in steps.",
		series: []series{
			{expr: total(names.OutputTokens), legend: "client: output"},
			{expr: total(names.PromptTokens), legend: "client: prompt", unit: "tokens/s"},
			{expr: either(serverRate(sglangGenerated), serverRate(vllmGenerated)), legend: "server: output, {{instance}}"},
			{expr: either(serverRate(sglangRealtime, `mode="prefill_compute"`), serverRate(sglangEffective, `mode="input"`),
				serverRate(vllmBySource, `source="local_compute"`), serverRate(vllmPrompt)+" - "+serverRate(vllmHits)), legend: "server: prompt computed, {{instance}}", unit: "tokens/s"},
		},
	})
	return b
}
