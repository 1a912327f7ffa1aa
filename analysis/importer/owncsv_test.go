package importer

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// csvOf is a curve as CSV.
func csvOf(t testing.TB, r measurement.Results) string {
	t.Helper()
	var b bytes.Buffer
	if err := measurement.WriteCSV(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// filled gives every figure and count of a record a value of its own, from n on.
func filled(record reflect.Value, n float64) float64 {
	for i := range record.NumField() {
		f := record.Field(i)
		switch f.Kind() {
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
			if f.Kind() == reflect.Struct {
				n = filled(f, n)
				continue
			}
		case reflect.Struct:
			n = filled(f, n)
			continue
		case reflect.Array:
			for j := range f.Len() {
				n++
				v := n + .125
				f.Index(j).Set(reflect.ValueOf(&v))
			}
			continue
		default:
		}
		n++
		switch f.Kind() {
		case reflect.Float64:
			f.SetFloat(n + .125)
		case reflect.Int:
			f.SetInt(int64(n))
		default:
		}
	}
	return n
}

// Whatever the CSV holds is read again: written once more it is the same to the byte, with every column filled and with every figure
// absent that can be.
func TestOwnCSVHoldsWhatItSays(t *testing.T) {
	two := []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 600}, {Metric: "itl", Quantile: .999, LimitMS: 40.5}}
	full := measurement.StepResult{Verdict: measurement.Fail, Decided: measurement.Undecided, ITLBasis: "chunk", Flags: []string{measurement.FlagCensored, measurement.FlagErrors}}
	filled(reflect.ValueOf(&full).Elem(), 10)
	for i, share := range []**float64{&full.ErrorRate, &full.CacheHitRate, &full.PassProbability} {
		v := 1 / float64(i+2)
		*share = &v
	}
	v := 512.25
	full.Objectives = []measurement.ObjectiveResult{{Objective: two[0], ValueMS: &v}, {Objective: two[1]}}
	bare := measurement.StepResult{Step: 1, Rate: .5, Verdict: measurement.Undecided}
	for _, c := range []measurement.Config{{Turns: 4, SLO: two}, {Turns: 2, SLO: two, Arrivals: "closed"}, {Turns: 1, LoadOf: measurement.Requests, SLO: two, Arrivals: "gamma:2"}} {
		want := csvOf(t, measurement.Results{Label: `a "b", c`, Config: c, Steps: []measurement.StepResult{full, bare}})
		in, err := Read([]File{{Name: "results/x.csv", Data: []byte(want)}}, slo300)
		if err != nil || len(in.Curves) != 1 || in.Files[0].Kind != OwnCSV {
			t.Fatalf("%v, %+v", err, in.Files)
		}
		r := in.Curves[0]
		if d := cmp.Diff(want, csvOf(t, r)); d != "" {
			t.Errorf("written again (-want +got):\n%s", d)
		}
		if r.Label != `a "b", c` || !slices.Equal(r.Config.SLO, two) || r.Config.Turns != c.Turns || r.Config.LoadOf != c.LoadOf || r.Steps[0].Objectives[0].LimitMS != 600 {
			t.Errorf("%q of %+v", r.Label, r.Config)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(csvOf(t, measurement.Results{Steps: []measurement.StepResult{full}}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range rows[0] {
		if ownCells()[name] == nil {
			t.Errorf("the column %s is read by nothing", name)
		}
		if rows[1][i] == "" && !slices.Contains([]string{"label", "slo", "turns"}, name) {
			t.Errorf("the column %s is empty of a step that has everything", name)
		}
	}
}

// The knees of a run's CSV are those of the run.
func TestOwnCSVKnees(t *testing.T) {
	for _, slo := range [][]measurement.Objective{slo300, {{Metric: "ttft", Quantile: .95, LimitMS: 150}}, {{Metric: "ttft", Quantile: .9, LimitMS: 200}, {Metric: "itl", Quantile: .95, LimitMS: 40}}} {
		for _, fails := range []int{0, 3} {
			log := aRun("L")
			log.Header.Config.SLO = slo
			for i := range log.Turns {
				turn := &log.Turns[i]
				if fails > 0 && turn.Step >= 2 && turn.Turn > 1 && turn.Call%fails == 0 {
					turn.Outcome, turn.FirstToken, turn.LastToken, turn.Events = measurement.TTFTTimeout, measurement.Never, measurement.Never, 0
				}
			}
			want := analysis.Analyze(log)
			in, err := Read([]File{{Name: "x/other.csv", Data: []byte(csvOf(t, want))}}, []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.Knees, in.Curves[0].Knees); d != "" {
				t.Errorf("%v, every %d failing: knees (-log +csv):\n%s", slo, fails, d)
			}
		}
	}
}

// Our CSV as it is not: of an earlier version, torn, altered, several runs in one.
func TestOwnCSVOdd(t *testing.T) {
	log := aRun("L")
	want := analysis.Analyze(log)
	text := csvOf(t, want)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	without := func(from string) string {
		n := slices.Index(rows[0], from)
		var out []string
		for _, row := range rows {
			out = append(out, strings.Join(row[:n], ","))
		}
		return strings.Join(out, "\n") + "\n"
	}
	old, err := Read([]File{{Name: "results/L.csv", Data: []byte(without("ttft_mean_ms"))}}, slo300)
	if err != nil {
		t.Fatal(err)
	}
	r := old.Curves[0]
	if r.Label != "L" || r.Knees.SLO.Status != want.Knees.SLO.Status || *r.Knees.SLO.Rate != *want.Knees.SLO.Rate || !strings.Contains(strings.Join(r.Warnings, "\n"), "earlier version") {
		t.Errorf("of an earlier version: %q, %+v, %q", r.Label, r.Knees.SLO, r.Warnings)
	}
	strict, err := Read([]File{{Name: "results/L.csv", Data: []byte(without("ttft_mean_ms"))}}, []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 150}})
	if err != nil || *strict.Curves[0].Knees.SLO.Rate >= *want.Knees.SLO.Rate || !strings.Contains(strings.Join(strict.Curves[0].Warnings, "\n"), "judged by --slo they differ at") {
		t.Errorf("judged by 150 ms: %v, %+v, %q", err, strict.Curves[0].Knees.SLO, strict.Curves[0].Warnings)
	}
	both, err := Read([]File{{Name: "x.csv", Data: []byte(text + strings.ReplaceAll(text, ",L,", ",M,"))}}, slo300)
	if err != nil || len(both.Curves) != 2 || both.Curves[1].Label != "M" || !cmp.Equal(both.Curves[0].Knees, both.Curves[1].Knees) {
		t.Errorf("two in one file: %d curves, %v", len(both.Curves), err)
	}
	torn, err := Read([]File{{Name: "x.csv", Data: []byte(text[:len(text)-60])}}, slo300)
	if err != nil || len(torn.Curves[0].Steps) != len(want.Steps)-1 || !strings.Contains(strings.Join(torn.Curves[0].Warnings, "\n"), fmt.Sprintf("x.csv:%d: the row is torn", len(want.Steps)+1)) {
		t.Errorf("torn: %v, %+v", err, torn.Curves)
	}
	for old, c := range map[string][2]string{
		",pass,":    {",perhaps,", `x.csv:2 has "perhaps" as its verdict, which is none of its words`},
		"ttft:p95=": {"ttft=", "as its objectives, which is no objective"},
		"\n0,":      {"\nnought,", `x.csv:2 has "nought" as its step`},
	} {
		_, err := Read([]File{{Name: "x.csv", Data: []byte(strings.Replace(text, old, c[0], 1))}}, slo300)
		if err == nil || !strings.Contains(err.Error(), c[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: %v; want %q", c[0], old, err, c[1])
		}
	}
}
