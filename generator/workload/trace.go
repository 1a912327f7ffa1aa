package workload

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TraceBlock is how many prompt tokens a hash id stands for, by the convention of Mooncake's traces.
const TraceBlock = 512

// Trace is recorded requests: when each came, how long it was, and which blocks its prompt shares with others. It is read once and
// never changed; processes may share it.
type Trace struct {
	Name  string
	Block int      // tokens of a prompt that a hash id stands for
	Notes []string // what is odd about the file and was read nevertheless, a sentence each

	times         []time.Duration // since the first request's, rising; empty where the file tells none
	input, output []int32
	first         []int // where a request's ids begin; one more than there are requests
	ids           []int64
}

// TraceRow is one request of a trace.
type TraceRow struct {
	At            time.Duration // since the first; 0 where the file tells none
	Input, Output int           // tokens of the prompt and of the answer
	IDs           []int64       // the content of each block of the prompt, the last one partial; equal ids are equal content; not to be changed
}

type traceRow struct {
	input, output int
	ids           []int64
}

// covered reports whether the ids name the content of the whole prompt.
func (r traceRow) covered(block int) bool { return len(r.ids)*block >= r.input }

// Len is how many requests the trace has.
func (t *Trace) Len() int { return len(t.input) }

// Row is the i-th request, from 0.
func (t *Trace) Row(i int) TraceRow {
	r := t.at(i)
	row := TraceRow{Input: r.input, Output: r.output, IDs: r.ids}
	if t.Timed() {
		row.At = t.times[i]
	}
	return row
}

// at is the n-th request asked, which begins again behind the last.
func (t *Trace) at(n int) traceRow {
	n %= len(t.input)
	return traceRow{input: int(t.input[n]), output: int(t.output[n]), ids: t.ids[t.first[n]:t.first[n+1]]}
}

// Timed reports whether the trace tells when its requests came.
func (t *Trace) Timed() bool { return len(t.times) > 0 }

// Span is from the first request to the last.
func (t *Trace) Span() time.Duration {
	if !t.Timed() {
		return 0
	}
	return t.times[len(t.times)-1]
}

// Rate is at how many requests/s the trace came, to five digits: gaps over span. 0 where it has no two instants.
func (t *Trace) Rate() float64 {
	if t.Span() <= 0 {
		return 0
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(float64(t.Len()-1)/t.Span().Seconds(), 'g', 5, 64), 64)
	if err != nil {
		panic(err) // it was written a moment ago
	}
	return r
}

// Period is how long after a request of one turn of the trace the same one of the next comes: the span and a mean gap.
func (t *Trace) Period() time.Duration { return time.Duration(math.Round(t.period())) }

// period is Period in nanoseconds.
func (t *Trace) period() float64 {
	return float64(t.Span()) * float64(t.Len()) / float64(max(1, t.Len()-1))
}

// instant is when the n-th request comes, in nanoseconds since the first, at the trace's own speed.
func (t *Trace) instant(n int) float64 {
	return float64(n/t.Len())*t.period() + float64(t.times[n%t.Len()])
}

// mean are the means of the prompts and of the answers, in tokens.
func (t *Trace) mean() (input, output float64) {
	for i := range t.input {
		input += float64(t.input[i])
		output += float64(t.output[i])
	}
	n := float64(t.Len())
	return input / n, output / n
}

// MostOutput is the length of the longest answer.
func (t *Trace) MostOutput() int { return int(slices.Max(t.output)) }

// Hashed reports whether any request names the content of its blocks.
func (t *Trace) Hashed() bool { return len(t.ids) > 0 }

// traceFields are what a request has, and the names of each, in the order in which they are taken where several stand there.
var traceFields = [...][]string{
	{"timestamp", "arrival", "arrival_ms", "time", "step", inSeconds}, // milliseconds, but for the last
	{"input_length", "isl", "input_len", "prompt_len", "prompt_tokens"},
	{"output_length", "osl", "output_len", "completion_tokens"},
	{"hash_ids", "block_hashes", "blocks"},
}

// inSeconds is the name of times that are seconds.
const inSeconds = "timestamp_s"

// alone are names that no other of their field may stand beside: which of the two is meant would be a guess.
var alone = []string{inSeconds, "prompt_tokens", "completion_tokens"}

