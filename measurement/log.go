package measurement

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Log is a whole turn log, read.
type Log struct {
	Header   Header
	Steps    []Step // in order; the last may be incomplete
	Turns    []Turn // in the order they ended
	Packed   *Turns // these instead, of a log that was opened by OpenPacked; else nil
	Samples  []EngineSample
	Epochs   []Epoch  // every time the run was gone on with
	Warnings []string // lines that could not be read, by file:line
}

// Epoch is a run gone on with after it was cut. What the cut part had of steps from FromStep on does not count.
type Epoch struct {
	FromStep int           // the first step that is run again
	At       time.Duration // where the run's clock goes on; instants of the log stay in one order
	Started  string        // RFC 3339 wall time
	Nonce    string        // of the prompts from here on
}

// LogWriter appends a run to a turn log: JSON Lines, one record a line, flushed whenever a step begins or ends and at least
// once a second by Flush. Its methods may be called by many goroutines. The first write error sticks and is returned by Err.
type LogWriter struct {
	mu     sync.Mutex
	w      *bufio.Writer
	rawITL bool
	buf    bytes.Buffer
	line   []byte // of a turn
	err    error
}

// NewLogWriter writes to w; rawITL keeps every gap between token events in the turn lines.
func NewLogWriter(w io.Writer, rawITL bool) *LogWriter {
	return &LogWriter{w: bufio.NewWriterSize(w, 64<<10), rawITL: rawITL}
}

// Header writes the first line.
func (l *LogWriter) Header(h Header) {
	h.Schema = LogSchema
	l.write(struct {
		Type string `json:"type"`
		Header
	}{"header", h}, true)
}

// Resume writes that a run is gone on with.
func (l *LogWriter) Resume(e Epoch) {
	l.write(epochLine{Type: "resume", FromStep: e.FromStep, At: seconds(e.At), Started: e.Started, Nonce: e.Nonce}, true)
}

// StepBegin writes that a step has begun.
func (l *LogWriter) StepBegin(s Step) { l.write(stepLine("step_begin", s), true) }

// StepEnd writes that a step has ended, with what was counted on the way.
func (l *LogWriter) StepEnd(s Step) { l.write(stepLine("step_end", s), true) }

// Turn writes one turn.
func (l *LogWriter) Turn(t Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.line = appendTurn(l.line[:0], &t, l.rawITL)
		_, l.err = l.w.Write(l.line)
	}
}

// Sample writes one engine sample.
func (l *LogWriter) Sample(s EngineSample) {
	l.write(sampleLine{Type: "sample", Step: s.Step, At: seconds(s.At), Values: s.Values}, false)
}

// Flush hands everything written so far to the file.
func (l *LogWriter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.w.Flush(); l.err == nil && err != nil {
		l.err = err
	}
}

// Err returns the first error met while writing.
func (l *LogWriter) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *LogWriter) write(line any, flush bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.buf.Reset()
	enc := json.NewEncoder(&l.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		l.err = fmt.Errorf("encode log line: %w", err)
		return
	}
	if _, err := l.w.Write(l.buf.Bytes()); err != nil {
		l.err = err
		return
	}
	if flush {
		l.err = l.w.Flush()
	}
}

// The lines as they stand in the file. Instants are seconds since the start of the run, to the nanosecond; null is never.

type turnLine struct {
	Type        string   `json:"type"`
	Call        int      `json:"call"`
	Turn        int      `json:"turn"`
	Step        int      `json:"step"`
	Due         seconds  `json:"due_s"`
	Held        *seconds `json:"held_s,omitempty"`
	Sent        seconds  `json:"sent_s"`
	Wrote       seconds  `json:"wrote_s"`
	Admitted    *seconds `json:"admitted_s,omitempty"`
	Replica     *int     `json:"replica,omitempty"`
	Headers     seconds  `json:"headers_s"`
	FirstEvent  seconds  `json:"first_event_s"`
	FirstToken  seconds  `json:"first_token_s"`
	LastToken   seconds  `json:"last_token_s"`
	End         seconds  `json:"end_s"`
	TTFT        *millis  `json:"ttft_ms"`
	ITL         *itlLine `json:"itl,omitempty"`
	Gaps        []millis `json:"gaps_ms,omitempty"`
	FirstTokens int      `json:"first_tokens,omitempty"`
	Prompt      *int     `json:"prompt_tokens"`
	Completion  *int     `json:"completion_tokens"`
	Cached      *int     `json:"cached_tokens"`
	Reused      bool     `json:"reused,omitempty"`
	Dialed      millis   `json:"dialed_ms,omitempty"`
	Retries     int      `json:"retries,omitempty"`
	Local       bool     `json:"local,omitempty"`
	Outcome     Outcome  `json:"outcome"`
	Detail      string   `json:"detail,omitempty"`
}

