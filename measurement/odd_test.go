package measurement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// aLog is a log of a header, a step and turns, a record a line.
func aLog(turns int) string {
	var b bytes.Buffer
	w := NewLogWriter(&b, false)
	w.Header(Header{Label: "x", Seed: 7})
	w.StepBegin(Step{Step: 0, Rate: 2, WindowStart: 5, WindowEnd: Never, DrainEnd: Never})
	for i := range turns {
		t := NewTurn()
		t.Call, t.Turn, t.Outcome = i, 2, OK
		t.Due, t.Sent, t.FirstToken, t.LastToken, t.End = time.Duration(i), time.Duration(i), time.Duration(i+3), time.Duration(i+3), time.Duration(i+3)
		w.Turn(t)
	}
	w.Flush()
	return b.String()
}

// What other tools do to a log's lines costs none of its records.
func TestLogInOtherLines(t *testing.T) {
	plain := aLog(3)
	want, err := ReadLog(strings.NewReader(plain), "f")
	if err != nil || len(want.Turns) != 3 || len(want.Warnings) != 0 {
		t.Fatal(want, err)
	}
	var indented strings.Builder
	for _, line := range strings.SplitAfter(strings.TrimSpace(plain), "\n") {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(line), "", "  "); err != nil {
			t.Fatal(err)
		}
		indented.WriteString(b.String())
	}
	for name, text := range map[string]string{
		"no line ends":        strings.ReplaceAll(plain, "\n", ""),
		"spaces for them":     strings.ReplaceAll(plain, "\n", " "),
		"CR LF":               strings.ReplaceAll(plain, "\n", "\r\n"),
		"CR":                  strings.ReplaceAll(plain, "\n", "\r"),
		"byte order mark":     "\xef\xbb\xbf" + plain,
		"indented":            indented.String(),
		"two records, a line": strings.Replace(plain, "}\n{\"type\":\"turn\"", "}{\"type\":\"turn\"", 1),
		"empty lines":         strings.ReplaceAll(plain, "\n", "\n\n"),
	} {
		got, err := ReadLog(strings.NewReader(text), "f")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// What is wrong with a record is said with its line, and a log that is wrong throughout does not become as many sentences.
func TestOddLines(t *testing.T) {
	plain := aLog(3)
	turns := func(old, new string) string { return strings.ReplaceAll(plain, old, new) }
	for _, c := range []struct {
		name, text string
		turns      int
		want       []string
	}{
		{"an instant before the run began", turns(`"due_s":0.000000001,`, `"due_s":-1e300,`), 2, []string{"f:4: due_s is -1e300, which it cannot be; that line is left out"}},
		{"a small one", turns(`"due_s":0.000000001,`, `"due_s":-0.5,`), 2, []string{"f:4: due_s is -0.5, which it cannot be"}},
		{"one that no clock reaches", turns(`"due_s":0.000000001,`, `"due_s":1e300,`), 2, []string{"f:4: due_s is 1e300, which"}},
		{"the same in digits", turns(`"due_s":0.000000001,`, `"due_s":`+strings.Repeat("9", 30)+`,`), 2, []string{"f:4: due_s is 999999999999999999999999999999, which"}},
		{"a wait that no clock tells", turns(`"ttft_ms":0.000003,`, `"ttft_ms":1e300,`), 0, []string{"f:3: ttft_ms is 1e300", "f:4: ", "f:5: "}},
		{"text for a number", turns(`"call":1,`, `"call":"1",`), 2, []string{"f:4: call is string, which it cannot be"}},
		{"a key twice", turns(`"due_s":0.000000001,`, `"due_s":0,"due_s":0.000000001,`), 3, []string{`f:4: the key "due_s" stands twice in one object; the second value counts`}},
		{"a key twice within", `{"type":"header","schema":"kneefinder/turns/v1","config":{"turns":4,"turns":5}}`, 0, []string{`f:1: the key "turns" stands twice`}},
		{"a key that only looks as if", turns(`"outcome":"ok"`, `"outcome":"ok","detail":"\"call\":1"`), 3, nil},
		{"NaN", turns(`"due_s":0.000000001,`, `"due_s":NaN,`), 2, []string{"f:4: invalid character 'N'"}},
		{"torn, then no line end", strings.TrimSuffix(plain, "\"outcome\":\"ok\"}\n"), 2, []string{"f:5: the last line is torn"}},
		{"no line ends, and torn", strings.TrimSuffix(strings.ReplaceAll(plain, "\n", ""), "\"outcome\":\"ok\"}"), 2, []string{"f:1: the last line is torn"}},
		{"bad throughout", strings.ReplaceAll(aLog(500), `"due_s":0`, `"due_s":-1`), 0, append(append([]string{}, "f:3: due_s is -1"), append(make([]string, mostWarnings-1), "f: so it is with 490 more lines, down to line 502")...)},
	} {
		log, err := ReadLog(strings.NewReader(c.text), "f")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(log.Turns) != c.turns || len(log.Warnings) != len(c.want) {
			t.Errorf("%s: %d turns, warnings %q; want %d and %q", c.name, len(log.Turns), log.Warnings, c.turns, c.want)
			continue
		}
		for i, w := range c.want {
			if !strings.HasPrefix(log.Warnings[i], w) {
				t.Errorf("%s: %q; want it to begin %q", c.name, log.Warnings[i], w)
			}
		}
	}
}

// A step whose figures no measurement can have is named by the figure.
func TestStepCheck(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		want string
		set  func(*StepResult)
	}{
		{"", func(*StepResult) {}},
		{"", func(s *StepResult) { s.InFlightSlope, s.ScheduleLagP99 = v(-.5), v(-1) }},
		{"rate_calls_per_s is 0, must be above 0", func(s *StepResult) { s.Rate = 0 }},
		{"rate_calls_per_s is -2, must be above 0", func(s *StepResult) { s.Rate = -2 }},
		{`verdict is "passed", must be pass, fail or undecided`, func(s *StepResult) { s.Verdict = "passed" }},
		{"ttft_p95_ms is -5, must not be negative", func(s *StepResult) { s.TTFTP95 = v(-5) }},
		{"measured_turns is -1, must not be negative", func(s *StepResult) { s.MeasuredTurns = -1 }},
		{"error_rate is 2, must be at most 1", func(s *StepResult) { s.ErrorRate = v(2) }},
		{"cache_hit_rate is 97, must be at most 1", func(s *StepResult) { s.CacheHitRate = v(97) }},
	} {
		s := StepResult{Rate: 2, Verdict: Pass}
		c.set(&s)
		if got := fmt.Sprint(s.Check()); got != c.want && !(c.want == "" && got == "<nil>") {
			t.Errorf("%s; want %s", got, c.want)
		}
	}
}
