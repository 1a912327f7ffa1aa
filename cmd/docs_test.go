package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command that docs/simulation.md shows runs, in its order, and writes the files it names, with what the page says is in them.
func TestSimulationPage(t *testing.T) {
	text, err := os.ReadFile("../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := build(t), t.TempDir()
	ran, printed := 0, ""
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			out, err := command(t, bin, dir, words[0], words[1:]...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			ran++
			printed += string(out)
			for i, w := range words {
				if w != "--json" && w != "--dump-steps" {
					continue
				}
				if info, err := os.Stat(filepath.Join(dir, words[i+1])); err != nil || info.Size() == 0 {
					t.Errorf("%s: %s is not there: %v", line, words[i+1], err)
				}
			}
		}
	}
	if ran != 2 {
		t.Errorf("the page has %d commands, want 2", ran)
	}
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