const (
	fieldTime = iota
	fieldInput
	fieldOutput
	fieldIDs
)

// traceRecord is the texts of one record, by field.
type traceRecord struct {
	text [len(traceFields)]string
	rank [len(traceFields)]int // which of the field's names it came by; -1 for none
}

// take keeps a value under a name in any case, unless an earlier name of the field has one; an empty value is none.
func (r *traceRecord) take(name, value string) error {
	f, rank, err := traceField(name)
	if err != nil || value == "" {
		return err
	}
	if had := r.rank[f]; had >= 0 && (slices.Contains(alone, traceFields[f][had]) || slices.Contains(alone, traceFields[f][rank])) {
		return fmt.Errorf("%s and %s both say one thing of a request: leave one out", traceFields[f][min(had, rank)], traceFields[f][max(had, rank)])
	}
	if r.rank[f] < 0 || rank < r.rank[f] {
		r.text[f], r.rank[f] = value, rank
	}
	return nil
}

func traceField(name string) (field, rank int, err error) {
	low := strings.ToLower(strings.TrimSpace(name))
	for f, names := range traceFields {
		if rank := slices.Index(names, low); rank >= 0 {
			return f, rank, nil
		}
	}
	near, least := "", 3
	var all []string
	for _, names := range traceFields {
		all = append(all, strings.Join(names, "|"))
		for _, known := range names {
			if d := distance(low, known); d < least && 2*d < len(known) {
				near, least = known, d
			}
		}
	}
	guess := ""
	if near != "" {
		guess = fmt.Sprintf(" Is %s meant?", near)
	}
	return 0, 0, fmt.Errorf("the column %q is not known.%s There are %s; leave out what is none of them", name, guess, strings.Join(all, ", "))
}

// distance is how many letters must be changed, added, left out or swapped with the next to make a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// ReadTrace reads the requests of a file: CSV with a head, JSON Lines or a JSON array of objects. The names of columns, in any case,
// are those of traceFields; any other is refused. Times are milliseconds, those of timestamp_s seconds; they may be left out of all records, lengths may not. Milliseconds that
// look as if they were seconds are noted. A hash id
// stands for block tokens of the prompt, TraceBlock if that is 0. Bad input is named as name:line.
func ReadTrace(r io.Reader, name string, block int) (*Trace, error) {
	if block == 0 {
		block = TraceBlock
	}
	if block < 0 || block > MaxLength {
		return nil, fmt.Errorf("%d tokens a hash id: must be from 1 to %d", block, MaxLength)
	}
	t := &traceReader{name: name, Trace: Trace{Name: name, Block: block, first: []int{0}}}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		head, err := in.Peek(1)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(head) == 0 {
			return nil, fmt.Errorf("%s: holds no requests", name)
		}
		if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
			_, _ = in.Discard(3)
			continue
		}
		if head[0] == '\n' || head[0] == '\r' || head[0] == ' ' || head[0] == '\t' {
			if head[0] == '\n' {
				t.above++
			}
			_, _ = in.Discard(1)
			continue
		}
		if head[0] == '[' || head[0] == '{' {
			err = t.json(in, head[0] == '[')
		} else {
			err = t.csv(in)
		}
		if err != nil {
			return nil, err
		}
		return t.done()
	}
}

// traceReader is a trace while it is read.
type traceReader struct {
	Trace
	name  string
	above int // lines above the first record

	start          time.Duration // the first time, by the file
	millis         bool          // times are milliseconds
	broken         string        // the first of them with a fraction, and its line
	brokenLine     int
	odd            int // requests whose ids are not as many as their prompt has blocks
	oddLine        int // of the first of them
	oddIDs, oddHas int
}

func (t *traceReader) done() (*Trace, error) {
	if t.Len() == 0 {
		return nil, fmt.Errorf("%s: holds no requests", t.name)
	}
	if t.odd > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%s: %d of %d requests have not one hash id for each %d tokens of their prompt (the first on line %d: %d ids, %d blocks); "+
			"what no id names is each request's own, ids that are over are left out", t.name, t.odd, t.Len(), t.Block, t.oddLine, t.oddIDs, t.oddHas))
	}
	if note := t.unit(); note != "" {
		t.Notes = append(t.Notes, note)
	}
	return &t.Trace, nil
}

