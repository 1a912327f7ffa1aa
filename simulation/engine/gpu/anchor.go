package gpu

// Anchor is what a GPU's constants have been fitted to, where they have been: readings of one engine with one model. They hold for that
// engine and model, within what was measured; elsewhere they are a guess.
type Anchor struct {
	Engine  string `yaml:"engine" json:"engine"`                         // whose: sglang or vllm
	Version string `yaml:"version" json:"version,omitempty"`             // of the engine; empty: not told
	Model   string `yaml:"model" json:"model"`                           // its name
	Params  int64  `yaml:"params" json:"params"`                         // its weights, by which it is known again
	KVBytes int64  `yaml:"kv_bytes_per_token" json:"kv_bytes_per_token"` // of one token in all its layers, the same
	TP      int    `yaml:"tp" json:"tp"`                                 // how it was spread; 1: not
	PP      int    `yaml:"pp" json:"pp"`
	EP      int    `yaml:"ep" json:"ep"`
	DP      int    `yaml:"attention_dp" json:"attention_dp"`

	Chunk   int     `yaml:"chunk" json:"chunk"`                               // most prompt tokens of one step
	Prompt  int     `yaml:"longest_prompt" json:"longest_prompt"`             // tokens
	Cached  int     `yaml:"longest_cached" json:"longest_cached"`             // tokens of a prompt that were cached; 0: warm requests were not measured
	Batch   int     `yaml:"widest_batch" json:"widest_batch"`                 // sequences that decoded together
	Context int     `yaml:"longest_sequence" json:"longest_sequence"`         // tokens of one that decoded
	Points  int     `yaml:"points" json:"points"`                             // that the constants were fitted to
	Error   float64 `yaml:"median_error_percent" json:"median_error_percent"` // of the fitted times
	Worst   float64 `yaml:"largest_error_percent" json:"largest_error_percent"`
}
