package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// looksTable reports whether a text is lines of equally many fields under a head of names.
func looksTable(head []byte) bool {
	line := firstLine(head)
	return strings.Count(line, string(delimiter(line))) > 0 && !strings.ContainsAny(line, "{}<>")
}

// delimiter is what separates the fields of a head.
func delimiter(line string) rune {
	best, most := ',', strings.Count(line, ",")
	for _, d := range []rune{';', '\t'} {
		if n := strings.Count(line, string(d)); n > most {
			best, most = d, n
		}
	}
	return best
}

// column is what a column of a table means.
type column struct {
	name   string
	metric string // "ttft", "itl", "tpot", "e2e", "rate", "concurrency", "requests", "errors", "error_rate", "duration", "throughput", "output_rate", "lag", "saturation", "hit", "group", ""
	stat   string // mean, min, median, pNN
	unit   float64
}

// loads, in the order in which they are taken when a table has several: what was asked before what came of it.
var (
	rateColumns        = []string{"rate_calls_per_s", "requested_rate", "request_rate", "rate_qps", "target_rate", "rate", "lambda", "qps", "rps", "requests_per_s", "requests_per_second", "offered_rate", "arrived_calls_per_s", "achieved_rate"}
	concurrencyColumns = []string{"concurrency", "max_concurrency", "num_concurrency", "intended_concurrency", "conc", "users", "streams"}
	groupColumns       = []string{"model", "model_id", "model_path", "engine", "backend", "framework", "system", "gpu", "hw", "label", "dataset", "scenario", "version", "backend_version", "isl", "osl", "tp", "tp_size", "precision", "deployment"}
)

// plainColumns are those whose name is all their meaning.
var plainColumns = map[string]string{"measured_turns": "requests", "requests": "requests", "num_requests": "requests", "completed": "ok", "successes": "ok", "errors": "errors", "failed": "errors", "failures": "errors", "error_rate": "error_rate",
	"window_s": "duration", "duration_s": "duration", "throughput_turns_s": "throughput", "request_throughput": "throughput", "throughput_rps": "throughput", "output_tok_s": "output_rate", "output_throughput": "output_rate",
	"saturation_ratio": "saturation", "cache_hit_rate": "hit", "schedule_lag_p99_ms": "lag", "arrived_calls_per_s": "offered", "achieved_rate": "offered", "live_turns_mean": "in_flight"}

func tidy(name string) string {
	name = strings.ToLower(strings.TrimSpace(strings.Trim(strings.TrimSpace(name), `"`)))
	name = strings.NewReplacer("time to first token", "ttft", "time_to_first_token", "ttft", "inter_token_latency", "itl", "inter token latency", "itl", "time_per_output_token", "tpot",
		"request_latency", "e2e", "e2e_latency", "e2e", "e2el", "e2e", " ", "_", "-", "_", "(", "_", ")", "", "[", "_", "]", "", "/", "_per_", "λ", "lambda").Replace(name)
	for strings.Contains(name, "__") {
		name = strings.ReplaceAll(name, "__", "_")
	}
	return strings.Trim(name, "_")
}

// meaning reads a column's name. A latency without a unit has the unit NaN.
func meaningOf(head string) column {
	c := column{name: strings.TrimSpace(head), unit: 1}
	name := tidy(head)
	if m, ok := plainColumns[name]; ok {
		c.metric = m
		return c
	}
	if slices.Contains(groupColumns, name) {
		c.metric = "group"
		return c
	}
	c.unit = math.NaN()
	for part := range strings.SplitSeq(name, "_") {
		switch {
		case part == "ttft" || part == "itl" || part == "tpot" || part == "e2e":
			if c.metric != "" {
				return column{name: c.name}
			}
			c.metric = part
		case part == "mean" || part == "avg" || part == "average":
			c.stat = "mean"
		case part == "median":
			c.stat = "median"
		case part == "min":
			c.stat = "min"
		case len(part) > 1 && part[0] == 'p' && part[1] >= '0' && part[1] <= '9':
			c.stat = part
		case finite(milliseconds(part)):
			c.unit = milliseconds(part)
		default: // intervals, bounds, standard deviations: not the figure itself
			return column{name: c.name}
		}
	}
	return c
}

