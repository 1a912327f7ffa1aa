package importer

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kneefinder/measurement"
)

// hdrLine is a line of a log: values are milliseconds.
func hdrLine(t testing.TB, tag string, start float64, values ...float64) string {
	t.Helper()
	h := measurement.NewHistogram()
	for _, v := range values {
		measurement.RecordGap(h, time.Duration(v*float64(time.Millisecond)))
	}
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	if tag != "" {
		tag = "Tag=" + tag + ","
	}
	return fmt.Sprintf("%s%.3f,10.000,1.000,%s\n", tag, start, enc)
}

// badHDR is a histogram of nine significant digits, which there are none of.
func badHDR(t testing.TB) string {
	t.Helper()
	var payload bytes.Buffer
	for _, v := range []any{int32(0x1c849303 | 0x10), int32(0), int32(0), int32(9), int64(1), int64(1 << 40), float64(1)} {
		if err := binary.Write(&payload, binary.BigEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write(payload.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	out := binary.BigEndian.AppendUint32(nil, 0x1c849304|0x10)
	out = binary.BigEndian.AppendUint32(out, uint32(packed.Len()))
	return base64.StdEncoding.EncodeToString(append(out, packed.Bytes()...))
}

// many are n values that rise evenly to top.
func many(n int, top float64) []float64 {
	var out []float64
	for i := range n {
		out = append(out, top*float64(i+1)/float64(n))
	}
	return out
}

func TestHDRLog(t *testing.T) {
	head := "#[Histogram log format version 1.3]\n#[StartTime: 1.000 (seconds since epoch), x]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
	text := head + hdrLine(t, "ttft", 0, many(100, 100)...) + hdrLine(t, "itl", 0, many(900, 30)...) + hdrLine(t, "e2e", 0, many(100, 900)...) +
		hdrLine(t, "calls_in_flight", 0, 1) + hdrLine(t, "ttft", 20, many(100, 200)...) + hdrLine(t, "ttft", 20, many(100, 200)...) + "\n" + hdrLine(t, "ttft", 40, many(200, 900)...)
	r, err := HDRLog(File{Name: "x.hlog", Data: []byte(text)}, []float64{1, 2, 4}, append(slo300, measurement.Objective{Metric: "ttft", Quantile: .9, LimitMS: 250}))
	if err != nil {
		t.Fatal(err)
	}
	near := func(v *float64, want float64) bool { return v != nil && math.Abs(*v/want-1) < .012 } // an even spread of 100 values has no finer quantile
	s := r.Steps
	if len(s) != 3 || s[0].Rate != 1 || s[2].Rate != 4 || !near(s[0].TTFTP95, 95) || !near(s[1].TTFTP95, 190) || !near(s[2].TTFTP50, 450) || !near(s[0].ITLP95, 28.5) || s[1].ITLP95 != nil {
		t.Fatalf("%+v", s)
	}
	if s[1].MeasuredTurns != 200 || *s[0].ThroughputTurns != 10 || s[0].ErrorRate != nil || s[2].Verdict != measurement.Fail || s[1].Verdict != measurement.Pass {
		t.Errorf("%d turns of two lines, %v turns/s, %s and %s", s[1].MeasuredTurns, *s[0].ThroughputTurns, s[1].Verdict, s[2].Verdict)
	}
	if !near(s[2].Objectives[len(s[2].Objectives)-1].ValueMS, 810) {
		t.Errorf("the P90 that is asked for: %+v", s[2].Objectives)
	}
	if *r.Knees.SLO.Rate != 2 || r.Config.Arrivals != "unknown" {
		t.Errorf("the knee is at %v, arrivals %s", *r.Knees.SLO.Rate, r.Config.Arrivals)
	}
	for _, c := range []struct{ why, text, want string }{
		{"no histogram", head, "without a histogram"},
		{"another tool's, untagged", head + hdrLine(t, "", 0, 1, 2), "no histogram is tagged ttft"},
		{"too few fields", head + "Tag=ttft,1,2\n", "x.hlog:4 is no line of an HdrHistogram log: it has 2 fields"},
		{"no length", head + "Tag=ttft,1,x,3,HIST\n", "x.hlog:4 has the interval length"},
		{"no histogram in it", head + "Tag=ttft,1,2,3,HIST\n", "x.hlog:4 holds a histogram that cannot be read"},
		{"settings of no histogram", head + "Tag=ttft,1,2,3," + badHDR(t) + "\n", "x.hlog:4 holds a histogram that cannot be read"},
		{"one interval", head + hdrLine(t, "ttft", 0, 1, 2), "one load is no curve"},
	} {
		rates := []float64{1}
		if _, err := HDRLog(File{Name: "x.hlog", Data: []byte(c.text)}, rates, slo300); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}

// No log makes the reader panic, or a figure that is none.
func FuzzHDRLog(f *testing.F) {
	f.Add(hdrLine(f, "ttft", 0, 1, 2)+hdrLine(f, "ttft", 1, 5, 900), 1., 2.)
	f.Add("Tag=ttft,0,1,2,HISTFAAAAA\n", 1., 2.)
	f.Add("Tag=,,,,\n0,0,0,\n", math.NaN(), math.Inf(1))
	f.Fuzz(func(t *testing.T, text string, a, b float64) {
		r, err := HDRLog(File{Name: "f", Data: []byte(text)}, []float64{a, b}, slo300)
		if err != nil {
			return
		}
		for _, s := range r.Steps {
			if !(s.Rate > 0) || s.TTFTP95 != nil && !(*s.TTFTP95 >= 0) {
				t.Errorf("%+v", s)
			}
		}
	})
}
