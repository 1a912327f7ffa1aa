//go:build nodemo

package main

import "errors"

// demo stands in where the engine model is left out of the build.
type demo struct{}

func (*demo) Run() error { return errors.New("this build has no engine model: demo is left out") }
