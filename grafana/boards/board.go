// Package boards draws the Grafana dashboards: what each panel asks Prometheus, and how it shows the answer.
package boards

//lint:file-ignore SA1019 Grafana 10 to 13 all read the classic model; the one that is to follow it, 12 does not know.

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"kneefinder/telemetry/names"
)

// Board is one dashboard and the file that it is kept in.
type Board struct {
	File      string // its name, without a folder
	Dashboard dashboard.Dashboard
}

// All returns the boards, in the order in which they are read: the answer first, the instrument last. The error is of a panel
// that the SDK refuses.
func All() ([]Board, error) {
	var boards []Board
	for _, b := range []*builder{knee(), engine(), gpu(), generator()} {
		if b.err != nil {
			return nil, b.err
		}
		boards = append(boards, Board{File: b.file, Dashboard: *b.board})
	}
	return boards, nil
}

// JSON returns the board as Grafana reads it from a file: the classic model, indented, with a newline at the end.
func (b Board) JSON() ([]byte, error) {
	raw, err := json.Marshal(b.Dashboard)
	if err != nil {
		return nil, fmt.Errorf("board %s: %w", b.File, err)
	}
	// The SDK leaves a null id out. It is said here, so that importing a board never claims the number of another one.
	raw = append([]byte(`{"id":null,`), raw[1:]...)
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("board %s: %w", b.File, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

const (
	tag     = "kneefinder"
	columns = 24 // of Grafana's grid
)

// source is the data source that the reader of a board picks.
func source() *common.DataSourceRef {
	return &common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// builder lays panels out from left to right, and from top to bottom, and numbers them.
type builder struct {
	file   string
	board  *dashboard.Dashboard
	err    error
	x, y   uint32
	height uint32 // of the tallest panel of the line
	id     uint32
}

// start begins a board. It holds the variables that pick a run: all that kneeload exports carries job, instance and label.
func start(file, uid, title, about string) *builder {
	d := dashboard.NewDashboard()
	d.Uid, d.Title, d.Description = new(uid), new("Kneefinder / "+title), new(about)
	d.Tags = []string{tag}
	d.Editable = new(false)
	d.Refresh = new("5s")
	d.Time = &dashboard.DashboardDashboardTime{From: "now-30m", To: "now"}
	d.Timepicker = &dashboard.TimePickerConfig{RefreshIntervals: []string{"1s", "5s", "10s", "30s", "1m", "5m"}}
	d.GraphTooltip = new(dashboard.DashboardCursorSyncCrosshair)
	d.Version = new(uint32(1))
	d.Links = []dashboard.DashboardLink{{
		Title: "Kneefinder", Type: dashboard.DashboardLinkTypeDashboards, Icon: "external link", Tooltip: "The other boards, at the same time",
		Tags: []string{tag}, IncludeVars: true, KeepTime: true,
	}}
	// Every dashboard has this entry; without it Grafana shows no annotation that people write by hand.
	d.Annotations.List = []dashboard.AnnotationQuery{{
		Name: "Annotations & Alerts", Datasource: &common.DataSourceRef{Type: new("grafana"), Uid: new("-- Grafana --")},
		Enable: true, Hide: new(true), IconColor: "rgba(0, 211, 255, 1)", Type: new("dashboard"), BuiltIn: new(1.0),
	}}
	b := &builder{file: file, board: d}
	datasource, err := dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").
		Description("The Prometheus that scrapes kneeload and the engine").Type("prometheus").Build()
	b.note(err)
	d.Templating.List = append(d.Templating.List, datasource)
	b.choose("job", "Job", "The scrape job of kneeload", "label_values("+names.RunInfo+", job)", true)
	b.choose("instance", "Instance", "One kneeload, or all the shards of a load",
		`label_values(`+names.RunInfo+`{job=~"$job"}, instance)`, true)
	b.choose("label", "Run", "The label of the run", `label_values(`+names.RunInfo+`{job=~"$job",instance=~"$instance"}, label)`, false)
	return b
}

// note keeps the first error.
func (b *builder) note(err error) {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("board %s: %w", b.file, err)
	}
}

// choose adds a variable whose values a query finds anew when the time range changes; many adds "All", which matches anything.
func (b *builder) choose(name, label, about, query string, many bool) {
	v := dashboard.NewQueryVariableBuilder(name).Label(label).Description(about).Datasource(*source()).
		Query(dashboard.StringOrMap{Map: map[string]any{"query": query, "refId": "variable"}}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
	if many {
		all := func(s string) dashboard.StringOrArrayOfString {
			return dashboard.StringOrArrayOfString{ArrayOfString: []string{s}}
		}
		v = v.Multi(true).IncludeAll(true).AllValue(".+").Current(dashboard.VariableOption{Selected: new(true), Text: all("All"), Value: all("$__all")})
	}
	built, err := v.Build()
	b.note(err)
	b.board.Templating.List = append(b.board.Templating.List, built)
}

// newest adds the hidden variable that tells the newest run of the label from those before it: a whole number, which a query finds
// at the end of the time range. It is no part of a board's address: there it would be old.
func (b *builder) newest() {
	query := "query_result(" + runSecondsQuery() + ")"
	v, err := dashboard.NewQueryVariableBuilder(runSeconds).Label("Newest run, s").
		Description("How long before the end of the time range the newest run of the label began").
		Datasource(*source()).Hide(dashboard.VariableHideHideVariable).
		Query(dashboard.StringOrMap{Map: map[string]any{"query": query, "refId": "variable"}}).Definition(query).
		Regex(`/\} (\d+) /`).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Build()
	b.note(err)
	v.SkipUrlSync = new(true)
	b.board.Templating.List = append(b.board.Templating.List, v)
}

// mark adds events to every panel whose x is time: where the value of the series is an instant in milliseconds, at that instant;
// else where the series is above 0.
func (b *builder) mark(name, color, title, text, expr string, byValue bool) {
	b.board.Annotations.List = append(b.board.Annotations.List, dashboard.AnnotationQuery{
		Name: name, Datasource: source(), Enable: true, Hide: new(false), IconColor: color, BuiltIn: new(0.0),
		Expr: new(expr), TitleFormat: new(title), TextFormat: new(text), TagKeys: new(names.Label), UseValueForTime: new(byValue),
		Step: new("5s"), // events closer than this become one region
	})
}

// row begins a line of panels under a heading.
func (b *builder) row(title string) {
	b.breakLine()
	b.id++
	row := dashboard.NewRowPanel()
	row.Title, row.Id = new(title), b.id
	row.GridPos = &dashboard.GridPos{X: 0, Y: b.y, W: columns, H: 1}
	b.board.Panels = append(b.board.Panels, dashboard.PanelOrRowPanel{RowPanel: row})
	b.y++
}

func (b *builder) breakLine() {
	b.x, b.y, b.height = 0, b.y+b.height, 0
}

// add places a panel, w of 24 columns wide, and gives it its number, and its queries their letters.
func (b *builder) add(w, h uint32, p panel) {
	built, err := p.build()
	b.note(err)
	if err != nil {
		return
	}
	if b.x+w > columns {
		b.breakLine()
	}
	b.id++
	built.Id = new(b.id)
	built.GridPos = &dashboard.GridPos{X: b.x, Y: b.y, W: w, H: h}
	built.Datasource = source()
	for i, s := range p.asks() {
		built.Targets = append(built.Targets, s.target(letter(i), p))
	}
	b.board.Panels = append(b.board.Panels, dashboard.PanelOrRowPanel{Panel: &built})
	b.x, b.height = b.x+w, max(b.height, h)
}

// letter names the query i of a panel as Grafana does: A, B, ...
func letter(i int) string { return string(rune('A' + i)) }

// target is the query of a series.
func (s series) target(letter string, p panel) prometheus.Dataquery {
	format, instant := p.format()
	q := prometheus.Dataquery{
		Datasource: source(), EditorMode: new(prometheus.QueryEditorModeCode), Expr: s.expr, RefId: new(letter),
		Instant: new(instant), Range: new(!instant), Format: new(format), LegendFormat: new(s.legend),
	}
	if s.exemplars {
		q.Exemplar = new(true)
	}
	return q
}
