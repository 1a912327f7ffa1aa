package anchor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"kneefinder/measurement"
	"kneefinder/simulation/engine"
)

// Schema names the form of a data file.
const Schema = "kneefinder/anchor-data/v1"

// Data is what was measured on one engine, and all that a fit needs beside the model's shape.
type Data struct {
	Schema string    `json:"schema"`
	Server Server    `json:"server"`
	Setup  Setup     `json:"setup"`
	Cache  string    `json:"cache_report"` // how cached tokens are told: measurement.CacheReported and so on
	Skips  []string  `json:"not_measured,omitempty"`
	Seen   []Reading `json:"readings"`
}

// Server is what the server says of itself.
type Server struct {
	Kind    string `json:"kind,omitempty"`
	Version string `json:"version,omitempty"`
	Model   string `json:"model,omitempty"` // the name it serves
}

// Setup is how the engine was started, as far as the time of a step depends on it.
type Setup struct {
	Engine engine.Kind `json:"engine"`       // whose scheduler it is
	Chunk  int         `json:"chunk"`        // most prompt tokens of one step
	TP     int         `json:"tp,omitempty"` // see cost.Options; 0: 1
	PP     int         `json:"pp,omitempty"`
	EP     int         `json:"ep,omitempty"`
	DP     int         `json:"dp,omitempty"`
}

// Kind says what a reading is of.
type Kind string

// The kinds.
const (
	Cold     Kind = "cold"     // one request, none of its prompt in the cache, one token
	Warm     Kind = "warm"     // one request behind a cached prefix, one token
	Decode   Kind = "decode"   // some requests that decode together
	Together Kind = "together" // some cold requests sent at once or shortly after another, one token each
)

// Reading is one observation.
type Reading struct {
	Kind     Kind      `json:"kind"`
	Point    string    `json:"point"`              // readings of one kind and point repeat each other; a fit takes their median
	Requests []Request `json:"requests,omitempty"` // of Cold and Warm one
	Steps    *Steps    `json:"steps,omitempty"`    // of Decode
}

// Request is one request of a reading. Instants are milliseconds since the first request of the reading was sent.
type Request struct {
	Sent   float64 `json:"sent_ms"`
	First  float64 `json:"first_ms"` // the first token
	Prompt int     `json:"prompt_tokens"`
	Cached *int    `json:"cached_tokens"` // null: not told
}

// Steps is a stretch in which the same sequences decoded, one token each a step, and nothing else ran.
type Steps struct {
	N       int       `json:"n"`       // steps
	MS      float64   `json:"step_ms"` // the mean time of one
	Lengths []float64 `json:"lengths"` // of each sequence, on average over the steps, the new token included
}

// cached is how many tokens of a request's prompt are known to have been cached.
func (r *Request) cached() int {
	if r.Cached == nil {
		return 0
	}
	return *r.Cached
}

// took is the time that a reading is compared by: of Decode a step, of the others until the last first token. Milliseconds.
func (r *Reading) took() float64 {
	if r.Kind == Decode {
		return r.Steps.MS
	}
	last := 0.
	for i := range r.Requests {
		last = max(last, r.Requests[i].First)
	}
	return last
}

// ReadFile reads a data file.
func ReadFile(path string) (Data, error) {
	f, err := os.Open(path)
	if err != nil {
		return Data{}, err
	}
	defer f.Close()
	return Read(f, path)
}

