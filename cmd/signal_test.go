package cmd

import (
	"syscall"
	"testing"
	"time"
)

// An analysis has nothing to bring to an end: the first signal ends it, also while it waits for its input.
func TestAnalysisEndsAtTheFirstSignal(t *testing.T) {
	c := command(t, build(t), t.TempDir(), "kneeanalyze", "knee", "-")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	time.Sleep(300 * time.Millisecond) // until it reads; a signal before ends it too
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended as if nothing were wrong")
		}
	case <-time.After(10 * time.Second):
		_ = c.Process.Kill()
		t.Error("it goes on 10 s after a SIGTERM")
	}
}
