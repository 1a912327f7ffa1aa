// Grafana writes the dashboards and the table of what they ask, and asks a running Prometheus whether it can answer.
//
// Usage, in this folder:
//
//	go run .                                              write dashboards/*.json and ../docs/grafana-queries.md
//	go run . --prometheus http://127.0.0.1:9090 --label mock    run every query and recording rule; name those without an answer, and why
//
// The exit status is 0 when all is well, which is also when the run or the servers cannot have what is absent (a run that goes on has
// no knee, a host without a GPU exporter no power); 1 when something is missing or there is no run of that label; 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
	return check(ctx, stdout, queries.Server{URL: *server}, asked, *label, queries.Span{From: now.Add(-*since), To: now, Step: 5 * time.Second})
}

// check asks what the boards and rules ask of a run, and says what is absent: first what is so for a known reason, then what is
// missing.
func check(ctx context.Context, stdout io.Writer, server queries.Server, asked []queries.Query, label string, over queries.Span) error {
	v := queries.Picked(label)
	facts, err := server.Facts(ctx, v, over)
	if err != nil {
		return err
	}
	if !facts.Known {
		return errors.New(facts.String())
	}
	fmt.Fprintln(stdout, facts)
	// What a rule makes of a run is there while the run is. A range is asked at its last sight too, however short the run was.
	over.To = facts.LastSeen
	over.From = over.To.Add(-over.To.Sub(over.From).Truncate(over.Step))
	answers, err := server.Ask(ctx, asked, v, over)
	if err != nil {
		return err
	}
	excused := map[string][]queries.Answer{}
	var missing []queries.Answer
	answered := 0
	for _, a := range answers {
		switch reason := facts.Excuse(a); {
		case a.OK():
			answered++
		case reason != "":
			excused[reason] = append(excused[reason], a)
		default:
			missing = append(missing, a)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(excused)) {
		fmt.Fprintf(stdout, "absent, because %s:\n", reason)
		for _, a := range excused[reason] {
			fmt.Fprintf(stdout, "  %s\n", a.Query)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintln(stdout, "missing:")
		for _, a := range missing {
			fmt.Fprintf(stdout, "  %s\n", a)
		}
	}
	fmt.Fprintf(stdout, "%d of %d queries have an answer, %d are absent for a known reason, %d are missing\n",
		answered, len(answers), len(answers)-answered-len(missing), len(missing))
	if len(missing) > 0 {
		return fmt.Errorf("%d queries have no answer", len(missing))
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
