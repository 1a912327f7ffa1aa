package importer

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

var slo300 = []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}

// shared are real files of other tools, which a fresh checkout has not.
func shared(t *testing.T, pattern string) []File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "data", pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skipf("no ../shared/data/%s beside the checkout: the real files are not here", pattern)
	}
	var files []File
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name, Data: b})
	}
	return files
}

// The three ladders, each driven past saturation. last is the last load within 300 ms; cross is where a straight line through the
// points around it meets 300 ms; elbow is the point farthest below the chord.
func TestLadders(t *testing.T) {
	for _, want := range []struct {
		folder             string
		last, cross, elbow float64
		capFrom            int // the first step that the client's cap holds
	}{
		{"vllm", 92.19, 94.34, 92.19, 4},
		{"vllm+batch_size", 74.94, 106.19, 111.92, 4},
		{"vllm+chunking_and_prefix_caching", 127.75, 169.08, 169.99, 5},
	} {
		files := shared(t, filepath.Join("ladders", want.folder, "*.json"))
		in, err := Read(files, slo300)
		if err != nil {
			t.Fatal(err)
		}
		if len(in.Curves) != 1 || len(in.Curves[0].Steps) != 7 {
			t.Fatalf("%s: %d curves; want one of 7 steps", want.folder, len(in.Curves))
		}
		r := in.Curves[0]
		if k := r.Knees.SLO; k.Status != measurement.Found || math.Abs(value(k.Rate)-want.last) > .01 {
			t.Errorf("%s: SLO knee %s at %v; want %v (%s)", want.folder, k.Status, value(k.Rate), want.last, k.Note)
		}
		if k := r.Knees.Curvature; k.Status != measurement.Found || math.Abs(value(k.Rate)-want.elbow) > .01 {
			t.Errorf("%s: curvature knee %s at %v; want %v (%s)", want.folder, k.Status, value(k.Rate), want.elbow, k.Note)
		}
		var x, y []float64
		for _, s := range r.Steps {
			x, y = append(x, s.Rate), append(y, value(s.TTFTP95))
		}
		i := slices.IndexFunc(y, func(v float64) bool { return v > 300 })
		straight := x[i-1] + (x[i]-x[i-1])*(300-y[i-1])/(y[i]-y[i-1])
		if math.Abs(straight-want.cross) > .01 {
			t.Errorf("%s: a straight line crosses 300 ms at %.2f; want %v", want.folder, straight, want.cross)
		}
		// The estimate is interpolated on a logarithmic scale of TTFT, between the same two loads: never before the straight line's.
		if got := value(r.Knees.SLO.Estimate); !(got >= straight-1e-9 && got <= x[i]) {
			t.Errorf("%s: estimate %.2f; want it from the straight line's %.2f to %g", want.folder, got, straight, x[i])
		}
		if knee, ok := analysis.Kneedle(x, y, analysis.ConvexIncreasing); !ok || math.Abs(x[knee]-want.elbow) > .01 {
			t.Errorf("%s: the point farthest below the chord of all seven is %v; want %v", want.folder, x[knee], want.elbow)
		}
		var waits []float64
		for _, f := range files {
			c, err := parse(f)
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, c.points[0].lagP95+value(c.points[0].ttft.at(.95)))
		}
		if knee, ok := analysis.Kneedle(x, waits, analysis.ConvexIncreasing); !ok || math.Abs(x[knee]-want.elbow) > .01 {
			t.Errorf("%s: with the lag added the elbow is %v; want %v", want.folder, x[knee], want.elbow)
		}
		for i, s := range r.Steps {
			if got := slices.Contains(s.Flags, measurement.FlagCapBound); got != (i >= want.capFrom) {
				t.Errorf("%s: step %d has the flags %v; the cap binds from step %d on", want.folder, i, s.Flags, want.capFrom)
			}
		}
		if len(r.Mechanism.Evidence) == 0 || !strings.Contains(r.Mechanism.Evidence[0], "Client cap") {
			t.Errorf("%s: evidence %q; want the client cap first", want.folder, r.Mechanism.Evidence)
		}
		for _, f := range files {
			checks, _, err := Lint(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range checks {
				if c.Name == "TPOT is (E2E-TTFT)/(n-1)" && c.Outcome != Doubtful {
					t.Errorf("%s: %s is %s (%s); the demo's token counts are known to be about twice too high", f.Name, c.Name, c.Outcome, c.Figures)
				}
			}
		}
	}
	// All three at once are still three.
	in, err := Read(shared(t, "ladders/*/*.json"), slo300)
	if err != nil || len(in.Curves) != 3 {
		t.Errorf("all ladders at once: %d curves, %v; want 3", len(in.Curves), err)
	}
}

func TestRealSGLang(t *testing.T) {
	in, err := Read(shared(t, "imports/sglang*.json"), slo300)
	if err != nil {
		t.Fatal(err)
	}
	r := in.Curves[0]
	if len(in.Curves) != 1 || r.Config.Arrivals != closedLoop || fmt.Sprint(r.Config.Rates) != "[16 128]" {
		t.Fatalf("%d curves, arrivals %q over %v; want one closed loop over 16 and 128", len(in.Curves), r.Config.Arrivals, r.Config.Rates)
	}
	for _, s := range r.Steps {
		if s.TTFTP95 != nil {
			t.Errorf("step %d has P95 TTFT %v; the file holds none", s.Step, *s.TTFTP95)
		}
		if s.Verdict != measurement.Fail && s.Verdict != measurement.Undecided || s.ITLBasis != "chunk" {
			t.Errorf("step %d: verdict %s, ITL by %q; want no pass, and chunks of about 30 tokens", s.Step, s.Verdict, s.ITLBasis)
		}
	}
}

// Every real file is either read or refused in one sentence that names it.
func TestEveryRealFile(t *testing.T) {
	files := shared(t, "*/*")
	files = append(files, shared(t, "*/*/*")...)
	for _, f := range files {
		c, err := parse(f)
		if err != nil {
			t.Logf("%s: %v", filepath.Base(f.Name), err)
			if !strings.Contains(err.Error(), f.Name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q is no one sentence that names the file", f.Name, err)
			}
			continue
		}
		in, err := Read([]File{f}, slo300)
		t.Logf("%s: %s, %d steps, %d curves alone (%v)", filepath.Base(f.Name), c.kind, len(c.points), len(in.Curves), err)
	}
}
