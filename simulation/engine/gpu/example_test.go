package gpu_test

import (
	"fmt"
	"strings"

	"kneefinder/simulation/engine/gpu"
)

func Example() {
	g, err := gpu.FromFile(strings.NewReader("memory_gb: 24\nbandwidth_gb_s: 600\nbf16_tflops: 125\n"), "a10.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g.Name, g.Memory, "scaled by data sheet from", g.Measured)
	// Output: a10 24000000000 scaled by data sheet from h100-sxm
}
