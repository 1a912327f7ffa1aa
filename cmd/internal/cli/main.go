package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Version is set when a release is built.
var Version = "dev"

// Main runs a command until it ends or the process is told to stop, and exits with its code.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	exit(err)
}

// MainAtOnce is Main for a command that has nothing to bring to an end: the first signal ends the process.
func MainAtOnce(run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// exit tells of err, if there is one, and ends the process with its code.
func exit(err error) {
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
	out := &remembering{w: stdout}
	cmd.BindTo(ctx, (*context.Context)(nil))
	cmd.Bind(Streams{out, stderr})
	if err := cmd.Run(); err != nil || out.err == nil {
		return err
	}
	return fmt.Errorf("write the results to standard output: %w", out.err)
}

// remembering passes on what is written and remembers the first error, so that no result is lost in silence. It is for one goroutine at
// a time.
type remembering struct {
	w   io.Writer
	err error
}

func (r *remembering) Write(b []byte) (int, error) {
	n, err := r.w.Write(b)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// parse returns what to run; done is true when help or the version was asked for and printed.
func parse(grammar any, name, description string, args []string, stdout, stderr io.Writer, options ...kong.Option) (cmd *kong.Context, done bool, err error) {
	exited := false
	parser, err := kong.New(grammar, append(options, kong.Name(name), kong.Description(description+"\n\nA flag can also stand in the environment, as "+strings.ToUpper(name)+"_ and its name in capitals with _ for -; on the command line it wins."), kong.UsageOnError(), kong.Configuration(loadConfig), kong.DefaultEnvars(strings.ToUpper(name)), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }), kong.Vars{"version": name + " " + Version, "presets": PresetNames},
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }), // the description tells of the environment once
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "workload", Title: "What callers do"}, {Key: "steps", Title: "Steps"}, {Key: "endpoint", Title: "The endpoint"},
			{Key: "watch", Title: "Watching it, and the other side"}, {Key: "recipe", Title: "The simulated engine"}, {Key: "fleet", Title: "Several engines behind a router"}, {Key: "output", Title: "Files"}}))...)
	if err != nil {
		panic(err) // the grammar is ours
	}
	for _, n := range parser.Model.Children {
		n.Detail = strings.ReplaceAll(n.Detail, "${program}", name)
	}
	cmd, err = parser.Parse(args)
	if exited {
		return nil, true, nil
	}
	if err != nil {
		var perr *kong.ParseError
		if errors.As(err, &perr) {
			if sub := perr.Context.Command(); sub != "" {
				name += " " + strings.Fields(sub)[0]
			}
			return nil, false, Usage("%w (see %s --help)", err, name)
		}
		return nil, false, Usage("%w", err)
	}
	if err := checkNumbers(cmd); err != nil {
		return nil, false, Usage("%w", err)
	}
	warnUnknown(parser.Model, strings.ToUpper(name)+"_", stderr)
	return cmd, false, nil
}

// checkNumbers refuses what reads as a number and is none: NaN and infinity, which no flag means, alone or in a list.
func checkNumbers(cmd *kong.Context) error {
	for _, flag := range cmd.Flags() {
		if n, ok := noNumber(flag.Target); ok {
			return fmt.Errorf("--%s: %v is not a number to go by: give a finite one", flag.Name, n)
		}
	}
	return nil
}

// noNumber finds NaN or an infinity in a flag's value.
func noNumber(v reflect.Value) (n float64, found bool) {
	switch v.Kind() {
	case reflect.Float64:
		n = v.Float()
		return n, math.IsNaN(n) || math.IsInf(n, 0)
	case reflect.Pointer:
		if !v.IsNil() {
			return noNumber(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if n, found = noNumber(v.Index(i)); found {
				return n, true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if n, found = noNumber(v.MapIndex(key)); found {
				return n, true
			}
		}
	}
	return 0, false
}

// warnUnknown tells of variables that look like flags and are none: a mistyped one would be passed over in silence.
func warnUnknown(app *kong.Application, prefix string, stderr io.Writer) {
	known := map[string]bool{prefix + "API_KEY": true}
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, env := range flag.Envs {
				known[env] = true
			}
		}
		return next(nil)
	})
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix) && !known[name] {
			fmt.Fprintf(stderr, "warning: %s in the environment is no flag of this program\n", name)
		}
	}
}
