package main

import (
	"os"
	"strings"
	"testing"
)

func TestReplicasAndProbability(t *testing.T) {
	inRuns(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--replicas-for", "2.5"}, 0, "2.5 calls/s need 4 endpoints, each like the one measured, for P95 TTFT at most 300 ms: 0.75 calls/s is the largest load that passes, where the objectives were seen to hold, so provision by it."},
		{[]string{"--replicas-for", "0"}, 2, "--replicas-for 0: give calls per second, more than 0"},
		{[]string{"--replicas-for", "-1"}, 2, "--replicas-for -1: give calls per second, more than 0"},
		{[]string{"--replicas-for", "NaN"}, 2, "--replicas-for: NaN is not a number to go by: give a finite one"},
		{[]string{"--holds-at", "0"}, 2, "--holds-at 0: give a load"},
		{[]string{"--holds-at=-.5"}, 2, "--holds-at -0.5: give a load"},
		{[]string{"--fail-if-knee-below", "-1"}, 2, "--fail-if-knee-below -1: give a load above 0"},
		{[]string{"--replicas-for", "1e9"}, 2, "--replicas-for 1e+09: give calls per second"},
		{[]string{"--replicas-for", "2", "--json"}, 2, "leave one out"},
		{[]string{"--holds-at", "0.5"}, 0, "the TTFT objective holds in the long run with a probability of over 99 % at 0.5 calls/s; by the turns measured there alone, over 99 %."},
	} {
		got := command(t, append([]string{"knee", "results/L40S.turns.jsonl"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%v: exit %d, %s%s; want exit %d and %q", c.args, got.code, got.out, got.err, c.code, c.want)
		}
	}
}

// A closed loop has no call rates to ask for replicas by: that is the wrong question, not a failure.
func TestReplicasOfAClosedLoop(t *testing.T) {
	inRuns(t)
	if err := os.WriteFile("loop.csv", []byte("concurrency,ttft_p95_ms\n1,100\n2,150\n3,200\n4,900\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := command(t, "knee", "loop.csv", "--replicas-for", "7")
	if got.code != 2 || !strings.Contains(got.err, "cannot be told from a closed loop") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// What cannot be told of one question keeps the answer to the other neither from being printed nor from the right reason.
func TestQuestionsOfFiguresAlone(t *testing.T) {
	inRuns(t)
	csv := "rate_calls_per_s,ttft_p95_ms\n1,100\n2,150\n3,200\n4,900\n"
	if err := os.WriteFile("own.csv", []byte(csv), 0o666); err != nil {
		t.Fatal(err)
	}
	got := command(t, "knee", "own.csv", "--holds-at", "2", "--replicas-for", "7")
	if got.code != 1 || !strings.Contains(got.out, "7 calls/s need 3 endpoints") && !strings.Contains(got.out, "7 requests/s need 3 endpoints") {
		t.Errorf("exit %d, printed\n%s", got.code, got.out)
	}
	if !strings.Contains(got.err, "the file holds no turns, only figures of them") || strings.Contains(got.err, "three loads") {
		t.Errorf("errors %q", got.err)
	}
}
