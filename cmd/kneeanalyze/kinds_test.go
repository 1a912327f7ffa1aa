package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/analysis/importer"
	"kneefinder/measurement"
)

// Every command says of every kind of file what it does with it: what it cannot use is refused in a sentence that names the file and
// what to give, and never in the words of a parser or of the system.
func TestEveryCommandOnEveryKind(t *testing.T) {
	inRuns(t)
	for name, content := range map[string]string{"empty": "", "blank": "\n \n", "binary": "\x00\x01\x02\xff\x00binary", "object.json": "{}", "list.json": "[]", "torn.json": "{\n  \"label\": ", "null.json": "null", "words.txt": "no run at all\n"} {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	const turns = "give the turn log beside it (.turns.jsonl)"
	commands := map[string]func(file string) []string{
		"knee":    func(f string) []string { return []string{"knee", f} },
		"report":  func(f string) []string { return []string{"report", f} },
		"compare": func(f string) []string { return []string{"compare", "results/H100.json", f} },
		"import":  func(f string) []string { return []string{"import", f} },
		"lint":    func(f string) []string { return []string{"lint", f} },
		"export":  func(f string) []string { return []string{"export", f, "--format", "csv"} },
		"merge":   func(f string) []string { return []string{"merge", f, "-o", "merged.turns.jsonl"} },
	}
	for _, c := range []struct {
		file string
		want map[string]string // of the commands that refuse it; "" is every other command
	}{
		{"results/L40S.turns.jsonl", map[string]string{"merge": "whole run"}},
		{"results/L40S.json", map[string]string{"export": "is no turn log: it holds the results of a run, which has no turns; " + turns, "merge": "is no turn log: it holds the results of a run, which has no turns; " + turns}},
		{"results/L40S.csv", map[string]string{"export": "is a curve as CSV, which holds no turns; " + turns, "merge": "is a curve as CSV"}},
		{"results/L40S.hlog", map[string]string{"export": "is an HdrHistogram log; " + turns, "merge": "is an HdrHistogram log", "": "is an HdrHistogram log, whose histograms stand at no load"}},
		{"results/H200-0-of-2.turns.jsonl", map[string]string{"merge": "shard 1/2 is missing"}},
		{"results", map[string]string{"": "results is a folder: name the files in it"}},
		{"nowhere.json", map[string]string{"": "nowhere.json: there is no such file"}},
		{"empty", map[string]string{"": "is empty"}},
		{"blank", map[string]string{"": "is empty"}},
		{"binary", map[string]string{"export": "is application/octet-stream", "merge": "is application/octet-stream", "": "is no text"}},
		{"object.json", map[string]string{"export": "is JSON without a key", "merge": "is JSON without a key", "": "is an empty object in JSON"}},
		{"list.json", map[string]string{"export": "is a list in JSON", "merge": "is a list in JSON", "": "is an empty list"}},
		{"torn.json", map[string]string{"export": "is JSON of another kind (its keys: label)", "merge": "is JSON of another kind (its keys: label)", "": "cut short"}},
		{"null.json", map[string]string{"": `is text that begins "null"`}},
		{"words.txt", map[string]string{"": `is text that begins "no run at all"`}},
	} {
		for name, args := range commands {
			want, refused := c.want[name]
			if !refused {
				want, refused = c.want[""]
			}
			got := command(t, args(c.file)...)
			if !refused {
				if got.code != 0 || got.out == "" {
					t.Errorf("%s %s: code %d, %q; want it done", name, c.file, got.code, got.err)
				}
				continue
			}
			if got.code != 1 || got.out != "" || !strings.Contains(got.err, want) || !strings.Contains(got.err, c.file) && name != "merge" || strings.Contains(got.err, "\n") {
				t.Errorf("%s %s: code %d, printed %q, errors %q; want 1 and %q", name, c.file, got.code, got.out, got.err, want)
			}
			for _, raw := range []string{"stat ", "open ", "unexpected end", "invalid character", "(its keys: )", "EOF"} {
				if strings.Contains(got.err, raw) {
					t.Errorf("%s %s says %q", name, c.file, got.err)
				}
			}
		}
	}
}

// What steps are judged by: a turn log anew, results never, and a --slo that judges nothing is refused.
func TestSLO(t *testing.T) {
	inRuns(t)
	log := aLog("L40S", 1)
	log.Header.Config.SLO = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 1000}}
	want := analysis.Analyze(log).Knees.SLO
	got := command(t, "knee", "results/L40S.turns.jsonl", "--slo", "1s")
	if say := fmt.Sprintf("SLO knee: %g calls/s", *want.Rate); got.code != 0 || !strings.Contains(got.out, say) || !strings.Contains(got.out, "P95 TTFT at most 1000 ms") {
		t.Errorf("a turn log at 1 s: code %d, %q, no %q in\n%s", got.code, got.err, say, got.out)
	}
	if report := command(t, "report", "results/L40S.turns.jsonl", "--format", "markdown", "--slo", "1s"); report.code != 0 || !strings.Contains(report.out, "1,000 ms") && !strings.Contains(report.out, "1000 ms") {
		t.Errorf("a report at 1 s: code %d, %q\n%s", report.code, report.err, report.out)
	}
	for _, args := range []string{"knee results/L40S.json --slo 1s", "compare results/L40S.json results/H100.json --slo 1s", "report results/L40S.json --slo 1s", "import results/L40S.csv --slo 1s"} {
		if got := command(t, strings.Fields(args)...); got.code != 2 || got.out != "" || !strings.Contains(got.err, "--slo judges no step here") || !strings.Contains(got.err, "turn log") || strings.Contains(got.err, "\n") {
			t.Errorf("%s: code %d, %q", args, got.code, got.err)
		}
	}
	if got := command(t, "knee", "results/L40S.json", "--slo", "300ms"); got.code != 0 {
		t.Errorf("the objective that it was judged by: code %d, %q", got.code, got.err)
	}
	if got := command(t, "compare", "results/L40S.json", "results/sglang_conc16.jsonl", "results/sglang_conc128.jsonl", "--slo", "ttft:p99:5s"); got.code != 0 {
		t.Errorf("results beside files that are judged: code %d, %q", got.code, got.err)
	}
}