// unit doubts that times are the milliseconds they are taken for; "" where nothing speaks against it.
func (t *traceReader) unit() string {
	const rename = "; if they are seconds, name the column " + inSeconds
	switch {
	case !t.millis || t.Span() == 0:
		return ""
	case t.Span() < time.Second:
		return fmt.Sprintf("%s: times are taken as milliseconds, so that all %d requests come within %v%s", t.name, t.Len(), t.Span(), rename)
	case t.broken != "":
		return fmt.Sprintf("%s: times are taken as milliseconds, and have fractions (the first on line %d: %s)%s", t.name, t.brokenLine, t.broken, rename)
	}
	return ""
}

// add checks a record and keeps it.
func (t *traceReader) add(line int, r *traceRecord) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %w", t.name, line, fmt.Errorf(format, args...))
	}
	var lengths [2]int
	for i, f := range []int{fieldInput, fieldOutput} {
		n, ok := asCount(r.text[f])
		switch {
		case r.rank[f] < 0:
			return bad("no %s: give the tokens of each request's %s as a whole number from 1", traceFields[f][0], [2]string{"prompt", "answer"}[i])
		case !ok:
			return bad("%s %s: give whole tokens from 1 to %d", traceFields[f][r.rank[f]], clipped(r.text[f]), MaxLength)
		}
		lengths[i] = n
	}
	if err := t.time(line, r, bad); err != nil {
		return err
	}
	ids := len(t.ids)
	for text := range strings.FieldsFuncSeq(strings.Trim(r.text[fieldIDs], "[] \t"), func(c rune) bool { return c == ',' || c == ' ' || c == ';' || c == '\t' || c == '\n' || c == '\r' }) {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			unsigned, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return bad("%s: %s is no hash id: give whole numbers", traceFields[fieldIDs][r.rank[fieldIDs]], clipped(text))
			}
			id = int64(unsigned)
		}
		t.ids = append(t.ids, id)
	}
	blocks := (lengths[0] + t.Block - 1) / t.Block
	if has := len(t.ids) - ids; r.rank[fieldIDs] >= 0 && has != blocks {
		if t.odd++; t.odd == 1 {
			t.oddLine, t.oddIDs, t.oddHas = line, has, blocks
		}
		t.ids = t.ids[:min(len(t.ids), ids+blocks)]
	}
	t.input, t.output, t.first = append(t.input, int32(lengths[0])), append(t.output, int32(lengths[1])), append(t.first, len(t.ids))
	return nil
}

// time checks the instant of a record and keeps it.
func (t *traceReader) time(line int, r *traceRecord, bad func(string, ...any) error) error {
	told := r.rank[fieldTime] >= 0
	if t.Len() > 0 && told != t.Timed() {
		return bad("some requests have a time and others have none: give it to all, or to none")
	}
	if !told {
		return nil
	}
	name, text := traceFields[fieldTime][r.rank[fieldTime]], r.text[fieldTime]
	unit, of := time.Millisecond, "milliseconds"
	if name == inSeconds {
		unit, of = time.Second, "seconds"
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(v):
		return bad("%s %s: give %s", name, clipped(text), of)
	case v < 0:
		return bad("%s %s is negative: times are %s from the start of the trace", name, clipped(text), of)
	case v*unit.Seconds() > lastArrival/2:
		return bad("%s %s is more than a lifetime: times are %s from the start of the trace", name, clipped(text), of)
	}
	if unit == time.Millisecond {
		if t.millis = true; t.broken == "" && v != math.Trunc(v) {
			t.broken, t.brokenLine = clipped(text), line
		}
	}
	at := time.Duration(math.Round(v * float64(unit)))
	if t.Len() == 0 {
		t.start = at
	}
	if n := t.Len(); n > 0 && at-t.start < t.times[n-1] {
		return bad("%s %s comes before the request above it: sort the file by its times", name, clipped(text))
	}
	t.times = append(t.times, at-t.start)
	return nil
}

func clipped(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.Quote(s)
}

