package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"kneefinder/grafana/queries"
)

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: rules and configurations are not checked")
	}
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Dir = "../rules"
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "kneeload.rules.yml", "kneeload.alerts.yml")
	promtool(t, "test", "rules", "kneeload_test.yml")
}

// Each alert is made to fire and to be silent, each recording rule to have a value, and each alert says what is up.
func TestRulesAreTested(t *testing.T) {
	var tests struct {
		Tests []struct {
			Expr []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	unmarshal(t, "../rules/kneeload_test.yml", &tests)
	unmarshal(t, "../rules/kneeload.alerts.yml", &rules)
	fires, silent := map[string]bool{}, map[string]bool{}
	var evaluated []string
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Alerts) > 0
			silent[a.Name] = silent[a.Name] || len(a.Alerts) == 0
		}
		for _, e := range test.Expr {
			if len(e.Samples) > 0 {
				evaluated = append(evaluated, e.Expr)
			}
		}
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s: tested to fire %t, to be silent %t", r.Alert, fires[r.Alert], silent[r.Alert])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s lacks a summary, a description or a severity", r.Alert)
			}
		}
	}
	recorded, err := queries.OfRules("kneeload.rules.yml", contents(t, "../rules/kneeload.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range recorded {
		if strings.Count(q.Where, ":") != 2 {
			t.Errorf("%s is not called level:metric:operations", q.Where)
		}
		if !slices.ContainsFunc(evaluated, func(expr string) bool { return strings.Contains(expr, q.Where) }) {
			t.Errorf("no test gives %s a value", q.Where)
		}
	}
}

func TestConfigurations(t *testing.T) {
	promtool(t, "check", "config", "../../deploy/prometheus/prometheus.yml")
	promtool(t, "check", "config", "../../deploy/scrape-snippet.yml")
}

// What is provisioned fits together: the files of docker-compose.yml, Prometheus and Grafana name each other.
func TestProvisioning(t *testing.T) {
	var sources struct {
		Datasources []struct {
			UID, Type string
			JSONData  struct {
				TimeInterval string `yaml:"timeInterval"`
				Exemplars    []struct {
					Name          string
					DatasourceUID string `yaml:"datasourceUid"`
				} `yaml:"exemplarTraceIdDestinations"`
			} `yaml:"jsonData"`
		}
	}
	var providers struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	var scrape struct {
		Global struct {
			Interval string `yaml:"scrape_interval"`
		}
	}
	unmarshal(t, "../provisioning/datasources/datasources.yaml", &sources)
	unmarshal(t, "../provisioning/dashboards/dashboards.yaml", &providers)
	unmarshal(t, "../../deploy/prometheus/prometheus.yml", &scrape)
	if len(sources.Datasources) != 2 || len(providers.Providers) != 1 {
		t.Fatalf("got %d data sources and %d providers", len(sources.Datasources), len(providers.Providers))
	}
	prometheus, jaeger := sources.Datasources[0], sources.Datasources[1]
	if prometheus.Type != "prometheus" || prometheus.JSONData.TimeInterval != scrape.Global.Interval {
		t.Errorf("Grafana thinks that scrapes are %q apart, they are %q", prometheus.JSONData.TimeInterval, scrape.Global.Interval)
	}
	if e := prometheus.JSONData.Exemplars; len(e) != 1 || e[0].Name != "trace_id" || e[0].DatasourceUID != jaeger.UID || jaeger.Type != "jaeger" {
		t.Errorf("points link to %+v, want label trace_id to %s", e, jaeger.UID)
	}
	compose := string(contents(t, "../../docker-compose.yml"))
	for _, mount := range []string{
		"./grafana/provisioning:/etc/grafana/provisioning:", "./grafana/dashboards:" + providers.Providers[0].Options.Path + ":",
		"./grafana/rules:/etc/prometheus/rules:", "./deploy/prometheus:/etc/prometheus:",
	} {
		if !strings.Contains(compose, mount) {
			t.Errorf("docker-compose.yml does not mount %s", mount)
		}
	}
	paths, err := filepath.Glob("../provisioning/*/*.yaml")
	if err != nil || len(paths) != 2 {
		t.Fatalf("want two files: %v, %v", paths, err)
	}
	for _, path := range paths {
		if strings.Contains(string(contents(t, path)), "$") {
			t.Errorf("%s: Grafana replaces what follows a dollar by the environment", path)
		}
	}
}

func unmarshal(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal(contents(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
