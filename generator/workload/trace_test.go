package workload

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func readTrace(t *testing.T, text string) *Trace {
	t.Helper()
	tr, err := ReadTrace(strings.NewReader(text), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// One trace, in every form and under every name.
func TestTraceForms(t *testing.T) {
	want := []TraceRow{{0, 1600, 64, []int64{5, 6, 7, 90}}, {250 * time.Millisecond, 3, 1, nil}, {250 * time.Millisecond, 512, 10, []int64{5}}}
	plain := []TraceRow{{0, 1600, 64, nil}, {250 * time.Millisecond, 3, 1, nil}, {250 * time.Millisecond, 512, 10, nil}}
	for name, c := range map[string]struct {
		text string
		want []TraceRow
	}{
		"JSON Lines": {`{"timestamp": 100, "input_length": 1600, "output_length": 64, "hash_ids": [5, 6, 7, 90]}

{"timestamp": 350, "input_length": 3, "output_length": 1}
{"timestamp": 350.0, "input_length": 512, "output_length": 10, "hash_ids": [5]}`, want},
		"array, in any case": {`
 [{"TimeStamp": 0, "ISL": 1600, "Output_Len": "64", "Blocks": [5,6,7,90]},
 {"time": 250, "prompt_len": 3, "osl": 1, "blocks": null}, {"arrival_ms": 250, "input_len": 512, "osl": 10, "block_hashes": [5]}]
`, want},
		"CSV":                     {"arrival,isl,osl\n100,1600,64\n350,3,1\n350,512,10\n", plain},
		"CSV with other names":    {"\ufeffTime , Prompt_Len,OUTPUT_LEN\r\n100,1600,64\r\n350,3,1\r\n350,512,10\r\n", plain},
		"CSV with ids":            {"step,input_len,output_len,hash_ids\n0,1600,64,5 6 7 90\n250,3,1,\n250,512,10,[5]\n", want},
		"the first name wins":     {"step,time,isl,osl\n7,0,1600,64\n8,250,3,1\n9,250,512,10\n", plain},
		"if there is a value":     {"time,arrival,isl,osl\n0,,1600,64\n250,,3,1\n250,,512,10\n", plain},
		"times with a fraction":   {"arrival,isl,osl\n0.5,1600,64\n250.5,3,1\n250.5,512,10\n", plain},
		"seconds":                 {"timestamp_s,isl,osl\n1,1600,64\n1.25,3,1\n1.25,512,10\n", plain},
		"seconds, as JSON":        {`[{"timestamp_s": 0, "prompt_tokens": 1600, "completion_tokens": 64}, {"timestamp_s": 0.25, "isl": 3, "osl": 1}, {"timestamp_s": 0.25, "isl": 512, "osl": 10}]`, plain},
		"as APIs name lengths":    {"Timestamp,Prompt_Tokens,completion_tokens\n0,1600,64\n250,3,1\n250,512,10\n", plain},
		"lengths written by hand": {"arrival,isl,osl\n0,1600.0,64\n250,3.0,1\n250,512.0,10\n", plain},
	} {
		tr, err := ReadTrace(strings.NewReader(c.text), "t", 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, w := range c.want {
			if got := tr.Row(i); tr.Len() != len(c.want) || got.At != w.At || got.Input != w.Input || got.Output != w.Output || fmt.Sprint(got.IDs) != fmt.Sprint(w.IDs) {
				t.Errorf("%s: request %d is %+v, want %+v", name, i, got, w)
			}
		}
		odd := slices.DeleteFunc(slices.Clone(tr.Notes), func(note string) bool { return strings.Contains(note, "within 250ms") })
		if len(odd) != 0 && !strings.Contains(c.text, "ids") || (len(odd) == len(tr.Notes)) != strings.Contains(c.text, inSeconds) {
			t.Errorf("%s: notes %q", name, tr.Notes)
		}
	}
	if tr := readTrace(t, "isl,osl\n5,6\n"); tr.Timed() || tr.Rate() != 0 || tr.Len() != 1 {
		t.Errorf("a trace without times: %+v", tr)
	}
	tr := readTrace(t, "arrival,isl,osl\n0,1,1\n1000,1,1\n3000,1,1\n")
	if tr.Rate() != .66667 || tr.Span() != 3*time.Second {
		t.Errorf("two gaps in 3 s make %v requests/s over %v", tr.Rate(), tr.Span())
	}
}

func TestTraceRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "t: holds no requests"},
		{" \n", "t: holds no requests"},
		{"[]", "t: holds no requests"},
		{"arrival,isl,osl\n", "t: holds no requests"},
		{"arival,isl,osl\n0,1,1\n", `t:1: the column "arival" is not known. Is arrival meant? There are timestamp|arrival|`},
		{"arrival,ils,osl\n0,1,1\n", `t:1: the column "ils" is not known. Is isl meant?`},
		{"arrival,isl,ouptut_len\n0,1,1\n", `Is output_len meant?`},
		{"arrival,isl,osl,user\n0,1,1,7\n", `t:1: the column "user" is not known. There are`},
		{"isl,isl,osl\n0,1,1\n", "t:1: two columns have one name"},
		{`{"timestmp": 0, "isl": 1, "osl": 1}`, `t:1: the column "timestmp" is not known. Is timestamp meant?`},
		{"\n{\"timestamp\": 0, \"isl\": 1, \"osl\": 1}\n\n{\"timestamp\": 1, \"isl\": 1, \"osl\": 1, \"has_ids\": [1]}\n", `t:4: the column "has_ids" is not known. Is hash_ids meant?`},
		{"arrival,isl,osl\n5,1,1\n4,1,1\n", `t:3: arrival "4" comes before the request above it: sort`},
		{"arrival,isl,osl\n-5,1,1\n", `t:2: arrival "-5" is negative`},
		{"arrival,isl,osl\nNaN,1,1\n", `t:2: arrival "NaN": give milliseconds`},
		{"arrival,isl,osl\n1e300,1,1\n", `t:2: arrival "1e300" is more than a lifetime`},
		{"timestamp_s,isl,osl\nx,1,1\n", `t:2: timestamp_s "x": give seconds`},
		{"timestamp_s,isl,osl\n-1,1,1\n", `t:2: timestamp_s "-1" is negative: times are seconds from`},
		{"timestamp_s,isl,osl\n1e297,1,1\n", `t:2: timestamp_s "1e297" is more than a lifetime: times are seconds from`},
		{"timestamp,timestamp_s,isl,osl\n0,0,1,1\n", "t:2: timestamp and timestamp_s both say one thing of a request: leave one out"},
		{"timestamp,prompt_tokens,isl,osl\n0,1,1,1\n", "t:2: isl and prompt_tokens both say one thing"},
		{`{"timestamp": 0, "isl": 1, "output_len": 1, "completion_tokens": 1}`, "t:1: output_len and completion_tokens both say one thing"},
		{"arrival,isl,osl\n0,1,1\n,1,1\n", "t:3: some requests have a time and others have none"},
		{"arrival,isl,osl\n0,0,1\n", `t:2: isl "0": give whole tokens from 1`},
		{"arrival,isl,osl\n0,1,0\n", `t:2: osl "0": give whole tokens from 1`},
		{"arrival,isl,osl\n0,-1,1\n", `t:2: isl "-1"`},
		{"arrival,isl,osl\n0,1.5,1\n", `t:2: isl "1.5"`},
		{"arrival,isl,osl\n0,,1\n", "t:2: no input_length: give the tokens of each request's prompt"},
		{"arrival,osl\n0,1\n", "t:2: no input_length"},
		{"arrival,isl\n0,1\n", "t:2: no output_length: give the tokens of each request's answer"},
		{"arrival,isl,osl\n0,1\n", "t:2: wrong number of fields"},
		{"[{\"timestamp\": 0, \"isl\": 1, \"osl\": 1},\n{\"timestamp\": 0, \"isl\": 1, \"osl\": 1}", "t:2: the file ends within a request"},
		{"[{\"timestamp\": 0, \"isl\": 1, \"osl\": 1},\n7]", `t:2: "7" is no request: give an object`},
		{"[{\"timestamp\": 0, \"isl\": 1, \"osl\": 1}] 5", "t:1: something stands behind the array"},
		{"{\"timestamp\": 0, \"isl\": 1, \"osl\": 1}\n{\"timestamp\": 0, \"isl\": 1,, \"osl\": 1}", "t:2: invalid character"},
		{"{\"timestamp\": 0, \"isl\": 1, \"osl\": 1}\n\n{\"timestamp\": 0, \"is", "t:3: the file ends within a request"},
		{`{"timestamp": 0, "isl": 1, "osl": 1, "hash_ids": ["a"]}`, "t:1: hash_ids"},
		{`{"timestamp": 0, "isl": 1, "osl": 1, "hash_ids": [1.5]}`, `t:1: hash_ids: "1.5" is no hash id`},
		{`{"timestamp": 0, "isl": 1, "osl": {}}`, `t:1: osl "{}"`},
	} {
		if tr, err := ReadTrace(strings.NewReader(c.text), "t", 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v\nwant %q", c.text, err, c.want)
			_ = tr
		}
	}
	if _, err := ReadTrace(strings.NewReader("isl,osl\n1,1\n"), "t", -1); err == nil {
		t.Error("a block of -1 tokens was taken")
	}
}

