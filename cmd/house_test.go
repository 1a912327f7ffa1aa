package cmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kneefinder/measurement"
)

// build puts the commands into a folder and returns it.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./...").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// command is one of ours in a folder, with a limit on its time.
func command(t *testing.T, bin, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Dir = dir
	return c
}

// serve starts a kneemock on a free port and returns its address.
func serve(t *testing.T, bin string, args ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c := exec.Command(filepath.Join(bin, "kneemock"), append(args, "--listen", addr)...)
	var errs bytes.Buffer
	c.Stdout, c.Stderr = &errs, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("kneemock did not end cleanly: %v\n%s", err, errs.String())
		}
	})
	for range 100 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return addr
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("kneemock does not listen\n%s", errs.String())
	return ""
}

// fences are the sh blocks of the README's, line by line, in order.
func fences(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		s := bufio.NewScanner(strings.NewReader(block[1]))
		for s.Scan() {
			lines = append(lines, s.Text())
		}
	}
	return lines
}

// Every command that the README shows runs, in its order, and does what it is there for.
func TestReadmeCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo and a sweep for two minutes: left out with -short")
	}
	bin, dir := build(t), t.TempDir()
	addr := ""
	seen := map[string]bool{}
	for _, line := range fences(t) {
		words := strings.Fields(line)
		switch words[0] {
		case "go":
			if line == "go test ./..." {
				continue // this is it
			}
			if words[1] != "run" || words[2] != "./cmd/kneeload" {
				t.Errorf("a command that this test does not know: %s", line)
				continue
			}
			words = append([]string{"kneeload"}, words[3:]...)
		case "kneemock":
			addr = serve(t, bin, strings.Fields(strings.ReplaceAll(line, "--listen 127.0.0.1:30000", ""))[1:]...)
			continue
		}
		args := words[1:]
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "127.0.0.1:30000", addr)
		}
		begun := time.Now()
		c := command(t, bin, dir, words[0], args...)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil {
			t.Errorf("%s: %v\n%s%s", line, err, out.String(), errs.String())
		}
		if file := words[len(words)-1]; words[len(words)-2] == "-o" {
			if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Size() == 0 {
				t.Errorf("%s: wrote nothing: %v", line, err)
			}
		} else if out.Len() == 0 {
			t.Errorf("%s: prints nothing", line)
		}
		seen[words[0]+" "+args[0]] = true
		t.Logf("%s: %v", line, time.Since(begun).Round(time.Millisecond))
		if args[0] == "demo" {
			demoHolds(t, dir, time.Since(begun))
		}
	}
	for _, want := range []string{"kneeload demo", "kneeload validate", "kneeload sweep", "kneeload run", "kneeanalyze export", "kneesim simulate", "kneeanalyze knee", "kneeanalyze compare"} {
		if !seen[want] {
			t.Errorf("the README does not show %s", want)
		}
	}
	replayHolds(t, bin, dir)
}

