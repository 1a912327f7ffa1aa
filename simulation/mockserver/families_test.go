package mockserver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// realFamily is one line of testdata/KIND.families: what a real server has.
type realFamily struct {
	name, kind, labels, edges string // labels sorted, edges as the page writes them; "-" is none
	seen                      string // "page": on the real page; "source": only in the server's source, as it appears when it first counts
	served                    bool
	why                       string // not
}

func realFamilies(t *testing.T, kind string) map[string]realFamily {
	t.Helper()
	text, err := os.ReadFile("testdata/" + kind + ".families")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]realFamily{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 6 {
			t.Fatalf("%s.families: %q has %d columns, want 6", kind, line, len(f))
		}
		r := realFamily{name: f[0], kind: f[1], labels: f[2], edges: f[3], seen: f[4], served: f[5] == "served", why: f[5]}
		if _, twice := all[r.name]; twice {
			t.Errorf("%s.families has %s twice", kind, r.name)
		}
		all[r.name] = r
	}
	return all
}

func labelNames(f *dto.MetricFamily) (names []string) {
	for _, m := range f.GetMetric() {
		for _, l := range m.Label {
			if !slices.Contains(names, l.GetName()) {
				names = append(names, l.GetName())
			}
		}
	}
	slices.Sort(names)
	return names
}

func edges(f *dto.MetricFamily) string {
	if f.GetType() != dto.MetricType_HISTOGRAM {
		return "-"
	}
	var all []string
	for _, b := range f.Metric[0].Histogram.Bucket {
		if e := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64); e != "+Inf" {
			all = append(all, e)
		}
	}
	return strings.Join(all, " ")
}

// describe is a family of a page in the columns of the table.
func describe(f *dto.MetricFamily) string {
	names := strings.Join(labelNames(f), ",")
	if names == "" {
		names = "-"
	}
	return fmt.Sprintf("%s | %s | %s", strings.ToLower(f.GetType().String()), names, edges(f))
}

// The table has every family of the real page, with its type, labels and edges.
func TestTablesAreTheRealPages(t *testing.T) {
	for kind, file := range map[string]string{"sglang": "sglang-0.5.23", "vllm": "vllm-0.32"} {
		f, err := os.Open("../../telemetry/scrape/testdata/" + file + ".prom")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(f)
		if err != nil {
			t.Fatal(err)
		}
		table := realFamilies(t, kind)
		for _, name := range slices.Sorted(maps.Keys(families)) {
			if strings.HasSuffix(name, "_created") {
				continue // what the Python client adds to each counter and histogram; optional
			}
			r, ok := table[name]
			if got := describe(families[name]); !ok || r.seen != "page" || got != fmt.Sprintf("%s | %s | %s", r.kind, r.labels, r.edges) {
				t.Errorf("%s: the real page has\n%s | %s | page | ...\nthe table %+v", kind, name, got, r)
			}
		}
		for name, r := range table {
			if _, ok := families[name]; ok != (r.seen == "page") {
				t.Errorf("%s.families: %s is on the real page: %t, and the table says it is seen in its %s", kind, name, ok, r.seen)
			}
		}
	}
}

// Every family that is served is one of the real server's, with its type, labels and edges; every other one of the real server's
// is in the table with a reason.
func TestFamilies(t *testing.T) {
	for _, kind := range []Kind{SGLang, VLLM} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Kind: kind, ModelName: "tiny", ContextLimit: 32768, WeightBytes: 1, MemFraction: .9}, smallEngine(t, 2000))
			c := serve(t, s)
			go c.chat(t.Context(), turn{0, 1}, 1000, calls2(90).opened(0)...)
			time.Sleep(200 * time.Millisecond)
			c.chat(t.Context(), turn{1, 1}, 1000, calls2(90).opened(1)...) // one of the two is retracted
			c.chat(t.Context(), turn{1, 1}, 10, calls2(90).opened(1)...)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			c.chat(ctx, turn{2, 1}, 1000, user("hi"))
			cancel()
			c.do("POST", "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`)
			time.Sleep(time.Second)

			p, table := c.scrape(), realFamilies(t, string(kind))
			for _, name := range slices.Sorted(maps.Keys(p.families)) {
				r, ok := table[name]
				if got := describe(p.families[name]); !ok || got != fmt.Sprintf("%s | %s | %s", r.kind, r.labels, r.edges) {
					t.Errorf("%s: served\n%s | %s\nreal (%t)\n%+v", kind, name, got, ok, r)
				}
				if ok && !r.served {
					t.Errorf("%s: %s is served, the table says: %s", kind, name, r.why)
				}
			}
			served := 0
			for name, r := range table {
				switch {
				case r.served && p.families[name] == nil:
					t.Errorf("%s: %s is not served, the table says it is", kind, name)
				case r.served:
					served++
				case len(r.why) < 10:
					t.Errorf("%s.families: %s is not served for no reason", kind, name)
				}
			}
			t.Logf("%s: %d families of %d served", kind, served, len(table))
		})
	}
}