// Milliseconds that may be seconds are told.
func TestTraceDoubtsItsUnit(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"timestamp,isl,osl\n0,1,1\n0.5,1,1\n1.2,1,1\n3,1,1\n", "t: times are taken as milliseconds, so that all 4 requests come within 3ms; if they are seconds, name the column timestamp_s"},
		{"timestamp,isl,osl\n0,1,1\n999,1,1\n", "all 2 requests come within 999ms"},
		{"timestamp,isl,osl\n0,1,1\n1000,1,1\n", ""},
		{"timestamp,isl,osl\n0,1,1\n500.25,1,1\n1800.75,1,1\n", `t: times are taken as milliseconds, and have fractions (the first on line 3: "500.25"); if`},
		{"timestamp,isl,osl\n0,1,1\n1800.0,1,1\n", ""},
		{"timestamp_s,isl,osl\n0,1,1\n0.5,1,1\n", ""},
		{"timestamp,isl,osl\n5,1,1\n5,1,1\n", ""}, // at once, whatever the unit
		{"timestamp,isl,osl\n7.5,1,1\n", ""},
		{"isl,osl\n1,1\n1,1\n", ""},
	} {
		tr := readTrace(t, c.text)
		if got := strings.Join(tr.Notes, " "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q: notes %q, want %q", c.text, got, c.want)
		}
	}
}

