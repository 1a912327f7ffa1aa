package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// The report says what its turns and its engine say, the same to the byte for the same flags, and says which load it cannot carry.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	report := func(label string, more ...string) (text string, file []byte) {
		path := filepath.Join(dir, label+".report.json")
		args := append([]string{"simulate", "--preset", "demo", "--rates", "2,5,9", "--no-extend", "--min-turns", "80", "--total-timeout", "1h", "--ttft-timeout", "1h", "--max-concurrent-calls", "4000", "--label", label, "--out", dir, "--json", path}, more...)
		code, out, errs := call(t.Context(), args...)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return out, file
	}
	text, file := report("x")
	_, again := report("x", "--overwrite")
	if !bytes.Equal(file, again) {
		t.Error("the same flags give another report")
	}
	if _, other := report("y", "--seed", "2"); bytes.Equal(file, bytes.ReplaceAll(other, []byte(`"label": "y"`), []byte(`"label": "x"`))) {
		t.Error("another seed gives the same report")
	}
	code, alone, _ := call(t.Context(), "simulate", "--preset", "demo", "--rates", "2,5,9", "--no-extend", "--min-turns", "80", "--total-timeout", "1h", "--ttft-timeout", "1h", "--max-concurrent-calls", "4000", "--label", "x", "--out", dir, "--overwrite", "--json", "-")
	if code != 0 || alone != string(file) {
		t.Errorf("exit %d; on standard output the report is another than in a file", code)
	}

	var r runReport
	if err := json.Unmarshal(file, &r); err != nil || r.Schema != reportSchema || len(r.Steps) != 3 || r.Mechanism.Name == "" || r.Knees.SLO.Status != measurement.Found {
		t.Fatalf("%v: %d steps of schema %q, %q binds, SLO knee %s", err, len(r.Steps), r.Schema, r.Mechanism.Name, r.Knees.SLO.Status)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Steps {
		var ttft, wait, rest, e2e []float64
		step := log.Steps[i]
		for _, turn := range log.Turns {
			if turn.Step == i && turn.Turn > 1 && turn.Due >= step.WindowStart && turn.Due <= step.WindowEnd {
				ttft = append(ttft, float64(turn.FirstToken-turn.Due)/1e6)
				wait = append(wait, float64(turn.Admitted-turn.Sent)/1e6)
				rest = append(rest, float64(turn.FirstToken-turn.Admitted)/1e6)
				e2e = append(e2e, float64(turn.LastToken-turn.Due)/1e6)
			}
		}
		for name, c := range map[string]struct {
			got  measurement.Spread
			want []float64
		}{"TTFT": {s.Times.TTFT, ttft}, "queue wait": {s.Times.QueueWait, wait}, "TTFT from admit": {s.Times.TTFTAdmitted, rest}, "E2E": {s.Times.E2E, e2e}} {
			sum := 0.
			for _, v := range c.want {
				sum += v
			}
			slices.Sort(c.want)
			if n := len(c.want); c.got.N != n || math.Abs(*c.got.Mean-sum/float64(n)) > 1e-6 || math.Abs(*c.got.P90-measurement.Quantile(c.want, .9)) > 1e-6 {
				t.Errorf("step %d: %s of %d turns, mean %v, P90 %v; the log has %d, %v, %v", i, name, c.got.N, *c.got.Mean, *c.got.P90, n, sum/float64(n), measurement.Quantile(c.want, .9))
			}
		}
		if both := *s.Times.QueueWait.Mean + *s.Times.TTFTAdmitted.Mean; math.Abs(both-*s.Times.TTFT.Mean) > 1e-6 { // no cap holds calls back
			t.Errorf("step %d: a mean TTFT of %v is not the %v of waiting and computing", i, *s.Times.TTFT.Mean, both)
		}
		p := s.Packing
		if p.Steps == 0 || *p.BatchMean < 1 || *p.BatchMost < *p.BatchMean || math.Abs(*p.PrefillMean+*p.DecodeMean-*p.BatchMean) > 1e-9 || *s.KV.UsedPeak < *s.KV.UsedMean || *s.KV.UsedPeak > 1 {
			t.Errorf("step %d: packing %+v, KV %+v", i, p, s.KV)
		}
	}
	if a, b := r.Steps[0], r.Steps[2]; *a.Saturation.Saturated || !*b.Saturation.Saturated || *b.Saturation.QueueSlope <= 0 || *b.Packing.BatchMean <= *a.Packing.BatchMean {
		t.Errorf("at 2 calls/s %+v, at 9 %+v", a.Saturation, b.Saturation)
	}
	for _, want := range []string{"Where the time goes", "In detail at 2 calls/s", "  queue wait ", "  TTFT from admit ", "Batches: ", "KV: 2.76 GB, as scheme unified shares it out; 14 calls of ", "Hits: ", "Saturated: no: of the turns that came all were completed", "of a backlog that grows"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text, _ := report("z", "--detail", "5,100"); strings.Contains(text, "In detail at 2 ") || !strings.Contains(text, "In detail at 5 ") || !strings.Contains(text, "In detail at 9 ") || !strings.Contains(text, "Saturated: yes: ") {
		t.Errorf("asked for 5 and the nearest to 100:\n%s", text)
	}
}

// The steps that are dumped add up to the engine's own counts, and the run is the same with and without them.
func TestDumpSteps(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "steps.jsonl")
			simulate := func(label string, more ...string) {
				args := append([]string{"simulate", "--preset", "demo", "--engine", kind, "--rates", "2,4", "--no-extend", "--min-turns", "60", "--label", label, "--out", filepath.Join(dir, label[:1])}, more...)
				if code, _, errs := call(t.Context(), args...); code != 0 {
					t.Fatalf("exit %d\n%s", code, errs)
				}
			}
			simulate("a")
			simulate("b", "--dump-steps", path)
			for _, ext := range []string{".turns.jsonl", ".json", ".csv", ".png", ".hlog"} {
				a, err := os.ReadFile(filepath.Join(dir, "a", "a"+ext))
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(filepath.Join(dir, "b", "b"+ext))
				if err != nil {
					t.Fatal(err)
				}
				if ext == ".png" {
					continue // the label is in the picture
				}
				if !bytes.Equal(bytes.ReplaceAll(a, []byte(`"a"`), []byte(`"b"`)), b) && !bytes.Equal(bytes.ReplaceAll(a, []byte(",a,"), []byte(",b,")), b) {
					t.Errorf("%s differs when steps are dumped", ext)
				}
			}
			first, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			simulate("c", "--dump-steps", path)
			if second, _ := os.ReadFile(path); !bytes.Equal(bytes.ReplaceAll(second, []byte(`"c"`), []byte(`"b"`)), first) {
				t.Error("the same flags give other steps")
			}
			log, err := measurement.OpenLog(filepath.Join(dir, "b", "b.turns.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			checkSteps(t, first, log, kind == "vllm")
		})
	}
}

