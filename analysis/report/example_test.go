package report_test

import (
	"bytes"
	"fmt"
	"strings"

	"kneefinder/analysis/report"
	"kneefinder/measurement"
)

func Example() {
	knee := 2.
	r := report.Run{Results: measurement.Results{Label: "L40S", Config: measurement.Config{SLO: []measurement.Objective{{Metric: "ttft", Quantile: .95, LimitMS: 300}}},
		Knees: measurement.Knees{SLO: measurement.Knee{Status: measurement.Found, Rate: &knee}}}}
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil {
		fmt.Println(err)
	}
	_, sentence, _ := strings.Cut(page.String(), `<p class="sentence">`)
	sentence, _, _ = strings.Cut(sentence, "</p>")
	fmt.Println(sentence)
	// Output: 2 calls/s is the highest load tried that holds P95 TTFT ≤ 300 ms: provision by it.
}