// failing is a run of ours with everything that is easily lost: failures, first turns among them, a censored step, several objectives.
func failing(label string) measurement.Log {
	log := aLog(label, 1)
	log.Header.Config.SLO = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 250}, {Metric: "ttft", Quantile: .5, LimitMS: 200}}
	for i := range log.Turns {
		turn := &log.Turns[i]
		if turn.Step >= 4 && turn.Call%8 == 0 || turn.Step == 2 && turn.Call%40 == 3 {
			turn.Outcome, turn.FirstToken, turn.LastToken, turn.Events, turn.CompletionTokens = measurement.TTFTTimeout, measurement.Never, measurement.Never, 0, measurement.Unknown
		}
	}
	return log
}

// The other forms of a run say of it what its results say: the same knees, steps and errors to the last digit where the form holds
// them, and they agree with themselves.
func TestFormsAgree(t *testing.T) {
	t.Chdir(t.TempDir())
	loop := failing("loop")
	loop.Header.Config.Arrivals = "closed"
	for i := range loop.Steps {
		loop.Steps[i].Rate = float64(i + 1)
	}
	for _, log := range []measurement.Log{withGaps(t, aLog("plain", 1)), withGaps(t, failing("failing")), withGaps(t, loop)} {
		label, want := log.Header.Label, analysis.Analyze(log)
		write(t, ".", label+".turns.jsonl", func(out io.Writer) error { return writeLog(out, log) })
		for form, args := range map[string][]string{
			".csv":  {"export", label + ".turns.jsonl", "--format", "csv", "-o", label + ".csv"},
			".yaml": {"export", label + ".turns.jsonl", "--format", "llm-d", "-o", label + "/report.yaml"},
		} {
			if got := command(t, args...); got.code != 0 {
				t.Fatalf("%v: %q", args, got.err)
			}
			files := []string{label + form}
			if form == ".yaml" {
				var err error
				if files, err = filepath.Glob(label + "/*.yaml"); err != nil || len(files) != len(log.Steps) {
					t.Fatalf("%d reports, %v", len(files), err)
				}
				for _, f := range files {
					agrees(t, command(t, "lint", f))
				}
			}
			if got := command(t, append([]string{"import", "-o", "again.json"}, files...)...); got.code != 0 {
				t.Fatalf("%s%s: %q", label, form, got.err)
			}
			again, err := measurement.ReadResults("again.json")
			if err != nil {
				t.Fatal(err)
			}
			if again.Label != label || again.Config.Arrivals != want.Config.Arrivals {
				t.Errorf("%s%s: the label is %q, arrivals %q", label, form, again.Label, again.Config.Arrivals)
			}
			if d := cmp.Diff(want.Knees, again.Knees); d != "" {
				t.Errorf("%s%s: knees (-log +form):\n%s", label, form, d)
			}
			steps := slices.Clone(want.Steps)
			if form == ".csv" {
				for i := range steps {
					steps[i].ErrorKinds, steps[i].ByTurn = nil, []measurement.TurnResult{}
				}
			}
			if d := cmp.Diff(steps, again.Steps); d != "" {
				t.Errorf("%s%s: steps (-log +form):\n%s", label, form, d)
			}
		}
		got := command(t, "lint", label+".turns.jsonl")
		agrees(t, got)
		for line := range strings.Lines(got.out) { // a P95 that no turns without a token stand in
			if strings.HasPrefix(line, "  "+string(importer.Untold)) && !(strings.Contains(line, "bucket's") && label != "plain") {
				t.Errorf("lint of %s.turns.jsonl: %s", label, line)
			}
		}
	}
}