// table reads a CSV whose columns name what they hold: a load, a percentile of TTFT with its unit, and what tells curves apart.
func table(f File) (contents, error) {
	r := csv.NewReader(bytes.NewReader(f.Data))
	r.Comma = delimiter(firstLine(f.Data))
	r.FieldsPerRecord, r.LazyQuotes, r.TrimLeadingSpace = -1, true, true
	head, err := r.Read()
	if err != nil {
		return contents{}, refuse(f.Name, fmt.Sprintf("is no table that can be read (%v)", err), "")
	}
	columns := make([]column, len(head))
	var ttft, unitless []string
	for i, h := range head {
		columns[i] = meaningOf(h)
		if j := slices.IndexFunc(head[:i], func(other string) bool { return tidy(other) == tidy(h) }); j >= 0 && (columns[i].metric != "" || isLoad(h)) {
			return contents{}, refuse(f.Name+":1", fmt.Sprintf("has two columns %s", columns[i].name), "leave one out")
		}
		if c := columns[i]; c.metric == "ttft" {
			ttft = append(ttft, c.name)
			if math.IsNaN(c.unit) {
				unitless = append(unitless, c.name)
			}
		}
	}
	load, kind := loadColumn(head)
	at := fmt.Sprintf("%s:1", f.Name)
	switch {
	case load < 0 && len(ttft) == 0:
		return contents{}, refuse(at, fmt.Sprintf("is a table whose columns name neither a load nor a TTFT (%.100s)", strings.Join(head, ", ")), "name them as in rate_calls_per_s,ttft_p95_ms or concurrency,ttft_p95_s")
	case load < 0:
		return contents{}, refuse(at, fmt.Sprintf("is a table whose columns name no load (%.100s)", strings.Join(head, ", ")), "add a column rate_calls_per_s or concurrency")
	case len(ttft) == 0:
		return contents{}, refuse(at, "is a table whose columns name no percentile of TTFT", "name one as in ttft_p95_ms or p99_ttft_s")
	case len(unitless) > 0:
		return contents{}, refuse(at, fmt.Sprintf("has columns without a unit (%s)", strings.Join(unitless, ", ")), "put it into the name, as in ttft_p95_ms or ttft_p95_s")
	}
	if !slices.ContainsFunc(columns, func(c column) bool {
		return c.metric == "ttft" && c.stat != "" && c.stat != "mean" && c.stat != "min"
	}) {
		return contents{}, refuse(at, fmt.Sprintf("is a table whose TTFT is no percentile (%s)", strings.Join(ttft, ", ")), "a mean says nothing of the slow ones; give ttft_p95_ms or another percentile")
	}
	c := contents{kind: CSV}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		line, _ := r.FieldPos(0)
		at := fmt.Sprintf("%s:%d", f.Name, line)
		if err != nil {
			return contents{}, refuse(at, fmt.Sprintf("is no row that can be read (%v)", err), "")
		}
		p := newPoint(CSV, at)
		if err := tableRow(&p, columns, row, load); err != nil {
			return contents{}, err
		}
		v := cell(row, load)
		if withUnit(field(row, load)) {
			return contents{}, refuseUnit(at, strings.TrimSpace(head[load]), field(row, load))
		}
		if math.IsNaN(v) {
			p.own = append(p.own, fmt.Sprintf("%s: the load %.40q is no number; the row is left out.", at, field(row, load)))
			c.points = append(c.points, p)
			continue
		}
		p.ofCalls = strings.Contains(tidy(head[load]), "calls")
		asked := kind
		if asked == rateAxis {
			p.setLoad(v, math.NaN())
		} else {
			p.setLoad(math.NaN(), v)
		}
		if !finite(p.load) {
			p.own = append(p.own, fmt.Sprintf("%s: %s is no load above 0; the row is left out.", at, short(v)))
		}
		if !p.ttft.told() {
			p.doubt("no figure of TTFT stands there.")
		}
		p.note(fmt.Sprintf("The load of the table is its column %q. How requests arrived, from when TTFT counts and how late they were sent a table does not tell.", strings.TrimSpace(head[load])))
		c.points = append(c.points, p)
	}
	if len(c.points) == 0 {
		return contents{}, refuse(f.Name, "is a table without a row", "")
	}
	return c, nil
}

func isLoad(name string) bool {
	return slices.Contains(rateColumns, tidy(name)) || slices.Contains(concurrencyColumns, tidy(name))
}

