package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A pipe is read as a file is, by every command and under each of its names.
func TestPipes(t *testing.T) {
	inRuns(t)
	for i, c := range []struct {
		file  string
		args  []string
		named bool // in what is printed
	}{
		{"results/L40S.json", []string{"knee"}, false},
		{"results/L40S.json", []string{"lint"}, true},
		{"results/L40S.json", []string{"import"}, false},
		{"results/L40S.json", []string{"report"}, true},
		{"results/L40S.json", []string{"compare", "results/H100.json"}, false},
		{"results/L40S.turns.jsonl", []string{"knee", "--slo", "100"}, false},
		{"results/L40S.turns.jsonl", []string{"report"}, true},
		{"results/L40S.turns.jsonl", []string{"export"}, false},
		{"results/sglang_conc16.jsonl", []string{"lint"}, true},
		{"results/L40S.hlog", []string{"import", "--rates", "1,2,3,4,5,6"}, true},
	} {
		want := command(t, append(c.args, c.file)...)
		for _, path := range []string{"-", "link"}[:1+(i+1)%2] {
			if got := piped(t, c.file, path, c.args...); want.code != 0 || got.code != 0 || got.out == "" || !c.named && (got.out != want.out || got.err != want.err) {
				t.Errorf("%v of %s as %s: code %d, errors %q, printed\n%.400s\nwant\n%.400s", c.args, c.file, path, got.code, got.err, got.out, want.out)
			}
		}
	}
	if got := piped(t, "results/L40S.json", "-", "compare", "-"); got.code != 2 || !strings.Contains(got.err, "standard input is named 2 times and can be read once") {
		t.Errorf("twice: %d %q", got.code, got.err)
	}
	if got := piped(t, os.DevNull, "-", "knee"); got.code != 1 || got.err != "standard input is empty" {
		t.Errorf("nothing: %d %q", got.code, got.err)
	}
	if got := piped(t, "results/L40S.json", "-", "export"); got.code != 1 || !strings.Contains(got.err, "standard input is no turn log: it holds the results of a run") {
		t.Errorf("no log: %d %q", got.code, got.err)
	}
}

// piped runs a command with a file behind a pipe, as standard input or as a path to it.
func piped(t *testing.T, file, path string, args ...string) result {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.Write(data)
		w.Close()
	}()
	before := os.Stdin
	defer func() { os.Stdin = before }()
	os.Stdin = r
	if path != "-" {
		link := filepath.Join(t.TempDir(), "pipe")
		if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", r.Fd()), link); err != nil {
			t.Fatal(err)
		}
		path = link
	}
	return command(t, append(args, path)...)
}

// No command writes over what it reads, whatever the file is called there.
func TestOutputIsNoInput(t *testing.T) {
	inRuns(t)
	if err := os.Symlink("L40S.json", "results/link.json"); err != nil {
		t.Fatal(err)
	}
	copies := map[string]string{"pic.svg": "results/L40S.json", "r.md": "results/L40S.json", "reports-0.json": "results/L40S.turns.jsonl", "two-2.json": "results/sglang_conc16.jsonl"}
	for to, from := range copies {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"import", "results/L40S.json", "-o", "results/L40S.json"},
		{"import", "results/L40S.json", "-o", "./results/../results/L40S.json"},
		{"import", "results/link.json", "-o", "results/L40S.json"},
		{"import", "results/L40S.json", "-o", "results/link.json"},
		{"import", "results/L40S.json", "results/sglang_conc128.jsonl", "two-2.json", "-o", "two.json"},
		{"knee", "pic.svg", "-o", "pic.svg"},
		{"compare", "pic.svg", "results/H100.json", "-o", "pic.svg"},
		{"report", "r.md", "-o", "r.md"},
		{"export", "results/L40S.turns.jsonl", "--format", "json", "-o", "results/L40S.turns.jsonl"},
		{"export", "reports-0.json", "--format", "llm-d", "-o", "reports.json"},
	} {
		out := args[len(args)-1]
		before, _ := os.ReadFile(out)
		got := command(t, args...)
		after, _ := os.ReadFile(out)
		if got.code != 2 || !strings.Contains(got.err, "is the file that is read: choose another name") || string(before) != string(after) {
			t.Errorf("%v: code %d, %q; want 2, and the file as it was", args, got.code, got.err)
		}
	}
}