// dumped is any line of a dump.
type dumped struct {
	Type     string  `json:"type"`
	Step     int     `json:"step"`
	Load     int     `json:"load_step"`
	TimeMS   float64 `json:"time_ms"`
	StepMS   float64 `json:"step_ms"`
	Batch    int     `json:"batch_size"`
	Prefills int     `json:"num_prefill_reqs"`
	Decodes  int     `json:"num_decode_reqs"`
	Query    int     `json:"total_query_tokens"`
	KV       int     `json:"kv_tokens_in_use"`
	Requests []struct {
		Phase string
		Query int `json:"query_len"`
		KV    int `json:"kv_len"`
	}
	packingLine
}

func checkSteps(t *testing.T, file []byte, log measurement.Log, mixes bool) {
	var sum packing
	computed, packings, end := 0, 0, 0.
	lines := bytes.Split(bytes.TrimSpace(file), []byte("\n"))
	for i, line := range lines {
		var x dumped
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatalf("line %d: %v\n%s", i+1, err, line)
		}
		switch x.Type {
		case "header":
			if i != 0 || !bytes.Contains(line, []byte(stepsSchema)) {
				t.Errorf("line %d is %s", i+1, line)
			}
		case "step":
			prefills, query, kv := 0, 0, 0
			for _, r := range x.Requests {
				query += r.Query
				kv += r.KV
				if r.Phase == "prefill" {
					prefills++
					computed += r.Query
				}
			}
			if prefills != x.Prefills || query != x.Query || len(x.Requests) != x.Batch || x.Prefills+x.Decodes != x.Batch || x.Batch == 0 || x.TimeMS-x.StepMS < end-1e-6 || x.KV == 0 || x.Step != sum.steps+1 {
				t.Fatalf("line %d, behind %v ms: %s", i+1, end, line)
			}
			end = x.TimeMS
			sum.add(stepped{batch: x.Batch, prompts: x.Prefills, query: x.Query, kv: x.KV})
		case "packing":
			packings++
		case "packing_of_all":
			got, want := x.packingLine, sum.line("packing_of_all", nil, nil)
			if i != len(lines)-1 || got.Steps != want.Steps || *got.BatchMean != *want.BatchMean || got.BatchMost != want.BatchMost || *got.QueryMean != *want.QueryMean ||
				*got.PrefillShare != *want.PrefillShare || *got.MixedShare != *want.MixedShare || got.KVPeak != want.KVPeak || !(*got.KVUtilization > 0 && *got.KVUtilization <= 1) {
				t.Errorf("all steps add up to %+v, told %+v", want, got)
			}
		default:
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
	last := log.Samples[len(log.Samples)-1].Values
	for name, got := range map[string]int{measurement.SamplePromptsStepped: sum.prompts, measurement.SampleDecodesStepped: sum.batch - sum.prompts,
		measurement.SampleMixedSteps: sum.mixed, measurement.SamplePrefillSteps: sum.prefills, measurement.SampleDecodeSteps: sum.steps - sum.prefills,
		measurement.SampleComputed: computed} {
		if last[name] != float64(got) {
			t.Errorf("%s: the steps have %d, the engine counts %v", name, got, last[name])
		}
	}
	if packings != 2 || mixes != (sum.mixed > 0) {
		t.Errorf("%d loads summed up, want 2; %d mixed steps", packings, sum.mixed)
	}
}

func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	simulate := []string{"simulate", "--preset", "demo", "--rates", "2", "--no-extend", "--label", "x", "--out", dir}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{append(slices.Clone(simulate), "--json", filepath.Join(dir, "x.json")), 2, "is a file of the run itself"},
		{append(slices.Clone(simulate), "--dump-steps", filepath.Join(dir, ".", "x.turns.jsonl")), 2, "is a file of the run itself"},
		{append(slices.Clone(simulate), "--dump-steps", "-"), 2, "steps go to a file"},
		{append(slices.Clone(simulate), "--dump-steps", "s", "--json", "./s"), 2, "give each its own file"},
		{append(slices.Clone(simulate), "--dump-steps", filepath.Join(dir, "none", "s")), 1, "dump the engine's steps"},
		{append(slices.Clone(simulate), "--detail", "fast"), 2, "cannot be a rate"},
		{[]string{"simulate", "--replay", "report_test.go", "--json", "x"}, 2, "--json: of no use with --replay"},
	} {
		code, out, errs := call(t.Context(), c.args...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%v: exit %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// What a fleet says of its replicas comes out by replica.
func TestReplicas(t *testing.T) {
	one, err := engine.Preset("demo", "demo")
	if err != nil {
		t.Fatal(err)
	}
	c := fleet.Default()
	c.Replicas = fleet.Replicas(2, one)
	f, err := fleet.New(c)
	if err != nil {
		t.Fatal(err)
	}
	step := measurement.Step{WindowEnd: 100 * time.Second, DrainEnd: 100 * time.Second}
	var samples []measurement.EngineSample
	prompt := func(from, n int) (p []engine.Token) {
		for i := range n {
			p = append(p, engine.Token(1000+from+i))
		}
		return p
	}
	for i := range 10 { // in turns: replica 0 gets the same prompt again and again, replica 1 another each time
		at := time.Duration(i+1) * 5 * time.Second
		f.AdvanceTo(at-1, nil)
		samples = append(samples, measurement.EngineSample{At: at - 1, Values: valuesOf(f, false)})
		p := prompt(0, 400)
		if i%2 == 1 {
			p = prompt(1000*i, 200)
		}
		f.Submit(at, engine.Request{ID: uint64(i), Call: i, Prompt: p, MaxTokens: 50})
	}
	f.AdvanceTo(100*time.Second, nil)
	samples = append(samples, measurement.EngineSample{At: 100 * time.Second, Values: valuesOf(f, false)})
	e := analysis.EngineOf(step, nil, samples)
	if e == nil || len(e.Replicas) != 2 || *e.Replicas[0].PromptTokens != 2000 || *e.Replicas[1].PromptTokens != 1000 {
		t.Fatalf("%+v", e)
	}
	if a, b := *e.Replicas[0].CacheHitRate, *e.Replicas[1].CacheHitRate; a < .75 || b != 0 || math.Abs(*e.CacheHitRate-a*2/3) > 1e-9 {
		t.Errorf("hit rates %v and %v, %v of all", a, b, *e.CacheHitRate)
	}
	var text bytes.Buffer
	analysis.Detail(&text, measurement.Results{}, measurement.StepResult{Engine: e})
	if want := "By replica prompts hit running KV used tokens % mean % 0 2000 79.8 0.0 0.0 1 1000 0.0 0.0 0.0"; !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}
