package boards_test

//lint:file-ignore SA1019 Grafana 10 to 13 all read the classic model; the one that is to follow it, 12 does not know.

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	promql "github.com/prometheus/prometheus/promql/parser"

	"kneefinder/grafana/queries"
)

// stable are the types of panels whose options have not changed their shape from Grafana 10 to 13.
var stable = []string{"timeseries", "stat", "table", "gauge", "heatmap"}

// lint returns what is wrong with a dashboard. The rules are those of Grafana's own dashboard linter, and a few that this
// project needs: known says whether a metric exists.
func lint(d dashboard.Dashboard, known func(string) bool) []string {
	var wrong []string
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	if uid := value(d.Uid); len(uid) < 8 || len(uid) > 40 {
		fault("uid %q has not 8 to 40 characters", uid)
	}
	if d.Id != nil {
		fault("the id is %d: only Grafana gives ids", *d.Id)
	}
	if d.SchemaVersion < 39 || d.SchemaVersion > 42 {
		fault("schemaVersion %d is not 39 to 42", d.SchemaVersion)
	}
	if value(d.Title) == "" || value(d.Description) == "" {
		fault("the board has no title, or no description")
	}
	if value(d.Refresh) != "5s" || d.Editable == nil || *d.Editable || value(d.GraphTooltip) != dashboard.DashboardCursorSyncCrosshair {
		fault("the board is editable, or does not refresh every 5s, or shares no crosshair")
	}
	if len(d.Links) == 0 || !d.Links[0].KeepTime || !d.Links[0].IncludeVars || !slices.Equal(d.Links[0].Tags, d.Tags) {
		fault("the board does not link to the others, at the same time and run")
	}
	if len(d.Annotations.List) == 0 || value(d.Annotations.List[0].BuiltIn) != 1 {
		fault("the annotations lack Grafana's own entry")
	}
	wrong = append(wrong, lintVariables(d)...)

	ids := map[uint32]bool{}
	seen := func(id *uint32, title string) {
		if id == nil || *id == 0 || ids[*id] {
			fault("panel %q has no id of its own", title)
			return
		}
		ids[*id] = true
	}
	var placed []dashboard.GridPos
	for _, p := range d.Panels {
		var at *dashboard.GridPos
		var title string
		if p.RowPanel != nil {
			at, title = p.RowPanel.GridPos, value(p.RowPanel.Title)
			seen(&p.RowPanel.Id, title)
		} else {
			at, title = p.Panel.GridPos, value(p.Panel.Title)
			seen(p.Panel.Id, title)
			wrong = append(wrong, lintPanel(*p.Panel, value(d.Uid), known)...)
		}
		if at == nil || at.X+at.W > 24 || at.W == 0 || at.H == 0 {
			fault("panel %q stands outside of the grid", title)
			continue
		}
		for _, other := range placed {
			if at.X < other.X+other.W && other.X < at.X+at.W && at.Y < other.Y+other.H && other.Y < at.Y+at.H {
				fault("panel %q lies over another one", title)
			}
		}
		placed = append(placed, *at)
	}
	for _, a := range d.Annotations.List[min(1, len(d.Annotations.List)):] {
		if a.Datasource == nil || value(a.Datasource.Uid) != "${datasource}" {
			fault("annotation %q does not use the data source picked", a.Name)
		}
		if value(a.UseValueForTime) && !strings.HasSuffix(strings.TrimRight(value(a.Expr), ")"), "* 1000") {
			fault("annotation %q: Grafana wants milliseconds", a.Name)
		}
		wrong = append(wrong, lintExpr("annotation "+a.Name, value(a.Expr), known)...)
	}
	return wrong
}