// agrees holds that the checks of a file pass, but for the rate: these runs ask for more or less than what comes.
func agrees(t *testing.T, got result) {
	t.Helper()
	for line := range strings.Lines(got.out) {
		if got.code != 0 || strings.HasPrefix(line, "  "+string(importer.Doubtful)) && !strings.Contains(line, "offered rate") {
			t.Errorf("code %d, %q: %s", got.code, got.err, line)
		}
	}
}

// withGaps is a log whose steps hold the gaps between tokens.
func withGaps(t *testing.T, log measurement.Log) measurement.Log {
	t.Helper()
	h := measurement.NewHistogram()
	measurement.RecordGap(h, 20*time.Millisecond)
	packed, err := measurement.EncodeHistogram(2, h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range log.Steps {
		log.Steps[i].ITL = []measurement.Histogram{packed}
	}
	return log
}

// What the files of another tool do not tell is neither compared nor printed, and its loads are requests.
func TestUnknownIsAbsent(t *testing.T) {
	inRuns(t)
	files := []string{"results/sglang_conc16.jsonl", "results/sglang_conc128.jsonl"}
	got := command(t, append([]string{"compare", "results/L40S.json"}, files...)...)
	one := strings.Join(strings.Fields(got.out), " ")
	for _, unknown := range []string{"system_prompt_tokens", "gap_min_s", "ignore_eos", "min_turns", "step_duration_s", "warmup_s"} {
		if strings.Contains(one, unknown) {
			t.Errorf("compare speaks of %s:\n%s", unknown, got.out)
		}
	}
	if got.code != 0 || !strings.Contains(one, "L40S counts calls/s and random in 1024 out 1024 requests at once") || !strings.Contains(one, "output_tokens is 100 against 1024") {
		t.Errorf("compare: code %d, %q\n%s", got.code, got.err, got.out)
	}
	for _, format := range []string{"html", "markdown"} {
		page := command(t, append([]string{"report", "--format", format}, files...)...)
		for _, zero := range []string{" 0 tokens", "0 s", "<td>0</td>", ">seed<", "temperature"} {
			if i := strings.Index(page.out, zero); page.code != 0 || i >= 0 && !strings.ContainsAny(page.out[max(0, i-1):i], "0123456789.") {
				t.Errorf("%s: code %d, %q: it says %q: %.80q", format, page.code, page.err, zero, page.out[max(0, i-60):])
			}
		}
		if !strings.Contains(page.out, "requests at once") || strings.Contains(page.out, "calls at once") {
			t.Errorf("%s: the loads are requests at once:\n%.3000s", format, page.out)
		}
	}
}