// Read reads data and checks it; name stands in errors.
func Read(r io.Reader, name string) (Data, error) {
	var d Data
	in := json.NewDecoder(r)
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return d, fmt.Errorf("%s: the file ends before its data do: measure again", name)
		}
		return d, fmt.Errorf("%s: %w", name, err)
	}
	if d.Schema != Schema {
		return d, fmt.Errorf("%s: schema is %q, must be %q: this is no data file of kneesim anchor", name, d.Schema, Schema)
	}
	if err := d.Validate(); err != nil {
		return d, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Write writes data, one reading a line, so that differences can be read.
func Write(w io.Writer, d Data) error {
	seen := d.Seen
	d.Seen = nil
	head, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	const end = "\"readings\": null\n}"
	if _, err := fmt.Fprintf(w, "%s\"readings\": [", head[:len(head)-len(end)]); err != nil {
		return err
	}
	for i := range seen {
		line, err := json.Marshal(seen[i])
		if err != nil {
			return err
		}
		sep := ","
		if i == 0 {
			sep = ""
		}
		if _, err := fmt.Fprintf(w, "%s\n    %s", sep, line); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(w, "\n  ]\n}\n")
	return err
}

// Validate names the first reading that contradicts itself or the others, and how.
func (d *Data) Validate() error {
	s := &d.Setup
	if s.Engine != engine.SGLang && s.Engine != engine.VLLM {
		return fmt.Errorf("setup.engine is %q, must be %s or %s", s.Engine, engine.SGLang, engine.VLLM)
	}
	if s.Chunk < 1 {
		return fmt.Errorf("setup.chunk is %d, must be the most prompt tokens of one step, at least 1", s.Chunk)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"tp", s.TP}, {"pp", s.PP}, {"ep", s.EP}, {"dp", s.DP}} {
		if f.value < 0 {
			return fmt.Errorf("setup.%s is %d, must not be below 0", f.name, f.value)
		}
	}
	switch d.Cache {
	case measurement.CacheReported, measurement.CacheZeroAsNull, measurement.CacheNotReported, measurement.CacheMissed:
	default:
		return fmt.Errorf("cache_report is %q, must be %s, %s, %s or %s", d.Cache, measurement.CacheReported, measurement.CacheZeroAsNull, measurement.CacheNotReported, measurement.CacheMissed)
	}
	for i := range d.Seen {
		if err := d.Seen[i].validate(); err != nil {
			return fmt.Errorf("reading %d (%s): %w", i+1, d.Seen[i].Kind, err)
		}
	}
	return nil
}

func (r *Reading) validate() error {
	switch r.Kind {
	case Decode:
		s := r.Steps
		if s == nil || len(r.Requests) > 0 {
			return errors.New("must have steps, and no requests")
		}
		if s.N < 1 || !(s.MS > 0) || math.IsInf(s.MS, 0) || len(s.Lengths) == 0 {
			return fmt.Errorf("steps are %+v, must be at least 1, of more than 0 ms, of at least one sequence", *s)
		}
		for _, l := range s.Lengths {
			if !(l >= 1) || l > 1e9 {
				return fmt.Errorf("a sequence has %v tokens, must have at least 1", l)
			}
		}
		return nil
	case Cold, Warm, Together:
	default:
		return fmt.Errorf("the kind must be %s, %s, %s or %s", Cold, Warm, Decode, Together)
	}
	if r.Steps != nil || len(r.Requests) == 0 {
		return errors.New("must have requests, and no steps")
	}
	if r.Kind != Together && len(r.Requests) != 1 {
		return fmt.Errorf("has %d requests, must have 1", len(r.Requests))
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		if q.Prompt < 1 || q.Prompt > 1e9 {
			return fmt.Errorf("prompt_tokens is %d, must be at least 1", q.Prompt)
		}
		if !(q.Sent >= 0) || !(q.First > q.Sent) || math.IsInf(q.First, 0) {
			return fmt.Errorf("sent at %v ms and first token at %v ms: the token must come later", q.Sent, q.First)
		}
		c := q.cached()
		if c < 0 || c >= q.Prompt {
			return fmt.Errorf("%d of %d prompt tokens cached: must be fewer, as at least one is always computed", c, q.Prompt)
		}
		switch {
		case r.Kind == Warm && q.Cached == nil:
			return errors.New("cached tokens are not told, so nobody knows what was computed: leave such readings out")
		case r.Kind == Warm && 2*c < q.Prompt:
			return fmt.Errorf("only %d of %d prompt tokens were cached: is the prefix cache on, and large enough?", c, q.Prompt)
		case r.Kind != Warm && c > max(64, q.Prompt/10): // a chat template may be shared
			return fmt.Errorf("%d of %d prompt tokens were cached although nobody had sent them: something else uses these prompts (a repeated nonce?)", c, q.Prompt)
		}
	}
	return nil
}
