package main

import (
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
		{[]string{"--replicas-for", "2.5"}, 0, "2.5 calls/s need "},
		{[]string{"--replicas-for", "1e9"}, 2, "--replicas-for 1e+09: give calls per second"},
		{[]string{"--replicas-for", "2", "--json"}, 2, "leave one out"},
		{[]string{"--holds-at", "0.5"}, 0, "At 0.5 the TTFT objective holds in the long run with a probability of "},
	} {
		got := command(t, append([]string{"knee", "results/L40S.turns.jsonl"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%v: exit %d, %s%s; want exit %d and %q", c.args, got.code, got.out, got.err, c.code, c.want)
		}
	}
}
