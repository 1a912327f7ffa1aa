package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kneefinder/generator/wire"
	"kneefinder/measurement"
)

const (
	askTimeout = 10 * time.Second
	askBytes   = 8 << 20
	maxDetail  = 512 // bytes of JSON of one setting that is kept
)

// Models lists what the server serves.
func (c *Client) Models(ctx context.Context) ([]wire.Model, error) {
	var list wire.ModelList
	if _, err := c.get(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// Identify asks the server what it is. What it would not say stays empty; the error is that of a server that answers nothing
// at all, not even with a refusal.
func (c *Client) Identify(ctx context.Context) (measurement.Engine, error) {
	e := measurement.Engine{Model: c.cfg.Model, BaseURL: shown(c.base), Details: map[string]any{}}
	var list wire.ModelList
	header, err := c.get(ctx, "/v1/models", &list)
	if header == nil {
		return e, err
	}
	server := header.Get("Server")
	for _, m := range list.Data {
		if m.ID != e.Model && (e.Model != "" || len(list.Data) > 1) {
			continue
		}
		e.Model = m.ID
		if m.MaxModelLen > 0 {
			e.Details["max_model_len"] = m.MaxModelLen
		}
		server += " " + m.OwnedBy
	}

	var info map[string]any
	if _, err := c.get(ctx, "/server_info", &info); err != nil {
		info = nil
		c.get(ctx, "/get_server_info", &info) // the older name; a server that lacks both is none the worse
	}
	var version struct{ Version string }
	c.get(ctx, "/version", &version)
	e.Version = version.Version
	for name, v := range info {
		if v, ok := c.setting(name, v); ok && name != "internal_states" { // which repeats most settings
			e.Details[name] = v
		}
	}
	if states, ok := info["internal_states"].([]any); ok && len(states) > 0 {
		if state, ok := states[0].(map[string]any); ok {
			if v, ok := c.setting("memory_usage", state["memory_usage"]); ok {
				e.Details["memory_usage"] = v
			}
		}
	}
	if v, ok := info["version"].(string); ok && v != "" {
		e.Version = v
		delete(e.Details, "version")
	}
	if d, ok := c.conns.connectTime(ctx); ok {
		ms := float64(d.Microseconds()) / 1000
		e.ConnectMS = &ms
	}
	e.GPU, _ = e.Details["gpu"].(string) // kneemock's
	e.Kind = engineKind(server, info, version.Version)
	if len(e.Details) == 0 {
		e.Details = nil
	}
	return e, nil
}

// engineKind guesses from what the server calls itself, then from what it can be asked.
func engineKind(server string, info map[string]any, version string) string {
	server = strings.ToLower(server)
	if info["engine"] == "kneemock" || strings.Contains(server, "kneemock") {
		return "kneemock"
	}
	_, vllm := info["vllm_config"]
	_, sglang := info["internal_states"]
	_, scheduler := info["max_total_num_tokens"]
	switch {
	case strings.Contains(server, "sglang"), sglang, scheduler:
		return "sglang"
	case strings.Contains(server, "vllm"), vllm:
		return "vllm"
	case strings.Contains(server, "llamacpp"), strings.Contains(server, "llama.cpp"):
		return "llama.cpp"
	case info == nil && version != "":
		return "vllm"
	}
	return ""
}

// setting is a setting as it may be shown: no secret, and not large.
func (c *Client) setting(name string, v any) (shown any, ok bool) {
	if v == nil || secretSetting(name) {
		return nil, false
	}
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, v := range v {
			if v, ok := c.setting(name, v); ok {
				kept[name] = v
			}
		}
		shown = kept
	case []any:
		kept := []any{}
		for _, v := range v {
			if v, ok := c.setting(name, v); ok {
				kept = append(kept, v)
			}
		}
		shown = kept
	case string:
		shown = c.clean(v)
	default:
		shown = v
	}
	text, err := json.Marshal(shown)
	if err != nil || len(text) > maxDetail || string(text) != c.hide(string(text)) {
		return nil, false
	}
	return shown, true
}

// secretSetting is secretName without what only sounds like one: SGLang counts in settings such as max_total_num_tokens.
func secretSetting(name string) bool {
	return secretName(name) || strings.Contains(name, "keyfile")
}

// get asks for JSON. header is nil when no answer came; an answer that is not 200 with such JSON is an error too.
func (c *Client) get(ctx context.Context, path string, into any) (header http.Header, err error) {
	r := &http.Request{Method: http.MethodGet, URL: c.url(path), Host: c.host, Header: c.header.Clone()}
	return c.ask(ctx, "get "+path, r, into)
}

// post is get with a body of JSON.
func (c *Client) post(ctx context.Context, path string, body []byte, into any) (header http.Header, err error) {
	r := &http.Request{Method: http.MethodPost, URL: c.url(path), Host: c.host, Header: c.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
	r.Header.Set("Content-Type", "application/json")
	return c.ask(ctx, "post "+path, r, into)
}

func (c *Client) ask(ctx context.Context, what string, r *http.Request, into any) (header http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := c.asks.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s: %w", what, cause)
		}
		return nil, errors.New(what + ": " + c.clean(err.Error()))
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, askBytes))
	switch {
	case err != nil:
		return res.Header, errors.New(what + ": " + c.clean(err.Error()))
	case res.StatusCode != http.StatusOK:
		message := c.clean(serverMessage(said))
		return res.Header, fmt.Errorf("%s: the server answered %d %s", what, res.StatusCode, message)
	}
	if err := json.Unmarshal(said, into); err != nil {
		return res.Header, fmt.Errorf("%s: not the JSON that was expected", what)
	}
	return res.Header, nil
}

// shown is a URL without what may be a secret: its query. (The user was taken off when the client was made.)
func shown(u *url.URL) string {
	v := *u
	v.RawQuery, v.Fragment = "", ""
	return v.String()
}
