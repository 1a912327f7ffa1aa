// Grafana writes the dashboards and the table of what they ask, and asks a running Prometheus whether it can answer.
//
// Usage, in this folder:
//
//	go run .                                              write dashboards/*.json and ../docs/grafana-queries.md
//	go run . --prometheus http://127.0.0.1:9090 --label mock    run every query and recording rule, and name those without an answer
//
// The exit status is 0 when all is well, 1 when something is not, 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"kneefinder/grafana/boards"
	"kneefinder/grafana/queries"
)

const (
	folder = "dashboards"
	table  = "../docs/grafana-queries.md"
	rules  = "rules/kneeload.rules.yml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("grafana", flag.ContinueOnError)
	flags.SetOutput(stderr)
	server := flags.String("prometheus", "", "ask the Prometheus at this `URL` every query, instead of writing the boards")
	label := flags.String("label", "", "the run's `label`, for --prometheus")
	since := flags.Duration("since", 30*time.Minute, "how far back to ask, for --prometheus")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	all, err := boards.All()
	if err != nil {
		return err
	}
	if *server == "" {
		return write(all)
	}
	if *label == "" {
		fmt.Fprintln(stderr, "grafana: --prometheus wants --label, the label of the run that the boards are to show")
		return errUsage
	}
	asked, err := listed(all)
	if err != nil {
		return err
	}
	now := time.Now()
	answers, err := queries.Server{URL: *server}.Ask(ctx, asked, queries.Picked(*label), queries.Span{From: now.Add(-*since), To: now, Step: 5 * time.Second})
	if err != nil {
		return err
	}
	missing := 0
	for _, a := range answers {
		if !a.OK() {
			missing++
			fmt.Fprintln(stdout, a)
		}
	}
	fmt.Fprintf(stdout, "%d of %d queries have an answer\n", len(answers)-missing, len(answers))
	if missing > 0 {
		return fmt.Errorf("%d queries have no answer", missing)
	}
	return nil
}

// listed returns what the boards and the recording rules ask.
func listed(all []boards.Board) ([]queries.Query, error) {
	var out []queries.Query
	for _, b := range all {
		asked, err := queries.OfBoard(b.File, b.Dashboard)
		if err != nil {
			return nil, err
		}
		out = append(out, asked...)
	}
	raw, err := os.ReadFile(rules)
	if err != nil {
		return nil, fmt.Errorf("%w: run it in the folder grafana", err)
	}
	recorded, err := queries.OfRules(filepath.Base(rules), raw)
	return append(out, recorded...), err
}

func write(all []boards.Board) error {
	asked, err := listed(all)
	if err != nil {
		return err
	}
	for _, b := range all {
		raw, err := b.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, b.File), raw, 0o644); err != nil {
			return fmt.Errorf("write board: %w", err)
		}
	}
	return os.WriteFile(table, markdown(asked), 0o644)
}

// markdown is the table of queries.
func markdown(asked []queries.Query) []byte {
	var b strings.Builder
	b.WriteString("# What the boards ask\n\nEvery query of every board and every recording rule. `go run .` in grafana writes this file; a test keeps it so.\n")
	var file string
	for _, q := range asked {
		if q.File != file {
			file = q.File
			fmt.Fprintf(&b, "\n## %s\n\n| | query |\n|---|---|\n", file)
		}
		where := q.Where
		if q.Kind != queries.Panel && q.Kind != queries.Recording {
			where = string(q.Kind) + ": " + where
		}
		fmt.Fprintf(&b, "| %s | `%s` |\n", where, strings.ReplaceAll(strings.Join(strings.Fields(q.Expr), " "), "|", `\|`))
	}
	return []byte(b.String())
}
