package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata")

// The script of workloads: behind each "$" the flags of a dry run, then what it says.
func TestWorkloadScript(t *testing.T) {
	path := filepath.Join("testdata", "workload.txt")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var is strings.Builder
	for _, line := range strings.Split(string(b), "\n") {
		flags, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		code, out, errs := call(t.Context(), append([]string{"sweep", "--base-url", "http://127.0.0.1:1", "--dry-run"}, strings.Fields(flags)...)...)
		fmt.Fprintf(&is, "$ %s\n%s%s", flags, out, strings.ReplaceAll(errs, here+string(filepath.Separator), ""))
		if code != 0 {
			fmt.Fprintf(&is, "exit %d\n", code)
		}
		fmt.Fprintln(&is)
	}
	if *update {
		if err := os.WriteFile(path, []byte(is.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(b), is.String()); d != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, d)
	}
}
