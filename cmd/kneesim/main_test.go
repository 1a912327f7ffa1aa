package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	err := run(ctx, args, &out, &errs)
	if err != nil {
		fmt.Fprintln(&errs, "error:", err)
	}
	return cli.Code(err), out.String(), errs.String()
}

// The presets: both knees found, the H100's above the L40S's and both where two independent queue sketches put them, what
// binds said, and soon.
func TestPresets(t *testing.T) {
	dir := t.TempDir()
	knees := map[string]measurement.Knees{}
	for _, c := range []struct {
		preset   string
		low, top float64 // of the interpolated SLO knee, calls/s
	}{{"l40s", .02, .03}, {"h100", .1, .15}} {
		begun := time.Now()
		code, out, errs := call(t.Context(), "simulate", "--preset", c.preset, "--label", c.preset, "--out", dir)
		took := time.Since(begun)
		if code != 0 {
			t.Fatalf("%s: exit %d\n%s", c.preset, code, errs)
		}
		r, err := measurement.ReadResults(filepath.Join(dir, c.preset+".json"))
		if err != nil {
			t.Fatal(err)
		}
		k := r.Knees
		knees[c.preset] = k
		if k.SLO.Status != measurement.Found || k.Curvature.Status != measurement.Found {
			t.Fatalf("%s: SLO knee %s, curvature knee %s, want both found", c.preset, k.SLO.Status, k.Curvature.Status)
		}
		if *k.SLO.Estimate < c.low || *k.SLO.Estimate > c.top {
			t.Errorf("%s: SLO knee at %v, want %v to %v", c.preset, *k.SLO.Estimate, c.low, c.top)
		}
		if r.Mechanism.Name != "queueing_behind_cold_prefill" || !strings.Contains(out, "What binds") || !strings.Contains(out, "Uncalibrated") {
			t.Errorf("%s: mechanism %q\n%s", c.preset, r.Mechanism.Name, out)
		}
		log, err := measurement.OpenLog(filepath.Join(dir, c.preset+".turns.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		calls := map[int]int{}
		for _, turn := range log.Turns {
			if turn.Turn == 1 {
				calls[turn.Step]++
			}
		}
		for _, s := range r.Steps {
			if calls[s.Step] < 200 {
				t.Errorf("%s at %v: %d calls, want at least 200", c.preset, s.Rate, calls[s.Step])
			}
		}
		t.Logf("%s: %v; SLO knee %.4f, curvature %.3f", c.preset, took, *k.SLO.Estimate, *k.Curvature.Rate)
		if took > 5*time.Second && !raceEnabled {
			t.Errorf("%s took %v, want under 5 s", c.preset, took)
		}
	}
	if *knees["h100"].SLO.Rate <= *knees["l40s"].SLO.Rate || *knees["h100"].Curvature.Rate <= *knees["l40s"].Curvature.Rate {
		t.Error("the H100's knees are not above the L40S's")
	}
}

// The same flags give the same files, to the bit; another seed gives others.
func TestDeterminism(t *testing.T) {
	files := func(dir, seed string) map[string]string {
		code, _, errs := call(t.Context(), "simulate", "--preset", "l40s", "--rates", "0.02,0.1,0.35", "--min-turns", "150", "--label", "x", "--out", dir, "--seed", seed)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		all := map[string]string{}
		for _, name := range []string{"x.turns.jsonl", "x.json", "x.csv", "x.png", "x.hlog"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(b)
			for _, place := range []string{dir, "20" + "26-", "127.0.0.1"} {
				if strings.Contains(all[name], place) {
					t.Errorf("%s holds %q: simulated files hold no date, host or path", name, place)
				}
			}
		}
		return all
	}
	a, b, c := files(t.TempDir(), "1"), files(t.TempDir(), "1"), files(t.TempDir(), "2")
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs between two runs", name)
		}
		if a[name] == c[name] {
			t.Errorf("%s is the same for another seed", name)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"simulate", "--preset", "l40s", "--model", "gpt-9"}, 2, "gemma-4-12b"},
		{[]string{"simulate", "--preset", "l40s", "--gpu", "tpu"}, 2, "h100"},
		{[]string{"simulate", "--preset", "l40s", "--mem-fraction", "0.4"}, 2, "GB"},
		{[]string{"simulate", "--gpu", "demo"}, 2, "no rates"},
		{[]string{"simulate", "--preset", "tiny"}, 2, "real engine on a CPU"},
		{[]string{"simulate", "--rates", "3,1"}, 2, "not sorted"},
		{[]string{"simulate", "--preset", "demo", "--replay", "main_test.go"}, 1, "not a turn log"},
		{[]string{"predict"}, 2, "predict"},
	} {
		code, out, errs := call(t.Context(), append(c.args, "--out", t.TempDir())...)
		if c.args[0] != "simulate" {
			code, out, errs = call(t.Context(), c.args...)
		}
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%v: exit %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// A run replayed on the engine that made it is predicted exactly.
func TestReplayOfASimulatedRun(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := call(t.Context(), "simulate", "--preset", "demo", "--rates", "3,5", "--no-extend", "--min-turns", "100", "--label", "x", "--out", dir); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs := call(t.Context(), "simulate", "--replay", filepath.Join(dir, "x.turns.jsonl"))
	if code != 0 || !strings.Contains(out, "100.0 % of the turns agree") || !strings.Contains(out, "Cached tokens agree on 100.0 %") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