type itlLine struct {
	N   int    `json:"n"`
	Sum millis `json:"sum_ms"`
	Max millis `json:"max_ms"`
}

type stepRecord struct {
	Type          string      `json:"type"`
	Step          int         `json:"step"`
	Rate          float64     `json:"rate_calls_per_s"`
	Start         seconds     `json:"start_s"`
	WindowStart   seconds     `json:"window_start_s"`
	WindowEnd     seconds     `json:"window_end_s"`
	DrainEnd      seconds     `json:"drain_end_s"`
	ArrivedCalls  int         `json:"arrived_calls"`
	HeldCalls     int         `json:"held_calls"`
	LiveMean      float64     `json:"live_calls_mean"`
	LiveMax       int         `json:"live_calls_max"`
	LiveTurnsMean float64     `json:"live_turns_mean"`
	InFlightStart int         `json:"in_flight_start"`
	InFlightEnd   int         `json:"in_flight_end"`
	EarlyFail     bool        `json:"early_fail,omitempty"`
	Residue       int         `json:"residue_calls"`
	ITL           []Histogram `json:"itl_hdr,omitempty"`
}

type sampleLine struct {
	Type   string             `json:"type"`
	Step   int                `json:"step"`
	At     seconds            `json:"at_s"`
	Values map[string]float64 `json:"values"`
}

type epochLine struct {
	Type     string  `json:"type"`
	FromStep int     `json:"from_step"`
	At       seconds `json:"at_s"`
	Started  string  `json:"started,omitempty"`
	Nonce    string  `json:"nonce"`
}

// seconds is an instant as a JSON number of seconds with nine decimals at most, exact in nanoseconds; Never is null.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	b := fmt.Appendf(nil, "%d.%09d", int64(s)/1e9, int64(s)%1e9)
	return bytes.TrimSuffix(bytes.TrimRight(b, "0"), []byte(".")), nil
}

func (s *seconds) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*s = seconds(Never)
		return nil
	}
	d, err := decimal(string(b), 9)
	if err != nil || d < 0 { // the run began at 0
		return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[seconds]()}
	}
	*s = seconds(d)
	return nil
}

// millis is a duration as a JSON number of milliseconds, exact in nanoseconds.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	b := fmt.Appendf(nil, "%s%d.%06d", sign, int64(m)/1e6, int64(m)%1e6)
	return bytes.TrimSuffix(bytes.TrimRight(b, "0"), []byte(".")), nil
}

func (m *millis) UnmarshalJSON(b []byte) error {
	d, err := decimal(string(b), 6)
	if err != nil {
		return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[millis]()}
	}
	*m = millis(d)
	return nil
}

// decimal reads a JSON number as an integer scaled by 10^places, without going through a float where it need not. One that is too
// large for it is no number of a log.
func decimal(s string, places int) (int64, error) {
	if strings.ContainsAny(s, "eE") {
		var f float64
		if err := json.Unmarshal([]byte(s), &f); err != nil {
			return 0, err
		}
		f = math.Round(f * math.Pow10(places))
		if !(math.Abs(f) < 1<<63) {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return int64(f), nil
	}
	neg := strings.HasPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	frac = (frac + "000000000")[:places]
	var v int64
	for _, c := range whole + frac {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not a number", s)
		}
		if v > (math.MaxInt64-9)/10 {
			return 0, fmt.Errorf("%q is too large", s)
		}
		v = v*10 + int64(c-'0')
	}
	if neg {
		v = -v
	}
	return v, nil
}

func stepLine(kind string, s Step) stepRecord {
	return stepRecord{Type: kind, Step: s.Step, Rate: s.Rate, Start: seconds(s.Start), WindowStart: seconds(s.WindowStart),
		WindowEnd: seconds(s.WindowEnd), DrainEnd: seconds(s.DrainEnd), ArrivedCalls: s.ArrivedCalls, HeldCalls: s.HeldCalls,
		LiveMean: s.LiveMean, LiveMax: s.LiveMax, LiveTurnsMean: s.LiveTurnsMean, InFlightStart: s.InFlightStart,
		InFlightEnd: s.InFlightEnd, EarlyFail: s.EarlyFail, Residue: s.Residue, ITL: s.ITL}
}