var unitBehind = regexp.MustCompile(`^[-+]?[0-9.]+([eE][-+]?[0-9]+)? *[a-zA-Zµμ%/]+$`)

// withUnit reports whether a cell is a number with a unit behind it.
func withUnit(text string) bool { return unitBehind.MatchString(text) }

func refuseUnit(at, column, text string) error {
	return refuse(at, fmt.Sprintf("writes %s as %.20q", column, text), "write the number alone; its unit stands in the column's name, as in ttft_p95_ms or ttft_p95_s")
}

// loadColumn is the column that the curve stands over.
func loadColumn(head []string) (int, axis) {
	for _, names := range [][]string{rateColumns, concurrencyColumns} {
		for _, name := range names {
			if i := slices.IndexFunc(head, func(h string) bool { return tidy(h) == name }); i >= 0 {
				if slices.Contains(concurrencyColumns, name) {
					return i, concurrencyAxis
				}
				return i, rateAxis
			}
		}
	}
	return -1, ""
}

func field(row []string, i int) string {
	if i >= len(row) {
		return ""
	}
	return strings.TrimSpace(row[i])
}

func cell(row []string, i int) float64 {
	v, err := strconv.ParseFloat(field(row, i), 64)
	if err != nil && !math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// tableRow takes the cells of a row; an empty cell is a figure that is absent.
func tableRow(p *point, columns []column, row []string, load int) error {
	var group []string
	requests, share := math.NaN(), math.NaN()
	told := map[string]int{} // the column that tells a figure
	for i, c := range columns {
		text := field(row, i)
		if text == "" || text == "-" || strings.EqualFold(text, "null") || strings.EqualFold(text, "n/a") || i == load && c.metric != "offered" {
			continue
		}
		if c.metric == "group" {
			switch tidy(c.name) {
			case "model", "model_id", "model_path":
				p.engine.Model = text
			case "engine", "backend", "framework":
				p.engine.Kind = text
			case "gpu", "hw", "system":
				p.engine.GPU = text
			default:
				group = append(group, c.name+" "+text)
			}
			continue
		}
		if c.metric == "" {
			continue
		}
		v := cell(row, i)
		if math.IsNaN(v) && !strings.EqualFold(text, "nan") {
			if strings.Contains(text, ",") {
				return refuse(p.at, fmt.Sprintf("writes %s as %.20q, with a comma in the number", c.name, text), "write numbers with a point")
			}
			if withUnit(text) {
				return refuseUnit(p.at, c.name, text)
			}
			p.doubt("%s is %.40q, which is no number: it is taken as absent.", c.name, text)
			continue
		}
		into := map[string]*spread{"ttft": &p.ttft, "itl": &p.itl, "tpot": &p.tpot, "e2e": &p.e2e}[c.metric]
		if into != nil {
			if c.stat == "" || !finite(c.unit) {
				continue
			}
			figure := c.metric + strings.Replace(c.stat, "median", "p50", 1)
			if j, twice := told[figure]; twice {
				if other := cell(row, j) * columns[j].unit; math.Abs(v*c.unit-other) > .01*math.Abs(other) || math.IsInf(v, 0) != math.IsInf(other, 0) {
					return refuse(p.at, fmt.Sprintf("tells one figure in two columns that differ: %s is %s and %s is %s", columns[j].name, field(row, j), c.name, text), "leave one of them out")
				}
				continue
			}
			if !math.IsNaN(v) {
				told[figure] = i
				into.put(c.stat, v*c.unit)
			}
			continue
		}
		if to := map[string]*float64{"requests": &requests, "ok": &p.ok, "errors": &p.failed, "error_rate": &share, "duration": &p.duration, "throughput": &p.throughput,
			"output_rate": &p.outputRate, "saturation": &p.saturation, "hit": &p.cacheHit, "lag": &p.lagP99, "offered": &p.offered, "in_flight": &p.inFlight}[c.metric]; to != nil {
			*to = v
		}
	}
	p.group = strings.Join(group, " ")
	if finite(requests) {
		if finite(share) { // it knows of what errors are a share, which may be more than the requests counted here
			p.failed = math.Round(share * requests)
		}
		p.ok = known(p.ok, requests-known(p.failed, 0))
	}
	return nil
}