// Requests whose ids are not one for each block are read, and told.
func TestTraceTellsOddIDs(t *testing.T) {
	tr := readTrace(t, `{"timestamp": 0, "isl": 512, "osl": 1, "hash_ids": [1]}
{"timestamp": 0, "isl": 3412, "osl": 1, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 0, "isl": 600, "osl": 1, "hash_ids": [1, 2, 3]}`)
	if len(tr.Notes) != 1 || !strings.Contains(tr.Notes[0], "2 of 3 requests") || !strings.Contains(tr.Notes[0], "line 2: 4 ids, 7 blocks") {
		t.Errorf("notes %q", tr.Notes)
	}
	if got := tr.Row(2).IDs; !reflect.DeepEqual(got, []int64{1, 2}) {
		t.Errorf("ids that are over stayed: %v", got)
	}
	s := Script{Nonce: 1, Lexicon: english, Requests: &Requests{Trace: tr}}
	parts := s.Ask(1, 1).Prompt[0].Content.Parts
	if len(parts) != 5 || parts[3].Part != 4 || parts[4].Call != 1 || parts[4].Words != 3412-4*512 {
		t.Errorf("what no id names is not the request's own: %+v", parts)
	}
}

// A trace's instants are stretched to the rate asked, go round with the period of a mean gap more than its span, and are dealt to
// shards without any being lost.
func TestTraceArrivals(t *testing.T) {
	tr := readTrace(t, "arrival,isl,osl\n0,1,1\n1000,1,1\n3000,1,1\n") // 2 gaps in 3 s; once round takes 4.5 s
	at := func(p Process, rate float64, n int) (out []float64) {
		p.Kind, p.Trace = "trace", tr
		a := p.Arrivals(1, 0, rate)
		for range n {
			x, ok := a.Next()
			if !ok {
				break
			}
			out = append(out, math.Round(1e6*x.At.Seconds())/1e6)
		}
		return out
	}
	for _, c := range []struct {
		p    Process
		rate float64
		want []float64
	}{
		{Process{}, tr.Rate(), []float64{0, 1, 3, 4.5, 5.5, 7.5, 9}},
		{Process{}, 2 * tr.Rate(), []float64{0, .5, 1.5, 2.25, 2.75}},
		{Process{Once: true}, tr.Rate(), []float64{0, 1, 3}},
		{Process{Begin: 2}, tr.Rate(), []float64{2, 3.5, 4.5, 6.5}},
		{Process{Begin: 2, Once: true}, tr.Rate(), []float64{2}},
		{Process{Shard: 0, Shards: 2}, tr.Rate(), []float64{0, 3, 5.5, 9}},
		{Process{Shard: 1, Shards: 2}, tr.Rate(), []float64{1, 4.5, 7.5}},
	} {
		n := len(c.want)
		if c.p.Once {
			n += 5
		}
		if got := at(c.p, c.rate, n); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.p, got, c.want)
		}
	}
}

