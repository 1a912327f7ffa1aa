package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/generator/openai"
	"kneefinder/generator/workload"
	"kneefinder/measurement"
	"kneefinder/simulation/anchor"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// calibrate is the command kneesim anchor.
type calibrate struct {
	BaseURL         string      `name:"base-url" help:"The server to measure, with or without /v1; nobody else may use it meanwhile." placeholder:"http://HOST:PORT" group:"endpoint"`
	Load            string      `help:"Fit again to the readings of this file, and measure nothing." type:"existingfile" placeholder:"FILE" group:"endpoint"`
	ServedModelName string      `help:"Model to ask for; by default the only one that /v1/models lists." placeholder:"NAME" group:"endpoint"`
	APIKeyFile      string      `name:"api-key-file" help:"File that holds the API key, instead of KNEESIM_API_KEY or OPENAI_API_KEY." type:"path" placeholder:"FILE" group:"endpoint"`
	InsecureTLS     bool        `name:"insecure-tls" help:"Accept any certificate." group:"endpoint"`
	Timeout         cli.Seconds `help:"Longest answer." default:"2m" group:"endpoint"`

	ModelConfig string `help:"The model's Hugging Face config.json." type:"existingfile" placeholder:"FILE" group:"recipe"`
	Model       string `help:"Or a model that is known by its name: ${models}." placeholder:"NAME" group:"recipe"`
	Engine      string `help:"Whose engine it is: sglang or vllm." complete:"sglang,vllm" placeholder:"NAME" group:"recipe"`
	Chunk       int    `name:"chunked-prefill" aliases:"max-num-batched-tokens" help:"Most prompt tokens of one step, as the server was started; 0: what it says, else its engine's default." group:"recipe"`
	TP          int    `name:"tp" help:"GPUs that tensor parallelism divides each layer among; 0: 1." group:"recipe"`
	PP          int    `name:"pp" help:"GPUs that pipeline parallelism divides the layers among; 0: 1." group:"recipe"`
	EP          int    `name:"ep" help:"GPUs that expert parallelism divides the experts among; 0: 1." group:"recipe"`
	DP          int    `name:"attention-dp" help:"Ranks of data-parallel attention; 0: 1." group:"recipe"`

	Longest  int `help:"Tokens of the longest prompt; 0: 8192, or what fits." group:"workload"`
	Batch    int `help:"Most requests that decode together; 0: 16." group:"workload"`
	Repeats  int `help:"Readings of each point; 0: 4." group:"workload"`
	Context  int `name:"context-length" help:"The server's context limit; 0: what it says, else the model's." group:"workload"`
	KVTokens int `name:"kv-tokens" help:"The server's KV pool in tokens; 0: what it says, else large enough." group:"workload"`

	Output   string  `short:"o" help:"The GPU file to write." placeholder:"FILE" type:"path" required:"" group:"output"`
	Save     string  `help:"Write the readings to this file." placeholder:"FILE" type:"path" group:"output"`
	GPU      string  `name:"gpu" help:"The GPU, of which memory, power and price are taken: ${gpus}." placeholder:"NAME" group:"output"`
	MemoryGB float64 `name:"memory-gb" help:"Or the memory of one GPU; of an engine on a CPU, the machine's." placeholder:"GB" group:"output"`
	Name     string  `help:"Name of the calibrated GPU; by default the GPU file's." placeholder:"NAME" group:"output"`
}

// Help is what anchor --help says beyond its flags.
func (*calibrate) Help() string {
	return "Measures single requests and small batches, one reading after another, for a few minutes, and fits the constants of a GPU file to them.\n\nExamples:\n" +
		"  kneesim anchor --base-url http://127.0.0.1:30000 --model llama-3.1-8b --engine sglang --gpu l40s -o my-l40s.json --save my-l40s.data.json\n" +
		"  kneesim anchor --load my-l40s.data.json --model llama-3.1-8b --gpu l40s -o my-l40s.json\n" +
		"  kneesim simulate --gpu-file my-l40s.json --model llama-3.1-8b"
}

