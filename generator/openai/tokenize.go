package openai

import (
	"context"
	"encoding/json"
)

// Tokenize asks the server how many tokens a text has, without any that open a prompt. ok is false when the server has no
// POST /tokenize, or does not answer it as vLLM, SGLang or llama.cpp do.
func (c *Client) Tokenize(ctx context.Context, text string) (n int, ok bool) {
	quoted := string(appendEscaped(nil, text)) + `"`
	body := `{"prompt":"` + quoted + `,"add_special_tokens":false`
	if c.cfg.Model != "" {
		body += `,"model":"` + string(appendEscaped(nil, c.cfg.Model)) + `"`
	}
	if n, ok = c.tokenize(ctx, body+"}"); ok && (n > 0 || text == "") {
		return n, true
	}
	if !ok {
		return 0, false
	}
	// llama.cpp has another name for the prompt, and finds no tokens in a text that it does not see.
	if n, ok = c.tokenize(ctx, `{"content":"`+quoted+"}"); ok && n > 0 {
		return n, true
	}
	return 0, false
}

func (c *Client) tokenize(ctx context.Context, body string) (n int, ok bool) {
	var said struct {
		Count  *int
		Tokens *[]json.RawMessage
	}
	if _, err := c.post(ctx, "/tokenize", []byte(body), &said); err != nil {
		return 0, false
	}
	switch {
	case said.Count != nil:
		return *said.Count, *said.Count >= 0
	case said.Tokens != nil:
		return len(*said.Tokens), true
	}
	return 0, false
}
