package boards

import (
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/trend"
)

// panel is one picture.
type panel interface {
	build() (dashboard.Panel, error)                      // without queries, place and number
	asks() []series                                       // in the order of their letters
	format() (f prometheus.PromQueryFormat, instant bool) // in which the queries want their answer
}

// series is one query of a panel: what it asks, what its answer is called, how it is drawn.
type series struct {
	expr   string
	legend string // a table's: the heading of its column
	unit   string // where it differs from the panel's; a graph then draws it over an axis on the right

	limit     bool // an objective: a dashed line that nothing fills
	hidden    bool // a table's: it only joins rows
	exemplars bool // its points link to traces
	names     map[string]named
}

// named is what a value is shown as.
type named struct{ text, color string }

const (
	green  = "green"
	red    = "red"
	orange = "orange"
	blue   = "blue"
	purple = "purple"
)

// rates is how wide at least the windows of a graph's rates are, less one scrape: percentiles of fewer turns than come in it are
// noise.
const (
	briskly = "10s"
	calmly  = "30s"
)

func legend() cog.Builder[common.VizLegendOptions] {
	return common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).
		ShowLegend(true).Calcs([]string{"lastNotNull", "mean", "max"})
}

func tooltip() cog.Builder[common.VizTooltipOptions] {
	return common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)
}

func property(id string, value any) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: id, Value: value}
}

// look is how a series differs from the others of its graph.
func (s series) look() []dashboard.DynamicConfigValue {
	var out []dashboard.DynamicConfigValue
	if s.limit {
		out = append(out,
			property("color", map[string]any{"mode": "fixed", "fixedColor": red}),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0), property("custom.lineWidth", 2), property("custom.showPoints", "never"))
	}
	if s.unit != "" {
		out = append(out, property("unit", s.unit), property("custom.axisPlacement", "right"))
		if s.unit == "percentunit" {
			out = append(out, property("min", 0), property("max", 1))
		}
	}
	return out
}

// graph draws series over time.
type graph struct {
	title, about, unit string
	interval           string // of points at least, and so of rates
	stairs             bool   // values hold until the next one
	signed             bool   // values can be below 0
	top                *float64
	series             []series
}

func (g graph) asks() []series { return g.series }

func (g graph) format() (prometheus.PromQueryFormat, bool) {
	return prometheus.PromQueryFormatTimeSeries, false
}

func (g graph) build() (dashboard.Panel, error) {
	p := timeseries.NewPanelBuilder().Title(g.title).Description(g.about).Unit(g.unit).
		Legend(legend()).Tooltip(tooltip()).DrawStyle(common.GraphDrawStyleLine).LineWidth(1).FillOpacity(8).
		ShowPoints(common.VisibilityModeAuto).SpanNulls(common.BoolOrFloat64{Bool: new(false)}).
		Interval(g.atLeast())
	if !g.signed {
		p = p.Min(0)
	}
	if g.stairs {
		p = p.LineInterpolation(common.LineInterpolationStepAfter)
	}
	if g.top != nil {
		p = p.Max(*g.top)
	}
	for i, s := range g.series {
		if look := s.look(); look != nil {
			p = p.OverrideByQuery(letter(i), look)
		}
	}
	return p.Build()
}

// atLeast is how far points lie apart at least: what is read off a gauge needs no window.
func (g graph) atLeast() string {
	rates := slices.ContainsFunc(g.series, func(s series) bool { return strings.Contains(s.expr, "$__rate_interval") })
	switch {
	case g.interval != "":
		return g.interval
	case rates:
		return briskly
	}
	return "1s"
}

// figure shows the last value of each series in large.
type figure struct {
	title, about, unit string
	name               bool // show the name of the series instead of its value
	series             []series
}

func (f figure) asks() []series { return f.series }

func (f figure) format() (prometheus.PromQueryFormat, bool) {
	return prometheus.PromQueryFormatTimeSeries, true
}

func (f figure) build() (dashboard.Panel, error) {
	text := common.BigValueTextModeValueAndName
	if f.name {
		text = common.BigValueTextModeName
	}
	p := stat.NewPanelBuilder().Title(f.title).Description(f.about).Unit(f.unit).TextMode(text).
		Orientation(common.VizOrientationAuto).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).NoValue("-").
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(blue)).
		Thresholds(noThresholds())
	for i, s := range f.series {
		look := []dashboard.DynamicConfigValue{}
		if s.unit != "" {
			look = append(look, property("unit", s.unit))
		}
		if s.names != nil {
			look = append(look, property("mappings", []any{mapping(s.names)}))
		}
		if len(look) > 0 {
			p = p.OverrideByQuery(letter(i), look)
		}
	}
	return p.Build()
}

// noThresholds is said because Grafana's default turns everything above 80 red.
func noThresholds() cog.Builder[dashboard.ThresholdsConfig] {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps([]dashboard.Threshold{{Value: nil, Color: blue}})
}