// rest is how long the server rests between two readings.
const rest = 20 * time.Millisecond

// Run measures, unless there are readings, and fits.
func (c *calibrate) Run(ctx context.Context, std cli.Streams) error {
	m, card, err := c.check()
	if err != nil {
		return cli.Usage("%w", err)
	}
	var d anchor.Data
	if c.Load != "" {
		d, err = anchor.ReadFile(c.Load)
		if err == nil && c.Engine != "" && engine.Kind(c.Engine) != d.Setup.Engine {
			return cli.Usage("--engine %s: the readings of %s are of %s", c.Engine, c.Load, d.Setup.Engine)
		}
	} else {
		d, err = c.measure(ctx, m, card, std.Err)
	}
	if err != nil {
		return err
	}
	if c.Save != "" {
		if err := measurement.ReplaceFile(c.Save, func(w io.Writer) error { return anchor.Write(w, d) }); err != nil {
			return err
		}
	}
	s := &d.Server
	card.Notes = fmt.Sprintf("fitted by kneesim anchor to %d readings of %s, model %s", len(d.Seen), strings.TrimSpace(cmp.Or(s.Kind, string(d.Setup.Engine))+" "+s.Version), cmp.Or(s.Model, m.Name))
	r, err := anchor.Fit(d, m, card)
	if err != nil {
		return err
	}
	if err := measurement.ReplaceFile(c.Output, func(w io.Writer) error { return anchor.WriteGPU(w, r.GPU) }); err != nil {
		return err
	}
	r.Report(std.Out)
	of := "--model " + c.Model
	if c.ModelConfig != "" {
		of = "--model-config " + c.ModelConfig
	}
	fmt.Fprintf(std.Out, "\nWritten: %s. Use it: kneesim simulate --gpu-file %s %s --engine %s\n", strings.TrimSuffix(c.Output+", "+c.Save, ", "), c.Output, of, d.Setup.Engine)
	return nil
}

// check says what is missing before anything is measured.
func (c *calibrate) check() (m model.Shape, card anchor.Card, err error) {
	switch {
	case (c.BaseURL == "") == (c.Load == ""):
		return m, card, fmt.Errorf("give --base-url, the server to measure, or --load, a file of readings")
	case c.Load != "" && c.Save != "":
		return m, card, fmt.Errorf("--save and --load: the readings are in a file already")
	case (c.Model == "") == (c.ModelConfig == ""):
		return m, card, fmt.Errorf("give --model-config, the config.json of the model that is served, or --model, a name")
	case c.Load == "" && c.Engine != string(engine.SGLang) && c.Engine != string(engine.VLLM):
		return m, card, fmt.Errorf("--engine is %q, must be %s or %s: whose scheduler it is", c.Engine, engine.SGLang, engine.VLLM)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"chunked-prefill", c.Chunk}, {"tp", c.TP}, {"pp", c.PP}, {"ep", c.EP}, {"attention-dp", c.DP}, {"longest", c.Longest}, {"batch", c.Batch}, {"repeats", c.Repeats},
		{"context-length", c.Context}, {"kv-tokens", c.KVTokens}} {
		if f.value < 0 {
			return m, card, fmt.Errorf("--%s is %d, must not be below 0", f.name, f.value)
		}
	}
	card.Name = cmp.Or(c.Name, strings.TrimSuffix(filepath.Base(c.Output), filepath.Ext(c.Output)))
	switch {
	case c.GPU != "":
		g, ok := gpu.ByName(c.GPU)
		if !ok {
			return m, card, fmt.Errorf("--gpu %q is not known; there are %s; name another's memory with --memory-gb", c.GPU, strings.Join(gpu.Names(), ", "))
		}
		card.Memory, card.Watts = g.Memory, g.Watts
		if len(g.Prices) > 0 {
			card.USDHour = g.Prices[0].USD
		}
	case c.MemoryGB == 0:
		return m, card, fmt.Errorf("a GPU file says how much memory there is, which cannot be measured from outside: give --gpu NAME for a known GPU's, or --memory-gb")
	}
	if c.MemoryGB < 0 || c.MemoryGB > 1e6 {
		return m, card, fmt.Errorf("--memory-gb is %v, must be above 0", c.MemoryGB)
	}
	if c.MemoryGB > 0 {
		card.Memory = int64(c.MemoryGB * 1e9)
	}
	if c.ModelConfig != "" {
		m, err = model.ReadConfig(c.ModelConfig)
		return m, card, err
	}
	m, ok := model.ByName(c.Model)
	if !ok {
		return m, card, fmt.Errorf("--model %q is not known; there are %s, and any other by its config.json with --model-config", c.Model, strings.Join(model.Names(), ", "))
	}
	return m, card, nil
}

