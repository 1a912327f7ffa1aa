package cli

import (
	"errors"
	"fmt"
)

// The exit codes of every command.
const (
	Done   = 0
	Failed = 1
	Misuse = 2
)

// usage is an error of the caller's making.
type usage struct{ error }

// Usage makes an error that ends the command with Misuse.
func Usage(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// Code is the exit code for what a command returned.
func Code(err error) int {
	var u usage
	switch {
	case err == nil:
		return Done
	case errors.As(err, &u):
		return Misuse
	}
	return Failed
}
