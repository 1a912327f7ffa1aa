// Package e2e asks a real Prometheus every query of every board and rule.
package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"go.yaml.in/yaml/v3"

	"kneefinder/grafana/queries"
)

// target is one page of metrics and the job that it is scraped under.
type target struct{ job, address string }

// startPrometheus starts a Prometheus on the configuration of the compose stack, with other targets, and stops it when the test
// ends.
func startPrometheus(t *testing.T, targets []target) queries.Server {
	t.Helper()
	return startPrometheusIn(t, t.TempDir(), targets)
}

// startPrometheusIn does so on what the folder data in dir holds.
func startPrometheusIn(t *testing.T, dir string, targets []target) queries.Server {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: the boards' queries are not run")
	}
	config := filepath.Join(dir, "prometheus.yml")
	write(t, config, deployed(t, dir, targets))
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", config).CombinedOutput(); err != nil {
		t.Fatalf("promtool check config: %v\n%s", err, out)
	}

	address := freeAddress(t)
	var log strings.Builder
	command := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--enable-feature=exemplar-storage", "--log.level=warn")
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
		if t.Failed() && log.Len() > 0 {
			t.Logf("prometheus: %s", log.String())
		}
	})
	server := queries.Server{URL: "http://" + address}
	until(t, 30*time.Second, "Prometheus is ready", func() bool {
		return answers(t.Context(), server.URL+"/-/ready")
	})
	return server
}

// deployed is the compose stack's configuration with the rules of this repository and other targets.
func deployed(t *testing.T, dir string, targets []target) []byte {
	t.Helper()
	var config map[string]any
	if err := yaml.Unmarshal(contents(t, "../../deploy/prometheus/prometheus.yml"), &config); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "rules"), 0o755); err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Glob("../rules/*.yml")
	if err != nil || len(rules) < 3 {
		t.Fatalf("the rules and their tests are missing: %v, %v", rules, err)
	}
	for _, path := range rules {
		write(t, filepath.Join(dir, "rules", filepath.Base(path)), contents(t, path))
	}
	var named []map[string]any // of other jobs than kneeload, as docker-compose.yml writes them
	for _, to := range targets {
		if to.job != "kneeload" {
			named = append(named, map[string]any{"targets": []string{to.address}, "labels": map[string]any{"job": to.job}})
		}
	}
	raw, err := yaml.Marshal(named)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "targets.yml"), raw)
	for _, job := range config["scrape_configs"].([]any) {
		job := job.(map[string]any)
		if job["file_sd_configs"] != nil {
			job["file_sd_configs"] = []any{map[string]any{"files": []string{"targets.yml"}}}
			continue
		}
		var at []string
		for _, to := range targets {
			if to.job == job["job_name"] {
				at = append(at, to.address)
			}
		}
		job["static_configs"] = []any{map[string]any{"targets": at}}
	}
	raw, err = yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func write(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// until waits for something to become true.
func until(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it is still not so that %s", limit, what)
		}
	}
}

// built returns a folder that holds the commands.
func built(t *testing.T, commands ...string) string {
	t.Helper()
	bin := t.TempDir()
	args := []string{"build", "-o", bin}
	for _, c := range commands {
		args = append(args, "./cmd/"+c)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// asked returns the queries of every board and every rule, and one for the series that each recording rule writes.
func asked(t *testing.T) []queries.Query {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	var out []queries.Query
	boards, err := filepath.Glob("../dashboards/*.json")
	if err != nil || len(boards) != 4 {
		t.Fatalf("want four boards: %v, %v", boards, err)
	}
	for _, path := range boards {
		d, err := queries.Read(contents(t, path))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		of, err := queries.OfBoard(filepath.Base(path), d)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, of...)
	}
	for _, path := range []string{"../rules/kneeload.rules.yml", "../rules/kneeload.alerts.yml"} {
		of, err := queries.OfRules(filepath.Base(path), contents(t, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range of {
			out = append(out, q)
			if q.Kind == queries.Recording {
				q.Expr, q.Where = q.Where, q.Where+", recorded"
				out = append(out, q)
			}
		}
	}
	return out
}

// unanswered asks and returns the answers that are not OK. An alert has no answer while all is well: of it, only the series that
// it asks for must be there.
func unanswered(t *testing.T, server queries.Server, asked []queries.Query, v queries.Variables, since time.Time) []queries.Answer {
	t.Helper()
	answers, err := server.Ask(t.Context(), asked, v, queries.Span{From: since, To: time.Now(), Step: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var out []queries.Answer
	for _, a := range answers {
		if a.Kind == queries.Alert && a.Err == nil && len(a.Missed) == 0 {
			continue
		}
		if !a.OK() {
			out = append(out, a)
		}
	}
	return out
}

// answered waits until every query has an answer.
func answered(t *testing.T, server queries.Server, asked []queries.Query, v queries.Variables, since time.Time, limit time.Duration) {
	t.Helper()
	var missing []queries.Answer
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Second) {
		if missing = unanswered(t, server, asked, v, since); len(missing) == 0 {
			t.Logf("all of %d queries have an answer, %s after the start", len(asked), time.Since(since).Round(time.Second))
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	for _, a := range missing {
		t.Error(a)
	}
	t.Errorf("%d of %d queries have no answer", len(missing), len(asked))
}
