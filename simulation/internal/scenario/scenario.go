// Package scenario plays the scripts of tests that tell what a state machine does: commands, a line "----", and what they print.
package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// Player does what one command asks for, and writes what that prints to out.
type Player func(command []string, out *strings.Builder)

// Run plays testdata/*.txt, each with a player of its own, and wants them to print what stands there. A block of commands ends with an
// empty line; one without "----", and lines that begin with "#", are comments.
func Run(t *testing.T, player func(t *testing.T) Player) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(player(t), string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

// play returns the script with every output as it comes now.
func play(p Player, script string) string {
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(script, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, runs := strings.Cut(block+"\n", "----\n")
		out.WriteString(commands)
		if !runs { // a comment
			continue
		}
		out.WriteString("----\n")
		for line := range strings.Lines(commands) {
			if !strings.HasPrefix(line, "#") {
				p(strings.Fields(line), &out)
			}
		}
	}
	return out.String()
}
