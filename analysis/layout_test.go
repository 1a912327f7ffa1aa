package analysis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"kneefinder/measurement"
)

// TestNamesCrossNoMark throws marks at a panel: each name stays inside it and off every mark that reaches up to its row.
func TestNamesCrossNoMark(t *testing.T) {
	c := draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: 600, Y: 300}}}
	tx := func(v float64) vg.Length { return vg.Length(v) }
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		l := &layout{}
		for i := range 1 + r.IntN(3) {
			l.marks = append(l.marks, mark{600 * r.Float64(), colorData, fmt.Sprintf("knee %d at 0.55 calls/s", i)})
		}
		places := l.arrange(c, tx)
		for i, p := range places {
			to := p.at.X + style(labelSize, colorData).Width(l.marks[i].label)
			if p.at.X < 0 || to > 600 {
				t.Fatalf("marks %v: the name of %d is at %v to %v, outside", l.marks, i, p.at.X, to)
			}
			for j, m := range l.marks {
				if x := tx(m.x); x > p.at.X && x < to && places[j].top > p.at.Y+tagHeight/2 {
					t.Fatalf("marks %v: the name of %d at %v to %v crosses mark %d", l.marks, i, p.at.X, to, j)
				}
			}
		}
	}
}

func TestLimitNamesKeepOffLines(t *testing.T) {
	c := draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: 600, Y: 300}}}
	rising := []vg.Point{{X: 0, Y: 95}, {X: 300, Y: 130}, {X: 600, Y: 300}}
	upright := []vg.Point{{X: 550, Y: 0}, {X: 550, Y: 300}}
	box := freePlace(c, 100, 80, 12, [][]vg.Point{rising, upright})
	around := draw.Canvas{Rectangle: box}
	if len(around.ClipLinesXY(rising, upright)) > 0 || box.Min.X < 0 || box.Max.X > 600 {
		t.Errorf("the name at %v is crossed or outside", box)
	}
}

func TestPictureNotes(t *testing.T) {
	steps := points([3]float64{1, 100}, [3]float64{2, 150}, [3]float64{3, 200})
	for i, v := range []measurement.Verdict{measurement.Pass, measurement.Undecided, measurement.Fail} {
		steps[i].Verdict = v
	}
	steps[0].Flags, steps[0].ArrivedRate = []string{measurement.FlagOffRate}, figure(1.2)
	steps[1].Flags = []string{measurement.FlagCapBound}
	steps[2].TTFTP99, steps[2].ErrorRate = figure(900), figure(.05)
	p99 := measurement.Objective{Metric: "ttft", Quantile: .99, LimitMS: 500}
	for _, c := range []struct {
		why  string
		slo  []measurement.Objective
		draw *measurement.Objective
		note string
	}{
		{"errors decide", slo300, nil, "The first step to fail, 3 calls/s, fails by its errors: 5 % of turns."},
		{"another quantile decides", append([]measurement.Objective{p99}, slo300...), &p99, "fails by P99 TTFT."},
		{"undecided", slo300, nil, "Undecided: 2 calls/s (calls waited for --max-concurrent-calls)."},
		{"another λ came", slo300, nil, "1.2 for 1 calls/s."},
	} {
		r := measurement.Results{Config: measurement.Config{SLO: c.slo}, Steps: steps}
		d := decider(r)
		if got := strings.Join(notes(r, d), "\n"); !strings.Contains(got, c.note) {
			t.Errorf("%s: notes %q, want %q", c.why, got, c.note)
		}
		if (d.objective == nil) != (c.draw == nil) || c.draw != nil && *d.objective != *c.draw {
			t.Errorf("%s: %v is drawn, want %v", c.why, d.objective, c.draw)
		}
	}
	cut := measurement.Results{Steps: []measurement.StepResult{{Rate: 3, Flags: []string{measurement.FlagIncomplete}}}}
	if got := notes(cut, decision{}); len(got) != 1 || got[0] != "The run was cut: its last step, λ 3 calls/s, did not end and counts for nothing." {
		t.Errorf("cut: %q", got)
	}
	missed := points([3]float64{1, 400})
	if d := decider(measurement.Results{Config: measurement.Config{SLO: slo300}, Steps: missed}); d.objective != nil || d.note != "" {
		t.Errorf("P95 TTFT decides: %+v, want nothing said", d)
	}
}

// TestAxisNamesWhatIsDrawn looks at the upper axis: beside P95 TTFT it names the curve of another objective, where one is drawn.
func TestAxisNamesWhatIsDrawn(t *testing.T) {
	itl := measurement.Objective{Metric: "itl", Quantile: .95, LimitMS: 30}
	p99 := measurement.Objective{Metric: "ttft", Quantile: .99, LimitMS: 20_000}
	for _, c := range []struct {
		why, want string
		slo       []measurement.Objective
	}{
		{"ITL alone is asked for", "P95 TTFT and P95 ITL, ms", []measurement.Objective{itl}},
		{"ITL decides", "P95 TTFT and P95 ITL, ms", []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 1000}, itl}},
		{"P95 TTFT decides", "P95 TTFT, ms", []measurement.Objective{slo300[0]}},
		{"another quantile of TTFT, in seconds", "P95 TTFT and P99 TTFT, s", []measurement.Objective{p99}},
		{"nothing is asked for", "P95 TTFT, ms", nil},
	} {
		log := pool("x", 1, .2, .3, .4, .5, .6, .7)
		log.Header.Config.SLO = c.slo
		if got := pictured(Analyze(log)).wait; got != c.want {
			t.Errorf("%s: the axis is %q, want %q", c.why, got, c.want)
		}
	}
}
