package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"kneefinder/cmd/internal/cli"
	"kneefinder/generator/workload"
	"kneefinder/simulation/engine/kv"
)

// traceHits is the command kneesim hits: what prefix caches of several sizes would find of a trace, without any engine.
type traceHits struct {
	Trace  string `arg:"" help:"A trace with hash ids, as Mooncake publishes them." type:"existingfile" placeholder:"FILE"`
	Block  int    `help:"Tokens that a hash id stands for." default:"512"`
	Blocks []int  `help:"Sizes of the cache, in blocks, with commas between; 0 is no limit." default:"1000,5000,10000,20000,50000,0" placeholder:"NUMBER,..."`
}

// Help is what hits --help says beyond its flags.
func (*traceHits) Help() string {
	return "Two caches are shown for each size. The flat one is a list of blocks by last use, whatever they belong to, each there from the arrival of its " +
		"request on and touched from the first block of a prompt to the last: so published hit rates of traces are often computed. The radix one is " +
		"what engines have: leaves go first, and blocks are there when they are computed; requests come one after the other.\n\n" +
		"Example:\n  kneesim hits conversation_trace.jsonl --blocks 1000,10000,0"
}

// Run prints the table.
func (h *traceHits) Run(std cli.Streams) error {
	if h.Block < 1 {
		return cli.Usage("--block is %d, must be at least 1", h.Block)
	}
	for _, n := range h.Blocks {
		if n < 0 {
			return cli.Usage("--blocks: %d is no size; give numbers of blocks, or 0 for no limit", n)
		}
	}
	f, err := os.Open(h.Trace)
	if err != nil {
		return err
	}
	defer f.Close()
	trace, err := workload.ReadTrace(f, h.Trace, h.Block)
	if err != nil {
		return err
	}
	if !trace.Hashed() {
		return fmt.Errorf("%s has no hash ids: nothing is known of what its prompts share", h.Trace)
	}
	requests := func(yield func(kv.Blocks) bool) {
		for i := range trace.Len() {
			r := trace.Row(i)
			ids := make([]uint64, len(r.IDs))
			for k, id := range r.IDs {
				ids[k] = uint64(id)
			}
			if !yield(kv.Blocks{Tokens: r.Input, IDs: ids}) {
				return
			}
		}
	}
	h.print(std.Out, trace.Len(), kv.Replay(requests, h.Block, h.Blocks...))
	return nil
}

func (h *traceHits) print(w io.Writer, requests int, table []kv.Replayed) {
	fmt.Fprintf(w, "%d requests of %s, blocks of %d tokens. Hit rates in %%:\n\n", requests, h.Trace, h.Block)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "blocks\tflat: of blocks\tof tokens\tradix: of blocks\tof tokens\t")
	for _, r := range table {
		size := "no limit"
		if r.Capacity > 0 {
			size = strconv.Itoa(r.Capacity)
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", size, 100*r.Flat.BlockRate(), 100*r.Flat.TokenRate(), 100*r.Radix.BlockRate(), 100*r.Radix.TokenRate())
	}
	t.Flush()
}
