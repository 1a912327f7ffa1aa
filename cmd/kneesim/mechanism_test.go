package main

import (
	"path/filepath"
	"strings"
	"testing"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// Each recipe makes one thing scarce, and that is what binds.
func TestMechanisms(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		why        string
		flags      string
		name       string
		confidence string
		evidence   []string
	}{
		{"a KV pool of four prefixes", "--preset l40s --kv-scheme ideal --kv-tokens 80000 --slo 3s --rates .005,.02",
			analysis.MechanismEviction, "high", []string{"warm prefixes had been evicted", "turns over the limit missed their prefix"}},
		{"first turns whose prefills take nearly all of the time, each far from the limit", "--gpu l40s --system-prompt-tokens 3000 --output-tokens 10 --turns 2 --gap 1s-2s --kv-tokens 4000000 --slo 2s --rates .2,1,2.5",
			analysis.MechanismCompute, "high", []string{"At 2.5 calls/s the engine's time went into prefills for 9", "by its own count, for ", "the first turn of each took 3"}},
		{"first turns that take long, and seldom come", "--preset l40s --kv-scheme ideal --rates .01,.05",
			analysis.MechanismPrefill, "high", []string{"waited while another call's first turn was being prefilled"}},
		{"long answers to long prefixes, in a growing batch", "--model llama-3.1-8b --gpu l40s --system-prompt-tokens 4000 --output-tokens 1000 --turns 2 --gap 1s-2s --kv-tokens 4000000 --slo itl:p95:50ms --rates .02,.2,.5 --min-turns 200 --max-concurrent-calls 4000 --total-timeout 10m",
			analysis.MechanismDecode, "", []string{"P95 of the gaps between tokens grew 2.", "as the turns in flight grew from", "the batch itself slows down"}},
		{"two requests at once at most", "--preset demo --max-running 2 --output-tokens 100 --rates .5,1",
			analysis.MechanismLimit, "high", []string{"2 requests ran in ", "which is the engine's limit", "were sent while at least as many were in flight"}},
		{"long answers that fill the KV pool", "--model llama-3.1-8b --gpu l40s --engine vllm --prompt-tokens 1000 --output-tokens 1500 --rates .2,1",
			analysis.MechanismKV, "", []string{"were pushed out of the batch", "the KV that they need does not fit", "the batch itself slows down"}},
		{"prompts of some length", "--model llama-3.1-8b --gpu h100 --engine vllm --prompt-tokens lognormal:4000:1.2 --output-tokens 100 --rates .02,.05",
			analysis.MechanismPrompt, "high", []string{"Even alone, requests with ", "that had the server to themselves; they are 7", "no load is low enough"}},
		{"a router that scatters the turns of calls, once replicas evict", "--preset h100 --engine vllm --replicas 15 --rates 2.5 --min-turns 1500",
			analysis.MechanismRouting, "high", []string{"turns over the limit had lost more than half of their prefix", "of these went to another replica than the turn before them, which had it still", "the server evicted"}},
		{"one that knows the caches, of a pool of four prefixes each", "--preset l40s --kv-scheme ideal --replicas 4 --router kv --kv-tokens 80000 --rates .02,.2",
			analysis.MechanismEviction, "high", []string{"warm prefixes had been evicted"}},
		{"so many replicas that no turn finds its prefix", "--preset l40s --replicas 500 --rates 2.5 --min-turns 30",
			analysis.MechanismRouting, "high", []string{"of all tokens computed were of such prefixes"}},
		{"replicas among which calls are dealt at random, and stay", "--preset l40s --engine vllm --replicas 20 --affinity 60s --router random --rates 1 --min-turns 600",
			analysis.MechanismPrefill, "high", []string{"another call's first turn was being prefilled on the same replica"}},
		{"a cap on calls of this side's", "--preset demo --output-tokens 400 --max-concurrent-calls 4 --rates .3,2",
			analysis.MechanismClient, "high", []string{"--max-concurrent-calls"}},
	} {
		label := strings.ReplaceAll(c.why, " ", "-")
		code, out, errs := call(t.Context(), append([]string{"simulate", "--no-extend", "--label", label, "--out", dir}, strings.Fields(c.flags)...)...)
		if code != 0 {
			t.Fatalf("%s: exit %d\n%s", c.why, code, errs)
		}
		r, err := measurement.ReadResults(filepath.Join(dir, label+".json"))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(r.Mechanism.Evidence, "\n")
		if r.Mechanism.Name != c.name || c.confidence != "" && r.Mechanism.Confidence != c.confidence {
			t.Errorf("%s: %q, confidence %s; want %q, %s\n%s", c.why, r.Mechanism.Name, r.Mechanism.Confidence, c.name, c.confidence, out)
		}
		for _, e := range c.evidence {
			if !strings.Contains(all, e) {
				t.Errorf("%s: no %q in\n%s", c.why, e, all)
			}
		}
		// Without the engine's own word the verdict may be less sure, or none, but not another.
		log, err := measurement.OpenLog(filepath.Join(dir, label+".turns.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		log.Samples = nil
		blind := c.name
		if c.name == analysis.MechanismKV { // which the engine alone sees: tokens come slower too
			blind = analysis.MechanismDecode
		}
		if m := analysis.Analyze(log).Mechanism; m.Name != blind && m.Name != "" {
			t.Errorf("%s: %q without samples, want %q or none\n%s", c.why, m.Name, c.name, strings.Join(m.Evidence, "\n"))
		}
	}
}
