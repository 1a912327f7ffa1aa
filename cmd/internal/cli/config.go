package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// ConfigFile is the flag that names a YAML file of flags by their names. A flag given on the command line wins over the
// environment, the environment over the file. A key that is no flag is refused.
type ConfigFile struct {
	Config kong.ConfigFlag `help:"YAML file with values for flags, by their names; flags and the environment win over it." placeholder:"FILE"`
}

// file is a read configuration file.
type file struct {
	path   string
	values map[string]any
}

// loadConfig reads a configuration file.
func loadConfig(r io.Reader) (kong.Resolver, error) {
	f := file{path: "the configuration file", values: map[string]any{}}
	if named, ok := r.(interface{ Name() string }); ok {
		f.path = named.Name()
	}
	if err := yaml.NewDecoder(r).Decode(&f.values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return f, nil
}

// Validate refuses a key that is no flag of any command.
func (f file) Validate(app *kong.Application) error {
	known := map[string]bool{}
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known[flag.Name] = true
		}
		return next(nil)
	})
	var unknown []string
	for key := range f.values {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if slices.Sort(unknown); len(unknown) > 0 {
		return fmt.Errorf("%s: %s: no flag has this name", f.path, strings.Join(unknown, ", "))
	}
	return nil
}

// Resolve returns the file's value for a flag, unless the environment has one.
func (f file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	switch v := value.(type) {
	case []any:
		if flag.IsSlice() && flag.Name == "header" {
			return v, nil
		}
		var parts []string
		for _, x := range v {
			parts = append(parts, fmt.Sprint(x))
		}
		return strings.Join(parts, ","), nil
	case map[string]any:
		b, err := json.Marshal(v)
		return string(b), err
	case bool:
		return v, nil
	}
	return fmt.Sprint(value), nil
}

// Configured reads a configuration file again, while a command runs: its values by the flags' names.
func Configured(path string) (map[string]any, error) {
	if path == "" {
		return nil, errors.New("there is no --config file to read again")
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	resolver, err := loadConfig(r)
	if err != nil {
		return nil, err
	}
	return resolver.(file).values, nil
}

// CheckRate says why a number of calls/s cannot be one.
func CheckRate(v float64) error {
	if v >= 1e-6 && v <= 1e6 { // NaN is neither
		return nil
	}
	return fmt.Errorf("%v cannot be a rate: give calls per second, from 1e-6 to 1e6", v)
}