func (r stepRecord) step() Step {
	return Step{Step: r.Step, Rate: r.Rate, Start: time.Duration(r.Start), WindowStart: time.Duration(r.WindowStart),
		WindowEnd: time.Duration(r.WindowEnd), DrainEnd: time.Duration(r.DrainEnd), ArrivedCalls: r.ArrivedCalls,
		HeldCalls: r.HeldCalls, LiveMean: r.LiveMean, LiveMax: r.LiveMax, LiveTurnsMean: r.LiveTurnsMean,
		InFlightStart: r.InFlightStart, InFlightEnd: r.InFlightEnd, EarlyFail: r.EarlyFail, Residue: r.Residue, ITL: r.ITL}
}

func (l turnLine) turn() Turn {
	t := Turn{Call: l.Call, Turn: l.Turn, Step: l.Step, Due: time.Duration(l.Due), Held: Never, Sent: time.Duration(l.Sent),
		WroteRequest: time.Duration(l.Wrote), Headers: time.Duration(l.Headers), FirstEvent: time.Duration(l.FirstEvent),
		FirstToken: time.Duration(l.FirstToken), LastToken: time.Duration(l.LastToken), End: time.Duration(l.End),
		FirstEventTokens: l.FirstTokens, PromptTokens: count(l.Prompt), CompletionTokens: count(l.Completion),
		CachedTokens: count(l.Cached), Reused: l.Reused, Dialed: time.Duration(l.Dialed), Retries: l.Retries, Local: l.Local, Outcome: l.Outcome, Detail: l.Detail}
	if l.Held != nil {
		t.Held = time.Duration(*l.Held)
	}
	if l.Admitted != nil {
		t.Admitted = time.Duration(*l.Admitted)
	}
	if l.Replica != nil && *l.Replica >= 0 && *l.Replica < math.MaxInt32 {
		t.Replica = int32(*l.Replica) + 1
	}
	if l.ITL != nil {
		t.Events = l.ITL.N + 1
		if l.Gaps == nil {
			t.GapMax = time.Duration(l.ITL.Max)
		}
	}
	for _, g := range l.Gaps {
		t.Gaps = append(t.Gaps, time.Duration(g))
	}
	return t
}

func count(n *int) int {
	if n == nil {
		return Unknown
	}
	return *n
}

// ErrNotLog says that a file is something other than a turn log.
var ErrNotLog = errors.New("not a turn log")

var errSecondHeader = errors.New("a second header: two logs stand in one file; the logs of shards are joined by kneeanalyze merge")

// Held are the turns of a log, whichever way it holds them.
func (log *Log) Held() *Turns {
	if log.Packed != nil {
		return log.Packed
	}
	return TurnsOf(log.Turns)
}

// OpenLog reads the turn log at path.
func OpenLog(path string) (Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return Log{}, fmt.Errorf("open turn log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 1<<20 {
		// A turn's record is about as long as its line: making room once spares a long log from being copied as it grows.
		return readLog(f, path, Log{Turns: slices.Grow([]Turn(nil), int(info.Size()/turnLineBytes))})
	}
	return readLog(f, path, Log{})
}

// OpenPacked is OpenLog with the turns in Packed, without the gaps between their tokens: a million turns take 50 MB, not 230.
func OpenPacked(path string) (Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return Log{}, fmt.Errorf("open turn log: %w", err)
	}
	defer f.Close()
	return ReadPacked(f, path)
}

// turnLineBytes is how long a turn's line is, at least, in a long log.
const turnLineBytes = 380

// readLine reads up to a line's end, into the reader's own buffer where it fits.
func readLine(in *bufio.Reader) ([]byte, error) {
	b, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return b, err
	}
	long := slices.Clone(b)
	b, err = in.ReadBytes('\n')
	return append(long, b...), err
}

// ReadLog reads a turn log; name stands in messages. A line that cannot be read costs that line and
// leaves a warning, for a run that was killed ends in a torn one; a file whose first line is no header is refused with ErrNotLog. Records
// that some tool has put on one line, or on several lines each, are read all the same.
func ReadLog(r io.Reader, name string) (Log, error) { return readLog(r, name, Log{}) }

// ReadPacked is ReadLog as OpenPacked is OpenLog.
func ReadPacked(r io.Reader, name string) (Log, error) {
	return readLog(r, name, Log{Packed: &Turns{}})
}

