package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"

	"kneefinder/analysis"
)

func TestCompareCosts(t *testing.T) {
	inRuns(t)
	files := []string{"compare", "results/L40S.json", "results/H100.json"}
	got := command(t, append(files, "--price", "L40S=0.80", "--price", "H100=2.40", "--gpus", "H100=4", "-o", "c.svg")...)
	for _, want := range []string{"Ratio: H100 carries 2 times what L40S carries", "$1/h carries", "0.67x", "a GPU carries", "Break-even: a dollar carries as much on H100 as on L40S when H100 costs $1.6/h", "At $2.4/h"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("code %d, %q, no %q in\n%s", got.code, got.err, want, got.out)
		}
	}
	svg, err := os.Open("c.svg")
	if err != nil {
		t.Fatal(err)
	}
	defer svg.Close()
	d := xml.NewDecoder(svg)
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("c.svg: %v", err)
		}
	}
	if got := command(t, "knee", "results/L40S.json", "-o", "k.svg"); got.code != 0 || got.err != "drew k.svg\n" {
		t.Errorf("knee into an SVG: %d %q", got.code, got.err)
	}
	// Runs of one label are priced alike and told apart.
	twice := command(t, "compare", "results/L40S.json", "results/L40S.turns.jsonl", "--price", "L40S=1", "--json")
	var c analysis.Comparison
	if err := json.Unmarshal([]byte(twice.out), &c); err != nil || len(c.Runs) != 2 || c.Runs[1].Price == nil || *c.Runs[1].OfFirst.Estimate != 1 || c.Runs[0].Label == c.Runs[1].Label {
		t.Errorf("code %d, %q, %v\n%s", twice.code, twice.err, err, twice.out)
	}
}

func TestGates(t *testing.T) {
	inRuns(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"compare results/L40S.json results/H100.json --fail-if-regressed 10% --fail-if-knee-below 0.5", 0, ""},
		{"compare results/H100.json results/L40S.json --fail-if-regressed 10%", 3, "L40S carries 0.5 times what H100 carries"},
		{"compare results/H100.json results/L40S.json --fail-if-regressed 10% --json", 3, "L40S carries 0.5 times what H100 carries"},
		{"compare results/H100.json results/L40S.json --fail-if-regressed 60%", 0, ""},
		{"compare results/H100.json results/L40S.json --fail-if-regressed 10% --strict --fail-if-knee-below 1", 3, "; the SLO knee of L40S, as estimated, is 0.811 calls/s, below 1"},
		{"compare results/L40S.json results/H100.json --fail-if-knee-below 1", 0, ""},
		{"knee results/L40S.json --fail-if-knee-below 0.8", 0, ""},
		{"knee results/L40S.json --fail-if-knee-below 1", 3, "the SLO knee of L40S, as estimated, is 0.811 calls/s, below 1"},
		{"knee results/L40S.json results/H100.json --json --fail-if-knee-below 1", 3, "the SLO knee of L40S, as estimated, is 0.811 calls/s, below 1"},
		{"knee results/L40S.json --fail-if-knee-below=-1", 2, "give a load above 0"},
		{"compare results/L40S.json results/H100.json --fail-if-regressed .1", 2, "give a percentage such as 10%"},
		{"compare results/L40S.json results/H100.json --strict", 2, "--strict is of --fail-if-regressed"},
		{"compare results/L40S.json results/H100.json --price A100=1", 2, `no run has the label "A100"; the labels are L40S, H100`},
		{"compare results/L40S.json results/H100.json --gpus H100=0", 2, "must be above 0"},
		{"compare results/L40S.json results/H100.json --gpus H100=1.5", 2, `the number of GPUs of "H100" is 1.5, must be a whole number`},
		{"compare results/L40S.json results/H100.json --gpus H100", 2, "give the label of a run, = and a figure"},
		{"compare results/L40S.json results/H100.json --gpus H100=x", 2, `"x" is no number`},
		{"compare results/L40S.json results/H100.json --price H100=1 --price H100=2", 2, `the label "H100" is there twice`},
		{"compare results/L40S.json results/H100.json --price H100=-1", 2, "must be above 0"},
		{"compare results/L40S.json results/H100.json --fail-if-regressed -1%", 2, "give a percentage such as 10%"},
		{"compare results/L40S.json results/H100.json -o c.gif", 2, "a PNG or an SVG"},
	} {
		got := command(t, strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.err, c.want) || strings.Contains(got.err, "\n") {
			t.Errorf("%s: code %d, %q; want %d and %q", c.args, got.code, got.err, c.code, c.want)
		}
		if (got.code == 2) != (got.out == "") {
			t.Errorf("%s: code %d, printed %q", c.args, got.code, got.out)
		}
	}
}
