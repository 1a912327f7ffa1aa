package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"kneefinder/grafana/boards"
)

// The committed table of queries is what the boards and rules ask.
func TestTable(t *testing.T) {
	all, err := boards.All()
	if err != nil {
		t.Fatal(err)
	}
	asked, err := listed(all)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, markdown(asked)) {
		t.Errorf("%s is not what the boards ask: run go run . in grafana", table)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--nothing"}, {"--prometheus", "http://127.0.0.1:1"}} {
		var said strings.Builder
		if err := run(t.Context(), args, io.Discard, &said); !errors.Is(err, errUsage) || said.Len() == 0 {
			t.Errorf("%v: %v, said %q; want wrong usage, and why", args, err, said.String())
		}
	}
}

func TestNoPrometheus(t *testing.T) {
	err := run(t.Context(), []string{"--prometheus", "http://127.0.0.1:1", "--label", "x"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ask Prometheus") {
		t.Errorf("got %v, want that Prometheus cannot be asked", err)
	}
}
