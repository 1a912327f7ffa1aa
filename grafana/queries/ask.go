package queries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Server is a running Prometheus. Its methods may be called by several goroutines at once.
type Server struct {
	URL string // such as http://127.0.0.1:9090
}

// Span is the stretch of time that is asked about.
type Span struct {
	From, To time.Time
	Step     time.Duration // between the points of a range
}

// Answer is what a query found.
type Answer struct {
	Query
	Series  int      // that have a value in the span
	Numbers int      // values in all, those that are not a number left out
	Missed  []string // selectors that find no series
	Err     error
}

// OK reports that the query found at least one number, and series for all that it asks for.
func (a Answer) OK() bool { return a.Err == nil && a.Numbers > 0 && len(a.Missed) == 0 }

func (a Answer) String() string {
	switch {
	case a.Err != nil:
		return fmt.Sprintf("%s: %v", a.Query, a.Err)
	case len(a.Missed) > 0:
		return fmt.Sprintf("%s: no series for %s", a.Query, strings.Join(a.Missed, ", nor for "))
	case a.Series == 0:
		return fmt.Sprintf("%s: no data", a.Query)
	case a.Numbers == 0:
		return fmt.Sprintf("%s: %d series, none with a number", a.Query, a.Series)
	}
	return fmt.Sprintf("%s: %d series, %d numbers", a.Query, a.Series, a.Numbers)
}

// Ask puts queries to the server, as Grafana would with the variables set and the span as its time range, which may lie in the
// past. A query that asks for one instant is asked at the end of the span; variables that are computed come first.
func (s Server) Ask(ctx context.Context, asked []Query, v Variables, over Span) ([]Answer, error) {
	v, err := s.Compute(ctx, asked, v, over)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	has := func(n Need) bool { return known[n.Selector] }
	var out []Answer
	for _, q := range asked {
		a := Answer{Query: q}
		expr := v.With(q.Expr)
		n, err := NeedOf(expr)
		if err != nil {
			a.Err = err
			out = append(out, a)
			continue
		}
		for _, selector := range n.Selectors() {
			if _, seen := known[selector.Selector]; seen {
				continue
			}
			found, err := s.exists(ctx, selector.Selector, over)
			if err != nil {
				return nil, err
			}
			known[selector.Selector] = found
		}
		a.Missed = n.Met(has)
		if q.Kind == Variable { // Grafana lists the labels of the series of the whole range
			if a.Missed == nil {
				a.Series, a.Numbers = 1, 1
			}
			out = append(out, a)
			continue
		}
		a.Series, a.Numbers, err = s.evaluate(ctx, expr, over, q.Instant)
		var refused refusal
		if errors.As(err, &refused) {
			a.Err, err = refused, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Compute returns the variables with the span as the time range, and with what the computed ones among the queries have as their
// value; one that has none keeps what it is set to.
func (s Server) Compute(ctx context.Context, asked []Query, v Variables, over Span) (Variables, error) {
	v = maps.Clone(v)
	v["__range_s"] = strconv.Itoa(max(int(over.To.Sub(over.From).Seconds()), 1))
	v["__range"] = v["__range_s"] + "s"
	for _, q := range asked {
		if q.Kind != Computed {
			continue
		}
		found, err := s.Vector(ctx, v.With(q.Expr), over.To)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q, err)
		}
		if len(found) == 1 {
			v[q.Where] = strconv.FormatFloat(found[0].Value, 'f', -1, 64)
		}
	}
	return v, nil
}

// Sample is one series and its value at an instant.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Vector asks for an expression at an instant.
func (s Server) Vector(ctx context.Context, expr string, at time.Time) ([]Sample, error) {
	var answer struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := s.get(ctx, "query", url.Values{"query": {expr}, "time": {stamp(at)}}, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var out []Sample
	for _, r := range answer.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s has the value %q, want a number", expr, text)
		}
		out = append(out, Sample{r.Metric, value})
	}
	return out, nil
}

// exists reports whether a selector finds a series in the span.
func (s Server) exists(ctx context.Context, selector string, over Span) (bool, error) {
	series, err := s.series(ctx, selector, over)
	return len(series) > 0, err
}

// series lists the labels of the series that a selector finds in the span.
func (s Server) series(ctx context.Context, selector string, over Span) (series []map[string]string, err error) {
	err = s.get(ctx, "series", url.Values{"match[]": {selector}, "start": {stamp(over.From)}, "end": {stamp(over.To)}}, &series)
	return series, err
}

func (s Server) evaluate(ctx context.Context, expr string, over Span, instant bool) (series, numbers int, err error) {
	var result struct {
		ResultType string
		Result     json.RawMessage
	}
	if instant {
		err = s.get(ctx, "query", url.Values{"query": {expr}, "time": {stamp(over.To)}}, &result)
	} else {
		err = s.get(ctx, "query_range", url.Values{"query": {expr}, "start": {stamp(over.From)}, "end": {stamp(over.To)},
			"step": {strconv.FormatFloat(over.Step.Seconds(), 'f', -1, 64)}}, &result)
	}
	if err != nil {
		return 0, 0, err
	}
	if result.ResultType == "scalar" {
		return 0, 0, refusal("it answers with a number that no metric has a part in")
	}
	var found []struct {
		Value  []any
		Values [][]any
	}
	if err := json.Unmarshal(result.Result, &found); err != nil {
		return 0, 0, fmt.Errorf("read the answer to %s: %w", expr, err)
	}
	for _, f := range found {
		if f.Value != nil {
			f.Values = append(f.Values, f.Value)
		}
		for _, point := range f.Values {
			text, _ := point[len(point)-1].(string)
			if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) {
				numbers++
			}
		}
	}
	return len(found), numbers, nil
}

// refusal is the server's word that it cannot evaluate a query.
type refusal string

func (r refusal) Error() string { return string(r) }

func (s Server) get(ctx context.Context, what string, form url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.URL, "/")+"/api/v1/"+what, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("ask Prometheus at %s: it answers %s, not in Prometheus's words", s.URL, response.Status)
	}
	if answer.Status != "success" {
		return refusal(answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
