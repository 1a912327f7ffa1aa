package analysis

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"kneefinder/measurement"
)

// kneeRun is a run whose SLO knee is at, with an interval; NaN is an end or an estimate that it has not.
func kneeRun(label string, at, lo, hi float64) measurement.Results {
	r := measurement.Results{Label: label, Steps: []measurement.StepResult{{Rate: .5, MeasuredTurns: 90}, {Rate: 8, MeasuredTurns: 90}}}
	r.Knees.SLO = measurement.Knee{Status: measurement.Found, Rate: figure(at), Estimate: figure(at), CI95: [2]*float64{figure(lo), figure(hi)}}
	return r
}

func without(label string, status measurement.KneeStatus, rate float64) measurement.Results {
	r := kneeRun(label, 1, 1, 1)
	r.Knees.SLO = measurement.Knee{Status: status, Rate: figure(rate)}
	return r
}

func TestRatio(t *testing.T) {
	nan := math.NaN()
	loop := kneeRun("loop", 4, 3, 5)
	loop.Config.Arrivals = closed
	onlyRate := kneeRun("b", 3, nan, nan)
	onlyRate.Knees.SLO.Estimate = nil
	for _, c := range []struct {
		why      string
		a, b     measurement.Results
		want     float64
		low, top float64
		says     string
	}{
		{"both intervals, each a tenth wide: their ratio's is the root of 2 wider in logs", kneeRun("a", 2, 2/1.1, 2*1.1), kneeRun("b", 4, 4/1.1, 4*1.1), 2, 2 / 1.1443, 2 * 1.1443,
			"b carries 2 times what a carries, 95 % interval 1.75 to 2.29."},
		{"an end of a sure first is that of the other", kneeRun("a", 2, 2, 2), kneeRun("b", 3, 2, 5), 1.5, 1, 2.5, "b carries 1.5 times what a carries, 95 % interval 1 to 2.5: which of them carries more cannot be told."},
		{"less", kneeRun("a", 2, 1.9, 2.1), kneeRun("b", 1, .95, 1.05), .5, .466, .5366, "0.5 times what a carries, 95 % interval 0.466 to 0.537."},
		{"the other has no upper end", kneeRun("a", 2, 1.9, 2.1), kneeRun("b", 4, 3.9, nan), 2, 1.893, nan, "95 % interval 1.89 or more; of the knees' intervals that of b has no upper end."},
		{"the first has no lower end, which opens the ratio above", kneeRun("a", 2, nan, 2), kneeRun("b", 4, 4, 4), 2, 2, nan, "that of a has no lower end"},
		{"no interval at all", kneeRun("a", 2, nan, nan), kneeRun("b", 4, nan, nan), 2, nan, nan, "b carries 2 times what a carries; how sure that is cannot be told: of the knees' intervals that of b has no lower end, that of b has no upper end, that of a has no lower end, that of a has no upper end."},
		{"a knee that is only a rate tried", kneeRun("a", 2, 2, 2), onlyRate, 1.5, nan, nan, "b carries 1.5 times what a carries; how sure that is cannot be told"},
		{"above the range", kneeRun("a", 2, 2, 2), without("b", measurement.AboveRange, 8), nan, nan, nan, "how b compares with a cannot be told: the SLO knee of b lies above 8 calls/s, the highest load tried."},
		{"below the range", without("a", measurement.BelowRange, nan), kneeRun("b", 2, 2, 2), nan, nan, nan, "cannot be told: the SLO knee of a lies below the loads tried."},
		{"no knee in either", without("a", measurement.NoKnee, nan), without("b", measurement.NoKnee, nan), nan, nan, nan, "cannot be told: a has no SLO knee, and b has no SLO knee."},
		{"an open and a closed loop", kneeRun("a", 2, 2, 2), loop, nan, nan, nan, "cannot be told: a counts calls/s and loop calls at once."},
	} {
		got := ratioOf(c.a, c.b)
		near := func(v *float64, want float64) bool {
			return math.IsNaN(want) == (v == nil) && (v == nil || math.Abs(*v/want-1) < 1e-3)
		}
		if !near(got.Estimate, c.want) || !near(got.CI95[0], c.low) || !near(got.CI95[1], c.top) {
			t.Errorf("%s: %v (%v to %v), want %v (%v to %v)", c.why, value(got.Estimate), value(got.CI95[0]), value(got.CI95[1]), c.want, c.low, c.top)
		}
		if says := got.says(c.a.Label, c.b.Label); !strings.Contains(says, c.says) {
			t.Errorf("%s: %q, want %q", c.why, says, c.says)
		}
	}
}

