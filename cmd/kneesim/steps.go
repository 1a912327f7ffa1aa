package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// stepsSchema names the format of --dump-steps.
const stepsSchema = "kneefinder/steps/v1"

// dump writes every step of the engine as a line of JSON: a header, the steps in the order they ended, what each load's steps add up to
// and, at the end, what all do. The first error sticks.
type dump struct {
	*sampler // the rest of what a cli.Watcher is told

	file     *os.File
	w        *bufio.Writer
	line     []byte
	load     int     // the number of the load's step of the run
	rate     float64 // and the load
	one, all packing
	err      error
}

// newDump begins the file.
func newDump(path string, looks *sampler, h measurement.Header) (*dump, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("dump the engine's steps: %w", err)
	}
	d := &dump{sampler: looks, file: f, w: bufio.NewWriterSize(f, 1<<20)}
	d.write(struct {
		Type   string `json:"type"`
		Schema string `json:"schema"`
		Label  string `json:"label"`
		Model  string `json:"model"`
		GPU    string `json:"gpu"`
		Seed   uint64 `json:"seed"`
	}{"header", stepsSchema, h.Label, h.Engine.Model, h.Engine.GPU, h.Seed})
	return d, nil
}

// StepBegin notes the load.
func (d *dump) StepBegin(s measurement.Step) {
	d.load, d.rate, d.one = s.Step, s.Rate, packing{}
	d.sampler.StepBegin(s)
}

// StepEnd writes what the load's steps add up to.
func (d *dump) StepEnd(s measurement.Step) {
	d.write(d.one.line("packing", &d.load, &d.rate))
	d.sampler.StepEnd(s)
}

// close writes what all steps add up to, and says what went wrong since the file was made.
func (d *dump) close() error {
	d.write(d.all.line("packing_of_all", nil, nil))
	if err := d.w.Flush(); d.err == nil {
		d.err = err
	}
	if err := d.file.Close(); d.err == nil {
		d.err = err
	}
	if d.err != nil {
		return fmt.Errorf("dump the engine's steps: %w", d.err)
	}
	return nil
}

func (d *dump) write(line any) {
	enc := json.NewEncoder(d.w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); d.err == nil {
		d.err = err
	}
}

// Step writes a step.
func (d *dump) Step(replica int, s *engine.Step) {
	var x stepped
	for _, p := range s.Parts {
		x.query += p.Query
		if p.Prefill {
			x.prompts++
		}
	}
	x.batch, x.kv, x.pool = len(s.Parts), s.KVTokens, s.Stats.KVPoolTokens
	d.one.add(x)
	d.all.add(x)

	b := append(d.line[:0], `{"type":"step","step":`...)
	b = strconv.AppendInt(b, int64(d.all.steps), 10)
	b = number(b, `,"load_step":`, d.load)
	b = number(b, `,"replica":`, replica)
	b = millis(b, `,"time_ms":`, s.End)
	b = millis(b, `,"step_ms":`, s.End-s.Start)
	b = number(b, `,"batch_size":`, x.batch)
	b = number(b, `,"num_prefill_reqs":`, x.prompts)
	b = number(b, `,"num_decode_reqs":`, x.batch-x.prompts)
	b = number(b, `,"total_query_tokens":`, x.query)
	b = number(b, `,"kv_tokens_in_use":`, x.kv)
	b = append(b, `,"requests":[`...)
	for i, p := range s.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"request_id":`...)
		b = strconv.AppendUint(b, p.ID, 10)
		b = number(b, `,"call":`, p.Call)
		b = number(b, `,"turn":`, p.Turn)
		if p.Prefill {
			b = append(b, `,"phase":"prefill"`...)
		} else {
			b = append(b, `,"phase":"decode"`...)
		}
		b = number(b, `,"query_len":`, p.Query)
		b = append(number(b, `,"kv_len":`, p.KV), '}')
	}
	d.line = append(b, "]}\n"...)
	if _, err := d.w.Write(d.line); d.err == nil {
		d.err = err
	}
}

func number(b []byte, key string, n int) []byte {
	return strconv.AppendInt(append(b, key...), int64(n), 10)
}

// millis appends milliseconds, exact in nanoseconds.
func millis(b []byte, key string, d time.Duration) []byte {
	b = number(b, key, int(d/time.Millisecond))
	if rest := d % time.Millisecond; rest > 0 {
		b = fmt.Appendf(b, ".%06d", rest)
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return b
}

// stepped is one step, counted.
type stepped struct{ batch, prompts, query, kv, pool int }

// packing adds steps up.
type packing struct {
	steps, batch, batchMost, prompts, query, prefills, mixed, kvPeak, pool int
}

func (p *packing) add(s stepped) {
	p.steps++
	p.batch += s.batch
	p.batchMost = max(p.batchMost, s.batch)
	p.prompts += s.prompts
	p.query += s.query
	p.kvPeak, p.pool = max(p.kvPeak, s.kv), max(p.pool, s.pool)
	if s.prompts > 0 {
		p.prefills++
		if s.batch > s.prompts {
			p.mixed++
		}
	}
}

// packingLine is how steps were packed; means are absent of none.
type packingLine struct {
	Type          string   `json:"type"`
	Load          *int     `json:"load_step,omitempty"`
	Rate          *float64 `json:"rate_calls_per_s,omitempty"`
	Steps         int      `json:"num_steps"`
	BatchMean     *float64 `json:"avg_batch_size"`
	BatchMost     int      `json:"max_batch_size"`
	PrefillMean   *float64 `json:"avg_prefill_reqs"`
	DecodeMean    *float64 `json:"avg_decode_reqs"`
	QueryMean     *float64 `json:"avg_query_tokens"`
	PrefillShare  *float64 `json:"prefill_step_fraction"`
	MixedShare    *float64 `json:"mixed_step_fraction"`
	KVPeak        int      `json:"kv_peak_tokens"`
	KVUtilization *float64 `json:"kv_utilization"` // the peak, of the longest sequence that the pool can hold
}

func (p packing) line(kind string, load *int, rate *float64) packingLine {
	of := func(n int) *float64 {
		if p.steps == 0 {
			return nil
		}
		v := float64(n) / float64(p.steps)
		return &v
	}
	l := packingLine{Type: kind, Load: load, Rate: rate, Steps: p.steps, BatchMean: of(p.batch), BatchMost: p.batchMost, PrefillMean: of(p.prompts),
		DecodeMean: of(p.batch - p.prompts), QueryMean: of(p.query), PrefillShare: of(p.prefills), MixedShare: of(p.mixed), KVPeak: p.kvPeak}
	if p.pool > 0 {
		v := float64(p.kvPeak) / float64(p.pool)
		l.KVUtilization = &v
	}
	return l
}
