package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"kneefinder/generator"
)

// Config says which server is asked, and how. It prints without its secrets.
type Config struct {
	BaseURL     string                     // http or https, with or without the /v1 at its end
	Model       string                     // "" lets the server choose
	APIKey      string                     // sent as Authorization: Bearer
	Header      http.Header                // sent with every request, over the client's own
	ExtraBody   map[string]json.RawMessage // members of the request body, over the client's own
	Temperature float64
	IgnoreEOS   bool // ask for exactly MaxTokens tokens; fewer is measurement.ShortOutput
	Limits      generator.Limits
	Nonce       uint64 // of the run, for the request's id
	InsecureTLS bool   // accept any certificate

	// Annotate adds headers that differ from turn to turn, such as a trace's; it is called by many goroutines. nil adds none.
	Annotate func(h http.Header, req generator.Request)

	// Dial opens a connection; nil is the network, through the proxy that the environment names.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Default is a Config that lacks only its BaseURL.
func Default() Config {
	return Config{
		IgnoreEOS: true,
		Limits:    generator.Limits{TTFT: 60 * time.Second, Idle: 30 * time.Second, Total: 300 * time.Second},
	}
}

// reserved are the body's members that make a request a turn.
var reserved = []string{"max_tokens", "messages", "model", "stream"}

// Validate says what is wrong with the first field that is.
func (c Config) Validate() error {
	if _, err := baseURL(c.BaseURL); err != nil {
		return err
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("api key: holds a control character (a line end from its file?)")
	}
	for name := range c.Header {
		if name := http.CanonicalHeaderKey(name); name == "Idempotency-Key" || name == "X-Idempotency-Key" {
			return fmt.Errorf("header: %s makes the transport send prompts twice unseen", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.ExtraBody)) {
		if slices.Contains(reserved, name) {
			return fmt.Errorf("extra body: %q is set by the run and cannot be replaced", name)
		}
		if !json.Valid(c.ExtraBody[name]) {
			return fmt.Errorf("extra body: the value of %q is not JSON", name)
		}
	}
	if c.Temperature < 0 || math.IsNaN(c.Temperature) || math.IsInf(c.Temperature, 0) {
		return fmt.Errorf("temperature: %v, must be a number from 0", c.Temperature)
	}
	for _, limit := range []struct {
		name string
		d    time.Duration
	}{{"ttft", c.Limits.TTFT}, {"idle", c.Limits.Idle}, {"total", c.Limits.Total}} {
		if limit.d < 0 {
			return fmt.Errorf("%s limit: %v, must be 0 (none) or more", limit.name, limit.d)
		}
	}
	return nil
}

// baseURL is the URL that every path is appended to, without the /v1.
func baseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil { // its text may hold a password
		return nil, fmt.Errorf("base URL: not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("base URL: %q, must be http:// or https:// and a host", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.Path = strings.TrimSuffix(u.Path, "/chat/completions")
	u.Path = strings.TrimRight(strings.TrimSuffix(u.Path, "/v1"), "/")
	u.RawPath, u.Fragment = "", ""
	return u, nil
}

// String is the config without key, header values and the URL's password.
func (c Config) String() string {
	base := "?"
	if u, err := url.Parse(c.BaseURL); err == nil {
		u.User = nil
		base = u.String()
	}
	return fmt.Sprintf("{BaseURL:%s Model:%s}", base, c.Model)
}

// GoString is String.
func (c Config) GoString() string { return "openai.Config" + c.String() }

// MarshalJSON writes String, so that no log or result can hold the secrets.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// head is the body up to the first message.
func (c Config) head() []byte {
	head := []byte{'{'}
	if c.Model != "" {
		head = append(head, `"model":"`...)
		head = appendEscaped(head, c.Model)
		head = append(head, `",`...)
	}
	return append(head, `"messages":[`...)
}

// options are the body's members after max_tokens, and its end.
func (c Config) options() []byte {
	members := map[string]json.RawMessage{
		"stream_options": json.RawMessage(`{"include_usage":true}`), // nothing else: strict proxies refuse members they do not know
		"temperature":    fmt.Appendf(nil, "%v", c.Temperature),
	}
	if c.IgnoreEOS {
		members["ignore_eos"] = json.RawMessage("true")
	}
	maps.Copy(members, c.ExtraBody)
	options := []byte(`,"stream":true`)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		options = append(options, `,"`...)
		options = appendEscaped(options, name)
		options = append(options, `":`...)
		options = append(options, bytes.TrimSpace(members[name])...)
	}
	return append(options, '}')
}

// secrets are the texts that must not stand in any error. Fewer than four bytes are no secret, but a word such as "x" that
// stands for "no key"; hiding it would eat messages. A header that does not sound like one must be longer to be taken for one.
func (c Config) secrets() []string {
	var all []string
	add := func(s string, least int) {
		if len(s) >= least {
			all = append(all, s)
		}
	}
	add(c.APIKey, 4)
	if u, err := url.Parse(c.BaseURL); err == nil && u.User != nil {
		password, _ := u.User.Password()
		add(password, 4)
		add(u.User.Username(), 4)
	}
	if u, err := url.Parse(c.BaseURL); err == nil {
		for _, values := range u.Query() {
			for _, v := range values {
				add(v, 4)
			}
		}
	}
	for name, values := range c.Header {
		least := 12
		if secretName(name) {
			least = 4
		}
		for _, v := range values {
			add(v, least)
			if _, token, ok := strings.Cut(v, " "); ok { // Bearer ...
				add(token, least)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // the whole before its part
	return all
}

// secretName is whether what goes by a name may be a secret.
func secretName(name string) bool {
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
	for _, s := range []string{"apikey", "auth", "cookie", "password", "secret", "credential"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return strings.HasSuffix(name, "token") || strings.HasSuffix(name, "key")
}
