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
	Unmet  = 3 // what was asked for as a condition does not hold
)

// usage is an error of the caller's making.
type usage struct{ error }

// Usage makes an error that ends the command with Misuse.
func Usage(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// unmet is a condition that does not hold.
type unmet struct{ error }

// NotMet makes an error that ends the command with Unmet.
func NotMet(format string, args ...any) error { return unmet{fmt.Errorf(format, args...)} }

// Code is the exit code for what a command returned.
func Code(err error) int {
	var u usage
	var c unmet
	switch {
	case err == nil:
		return Done
	case errors.As(err, &c):
		return Unmet
	case errors.As(err, &u):
		return Misuse
	}
	return Failed
}
