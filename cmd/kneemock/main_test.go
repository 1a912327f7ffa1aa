package main

import (
	"bufio"
	"bytes"
	"context"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"kneefinder/cmd/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a run of the command in this process.
type server struct {
	line string // its first line
	url  string
	stop func() error // ends it and says what run returned
}

func start(t *testing.T, args ...string) server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	var stderr bytes.Buffer
	go func() {
		err := run(ctx, args, w, &stderr)
		w.Close()
		done <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("%q ended before its first line: %v %s", args, <-done, stderr.String())
	}
	url := regexp.MustCompile(`http://\S+`).FindString(line)
	return server{line: line, url: url, stop: func() error {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		return <-done
	}}
}

// The examples in the manual run, but for the port.
func TestExamples(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?m)^\tkneemock (serve(?: [^\[\n]+)?)$`).FindAllStringSubmatch(f.Doc.Text(), -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples in the manual", len(examples))
	}
	for _, e := range examples {
		s := start(t, append(strings.Fields(e[1]), "--listen", "127.0.0.1:0")...)
		if err := s.stop(); err != nil {
			t.Errorf("%s: %v", e[1], err)
		}
	}
}

func TestServe(t *testing.T) {
	s := start(t, strings.Fields("serve --model demo --gpu demo --listen 127.0.0.1:0 --kv-tokens 40000 --served-model-name m --kind vllm")...)
	want := "kneemock: " + s.url + " serves m on demo as vllm, KV pool 40000 tokens; try: kneeload validate --base-url " + s.url + " --preset demo\n"
	if s.line != want {
		t.Errorf("got  %swant %s", s.line, want)
	}
	if got := get(t, s.url+"/server_info"); !strings.Contains(got, `"model_path":"demo","served_model_name":"m","gpu":"demo","context_length":32768,`+
		`"max_total_num_tokens":40000,"chunked_prefill_size":2048,"mem_fraction_static":0.9,`) {
		t.Errorf("server_info: %s", got)
	}
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(body), `"completion_tokens":3`) {
		t.Errorf("chat: %s", body)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// The flags of /metrics reach it.
func TestMetrics(t *testing.T) {
	s := start(t, strings.Fields("serve --model demo --gpu demo --listen 127.0.0.1:0 --served-model-name m --decode-log-interval 1 "+
		"--bucket-time-to-first-token .05,.3 --bucket-inter-token-latency .01 --bucket-e2e-request-latency 1,2 --tokenizer-metrics-allowed-custom-labels run_id,step")...)
	req, err := http.NewRequest("POST", s.url+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-custom-labels", `{"run_id":"r","step":"4"}`)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	got := get(t, s.url+"/metrics")
	for _, want := range []string{
		`sglang:time_to_first_token_seconds_bucket{engine_type="unified",is_streaming="true",model_name="m",run_id="r",step="4",le="0.3"} 1`,
		`sglang:inter_token_latency_seconds_bucket{engine_type="unified",model_name="m",run_id="r",step="4",le="+Inf"} 2`,
		`sglang:e2e_request_latency_seconds_bucket{engine_type="unified",is_streaming="true",model_name="m",run_id="r",step="4",le="2"} 1`,
		`sglang:decode_sum_seq_lens{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 12`,
		`sglang:weight_memory_usage_gb{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// An answer in progress when the signal comes is heard to its end.
func TestDrain(t *testing.T) {
	s := start(t, "serve", "--model", "demo", "--gpu", "demo", "--listen", "127.0.0.1:0")
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"demo","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if n := bytes.Count(body, []byte(`"content":"`)); err != nil || n != 51 || !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) {
		t.Errorf("%d content events of 51, %v: ...%s", n, err, body[max(0, len(body)-100):])
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tests := []struct {
		name   string
		args   string
		status int
		want   string
	}{
		{"unknown model", "serve --model gpt-5", 2, `--model "gpt-5" is not known; there are deepseek-v3, demo, gemma-3-12b, `},
		{"unknown GPU", "serve --gpu tpu", 2, `--gpu "tpu" is not known; there are a100-40-sxm, a100-80-sxm, `},
		{"unknown kind", "serve --kind tgi", 2, `engine is "tgi", must be sglang or vllm`},
		{"too large for the GPU", "serve --gpu demo", 2, "recipe does not fit: gemma-4-12b needs"},
		{"a recipe against the rules", "serve --mem-fraction 2", 2, "mem_fraction is 2"},
		{"buckets that fall", "serve --bucket-time-to-first-token .2,.1", 2, "bucket_time_to_first_token has 0.1 after 0.2, must rise from above 0"},
		{"a bucket that is no number", "serve --bucket-inter-token-latency .2,x", 2, "--bucket-inter-token-latency"},
		{"decode reports at no step", "serve --decode-log-interval=-1", 2, "decode_log_interval is -1, must be at least 1"},
		{"a label that is none", "serve --tokenizer-metrics-allowed-custom-labels run-id", 2, `custom label "run-id" is no label's name`},
		{"SGLang's labels for vLLM", "serve --kind vllm --tokenizer-metrics-allowed-custom-labels step", 2, `kind "vllm" has none`},
		{"an unknown flag", "serve --gpus 4", 2, "unknown flag --gpus"},
		{"a flag of another type", "serve --kv-tokens many", 2, "--kv-tokens"},
		{"no command", "", 2, `"serve"`},
		{"the port is taken", "serve --listen " + l.Addr().String(), 1, "address already in use (choose another address with --listen)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout bytes.Buffer
			err := run(t.Context(), strings.Fields(test.args), &stdout, io.Discard)
			if cli.Code(err) != test.status || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got status %d, %v; want status %d, %s", cli.Code(err), err, test.status, test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout: %s", stdout.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"serve", "--help"}, &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--model=", "gemma-4-12b", "l40s", "--no-cache-report", "--kv-tokens=", "--decode-log-interval="} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %s in\n%s", want, stdout.String())
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
