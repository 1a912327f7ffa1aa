package model_test

import (
	"fmt"
	"strings"

	"kneefinder/simulation/engine/model"
)

func Example() {
	fmt.Println("model          weights, B active, B stored, GB | KV of a token: full, B in window, B | of 18,000: GB")
	for _, name := range []string{"llama-3.1-8b", "gemma-3-12b", "gemma-4-12b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3"} {
		s, _ := model.ByName(name)
		fmt.Printf("%-14s %10.2f %9.2f %10.1f | %22d %12d | %14.3f\n", name, float64(s.Params())/1e9, float64(s.ActiveParams())/1e9,
			float64(s.WeightBytes())/1e9, s.FullBytes(), s.WindowBytes(), float64(s.SequenceBytes(18000))/1e9)
	}
	// Output:
	// model          weights, B active, B stored, GB | KV of a token: full, B in window, B | of 18,000: GB
	// llama-3.1-8b         8.03      7.50       16.1 |                 131072            0 |          2.359
	// gemma-3-12b         11.77     11.77       23.5 |                  65536       327680 |          1.515
	// gemma-4-12b         11.91     11.91       23.8 |                  16384       327680 |          0.630
	// qwen3-30b-a3b       30.53      3.04       61.1 |                  98304            0 |          1.769
	// gpt-oss-120b       116.79      5.13       65.2 |                  36864        36864 |          0.668
	// deepseek-v3        671.03     36.62      673.0 |                  70272            0 |          1.265
}

// A model that is no preset comes as its checkpoint's config.json.
func ExampleFromConfig() {
	file := `{
		"model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 40960
	}`
	_, err := model.FromConfig(strings.NewReader(file), "tiny.json")
	fmt.Println(err)

	s, err := model.FromConfig(strings.NewReader(strings.Replace(file, `heads": 3`, `heads": 2`, 1)), "tiny.json")
	fmt.Println(s.Name, s.Params(), "weights,", s.FullBytes(), "bytes of KV a token", err)
	// Output:
	// tiny.json: num_key_value_heads is 3: must divide num_attention_heads, 4
	// tiny 3276800 weights, 1024 bytes of KV a token <nil>
}