// The prefix cache of the public conversation trace, with one global LRU over block ids, leading runs and blocks inserted on arrival:
// without a limit 36.64 % of the blocks and 37.36 % of the tokens hit, so that the reader loses nothing of it.
func TestMooncakeConversation(t *testing.T) {
	path := filepath.Join("..", "..", "..", "shared", "data", "mooncake", "conversation_trace.jsonl")
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the public trace is not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := ReadTrace(f, "conversation_trace.jsonl", 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	var hit, blocks, hitTokens, tokens, out int
	for i := range tr.Len() {
		r := tr.Row(i)
		run := 0
		for run < len(r.IDs) && seen[r.IDs[run]] {
			run++
		}
		for _, id := range r.IDs {
			seen[id] = true
		}
		hit, blocks = hit+run, blocks+len(r.IDs)
		hitTokens, tokens, out = hitTokens+min(run*tr.Block, r.Input), tokens+r.Input, out+r.Output
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"requests", float64(tr.Len()), 12031}, {"seconds", math.Floor(tr.Span().Seconds()), 3536}, {"mean prompt", math.Round(float64(tokens) / float64(tr.Len())), 12035},
		{"distinct blocks", float64(len(seen)), 182790}, {"block hits", math.Round(1e4*float64(hit)/float64(blocks)) / 100, 36.64},
		{"token hits", math.Round(1e4*float64(hitTokens)/float64(tokens)) / 100, 37.36}, {"mean answer", math.Round(10*float64(out)/float64(tr.Len())) / 10, 342.6}} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if len(tr.Notes) != 0 {
		t.Errorf("notes %q", tr.Notes)
	}
}

// What is read holds together, whatever the bytes; and the prompts that come of it have the lengths that it names.
func FuzzReadTrace(f *testing.F) {
	f.Add("arrival,isl,osl\n0,5,6\n10,5,6\n")
	f.Add(`{"timestamp": 0, "input_length": 600, "output_length": 64, "hash_ids": [5, 6]}`)
	f.Add(`[{"timestamp": 0, "isl": 600, "osl": 64, "blocks": [5, 18446744073709551615]}]`)
	f.Add("isl,osl,hash_ids\n1,1,[1 2\n")
	f.Add("{}")
	f.Add("[")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := ReadTrace(strings.NewReader(text), "t", 0)
		if err != nil {
			return
		}
		if tr.Len() == 0 {
			t.Fatal("no requests and no error")
		}
		s := Script{Nonce: 1, Lexicon: english, Requests: &Requests{Trace: tr}}
		last := time.Duration(0)
		for i := range tr.Len() {
			r := tr.Row(i)
			if r.At < last || r.Input < 1 || r.Output < 1 || len(r.IDs) > (r.Input+TraceBlock-1)/TraceBlock {
				t.Fatalf("request %d: %+v", i, r)
			}
			last = r.At
			words := 0
			for _, p := range s.Ask(i, i).Prompt[0].Content.Parts {
				if p.Words < 1 {
					t.Fatalf("request %d has an empty part", i)
				}
				words += p.Words
			}
			if words != r.Input {
				t.Fatalf("request %d: %d words, want %d", i, words, r.Input)
			}
		}
	})
}
