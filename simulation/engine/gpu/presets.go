package gpu

import (
	"maps"
	"slices"
	"time"
)

// ByName returns a preset, complete with efficiencies. h100 is h100-sxm, h200 is h200-sxm, and so on for the other SXM boards of
// which there is one.
func ByName(name string) (GPU, bool) {
	if full, ok := aliases[name]; ok {
		name = full
	}
	for _, g := range presets() {
		if g.Name == name {
			return g.Filled(), true
		}
	}
	return GPU{}, false
}

// Names lists the presets, sorted, without aliases.
func Names() []string {
	names := map[string]bool{}
	for _, g := range presets() {
		names[g.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

var aliases = map[string]string{
	"h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm", "gb200": "gb200-nvl72", "rtx-pro-6000": "rtx-pro-6000-server",
}

// Where prices come from. They move monthly.
const (
	deploybase = "deploybase.ai/articles/runpod-gpu-pricing, 2026-03-10"
	runpod     = "docs.runpod.io/serverless/pricing, flex price a second x 3600"
	inferenceX = "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/constants.ts"
)

// presets: peaks from vendors' data sheets (dense), most by way of ai-dynamo/aiconfigurator@095f58a5 systems/*.yaml.
func presets() []GPU {
	return []GPU{
		{
			Name: "l40s", Memory: 46068 << 20, Bandwidth: 864e9,
			BF16: 362.05e12, FP8: 733e12,
			PCIe: 32e9, Watts: 350,
			Prices: []Price{
				{"serverless", 1.908, runpod},
				{"spot", 0.79, deploybase},
				{"on demand", 1.4, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/l40s.yaml",
		},
		{
			Name: "l4", Memory: 24 << 30, Bandwidth: 300e9,
			BF16: 121e12, FP8: 242e12,
			PCIe: 32e9, Watts: 72,
			Prices: []Price{
				{"serverless", 0.684, runpod},
				{"spot", 0.44, deploybase},
				{"on demand", 0.78, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/l4.yaml",
		},
		{
			Name: "a10g", Memory: 24e9, Bandwidth: 600e9,
			BF16: 70e12,
			PCIe: 32e9, Watts: 150,
			Prices: []Price{
				{"on demand, AWS g5.xlarge", 1.006, "EC2 us-east-1 June 2026, main.d1m6t5n8e4tvia.amplifyapp.com EC2 pricing article (secondary)"},
			},
			Source: "baseten.co/blog/nvidia-a10-vs-a10g-for-ml-model-inference (24 GB, 600 GB/s; A10G tensor rate 70 TFLOPS FP16 dense vs 125 on A10); TDP 150 W is the A10 board figure; compute and power are not confirmed by a vendor file",
		},
		{
			Name: "a100-40-sxm", Memory: 40e9, Bandwidth: 1555e9,
			BF16:    312e12,
			ScaleUp: 300e9, ScaleUpGPUs: 8, PCIe: 32e9, Watts: 400,
			Source: "A100 40GB: 1555 GB/s from the vendor data sheet; compute/NVLink/power as ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/a100_sxm.yaml",
		},
		{
			Name: "a100-80-sxm", Memory: 80 << 30, Bandwidth: 2039e9,
			BF16:    312e12,
			ScaleUp: 300e9, ScaleUpGPUs: 8, PCIe: 32e9, Watts: 400,
			Prices: []Price{
				{"serverless", 2.736, runpod},
				{"spot", 1.39, deploybase},
				{"on demand", 2.45, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/a100_sxm.yaml; inference-sim/inference-sim@f90a1e3a hardware_config.json",
		},
		{
			Name: "h100-sxm", Memory: 80 << 30, Bandwidth: 3350e9,
			BF16: 989e12, FP8: 1978e12,
			ScaleUp: 450e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 700,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.3, inferenceX},
				{"cost of owning, neocloud", 1.69, inferenceX},
				{"rental, 3 years", 1.3, inferenceX},
				{"serverless", 4.176, runpod},
				{"spot", 2.69, deploybase},
				{"on demand", 4.76, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/h100_sxm.yaml; SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts; doublewordai/inference-lab@24d40112 catalog/hardware/h100.toml",
		},
		{
			Name: "h100-pcie", Memory: 80 << 30, Bandwidth: 2000e9,
			BF16: 756.5e12, FP8: 1513e12,
			PCIe: 64e9, Watts: 350,
			Prices: []Price{
				{"spot", 1.99, deploybase},
				{"on demand", 3.51, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/h100_pcie.yaml",
		},
		{
			Name: "h100-nvl", Memory: 94e9, Bandwidth: 3900e9,
			BF16: 835e12, FP8: 1671e12,
			ScaleUp: 300e9, ScaleUpGPUs: 2, PCIe: 64e9, Watts: 400,
			Prices: []Price{
				{"on demand", 3.07, "gpu.blog H100 NVL page (RunPod on-demand; figures for compute there are not used)"},
			},
			Source: "aiminingco.com/gpu/h100-nvl/specs (94 GB, 3.9 TB/s, 600 GB/s bridge, ~400 W); compute = vendor NVL datasheet half of the sparse 1671/3341",
		},
		{
			Name: "h200-sxm", Memory: 141 << 30, Bandwidth: 4800e9,
			BF16: 989e12, FP8: 1978e12,
			ScaleUp: 450e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 700,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.41, inferenceX},
				{"cost of owning, neocloud", 1.74, inferenceX},
				{"rental, 3 years", 1.6, inferenceX},
				{"serverless", 5.58, runpod},
				{"spot", 3.59, deploybase},
				{"on demand", 6.35, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/h200_sxm.yaml; SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts",
		},
		{
			Name: "b200-sxm", Memory: 180 << 30, Bandwidth: 8000e9,
			BF16: 2250e12, FP8: 4500e12, FP4: 9000e12,
			ScaleUp: 900e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 1000,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.95, inferenceX},
				{"cost of owning, neocloud", 2.34, inferenceX},
				{"rental, 3 years", 2.9, inferenceX},
				{"serverless", 8.64, runpod},
				{"spot", 5.98, deploybase},
				{"on demand", 10.57, deploybase},
			},
			Source: "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts (180 GB, 8 TB/s); ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/b200_sxm.yaml uses 7.7 TB/s and 180 GiB; doublewordai/inference-lab@24d40112 catalog/hardware/b200.toml uses 192 GB",
		},
		{
			Name: "gb200-nvl72", Memory: 189471 << 20, Bandwidth: 8000e9,
			BF16: 2500e12, FP8: 5000e12, FP4: 10000e12,
			ScaleUp: 900e9, ScaleUpGPUs: 72, PCIe: 64e9, Watts: 1200,
			Prices: []Price{
				{"cost of owning, hyperscaler", 2.21, inferenceX},
				{"cost of owning, neocloud", 2.75, inferenceX},
				{"rental, 3 years", 3.3, inferenceX},
			},
			Source: "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts; ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/gb200.yaml (198674743296 B reported)",
		},
		{
			Name: "mi300x", Memory: 192e9, Bandwidth: 5300e9,
			BF16: 1307e12, FP8: 2615e12,
			ScaleUp: 448e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 750,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.12, inferenceX},
				{"cost of owning, neocloud", 1.4, inferenceX},
				{"rental, 3 years", 1.55, inferenceX},
				{"on demand", 1.71, "gpu.blog MI300X page (TensorWave)"},
			},
			Source: "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts; TDP 750 W aiwiki.ai/wiki/amd_instinct_mi355x and gpu.blog MI300X",
		},
		{
			Name: "mi325x", Memory: 256e9, Bandwidth: 6000e9,
			BF16: 1307e12, FP8: 2615e12,
			ScaleUp: 448e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 1000,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.28, inferenceX},
				{"cost of owning, neocloud", 1.59, inferenceX},
				{"rental, 3 years", 1.8, inferenceX},
			},
			Source: "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts; TDP 1000 W from the vendor",
		},
		{
			Name: "mi355x", Memory: 288e9, Bandwidth: 8000e9,
			BF16: 2516e12, FP8: 5033e12, FP4: 10066e12,
			ScaleUp: 576e9, ScaleUpGPUs: 8, PCIe: 64e9, Watts: 1400,
			Prices: []Price{
				{"cost of owning, hyperscaler", 1.48, inferenceX},
				{"cost of owning, neocloud", 1.9, inferenceX},
				{"rental, 3 years", 2.1, inferenceX},
			},
			Source: "SemiAnalysisAI/InferenceX-app@77ca49a6 packages/app/src/lib/gpu-specs.ts; TDP 1400 W tomshardware.com and aiwiki.ai",
		},
		{
			Name: "rtx-4090", Memory: 24e9, Bandwidth: 1008e9,
			BF16: 165.2e12, FP8: 330.3e12,
			PCIe: 32e9, Watts: 450,
			Prices: []Price{
				{"serverless", 1.116, runpod},
				{"spot", 0.34, deploybase},
				{"on demand", 0.6, deploybase},
			},
			Source: "hmc-tech.com RTX 4090 page (BF16 165.2, FP8 with FP32 accumulate 330.3, 660.6 with FP16 accumulate, 1.01 TB/s, 450 W)",
		},
		{
			Name: "rtx-5090", Memory: 32e9, Bandwidth: 1792e9,
			BF16: 209.5e12, FP8: 419e12, FP4: 1676e12,
			PCIe: 64e9, Watts: 575,
			Prices: []Price{
				{"spot", 0.69, deploybase},
				{"on demand", 1.22, deploybase},
			},
			Source: "spheron.network/blog/nvidia-rtx-5090-specs (1792 GB/s, 575 W, FP4 3352 sparse, FP16 838 sparse with FP16 accumulate); dense BF16/FP8 with FP32 accumulate = a quarter of the sparse FP16-accumulate 838.4/1676.8",
		},
		{
			Name: "rtx-pro-6000-server", Memory: 97887 << 20, Bandwidth: 1792e9,
			BF16: 467.8e12, FP8: 935.6e12, FP4: 1871.2e12,
			PCIe: 64e9, Watts: 600,
			Prices: []Price{
				{"spot", 0.89, deploybase},
				{"on demand", 1.57, deploybase},
			},
			Source: "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/rtx_pro_6000_server.yaml (dense, scaled to 2430 MHz; 102641958912 B reported)",
		},
		demo(),
	}
}

// demo is imaginary: a small card on which the demo model has room for about 40,000 tokens, in a host that loses no time.
func demo() GPU {
	gemm := Product{Compute: Curve{{64, .20}, {256, .50}, {1024, .60}}, Stream: Curve{{1, .86}, {16, .79}}}
	return GPU{
		Name: "demo", Memory: 8e9, Bandwidth: 1100e9, BF16: 220e12, PCIe: 32e9,
		Source: "imaginary",
		Kernels: Kernels{
			BF16: gemm, FP8: gemm, Experts: gemm, Experts4: gemm,
			Prefill:      []Prefill{{HeadDim: 128, Fraction: .5}},
			Decode:       []Decode{{HeadDim: 128, Fraction: .75}},
			DecodeWindow: []Decode{{HeadDim: 128, Fraction: .71}},
			Pass:         Pass{Launch: 3 * time.Microsecond, Fraction: .8},
		},
		Measured:  "demo",
		Overheads: &Overheads{Prefill: 2 * time.Millisecond, Decode: 400 * time.Microsecond, Sequence: 5 * time.Microsecond, Launch: 3 * time.Microsecond, Request: 1500 * time.Microsecond, Graphs: 256},
	}
}
