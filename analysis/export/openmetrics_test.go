package export

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
	"kneefinder/telemetry/names"
)

// aRun has two steps, with turns of every class, some failed, and TTFTs exactly at the limit.
func aRun(t *testing.T) measurement.Log {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	log := measurement.Log{Header: measurement.Header{Label: `a "b"\`, Tool: "kneeload test", Config: measurement.Config{Turns: 3,
		SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 330}}}, Engine: measurement.Engine{Model: "m"}}}
	for n := range 2 {
		s := measurement.Step{Step: n, Rate: float64(n + 1), Start: time.Duration(n) * 100 * time.Second}
		s.WindowStart, s.WindowEnd, s.DrainEnd = s.Start+10*time.Second, s.Start+70*time.Second, s.Start+85*time.Second
		gaps := measurement.NewHistogram()
		for c := range 180 {
			due := s.Start + time.Duration(c)*400*time.Millisecond
			for k := 1; k <= 3; k++ {
				x := measurement.NewTurn()
				x.Step, x.Call, x.Turn, x.Due, x.Sent, x.Outcome = n, n*measurement.CallsPerStep+c, k, due, due+time.Millisecond, measurement.OK
				x.FirstToken = due + time.Duration(r.IntN(66)+1)*10*time.Millisecond // 330 ms among them
				x.LastToken = x.FirstToken + 100*time.Millisecond
				x.End, x.Events, x.CompletionTokens, x.PromptTokens, x.CachedTokens = x.LastToken, 6, 6, 100, 90
				if c%15 == 7 && k == 3 {
					x.Outcome, x.FirstToken, x.LastToken, x.Events, x.CachedTokens = measurement.HTTP5xx, measurement.Never, measurement.Never, 0, measurement.Unknown
				} else if k > 1 && s.InWindow(due) {
					for range 5 {
						measurement.RecordGap(gaps, 20*time.Millisecond)
					}
				}
				log.Turns = append(log.Turns, x)
				due = x.End + time.Second
			}
		}
		h, err := measurement.EncodeHistogram(2, gaps)
		if err != nil {
			t.Fatal(err)
		}
		s.ITL = []measurement.Histogram{h}
		log.Steps = append(log.Steps, s)
	}
	return log
}

var line = regexp.MustCompile(`^([a-z0-9_]+)(\{.*\}) (\S+) (\d+\.\d{3})$`)

func TestOpenMetrics(t *testing.T) {
	log := aRun(t)
	r := analysis.Analyze(log)
	start := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	var b bytes.Buffer
	if err := OpenMetrics(&b, log, r, start, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	last, when := map[string]float64{}, map[string]float64{}
	families := map[string]bool{}
	for s := bufio.NewScanner(bytes.NewReader(b.Bytes())); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "# TYPE "); ok {
			if families[name] {
				t.Errorf("%s stands there twice", name)
			}
			families[name] = true
		}
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			t.Fatalf("no sample: %q", s.Text())
		}
		v, err1 := strconv.ParseFloat(m[3], 64)
		at, err2 := strconv.ParseFloat(m[4], 64)
		series := m[1] + m[2]
		if err1 != nil || err2 != nil || when[series] >= at {
			t.Fatalf("%q: %v %v, or not later than %f", s.Text(), err1, err2, when[series])
		}
		if strings.HasSuffix(m[1], "_total") && v < last[series] {
			t.Errorf("%s fell from %g to %g", series, last[series], v)
		}
		last[series], when[series] = v, at
	}
	for n, s := range r.Steps {
		within, tokens, gaps := 0., 0., 0.
		for _, x := range log.Turns {
			if d, ok := x.TTFT(); x.Step == n && x.Turn > 1 && log.Steps[n].InWindow(x.Due) && ok {
				tokens++
				gaps += 5
				if d <= 330*time.Millisecond {
					within++
				}
			}
		}
		at := fmt.Sprintf(`{job="kneeload",instance="backfill",label="a \"b\"\\",step="%d"`, n)
		measured := at + `,turn_class="measured"`
		for series, want := range map[string]float64{
			names.TTFT + "_bucket" + measured + `,le="0.33"}`:                within,
			names.TTFT + "_bucket" + measured + `,le="+Inf"}`:                tokens,
			names.TTFT + "_count" + measured + "}":                           tokens,
			names.TurnsInSLOTotal + measured + "}":                           within,
			names.ITL + "_count" + measured + "}":                            gaps,
			names.ITL + "_bucket" + measured + `,le="0.025"}`:                gaps,
			names.ITL + "_bucket" + measured + `,le="0.015"}`:                0,
			names.CachedTokens + measured + "}":                              90 * tokens,
			names.StepTTFT + at + `,` + names.Quantile + `="0.95"}`:          *s.TTFTP95 / 1e3,
			names.StepTurns + at + "}":                                       float64(s.MeasuredTurns),
			names.StepErrors + at + "}":                                      *s.ErrorRate,
			names.StepVerdict + at + `,verdict="` + string(s.Verdict) + `"}`: 1,
			names.StepRate + at + "}":                                        s.Rate,
			names.CallsTotal + at + "}":                                      180,
		} {
			if got, ok := last[series]; !ok || got != want {
				t.Errorf("%s is %g (there: %v), want %g", series, got, ok, want)
			}
		}
		if within == 0 || within == tokens {
			t.Errorf("%g of %g turns within the limit prove nothing", within, tokens)
		}
	}
	if got := last[names.CallsInFlight+`{job="kneeload",instance="backfill",label="a \"b\"\\"}`]; got != 0 {
		t.Errorf("%g calls in flight at the end", got)
	}

	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (apt-get install prometheus) to load what was written")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.om"), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "tsdb", "create-blocks-from", "openmetrics", filepath.Join(dir, "x.om"), filepath.Join(dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "data", "wal"), 0o777); err != nil { // dump wants one
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), promtool, "tsdb", "dump", filepath.Join(dir, "data")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bytes.Count(out, []byte("\n")), strings.Count(b.String(), "\n")-strings.Count(b.String(), "\n#")-1; got != want {
		t.Errorf("Prometheus holds %d samples, %d were written", got, want)
	}
}

// The bucket of a limit counts a TTFT that is exactly at it, whatever number the limit is.
func TestExactlyAtTheLimit(t *testing.T) {
	for tenths := range 60000 {
		ms := float64(tenths+1) / 10
		bounds := names.TTFTBounds(names.Seconds(ms))
		var h tally
		h.add(bounds, time.Duration((tenths+1)*100_000).Seconds(), 1)
		upTo := 0.
		for i, b := range bounds {
			if upTo += h.counts[i]; b == names.Seconds(ms) {
				break
			}
		}
		if upTo != 1 {
			t.Fatalf("%v ms: a TTFT at the limit is not in the bucket of the limit", ms)
		}
	}
}

// The instants of a run that was gone on with hold the pause.
func TestPauseOfAResumedRun(t *testing.T) {
	log := aRun(t)
	log.Header.Started = "2026-01-02T03:04:05Z"
	log.Epochs = []measurement.Epoch{{FromStep: 1, At: 90 * time.Second, Started: "2026-01-02T05:00:00Z"}}
	var b bytes.Buffer
	if err := OpenMetrics(&b, log, analysis.Analyze(log), time.Time{}, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	at := func(step int) string {
		m := regexp.MustCompile(fmt.Sprintf(`%s\{[^}]*step="%d"\} (\S+)`, names.StepStart, step)).FindStringSubmatch(b.String())
		if m == nil {
			t.Fatal("no such step")
		}
		v, _ := strconv.ParseFloat(m[1], 64)
		return time.Unix(int64(v), 0).UTC().Format(time.TimeOnly)
	}
	if a, c := at(0), at(1); a != "03:04:05" || c != "05:00:10" {
		t.Errorf("steps began at %s and %s, want 03:04:05 and 05:00:10", a, c)
	}
}

// What is exported is explained as it is when it is scraped.
func TestHelp(t *testing.T) {
	log := reported(t, "")
	var b bytes.Buffer
	if err := OpenMetrics(&b, log, analysis.Analyze(log), time.Unix(1, 0), time.Second); err != nil {
		t.Fatal(err)
	}
	families := 0
	for line := range strings.Lines(b.String()) {
		name, text, _ := strings.Cut(strings.TrimPrefix(line, "# HELP "), " ")
		if !strings.HasPrefix(line, "# HELP ") {
			continue
		}
		families++
		if want := cmp.Or(names.Help(name), names.Help(name+"_total")); strings.TrimSpace(text) != want || want == "" {
			t.Errorf("%s is explained as %q, want %q", name, text, want)
		}
	}
	if families < 40 {
		t.Errorf("%d families", families)
	}
}
