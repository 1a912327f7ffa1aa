package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"kneefinder/cmd/internal/cli"
	"kneefinder/measurement"
)

// input is a file that was named, or standard input. What can be read only once, as a pipe, is in memory.
type input struct {
	name string // as it stands in what is said of it
	data []byte
	held bool // data is all of it
}

const stdin = "-"

// open says in a sentence what keeps a file from being read.
func open(path string) (input, error) {
	if path == stdin {
		data, err := io.ReadAll(os.Stdin)
		if err != nil {
			return input{}, fmt.Errorf("standard input cannot be read: %w", err)
		}
		return input{"standard input", data, true}, nil
	}
	info, err := os.Stat(path)
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return input{}, fmt.Errorf("%s: there is no such file", path)
	case errors.As(err, &at):
		return input{}, fmt.Errorf("%s cannot be read: %w", path, at.Err)
	case err != nil:
		return input{}, fmt.Errorf("%s cannot be read: %w", path, err)
	case info.IsDir():
		return input{}, fmt.Errorf("%s is a folder: name the files in it", path)
	case info.Mode().IsRegular():
		return input{name: path}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return input{}, fmt.Errorf("read: %w", err)
	}
	return input{path, data, true}, nil
}

// openEach opens files, or says of all that cannot be read, why.
func openEach(paths []string) ([]input, error) {
	var out []input
	var errs []error
	piped := 0
	for _, path := range paths {
		if path == stdin || path == "/dev/stdin" {
			if piped++; piped > 1 {
				return nil, cli.Usage("standard input is named %d times and can be read once", piped)
			}
		}
		in, err := open(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, in)
	}
	return out, errors.Join(errs...)
}

// log reads a turn log.
func (in input) log() (measurement.Log, error) {
	if in.held {
		return measurement.ReadLog(bytes.NewReader(in.data), in.name)
	}
	return measurement.OpenLog(in.name)
}

// packed reads a turn log, with its turns packed.
func (in input) packed() (measurement.Log, error) {
	if in.held {
		return measurement.ReadPacked(bytes.NewReader(in.data), in.name)
	}
	return measurement.OpenPacked(in.name)
}

// whole is all of it.
func (in input) whole() ([]byte, error) {
	if in.held {
		return in.data, nil
	}
	data, err := os.ReadFile(in.name)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return data, nil
}

// head is how it begins.
func (in input) head() ([]byte, error) {
	const most = 64 << 10
	if in.held {
		return in.data[:min(len(in.data), most)], nil
	}
	f, err := os.Open(in.name)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// keep refuses to write over a file that is read.
func keep(output string, files ...string) error {
	over, err := os.Stat(output)
	if err != nil || !over.Mode().IsRegular() {
		return nil
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && os.SameFile(over, info) {
			return cli.Usage("-o %s: that is the file that is read: choose another name", output)
		}
	}
	return nil
}