// csv reads a table with a head.
func (t *traceReader) csv(r io.Reader) error {
	in := csv.NewReader(r)
	in.TrimLeadingSpace, in.ReuseRecord = true, true
	head, err := in.Read()
	if err != nil {
		return t.csvBad(err)
	}
	names := slices.Clone(head)
	for _, name := range names {
		if _, _, err := traceField(name); err != nil {
			return fmt.Errorf("%s:%d: %w", t.name, t.above+1, err)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(lower(names))))) != len(names) {
		return fmt.Errorf("%s:%d: two columns have one name", t.name, t.above+1)
	}
	for {
		row, err := in.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return t.csvBad(err)
		}
		line, _ := in.FieldPos(0)
		rec := noRecord
		for i, value := range row {
			if err := rec.take(names[i], strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("%s:%d: %w", t.name, t.above+line, err)
			}
		}
		if err := t.add(t.above+line, &rec); err != nil {
			return err
		}
	}
}

func lower(names []string) []string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = strings.ToLower(strings.TrimSpace(out[i]))
	}
	return out
}

func (t *traceReader) csvBad(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return fmt.Errorf("%s:%d: %w", t.name, t.above+bad.Line, bad.Err)
	}
	return fmt.Errorf("read %s: %w", t.name, err)
}

var noRecord = traceRecord{rank: [len(traceFields)]int{-1, -1, -1, -1}}

// json reads objects, one after another or as the elements of an array.
func (t *traceReader) json(r io.Reader, array bool) error {
	lines := &lineReader{r: r}
	dec := json.NewDecoder(lines)
	line := func(at int64) int { return t.above + lines.line(at) }
	bad := func(err error) error {
		at := dec.InputOffset()
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = max(0, syntax.Offset-1)
		}
		if lines.err != nil {
			return fmt.Errorf("read %s: %w", t.name, lines.err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			return fmt.Errorf("%s:%d: the file ends within a request: it is cut off", t.name, line(lines.read-1))
		}
		return fmt.Errorf("%s:%d: %w", t.name, line(at), err)
	}
	if array {
		if _, err := dec.Token(); err != nil {
			return bad(err)
		}
	}
	var raw json.RawMessage
	for !array || dec.More() {
		err := dec.Decode(&raw)
		if err == io.EOF && !array {
			return nil
		}
		if err != nil {
			return bad(err)
		}
		begin := line(dec.InputOffset() - int64(len(raw)))
		lines.forget(dec.InputOffset() - int64(len(raw)))
		var rec traceRecord
		if rec, err = jsonRecord(raw); err == nil {
			err = t.add(begin, &rec)
			if err != nil {
				return err
			}
			continue
		}
		return fmt.Errorf("%s:%d: %w", t.name, begin, err)
	}
	if _, err := dec.Token(); err != nil {
		return bad(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%s:%d: something stands behind the array", t.name, line(dec.InputOffset()))
	}
	return nil
}

// jsonRecord takes the values of one object.
func jsonRecord(raw []byte) (traceRecord, error) {
	rec := noRecord
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return rec, fmt.Errorf("%s is no request: give an object such as {\"timestamp\": 250, \"input_length\": 1600, \"output_length\": 64}", clipped(string(raw)))
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value := object[name]
		text := string(bytes.TrimSpace(value))
		if text == "null" {
			text = ""
		}
		if strings.HasPrefix(text, `"`) {
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return rec, err
			}
			text = strings.TrimSpace(s)
		}
		if err := rec.take(name, text); err != nil {
			return rec, fmt.Errorf("%w", err)
		}
	}
	return rec, nil
}

// lineReader knows on which line each of the last bytes read stands.
type lineReader struct {
	r    io.Reader
	read int64
	gone int     // line ends before those of ends
	ends []int64 // offsets
	err  error   // of r, but for the end
}

func (l *lineReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

// line is that of the byte at an offset, from 1.
func (l *lineReader) line(at int64) int {
	n, _ := slices.BinarySearch(l.ends, at)
	return 1 + l.gone + n
}

// forget lets go of what is before an offset.
func (l *lineReader) forget(at int64) {
	n, _ := slices.BinarySearch(l.ends, at)
	l.gone += n
	l.ends = l.ends[n:]
}