func lintVariables(d dashboard.Dashboard) []string {
	var wrong []string
	var all strings.Builder // everything that can use a variable
	for _, p := range queries.Panels(d) {
		for _, t := range p.Targets {
			all.WriteString(ask(t).Expr + "\n")
		}
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
		if v.Query != nil {
			fmt.Fprintln(&all, v.Query.Map["query"])
		}
		if text, _ := v.Query.Map["query"].(string); v.Query != nil && strings.HasPrefix(text, "query_result(") && !value(v.SkipUrlSync) {
			wrong = append(wrong, fmt.Sprintf("variable %s is computed, and an old value of it can come from an address", v.Name))
		}
		if value(v.Label) == "" || value(v.Description) == "" {
			wrong = append(wrong, fmt.Sprintf("variable %s has no label, or no description", v.Name))
		}
		if v.Type == dashboard.VariableTypeQuery {
			if value(v.Refresh) != dashboard.VariableRefreshOnTimeRangeChanged {
				wrong = append(wrong, fmt.Sprintf("variable %s does not reload when the time range changes", v.Name))
			}
			if v.Datasource == nil || value(v.Datasource.Uid) != "${datasource}" {
				wrong = append(wrong, fmt.Sprintf("variable %s does not use the data source picked", v.Name))
			}
			if value(v.IncludeAll) && (value(v.AllValue) != ".+" || !value(v.Multi)) {
				wrong = append(wrong, fmt.Sprintf("variable %s: All does not match everything", v.Name))
			}
		}
	}
	for _, want := range []string{"datasource", "job", "instance", "label"} {
		if !slices.Contains(names, want) {
			wrong = append(wrong, fmt.Sprintf("there is no variable %s", want))
		}
	}
	if len(d.Templating.List) > 0 && (d.Templating.List[0].Name != "datasource" || d.Templating.List[0].Type != dashboard.VariableTypeDatasource) {
		wrong = append(wrong, "the first variable is not the data source")
	}
	for _, name := range names {
		if name != "datasource" && !regexp.MustCompile(`\$\{?`+name+`\b`).MatchString(all.String()) {
			wrong = append(wrong, fmt.Sprintf("variable %s is used by nothing", name))
		}
	}
	return wrong
}

func lintPanel(p dashboard.Panel, uid string, known func(string) bool) []string {
	var wrong []string
	fault := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("panel %q ", value(p.Title))+fmt.Sprintf(format, args...))
	}
	if value(p.Title) == "" || len(value(p.Description)) < 20 {
		fault("has no title, or no description")
	}
	if p.FieldConfig == nil || value(p.FieldConfig.Defaults.Unit) == "" {
		fault("has no unit")
	}
	if !slices.Contains(stable, p.Type) && !(p.Type == "trend" && uid == "kneefinder-knee") {
		fault("is a %s, which Grafana still changes", p.Type)
	}
	if p.Datasource == nil || value(p.Datasource.Uid) != "${datasource}" {
		fault("does not use the data source picked")
	}
	if len(p.Targets) == 0 {
		fault("asks nothing")
	}
	letters := map[string]bool{}
	for _, t := range p.Targets {
		q := ask(t)
		if q.Datasource == nil || value(q.Datasource.Uid) != "${datasource}" {
			fault("has a query that does not use the data source picked")
		}
		if letter := value(q.RefId); letter == "" || letters[letter] {
			fault("has a query without a letter of its own")
		}
		letters[value(q.RefId)] = true
		if value(q.LegendFormat) == "" {
			fault("has a query without a legend")
		}
		for _, w := range lintExpr("query "+value(q.RefId), q.Expr, known) {
			fault("%s", w)
		}
		if value(q.Instant) && strings.Count(q.Expr, "{job=") != strings.Count(q.Expr, "last_over_time(kneeload_") {
			fault("asks at one instant for what is gone with the process: it wants last_over_time")
		}
	}
	return wrong
}

// counters are the endings of what only grows.
var counters = regexp.MustCompile(`_(total|bucket|sum|count)$`)

