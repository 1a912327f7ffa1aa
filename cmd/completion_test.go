package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every command completes its own lines in bash, by the script that it prints.
func TestCommandsComplete(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed, which runs the scripts")
	}
	bin, dir := build(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mock.turns.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"kneeload sw":                        {"sweep"},
		"kneeload sweep --pres":              {"--preset"},
		"kneeload sweep --preset ":           {"demo", "h100", "l40s", "tiny"},
		"kneeload sweep --language ":         {"english", "hindi"},
		"kneeload sweep --transcripts m":     {"mock.turns.jsonl"},
		"kneeload validate --api-key-file m": {"mock.turns.jsonl"},
		"kneeload sweep --no-ext":            {"--no-extend"},
		"kneeload sweep --model ":            nil, // only the server knows
		"kneeanalyze k":                      {"knee"},
		"kneeanalyze knee ":                  {"mock.turns.jsonl"},
		"kneeanalyze merge m":                {"mock.turns.jsonl"},
		"kneeanalyze export --format ":       {"csv", "hlog", "json", "llm-d", "openmetrics"},
		"kneeanalyze export -o m":            {"mock.turns.jsonl"},
		"kneemock serve --engine ":           {"sglang", "vllm"},
		"kneemock serve --model gemma-4":     {"gemma-4-12b", "gemma-4-26b-a4b", "gemma-4-31b"},
		"kneesim simulate --gpu l":           {"l4", "l40s"},
		"kneesim simulate --replay ":         {"mock.turns.jsonl"},
		"kneesim completion ":                {"bash", "fish", "zsh"},
	} {
		words := strings.Split(line, " ")
		const complete = `eval "$("$0" completion bash)" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _$1 && printf '%s\n' "${COMPREPLY[@]}"`
		c := exec.CommandContext(t.Context(), bash, append([]string{"--norc", "-c", complete, filepath.Join(bin, words[0])}, words...)...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%q: bash: %v\n%s", line, err, out)
			continue
		}
		if got := strings.Fields(string(out)); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
