package cli

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// wares is a grammar with every kind of flag and argument.
type wares struct {
	Run struct {
		ConfigFile `embed:""`
		Preset     string   `help:"Defaults: ${presets}." placeholder:"NAME"`
		Mode       string   `help:"How." enum:"quick,slow" default:"quick"`
		Language   string   `help:"It's \\ a [closed] set: two words." complete:"hindi,english"`
		Arrivals   string   `help:"A kind or a file." complete:"poisson,constant,file"`
		Out        string   `help:"A folder." complete:"dir"`
		Log        string   `help:"A file by its type." type:"existingfile"`
		Picture    string   `help:"A file by what stands for it." short:"o" placeholder:"PNG"`
		Count      int      `help:"A number."`
		Header     []string `help:"May be repeated." sep:"none"`
		Fast       bool     `help:"A switch with two sides." negatable:""`
		Quiet      bool     `help:"A switch with one." short:"q"`
		Unseen     bool     `hidden:""`
	} `cmd:"" help:"Do: it."`
	Read struct {
		Files []string `arg:"" name:"file" help:"Files."`
	} `cmd:"" help:"Read files."`
	Completion Completion       `cmd:"" help:"Print a script."`
	Secret     struct{}         `cmd:"" hidden:""`
	Version    kong.VersionFlag `help:"Print the version."`
}

// script is what completion prints of wares.
func script(t *testing.T, shell string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Run(t.Context(), new(wares), "a-ware", "A program.", []string{"completion", shell}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		path, got := filepath.Join("testdata", "completion."+shell), script(t, shell)
		if *update {
			if err := os.WriteFile(path, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s (-want +got, -update rewrites it):\n%s", path, d)
		}
	}
	if err := Run(t.Context(), new(wares), "a-ware", "A program.", []string{"completion", "tcsh"}, io.Discard, io.Discard); err == nil || Code(err) != 2 ||
		!strings.Contains(err.Error(), `"bash","zsh","fish"`) {
		t.Errorf("a shell that is not known: %v", err)
	}
	var help bytes.Buffer
	if err := Run(t.Context(), new(wares), "a-ware", "A program.", []string{"completion", "--help"}, &help, io.Discard); err != nil || !strings.Contains(help.String(), `eval "$(a-ware completion bash)"`) {
		t.Errorf("%v; the help shows no way to install it:\n%s", err, help.String())
	}
}

// TestBashCompletes has bash complete lines by the script, its words split as readline splits them: = stands alone.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed, which runs the script")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), script(t, "bash"), 0o666); err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(dir, "here")
	if err := os.MkdirAll(filepath.Join(here, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one log.jsonl", "two.jsonl"} {
		if err := os.WriteFile(filepath.Join(here, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{"folder", "one log.jsonl", "two.jsonl"}
	root := []string{"--help", "--version", "-h"}
	run := []string{"--arrivals", "--config", "--count", "--fast", "--header", "--help", "--language", "--log", "--mode", "--no-fast", "--out", "--picture",
		"--preset", "--quiet", "--version", "-h", "-o", "-q"}
	for _, c := range []struct {
		why   string
		words []string // after the program's name; the last is being typed
		want  []string
	}{
		{"commands, without the hidden one", []string{""}, []string{"completion", "read", "run"}},
		{"a command begun", []string{"re"}, []string{"read"}},
		{"no such command", []string{"x"}, nil},
		{"flags before a command", []string{"-"}, root},
		{"a command behind a flag", []string{"--help", "ru"}, []string{"run"}},
		{"a command's flags", []string{"run", "--"}, slices.DeleteFunc(slices.Clone(run), func(f string) bool { return !strings.HasPrefix(f, "--") })},
		{"a command's flags, nothing typed", []string{"run", ""}, run},
		{"a flag begun", []string{"run", "--p"}, []string{"--picture", "--preset"}},
		{"the other side of a switch", []string{"run", "--no"}, []string{"--no-fast"}},
		{"flags behind a switch", []string{"run", "--fast", "--mo"}, []string{"--mode"}},
		{"an enum", []string{"run", "--mode", ""}, []string{"quick", "slow"}},
		{"an enum begun", []string{"run", "--mode", "s"}, []string{"slow"}},
		{"an enum behind =", []string{"run", "--mode", "="}, []string{"quick", "slow"}},
		{"an enum begun behind =", []string{"run", "--mode", "=", "q"}, []string{"quick"}},
		{"an enum begun behind = in one word", []string{"run", "--mode=q"}, []string{"--mode=quick"}},
		{"presets, without what explains them", []string{"run", "--preset", ""}, []string{"demo", "h100", "l40s", "tiny"}},
		{"a value that is a command's name", []string{"run", "--preset", "read", "--mo"}, []string{"--mode"}},
		{"a closed set of a tag", []string{"run", "--language", "h"}, []string{"hindi"}},
		{"words and files", []string{"run", "--arrivals", ""}, []string{"constant", "folder", "one log.jsonl", "poisson", "two.jsonl"}},
		{"folders", []string{"run", "--out", ""}, []string{"folder"}},
		{"files by the type", []string{"run", "--log", ""}, files},
		{"the configuration file", []string{"run", "--config", "t"}, []string{"two.jsonl"}},
		{"files by the placeholder", []string{"run", "--picture", "o"}, []string{"one log.jsonl"}},
		{"a short flag", []string{"run", "-o", "o"}, []string{"one log.jsonl"}},
		{"files behind =", []string{"run", "--log", "=", "tw"}, []string{"two.jsonl"}},
		{"a number", []string{"run", "--count", ""}, nil},
		{"a flag that may be repeated", []string{"run", "--header", ""}, nil},
		{"arguments", []string{"read", ""}, files},
		{"more arguments", []string{"read", "two.jsonl", "o"}, []string{"one log.jsonl"}},
		{"flags where arguments are wanted", []string{"read", "-"}, root},
		{"shells", []string{"completion", ""}, []string{"bash", "fish", "zsh"}},
	} {
		const complete = `source ../script; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _a_ware; for c in "${COMPREPLY[@]}"; do printf '%s\n' "$c"; done`
		cmd := exec.CommandContext(t.Context(), bash, append([]string{"--norc", "-c", complete, "bash", "a-ware"}, c.words...)...)
		cmd.Dir = here
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Fatalf("%s: bash: %v\n%s", c.why, err, errs.String())
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: a-ware %q: got %q, want %q", c.why, c.words, got, c.want)
		}
	}
}
