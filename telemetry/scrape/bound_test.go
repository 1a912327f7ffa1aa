package scrape

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a page costs is bounded, whatever it holds: a parser that cannot be stopped must not be given what it takes for ever to
// read, and the end of a run waits for it.
func TestPageCostsLittle(t *testing.T) {
	src, err := newSource(Engine, "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Builder{}
	long.WriteString("vllm:num_requests_running{")
	for i := range 100_000 {
		fmt.Fprintf(&long, "l%d=\"x\",", i)
	}
	many := strings.Builder{}
	for i := range 80_000 {
		fmt.Fprintf(&many, "vllm:num_requests_running{engine=\"%d\",model_name=\"a name of some length, as they have\"} 1\n", i)
	}
	for what, text := range map[string]string{
		"one long line": long.String() + "} 1\nvllm:num_requests_waiting{engine=\"0\"} 3\n",
		"many lines":    "vllm:num_requests_waiting{engine=\"0\"} 3\n" + many.String(),
	} {
		began := time.Now()
		p := readPage(body{text: []byte(text)}, src.wants())
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: took %v", what, took)
		}
		if p.trouble == "" || len(p.series["vllm:num_requests_running"]) > 0 || len(p.series["vllm:num_requests_waiting"]) != 1 {
			t.Errorf("%s: trouble %q, %d running, %d waiting; want one that names the line, the family left out and the other read", what, p.trouble,
				len(p.series["vllm:num_requests_running"]), len(p.series["vllm:num_requests_waiting"]))
		}
	}
}
