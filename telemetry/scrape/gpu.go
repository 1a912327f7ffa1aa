package scrape

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"kneefinder/measurement"
)

// blank is more than any reading of DCGM's can be, and less than what stands for a field that the GPU does not have: 2147483632,
// 140737488355328 or 9223372036854775794, by the field's type.
const blank = 1e9

const (
	mebibyte  = 1 << 20
	megahertz = 1e6
	percent   = .01
)

// exporters are the three GPU exporters' names of each figure. What one exporter tells twice of a GPU - for each pod that shares
// it, or each partition that has a part of it - counts once.
func exporters() []figure {
	gpu := func(name string, times float64, fold func([]series) float64) reading {
		return reading{name: name, times: times, fold: func(ss []series) float64 { return fold(once(ss, device)) }}
	}
	part := func(name string, times float64, fold func([]series) float64) reading {
		return reading{name: name, times: times, fold: func(ss []series) float64 { return fold(once(ss, partition)) }}
	}
	dcgm := func(r reading) reading {
		r.below = blank
		return r
	}
	clocks := reading{name: "gpu_clock", times: megahertz, label: "clock_type", in: []string{"GPU_CLOCK_TYPE_SYSTEM", "system"}, must: true, fold: mean}
	energy := gpu("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", .001, sum) // mJ since the driver was loaded
	energy.below = blank * blank
	return []figure{
		{measurement.SampleGPUUtil, []reading{dcgm(gpu("DCGM_FI_DEV_GPU_UTIL", percent, mean)), gpu("nvidia_smi_utilization_gpu_ratio", 1, mean), gpu("gpu_gfx_activity", percent, mean)}},
		{measurement.SampleGPUTensor, []reading{dcgm(part("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1, mean))}},
		{measurement.SampleGPUDRAM, []reading{dcgm(part("DCGM_FI_PROF_DRAM_ACTIVE", 1, mean)), gpu("gpu_umc_activity", percent, mean)}},
		{measurement.SampleGPUMemory, []reading{dcgm(part("DCGM_FI_DEV_FB_USED", mebibyte, sum)), gpu("nvidia_smi_memory_used_bytes", 1, sum), part("gpu_used_vram", mebibyte, sum)}},
		{measurement.SampleGPUMemoryAll, []reading{gpu("nvidia_smi_memory_total_bytes", 1, sum), part("gpu_total_vram", mebibyte, sum)}}, // DCGM's: dcgmMemory
		{measurement.SampleGPUPower, []reading{dcgm(gpu("DCGM_FI_DEV_POWER_USAGE", 1, sum)), gpu("nvidia_smi_power_draw_watts", 1, sum),
			gpu("gpu_package_power", 1, sum), gpu("gpu_average_package_power", 1, sum)}}, // MI3xx, MI2xx
		{measurement.SampleGPUEnergy, []reading{energy}},
		{measurement.SampleGPUClock, []reading{dcgm(gpu("DCGM_FI_DEV_SM_CLOCK", megahertz, mean)), gpu("nvidia_smi_clocks_current_sm_clock_hz", 1, mean), clocks}},
		{measurement.SampleGPUTemp, []reading{dcgm(gpu("DCGM_FI_DEV_GPU_TEMP", 1, highest)), gpu("nvidia_smi_temperature_gpu", 1, highest),
			gpu("gpu_junction_temperature", 1, highest), gpu("gpu_edge_temperature", 1, highest)}}, // MI3xx, MI2xx
	}
}

// amd are the names of AMD's device metrics exporter, before which a prefix of the site's own may stand.
var amd = [...]string{"gpu_gfx_activity", "gpu_umc_activity", "gpu_used_vram", "gpu_total_vram", "gpu_package_power",
	"gpu_average_package_power", "gpu_clock", "gpu_junction_temperature", "gpu_edge_temperature"}

// The parts of DCGM's memory: all that there is.
var dcgmMemory = [...]string{"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"}

// once keeps one series of each thing: the highest, where they differ.
func once(ss []series, thing func(series) string) []series {
	return group(ss, thing, func(a, b series) int { return cmp.Compare(b.value, a.value) })
}

// device tells GPUs apart.
func device(s series) string {
	for _, name := range []string{"UUID", "uuid", "gpu_uuid"} {
		if id := s.label(name); id != "" {
			return id
		}
	}
	return strings.Join([]string{s.label("Hostname"), s.label("hostname"), s.label("gpu"), s.label("gpu_id")}, "/")
}

// partition tells the parts of partitioned GPUs apart.
func partition(s series) string {
	return strings.Join([]string{device(s), s.label("GPU_I_ID"), s.label("gpu_partition_id")}, "/")
}

// wantsGPU knows the names that are read, under any prefix for AMD's.
func wantsGPU() func(string) (string, bool) {
	names := map[string]bool{}
	for _, f := range exporters() {
		for _, r := range f.from {
			names[r.name] = true
		}
	}
	for _, name := range dcgmMemory {
		names[name] = true
	}
	return func(name string) (string, bool) {
		if names[name] {
			return name, true
		}
		if strings.Contains(name, "gpu_") {
			for _, a := range amd {
				if strings.HasSuffix(name, "_"+a) {
					return a, true
				}
			}
		}
		return "", false
	}
}

// readGPUs reads a GPU exporter's page; nothing when it is no such page.
func readGPUs(p page) values {
	v := values{}
	for _, f := range exporters() {
		value, ok := first(p, f.from)
		v.set(f.value, value, ok)
	}
	all, whole := 0., true
	for i, name := range dcgmMemory {
		mib, ok := reading{name: name, below: blank, times: mebibyte, fold: func(ss []series) float64 { return sum(once(ss, partition)) }}.of(p)
		all += mib
		whole = whole && (ok || i == 2) // older exporters do not tell what is reserved
	}
	if whole {
		v.set(measurement.SampleGPUMemoryAll, all, true)
	}
	if len(v) == 0 {
		return v
	}
	gpus := 0
	for _, ss := range p.series {
		gpus = max(gpus, len(once(ss, device)))
	}
	v.set(measurement.SampleGPUs, float64(gpus), true)
	return v
}

// gpuPages joins the samples that several exporters were due to give at one instant.
type gpuPages []gpuSample

type gpuSample struct {
	due, at time.Duration
	values  values // nil when nothing has come
}

// add takes a page and returns what can be told: all pages of its instant once each exporter has come; before that those of another
// instant, which somebody was late for or failed to give.
func (ps gpuPages) add(number int, s gpuSample) []gpuSample {
	var out []gpuSample
	if slices.ContainsFunc(ps, func(p gpuSample) bool { return p.values != nil && p.due != s.due }) {
		out = append(out, ps.together())
	}
	ps[number] = s
	if !slices.ContainsFunc(ps, func(p gpuSample) bool { return p.values == nil }) {
		out = append(out, ps.together())
	}
	return out
}

// together makes one sample of those that have come, at the mean of their instants: sums are summed, the others are means over all
// GPUs, the temperature is that of the hottest. A figure that not all exporters tell is left out.
func (ps gpuPages) together() gpuSample {
	var have []gpuSample
	gpus := 0.
	for i, s := range ps {
		if s.values != nil {
			have = append(have, s)
			gpus += s.values[measurement.SampleGPUs]
			ps[i].values = nil
		}
	}
	out := gpuSample{values: values{}}
	for _, s := range have {
		out.at += s.at / time.Duration(len(have))
	}
	for name := range have[0].values {
		total, most, all := 0., 0., true
		for i, s := range have {
			v, ok := s.values[name]
			all = all && ok
			switch name {
			case measurement.SampleGPUTemp:
				if i == 0 || v > most {
					most = v
				}
				total = most
			case measurement.SampleGPUUtil, measurement.SampleGPUTensor, measurement.SampleGPUDRAM, measurement.SampleGPUClock:
				total += v * s.values[measurement.SampleGPUs] / gpus
			default:
				total += v
			}
		}
		out.values.set(name, total, all)
	}
	return out
}