// measure asks the server what it is, and measures it.
func (c *calibrate) measure(ctx context.Context, m model.Shape, card anchor.Card, progress io.Writer) (anchor.Data, error) {
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	words, err := workload.LexiconByName("english")
	if err != nil {
		return anchor.Data{}, err
	}
	cfg := openai.Default()
	cfg.BaseURL, cfg.Model, cfg.InsecureTLS, cfg.Nonce = c.BaseURL, c.ServedModelName, c.InsecureTLS, rand.Uint64()
	total := time.Duration(c.Timeout)
	cfg.Limits = generator.Limits{TTFT: total, Idle: total, Total: total}
	if cfg.APIKey, err = c.key(); err != nil {
		return anchor.Data{}, cli.Usage("%w", err)
	}
	clk := clock.NewWall()
	defer clk.Wait()
	known, err := identify(ctx, cfg, clk, words)
	if err != nil {
		return anchor.Data{}, err
	}
	if (known.Kind == "sglang" || known.Kind == "vllm") && known.Kind != c.Engine {
		return anchor.Data{}, cli.Usage("--engine is %s, but the server says that it is %s", c.Engine, known.Kind)
	}
	cfg.Model = known.Model
	client, err := openai.New(cfg, clk, words)
	if err != nil {
		return anchor.Data{}, cli.Usage("%w", err)
	}
	defer client.Close()
	setup, limits := c.setup(known, m, card, say)
	plan, err := anchor.Default(limits)
	if err != nil {
		return anchor.Data{}, cli.Usage("%w", err)
	}
	server := anchor.Server{Kind: known.Kind, Version: known.Version, Model: known.Model}
	say("%s serves %s; about %d requests, one reading after another; steps of up to %d prompt tokens", strings.TrimSpace(cmp.Or(known.Kind, "a server that does not say what it is")+" "+known.Version), known.Model, plan.Requests(), setup.Chunk)
	return anchor.Measure(ctx, anchor.Target{Clock: clk, To: client, Lexicon: words, Nonce: cfg.Nonce, Pause: rest, Say: say}, setup, server, plan)
}

