package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sglangPython names a Python that has SGLang and with it sglang.benchmark.rust_client; otherwise it is the python3 of PATH.
const sglangPython = "SGLANG_PYTHON"

// sglangRun has SGLang's Rust client send what the other clients do, as near as its flags allow. Aligned, a closed loop holds the
// number of streams; spread, requests come as a Poisson process at the rate that ends them, and no more than that number are in
// progress. What it reports of each request is its own; CPU and memory are its process's, read when the server sees the first
// request and has answered the last.
func sglangRun(b *testing.B, order benchOrder, server *bufio.Scanner) (r benchResult) {
	python := os.Getenv(sglangPython)
	if python == "" {
		python = "python3"
	}
	const probe = "from sglang.srt.rust_extensions import load_rust_extension as l; l('sglang.srt.rust_extensions._bench')"
	if err := exec.Command(python, "-c", probe).Run(); err != nil {
		b.Skipf("SGLang's Rust client is not there: set %s to a Python that has it", sglangPython)
	}
	dir := b.TempDir()
	results := filepath.Join(dir, "results.jsonl")
	rate := "inf"
	if order.Spread > 0 {
		rate = strconv.FormatFloat(float64(order.Streams)/order.Spread.Seconds(), 'f', -1, 64)
	}
	cmd := exec.Command(python, "-m", "sglang.benchmark.rust_client", "--backend", "sglang-oai-chat", "--base-url", "http://"+order.Addr,
		"--model", "null", "--tokenizer", wordTokenizer(b, dir), "--dataset-name", "random-ids", "--random-input-len", "120",
		"--random-output-len", strconv.Itoa(nullTokens), "--random-range-ratio", "1", "--num-prompts", strconv.Itoa(order.Streams*order.Rounds),
		"--max-concurrency", strconv.Itoa(order.Streams), "--request-rate", rate, "--warmup-requests", "0", "--ready-check-timeout-sec", "0",
		"--disable-tqdm", "--disable-retokenize", "--output-file", results, "--output-details")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	var before time.Duration
	for server.Scan() && server.Text() != "ended" {
		before = processCPU(pid)
	}
	r.CPU = (processCPU(pid) - before) / order.events()
	r.RSS = peakRSS(pid)
	if err := cmd.Wait(); err != nil {
		b.Fatalf("%v\n%s", err, said.Bytes())
	}

	line, err := os.ReadFile(results)
	if err != nil {
		b.Fatalf("%v\n%s", err, said.Bytes())
	}
	var told struct {
		TTFTs  []float64 `json:"ttfts"` // in the order in which the requests were sent, as itls
		ITLs   [][]float64
		Errors []string
	}
	if err := json.Unmarshal(line, &told); err != nil {
		b.Fatalf("%v in %.1000s", err, line)
	}
	duration := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	var ttft, first, itl []time.Duration
	for i, s := range told.TTFTs {
		if len(told.ITLs[i]) < nullTokens-1 || told.Errors[i] != "" {
			r.Failed++
			continue
		}
		if i < order.Streams {
			first = append(first, duration(s))
			continue
		}
		ttft = append(ttft, duration(s))
		for _, gap := range told.ITLs[i] {
			itl = append(itl, duration(gap))
		}
	}
	r.Failed += order.Streams*order.Rounds - len(told.TTFTs)
	r.TTFT50, r.TTFT99, r.First99 = quantile(ttft, .5), quantile(ttft, .99), quantile(first, .99)
	r.ITL50, r.ITL99 = quantile(itl, .5), quantile(itl, .99)
	return r
}

// wordTokenizer writes a tokenizer of a thousand words, for which the client asks.
func wordTokenizer(b *testing.B, dir string) string {
	vocab := map[string]int{}
	for i := range 1000 {
		vocab[fmt.Sprintf("word%d", i)] = i
	}
	text, err := json.Marshal(map[string]any{
		"version":        "1.0",
		"added_tokens":   []any{},
		"pre_tokenizer":  map[string]any{"type": "Whitespace"},
		"model":          map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "word0"},
		"normalizer":     nil,
		"post_processor": nil,
		"decoder":        nil,
		"truncation":     nil,
		"padding":        nil,
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": []byte(`{}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// processCPU is the user and system time of a process, in steps of the kernel's 10 ms.
func processCPU(pid string) time.Duration {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			panic(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
