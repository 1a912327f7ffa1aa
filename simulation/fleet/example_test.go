package fleet_test

import (
	"fmt"
	"time"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/fleet"
)

// Four engines behind a router that knows their caches; one of them fails.
func Example() {
	recipe, err := engine.Preset("llama-3.1-8b", "l40s")
	if err != nil {
		fmt.Println(err)
		return
	}
	c := fleet.Default()
	c.Router.Policy = fleet.KV
	c.Retry = fleet.Resume
	c.Replicas = fleet.Replicas(4, recipe)
	fail, err := fleet.ParseEvent("fail 2 at 10s for 30s")
	if err != nil {
		fmt.Println(err)
		return
	}
	c.Events = append(c.Events, fail)
	f, err := fleet.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	for id := range 100 {
		at := time.Duration(id) * 300 * time.Millisecond
		f.AdvanceTo(at, nil)
		f.Submit(at, engine.Request{ID: uint64(id), Call: id, Prompt: prompt(id%8, id), MaxTokens: 100})
	}
	for at, ok := f.Next(); ok; at, ok = f.Next() {
		f.AdvanceTo(at, nil)
	}
	r := f.Report(time.Minute)
	fmt.Printf("%d finished, %d failed; most found their prefix: %v\n", r.Finished, r.Failed, r.HitRate() > .5)
	// Output:
	// 100 finished, 0 failed; most found their prefix: true
}

// prompt is 2,048 tokens that are the same for a customer, and 512 of its own.
func prompt(customer, request int) []engine.Token {
	out := make([]engine.Token, 2560)
	for i := range out {
		out[i] = engine.Token(1000 + customer*10_000 + i)
		if i >= 2048 {
			out[i] += engine.Token(1_000_000 + request*10_000)
		}
	}
	return out
}