// Results and logs that hold nothing to judge, or loads that are none, are refused by every command, with the place.
func TestNothingMeasured(t *testing.T) {
	inRuns(t)
	data, err := os.ReadFile("results/L40S.json")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(name string, set func(map[string]any)) {
		var doc map[string]any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		set(doc)
		b, err := json.MarshalIndent(doc, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	step := func(doc map[string]any, i int) map[string]any { return doc["steps"].([]any)[i].(map[string]any) }
	edit("empty.json", func(d map[string]any) { d["steps"] = []any{} })
	edit("missing.json", func(d map[string]any) { delete(d, "steps") })
	edit("bare.json", func(d map[string]any) { d["steps"] = []any{map[string]any{}} })
	edit("below.json", func(d map[string]any) { step(d, 1)["rate_calls_per_s"] = -2 })
	header := strings.SplitAfter(readFile(t, "results/L40S.turns.jsonl"), "\n")[0]
	if err := os.WriteFile("header.turns.jsonl", []byte(header), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("below.turns.jsonl", []byte(strings.ReplaceAll(readFile(t, "results/L40S.turns.jsonl"), `"rate_calls_per_s":0.5,`, `"rate_calls_per_s":-0.5,`)), 0o666); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"empty.json":         `empty\.json:\d+ has no steps: `,
		"missing.json":       `missing\.json:1 has no steps: `,
		"bare.json":          `bare\.json:\d+ is a step whose rate_calls_per_s is 0, must be above 0`,
		"below.json":         `below\.json:\d+ is a step whose rate_calls_per_s is -2, must be above 0`,
		"header.turns.jsonl": `header\.turns\.jsonl has no steps`,
		"below.turns.jsonl":  `below\.turns\.jsonl has a step 1 whose rate_calls_per_s is -0\.5, must be above 0`,
	} {
		for _, args := range [][]string{{"knee"}, {"lint"}, {"report"}, {"import"}, {"compare", "results/H100.json"}, {"export"}} {
			if args[0] == "export" && strings.HasSuffix(file, ".json") {
				continue // which is of turn logs
			}
			got := command(t, append(args, file)...)
			if got.code != 1 || got.out != "" || !regexp.MustCompile("^"+want).MatchString(got.err) || strings.Contains(got.err, "\n") {
				t.Errorf("%v %s: code %d, printed %q, errors %q; want 1 and %s", args, file, got.code, got.out, got.err, want)
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Runs without a label, of one label and of one file are told apart by name.
func TestRunsOfNoLabel(t *testing.T) {
	inRuns(t)
	for to, from := range map[string]string{"bare.json": "results/L40S.json", "bare.turns.jsonl": "results/L40S.turns.jsonl"} {
		text := strings.Replace(strings.Replace(readFile(t, from), `"label": "L40S"`, `"label": " "`, 1), `"label":"L40S"`, `"label":""`, 1)
		if err := os.WriteFile(to, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("both.json", []byte(readFile(t, "results/L40S.json")+readFile(t, "results/L40S.json")), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files []string
		want  []string
	}{
		{[]string{"results/H100.json", "bare.json"}, []string{"bare"}},
		{[]string{"results/H100.json", "bare.turns.jsonl"}, []string{"bare"}},
		{[]string{"bare.json", "bare.turns.jsonl"}, []string{"bare (bare.json)", "bare (bare.turns.jsonl)"}},
		{[]string{"both.json"}, []string{"L40S (both.json:1)", "L40S (both.json:"}},
		{[]string{"bare.json", "bare.json"}, []string{"bare (bare.json) #1", "bare (bare.json) #2"}},
	} {
		got := command(t, append([]string{"compare", "--json"}, c.files...)...)
		var out struct {
			Runs []struct{ Label string }
		}
		if err := json.Unmarshal([]byte(got.out), &out); err != nil || got.code != 0 {
			t.Errorf("%v: %d %q", c.files, got.code, got.err)
			continue
		}
		for i, want := range c.want {
			if n := len(out.Runs) - len(c.want) + i; !strings.HasPrefix(out.Runs[n].Label, want) {
				t.Errorf("%v: %+v; want %q", c.files, out.Runs, c.want)
			}
		}
	}
}