// readLog reads into an empty log.
func readLog(r io.Reader, name string, into Log) (Log, error) {
	l := logReader{name: name, log: into, steps: map[int]int{}}
	in := bufio.NewReaderSize(r, 1<<20)
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3)
	}
	for line := 1; ; line++ {
		if line == 1 && overLines(in) {
			data, err := io.ReadAll(in)
			if err == nil {
				err = l.values(data, 1)
			}
			if err != nil {
				return l.log, fmt.Errorf("read %s: %w", name, err)
			}
			break
		}
		b, err := readLine(in)
		if len(b) == 0 && err == io.EOF {
			break
		}
		if err != nil && err != io.EOF {
			return l.log, fmt.Errorf("read %s: %w", name, err)
		}
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		if t, ok := scanTurn(b); ok && l.begun {
			l.log.add(&t)
			continue
		}
		if err := l.line(b, line, err == io.EOF); err != nil {
			return l.log, err
		}
	}
	if !l.begun {
		return l.log, fmt.Errorf("%s: %w (it is empty)", name, ErrNotLog)
	}
	if n := l.untold; n > 0 {
		l.log.Warnings = append(l.log.Warnings, fmt.Sprintf("%s: so it is with %d more lines, down to line %d", name, n, l.last))
	}
	return l.log, nil
}

// overLines reports whether a log's records stand on several lines each.
func overLines(in *bufio.Reader) bool {
	head, _ := in.Peek(4096)
	first, rest, _ := bytes.Cut(bytes.TrimLeft(head, " \t\r\n"), []byte("\n"))
	return bytes.HasPrefix(first, []byte("{")) && bytes.Contains(rest, []byte(LogSchema)) && !bytes.Contains(first, []byte(LogSchema)) && !json.Valid(first)
}

// logReader puts a log together, record by record.
type logReader struct {
	name   string
	log    Log
	steps  map[int]int // step number -> index in log.Steps
	begun  bool        // the header was read
	told   int         // warnings given
	untold int         // and not given, for there are so many
	last   int         // the line of the last of these
}

const mostWarnings = 10 // of lines; a log of which every line is bad must not become as many sentences

func (l *logReader) warn(line int, says string) {
	if l.told++; l.told > mostWarnings {
		l.untold, l.last = l.untold+1, line
		return
	}
	l.log.Warnings = append(l.log.Warnings, fmt.Sprintf("%s:%d: %s", l.name, line, says))
}

// line reads one line, which some tool may have made of several.
func (l *logReader) line(b []byte, line int, last bool) error {
	err := l.record(b, line)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && several(b) {
		return l.values(b, line)
	}
	return l.heed(err, line, last)
}

// several reports whether a whole JSON value stands in front of something else.
func several(b []byte) bool {
	in := json.NewDecoder(bytes.NewReader(b))
	var first json.RawMessage
	return in.Decode(&first) == nil
}

// values reads records that stand side by side, or on several lines each, from line on.
func (l *logReader) values(data []byte, line int) error {
	in := json.NewDecoder(bytes.NewReader(data))
	for at := 0; ; {
		var v json.RawMessage
		err := in.Decode(&v)
		if err == io.EOF {
			return nil
		}
		begin := max(at, int(in.InputOffset())-len(v))
		if err != nil {
			begin += len(data[begin:]) - len(bytes.TrimLeft(data[begin:], " \t\r\n"))
		}
		line += bytes.Count(data[at:begin], []byte("\n"))
		at = begin
		if err != nil {
			return l.heed(fmt.Errorf("what stands from here on is no JSON (%w)", err), line, errors.Is(err, io.ErrUnexpectedEOF))
		}
		if err := l.heed(l.record(v, line), line, false); err != nil {
			return err
		}
	}
}

// heed makes a warning of what is wrong with a record, or an error where no log is left.
func (l *logReader) heed(err error, line int, last bool) error {
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSecondHeader):
		return fmt.Errorf("%s:%d: %w", l.name, line, err)
	case !l.begun:
		return fmt.Errorf("%s:%d: %w (%v)", l.name, line, ErrNotLog, err)
	}
	what := err.Error()
	if errors.As(err, &kind) {
		what = fmt.Sprintf("%s is %s, which it cannot be", kind.Field, kind.Value)
	}
	if last {
		what = "the last line is torn: the run was cut while writing it"
	}
	l.warn(line, what+"; that line is left out")
	return nil
}

// add adds a turn to those that are held.
func (log *Log) add(t *Turn) {
	if log.Packed != nil {
		log.Packed.Add(t)
		return
	}
	log.Turns = append(log.Turns, *t)
}

