package boards

import "kneefinder/telemetry/names"

func gpu() *builder {
	b := start("gpu.json", "kneefinder-gpu", "GPU under load",
		"What does the GPU do as the load grows? λ, P95 TTFT and live calls over the GPUs' own figures, from DCGM, nvidia_gpu_exporter or AMD's exporter, in the same units.")
	const one = `{__name__=~"` + dcgmPower + "|" + smiPower + "|" + amdPower + "|" + amdPowerOld + `"`
	b.choose("gpu_job", "GPU job", "The scrape job of the GPU exporter", "label_values("+one+"}, job)", true)
	b.choose("gpu_instance", "GPU host", "One exporter, or all", "label_values("+one+`,job=~"$gpu_job"}, instance)`, true)
	b.marks()

	b.row("Load")
	b.add(12, 8, graph{
		title: "Calls", unit: "calls/s", stairs: true,
		about: "λ asked and the rate of calls that came; on the right, calls in progress.",
		series: []series{
			{expr: now(names.OfferedRate), legend: "λ asked"},
			{expr: now(names.ArrivedRate), legend: "λ came"},
			{expr: now(names.CallsInFlight), legend: "live calls", unit: "short"},
		},
	})
	b.add(12, 8, graph{
		title: "P95 TTFT", unit: "s",
		about:  "Exact, of the later turns that ended in the rolling window; on the right, how many they are.",
		series: []series{{expr: largest("label", run(names.WindowTTFT, p95)), legend: "P95 TTFT"}, limitOf("ttft"), {expr: now(names.WindowTurns), legend: "turns in the window", unit: "short"}},
	})

	b.row("How busy")
	b.add(12, 8, graph{
		title: "Tensor and DRAM activity", unit: "percentunit", top: new(1.0),
		about: "Tensor: the share of cycles in which tensor cores work; decode leaves them idle, prefill fills them. DRAM: the share in which memory moves data; decode fills it. Tensor activity comes from DCGM on data-centre GPUs only. " +
			"DRAM: DCGM's share of cycles; nvidia_gpu_exporter's and AMD's share of time with any access, which reads higher.",
		series: []series{
			{expr: dcgm(dcgmTensor), legend: "tensor, " + gpuLegend},
			{expr: either(dcgm(dcgmDRAM), perGPU(smiMemory), perGPU(amdMemory)+" / 100"), legend: "DRAM, " + gpuLegend},
		},
	})
	b.add(12, 8, graph{
		title: "Power", unit: "watt",
		about:  "What each GPU draws. It follows the work more closely than utilisation does.",
		series: []series{{expr: gpuPower(), legend: gpuLegend}},
	})
	b.add(12, 8, graph{
		title: "Utilisation", unit: "percentunit", top: new(1.0),
		about:  "The share of time in which any kernel ran. It is at 1 long before the knee: power and activity say more.",
		series: []series{{expr: either(dcgm(dcgmUtil)+" / 100", perGPU(smiUtil), perGPU(amdUtil)+" / 100"), legend: gpuLegend}},
	})
	b.add(12, 8, graph{
		title: "Memory", unit: "bytes",
		about: "In use and in all. Engines reserve their KV pool when they start: this does not move with the load; the pool's inside is on the engine's board.",
		series: []series{
			{expr: either(dcgm(dcgmUsed)+" * 1048576", perGPU(smiUsed), perGPU(amdUsed)+" * 1e6"), legend: "used, " + gpuLegend},
			{expr: either("("+dcgm(dcgmUsed)+" + "+dcgm(dcgmFree)+" + "+dcgm(dcgmReserved)+") * 1048576",
				"("+dcgm(dcgmUsed)+" + "+dcgm(dcgmFree)+") * 1048576", perGPU(smiTotal), perGPU(amdTotal)+" * 1e6"), legend: "all, " + gpuLegend},
		},
	})

	b.row("Why it slows down")
	b.add(12, 8, graph{
		title: "SM clock", unit: "hertz",
		about:  "A clock that falls while power is at its limit or the temperature is high says that the GPU is throttled.",
		series: []series{{expr: either(dcgm(dcgmClock)+" * 1e6", perGPU(smiClock), perGPU(amdClock, `clock_type="system"`)+" * 1e6"), legend: gpuLegend}},
	})
	b.add(12, 8, graph{
		title: "Temperature", unit: "celsius",
		about:  "Of the GPU; of the junction or the edge for AMD's.",
		series: []series{{expr: either(dcgm(dcgmTemp), perGPU(smiTemp), perGPU(amdTemp), perGPU(amdTempOld)), legend: gpuLegend}},
	})
	b.add(12, 8, graph{
		title: "Output tokens a joule", unit: "tokens/J", interval: calmly,
		about:  "Output tokens that the client received, over the power of all GPUs picked: how much the load makes of the energy. It grows with the batch, up to the knee.",
		series: []series{{expr: total(names.OutputTokens) + " / on () group_left () sum(" + gpuPower() + ")", legend: "tokens a joule"}},
	})
	b.add(12, 8, graph{
		title: "Live calls, sampled", unit: "short", interval: calmly,
		about: "P50 and P95 of the calls in progress, sampled once a second: how many prefixes must stay in memory.",
		series: []series{
			{expr: percentile("0.5", names.Calls), legend: "P50"},
			{expr: percentile("0.95", names.Calls), legend: "P95"},
		},
	})
	return b
}
