package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"kneefinder/clock"
	"kneefinder/cmd/internal/cli"
	"kneefinder/generator"
	"kneefinder/generator/openai"
	"kneefinder/measurement"
)

// endpoint is the flags that say whom to ask.
type endpoint struct {
	BaseURL      string      `name:"base-url" help:"The server, with or without /v1." required:"" placeholder:"http://HOST:PORT" group:"endpoint"`
	Model        string      `help:"Model to ask for; by default the only one that /v1/models lists." placeholder:"NAME" group:"endpoint"`
	Header       []string    `help:"Header to send with every request; may be repeated." placeholder:"NAME:VALUE" sep:"none" group:"endpoint"`
	ExtraBody    string      `help:"JSON object merged into every request." placeholder:"JSON" group:"endpoint"`
	APIKeyFile   string      `name:"api-key-file" help:"File that holds the API key, instead of KNEELOAD_API_KEY or OPENAI_API_KEY." type:"path" placeholder:"FILE" group:"endpoint"`
	InsecureTLS  bool        `name:"insecure-tls" help:"Accept any certificate." group:"endpoint"`
	TTFTTimeout  cli.Seconds `name:"ttft-timeout" help:"Longest wait for a first token." default:"60s" group:"endpoint"`
	IdleTimeout  cli.Seconds `help:"Longest silence within a stream." default:"30s" group:"endpoint"`
	TotalTimeout cli.Seconds `help:"Longest answer." default:"5m" group:"endpoint"`
	Nonce        string      `help:"Hexadecimal number that keeps this run's prompts apart from others'; by default random." placeholder:"HEX" group:"endpoint"`
}

// connected is an endpoint that has answered.
type connected struct {
	client   *openai.Client
	to       generator.Endpoint // the client, with what its server leaves out
	engine   measurement.Engine
	clock    *clock.Wall
	gen      generator.Config // fitted to the server's tokens
	nonce    uint64
	key      string // the API key, for the engine's metrics
	insecure bool   // any certificate will do
}

// connect finds the server and the model, measures how long its tokens are, and fits the prompts to it. annotate adds what
// differs from request to request; nil adds nothing.
func (e *endpoint) connect(ctx context.Context, clk *clock.Wall, w *cli.Workload, c measurement.Config, nonce uint64, annotate func(http.Header, generator.Request), say func(format string, args ...any)) (*connected, error) {
	cfg, err := e.config(c)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	cfg.Nonce, cfg.Annotate = nonce, annotate
	gen, err := w.Generator(c, cfg.Nonce)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	if cfg.Model, err = e.model(ctx, cfg, clk, gen.Script.Lexicon); err != nil {
		return nil, err
	}
	client, err := openai.New(cfg, clk, gen.Script.Lexicon)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	to := &connected{client: client, to: client, clock: clk, gen: gen, nonce: cfg.Nonce, key: cfg.APIKey, insecure: cfg.InsecureTLS}
	if err := to.know(ctx, c, say); err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return to, nil
}

// know asks the server what it is and how long its tokens are.
func (to *connected) know(ctx context.Context, c measurement.Config, say func(format string, args ...any)) error {
	known, err := to.client.Identify(ctx)
	if err != nil {
		return fmt.Errorf("ask the server what it is: %w", err)
	}
	known.Fidelity = "measured"
	if known.Kind == "kneemock" {
		known.Fidelity = "uncalibrated" // what is measured there is a model
	}
	who := strings.TrimSpace(known.Kind + " " + known.Version)
	if known.Kind == "" {
		who = "a server that does not say what it is"
	}
	rtt := ""
	if known.ConnectMS != nil {
		rtt = fmt.Sprintf(", %.2g ms away", *known.ConnectMS)
	}
	say("%s serves %s at %s%s", who, known.Model, known.BaseURL, rtt)
	script, cal, err := generator.Calibrate(ctx, to.client, to.gen.Script, generator.Lengths{System: c.SystemPromptTokens + c.PromptTokens, User: c.UserTokens})
	if err != nil && c.Lone() {
		return fmt.Errorf("%w\nthe prompt may be too long for the server, or the server in trouble: look at the message; prompts have %d tokens on average", err, c.PromptTokens)
	}
	if err != nil {
		return fmt.Errorf("%w\nthe prompt may be too long for the server, or the server in trouble: look at the message, and at --system-prompt-tokens %d", err, c.SystemPromptTokens)
	}
	to.gen.Script = script
	known.Calibration = &cal
	to.engine = known
	if c.Lone() {
		say("%.3f tokens a word of %s filler, %.0f for the chat template", cal.TokensPerWord, c.Language, cal.Overhead)
	} else if to.gen.Script.Transcripts == nil {
		say("%.3f tokens a word of %s filler, %.0f for the chat template: %d words make %d tokens", cal.TokensPerWord, c.Language, cal.Overhead,
			script.SystemWords, c.SystemPromptTokens)
	}
	switch cal.CacheReport {
	case measurement.CacheZeroAsNull:
		to.to = nullIsZero{to.client}
		say("the server leaves cached tokens out when there are none: null is read as 0")
	case measurement.CacheNotReported:
		say("warning: the server reports no cached tokens, so hit rates stay unknown; start SGLang with --enable-cache-report, vLLM with --enable-prompt-tokens-details")
	case measurement.CacheMissed:
		say("warning: a prompt sent twice was not found in the prefix cache the second time: is the cache on, and does one replica get both?")
	}
	return nil
}

