package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// aLog is a run of six steps whose P95 TTFT doubles from one to the next, from 50 ms on; times is how much the server carries.
func aLog(label string, times float64) measurement.Log {
	log := measurement.Log{Header: measurement.Header{Label: label, Tool: "kneeload test", Started: "2026-01-02T03:04:05Z", Seed: 1, Nonce: "00",
		Config: measurement.Config{SystemPromptTokens: 18000, Turns: 2, OutputTokens: 100, MinTurns: 60, Arrivals: "constant", SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
		Engine: measurement.Engine{Kind: "sglang", Version: "0.5.23", Model: "gemma-4-12b", GPU: label, Fidelity: "measured"}}}
	ttft := 50 * time.Millisecond
	for n := range 6 {
		rate := times * float64(n+1) / 4
		start := time.Duration(n) * 200 * time.Second
		s := measurement.Step{Step: n, Rate: rate, Start: start, WindowStart: start + 30*time.Second, WindowEnd: start + 120*time.Second,
			DrainEnd: start + 150*time.Second, ArrivedCalls: 80, LiveMean: 8 * rate, LiveMax: 9, LiveTurnsMean: (2*ttft + 1980*time.Millisecond).Seconds() * 80 / 90, InFlightStart: 20, InFlightEnd: 20}
		log.Header.Config.Rates = append(log.Header.Config.Rates, rate)
		for i := range 160 {
			due := s.WindowStart + time.Duration(i/2)*time.Second
			t := measurement.Turn{Call: n*measurement.CallsPerStep + i/2, Turn: 1 + i%2, Step: n, Due: due, Held: measurement.Never, Sent: due, WroteRequest: due,
				Headers: due, FirstEvent: due + ttft, FirstToken: due + ttft, LastToken: due + ttft, End: due + ttft, Events: 1,
				PromptTokens: 18000, CompletionTokens: 100, CachedTokens: 17000 * (i % 2), Outcome: measurement.OK}
			if i%2 == 1 {
				t.LastToken, t.Events = t.FirstToken+1980*time.Millisecond, 100
				t.End = t.LastToken
			}
			log.Turns = append(log.Turns, t)
		}
		log.Steps = append(log.Steps, s)
		ttft *= 2
	}
	return log
}

// shards are the logs of two processes that send the calls of a log in turns.
func shards(log measurement.Log) []measurement.Log {
	both := make([]measurement.Log, 2)
	for i := range both {
		l := &both[i]
		l.Header = log.Header
		l.Header.Shard = fmt.Sprintf("%d/2", i)
		for _, turn := range log.Turns {
			if turn.Call%2 == i {
				l.Turns = append(l.Turns, turn)
			}
		}
		for _, s := range log.Steps {
			s.ArrivedCalls, s.LiveMean, s.LiveTurnsMean, s.InFlightStart, s.InFlightEnd = 40, s.LiveMean/2, s.LiveTurnsMean/2, 10, 10
			l.Steps = append(l.Steps, s)
		}
	}
	return both
}

// writeRun writes a run's turn log and results into dir, as kneeload does.
func writeRun(t *testing.T, dir, label string, times float64) {
	t.Helper()
	log := aLog(label, times)
	write(t, dir, label+".turns.jsonl", func(out io.Writer) error { return writeLog(out, log) })
	r := analysis.Analyze(log)
	write(t, dir, label+".json", func(out io.Writer) error { return measurement.WriteResults(out, r) })
	write(t, dir, label+".csv", func(out io.Writer) error { return measurement.WriteCSV(out, r) })
	write(t, dir, label+".hlog", func(out io.Writer) error { return measurement.WriteHLog(out, log) })
}

func write(t *testing.T, dir, name string, f func(io.Writer) error) {
	t.Helper()
	if err := measurement.ReplaceFile(filepath.Join(dir, name), f); err != nil {
		t.Fatal(err)
	}
}

// result is what became of one command.
type result struct {
	out, err string
	code     int
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(context.Background(), args, &out, &errs)
	if err != nil {
		errs.WriteString(err.Error())
	}
	return result{out.String(), errs.String(), cli.Code(err)}
}

// inRuns changes into a folder that holds results of two runs and the shards of a third.
func inRuns(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, "results"), "L40S", 1)
	writeRun(t, filepath.Join(dir, "results"), "H100", 2)
	for i, l := range shards(aLog("H200", 3)) {
		write(t, filepath.Join(dir, "results"), fmt.Sprintf("H200-%d-of-2.turns.jsonl", i), func(out io.Writer) error { return writeLog(out, l) })
	}
	for _, name := range []string{"sglang_conc16.jsonl", "sglang_conc128.jsonl"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "analysis", "importer", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "results", name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func isPNG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

func TestKnee(t *testing.T) {
	inRuns(t)
	fromLog := command(t, "knee", "results/L40S.turns.jsonl", "-o", "pictures/L40S.png")
	if fromLog.code != 0 || fromLog.err != "drew pictures/L40S.png\n" {
		t.Fatalf("knee of a turn log: code %d, errors %q", fromLog.code, fromLog.err)
	}
	isPNG(t, "pictures/L40S.png")
	if at, table := strings.Index(fromLog.out, "SLO knee:"), strings.Index(fromLog.out, "λ asked"); at < 0 || at > table {
		t.Errorf("the answer does not come before the table:\n%s", fromLog.out)
	}
	for _, want := range []string{"L40S: gemma-4-12b on sglang 0.5.23 on L40S (measured)", "SLO knee: 0.75 calls/s; estimated 0.811", "Curvature knee: 1 calls/s", "Arrivals: constant, as asked"} {
		if !strings.Contains(fromLog.out, want) {
			t.Errorf("no %q in:\n%s", want, fromLog.out)
		}
	}
	fromJSON := command(t, "knee", "results/L40S.json")
	if d := cmp.Diff(fromLog.out, fromJSON.out); d != "" {
		t.Errorf("the results say something else than the log (-log +results):\n%s", d)
	}
	two := command(t, "knee", "results/L40S.json", "results/H100.turns.jsonl")
	if two.code != 0 || !strings.HasPrefix(two.out, fromJSON.out+"\nH100: ") {
		t.Errorf("two files: code %d, %q\n%s", two.code, two.err, two.out)
	}
}

func TestKneeJSONIsTheResultsFile(t *testing.T) {
	inRuns(t)
	want, err := os.ReadFile("results/L40S.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"results/L40S.json", "results/L40S.turns.jsonl"} {
		got := command(t, "knee", from, "--json")
		if d := cmp.Diff(string(want), got.out); d != "" || got.code != 0 || got.err != "" {
			t.Errorf("%s --json: code %d, errors %q, -file +printed:\n%s", from, got.code, got.err, d)
		}
	}
	both := json.NewDecoder(strings.NewReader(command(t, "knee", "results/L40S.json", "results/H100.json", "--json").out))
	for _, label := range []string{"L40S", "H100"} {
		var r measurement.Results
		if err := both.Decode(&r); err != nil || r.Label != label {
			t.Errorf("document of %s: %q, %v", label, r.Label, err)
		}
	}
}

func TestCompare(t *testing.T) {
	inRuns(t)
	got := command(t, "compare", "results/L40S.json", "results/H100.json", "-o", "compare.png")
	if got.code != 0 || !strings.Contains(got.out, "2.00x") || !strings.Contains(got.out, "H100") {
		t.Errorf("code %d, %q\n%s", got.code, got.err, got.out)
	}
	isPNG(t, "compare.png")
	loop := aLog("loop", 1)
	loop.Header.Config.Arrivals, loop.Header.Config.Turns, loop.Header.Config.MinTurns = "closed", 3, 250
	write(t, "results", "loop.turns.jsonl", func(out io.Writer) error { return writeLog(out, loop) })
	if got := command(t, "compare", "results/L40S.json", "results/loop.turns.jsonl", "-o", "mixed.png"); got.code != 1 || got.out != "" || !strings.Contains(got.err, "do not share an axis") {
		t.Errorf("an open and a closed loop in one picture: code %d, %q, printed %q; want 1 and nothing printed", got.code, got.err, got.out)
	}
	if _, err := os.Stat("mixed.png"); err == nil {
		t.Error("a refused comparison leaves a picture")
	}
	mixed := command(t, "compare", "results/L40S.json", "results/loop.turns.jsonl")
	one := strings.Join(strings.Fields(mixed.out), " ")
	for _, want := range []string{"L40S and loop are not the same workload: turns is 2 against 3; arrivals is constant against closed.", "L40S and loop were not measured alike: min_turns is 60 against 250."} {
		if mixed.code != 0 || !strings.Contains(one, want) {
			t.Errorf("code %d, no %q in:\n%s", mixed.code, want, mixed.out)
		}
	}
	twice := command(t, "compare", "results/L40S.json", "results/L40S.turns.jsonl")
	if !strings.Contains(twice.out, "L40S (results/L40S.json)") || !strings.Contains(twice.out, "L40S (results/L40S.turns.jsonl)") {
		t.Errorf("runs of one label are not told apart:\n%s", twice.out)
	}
}

func TestMerge(t *testing.T) {
	inRuns(t)
	const a, b = "results/H200-0-of-2.turns.jsonl", "results/H200-1-of-2.turns.jsonl"
	got := command(t, "merge", b, a, "-o", "all/H200.turns.jsonl")
	if got.code != 0 || got.out != "" || got.err != "wrote all/H200.turns.jsonl: 2 shards, 6 steps, 960 turns\n" {
		t.Fatalf("code %d, printed %q, errors %q", got.code, got.out, got.err)
	}
	want := aLog("H200", 3)
	for i := range want.Steps {
		want.Steps[i].LiveMax = 3 + max(0, i-4) // calls begin every second and last 2 s and the wait for a token, 50 ms to 1.6 s
	}
	write(t, "all", "whole.turns.jsonl", func(out io.Writer) error { return writeLog(out, want) })
	merged, whole := command(t, "knee", "all/H200.turns.jsonl", "--json"), command(t, "knee", "all/whole.turns.jsonl", "--json")
	if d := cmp.Diff(whole.out, merged.out); d != "" || merged.code != 0 {
		t.Errorf("code %d, %q; -one process +merged:\n%s", merged.code, merged.err, d)
	}
	if got := command(t, "knee", a); !strings.Contains(got.out, "This is shard 0/2 of a run") {
		t.Errorf("a shard alone is not told from a run:\n%s", got.out)
	}
	if got := command(t, "merge", a, b, "-o", "all/H200.turns.jsonl", "--overwrite"); got.code != 0 {
		t.Errorf("--overwrite: code %d, %q", got.code, got.err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{a}, "merge: shard 1/2 is missing"},
		{[]string{a, "results/L40S.turns.jsonl"}, "merge: log 2 (L40S) is a whole run"},
		{[]string{a, "results/L40S.json", "missing.turns.jsonl"}, `results/L40S.json is no turn log: it holds the results of a run, which has no turns; give the turn log beside it`},
		{[]string{a, "results/L40S.json", "missing.turns.jsonl"}, "missing.turns.jsonl"},
	} {
		got := command(t, append(append([]string{"merge"}, c.args...), "-o", "no/x.turns.jsonl")...)
		if got.code != 1 || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: code %d, %q; want 1 and %q", c.args, got.code, got.err, c.want)
		}
	}
	torn, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b, append(torn, []byte(`{"type":"sam`)...), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "merge", a, b, "-o", "torn.turns.jsonl"); got.code != 0 || !strings.Contains(got.err, b+":") || !strings.Contains(got.err, "torn") {
		t.Errorf("a torn last line: code %d, %q", got.code, got.err)
	}
	if _, err := os.Stat("no"); err == nil {
		t.Error("a refused merge leaves files")
	}
}

