package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kneefinder/telemetry/names"
)

// checked runs the command that asks a Prometheus, and returns what it says and whether that is that all is well.
func checked(t *testing.T, url, label string) (string, bool) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "grafana")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	command := exec.CommandContext(t.Context(), bin, "--prometheus", url, "--label", label)
	command.Dir = ".."
	out, err := command.CombinedOutput()
	if err != nil && command.ProcessState.ExitCode() != 1 {
		t.Fatalf("grafana --prometheus: %v\n%s", err, out)
	}
	return string(out), err == nil
}

// A steady load has no steps that end, no knee and here no GPU, which the command tells from what is broken.
func TestCheckOfASteadyLoad(t *testing.T) {
	bin := built(t, "kneeload", "kneemock")
	engine, load := freeAddress(t), freeAddress(t)
	old := serve(t, renamed(kneeload(), names.Dials)) // its label is fixtureRun
	server := startPrometheus(t, []target{{"engine", engine}, {"kneeload", load}, {"kneeload", old}})
	startMock(t, bin, "sglang", engine)
	run := exec.Command(filepath.Join(bin, "kneeload"), "run", "--base-url", "http://"+engine, "--preset", "demo", "--rate", "3", "--label", "steady",
		"--web.listen-address", load)
	var said strings.Builder
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGINT) // it is over where the test has seen it end
		_ = run.Wait()
		if t.Failed() {
			t.Logf("kneeload run: %s", said.String())
		}
	})
	var out string
	var well bool
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(2 * time.Second) {
		// Prometheus scrapes the engine some seconds after kneeload: its target comes from a file.
		if out, well = checked(t, server.URL, "steady"); well && strings.Contains(out, "engine scraped: sglang") || time.Now().After(end) {
			break
		}
	}
	if !well {
		t.Fatalf("a healthy steady load is taken for a broken one:\n%s", out)
	}
	for _, want := range []string{"run steady: running", "engine scraped: sglang", "no GPU exporter is scraped", "a steady load has no ended steps", ", 0 are missing"} {
		if !strings.Contains(out, want) {
			t.Errorf("the command does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "missing:") {
		t.Errorf("all is well, and something is missing:\n%s", out)
	}

	if out, well := checked(t, server.URL, "stedy"); well || !strings.Contains(out, `there is no run "stedy"`) || !strings.Contains(out, "there are: "+fixtureRun+", steady") {
		t.Errorf("a label that is not there: well %t, said:\n%s", well, out)
	}
	if out, well := checked(t, server.URL, fixtureRun); well || !strings.Contains(out, "missing:") || !strings.Contains(out, "no series for "+names.Dials) {
		t.Errorf("a run that lacks %s: well %t, said:\n%s", names.Dials, well, out)
	}
}
