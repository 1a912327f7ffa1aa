package measurement

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// appendTurn appends a turn's line; raw keeps every gap between token events.
func appendTurn(b []byte, t *Turn, raw bool) []byte {
	b = appendInt(append(b, `{"type":"turn"`...), `,"call":`, t.Call)
	b = appendInt(b, `,"turn":`, t.Turn)
	b = appendInt(b, `,"step":`, t.Step)
	b = appendInstant(b, `,"due_s":`, t.Due)
	if t.Held >= 0 {
		b = appendInstant(b, `,"held_s":`, t.Held)
	}
	b = appendInstant(b, `,"sent_s":`, t.Sent)
	b = appendInstant(b, `,"wrote_s":`, t.WroteRequest)
	if t.Admitted > 0 {
		b = appendInstant(b, `,"admitted_s":`, t.Admitted)
	}
	if t.Replica > 0 {
		b = appendInt(b, `,"replica":`, int(t.Replica)-1)
	}
	b = appendInstant(b, `,"headers_s":`, t.Headers)
	b = appendInstant(b, `,"first_event_s":`, t.FirstEvent)
	b = appendInstant(b, `,"first_token_s":`, t.FirstToken)
	b = appendInstant(b, `,"last_token_s":`, t.LastToken)
	b = appendInstant(b, `,"end_s":`, t.End)
	if d, ok := t.TTFT(); ok {
		b = appendMillis(b, `,"ttft_ms":`, d)
	} else {
		b = append(b, `,"ttft_ms":null`...)
	}
	if t.Events > 0 {
		longest := t.GapMax
		for _, g := range t.Gaps {
			longest = max(longest, g)
		}
		b = appendInt(b, `,"itl":{"n":`, t.Events-1)
		b = appendMillis(b, `,"sum_ms":`, t.LastToken-t.FirstToken)
		b = append(appendMillis(b, `,"max_ms":`, longest), '}')
		if raw && len(t.Gaps) > 0 {
			before := `,"gaps_ms":[`
			for _, g := range t.Gaps {
				b = appendMillis(b, before, g)
				before = ","
			}
			b = append(b, ']')
		}
	}
	if t.FirstEventTokens != 0 {
		b = appendInt(b, `,"first_tokens":`, t.FirstEventTokens)
	}
	b = appendCount(b, `,"prompt_tokens":`, t.PromptTokens)
	b = appendCount(b, `,"completion_tokens":`, t.CompletionTokens)
	b = appendCount(b, `,"cached_tokens":`, t.CachedTokens)
	if t.Reused {
		b = append(b, `,"reused":true`...)
	}
	if t.Dialed != 0 {
		b = appendMillis(b, `,"dialed_ms":`, t.Dialed)
	}
	if t.Retries != 0 {
		b = appendInt(b, `,"retries":`, t.Retries)
	}
	if t.Local {
		b = append(b, `,"local":true`...)
	}
	b = append(b, `,"outcome":"`...)
	b = append(append(b, t.Outcome...), '"')
	if t.Detail != "" {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(t.Detail); err != nil {
			panic(err) // a string is always JSON
		}
		b = append(append(b, `,"detail":`...), bytes.TrimSpace(text.Bytes())...)
	}
	return append(b, "}\n"...)
}

func appendInt(b []byte, key string, v int) []byte {
	return strconv.AppendInt(append(b, key...), int64(v), 10)
}

func appendCount(b []byte, key string, n int) []byte {
	if n < 0 {
		return append(append(b, key...), "null"...)
	}
	return appendInt(b, key, n)
}

// appendInstant appends seconds with nine decimals at most; Never is null.
func appendInstant(b []byte, key string, at time.Duration) []byte {
	if at < 0 {
		return append(append(b, key...), "null"...)
	}
	return appendDecimal(append(b, key...), int64(at), 9)
}

// appendMillis appends milliseconds with six decimals at most.
func appendMillis(b []byte, key string, d time.Duration) []byte {
	b = append(b, key...)
	if d < 0 {
		b, d = append(b, '-'), -d
	}
	return appendDecimal(b, int64(d), 6)
}

// appendDecimal appends v/10^places, v >= 0, without zeros at its end.
func appendDecimal(b []byte, v int64, places int) []byte {
	scale := int64(1)
	for range places {
		scale *= 10
	}
	b = strconv.AppendInt(b, v/scale, 10)
	if v %= scale; v == 0 {
		return b
	}
	for v%10 == 0 {
		v, places = v/10, places-1
	}
	b = append(b, '.')
	at := len(b)
	for range places {
		b = append(b, '0')
	}
	for i := at + places - 1; v > 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return b
}
