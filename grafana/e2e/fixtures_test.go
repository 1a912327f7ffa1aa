package e2e

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/telemetry/names"
)

// moving serves a page that was taken from a real server, as if that went on at the pace at which it was: what only grows grows
// by a tenth of itself each second.
func moving(t *testing.T, path string) http.Handler {
	raw := string(contents(t, path))
	began := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		grown := 1 + time.Since(began).Seconds()/10
		kinds := map[string]string{}
		for lines := bufio.NewScanner(strings.NewReader(raw)); lines.Scan(); {
			line := lines.Text()
			if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
				kinds[fields[2]] = fields[3]
			}
			space := strings.LastIndexByte(line, ' ')
			if strings.HasPrefix(line, "#") || space < 0 {
				fmt.Fprintln(w, line)
				continue
			}
			name := line[:strings.IndexAny(line, "{ ")]
			kind := kinds[name]
			if kind == "" {
				kind = kinds[name[:max(strings.LastIndexByte(name, '_'), 0)]]
			}
			value, err := strconv.ParseFloat(line[space+1:], 64)
			if err == nil && (kind == "counter" || kind == "histogram" || kind == "summary" && !strings.Contains(line, "quantile=")) {
				value = math.Floor(value * grown)
			}
			fmt.Fprintf(w, "%s %v\n", line[:space], value)
		}
	})
}

// renamed passes a page on in which a family has another name.
func renamed(page http.Handler, from string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := httptest.NewRecorder()
		page.ServeHTTP(kept, r)
		body := kept.Body.String()
		for _, after := range []string{"{", " ", "_bucket", "_sum", "_count"} {
			body = strings.ReplaceAll(body, from+after, from+"_other"+after)
		}
		fmt.Fprint(w, body)
	})
}

// serve returns the address at which a page is.
func serve(t *testing.T, page http.Handler) string {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// page is a page of metrics in Prometheus's text format.
type page struct {
	strings.Builder
	typed map[string]bool
}

// labels are pairs of a name and a value.
func (p *page) sample(kind, family, suffix string, value float64, labels ...string) {
	if p.typed == nil {
		p.typed = map[string]bool{}
	}
	if !p.typed[family] {
		p.typed[family] = true
		fmt.Fprintf(p, "# TYPE %s %s\n", family, kind)
	}
	fmt.Fprintf(p, "%s%s{", family, suffix)
	for i := 0; i < len(labels); i += 2 {
		fmt.Fprintf(p, "%s=%q,", labels[i], labels[i+1])
	}
	fmt.Fprintf(p, "} %v\n", value)
}

func (p *page) gauge(name string, value float64, labels ...string) {
	p.sample("gauge", name, "", value, labels...)
}

func (p *page) counter(name string, value float64, labels ...string) {
	p.sample("counter", name, "", math.Floor(value), labels...)
}

// histogram holds n values that lie evenly between 0 and most.
func (p *page) histogram(name string, bounds []float64, n, most float64, labels ...string) {
	n = math.Floor(n)
	for _, b := range bounds {
		p.sample("histogram", name, "_bucket", math.Floor(n*min(1, b/most)), append(labels, "le", strconv.FormatFloat(b, 'g', -1, 64))...)
	}
	p.sample("histogram", name, "_bucket", n, append(labels, "le", "+Inf")...)
	p.sample("histogram", name, "_sum", n*most/2, labels...)
	p.sample("histogram", name, "_count", n, labels...)
}

const fixtureRun = "fixture"

// kneeload serves what a sweep exports in its third step, with two behind it: every metric of names but the native histograms.
func kneeload() http.Handler {
	began := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := new(page)
		fill(p, began.Add(-2*time.Minute), time.Since(began).Seconds()+1)
		fmt.Fprint(w, p.String())
	})
}

