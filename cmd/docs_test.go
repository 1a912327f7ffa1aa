package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// fence is a block of a page: what stands behind its three ticks, and its text.
type fence struct{ language, file, text string }

func fencesOf(page string) (out []fence) {
	for _, m := range regexp.MustCompile("(?s)```([a-z]*) ?([^\n]*)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		out = append(out, fence{m[1], m[2], m[3]})
	}
	return out
}

// runPage runs every command that a page of docs shows, in order, in a folder that holds the files that it shows by name. It returns the
// folder, and all that was printed.
func runPage(t *testing.T, page string, commands int, files map[string]string) (dir, printed string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	bin := build(t)
	dir = t.TempDir()
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), content)
	}
	blocks := fencesOf(string(text))
	for _, b := range blocks {
		if b.file != "" {
			write(t, filepath.Join(dir, b.file), []byte(b.text))
		}
	}
	ran := 0
	for _, b := range blocks {
		if b.language != "sh" {
			continue
		}
		for line := range strings.Lines(b.text) {
			words := splitWords(line)
			out, err := command(t, bin, dir, words[0], words[1:]...).CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			if bad := regexp.MustCompile(`NaN|[+-]Inf`).Find(out); bad != nil {
				t.Errorf("%s: prints %s\n%s", line, bad, out)
			}
			ran++
			printed += string(out)
			for i, w := range words {
				if w != "--json" && w != "--dump-steps" && w != "-o" {
					continue
				}
				if info, err := os.Stat(filepath.Join(dir, words[i+1])); err != nil || info.Size() == 0 {
					t.Errorf("%s: %s is not there: %v", line, words[i+1], err)
				}
			}
		}
	}
	if ran != commands {
		t.Errorf("%s has %d commands, want %d", page, ran, commands)
	}
	return dir, printed
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

// splitWords splits a command line at spaces that no double quotes hold.
func splitWords(line string) (words []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|\S+`).FindAllStringSubmatch(line, -1) {
		if m[1] != "" {
			m[0] = m[1]
		}
		words = append(words, m[0])
	}
	return words
}

// What docs/simulation.md shows is what is printed and written: the heads of its table, and the keys of its JSON.
func TestSimulationPage(t *testing.T) {
	text, err := os.ReadFile("../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, printed := runPage(t, "simulation.md", 2, nil)
	table := regexp.MustCompile("(?s)```\n(Where the time goes.*?)```").FindSubmatch(text)
	if table == nil {
		t.Fatal("the page shows no table")
	}
	for _, line := range strings.Split(string(table[1]), "\n")[:3] { // the heads; figures may move
		if squeezed := strings.Join(strings.Fields(line), " "); !strings.Contains(strings.Join(strings.Fields(printed), " "), squeezed) {
			t.Errorf("%q is on the page and not printed:\n%s", squeezed, printed)
		}
	}
	steps, err := os.ReadFile(filepath.Join(dir, "demo.steps.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`"[a-z_]+":`)
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(text)
	first, _, _ := strings.Cut(string(steps[bytes.Index(steps, []byte(`{"type":"step"`)):]), "\n")
	if got, want := keys.FindAllString(string(shown[1]), -1), keys.FindAllString(first, -1); !slices.Equal(got, want) {
		t.Errorf("a step has\n%v, on the page it has\n%v", want, got)
	}
}

// The README's commands on how many GPUs a rate needs say what it says of them.
func TestReadmeFleet(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := build(t), t.TempDir()
	ran := 0
	for _, b := range fencesOf(string(text)) {
		if b.language != "sh" || !strings.Contains(b.text, "--replicas-for 1\n") {
			continue
		}
		for line := range strings.Lines(b.text) {
			words := splitWords(line)
			out, err := command(t, bin, dir, words[0], words[1:]...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			if words[0] == "kneeanalyze" && !strings.Contains(string(out), "1 calls/s need 50 replicas for P95 TTFT at most 300 ms: 0.02 calls/s is the largest load that passes") {
				t.Errorf("%s: prints\n%s", line, out)
			}
			ran++
		}
	}
	if ran != 4 {
		t.Fatalf("%d commands, want 4", ran)
	}
	for label, want := range map[string]measurement.Verdict{"fleet-of-35": measurement.Pass, "at-random": measurement.Fail} {
		r, err := measurement.ReadResults(filepath.Join(dir, "results", label+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Steps) != 1 || r.Steps[0].Verdict != want {
			t.Errorf("%s: %+v, want %s", label, r.Steps, want)
		}
	}
}

// A model of one's own is any checkpoint's config.json, and a GPU three figures.
func TestEnginePage(t *testing.T) {
	_, printed := runPage(t, "engine.md", 3, map[string]string{"config.json": "../simulation/engine/model/testdata/published/qwen3-8b.json"})
	for _, want := range []string{"llama-3.1-70b simulated on h100-sxm", "simulated on workshop", "gemma-4-12b simulated on l40s"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not printed:\n%s", want, printed)
		}
	}
}

// Of the fleets, hits are told by replica.
func TestFleetPage(t *testing.T) {
	_, printed := runPage(t, "fleet.md", 3, nil)
	if !strings.Contains(printed, "By replica") {
		t.Errorf("nothing is told by replica:\n%s", printed)
	}
}

// The trace that the page shows is asked as it came, and stretched.
func TestWorkloadsPage(t *testing.T) {
	_, printed := runPage(t, "workloads.md", 4, nil)
	for _, want := range []string{"λ 1.0526 requests/s", "λ 2 requests/s", "λ 8 requests/s", "radix"} { // two gaps in 1.9 s
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not printed:\n%s", want, printed)
		}
	}
}

// Links within the repository lead to files that are there.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links %s: %v", page, m[1], err)
			}
		}
	}
}
