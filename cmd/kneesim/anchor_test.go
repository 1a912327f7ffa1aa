package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/simulation"
	"kneefinder/simulation/anchor"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// readings measures the demo's engine model in virtual time into a file.
func readings(t *testing.T, dir string) string {
	t.Helper()
	cfg, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	words, err := workload.LexiconByName("english")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := anchor.Default(anchor.Limits{Longest: 4096, Batch: 8, Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	var d anchor.Data
	clk, to := simulation.NewRun(eng, words, generator.Limits{})
	clk.Run(t.Context(), func() {
		d, err = anchor.Measure(t.Context(), anchor.Target{Clock: clk, To: to, Lexicon: words, Nonce: 1}, anchor.Setup{Engine: engine.SGLang, Chunk: 2048}, anchor.Server{}, plan)
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := anchor.Write(&b, d); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "demo.data.json")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The chain: readings, a GPU file, a simulation with it that says that it is calibrated, for what, and where it left that.
func TestAnchorFromReadings(t *testing.T) {
	dir := t.TempDir()
	data, file := readings(t, dir), filepath.Join(dir, "mine.json")
	code, out, errs := call(t.Context(), "anchor", "--load", data, "--model", "demo", "--gpu", "demo", "-o", file)
	if code != 0 || !strings.Contains(out, "Calibrated: sglang with demo, prompts up to 4096 tokens, 8 sequences") || !strings.Contains(out, "Written: "+file) {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	simulate := func(more ...string) (int, string) {
		code, out, errs := call(t.Context(), append([]string{"simulate", "--gpu-file", file, "--rates", "2", "--min-turns", "30", "--no-extend", "--overwrite", "--label", "x", "--out", dir, "--preset", "demo"}, more...)...)
		return code, out + errs
	}
	code, out = simulate("--system-prompt-tokens", "5000")
	for _, want := range []string{"(anchored)", "Calibrated: a model of SGLang with demo on mine, not a measurement; its step times are fitted to sglang with demo", "Extrapolated: prompts of tokens up to 5"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, want %q in\n%s", code, want, out)
		}
	}
	for _, foreign := range [][]string{{"--engine", "vllm"}, {"--model", "llama-3.1-8b"}, {"--kv-cache-dtype", "fp8"}} {
		if code, out = simulate(foreign...); code != 2 || !strings.Contains(out, "--allow-foreign-anchor") {
			t.Errorf("%v: exit %d\n%s", foreign, code, out)
		}
	}
	if code, out = simulate("--engine", "vllm", "--allow-foreign-anchor"); code != 0 || !strings.Contains(out, "(foreign anchor)") || !strings.Contains(out, "Nothing was measured of it: the GPU mine is calibrated with sglang") {
		t.Errorf("a foreign anchor: exit %d\n%s", code, out)
	}
}

// A server on loopback is measured within seconds, and what it says of itself stands in the file.
func TestAnchorMeasures(t *testing.T) {
	cfg, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mock := mockserver.New(mockserver.Config{ModelName: "demo", ContextLimit: 2048, ChunkedPrefill: 512, Version: "3"}, eng)
	server := &http.Server{Handler: mock.Handler()}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-served; mock.Close() }()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "g.json"), filepath.Join(dir, "d.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code, out, errs := call(ctx, "anchor", "--base-url", "http://"+l.Addr().String(), "--model", "demo", "--engine", "sglang", "--memory-gb", "8",
		"--longest", "512", "--batch", "2", "--repeats", "1", "-o", file, "--save", data)
	if code != 0 || !strings.Contains(errs, "kneemock 3 serves demo") || !strings.Contains(errs, "decode,  2 sequences") || !strings.Contains(out, "decode") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	d, err := anchor.ReadFile(data)
	if err != nil || d.Setup.Chunk != 512 || d.Server.Kind != "kneemock" {
		t.Errorf("%v, setup %+v of %+v", err, d.Setup, d.Server)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestAnchorRefuses(t *testing.T) {
	dir := t.TempDir()
	data := readings(t, dir)
	broken := filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte(`{"schema": "kneefinder/anchor-data/v1", "readings": [`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := filepath.Join(dir, "o.json")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--model demo --gpu demo", 2, "give --base-url"},
		{"--load " + data + " --base-url http://x --model demo --gpu demo", 2, "give --base-url, the server to measure, or --load"},
		{"--load " + data + " --save x --model demo --gpu demo", 2, "--save and --load"},
		{"--load " + data + " --gpu demo", 2, "give --model-config"},
		{"--load " + data + " --model demo", 2, "give --gpu NAME for a known GPU's, or --memory-gb"},
		{"--load " + data + " --model demo --gpu none", 2, `--gpu "none" is not known`},
		{"--load " + data + " --model none --gpu demo", 2, `--model "none" is not known`},
		{"--load " + data + " --model demo --gpu demo --engine vllm", 2, "are of sglang"},
		{"--load " + data + " --model demo --memory-gb=-3", 2, "--memory-gb is -3"},
		{"--load " + broken + " --model demo --gpu demo", 1, "the file ends before its data do"},
		{"--base-url http://127.0.0.1:1 --model demo --gpu demo", 2, "--engine is \"\", must be sglang or vllm"},
		{"--base-url http://127.0.0.1:1 --model demo --gpu demo --engine sglang --repeats=-1", 2, "--repeats is -1"},
		{"--base-url http://127.0.0.1:1 --model demo --gpu demo --engine sglang", 1, "is it up, and is --base-url right?"},
	} {
		code, out, errs := call(t.Context(), append([]string{"anchor", "-o", o}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
		if _, err := os.Stat(o); err == nil {
			t.Errorf("%s: a GPU file was written", c.args)
		}
	}
}