func mapping(texts map[string]named) map[string]any {
	options := map[string]any{}
	for value, n := range texts {
		options[value] = map[string]any{"text": n.text, "color": n.color}
	}
	return map[string]any{"type": "value", "options": options}
}

// grid is a table: one query a column, one row for each set of labels, ordered by the first column.
type grid struct {
	title, about string
	labels       []string // shown as columns, before those of the queries
	texts        map[string]map[string]named
	series       []series
}

func (g grid) asks() []series { return g.series }

func (g grid) format() (prometheus.PromQueryFormat, bool) {
	return prometheus.PromQueryFormatTable, true
}

func (g grid) build() (dashboard.Panel, error) {
	p := table.NewPanelBuilder().Title(g.title).Description(g.about).Unit("none").NoValue("-").ShowHeader(true).
		CellHeight(common.TableCellHeightSm).Filterable(false).Align(common.FieldTextAlignmentAuto).Thresholds(noThresholds())
	for _, t := range joined(g.labels, g.series) {
		p = p.WithTransformation(t)
	}
	for _, s := range g.series {
		if s.unit != "" {
			p = p.OverrideByName(s.legend, []dashboard.DynamicConfigValue{property("unit", s.unit)})
		}
	}
	for _, label := range g.labels {
		if texts := g.texts[label]; texts != nil {
			p = p.OverrideByName(label, []dashboard.DynamicConfigValue{
				property("mappings", []any{mapping(texts)}),
				property("custom.cellOptions", map[string]any{"type": "color-text"}),
			})
		}
	}
	built, err := p.Build()
	if options, ok := built.Options.(*table.Options); ok {
		options.Footer = nil // the SDK's default one is none that Grafana would write
	}
	return built, err
}

// joined turns one frame a query into one frame with a column a query: rows that agree in their labels become one; columns get
// the queries' headings; rows are ordered by the first query's. All queries must keep the same labels, or more.
func joined(labels []string, of []series) []dashboard.DataTransformerConfig {
	order, rename, drop := map[string]any{}, map[string]any{}, map[string]any{"Time": true}
	for i, label := range labels {
		order[label] = i
	}
	for i, s := range of {
		value := "Value #" + letter(i)
		if len(of) == 1 {
			value = "Value"
		}
		order[value] = len(labels) + i
		if s.hidden {
			drop[value] = true
			continue
		}
		rename[value] = s.legend
	}
	for _, label := range []string{"label", "step", "verdict", "__name__"} {
		if !slices.Contains(labels, label) {
			drop[label] = true
		}
	}
	out := []dashboard.DataTransformerConfig{}
	if len(of) > 1 {
		out = append(out, dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}})
	}
	out = append(out, dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
		"excludeByName": drop, "indexByName": order, "renameByName": rename, "includeByName": map[string]any{},
	}})
	by := of[0].legend
	if of[0].hidden {
		by = labels[0]
	}
	return append(out, dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
		"fields": map[string]any{}, "sort": []any{map[string]any{"field": by, "desc": false}},
	}})
}

// curve draws series over the first one instead of over time.
type curve struct {
	title, about, unit string
	xUnit              string
	series             []series
}

func (c curve) asks() []series { return c.series }

func (c curve) format() (prometheus.PromQueryFormat, bool) {
	return prometheus.PromQueryFormatTable, true
}

func (c curve) build() (dashboard.Panel, error) {
	p := trend.NewPanelBuilder().Title(c.title).Description(c.about).Unit(c.unit).XField(c.series[0].legend).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).
			ShowLegend(true).Calcs([]string{})).
		Tooltip(tooltip()).DrawStyle(common.GraphDrawStyleLine).LineWidth(2).FillOpacity(0).PointSize(8).
		ShowPoints(common.VisibilityModeAlways).SpanNulls(common.BoolOrFloat64{Bool: new(true)})
	for _, t := range joined(nil, c.series) {
		p = p.WithTransformation(t)
	}
	p = p.OverrideByName(c.series[0].legend, []dashboard.DynamicConfigValue{property("unit", c.xUnit), property("custom.axisLabel", c.series[0].legend)})
	for _, s := range c.series[1:] {
		if look := s.look(); look != nil {
			p = p.OverrideByName(s.legend, look)
		}
	}
	return p.Build()
}

// heat shows the buckets of a histogram over time.
type heat struct {
	title, about, unit string
	series             []series
}

func (h heat) asks() []series { return h.series }

func (h heat) format() (prometheus.PromQueryFormat, bool) {
	return prometheus.PromQueryFormatHeatmap, false
}

func (h heat) build() (dashboard.Panel, error) {
	return heatmap.NewPanelBuilder().Title(h.title).Description(h.about).Interval(briskly).Unit(h.unit).Calculate(false).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(h.unit)).ShowLegend().
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).Scheme("Oranges").Fill("dark-orange").
			Scale(heatmap.HeatmapColorScaleExponential).Exponent(.5).Steps(64)).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle).YHistogram(false)).
		CellValues(heatmap.NewCellValuesBuilder().Unit("short")).Build()
}
