package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Version is set when a release is built.
var Version = "dev"

// Main runs a command until it ends or the process is told to stop, and exits with its code.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(Code(err))
}

// Streams are where a command writes: results to Out, everything else to Err.
type Streams struct{ Out, Err io.Writer }

// Run reads args into grammar and runs the command they name; its Run method may take a context.Context and Streams.
func Run(ctx context.Context, grammar any, name, description string, args []string, stdout, stderr io.Writer, options ...kong.Option) error {
	cmd, done, err := parse(grammar, name, description, args, stdout, stderr, options...)
	if done || err != nil {
		return err
	}
	cmd.BindTo(ctx, (*context.Context)(nil))
	cmd.Bind(Streams{stdout, stderr})
	return cmd.Run()
}

// parse returns what to run; done is true when help or the version was asked for and printed.
func parse(grammar any, name, description string, args []string, stdout, stderr io.Writer, options ...kong.Option) (cmd *kong.Context, done bool, err error) {
	exited := false
	parser, err := kong.New(grammar, append(options, kong.Name(name), kong.Description(description+"\n\nEvery flag can stand in the environment too, --step-duration as "+strings.ToUpper(name)+"_STEP_DURATION; a flag wins."), kong.UsageOnError(), kong.Configuration(loadConfig), kong.DefaultEnvars(strings.ToUpper(name)), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }), kong.Vars{"version": name + " " + Version, "presets": PresetNames},
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }), // the description tells of the environment once
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "workload", Title: "What callers do"}, {Key: "steps", Title: "Steps"}, {Key: "endpoint", Title: "The endpoint"},
			{Key: "recipe", Title: "The simulated engine"}, {Key: "output", Title: "Files"}}))...)
	if err != nil {
		panic(err) // the grammar is ours
	}
	cmd, err = parser.Parse(args)
	if exited {
		return nil, true, nil
	}
	if err != nil {
		var perr *kong.ParseError
		if errors.As(err, &perr) {
			return nil, false, Usage("%w (see %s --help)", err, name)
		}
		return nil, false, Usage("%w", err)
	}
	return cmd, false, nil
}