// fill writes the page of a run whose first step began at an instant, the third one s seconds ago.
func fill(p *page, first time.Time, s float64) {
	of := func(labels ...string) []string { return append([]string{names.Label, fixtureRun}, labels...) }
	quantiles := []string{"0.5", "0.95", "0.99"}
	limit := .3

	for step, turns := range []float64{200, 400, 20 * s} {
		at := of(names.Step, strconv.Itoa(step))
		for _, class := range []string{names.First, names.Measured, names.Unmeasured} {
			in := append(at[:len(at):len(at)], names.TurnClass, class)
			p.histogram(names.TTFT, names.TTFTBounds(limit), turns, .4, in...)
			p.histogram(names.TTFTSent, names.TTFTBounds(limit), turns, .39, in...)
			p.histogram(names.E2E, names.TTFTBounds(limit), turns, 1.2, in...)
			p.histogram(names.ITL, names.ITLBounds(), turns*15, .03, in...)
			p.histogram(names.TPOT, names.ITLBounds(), turns, .02, in...)
			p.histogram(names.Lag, names.LagBounds(), turns, .001, in...)
			p.histogram(names.Cached, names.TokenBounds(), turns, 3000, in...)
			p.counter(names.TurnsTotal, turns, append(in[:len(in):len(in)], names.Outcome, "ok")...)
			p.counter(names.TurnsTotal, turns/50, append(in[:len(in):len(in)], names.Outcome, "http_5xx")...)
			p.counter(names.TurnsInSLOTotal, turns*.7, in...)
			p.counter(names.PromptTokens, turns*3000, in...)
			p.counter(names.KnownPromptTokens, turns*2900, in...)
			p.counter(names.CachedTokens, turns*2500, in...)
			p.counter(names.OutputTokens, turns*16, in...)
			p.counter(names.TokenEvents, turns*16, in...)
		}
		p.histogram(names.Calls, names.CallBounds(), s, 20, at...)
		p.counter(names.CallsTotal, turns/4, at...)
		p.counter(names.Retries, turns/100, at...)
		p.counter(names.Dials, turns/10, at...)

		p.gauge(names.StepRate, float64(step+1), at...)
		start := float64(first.Unix()) + 60*float64(step)
		p.gauge(names.StepStart, start, at...)
		p.gauge(names.StepWindowStart, start+10, at...)
		if step == 2 {
			continue // in progress
		}
		p.gauge(names.StepWindowEnd, start+50, at...)
		p.gauge(names.StepEnd, start+59, at...)
		for _, name := range []string{names.StepTTFT, names.StepTTFTSent, names.StepITL, names.StepTPOT} {
			for i, q := range quantiles {
				p.gauge(name, .1*float64(step+1)*float64(i+1), append(at[:len(at):len(at)], names.Quantile, q)...)
			}
		}
		for i, name := range []string{names.StepArrived, names.StepTTFTLow, names.StepTTFTHigh, names.StepHit, names.StepErrors, names.StepTurns,
			names.StepLive, names.StepThroughput, names.StepOutput, names.StepSaturation, names.StepLag, names.StepServerTTFT, names.StepTTFTMinus} {
			p.gauge(name, float64(i)/16, at...)
		}
		for i, verdict := range []string{"pass", "fail", "undecided"} {
			p.gauge(names.StepVerdict, bit(i == step), append(at[:len(at):len(at)], names.Verdict, verdict)...)
		}
		p.gauge(names.StepFlag, 1, append(at[:len(at):len(at)], names.Flag, "off_rate")...)
	}

	wave := math.Sin(s / 5)
	for i, name := range []string{names.OfferedRate, names.ArrivedRate, names.CurrentStep, names.CallsInFlight, names.TurnsInFlight, names.WindowHit,
		names.WindowErrors, names.WindowTurns, names.WindowSeconds, names.ArrivalsCV, names.ArrivalsCalls, names.ArrivalsOK} {
		p.gauge(name, float64(i)+wave/8, of()...)
	}
	for i, q := range quantiles {
		p.gauge(names.WindowTTFT, .1*float64(i+1)+wave/50, of(names.Quantile, q)...)
		p.gauge(names.WindowITL, .01*float64(i+1)+wave/500, of(names.Quantile, q)...)
	}
	p.gauge(names.SLO, limit, of(names.Metric, "ttft", names.Quantile, "0.95")...)
	p.gauge(names.RunInfo, 1, of("tool", "kneeload", "model", "tiny", "engine", "sglang", "engine_version", "0.5.23", "gpu", "", "fidelity", "measured", "arrivals", "poisson")...)
	for _, state := range []string{"starting", "running", "draining", "done", "interrupted", "failed"} {
		p.gauge(names.RunState, bit(state == "running"), of(names.State, state)...)
	}
	for _, knee := range []string{"slo", "curvature", "saturation"} {
		for i, name := range []string{names.KneeRate, names.KneeEstimate, names.KneeLow, names.KneeHigh} {
			p.gauge(name, 1+float64(i)/4, of(names.Knee, knee)...)
		}
		for _, status := range []string{"found", "above_range", "below_range", "none"} {
			p.gauge(names.KneeStatus, bit(status == "found"), of(names.Knee, knee, names.Status, status)...)
		}
	}
	for i, test := range []string{"ks", "ad", "lag1"} {
		p.gauge(names.ArrivalsTestP, .25*float64(i+1), of(names.Test, test)...)
	}
	p.gauge(names.BuildInfo, 1, "version", "1.0.0", "revision", "abc", "goversion", "go1.26")
	for _, source := range []string{"engine", "gpu"} {
		p.counter(names.ScrapesTotal, s, names.Source, source, names.Outcome, "ok")
		p.counter(names.ScrapesTotal, s/20, names.Source, source, names.Outcome, "failed")
	}
	for _, signal := range []string{"spans", "metrics"} {
		p.counter(names.DroppedTotal, s/10, names.Signal, signal)
	}

	p.counter("process_cpu_seconds_total", s)
	p.gauge("process_resident_memory_bytes", 64<<20)
	p.gauge("process_open_fds", 20)
	p.gauge("process_max_fds", 1024)
	p.gauge("go_goroutines", 40)
	p.gauge("go_memstats_heap_alloc_bytes", 16<<20)
	p.sample("summary", "go_gc_duration_seconds", "", .0001, "quantile", "1")
	p.sample("summary", "go_gc_duration_seconds", "_sum", s/1000)
	p.sample("summary", "go_gc_duration_seconds", "_count", s)
}

func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
