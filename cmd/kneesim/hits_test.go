package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A cache of two blocks: the flat one touches a prompt's first block first, so that it goes first and hides the others; of the tree
// leaves go first.
func TestHits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(`{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1, 3]}
{"timestamp": 2, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 3, "input_length": 512, "output_length": 1, "hash_ids": [9]}
{"timestamp": 4, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(t.Context(), "hits", path, "--blocks", "2,0")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	want := `5 requests of ` + path + `, blocks of 512 tokens. Hit rates in %:

    blocks  flat: of blocks  of tokens  radix: of blocks  of tokens
         2            22.22      22.22             33.33      33.33
  no limit            55.56      55.56             55.56      55.56
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	for _, c := range []struct{ args, want string }{
		{"--block 0", "--block is 0"}, {"--blocks=5,-1", "-1 is no size"},
	} {
		if code, _, errs := call(t.Context(), append([]string{"hits", path}, strings.Fields(c.args)...)...); code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d\n%s", c.args, code, errs)
		}
	}
}
