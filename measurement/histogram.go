package measurement

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// NewHistogram returns an empty histogram of nanoseconds, 1 us to 1 h at three significant digits (at most .1 % off).
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 3)
}

// RecordGap adds one gap between token events. A gap under the lowest trackable value counts as that value's cell; one over
// an hour as an hour.
func RecordGap(h *hdrhistogram.Histogram, gap time.Duration) {
	_ = h.RecordValue(min(int64(gap), int64(time.Hour)))
}

// EncodeHistogram packs a histogram for the log.
func EncodeHistogram(turn int, h *hdrhistogram.Histogram) (Histogram, error) {
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return Histogram{}, fmt.Errorf("encode histogram of turn %d: %w", turn, err)
	}
	return Histogram{Turn: turn, Encoded: string(b)}, nil
}

// DecodeHistogram unpacks what EncodeHistogram packed.
func DecodeHistogram(h Histogram) (*hdrhistogram.Histogram, error) {
	d, err := hdrhistogram.Decode([]byte(h.Encoded))
	if err != nil {
		return nil, fmt.Errorf("decode histogram of turn %d: %w", h.Turn, err)
	}
	return d, nil
}