// Of knees that are log-normal about the truth, with intervals that hold theirs in 95 of 100, the ratio's interval holds the true
// ratio in about as many.
func TestRatioCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const runs, sa, sb, truth = 4000, .1, .25, 2.5
	held := 0
	draw := func(label string, at, s float64) measurement.Results {
		x := at * math.Exp(s*r.NormFloat64())
		return kneeRun(label, x, x*math.Exp(-1.96*s), x*math.Exp(1.96*s))
	}
	for range runs {
		got := ratioOf(draw("a", 2, sa), draw("b", 2*truth, sb))
		if *got.CI95[0] <= truth && truth <= *got.CI95[1] {
			held++
		}
	}
	if share := float64(held) / runs; share < .94 || share > .96 {
		t.Errorf("the interval holds the ratio in %.3f, want .95", share)
	}
}

func TestCompareCosts(t *testing.T) {
	rs := []measurement.Results{kneeRun("A", 2, 1.6, 2.5), kneeRun("B", 6, 5, 7), without("C", measurement.AboveRange, 8)}
	c, err := Compare(rs, Costs{Price: map[string]float64{"A": .8, "B": 4}, GPUs: map[string]float64{"A": 1, "B": 2, "C": 4}})
	if err != nil {
		t.Fatal(err)
	}
	b := c.Runs[1]
	if got := *b.PerGPU.Estimate; got != 3 {
		t.Errorf("a GPU of B carries %v, want 3", got)
	}
	if got := *b.PerDollar.OfFirst.Estimate; math.Abs(got-.6) > 1e-9 { // 1.5 against 2.5 calls/s for a dollar an hour
		t.Errorf("a dollar carries %v of what it carries on A, want .6", got)
	}
	if got, want := *b.PerGPU.OfFirst.CI95[1]/(*b.PerGPU.OfFirst.Estimate), *b.OfFirst.CI95[1]/(*b.OfFirst.Estimate); math.Abs(got-want) > 1e-9 {
		t.Errorf("the interval's end is %v times the ratio a GPU, want %v as of the knees", got, want)
	}
	if c.Runs[2].PerGPU.Estimate != nil || c.Runs[2].PerDollar != nil {
		t.Errorf("C, which has no knee and no price, carries %+v a GPU and %+v a dollar", c.Runs[2].PerGPU, c.Runs[2].PerDollar)
	}
	var out bytes.Buffer
	c.Summary(&out)
	for _, want := range []string{"B       2              3     2.5 to 3.5", "1.50x (", "0.60x (", "Ratio: B carries 3 times what A carries", "how C compares with A cannot be told"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	for _, bad := range []Costs{{Price: map[string]float64{"X": 1}}, {GPUs: map[string]float64{"A": 0}}, {GPUs: map[string]float64{"A": 1.5}}, {Price: map[string]float64{"A": math.Inf(1)}}} {
		if _, err := Compare(rs, bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	// B carries three times as much, so that a dollar does when it costs three times .8, and it costs 4.
	if e := c.Runs[1].BreakEven; e == nil || math.Abs(*e.Estimate-2.4) > 1e-9 || !(*e.CI95[0] < 2.4 && *e.CI95[1] > 2.4) {
		t.Errorf("break-even %+v, want 2.4 within an interval", e)
	}
	if want := "Break-even: a dollar carries as much on B as on A when B costs $2.4/h, 95 % interval 1.8"; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "At $4/h it carries less for a dollar.") {
		t.Errorf("no %q in:\n%s", want, out.String())
	}
	if c.Runs[0].BreakEven != nil || c.Runs[2].BreakEven != nil {
		t.Error("a break-even of the first run, or of one without a ratio")
	}
	text, err := json.Marshal(c)
	if err != nil || strings.Contains(string(text), "NaN") || !strings.Contains(string(text), `"schema":"kneefinder/comparison/v1"`) || !strings.Contains(string(text), `"of_first":{"estimate":3,`) {
		t.Errorf("%v, as JSON %s", err, text)
	}
}

func TestGates(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		why    string
		b      measurement.Results
		strict bool
		want   string // "" when nothing regressed
	}{
		{"surely lower", kneeRun("b", 1, .9, 1.1), false, "b carries 0.5 times what a carries, 95 % interval"},
		{"lower by less than a tenth", kneeRun("b", 1.9, 1.85, 1.92), false, ""},
		{"perhaps lower", kneeRun("b", 1.6, 1.2, 2.2), false, ""},
		{"perhaps lower, strictly", kneeRun("b", 1.6, 1.2, 2.2), true, "b carries 0.8 times what a carries, less than 0.9"},
		{"strictly within a tenth", kneeRun("b", 1.85, .1, 9), true, ""},
		{"lower, and its interval has no upper end", kneeRun("b", 1.5, 1.2, nan), false, "how sure that is cannot be told"},
		{"higher without an interval", kneeRun("b", 3, nan, nan), false, ""},
		{"above loads that reach far enough", without("b", measurement.AboveRange, 1.9), false, ""},
		{"above loads that do not", without("b", measurement.AboveRange, 1.5), false, "whether b fell by more than 10 % against a cannot be told: the SLO knee of b lies above 1.5 calls/s"},
		{"below all loads", without("b", measurement.BelowRange, nan), false, "b fell by more than 10 % against a: the SLO knee of b lies below the loads tried"},
		{"no knee", without("b", measurement.NoKnee, nan), true, "cannot be told: b has no SLO knee"},
	} {
		cmp, err := Compare([]measurement.Results{kneeRun("a", 2, 1.9, 2.1), c.b}, Costs{})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(cmp.Regressed(.1, c.strict), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
	for _, c := range []struct {
		why  string
		r    measurement.Results
		want string
	}{
		{"higher", kneeRun("a", 1, nan, nan), ""},
		{"just so", kneeRun("a", .75, nan, nan), ""},
		{"lower", kneeRun("a", .5, .4, 2), "the SLO knee of a, as estimated, is 0.5 calls/s, below 0.75"},
		{"lower by less than three digits show", kneeRun("a", .7499, .4, 2), "the SLO knee of a, as estimated, is 0.7499 calls/s, below 0.75"},
		{"above loads that reach", without("a", measurement.AboveRange, .75), ""},
		{"above loads that do not", without("a", measurement.AboveRange, .6), "whether it is below 0.75 cannot be told"},
		{"below all loads, of which the lowest is lower", without("a", measurement.BelowRange, nan), "lies below the loads tried, so below 0.75"},
		{"none", without("a", measurement.NoKnee, nan), "a has no SLO knee: whether it is below 0.75 cannot be told"},
	} {
		if got := KneeBelow(c.r, .75); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

// The SVG is XML with the same words as stand on the PNG, drawn twice alike.
func TestChartSVG(t *testing.T) {
	rs := runs()
	for name, c := range map[string]struct {
		draw func(io.Writer) error
		want []string
	}{
		"one":     {func(w io.Writer) error { return ChartSVG(w, rs[0]) }, []string{"SLO knee", "curvature knee", "cache hit rate, %", "95 % interval"}},
		"several": {func(w io.Writer) error { return ChartCompareSVG(w, rs[:2]) }, []string{"P95 TTFT and cache hit rate over the load", rs[0].Label, rs[1].Label}},
	} {
		var a, b bytes.Buffer
		if err := errors.Join(c.draw(&a), c.draw(&b)); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("%s: %v, or drawn twice in two ways", name, err)
		}
		var words strings.Builder
		root := ""
		for d := xml.NewDecoder(&a); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch x := token.(type) {
			case xml.StartElement:
				if root == "" {
					root = x.Name.Local
				}
			case xml.CharData:
				words.Write(x)
			}
		}
		if root != "svg" {
			t.Errorf("%s: the root is %q", name, root)
		}
		for _, want := range c.want {
			if !strings.Contains(words.String(), want) {
				t.Errorf("%s: no %q in the picture's words", name, want)
			}
		}
		if bytes.Contains(b.Bytes(), []byte("http://")) && !bytes.Contains(b.Bytes(), []byte("http://www.w3.org/")) {
			t.Errorf("%s: the picture asks for something elsewhere", name)
		}
	}
	if err := ChartCompareSVG(io.Discard, nil); err == nil {
		t.Error("no runs make a picture")
	}
}