func lintExpr(where, expr string, known func(string) bool) []string {
	var wrong []string
	fault := func(format string, args ...any) {
		wrong = append(wrong, where+": "+fmt.Sprintf(format, args...))
	}
	// Windows of 77 s and 5555 s stand for $__rate_interval and the newest run, so that any other one shows.
	v := queries.Picked("x")
	v["__rate_interval"], v["run_s"] = "77s", "5555"
	tree, err := promql.NewParser(promql.Options{}).ParseExpr(v.With(expr))
	if err != nil {
		return []string{where + ": " + err.Error()}
	}
	if strings.Contains(strings.ToLower(expr), "or vector(") {
		fault("or vector(...) hides that there is no data")
	}
	promql.Inspect(tree, func(node promql.Node, path []promql.Node) error {
		switch n := node.(type) {
		case *promql.MatrixSelector:
			call, _ := path[len(path)-1].(*promql.Call)
			switch last := call != nil && call.Func.Name == "last_over_time"; {
			case last && n.Range.Seconds() != 5555:
				fault("a window of %s instead of that of the newest run", n.Range)
			case !last && n.Range.Seconds() != 77:
				fault("a window of %s instead of $__rate_interval", n.Range)
			}
		case *promql.VectorSelector:
			family := queries.Family(n.Name)
			if !known(family) && !known(n.Name) {
				fault("there is no metric %s", n.Name)
			}
			if counters.MatchString(n.Name) && !slices.ContainsFunc(path, func(above promql.Node) bool {
				call, ok := above.(*promql.Call)
				return ok && (call.Func.Name == "rate" || call.Func.Name == "increase")
			}) {
				fault("%s only grows: it wants rate or increase", n.Name)
			}
		}
		return nil
	})
	// Matchers are looked for in the text, where the variables still stand.
	for _, found := range regexp.MustCompile(`(?:^|[^$])(\{[^{}]*\})`).FindAllStringSubmatch(expr, -1) {
		selector := found[1]
		if !regexp.MustCompile(`[{,]job=~"\$(engine_|gpu_)?job"`).MatchString(selector) ||
			!regexp.MustCompile(`[{,]instance=~"\$(engine_|gpu_)?instance"`).MatchString(selector) {
			fault("%s matches neither job nor instance picked", selector)
		}
	}
	return wrong
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

func ask(t any) prometheus.Dataquery {
	if q, ok := t.(*prometheus.Dataquery); ok {
		return *q
	}
	q, _ := t.(prometheus.Dataquery)
	return q
}

const folder = "../dashboards"

// boardFiles returns every committed board.
func boardFiles(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no boards in %s: %v", folder, err)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = raw
	}
	return out
}

// read decodes a board strictly, its panels' options and queries by their own types.
func read(t *testing.T, file string, raw []byte) dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	d, err := queries.Read(raw)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// ours are the metrics of kneefinder/telemetry/names, by constant.
func ours(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../telemetry/names/names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(s, "kneeload_") {
					out[spec.Names[i].Name] = s
				}
			}
		}
		return true
	})
	if len(out) < 60 {
		t.Fatalf("only %d names found", len(out))
	}
	return out
}

// metrics are all that a query may ask for: ours, what real servers' pages hold, and the list in testdata.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, name := range ours(t) {
		known[name] = true
	}
	pages, err := filepath.Glob("../../telemetry/scrape/testdata/*.prom")
	if err != nil || len(pages) < 2 {
		t.Fatalf("the real servers' pages are missing: %v, %v", pages, err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllSubmatch(raw, -1) {
			known[string(m[1])] = true
		}
	}
	raw, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, origin, found := strings.Cut(strings.TrimSpace(line), " "); found && !strings.HasPrefix(name, "#") && strings.TrimSpace(origin) != "" {
			known[name] = true
		}
	}
	return known
}

func TestLint(t *testing.T) {
	known := metrics(t)
	uids := map[string]string{}
	for file, raw := range boardFiles(t) {
		d := read(t, file, raw)
		for _, w := range lint(d, func(name string) bool { return known[name] }) {
			t.Errorf("%s: %s", file, w)
		}
		if other := uids[value(d.Uid)]; other != "" {
			t.Errorf("%s and %s have one uid", file, other)
		}
		uids[value(d.Uid)] = file
		if !bytes.HasPrefix(raw, []byte("{\n  \"id\": null,\n")) {
			t.Errorf("%s: its id is not null", file)
		}
		if bytes.Contains(raw, []byte("__inputs")) {
			t.Errorf("%s: __inputs stand in the way of a file provider", file)
		}
	}
}

