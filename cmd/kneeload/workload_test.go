package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kneefinder/measurement"
	"kneefinder/simulation/mockserver"
)

// A trace goes over HTTP as it does in simulation: each request with its lengths, and equal hash ids as equal words, which the server's
// cache finds.
func TestTrace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.csv")
	if err := os.WriteFile(file, []byte("arrival,isl,osl,hash_ids\n0,1600,6,5 6 7 90\n200,1700,4,5 6 7 91\n300,700,2,5 60\n400,300,3,\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	server := mock(t, mockserver.Config{}, nil)
	flags := []string{"--base-url", server.URL, "--trace", file, "--language", "english"}
	code, out, errs := call(t.Context(), append([]string{"sweep", "--label", "x", "--out", dir}, flags...)...)
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	log, err := measurement.OpenLog(filepath.Join(dir, "x.turns.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	turns := map[int]measurement.Turn{}
	for _, u := range log.Turns {
		turns[u.Call] = u
	}
	for call, w := range []struct{ prompt, output, shared int }{{1600, 6, 0}, {1700, 4, 1536}, {700, 2, 512}, {300, 3, 0}} {
		u := turns[call]
		if u.Outcome != measurement.OK || u.Turn != measurement.LoneTurn || u.PromptTokens != w.prompt || u.CompletionTokens != w.output || u.CachedTokens < w.shared-16 || u.CachedTokens > w.shared+16 {
			t.Errorf("request %d: %+v, want %+v", call, u, w)
		}
	}
	if !strings.Contains(out, "requests/s") || strings.Contains(out, "calls/s") || log.Header.Config.Trace != "tiny.csv" {
		t.Errorf("the summary:\n%s", out)
	}
	code, out, errs = call(t.Context(), append([]string{"run", "--duration", "1s", "--web.listen-address", "127.0.0.1:0", "--rate", "20"}, flags...)...)
	if code != 0 || !strings.Contains(errs, "λ 20 requests/s for 1s") || !strings.Contains(out, "requests/s") {
		t.Errorf("run: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = call(t.Context(), append([]string{"sweep", "--dry-run", "--gpu-price", "2"}, flags...)...)
	if code != 0 || !strings.Contains(out, "the 4 requests of tiny.csv") || strings.Contains(out, "system prompt") {
		t.Errorf("dry run: exit %d\n%s%s", code, out, errs)
	}
}
