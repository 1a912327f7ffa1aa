//go:build !nodemo

package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"kneefinder/cmd/internal/cli"
	"kneefinder/cmd/internal/recipe"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// demo is the whole path in one process: the mock server on loopback, swept over real HTTP.
type demo struct {
	Out  string `help:"Folder of the files demo.*, which are replaced." default:"results" complete:"dir"`
	Seed uint64 `help:"Seed of everything drawn." default:"1"`
}

func (d *demo) Run(ctx context.Context, std cli.Streams) error {
	cfg, err := recipe.Recipe{}.Config("demo")
	if err != nil {
		return err
	}
	eng, err := engine.New(cfg)
	if err != nil {
		return err
	}
	filled := cfg.Filled().Recipe
	mock := mockserver.New(mockserver.Config{ModelName: cfg.Model.Name, GPU: cfg.GPU.Name, ContextLimit: filled.ContextLimit,
		ChunkedPrefill: filled.ChunkedPrefill, MemFraction: filled.MemFraction, Version: cli.Version}, eng)
	defer mock.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback for the demo's engine: %w", err)
	}
	server := &http.Server{Handler: mock.Handler(), ErrorLog: log.New(std.Err, "mock server: ", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close()
		<-served
	}()

	fmt.Fprintf(std.Err, "an engine model with room for about %d tokens of KV, on %s; calls of 2,700 tokens and %d turns arrive as a Poisson process\n",
		eng.Stats().KVPoolTokens, listener.Addr(), 4)
	s := sweep{Preconnect: true, Workload: cli.Workload{Calls: cli.Calls{Preset: "demo", Seed: d.Seed}, Extend: true}, Output: cli.Output{Label: "demo", Out: d.Out, Overwrite: true}}
	s.BaseURL = "http://" + listener.Addr().String()
	s.TTFTTimeout, s.IdleTimeout, s.TotalTimeout = cli.Seconds(30*time.Second), cli.Seconds(30*time.Second), cli.Seconds(60*time.Second)
	s.watch = watch{Listen: []string{"127.0.0.1:0"}, TelemetryPath: "/metrics", LogLevel: "warn", EngineMetrics: "auto", ScrapeEvery: cli.Seconds(time.Second)}
	c, err := s.Workload.Config()
	if err != nil {
		return err
	}
	return s.run(ctx, std, c)
}
