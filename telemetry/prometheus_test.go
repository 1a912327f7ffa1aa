package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kneefinder/telemetry/names"
)

// A real Prometheus scrapes everything, explicit buckets and native histograms, and gives back what was counted.
func TestPrometheusScrapes(t *testing.T) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	tel, h := start(t, func(c *Config) { c.Native, c.GenAI = true, true })
	fill(tel, h, 2, rand.New(rand.NewPCG(1, 2)))
	smallRun(tel, h)
	server := httptest.NewServer(tel.Handler())
	defer server.Close()

	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "scrape_configs:\n- job_name: kneeload\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  static_configs:\n  - targets: [%q]\n",
		strings.TrimPrefix(server.URL, "http://")), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--enable-feature=native-histograms")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		http.DefaultClient.CloseIdleConnections()
	}()

	query := func(expr string) (value float64, ok bool) {
		r, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(expr))
		if err != nil {
			return 0, false
		}
		defer r.Body.Close()
		var a struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		if json.NewDecoder(r.Body).Decode(&a) != nil || len(a.Data.Result) != 1 {
			return 0, false
		}
		v, err := strconv.ParseFloat(a.Data.Result[0].Value[1].(string), 64)
		return v, err == nil
	}
	fs := gather(t, tel)
	sum := func(name string, of func(labels map[string]string) bool) (n float64) {
		for _, m := range fs[name].Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if of(labels) {
				n += m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
		return n
	}
	all := func(map[string]string) bool { return true }
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if v, ok := query("up"); ok && v == 1 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("nothing scraped\n%s", out.String())
		}
	}
	for expr, want := range map[string]float64{
		`sum(` + names.TTFT + `_bucket{le="0.3",turn_class="measured",step="0"})`: float64(bucket(metric(fs, names.TTFT, names.Step, "0", names.TurnClass, names.Measured), .3)),
		`sum(` + names.TTFT + `_count)`:                                           sum(names.TTFT, all),
		`sum(histogram_count(` + names.NativeT + `))`:                             sum(names.NativeT, all),
		`sum(histogram_count(` + names.NativeI + `))`:                             sum(names.NativeI, all),
		`sum(histogram_count(` + names.NativeP + `))`:                             sum(names.NativeP, all),
		`sum(` + names.TurnsTotal + `{outcome="ok"})`:                             sum(names.TurnsTotal, func(l map[string]string) bool { return l[names.Outcome] == "ok" }),
		`count({__name__=~"` + names.StepVerdict + `"})`:                          float64(len(fs[names.StepVerdict].Metric)),
		names.StepTTFT + `{step="0",` + names.Quantile + `="0.95"}`:               .301,
		`count(kneeload_build_info)`:                                              1,
		`gen_ai_client_inference_usage_input_tokens_total`:                        sum("gen_ai_client_inference_usage_input_tokens_total", all),
	} {
		if got, ok := query(expr); !ok || got != want {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}
