package mockserver

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

const (
	defaultDecodeLogInterval = 40
	customLabelsHeader       = "X-Custom-Labels"
	maxCustomLabels          = 10
	maxCustomValue           = 100 // bytes
)

// Validate says which field breaks which rule.
func (c Config) Validate() error {
	if c.Kind != "" && c.Kind != SGLang && c.Kind != VLLM {
		return fmt.Errorf("kind %q is neither %q nor %q", c.Kind, SGLang, VLLM)
	}
	if !utf8.ValidString(c.ModelName) {
		return fmt.Errorf("model name %q is not UTF-8", c.ModelName)
	}
	if c.DecodeLogInterval < 0 {
		return fmt.Errorf("decode_log_interval is %d, must be at least 1, or 0 for %d", c.DecodeLogInterval, defaultDecodeLogInterval)
	}
	asked := false
	for _, f := range []struct {
		name   string
		bounds []float64
	}{
		{"bucket_time_to_first_token", c.TTFTBuckets}, {"bucket_inter_token_latency", c.ITLBuckets},
		{"bucket_e2e_request_latency", c.E2EBuckets},
	} {
		asked = asked || len(f.bounds) > 0
		if err := checkBounds(f.name, f.bounds); err != nil {
			return err
		}
	}
	if err := checkCustomLabels(c.CustomLabels); err != nil {
		return err
	}
	if c.Kind == VLLM && (asked || c.DecodeLogInterval != 0 || len(c.CustomLabels) > 0) {
		return fmt.Errorf("decode_log_interval, buckets and custom labels are SGLang's: kind %q has none", c.Kind)
	}
	return nil
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func checkCustomLabels(names []string) error {
	if len(names) > maxCustomLabels {
		return fmt.Errorf("there are %d custom labels, must be at most %d", len(names), maxCustomLabels)
	}
	taken := []string{"model_name", "engine_type", "is_streaming", "cache_source", "le", "quantile"}
	for _, n := range names {
		if !labelName.MatchString(n) || len(n) > 1 && n[:2] == "__" {
			return fmt.Errorf("custom label %q is no label's name, must be letters, digits and _", n)
		}
		if slices.Contains(taken, n) {
			return fmt.Errorf("custom label %q is there already", n)
		}
		taken = append(taken, n)
	}
	return nil
}

// customLabels is the values that a header gives to the labels of those names: "" where it has none, or one that is neither a
// string nor a number, is long, or has a zero byte. Other labels are dropped, and so is a header that is no JSON object.
func customLabels(header string, names []string) []string {
	var given map[string]json.RawMessage
	if len(names) == 0 || header == "" || json.Unmarshal([]byte(header), &given) != nil {
		return nil
	}
	values := make([]string, len(names))
	for i, name := range names {
		var text string
		var number json.Number
		switch raw := given[name]; {
		case json.Unmarshal(raw, &text) == nil:
		case json.Unmarshal(raw, &number) == nil:
			text = number.String()
		}
		if len(text) <= maxCustomValue && !strings.Contains(text, "\x00") {
			values[i] = text
		}
	}
	return values
}

// metrics answers GET /metrics in the text format, as the Python servers do whatever is asked.
func (s *Server) metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s})
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.driver.closed:
			shuttingDown.write(w)
			return
		default:
		}
		if open, colons := openMetrics(r.Header.Get("Accept")); open && s.cfg.Kind == SGLang {
			writeOpenMetrics(w, registry, colons)
			return
		}
		r.Header.Set("Accept", "text/plain")
		page.ServeHTTP(w, r)
	})
}

// openMetrics reports whether a scrape asks for OpenMetrics first of all, and whether the colons of names stay then. SGLang's
// Python client (0.22 and later) escapes them to underscores for OpenMetrics 1.0.0 unless the scrape says escaping=allow-utf-8:
// Prometheus 2 reads sglang_num_running_reqs, Prometheus 3 and a plain scrape sglang:num_running_reqs. vLLM answers every scrape
// in plain text.
func openMetrics(accept string) (open, colons bool) {
	for _, item := range strings.Split(accept, ",") {
		media, params, _ := mime.ParseMediaType(strings.TrimSpace(item))
		if media == "application/openmetrics-text" {
			return true, params["escaping"] == "allow-utf-8" || params["version"] == "0.0.1"
		}
	}
	return false, false
}

// writeOpenMetrics writes the families of a registry as OpenMetrics.
func writeOpenMetrics(w http.ResponseWriter, from prometheus.Gatherer, colons bool) {
	families, err := from.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeOpenMetrics)
	w.Header().Set("Content-Type", string(format))
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if !colons {
			name := strings.ReplaceAll(f.GetName(), ":", "_")
			f.Name = &name
		}
		if enc.Encode(f) != nil {
			return // the reader has gone
		}
	}
	_, _ = expfmt.FinalizeOpenMetrics(w)
}

// collector shows a server's figures. It holds the driver's lock while they are copied, not while they are written.
type collector struct{ *Server }

// Describe tells nothing: which series there are depends on what has been asked.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect is for the registry.
func (c collector) Collect(out chan<- prometheus.Metric) {
	if f, ok := c.driver.figures(); ok {
		f.write(out)
	}
	c.web.snapshot().write(out)
}
