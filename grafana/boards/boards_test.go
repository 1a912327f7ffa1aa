package boards_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"kneefinder/grafana/boards"
	"kneefinder/grafana/queries"
)

var update = flag.Bool("update", false, "rewrite the boards' files")

// The committed files are what the code draws.
func TestFiles(t *testing.T) {
	all, err := boards.All()
	if err != nil {
		t.Fatal(err)
	}
	files := boardFiles(t)
	for _, b := range all {
		want, err := b.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join(folder, b.File), want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !bytes.Equal(files[b.File], want) {
			t.Errorf("%s is not what the code draws: run go run . in grafana, and read the difference", b.File)
		}
		delete(files, b.File)
	}
	for file := range files {
		if !*update {
			t.Errorf("%s is drawn by nothing", file)
		}
	}
}

// The SDK's types hold all that a file says: what is decoded strictly and written again is the same.
func TestFilesRoundTrip(t *testing.T) {
	for file, raw := range boardFiles(t) {
		again, err := boards.Board{File: file, Dashboard: read(t, file, raw)}.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(raw, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s says something that the SDK's types do not hold", file)
		}
	}
}

// unasked are the metrics that no board and no rule reads: each with its reason.
var unasked = map[string]string{
	"NativeT": "a native histogram, when asked for; the classic one has the objective as an edge",
	"NativeI": "as NativeT",
	"NativeP": "as NativeT",
	"NativeC": "as NativeT",
}

// A metric that nobody asks for could be renamed without any board going dark; so each is asked for somewhere.
func TestEveryMetricIsAsked(t *testing.T) {
	asked := map[string]bool{}
	all := []queries.Query{}
	for file, raw := range boardFiles(t) {
		of, err := queries.OfBoard(file, read(t, file, raw))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, of...)
	}
	for _, q := range all {
		need, err := queries.NeedOf(queries.Picked("x").With(q.Expr))
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		for _, s := range need.Selectors() {
			asked[s.Family] = true
		}
	}
	for constant, name := range ours(t) {
		switch reason := unasked[constant]; {
		case reason == "" && !asked[name]:
			t.Errorf("no board asks for names.%s (%s)", constant, name)
		case reason != "" && asked[name]:
			t.Errorf("names.%s is asked for, although %s", constant, reason)
		}
	}
}