func (c *calibrate) key() (string, error) {
	if c.APIKeyFile != "" {
		b, err := os.ReadFile(c.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("--api-key-file: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	return cmp.Or(os.Getenv("KNEESIM_API_KEY"), os.Getenv("OPENAI_API_KEY")), nil
}

// identify asks the server what it is and which model it serves.
func identify(ctx context.Context, cfg openai.Config, clk *clock.Wall, words *workload.Lexicon) (measurement.Engine, error) {
	client, err := openai.New(cfg, clk, words)
	if err != nil {
		return measurement.Engine{}, cli.Usage("%w", err)
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	known, err := client.Identify(asking)
	if err != nil {
		return known, fmt.Errorf("ask the server what it is: %w\nis it up, and is --base-url right?", err)
	}
	if known.Model == "" {
		return known, cli.Usage("the server does not list exactly one model: name the one to ask for with --served-model-name")
	}
	return known, nil
}

// setup is how the server was started and what it can hold, by the flags, else by what it says, else by its engine's defaults.
func (c *calibrate) setup(known measurement.Engine, m model.Shape, card anchor.Card, say func(string, ...any)) (anchor.Setup, anchor.Limits) {
	told := func(names ...string) int {
		for _, name := range names {
			if v, ok := known.Details[name].(float64); ok && v > 0 && v < 1e9 {
				return int(v)
			}
			if v, ok := known.Details[name].(int); ok && v > 0 {
				return v
			}
		}
		return 0
	}
	s := anchor.Setup{Engine: engine.Kind(c.Engine), Chunk: c.Chunk, TP: c.TP, PP: c.PP, EP: c.EP, DP: c.DP}
	if s.Chunk == 0 {
		s.Chunk = told(map[engine.Kind]string{engine.SGLang: "chunked_prefill_size", engine.VLLM: "max_num_batched_tokens"}[s.Engine])
	}
	if s.Chunk == 0 {
		r := engine.Config{Model: m, GPU: gpu.GPU{Name: card.Name, Memory: card.Memory, Bandwidth: 1, BF16: 1}, Recipe: engine.Recipe{Kind: s.Engine}}.Filled().Recipe
		s.Chunk = min(r.ChunkedPrefill, r.MaxPrefillTokens)
		if s.Engine == engine.VLLM {
			s.Chunk = r.BatchedTokens
		}
		say("the server does not say how many prompt tokens a step takes at most: %d, the default of %s with so much memory; else give --chunked-prefill", s.Chunk, s.Engine)
	}
	l := anchor.Limits{Context: cmp.Or(c.Context, told("max_model_len", "context_length", "context_limit"), m.ContextLimit), Pool: cmp.Or(c.KVTokens, told("max_total_num_tokens")),
		Longest: c.Longest, Batch: c.Batch, Repeats: c.Repeats}
	return s, l
}

// standing says how far a simulated run is to be believed: what its constants are from, and where it left what they were fitted to.
func standing(cfg engine.Config, of string, r measurement.Results) string {
	a := cfg.GPU.Anchor
	what := subject(cfg, of, r.Engine.GPU)
	if foreign := anchor.Foreign(cfg); a == nil || foreign != nil {
		out := fmt.Sprintf("Uncalibrated: a model of %s, not a measurement.", what)
		if cfg.GPU.Scaled() {
			out += fmt.Sprintf(" No kernels were measured on it: it is taken to reach as much of its data sheet's peaks as the %s.", cfg.GPU.Measured)
		}
		if foreign != nil {
			out += fmt.Sprintf("\nNothing was measured of it: %v.", foreign)
		}
		return out
	}
	out := fmt.Sprintf("Calibrated: a model of %s, not a measurement; its step times are fitted to %s with %s at low load, to %.2g %% (median), %.2g %% at worst.",
		what, strings.TrimSpace(a.Engine+" "+a.Version), a.Model, a.Error, a.Worst)
	var l anchor.Load
	if c := &r.Config; !c.Lone() {
		l.Prompt = c.SystemPromptTokens + c.Turns*c.UserTokens + max(0, c.Turns-1)*c.OutputTokens
		l.Sequence = l.Prompt + c.OutputTokens
	}
	from := 0.
	for _, s := range r.Steps {
		if s.Engine == nil || s.Engine.Packing == nil || s.Engine.Packing.BatchMost == nil {
			continue
		}
		most := int(*s.Engine.Packing.BatchMost)
		if most > a.Batch && (from == 0 || s.Rate < from) {
			from = s.Rate
		}
		l.Batch = max(l.Batch, most)
	}
	for _, d := range anchor.Doubts(cfg, l) {
		out += "\n" + d
	}
	if from > 0 {
		out += fmt.Sprintf("\nBatches wider than measured came at %g calls/s and above.", from)
	}
	return out
}

// subject is what was simulated: engine, model, GPUs, fleet.
func subject(cfg engine.Config, of, gpus string) string {
	out := "SGLang"
	if cfg.Filled().Recipe.Kind == engine.VLLM {
		out = "vLLM"
	}
	out += " with " + cfg.Model.Name + " on "
	if n := cfg.Filled().GPUs(); n > 1 {
		out += fmt.Sprintf("%d ", n)
	}
	if gpus == "" {
		gpus = cfg.GPU.Name
	}
	out += gpus
	if of != "" {
		out += ", " + of
	}
	return out
}
