// Package helptest holds the help text of a command to what the command does.
package helptest

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"kneefinder/measurement"
)

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--(\S+?)=(\S+)`)

// Defaults wants that to give any flag the default that the help text shows for it changes nothing: neither the Config that
// results nor the flags themselves. What has a capital letter stands for a value and is no default. parse reads arguments into the
// struct of the command's flags, a pointer, and makes a Config of them; named are flags that must be among the ones that are held
// to it. It is for one test at a time.
func Defaults(t *testing.T, help string, parse func(t *testing.T, args ...string) (flags any, c measurement.Config), named ...string) {
	t.Helper()
	was, before := parse(t)
	seen := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
		name, shown := m[1], strings.Trim(m[2], `"`)
		if strings.ContainsFunc(shown, unicode.IsUpper) {
			continue
		}
		seen[name] = true
		is, after := parse(t, "--"+name+"="+shown)
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("the help text shows --%s=%s; to give it makes a difference (-without +with):\n%s", name, shown, d)
		}
		unset(reflect.ValueOf(was).Elem())
		unset(reflect.ValueOf(is).Elem())
		if !reflect.DeepEqual(was, is) {
			t.Errorf("the help text shows --%s=%s, which is no default:\n without %+v\n with    %+v", name, shown, was, is)
		}
	}
	for _, name := range named {
		if !seen[name] {
			t.Errorf("the help text shows no default for --%s:\n%s", name, help)
		}
	}
}

// unset clears the pointers of a struct of flags: where a flag is given at all is what they tell.
func unset(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			unset(f)
		case f.Kind() == reflect.Pointer && f.CanSet():
			f.SetZero()
		}
	}
}
