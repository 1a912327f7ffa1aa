// Package queries reads what dashboards and rules ask of Prometheus, and asks it.
package queries

//lint:file-ignore SA1019 Grafana 10 to 13 all read the classic model; the one that is to follow it, 12 does not know.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"go.yaml.in/yaml/v3"
)

// Query is one question and where it stands.
type Query struct {
	File  string // of the board or the rules
	Where string // the panel's title and the query's letter, the name of a rule, of a variable or of an annotation
	Kind  Kind
	Expr  string // as it is written, variables and all
	// Instant says that the answer is wanted at one instant only.
	Instant bool
}

// Kind is what a query is for.
type Kind string

// The kinds of queries.
const (
	Panel      Kind = "panel"
	Annotation Kind = "annotation"
	Variable   Kind = "variable"          // Expr is the selector whose label's values are listed
	Computed   Kind = "computed variable" // named Where; its value is that of Expr at the end of the time range
	Recording  Kind = "recording rule"
	Alert      Kind = "alert"
)

func (q Query) String() string { return q.File + ": " + string(q.Kind) + " " + q.Where }

// values reads label_values(selector, label), and result query_result(expression): the ways in which the boards fill a variable.
var (
	values = regexp.MustCompile(`^label_values\((.*), ?(\w+)\)$`)
	result = regexp.MustCompile(`^query_result\((.*)\)$`)
)

// OfBoard lists the queries of a dashboard in the classic model, in the order in which they stand: variables, annotations,
// panels.
func OfBoard(file string, d dashboard.Dashboard) ([]Query, error) {
	var out []Query
	for _, v := range d.Templating.List {
		if v.Query == nil || v.Type != dashboard.VariableTypeQuery {
			continue
		}
		text, _ := v.Query.Map["query"].(string)
		if v.Query.String != nil {
			text = *v.Query.String
		}
		if parts := values.FindStringSubmatch(text); parts != nil {
			out = append(out, Query{File: file, Where: v.Name, Kind: Variable, Expr: parts[1], Instant: true})
		} else if parts := result.FindStringSubmatch(text); parts != nil {
			out = append(out, Query{File: file, Where: v.Name, Kind: Computed, Expr: parts[1], Instant: true})
		} else {
			return nil, fmt.Errorf("%s: variable %s asks %q, want label_values(selector, label) or query_result(expression)", file, v.Name, text)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != nil {
			out = append(out, Query{File: file, Where: a.Name, Kind: Annotation, Expr: *a.Expr})
		}
	}
	for _, p := range Panels(d) {
		for _, t := range p.Targets {
			q, ok := target(t)
			if !ok {
				return nil, fmt.Errorf("%s: panel %q asks something other than Prometheus: %T", file, deref(p.Title), t)
			}
			out = append(out, Query{File: file, Where: deref(p.Title) + " " + deref(q.RefId), Kind: Panel, Expr: q.Expr, Instant: deref(q.Instant)})
		}
	}
	return out, nil
}

// Panels lists the panels of a dashboard, those in rows too, without the rows.
func Panels(d dashboard.Dashboard) []dashboard.Panel {
	var out []dashboard.Panel
	for _, p := range d.Panels {
		if p.Panel != nil {
			out = append(out, *p.Panel)
		}
		if p.RowPanel != nil {
			out = append(out, p.RowPanel.Panels...)
		}
	}
	return out
}

func target(t any) (prometheus.Dataquery, bool) {
	switch q := t.(type) {
	case prometheus.Dataquery:
		return q, true
	case *prometheus.Dataquery:
		return *q, true
	}
	return prometheus.Dataquery{}, false
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// OfRules lists the rules of a Prometheus rule file.
func OfRules(file string, raw []byte) ([]Query, error) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(raw, &rules); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var out []Query
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			kind := Recording
			if r.Alert != "" {
				kind = Alert
			}
			out = append(out, Query{File: file, Where: cmp.Or(r.Record, r.Alert), Kind: kind, Expr: strings.TrimSpace(r.Expr), Instant: true})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read %s: %w", file, errors.New("it holds no rule"))
	}
	return out, nil
}

// Variables are what a dashboard's variables are replaced by, by name without the dollar.
type Variables map[string]string

// With returns the expression as Grafana sends it.
func (v Variables) With(expr string) string {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	// Longest first: $job is the beginning of no other, but $gpu_job must not end as $gpu.
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	for _, name := range names {
		expr = strings.NewReplacer("${"+name+"}", v[name], "$"+name, v[name]).Replace(expr)
	}
	return expr
}

// Read decodes a dashboard file. It is strict: a field that the SDK does not know, or one that it misses, is an error.
func Read(raw []byte) (dashboard.Dashboard, error) {
	// The SDK's strict decoding returns an empty list of errors where there is none, and by that loses the panels: it checks
	// here, and the lenient one decodes.
	var checked, d dashboard.Dashboard
	var faults cog.BuildErrors
	if err := checked.UnmarshalJSONStrict(raw); err != nil && (!errors.As(err, &faults) || len(faults) > 0) {
		return d, err
	}
	err := json.Unmarshal(raw, &d)
	return d, err
}

// Picked are the variables of the boards as they stand when one run is picked and nothing else: everything, as Grafana writes
// "All", windows of rates as wide as those of the panels at a scrape interval of one second, a time range of half an hour, and a
// run that began with it. Ask puts its own range, and what the boards compute, in their place.
func Picked(label string) Variables {
	v := Variables{"label": label, "__rate_interval": "31s", "__interval": "30s", "__range": "1800s", "__range_s": "1800", "run_s": "1800"}
	for _, name := range []string{"job", "instance", "engine_job", "engine_instance", "gpu_job", "gpu_instance"} {
		v[name] = ".+"
	}
	return v
}