// demoHolds checks what the demo is there to show: a knee strictly inside the range, and the hit rate falling beyond it.
func demoHolds(t *testing.T, dir string, took time.Duration) {
	t.Helper()
	if took > 90*time.Second {
		t.Errorf("the demo took %v, want under 90 s", took)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "results", "demo.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := len(r.Steps)
	k := r.Knees.SLO
	if k.Status != measurement.Found || *k.Rate >= r.Steps[n-1].Rate || r.Steps[0].Verdict == measurement.Fail {
		t.Fatalf("the demo's knee: %+v", k)
	}
	first, last := r.Steps[0].CacheHitRate, r.Steps[n-1].CacheHitRate
	if *first < .9 || *last > .6 {
		t.Errorf("hit rate %.2f at the lowest rate and %.2f at the highest, want it to fall", *first, *last)
	}
}

// replayHolds sends the demo's turns at their sent instants to the engine model in virtual time: it hits and misses as the mock server
// did, and what the wall clock and a real wire add is small where the machine has nothing else to do. How late the generator itself
// was tells that.
func replayHolds(t *testing.T, bin, dir string) {
	t.Helper()
	out, err := command(t, bin, dir, "kneesim", "simulate", "--replay", "results/demo.turns.jsonl").CombinedOutput()
	if err != nil {
		t.Fatalf("replay: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	share := func(pattern string) (percent float64) {
		m := regexp.MustCompile(pattern).FindSubmatch(out)
		if m == nil {
			t.Fatalf("replay says nothing like %q", pattern)
		}
		fmt.Sscan(string(m[1]), &percent)
		return percent
	}
	if hits := share(`Hit or miss agrees on ([\d.]+) %`); hits < 95 {
		t.Errorf("hit or miss agrees on %.1f %% of the demo's turns, want 95 %%", hits)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "results", "demo.json"))
	if err != nil {
		t.Fatal(err)
	}
	late := 0.
	for _, s := range r.Steps {
		late = max(late, *s.ScheduleLagP99)
	}
	times := share(`([\d.]+) % of the turns agree`)
	t.Logf("times agree on %.1f %%; the generator was late by %.2f ms at its P99 of the worst step", times, late)
	if times < 95 && late < 2 {
		t.Errorf("%.1f %% of the demo's turns within max(5 ms, 5 %%) of virtual time, want 95 %% on a machine that has nothing else to do", times)
	}
}

// Two hundred calls of 18,000 tokens in flight take less than 150 MB of kneeload.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("runs 200 long calls for half a minute: left out with -short")
	}
	bin, dir := build(t), t.TempDir()
	addr := serve(t, bin, "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--kv-tokens", "200000")
	c := command(t, bin, dir, "kneeload", "sweep", "--base-url", "http://"+addr, "--rates", "25", "--no-extend", "--label", "m", "--turns", "3", "--gap", "2s",
		"--warmup", "10s", "--step-duration", "5s", "--min-turns", "1", "--output-tokens", "20", "--drain", "1s", "--ttft-timeout", "60s")
	out, peak, err := runPeak(t, c)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := measurement.ReadResults(filepath.Join(dir, "results", "m.json"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "results", "m.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, turn := range log.Turns {
		if turn.Turn == 1 && turn.Sent >= 0 {
			sent++
		}
	}
	t.Logf("%d live calls at most, %d calls sent, peak %d MB", *r.Steps[0].LiveCallsMax, sent, peak)
	if *r.Steps[0].LiveCallsMax < 200 {
		t.Errorf("only %d calls in flight, want 200", *r.Steps[0].LiveCallsMax)
	}
	if peak >= 150 {
		t.Errorf("kneeload took %d MB at its peak, want under 150", peak)
	}
}

// Two thousand calls of 18,000 tokens whose requests are all sent and whose answers are all to come take less than 250 MB of
// kneeload.
func TestMemoryOfManyCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 2,000 long calls for half a minute: left out with -short")
	}
	const calls = 2000
	bin, dir := build(t), t.TempDir()
	s := holder{release: make(chan struct{}), least: calls}
	server := httptest.NewServer(&s)
	defer server.Close()
	c := command(t, bin, dir, "kneeload", "sweep", "--base-url", server.URL, "--model", "m", "--rates", "200", "--no-extend", "--label", "m", "--turns", "2",
		"--gap", "1s", "--warmup", "8s", "--step-duration", "4s", "--min-turns", "1", "--output-tokens", "20", "--drain", "60s", "--ttft-timeout", "4m",
		"--max-concurrent-calls", "4000")
	out, peak, err := runPeak(t, c)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "results", "m.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	server.Close() // what s holds is settled
	failed, why := 0, ""
	for _, turn := range log.Turns {
		if turn.Outcome != measurement.OK && turn.Sent >= 0 { // on a slow machine calls pile up to the cap
			failed++
			why = string(turn.Outcome) + ": " + turn.Detail
		}
	}
	t.Logf("%d requests of %d words held at once, %d turns in all, %d failed (%s), peak %d MB", min(s.held, calls), s.words, len(log.Turns), failed, why, peak)
	if s.held < calls || s.words < 17_500 || failed*20 > len(log.Turns) {
		t.Errorf("%d requests of %d words at once, %d failed turns, want %d of 18,000 and few", min(s.held, calls), s.words, failed, calls)
	}
	if peak >= 250 {
		t.Errorf("kneeload took %d MB at its peak, want under 250", peak)
	}
}

