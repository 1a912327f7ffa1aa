package measurement

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The tags of a histogram log. Durations are nanoseconds; the others are counts.
const (
	TagTTFT     = "ttft"      // measured turns that got a token: first token - due
	TagTTFTSent = "ttft_sent" // the same: first token - sent
	TagITL      = "itl"       // gaps between token events of measured turns
	TagTPOT     = "tpot"
	TagE2E      = "e2e"             // measured turns that ended well: end - due
	TagCached   = "cached_tokens"   // measured turns whose cached tokens are known
	TagCalls    = "calls_in_flight" // sampled once a second of the window
)

// WriteHLog writes the measured turns of a run as an HdrHistogram log (format 1.3): for each complete step one interval, its
// window, a tag. Every reader of the format opens it, Java's HistogramLogProcessor for one. Interval_Max is in ms for
// durations, as that format has it, and a plain number for counts.
func WriteHLog(w io.Writer, log Log) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "#[Histogram log format version 1.3]")
	started, real := log.Wall(0)
	if real {
		fmt.Fprintf(b, "#[StartTime: %.3f (seconds since epoch), %s]\n", float64(started.UnixNano())/1e9, started.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(b, `"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"`)
	turns, lone := log.Held(), log.Header.Config.Lone()
	byStep := map[int][]Stretch{}
	for _, x := range turns.Stretches() {
		byStep[x.Step] = append(byStep[x.Step], x)
	}
	for _, s := range log.Complete() {
		hs, err := stepHistograms(s, func(yield func(*Turn) bool) {
			var room Turn
			for _, x := range byStep[s.Step] {
				for i := x.From; i < x.To; i++ {
					if !yield(turns.At(i, &room)) {
						return
					}
				}
			}
		}, lone)
		if err != nil {
			return fmt.Errorf("step %d: %w", s.Step, err)
		}
		for _, h := range hs {
			if h.TotalCount() == 0 {
				continue
			}
			enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
			if err != nil {
				return fmt.Errorf("step %d: encode %s: %w", s.Step, h.Tag(), err)
			}
			top := float64(h.Max())
			if h.Tag() != TagCached && h.Tag() != TagCalls {
				top /= 1e6
			}
			begin := s.WindowStart
			if wall, ok := log.Wall(s.WindowStart); ok {
				begin = wall.Sub(started) // with the pauses of a run that was gone on with
			}
			fmt.Fprintf(b, "Tag=%s,%.3f,%.3f,%.3f,%s\n", h.Tag(), begin.Seconds(), (s.WindowEnd - s.WindowStart).Seconds(), top, enc)
		}
	}
	return b.Flush()
}

// stepHistograms are the tags of one complete step, in order; turns are those of the step, each a call of its own where they are lone.
func stepHistograms(s Step, turns iter.Seq[*Turn], lone bool) ([]*hdrhistogram.Histogram, error) {
	named := func(tag string, h *hdrhistogram.Histogram) *hdrhistogram.Histogram {
		h.SetTag(tag)
		return h
	}
	ttft, sent, itl := named(TagTTFT, NewHistogram()), named(TagTTFTSent, NewHistogram()), named(TagITL, NewHistogram())
	tpot, e2e := named(TagTPOT, NewHistogram()), named(TagE2E, NewHistogram())
	cached, calls := named(TagCached, newCounts()), named(TagCalls, newCounts())
	for t := range turns {
		if t.Turn < 2 || !s.InWindow(t.Due) {
			continue
		}
		if d, ok := t.TTFT(); ok {
			RecordGap(ttft, d)
		}
		if d, ok := t.TTFTSent(); ok {
			RecordGap(sent, d)
		}
		if d, ok := t.TPOT(); ok {
			RecordGap(tpot, d)
		}
		if t.Outcome == OK {
			RecordGap(e2e, t.End-t.Due)
		}
		if t.CachedTokens >= 0 && t.Sent >= 0 {
			_ = cached.RecordValue(min(int64(t.CachedTokens), math.MaxInt32))
		}
	}
	for _, packed := range s.ITL {
		h, err := DecodeHistogram(packed)
		if err != nil {
			return nil, err
		}
		itl.Merge(h)
	}
	for _, n := range callsInFlight(s, turns, lone) {
		_ = calls.RecordValue(int64(n))
	}
	return []*hdrhistogram.Histogram{ttft, sent, itl, tpot, e2e, cached, calls}, nil
}

// newCounts is a histogram of counts up to 2^31 - 1 at three digits.
func newCounts() *hdrhistogram.Histogram { return hdrhistogram.New(1, math.MaxInt32, 3) }

// callsInFlight is how many calls had begun and not ended at the window's start and at each second behind it: from the
// first turn's due instant (or when the cap let it go) to the end of the last turn.
func callsInFlight(s Step, turns iter.Seq[*Turn], lone bool) []int {
	type span struct{ begin, end time.Duration }
	var samples []int // how many more there are than a second before, then how many there are
	for at := s.WindowStart; at <= s.WindowEnd; at += time.Second {
		samples = append(samples, 0)
	}
	from := func(at time.Duration, more int) { // that instant on
		if at > s.WindowEnd {
			return
		}
		if i := max(0, (at-s.WindowStart+time.Second-1)/time.Second); int(i) < len(samples) {
			samples[i] += more
		}
	}
	add := func(c span) {
		if c.begin >= 0 && c.end >= c.begin {
			from(c.begin, 1)
			from(c.end, -1)
		}
	}
	calls := map[int]span{}
	for t := range turns {
		if t.Outcome == Shed || t.Outcome == NotSent {
			continue
		}
		if lone {
			add(span{max(t.Due, t.Held), t.End})
			continue
		}
		c, ok := calls[t.Call]
		if !ok {
			c = span{Never, Never}
		}
		if t.Turn == 1 || t.Turn == LoneTurn && c.begin < 0 {
			c.begin = max(t.Due, t.Held)
		}
		c.end = max(c.end, t.End)
		calls[t.Call] = c
	}
	for _, c := range calls {
		add(c)
	}
	live := 0
	for i, more := range samples {
		live += more
		samples[i] = live
	}
	return samples
}
