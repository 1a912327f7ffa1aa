package importer

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kneefinder/measurement"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testFiles reads files of testdata.
func testFiles(t testing.TB, names ...string) []File {
	t.Helper()
	var out []File
	for _, name := range names {
		matches, err := filepath.Glob(filepath.Join("testdata", name))
		if err != nil || len(matches) == 0 {
			t.Fatalf("no testdata/%s (%v)", name, err)
		}
		for _, m := range matches {
			b, err := os.ReadFile(m)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, File{Name: filepath.ToSlash(m), Data: b})
		}
	}
	return out
}

func show(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.5g", *v)
}

// dump writes what an importer is answerable for; the words on knees are those of package analysis.
func dump(in Import) string {
	var b strings.Builder
	for _, f := range in.Files {
		fmt.Fprintf(&b, "%s: %s, %d steps\n", f.Name, f.Kind, f.Steps)
	}
	for _, r := range in.Curves {
		fmt.Fprintf(&b, "\ncurve %q by %s of %q %q %q, arrivals %s, %d in %d out\n", r.Label, r.Tool, r.Engine.Kind, r.Engine.Model, r.Engine.GPU, r.Config.Arrivals, r.Config.UserTokens, r.Config.OutputTokens)
		for _, k := range []measurement.Knee{r.Knees.SLO, r.Knees.Curvature, r.Knees.Saturation} {
			fmt.Fprintf(&b, "  %s: %s %s\n", k.Method, k.Status, show(k.Rate))
		}
		for _, s := range r.Steps {
			fmt.Fprintf(&b, "  %s: ttft %s/%s/%s, itl %s/%s %s, tpot %s, came %s, done %s, ratio %s, lag %s, hit %s, %d requests, errors %s, %s %s\n", show(&s.Rate), show(s.TTFTP50), show(s.TTFTP95), show(s.TTFTP99),
				show(s.ITLP50), show(s.ITLP95), s.ITLBasis, show(s.TPOTP50), show(s.ArrivedRate), show(s.ThroughputTurns), show(s.SaturationRatio), show(s.ScheduleLagP99), show(s.CacheHitRate), s.MeasuredTurns, show(s.ErrorRate), s.Verdict, strings.Join(s.Flags, " "))
		}
		for _, w := range r.Warnings {
			fmt.Fprintf(&b, "  ! %s\n", w)
		}
		for _, e := range r.Mechanism.Evidence {
			fmt.Fprintf(&b, "  > %s\n", e)
		}
	}
	return b.String()
}

// Each format, as its tool writes it, and under testdata/real as the tool of that version wrote it, of a kneemock: what is read of it stands in testdata/golden.
func TestRead(t *testing.T) {
	p99 := []measurement.Objective{{Metric: "ttft", Quantile: .99, LimitMS: 300}}
	for name, c := range map[string]struct {
		files []string
		slo   []measurement.Objective
	}{
		"sglang":             {[]string{"sglang_conc*.jsonl"}, slo300},
		"sglang_details":     {[]string{"sglang_details.jsonl"}, slo300},
		"vllm_joined":        {[]string{"vllm_joined.json"}, slo300},
		"vllm_joined_p99":    {[]string{"vllm_joined.json"}, p99},
		"vllm_new":           {[]string{"vllm_new.json"}, slo300},
		"vllm_detailed":      {[]string{"vllm_detailed.json"}, slo300},
		"inferencex":         {[]string{"inferencex.json"}, []measurement.Objective{{Metric: "ttft", Quantile: .99, LimitMS: 8000}}},
		"guidellm_sweep":     {[]string{"guidellm_sweep.json"}, slo300},
		"guidellm_knee":      {[]string{"guidellm_knee.json"}, slo300},
		"guidellm_requests":  {[]string{"guidellm_requests.json"}, slo300},
		"aiperf_g1":          {[]string{"aiperf_conc*.json"}, slo300},
		"aiperf_g3":          {[]string{"aiperf_rates.json"}, slo300},
		"aiperf_records":     {[]string{"aiperf_run*/*"}, slo300},
		"aiperf_jsonl_alone": {[]string{"aiperf_run*/*.jsonl"}, slo300},
		"aiperf_csv":         {[]string{"aiperf_*.csv"}, slo300},
		"aiperf_sweep":       {[]string{"aiperf_sweep.json"}, slo300},
		"inferenceperf":      {[]string{"ladder/*.json"}, slo300},
		"all_failed":         {[]string{"stage_failed.json"}, slo300},
		"genaibench":         {[]string{"genaibench_*.json"}, slo300},
		"report_v02":         {[]string{"report_v02.yaml"}, slo300},
		"report_v01":         {[]string{"report_v01.json"}, slo300},
		"vegeta":             {[]string{"vegeta_10.json", "vegeta_50.json", "vegeta_100.json"}, slo300},
		"vegeta_results":     {[]string{"vegeta_results.json"}, slo300},
		"vegeta_csv":         {[]string{"vegeta_results.csv"}, slo300},
		"fortio":             {[]string{"fortio_8.json", "fortio_16.json", "fortio_32.json"}, slo300},
		"table":              {[]string{"table.csv"}, slo300},
		"real_vllm":          {[]string{"real/vllm-0.32.0.json"}, slo300},
		"real_sglang":        {[]string{"real/sglang-0.5.23.jsonl"}, slo300},
		"real_guidellm":      {[]string{"real/guidellm-0.8.1.json"}, slo300},
		"real_aiperf":        {[]string{"real/aiperf-0.13.0/*/profile_export_aiperf.json"}, slo300},
		"real_aiperf_rows":   {[]string{"real/aiperf-0.13.0/*/*"}, slo300},
		"real_genaibench":    {[]string{"real/genai-bench-0.0.5/*"}, slo300},
		"real_inferenceperf": {[]string{"real/inference-perf-0.7.0/*"}, slo300},
		"several_tools":      {[]string{"sglang_conc*.jsonl", "fortio_8.json", "fortio_16.json", "genaibench_1.json"}, slo300},
	} {
		t.Run(name, func(t *testing.T) {
			files := testFiles(t, c.files...)
			in, err := Read(files, c.slo)
			if err != nil {
				t.Fatal(err)
			}
			got := dump(in)
			path := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("differs from %s (-want +got):\n%s", path, d)
			}
			slices.Reverse(files) // the order of files changes nothing but the order in which they are told
			again, err := Read(files, c.slo)
			if err != nil || len(again.Curves) != len(in.Curves) || len(again.Curves[0].Steps) == 0 {
				t.Errorf("the files in reverse: %d curves, %v; want %d", len(again.Curves), err, len(in.Curves))
			}
		})
	}
}