func TestFilesThatAreNeither(t *testing.T) {
	inRuns(t)
	for name, c := range map[string]struct{ content, want string }{
		"empty":      {"", "is empty"},
		"blank":      {"\n\n", "is empty"},
		"notes.txt":  {"dear diary\n", `is text that begins "dear diary"`},
		"other.json": {`{"schema": "kneefinder/results/v9", "label": "x"}`, `is of schema "kneefinder/results/v9"`},
		"bench.json": {"{\n \"backend\": \"vllm\",\n \"p99_ttft_ms\": 3}", "is JSON of no kind known here (its keys: backend, p99_ttft_ms)"},
		"list.json":  {"[1, 2]", "is JSON, but no object"},
		"torn.json":  {`{"schema": "kneefinder/res`, "cut short"},
		"run.hlog":   {"#[Histogram log format version 1.3]\n", "is an HdrHistogram log"},
		"run.csv":    {"step,rate_calls_per_s,window_s\n0,1,2\n", "columns name no percentile of TTFT: name one as in ttft_p95_ms"},
		"run.png":    {"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is a picture"},
		"no header":  {`{"type":"turn","call":1}` + "\n", "is JSON of no kind known here (its keys: call, type)"},
	} {
		if err := os.WriteFile(name, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		got := command(t, "knee", name)
		if got.code != 1 || got.out != "" || !strings.Contains(got.err, name) || !strings.Contains(got.err, c.want) || strings.Contains(got.err, "\n") {
			t.Errorf("%s: code %d, printed %q, errors %q; want 1, nothing, one sentence with %q", name, got.code, got.out, got.err, c.want)
		}
	}
	if got := command(t, "knee", "results/L40S.csv"); got.code != 0 || !strings.Contains(got.out, "SLO knee: 0.75 calls/s") {
		t.Errorf("our own CSV: code %d, printed %q, errors %q; want the knee of the run it was written from", got.code, got.out, got.err)
	}
	if got := command(t, "knee", "results"); got.code != 1 || !strings.Contains(got.err, "results is a folder") {
		t.Errorf("a folder: code %d, %q", got.code, got.err)
	}
	if got := command(t, "knee", "missing.json", "results/L40S.json", "notes.txt"); got.code != 1 || got.out != "" || !strings.Contains(got.err, "missing.json") || !strings.Contains(got.err, "notes.txt") {
		t.Errorf("two bad files of three: code %d, printed %q, errors %q", got.code, got.out, got.err)
	}
}

func TestTornLog(t *testing.T) {
	inRuns(t)
	b, err := os.ReadFile("results/L40S.turns.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("torn.turns.jsonl", b[:len(b)-700], 0o666); err != nil {
		t.Fatal(err)
	}
	got := command(t, "knee", "torn.turns.jsonl")
	for _, want := range []string{"The run was cut: its last step, λ 1.5 calls/s, did not end and counts for nothing.\n\nSLO knee", "undecided  incomplete", "the last line is torn", "SLO knee: 0.75 calls/s"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("code %d, no %q in:\n%s%s", got.code, want, got.out, got.err)
		}
	}
}