// holder is a server of one token a word that keeps the answers to long prompts back until it has read so many, then sends all
// of them slowly.
type holder struct {
	release chan struct{}
	least   int

	mu    sync.Mutex
	held  int // have come
	words int // of the shortest of them
}

func (h *holder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	words, tokens := bytes.Count(body, []byte(" ")), 20
	if bytes.Contains(body, []byte(`"max_tokens":1,`)) {
		tokens = 1 // asks only how long its prompt is
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if tokens > 1 {
		h.hold(r.Context(), words)
	}
	for range tokens {
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"word "}}]}`+"\n\n")
		w.(http.Flusher).Flush()
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`+"\n\n")
	fmt.Fprintf(w, `data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n", words, tokens)
}

// hold waits until enough requests have come.
func (h *holder) hold(ctx context.Context, words int) {
	h.mu.Lock()
	if h.held == 0 || words < h.words {
		h.words = words
	}
	if h.held++; h.held == h.least {
		close(h.release)
	}
	h.mu.Unlock()
	select {
	case <-h.release:
	case <-ctx.Done():
	}
}

// Without the engine model the rest builds: a complete load generator.
func TestBuildsWithoutTheEngineModel(t *testing.T) {
	dir := t.TempDir()
	left := []string{"simulation", "cmd/kneesim", "cmd/kneemock", "cmd/internal/recipe", "cmd/kneeload/demo.go"}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(rel)
		for _, l := range left {
			if slash == l {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || slash == "results" || slash == "bin" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o777)
		}
		if strings.HasSuffix(path, "_test.go") || !(slices.Contains([]string{".go", ".mod", ".sum", ".html", ".css", ".js"}, filepath.Ext(path))) {
			return nil // the others are not built in
		}
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(filepath.Join(dir, rel), b, 0o666))
	})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-tags", "nodemo", "./...")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("go build -tags nodemo ./... without %v: %v\n%s", left, err, out)
	}
}

// A sweep killed by SIGKILL in its second step goes on by --resume: the first step is kept, the log is not rewritten.
func TestKillAndResume(t *testing.T) {
	if testing.Short() {
		t.Skip("kills and resumes a sweep for half a minute: left out with -short")
	}
	bin, dir := build(t), t.TempDir()
	addr := serve(t, bin, "serve", "--model", "demo", "--gpu", "demo")
	args := []string{"sweep", "--base-url", "http://" + addr, "--preset", "demo", "--rates", "3,4", "--no-extend", "--label", "k", "--step-duration", "4s",
		"--min-turns", "20", "--warmup", "2s"}
	path := filepath.Join(dir, "results", "k.turns.jsonl")
	killed := command(t, bin, dir, "kneeload", args...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		log, err := measurement.OpenLog(path)
		if err == nil && len(log.Steps) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second step did not begin: %v", err)
		}
	}
	time.Sleep(3 * time.Second)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := measurement.OpenLog(path)
	if err != nil || len(cut.Complete()) != 1 {
		t.Fatalf("the cut log has %d complete steps, %v", len(cut.Complete()), err)
	}
	out, err := command(t, bin, dir, "kneeload", append(args, "--resume")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "going on after 1 complete steps") {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(after, before) {
		t.Errorf("the log was rewritten (%v)", err)
	}
	log, err := measurement.OpenLog(path)
	if err != nil || len(log.Complete()) != 2 || len(log.Epochs) != 1 {
		t.Fatalf("the resumed log: %d complete steps, %d epochs, %v", len(log.Complete()), len(log.Epochs), err)
	}
	if kept := log.Steps[0]; kept.WindowEnd != cut.Steps[0].WindowEnd || kept.ArrivedCalls != cut.Steps[0].ArrivedCalls {
		t.Error("the first step is not the one that was kept")
	}
	if log.Steps[1].Start < cut.End() {
		t.Errorf("the second step begins at %v, before the cut part's end at %v", log.Steps[1].Start, cut.End())
	}
	if out, err := command(t, bin, dir, "kneeload", append(args, "--resume", "--turns", "5")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "turns 4, now it is 5") {
		t.Errorf("resumed with other flags: %v\n%s", err, out)
	}
}

// A log of a million turns is read and analysed in seconds and within 200 MB: as structs, its turns alone are 230.
func TestLongLog(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and reads a log of 400 MB: left out with -short")
	}
	bin, dir := build(t), t.TempDir()
	const turns, steps = 1_000_000, 10
	f, err := os.Create(filepath.Join(dir, "long.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	w := measurement.NewLogWriter(f, false)
	w.Header(measurement.Header{Label: "long", Config: measurement.Config{Turns: 4, OutputTokens: 100,
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}}})
	for s := range steps {
		step := measurement.Step{Step: s, Rate: float64(s + 1), Start: time.Duration(s) * 1000 * time.Second, WindowEnd: measurement.Never, DrainEnd: measurement.Never}
		step.WindowStart = step.Start
		w.StepBegin(step)
		for i := range turns / steps {
			x := measurement.NewTurn()
			x.Call, x.Turn, x.Step, x.Outcome = s*measurement.CallsPerStep+i/4, 1+i%4, s, measurement.OK
			x.Due = step.Start + time.Duration(i)*900*time.Second/(turns/steps)
			x.Sent, x.WroteRequest = x.Due+100_123, x.Due+250_321
			x.FirstEvent = x.Sent + time.Duration(40_000_000+(i*7919)%97*1_000_003*(1+s))
			x.Headers, x.FirstToken, x.LastToken, x.End = x.FirstEvent-1000, x.FirstEvent, x.FirstEvent+2_000_123_456, x.FirstEvent+2_000_193_457
			x.Events, x.GapMax, x.PromptTokens, x.CompletionTokens, x.CachedTokens, x.Reused = 100, 25_000_001, 18000+i%400, 100, 17900, true
			w.Turn(x)
		}
		step.WindowEnd, step.DrainEnd = step.Start+900*time.Second, step.Start+950*time.Second
		w.StepEnd(step)
	}
	w.Flush()
	if err := errors.Join(w.Err(), f.Close()); err != nil {
		t.Fatal(err)
	}
	c := command(t, bin, dir, "kneeanalyze", "knee", "long.turns.jsonl")
	begun := time.Now()
	out, peak, err := runPeak(t, c)
	took := time.Since(begun)
	if err != nil || !bytes.Contains(out, []byte("SLO knee")) {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	t.Logf("%d turns in %v, peak %d MB", turns, took.Round(time.Millisecond), peak)
	if took > 15*time.Second { // 2 s where nothing else runs
		t.Errorf("it took %v", took)
	}
	if peak >= 200 {
		t.Errorf("it took %d MB at its peak, want under 200", peak)
	}
}

// What a simulated run keeps of a request is small, whatever it computes of one: 90,000 more take less than 30 MB more, log, charts and
// report included. Turns held as structs would be 21 MB, and a copy for the analysis as much again.
func TestSimulatedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 110,000 requests for ten seconds: left out with -short")
	}
	bin, dir := build(t), t.TempDir()
	peak := func(requests int) int {
		c := command(t, bin, dir, "kneesim", "simulate", "--model", "qwen3-14b", "--gpu", "h100", "--engine", "vllm", "--prompt-tokens", "512", "--output-tokens", "512",
			"--rates", "4", "--no-extend", "--min-turns", strconv.Itoa(requests), "--label", strconv.Itoa(requests))
		out, peak, err := runPeak(t, c)
		if err != nil || !bytes.Contains(out, []byte("SLO knee")) {
			t.Fatalf("%v\n%.2000s", err, out)
		}
		r, err := measurement.ReadResults(filepath.Join(dir, "results", strconv.Itoa(requests)+".json"))
		if err != nil || r.Steps[0].MeasuredTurns < requests {
			t.Fatalf("%d requests were measured, want %d: %v", r.Steps[0].MeasuredTurns, requests, err)
		}
		return peak
	}
	few, many := peak(10_000), peak(100_000)
	t.Logf("peak %d MB of 10,000 requests, %d MB of 100,000", few, many)
	if many-few >= 30 || many >= 100 {
		t.Errorf("peak %d MB of 10,000 requests, %d MB of 100,000, want less than 30 more, and under 100", few, many)
	}
}
