package cmd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// runPeak runs c to its end and returns what it printed and the most memory that it was resident with, in MB. It asks the kernel for the
// high-water mark while c runs: the figure that is left when it has ended, ru_maxrss, is at least that of the process that started it.
func runPeak(t *testing.T, c *exec.Cmd) (out []byte, peak int, err error) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak resident size as Linux reports it")
	}
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	status, mark := fmt.Sprintf("/proc/%d/status", c.Process.Pid), regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)
	for {
		if text, err := os.ReadFile(status); err == nil {
			if m := mark.FindSubmatch(text); m != nil { // not of one that has ended
				kb, _ := strconv.Atoi(string(m[1]))
				peak = max(peak, kb>>10)
			}
		}
		select {
		case err := <-ended:
			if peak == 0 {
				t.Fatal("ended before its memory was read")
			}
			return b.Bytes(), peak, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// What runPeak tells is of the command alone, however much memory the test has.
func TestPeakIsOfTheCommand(t *testing.T) {
	held := make([]byte, 300<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	_, peak, err := runPeak(t, command(t, build(t), t.TempDir(), "kneesim", "simulate", "--preset", "h100"))
	runtime.KeepAlive(held)
	if err != nil || peak < 10 || peak > 200 {
		t.Errorf("peak %d MB, %v", peak, err)
	}
}