func TestUsage(t *testing.T) {
	inRuns(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "knee"},
		{[]string{"knee"}, "file"},
		{[]string{"knee", "--nonsense", "x"}, "nonsense"},
		{[]string{"knee", "results/L40S.json", "results/H100.json", "-o", "x.png"}, "kneeanalyze compare"},
		{[]string{"knee", "results/L40S.json", "-o", "x.pdf"}, "the picture is a PNG or an SVG"},
		{[]string{"compare", "results/L40S.json"}, "at least two"},
		{[]string{"merge", "results/H200-0-of-2.turns.jsonl"}, "--output"},
		{[]string{"merge", "-o", "x.turns.jsonl"}, "file"},
		{[]string{"merge", "results/H200-0-of-2.turns.jsonl", "-o", "x.json"}, "ends in .turns.jsonl"},
		{[]string{"merge", "results/H200-0-of-2.turns.jsonl", "-o", "results/L40S.turns.jsonl"}, "is there already"},
		{[]string{"merge", "results/H200-0-of-2.turns.jsonl", "-o", "results/H200-0-of-2.turns.jsonl", "--overwrite"}, "is the file that is read"},
	} {
		if got := command(t, c.args...); got.code != 2 || !strings.Contains(got.err, c.want) || got.out != "" {
			t.Errorf("%q: code %d, printed %q, errors %q; want 2 and %q", c.args, got.code, got.out, got.err, c.want)
		}
	}
	for _, args := range [][]string{{"--help"}, {"knee", "--help"}, {"compare", "--help"}, {"merge", "--help"}, {"--version"}} {
		if got := command(t, args...); got.code != 0 || !strings.Contains(got.out, "kneeanalyze") || got.err != "" {
			t.Errorf("%q: code %d, printed %q, errors %q", args, got.code, got.out, got.err)
		}
	}
	if got := command(t, "knee", "results/L40S.json", "-o", "results/L40S.json/x.png"); got.code != 1 {
		t.Errorf("a picture that cannot be written: code %d, %q", got.code, got.err)
	}
}

// TestManual runs every example of the package comment and of the help.
func TestManual(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	inRuns(t)
	comment, _, _ := strings.Cut(string(source), "\npackage main")
	text := strings.ReplaceAll(comment, "//", "")
	for _, args := range [][]string{{"--help"}, {"knee", "--help"}, {"compare", "--help"}, {"merge", "--help"}, {"export", "--help"}, {"import", "--help"}, {"lint", "--help"}} {
		text += "\n" + command(t, args...).out
	}
	ran := map[string]bool{}
	for line := range strings.Lines(text) {
		args := strings.Fields(line)
		if len(args) < 3 || args[0] != "kneeanalyze" || !strings.HasPrefix(args[2], "results/") {
			continue
		}
		if ran[strings.Join(args, " ")] {
			continue
		}
		ran[strings.Join(args, " ")] = true
		if got := command(t, args[1:]...); got.code != 0 {
			t.Errorf("%s: code %d, %q", strings.TrimSpace(line), got.code, got.err)
		}
	}
	if len(ran) < 5 {
		t.Errorf("%d examples found, want at least 5 in:\n%s", len(ran), text)
	}
}