// Rules ask for what is there, too.
func TestRulesAskForKnownMetrics(t *testing.T) {
	known := metrics(t)
	for _, file := range []string{"kneeload.rules.yml", "kneeload.alerts.yml"} {
		raw, err := os.ReadFile("../rules/" + file)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := queries.OfRules(file, raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range rules {
			need, err := queries.NeedOf(q.Expr)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			for _, s := range need.Selectors() {
				if !known[s.Family] {
					t.Errorf("%s: there is no metric %s", q, s.Family)
				}
			}
		}
	}
}

// Each rule must be able to reject.
func TestLintRejects(t *testing.T) {
	known := metrics(t)
	files := boardFiles(t)
	panel := func(d *dashboard.Dashboard) *dashboard.Panel { return d.Panels[1].Panel }
	setExpr := func(expr string) func(*dashboard.Dashboard) {
		return func(d *dashboard.Dashboard) {
			q := ask(panel(d).Targets[0])
			q.Expr = expr
			panel(d).Targets[0] = q
		}
	}
	const picked = `{job=~"$job",instance=~"$instance"}`
	for _, c := range []struct {
		want  string
		spoil func(d *dashboard.Dashboard)
	}{
		{"has not 8 to 40 characters", func(d *dashboard.Dashboard) { d.Uid = new("knee") }},
		{"only Grafana gives ids", func(d *dashboard.Dashboard) { d.Id = new(int64(7)) }},
		{"is not 39 to 42", func(d *dashboard.Dashboard) { d.SchemaVersion = 38 }},
		{"the board has no title", func(d *dashboard.Dashboard) { d.Description = nil }},
		{"the board is editable", func(d *dashboard.Dashboard) { d.Editable = new(true) }},
		{"shares no crosshair", func(d *dashboard.Dashboard) { d.GraphTooltip = new(dashboard.DashboardCursorSyncOff) }},
		{"does not link", func(d *dashboard.Dashboard) { d.Links = nil }},
		{"lack Grafana's own entry", func(d *dashboard.Dashboard) { d.Annotations.List = d.Annotations.List[1:] }},
		{"Grafana wants milliseconds", func(d *dashboard.Dashboard) {
			d.Annotations.List[1].Expr = new("kneeload_step_start_timestamp_seconds" + picked)
		}},
		{"no id of its own", func(d *dashboard.Dashboard) { panel(d).Id = new(uint32(1)) }},
		{"outside of the grid", func(d *dashboard.Dashboard) { panel(d).GridPos.W = 25 }},
		{"lies over another one", func(d *dashboard.Dashboard) { panel(d).GridPos.Y = 0 }},
		{"has no title, or no description", func(d *dashboard.Dashboard) { panel(d).Description = new("") }},
		{"has no unit", func(d *dashboard.Dashboard) { panel(d).FieldConfig.Defaults.Unit = nil }},
		{"which Grafana still changes", func(d *dashboard.Dashboard) { panel(d).Type = "canvas" }},
		{"does not use the data source picked", func(d *dashboard.Dashboard) { panel(d).Datasource.Uid = new("P1") }},
		{"asks nothing", func(d *dashboard.Dashboard) { panel(d).Targets = nil }},
		{"without a letter of its own", func(d *dashboard.Dashboard) { panel(d).Targets[1] = panel(d).Targets[0] }},
		{"is used by nothing", func(d *dashboard.Dashboard) {
			v := d.Templating.List[1]
			v.Name = "nowhere"
			d.Templating.List = append(d.Templating.List, v)
		}},
		{"there is no variable instance", func(d *dashboard.Dashboard) { d.Templating.List[2].Name = "host" }},
		{"does not reload", func(d *dashboard.Dashboard) { d.Templating.List[1].Refresh = new(dashboard.VariableRefreshNever) }},
		{"All does not match everything", func(d *dashboard.Dashboard) { d.Templating.List[1].AllValue = nil }},
		{"the first variable is not the data source", func(d *dashboard.Dashboard) {
			d.Templating.List[0], d.Templating.List[1] = d.Templating.List[1], d.Templating.List[0]
		}},
		{"unclosed left parenthesis", setExpr("sum(")},
		{"a window of 1m0s", setExpr("rate(kneeload_calls_total" + picked + "[1m])")},
		{"a window of 30m0s", setExpr("last_over_time(kneeload_run_info" + picked + "[30m])")},
		{"it wants last_over_time", setExpr("kneeload_run_info" + picked)},
		{"hides that there is no data", setExpr("kneeload_run_info" + picked + " or vector(0)")},
		{"there is no metric kneeload_ttft", setExpr("kneeload_ttft" + picked)},
		{"it wants rate or increase", setExpr("sum(kneeload_calls_total" + picked + ")")},
		{"matches neither job nor instance", setExpr(`kneeload_run_info{job=~"$job"}`)},
	} {
		d := read(t, "knee.json", files["knee.json"])
		c.spoil(&d)
		if got := strings.Join(lint(d, func(name string) bool { return known[name] }), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("want a board rejected because %q, got %q", c.want, got)
		}
	}
}