// nullIsZero is a server that leaves out the number of cached tokens when it is 0.
type nullIsZero struct{ *openai.Client }

// Do reads an absent number as 0 where usage came at all.
func (n nullIsZero) Do(ctx context.Context, req generator.Request) generator.Reply {
	r := n.Client.Do(ctx, req)
	if r.Turn.CachedTokens == measurement.Unknown && r.Turn.PromptTokens != measurement.Unknown {
		r.Turn.CachedTokens = 0
	}
	return r
}

// config is the client's.
func (e *endpoint) config(c measurement.Config) (openai.Config, error) {
	cfg := openai.Default()
	cfg.BaseURL, cfg.Model, cfg.Temperature, cfg.IgnoreEOS, cfg.InsecureTLS = e.BaseURL, e.Model, c.Temperature, c.IgnoreEOS, e.InsecureTLS
	cfg.Limits = generator.Limits{TTFT: time.Duration(e.TTFTTimeout), Idle: time.Duration(e.IdleTimeout), Total: time.Duration(e.TotalTimeout)}
	cfg.Header = http.Header{}
	for _, h := range e.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return cfg, fmt.Errorf("--header: give it as NAME:VALUE") // the value may be a secret: not shown
		}
		cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if e.ExtraBody != "" {
		if err := json.Unmarshal([]byte(e.ExtraBody), &cfg.ExtraBody); err != nil {
			return cfg, fmt.Errorf("--extra-body is no JSON object: %v", err)
		}
	}
	for _, name := range []string{"OPENAI_API_KEY", "KNEELOAD_API_KEY"} {
		if key := os.Getenv(name); key != "" {
			cfg.APIKey = key
		}
	}
	if e.APIKeyFile != "" {
		b, err := os.ReadFile(e.APIKeyFile)
		if err != nil {
			return cfg, fmt.Errorf("--api-key-file: %w", err)
		}
		cfg.APIKey = strings.TrimSpace(string(b))
	}
	return cfg, cfg.Validate()
}

// pickNonce is the run's nonce, random unless one is asked for.
func (e *endpoint) pickNonce() (uint64, error) {
	if e.Nonce == "" {
		return rand.Uint64(), nil
	}
	nonce, err := strconv.ParseUint(e.Nonce, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("--nonce %q is no hexadecimal number of 64 bits", e.Nonce)
	}
	return nonce, nil
}

// model is the model to ask for: the one wanted if the server lists it, or the only one it lists. A server that lists none
// is taken at the caller's word.
func (e *endpoint) model(ctx context.Context, cfg openai.Config, clk *clock.Wall, words openai.Words) (string, error) {
	client, err := openai.New(cfg, clk, words)
	if err != nil {
		return "", cli.Usage("%w", err)
	}
	defer client.Close()
	patience := 10 * time.Second
	if cfg.Limits.TTFT > 0 {
		patience = min(patience, cfg.Limits.TTFT)
	}
	listing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	models, err := client.Models(listing)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("ask the server for its models: %w\nis it up, and is --base-url right?", err)
	}
	var names []string
	for _, m := range models {
		if m.ID == "" || strings.ContainsFunc(m.ID, unicode.IsControl) {
			return "", fmt.Errorf("the server lists a model named %q, which can be no name: name the one to ask for with --model, if it is another", m.ID)
		}
		names = append(names, m.ID)
	}
	switch {
	case cfg.Model != "" && (len(names) == 0 || slices.Contains(names, cfg.Model)):
		return cfg.Model, nil
	case cfg.Model != "":
		return "", fmt.Errorf("the server does not know the model %q; it serves %s", cfg.Model, strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", fmt.Errorf("the server lists no model: name one with --model")
	}
	return "", fmt.Errorf("the server lists %d models: name one with --model: %s", len(names), strings.Join(names, ", "))
}
