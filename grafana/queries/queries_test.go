package queries_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"

	"kneefinder/grafana/queries"
)

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		expr, has string // the families that have series
		missed    string
		why       string
	}{
		{`sum(rate(a_total{x="1"}[1m]))`, "a_total", "", "a call and an aggregation need what is in them"},
		{`sum(rate(a_total{x="1"}[1m]))`, "b", `a_total{x="1"}`, "and miss it"},
		{`a / on () group_left () b`, "a", "b", "both sides of an operator are needed"},
		{`a or b or c`, "c", "", "one alternative is enough"},
		{`a or b or c`, "d", "a or b or c", "none is not"},
		{`(a / b) or c`, "a", "b or c", "an alternative needs all of its own"},
		{`x * (a or b)`, "x", "a or b", "an or deep inside"},
		{`count_values("v", a) * 1000`, "a", "", "the parameter of an aggregation needs nothing"},
		{`a and on (l) b`, "a", "b", "and needs both"},
		{`histogram_quantile(.5, sum by (le) (rate(h_bucket[1m])))`, "h", "", "a bucket is of its family"},
	} {
		n, err := queries.NeedOf(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		has := strings.Fields(c.has)
		got := strings.Join(n.Met(func(n queries.Need) bool { return slices.Contains(has, n.Family) }), "; ")
		if got != c.missed {
			t.Errorf("%s: %s where there is %s: missed %q, want %q", c.why, c.expr, c.has, got, c.missed)
		}
	}
	if _, err := queries.NeedOf("sum("); err == nil {
		t.Error("an expression that does not parse has a need")
	}
}

func TestVariables(t *testing.T) {
	v := queries.Variables{"job": "J", "gpu_job": "G", "instance": "I"}
	if got, want := v.With(`a{job=~"$job",j="${job}",g=~"$gpu_job",i="$instance"}`), `a{job=~"J",j="J",g=~"G",i="I"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOfRules(t *testing.T) {
	got, err := queries.OfRules("r.yml", []byte("groups:\n- name: g\n  rules:\n  - record: a:b:c\n    expr: |\n      x\n  - alert: A\n    expr: y > 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Kind != queries.Recording || got[0].Expr != "x" || got[1].Where != "A" || got[1].Kind != queries.Alert {
		t.Errorf("got %+v", got)
	}
	for _, raw := range []string{"groups: []", "groups: [", "{}"} {
		if _, err := queries.OfRules("r.yml", []byte(raw)); err == nil || !strings.Contains(err.Error(), "r.yml") {
			t.Errorf("rules %q: error %v, want one that names the file", raw, err)
		}
	}
}

func TestReadIsStrict(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	const board = `{"schemaVersion":42,"templating":{},"annotations":{},"panels":[{"type":"trend","title":"x","options":{"legend":{"displayMode":"list","placement":"bottom","showLegend":true,"calcs":[]},"tooltip":{"mode":"multi","sort":"desc"},"xField":"x"}}]}`
	d, err := queries.Read([]byte(board))
	if err != nil {
		t.Fatal(err)
	}
	if p := queries.Panels(d); len(p) != 1 || *p[0].Title != "x" {
		t.Errorf("got %+v", p)
	}
	for old, spoiled := range map[string]string{`"xField"`: `"xfield"`, `"title"`: `"titel"`, `"templating":{},`: ""} {
		if _, err := queries.Read([]byte(strings.Replace(board, old, spoiled, 1))); err == nil {
			t.Errorf("a board with %q for %q is taken", spoiled, old)
		}
	}
}