// dropFrom forgets steps from number on, and all that belongs to them.
func (log *Log) dropFrom(number int, steps map[int]int) {
	log.Steps = slices.DeleteFunc(log.Steps, func(s Step) bool { return s.Step >= number })
	log.Turns = slices.DeleteFunc(log.Turns, func(t Turn) bool { return t.Step >= number })
	if all := log.Packed; all != nil {
		log.Packed = &Turns{}
		for t := range all.All() {
			if t.Step < number {
				log.Packed.Add(t)
			}
		}
	}
	log.Samples = slices.DeleteFunc(log.Samples, func(s EngineSample) bool { return s.Step >= number })
	clear(steps)
	for i, s := range log.Steps {
		steps[s.Step] = i
	}
}

// Complete returns the steps that ran to their end, up to the first that did not.
func (log *Log) Complete() []Step {
	for i, s := range log.Steps {
		if s.WindowEnd < 0 || s.DrainEnd < 0 {
			return log.Steps[:i]
		}
	}
	return log.Steps
}

// Wall is the wall time of an instant of the run; ok is false when the log does not tell, as that of a simulated run. A run
// that was gone on with has a clock of its own from there on: the time in between is in none of its instants.
func (log *Log) Wall(at time.Duration) (t time.Time, ok bool) {
	started, base := log.Header.Started, time.Duration(0)
	for _, e := range log.Epochs {
		if at >= e.At && e.Started != "" {
			started, base = e.Started, e.At
		}
	}
	t, err := time.Parse(time.RFC3339Nano, started)
	return t.Add(at - base), err == nil
}

// End is the last instant that the log tells of.
func (log *Log) End() time.Duration {
	end := time.Duration(0)
	for t := range log.Held().All() {
		end = max(end, t.End, t.Sent, t.Due)
	}
	for _, s := range log.Steps {
		end = max(end, s.Start, s.WindowEnd, s.DrainEnd)
	}
	for _, e := range log.Epochs {
		end = max(end, e.At)
	}
	return end
}

// record reads one record.
func (l *logReader) record(b []byte, line int) error {
	var kind struct {
		Type   string `json:"type"`
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return err
	}
	if !l.begun && (kind.Type != "header" || kind.Schema != LogSchema) {
		return fmt.Errorf("the first line is not a header with schema %q", LogSchema)
	}
	log := &l.log
	switch kind.Type {
	case "header":
		if l.begun {
			return errSecondHeader
		}
		if err := json.Unmarshal(b, &log.Header); err != nil {
			return err
		}
		l.begun = true
	case "step_begin", "step_end":
		r := stepRecord{WindowEnd: seconds(Never), DrainEnd: seconds(Never)}
		if err := json.Unmarshal(b, &r); err != nil {
			return err
		}
		if i, ok := l.steps[r.Step]; ok {
			log.Steps[i] = r.step()
			break
		}
		l.steps[r.Step] = len(log.Steps)
		log.Steps = append(log.Steps, r.step())
	case "turn":
		never := seconds(Never)
		t := turnLine{Due: never, Sent: never, Wrote: never, Headers: never, FirstEvent: never, FirstToken: never, LastToken: never, End: never}
		if err := json.Unmarshal(b, &t); err != nil {
			return err
		}
		if t.Outcome == "" {
			return errors.New("a turn without an outcome")
		}
		turn := t.turn()
		log.add(&turn)
	case "sample":
		var s sampleLine
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		log.Samples = append(log.Samples, EngineSample{At: time.Duration(s.At), Step: s.Step, Values: s.Values})
	case "resume":
		var e epochLine
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		log.Epochs = append(log.Epochs, Epoch{FromStep: e.FromStep, At: time.Duration(e.At), Started: e.Started, Nonce: e.Nonce})
		log.dropFrom(e.FromStep, l.steps)
	default:
		return fmt.Errorf("unknown record type %q", kind.Type)
	}
	if key := doubled(b); key != "" {
		l.warn(line, fmt.Sprintf("the key %.60q stands twice in one object; the second value counts", key))
	}
	return nil
}

// doubled finds a key that stands twice in one object of a valid JSON value; "" when there is none.
func doubled(b []byte) string {
	type object struct{ keys [][]byte } // nil of an array
	var open []*object
	key := false // a string that comes now is a key
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open, key = append(open, &object{}), true
		case '[':
			open, key = append(open, nil), false
		case '}', ']':
			open, key = open[:len(open)-1], false
		case ',':
			key = len(open) > 0 && open[len(open)-1] != nil
		case '"':
			from := i + 1
			for i = from; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if !key {
				continue
			}
			key = false
			in, name := open[len(open)-1], b[from:i]
			if slices.ContainsFunc(in.keys, func(k []byte) bool { return bytes.Equal(k, name) }) {
				return string(name)
			}
			in.keys = append(in.keys, name)
		}
	}
	return ""
}
