package anchor_test

import (
	"context"
	"fmt"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
	"kneefinder/simulation"
	"kneefinder/simulation/anchor"
	"kneefinder/simulation/engine"
)

// An engine model in virtual time is measured as a server would be, and the fit finds what its host takes.
func Example() {
	cfg, _ := engine.Preset("demo", "demo")
	eng, _ := engine.New(cfg)
	words, _ := workload.LexiconByName("english")
	clk, to := simulation.NewRun(eng, words, generator.Limits{})
	plan, _ := anchor.Default(anchor.Limits{Longest: 4096, Batch: 8, Repeats: 1})
	clk.Run(context.Background(), func() {
		data, err := anchor.Measure(context.Background(), anchor.Target{Clock: clk, To: to, Lexicon: words},
			anchor.Setup{Engine: engine.SGLang, Chunk: 2048}, anchor.Server{}, plan)
		if err != nil {
			fmt.Println(err)
			return
		}
		fit, err := anchor.Fit(data, cfg.Model, anchor.Card{Name: "mine", Memory: 8e9})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("a request waits", fit.GPU.Overheads.Request.Round(100*time.Microsecond), "on the host")
		fmt.Println(len(fit.Residuals), "kinds of readings; the largest error is below 2 %:", fit.GPU.Anchor.Worst < 2)
	})
	// Output:
	// a request waits 1.5ms on the host
	// 4 kinds of readings; the largest error is below 2 %: true
}
