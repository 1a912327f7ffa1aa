package queries

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Need says which series a query must find to be able to answer: all of All, and one at least of each of the alternatives that
// an "or" names.
type Need struct {
	Selector string // of one set of series; empty in the two others
	Family   string // the metric of Selector, without the suffix of a histogram's or a summary's series
	All      []Need
	Any      []Need
}

// NeedOf reads an expression whose variables have been replaced.
func NeedOf(expr string) (Need, error) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return Need{}, fmt.Errorf("parse %s: %w", expr, err)
	}
	return need(tree), nil
}

func need(at parser.Node) Need {
	if s, ok := at.(*parser.VectorSelector); ok {
		return Need{Selector: s.String(), Family: Family(s.Name)}
	}
	var parts []Need
	for child := range parser.ChildrenIter(at) {
		parts = append(parts, need(child))
	}
	if b, ok := at.(*parser.BinaryExpr); ok && b.Op == parser.LOR {
		return Need{Any: parts}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return Need{All: parts}
}

// Met reports whether the query can answer where has tells which selectors find a series; else it returns the selectors that
// are missed, those of alternatives joined by " or ".
func (n Need) Met(has func(Need) bool) (missed []string) {
	switch {
	case n.Selector != "":
		if !has(n) {
			return []string{n.Selector}
		}
	case len(n.Any) > 0:
		var all []string
		for _, alternative := range n.Any {
			m := alternative.Met(has)
			if len(m) == 0 {
				return nil
			}
			all = append(all, m...)
		}
		return []string{strings.Join(all, " or ")}
	default:
		for _, part := range n.All {
			missed = append(missed, part.Met(has)...)
		}
	}
	return missed
}

// Selectors lists every selector of the query, alternatives too.
func (n Need) Selectors() []Need {
	if n.Selector != "" {
		return []Need{n}
	}
	var out []Need
	for _, part := range slices.Concat(n.All, n.Any) {
		out = append(out, part.Selectors()...)
	}
	return out
}

// Family is the name of a metric without the suffix of the series that make up a histogram or a summary.
func Family(series string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if family, ok := strings.CutSuffix(series, suffix); ok {
			return family
		}
	}
	return series
}
